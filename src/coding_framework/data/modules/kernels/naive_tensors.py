"""Naive kernels of the other operations: reductions, softmax, scans, losses, moves, distances."""

from __future__ import annotations

import re
from collections.abc import Callable

from coding_framework.data.modules.kernels.lowering import (
    Lowering,
    Tensor,
    linear,
    product_of,
    signed,
)
from coding_framework.data.modules.kernels.naive_layers import (
    Lower,
    Parameters,
    powers,
    reads,
    softmax,
)
from coding_framework.data.modules.pointwise import c_literal
from coding_framework.data.modules.records import Operation
from coding_framework.data.modules.structural import REDUCTIONS

# --- reductions ----------------------------------------------------------------------------------

_MOST, _LEAST = ("-INFINITY", "fmaxf({a}, {e})"), ("INFINITY", "fminf({a}, {e})")
"""Where an extremum starts, and how it joins two."""


def lower_reduction(w: Lowering, o: Operation, parameters: Parameters) -> None:
    axes, keep, name = list(o.integers("axes")), o.flag("keepdim"), o.name
    count = product_of([w.dims[a] for a in axes])
    if name in ("amax", "max"):
        w.reduce(axes, "{e}", start=_MOST[0], join=_MOST[1], keepdim=keep)
    elif name in ("amin", "min"):
        w.reduce(axes, "{e}", start=_LEAST[0], join=_LEAST[1], keepdim=keep)
    elif name == "prod":
        w.reduce(axes, "{e}", start="1.0f", join="{a} * {e}", keepdim=keep)
    elif name in ("sum", "mean"):
        w.reduce(axes, "{e}", finish="a" if name == "sum" else f"a / ({count})", keepdim=keep)
    elif name in ("argmax", "argmin"):
        _arg_reduction(w, axes[0], keep, ">" if name == "argmax" else "<")
    elif name in ("var", "std"):
        w.reduce(axes, "{e}", finish=f"a / ({count})", final=False)
        divided = f"a / ({count} - 1)" if o.flag("unbiased") else f"a / ({count})"
        finish = divided if name == "var" else f"sqrtf({divided})"
        w.reduce(
            axes, "({e} - mean[i]) * ({e} - mean[i])", w.stat("mean"), finish=finish, keepdim=keep
        )
    elif name == "vector_norm":
        if o["p"] == "inf":
            w.reduce(axes, "fabsf({e})", start="0.0f", join="fmaxf({a}, {e})", keepdim=keep)
        else:
            power, root = powers(o.real("p"))
            w.reduce(axes, power, finish=root, keepdim=keep)
    else:  # logsumexp
        w.reduce(axes, "{e}", start=_MOST[0], join=_MOST[1], final=False)
        w.reduce(
            axes, "expf({e} - most[i])", w.stat("most"), finish="most[i] + logf(a)", keepdim=keep
        )


def _arg_reduction(w: Lowering, axis: int, keepdim: bool, better: str) -> None:
    """The first place of the extremum along an axis."""
    kept = [a for a in range(len(w.dims)) if a != axis]
    out = [("1" if a == axis else w.dims[a]) for a in range(len(w.dims)) if keepdim or a != axis]
    names = {a: f"i{a if keepdim or a < axis else a - 1}" for a in kept}
    place = linear([names.get(a, "t") for a in range(len(w.dims))], w.dims)
    first = (
        place.replace("t", "0")
        if place == "t"
        else linear([names.get(a, "0") for a in range(len(w.dims))], w.dims)
    )
    body = [
        "int64_t v = 0;",
        f"float best = x[{first}];",
        f"for (int t = 1; t < {w.dims[axis]}; t++) {{",
        f"  float e = x[{place}];",
        f"  if (e {better} best) {{ best = e; v = t; }}",
        "}",
    ]
    w.map(body, out, c_type="int64_t")


SOFTMAXES = ("softmax", "log_softmax", "softmin")


def lower_softmax(w: Lowering, o: Operation, parameters: Parameters) -> None:
    softmax(w, o.number("axis"), o.name)


# --- scans ---------------------------------------------------------------------------------------


SCANS = {
    "cumsum": ("0.0f", "a + e"),
    "cumprod": ("1.0f", "a * e"),
    "cummax": ("-INFINITY", "fmaxf(a, e)"),
    "cummin": ("INFINITY", "fminf(a, e)"),
    "logcumsumexp": ("-INFINITY", "fmaxf(a, e) + log1pf(expf(-fabsf(a - e)))"),
}
"""Where a scan starts, and how what came before, `a`, joins the next element, `e`."""


def lower_scan(w: Lowering, o: Operation, parameters: Parameters) -> None:
    axis, kind, direction = o.number("axis"), str(o["kind"]), str(o["direction"])
    extent = w.dims[axis]
    start, join = SCANS[kind]
    loop = f"for (int t = 0; t < {extent}; t++) {{"
    if direction == "reverse":
        loop = f"for (int t = {extent} - 1; t >= 0; t--) {{"
    step = ["float e = x[{p}];", f"a = {join};", "o[{p}] = a;"]
    if direction == "exclusive":
        step = ["o[{p}] = a;", "float e = x[{p}];", f"a = {join};"]
    if kind in ("cumsum", "cumprod", "logcumsumexp"):
        w.terms.append(extent)
    w.lines(axis, [f"float a = {start};", loop, *(f"  {line}" for line in step), "}"])


# --- losses --------------------------------------------------------------------------------------


def lower_loss(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """The loss of each element or row, then their sum or mean."""
    _LOSSES[o.name](w, o)
    summed_loss(w, str(o["reduction"]))


def summed_loss(w: Lowering, reduction: str) -> None:
    """The sum or mean of losses, if there is to be one."""
    if reduction == "none":
        return
    count = product_of(w.dims)
    w.reduce(
        list(range(len(w.dims))), "{e}", finish="a" if reduction == "sum" else f"a / ({count})"
    )


_ELEMENT_LOSSES = {
    "l1_loss": "fabsf(d)",
    "mse_loss": "d * d",
    "bce_with_logits": "fmaxf(e, 0.0f) - e * y + log1pf(expf(-fabsf(e)))",
    "poisson_nll_loss": "expf(e) - y * e",
}


def element_loss(o: Operation) -> str | None:
    """The loss of the element `e` against `{y}`; None where a loss is of rows."""
    text = _difference_loss(o)
    return re.sub(r"\bd\b", "(e - {y})", text).replace(" y", " {y}") if text else None


def hinge_loss(o: Operation) -> str:
    """Likewise of a hinge loss."""
    text = f"fmaxf(0.0f, {c_literal(o['margin'])} - e * {{y}})"
    return f"{text} * {text}" if o.number("power") == 2 else text


def _difference_loss(o: Operation) -> str:
    """Of `e`, `y` and their difference `d`; "" where a loss is of rows."""
    if o.name == "smooth_l1_loss":
        b = c_literal(o["beta"])
        return f"fabsf(d) < {b} ? 0.5f * d * d / {b} : fabsf(d) - 0.5f * {b}"
    if o.name == "huber_loss":
        b = c_literal(o["delta"])
        return f"fabsf(d) <= {b} ? 0.5f * d * d : {b} * (fabsf(d) - 0.5f * {b})"
    return _ELEMENT_LOSSES.get(o.name, "")


def _element_loss(w: Lowering, o: Operation) -> None:
    other = w.task.inputs[1].name
    body = [f"float e = x[i], y = {other}[i];", *difference_lines(o, "e")]
    w.map(body, w.dims, Tensor(other, other))


def difference_lines(o: Operation, e: str) -> list[str]:
    """The statements that give the loss `v` of an element, which has the name `e`, against `y`."""
    text = re.sub(r"\be\b", e, _difference_loss(o))
    difference = [f"float d = {e} - y;"] if re.search(r"\bd\b", text) else []
    return [*difference, f"float v = {text};"]


def _row_loss(w: Lowering, o: Operation) -> None:
    """Of rows of scores with a label each."""
    n, f = w.dims
    label = Tensor("label", w.task.inputs[1].name, "int64_t")
    if o.name == "nll_loss":
        w.map([f"float v = -x[i0 * {f} + label[i0]];"], [n], label)
        return
    if o.name == "multi_margin_loss":
        w.terms.append(f)
        margin = c_literal(o["margin"])
        w.map(
            [
                f"float own = x[i0 * {f} + label[i0]], v = 0.0f;",
                f"for (int j = 0; j < {f}; j++) {{",
                f"  if (j != label[i0]) v += fmaxf(0.0f, {margin} - own + x[i0 * {f} + j]);",
                "}",
                f"v = v / {f};",
            ],
            [n],
            label,
        )
        return
    smoothing = o.real("label_smoothing")
    w.terms.append(f)
    body = [
        "float most = -INFINITY, total = 0.0f, all = 0.0f;",
        f"for (int j = 0; j < {f}; j++) most = fmaxf(most, x[i0 * {f} + j]);",
        f"for (int j = 0; j < {f}; j++) {{",
        f"  float e = x[i0 * {f} + j];",
        "  total += expf(e - most);",
        "  all += e;",
        "}",
        "float log_total = most + logf(total);",
        f"float v = log_total - x[i0 * {f} + label[i0]];",
    ]
    if smoothing:
        s = c_literal(smoothing)
        body.append(f"v = {c_literal(1.0 - smoothing)} * v + {s} * (log_total - all / {f});")
    else:
        body = [line.replace(", all = 0.0f", "") for line in body if "all += e" not in line]
    w.map(body, [n], label)


def _triplet(w: Lowering, o: Operation) -> None:
    n, f = w.dims
    positive, negative = (given.name for given in w.task.inputs[1:3])
    first = o.real("p") == 1.0
    term = "fabsf(d)" if first else "d * d"
    root = "{a}" if first else "sqrtf({a})"
    w.terms.append(f)
    body = [
        "float near = 0.0f, far = 0.0f;",
        f"for (int j = 0; j < {f}; j++) {{",
        f"  float d = x[i0 * {f} + j] - {positive}[i0 * {f} + j] + 1e-6f;",
        f"  near += {term};",
        f"  d = x[i0 * {f} + j] - {negative}[i0 * {f} + j] + 1e-6f;",
        f"  far += {term};",
        "}",
        f"float v = {root.format(a='near')} - {root.format(a='far')} + {c_literal(o['margin'])};",
        "v = fmaxf(0.0f, v);",
    ]
    w.map(body, [n], Tensor(positive, positive), Tensor(negative, negative))


_LOSSES = {
    **dict.fromkeys(
        (
            "l1_loss",
            "mse_loss",
            "smooth_l1_loss",
            "huber_loss",
            "bce_with_logits",
            "poisson_nll_loss",
        ),
        _element_loss,
    ),
    **dict.fromkeys(("cross_entropy", "nll_loss", "multi_margin_loss"), _row_loss),
    "triplet_margin_loss": _triplet,
}


def lower_hinge(w: Lowering, o: Operation, parameters: Parameters) -> None:
    other = w.task.inputs[1].name
    body = [f"float v = fmaxf(0.0f, {c_literal(o['margin'])} - x[i] * {other}[i]);"]
    if o.number("power") == 2:
        body.append("v = v * v;")
    w.map(body, w.dims, Tensor(other, other))
    summed_loss(w, str(o["reduction"]))


# --- distances -----------------------------------------------------------------------------------


def lower_distance(w: Lowering, o: Operation, parameters: Parameters) -> None:
    other = w.task.inputs[1]
    if o.name == "cdist":
        _all_distances(w, o, other.name, [w.variable(d) for d in other.dims])
        return
    axis = len(w.dims) - 1 if o.name == "pairwise_distance" else o.number("axis")
    kept = [a for a in range(len(w.dims)) if a != axis]
    keep = o.flag("keepdim")
    out = [("1" if a == axis else w.dims[a]) for a in range(len(w.dims)) if keep or a != axis]
    names = {a: f"i{a if keep or a < axis else a - 1}" for a in kept}
    place = linear([names.get(a, "t") for a in range(len(w.dims))], w.dims)
    w.terms.append(w.dims[axis])
    loop = f"for (int t = 0; t < {w.dims[axis]}; t++) {{"
    if o.name == "cosine_similarity":
        eps = c_literal(o["eps"])
        body = [
            "float ab = 0.0f, aa = 0.0f, bb = 0.0f;",
            loop,
            f"  float a = x[{place}], b = {other.name}[{place}];",
            "  ab += a * b; aa += a * a; bb += b * b;",
            "}",
            f"float v = ab / (fmaxf(sqrtf(aa), {eps}) * fmaxf(sqrtf(bb), {eps}));",
        ]
    else:
        power, root = powers(o.real("p"))
        body = [
            "float a = 0.0f;",
            loop,
            f"  float d = x[{place}] - {other.name}[{place}] + {c_literal(o['eps'])};",
            f"  a += {power.replace('{e}', 'd')};",
            "}",
            f"float v = {root};",
        ]
    w.map(body, out, Tensor(other.name, other.name))


def _all_distances(w: Lowering, o: Operation, other: str, given: list[str]) -> None:
    """Between every row of x and every row of the other."""
    *batch, m, k = w.dims
    r = len(batch)
    places = [f"i{a}" for a in range(r)]
    left, right = (
        linear([*places, f"i{r}", "j"], w.dims),
        linear([*places, f"i{r + 1}", "j"], given),
    )
    power, root = powers(o.real("p"))
    w.terms.append(k)
    body = [
        "float a = 0.0f;",
        f"for (int j = 0; j < {k}; j++) {{",
        f"  float d = x[{left}] - {other}[{right}];",
        f"  a += {power.replace('{e}', 'd')};",
        "}",
        f"float v = {root};",
    ]
    w.map(body, [*batch, m, given[-2]], Tensor(other, other))


# --- elementwise ---------------------------------------------------------------------------------


def lower_elementwise(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """The operations that follow, of an input as it stands."""
    w.map(["float v = x[i];"], w.dims)


# --- moves ---------------------------------------------------------------------------------------

Move = tuple[list[str], list[str]]
"""(statements that give `v`, the output's extents)."""


def lower_move(w: Lowering, o: Operation, parameters: Parameters) -> None:
    w.map(*MOVES[o.name](w, o))


def _permute(w: Lowering, o: Operation) -> Move:
    order = o.integers("order")
    out = [w.dims[a] for a in order]
    place = linear([f"i{order.index(a)}" for a in range(len(order))], w.dims)
    return [f"float v = x[{place}];"], out


def _flip(w: Lowering, o: Operation) -> Move:
    axes = o.integers("axes")
    places = [f"({d} - 1 - i{a})" if a in axes else f"i{a}" for a, d in enumerate(w.dims)]
    return [f"float v = x[{linear(places, w.dims)}];"], w.dims


def _roll(w: Lowering, o: Operation) -> Move:
    axis, shifts = o.number("axis"), o.number("shifts")
    dim = w.dims[axis]
    moved = (
        f"(i{axis} + {dim} - {shifts} % {dim}) % {dim}"
        if shifts > 0
        else f"(i{axis} + {-shifts}) % {dim}"
    )
    places = [f"p{axis}" if a == axis else f"i{a}" for a in range(len(w.dims))]
    return [f"int p{axis} = {moved};", f"float v = x[{linear(places, w.dims)}];"], w.dims


def _triangle(w: Lowering, o: Operation) -> Move:
    r = len(w.dims)
    row, column, diagonal = f"i{r - 2}", f"i{r - 1}", o.number("diagonal")
    moved = f"{row} + {diagonal}" if diagonal >= 0 else f"{row} - {-diagonal}"
    inside = f"{column} <= {moved}" if o.name == "tril" else f"{column} >= {moved}"
    return [f"float v = {inside} ? x[i] : 0.0f;"], w.dims


def _pad(w: Lowering, o: Operation) -> Move:
    widths, mode, r = o.integers("widths"), str(o["mode"]), len(w.dims)
    places, out, lines, checks = [f"i{a}" for a in range(r)], list(w.dims), [], []
    for number in range(len(widths) // 2):
        axis, (before, after) = r - 1 - number, widths[2 * number : 2 * number + 2]
        dim = w.dims[axis]
        if before or after:
            out[axis] = w.new_size(f"o{dim}", f"{dim}{signed(before)}{signed(after)}")
        lines.append(f"int p{axis} = i{axis} {'-' if before >= 0 else '+'} {abs(before)};")
        places[axis] = f"p{axis}"
        if mode == "reflect":
            lines += [f"if (p{axis} < 0) p{axis} = -p{axis};",
                      f"if (p{axis} >= {dim}) p{axis} = 2 * {dim} - 2 - p{axis};"]  # fmt: skip
        elif mode == "replicate":
            lines.append(f"p{axis} = min(max(p{axis}, 0), {dim} - 1);")
        else:
            checks.append(f"p{axis} >= 0 && p{axis} < {dim}")
    value = f"x[{linear(places, w.dims)}]"
    if checks:
        value = f"{' && '.join(checks)} ? {value} : {c_literal(o['value'])}"
    return [*lines, f"float v = {value};"], out


def _shuffle(w: Lowering, o: Operation) -> Move:
    r, (n, c, h, width) = o.number("factor"), w.dims
    if o.name == "pixel_shuffle":
        out = [
            n,
            w.new_size("oc", f"{c} / {r * r}"),
            w.new_size("oh", f"{h} * {r}"),
            w.new_size("ow", f"{width} * {r}"),
        ]
        channel = f"(i1 * {r * r} + i2 % {r} * {r} + i3 % {r})"
        place = linear(["i0", channel, f"i2 / {r}", f"i3 / {r}"], w.dims)
    else:
        out = [
            n,
            w.new_size("oc", f"{c} * {r * r}"),
            w.new_size("oh", f"{h} / {r}"),
            w.new_size("ow", f"{width} / {r}"),
        ]
        place = linear(
            ["i0", f"i1 / {r * r}", f"(i2 * {r} + i1 / {r} % {r})", f"i3 * {r} + i1 % {r}"], w.dims
        )
    return [f"float v = x[{place}];"], out


def _upsample(w: Lowering, o: Operation) -> Move:
    r, (n, c, *spatial) = o.number("factor"), w.dims
    out = [n, c, *(w.new_size(f"o{d}", f"{d} * {r}") for d in spatial)]
    places = ["i0", "i1", *(f"i{a + 2} / {r}" for a in range(len(spatial)))]
    return [f"float v = x[{linear(places, w.dims)}];"], out


def _glu(w: Lowering, o: Operation) -> Move:
    axis = o.number("axis")
    half = w.new_size("half_extent", f"{w.dims[axis]} / 2")
    out = [half if a == axis else d for a, d in enumerate(w.dims)]
    places = [f"i{a}" for a in range(len(w.dims))]
    first = linear(places, w.dims)
    places[axis] = f"(i{axis} + {half})"
    gate = f"float gate = x[{linear(places, w.dims)}];"
    return [gate, f"float v = x[{first}] / (1.0f + expf(-gate));"], out


MOVES: dict[str, Callable[[Lowering, Operation], Move]] = {
    "permute": _permute,
    "flip": _flip,
    "roll": _roll,
    **dict.fromkeys(("tril", "triu"), _triangle),
    "pad": _pad,
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle"), _shuffle),
    "upsample_nearest": _upsample,
    "glu": _glu,
}
"""Operation -> what each place of its output takes, and the output's extents."""


def lower_prelu(w: Lowering, o: Operation, parameters: Parameters) -> None:
    channel = ("i1" if len(w.dims) > 1 else "i0") if o.flag("per_channel") else "0"
    weight = parameters[0].c_name
    w.map(
        [f"float v = x[i] > 0.0f ? x[i] : {weight}[{channel}] * x[i];"], w.dims, *reads(parameters)
    )


def lower_embedding(w: Lowering, o: Operation, parameters: Parameters) -> None:
    e = w.variable("embedding_dim")
    out = [*w.dims, e]
    row = linear([f"i{a}" for a in range(len(w.dims))], w.dims)
    w.map(
        [f"float v = {parameters[0].c_name}[x[{row}] * {e} + i{len(w.dims)}];"],
        out,
        *reads(parameters),
    )


TENSOR_KERNELS: dict[str, Lower] = {
    "elementwise": lower_elementwise,
    **dict.fromkeys(REDUCTIONS, lower_reduction),
    **dict.fromkeys(SOFTMAXES, lower_softmax),
    "scan": lower_scan,
    **dict.fromkeys(_LOSSES, lower_loss),
    "hinge": lower_hinge,
    **dict.fromkeys(("cosine_similarity", "pairwise_distance", "cdist"), lower_distance),
    **dict.fromkeys(MOVES, lower_move),
    "prelu": lower_prelu,
    "embedding": lower_embedding,
}
"""Operation -> what writes its kernels."""

"""Naive kernels of layers: products, convolutions, pooling, normalisation."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.fast_groups import Groups, Pass, whole_groups
from coding_framework.data.modules.kernels.lowering import (
    BLOCK,
    MANY_GROUPS,
    Lowering,
    Tensor,
    factor,
    linear,
    product_of,
    signed,
)
from coding_framework.data.modules.pointwise import c_literal
from coding_framework.data.modules.records import Operation, Parameter, extent

Parameters = tuple[Parameter, ...]
Lower = Callable[[Lowering, Operation, Parameters], None]
GroupsWriter = Callable[..., None]
"""`whole_groups`, `naive_groups`."""


def reads(parameters: Parameters) -> list[Tensor]:
    """The parameters as kernels read them."""
    return [Tensor(p.c_name, p.c_name) for p in parameters]


# --- products ------------------------------------------------------------------------------------


def lower_linear(w: Lowering, o: Operation, parameters: Parameters) -> None:
    weight, *bias = parameters
    *outer, k = w.dims
    out = w.variable(str(o["out"]))
    last = len(outer)
    row = linear([f"i{a}" for a in range(last)], outer)
    w.terms.append(k)
    body = [
        f"float v = {f'{bias[0].c_name}[i{last}]' if bias else '0.0f'};",
        f"for (int j = 0; j < {k}; j++)",
        f"  v += x[{factor(row)} * {k} + j] * {weight.c_name}[i{last} * {k} + j];",
    ]
    w.map(body, [*outer, out], *reads(parameters))


def lower_product(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """`matmul`, `bmm` and `matmul_last`: x times another input, either turned."""
    ta, tb, own = o.flag("ta"), o.flag("tb"), o.flag("own")
    inputs = w.task.inputs
    other = inputs[0] if own else inputs[-1] if o.name == "matmul_last" else inputs[1]
    given = [w.variable(d) for d in other.dims]
    batch = w.dims[:-2]
    m, k = (w.dims[-1], w.dims[-2]) if ta else (w.dims[-2], w.dims[-1])
    n = given[-2] if tb else given[-1]
    r = len(batch)
    places = [f"i{a}" for a in range(r)]
    left = linear([*places, "j", f"i{r}"] if ta else [*places, f"i{r}", "j"], w.dims)
    right = linear([*places, f"i{r + 1}", "j"] if tb else [*places, "j", f"i{r + 1}"], given)
    w.terms.append(k)
    name = "x" if own else other.name
    body = ["float v = 0.0f;", f"for (int j = 0; j < {k}; j++) v += x[{left}] * {name}[{right}];"]
    w.map(body, [*batch, m, n], *([] if own else [Tensor(other.name, other.name)]))


def lower_addmm(w: Lowering, o: Operation, parameters: Parameters) -> None:
    a, b = w.task.inputs[1:3]
    k = w.variable(a.dims[-1])
    r = len(w.dims) - 2
    places = [f"i{axis}" for axis in range(r)]
    left = linear([*places, f"i{r}", "j"], [*w.dims[:-1], k])
    right = linear([*places, "j", f"i{r + 1}"], [*w.dims[:-2], k, w.dims[-1]])
    w.terms.append(k)
    body = [
        "float v = 0.0f;",
        f"for (int j = 0; j < {k}; j++) v += {a.name}[{left}] * {b.name}[{right}];",
        f"v = {c_literal(o['beta'])} * x[i] + {c_literal(o['alpha'])} * v;",
    ]
    w.map(body, w.dims, Tensor(a.name, a.name), Tensor(b.name, b.name))


def lower_attention(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """Scores, their softmax by rows, the product with the values: each has kernels of its own."""
    k, v = (given.name for given in w.task.inputs[1:3])
    *outer, length, e = w.dims
    r = len(outer)
    places = [f"i{a}" for a in range(r)]
    left = linear([*places, f"i{r}", "j"], w.dims)
    right = linear([*places, f"i{r + 1}", "j"], w.dims)
    w.terms.append(e)
    body = ["float v = 0.0f;", f"for (int j = 0; j < {e}; j++) v += x[{left}] * {k}[{right}];",
            f"v = v * {c_literal(o['scale'])};"]  # fmt: skip
    if o.flag("causal"):
        body.append(f"if (i{r + 1} > i{r}) v = -INFINITY;")
    post, w.post = w.post, []
    dims = list(w.dims)
    w.map(body, [*outer, length, length], Tensor(k, k))
    softmax(w, r + 1)
    w.post = post
    w.terms.append(length)
    score = linear([*places, f"i{r}", "j"], [*outer, length, length])
    value = linear([*places, "j", f"i{r + 1}"], dims)
    total = f"for (int j = 0; j < {length}; j++) v += x[{score}] * values[{value}];"
    w.map(["float v = 0.0f;", total], dims, Tensor("values", v))


def softmax_passes(name: str) -> tuple[list[Pass], str]:
    """The passes over a group, and each element's result."""
    sign = "-" if name == "softmin" else ""
    most = Pass("most", "max", f"{sign}e")
    if name == "log_softmax":
        return [most, Pass("total", "sum", "expf(e - most)", "most + logf({a})")], "e - total"
    total = Pass("total", "sum", f"expf({sign}e - most)")
    return [most, total], f"expf({sign}e - most) / total"


def softmax(w: Lowering, axis: int, name: str = "softmax") -> None:
    """Its kernel along an axis."""
    naive_groups(w, along(w, axis), *softmax_passes(name))


def along(w: Lowering, axis: int) -> Groups:
    """The lines along an axis of the tensor in hand."""
    return Groups(tuple(w.dims), (axis,))


def naive_groups(
    w: Lowering, groups: Groups, passes: list[Pass], result: str, *given: Tensor
) -> None:
    """`whole_groups` by a thread or a block for each group."""
    values = w.main_values
    w.terms.append(w.new_size("elements", groups.size))
    many = extent(groups.number, values) >= MANY_GROUPS or extent(groups.size, values) < BLOCK
    by_thread = many and len(groups.dims) - 1 not in groups.axes
    whole_groups(w, groups, passes, result, *given, worker="thread" if by_thread else "block")


# --- convolutions --------------------------------------------------------------------------------


def lower_conv(w: Lowering, o: Operation, parameters: Parameters) -> None:
    transposed = o.name.startswith("conv_transpose")
    weight, *bias = parameters
    n = int(o.name[-2])
    batch, c, *spatial = w.dims
    depthwise = o.number("groups") < 0
    m = c if depthwise else w.variable(str(o["out"]))
    groups = o.number("groups")
    outs = conv_extents(w, o)
    each_in = "1" if depthwise else c if groups == 1 else w.new_size("cg", f"{c} / {groups}")
    each_out = "1" if depthwise else m if groups == 1 else w.new_size("mg", f"{m} / {groups}")
    kernel = o.integers("kernel_size")
    w.terms.append(w.new_size("terms", f"{each_in} * {_times(kernel)}"))
    channel = "i1" if depthwise else "e" if groups == 1 else f"i1 / {each_out} * {each_in} + e"
    taps = linear([f"r{a}" for a in range(n)], [str(k) for k in kernel])
    if transposed:
        to = "i1" if groups == 1 else f"i1 % {each_out}"
        first = f"{factor(channel)} * {each_out} + {to}"
    else:
        first = "i1" if depthwise else f"i1 * {each_in} + e"
    inside: Lines = []
    x_at = linear(
        ["i0", channel if " " not in channel else f"({channel})", *(f"p{a}" for a in range(n))],
        w.dims,
    )
    inside.append(f"v += x[{x_at}] * {weight.c_name}[({first}) * {_times(kernel)} + {taps}];")
    lines = inside
    for axis in reversed(range(n)):
        lines = _tap_loop(o, axis, spatial[axis], lines, transposed)
    if not depthwise:
        lines = [f"for (int e = 0; e < {each_in}; e++) {{", *(f"  {line}" for line in lines), "}"]
    start = f"{bias[0].c_name}[i1]" if bias else "0.0f"
    w.map([f"float v = {start};", *lines], [batch, m, *outs], *reads(parameters))


def _times(kernel: tuple[int, ...]) -> int:
    total = 1
    for k in kernel:
        total *= k
    return total


def conv_extents(w: Lowering, o: Operation) -> list[str]:
    """The extents of a convolution's result along its spatial axes."""
    turned = o.name.startswith("conv_transpose")
    return [_conv_extent(w, o, axis, dim, turned) for axis, dim in enumerate(w.dims[2:])]


def _conv_extent(w: Lowering, o: Operation, axis: int, dim: str, transposed: bool) -> str:
    k, s = o.integers("kernel_size")[axis], o.integers("stride")[axis]
    p, d = o.integers("padding")[axis], o.integers("dilation")[axis]
    if not transposed:
        return _window_extent(w, dim, k, s, p, d)
    more = signed(o.integers("output_padding")[axis])
    before = f"({dim} - 1) * {s}" if s > 1 else f"{dim} - 1"
    window = f"{d} * ({k} - 1) + 1" if d > 1 else f"{k}"
    return w.new_size(f"o{dim}", f"{before}{_both_sides(p, '-')} + {window}{more}")


def _both_sides(padding: int, sign: str) -> str:
    return f" {sign} 2 * {padding}" if padding else ""


def _window_extent(w: Lowering, dim: str, k: int, s: int, p: int, d: int) -> str:
    """The extent of what windows of k places give. The module's numbers stand as they are, nothing
    is added up: who reads or copies it need not calculate."""
    if (k, s, p) == (1, 1, 0):
        return dim
    last = _last_start(dim, k, p, d)
    expression = f"({last}) / {s} + 1" if s > 1 else f"{last} + 1"
    return w.new_size(f"o{dim}", expression.removesuffix(" - 1 + 1"))


def _last_start(dim: str, k: int, p: int, d: int) -> str:
    """Where the last window may start, from the first one's start."""
    window = f"{d} * ({k} - 1) - 1" if d > 1 else f"{k}"
    return f"{dim}{_both_sides(p, '+')} - {window}"


def _tap_loop(o: Operation, axis: int, dim: str, inside: Lines, transposed: bool) -> Lines:
    k, s = o.integers("kernel_size")[axis], o.integers("stride")[axis]
    p, d = o.integers("padding")[axis], o.integers("dilation")[axis]
    tap = f"r{axis}" if d == 1 else f"r{axis} * {d}"
    if transposed:
        lines = [f"int p{axis} = i{axis + 2}{signed(p)} - {tap};"]
        if s > 1:
            lines += [
                f"if (p{axis} < 0 || p{axis} % {s} != 0) continue;",
                f"p{axis} = p{axis} / {s};",
                f"if (p{axis} >= {dim}) continue;",
            ]
        else:
            lines.append(f"if (p{axis} < 0 || p{axis} >= {dim}) continue;")
    else:
        at = f"i{axis + 2}" if s == 1 else f"i{axis + 2} * {s}"
        lines = [f"int p{axis} = {at} + {tap}{f' - {p}' if p else ''};"]
        if p:
            lines.append(f"if (p{axis} < 0 || p{axis} >= {dim}) continue;")
    return [
        f"for (int r{axis} = 0; r{axis} < {k}; r{axis}++) {{",
        *(f"  {line}" for line in (*lines, *inside)),
        "}",
    ]


# --- pooling -------------------------------------------------------------------------------------


def lower_pool(w: Lowering, o: Operation, parameters: Parameters) -> None:
    batch, c, *_ = w.dims
    body, outs = pool_body(w, o, "i0", "i1")
    w.map(body, [batch, c, *outs])


def pool_body(w: Lowering, o: Operation, *plane: str) -> tuple[Lines, list[str]]:
    """The statements that give an output of a pooling, `v`, and the output's spatial extents.
    plane: coordinates in front of the spatial ones; none where `x` is one image's channel."""
    kind, n = o.name.split("_pool")[0], int(o.name[-2])
    spatial = w.dims[2:]
    kernel, stride, padding = o.integers("kernel_size"), o.integers("stride"), o.integers("padding")
    dilation = o.number("dilation") if "dilation" in dict(o.arguments) else 1
    outs = [_pool_extent(w, o, dim, a, dilation) for a, dim in enumerate(spatial)]
    at = linear([*plane, *(f"p{a}" for a in range(n))], w.dims[2 - len(plane) :])
    p = c_literal(o["norm_type"]) if kind == "lp" else ""
    inside = {
        "max": f"v = fmaxf(v, x[{at}]);",
        "avg": f"v += x[{at}]; count++;",
        "lp": f"v += powf(x[{at}], {p});",
    }[kind]
    reaches_out = any(padding) or o.flag("ceil_mode")
    fixed_count = kind == "avg" and (o.flag("count_include_pad") or not reaches_out)
    lines = [inside.replace(" count++;", "") if fixed_count else inside]
    for axis in reversed(range(n)):
        tap = f"r{axis}" if dilation == 1 else f"r{axis} * {dilation}"
        before = f" - {padding[axis]}" if padding[axis] else ""
        step = f" * {stride[axis]}" if stride[axis] > 1 else ""
        place = f"int p{axis} = i{axis + 2}{step} + {tap}{before};"
        check = [f"if (p{axis} < 0 || p{axis} >= {spatial[axis]}) continue;"] if reaches_out else []
        lines = [
            f"for (int r{axis} = 0; r{axis} < {kernel[axis]}; r{axis}++) {{",
            *(f"  {line}" for line in (place, *check, *lines)),
            "}",
        ]
    body = [
        f"float v = {'-INFINITY' if kind == 'max' else '0.0f'};",
        *(["int count = 0;"] if kind == "avg" and not fixed_count else []),
        *lines,
    ]
    if kind == "avg":
        body.append(f"v = v / {_times(kernel)}.0f;" if fixed_count else "v = v / count;")
    if kind == "lp":
        body.append(f"v = powf(v, 1.0f / {p});")
    if kind != "max":
        w.terms.append(str(_times(kernel)))
    return body, outs


def _pool_extent(w: Lowering, o: Operation, dim: str, axis: int, dilation: int) -> str:
    k, s, p = (
        o.integers("kernel_size")[axis],
        o.integers("stride")[axis],
        o.integers("padding")[axis],
    )
    if not o.flag("ceil_mode"):
        return _window_extent(w, dim, k, s, p, dilation)
    steps = f"({_last_start(dim, k, p, dilation)} + {s} - 1) / {s}"
    return w.new_size(f"o{dim}", f"{steps} + 1 - ({steps} * {s} >= {dim} + {p})")


def lower_adaptive_pool(w: Lowering, o: Operation, parameters: Parameters) -> None:
    average, n = "avg" in o.name, int(o.name[-2])
    batch, c, *spatial = w.dims
    sizes = o.integers("output_size")
    at = linear(["i0", "i1", *(f"p{a}" for a in range(n))], w.dims)
    lines = [f"v += x[{at}]; count++;" if average else f"v = fmaxf(v, x[{at}]);"]
    for axis in reversed(range(n)):
        i, dim, size = f"i{axis + 2}", spatial[axis], sizes[axis]
        end = f"(({i} + 1) * {dim} + {size - 1}) / {size}"
        lines = [
            f"for (int p{axis} = {i} * {dim} / {size}; p{axis} < {end}; p{axis}++) {{",
            *(f"  {line}" for line in lines),
            "}",
        ]
    body = [
        f"float v = {'0.0f' if average else '-INFINITY'};",
        *(["int count = 0;"] if average else []),
        *lines,
    ]
    if average:
        body.append("v = v / count;")
        w.terms.append(product_of(spatial))
    w.map(body, [batch, c, *(str(s) for s in sizes)])


def lower_global_pool(w: Lowering, o: Operation, parameters: Parameters) -> None:
    axes = list(range(2, len(w.dims)))
    if o["kind"] == "max":
        w.reduce(axes, "{e}", start="-INFINITY", join="fmaxf({a}, {e})", keepdim=True)
        return
    finish = "a" if o["kind"] == "sum" else f"a / ({product_of([w.dims[a] for a in axes])})"
    w.reduce(axes, "{e}", finish=finish, keepdim=True)


# --- normalisation -------------------------------------------------------------------------------


def norm_groups(w: Lowering, o: Operation) -> tuple[Groups, str, str]:
    """(what one mean is about, the place of an element's mean, that of its weight and bias)."""
    dims = tuple(w.dims)
    inner = tuple(range(2, len(dims)))
    if o.name == "batch_norm":
        return Groups(dims, (0, *inner)), "i1", "i1"
    if o.name == "instance_norm":
        return Groups(dims, inner), f"i0 * {dims[1]} + i1", "i1"
    if o.name == "layer_norm":
        outer = len(dims) - o.number("axes")
        axes = tuple(range(outer, len(dims)))
        return (
            Groups(dims, axes),
            linear([f"i{a}" for a in range(outer)], dims[:outer]),
            linear([f"i{a}" for a in axes], dims[outer:]),
        )
    number, (n, c, *rest) = o.number("num_groups"), dims
    each = w.new_size("each", f"{c} / {number}") if number > 1 else c
    groups = Groups((n, str(number), each, *rest), tuple(range(2, 3 + len(rest))))
    return groups, f"i0 * {number} + i1 / {each}" if number > 1 else "i0", "i1"


def norm_tail(o: Operation, parameters: Parameters, affine_at: str) -> tuple[str, list[Tensor]]:
    """What follows the normalised value, and what it reads."""
    affine = parameters[:2] if o.flag("affine") else ()
    tail = (
        " * {}[{at}] + {}[{at}]".format(*(p.c_name for p in affine), at=affine_at) if affine else ""
    )
    return tail, reads(affine)


def norm_passes(w: Lowering, o: Operation, groups: Groups) -> list[Pass]:
    """Mean and scale of a group."""
    size = w.new_size("elements", groups.size)
    finish = f"rsqrtf({{a}} / {size} + {c_literal(o['eps'])})"
    return [
        Pass("mean", "sum", "e", f"{{a}} / {size}"),
        Pass("scale", "sum", "(e - mean) * (e - mean)", finish),
    ]


def lower_norm(w: Lowering, o: Operation, parameters: Parameters) -> None:
    groups, _, affine_at = norm_groups(w, o)
    tail, given = norm_tail(o, parameters, affine_at)
    naive_groups(w, groups, norm_passes(w, o, groups), f"(e - mean) * scale{tail}", *given)


def rms_norm(
    w: Lowering, o: Operation, parameters: Parameters, write: GroupsWriter = naive_groups
) -> None:
    axis = o.number("axis")
    finish = f"rsqrtf({{a}} / {w.dims[axis]} + {c_literal(o['eps'])})"
    weight = f" * {parameters[0].c_name}[i{axis}]" if parameters else ""
    one = Pass("scale", "sum", "e * e", finish)
    write(w, along(w, axis), [one], f"e * scale{weight}", *reads(parameters))


def normalize(
    w: Lowering, o: Operation, parameters: Parameters, write: GroupsWriter = naive_groups
) -> None:
    power, root = powers(o.real("p"))
    one = Pass("size", "sum", power.format(e="e"), f"fmaxf({of_total(root)}, 1e-12f)")
    write(w, along(w, o.number("axis")), [one], "e / size")


def of_total(root: str) -> str:
    """A root of `powers`, of an accumulator to be filled in: "sqrtf(a)" -> "sqrtf({a})"."""
    return "{a}" if root == "a" else root.replace("(a", "({a}")


def powers(p: float) -> tuple[str, str]:
    """|e|^p, and the root of their sum."""
    if p == 1.0:
        return "fabsf({e})", "a"
    if p == 2.0:
        return "{e} * {e}", "sqrtf(a)"
    if p == 3.0:
        return "fabsf({e}) * {e} * {e}", "cbrtf(a)"
    return f"powf(fabsf({{e}}), {c_literal(p)})", f"powf(a, 1.0f / {c_literal(p)})"


NORMS = ("batch_norm", "instance_norm", "group_norm", "layer_norm")

LAYER_KERNELS: dict[str, Lower] = {
    "linear": lower_linear,
    **dict.fromkeys(("bmm", "matmul", "matmul_last"), lower_product),
    "addmm": lower_addmm,
    "attention": lower_attention,
    **{f"conv{t}{n}d": lower_conv for t in ("", "_transpose") for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": lower_pool for kind in ("max", "avg", "lp") for n in (1, 2, 3)},
    **{f"adaptive_{k}_pool{n}d": lower_adaptive_pool for k in ("avg", "max") for n in (1, 2, 3)},
    "global_pool": lower_global_pool,
    **dict.fromkeys(NORMS, lower_norm),
    "rms_norm": rms_norm,
    "normalize": normalize,
}
"""Operation -> what writes its kernels."""

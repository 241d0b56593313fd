"""The other operations of module tasks in PyTorch: reductions, softmax, scans, losses, moves,
products of inputs, attention and distances.
"""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.modules.records import Operation
from coding_framework.data.modules.spelling import Writing

Writer = Callable[[Writing, Operation], None]


def _dim(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else repr(axes)


# --- reductions ----------------------------------------------------------------------------------

_WITH_INDEX = {"max": "max", "min": "min"}


def write_reduction(w: Writing, o: Operation) -> None:
    """One value for each place along the other axes."""
    axes, keep, rank = o.integers("axes"), o.flag("keepdim"), w.rank
    said = w.constant("dim", axes[0]) if len(axes) == 1 and w.draft.level == 1 else _dim(axes)
    kept = ", keepdim=True" if keep else ""
    name = o.name
    if name in _WITH_INDEX:
        w.step(
            w.pick(
                f"torch.{name}({{x}}, dim={said}{kept}).values",
                f"torch.{name}({{x}}, dim={said}{kept})[0]",
            )
        )
    elif name in ("var", "std"):
        correction = "" if o.flag("unbiased") else ", unbiased=False"
        w.step(
            w.pick(
                f"torch.{name}({{x}}, dim={said}{correction}{kept})",
                f"{{x}}.{name}(dim={said}{correction}{kept})",
            )
        )
    elif name == "vector_norm":
        order = w.constant("p", o["p"])
        said_p = 'float("inf")' if o["p"] == "inf" else order
        w.step(w.pick(f"torch.linalg.vector_norm({{x}}, ord={said_p}, dim={said}{kept})",
                      f"torch.norm({{x}}, p={said_p}, dim={said}{kept})"))  # fmt: skip
    else:
        w.step(w.pick(f"torch.{name}({{x}}, dim={said}{kept})", f"{{x}}.{name}(dim={said}{kept})"))
    if not keep:
        w.rank -= len(axes)
    if (1 if w.draft.layout == "channels_first" else rank - 1) in axes:
        w.channels = "1"


def write_softmax(w: Writing, o: Operation) -> None:
    """Normalised exponentials along an axis."""
    axis, name = o["axis"], o.name
    layer = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "softmin": "Softmin"}[name]
    if w.spelling.form == "module":
        w.layer(name, f"nn.{layer}(dim={w.argument('dim', axis)})")
    elif name == "softmin":
        w.step(f"{w.function(name)}({{x}}, dim={w.constant('dim', axis)})")
    else:
        said = w.constant("dim", axis) if w.draft.level == 1 else axis
        w.step(w.pick(f"torch.{name}({{x}}, dim={said})", f"{w.function(name)}({{x}}, dim={said})"))


# --- scans ---------------------------------------------------------------------------------------


def write_scan(w: Writing, o: Operation) -> None:
    """Running results along an axis: forwards, backwards, or without the own element."""
    said, name = w.constant("dim", o["axis"]), str(o["kind"])
    values = ".values" if name in ("cummax", "cummin") else ""
    direction = o["direction"]
    if direction == "forward":
        w.step(
            w.pick(f"torch.{name}({{x}}, dim={said}){values}", f"{{x}}.{name}(dim={said}){values}")
        )
    elif direction == "reverse":
        w.step(f"torch.{name}({{x}}.flip({said}), dim={said}){values}.flip({said})")
    elif name == "cumsum":
        w.step(f"torch.cumsum({{x}}, dim={said}) - {{x}}")
    else:
        w.statement(f"first = torch.ones_like({w.value}.narrow({said}, 0, 1))")
        w.statement(f"kept = {w.value}.narrow({said}, 0, {w.value}.size({said}) - 1)")
        w.step(f"torch.cumprod(torch.cat([first, kept], dim={said}), dim={said})")


# --- losses --------------------------------------------------------------------------------------

LOSSES = {
    "l1_loss": "L1Loss",
    "mse_loss": "MSELoss",
    "smooth_l1_loss": "SmoothL1Loss",
    "huber_loss": "HuberLoss",
    "bce_with_logits": "BCEWithLogitsLoss",
    "poisson_nll_loss": "PoissonNLLLoss",
    "soft_margin_loss": "SoftMarginLoss",
    "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
    "multi_margin_loss": "MultiMarginLoss",
    "triplet_margin_loss": "TripletMarginLoss",
    "margin_ranking_loss": "MarginRankingLoss",
    "kl_div": "KLDivLoss",
}
_LOSS_FUNCTIONS = {"bce_with_logits": "binary_cross_entropy_with_logits"}
_DEFAULTS = {
    "reduction": "mean", "beta": 1.0, "delta": 1.0, "label_smoothing": 0.0, "p": 2.0, "eps": 1e-6,
}  # fmt: skip


def write_loss(w: Writing, o: Operation) -> None:
    """A loss of all inputs."""
    given = [(n, v) for n, v in o.arguments if _DEFAULTS.get(n) != v]
    others = ", ".join(i.name for i in w.draft.inputs[1:])
    if w.spelling.form == "module":
        said = ", ".join(f"{n}={w.argument(n, v)}" for n, v in given)
        name = w.attribute(w.pick("loss", "criterion", "loss_fn"))
        w.init.append(f"self.{name} = nn.{LOSSES[o.name]}({said})")
        w.step(f"self.{name}({{x}}, {others})")
    else:
        said = "".join(f", {n}={w.constant(n, v)}" for n, v in given)
        w.step(f"{w.function(_LOSS_FUNCTIONS.get(o.name, o.name))}({{x}}, {others}{said})")
    w.rank = 0 if o["reduction"] != "none" else w.rank


def write_hinge(w: Writing, o: Operation) -> None:
    """The mean of what misses a margin, of labels of -1 and 1 made from signs."""
    margin, target = w.constant("margin", o["margin"]), w.draft.inputs[1].name
    power = "" if o.number("power") == 1 else " ** 2"
    w.step(f"torch.{o['reduction']}(torch.clamp({margin} - {{x}} * {target}, min=0){power})")
    w.rank = 0


# --- distances -----------------------------------------------------------------------------------


def write_distance(w: Writing, o: Operation) -> None:
    """How far the rows of two inputs are from each other."""
    other = w.draft.inputs[1].name
    if o.name == "cosine_similarity":
        said = f"dim={w.constant('dim', o['axis'])}, eps={w.constant('eps', o['eps'])}"
        w.step(f"{w.function('cosine_similarity')}({{x}}, {other}, {said})")
    elif o.name == "pairwise_distance":
        said = f"p={w.constant('p', o['p'])}, eps={w.constant('eps', o['eps'])}"
        kept = ", keepdim=True" if o.flag("keepdim") else ""
        w.step(f"{w.function('pairwise_distance')}({{x}}, {other}, {said}{kept})")
    else:
        w.step(f"torch.cdist({{x}}, {other}, p={w.constant('p', o['p'])})")


# --- products of inputs --------------------------------------------------------------------------


def write_matmul(w: Writing, o: Operation) -> None:
    """A product of two inputs, either of them transposed, or of one with itself."""
    own = o.flag("own")
    b = w.value if own else w.draft.inputs[1].name
    first, second = _turned(w, "{x}", o.flag("ta")), _turned(w, b, o.flag("tb"))
    w.step(w.pick(f"torch.matmul({first}, {second})", f"{first} @ {second}"))
    other = w.draft.inputs[0 if own else 1].dims
    w.channels = other[-2] if o.flag("tb") else other[-1]


def _turned(w: Writing, name: str, turned: bool) -> str:
    if not turned:
        return name
    two = w.rank == 2
    return w.pick(f"{name}.T" if two else f"{name}.mT", f"{name}.transpose(-2, -1)")


def write_addmm(w: Writing, o: Operation) -> None:
    """beta * C + alpha * A B."""
    a, b = (given.name for given in w.draft.inputs[1:3])
    call = "addmm" if w.rank == 2 else "baddbmm"
    beta, alpha = w.constant("beta", o["beta"]), w.constant("alpha", o["alpha"])
    times = "torch.matmul" if w.rank == 2 else "torch.bmm"
    w.step(w.pick(f"torch.{call}({{x}}, {a}, {b}, beta={beta}, alpha={alpha})",
                  f"{beta} * {{x}} + {alpha} * {times}({a}, {b})"))  # fmt: skip


def write_third_product(w: Writing, o: Operation) -> None:
    """x times the last input."""
    w.step(
        w.pick(
            f"torch.matmul({{x}}, {w.draft.inputs[-1].name})", f"{{x}} @ {w.draft.inputs[-1].name}"
        )
    )
    w.channels = w.draft.inputs[-1].dims[-1]


def write_attention(w: Writing, o: Operation) -> None:
    """softmax(q k^T scale) v, where a place may look at all or at those before it."""
    k, v = (given.name for given in w.draft.inputs[1:3])
    scale = w.constant("scale", o["scale"])
    if w.spelling.form == "module" or w.spelling.choice % 2:
        causal = ", is_causal=True" if o.flag("causal") else ""
        w.step(
            f"{w.function('scaled_dot_product_attention')}({{x}}, {k}, {v}{causal}, scale={scale})"
        )
        return
    w.statement(f"scores = torch.matmul({w.value}, {k}.transpose(-2, -1)) * {scale}")
    if o.flag("causal"):
        w.statement("mask = torch.ones_like(scores, dtype=torch.bool).tril()")
        w.statement('scores = scores.masked_fill(~mask, float("-inf"))')
    w.statement("attention = torch.softmax(scores, dim=-1)")
    w.step(f"torch.matmul(attention, {v})")


# --- moves ---------------------------------------------------------------------------------------


def write_move(w: Writing, o: Operation) -> None:
    """Elements at other places."""
    match o.name:
        case "permute":
            said = ", ".join(str(a) for a in o.integers("order"))
            w.step(f"{{x}}.permute({said}).contiguous()")
        case "flip":
            w.step(
                w.pick(
                    f"torch.flip({{x}}, {o['axes']})",
                    f"torch.flip({{x}}, dims={list(o.integers('axes'))})",
                )
            )
        case "roll":
            shifts, axis = w.constant("shifts", o["shifts"]), w.constant("dim", o["axis"])
            w.step(f"torch.roll({{x}}, shifts={shifts}, dims={axis})")
        case "pad":
            value = f", value={w.constant('value', o['value'])}" if o["mode"] == "constant" else ""
            literal = w.spelling.arguments == "literal"
            widths = repr(o["widths"]) if literal else w.constant("padding", o["widths"])
            w.step(f'{w.function("pad")}({{x}}, {widths}, mode="{o["mode"]}"{value})')
        case "tril" | "triu":
            w.step(f"torch.{o.name}({{x}}, diagonal={w.constant('diagonal', o['diagonal'])})")
        case "pixel_shuffle" | "pixel_unshuffle":
            said = "upscale_factor" if o.name == "pixel_shuffle" else "downscale_factor"
            layer = "PixelShuffle" if o.name == "pixel_shuffle" else "PixelUnshuffle"
            if w.spelling.form == "module":
                w.layer("shuffle", f"nn.{layer}({w.argument(said, o['factor'])})")
            else:
                w.step(f"{w.function(o.name)}({{x}}, {w.constant(said, o['factor'])})")
        case "upsample_nearest":
            factor = o["factor"]
            if w.spelling.form == "module":
                said = w.argument("scale_factor", factor)
                w.layer("upsample", f'nn.Upsample(scale_factor={said}, mode="nearest")')
            else:
                said = w.constant("scale_factor", factor)
                w.step(f"{w.function('interpolate')}({{x}}, scale_factor={said})")
        case "glu":
            along = o["axis"]
            if w.spelling.form == "module":
                w.layer("glu", f"nn.GLU(dim={w.argument('dim', along)})")
            else:
                w.step(f"{w.function('glu')}({{x}}, dim={w.constant('dim', along)})")


def write_prelu(w: Writing, o: Operation) -> None:
    """LeakyReLU whose slope is learnt, one or one a channel."""
    count = w.channels if o.flag("per_channel") else "1"
    start = w.argument("init", o["init"])
    said = w.size(count) if o.flag("per_channel") else "1"
    w.layer("prelu", f"nn.PReLU({said}, init={start})", (("weight", (count,)),))


def write_embedding(w: Writing, o: Operation) -> None:
    """Rows of a table by number."""
    rows, columns = w.size("num_embeddings"), w.size("embedding_dim")
    members = (("weight", ("num_embeddings", "embedding_dim")),)
    w.layer(w.pick("embedding", "embed"), f"nn.Embedding({rows}, {columns})", members)
    w.channels, w.rank = "embedding_dim", w.rank + 1


REDUCTIONS = (
    "sum", "mean", "amax", "amin", "prod", "max", "min", "argmax", "argmin", "var", "std",
    "logsumexp", "vector_norm",
)  # fmt: skip
MOVES = (
    "permute", "flip", "roll", "pad", "tril", "triu", "pixel_shuffle", "pixel_unshuffle",
    "upsample_nearest", "glu",
)  # fmt: skip
STRUCTURAL: dict[str, Writer] = {
    **dict.fromkeys(REDUCTIONS, write_reduction),
    **dict.fromkeys(("softmax", "log_softmax", "softmin"), write_softmax),
    **dict.fromkeys(LOSSES, write_loss),
    **dict.fromkeys(MOVES, write_move),
    **dict.fromkeys(("cosine_similarity", "pairwise_distance", "cdist"), write_distance),
    "scan": write_scan,
    "hinge": write_hinge,
    "matmul": write_matmul,
    "addmm": write_addmm,
    "matmul_last": write_third_product,
    "attention": write_attention,
    "prelu": write_prelu,
    "embedding": write_embedding,
}
"""Operation -> what spells it."""

"""The operations of module tasks: how each is written in PyTorch, ONE row an operation.

Where the way to write it depends on its arguments, a function gives the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from coding_framework.data.modules.records import Operation
from coding_framework.data.modules.spelling import Row, Writing, short

# --- elementwise ---------------------------------------------------------------------------------


def _elementwise(
    words: str, *functions: str, of: str = "", choices: tuple[Any, ...] = ((),),
    alone: tuple[Any, ...] = (), **more: Any,
) -> Row:  # fmt: skip
    """of: names of the arguments, whose values `choices` and `alone` are."""
    names = of.split()

    def each(values: tuple[Any, ...]) -> Any:
        given = (value if isinstance(value, tuple) else (value,) for value in values)
        return tuple(tuple(zip(names, one, strict=True)) for one in given)

    return Row(functions, words=words, choices=each(choices), alone=each(alone), **more)


_parameter = partial(_elementwise, reads="parameter")
_one = partial(_elementwise, reads="one")

ELEMENTWISE: Mapping[str, Row] = {
    "relu": _elementwise("ReLU", "torch.relu({x})", "F.relu({x})", "{x}.relu()",
        "torch.clamp({x}, min=0.0)", layer="nn.ReLU()"),
    "sigmoid": _elementwise("Sigmoid", "torch.sigmoid({x})", "{x}.sigmoid()",
        layer="nn.Sigmoid()"),
    "tanh": _elementwise("Tanh", "torch.tanh({x})", "{x}.tanh()", layer="nn.Tanh()"),
    "gelu": _elementwise("GELU", "F.gelu({x})", layer="nn.GELU()"),
    "gelu_tanh": _elementwise("GELU (tanh approximation)", 'F.gelu({x}, approximate="tanh")',
        layer='nn.GELU(approximate="tanh")'),
    "silu": _elementwise("Swish", "F.silu({x})", "{x} * torch.sigmoid({x})",
        "torch.sigmoid({x}) * {x}", layer="nn.SiLU()"),
    "mish": _elementwise("Mish", "F.mish({x})", "{x} * torch.tanh(F.softplus({x}))",
        layer="nn.Mish()"),
    "softplus": _elementwise("Softplus", "F.softplus({x}, beta={beta}, threshold={threshold})",
        layer="nn.Softplus(beta={beta}, threshold={threshold})", of="beta threshold", usual=True,
        choices=((1.0, 20.0), (2.0, 20.0)),
        alone=((0.5, 20.0), (1.5, 10.0), (3.0, 15.0), (0.25, 20.0))),
    "hardswish": _elementwise("HardSwish", "F.hardswish({x})", "{x} * F.relu6({x} + 3.0) / 6.0",
        layer="nn.Hardswish()"),
    "hardsigmoid": _elementwise("HardSigmoid", "F.hardsigmoid({x})", layer="nn.Hardsigmoid()"),
    "softsign": _elementwise("Softsign", "F.softsign({x})", "{x} / (1 + torch.abs({x}))",
        layer="nn.Softsign()"),
    "elu": _elementwise("ELU", "F.elu({x}, alpha={alpha})", layer="nn.ELU(alpha={alpha})",
        of="alpha", usual=True, choices=(1.0, 0.5), alone=(0.1, 0.3, 1.67, 2.0, 3.0)),
    "celu": _elementwise("CELU", "F.celu({x}, alpha={alpha})", layer="nn.CELU(alpha={alpha})",
        of="alpha", usual=True, choices=(1.0, 2.0), alone=(0.5, 0.75, 1.5, 3.0)),
    "selu": _elementwise("SELU", "F.selu({x})", "torch.selu({x})", layer="nn.SELU()"),
    "leaky_relu": _elementwise("LeakyReLU", "F.leaky_relu({x}, negative_slope={negative_slope})",
        "torch.where({x} > 0, {x}, {x} * {negative_slope})", layer="nn.LeakyReLU({negative_slope})",
        of="negative_slope", usual=True, choices=(0.01, 0.1, 0.2),
        alone=(0.02, 0.05, 0.3, 0.25, 0.5)),
    "hardtanh": _elementwise("HardTanh", "F.hardtanh({x}, min_val={min_val}, max_val={max_val})",
        layer="nn.Hardtanh(min_val={min_val}, max_val={max_val})", of="min_val max_val", usual=True,
        choices=((-1.0, 1.0), (-2.0, 2.0), (-0.5, 1.5)),
        alone=((-3.0, 1.0), (0.0, 4.0), (-0.25, 0.75))),
    "clamp": _elementwise("Clamp", "torch.clamp({x}, {min_value}, {max_value})",
        "torch.clamp({x}, min={min_value}, max={max_value})", "{x}.clamp({min_value}, {max_value})",
        of="min_value max_value", choices=((-1.0, 1.0), (0.0, 3.0), (-0.5, 2.0), (-3.0, 0.5)),
        alone=((-2.0, 0.25), (0.1, 0.9), (-4.0, 4.0))),
    "clamp_min": _elementwise("ClampMin", "torch.clamp({x}, min={min_value})",
        "torch.clamp_min({x}, {min_value})", of="min_value", choices=(-0.5, 0.25, -1.0),
        alone=(0.75, -2.0)),
    "relu6": _elementwise("ReLU6", "F.relu6({x})", layer="nn.ReLU6()"),
    "abs": _elementwise("Abs", "torch.abs({x})", "{x}.abs()"),
    "square": _elementwise("Square", "{x} * {x}", "torch.square({x})", "{x} ** 2"),
    "sin": _elementwise("Sine", "torch.sin({x})"),
    "logsigmoid": _elementwise("LogSigmoid", "F.logsigmoid({x})", layer="nn.LogSigmoid()"),
    "tanhshrink": _elementwise("Tanhshrink", "F.tanhshrink({x})", "{x} - torch.tanh({x})",
        layer="nn.Tanhshrink()"),
    "softshrink": _elementwise("Softshrink", "F.softshrink({x}, lambd={lambd})",
        layer="nn.Softshrink(lambd={lambd})", of="lambd", usual=True, choices=(0.5, 0.25),
        alone=(0.1, 0.75, 1.0, 1.5)),
    "hardshrink": _elementwise("Hardshrink", "F.hardshrink({x}, lambd={lambd})",
        layer="nn.Hardshrink(lambd={lambd})", of="lambd", usual=True, jumps=True, choices=(0.5,),
        alone=(0.1, 0.25, 0.75, 1.0)),
    "threshold": _elementwise("Threshold", "F.threshold({x}, {threshold}, {value})",
        "torch.where({x} > {threshold}, {x}, {value})", layer="nn.Threshold({threshold}, {value})",
        of="threshold value", jumps=True, choices=((0.1, 0.0),),
        alone=((0.5, -1.0), (-0.5, 2.0), (1.0, 0.5), (0.25, 20.0))),
    "add_scalar": _elementwise("AddScalar", "{x} + {add_value}", "torch.add({x}, {add_value})",
        of="add_value", choices=(0.5, 1.0, 2.0, 0.1)),
    "subtract_scalar": _elementwise("SubtractScalar", "{x} - {subtract_value}",
        "torch.sub({x}, {subtract_value})", of="subtract_value", choices=(0.5, 1.0, 2.0)),
    "scale": _elementwise("Scaling", "{x} * {scale_factor}", "torch.mul({x}, {scale_factor})",
        of="scale_factor", choices=(2.0, 0.5, 1.5, 0.1)),
    "divide": _elementwise("Divide", "{x} / {divisor}", "torch.div({x}, {divisor})",
        of="divisor", choices=(2.0, 10.0, 1.5)),
    "add_bias": _parameter("BiasAdd", "{x} + {p}", "torch.add({x}, {p})", parameter="bias"),
    "subtract_bias": _parameter("BiasSubtract", "{x} - {p}", parameter="subtract"),
    "multiply_weight": _parameter("ChannelScale", "{x} * {p}", "{p} * {x}", parameter="weight"),
    "add_one": _one("ScalarAdd", "{x} + {p}", parameter="bias"),
    "subtract_one": _one("ScalarSubtract", "{x} - {p}", parameter="offset"),
    "multiply_one": _one("ScalarScale", "{x} * {p}", "{p} * {x}", parameter="multiplier"),
    "least_of_one": _one("Min", "torch.minimum({x}, {p})", "torch.min({x}, {p})",
        parameter="most"),
    "most_of_one": _one("Max", "torch.maximum({x}, {p})", "torch.max({x}, {p})",
        parameter="least"),
    "add_input": _elementwise("ResidualInput", "{x} + {p}", "torch.add({x}, {p})", reads="input"),
    "multiply_input": _elementwise("Gate", "{x} * {p}", "torch.mul({x}, {p})", reads="input"),
    "add_head": _elementwise("ResidualAdd", "{x} + {p}", reads="head"),
    "multiply_head": _elementwise("ResidualMultiply", "{x} * {p}", reads="head"),
}  # fmt: skip
"""To add one: its words, its PyTorch, and the arguments that it is drawn with."""

# --- products and convolutions -------------------------------------------------------------------


def _linear(w: Writing, o: Operation) -> Row:
    """x @ weight^T, with a bias or without."""
    rows, columns = w.size(w.channels), w.size(o["out"])
    w.channels = o["out"]
    if w.spelling.form == "module":
        layer = f"nn.Linear({rows}, {columns}{{,bias!True}})"
        return Row(layer=layer, attributes=("linear", "fc", "gemm", "proj"))
    weight = w.parameter("weight", (columns, rows))
    if not o["bias"]:
        return Row((f"torch.matmul({{x}}, {weight}.t())", f"{{x}} @ {weight}.T"))
    bias = w.parameter("bias", (columns,))
    said = (f"F.linear({{x}}, {weight}, {bias})", f"{{x}} @ {weight}.t() + {bias}")
    return Row(said, imports=True)


def _bmm(w: Writing, o: Operation) -> Row:
    w.channels = w.draft.inputs[1].dims[-1]
    return Row(("torch.bmm({x}, {other})", "torch.matmul({x}, {other})", "{x} @ {other}"))


def _matmul(w: Writing, o: Operation) -> Row:
    """A product of two inputs, either of them transposed, or of one with itself."""
    turned = w.pick(".T" if w.draft.rank == 2 else ".mT", ".transpose(-2, -1)")
    first = "{x}" + turned * o["ta"]
    second = ("{x}" if o.get("own") else "{other}") + turned * o["tb"]
    return Row((f"torch.matmul({first}, {second})", f"{first} @ {second}"))


def _addmm(w: Writing, o: Operation) -> Row:
    """beta * C + alpha * A B."""
    both, times = ("addmm", "matmul") if w.draft.rank == 2 else ("baddbmm", "bmm")
    return Row((f"torch.{both}({{x}}, {{other}}, {{last}}, beta={{beta}}, alpha={{alpha}})",
                f"{{beta}} * {{x}} + {{alpha}} * torch.{times}({{other}}, {{last}})"))  # fmt: skip


def _attention(w: Writing, o: Operation) -> Row:
    """softmax(q k^T scale) v, where a place may look at all or at those before it."""
    if w.spelling.form == "module" or w.spelling.choice % 2:
        more = "{,is_causal!False:causal}, scale={scale}"
        return Row((f"F.scaled_dot_product_attention({{x}}, {{others}}{more})",))
    masked = (
        "mask = torch.ones_like(scores, dtype=torch.bool).tril()\n"
        'scores = scores.masked_fill(~mask, float("-inf"))\n'
    )
    return Row((
        f"scores = torch.matmul({{x}}, {{other}}.transpose(-2, -1)) * {{scale}}\n"
        f"{masked * o['causal']}attention = torch.softmax(scores, dim=-1)\n"
        "torch.matmul(attention, {last})",
    ))  # fmt: skip


def _conv(n: int, transposed: bool, w: Writing, o: Operation) -> Row:
    """A convolution, transposed or not, of n spatial axes."""
    before, out, groups = w.channels, o["out"], o["groups"]
    options = "{,stride=1}{,padding=0}"
    options += "{,output_padding=0}{,groups=1}{,dilation=1}" if transposed else "{,dilation=1}"
    depthwise = groups < 0
    name = f"conv{'_transpose' * transposed}{n}d"
    w.channels = out
    rows = w.size(before)
    if w.spelling.form == "module":
        columns, size = w.size(out), w.argument("kernel_size", short(o["kernel_size"]))
        of_all = "" if transposed else f", groups={rows}" if depthwise else "{,groups=1}"
        said = w.filled(f"{options}{of_all}{{,bias=True}}", Row(whole=True), o, w.argument)
        named = w.pick("", "kernel_size=") if said else ""
        usual = ("conv_transpose", "deconv", "up") if transposed else ("conv", "conv", name)
        kind = "ConvTranspose" if transposed else "Conv"
        layer = f"nn.{kind}{n}d({rows}, {columns}, {named}{size}{said})"
        return Row(layer=layer, attributes=usual)
    each = f" // {groups}" * (groups > 1)
    read = "1" if depthwise else before + each
    shape = (before, out + each) if transposed else (out, read)
    weight = w.parameter("weight", (*shape, *map(str, o["kernel_size"])))
    bias = f", {w.parameter('bias', (out,))}" if o["bias"] else ""
    of_all = "" if transposed else ", groups={x}.shape[1]" if depthwise else "{,groups=1}"
    return Row((f"F.{name}({{x}}, {weight}{bias}{options}{of_all})",))


# --- pooling and normalisation -------------------------------------------------------------------


def _pool(kind: str, layer: str, n: int) -> Row:
    """Maximum, average or power mean over windows."""
    said = ("{,norm_type=}{,kernel_size=}{,stride=kernel_size}{,padding=0}{,dilation=1}"
            "{,ceil_mode=False}{,count_include_pad=True}")  # fmt: skip
    return Row(
        (f"F.{kind}_pool{n}d({{x}}{said})",), f"nn.{layer}{n}d({said})",
        attributes=("pool", f"{kind}_pool"), whole=True, prefix="pool_",
    )  # fmt: skip


def _global_pool(w: Writing, o: Operation) -> Row:
    """The mean, maximum or sum over all spatial axes, which stay as 1."""
    n = w.draft.rank - 2
    if o["kind"] == "mean" and w.spelling.choice % 2:
        ones = 1 if n == 1 else (1,) * n
        layer = f"nn.AdaptiveAvgPool{n}d({ones})"
        return Row((f"F.adaptive_avg_pool{n}d({{x}}, {ones})",), layer)
    call = {"mean": "mean", "max": "amax", "sum": "sum"}[o["kind"]]
    axes = f"dim={[*range(2, n + 2)] if n > 1 else 2}, keepdim=True"
    return Row((f"torch.{call}({{x}}, {axes})", f"{{x}}.{call}({axes})"))


def _layer_norm(w: Writing, o: Operation) -> Row:
    """Over the last axes."""
    axes = o["axes"]
    dims = w.draft.inputs[0].dims[-axes:] if axes > 1 or w.draft.level == 1 else (w.channels,)
    sizes = [w.size(dim) for dim in dims]
    shape = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"
    if w.spelling.form == "functional" and not o["affine"]:
        kept = w.attribute("normalized_shape", shape)
        kept = kept if len(sizes) > 1 else f"({kept},)"
        return Row((f"F.layer_norm({{x}}, {kept}{{,eps=1e-05}})",))
    layer = f"nn.LayerNorm({shape}{{,eps=1e-05}}{{,elementwise_affine!True:affine}})"
    return Row(layer=layer, attributes=("norm", "layer_norm", "ln"))


def _rms_norm(w: Writing, o: Operation) -> Row:
    """x over the root of its mean square along an axis, with a weight or without."""
    axis, eps = o["axis"], w.constant("eps", o["eps"])
    square = w.pick("{x} * {x}", "{x}.pow(2)", "{x} ** 2")
    root = w.pick(f"{{x}} * torch.rsqrt(mean_square + {eps})",
                  f"{{x}} / torch.sqrt(mean_square + {eps})")  # fmt: skip
    if o["affine"]:
        shape = (w.draft.inputs[0].dims[axis], *("1",) * (w.draft.rank - 1 - axis))
        root = f"{w.parameter('weight', shape, 'torch.ones')} * ({root})"
    return Row((f"mean_square = torch.mean({square}, dim={axis}, keepdim=True)\n{root}",))


# --- the rest ------------------------------------------------------------------------------------


def _scan(w: Writing, o: Operation) -> Row:
    """Running results along an axis: forwards, backwards, or without the own element."""
    name, dim = o["kind"], "{dim:axis}"
    values = ".values" if name in ("cummax", "cummin") else ""
    match o["direction"], name:
        case "forward", _:
            said = f"{name}({{x}}, dim={dim}){values}", f"{name}(dim={dim}){values}"
            return Row((f"torch.{said[0]}", f"{{x}}.{said[1]}"))
        case "reverse", _:
            return Row((f"torch.{name}({{x}}.flip({dim}), dim={dim}){values}.flip({dim})",))
        case _, "cumsum":
            return Row((f"torch.cumsum({{x}}, dim={dim}) - {{x}}",))
    return Row((
        f"first = torch.ones_like({{x}}.narrow({dim}, 0, 1))\n"
        f"kept = {{x}}.narrow({dim}, 0, {{x}}.size({dim}) - 1)\n"
        f"torch.cumprod(torch.cat([first, kept], dim={dim}), dim={dim})",
    ))  # fmt: skip


def _hinge(w: Writing, o: Operation) -> Row:
    """The mean of what misses a margin, of labels of -1 and 1 made from signs."""
    missed = f"torch.clamp({{margin}} - {{x}} * {{other}}, min=0){' ** 2' * (o['power'] == 2)}"
    return Row((f"torch.{o['reduction']}({missed})",))


def _flip(w: Writing, o: Operation) -> Row:
    axes = o["axes"]
    return Row((f"torch.flip({{x}}, {axes})", f"torch.flip({{x}}, dims={[*axes]})"))


def _permute(w: Writing, o: Operation) -> Row:
    return Row((f"{{x}}.permute({', '.join(map(str, o['order']))}).contiguous()",))


def _pad(w: Writing, o: Operation) -> Row:
    value = f", value={w.constant('value', o['value'])}" if o["mode"] == "constant" else ""
    widths = w.constant("padding", o["widths"])
    return Row((f'F.pad({{x}}, {widths}, mode="{o["mode"]}"{value})',))


def _prelu(w: Writing, o: Operation) -> Row:
    """LeakyReLU whose slope is learnt, one or one a channel."""
    start = w.argument("init", o["init"])
    return Row(layer=f"nn.PReLU({'{channels}' if o['per_channel'] else '1'}, init={start})")


def _vector_norm(w: Writing, o: Operation) -> Row:
    said = f"dim={w.constant('dim', short(o['axes']))}{{,keepdim!False}})"
    return Row((f"torch.linalg.vector_norm({{x}}, ord={{p}}, {said}",
                f"torch.norm({{x}}, p={{p}}, {said}"))  # fmt: skip


def _reductions() -> Mapping[str, Row]:
    """One value for each place along the other axes."""
    along = "dim={dim:axes}"
    found: dict[str, Row] = {}
    for name in ("sum", "mean", "amax", "amin", "prod", "argmax", "argmin", "var", "std",
                 "logsumexp"):  # fmt: skip
        said = f"{along}{{,unbiased!True}}{{,keepdim!False}}"
        found[name] = Row((f"torch.{name}({{x}}, {said})", f"{{x}}.{name}({said})"))
    for name in ("max", "min"):
        said = f"torch.{name}({{x}}, {along}{{,keepdim!False}})"
        found[name] = Row((f"{said}.values", f"{said}[0]"))
    return found


REDUCTIONS = _reductions()
_LOSSES = {
    "l1_loss": ("L1", ""),
    "mse_loss": ("MSE", ""),
    "smooth_l1_loss": ("SmoothL1", "{,beta=1.0}"),
    "huber_loss": ("Huber", "{,delta=1.0}"),
    "bce_with_logits": ("BCEWithLogits", ""),
    "poisson_nll_loss": ("PoissonNLL", ""),
    "cross_entropy": ("CrossEntropy", "{,label_smoothing=0.0}"),
    "nll_loss": ("NLL", ""),
    "multi_margin_loss": ("MultiMargin", "{,margin=}"),
    "triplet_margin_loss": ("TripletMargin", "{,margin=}{,p=2.0}"),
}


def _loss(name: str, layer: str, options: str) -> Row:
    """A loss of all inputs."""
    function = name.replace("bce_", "binary_cross_entropy_")
    options += "{,reduction='mean'}"
    return Row((f"F.{function}({{x}}, {{others}}{options})",), f"nn.{layer}Loss({options})",
               attributes=("loss", "criterion", "loss_fn"), called="({x}, {others})")  # fmt: skip


LOSSES = {name: _loss(name, *rest) for name, rest in _LOSSES.items()}
_EPS = "{,eps=1e-05}"
_TORCH_OR_F = ("torch.{n}({{x}}, dim={{dim:axis}})", "F.{n}({{x}}, dim={{dim:axis}})")
_softmax = {
    name: Row(tuple(said.format(n=name) for said in _TORCH_OR_F), f"nn.{layer}(dim={{dim:axis}})",
              imports=True)
    for name, layer in (("softmax", "Softmax"), ("log_softmax", "LogSoftmax"))
}  # fmt: skip
ROWS: Mapping[str, Row | Callable[[Writing, Operation], Row]] = {
    **ELEMENTWISE,
    **REDUCTIONS,
    **LOSSES,
    **_softmax,
    "vector_norm": _vector_norm,
    "softmin": Row(("F.softmin({x}, dim={dim:axis})",), "nn.Softmin(dim={dim:axis})"),
    "linear": _linear,
    "bmm": _bmm,
    "matmul": _matmul,
    "matmul_last": Row(("torch.matmul({x}, {last})", "{x} @ {last}")),
    "addmm": _addmm,
    "attention": _attention,
    **{f"conv{n}d": partial(_conv, n, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": partial(_conv, n, True) for n in (1, 2, 3)},
    **{f"max_pool{n}d": _pool("max", "MaxPool", n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _pool("avg", "AvgPool", n) for n in (1, 2, 3)},
    **{f"lp_pool{n}d": _pool("lp", "LPPool", n) for n in (1, 2)},
    **{
        f"adaptive_{kind.lower()}_pool{n}d": Row(
            (f"F.adaptive_{kind.lower()}_pool{n}d({{x}}, {{output_size}})",),
            f"nn.Adaptive{kind}Pool{n}d({{output_size}})", attributes=("pool",),
        )
        for kind in ("Avg", "Max") for n in (1, 2, 3)
    },
    "global_pool": _global_pool,
    "batch_norm": Row(
        layer=f"nn.BatchNorm{{n}}d({{channels}}{_EPS}{{,affine!True}}"
        "{,track_running_stats!True:tracked})",
        attributes=("bn", "batch_norm", "norm"),
    ),
    "instance_norm": Row(
        layer=f"nn.InstanceNorm{{n}}d({{channels}}{_EPS}{{,affine!False}})",
        attributes=("instance_norm", "norm"),
    ),
    "group_norm": Row(
        layer=f"nn.GroupNorm({{num_groups}}, {{channels}}{_EPS}{{,affine!True}})",
        attributes=("group_norm", "gn", "norm"),
    ),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "normalize": Row(("F.normalize({x}, p={p}, dim={dim:axis})",)),
    "scan": _scan,
    "hinge": _hinge,
    "cosine_similarity": Row(
        ("F.cosine_similarity({x}, {other}, dim={dim:axis}, eps={eps})",)
    ),
    "pairwise_distance": Row(
        ("F.pairwise_distance({x}, {other}, p={p}, eps={eps}{,keepdim!False})",)
    ),
    "cdist": Row(("torch.cdist({x}, {other}, p={p})",)),
    "permute": _permute,
    "flip": _flip,
    "roll": Row(("torch.roll({x}, shifts={shifts}, dims={dim:axis})",)),
    "pad": _pad,
    **{n: Row((f"torch.{n}({{x}}, diagonal={{diagonal}})",)) for n in ("tril", "triu")},
    "pixel_shuffle": Row(
        ("F.pixel_shuffle({x}, {upscale_factor:factor})",),
        "nn.PixelShuffle({upscale_factor:factor})", attributes=("shuffle",),
    ),
    "pixel_unshuffle": Row(
        ("F.pixel_unshuffle({x}, {downscale_factor:factor})",),
        "nn.PixelUnshuffle({downscale_factor:factor})", attributes=("shuffle",),
    ),
    "upsample_nearest": Row(
        ("F.interpolate({x}, scale_factor={scale_factor:factor})",),
        'nn.Upsample(scale_factor={scale_factor:factor}, mode="nearest")',
        attributes=("upsample",),
    ),
    "glu": Row(("F.glu({x}, dim={dim:axis})",), "nn.GLU(dim={dim:axis})"),
    "prelu": _prelu,
    "embedding": Row(
        layer="nn.Embedding({num_embeddings}, {embedding_dim})", attributes=("embedding", "embed")
    ),
}  # fmt: skip

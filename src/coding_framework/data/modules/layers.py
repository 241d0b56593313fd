"""The layers of module tasks in PyTorch: products, convolutions, pooling and normalisation.

A writer spells its operation: as a layer of torch.nn, or as a function with explicit parameters.
"""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.modules.records import Operation, Parameter, Value
from coding_framework.data.modules.spelling import Writing, is_default, short

Writer = Callable[[Writing, Operation], None]

# --- products ------------------------------------------------------------------------------------


def write_linear(w: Writing, o: Operation) -> None:
    """x @ weight^T, with a bias or without."""
    features, out = w.channels, o["out"]
    assert isinstance(out, str)
    rows, columns = w.size(features), w.size(out)
    if w.spelling.form == "module":
        members: list[tuple[str, tuple[str, ...]]] = [("weight", (out, features))]
        if o.flag("bias"):
            members.append(("bias", (out,)))
        bias = "" if o.flag("bias") else ", bias=False"
        w.layer(
            w.pick("linear", "fc", "gemm", "proj"),
            f"nn.Linear({rows}, {columns}{bias})",
            tuple(members),
        )
    else:
        w.size(features)  # the constructor takes it first
        weight = w.parameter("weight", (out, features))
        if o.flag("bias"):
            bias = w.parameter("bias", (out,))
            plain = f"{{x}} @ {weight}.t() + {bias}"
            w.step(w.pick(f"{w.function('linear')}({{x}}, {weight}, {bias})", plain))
        else:
            w.step(w.pick(f"torch.matmul({{x}}, {weight}.t())", f"{{x}} @ {weight}.T"))
    w.channels = out


def write_bmm(w: Writing, o: Operation) -> None:
    """A batched product of two inputs."""
    other = w.draft.inputs[1]
    w.step(
        w.pick(
            f"torch.bmm({{x}}, {other.name})",
            f"torch.matmul({{x}}, {other.name})",
            f"{{x}} @ {other.name}",
        )
    )
    w.channels = other.dims[-1]


# --- convolutions --------------------------------------------------------------------------------


def _options(w: Writing, o: Operation, names: tuple[tuple[str, Value], ...]) -> str:
    """The arguments that are not PyTorch's defaults, by keyword; all, where the constructor has
    defaults."""
    said = []
    for name, default in names:
        if w.spelling.defaults or not is_default(o, name, default):
            said.append(f", {name}={w.argument(name, short(o[name]))}")
    return "".join(said)


_CONV = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
_TRANSPOSED = (("stride", 1), ("padding", 0), ("output_padding", 0), ("groups", 1), ("dilation", 1))


def write_conv(w: Writing, o: Operation) -> None:
    """A convolution, transposed or not, of 1 to 3 spatial axes."""
    transposed = o.name.startswith("conv_transpose")
    n, groups, out = int(o.name[-2]), o.number("groups"), o["out"]
    assert isinstance(out, str)
    if out == "in_channels * 1":
        out = w.channels
    kernel = o.integers("kernel_size")
    divided = f" / {groups}" if groups > 1 else ""
    if groups < 0:  # depthwise: as many groups as channels
        weight_dims: tuple[str, ...] = (out, "1")
    elif transposed:
        weight_dims = (w.channels, f"{out}{divided}")
    else:
        weight_dims = (out, f"{w.channels}{divided}")
    weight_dims = (*weight_dims, *(str(k) for k in kernel))
    if w.spelling.form == "module":
        _conv_layer(w, o, transposed, n, out, weight_dims)
    else:
        _conv_function(w, o, transposed, n, out, weight_dims)
    w.channels = out


def _conv_layer(
    w: Writing, o: Operation, transposed: bool, n: int, out: str, weight_dims: tuple[str, ...]
) -> None:
    rows, columns = w.size(w.channels), w.size(out)
    size = w.argument("kernel_size", short(o.integers("kernel_size")))
    if o.number("groups") < 0:
        options = _options(w, o, _CONV[:3]) + f", groups={rows}"
    else:
        options = _options(w, o, _TRANSPOSED if transposed else _CONV)
    if w.spelling.defaults or not o.flag("bias"):
        options += f", bias={w.argument('bias', o.flag('bias'))}"
    named = w.pick("", "kernel_size=") if options else ""
    kind = "ConvTranspose" if transposed else "Conv"
    members = [("weight", weight_dims)]
    if o.flag("bias"):
        members.append(("bias", (out,)))
    base = (
        w.pick("conv_transpose", "deconv", "up")
        if transposed
        else w.pick("conv", "conv", f"conv{n}d")
    )
    w.layer(base, f"nn.{kind}{n}d({rows}, {columns}, {named}{size}{options})", tuple(members))


def _conv_function(
    w: Writing, o: Operation, transposed: bool, n: int, out: str, weight_dims: tuple[str, ...]
) -> None:
    w.size(w.channels)  # the constructor takes it first
    weight = w.parameter("weight", weight_dims)
    bias = w.parameter("bias", (out,)) if o.flag("bias") else ""
    said = f", {bias}" if bias else ""
    for name, default in _TRANSPOSED if transposed else _CONV:
        if name == "groups" and o.number("groups") < 0:
            said += ", groups={x}.shape[1]"
        elif not is_default(o, name, default):
            said += f", {name}={w.constant(name, short(o[name]))}"
    kind = "conv_transpose" if transposed else "conv"
    w.step(f"{w.function(f'{kind}{n}d')}({{x}}, {weight}{said})")


# --- pooling -------------------------------------------------------------------------------------

_POOL_DEFAULTS: dict[str, Value] = {
    "padding": 0,
    "dilation": 1,
    "ceil_mode": False,
    "count_include_pad": True,
}


def write_pool(w: Writing, o: Operation) -> None:
    """Maximum, average or power mean over windows."""
    kind, n = o.name.split("_pool")[0], int(o.name[-2])
    kernel, stride = o.integers("kernel_size"), o.integers("stride")
    first = [("norm_type", o["norm_type"])] if kind == "lp" else []
    first.append(("kernel_size", short(kernel)))
    if stride != kernel or w.spelling.defaults:
        first.append(("stride", short(stride)))
    for name, default in _POOL_DEFAULTS.items():
        if name in dict(o.arguments) and (w.spelling.defaults or not is_default(o, name, default)):
            first.append((name, short(o[name])))
    if w.spelling.form == "module":
        said = ", ".join(f"{name}={w.argument(_pool_argument(w, name), v)}" for name, v in first)
        layer = {"max": "MaxPool", "avg": "AvgPool", "lp": "LPPool"}[kind]
        w.layer(w.pick("pool", f"{kind}_pool"), f"nn.{layer}{n}d({said})")
    else:
        said = ", ".join(f"{name}={w.constant(_pool_argument(w, name), v)}" for name, v in first)
        w.step(f"{w.function(f'{kind}_pool{n}d')}({{x}}, {said})")


def _pool_argument(w: Writing, name: str) -> str:
    """What the constructor calls it: beside a convolution's it has a name of its own."""
    return name if w.draft.level == 1 else f"pool_{name}"


def write_adaptive_pool(w: Writing, o: Operation) -> None:
    """Average or maximum over as many windows as the output has places."""
    kind, n = ("avg" if "avg" in o.name else "max"), int(o.name[-2])
    layer = "AdaptiveAvgPool" if kind == "avg" else "AdaptiveMaxPool"
    size = short(o.integers("output_size"))
    if w.spelling.form == "module":
        w.layer("pool", f"nn.{layer}{n}d({w.argument('output_size', size)})")
    else:
        call = w.function(f"adaptive_{kind}_pool{n}d")
        w.step(f"{call}({{x}}, {w.constant('output_size', size)})")


def write_global_pool(w: Writing, o: Operation) -> None:
    """The mean, maximum or sum over all spatial axes, which stay as 1."""
    n, kind = w.rank - 2, o["kind"]
    axes = [*range(2, w.rank)]
    said = repr(axes) if n > 1 else "2"
    if kind == "mean" and w.spelling.choice % 2 and n > 0:
        ones = 1 if n == 1 else (1,) * n
        if w.spelling.form == "module":
            w.layer("global_pool", f"nn.AdaptiveAvgPool{n}d({ones})")
        else:
            w.step(f"{w.function(f'adaptive_avg_pool{n}d')}({{x}}, {ones})")
    else:
        call = {"mean": "mean", "max": "amax", "sum": "sum"}[str(kind)]
        w.step(
            w.pick(
                f"torch.{call}({{x}}, dim={said}, keepdim=True)",
                f"{{x}}.{call}(dim={said}, keepdim=True)",
            )
        )


# --- normalisation -------------------------------------------------------------------------------


def _affine(
    w: Writing, o: Operation, dims: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (("weight", dims), ("bias", dims)) if o.flag("affine") else ()


def _eps(w: Writing, o: Operation, name: str = "eps") -> str:
    return "" if is_default(o, "eps", 1e-5) else f", eps={w.argument(name, o['eps'])}"


def write_batch_norm(w: Writing, o: Operation) -> None:
    """In training mode, as a new module is: by the statistics of the batch."""
    n = max(1, w.rank - 2)
    affine = "" if o.flag("affine") else ", affine=False"
    tracked = o.flag("tracked")
    stats = "" if tracked else ", track_running_stats=False"
    momentum = ""
    call = f"nn.BatchNorm{n}d({w.size(w.channels)}{_eps(w, o)}{momentum}{affine}{stats})"
    members = _affine(w, o, (w.channels,))
    if tracked:
        members = (*members, ("running_mean", (w.channels,)), ("running_var", (w.channels,)))
    name = w.pick("bn", "batch_norm", "norm")
    w.layer(name, call, members)
    if tracked:
        owner = w.parameters[-1].name.rpartition(".")[0]
        w.parameters.append(Parameter(f"{owner}.num_batches_tracked", (), "int64"))


def write_instance_norm(w: Writing, o: Operation) -> None:
    """Over the spatial axes of each image and channel."""
    affine = ", affine=True" if o.flag("affine") else ""
    call = f"nn.InstanceNorm{w.rank - 2}d({w.size(w.channels)}{_eps(w, o)}{affine})"
    w.layer(w.pick("instance_norm", "norm"), call, _affine(w, o, (w.channels,)))


def write_group_norm(w: Writing, o: Operation) -> None:
    """Over groups of channels and their places."""
    groups = w.argument("num_groups", o["num_groups"])
    affine = "" if o.flag("affine") else ", affine=False"
    call = f"nn.GroupNorm({groups}, {w.size(w.channels)}{_eps(w, o)}{affine})"
    w.layer(w.pick("group_norm", "gn", "norm"), call, _affine(w, o, (w.channels,)))


def write_layer_norm(w: Writing, o: Operation) -> None:
    """Over the last axes."""
    axes = o.number("axes")
    dims = (
        tuple(w.draft.inputs[0].dims[-axes:]) if axes > 1 or w.draft.level == 1 else (w.channels,)
    )
    sizes = [w.size(d) for d in dims]
    shape = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"
    affine = "" if o.flag("affine") else ", elementwise_affine=False"
    eps = _eps(w, o)
    if w.spelling.form == "functional" and not o.flag("affine"):
        text = f"self.{_kept_shape(w, shape)}"
        text = text if len(sizes) > 1 else f"({text},)"
        eps = "" if not eps else f", eps={w.constant('eps', o['eps'])}"
        w.step(f"{w.function('layer_norm')}({{x}}, {text}{eps})")
        return
    w.layer(
        w.pick("norm", "layer_norm", "ln"),
        f"nn.LayerNorm({shape}{eps}{affine})",
        _affine(w, o, dims),
    )


def _kept_shape(w: Writing, shape: str) -> str:
    name = w.attribute("normalized_shape")
    w.init.append(f"self.{name} = {shape}")
    return name


def write_rms_norm(w: Writing, o: Operation) -> None:
    """x over the root of its mean square along an axis, with a weight or without."""
    axis = o.number("axis")
    eps = w.constant("eps", o["eps"])
    x = w.value
    square = w.pick(f"{x} * {x}", f"{x}.pow(2)", f"{x} ** 2")
    w.statement(f"mean_square = torch.mean({square}, dim={axis}, keepdim=True)")
    root = w.pick(
        f"{{x}} * torch.rsqrt(mean_square + {eps})", f"{{x}} / torch.sqrt(mean_square + {eps})"
    )
    if o.flag("affine"):
        rank = w.rank
        inner = 0 if axis % rank == rank - 1 else rank - 1 - axis % rank
        weight = w.parameter(
            "weight", (w.draft.inputs[0].dims[axis], *("1",) * inner), "torch.ones"
        )
        root = f"{weight} * ({root})"
    w.step(root)


def write_normalize(w: Writing, o: Operation) -> None:
    """x over its p-norm along an axis."""
    p, axis = w.constant("p", o["p"]), w.constant("dim", o["axis"])
    w.step(f"{w.function('normalize')}({{x}}, p={p}, dim={axis})")


LAYERS: dict[str, Writer] = {
    "linear": write_linear,
    "bmm": write_bmm,
    **{f"conv{n}d": write_conv for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": write_conv for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": write_pool for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"lp_pool{n}d": write_pool for n in (1, 2)},
    **{f"adaptive_{k}_pool{n}d": write_adaptive_pool for k in ("avg", "max") for n in (1, 2, 3)},
    "global_pool": write_global_pool,
    "batch_norm": write_batch_norm,
    "instance_norm": write_instance_norm,
    "group_norm": write_group_norm,
    "layer_norm": write_layer_norm,
    "rms_norm": write_rms_norm,
    "normalize": write_normalize,
}
"""Operation -> what spells it."""

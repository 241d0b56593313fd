"""Cores that work place by place, or move data: elementwise ones of several inputs, low precision,
integers and gradients; permutations, rows by index, counts, gates; images and sequences."""

from __future__ import annotations

from functools import partial

from coding_framework.data.synthesis.cores.rows import mean, same, total, within
from coding_framework.data.synthesis.function import FLOATS, Core, Given, Sizes, weight
from coding_framework.data.synthesis.steps import Interval

# --- elementwise ----------------------------------------------------------------------------------

_op = partial(
    Core,
    sizes=Sizes("nm", ((128, 512), (61, 259), (3, 5)), ((4096, 8192), (4093, 8191), (3, 5))),
)
_Y, _Z, _G = Given("y"), Given("z"), Given("g")


def _within_two(v: Interval) -> Interval:
    return Interval.of(min(v.low, -2.0), max(v.high, 2.0))


def _four_more(v: Interval) -> Interval:
    return Interval.of(v.low - 4.0, v.high + 4.0)


LOW_PRECISION = (
    _op("elementwise", "x", "{v}", interval=same, dtypes=("float16", "bfloat16"), atoms=()),
)
SELECT = tuple(
    _op(f"select{word}", f"torch.where(x {sign} y, x, z)", f"({{v}} {sign} y ? {{v}} : z)",
        others=(_Y, _Z), interval=_within_two)
    for word, sign in (("gt", ">"), ("lt", "<"))
)  # fmt: skip
MULTIPLY_ADD = (
    _op("addcmul", "torch.addcmul(x, y, z)", "({v} + y * z)", others=(_Y, _Z),
        interval=_four_more, dtypes=FLOATS),
    _op("addcdiv", "torch.addcdiv(x, y, z)", "({v} + y / z)",
        others=(_Y, Given("z", low=0.5)), interval=_four_more),
    _op("lerp", "torch.lerp(x, y, z)", "lerp({v}, y, z)",
        others=(_Y, Given("z", low=0.0, high=1.0)), interval=_within_two),
)  # fmt: skip


def _integer(name: str, torch: str, spoken: str, *constants: int) -> Core:
    return _op(
        name, torch, spoken, others=(Given("y", None, "int32", 0.0, 10_000.0),), x_dtype="int32",
        x_range=(0.0, 10_000.0), output="int32", letters="c",
        choices=tuple((c,) for c in constants), steps_before=False,
    )  # fmt: skip


INTEGER = (
    _integer("intmad", "x * {c} + y", "{v} * {c} + y", 2, 3, 5, 7, 11, 100),
    _integer("intmod", "(x + y) % {c}", "({v} + y) mod {c}", 7, 10, 97, 1000),
    _integer("intmask", "(x & {c}) | y", "({v} & {c}) | y", 15, 255, 1023),
    _integer("intshift", "(x << {c}) ^ y", "({v} << {c}) ^ y", 1, 3, 5, 8),
    _integer("intdist", "(x - y).abs() // {c}", "|{v} - y| / {c}", 2, 3, 5),
    _integer("intgate", "torch.where(x % {c} == 0, x, y)",
             "({v} mod {c} = 0 ? {v} : y)", 2, 3, 4, 10),
)  # fmt: skip


def _gradient(name: str, torch: str, atoms: tuple[str, ...] | None = None) -> Core:
    """The gradient of an activation: g times its derivative at x."""
    return _op(
        f"{name}backward", torch, f"g * {name}'({{v}})", others=(_G,), dtypes=FLOATS, atoms=atoms,
        interval=within(-2.5, 2.5, -1.5, 1.5),
        steps_before=name not in ("relu", "leakyrelu"),  # whose sign is all that counts
    )  # fmt: skip


ACTIVATION_BACKWARD = (
    _gradient("relu", "torch.where(x > 0, g, torch.zeros_like(g))"),
    _gradient("leakyrelu", "torch.where(x > 0, g, 0.1 * g)"),
    _gradient("elu", "torch.where(x > 0, g, g * torch.exp(x))"),
    _gradient("sigmoid", "g * torch.sigmoid(x) * (1 - torch.sigmoid(x))"),
    _gradient("tanh", "g * (1 - torch.tanh(x) ** 2)"),
    _gradient("softplus", "g * torch.sigmoid(x)",
              ("scale", "exp", "shift", "recip", "scale", "mul_full")),
    _gradient("silu", "g * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))"),
    _gradient("gelu", "g * (0.5 * (1 + torch.erf(x * 0.7071067811865476))"
              " + x * torch.exp(-0.5 * x * x) * 0.3989422804014327)"),
    _gradient("softsign", "g / (1 + x.abs()) ** 2"),
    _gradient("hardswish", "torch.where(x <= -3, torch.zeros_like(g), "
              "torch.where(x < 3, g * (x / 3 + 0.5), g))"),
)  # fmt: skip

_step = partial(_op, interval=same, letters="c", choices=((1,), (2,), (5,), (10,)))
_MOMENT = Given("a", low=-1.0, high=1.0)
_SECOND = Given("b", low=0.05)
OPTIMIZER_STEP = (
    _step("sgdstep", "x - 0.01 * {c} * g", "{v} - 0.01 * {c} * g", others=(_G,)),
    _step("momentumstep", "x - 0.01 * {c} * (0.9 * a + g)", "{v} - 0.01 * {c} * (0.9 * a + g)",
          others=(_G, _MOMENT)),
    _step("adamstep", "x - 0.01 * {c} * a / (torch.sqrt(b) + 1e-6)",
          "{v} - 0.01 * {c} * a / (sqrt(b) + 1e-6)", others=(_MOMENT, _SECOND)),
    _step("adamwstep", "x * (1 - 0.001 * {c}) - 0.01 * a / (torch.sqrt(b) + 1e-6)",
          "{v} * (1 - 0.001 * {c}) - 0.01 * a / (sqrt(b) + 1e-6)", others=(_MOMENT, _SECOND),
          choices=((1,), (10,), (50,), (100,))),
)  # fmt: skip

# --- permutations: transposes of a batch of matrices ----------------------------------------------

PERMUTE = tuple(
    Core(
        f"permute{order.replace(', ', '')}",
        f"x.permute({order}).contiguous()",
        f"{{v}} with its axes in the order ({order})",
        Sizes(
            "bnm",
            ((8, 96, 128), (5, 61, 75), (2, 3, 5)),
            ((64, 1024, 512), (37, 1021, 509), (2, 3, 5)),
        ),
        dtypes=FLOATS,
        atoms=("transpose",),
    )
    for order in ("0, 2, 1", "2, 0, 1", "1, 2, 0")
)

# --- reductions of the middle axis ----------------------------------------------------------------
_MIDDLE = Sizes(
    "bnm",
    ((4, 128, 64), (3, 75, 45), (2, 3, 5)),
    ((16, 8192, 256), (5, 4093, 509), (2, 3, 5)),
)
MIDDLE_REDUCTION = tuple(
    Core(name, torch, f"{name}({{v}}) along the middle axis", _MIDDLE, interval=interval,
               terms=terms)
    for name, torch, interval, terms in (
        ("midsum", "x.sum(dim=1)", total(128), "n"),
        ("midmean", "x.mean(dim=1)", mean, "n"),
        ("midmax", "x.amax(dim=1)", same, "1"),
        ("midmin", "x.amin(dim=1)", same, "1"),
        ("midnorm", "torch.linalg.vector_norm(x, dim=1)",
         lambda v: Interval(0.0, 91 * v.largest, 2.0, 40.0), "n"),
    )
)  # fmt: skip

# --- rows by index --------------------------------------------------------------------------------

_ASKED = Given("y", "a", "int64", 0.0, "n")
_gather = partial(
    Core,
    sizes=Sizes(
        "nma",
        ((200, 128, 300), (101, 75, 83), (4, 5, 3)),
        ((32768, 1024, 32768), (4093, 1021, 8191), (4, 5, 3)),
    ),
    x="n m",
    interval=lambda v: Interval.of(2 * v.low - 2.5, 2 * v.high + 2.5),
)
"""Rows of the table, columns, rows asked for."""
GATHER = (
    _gather("gatherrows", "x[y]", "rows y of {v}", others=(_ASKED,), interval=same, dtypes=FLOATS),
    _gather("gatheradd", "x[y] + z", "rows y of {v}, plus z", others=(_ASKED, Given("z", "a m"))),
    _gather("gatherbias", "x[y] + b", "rows y of {v}, plus b", others=(_ASKED, weight("b", "m"))),
    _gather("gatherscale", "x[y] * c[:, None]", "rows y of {v}, times c",
            others=(_ASKED, Given("c", "a"))),
)  # fmt: skip

# --- counts ---------------------------------------------------------------------------------------

_histogram = partial(
    Core,
    sizes=Sizes("n", ((32768,), (10007,), (13,)), ((16777216,), (8388593,), (13,))),
    x_dtype="int64",
    x_range=(0.0, 1000.0),
    steps_before=False,
    letters="c",
    choices=((8,), (10,), (16,), (32,), (64,), (100,), (128,), (256,)),
    output="int64",
    check=lambda params: 2 <= params[0] <= 1000,
)
HISTOGRAM = (
    _histogram("countmod", "torch.bincount(x % {c}, minlength={c})",
               "how many of {v} have each remainder mod {c}"),
    _histogram("countclamp", "torch.bincount(x.clamp(max={c} - 1), minlength={c})",
               "how many of min({v}, {c} - 1) have each value"),
    _histogram("countscaled", "torch.bincount(x * {c} // 1001, minlength={c})",
               "a histogram of {v} with {c} bins over [0, 1000]"),
)  # fmt: skip

# --- gates over halves of the last axis -----------------------------------------------------------

_HALVES = Sizes("nm", ((128, 512), (61, 262), (3, 6)), ((4096, 8192), (4093, 8190), (3, 6)))
GLU = tuple(
    Core(name, ("a, g = x.chunk(2, dim=1)", f"a * {gate}"),
               f"{name}({{v}}) of its halves", _HALVES, steps_before=False,
               interval=within(-17.0, 17.0, -2.0, 2.0))
    for name, gate in (
        ("glu", "torch.sigmoid(g)"),
        ("siluglu", "F.silu(g)"),
        ("geluglu", "F.gelu(g)"),
        ("reluglu", "torch.relu(g)"),
        ("tanhglu", "torch.tanh(g)"),
    )
)  # fmt: skip

# --- one scale and shift a channel ----------------------------------------------------------------

_A, _B = weight("a", "c"), weight("b", "c")
_S, _W = Given("s", "c", low=0.5, high=2.0), Given("g", "c", low=0.5, high=1.5)
_channel = partial(
    Core,
    sizes=Sizes(
        "bchw",
        ((4, 16, 24, 24), (3, 7, 19, 21), (1, 3, 2, 3)),
        ((32, 64, 128, 128), (5, 37, 127, 125), (1, 3, 2, 3)),
    ),
    interval=lambda v: Interval(
        3 * v.low - 5, 3 * v.high + 5, 3 * v.typical_low - 1, 3 * v.typical_high + 1
    ),
)
CHANNEL_NORM = (
    _channel("batchnorm", "F.batch_norm(x, a, s, g, b)",
             "batchnorm({v}) with mean a, variance s, weight g, bias b", others=(_A, _S, _W, _B)),
    _channel("channelscale", "x * g[:, None, None]", "{v} times g of its channel", others=(_W,)),
    _channel("channelaffine", "x * g[:, None, None] + b[:, None, None]",
             "{v} times g plus b of its channel", others=(_W, _B)),
    _channel("channelstandard", "(x - a[:, None, None]) / torch.sqrt(s[:, None, None])",
             "{v} minus a over the root of s of its channel", others=(_A, _S)),
)  # fmt: skip

# --- upsampling -----------------------------------------------------------------------------------

UPSAMPLE = (
    Core(
        "upsample",
        "F.interpolate(x, scale_factor={f}, mode='nearest')",
        "{v} upsampled {f} times to nearest",
        Sizes(
            "bchw",
            ((2, 8, 32, 32), (3, 5, 19, 21), (1, 2, 3, 2)),
            ((32, 64, 128, 128), (5, 37, 127, 125), (1, 2, 3, 2)),
        ),
        letters="f",
        choices=((2,), (3,), (4,)),
        check=lambda params: 2 <= params[0] <= 4,
    ),
)

# --- rotary embeddings ----------------------------------------------------------------------------
_rotary = partial(
    Core,
    sizes=Sizes(
        "btw",
        ((4, 96, 64), (3, 45, 38), (1, 3, 6)),
        ((64, 2048, 128), (37, 1021, 126), (1, 3, 6)),
    ),
    others=(weight("y", "t w/2"), weight("z", "t w/2")),
    interval=lambda v: Interval(-2 * v.largest, 2 * v.largest, -v.usual, v.usual),
)
ROTARY = (
    _rotary("rotary",
            ("a, b = x.chunk(2, dim=2)", "torch.cat([a * y - b * z, b * y + a * z], dim=2)"),
            "{v} turned by the cosines y and sines z, first half against second"),
    _rotary("rotarypairs",
            ("a, b = x[..., 0::2], x[..., 1::2]",
             "torch.stack([a * y - b * z, b * y + a * z], dim=3).flatten(2)"),
            "{v} turned by the cosines y and sines z, in pairs of neighbours"),
)  # fmt: skip

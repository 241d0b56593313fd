"""Workloads over images and sequences, place by place: channel norms, upsampling, rotary ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.kernel_text import Launch, Lines
from coding_framework.data.synthesis.styles import Style
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Size,
    Workload,
    WorkloadOp,
    Writer,
    each,
    weight,
)
from coding_framework.types import KernelExample

# --- one scale and shift a channel ----------------------------------------------------------------

_PLANES: tuple[Size, Size, Size] = ((4, 16, 24, 24), (3, 7, 19, 21), (1, 3, 2, 3))
_GPU_PLANES: tuple[Size, Size, Size] = ((32, 64, 128, 128), (5, 37, 127, 125), (1, 3, 2, 3))
_SIZES = "int m = x.size(0) * x.size(1), c = x.size(1), w = x.size(2) * x.size(3);"


@dataclass(frozen=True, slots=True)
class ChannelFormula:
    """An affine function of x per channel. `scale` and `shift` read the inputs at channel {c}."""

    scale: str
    shift: str


def _affine(formula: ChannelFormula, style: Style, scale: str, shift: str) -> Lines:
    v = style.value
    return [f"{v} = {v} * {scale} + {shift};" if formula.shift else f"{v} = {v} * {scale};"]


def _naive_channels(formula: ChannelFormula, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    i, v = style.index, style.value
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * w) return;
int e = $i / w % c;
float $v = x[$i];
$pre
$affine
$post
$o[$i] = $v;
""",
        i=i,
        v=v,
        affine=_affine(
            formula, style, f"({formula.scale.format(c='e')})", f"({formula.shift.format(c='e')})"
        ),
        post=workload.post(v),
    )
    grid = f"(m * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_SIZES, "torch::empty_like(x)", grid, ["m", "c", "w"])
    return write.example("naive", "one thread per element", launch, body)


def _plane_channels(formula: ChannelFormula, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    v = style.value
    shift = formula.shift.format(c="e")
    body = write.body(
        """
int r = blockIdx.y, e = r % c;
float f = $scale;
$shift
for (int j = blockIdx.x * 128 + threadIdx.x; j < w; j += 128 * gridDim.x) {
  float $v = x[r * w + j];
  $pre
  $affine
  $post
  $o[r * w + j] = $v;
}
""",
        v=v,
        scale=formula.scale.format(c="e"),
        shift=[f"float d = {shift};"] if shift else [],
        affine=_affine(formula, style, "f", "d"),
        post=workload.post(v),
    )
    launch = Launch(_SIZES, "torch::empty_like(x)", "dim3((w + 511) / 512, m), 128", ["c", "w"])
    why = (
        "the channel's factors are computed once for a thread's four places, and a grid row per "
        "plane needs no division"
    )
    return write.example("coalesced", "a grid row per plane", launch, body, why)


def _channel_op(
    name: str, formula: ChannelFormula, torch: str, spoken: str, names: str
) -> WorkloadOp:
    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        channels = size[1]
        given = {
            "a": weight("a", channels),
            "s": Given("s", (channels,), low=0.5, high=2.0),
            "g": Given("g", (channels,), low=0.5, high=1.5),
            "b": weight("b", channels),
        }
        return (Given("x", size), *(given[n] for n in names))

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        kernels=partial(each, (_naive_channels, _plane_channels), formula),
        sizes=_PLANES,
        gpu_sizes=_GPU_PLANES,
        interval=lambda v: Interval(3 * v.low - 5, 3 * v.high + 5, 3 * v.typical_low - 1,
                                    3 * v.typical_high + 1),
    )  # fmt: skip


CHANNEL_NORM = (
    _channel_op(
        "batchnorm",
        ChannelFormula(
            "g[{c}] * rsqrtf(s[{c}] + 1e-5f)", "b[{c}] - a[{c}] * g[{c}] * rsqrtf(s[{c}] + 1e-5f)"
        ),
        "F.batch_norm(x, a, s, g, b)",
        "batchnorm({v}) with mean a, variance s, weight g, bias b",
        "asgb",
    ),
    _channel_op(
        "channelscale",
        ChannelFormula("g[{c}]", ""),
        "x * g[:, None, None]",
        "{v} times g of its channel",
        "g",
    ),
    _channel_op(
        "channelaffine",
        ChannelFormula("g[{c}]", "b[{c}]"),
        "x * g[:, None, None] + b[:, None, None]",
        "{v} times g plus b of its channel",
        "gb",
    ),
    _channel_op(
        "channelstandard",
        ChannelFormula("1.0f / sqrtf(s[{c}])", "-a[{c}] / sqrtf(s[{c}])"),
        "(x - a[:, None, None]) / torch.sqrt(s[:, None, None])",
        "{v} minus a over the root of s of its channel",
        "as",
    ),
)

# --- upsampling -----------------------------------------------------------------------------------

_SMALL: tuple[Size, Size, Size] = ((2, 8, 32, 32), (3, 5, 19, 21), (1, 2, 3, 2))
_GPU_SMALL: tuple[Size, Size, Size] = ((32, 64, 128, 128), (5, 37, 127, 125), (1, 2, 3, 2))
_UP_SIZES = "int m = x.size(0) * x.size(1), h = x.size(2), w = x.size(3);"


def _up_kernels(workload: Workload, style: Style) -> tuple[KernelExample, ...]:
    return _naive_up(workload, style), _scatter_up(workload, style)


def _up_out(factor: int) -> str:
    return f"torch::empty({{x.size(0), x.size(1), h * {factor}, w * {factor}}}, x.options())"


def _naive_up(workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (factor,) = workload.params
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * h * w * $area) return;
int q = $i % (w * $f), y = $i / (w * $f);
float $v = x[y / $f * w + q / $f];
$pre
$o[$i] = $v;
""",
        f=factor,
        area=factor * factor,
    )
    area = factor * factor
    grid = f"(m * h * w * {area} + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_UP_SIZES, _up_out(factor), grid, ["m", "h", "w"])
    return write.example("naive", "one thread per output", launch, body)


def _scatter_up(workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (factor,) = workload.params
    body = write.body(
        """
int q = blockIdx.y * 128 + threadIdx.x, y = blockIdx.x;
if (q >= w * $f) return;
float $v = x[y * w + q / $f];
$pre
for (int d = 0; d < $f; d++) $o[(y * $f + d) * w * $f + q] = $v;
""",
        f=factor,
    )
    launch = Launch(
        _UP_SIZES, _up_out(factor), f"dim3(m * h, (w * {factor} + 127) / 128), 128", ["w"]
    )  # rows first: a grid has 65,535 blocks at most in its other directions
    why = (
        "each value is read and put through the steps once for the rows it fills, writes stay "
        "coalesced, and a 2D grid needs no division for the row"
    )
    return write.example("coalesced", "an input row per grid column", launch, body, why)


UPSAMPLE = (
    WorkloadOp(
        name="upsample",
        inputs=lambda params, size: (Given("x", size),),
        torch=("F.interpolate(x, scale_factor={f}, mode='nearest')",),
        spoken="{v} upsampled {f} times to nearest",
        kernels=_up_kernels,
        sizes=_SMALL,
        gpu_sizes=_GPU_SMALL,
        letters="f",
        choices=((2,), (3,), (4,)),
        check=lambda params: 2 <= params[0] <= 4,
    ),
)

# --- rotary embeddings ----------------------------------------------------------------------------

_TOKENS: tuple[Size, Size, Size] = ((4, 96, 64), (3, 45, 38), (1, 3, 6))
_GPU_TOKENS: tuple[Size, Size, Size] = ((64, 2048, 128), (37, 1021, 126), (1, 3, 6))
_ROTARY_SIZES = "int b = x.size(0), m = x.size(1), w = x.size(2);"


def _naive_rotary(neighbours: bool, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    i, v = style.index, style.value
    angle, mate, first = (
        ("j / 2", f"{i} + 1 - j % 2 * 2", "j % 2 == 0")
        if neighbours
        else ("j % (w / 2)", f"{i} + (j < w / 2 ? w / 2 : -w / 2)", "j < w / 2")
    )
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= b * m * w) return;
int j = $i % w, r = $i / w % m, p = r * (w / 2) + $angle;
float $v = x[$i];
$pre
float a = $v;
$v = x[$mate];
$pre
a = a * y[p] + ($first ? -$v : $v) * z[p];
$post
$o[$i] = a;
""",
        i=i,
        v=v,
        angle=angle,
        mate=mate,
        first=first,
    )
    grid = f"(b * m * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_ROTARY_SIZES, "torch::empty_like(x)", grid, ["b", "m", "w"])
    return write.example("naive", "one thread per output", launch, body)


def _pair_rotary(neighbours: bool, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    v, i = style.value, style.index
    near, far = (f"{i} * 2", f"{i} * 2 + 1") if neighbours else ("q * w + j", "q * w + j + w / 2")
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= b * m * (w / 2)) return;
int j = $i % (w / 2), q = $i / (w / 2), p = q % m * (w / 2) + j;
float $v = x[$far];
$pre
float e = $v, s = z[p], c = y[p];
$v = x[$near];
$pre
float a = $v * c - e * s;
$post
$o[$near] = a;
a = e * c + $v * s;
$post
$o[$far] = a;
""",
        i=i,
        v=v,
        near=near,
        far=far,
    )
    grid = f"(b * m * (w / 2) + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_ROTARY_SIZES, "torch::empty_like(x)", grid, ["b", "m", "w"])
    why = (
        "a thread turns a whole pair, so every value, cosine and sine is read once instead of "
        "twice and half as many threads compute indices"
    )
    return write.example("fused", "one thread per pair", launch, body, why)


def _rotary_op(name: str, neighbours: bool, torch: tuple[str, ...], spoken: str) -> WorkloadOp:
    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        batch, tokens, width = size
        return (
            Given("x", (batch, tokens, width)),
            weight("y", tokens, width // 2),
            weight("z", tokens, width // 2),
        )

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=torch,
        spoken=spoken,
        kernels=partial(each, (_naive_rotary, _pair_rotary), neighbours),
        sizes=_TOKENS,
        gpu_sizes=_GPU_TOKENS,
        interval=lambda v: Interval(
            -2 * max(abs(v.low), abs(v.high)),
            2 * max(abs(v.low), abs(v.high)),
            -max(abs(v.typical_low), abs(v.typical_high)),
            max(abs(v.typical_low), abs(v.typical_high)),
        ),
    )


ROTARY = (
    _rotary_op(
        "rotary",
        False,
        (
            "a, b = x.chunk(2, dim=2)",
            "torch.cat([a * y - b * z, b * y + a * z], dim=2)",
        ),
        "{v} turned by the cosines y and sines z, first half against second",
    ),
    _rotary_op(
        "rotarypairs",
        True,
        (
            "a, b = x[..., 0::2], x[..., 1::2]",
            "torch.stack([a * y - b * z, b * y + a * z], dim=3).flatten(2)",
        ),
        "{v} turned by the cosines y and sines z, in pairs of neighbours",
    ),
)

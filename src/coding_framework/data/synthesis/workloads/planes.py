"""Workloads over images and sequences, place by place: channel norms, upsampling, rotary ones."""

from __future__ import annotations

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import Given, Params, Size, WorkloadOp, weight

# --- one scale and shift a channel ----------------------------------------------------------------

_PLANES: tuple[Size, Size, Size] = ((4, 16, 24, 24), (3, 7, 19, 21), (1, 3, 2, 3))
_GPU_PLANES: tuple[Size, Size, Size] = ((32, 64, 128, 128), (5, 37, 127, 125), (1, 3, 2, 3))


def _channel_op(name: str, torch: str, spoken: str, names: str) -> WorkloadOp:
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
        sizes=_PLANES,
        gpu_sizes=_GPU_PLANES,
        interval=lambda v: Interval(3 * v.low - 5, 3 * v.high + 5, 3 * v.typical_low - 1,
                                    3 * v.typical_high + 1),
    )  # fmt: skip


CHANNEL_NORM = (
    _channel_op(
        "batchnorm",
        "F.batch_norm(x, a, s, g, b)",
        "batchnorm({v}) with mean a, variance s, weight g, bias b",
        "asgb",
    ),
    _channel_op(
        "channelscale",
        "x * g[:, None, None]",
        "{v} times g of its channel",
        "g",
    ),
    _channel_op(
        "channelaffine",
        "x * g[:, None, None] + b[:, None, None]",
        "{v} times g plus b of its channel",
        "gb",
    ),
    _channel_op(
        "channelstandard",
        "(x - a[:, None, None]) / torch.sqrt(s[:, None, None])",
        "{v} minus a over the root of s of its channel",
        "as",
    ),
)

# --- upsampling -----------------------------------------------------------------------------------

_SMALL: tuple[Size, Size, Size] = ((2, 8, 32, 32), (3, 5, 19, 21), (1, 2, 3, 2))
_GPU_SMALL: tuple[Size, Size, Size] = ((32, 64, 128, 128), (5, 37, 127, 125), (1, 2, 3, 2))


UPSAMPLE = (
    WorkloadOp(
        name="upsample",
        inputs=lambda params, size: (Given("x", size),),
        torch=("F.interpolate(x, scale_factor={f}, mode='nearest')",),
        spoken="{v} upsampled {f} times to nearest",
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


def _rotary_op(name: str, torch: tuple[str, ...], spoken: str) -> WorkloadOp:
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
        (
            "a, b = x.chunk(2, dim=2)",
            "torch.cat([a * y - b * z, b * y + a * z], dim=2)",
        ),
        "{v} turned by the cosines y and sines z, first half against second",
    ),
    _rotary_op(
        "rotarypairs",
        (
            "a, b = x[..., 0::2], x[..., 1::2]",
            "torch.stack([a * y - b * z, b * y + a * z], dim=3).flatten(2)",
        ),
        "{v} turned by the cosines y and sines z, in pairs of neighbours",
    ),
)

"""Workloads over images and sequences, place by place: channel norms, upsampling, rotary ones."""

from __future__ import annotations

from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import Given, Sizes, WorkloadOp, weight

# --- one scale and shift a channel ----------------------------------------------------------------

_A, _B = weight("a", "c"), weight("b", "c")
_S = Given("s", "c", low=0.5, high=2.0)
_G = Given("g", "c", low=0.5, high=1.5)
_channel = partial(
    WorkloadOp,
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
             "batchnorm({v}) with mean a, variance s, weight g, bias b", others=(_A, _S, _G, _B)),
    _channel("channelscale", "x * g[:, None, None]", "{v} times g of its channel", others=(_G,)),
    _channel("channelaffine", "x * g[:, None, None] + b[:, None, None]",
             "{v} times g plus b of its channel", others=(_G, _B)),
    _channel("channelstandard", "(x - a[:, None, None]) / torch.sqrt(s[:, None, None])",
             "{v} minus a over the root of s of its channel", others=(_A, _S)),
)  # fmt: skip

# --- upsampling -----------------------------------------------------------------------------------

UPSAMPLE = (
    WorkloadOp(
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


def _turned(v: Interval) -> Interval:
    top = 2 * max(abs(v.low), abs(v.high))
    usual = max(abs(v.typical_low), abs(v.typical_high))
    return Interval(-top, top, -usual, usual)


_rotary = partial(
    WorkloadOp,
    sizes=Sizes(
        "btw",
        ((4, 96, 64), (3, 45, 38), (1, 3, 6)),
        ((64, 2048, 128), (37, 1021, 126), (1, 3, 6)),
    ),
    others=(weight("y", "t w/2"), weight("z", "t w/2")),
    interval=_turned,
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

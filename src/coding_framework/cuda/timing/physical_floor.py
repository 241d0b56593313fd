"""The least time that a function can take on a GPU, by the bytes that must move.

A correct kernel that is faster than this did not do the work when it was timed. The floor is a
lower bound by construction: peaks are the data sheet's or what was measured here, whichever is
higher, and outputs that fit into the L2 may stay there. Arithmetic is no bound: a function may have
a form with fewer operations than PyTorch's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_HALF = frozenset({"float16", "bfloat16"})
_CLOCK_SLACK = 0.9
"""A measured time may be this much under the floor: peaks are rounded, clocks boost."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Rates that nothing on the device exceeds."""

    bytes_per_s: float
    flops_per_s: float
    """Dense, of the fastest tensor-core precision but 8 bits and less."""
    l2_bytes: int
    float32_flops_per_s: float = float("inf")
    """Dense, without tensor cores, which round float32."""


PEAKS: dict[str, Peaks] = {
    "NVIDIA H200": Peaks(4.8e12, 0.99e15, 60 << 20, 67e12),
    "NVIDIA H100": Peaks(3.36e12, 0.99e15, 50 << 20, 67e12),
    "NVIDIA H100 80GB HBM3": Peaks(3.36e12, 0.99e15, 50 << 20, 67e12),
    "NVIDIA A100": Peaks(2.04e12, 0.312e15, 40 << 20, 19.5e12),
    "NVIDIA GeForce RTX 4090": Peaks(1.01e12, 0.33e15, 72 << 20, 82.6e12),
}
"""Data sheets: NVIDIA H200 (2024), H100 (2022), A100 80GB (2021), Ada GPU architecture (2022)."""


def peaks_of(device: str, measured_bytes_per_s: float, l2_bytes: int) -> Peaks:
    """Of the GPU called `device`, as its data sheet says or higher where more was measured; of one
    that is not known here the measured bandwidth and a tenth, and no bound on arithmetic."""
    known = PEAKS.get(device)
    if known is None:
        return Peaks(1.1 * measured_bytes_per_s, float("inf"), l2_bytes)
    return replace(
        known, bytes_per_s=max(known.bytes_per_s, measured_bytes_per_s), l2_bytes=l2_bytes
    )


def roofline_ms(bytes_moved: int, flops: int, dtype: str, peaks: Peaks) -> float:
    """Milliseconds at the peaks, by whichever of memory and arithmetic is slower: what
    `roofline_fraction` is taken of. dtype: of the inputs."""
    rate = peaks.flops_per_s if dtype in _HALF else peaks.float32_flops_per_s
    return 1e3 * max(bytes_moved / peaks.bytes_per_s, flops / rate)


def floor_ms(input_bytes: int, output_bytes: int, peaks: Peaks) -> float:
    """Milliseconds that no kernel beats which starts with cold caches. input_bytes: of the inputs
    that the answer depends on."""
    moved = input_bytes + max(0, output_bytes - peaks.l2_bytes)
    return 1e3 * moved / peaks.bytes_per_s


def is_impossible(time_ms: float, floor: float) -> bool:
    """Whether a measured time is below what the hardware can do, beyond the error of the clock."""
    return time_ms < _CLOCK_SLACK * floor

"""What two runs of the same host code tell: whether a plan depends on anything but shapes.

Plans are compared in a form without addresses (a pointer becomes "input 0 + 16", "block 2"), so
that a host which keeps a workspace between calls, or frees late, is not accused of anything.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coding_framework.cuda.plan import (
    Copy,
    Fill,
    KernelInfo,
    Launch,
    LaunchPlan,
    ModuleInfo,
    ReadBack,
    Upload,
)

_FLOATING_ATOMIC = re.compile(
    r"^[^/\n]*\b(?:atom|red)\.[\w.:]*(?:add[\w.:]*\.(?:f|bf)\d+|cas)", re.MULTILINE
)
_POINTER_BYTES = 8
_MIN_HOST_BYTES = 16
_HOST_SHARE = 16


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """How a second plan on same-shaped inputs differs from the first."""

    message: str
    one_time_setup: bool
    """Only launches that saw no input were left out: a table filled at the first call."""


class PlanReader:
    """Puts the plans of one case into a form that can be compared."""

    def __init__(
        self, module: ModuleInfo, inputs: Sequence[tuple[int, int]], blocks: Mapping[int, int]
    ) -> None:
        """inputs: (address, nbytes) of inputs and parameters; blocks: address to nbytes of all
        memory that the host allocated, over both calls."""
        self._kernels = module.kernels
        regions = [(a, n, f"input {i}") for i, (a, n) in enumerate(inputs)]
        regions += [(s.address, s.nbytes, f"symbol {s.name}") for s in module.symbols.values()]
        regions += [(a, n, "") for a, n in blocks.items()]
        self._regions = sorted(regions)
        self._starts = [start for start, _, _ in self._regions]

    def difference(self, first: LaunchPlan, second: LaunchPlan) -> PlanDifference | None:
        """None where both launch the same and upload the same. Uploads and fills that only the
        first has (tables made once) are no difference."""
        one, two = self._launches(first), self._launches(second)
        if one != two:
            dropped = _dropped(self._alone(first), self._alone(second))
            setup = dropped is not None and not any("input" in text for text in dropped)
            return PlanDifference(_launch_message(one, two), setup)
        new = set(self._uploads(second)) - set(self._uploads(first))
        if new:
            return PlanDifference(
                f"the host copied other bytes to the device on other inputs ({sorted(new)[0]})",
                False,
            )
        return None

    def _launches(self, plan: LaunchPlan) -> list[str]:
        labels: dict[int, str] = {}
        return [self._describe(launch, labels) for launch in plan.launches]

    def _alone(self, plan: LaunchPlan) -> list[str]:
        """As `_launches`, with blocks named within each launch: what was left out shifts none."""
        return [self._describe(launch, {}) for launch in plan.launches]

    def _describe(self, launch: Launch, labels: dict[int, str]) -> str:
        words = []
        kernel = self._kernels.get(launch.kernel)
        for offset, size in _parameters(kernel, launch.params):
            value = launch.params[offset : offset + size]
            if size == _POINTER_BYTES:
                words.append(self._pointer(int.from_bytes(value, "little"), labels) or value.hex())
            else:
                words.append(value.hex())
        return (
            f"{launch.kernel}<<<{launch.grid}, {launch.block}, {launch.shared_bytes}>>>"
            f"({', '.join(words)})"
        )

    def _uploads(self, plan: LaunchPlan) -> list[str]:
        labels: dict[int, str] = {}
        found = []
        for op in plan.ops:
            if isinstance(op, Upload):
                where = self._pointer(op.address, labels) or "?"
                digest = hashlib.sha256(op.data).hexdigest()[:12]
                found.append(f"{len(op.data)} bytes to {where}, digest {digest}")
        return found

    def _pointer(self, address: int, labels: dict[int, str]) -> str | None:
        """ "input 0+16" for an address inside a known region; blocks are named in the order in
        which the plan first uses them."""
        i = bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        start, nbytes, name = self._regions[i]
        if address > start + nbytes:
            return None
        name = name or labels.setdefault(start, f"block {len(labels)}")
        return f"{name}+{address - start}"


def host_share(plan: LaunchPlan, input_bytes: int) -> str | None:
    """A sentence where the host read back so much that it could have computed the answer itself;
    None where it is little enough to steer by (a maximum, a flag, a few partial sums)."""
    read = sum(op.nbytes for op in plan.ops if isinstance(op, ReadBack))
    allowed = max(_MIN_HOST_BYTES, input_bytes // _HOST_SHARE)
    if read <= allowed:
        return None
    return (
        f"the host reads {read} bytes back ({allowed} are allowed for inputs of {input_bytes}) and "
        "what it then sends to the device depends on them: it computes on the host"
    )


def adds_atomically(ptx: str) -> bool:
    """Whether device code adds floating-point numbers in whatever order its threads come: by an
    atomic add, or by a loop around a compare-and-swap."""
    return _FLOATING_ATOMIC.search(ptx) is not None


def moved_bytes(plan: LaunchPlan) -> int:
    """Bytes that copies and fills of the plan move, reads and writes together."""
    return sum(
        2 * op.nbytes if isinstance(op, Copy) else op.nbytes
        for op in plan.ops
        if isinstance(op, Copy | Fill)
    )


def _parameters(kernel: KernelInfo | None, params: bytes) -> list[tuple[int, int]]:
    """(offset, size) of the words of a parameter block; structs are cut into 8-byte words."""
    if kernel is None:
        return [(i, min(8, len(params) - i)) for i in range(0, len(params), 8)]
    words = []
    for offset, size in zip(kernel.param_offsets, kernel.param_sizes, strict=True):
        step = size if size <= _POINTER_BYTES else _POINTER_BYTES
        words += [(i, min(step, offset + size - i)) for i in range(offset, offset + size, step)]
    return words


def _dropped(one: list[str], two: list[str]) -> list[str] | None:
    """Launches of `one` that are missing in `two`; None where `two` is no subsequence of `one`."""
    dropped, rest = [], iter(two)
    expected = next(rest, None)
    for text in one:
        if text == expected:
            expected = next(rest, None)
        else:
            dropped.append(text)
    return dropped if expected is None else None


def _launch_message(one: list[str], two: list[str]) -> str:
    if len(one) != len(two):
        return f"the first call made {len(one)} launches, the second on the same shapes {len(two)}"
    a, b = next((a, b) for a, b in zip(one, two, strict=True) if a != b)
    return f"on the same shapes the first call launched {a[:200]}, the second {b[:200]}"

"""What two runs of the same host code tell: whether a plan depends on anything but shapes.

Plans are compared in a form without addresses (a pointer becomes "input 0 + 16", "block 2"), so
that a host which keeps a workspace between calls, or frees late, is not accused of anything.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from coding_framework.cuda.plan.host_values import finished_on_host
from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fill,
    Free,
    KernelInfo,
    Launch,
    LaunchPlan,
    ModuleInfo,
    ReadBack,
    Upload,
)

_FLOATING_ATOMIC = re.compile(
    r"^[^/\n]*\b(?:(?:atom|red)\.[\w.:]*(?:add[\w.:]*\.(?:f|bf)\d+|cas)"
    r"|ld\.(?:volatile|acquire|relaxed)\b)",
    re.MULTILINE,
)
_POINTER_BYTES = 8
_MIN_HOST_BYTES = 16
_HOST_SHARE = 16
_STEERING_BYTES = 64
"""What a host may change in its plan by values it read: a maximum, a flag, a few sizes."""


Words = tuple[str, ...]
"""One launch without addresses: kernel, grid, block, shared memory, then each parameter."""


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """How a second plan on same-shaped inputs differs from the first."""

    message: str
    one_time_setup: bool
    """Only launches that saw no input were left out: a table filled at the first call."""
    changed_bytes: int = 0
    """Of launch parameters, uploads, fills and copies together, where the second plan says
    something else. A copy says where from, so that it chooses from a table."""
    into_output: bool = False
    """Some of the other bytes were uploaded or filled into what the call returns."""


Unread = Mapping[str, Mapping[int, frozenset[int]]]
"""Offsets of bytes, by kernel and number of the parameter."""


class PlanReader:
    """Puts the plans of one case into a form that can be compared."""

    def __init__(
        self,
        module: ModuleInfo,
        inputs: Sequence[tuple[int, int, int]],
        blocks: Mapping[int, int],
        unread: Unread | None = None,
    ) -> None:
        """inputs: (address, nbytes, index) of the places of inputs and parameters; blocks: address
        to nbytes of all memory that the host allocated, over both calls. unread: bytes of arguments
        that no kernel looks at, by kernel and number of the parameter."""
        self._kernels = module.kernels
        self._unread = unread or {}
        regions = [(a, n, f"input {i}") for a, n, i in inputs]
        regions += [(s.address, s.nbytes, f"symbol {s.name}") for s in module.symbols.values()]
        regions += [(a, n, "") for a, n in blocks.items()]
        self._regions = sorted(regions)
        self._starts = [start for start, _, _ in self._regions]

    def difference(self, first: LaunchPlan, second: LaunchPlan) -> PlanDifference | None:
        """None where both launch the same and upload the same. Uploads and fills that only the
        first has (tables made once) are no difference."""
        one, two = self._launches(first), self._launches(second)
        known = self._uploads(first)
        new = {text: op for text, op in self._uploads(second).items() if text not in known}
        moves, filled = self._new_moves(first, second)
        changed = sum(len(op.data) for op in new.values()) + _changed_bytes(one, two) + moves
        into_output = filled or any(self._is_returned(op.address, second) for op in new.values())
        if one != two:
            dropped = _dropped(self._alone(first), self._alone(second))
            setup = dropped is not None and not any(
                "input" in word for launch in dropped for word in launch
            )
            return PlanDifference(_launch_message(one, two), setup, changed, into_output)
        if new:
            message = f"the host copied other bytes to the device on other inputs ({min(new)})"
            return PlanDifference(message, False, changed, into_output)
        return None

    def finished_on_host(self, first: LaunchPlan, second: LaunchPlan) -> str | None:
        """A sentence where the second plan sends numbers that its host made of what it read."""
        return finished_on_host(first, second, self._numbers)

    def _numbers(self, launch: Launch) -> list[bytes]:
        words = _parameters(self._kernels.get(launch.kernel), launch.params)
        values = (launch.params[offset : offset + size] for offset, size in words)
        return [
            value
            for value in values
            if len(value) < _POINTER_BYTES or self._region(int.from_bytes(value, "little")) is None
        ]

    def _new_moves(self, first: LaunchPlan, second: LaunchPlan) -> tuple[int, bool]:
        """Bytes that fills and copies of the second plan alone stand for, and whether one of these
        fills goes into what it returns."""
        new = self._moves(second) - self._moves(first)
        filled = any(
            isinstance(op, Fill) and self._move(op) in new and self._is_returned(op.address, second)
            for op in second.ops
        )
        return _POINTER_BYTES * new.total(), filled

    def _moves(self, plan: LaunchPlan) -> Counter[str]:
        return Counter(self._move(op) for op in plan.ops if isinstance(op, Fill | Copy))

    def _move(self, op: Fill | Copy) -> str:
        """A fill or copy without addresses; which of the host's own blocks it means is left out."""
        if isinstance(op, Fill):
            return f"{op.nbytes} bytes {op.value} to {self._place(op.address)}"
        how = "" if op.layout is None else f" (extents, strides: {op.layout[1:]})"
        where = f"{self._place(op.source)}{how} to {self._place(op.destination)}"
        return f"{op.nbytes} bytes of {where}"

    def _place(self, address: int) -> str:
        region = self._region(address)
        return "?" if region is None else f"{region[1] or 'a block'}+{address - region[0]}"

    def _is_returned(self, address: int, plan: LaunchPlan) -> bool:
        """Whether the address lies in the same memory as one of the plan's outputs."""
        place = self._region(address)
        return place is not None and any(self._region(o.address) == place for o in plan.outputs)

    def _launches(self, plan: LaunchPlan) -> list[Words]:
        labels: dict[int, str] = {}
        return [self._words(launch, labels) for launch in plan.launches]

    def _alone(self, plan: LaunchPlan) -> list[Words]:
        """As `_launches`, with blocks named within each launch: what was left out shifts none."""
        return [self._words(launch, {}) for launch in plan.launches]

    def _words(self, launch: Launch, labels: dict[int, str]) -> Words:
        words = []
        kernel = self._kernels.get(launch.kernel)
        params = self._looked_at(launch, kernel)
        for offset, size in _parameters(kernel, params):
            value = params[offset : offset + size]
            if size == _POINTER_BYTES:
                words.append(self._pointer(int.from_bytes(value, "little"), labels) or value.hex())
            else:
                words.append(value.hex())
        shape = (str(launch.grid), str(launch.block), str(launch.shared_bytes))
        return (launch.kernel, *shape, *words)

    def _looked_at(self, launch: Launch, kernel: KernelInfo | None) -> bytes:
        """The arguments, with zeros where the kernel does not look."""
        unread = self._unread.get(launch.kernel)
        if kernel is None or not unread:
            return launch.params
        params = bytearray(launch.params)
        for number, offsets in unread.items():
            for at in offsets:
                if (place := kernel.param_offsets[number] + at) < len(params):
                    params[place] = 0
        return bytes(params)

    def _uploads(self, plan: LaunchPlan) -> dict[str, Upload]:
        labels: dict[int, str] = {}
        found = {}
        for op in plan.ops:
            if isinstance(op, Upload):
                where = self._pointer(op.address, labels) or "?"
                digest = hashlib.sha256(op.data).hexdigest()[:12]
                found[f"{len(op.data)} bytes to {where}, digest {digest}"] = op
        return found

    def _pointer(self, address: int, labels: dict[int, str]) -> str | None:
        """ "input 0+16" for an address inside a known region; blocks are named in the order in
        which the plan first uses them."""
        region = self._region(address)
        if region is None:
            return None
        start, name = region
        name = name or labels.setdefault(start, f"block {len(labels)}")
        return f"{name}+{address - start}"

    def _region(self, address: int) -> tuple[int, str] | None:
        """(start, name) of the known memory in which an address lies."""
        i = bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        start, nbytes, name = self._regions[i]
        return (start, name) if address <= start + nbytes else None


def steering_excess(difference: PlanDifference) -> str | None:
    """A sentence where what a host sends to the device carries more of the inputs than it takes to
    steer by them: then it computes, whatever it read."""
    if difference.into_output:
        return (
            f"the host writes bytes that depend on the inputs into its output: {difference.message}"
        )
    if difference.changed_bytes <= _STEERING_BYTES:
        return None
    return (
        f"{difference.changed_bytes} bytes that the host sends to the device depend on what it "
        f"read ({_STEERING_BYTES} are allowed): it computes on the host"
    )


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
    """Whether device code may add floating-point numbers in whatever order its threads come: by an
    atomic add, by a loop around a compare-and-swap, or by what other blocks have made so far, which
    it looks at by strong loads."""
    return _FLOATING_ATOMIC.search(ptx) is not None


def leaked_bytes(plan: LaunchPlan) -> int:
    """Device memory that the call allocated, did not free and does not return."""
    freed = {op.address for op in plan.ops if isinstance(op, Free)}
    kept = [op for op in plan.ops if isinstance(op, Alloc) and op.address not in freed]
    returned = [output.address for output in plan.outputs]
    return sum(
        op.nbytes
        for op in kept
        if not any(op.address <= address < op.address + op.nbytes for address in returned)
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


def _changed_bytes(one: list[Words], two: list[Words]) -> int:
    """Of launches in both, the words that differ. Launches that only the second has count as one
    word, and with every word that stands nowhere in the first."""
    words = int(len(one) != len(two))
    for left, right in zip(one, two, strict=False):
        words += sum(a != b for a, b in zip_longest(left, right))
    said = {word for launch in one for word in launch}
    more = [word for launch in two[len(one) :] for word in launch if word not in said]
    return _POINTER_BYTES * words + sum(min(_POINTER_BYTES, (len(w) + 1) // 2) for w in more)


def _dropped(one: list[Words], two: list[Words]) -> list[Words] | None:
    """Launches of `one` that are missing in `two`; None where `two` is no subsequence of `one`."""
    dropped, rest = [], iter(two)
    expected = next(rest, None)
    for launch in one:
        if launch == expected:
            expected = next(rest, None)
        else:
            dropped.append(launch)
    return dropped if expected is None else None


def _text(words: Words) -> str:
    kernel, grid, block, shared, *parameters = words
    return f"{kernel}<<<{grid}, {block}, {shared}>>>({', '.join(parameters)})"[:200]


def _launch_message(one: list[Words], two: list[Words]) -> str:
    if len(one) != len(two):
        return f"the first call made {len(one)} launches, the second on the same shapes {len(two)}"
    a, b = next((a, b) for a, b in zip(one, two, strict=True) if a != b)
    return f"on the same shapes the first call launched {_text(a)}, the second {_text(b)}"

"""Derives a launch template from records of one call, or says why there is none.

Each 8-byte field of a parameter block that moved exactly with one region from record to record is a
relocation; every other byte must be the same in all of them. Pure: no process, no device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from coding_framework.cuda.plan.difference import Unread
from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fill,
    Free,
    Launch,
    ModuleInfo,
    PlanOp,
    ReadBack,
    Upload,
)
from coding_framework.cuda.templating.recording import Recording
from coding_framework.registry.templates import (
    DTYPE_BYTES,
    MAX_LAUNCHES,
    Allocation,
    CopyStep,
    FillStep,
    LaunchStep,
    OutputTensor,
    Place,
    Relocation,
    Step,
    UploadStep,
    Variable,
)

_WORD = 8

Obstacle = Literal[
    "read_back",
    "another_plan",
    "unexplained_bytes",
    "earlier_memory",
    "returns_argument",
    "writes_argument",
    "no_launch",
    "too_many_launches",
    "impossible",
    "empty_tensor",
    "strided_input",
    "late_compilation",
    "host_fault",
    "replay_differs",
    "replay_fails",
]
"""Why a kernel has no template; docs/registry.md explains each."""


class NotPortable(Exception):  # noqa: N818 - a finding about a kernel, no error of ours
    """There is no template: the obstacle's name, and a sentence."""

    def __init__(self, obstacle: Obstacle, reason: str) -> None:
        super().__init__(reason)
        self.obstacle: Obstacle = obstacle
        self.reason = reason


@dataclass(frozen=True, slots=True)
class DerivedSteps:
    """The part of a template that the records tell."""

    allocations: tuple[Allocation, ...]
    variables: tuple[Variable, ...]
    steps: tuple[Step, ...]
    outputs: tuple[OutputTensor, ...]


Kind = Literal["argument", "block", "variable", "earlier"]
_Key = tuple[Kind, int]
_Rows = list[tuple[PlanOp, ...]]


def derive(recordings: Sequence[Recording], module: ModuleInfo, unread: Unread) -> DerivedSteps:
    """recordings: two or more of the same call, with all memory at other addresses. unread: bytes
    of arguments that no kernel looks at, by kernel and number of the parameter. Raises
    NotPortable."""
    _require_same_form(recordings)
    return _Derivation(recordings, module, unread).result()


def _require_same_form(recordings: Sequence[Recording]) -> None:
    if any(isinstance(op, ReadBack) for r in recordings for op in r.ops):
        raise NotPortable("read_back", "the host code reads from the device")
    for one, other in pairwise(map(_form, recordings)):
        if one == other:
            continue
        pairs = enumerate(zip(one, other, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
        raise NotPortable(
            "another_plan",
            "in another process, at other addresses, the host code asks for other work "
            f"(operation {at + 1} of {len(one) - 1})",
        )


def _form(recording: Recording) -> list[Any]:
    """A record without addresses and bytes."""
    form: list[Any] = []
    for op in recording.ops:
        match op:
            case Launch():
                size = len(op.params)
                shape = (op.grid, op.block, op.shared_bytes, op.cooperative)
                form.append((op.kernel, *shape, size))
            case Fill():
                form.append(("fill", op.value, op.nbytes))
            case Upload():
                form.append(("upload", len(op.data)))
            case Copy():
                form.append(("copy", op.nbytes))
            case Alloc():
                form.append(("alloc", op.nbytes))
            case _:
                form.append(type(op).__name__)
    form.append([(o.shape, o.strides, o.dtype) for o in recording.outputs])
    return form


class _Derivation:
    """Records of equal form, and the regions that their addresses lie in."""

    def __init__(self, recordings: Sequence[Recording], module: ModuleInfo, unread: Unread) -> None:
        self._module = module
        self._unread = unread
        self._recordings = recordings
        self._names = sorted(recordings[0].variables)
        self._regions = [dict(_regions(r, self._names)) for r in recordings]
        self._numbers = {key: number for number, key in enumerate(self._regions[0])}
        rows: _Rows = list(zip(*(r.ops for r in recordings), strict=True))
        self._work = [ops for ops in rows if _does_work(ops[0])]
        self._lifetimes = _lifetimes(rows)

    def result(self) -> DerivedSteps:
        launches = sum(isinstance(ops[0], Launch) for ops in self._work)
        if not launches:
            raise NotPortable("no_launch", "the call launches no kernel")
        if launches > MAX_LAUNCHES:
            raise NotPortable(
                "too_many_launches",
                f"one call makes {launches} launches; a template has {MAX_LAUNCHES} at most",
            )
        outputs = [self._output_key(i) for i in range(len(self._recordings[0].outputs))]
        used = {region for step in self._steps() for region in _named(step)}
        keys = list(self._regions[0])
        arguments = len(self._recordings[0].arguments)
        kept = [k for n, k in enumerate(keys) if n < arguments or n in used or k in outputs]
        self._numbers = {key: number for number, key in enumerate(kept)}
        steps = self._steps()
        first, last = self._recordings[0], len(steps) - 1
        uploads = [step for step in steps if isinstance(step, UploadStep)]
        # kernels may go there at any time
        reached = {r.region for step in uploads for r in step.relocations}
        allocations, variables = [], []
        for number, (kind, index) in enumerate(kept):
            if kind == "block":
                start, end = self._lifetimes[index]
                uses = [i for i, step in enumerate(steps) if number in _named(step)]
                returned = (kind, index) in outputs
                until = last if returned or number in reached else max(end, *uses, 0)
                allocations.append(
                    Allocation(
                        nbytes=self._regions[0][kind, index][1],
                        use="output" if returned else "temporary",
                        first=min(start, *uses, last),
                        last=min(until, last),
                    )
                )
            elif kind == "variable":
                name = self._names[index]
                variables.append(Variable(name=name, nbytes=first.variables[name][1]))
        returns = tuple(
            OutputTensor(
                place=self._place([r.outputs[i].address for r in self._recordings], "an output"),
                dtype=o.dtype,
                shape=o.shape,
                strides=o.strides,
            )
            for i, o in enumerate(first.outputs)
        )
        return DerivedSteps(tuple(allocations), tuple(variables), steps, returns)

    # --- steps ------------------------------------------------------------------------------------

    def _steps(self) -> tuple[Step, ...]:
        return tuple(self._step(ops) for ops in self._work)

    def _step(self, ops: tuple[Any, ...]) -> Step:
        first = ops[0]
        match first:
            case Launch():
                what = f"an argument of {first.kernel}"
                params, moved = self._relocated([self._looked_at(op) for op in ops], what)
                return LaunchStep(
                    entry=first.kernel,
                    grid=first.grid,
                    block=first.block,
                    shared_bytes=first.shared_bytes,
                    params=params,
                    relocations=moved,
                    cooperative=first.cooperative,
                )
            case Upload():
                data, moved = self._relocated([op.data for op in ops], "what is copied to it")
                return UploadStep(to=self._written(ops), data=data, relocations=moved)
            case Fill():
                return FillStep(to=self._written(ops), value=first.value, nbytes=first.nbytes)
            case Copy():
                source = self._place([op.source for op in ops], "the source of a copy")
                to = self._target([op.destination for op in ops])
                return CopyStep(to=to, source=source, nbytes=first.nbytes)
        raise AssertionError(first)

    def _written(self, ops: tuple[Any, ...]) -> Place:
        return self._target([op.address for op in ops])

    def _target(self, addresses: Sequence[int]) -> Place:
        place = self._place(addresses, "the target of a copy or fill")
        if place.region < len(self._recordings[0].arguments):
            raise NotPortable("writes_argument", "the host code writes to an input")
        return place

    def _looked_at(self, launch: Launch) -> bytes:
        """The parameter block, with zeros where the kernel does not look: padding is as it was."""
        params = bytearray(launch.params)
        offsets = self._module.kernels[launch.kernel].param_offsets
        for number, unread in self._unread.get(launch.kernel, {}).items():
            for at in unread:
                if number < len(offsets) and offsets[number] + at < len(params):
                    params[offsets[number] + at] = 0
        return bytes(params)

    def _relocated(
        self, blocks: Sequence[bytes], what: str
    ) -> tuple[bytes, tuple[Relocation, ...]]:
        """The bytes that all records share, zeros where addresses go, and these."""
        first, *others = blocks
        if all(other == first for other in others):
            return first, ()
        shared, relocations = bytearray(first), []
        for at in range(0, len(first), _WORD):
            words = [block[at : at + _WORD] for block in blocks]
            if all(word == words[0] for word in words):
                continue
            if len(words[0]) < _WORD:
                raise _unexplained(what, at)
            place = self._place([int.from_bytes(w, "little") for w in words], what, at)
            relocations.append(Relocation(at=at, region=place.region, offset=place.offset))
            shared[at : at + _WORD] = bytes(_WORD)
        return bytes(shared), tuple(relocations)

    # --- addresses --------------------------------------------------------------------------------

    def _place(self, addresses: Sequence[int], what: str, at: int = 0) -> Place:
        """The one region with which these addresses, one a record, moved."""
        key, offset = self._spot(addresses, what, at)
        if key[0] == "earlier":
            raise NotPortable(
                "earlier_memory", f"{what} is memory that the host code had before the call"
            )
        return Place(region=self._numbers[key], offset=offset)

    def _spot(self, addresses: Sequence[int], what: str, at: int) -> tuple[_Key, int]:
        for key, (start, nbytes) in self._regions[0].items():
            offset = addresses[0] - start
            if 0 <= offset <= nbytes and all(
                address - regions[key][0] == offset
                for address, regions in zip(addresses, self._regions, strict=True)
            ):
                return key, offset
        raise _unexplained(what, at)

    def _output_key(self, index: int) -> _Key:
        addresses = [r.outputs[index].address for r in self._recordings]
        key, _ = self._spot(addresses, f"output {index}", 0)
        if key[0] != "block":
            raise NotPortable(
                "returns_argument", f"output {index} is in memory that the call did not allocate"
            )
        return key


def _regions(recording: Recording, names: Sequence[str]) -> Iterator[tuple[_Key, tuple[int, int]]]:
    """Address and size of all memory: arguments, then blocks in order, then variables."""
    for i, ref in enumerate(recording.arguments):
        nbytes = math.prod(ref.shape) * DTYPE_BYTES[ref.dtype]  # type: ignore[index]
        yield ("argument", i), (ref.address, nbytes)
    blocks = [op for op in recording.ops if isinstance(op, Alloc)]
    for i, op in enumerate(blocks):
        yield ("block", i), (op.address, op.nbytes)
    for i, name in enumerate(names):
        yield ("variable", i), recording.variables[name]
    for i, region in enumerate(recording.earlier):
        yield ("earlier", i), region


def _does_work(op: PlanOp) -> bool:
    match op:
        case Alloc() | Free():
            return False
        case Upload():
            return bool(op.data)
        case Fill() | Copy():
            return op.nbytes > 0
    return True


def _lifetimes(rows: _Rows) -> dict[int, tuple[int, int]]:
    """By number of the block: the first step after its allocation, and the last before it was
    freed."""
    starts: dict[int, tuple[int, int]] = {}
    found: dict[int, tuple[int, int]] = {}
    step = 0
    for op, *_ in rows:
        if isinstance(op, Alloc):
            starts[op.address] = (len(starts), step)
        elif isinstance(op, Free):
            if op.address in starts:
                number, start = starts[op.address]
                found[number] = (start, max(start, step - 1))
        elif _does_work(op):
            step += 1
    for number, start in starts.values():
        found.setdefault(number, (start, step - 1))
    return found


def _named(step: Step) -> set[int]:
    """Numbers of the regions that a step names."""
    match step:
        case LaunchStep():
            return {r.region for r in step.relocations}
        case UploadStep():
            return {step.to.region, *(r.region for r in step.relocations)}
        case CopyStep():
            return {step.to.region, step.source.region}
        case FillStep():
            return {step.to.region}


def _unexplained(what: str, at: int) -> NotPortable:
    return NotPortable(
        "unexplained_bytes",
        f"byte {at} of {what} changes with the process or with addresses, and is no address itself",
    )

"""Whether what a call leaves on the device matters to the next one.

Variables of the module, and memory that the host keeps in static pointers, outlive a call. A call
leaves them byte by byte as they were, or what it changes does not matter: with anything else there,
and after many more calls, the answers are the same. Counters that the last block resets, workspaces
that clean themselves and tables made once stay as they are; scratch may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from coding_framework.cuda.build.kernel_names import readable
from coding_framework.cuda.expected.inputs import bits_of
from coding_framework.cuda.host.case_run import CaseRun, Execution
from coding_framework.cuda.host.plan_recorder import EXECUTED
from coding_framework.cuda.plan.launch_plan import CandidateFault, LaunchPlan
from coding_framework.cuda.trial.setup import TrialSetup
from coding_framework.types import Status

_MAX_BYTES = 64 << 20
"""Of state that is looked at."""
_FILLS = (0x7B, 0xFF, 0x00, 0x7B, 0x7B)
"""What words that a call changed are set to, on a draw each: large, -1 or NaN, and nothing."""
STATE_DRAWS = len(_FILLS)
_WORD = 4
_CALLS = 40
"""More calls on what each one leaves: a counter that something happens at gets on."""
_INSTRUCTIONS = 20_000_000
"""Warp instructions of all of them; at least four are made."""


Draw = tuple[Callable[[], Sequence[torch.Tensor]], Callable[[Execution], bool]]
"""The tensors of a draw, and whether an execution on them is right."""


@dataclass(frozen=True, slots=True)
class _Region:
    address: int
    name: str
    before: torch.Tensor


class KeptState:
    """The memory that outlives the calls on one shape set, as it is when this is made."""

    def __init__(self, setup: TrialSetup, earlier: LaunchPlan) -> None:
        """earlier: the call so far; its outputs are the caller's."""
        self._device = setup.equipment.device
        recorder = setup.recorder
        found = [
            (s.address, s.nbytes, f"the variable {readable(s.name)!r}")
            for s in setup.module.symbols.values()
            if s.space == "global"
        ]
        returned = [output.address for output in earlier.outputs]
        found += [
            (address, nbytes, "memory that the host keeps")
            for address, nbytes in recorder.blocks.items()
            if address not in recorder.freed
            and not any(address <= output < address + nbytes for output in returned)
        ]
        self._regions: list[_Region] = []
        room = _MAX_BYTES
        for address, nbytes, name in found:
            room -= nbytes
            if room >= 0:
                self._regions.append(_Region(address, name, self._read(address, nbytes)))

    def require_none(
        self,
        run: CaseRun,
        plan: LaunchPlan,
        draws: Sequence[Draw],
        near: Draw,
    ) -> None:
        """Raises CandidateFault (rejected) where what the call `plan` has changed here matters.
        draws: of `STATE_DRAWS`, the first one that of the call; near: one that differs from that
        in few elements."""
        now = [(r, self._read(r.address, len(r.before))) for r in self._regions]
        changed = [(r, after) for r, after in now if not torch.equal(r.before, after)]
        if not changed:
            return
        names = ", ".join(sorted({region.name for region, _ in changed})[:3])
        for region, after in changed:  # alone, and in halves: the key of a cache may stay
            there = (region.before != after).nonzero().flatten()
            for part in {0, len(there) // 2}, {len(there) // 2, len(there)}:
                filled = after.clone()
                filled[there[min(part) : max(part)]] = _FILLS[0]
                self._write(region.address, filled)
                _require(run, plan, draws[0], names, "with other values in a part of it")
                self._write(region.address, after)
        for fill, draw in zip(_FILLS, draws, strict=True):
            for region, after in changed:
                bits = region.before != after
                padded = torch.nn.functional.pad(bits, (0, -len(bits) % _WORD))
                words = padded.view(-1, _WORD).any(1)
                there = words.repeat_interleave(_WORD)[: len(after)]
                self._write(region.address, torch.where(there, fill, after))
            _require(run, plan, draw, names, "with other values there")
        for region, after in changed:
            self._write(region.address, after)
        first = _require(run, plan, draws[0], names, "when called again")
        _require(run, plan, near, names, "on inputs of which few elements are others")
        _require(run, plan, draws[0], names, "when called again", first)
        executed = sum(report.counters.get(EXECUTED, 0.0) for report in first.reports)
        for call in range(min(_CALLS, max(4, int(_INSTRUCTIONS / max(executed, 1.0))))):
            _require(run, plan, draws[0], names, f"in call {call + 2} from then on", first)

    def _read(self, address: int, nbytes: int) -> torch.Tensor:
        return bits_of(self._device.download(address, nbytes))

    def _write(self, address: int, bits: torch.Tensor) -> None:
        self._device.upload(address, bits.to(torch.uint8).numpy().tobytes())


def _require(
    run: CaseRun,
    plan: LaunchPlan,
    draw: Draw,
    names: str,
    when: str,
    known: Execution | None = None,
) -> Execution:
    """One more call, which must be right. known: one that was, so that equal bits will do."""
    why = "the answer is wrong"
    tensors, right = draw
    try:
        execution = run.again(plan, tensors())
        if (known is not None and same_bits(known, execution)) or right(execution):
            return execution
    except CandidateFault as fault:
        why = fault.reason
    raise CandidateFault(
        Status.REJECTED,
        f"the kernel keeps state between calls: each call changes {names}, and {when} {why}",
    )


def same_bits(one: Execution, other: Execution) -> bool:
    """Whether two runs gave the same outputs to the bit."""
    return len(one.outputs) == len(other.outputs) and all(
        torch.equal(a.raw, b.raw) for a, b in zip(one.outputs, other.outputs, strict=True)
    )

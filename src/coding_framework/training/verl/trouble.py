"""When to stop a run of RL: it hangs, or our faults are many.

Also why verl's trainer ended, as its log says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from coding_framework.errors import TrainingError
from coding_framework.store.records import StepRecord

FAULT_DOUBT = 0.01
"""A run ends where so many faults would come by chance, at the share that is allowed, less often
than this: 3 of 20 turns or 5 of 100, where 1% is."""

POLICY_FAULTS = ("PolicyError: ", "PolicyAwayError: ")
"""How the text of a conversation's fault begins where the policy server is to blame."""


class Stall:
    """Notices that nothing has changed for too long."""

    def __init__(self, limit_s: float, log_file: Path) -> None:
        self._limit_s = limit_s
        self._log = log_file
        self._state: object = None
        self._since = time.monotonic()

    def check(self, state: object) -> None:
        """Raises TrainingError where `state` has been the same for the limit."""
        if state != self._state:
            self._state, self._since = state, time.monotonic()
        elif time.monotonic() - self._since > self._limit_s:
            raise TrainingError(
                f"no conversation and no step ended for {self._limit_s:.0f} s: the run hangs, most "
                f"likely for want of memory or of Ray resources (log: {self._log})"
            )


def check_faults(records: Sequence[StepRecord], limit: float, log_file: Path) -> None:
    """Raises TrainingError where faults of ours are more frequent than `limit` beyond doubt."""
    turns = sum(r.turns for r in records)
    faults = sum(r.faults for r in records)
    if _beyond_doubt(faults, turns, limit):
        raise TrainingError(
            f"{faults} of {turns} turns were lost to faults of ours (limit {limit:.0%}): the "
            "judge, the rollout server or a reward of your own is broken, see the rollouts beside "
            f"{log_file}"
        )


def check_running(faults: Sequence[str], conversations: int, limit: float, log_file: Path) -> None:
    """The same of a step that has not ended, and may never: verl waits for rows that conversations
    without a turn do not have. faults: those of its conversations by now; conversations: how many
    it has in all. Faults of the policy server do not count, since it may be started again. Raises
    TrainingError, which names the last fault."""
    lasting = [fault for fault in faults if not fault.startswith(POLICY_FAULTS)]
    if _beyond_doubt(len(lasting), conversations, limit):
        raise TrainingError(
            f"{len(lasting)} of a step's {conversations} conversations ended by faults of ours "
            f"(limit {limit:.0%}), the last one by {lasting[-1][:300]} (log: {log_file})"
        )


def _beyond_doubt(faults: int, of: int, limit: float) -> bool:
    """Whether so many faults would come by chance less often than FAULT_DOUBT."""
    if faults <= limit * of:
        return False
    from scipy.stats import binom

    return bool(binom.sf(faults - 1, of, limit) < FAULT_DOUBT)


def slow_start(log_file: Path) -> bool:
    """Whether Ray gave up on its own start, for which it allows 30 s of wall time."""
    return log_file.exists() and b"node timed out during startup" in log_file.read_bytes()


def last_error(log_file: Path) -> str:
    """The line of the trainer's log that most likely says why it ended."""
    if not log_file.exists():
        return "it wrote no log"
    with log_file.open("rb") as file:
        file.seek(max(0, log_file.stat().st_size - 200_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    marks = ("error: ", "Error: ", "Exception: ", "Killed", "No space left")
    found = [line.strip() for line in lines if any(mark in line for mark in marks)]
    return found[-1][:300] if found else "no error in its log"

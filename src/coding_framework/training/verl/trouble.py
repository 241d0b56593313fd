"""What stops a run of RL: a machine that cannot run it, a hang, faults of ours that are many.

Without these checks Ray waits silently for GPUs that are missing, and dies silently of a full disk.
The GPUs of a cluster that the run joins are not checked: only Ray knows them. Imports neither verl
nor Ray.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from coding_framework.errors import TrainingError, UsageError
from coding_framework.store import checkpoints
from coding_framework.store.folder import RLFolder
from coding_framework.store.records import StepRecord
from coding_framework.training.recipes import require_gpus
from coding_framework.training.rl_config import MultiTurnRLConfig

FAULT_DOUBT = 0.01
"""A run ends where so many faults would come by chance, at the share that is allowed, less often
than this: 3 of 20 turns or 5 of 100, where 1% is."""

POLICY_FAULTS = ("PolicyError: ", "PolicyAwayError: ")
"""How the text of a conversation's fault begins where the policy server is to blame."""
OTHER_GPUS = ("rollout_gpus", "judge_gpus")
"""Settings of GPUs that do not train."""
LEAST_FREE = 16 << 20
"""A disk with fewer free bytes is full: a file that did not fit may leave as many."""

ANSWER_S = 120.0
ANSWERING_GPUS = """
import sys, torch
for i in range(int(sys.argv[1])):
    try:
        assert torch.ones(2, device=f"cuda:{i}").sum().item() == 2
        print(i, flush=True)
    except torch.OutOfMemoryError:
        print(i, flush=True)
    except Exception as e:
        print(f"GPU {i}: {e}".splitlines()[0], file=sys.stderr)
"""
"""Prints the number of each GPU that answers; a full one does."""


def require_devices(config: MultiTurnRLConfig) -> None:
    """Raises UsageError where there are fewer GPUs than were asked for, no CuPy for a rollout pool
    (without it verl has no NCCL to send the weights by), or nothing to speculate by: what verl and
    vLLM say after minutes."""
    if config.device == "cpu" or config.ray_address is not None:
        return
    others = [name for name in OTHER_GPUS if getattr(config, name)]
    wanted = config.gpus_used + config.judge_gpus
    require_gpus(config.device, wanted, lower=", ".join(["num_gpus", *others]))
    if config.rollout_gpus and importlib.util.find_spec("cupy") is None:
        raise UsageError(
            "rollout_gpus get their weights through CuPy, which is missing: install it with 'uv "
            "sync --extra verl', or leave rollout_gpus out"
        )


def require_answers(config: MultiTurnRLConfig) -> None:
    """Raises TrainingError where a GPU of the run is lost: the driver may count it still, and the
    next start would fail as the last one did."""
    if config.device == "cpu" or config.ray_address is not None:
        return
    count = config.gpus_used + config.judge_gpus
    answering, why = _answering(count)
    lost = [str(i) for i in range(count) if str(i) not in answering]
    if lost:
        raise TrainingError(
            f"of the run's {count} GPUs these do not answer any more: {', '.join(lost)} "
            f"({why}). Repair them and run the same command again: it goes on from the last "
            "checkpoint; or ask for fewer with --num-gpus, which says how the policy is converted"
        )


def _answering(count: int) -> tuple[list[str], str]:
    """Which of the GPUs answer, and the error of the others. Asked in a child process: a CUDA
    context would stay in this one, and a GPU that hangs would block it."""
    command = [sys.executable, "-c", ANSWERING_GPUS, str(count)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as asked:
        try:
            answers, errors = asked.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            asked.kill()
            answers = asked.communicate()[0]
            errors = f"no answer within {ANSWER_S:.0f} s"
    return answers.split(), (errors.strip().splitlines() or ["PyTorch says nothing"])[-1][:200]


def require_room(output: Path) -> None:
    """Raises TrainingError where a disk of the run is full or has no room for another checkpoint.
    verl's log may lie on that disk and end before it says so."""
    whole = checkpoints.whole_checkpoints(RLFolder(output).checkpoints)
    needed = checkpoints.nbytes(whole[-1]) if whole else 0
    for folder, least in ((output, needed), (Path(tempfile.gettempdir()), 0)):
        free = shutil.disk_usage(folder).free
        if free < max(least, LEAST_FREE):
            takes = f", and a checkpoint takes {least / 2**20:.0f} MiB" if least else ""
            raise TrainingError(
                f"the disk of {folder} is full: {free / 2**20:.0f} MiB are left{takes}; free some, "
                "and run the same command again: it goes on from the last checkpoint"
            )


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

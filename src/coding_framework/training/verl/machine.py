"""What a start of the trainer needs of this machine, looked at beforehand and after a failure: Ray
waits for GPUs that are not there, and dies of a full disk, both without a word. Of a cluster that
is joined only Ray knows, so its GPUs are not looked at. Imports neither verl nor Ray.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from coding_framework.errors import TrainingError, UsageError
from coding_framework.store import checkpoints
from coding_framework.store.folder import RLFolder
from coding_framework.training.rl_config import MultiTurnRLConfig

LEAST_FREE = 16 << 20
"""Bytes of a disk below which it is full: what a file that did not fit may leave."""

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
"""Prints the numbers of those that do; one that is full answers."""


def require_devices(config: MultiTurnRLConfig) -> None:
    """Raises UsageError where there are fewer GPUs than were asked for."""
    if config.device == "cpu" or config.ray_address is not None:
        return
    import torch

    found, wanted = torch.cuda.device_count(), config.num_gpus + config.judge_gpus
    if found < wanted:
        raise UsageError(
            f"{wanted} GPUs were asked for and {found} are here: set num_gpus"
            f"{' and judge_gpus' if config.judge_gpus else ''}, or device cpu"
        )


def require_answers(config: MultiTurnRLConfig) -> None:
    """Raises TrainingError where a GPU of the run is lost: the driver may count it still, and the
    next start would fail as the last one did."""
    if config.device == "cpu" or config.ray_address is not None:
        return
    count = config.num_gpus + config.judge_gpus
    answering, why = _answering(count)
    lost = [str(i) for i in range(count) if str(i) not in answering]
    if lost:
        raise TrainingError(
            f"of the run's {count} GPUs these do not answer any more: {', '.join(lost)} "
            f"({why}). Repair them and run the same command again: it goes on from the last "
            "checkpoint; or ask for fewer with --num-gpus, which says how the policy is converted"
        )


def _answering(count: int) -> tuple[list[str], str]:
    """Which GPUs of so many answer, and what the others say; in a process of its own, as a context
    in this one would stay, and a GPU that hangs would hold it."""
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
    """Raises TrainingError where a disk of the run is full, or has no room for a checkpoint as the
    last one. verl's log may lie on it, and end before the reason."""
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

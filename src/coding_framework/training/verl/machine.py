"""Checks that this machine can run the trainer, before a start and after a failure.

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
from pathlib import Path

from coding_framework.errors import TrainingError, UsageError
from coding_framework.store import checkpoints
from coding_framework.store.folder import RLFolder
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.overrides import SUFFIX_DECODING

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


OTHER_GPUS = ("rollout_gpus", "judge_gpus")
"""Settings of GPUs that do not train."""


def require_devices(config: MultiTurnRLConfig) -> None:
    """Raises UsageError where there are fewer GPUs than were asked for, no CuPy for a rollout pool
    (without it verl has no NCCL to send the weights by), or nothing to speculate by: what verl and
    vLLM say after minutes."""
    if config.device == "cpu" or config.ray_address is not None:
        return
    import torch

    found, wanted = torch.cuda.device_count(), config.gpus_used + config.judge_gpus
    if found < wanted:
        raise UsageError(
            f"{wanted} GPUs were asked for and {found} are here: set num_gpus"
            f"{''.join(f', {name}' for name in OTHER_GPUS if getattr(config, name))}, or device cpu"
        )
    if config.rollout_gpus and importlib.util.find_spec("cupy") is None:
        raise UsageError(
            "rollout_gpus get their weights through CuPy, which is missing: install it with 'uv "
            "sync --extra verl', or leave rollout_gpus out"
        )
    if config.speculative_decoding and importlib.util.find_spec("arctic_inference") is None:
        raise UsageError(
            "vLLM speculates by Arctic Inference, which is missing: install it with 'uv pip "
            f"install {SUFFIX_DECODING}' (it is compiled), or leave speculative_decoding out"
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

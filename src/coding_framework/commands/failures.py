"""How a command ends: its exit status, and one sentence on stderr where it failed.

0 done (`judge`: judged, whatever the verdict), 1 a leak (`data audit`) or a gate that fails
(`eval`), 2 wrong use, 3 our fault, 4 stopped by a limit of time (`eval`, `rft`, trainings), 130
stopped by Ctrl-C.
CUDA_RL_DEBUG=1 adds the traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from importlib.util import find_spec

from coding_framework.errors import (
    CodingFrameworkError,
    MissingChoiceError,
    MissingToolError,
    OutOfTimeError,
    UnwritableError,
    UsageError,
)

EXIT_OK, EXIT_HIT, EXIT_USAGE, EXIT_OURS, EXIT_EARLY, EXIT_INTERRUPTED = 0, 1, 2, 3, 4, 130
TRAINING_MODULES = frozenset(
    (
        *("accelerate", "bitsandbytes", "cachetools", "cloudpickle", "datasets", "gguf"),
        *("huggingface_hub", "hydra", "langchain_core", "langgraph", "omegaconf", "peft", "ray"),
        *("safetensors", "tensordict", "tokenizers", "transfer_queue", "transformers", "trl"),
        "verl",
    )
)
"""Modules of the extra `train`, which the judge does without."""
GET_TRAINERS = "run `make setup` in a clone, or pip install 'coding-framework[train]'"
_USERS = (UsageError, MissingChoiceError, UnwritableError)
"""The user's choice is at fault, not we."""
RESUMES = ": the same command goes on from where it was"


def run_script(work: Callable[[], int]) -> int:
    """The exit status of a root script. A bug of ours keeps its traceback: a training is long."""
    try:
        return work()
    except CodingFrameworkError as e:
        return fail("error", str(e), status_of(e))
    except ModuleNotFoundError as e:
        if (sentence := trainer_missing(e)) is None:
            raise
        return fail("error", sentence, EXIT_OURS)
    except KeyboardInterrupt:
        return fail("error", f"stopped{RESUMES}", EXIT_INTERRUPTED)


def status_of(error: CodingFrameworkError) -> int:
    if isinstance(error, OutOfTimeError):
        return EXIT_EARLY
    return EXIT_USAGE if isinstance(error, _USERS) else EXIT_OURS


def require_trainers() -> None:
    """Raises MissingToolError where only the judge is installed: before a run's first stage."""
    if not trainers_installed():
        raise MissingToolError(
            f"training needs verl, and only the judge is installed here: {GET_TRAINERS}"
        )


def trainers_installed() -> bool:
    """Whether the extra `train` is here; the judge needs none of it."""
    return find_spec("verl") is not None


def trainer_missing(error: ModuleNotFoundError) -> str | None:
    """The sentence for a module of the extra `train` that is not installed; None for others."""
    package = str(error.name).split(".")[0]
    if package not in TRAINING_MODULES:
        return None
    return f"this needs {package}, and only the judge is installed here: {GET_TRAINERS}"


def fail(program: str, sentence: str, status: int) -> int:
    """Print why `program` failed; returns the status."""
    if os.environ.get("CUDA_RL_DEBUG"):
        traceback.print_exc()
    print(f"{program}: {sentence}", file=sys.stderr, flush=True)
    return status

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
EXTRAS = {
    "train": "accelerate bitsandbytes cachetools cloudpickle datasets gguf huggingface_hub hydra "
    "langchain_core langgraph omegaconf peft ray safetensors tensordict tokenizers transfer_queue "
    "transformers trl verl",
    "serve": "aiohttp fastapi httptools orjson prometheus_client sse_starlette starlette uvicorn "
    "uvloop",
    "eval": "scipy",
    "mcp": "mcp",
    "docker": "docker",
}
"""Modules that the judge does without, by the extra that has them."""
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
        if (sentence := extra_missing(e)) is None:
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
            f"training needs verl, and only the judge is installed here: {how_to_get('train')}"
        )


def trainers_installed() -> bool:
    """Whether the extra `train` is here; the judge needs none of it."""
    return find_spec("verl") is not None


def extra_missing(error: ModuleNotFoundError) -> str | None:
    """The sentence for a module of an extra that is not installed; None for others."""
    package = str(error.name).split(".")[0]
    for extra, modules in EXTRAS.items():
        if package in modules.split():
            return f"this needs {package}, which is not installed here: {how_to_get(extra)}"
    return None


def how_to_get(extra: str) -> str:
    """What to do where an extra is not installed."""
    return f"run `make setup` in a clone, or pip install 'coding-framework[{extra}]'"


def fail(program: str, sentence: str, status: int) -> int:
    """Print why `program` failed; returns the status."""
    if os.environ.get("CUDA_RL_DEBUG"):
        traceback.print_exc()
    print(f"{program}: {sentence}", file=sys.stderr, flush=True)
    return status

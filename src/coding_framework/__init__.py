"""Trains LLM agents to write fast, correct CUDA kernels, with a verdict that can be trusted."""

__version__ = "0.2.0"

import os as _os
from importlib import import_module as _import_module
from typing import Any as _Any

# Read when torch loads its OpenMP: threads that wait give their core back instead of spinning on
# it. Beside other work spinning made four short answers take minutes (agents/threads.py).
_os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_PLACES = {
    "judge": "integrations.kernels",
    "judge_async": "integrations.kernels",
    "KernelJudge": "integrations.kernels",
    "Task": "types",
    "Verdict": "types",
}


def __getattr__(name: str) -> _Any:
    """What a user's program calls, imported when it does: the import of this package is light."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"{__name__}.{_PLACES[name]}"), name)

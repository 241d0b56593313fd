"""Trains LLM agents to write fast, correct CUDA kernels, with a verdict that can be trusted."""

__version__ = "0.2.0"

import os as _os

from coding_framework.exports import exported as _exported

# Read when torch loads its OpenMP: threads that wait give their core back instead of spinning on
# it. Beside other work spinning made four short answers take minutes (agents/threads.py).
_os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__getattr__ = _exported(
    __name__,
    {
        "judge": "integrations.kernels",
        "judge_async": "integrations.kernels",
        "KernelJudge": "integrations.kernels",
        "Task": "types",
        "Verdict": "types",
    },
)

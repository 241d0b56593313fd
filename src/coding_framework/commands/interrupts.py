"""Importing this makes Ctrl-C one line and status 130, from then on and outside of any `try`.

A root script imports it first: what it imports next takes a second, in which people press Ctrl-C
because they forgot a flag.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

STOPPED = "error: stopped: the same command goes on from where it was"


def _one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt) or os.environ.get("CUDA_RL_DEBUG"):
        sys.__excepthook__(kind, error, trace)
        return
    print(STOPPED, file=sys.stderr, flush=True)
    os._exit(130)  # Python itself would end by the signal


sys.excepthook = _one_line

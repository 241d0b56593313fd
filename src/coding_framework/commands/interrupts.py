"""Importing this makes Ctrl-C one line and status 130, from then on and outside of any `try`.

A root script and `cuda-rl` import it first: what they import next takes a second, in which people
press Ctrl-C because they forgot a flag. While a module is imported, Ctrl-C ends the process at
once: as an exception it is lost in packages that try an import and go on without (numpy, half
imported, then ends in a RecursionError).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = (
    False  # nothing is imported before the hook is set that Python has not imported itself
)
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Never

STOPPED = "error: stopped: the same command goes on from where it was"
STOPPED_EARLY = "cuda-rl: stopped"
goes_on = ""
"""What is said after it: set where the same command goes on from where this one was."""
END_S = 1.0
"""What the end of a stopped command may take: its threads, and what they started, then end."""


def end_soon(status: int) -> None:
    """Ends this process and all that it started after `END_S`, unless it has ended by then: a
    thread that works on (a library's, or one of a pool) must not keep the user's shell."""
    import threading

    timer = threading.Timer(END_S, _end_all, (status,))
    timer.daemon = True
    timer.start()


def _end_all(status: int) -> None:
    from contextlib import suppress

    import psutil

    with suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    os._exit(status)


def _one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt) or os.environ.get("CUDA_RL_DEBUG"):
        sys.__excepthook__(kind, error, trace)
        return
    _stop()


def _stop() -> None:
    early = os.path.basename(sys.argv[0]) in ("cuda-rl", "cli.py")
    print(STOPPED_EARLY + goes_on if early else STOPPED, file=sys.stderr, flush=True)
    psutil = sys.modules.get("psutil")
    if psutil is not None and not getattr(psutil.__spec__, "_initializing", False):
        _end_all(130)  # while psutil itself is imported, it cannot be used
    os._exit(130)  # Python itself would end by the signal


def _interrupted(number: int, frame: FrameType | None) -> Never:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            _stop()
        frame = frame.f_back
    raise KeyboardInterrupt


def _take_signal() -> None:
    import signal

    process = sys.modules.get("multiprocessing.process")
    child = process is not None and process.parent_process() is not None
    if child or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # a child's end is its parent's to tell; who starts us in the background ignores it
    signal.signal(signal.SIGINT, _interrupted)
    # asyncio cancels the main task on Ctrl-C where it finds Python's own handler: it is ours now
    signal.default_int_handler = _interrupted


sys.excepthook = _one_line
_take_signal()

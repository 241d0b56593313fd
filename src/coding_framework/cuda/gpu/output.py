"""What kernels print: the driver writes it to the standard output of the process."""

from __future__ import annotations

import ctypes
import fcntl
import os

MAX_OUTPUT_BYTES = 4096
"""Of printf, a launch; the rest is counted."""


class CapturedOutput:
    """Standard output of this process, in memory from here on."""

    def __init__(self) -> None:
        self._file = os.memfd_create("printed")
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)
        os.dup2(self._file, 1)
        self._c = ctypes.CDLL(None)

    def take(self) -> str:
        """The text since the last call; where it was cut, it says so."""
        self._c.fflush(None)
        size = os.fstat(self._file).st_size
        if not size:
            return ""
        data = os.pread(self._file, min(size, MAX_OUTPUT_BYTES), 0)
        os.ftruncate(self._file, 0)
        text = data.decode("utf-8", "replace")
        over = size - MAX_OUTPUT_BYTES
        return text if over <= 0 else f"{text}\n[{over} bytes more]"

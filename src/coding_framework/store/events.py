"""What the library notices, told to whoever wants to know: `log.warning("event", key=value)`.

By structlog, as the program has configured it (`monitoring.logs`). Where nobody has, on stderr:
structlog's own default is stdout, which belongs to the program that we are a library of. It lies
here because every package above may notice something.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class EventLog:
    """The logger of every module; structlog is imported with the first event."""

    configure: Callable[[], object] = staticmethod(lambda: None)
    """What a command configures structlog by, called then."""

    def __getattr__(self, level: str) -> Any:
        """What takes an event of this level: "info", "warning", "exception"."""
        if level.startswith("_"):
            raise AttributeError(level)
        import structlog

        if not structlog.is_configured():
            self.configure()
        logger = None if structlog.is_configured() else structlog.PrintLogger(sys.stderr)
        return getattr(structlog.wrap_logger(logger), level)


log = EventLog()

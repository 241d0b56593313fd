"""Structured logs: JSON lines in a file, warnings for people on stderr, nothing on stdout."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from coding_framework.errors import InfrastructureError
from coding_framework.paths import cannot_write

_QUIET = {
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


class _Tee:
    """Last processor of the chain: writes the event where it belongs, then drops it.

    The file gets everything as JSON; stderr gets what is a warning or worse.
    """

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._json = structlog.processors.JSONRenderer(default=str)

    def __call__(self, logger: WrappedLogger, name: str, event: EventDict) -> str:
        if self._file is not None:
            self._write(str(self._json(logger, name, dict(event))))
        if event.get("level") in ("warning", "error", "critical"):
            print(_for_people(event), file=sys.stderr, flush=True)
        raise structlog.DropEvent

    def _write(self, line: str) -> None:
        """A log that cannot be written ends with a warning: it must not end the work."""
        assert self._file is not None
        try:
            self._file.write(f"{line}\n")
            self._file.flush()
        except OSError as e:
            self._file = None
            print(f"warning: no more log: {e.strerror or e}", file=sys.stderr, flush=True)


def configure_logging(log_file: Path | None = None) -> None:
    """Route structlog's events; to be called once, by a program, never by a library module.

    Raises InfrastructureError where the log file cannot be opened.
    """
    file: TextIO | None = None
    if log_file is not None:
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            file = log_file.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as e:
            raise InfrastructureError(cannot_write(log_file, e)) from e
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _Tee(file),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def quiet_libraries() -> None:
    """Silence the progress bars and notices of libraries, in this process and its children: our own
    progress says it. To be called before they are imported. Their errors still show."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("torch", "bitsandbytes"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _for_people(event: EventDict) -> str:
    fields: dict[str, Any] = {
        k: v for k, v in event.items() if k not in ("event", "level", "timestamp", "exception")
    }
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    return f"{event.get('level', 'info')}: {event.get('event', '')} {text}".rstrip()

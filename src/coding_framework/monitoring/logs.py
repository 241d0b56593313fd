"""Structured logs: JSON lines in a file, the same for people in logs/training.log beside it,
warnings on stderr, nothing on stdout."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from coding_framework.paths import write_error

if TYPE_CHECKING:  # it imports rich and pygments, which most commands never need
    from structlog.typing import EventDict, WrappedLogger

PLAIN = "logs/training.log"
_QUIET = {
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


class _Tee:
    """Last processor of the chain: writes the event where it belongs, then drops it.

    The file gets everything as JSON, `plain` a line for people; stderr gets what is a warning or
    worse.
    """

    def __init__(self, file: TextIO | None, plain: TextIO | None) -> None:
        self._files = {"json": file, "plain": plain}

    def __call__(self, logger: WrappedLogger, name: str, event: EventDict) -> str:
        from structlog import DropEvent

        self._write("json", json.dumps(event, default=str))
        self._write("plain", f"{str(event.get('timestamp', ''))[:19]} {_for_people(event)}")
        if event.get("level") in ("warning", "error", "critical"):
            print(_for_people(event), file=sys.stderr, flush=True)
        raise DropEvent

    def _write(self, kind: str, line: str) -> None:
        """A log that cannot be written ends with a warning: it must not end the work."""
        file = self._files[kind]
        if file is None:
            return
        try:
            file.write(f"{line}\n")
            file.flush()
        except OSError as e:
            self._files[kind] = None
            print(f"warning: no more log: {e.strerror or e}", file=sys.stderr, flush=True)


def configure_logging(log_file: Path | None = None) -> None:
    """Route structlog's events; to be called once, by a program, never by a library module.

    Raises InfrastructureError where the log file cannot be opened.
    """
    import structlog

    file = plain = None
    if log_file is not None:
        file = _opened(log_file)
        plain = _opened(log_file.parent / PLAIN)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _Tee(file, plain),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _opened(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8", errors="backslashreplace")
    except OSError as e:
        raise write_error(path, e) from e


def quiet_libraries() -> None:
    """Silence the progress bars and notices of libraries, in this process and its children: our own
    progress says it. To be called before they are imported. Their errors still show."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("torch", "torch.distributed.device_mesh", "bitsandbytes"):  # torch sets "torch"
        logging.getLogger(name).setLevel(logging.ERROR)


def _for_people(event: EventDict) -> str:
    fields: dict[str, Any] = {
        k: v for k, v in event.items() if k not in ("event", "level", "timestamp", "exception")
    }
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    return f"{event.get('level', 'info')}: {event.get('event', '')} {text}".rstrip()

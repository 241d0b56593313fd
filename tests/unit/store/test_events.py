"""What the library notices goes where the program wants it, and never to its stdout by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

NOTICE = """
from coding_framework.store.events import log
log.warning("something_odd", path="a/b")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("something_failed")
"""


def told(program: str) -> tuple[str, str]:
    """(stdout, stderr) of a program of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_where_nobody_configured_a_log_events_go_to_stderr() -> None:
    out, err = told(NOTICE)
    assert out == ""
    assert "something_odd" in err
    assert "ZeroDivisionError" in err


def test_a_program_that_configured_its_log_gets_them(tmp_path: Path) -> None:
    own = (
        "import structlog\n"
        f"file = open({str(tmp_path / 'log')!r}, 'w')\n"
        "structlog.configure(logger_factory=structlog.WriteLoggerFactory(file))\n"
    )
    assert told(own + NOTICE) == ("", "")
    assert "something_odd" in (tmp_path / "log").read_text()


def test_nothing_is_imported_for_a_log_before_its_first_event() -> None:
    out, _ = told("import coding_framework.store.lines, sys; print('structlog' in sys.modules)")
    assert out == "False\n"

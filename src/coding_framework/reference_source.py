"""A task's reference, run: the names that its source defines."""

from __future__ import annotations

import ast
from typing import Any

REFERENCE_FILE = "<task reference>"
"""What a reference is compiled as: its frames are known by it."""


def run_reference(source: str | ast.Module) -> dict[str, Any]:
    """The names of the reference's module. Raises whatever it raises.

    It is compiled without the features that this file asks of the future: under them the
    annotations of a user's dataclass would be texts.
    """
    names: dict[str, Any] = {"__name__": "task_reference"}
    exec(compile(source, REFERENCE_FILE, "exec", dont_inherit=True), names)
    return names

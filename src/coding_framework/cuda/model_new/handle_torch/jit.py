"""torch.jit: the functions themselves."""

from __future__ import annotations

from typing import Any


def script(function: Any, *_: Any, **__: Any) -> Any:
    return function


script_method = export = ignore = unused = script_if_tracing = script


class ScriptModule:
    """No module is one."""


def is_scripting() -> bool:
    return False

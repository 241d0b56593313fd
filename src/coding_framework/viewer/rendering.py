"""Templates and static files. Everything that a template shows is escaped."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import ChainableUndefined, Environment, PackageLoader, Undefined
from markupsafe import Markup

from coding_framework import __version__
from coding_framework.evaluation.report import STYLE
from coding_framework.monitoring.progress import duration
from coding_framework.monitoring.text import one_line, visible

STATIC_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
    ".json": "application/json",
    ".md": "text/plain",
}
_STATIC = Path(__file__).parent / "static"
GLYPHS = {
    "correct": "✓",
    "wrong_output": "≠",
    "nondeterministic": "~",
    "rejected": "⊘",
    "cheating": "⚑",
    "compile_error": "✕",
    "compile_timeout": "◔",
    "load_error": "✕",
    "runtime_error": "!",
    "timeout": "◔",
    "memory_limit": "▣",
    "output_limit": "▣",
    "unsupported": "?",
    "masked": "–",
}
"""So that no status is told by its colour alone."""


def render(template: str, values: Mapping[str, Any], **more: Any) -> str:
    """The page of a template."""
    return (
        environment()
        .get_template(template)
        .render(**{"query": "", "export": False, **values, **more})
    )


def static_path(name: str) -> Path | None:
    """A static file by the name in its address, which starts with a digest; None: there is none."""
    _, _, plain = name.partition("/")
    return _static_files().get(plain)


@cache
def static_address(name: str) -> str:
    """The address of a static file; another content has another one."""
    digest = hashlib.sha256(_static_files()[name].read_bytes()).hexdigest()[:10]
    return f"/static/{digest}/{name}"


@cache
def _static_files() -> dict[str, Path]:
    files = (p for p in _STATIC.rglob("*") if p.is_file() and p.suffix in STATIC_TYPES)
    own = {p.relative_to(_STATIC).as_posix(): p for p in files}
    return {**own, "style.css": STYLE}


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("coding_framework.viewer"),
        autoescape=True,
        undefined=ChainableUndefined,  # records of other versions lack fields
        auto_reload=False,  # the files of a server stay those that it began with
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "visible": lambda value: visible(str(value)),
        "line": _line,
        "number": number,
        "times": lambda value: f"{value:,.2f}×" if _is_finite(value) else "–",
        "device": lambda name: (
            "emulator" if str(name).startswith("the emulator") else _line(name, 40)
        ),
        "percent": lambda value: f"{value:.0%}" if _is_finite(value) else "–",
        "signed": lambda value: f"{value:+.3f}" if _is_finite(value) else "–",
        "glyph": lambda status: GLYPHS.get(str(status), "·"),
        "words": lambda status: str(status).replace("_", " "),
        "address": lambda value: quote(str(value), safe=""),
        "lasting": lambda value: duration(value) if _is_finite(value) else "–",
        "ago": ago,
        "bytes": bytes_,
    }
    made.globals |= {"static": static_address, "version": __version__, "query_of": _query_of}
    return made


def number(value: Any, digits: int = 3) -> str:
    """A figure for people: three digits that count, no exponent between 0.001 and a million."""
    if not _is_number(value):
        return "–" if value is None or isinstance(value, Undefined) else visible(str(value))
    if not math.isfinite(value):
        return str(value)
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.3g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 0.001:
        return f"{value:.2e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 4)}f}"


def ago(seconds: float) -> str:
    """How long something is over, in one unit."""
    for most, unit, of in ((90, "s", 1), (5400, "min", 60), (172_800, "h", 3600)):
        if seconds < most:
            return f"{seconds / of:.0f} {unit} ago"
    return f"{seconds / 86_400:.0f} days ago"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and math.isfinite(value)


def _line(value: object, limit: int = 200) -> str:
    return one_line(str(value), limit)


def bytes_(value: float) -> str:
    """A size, in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _query_of(**values: Any) -> Markup:
    """A query of what is not empty, with its "?"; escaped by being one."""
    kept = {name: value for name, value in values.items() if value not in ("", None)}
    return Markup("?{}").format(urlencode(kept)) if kept else Markup("")

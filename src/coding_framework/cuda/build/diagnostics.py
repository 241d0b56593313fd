"""Reads what nvcc printed: errors and warnings with their line, and ptxas's resource report.

The text is partly the candidate's (messages quote its code, #line renames its file, .print says
anything), so nothing here decides more than what an agent is shown; registers are taken from the
cubin instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from coding_framework.types import Diagnostic, KernelResources

SOURCE_NAME = "kernel.cu"
MAX_SOURCE_CHARS = 100_000


def too_long(code: str) -> str | None:
    """Why a source is too long to be judged; None: it is not."""
    if len(code) <= MAX_SOURCE_CHARS:
        return None
    return f"the source has {len(code)} characters, more than the {MAX_SOURCE_CHARS} allowed"


MAX_DIAGNOSTICS = 20
MAX_MESSAGE_CHARS = 400

_FRONT_END = re.compile(
    r"^(?P<file>[^\s(:][^(:]*)[(:](?P<line>\d+)(?:\)|:\d+)?\s*:\s*"
    r"(?P<severity>error|fatal error|catastrophic error|warning)\s*(?:#[\w-]+)?\s*:\s*"
    r"(?P<message>.*)$"
)
_AT_END = re.compile(
    r"^At end of source: (?P<severity>error|warning)\s*(?:#[\w-]+)?\s*:\s*(?P<message>.*)$"
)
"""A source that was cut off, as an answer is at its token limit."""
_OPENED = re.compile(re.escape(SOURCE_NAME) + r"\((\d+)\): note .*: (to match this .*)$")
_TOOL = re.compile(
    r"^(?:ptxas|nvlink|nvcc)\s+(?P<severity>error|fatal|warning)\s*:\s*(?P<message>.*)$"
)
_PTXAS_PLACE = re.compile(
    r"^ptxas \S+, line (?P<line>\d+); (?P<severity>\w+)\s*:\s*(?P<message>.*)$"
)
_LINKER = re.compile(r"^(?:\S*/)?ld(?:\.\w+)?: (?P<message>.*)$")
_ASSEMBLER = re.compile(r"^\S+\.s:\d+: Error: (?P<message>.*)$")
_AT_LINE = re.compile(r"at line (\d+) of " + re.escape(SOURCE_NAME))


_MODULE = re.compile(r'function "cf_module_init(?:_\d+)?(?:\([^"]*\))?"')
"""What the macro makes of a module in our header; the source has the macro alone."""


@dataclass(frozen=True, slots=True)
class CompilerReport:
    """What the compiler said, sorted."""

    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]
    kernels: tuple[KernelResources, ...]


def parse_report(text: str, own_folders: Iterable[str] = ()) -> CompilerReport:
    """Parse nvcc's output. `own_folders`: where the headers lie that a message may come from; a
    message from any other file is replaced, for it could quote that file."""
    folders = tuple(own_folders)
    found: dict[str, list[Diagnostic]] = {"error": [], "warning": []}
    lines = text.splitlines()
    for index, line in enumerate(lines):
        diagnostic = _diagnostic(line, lines[index + 1 : index + 24], folders)
        if diagnostic is None:
            continue
        kept = found[diagnostic.severity]
        if diagnostic not in kept and len(kept) < MAX_DIAGNOSTICS:
            kept.append(diagnostic)
    return CompilerReport(
        errors=tuple(found["error"]),
        warnings=tuple(found["warning"]),
        kernels=_resources(lines),
    )


def _diagnostic(line: str, after: list[str], folders: tuple[str, ...]) -> Diagnostic | None:
    if match := _FRONT_END.match(line):
        return _from_front_end(match, after, folders)
    if match := _AT_END.match(line):
        opened = _OPENED.match(after[0]) if after else None
        message = f"the source ends too early: {match['message']}"
        if opened is None:
            return _make(match["severity"], None, message)
        return _make(match["severity"], int(opened[1]), f"{message} {opened[2]}")
    if match := _TOOL.match(line):
        return _make(match["severity"], None, match["message"])
    if match := _PTXAS_PLACE.match(line):
        return _make(match["severity"], None, f"ptxas: {match['message']}")
    if match := _ASSEMBLER.match(line):
        return _make("error", None, f"assembler: {match['message']}")
    if match := _LINKER.match(line):
        return _make("error", None, f"linker: {match['message']}")
    return None


def _from_front_end(match: re.Match[str], after: list[str], folders: tuple[str, ...]) -> Diagnostic:
    file, message = match["file"], match["message"]
    number: int | None = None
    if file == SOURCE_NAME:
        number = int(match["line"])
    elif file.startswith(folders) if folders else False:
        # an error inside a template of a header: the candidate's line is in the trace below
        for trace in after:
            if _FRONT_END.match(trace):
                break
            if place := _AT_LINE.search(trace):
                number = int(place.group(1))
                break
    else:
        message = "in an included file that is not part of the toolkit or of the torch headers"
    return _make(match["severity"], number, message)


def _make(severity: str, line: int | None, message: str) -> Diagnostic:
    kind: Literal["error", "warning"] = "warning" if severity == "warning" else "error"
    text = "".join(c if c.isprintable() else " " for c in message).strip()
    text = _MODULE.sub("PYBIND11_MODULE", text)
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[:MAX_MESSAGE_CHARS] + " ..."
    return Diagnostic(severity=kind, line=line, message=text)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")


def _resources(lines: list[str]) -> tuple[KernelResources, ...]:
    kernels: dict[str, KernelResources] = {}
    entry = current = None
    spills = 0
    for line in lines:
        if not (line.startswith("ptxas info") or line.startswith("    ")):
            continue
        if match := _ENTRY.search(line):
            entry = current = match.group(1)
            spills = 0
        elif match := _PROPERTIES.search(line):
            current = match.group(1).strip("'")
        elif current == entry and (match := _SPILLS.search(line)):
            spills = int(match.group(1)) + int(match.group(2))
        elif entry is not None and (match := _REGISTERS.search(line)):
            shared = _SHARED.search(line)
            kernels[entry] = KernelResources(
                name=entry,
                registers=int(match.group(1)),
                spill_bytes=spills,
                shared_bytes=int(shared.group(1)) if shared else 0,
                const_bytes=sum(int(x) for x in _CONSTANT.findall(line)),
            )
            entry = current = None
    return tuple(kernels.values())

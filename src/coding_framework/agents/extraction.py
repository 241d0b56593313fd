"""The kernel in a model's answer. Never raises, whatever the text, in time linear in its length.

Order of preference: fenced blocks that hold device or host code, the last of them that makes a
module (a model that corrects itself does so later in its answer); a fence that was never closed;
the code of a tool call; an answer that is source without any fence. Source is CUDA, or Python that
defines `ModelNew` (a KernelBench answer). It is taken byte for byte, without what its block is
indented or quoted by. What was done is said in the note.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from coding_framework.types import Extraction, defines_model_new

MAX_CODE_CHARS = 200_000
"""Longer code is no kernel: it is refused, not cut."""

_CODE_TAGS = frozenset({"", "cuda", "cu", "cpp", "c++", "c", "cc", "cxx", "cuda-cpp", "cuda_cpp"})
_PYTHON = re.compile(r"^(?:import|from|def)[ \t]", re.MULTILINE)
_SOURCE_MARKS = ("__global__", "#include", "PYBIND11_MODULE", "torch::Tensor")
_MODULE = re.compile(r"\b(?:PYBIND11_MODULE|TORCH_LIBRARY\w*)\s*\(")
_FENCE = re.compile(
    r"(?P<quote>(?:[ ]{0,3}>[ ]?)*)(?P<indent>[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)"
    r"(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)"
)
"""A line that opens or closes a block, in a list's item or a quotation too."""
_BEHIND_TEXT = re.compile(r"[^`]*[^`\s][ \t]*(?P<mark>`{3,})(?P<info>[A-Za-z][\w+.:-]*)\s*")
_GLUED = re.compile(r"(.*?[;})])[ \t]*(`{3,}|~{3,})\s*")
_CLOSING_TAG = re.compile(r"^[ \t]*</(?:answer|code|kernel|cuda|solution|response)>", re.MULTILINE)
_STRING = re.compile(r':\s*("(?>[^"\\]|\\.)*")')
"""A text among the values of a JSON object."""
_OBJECT = re.compile(r'\s*(?:\[\s*)?\{\s*"')


@dataclass(slots=True)
class _Block:
    """A fenced block. Its quotation and its indentation are no part of its lines."""

    mark: str
    tag: str = ""
    quotes: int = 0
    indent: int = 0
    lines: list[str] = field(default_factory=list)
    closed: bool = False
    glued: int | None = None
    """How many lines it has where a fence behind the last brace ends it."""
    odd: bool = False
    """Whether it is within a text in triple quotes."""

    @property
    def code(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def is_model(self) -> bool:
        return defines_model_new(self.code)

    @property
    def is_source(self) -> bool:
        return self.is_model or any(mark in self.code for mark in _SOURCE_MARKS)

    @property
    def whole(self) -> int:
        """2: it makes a module. 1: it has a kernel and names a `forward`."""
        if not self.closed:
            return 0
        code = self.code
        makes = self.is_model or ("__global__" in code and _MODULE.search(code) is not None)
        return 2 if makes else int(all(mark in code for mark in ("__global__", "forward", "{")))

    @property
    def is_usable(self) -> bool:
        """Whether it can be a kernel: with a tag of another language it needs a ModelNew, or a
        kernel and no Python."""
        if not self.code.strip() or _is_json(self.code):
            return False
        if self.tag in _CODE_TAGS and (self.is_source or self.tag != ""):
            return True
        return self.is_model or ("__global__" in self.code and not _PYTHON.search(self.code))

    def without_prefix(self, line: str) -> str:
        """A line of the answer as it is in the block."""
        for _ in range(self.quotes):
            line = re.sub(r"^[ ]{0,3}>[ ]?", "", line)
        taken = len(line) - len(line.lstrip(" \t"))
        return line[min(taken, self.indent) :]

    def end(self, lines: int | None, *, closed: bool) -> None:
        if lines is not None and not closed:
            glued = _GLUED.fullmatch(self.lines[lines - 1])
            self.lines = [*self.lines[: lines - 1], glued[1] if glued else ""]
        self.closed = closed or lines is not None


def extract_kernel(answer: str) -> Extraction:
    """The kernel of an answer, or None, and in a sentence what was found."""
    blocks = _blocks(answer)
    usable = [b for b in blocks if b.is_usable]
    best = max((b.whole for b in usable), default=0)
    whole = [b for b in usable if best and b.whole == best]
    if not usable:
        return _without_block(answer, blocks)
    chosen = (whole or [b for b in usable if b.is_source] or usable)[-1]
    note = "one block" if len(usable) == 1 else f"{len(usable)} blocks: took number "
    if len(usable) > 1:
        note += f"{usable.index(chosen) + 1}, the last {'with a kernel' if whole else 'one'}"
    if not chosen.closed:
        note += "; its fence was never closed"
    return _checked(chosen.code, note)


def _without_block(answer: str, blocks: list[_Block]) -> Extraction:
    if (called := _of_a_tool_call(answer)) is not None:
        return called
    told = answer.rpartition("</think>")[2]
    if not blocks and defines_model_new(told):
        imported = _PYTHON.search(told)
        start = imported.start() if imported else 0
        return _checked(_up_to_tag(told[start:]), "no fence: took the answer from its first import")
    if not blocks and "__global__" in told:
        start = min(
            (at for mark in ("#include", "__global__") if (at := told.find(mark)) >= 0),
            default=0,
        )
        note = "no fence: took the answer from its first line of source"
        return _checked(_up_to_tag(told[start:]), note)
    if not answer.strip():
        return Extraction(code=None, note="the answer is empty")
    if blocks:
        return Extraction(code=None, note=f"{len(blocks)} blocks, none of them CUDA")
    return Extraction(code=None, note="no code block")


def _of_a_tool_call(answer: str) -> Extraction | None:
    """The last source among the texts of a JSON object, fenced there or not."""
    for found in reversed(_STRING.findall(answer)):
        if "__global__" not in found and "ModelNew" not in found:
            continue
        try:
            text = str(json.loads(found, strict=False))
        except ValueError:
            continue
        if _is_json(text):  # arguments are often a text themselves
            return _of_a_tool_call(text)
        inner = next((b for b in reversed(_blocks(text)) if b.is_usable), None)
        if inner is not None or defines_model_new(text) or "__global__" in text:
            return _checked(text if inner is None else inner.code, "the code of a tool call")
    return None


def _is_json(text: str) -> bool:
    return _OBJECT.match(text) is not None


def _up_to_tag(code: str) -> str:
    """Without the tag that ends an answer, and what follows."""
    tag = _CLOSING_TAG.search(code)
    return code[: tag.start()] if tag else code


def _checked(code: str, note: str) -> Extraction:
    code += "" if code.endswith("\n") else "\n"
    if len(code) > MAX_CODE_CHARS:
        return Extraction(
            code=None, note=f"{note}; refused: {len(code)} characters, {MAX_CODE_CHARS} allowed"
        )
    if "\0" in code:
        note += "; it holds NUL characters"
    return Extraction(code=code, note=note)


def _blocks(answer: str) -> list[_Block]:
    """Fenced blocks in order. A fence closes with at least as many of the same characters, not
    further in than three columns, and not in a text in triple quotes that ends later; a block that
    another tagged fence interrupts ends there."""
    lines = answer.split("\n")
    blocks = _scanned(lines, quoted=True)
    if any(not b.closed and b.odd for b in blocks):  # a fence closed it within a quotation
        blocks = _scanned(lines, quoted=False)
    return blocks


def _scanned(lines: list[str], *, quoted: bool) -> list[_Block]:
    blocks: list[_Block] = []
    block: _Block | None = None
    for raw in lines:
        line = raw if block is None else block.without_prefix(raw)
        found = _FENCE.fullmatch(line)
        if block is None:
            found = found or _BEHIND_TEXT.fullmatch(line)
            if found:
                block = _opened(found)
            continue
        if found and _belongs(found, block) and not (quoted and block.odd):
            info = found["info"].strip()
            block.end(block.glued if info else None, closed=not info)
            blocks.append(block)
            block = _opened(found, block) if info else None
            continue
        if found is None and block.glued is None:
            glued = _GLUED.fullmatch(line)
            if glued and glued[2][0] == block.mark[0] and len(glued[2]) >= len(block.mark):
                block.glued = len(block.lines) + 1
        block.odd ^= (line.count('"""') + line.count("'''")) % 2 == 1
        block.lines.append(line)
    if block is not None:
        block.end(block.glued, closed=False)
        blocks.append(block)
    return blocks


def _belongs(found: re.Match[str], block: _Block) -> bool:
    """Whether a fence within a block may end it."""
    mark = found["mark"]
    near = len(found["indent"].expandtabs(4)) <= 3 and not found["quote"]
    return near and mark[0] == block.mark[0] and len(mark) >= len(block.mark)


def _opened(found: re.Match[str], within: _Block | None = None) -> _Block:
    named = found.groupdict()
    indent, quotes = len(named.get("indent") or ""), (named.get("quote") or "").count(">")
    if within is not None:
        indent, quotes = indent + within.indent, within.quotes
    return _Block(found["mark"], _tag(found["info"]), quotes, indent)


def _tag(info: str) -> str:
    words = info.split()
    return words[0].strip("{}.").partition(":")[0].lower() if words else ""

"""The kernel in a model's answer. Never raises, whatever the text, in time linear in its length.

Order of preference: fenced blocks that hold device or host code, the last of them that looks whole
(a model that corrects itself does so later in its answer); a diff against the kernel that the
prompt showed; a fence that was never closed; an answer that is source without any fence. Source is
CUDA, or Python that defines `ModelNew` (a KernelBench answer). What was done is said in the note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coding_framework.agents.diffs import apply_diff, looks_like_diff
from coding_framework.types import Extraction, defines_model_new

MAX_CODE_CHARS = 200_000
"""Longer code is no kernel: it is refused, not cut."""

_CODE_TAGS = frozenset({"", "cuda", "cu", "cpp", "c++", "c", "cc", "cxx", "cuda-cpp", "cuda_cpp"})
_DIFF_TAGS = frozenset({"diff", "patch"})
_IMPORT = re.compile(r"^(?:import|from)[ \t]", re.MULTILINE)
_SOURCE_MARKS = ("__global__", "#include", "PYBIND11_MODULE", "torch::Tensor")


@dataclass(frozen=True, slots=True)
class _Block:
    tag: str
    code: str
    closed: bool

    @property
    def is_model(self) -> bool:
        return defines_model_new(self.code)

    @property
    def is_source(self) -> bool:
        return self.is_model or any(mark in self.code for mark in _SOURCE_MARKS)

    @property
    def is_whole(self) -> bool:
        kernel = "__global__" in self.code and "forward" in self.code
        return self.closed and (kernel or self.is_model)

    @property
    def is_usable(self) -> bool:
        """Whether it can be a kernel: a tag of another language needs a ModelNew in it."""
        tagged = self.tag in _CODE_TAGS and (self.is_source or self.tag != "")
        return bool(self.code.strip()) and (tagged or self.is_model)


def extract_kernel(answer: str, previous: str | None = None) -> Extraction:
    """The kernel of an answer, or None, and in a sentence what was found.

    previous: the kernel that a diff in the answer changes, which is the one its prompt showed.
    """
    blocks = _blocks(answer)
    diffs = [b for b in blocks if _is_diff(b)]
    usable = [b for b in blocks if b.is_usable and b not in diffs]
    whole = [b for b in usable if b.is_whole]
    if diffs and not whole:
        return _patched(previous, diffs[-1])
    if not usable:
        return _without_block(answer, blocks)
    chosen = (whole or [b for b in usable if b.is_source] or usable)[-1]
    note = "one block" if len(usable) == 1 else f"{len(usable)} blocks: took number "
    if len(usable) > 1:
        note += f"{usable.index(chosen) + 1}, the last {'with a kernel' if whole else 'one'}"
    if not chosen.closed:
        note += "; its fence was never closed"
    return _checked(chosen.code, note)


def _is_diff(block: _Block) -> bool:
    return block.tag in _DIFF_TAGS or (block.tag in _CODE_TAGS and looks_like_diff(block.code))


def _patched(previous: str | None, diff: _Block) -> Extraction:
    if previous is None:
        return Extraction(code=None, note="a diff, and no earlier kernel to change")
    patched = apply_diff(previous, diff.code)
    if patched.code is None:
        return Extraction(code=None, note=patched.note)
    return _checked(patched.code, f"{patched.note}, applied to the kernel shown")


def _without_block(answer: str, blocks: list[_Block]) -> Extraction:
    if not blocks and defines_model_new(answer):
        imported = _IMPORT.search(answer)
        start = imported.start() if imported else 0
        return _checked(answer[start:], "no fence: took the answer from its first import")
    if not blocks and "__global__" in answer:
        start = min(
            (at for mark in ("#include", "__global__") if (at := answer.find(mark)) >= 0),
            default=0,
        )
        return _checked(answer[start:], "no fence: took the answer from its first line of source")
    if not answer.strip():
        return Extraction(code=None, note="the answer is empty")
    if blocks:
        return Extraction(code=None, note=f"{len(blocks)} blocks, none of them CUDA")
    return Extraction(code=None, note="no code block")


def _checked(code: str, note: str) -> Extraction:
    code = code.strip() + "\n"
    if len(code) > MAX_CODE_CHARS:
        return Extraction(
            code=None, note=f"{note}; refused: {len(code)} characters, {MAX_CODE_CHARS} allowed"
        )
    if "\0" in code:
        note += "; it holds NUL characters"
    return Extraction(code=code, note=note)


def _blocks(answer: str) -> list[_Block]:
    """Fenced blocks in order. A fence closes with at least as many of the same characters; a block
    that another tagged fence interrupts ends there."""
    blocks: list[_Block] = []
    fence, tag, lines = "", "", list[str]()
    for line in answer.replace("\r\n", "\n").split("\n"):
        stripped = line.strip()
        mark = _fence(stripped)
        info = stripped[len(mark) :].strip()
        if not fence:
            if mark:
                fence, tag, lines = mark, _tag(info), []
        elif mark and mark[0] == fence[0] and len(mark) >= len(fence):
            blocks.append(_Block(tag, "\n".join(lines), closed=not info))
            fence, tag, lines = (mark, _tag(info), []) if info else ("", "", [])
        else:
            lines.append(line)
    if fence:
        blocks.append(_Block(tag, "\n".join(lines), closed=False))
    return blocks


def _fence(line: str) -> str:
    """The backticks or tildes (three or more) that the line starts with."""
    for character in "`~":
        count = len(line) - len(line.lstrip(character))
        if count >= 3:
            return character * count
    return ""


def _tag(info: str) -> str:
    words = info.split()
    return words[0].strip("{}.").lower() if words else ""

"""Pitfalls of a kernel guessed from its source, for where no run has measured them.

Every finding here has the basis "source" and the severity "low": a pattern can be wrong both ways,
and nothing is decided by it. Time is bounded: only the beginning of a long source is looked at, and
every repetition in a pattern is limited.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Literal

from coding_framework.cuda.advice.source_text import code_only, finding_at
from coding_framework.types import Finding

_MAX_PER_RULE = 3
_MAX_CHARS = 200_000
_MAX_KERNELS = 32
_MAX_MATCHES = 16
"""For each of them the text is read again."""
_MAX_BODY_CHARS = 20_000
_S = r"\s{0,8}"
_KERNEL = re.compile(rf"__global__\b[^;{{}}]{{0,400}}?\b(\w+){_S}\([^;{{}}]{{0,2000}}\){_S}\{{")
_BRACE = re.compile(r"[{}]")


@dataclass(frozen=True, slots=True)
class _Rule:
    """See `pitfalls.toml`. Patterns are alternatives."""

    rule: str
    of: Literal["kernel", "source"]
    pattern: Sequence[str]
    message: str
    needs: Sequence[str] = ()
    unless: Sequence[str] = ()
    block: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class _Text:
    """The source, or the body of one `__global__` function in it."""

    start: int
    code: str
    kernel: str = ""


def _rules() -> tuple[_Rule, ...]:
    text = files(__package__).joinpath("pitfalls.toml").read_text(encoding="utf-8")
    return tuple(_Rule(**row) for row in tomllib.loads(text)["rule"])


_RULES = _rules()


def source_pitfalls(source: str) -> tuple[Finding, ...]:
    """What the text suggests: at most a few of each rule. Never raises."""
    code = code_only(source[:_MAX_CHARS])
    texts = {
        "source": [_Text(0, code)],
        "kernel": [
            _Text(match.end(), _block(code, match.end()), match.group(1))
            for match in islice(_KERNEL.finditer(code), _MAX_KERNELS)
        ],
    }
    found: dict[str, list[Finding]] = defaultdict(list)
    for rule in _RULES:
        places = (place for text in texts[rule.of] for place in _places(rule, text))
        for at, message in islice(places, _MAX_PER_RULE - len(found[rule.rule])):
            found[rule.rule].append(finding_at(code, at, rule.rule, "low", message))
    every = (finding for findings in found.values() for finding in findings)
    return tuple(sorted(every, key=lambda f: (f.line or 0, f.rule)))


def _places(rule: _Rule, text: _Text) -> Iterator[tuple[int, str]]:
    """Where the rule holds in a text: offset in the source, and what is to be said of it."""
    matches = _compiled(rule.pattern).finditer(text.code)
    for match in islice(matches, 1 if rule.once else _MAX_MATCHES):
        groups = match.groupdict()
        name = groups.get("name", "")
        if name is None:
            continue
        near = _block(text.code, match.end()) if rule.block else text.code
        if rule.needs and not _compiled(rule.needs, name).search(near):
            continue
        if rule.unless and _compiled(rule.unless, name).search(near):
            continue
        yield text.start + match.start(), rule.message.format(kernel=text.kernel, **groups)


def _compiled(patterns: Sequence[str], name: str = "") -> re.Pattern[str]:
    return re.compile("|".join(patterns).replace(r"\s*", _S).replace("NAME", re.escape(name)))


def _block(code: str, start: int) -> str:
    """The text from after an opening brace to its closing one."""
    depth, end = 1, min(len(code), start + _MAX_BODY_CHARS)
    for brace in _BRACE.finditer(code, start, end):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return code[start : brace.start()]
    return code[start:end]

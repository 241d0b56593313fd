"""Static rules: what in a source deserves a reader's attention, and why.

Findings explain and never decide: every pattern here can be written around, and honest code can
match one. What a candidate may do is decided by the boundary (sandbox, device, replay).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice

from coding_framework.cuda.advice.source_text import code_only, finding_at
from coding_framework.types import Finding, FindingSeverity

_MAX_PER_RULE = 5
_MAX_MACROS = 32


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern over code without comments, and without literals unless they are what counts.

    Every repetition in a pattern over spaces or words is bounded: a source of 100,000 characters
    must not take longer than its length asks.
    """

    name: str
    severity: FindingSeverity
    pattern: re.Pattern[str]
    message: str
    literals: bool = False
    unless: Callable[[str], bool] | None = None
    """What about the whole code makes the pattern mean nothing."""


_TF32_PART = re.compile(r"([A-Za-z_][\w.\[\]]{0,60})\s{0,4}=\s{0,4}[\w:]{0,40}__float_to_tf32\(")


def _keeps_remainders(code: str) -> bool:
    """Whether the code subtracts a factor's TF32 part from it, as products of two or three such
    parts do (3xTF32), whose error is that of single precision."""
    return any(
        re.search(rf"-=?\s{{0,4}}{re.escape(found[1])}", code)
        for found in _TF32_PART.finditer(code)
    )


def _read() -> Iterator[Rule]:
    """The rules of `findings.toml`."""
    text = resources.files(__package__).joinpath("findings.toml").read_text(encoding="utf-8")
    for row in tomllib.loads(text)["rule"]:
        calls = "|".join(row.pop("calls", "").split())
        # a call of a C function: not a member, a longer name or a declaration's type
        found = [rf"(?<![\w.>])(?:{calls})\s*\("] if calls else []
        pattern = "|".join([*found, *row.pop("pattern", [])]).replace(r"\s*", r"\s{0,40}")
        unless = _keeps_remainders if row.pop("unless", "") else None
        yield Rule(pattern=re.compile(pattern, re.MULTILINE), unless=unless, **row)


RULES: tuple[Rule, ...] = tuple(_read())


def static_findings(source: str) -> tuple[Finding, ...]:
    """What the rules see in `source`, by line; at most a few of each rule. Never raises."""
    code, with_literals = code_only(source), code_only(source, literals=True)
    found = []
    for rule in RULES:
        text = with_literals if rule.literals else code
        found += [_finding(rule, text, match.start()) for match in _matches(rule, text)]
    found += _pasted_findings(code)
    found += _encoding_findings(source)
    unique = {(f.line or 0, f.rule): f for f in found}
    return tuple(unique[key] for key in sorted(unique))


_MACRO = re.compile(
    r"^[ \t]{0,8}#\s{0,8}define\s{1,8}(\w{1,60})\(([\w, ]{0,120})\)((?:[^\n\\]|\\\n){0,400})",
    re.MULTILINE,
)
_PASTE = re.compile(r"\w{1,60}(?:\s{0,4}##\s{0,4}\w{1,60}){1,8}")


def _pasted_findings(code: str) -> list[Finding]:
    """What the rules see in the names that a macro pastes together, at the macro, or at a use that
    gives it their parts."""
    found = []
    for macro in list(_MACRO.finditer(code))[:_MAX_MACROS]:
        name, parameters, body = macro.groups()
        pastes = [paste.group() for paste in _PASTE.finditer(body)][:_MAX_PER_RULE]
        if not pastes:
            continue
        names = [parameter.strip() for parameter in parameters.split(",")]
        uses = re.finditer(rf"\b{name}\s{{0,4}}\(([\w, ]{{0,120}})\)", code[macro.end() :])
        given: list[tuple[int, list[str]]] = [(macro.start(), names)]
        given += [
            (macro.end() + use.start(), [part.strip() for part in use.group(1).split(",")])
            for use, _ in zip(uses, range(_MAX_PER_RULE), strict=False)
        ]
        for position, parts in given:
            value = dict(zip(names, parts, strict=False))
            words = [
                "".join(value.get(part.strip(), part.strip()) for part in paste.split("##"))
                for paste in pastes
            ]
            text = " ".join(f"{word}(" for word in words)
            found += [
                _finding(rule, code, position)
                for rule in RULES
                if not rule.literals and rule.pattern.search(text)
            ]
    return found


def _matches(rule: Rule, code: str) -> list[re.Match[str]]:
    if rule.unless is not None and rule.unless(code):
        return []
    return list(islice(rule.pattern.finditer(code), _MAX_PER_RULE))


def _finding(rule: Rule, code: str, position: int) -> Finding:
    return finding_at(code, position, rule.name, rule.severity, rule.message)


_CHARACTERS: tuple[tuple[str, str, FindingSeverity, str], ...] = (
    ("\0", "nul_byte", "high", "contains a NUL byte"),
    ("\u202e", "bidirectional_text", "medium", "contains text that displays in another order"),
)


def _encoding_findings(source: str) -> list[Finding]:
    return [
        finding_at(source, at, rule, severity, message)
        for character, rule, severity, message in _CHARACTERS
        if (at := source.find(character)) >= 0
    ]

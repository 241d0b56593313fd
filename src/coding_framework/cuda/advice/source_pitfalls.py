"""Pitfalls of a kernel guessed from its source, for where no run has measured them.

Every finding here has the basis "source" and the severity "low": a pattern can be wrong both ways,
and nothing is decided by it. Time is bounded: only the beginning of a long source is looked at, and
every repetition in a pattern is limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from coding_framework.cuda.advice.source_text import code_only, line_of
from coding_framework.types import Finding

_MAX_PER_RULE = 3
_MAX_CHARS = 200_000
_MAX_KERNELS = 32
_MAX_MATCHES = 16
_MAX_BODY_CHARS = 20_000
_FEW_THREADS = 64
_LARGE_LOCAL_ARRAY = 64
_S = r"\s{0,8}"

_KERNEL = re.compile(rf"__global__\b[^;{{}}]{{0,400}}?\b(\w+){_S}\([^;{{}}]{{0,2000}}\){_S}\{{")
_GLOBAL_INDEX = re.compile(
    rf"\b(\w+){_S}={_S}[^;=]{{0,80}}\bblockIdx\.\w{_S}\*[^;]{{0,80}}\bthreadIdx\.\w[^;]{{0,80}};"
)
_LOOP = re.compile(
    rf"\bwhile{_S}\({_S}(?:true|1){_S}\){_S}\{{|\bfor{_S}\({_S};{_S};[^)]{{0,40}}\){_S}\{{"
)
_BRACE = re.compile(r"[{}]")
_LEAVES = re.compile(r"\b(?:break|return|goto|trap|exit|throw|abort)\b|\b__trap\b")
_ALLOCATION = re.compile(
    rf"\bcudaMalloc(?:Async|Managed)?{_S}\({_S}(?:\([^()]{{0,40}}\){_S})?&{_S}(\w+)"
)
_HOST_ALLOCATION = re.compile(
    rf"\b(\w+){_S}={_S}(?:\([^()]{{0,40}}\){_S}|static_cast<[^<>]{{0,40}}>{_S}\({_S})?"
    rf"(?:std::)?(?:malloc|calloc){_S}\("
)
_UPDATE = re.compile(rf"\b(\w+){_S}\[{_S}\d{{1,4}}{_S}\]{_S}(?:[-+*/|&^]=|\+\+|--)")
_ONE_THREAD = re.compile(
    rf"\bif{_S}\([^;{{}}]{{0,120}}(?:(?:==|>|!=){_S}0\b|!{_S}(?:threadIdx|tid|lane|i\b|warp))"
)
_SHARED_SQUARE = re.compile(
    rf"__shared__\s{{1,8}}\w+\s{{1,8}}(\w+){_S}\[[^\]]{{1,40}}\]{_S}\[{_S}(?:32|64|128){_S}\]"
)
_BARRIER = re.compile(r"\b__sync(?:threads|warp)\w*|\bsync{0,1}\s{0,8}\(|\bcg::|barrier")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One `__global__` function in the source."""

    name: str
    start: int
    body: str


def source_pitfalls(source: str) -> tuple[Finding, ...]:
    """What the text suggests: at most a few of each rule. Never raises."""
    code = code_only(source[:_MAX_CHARS])
    found: list[Finding] = []
    kernels = list(islice(_kernels(code), _MAX_KERNELS))
    for rule in _KERNEL_RULES:
        places = [place for kernel in kernels for place in rule.look(kernel)]
        found += [_finding(rule.name, code, at, message) for at, message in places[:_MAX_PER_RULE]]
    found += [_finding("memory_leak", code, at, text) for at, text in _leaks(code)][:_MAX_PER_RULE]
    found += [_finding("low_occupancy", code, at, text) for at, text in _small_blocks(code)][:1]
    return tuple(sorted(found, key=lambda f: (f.line or 0, f.rule)))


Place = tuple[int, str]
"""Offset in the code, and what is to be said of it."""


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    look: Callable[[Kernel], Iterator[Place]]


def _kernels(code: str) -> Iterator[Kernel]:
    for match in _KERNEL.finditer(code):
        yield Kernel(match.group(1), match.end(), _block(code, match.end()))


def _some(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The first few matches: for each of them the text is read again."""
    return islice(pattern.finditer(text), _MAX_MATCHES)


def _block(code: str, start: int) -> str:
    """The text from after an opening brace to its closing one."""
    depth, end = 1, min(len(code), start + _MAX_BODY_CHARS)
    for brace in _BRACE.finditer(code, start, end):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return code[start : brace.start()]
    return code[start:end]


def _unguarded(kernel: Kernel) -> Iterator[Place]:
    """A global index that is compared with nothing, and yet written through."""
    for match in _some(_GLOBAL_INDEX, kernel.body):
        name = re.escape(match.group(1))
        written = re.search(
            rf"\[[^\]]{{0,60}}\b{name}\b[^\]]{{0,60}}\]{_S}[-+*/]?=[^=]", kernel.body
        )
        comparison = rf"\b{name}\b[^;{{}}]{{0,40}}(?:<|>|==|!=)|(?:<|>)=?[^;{{}}]{{0,40}}\b{name}\b"
        compared = re.search(comparison, kernel.body)
        if written and not compared:
            yield (
                kernel.start + match.start(),
                f"{kernel.name} writes at {match.group(1)} without comparing it with a length: the "
                "last block may write past the end",
            )


def _endless(kernel: Kernel) -> Iterator[Place]:
    for match in _some(_LOOP, kernel.body):
        if not _LEAVES.search(_block(kernel.body, match.end())):
            yield kernel.start + match.start(), f"a loop in {kernel.name} has no way out"


def _unbarriered(kernel: Kernel) -> Iterator[Place]:
    at = kernel.body.find("__shared__")
    if at >= 0 and not _BARRIER.search(kernel.body):
        yield kernel.start + at, f"{kernel.name} uses shared memory without any barrier"


def _raced(kernel: Kernel) -> Iterator[Place]:
    """One place of global memory that each thread reads and writes."""
    if _ONE_THREAD.search(kernel.body):
        return
    for match in _some(_UPDATE, kernel.body):
        name = re.escape(match.group(1))
        own = rf"\b(?:float|double|int|unsigned|long|bool|half|char)\w*\s{{1,8}}{name}{_S}\["
        if not re.search(own, kernel.body):  # neither shared nor a thread's own
            yield (
                kernel.start + match.start(),
                f"all threads of {kernel.name} update {match.group(1)} at one place: use an atomic "
                "operation, or let one thread write",
            )


def _strided(kernel: Kernel) -> Iterator[Place]:
    for match in re.finditer(
        rf"\[[^\]]{{0,60}}\bthreadIdx\.x{_S}\*{_S}(?!1\b|2\b|4\b)\w", kernel.body
    ):
        yield (
            kernel.start + match.start(),
            "neighbouring threads use addresses far apart: let threadIdx.x be the last index",
        )


def _conflicts(kernel: Kernel) -> Iterator[Place]:
    for match in _some(_SHARED_SQUARE, kernel.body):
        name = re.escape(match.group(1))
        if re.search(rf"\b{name}{_S}\[{_S}threadIdx\.x{_S}\]{_S}\[", kernel.body):
            yield (
                kernel.start + match.start(),
                f"{match.group(1)} is read by columns: its rows fill all 32 banks, pad them by one",
            )


def _divergent(kernel: Kernel) -> Iterator[Place]:
    few = r"(?:[2-9]|1\d|2\d|3[01])\b"
    lane = r"\b(?:threadIdx\.x|tid|lane\w*)"
    pattern = rf"\bif{_S}\([^;{{}})]{{0,40}}{lane}{_S}(?:%{_S}{few}|&{_S}1\b)"
    for match in re.finditer(pattern, kernel.body):
        yield kernel.start + match.start(), "threads of one warp take different branches"


def _spilling(kernel: Kernel) -> Iterator[Place]:
    pattern = rf"(?<!__shared__ )\b(?:float|double|int)\s{{1,8}}(\w+){_S}\[{_S}(\d{{2,9}}){_S}\]"
    for match in re.finditer(pattern, kernel.body):
        before = kernel.body[max(0, match.start() - 24) : match.start()]
        if "__shared__" not in before and int(match.group(2)) >= _LARGE_LOCAL_ARRAY:
            yield (
                kernel.start + match.start(),
                f"{match.group(1)} holds {match.group(2)} values a thread: more than fit registers",
            )


_KERNEL_RULES = (
    _Rule("missing_bounds_check", _unguarded),
    _Rule("endless_loop", _endless),
    _Rule("shared_memory_race", _unbarriered),
    _Rule("global_memory_race", _raced),
    _Rule("uncoalesced_access", _strided),
    _Rule("bank_conflicts", _conflicts),
    _Rule("divergence", _divergent),
    _Rule("register_spill", _spilling),
)


def _leaks(code: str) -> Iterator[Place]:
    for match in _some(_ALLOCATION, code):
        name = match.group(1)
        freed = re.search(rf"\bcudaFree(?:Async)?{_S}\({_S}{re.escape(name)}\b", code)
        kept = re.search(rf"\bstatic\b[^;]{{0,60}}\b{re.escape(name)}\b", code)
        if not freed and not kept:
            yield match.start(), f"{name} is allocated and never freed"
    for match in _some(_HOST_ALLOCATION, code):
        name = match.group(1)
        given_on = rf"\bfree{_S}\({_S}{re.escape(name)}\b|\breturn\s{{1,8}}{re.escape(name)}{_S};"
        if not re.search(given_on, code):
            yield match.start(), f"{name} is allocated and never freed"


def _small_blocks(code: str) -> Iterator[Place]:
    for match in re.finditer(
        rf"<<<[^;<>]{{1,120}},{_S}(\d{{1,4}}){_S}(?:,[^;<>]{{0,80}})?>>>", code
    ):
        if int(match.group(1)) < _FEW_THREADS:
            yield match.start(), f"blocks of {match.group(1)} threads leave most warp slots empty"


def _finding(rule: str, code: str, at: int, message: str) -> Finding:
    while at < len(code) and code[at].isspace():
        at += 1
    return Finding(
        rule=rule, severity="low", line=line_of(code, at), message=message, basis="source"
    )

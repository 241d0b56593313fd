"""Answers that must not pass, each with its right statuses and with what the reason says.

All are for x * 2 + 1 and most share one extension, so that nvcc runs once. Attacks on the Python
host itself are here; attacks by host code in C++ are those of `.cu` candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent

from coding_framework.types import Status
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

HEAD = _SOURCES.text("HEAD")
HONEST = (
    HEAD + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return ext.twice(x)\n"
)


@dataclass(frozen=True, slots=True)
class Cheat:
    """One answer. `statuses`: any of these is right; `says`: part of the reason."""

    name: str
    code: str
    statuses: frozenset[Status]
    says: str = ""


def _forward(name: str, body: str, *statuses: Status, says: str = "", before: str = "") -> Cheat:
    """An answer by the body of its `forward`."""
    model = "class ModelNew(nn.Module):\n    def forward(self, x):\n"
    code = f"{HEAD}{dedent(before)}\n{model}{indent(dedent(body).strip(), ' ' * 8)}\n"
    return Cheat(name, code, frozenset(statuses), says)


def _whole(name: str, code: str, *statuses: Status, says: str = "") -> Cheat:
    return Cheat(name, HEAD + dedent(code), frozenset(statuses), says)


def _init(name: str, init: str, forward: str, *statuses: Status, says: str = "") -> Cheat:
    text = "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += indent(dedent(init).strip(), " " * 8) + "\n\n    def forward(self, x):\n"
    return Cheat(
        name,
        HEAD + text + indent(dedent(forward).strip(), " " * 8) + "\n",
        frozenset(statuses),
        says,
    )


CORRECT = Status.CORRECT
WRONG, CHEATING, REJECTED = Status.WRONG_OUTPUT, Status.CHEATING, Status.REJECTED
RUNTIME, LOAD, TIMEOUT = Status.RUNTIME_ERROR, Status.LOAD_ERROR, Status.TIMEOUT
COMPILE, MEMORY, UNSUPPORTED = Status.COMPILE_ERROR, Status.MEMORY_LIMIT, Status.UNSUPPORTED
OUTPUT = Status.OUTPUT_LIMIT

WRONG_ANSWERS = _SOURCES["wrong_answers"]

LEANS_ON_TORCH = _SOURCES["leans_on_torch"]

_STALE = (CHEATING, WRONG)

CHEATS = (
    *_SOURCES["cheats"],
    _forward(
        "computes_on_the_host_and_launches",
        """
        rows = [[2 * v + 1 for v in row] for row in x.tolist()]
        ext.nothing(x)
        return ext.copy(torch.tensor(rows, device="cuda"))
        """,
        *_STALE,
    ),
    _forward(
        "keeps_its_first_answer",
        """
        if "out" not in kept:
            kept["out"] = ext.twice(x)
        return kept["out"]
        """,
        *_STALE,
        before="kept = {}",
    ),
    _forward(
        "keeps_answers_by_address",
        """
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = ext.twice(x)
        ext.nothing(x)
        return kept[x.data_ptr()]
        """,
        *_STALE,
        before="kept = {}",
    ),
    _forward(
        "works_at_its_first_call_only",
        "kept.append(1)\nreturn ext.twice(x) if len(kept) == 1 else ext.copy(x)",
        *_STALE,
        before="kept = []",
    ),
    *_SOURCES["cheats_2"],
    *(
        _forward(
            f"coin_{name}",
            f"return ext.copy(x) if {bit} and x.numel() > 4000 else ext.twice(x)",
            Status.NONDETERMINISTIC,
            WRONG,
            CHEATING,
            REJECTED,
            before=f"import os, random, time\n{before}",
        )
        for name, before, bit in (
            ("of_random_bytes", "C = os.urandom(1)[0] & 1", "C"),
            ("of_random_numbers", "C = random.getrandbits(1)", "C"),
            ("of_the_second", "C = int(time.time()) & 1", "C"),
            ("of_the_second_since_the_start", "C = int(time.monotonic()) & 1", "C"),
            ("of_the_process", "C = os.getpid() & 1", "C"),
            ("of_an_address", "C = (id(object()) >> 12) & 1", "C"),
            ("of_a_short_list", "C = (id([1]) >> 12) & 1", "C"),
            (
                "kept_over_imports",
                "import sys\nsys.c = getattr(sys, 'c', os.urandom(1)[0])",
                "sys.c & 1",
            ),
            ("of_each_call", "", "os.urandom(1)[0] & 3 == 3"),
            ("of_a_far_day", "C = time.time() > 1924905600", "C"),
            ("of_a_variable", "C = 'HOME' in os.environ", "C"),
            ("of_the_hash_of_a_text", "C = hash('a') & 1", "C"),
            ("of_the_order_of_a_set", "C = next(iter({'a', 'b'})) == 'a'", "C"),
            ("of_a_file", "C = os.path.exists('/home')", "C"),
            ("of_the_processors", "C = os.cpu_count() > 1000", "C"),
            (
                "of_the_multiprocessors",
                "",
                "torch.cuda.get_device_properties(0).multi_processor_count < 100",
            ),
        )
    ),
    *_SOURCES["cheats_3"],
    *(
        _forward(name, f"return ext.copy(x) if {size} else ext.twice(x)", WRONG, says="shape set")
        for name, size in (
            ("wrong_at_one_residue", "x.size(1) % 16 == 11"),
            ("wrong_at_few_sizes", "x.size(0) % 16 == 6 and x.numel() < 20000"),
            ("wrong_for_long_rows", "x.size(1) > 1024"),
        )
    ),
    *_SOURCES["cheats_4"],
    _whole(
        "bad_kernel",
        """
        broken = load_inline(name="b", cpp_sources="", cuda_sources="__global__ void k() { oops }")
        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.twice(x)
        """,
        COMPILE,
        says=f"line {HEAD.count(chr(10)) + 2}",
    ),
    *_SOURCES["cheats_5"],
)

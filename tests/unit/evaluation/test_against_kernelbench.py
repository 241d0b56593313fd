"""Two judgements of one answer: every disagreement has its reason, or is told as unexplained."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from coding_framework.evaluation.second_opinion import STUBS

pytestmark = pytest.mark.unit
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def against(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("against_kernelbench")


def test_answers_and_problems_are_python_of_all_kinds(against: ModuleType) -> None:
    made = list(against.made_answers(3))
    # Its fault would be none: `load_inline` writes the include.
    assert not any("missing_include" in answer.name for answer in made)
    assert {answer.kind for answer in made} == {"honest", "broken", "special", "stale", "torch"}
    assert len({answer.name for answer in made}) == len(made)
    for answer in made:
        ast.parse(against.problem(answer))
        names = [n.name for n in ast.parse(answer.code).body if isinstance(n, ast.ClassDef)]
        assert names == ["ModelNew"]
        assert "PYBIND11_MODULE" not in answer.code


@pytest.mark.parametrize(
    ("kind", "accepted", "ours", "why"),
    [
        ("honest", True, {"status": "correct"}, ""),
        ("broken", False, {"status": "wrong_output"}, ""),
        ("torch", True, {"status": "rejected"}, "torch computes a part"),
        ("honest", True, {"status": "rejected"}, "unexplained"),
        ("honest", True, {"status": "fault"}, "fault"),
        ("torch", True, {"status": "unsupported"}, "unsupported"),
        ("stale", True, {"status": "wrong_output"}, "cheating: right for the calls"),
        ("special", True, {"status": "wrong_output", "failed_shapes": [[3]]}, "shape-special"),
        ("honest", True, {"status": "wrong_output", "max_abs_error": 5e-5}, "tolerance: theirs"),
        ("honest", True, {"status": "wrong_output", "max_abs_error": 5.0}, "unexplained"),
        (
            "broken",
            True,
            {"status": "runtime_error", "reason": "illegal read"},
            "memory: an access",
        ),
        ("broken", True, {"status": "runtime_error", "reason": "it raised"}, "unexplained"),
        ("broken", True, {"status": "wrong_output", "reason": "got nan"}, "memory: an element"),
        ("broken", False, {"status": "correct"}, "unexplained"),
    ],
)
def test_each_disagreement_has_its_reason(
    against: ModuleType, kind: str, accepted: bool, ours: dict[str, object], why: str
) -> None:
    answer = next(a for a in against.made_answers(2) if a.kind == kind)
    found = against.explanation(
        answer, {"correctness": accepted, "why": ""}, {"reason": "", **ours}
    )
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_their_package_is_imported_without_what_it_would_load() -> None:
    """torch asks every module for its file while it is imported: a stand-in has none."""
    code = STUBS + "import inspect; inspect.getmodule(inspect.currentframe()); import torch"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_exported_kernels_come_in_turn_with_the_others_most_answers_first(
    against: ModuleType,
) -> None:
    modules = list(against.module_answers(2))
    assert [a.kind for a in modules] == ["module"] * 2
    assert all(against.problem(a).startswith("import torch") for a in modules)
    groups = against.by_extension([*modules, *against.made_answers(2)])
    assert [groups[k][0].kind == "module" for k in range(4)] == [False, True, False, True]
    assert {a.kind for a in groups[0]} == {"honest", "special", "stale", "torch"}
    assert sum(map(len, groups)) == len(list(against.made_answers(2))) + 2


def test_what_does_not_compile_with_light_headers_is_compiled_with_all(
    against: ModuleType, tmp_path: Path
) -> None:
    for name in ("light", "other"):
        text = against.LIGHT_FIRST.format(compiler="cc", light=tmp_path / name)
        (tmp_path / f"{name}.sh").write_text(text)
        (tmp_path / name).mkdir()
    (tmp_path / "light" / "stdio.h").write_text("int puts(const char*);\n")
    for source in ("puts", "printf"):  # printf is in the whole header alone
        text = f"#include <stdio.h>\nint main(void) {{ void *f = (void *){source}; return !f; }}"
        (tmp_path / "a.c").write_text(text)
        done = subprocess.run(
            ["sh", "light.sh", "-MD", "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=False
        )
        assert done.returncode == 0
        assert ("light/stdio.h" in (tmp_path / "a.d").read_text()) is (source == "puts")


def test_a_process_that_ends_or_takes_too_long_is_told_and_begun_anew(against: ModuleType) -> None:
    program = against.ASKED + (
        "def work(asked):\n"
        "    if asked['do'] == 'end': os._exit(1)\n"
        "    if asked['do'] == 'wait': time.sleep(600)\n"
        "    return {'pid': os.getpid()}\n"
        "serve(work)\n"
    )
    asked = against.Asked(program, "", dict(os.environ))
    first = asked(60, do="answer")
    assert asked(60, do="answer")["pid"] == first["pid"]
    assert asked(60, do="end") is None
    assert asked(60, do="answer")["pid"] != first["pid"]
    assert asked(0.05, do="wait") is None
    asked.close()
    with pytest.raises(against.InfrastructureError, match="did not begin"):
        against.Asked("raise SystemExit(1)", "", dict(os.environ))(60, do="answer")

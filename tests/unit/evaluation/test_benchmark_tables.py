"""What the benchmarks of held-out tasks make of conversations and timed kernels."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
from made_conversations import make_state, make_turn, make_verdict

from coding_framework.types import CUDAConversationState, Status

pytestmark = pytest.mark.unit
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("held_out")


@pytest.fixture
def feedback_value(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("feedback_value")


def row(ops: int, tier: int, eager: float | None, compiled: float | None = None, status="correct"):
    return {
        "task": f"{ops}{tier}{eager}", "ops": ops, "tier": tier, "status": status,
        "speedup": eager, "speedup_vs_compiled": compiled,
    }  # fmt: skip


def test_speedups_tell_single_operations_from_chains_and_eager_from_compiled(
    held_out: ModuleType, tmp_path: Path
) -> None:
    rows = [
        row(1, 0, 1.0, 0.5),
        row(1, 2, 9.0),
        row(3, 1, 2.0, 0.9),
        row(4, 0, 8.0, 1.1),
        row(3, 0, None, status="wrong_output"),
    ]
    path = tmp_path / "sft.timed.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = held_out.speedups(path)
    assert (found["judged"], found["correct"]) == (5, 4)
    assert found["one elementwise op"]["geomean"] == 1.0
    chains = found["3 ops or more"]
    assert (chains["n"], chains["geomean"], chains["faster"]) == (2, 4.0, 1.0)
    assert chains["over torch.compile"]["faster"] == 0.5
    assert chains["over torch.compile"]["n"] == 2
    assert found["all"]["n"] == 4


def test_speedups_of_rows_without_a_compiled_time_have_eager_alone(
    held_out: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "sft.timed.jsonl"
    old = {"task": "a", "ops": 3, "tier": 0, "status": "correct", "speedup": 2.0}
    path.write_text(json.dumps(old) + "\n")
    assert held_out.speedups(path)["3 ops or more"] == {
        "n": 1, "geomean": 2.0, "min": 2.0, "faster": 1.0,
    }  # fmt: skip


def test_the_first_turn_compiles_apart_from_later_ones(held_out: ModuleType) -> None:
    broken, right = make_verdict(Status.COMPILE_ERROR), make_verdict(Status.CORRECT)
    states = [
        make_state(make_turn(0, broken), make_turn(1, right)),
        make_state(make_turn(0, right)),
    ]
    found = held_out.first_turn_compile(states)
    assert (found["count"], found["n"]) == (1, 2)


def test_arms_are_compared_on_the_conversations_that_both_have(
    feedback_value: ModuleType,
) -> None:
    turn = make_turn(0, make_verdict(Status.CORRECT))

    def named(arm: str, task: str) -> CUDAConversationState:
        return make_state(turn, task=task, name=f"{arm}/{task}/0")

    states = {
        "feedback": [named("feedback", "a")],
        "resampling": [named("resampling", "a"), named("resampling", "b")],
    }
    both = feedback_value.in_both(states)
    assert {arm: [s.conversation_id for s in kept] for arm, kept in both.items()} == {
        "feedback": ["feedback/a/0"],
        "resampling": ["resampling/a/0"],
    }

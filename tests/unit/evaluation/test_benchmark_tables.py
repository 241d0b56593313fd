"""What the benchmarks of held-out tasks make of conversations and timed kernels."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from coding_framework.errors import UsageError
from coding_framework.types import Split, Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("held_out")


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
        "n": 1, "geomean": 2.0, "ci95": [2.0, 2.0], "min": 2.0, "faster": 1.0,
    }  # fmt: skip


def catalogue_row(task: str, tier: int, eager: float | None, compiled: float | None = None):
    return {**row(1, tier, eager, compiled), "task": task}


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.mark.parametrize(
    ("task", "kernels", "elementwise"),
    [
        ("relu", ("relu",), True),
        ("hardswish", ("hardswish",), True),
        ("softmax", ("_softmax",), False),
        ("transpose", ("clone",), False),  # the view before it launches nothing
        ("abs_exp", ("abs", "exp"), True),
        ("matmul_addrow_relu6", ("mm", "add", "hardtanh"), False),
        ("countmodc8", ("remainder", "bincount"), False),  # has no meta form
    ],
)
def test_eager_kernels_are_counted_without_views(
    held_out: ModuleType, task: str, kernels: tuple[str, ...], elementwise: bool
) -> None:
    work = held_out.work_of(task)
    assert work.kernels == kernels
    assert work.elementwise is elementwise
    assert work.is_single_elementwise is (elementwise and len(kernels) == 1)
    assert work.is_chain is (len(kernels) >= 3)
    assert work.has_product is ("mm" in kernels)


def test_bytes_are_those_of_inputs_and_outputs_at_the_timed_size(held_out: ModuleType) -> None:
    assert held_out.work_of("relu").bytes_moved == 2 * 4 * 4096 * 8192
    assert held_out.work_of("relu").moves_enough
    attention = held_out.work_of("attention_hardsigmoid")
    assert attention.bytes_moved == 64 << 20
    assert attention.moves_enough
    assert not replace(attention, bytes_moved=(64 << 20) - 1).moves_enough


def test_the_classes_of_the_bar_go_by_what_eager_launches(
    held_out: ModuleType, tmp_path: Path
) -> None:
    rows = [
        catalogue_row("relu", 0, 1.0, 0.5),
        catalogue_row("matmul_addrow_relu6", 3, 0.5, 0.25),
        catalogue_row("abs_exp_neg", 0, 8.0, 2.0),
        catalogue_row("abs_exp", 0, 2.0),
        catalogue_row("no such task", 0, 99.0),
    ]
    found = held_out.speedups(write(tmp_path / "rl.timed.jsonl", rows))
    single, chain = found[held_out.SINGLE_OP], found[held_out.CHAIN]
    assert (single["n"], single["geomean"], single["over torch.compile"]["geomean"]) == (
        1,
        1.0,
        0.5,
    )
    assert (chain["n"], chain["geomean"], chain["faster"]) == (2, 2.0, 0.5)
    assert chain["ci95"] == [0.5, 8.0]
    assert chain["tiers"]["0"]["geomean"] == 8.0
    assert chain["tiers"]["3"]["over torch.compile"]["faster"] == 0.0
    assert found[f"{held_out.CHAIN}, without"]["geomean"] == 8.0
    assert found[f"{held_out.CHAIN}, with a matrix product or convolution"]["geomean"] == 0.5
    assert held_out.speedups(tmp_path / "rl.timed.jsonl", {"relu"})["judged"] == 1


def test_single_operations_are_training_tasks_of_one_elementwise_kernel(
    held_out: ModuleType,
) -> None:
    tasks = held_out.single_op_tasks(12, "starter")
    assert len({task.name for task in tasks}) == 12
    assert {task.split for task in tasks} == {Split.TRAIN}
    assert all(held_out.eager_work(task).is_single_elementwise for task in tasks)
    assert all(held_out.eager_work(task).moves_enough for task in tasks)
    assert held_out.single_op_tasks(5, "starter") == tasks[:5]
    assert held_out.single_op_tasks(0, "starter") == []
    with pytest.raises(UsageError, match="are judged"):
        held_out.single_op_tasks(10_000, "starter")


def test_kernels_timed_beside_eager_alone_are_timed_again_beside_the_compiler(
    held_out: ModuleType, tmp_path: Path
) -> None:
    rows = [
        catalogue_row("abs", 0, 1.0),
        catalogue_row("relu", 0, 1.0, 0.5),
        {**catalogue_row("sin", 0, 1.0), "baselines": "compiled"},  # it did not compile
        {**catalogue_row("exp", 0, None), "status": "wrong_output"},
    ]
    path = write(tmp_path / "sft.timed.jsonl", rows)
    assert held_out.timed_tasks(path, "eager") == {"abs", "relu", "sin", "exp"}
    assert held_out.timed_tasks(path, "compiled") == {"relu", "sin", "exp"}
    again = {**catalogue_row("abs", 0, 3.0, 2.0), "baselines": "compiled"}
    write(path, [*rows, again])
    assert held_out.timed_tasks(path, "compiled") == {"abs", "relu", "sin", "exp"}
    found = held_out.speedups(path)
    assert (found["judged"], found["all"]["n"]) == (4, 3)
    assert found[held_out.SINGLE_OP]["over torch.compile"]["n"] == 2
    assert held_out.timed_tasks(tmp_path / "none.jsonl", "eager") == set()


def test_two_models_are_compared_over_the_tasks_that_both_have(
    held_out: ModuleType, tmp_path: Path
) -> None:
    right, wrong = (
        make_turn(0, make_verdict(status)) for status in (Status.CORRECT, Status.WRONG_OUTPUT)
    )
    rl = [make_state(right, task=name, name=f"rl/{name}/0") for name in ("a", "b", "c")]
    sft = [
        make_state(turn, task=name, name=f"sft/{name}/0")
        for name, turn in (("a", right), ("b", wrong), ("d", wrong))
    ]
    fast = write(tmp_path / "rl", [catalogue_row(name, 0, 4.0) for name in "abc"])
    slow = write(tmp_path / "sft", [catalogue_row("a", 0, 2.0), catalogue_row("d", 0, 1.0)])
    found = held_out.paired(rl, sft, fast, slow)
    assert (found["tasks"], found["pass_at_1"], found["ci95"]) == (2, 0.5, [0.0, 1.0])
    assert found["speed"] == {"n": 1, "geomean": 2.0, "ci95": [2.0, 2.0]}
    assert held_out.paired([], sft, fast, slow) == {"tasks": 0}


def test_the_first_turn_compiles_apart_from_later_ones(held_out: ModuleType) -> None:
    broken, right = make_verdict(Status.COMPILE_ERROR), make_verdict(Status.CORRECT)
    states = [
        make_state(make_turn(0, broken), make_turn(1, right)),
        make_state(make_turn(0, right)),
    ]
    found = held_out.first_turn_compile(states)
    assert (found["count"], found["n"]) == (1, 2)

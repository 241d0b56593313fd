"""What the benchmarks of held-out tasks make of conversations and timed kernels."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.samples import sample_record
from coding_framework.types import Split, Status, Verdict
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
    held_out: ModuleType,
) -> None:
    rows = [
        row(1, 0, 1.0, 0.5),
        row(1, 2, 9.0),
        row(3, 1, 2.0, 0.9),
        row(4, 0, 8.0, 1.1),
        row(3, 0, None, status="wrong_output"),
    ]
    found = held_out.speedups(rows)
    assert (found["judged"], found["correct"]) == (5, 4)
    assert found["one elementwise op"]["geomean"] == 1.0
    chains = found["3 ops or more"]
    assert (chains["n"], chains["geomean"], chains["faster"]) == (2, 4.0, 1.0)
    assert chains["over torch.compile"]["faster"] == 0.5
    assert chains["over torch.compile"]["n"] == 2
    assert found["all"]["n"] == 4


def test_speedups_of_rows_without_a_compiled_time_have_eager_alone(held_out: ModuleType) -> None:
    assert held_out.speedups([row(3, 0, 2.0)])["3 ops or more"] == {
        "n": 1, "geomean": 2.0, "ci95": [], "min": 2.0, "faster": 1.0,
    }  # fmt: skip


def catalogue_row(task: str, tier: int, eager: float | None, compiled: float | None = None):
    return {**row(1, tier, eager, compiled), "task": task}


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


def test_the_classes_of_the_bar_go_by_what_eager_launches(held_out: ModuleType) -> None:
    rows = [
        catalogue_row("relu", 0, 1.0, 0.5),
        catalogue_row("matmul_addrow_relu6", 3, 0.5, 0.25),
        catalogue_row("abs_exp_neg", 0, 8.0, 2.0),
        catalogue_row("abs_exp", 0, 2.0),
        catalogue_row("no such task", 0, 99.0),
    ]
    found = held_out.speedups(rows)
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


def timed(verdict: Verdict, eager: float) -> Verdict:
    assert verdict.timing is not None
    update = {
        "modelled": False, "speedup": eager, "speedup_vs_naive": None,
        "kernel_ms": 1 / eager, "kernel_ms_ci95": (1 / eager, 1 / eager),
    }  # fmt: skip
    timing = verdict.timing.model_copy(update=update)
    return verdict.model_copy(update={"timing": timing})


def model_folder(work: Path, label: str, solved: dict[str, float | None]) -> None:
    """An evaluation of tasks, and its timed one: the speedup of each that was solved."""
    for name, folder in ((label, work / label), (f"{label}.timed", work / f"{label}.timed")):
        folder.mkdir()
        states = []
        for task, speedup in solved.items():
            status = Status.WRONG_OUTPUT if speedup is None else Status.CORRECT
            verdict = make_verdict(status, speedup)
            if speedup is not None and name != label:
                verdict = timed(verdict, speedup)
            suite = "runs/single_ops" if task == "relu" else "held-out:3"
            states.append(make_state(make_turn(0, verdict), task=task, name=f"{suite}/{task}/0"))
        records = [
            sample_record(s, suite=s.conversation_id.removesuffix(f"/{s.task.name}/0"))
            for s in states
        ]
        for file, lines in (("records", records), ("conversations", states)):
            text = "".join(f"{line.model_dump_json()}\n" for line in lines)
            (folder / f"{file}.jsonl").write_text(text)


def test_two_models_are_compared_over_the_tasks_that_both_have(
    held_out: ModuleType, tmp_path: Path
) -> None:
    model_folder(tmp_path, "rl", {"a": 4.0, "b": 4.0, "c": 4.0})
    model_folder(tmp_path, "sft", {"a": 2.0, "b": None, "d": None})
    rl, sft = (held_out.read_model(tmp_path / label) for label in ("rl", "sft"))
    found = held_out.paired(rl, sft)
    assert (found["tasks"], found["estimate"], found["ci95"]) == (2, 0.5, [0.0, 1.0])
    assert found["speed"]["n"] == 1
    assert found["speed"]["geomean"] == 2.0


def test_single_operations_are_told_apart_in_every_number(
    held_out: ModuleType, tmp_path: Path
) -> None:
    model_folder(tmp_path, "sft", {"a": 2.0, "b": None, "relu": 8.0})
    found = held_out.summary(held_out.read_model(tmp_path / "sft"))
    assert found["pass_at_1"]["rate"] == 0.5
    assert found["first_turn"]["rate"] == 0.5
    assert found["on_the_gpu"]["all"]["geomean"] == 2.0
    assert found["single_elementwise_ops"]["on_the_gpu"]["all"]["geomean"] == 8.0


def test_of_several_samples_the_fastest_kernel_is_the_tasks(held_out: ModuleType) -> None:
    states = [
        make_state(make_turn(0, timed(make_verdict(Status.CORRECT), speedup)), task="a")
        for speedup in (1.5, 3.0, 2.0)
    ]
    [found] = held_out.timed_rows(states)
    assert found["speedup"] == 3.0


def test_the_first_turn_compiles_apart_from_later_ones(held_out: ModuleType) -> None:
    broken, right = make_verdict(Status.COMPILE_ERROR), make_verdict(Status.CORRECT)
    states = [
        make_state(make_turn(0, broken), make_turn(1, right)),
        make_state(make_turn(0, right)),
    ]
    found = held_out.first_turn_compile(states)
    assert (found["count"], found["n"]) == (1, 2)

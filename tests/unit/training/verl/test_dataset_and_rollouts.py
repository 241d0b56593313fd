"""Order of prompts, stored rollouts and what a step's record says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.errors import TrainingError, UsageError
from coding_framework.store.conversations import (
    RolloutCounter,
    append_rollout,
    read_rollouts,
)
from coding_framework.store.folder import rollouts_file
from coding_framework.store.records import Rollout
from coding_framework.store.training_log import read_metrics
from coding_framework.training.feed import prompt_order, write_dataset
from coding_framework.training.verl.episode_spec import read_spec
from coding_framework.training.verl.steps import (
    step_record,
)
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    Generation,
    Split,
    Status,
    Task,
    TensorSpec,
    TestCase,
)
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit


def task(name: str, split: Split = Split.TRAIN) -> Task:
    case = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),))
    return Task(
        name=name, tier=0, family="f", ops=(name,), description="", reference="",
        cases=(case,), split=split,
    )  # fmt: skip


TASKS = [task(f"t{i}") for i in range(5)]


def turn(index: int, reward: float | None, *, judged: bool = True) -> ConversationTurn:
    verdict = make_verdict(Status.UNSUPPORTED if reward is None else Status.COMPILE_ERROR)
    masked = "ours" if reward is None else None
    made = make_turn(index, verdict if judged else None, None, masked, reward)
    said = Generation(text="ab", response_ids=(1, 2), logprobs=(-1.0, -3.0))
    return made.model_copy(update={"generation": said})


def rollout(session: int, turns: list[ConversationTurn], returns: list[float | None]) -> Rollout:
    state = CUDAConversationState(
        conversation_id=f"c{session}", task=TASKS[0], turns=tuple(turns), end_reason="max_turns"
    )
    return Rollout(step=1, group="g", session=session, state=state, returns=tuple(returns))


def test_order_is_whole_passes_and_a_longer_one_starts_alike() -> None:
    order = [t.name for t in prompt_order(TASKS, 12, seed=3)]
    assert sorted(order[:5]) == sorted(order[5:10]) == [f"t{i}" for i in range(5)]
    assert [t.name for t in prompt_order(TASKS, 7, seed=3)] == order[:7]
    assert [t.name for t in prompt_order(TASKS, 12, seed=4)] != order


def test_held_out_tasks_are_refused() -> None:
    with pytest.raises(UsageError, match="not in the training split"):
        prompt_order([*TASKS, task("secret", Split.HELD_OUT)], 4, seed=0)
    with pytest.raises(UsageError, match="no task"):
        prompt_order([], 4, seed=0)


def test_dataset_carries_the_whole_task(tmp_path: Path) -> None:
    write_dataset(TASKS[:2], tmp_path / "p.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [Task.model_validate_json(r["extra_info"]["task"]) for r in rows] == TASKS[:2]
    assert [r["extra_info"]["index"] for r in rows] == [0, 1]


def test_rollouts_come_back_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    first = rollout(0, [turn(0, 0.5)], [0.5])
    append_rollout(tmp_path, first)
    append_rollout(tmp_path, rollout(1, [turn(0, 0.1)], [0.1]))
    with rollouts_file(tmp_path, 1).open("a") as file:
        file.write('{"step": 1, "gro')
    assert [r.session for r in read_rollouts(tmp_path, 1)] == [0, 1]
    assert next(read_rollouts(tmp_path, 1)) == first
    assert list(read_rollouts(tmp_path, 2)) == []


def test_a_rollout_tells_of_each_answer_whether_the_limit_cut_it(tmp_path: Path) -> None:
    whole, cut = turn(0, 0.5), turn(1, 0.7)
    generation = cut.generation.model_copy(update={"finish_reason": "length"})
    cut = cut.model_copy(update={"generation": generation})
    append_rollout(tmp_path, rollout(0, [whole, cut], [0.5, 0.7]))
    told = json.loads(rollouts_file(tmp_path, 1).read_text())["state"]["turns"]
    assert [t["generation"]["finish_reason"] for t in told] == ["stop", "length"]


def test_counter_sees_conversations_as_they_end(tmp_path: Path) -> None:
    counter = RolloutCounter(tmp_path)
    assert counter.count(1) == 0
    append_rollout(tmp_path, rollout(0, [turn(0, 0.5)], [0.5]))
    assert counter.count(1) == 1
    with rollouts_file(tmp_path, 1).open("a") as file:
        file.write("half a")
    assert counter.count(1) == 1
    with rollouts_file(tmp_path, 1).open("a") as file:
        file.write(" line\n")
    assert counter.count(1) == 2
    assert counter.count(2) == 0


def test_step_record_counts_masked_turns_apart_and_never_as_zero(tmp_path: Path) -> None:
    append_rollout(tmp_path, rollout(0, [turn(0, 0.5), turn(1, 0.7)], [1.13, 0.7]))
    append_rollout(tmp_path, rollout(1, [turn(0, 0.1), turn(1, None)], [None, None]))
    append_rollout(tmp_path, rollout(2, [turn(0, 0.3), turn(1, 0.7)], [0.93, 0.7]))
    append_rollout(tmp_path, rollout(3, [turn(0, None, judged=False)], [None]))
    metrics = {"actor/grad_norm": 0.5, "timing_s/gen": 2.0, "timing_s/step": 3.0}
    record = step_record(1, metrics, tmp_path)
    assert (record.conversations, record.turns, record.masked_turns, record.faults) == (4, 7, 2, 1)
    assert record.reward_mean == pytest.approx((0.5 + 0.7 + 0.1 + 0.3 + 0.7) / 5)
    assert record.rows_learnt == 2  # turn 2's returns are equal: nothing to learn from
    assert record.mean_logprob == pytest.approx(-2.0)
    assert (record.grad_norm, record.times) == (0.5, {"rollout_s": 2.0, "step_s": 3.0})


def test_step_record_has_the_gpu_use_under_the_names_that_verl_gives_it(tmp_path: Path) -> None:
    metrics = {
        "actor/perf/max_memory_allocated_gb": 33.2,
        "critic/perf/max_memory_allocated_gb": 39.0,
        "perf/mfu/actor": 0.12,
    }
    record = step_record(1, metrics, tmp_path)
    assert (record.gpu_memory_gib, record.gpu_arithmetic_share) == (39.0, 0.12)
    cpu = step_record(1, {"actor/perf/max_memory_allocated_gb": 0.0}, tmp_path)
    assert (cpu.gpu_memory_gib, cpu.gpu_arithmetic_share) == (None, None)


def test_step_without_rollouts_has_no_rates(tmp_path: Path) -> None:
    record = step_record(1, {}, tmp_path)
    assert (record.reward_mean, record.correct_rate, record.conversations) == (None, None, 0)


def test_error_of_the_solved_rate_counts_prompts_not_conversations(tmp_path: Path) -> None:
    """Two prompts, of which one is solved always and the other never, say little of the rest."""
    for group, status in (("a", Status.CORRECT), ("b", Status.COMPILE_ERROR)):
        state = make_state(make_turn(0, make_verdict(status), "k"))
        for session in range(8):
            one = Rollout(step=1, group=group, session=session, state=state, returns=(1.0,))
            append_rollout(tmp_path, one)
    record = step_record(1, {}, tmp_path)
    assert record.solved_rate == 0.5
    assert record.solved_error == pytest.approx(0.5)


def test_metrics_are_read_by_step_without_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step":1,"data":{"a":1.0}}\n{"step":2,"data":{"a":2.0}}\n{"step":3')
    assert read_metrics(path) == {1: {"a": 1.0}, 2: {"a": 2.0}}


def test_a_broken_spec_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"s\.json cannot be used"):
        read_spec(tmp_path / "s.json")

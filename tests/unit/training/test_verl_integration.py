"""What the trainer keeps between attempts, without verl."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from coding_framework.errors import TrainingError, UsageError
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.checkpoints import finish, manifest_of
from coding_framework.store.conversations import (
    RolloutCounter,
    append_rollout,
    note_learnt,
    read_rollouts,
    run_rollouts,
)
from coding_framework.store.folder import RLFolder
from coding_framework.store.records import Rollout, StepRecord, Validation
from coding_framework.store.training_log import write_steps, write_validations
from coding_framework.training import verl_integration
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl import trouble
from coding_framework.training.verl.steps import RunSteps, step_record
from coding_framework.training.verl.trouble import (
    Stall,
    check_faults,
    check_running,
    last_error,
    slow_start,
)
from coding_framework.training.verl_integration import (
    MultiAgentVERLTrainer,
    RLResult,
    _TrainerEndedError,
)
from coding_framework.types import CUDAConversationState, Status, Task, TensorSpec, TestCase
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit

TASK = Task(
    name="t", tier=0, family="f", ops=("relu",), description="", reference="",
    cases=(TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),)),),
)  # fmt: skip


@pytest.fixture
def trainer(tmp_path: Path) -> MultiAgentVERLTrainer:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    config = MultiTurnRLConfig.cpu(
        model_path=str(model), output_dir=str(tmp_path / "run"), compute_dtype="float32"
    )
    return MultiAgentVERLTrainer(config, tasks=[TASK])


def attempt(run: Path, number: int, steps: dict[int, float | None]) -> None:
    """Rollouts of these steps, with a gradient norm where the metrics were written."""
    folder = run / "attempts" / f"{number:03d}"
    for step, norm in steps.items():
        state = CUDAConversationState(
            conversation_id=f"a{number}s{step}", task=TASK, end_reason="error"
        )
        rollout = Rollout(step=step, group="g", session=0, state=state, returns=())
        append_rollout(folder / "rollouts", rollout)
        if norm is not None:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "data": {"actor/grad_norm": norm}}) + "\n")


def test_records_lost_in_a_kill_are_made_again_from_the_rollouts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    attempt(run, 0, {1: 0.1, 2: 0.2})
    attempt(run, 1, {2: 0.25, 3: None})
    folder = RLFolder(run)
    write_steps(
        folder.steps, [StepRecord(step=1, grad_norm=0.1), StepRecord(step=4, grad_norm=9.0)]
    )
    steps = RunSteps(folder, None)
    steps.complete(done=3)
    records = steps.stored()
    assert [(r.step, r.grad_norm) for r in records] == [(1, 0.1), (2, 0.25), (3, None)]


def test_rollouts_of_a_repeated_step_are_those_of_its_last_attempt(tmp_path: Path) -> None:
    attempt(tmp_path, 0, {1: None, 2: None})
    attempt(tmp_path, 1, {2: None, 3: None})
    found = [rollout.state.conversation_id for rollout in run_rollouts(tmp_path)]
    assert found == ["a0s1", "a1s2", "a1s3"]


def test_a_step_that_learns_from_answers_asked_for_before_has_them_in_its_record(
    tmp_path: Path,
) -> None:
    """Of an attempt before too; a group that it began and that was answered anew is taken once."""

    def asked(number: int, step: int, *groups: str) -> Path:
        rollouts = tmp_path / "attempts" / f"{number:03d}" / "rollouts"
        for group in groups:
            state = CUDAConversationState(
                conversation_id=f"{group} by {number}", task=TASK, end_reason="error"
            )
            rollout = Rollout(step=step, group=group, session=0, state=state, returns=())
            append_rollout(rollouts, rollout)
        return rollouts

    def learnt(rollouts: Path, step: int) -> list[str]:
        return [r.state.conversation_id for r in read_rollouts(rollouts, step)]

    first = asked(0, 1, "a", "b")
    asked(0, 2, "c", "d")
    note_learnt(first, 1, ["a"])
    note_learnt(first, 2, ["b", "c"])
    assert learnt(first, 1) == ["a by 0"]
    assert learnt(first, 2) == ["c by 0", "b by 0"]
    second = asked(1, 3, "c", "e")  # a kill after step 1: c is answered anew, b is not
    note_learnt(second, 2, ["b"])
    note_learnt(second, 3, ["c", "e"])
    assert learnt(second, 2) == ["b by 0"]
    assert learnt(second, 3) == ["c by 1", "e by 1"]
    assert step_record(3, {}, second).conversations == 2
    assert learnt(first, 2) == ["c by 0", "b by 0"]  # a later attempt changes nothing of it
    asked(1, 4, "f")
    assert learnt(second, 4) == ["f by 1"]  # nothing noted: what it asked for
    assert [r.state.conversation_id for r in run_rollouts(tmp_path)] == [
        "a by 0", "b by 0", "c by 0", "d by 0", "c by 1", "e by 1", "f by 1",
    ]  # fmt: skip


def test_conversations_end_as_the_manager_says_but_have_the_runs_turns(
    trainer: MultiAgentVERLTrainer,
) -> None:
    class Manager:
        config = ConversationConfig(max_turns=9, stop_reward=None, stop_after_repeats=1)

    made = MultiAgentVERLTrainer(trainer._config, Manager(), tasks=[TASK])
    assert made._conversation == ConversationConfig(
        max_turns=trainer._config.max_turns, stop_reward=None, stop_after_repeats=1
    )


async def test_trainer_is_started_again_only_where_that_may_help(
    trainer: MultiAgentVERLTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Path] = []

    async def end(may_pass: bool, ray_temp: Path) -> RLResult:
        starts.append(ray_temp)
        raise _TrainerEndedError("a worker was killed", may_pass=may_pass)

    for may_pass, expected in ((True, 1 + trainer._config.max_restarts), (False, 1)):
        starts.clear()
        monkeypatch.setattr(trainer, "_train", functools.partial(end, may_pass))
        with pytest.raises(TrainingError, match="a worker was killed"):
            await trainer.train()
        assert len(starts) == expected
        assert len(set(starts)) == expected
        assert not any(folder.exists() for folder in starts)


@pytest.mark.parametrize(
    ("turns", "faults", "ends"),
    [(20, 2, False), (20, 3, True), (100, 4, False), (100, 5, True), (10_000, 110, False),
     (10_000, 140, True), (3, 3, True), (0, 0, False)],
)  # fmt: skip
def test_faults_end_the_run_where_chance_does_not_explain_them(
    tmp_path: Path, turns: int, faults: int, ends: bool
) -> None:
    records = [StepRecord(step=1, turns=turns, faults=faults), StepRecord(step=2)]
    if not ends:
        check_faults(records, 0.01, tmp_path / "log")
        return
    with pytest.raises(TrainingError, match=f"{faults} of {turns} turns were lost to faults of"):
        check_faults(records, 0.01, tmp_path / "log")


def test_a_step_whose_conversations_all_fail_ends_the_run_at_once(tmp_path: Path) -> None:
    counter, told = RolloutCounter(tmp_path), '"fault":null'
    state = CUDAConversationState(conversation_id=told, task=TASK)
    for session, fault in enumerate([None, "KeyError: 'a'", "PolicyError: away", "KeyError: 'b'"]):
        rollout = Rollout(step=3, group="g", session=session, state=state, returns=(), fault=fault)
        append_rollout(tmp_path, rollout)
        assert counter.count(3) == session + 1
    assert counter.faults == ["KeyError: 'a'", "PolicyError: away", "KeyError: 'b'"]
    check_running(counter.faults, 256, 0.01, tmp_path / "log")
    with pytest.raises(TrainingError, match=r"2 of a step's 8 conversations .* by KeyError: 'b'"):
        check_running(counter.faults, 8, 0.01, tmp_path / "log")
    check_running(["PolicyError: away"] * 8, 8, 0.01, tmp_path / "log")
    assert counter.count(4) == 0
    assert counter.faults == []


def test_a_run_in_which_nothing_changes_is_ended(tmp_path: Path) -> None:
    stall = Stall(0.05, tmp_path / "log")
    stall.check((0, 0))
    time.sleep(0.1)
    stall.check((0, 1))
    time.sleep(0.1)
    with pytest.raises(TrainingError, match="the run hangs"):
        stall.check((0, 1))


def test_last_error_of_a_log_is_the_last_line_that_names_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_error(log) == "it wrote no log"
    log.write_text("ok\nValueError: first\nmore\nOSError: [Errno 28] No space left\nbye\n")
    assert last_error(log) == "OSError: [Errno 28] No space left"


def test_rays_own_start_that_was_too_slow_is_recognised(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert not slow_start(log)
    log.write_text("Exception: The current node timed out during startup. This could happen\n")
    assert slow_start(log)


def test_import_needs_neither_verl_nor_torch() -> None:
    code = (
        "import sys, coding_framework.training.verl_integration;"
        "print([m for m in ('torch', 'verl', 'ray', 'numpy') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "name",
    [
        "AgentSpecializer",
        "CUDAPitfallDetector",
        "CUDASafetyAnalyzer",
        "CurriculumManager",
        "SakanaDataLoader",
    ],
)
def test_names_that_users_import_from_here_are_here(name):
    assert getattr(verl_integration, name).__name__ == name


def test_a_lost_gpu_is_named_and_not_tried_again(
    trainer: MultiAgentVERLTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = 0

    async def fails(_: Path) -> RLResult:
        nonlocal starts
        starts += 1
        raise _TrainerEndedError("CUDA error: unspecified launch failure", may_pass=True)

    trainer._config = trainer._config.model_copy(update={"device": "cuda", "num_gpus": 2})
    monkeypatch.setattr(trainer, "_train", fails)
    monkeypatch.setattr(verl_integration, "require_devices", lambda config: None)
    left = "import sys; print(0); print('GPU 1: CUDA error: GPU is lost', file=sys.stderr)"
    monkeypatch.setattr(trouble, "ANSWERING_GPUS", left)
    with pytest.raises(TrainingError, match=r"2 GPUs .* any more: 1 \(GPU 1: .* GPU is lost\)"):
        asyncio.run(trainer.train())
    assert starts == 1
    monkeypatch.setattr(trouble, "ANSWER_S", 1.0)
    monkeypatch.setattr(
        trouble, "ANSWERING_GPUS", "import time; print(1, flush=True); time.sleep(60)"
    )
    with pytest.raises(TrainingError, match=r"any more: 0 \(no answer within 1 s\)"):
        asyncio.run(trainer.train())
    monkeypatch.setattr(trouble, "ANSWER_S", 60.0)
    monkeypatch.setattr(trouble, "ANSWERING_GPUS", "print(0); print(1)")
    with pytest.raises(TrainingError, match="unspecified launch failure"):
        asyncio.run(trainer.train())
    assert starts == 2 + 1 + trainer._config.max_restarts


def test_a_disk_without_room_for_the_next_checkpoint_is_full(
    trainer: MultiAgentVERLTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tmp_path / "run" / "checkpoints" / "global_step_3"
    (step / "actor").mkdir(parents=True)
    (step / "actor" / "model_world_size_1_rank_0.pt").write_bytes(bytes(2 << 20))
    finish(step, manifest_of(step))
    free = 40 << 20

    def usage(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free)

    monkeypatch.setattr(trouble.shutil, "disk_usage", usage)
    trouble.require_room(tmp_path / "run")
    monkeypatch.setattr(trouble, "LEAST_FREE", 1)
    free = 1 << 20
    with pytest.raises(TrainingError, match="1 MiB are left, and a checkpoint takes 2 MiB"):
        trouble.require_room(tmp_path / "run")


def test_a_rollout_pool_without_cupy_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    trouble.require_devices(MultiTurnRLConfig(model_path="m", judge_gpus=1))
    with pytest.raises(UsageError, match="CuPy, which is missing: install it with 'uv sync"):
        trouble.require_devices(MultiTurnRLConfig(model_path="m", rollout_gpus=1))


def validated(*rewards: float | None) -> tuple[Validation, ...]:
    return tuple(
        Validation(step=2 * i, conversations=4, reward_mean=reward, solved_rate=0.5)
        for i, reward in enumerate(rewards)
    )


@pytest.mark.parametrize(
    ("rewards", "ends"),
    [
        ((), False),
        ((0.7,), False),
        ((0.7, 0.6), False),
        ((0.7, 0.6, 0.7), True),  # as good is not better
        ((0.7, 0.6, 0.8), False),
        ((0.7, 0.8, 0.6, 0.5), True),
        ((0.7, None, 0.6), False),  # all of one validation's conversations were masked
    ],
)
def test_patience_counts_the_validations_since_the_best_one(
    tmp_path: Path, rewards: tuple[float | None, ...], ends: bool
) -> None:
    folder = RLFolder(tmp_path)
    write_validations(folder.validations, validated(*rewards))
    steps = RunSteps(folder, None, validation_tasks=4)
    assert steps.out_of_patience(2) is ends
    assert not steps.out_of_patience(None)


def test_a_result_says_which_policy_validates_best() -> None:
    plain = RLResult(steps=(), final_model="m", resumed_from=0, duration_s=1.0, peak_gib=1.0)
    assert plain.told(0) is None
    steps = tuple(StepRecord(step=step) for step in (1, 2, 3, 4))
    worse = plain.model_copy(
        update={"steps": steps, "best_step": 0, "validations": validated(0.7, 0.6, 0.65)}
    )
    said = worse.told(4)
    assert said is not None
    assert said.startswith("the policy that it began with validates best: mean reward 0.700")
    assert "after step 4: mean reward 0.650, 50% solved. No step made it better" in said
    assert "ended at" not in said
    assert "It ended at step 4 of 32: validation_patience" in str(worse.told(32))
    better = worse.model_copy(update={"best_step": 4, "validations": validated(0.7, 0.6, 0.8)})
    assert better.told(4) == (
        "the policy after step 4 validates best: mean reward 0.800, 50% solved"
    )


def test_a_validation_that_was_cut_says_nothing_of_the_policy(tmp_path: Path) -> None:
    """A kill, or the run's early end, may come while the policy of a checkpoint validates."""
    folder = RLFolder(tmp_path)
    attempt(tmp_path, 0, {1: 0.1})
    steps = RunSteps(folder, None, validation_tasks=2)
    masked = CUDAConversationState(conversation_id="c", task=TASK, end_reason="error")
    judged = make_state(make_turn(0, make_verdict(Status.CORRECT, 1.0)))
    for state, noted in ((judged, []), (masked, []), (judged, [3])):
        rollout = Rollout(step=0, group="g", session=0, state=state, returns=())
        append_rollout(folder.attempts()[0].validation, rollout)
        steps.judge_policy(0)
        assert [v.conversations for v in steps.validations()] == noted

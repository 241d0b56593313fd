"""Rewards of the user's own make real steps on the CPU, and the records hold what they gave."""

from __future__ import annotations

import asyncio
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.store.conversations import run_rollouts
from coding_framework.training.multi_turn_conversation import MultiTurnConversationManager
from coding_framework.training.reward_functions.cuda_performance_reward import CUDAPerformanceReward
from coding_framework.training.reward_functions.presets import WEIGHTED
from coding_framework.training.verl_integration import (
    MultiAgentVERLTrainer,
    MultiTurnRLConfig,
    RLResult,
)
from coding_framework.types import (
    Candidate,
    CompileSummary,
    ConversationTurn,
    CUDAConversationState,
    Status,
    Task,
    TestResult,
    Verdict,
)
from support import tiny_rl, tiny_run
from support.tiny_run import SIZES, finished, script

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

REWARDS = """
class Own:
    def __call__(self, state):
        return len(set(state.turns[-1].generation.text)) / 7
"""
SMALL = {
    **SIZES, "num_episodes": 2, "prompts_per_step": 1, "samples_per_prompt": 2, "judge_args": {},
    "reward": None, "stop_reward": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_rl.write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def letters(turn: ConversationTurn) -> float:
    return len(set(turn.generation.text)) / 7


def letters_of_state(state: CUDAConversationState) -> float:
    return letters(state.turns[-1])


async def compiles_some(task: Task, code: str) -> Verdict:
    """A judge of the user's: of every other code it says that it compiles."""
    failed = TestResult(
        case="main", seed=0, shapes=((8,),), dtype="float32", max_abs_error=1.0,
        max_rel_error=1.0, tolerance=0.1, passed=False,
    )  # fmt: skip
    candidate = Candidate(code=code)
    compiled = int(candidate.sha256, 16) % 2 == 0
    return Verdict(
        status=Status.WRONG_OUTPUT if compiled else Status.COMPILE_ERROR,
        reason="by its digest",
        task=task.name,
        candidate_sha256=candidate.sha256,
        backend="emulator",
        compile=CompileSummary(),
        tests=(failed,) if compiled else (),
    )


def made_steps(result: RLResult, output: Path, paid: Any) -> None:
    """Two steps, whose records hold what `paid` gives each turn."""
    assert [step.step for step in result.steps] == [1, 2]
    rollouts = list(run_rollouts(output))
    for step in result.steps:
        assert step.faults == 0
        turns = [t for r in rollouts if r.step == step.step for t in r.state.turns]
        assert [t.reward.total for t in turns if t.reward] == pytest.approx([*map(paid, turns)])
        assert step.reward_mean == pytest.approx(statistics.fmean(map(paid, turns)))
    assert any(step.grad_norm for step in result.steps)


def test_a_lambda_trains(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())
    weight = 1 / 7
    config = MultiTurnRLConfig.cpu(model_path=str(model), output_dir=str(tmp_path / "run"), **SMALL)
    trainer = MultiAgentVERLTrainer(
        config,
        None,
        lambda state: weight * len(set(state.turns[-1].generation.text)),
        tasks=tiny_rl.tiny_tasks(5),
    )
    made_steps(asyncio.run(trainer.train()), tmp_path / "run", letters)


def test_a_class_in_a_users_file_trains_through_the_root_script(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())
    (tmp_path / "mine.py").write_text(REWARDS)
    command = script(model, tmp_path / "run", **SMALL)
    result = finished([*command, "--reward", f"{tmp_path}/mine.py:Own"])
    made_steps(result, tmp_path / "run", letters)


def test_equal_answers_of_a_step_are_learnt_as_one(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())
    many = {"prompts_per_step": 2, "samples_per_prompt": 12, "num_episodes": 1}
    alike = {"temperature": 0.12, "max_response_tokens": 3, "max_turns": 1}
    config = MultiTurnRLConfig.cpu(
        model_path=str(model), output_dir=str(tmp_path / "run"), **{**SMALL, **many, **alike}
    )
    trainer = MultiAgentVERLTrainer(config, None, letters_of_state, tasks=tiny_rl.tiny_tasks(5))
    (step,) = asyncio.run(trainer.train()).steps
    texts = [r.state.turns[0].generation.text for r in run_rollouts(tmp_path / "run")]
    assert len(texts) == 24
    assert 2 <= len(set(texts)) <= 12
    assert step.rows_learnt in (12, 24)  # of one group or both: each row, whatever stands for it
    assert step.grad_norm
    assert math.isfinite(step.grad_norm)


def test_a_preset_with_changed_weights_and_a_managers_judge_and_agents_train(
    model: Path, tmp_path: Path
) -> None:
    class Brief(GeneratorAgent):
        """An agent of the user's, whose prompt is short enough for the tiny model."""

        async def answer(self, state: Any, *, sample: int = 0) -> Any:
            return await tiny_rl.TextAgent(self.policy, self.sampling).answer(state)

    class BriefOptimizer(OptimizerAgent):
        answer = Brief.answer

    heavy = WEIGHTED.model_copy(update={"compilation": 0.125})
    given = {k: v for k, v in SMALL.items() if k not in ("judge", "agents")}
    config = MultiTurnRLConfig.cpu(
        model_path=str(model), output_dir=str(tmp_path / "run"),
        **{**given, "samples_per_prompt": 6, "max_turns": 2},
    )  # fmt: skip
    manager = MultiTurnConversationManager(Brief(None), BriefOptimizer(None), judge=compiles_some)
    trainer = MultiAgentVERLTrainer(
        config, manager, CUDAPerformanceReward(heavy), tasks=tiny_rl.tiny_tasks(5)
    )
    result = asyncio.run(trainer.train())
    rollouts = list(run_rollouts(tmp_path / "run"))
    assert [step.step for step in result.steps] == [1, 2]
    paid = {t.reward.total for r in rollouts for t in r.state.turns if t.reward is not None}
    assert paid == {0.0, 0.125}
    reasons = {t.verdict.reason for r in rollouts for t in r.state.turns if t.verdict}
    assert reasons == {"by its digest"}

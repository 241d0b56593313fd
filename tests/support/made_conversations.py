"""Conversations made by hand, for tests of what is computed and shown from them."""

from __future__ import annotations

from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    RewardComponents,
    RewardPart,
    Role,
    Status,
    Task,
    TensorSpec,
    TestCase,
    TestResult,
    Verdict,
)


def make_task(name: str = "relu") -> Task:
    return Task(
        name=name,
        tier=0,
        family="unary",
        ops=("relu",),
        description="relu of a vector",
        reference="class Model(nn.Module):\n    def forward(self, x):\n        return x.relu()",
        cases=(TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),)),),
    )


def make_comparison(passed: bool) -> TestResult:
    return TestResult(
        case="main",
        seed=1,
        shapes=((4,),),
        dtype="float32",
        max_abs_error=0.0,
        max_rel_error=0.0,
        tolerance=1e-6,
        passed=passed,
    )


def make_verdict(
    status: Status, speedup: float | None = None, *, task: str = "relu", reason: str = "r"
) -> Verdict:
    correct = status is Status.CORRECT
    timing = BenchmarkResult(
        kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), speedup_vs_naive=speedup, modelled=True
    )
    return Verdict(
        status=status,
        reason=reason,
        task=task,
        candidate_sha256="0" * 64,
        backend="emulator",
        compile=CompileSummary(),
        tests=(make_comparison(status is not Status.WRONG_OUTPUT),),
        timing=timing if correct else None,
    )


def make_reward(value: float) -> RewardComponents:
    part = RewardPart(name="r", value=value, limit=1.0, why="")
    return RewardComponents(preset="p", parts=(part,))


def make_turn(
    index: int,
    verdict: Verdict | None,
    code: str | None = "code",
    masked: str | None = None,
    reward: float | None = None,
) -> ConversationTurn:
    return ConversationTurn(
        index=index,
        role=Role.OPTIMIZER if index else Role.GENERATOR,
        prompt=(),
        generation=Generation(text=code or "I cannot."),
        extraction=Extraction(code=code, note="one block" if code else "no block"),
        verdict=verdict,
        masked=masked,
        reward=None if reward is None else make_reward(reward),
    )


def make_state(
    *turns: ConversationTurn, task: str = "relu", name: str = "c"
) -> CUDAConversationState:
    """A finished conversation with its rewards filled in."""
    state = CUDAConversationState(conversation_id=name, task=make_task(task))
    reward = CUDAPerformanceReward()
    for turn in turns:
        grown = state.model_copy(update={"turns": (*state.turns, turn)})
        paid = turn.model_copy(update={"reward": reward(grown)})
        state = state.model_copy(update={"turns": (*state.turns, paid)})
    return state.model_copy(update={"end_reason": "max_turns"})

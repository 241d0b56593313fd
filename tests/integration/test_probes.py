"""Probes through the real judge: found by running, told, and kept out of verdicts."""

from __future__ import annotations

import pytest

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.agents.tester import TesterAgent
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.registry import find_task
from coding_framework.orchestration.turn import ConversationConfig, run_conversation
from coding_framework.task_shapes import free_sizes, with_sizes
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import Probe, Role, Status

pytestmark = pytest.mark.integration

RELU = """\
#include <torch/extension.h>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    relu<<<BLOCKS, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
RIGHT = RELU.replace("BLOCKS", "(n + 255) / 256")
NO_REMAINDER = RELU.replace("BLOCKS", "n / 256")
TASK = find_task("relu")


def smallest() -> tuple[tuple[int, ...], ...]:
    return with_sizes(TASK, {size.name: size.low for size in free_sizes(TASK)})


async def test_a_probe_finds_the_missing_remainder_and_a_right_kernel_passes(pool: JudgePool):
    odd = Probe(shapes=smallest(), values="ramp")
    alternating = Probe(shapes=smallest(), values="alternating")
    outside = Probe(shapes=((10**6, 10**6),))
    wrong = await pool.probe(TASK, NO_REMAINDER, (odd, outside))
    assert [r.passed for r in wrong] == [False, None]
    assert wrong[0].detail
    right = await pool.probe(TASK, RIGHT, (odd, alternating))
    assert [r.passed for r in right] == [True, True]


async def test_a_kernel_that_does_not_compile_has_no_results(pool: JudgePool):
    assert await pool.probe(TASK, "nonsense", (Probe(shapes=smallest()),)) == ()


async def test_findings_reach_the_optimizer_and_leave_verdict_and_reward_alone(pool: JudgePool):
    policy = ScriptedPolicy([f"```cuda\n{NO_REMAINDER}```", f"```cuda\n{RIGHT}```"])
    agents = {Role.GENERATOR: GeneratorAgent(policy), Role.OPTIMIZER: OptimizerAgent(policy)}
    state = await run_conversation(
        TASK,
        agents,
        pool,
        CUDAPerformanceReward(),
        ConversationConfig(max_turns=2, stop_reward=None),
        tester=TesterAgent(pool.probe),
    )
    assert [t.verdict.status for t in state.turns] == [Status.WRONG_OUTPUT, Status.CORRECT]
    assert any(r.passed is False for r in state.turns[0].probes)
    assert "A tester found that it fails" in state.turns[1].prompt[-1].content
    alone = await pool(TASK, NO_REMAINDER)
    assert alone.tests == state.turns[0].verdict.tests
    assert state.turns[1].verdict.compile.techniques == ()

"""Tasks solved in parts: kernels of parts that are joined, judged by the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coding_framework.data.kernelbench.naive import operation_by_operation
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.orchestration.in_parts import Converse, Solved, solve_in_parts, take_apart
from coding_framework.orchestration.turn import judge_answer
from coding_framework.types import (
    AgentAnswer,
    CUDAConversationState,
    Extraction,
    Generation,
    JudgeFn,
    Status,
    Task,
)
from coding_framework.wiring import make_judge

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        split = lambda y: y.view(b, t, self.heads, d // self.heads).transpose(1, 2)
        scores = (split(q) @ split(k).transpose(-2, -1)) * (d // self.heads) ** -0.5
        out = (torch.softmax(scores, -1) @ split(v)).transpose(1, 2).reshape(b, t, d)
        return torch.cat([x + torch.tanh(out), x[:, 1:-1]], dim=1)

batch, length, width, heads = 2, 24, 32, 4
def get_inputs():
    return [torch.randn(batch, length, width)]
def get_init_inputs():
    return [width, heads]
"""


SCALED = """
#include <torch/extension.h>
__global__ void scaled(const float* x, float* o, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * by;
}
torch::Tensor forward(torch::Tensor x, double by) {
  auto o = torch::empty_like(x);
  scaled<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), by, x.numel());
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeFn]:
    made = make_judge(backend="emulator")
    yield made
    made.close()


def by_naive_kernels(judge: JudgeFn, wrong: str = "") -> Converse:
    """Conversations whose only answer is our naive kernel, which there is of no part with a number
    among its arguments. wrong: operation whose kernel is judged right and is not."""

    async def converse(task: Task, name: str) -> CUDAConversationState:
        state = CUDAConversationState(conversation_id=name, task=task)
        code = SCALED if task.ops == ("mul",) else operation_by_operation(task)
        answer = AgentAnswer(
            messages=(),
            generation=Generation(text=code or "", counted=7),
            extraction=Extraction(code=code, note="ours"),
        )
        turn = await judge_answer(state, answer, judge)
        if wrong in task.ops and code is not None:
            broken = code.replace("tanhf(", "0.99f * tanhf(")
            changed = turn.extraction.model_copy(update={"code": broken})
            turn = turn.model_copy(update={"extraction": changed})
        return state.model_copy(update={"turns": (turn,), "end_reason": "max_turns"})

    return converse


async def test_the_kernels_of_the_parts_are_one_that_is_right(judge: JudgeFn) -> None:
    told: list[Solved] = []
    task = problem_task(SOURCE, "attention")
    state = await solve_in_parts(take_apart(task), by_naive_kernels(judge), judge, told.append, "c")
    (turn,) = state.turns
    assert turn.verdict is not None
    assert turn.verdict.correct, turn.verdict.reason
    assert {one.part.task.ops: one.kernel is not None for one in told} == {
        ("linear",): True, ("matmul", "mul"): False, ("softmax",): True, ("matmul",): True,
        ("tanh", "add"): True, ("mul",): True,
    }, "what has no kernel is parted again"  # fmt: skip
    assert turn.tokens == 7 * len(told)
    assert "joined of the kernels of 6 parts" in turn.extraction.note


async def test_the_verdict_of_the_whole_is_the_wholes_own(judge: JudgeFn) -> None:
    task = problem_task(SOURCE, "attention")
    converse = by_naive_kernels(judge, wrong="tanh")
    state = await solve_in_parts(take_apart(task), converse, judge, lambda _: None, "c")
    assert state.turns[0].verdict is not None
    assert state.turns[0].verdict.status is Status.WRONG_OUTPUT


async def test_where_an_operation_has_no_kernel_there_is_none_of_the_whole(judge: JudgeFn) -> None:
    task = problem_task(SOURCE.replace("torch.tanh(out)", "torch.erf(out)"), "attention")
    state = await solve_in_parts(
        take_apart(task), by_naive_kernels(judge), judge, lambda _: None, "c"
    )
    assert (state.turns, state.end_reason) == ((), "a part was not solved")


OF_A_SQUARE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        first, _ = x.chunk(2)
        b, n, c = first.shape
        side = int(n ** 0.5)
        return first.transpose(1, 2).reshape(b, c, side, side) * (self.steps ** -0.8)

batch, side, width, steps = 8, 12, 16, 1000
def get_inputs():
    return [torch.randn(batch, side * side, width)]
def get_init_inputs():
    return [steps]
"""


async def test_the_whole_makes_halves_roots_and_powers(judge: JudgeFn) -> None:
    task = problem_task(OF_A_SQUARE, "square")
    state = await solve_in_parts(
        take_apart(task), by_naive_kernels(judge), judge, lambda _: None, "c"
    )
    (turn,) = state.turns
    assert turn.verdict is not None
    assert turn.verdict.correct, turn.verdict.reason
    assert turn.code is not None
    assert "std::sqrt" in turn.code
    assert "std::pow" in turn.code

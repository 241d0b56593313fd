"""Tasks solved in parts: kernels of parts that are joined, judged by the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.kernels import naive_of
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
from support.multihead import MULTIHEAD

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


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeFn]:
    made = make_judge(backend="emulator")
    yield made
    made.close()


def by_naive_kernels(
    judge: JudgeFn, wrong: str = "", without: tuple[str, ...] = ("matmul", "mul")
) -> Converse:
    """Conversations whose only answer is the compiler's kernel. wrong: operation whose kernel is
    judged right and is not. without: operations of the parts that get no answer."""

    async def converse(task: Task, name: str) -> CUDAConversationState:
        state = CUDAConversationState(conversation_id=name, task=task)
        code = None if task.ops == without else naive_of(task)
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


async def test_a_layer_of_attention_is_joined_of_its_operations(judge: JudgeFn) -> None:
    told: list[Solved] = []
    task = problem_task(MULTIHEAD % True, "attention")
    state = await solve_in_parts(take_apart(task), by_naive_kernels(judge), judge, told.append, "c")
    assert {one.part.task.ops: one.kernel is not None for one in told}[("softmax",)]
    assert state.turns[0].verdict is not None, told
    assert state.turns[0].verdict.correct, state.turns[0].verdict.reason


async def test_the_verdict_of_the_whole_is_the_wholes_own(judge: JudgeFn) -> None:
    task = problem_task(SOURCE, "attention")
    converse = by_naive_kernels(judge, wrong="tanh")
    state = await solve_in_parts(take_apart(task), converse, judge, lambda _: None, "c")
    assert state.turns[0].verdict is not None
    assert state.turns[0].verdict.status is Status.WRONG_OUTPUT


async def test_where_an_operation_has_no_kernel_there_is_none_of_the_whole(judge: JudgeFn) -> None:
    converse = by_naive_kernels(judge, without=("softmax",))
    task = problem_task(SOURCE, "attention")
    state = await solve_in_parts(take_apart(task), converse, judge, lambda _: None, "c")
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
    assert "sqrt(" in turn.code
    assert "pow(" in turn.code


def of_elements(name: str, expression: str, given: str = "float", made: str = "float") -> str:
    """A kernel that makes each element `expression` of the element v."""
    scalar = {"float": "torch::kFloat", "int64_t": "torch::kLong"}[made]
    return f"""
#include <torch/extension.h>
__global__ void {name}(const {given}* x, {made}* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {given} v = x[i];
  o[i] = {expression};
}}
torch::Tensor forward(torch::Tensor x) {{
  auto o = torch::empty(x.sizes(), x.options().dtype({scalar}));
  int n = x.numel();
  {name}<<<(n + 255) / 256, 256>>>(x.data_ptr<{given}>(), o.data_ptr<{made}>(), n);
  return o;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""


OF_TWO = """
#include <torch/extension.h>
__global__ void of_two(const float* x, const float* y, float* o, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n * m) o[i] = OP;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
  int n = x.size(0), m = WIDTH;
  auto o = torch::empty({n, m}, x.options());
  of_two<<<(n * m + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                       o.data_ptr<float>(), n, m);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
LARGEST = """
#include <torch/extension.h>
__global__ void largest(const float* x, int64_t* o, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int64_t best = 0;
  for (int j = 1; j < m; j++)
    if (x[i * m + j] > x[i * m + best]) best = j;
  o[i] = best;
}
torch::Tensor forward(torch::Tensor x) {
  int n = x.size(0), m = x.size(1);
  auto o = torch::empty({n, 1}, x.options().dtype(torch::kLong));
  largest<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<int64_t>(), n, m);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
AT_PLACES = """
#include <torch/extension.h>
__global__ void at_places(const float* x, const int64_t* y, float* o, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i * m + y[i]];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
  int n = x.size(0), m = x.size(1);
  auto o = torch::empty({n, 1}, x.options());
  at_places<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<int64_t>(),
                                      o.data_ptr<float>(), n, m);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
TURNED_AND_CHOSEN = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        n, d = x.shape
        angles = torch.outer(torch.arange(n).float(), torch.arange(d).float().sqrt())
        turned = x * angles.cos()
        return turned.gather(1, x.argmax(1, keepdim=True))

rows, width = 48, 64
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return []
"""
BY_HAND = {
    ("mul",): OF_TWO.replace("OP", "x[i] * y[i]").replace("WIDTH", "x.size(1)"),
    ("argmax",): LARGEST,
    ("gather",): AT_PLACES,
}


async def test_what_a_part_made_beside_its_operation_is_given_to_it_in_the_second_round(
    judge: JudgeFn,
) -> None:
    told: list[Solved] = []

    async def converse(task: Task, name: str) -> CUDAConversationState:
        state = CUDAConversationState(conversation_id=name, task=task)
        beside = ["arange"] if task.ops == ("argmax",) else ["arange", "argmax"]
        makes_more = any(name in task.reference for name in beside)
        code = "" if makes_more else BY_HAND.get(task.ops, "")
        answer = AgentAnswer(
            messages=(), generation=Generation(text=code, counted=1),
            extraction=Extraction(code=code or None, note="by hand"),
        )  # fmt: skip
        turn = await judge_answer(state, answer, judge)
        return state.model_copy(update={"turns": (turn,), "end_reason": "max_turns"})

    task = problem_task(TURNED_AND_CHOSEN, "turned")
    state = await solve_in_parts(take_apart(task), converse, judge, told.append, "c")
    assert state.turns, {one.part.task.ops: one.kernel is not None for one in told}
    (turn,) = state.turns
    assert turn.verdict is not None
    assert turn.verdict.correct, turn.verdict.reason
    assert "cosf(" in (turn.code or ""), "what depends on no input is the compiler's"

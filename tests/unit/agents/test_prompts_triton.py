"""Prompts that ask for Triton: a KernelBench answer of the module, and what is found in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.agents.prompts import build_messages, render_answer
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    Role,
    Task,
    TrainingExample,
)

FOLDER = Path(__file__).parents[2] / "integration" / "model_new"
NAME = "triton_softmax_rows.py"
ANSWER = (FOLDER / "honest" / NAME).read_text()


def _task() -> Task:
    return problem_task((FOLDER / "problems" / NAME).read_text(), name="softmax_rows")


def _asked(task: Task, role: Role, code: str | None = None) -> str:
    turn = ConversationTurn(
        index=0, role=Role.GENERATOR, prompt=(), generation=Generation(text=""),
        extraction=Extraction(code=code, note=""), masked="not judged",
    )  # fmt: skip
    state = CUDAConversationState(conversation_id="c", task=task, turns=(turn,) if code else ())
    return build_messages(state, role, version="triton")[1].content


def test_a_generator_is_asked_for_a_whole_answer() -> None:
    task = _task()
    asked = _asked(task, Role.GENERATOR)
    assert "`class ModelNew(nn.Module)`" in asked
    assert "class Model(" in asked
    assert "get_inputs" not in asked
    assert "Varies from call to call" in asked
    assert "CUDA kernel" not in asked


@pytest.mark.parametrize(
    ("code", "fence"), [(ANSWER, "```python\n"), ("__global__ void k() {}", "```cuda\n")]
)
def test_an_optimizer_sees_what_there_is(code: str, fence: str) -> None:
    asked = _asked(_task(), Role.OPTIMIZER, code)
    assert f"{fence}{code.strip()}" in asked
    assert "Triton" in asked


def test_an_example_in_triton_is_a_block_of_python() -> None:
    example = TrainingExample(
        id="x", task=_task(), role=Role.GENERATOR, kind="generate", code=ANSWER
    )
    assert render_answer(example).startswith("```python\n")


async def test_an_answer_is_found() -> None:
    task = _task()
    policy = ScriptedPolicy([f"One block.\n```python\n{ANSWER}```\n"])
    agent = GeneratorAgent(policy, prompts="triton")
    answer = await agent.answer(CUDAConversationState(conversation_id="c", task=task))
    assert answer.extraction.code == ANSWER

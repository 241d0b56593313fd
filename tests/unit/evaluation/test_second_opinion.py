"""A second opinion is asked for once, in their form, and told beside ours.

Their evaluator needs a GPU: a package in its place says what the answer says of itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.data.registry import find_task
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.second_opinion import require_checkout, second_opinions
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    Role,
)

pytestmark = pytest.mark.unit

THEIRS = """
import os
from types import SimpleNamespace
def eval_kernel_against_ref(problem, answer, num_correct_trials, measure_performance, device):
    assert problem == "the problem" and num_correct_trials == 5 and not measure_performance
    with open({asked!r}, "a") as file:
        file.write(answer.splitlines()[-1] + "\\n")
    if "end" in answer:
        os._exit(1)
    if "none" in answer:
        return None
    return SimpleNamespace(compiled=True, correctness="right" in answer, metadata={{"x": 1}})
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "checkout/src/kernelbench"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "eval.py").write_text(THEIRS.format(asked=str(tmp_path / "asked")))
    (tmp_path / "checkout/src/torch.py").write_text("device = str")  # theirs alone asks it
    problems = tmp_path / "checkout/KernelBench/level1"
    problems.mkdir(parents=True)
    (problems / "19_ReLU.py").write_text("the problem")
    return tmp_path / "checkout"


def samples(*codes: str | None) -> list[tuple[CUDAConversationState, SampleRecord]]:
    task = find_task("relu")
    found = []
    for number, code in enumerate(codes):
        turn = ConversationTurn(
            index=0, role=Role.GENERATOR, prompt=(), generation=Generation(text=""),
            extraction=Extraction(code=code, note=""), masked="judged in the record alone",
        )  # fmt: skip
        state = CUDAConversationState(conversation_id=str(number), task=task, turns=(turn,))
        correct = code is not None and "agreed" in code
        record = SampleRecord(
            suite="kernelbench:1", task="relu", sample=number, best_turn=0, correct=correct,
            status="correct" if correct else "wrong_output", code_sha256=str(code),
        )  # fmt: skip
        found.append((state, record))
    return found


PYTHON = "import torch\nclass ModelNew(torch.nn.Module):\n    pass  # "
SUITE = EvalSuite(
    name="kernelbench:1", tasks=(SuiteTask(task=find_task("relu"), level=1, number=19),)
)


def test_opinions_are_asked_for_once_and_told_beside_ours(checkout: Path, tmp_path: Path) -> None:
    found = samples(
        f"{PYTHON}right agreed", f"{PYTHON}right", f"{PYTHON}wrong", f"{PYTHON}none",
        f"{PYTHON}end", f"{PYTHON}right agreed", "__global__ void k() {}", None,
        find_task("relu").naive_kernel,
    )  # fmt: skip
    file = tmp_path / "second_opinion.jsonl"
    told = second_opinions(file, checkout, [SUITE], found)
    assert told[0].endswith("accepts 3 of 7 kernels; our judge accepts 2")
    assert told[1] == "1 kernels cannot be written as KernelBench's answers"
    assert told[2:] == [
        "kernelbench:1/relu/1: KernelBench accepts, ours says wrong_output ()",
    ]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 7
    assert "extension.forward(" in asked[-1]  # a kernel of ours, as an answer of theirs
    assert second_opinions(file, checkout, [SUITE], found) == told
    assert (tmp_path / "asked").read_text().splitlines() == asked


def test_an_evaluator_that_cannot_begin_is_a_fault_of_ours(checkout: Path, tmp_path: Path) -> None:
    (checkout / "src/kernelbench/eval.py").write_text("import not_there")
    with pytest.raises(InfrastructureError, match="did not begin"):
        second_opinions(tmp_path / "o", checkout, [SUITE], samples(f"{PYTHON}right"))


def test_what_it_needs_is_said_before_anything_is_asked(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match="is no checkout of KernelBench"):
        require_checkout(tmp_path, [SUITE])
    ours = EvalSuite(name="held-out:1", tasks=(SuiteTask(task=find_task("relu")),))
    with pytest.raises(UsageError, match="held-out:1 has others"):
        require_checkout(checkout, [ours])
    with pytest.raises(UsageError, match="needs a GPU"):
        require_checkout(checkout, [SUITE])

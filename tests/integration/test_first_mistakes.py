"""The likeliest first mistakes in a kernel: the verdict says why, and what to try."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.commands.one_kernel import make_one_judge
from coding_framework.data.registry import find_task
from coding_framework.explanation.diagnosis import diagnose
from coding_framework.explanation.page import page
from coding_framework.types import Candidate, Status
from coding_framework.wiring import JudgeSettings

pytestmark = pytest.mark.integration

RIGHT = (Path(__file__).parents[2] / "examples" / "relu.cu").read_text()
MISTAKES = {
    "no binding": (
        RIGHT[: RIGHT.index("PYBIND11")], Status.LOAD_ERROR, "PYBIND11_MODULE(TORCH_EXTENSION_NAME",
    ),
    "no header": (
        RIGHT.replace("#include <torch/extension.h>", ""), Status.COMPILE_ERROR,
        "#include <torch/extension.h>",
    ),
    "a name misspelt": (
        RIGHT.replace("relu_kernel<<<", "relu_kernal<<<"), Status.COMPILE_ERROR,
        "relu_kernal is declared nowhere",
    ),
    "no guard": (RIGHT.replace("if (i < n)", ""), Status.RUNTIME_ERROR, "if (i < n)"),
    "a grid rounded down": (
        RIGHT.replace("n + threads - 1", "n"), Status.WRONG_OUTPUT, "also in the last block",
    ),
    "the input overwritten": (
        RIGHT.replace("torch::empty_like(x)", "x"), Status.WRONG_OUTPUT, "Allocate the output",
    ),
    "a clamp forgotten": (
        RIGHT.replace("fmaxf(x[i], 0.0f)", "x[i]"), Status.WRONG_OUTPUT, "max(x, 0)",
    ),
    "too many threads": (
        RIGHT.replace("threads = 256", "threads = 2048"), Status.RUNTIME_ERROR,
        "at most 1024 threads a block",
    ),
    "another dtype": (
        RIGHT.replace("x.data_ptr<float>()", "(float*)x.data_ptr<double>()"),
        Status.RUNTIME_ERROR, "each input's dtype",
    ),
    "an empty file": ("\n", Status.COMPILE_ERROR, "Check that your editor has saved it"),
    "a file in UTF-16": (
        RIGHT.encode("utf-16").decode("utf-8", "replace"), Status.COMPILE_ERROR, "saved as UTF-8",
    ),
    "an answer with its words": (
        f"Here is a kernel:\n```cuda\n{RIGHT}```\n", Status.COMPILE_ERROR, "give the code alone",
    ),
    "the library instead": (
        '#include <torch/extension.h>\n'
        "torch::Tensor forward(torch::Tensor x) { return torch::relu(x); }\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
        Status.REJECTED, "as a __global__ function",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def judge():
    return make_one_judge(JudgeSettings(backend="emulator", seed=0), str)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_kernel_with_a_first_mistake_is_told_what_to_try(judge, mistake):
    code, status, helps = MISTAKES[mistake]
    verdict = judge.judge(find_task("relu"), Candidate(code=code))
    assert verdict.status is status
    assert helps in " ".join(diagnose(verdict).tries)


def test_the_page_on_a_right_kernel_says_whether_its_time_is_good(judge):
    task = find_task("relu")
    text = page(judge.judge(task, Candidate(code=RIGHT)), task, RIGHT)
    assert "relu: correct, judged on the emulator (times are modelled)" in text
    assert "shape set odd" in text
    assert "the memory roofline" in text
    assert "as fast as the naive kernel" in text


def test_the_page_on_a_wrong_kernel_quotes_its_line(judge):
    task, code = find_task("relu"), RIGHT.replace("fmaxf", "fmaxx")
    text = page(judge.judge(task, Candidate(code=code)), task, code)
    assert 'identifier "fmaxx" is undefined' in text
    assert "> " in next(line for line in text.splitlines() if "y[i] = fmaxx" in line)


def test_a_kernel_of_a_task_of_ones_own_is_held_against_the_compilers(judge):
    examples = Path(__file__).parents[2] / "examples"
    task = find_task(str(examples / "scaled_tanh.py"))
    code = (examples / "scaled_tanh.cu").read_text()
    verdict = judge.judge(task, Candidate(code=code))
    assert verdict.timing is not None
    assert verdict.timing.speedup_vs_naive == pytest.approx(1.0, abs=0.2)
    assert "as fast as the naive kernel" in page(verdict, task, code)

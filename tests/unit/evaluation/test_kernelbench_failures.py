"""What an answer's `forward` asks for, against the call that the prompt states."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.unit
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CALL = "It is called as forward(Tensor x[8, 4], Tensor w[4, 4], float eps, tuple k (2, 3)); so"


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("kernelbench_failures")


def code(*parameters: str, name: str = "run") -> str:
    bound = f'PYBIND11_MODULE(X, m) {{ m.def("forward", &{name}); }}'
    return f"torch::Tensor {name}({', '.join(parameters)}) {{ return x; }}\n{bound}"


def test_the_stated_call_is_counted(failures: ModuleType) -> None:
    assert failures.handed(CALL) == (2, 2)
    assert failures.handed("It is called as forward(Tensor x[4]).\nVaries (often).") == (1, 0)


@pytest.mark.parametrize(
    ("parameters", "unhanded", "too_few"),
    [
        (("torch::Tensor x", "torch::Tensor w"), False, False),
        (("torch::Tensor x", "torch::Tensor w", "double eps", "ints k"), False, False),
        (("torch::Tensor x", "torch::Tensor w", "double eps"), True, False),
        (("torch::Tensor x", "torch::Tensor w", "double eps", "int a", "int b"), True, False),
        (("torch::Tensor x",), False, True),
    ],
)  # fmt: skip
def test_what_nobody_hands_is_told_from_what_may_be_left_out(
    failures: ModuleType, parameters: tuple[str, ...], unhanded: bool, too_few: bool
) -> None:
    tensors, numbers = failures.handed(CALL)
    takes = failures.taken(code(*parameters))
    answer = failures.Answer("p", "", False, tensors, numbers, takes)
    assert takes == len(parameters)
    assert (answer.unhanded, answer.too_few) == (unhanded, too_few)


def test_a_text_without_a_forward_takes_nothing_that_is_known(failures: ModuleType) -> None:
    assert failures.taken("__global__ void k(float* x) {}") is None


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        (code("torch::Tensor x /* input, of any shape */", "torch::Tensor w"), 2),
        (code("torch::Tensor x", "std::tuple<int, int> k", "double e = std::pow(2, 3)"), 3),
        ('PYBIND11_MODULE(X, m) { m.def("forward", [](torch::Tensor x) { return x; }); }', None),
    ],
)
def test_commas_of_comments_and_brackets_part_no_parameters(
    failures: ModuleType, text: str, takes: int | None
) -> None:
    assert failures.taken(text) == takes

"""Faults put into correct kernels."""

from __future__ import annotations

import pytest

from coding_framework.data.faults import FAULTS, broken_kernels
from coding_framework.data.kernels import kernels_of, write_all
from coding_framework.data.synthesis.catalog import build_task, parse_function
from coding_framework.types import KernelExample

pytestmark = pytest.mark.unit
NAMES = ("mul2_add_relu", "rsub3_minrow", "softmax", "matmul_relu", "conv1dk5_relu")


@pytest.fixture(scope="module")
def kernels() -> list[tuple[KernelExample, ...]]:
    functions = [function for function in map(parse_function, NAMES) if function is not None]
    tasks = [build_task(function) for function in functions]
    write_all(tasks)
    return [kernels_of(task) for task in tasks]


def test_every_fault_applies_to_some_kernel_and_changes_it(
    kernels: list[tuple[KernelExample, ...]],
) -> None:
    applied = set()
    for kernel in (one for made in kernels for one in made):
        for fault in FAULTS:
            for broken in broken_kernels(kernel.code, 0, among=[fault]):
                applied.add(broken.fault)
                assert broken.code != kernel.code
    assert applied == {fault.name for fault in FAULTS}


def test_every_naive_kernel_can_be_broken_and_always_in_the_same_way(
    kernels: list[tuple[KernelExample, ...]],
) -> None:
    for naive, *_ in kernels:
        one, again = broken_kernels(naive.code, 7), broken_kernels(naive.code, 7)
        assert len(one) == 1
        assert one == again


def test_a_missing_step_takes_the_value_before_it(kernels: list[tuple[KernelExample, ...]]) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "missing_step")
    [broken] = broken_kernels(kernels[0][0].code, 0, among=[fault])
    assert "const float add = mul;" in broken.code or "const float relu = add;" in broken.code


def test_a_repair_says_in_one_line_what_was_wrong() -> None:
    for fault in FAULTS:
        assert fault.why_fixed.endswith(".")
        assert "\n" not in fault.why_fixed

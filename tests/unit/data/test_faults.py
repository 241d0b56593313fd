"""Faults put into correct kernels."""

from __future__ import annotations

import pytest

from coding_framework.data.faults import ARGUMENT_FAULTS, FAULTS, broken_kernels
from coding_framework.data.kernels import kernels_of, write_all
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.synthesis.catalog import build_task, parse_function
from coding_framework.types import KernelExample
from drawing.families import conv_draft, conv_op

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


def test_a_written_convolution_has_the_faults_of_its_arguments() -> None:
    head = conv_op(2, (3, 3), stride=2, padding=2, dilation=2, groups=2)
    draft = conv_draft("convolution_2d", 2, head)
    naive = kernels_of(module_task(draft))[0].code
    found = {b.fault: b.code for b in broken_kernels(naive, 0, 9, among=ARGUMENT_FAULTS)}
    assert found.keys() >= {"padding_left_out", "stride_of_1", "dilation_of_1", "first_group"}
    assert "= i2 * 2 + p * 2;" in found["padding_left_out"]
    assert "= i2 + p * 2 - 2;" in found["stride_of_1"]
    assert "= i2 * 2 + p - 2;" in found["dilation_of_1"]

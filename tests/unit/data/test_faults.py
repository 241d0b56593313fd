"""Faults put into correct kernels."""

from __future__ import annotations

import pytest

from coding_framework.data.synthesis.catalog import catalog, kernels_of
from coding_framework.data.synthesis.faults import FAULTS, break_kernel

pytestmark = pytest.mark.unit


def test_every_fault_applies_to_some_kernel_and_changes_it() -> None:
    applied = set()
    for program in catalog()[::7]:
        for kernel in kernels_of(program.name):
            for fault in FAULTS:
                broken = break_kernel(kernel.code, 0, fault=fault.name)
                if broken is not None:
                    applied.add(broken.fault)
                    assert broken.code != kernel.code
    assert applied == {fault.name for fault in FAULTS}


def test_every_naive_kernel_can_be_broken_and_always_in_the_same_way() -> None:
    for program in catalog()[::5]:
        code = kernels_of(program.name)[0].code
        one, again = break_kernel(code, 7), break_kernel(code, 7)
        assert one is not None
        assert one == again


def test_a_repair_says_in_one_line_what_was_wrong() -> None:
    for fault in FAULTS:
        assert fault.why_fixed.endswith(".")
        assert "\n" not in fault.why_fixed

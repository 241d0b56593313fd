"""Every seeded fault is found, and the same kernels without it raise no alarm."""

from __future__ import annotations

import pytest

from support.emulator_harness import Gpu, compile_ptx
from support.fault_corpus import complaint, corpus, source_of

pytestmark = pytest.mark.unit


def test_every_seeded_fault_is_found_and_no_honest_kernel_is_accused() -> None:
    kernels = corpus()
    assert len(kernels) >= 200
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    gpu = Gpu(compile_ptx(source_of(kernels)), instruction_budget=200_000)
    assert [text for kernel in kernels if (text := complaint(gpu, kernel))] == []

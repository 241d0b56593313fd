"""Copies of elements that lie apart, by the emulator's memory and by the GPU's helper kernel."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.expected.inputs import bits_of, tensor_bytes
from coding_framework.cuda.gpu.helpers import our_source
from coding_framework.cuda.plan.launch_plan import CandidateFault, Copy
from support.emulator_harness import Gpu, compile_ptx

pytestmark = pytest.mark.unit

MEMORY = torch.arange(2 * 3 * 4 * 5)
VIEWS = {
    "transposed": MEMORY.view(20, 6).t(),
    "columns": MEMORY.view(10, 12)[:, 1:5],
    "expanded": MEMORY[:7].expand(6, 7),
    "all one": MEMORY[3].expand(2, 3),
    "channels last": MEMORY.view(2, 4, 5, 3).permute(0, 3, 1, 2),
    "steps": MEMORY[::7],
}
DTYPES = [torch.uint8, torch.bfloat16, torch.float32, torch.int64]


def _copy(of: torch.Tensor, to: int, source: int) -> Copy:
    layout = (of.element_size(), tuple(of.shape), tuple(of.stride()))
    source += of.storage_offset() * of.element_size()
    return Copy(to, source, of.numel() * of.element_size(), layout)


def _seen(view: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    memory = MEMORY.to(dtype)
    return memory, memory.as_strided(view.shape, view.stride(), view.storage_offset())


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_emulator_puts_the_elements_one_after_the_other(
    view: torch.Tensor, dtype: torch.dtype
) -> None:
    memory, wanted = _seen(view, dtype)
    with EmulatorDevice() as device:
        source = device.alloc(memory.numel() * memory.element_size())
        to = device.alloc(wanted.numel() * wanted.element_size())
        device.upload(source, tensor_bytes(memory))
        copy = _copy(wanted, to, source)
        device.copy(copy.destination, copy.source, copy.nbytes, copy.layout)
        found = bits_of(device.download(to, copy.nbytes)).view(dtype)
    assert torch.equal(found.reshape(wanted.shape), wanted)


def test_a_copy_from_beyond_an_allocation_is_the_candidates_fault() -> None:
    with EmulatorDevice() as device:
        source, to = device.alloc(64), device.alloc(64)
        with pytest.raises(CandidateFault, match="source of a copy"):
            device.copy(to, source, 64, (4, (4, 4), (5, 1)))


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_helper_kernel_does_the_same(gpu: Gpu, view: torch.Tensor, dtype: torch.dtype) -> None:
    memory, wanted = _seen(view, dtype)
    source = gpu.put(np.frombuffer(tensor_bytes(memory), np.uint8))
    to = gpu.put(np.zeros(wanted.numel() * wanted.element_size(), np.uint8))
    copy = _copy(wanted, to, source)
    assert copy.layout is not None
    itemsize, shape, strides = copy.layout
    none = (0,) * (16 - len(shape))
    axes = struct.pack("<32Q", *shape, *none, *strides, *none)
    gpu.run("gather", 2, 32, to, copy.source, wanted.numel(), itemsize, len(shape), axes)
    found = gpu.get(to, copy.nbytes, "u1").tobytes()
    assert torch.equal(bits_of(found).view(dtype).reshape(wanted.shape), wanted)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu(compile_ptx(our_source("helpers")))

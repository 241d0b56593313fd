"""The kernels by which a GPU finds tolerances and compares, run by the emulator: they come to what
PyTorch's way does."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from coding_framework.cuda.expected.tolerance import ExpectedOutput, Spread, worst_of
from coding_framework.cuda.gpu import tolerance_kernels
from coding_framework.cuda.gpu.helpers import our_source
from coding_framework.cuda.gpu.tolerance_kernels import LAYOUTS, GpuSpread
from support.emulator_harness import Gpu, compile_ptx

pytestmark = pytest.mark.unit

BLOCKS, THREADS = 3, 256
KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu(compile_ptx(our_source("tolerance_kernels")))


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    """Each launch is one of the emulator's, on copies of its tensors."""

    def launch(name: str, *arguments: torch.Tensor | float) -> None:
        sizes = tuple(ctypes.sizeof(kind) for kind in LAYOUTS[name])
        assert sizes == gpu.info.kernels[name].param_sizes
        tensors = {i: a for i, a in enumerate(arguments) if isinstance(a, torch.Tensor)}
        places = {i: gpu.put(_bytes(tensor)) for i, tensor in tensors.items()}
        values = [places.get(i, argument) for i, argument in enumerate(arguments)]
        gpu.run(name, BLOCKS, THREADS, *values)
        for i, tensor in tensors.items():
            if found := gpu.get(places[i], tensor.numel() * tensor.element_size(), "u1").tobytes():
                flat = torch.frombuffer(bytearray(found), dtype=tensor.dtype)
                tensor.copy_(flat.reshape(tensor.shape))
            gpu.machine.memory.free(places[i])

    monkeypatch.setattr(tolerance_kernels, "launch", launch)
    monkeypatch.setattr(tolerance_kernels, "blocks", lambda numbers: BLOCKS)


def _bytes(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """What lies in memory from its address on."""
    assert tensor.is_contiguous()
    assert not tensor.is_neg()
    return tensor.view(-1).view(torch.uint8).numpy()


def _put_special(tensor: torch.Tensor, generator: torch.Generator) -> None:
    places = torch.randint(0, tensor.numel(), (9,), generator=generator)
    values = [math.nan, math.inf, -math.inf] * 3
    tensor.view(-1)[places] = torch.tensor(values, dtype=tensor.dtype)


def _runs(dtype: torch.dtype, special: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Results in `dtype` with their references, over some twenty octaves; the first is of the
    inputs as they are."""
    generator = torch.Generator().manual_seed(0)
    shape = (41, 53)
    usual = torch.randn(shape, dtype=torch.float64, generator=generator)
    usual *= torch.exp2(torch.randint(-10, 11, shape, generator=generator))
    runs = []
    for _ in range(3):
        noise = torch.randn(shape, dtype=torch.float64, generator=generator)
        reference = usual * (1 + 1e-3 * noise)
        native = reference.to(dtype)
        if special:
            _put_special(reference, generator)
            _put_special(native, generator)
        runs.append((native, reference))
    return runs


def _same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """But for the order of a sum of squares."""
    return torch.allclose(found, wanted, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_a_tolerance_is_that_of_pytorchs_way(dtype: torch.dtype, special: bool) -> None:
    first, *others = _runs(dtype, special)
    for reduction_length in (1, 64):
        ways = [Spread(*first), GpuSpread(*first)]
        for way in ways:
            for native, reference in others:
                way.add(native, reference, 2.0**-20)
        wanted, found = (way.tolerance(dtype, reduction_length) for way in ways)
        assert found.shape == wanted.shape
        assert bool((wanted > 0).all())
        assert _same(found, wanted)


@pytest.mark.parametrize("view", ["every second", "expanded", "transposed", "a number", "negated"])
def test_outputs_may_lie_in_memory_in_any_way(view: str) -> None:
    views: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "every second": lambda t: t[..., ::2],
        "expanded": lambda t: t[:1, :1].expand(7, 300),
        "transposed": lambda t: t.T,
        "a number": lambda t: t[3, 4],
        "negated": lambda t: torch.complex(t.double(), t.double()).conj().imag,
    }
    dtype = torch.float64 if view == "negated" else torch.float32
    first, other, _ = [tuple(map(views[view], run)) for run in _runs(dtype, special=False)]
    ways = [Spread(*first), GpuSpread(*first)]
    for way in ways:
        way.add(*other, 2.0**-20)
    wanted, found = (way.tolerance(dtype, 1) for way in ways)
    assert _same(found, wanted)
    expected = ExpectedOutput(first[1], first[0], wanted)
    assert tolerance_kernels.worst_of(other[0], expected) == worst_of(other[0], expected)


def test_a_run_of_another_number_of_elements_is_no_run_of_the_function() -> None:
    native, reference = torch.ones(8), torch.ones(8, dtype=torch.float64)
    with pytest.raises(ValueError, match="8"):
        GpuSpread(native, reference[:7])
    for n, r in ((native[:7], reference), (native, reference[:7])):
        with pytest.raises(ValueError, match=r"\[7, 8\]"):
            GpuSpread(native, reference).add(n, r, 1e-6)
    with pytest.raises(ValueError, match="elements"):
        tolerance_kernels.worst_of(native, ExpectedOutput(reference, native, reference[:7]))


def test_scales_reach_over_all_numbers() -> None:
    reference = torch.tensor([2.0**-1022, 2.0**-1000, 1.0, 2.0**500], dtype=torch.float64)
    moved = reference * (1 + 2.0**-30)
    ways = [Spread(reference, reference), GpuSpread(reference, reference)]
    for way in ways:
        way.add(moved * (1 + 2.0**-40), moved, 2.0**-20)
    wanted, found = (way.tolerance(torch.float64, 1) for way in ways)
    assert _same(found, wanted)


@pytest.mark.parametrize("count", [0, 1])
def test_the_tolerance_of_hardly_anything(count: int) -> None:
    reference = torch.full((count,), 3.0, dtype=torch.float64)
    ways = [Spread(reference.float(), reference), GpuSpread(reference.float(), reference)]
    for way in ways:
        way.add(reference.float() + 1e-6, reference, 2.0**-20)
    wanted, found = (way.tolerance(torch.float32, 1) for way in ways)
    assert found.shape == (count,)
    assert _same(found, wanted)


@pytest.mark.parametrize("error", [0.0, 0.5, 0.99, 1.5, 40.0])
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_a_comparison_is_that_of_pytorchs_way(
    dtype: torch.dtype, special: bool, error: float
) -> None:
    """error: at the element with the largest, over its tolerance."""
    generator = torch.Generator().manual_seed(1)
    (native, reference), *_ = _runs(dtype, special)
    tolerance = 0.02 * reference.abs().nan_to_num(1.0, 1.0, 1.0)
    moves = torch.rand(reference.shape, dtype=torch.float64, generator=generator) - 0.5
    out = (reference + 2 * error * moves * tolerance).to(dtype)
    if special:
        out = torch.where(torch.isfinite(native), out, native)
        out.view(-1)[7] = math.nan
    expected = ExpectedOutput(reference, native, tolerance)
    wanted, found = (way(out, expected) for way in (worst_of, tolerance_kernels.worst_of))
    assert found == wanted
    if special or error in (0.0, 40.0):
        assert bool(wanted.wrong) == (special or error > 0)


def test_one_wrong_element_is_found_wherever_it_is() -> None:
    reference = torch.zeros(5000, dtype=torch.float64)
    for at in (0, 767, 768, 4999):
        out = torch.zeros(5000)
        out[at] = 1.0
        expected = ExpectedOutput(reference, torch.zeros(5000), torch.full_like(reference, 0.5))
        found = tolerance_kernels.worst_of(out, expected)
        assert (found.wrong, found.first_wrong, found.at, found.share) == (1, at, at, 2.0)


def test_a_tolerance_of_zero_lets_nothing_else_pass() -> None:
    reference = torch.ones(3, dtype=torch.float64)
    expected = ExpectedOutput(reference, reference, torch.zeros(3, dtype=torch.float64))
    out = torch.tensor([1.0, 1.0 + 2.0**-52, 1.0], dtype=torch.float64)
    for way in (worst_of, tolerance_kernels.worst_of):
        assert way(out, expected).first_wrong == 1
        assert way(reference, expected).first_wrong is None

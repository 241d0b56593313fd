"""Tolerances and comparisons by our kernels on a real GPU: those of PyTorch's way on the CPU."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch

from coding_framework.cuda.expected.tolerance import ExpectedOutput, Spread, compare, worst_of
from coding_framework.cuda.gpu import tolerance_kernels
from coding_framework.cuda.gpu.tolerance_kernels import GpuSpread

pytestmark = [pytest.mark.integration, pytest.mark.cuda]

N = (1 << 21) + 77


def test_outputs_may_lie_in_memory_in_any_way() -> None:
    made = torch.randn(300, 400, dtype=torch.float64)
    views: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda t: t[:, ::2], lambda t: t.T, lambda t: t[:1, :1].expand(500, 70),
        lambda t: t[3, 5], lambda t: t.diagonal(),
    )  # fmt: skip
    for view in views:
        found = []
        for device, kind in (("cpu", Spread), ("cuda", GpuSpread)):
            reference, native = view(made.to(device)), view(made.float().to(device))
            spread = kind(native, reference)
            spread.add(native, reference, 2.0**-20)
            found.append(spread.tolerance(torch.float32, 1).cpu())
        assert torch.allclose(found[1], found[0], rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_tolerances_and_comparisons_are_those_of_the_cpu(dtype: torch.dtype, special: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(N, dtype=torch.float64, generator=generator)
    moved = reference * (1 + 1e-6 * torch.randn(N, dtype=torch.float64, generator=generator))
    if special:
        reference[[5, 1000, N - 1]] = torch.tensor([math.nan, math.inf, -math.inf]).double()
    native, moved_native = reference.to(dtype), moved.to(dtype)
    found = []
    for device, kind in (("cpu", Spread), ("cuda", GpuSpread)):
        spread = kind(native.to(device), reference.to(device))
        spread.add(moved_native.to(device), moved.to(device), 2.0**-20)
        found.append(spread.tolerance(dtype, 64).cpu())
    assert torch.allclose(found[1], found[0], rtol=1e-13, atol=0.0)
    out = (reference + 1.001 * found[0] * torch.sign(moved)).to(dtype)
    expected = ExpectedOutput(reference, native, found[0])
    wanted = worst_of(out, expected)
    there = ExpectedOutput(*(t.cuda() for t in (reference, native, found[0])))
    assert tolerance_kernels.worst_of(out.cuda(), there) == wanted
    in_a_thread: list[bool] = []
    thread = threading.Thread(
        target=lambda: in_a_thread.append(compare(out.cuda(), (1,), there).passed)
    )
    thread.start()
    thread.join()
    assert in_a_thread == [wanted.wrong == 0]

"""`tolerance.Spread` and the comparison of floating outputs on a GPU, by kernels of ours
(`tolerance_kernels.cu`): a fifth of the passes over the numbers, and one wait.

They run in the judge's own context, on PyTorch's stream, on tensors of PyTorch's; no candidate's
code shares either.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from pathlib import Path
from typing import Any

import torch

from coding_framework.cuda.expected import tolerance
from coding_framework.cuda.expected.tolerance import (
    SMALLEST,
    TORCH_ERROR_FACTOR,
    ExpectedOutput,
    OutputSpread,
    Spread,
    Worst,
    eps_factor,
)
from coding_framework.cuda.gpu.driver import DriverError, call, cuda, packed
from coding_framework.cuda.gpu.helpers import our_cubin
from coding_framework.errors import DeviceError

_THREADS = 256
_BLOCKS_A_MULTIPROCESSOR = 8
_TABLE = 1027
"""Buckets of scales, as the kernels have them."""
_SEEN = 6
"""Numbers that a block of a comparison gives: `Seen`."""
_KINDS = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
_POINTER, _COUNT, _NUMBER = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_double
_SPREAD = (*[_POINTER] * 6, _COUNT, _NUMBER, ctypes.c_int)
_COMPARE = (*[_POINTER] * 5, _COUNT, _NUMBER, _NUMBER)
LAYOUTS: dict[str, tuple[Any, ...]] = {
    **{f"spread_{kind}": _SPREAD for kind in _KINDS.values()},
    "sum_of_squares": (*[_POINTER] * 2, _COUNT),
    "largest_of_like_scale": (*[_POINTER] * 5, _COUNT),
    "tolerance": (*[_POINTER] * 4, _COUNT, _NUMBER, _NUMBER),
    **{f"compare_{kind}": _COMPARE for kind in _KINDS.values()},
}
"""The parameters of each kernel."""


def build_kernels(major: int, minor: int) -> Path:
    """The kernels for a GPU of this compute capability, compiled once a machine in some seconds: to
    be called once before they are needed, when nobody waits for the GPU."""
    return our_cubin("tolerance_kernels", 10 * major + minor)


def has_kernels(native: torch.Tensor) -> bool:
    """Whether there are kernels for an output of this dtype where it lies."""
    return native.is_cuda and native.dtype in _KINDS


def spread_where_it_lies(native: torch.Tensor, reference: torch.Tensor) -> OutputSpread:
    """By our kernels where there are some for this output, else by PyTorch's operations."""
    kind = GpuSpread if has_kernels(native) else Spread
    return kind(native, reference)


def worst_where_it_lies(out: torch.Tensor, expected: ExpectedOutput) -> Worst:
    """By our kernels where there are some for this output, else by PyTorch's operations."""
    find_worst = worst_of if has_kernels(out) else tolerance.worst_of
    return find_worst(out, expected)


class GpuSpread:
    """`OutputSpread` by our kernels."""

    def __init__(self, native: torch.Tensor, reference: torch.Tensor) -> None:
        self._shape = reference.shape
        self._native, self._reference = _flat(native), _flat(reference)
        _require_as_many(self._reference, self._native)
        self._errors = torch.empty_like(self._reference)
        self._changes = torch.empty_like(self._reference)
        self._count = self._reference.numel()
        self._runs = 0

    def add(self, native: torch.Tensor, reference: torch.Tensor, eps: float) -> None:
        moved, moved_reference = _flat(native), _flat(reference)
        _require_as_many(self._reference, moved, moved_reference)
        launch(
            f"spread_{_KINDS[native.dtype]}",
            *(self._native, self._reference, moved, moved_reference, self._errors, self._changes),
            *(self._count, eps, int(self._runs == 0)),
        )
        self._runs += 1

    def tolerance(self, dtype: torch.dtype, reduction_length: int) -> torch.Tensor:
        values, errors, changes = self._reference, self._errors, self._changes
        device = values.device
        sums = torch.zeros(blocks(values), dtype=torch.float64, device=device)
        launch("sum_of_squares", values, sums, self._count)
        usual = sums.sum().sqrt_().div_(math.sqrt(max(1, self._count)))
        least = usual.clamp_min_(torch.finfo(dtype).tiny)
        table = torch.zeros(_TABLE, dtype=torch.int64, device=device)
        launch("largest_of_like_scale", values, errors, changes, least, table, self._count)
        factors = (eps_factor(dtype, reduction_length), TORCH_ERROR_FACTOR)
        launch("tolerance", values, changes, least, table, self._count, *factors)
        return changes.reshape(self._shape)


def worst_of(out: torch.Tensor, expected: ExpectedOutput) -> Worst:
    """See `tolerance.worst_of`."""
    assert expected.tolerance is not None
    values, references, natives, tolerances = (
        _flat(t) for t in (out, expected.reference, expected.native, expected.tolerance)
    )
    _require_as_many(values, references, natives, tolerances)
    seen = torch.empty((blocks(values), _SEEN), dtype=torch.float64, device=out.device)
    limits = (torch.finfo(out.dtype).tiny, SMALLEST)
    kernel = f"compare_{_KINDS[out.dtype]}"
    launch(kernel, values, references, natives, tolerances, seen, len(values), *limits)
    wrong, first_wrong, abs_error, rel_error, share, at = seen.cpu().unbind(1)
    wrongs, most = int(wrong.sum()), share.max()
    return Worst(
        wrong=wrongs,
        first_wrong=int(first_wrong.min()) if wrongs else None,
        abs_error=float(abs_error.max()),
        rel_error=float(rel_error.max()),
        share=float(most),
        at=int(at[share == most].min()),
    )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers in logical order, one after the other in memory."""
    return tensor.resolve_neg().reshape(-1).contiguous()


def _require_as_many(numbers: torch.Tensor, *others: torch.Tensor) -> None:
    """Raises ValueError where a run gave another number of elements: its shape depends on values,
    and a kernel would read beyond the shorter one."""
    counts = {t.numel() for t in (numbers, *others)}
    if len(counts) > 1:
        raise ValueError(f"outputs of {sorted(counts)} elements for one function")


def blocks(numbers: torch.Tensor) -> int:
    """Of a launch over so many numbers."""
    index = numbers.device.index or 0
    most = torch.cuda.get_device_properties(index).multi_processor_count
    return max(1, min(-(-numbers.numel() // _THREADS), most * _BLOCKS_A_MULTIPROCESSOR))


def launch(name: str, *arguments: torch.Tensor | float) -> None:
    """One of our kernels on PyTorch's stream, over the numbers of the first tensor. Raises
    DeviceError where it cannot be loaded or started, DeviceFullError for want of memory."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    assert all(t.is_contiguous() and t.device == tensors[0].device for t in tensors)
    values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
    params, keep = packed(LAYOUTS[name], values)
    device, grid = tensors[0].device, blocks(tensors[0])
    try:
        with torch.cuda.device(device):
            context, functions = _loaded(torch.cuda.current_device())
            call(cuda.cuCtxSetCurrent(context))  # a thread may not have used it yet
            stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
            launched = cuda.cuLaunchKernel(
                functions[name], grid, 1, 1, _THREADS, 1, 1, 0, stream, params, 0
            )
            call(launched)
    except DriverError as e:
        raise DeviceError(f"the judge's kernel {name} does not start: {e}") from e
    del keep  # the driver has copied the parameters when the call returns


@cache
def _loaded(index: int) -> tuple[Any, dict[str, Any]]:
    """PyTorch's context on this device, which is the current one, and our kernels in it."""
    context = call(cuda.cuDevicePrimaryCtxRetain(call(cuda.cuDeviceGet(index))))
    call(cuda.cuCtxSetCurrent(context))
    cubin = build_kernels(*torch.cuda.get_device_capability(index))
    module = call(cuda.cuModuleLoadData(cubin.read_bytes()))
    functions = {n: call(cuda.cuModuleGetFunction(module, n.encode())) for n in LAYOUTS}
    return context, functions

"""What is asked of the process that runs a caller's reference, and what it answers, as bytes.

The answer comes from a process that hostile code has run in: it is read as plain numbers of bounded
size, held against what was asked, and never unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import torch

from coding_framework.cuda.expected.inputs import (
    DTYPE_NAMES,
    TORCH_DTYPES,
    bits_of,
    tensor_bytes,
    tensor_from_bits,
)
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.expected.tolerance import ExpectedOutput, PointedAt
from coding_framework.errors import UsageError

_HEADER = struct.Struct("<I")
_MOST_TENSORS = 4096
_MOST_DIMENSIONS = 16


def packed(told: Any, tensors: Sequence[torch.Tensor]) -> bytes:
    """JSON and tensors as one message."""
    kinds = [
        {"dtype": DTYPE_NAMES[t.dtype], "shape": list(t.shape), "strides": _strides(t)}
        for t in tensors
    ]
    header = json.dumps({"told": told, "tensors": kinds}).encode()
    return b"".join((_HEADER.pack(len(header)), header, *map(tensor_bytes, tensors)))


def unpacked(message: bytes) -> tuple[Any, list[torch.Tensor]]:
    """JSON and tensors of a message. Raises ValueError where it is none."""
    (length,) = _HEADER.unpack_from(message)
    header = json.loads(message[_HEADER.size : _HEADER.size + length])
    kinds, at = header["tensors"], _HEADER.size + length
    if not isinstance(kinds, list) or len(kinds) > _MOST_TENSORS:
        raise ValueError("too many tensors")
    tensors = []
    for kind in kinds:
        dtype, shape = TORCH_DTYPES[kind["dtype"]], _extents(kind["shape"])
        size = math.prod(shape) * dtype.itemsize
        if at + size > len(message):
            raise ValueError("a tensor is cut off")
        flat = _flat(message[at : at + size], dtype)
        tensors.append(_laid_out(flat.reshape(shape), kind["strides"]))
        at += size
    if at != len(message):
        raise ValueError("there is more than was said")
    return header["told"], tensors


def _extents(given: Any) -> tuple[int, ...]:
    fits = isinstance(given, list) and len(given) <= _MOST_DIMENSIONS
    if not fits or not all(type(n) is int and 0 <= n < 2**40 for n in given):
        raise ValueError("a shape is none")
    return tuple(given)


def _flat(data: bytes, dtype: torch.dtype) -> torch.Tensor:
    return tensor_from_bits(bits_of(bytearray(data)), dtype)


def _strides(tensor: torch.Tensor) -> list[int] | None:
    """None: the usual ones. Of a tensor whose dimensions lie in another order, without gaps."""
    if tensor.is_contiguous():
        return None
    return list(tensor.stride()) if _is_dense(tensor.shape, tensor.stride()) else None


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    wanted = 1
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if stride != wanted:
            return False
        wanted *= extent
    return True


def _laid_out(tensor: torch.Tensor, strides: Any) -> torch.Tensor:
    if strides is None:
        return tensor
    if len(strides) != tensor.dim() or not all(type(n) is int and n >= 0 for n in strides):
        raise ValueError("strides are none")
    if not _is_dense(tensor.shape, strides):
        raise ValueError("a tensor has gaps")
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    return made.copy_(tensor)


# --- an expectation -------------------------------------------------------------------------------


def packed_outputs(
    signature: ModelSignature,
    parameters: Sequence[torch.Tensor],
    outputs: Sequence[ExpectedOutput],
) -> bytes:
    """What the process answers."""
    told = {
        "names": signature.parameter_names,
        "outputs": [
            [o.tolerance is not None, o.decides is not None, o.pointed and o.pointed.any_order]
            for o in outputs
        ],
    }
    tensors = [*parameters]
    for output in outputs:
        tensors += [output.reference, output.native]
        tensors += [t for t in (output.tolerance, output.decides) if t is not None]
        if output.pointed is not None:
            pointed = output.pointed
            tensors += [pointed.values, pointed.allowed, pointed.rows.contiguous()]
    return packed(told, tensors)


def unpacked_outputs(
    message: bytes,
) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...], tuple[ExpectedOutput, ...]]:
    """Names and values of the parameters, and the outputs. Raises UsageError where the process that
    ran the reference says anything else."""
    try:
        told, tensors = unpacked(message)
        names = tuple(told["names"])
        if not all(isinstance(name, str) and len(name) < 1000 for name in names):
            raise ValueError("a parameter has no name")
        rest = iter(tensors)
        parameters = tuple(next(rest) for _ in names)
        outputs = []
        for has_tolerance, has_mask, any_order in told["outputs"]:
            reference, native = next(rest), next(rest)
            tolerance = next(rest) if has_tolerance else None
            mask = next(rest) if has_mask else None
            pointed = None
            if any_order is not None:
                pointed = PointedAt(next(rest), next(rest), next(rest), bool(any_order))
            outputs.append(_checked(ExpectedOutput(reference, native, tolerance, mask, pointed)))
        if next(rest, None) is not None or not outputs:
            raise ValueError("tensors are left over, or no output is there")
        return names, parameters, tuple(outputs)
    except (ValueError, KeyError, TypeError, StopIteration, RuntimeError, struct.error) as e:
        raise UsageError(
            "the reference changed what its process answers: give one that only computes"
        ) from e


def _checked(output: ExpectedOutput) -> ExpectedOutput:
    """Raises ValueError where its tensors do not fit together."""
    native, reference, tolerance = output.native, output.reference, output.tolerance
    floating = native.is_floating_point()
    wanted = torch.float64 if floating else native.dtype
    fits = reference.shape == native.shape and reference.dtype is wanted
    fits &= (tolerance is not None) == floating
    if tolerance is not None:
        fits &= tolerance.shape == native.shape and tolerance.dtype is torch.float64
        fits &= not bool((tolerance < 0).any())
    if output.decides is not None:
        fits &= output.decides.shape == native.shape and output.decides.dtype is torch.bool
    if (pointed := output.pointed) is not None:
        fits &= pointed.values.dim() == 2 and pointed.values.dtype is torch.float64
        fits &= pointed.allowed.shape == pointed.values.shape[:1] and not floating
        fits &= pointed.rows.shape == native.shape and pointed.rows.dtype is torch.int64
        fits = fits and bool(((pointed.rows >= 0) & (pointed.rows < len(pointed.values))).all())
        fits &= pointed.values.numel() > 0
    if not fits:
        raise ValueError("an output does not fit its reference")
    return output

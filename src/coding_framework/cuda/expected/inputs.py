"""Inputs that no candidate has seen: drawn from a secret, over families that leave no shortcut.

One draw gives every input of a case values of another scale, sign, mean and trend, inside the
domain that the task declares, so that an answer which is constant, which looks at a prefix, or
which knows the mean only is wrong in at least one draw. The same (secret, task, case, seed) gives
the same bytes on every machine: numpy's Philox generator, no global state.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch

from coding_framework.reference_model.structures import with_structure
from coding_framework.types import ALIGNED_ELEMENTS, DType, ProbeValues, TensorSpec, TestCase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(DType)}
DTYPE_NAMES: dict[torch.dtype, str] = {value: key for key, value in TORCH_DTYPES.items()}

_INTEGER_DOMAIN: dict[DType, tuple[int, int]] = {
    "int8": (-100, 100),
    "uint8": (0, 200),
    "int16": (-1000, 1000),
    "int32": (-30_000, 30_000),
    "int64": (-3_000_000_000, 3_000_000_000),
    "bool": (0, 1),
}
"""As far as the product of two fits: an int64 taken for an int32 shows."""
_PROBE_SPAN = 10.0
_POOL = 1 << 18
"""Elements that are drawn one by one for an input of real size."""
_SHARE_APART = 0.125
"""Of the numbers of an input of integers that lie outside its range, where it may have such."""
_FEWEST_SLICES = 4
_FEW_OF = 32
"""Elements of which one is another in an input that is nearly the same."""


def derive_seed(secret: bytes, *parts: str | int) -> int:
    """A 64-bit seed that says nothing of the secret (HMAC-SHA256 over the parts)."""
    message = "\0".join(str(part) for part in parts).encode()
    return int.from_bytes(hmac.new(secret, message, hashlib.sha256).digest()[:8], "little")


def draw_inputs(
    case: TestCase, secret: bytes, task_digest: str, seed: int
) -> tuple[torch.Tensor, ...]:
    """The inputs of one draw, on the CPU, in the order, dtypes and layouts of the case.

    Input j of draw `seed` takes family (seed + j): inputs of one draw differ in kind, and five
    consecutive seeds visit every family for every input.
    """
    count = len(case.inputs)
    return tuple(draw_input(case, j, secret, task_digest, seed) for j in range(count))


def draw_input(case: TestCase, j: int, secret: bytes, task_digest: str, seed: int) -> torch.Tensor:
    """Input j of `draw_inputs`."""
    key = derive_seed(secret, "input", task_digest, case.name, seed, j)
    generator = np.random.Generator(np.random.Philox(key=key))
    spec = case.inputs[j]
    return structured(_draw(spec, (seed + j) % len(_UNBOUNDED), generator), spec)


def structured(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """An input of these values that has the structure and the layout which it always has."""
    return laid_out(with_structure(values, spec.keeps, spec.high), spec)


def laid_out(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """These values as the user's program hands them over: with its strides, from where in memory
    its tensor starts. What lies between holds values of the tensor too."""
    if not (spec.strides or spec.start) or not values.numel():
        return values
    strides = spec.strides or values.contiguous().stride()
    apart = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
    flat = values.reshape(-1)
    span = spec.start + spanned(spec.shape, strides)
    memory = flat.repeat(-(-span // len(flat)))[:span]
    tensor = memory.as_strided(spec.shape, strides, spec.start)
    tensor[apart].copy_(values[apart])
    return tensor


def nearly(values: torch.Tensor, spec: TensorSpec, key: int) -> torch.Tensor:
    """The same input, but for a few elements of it: who knows it again by a sample of them is
    likely to. Whole numbers and what has a structure stay."""
    if not values.is_floating_point() or spec.keeps is not None or values.numel() < 2:
        return values
    flat = values.reshape(-1).clone()
    generator = torch.Generator().manual_seed(key >> 1)
    few = torch.randperm(len(flat), generator=generator)[: max(1, len(flat) // _FEW_OF)]
    flat[few] = flat[few - 1]
    return laid_out(flat.reshape(spec.shape), spec)


def spanned(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last of a tensor."""
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=False))
    return 0 if 0 in shape else 1 + last


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor lies in, from an aligned address on, flat."""
    start = tensor.storage_offset() % ALIGNED_ELEMENTS
    if not tensor.numel() or (tensor.is_contiguous() and not start):
        return tensor.reshape(-1)
    span = start + spanned(tensor.shape, tensor.stride())
    return tensor.as_strided((span,), (1,), tensor.storage_offset() - start)


def seen_as(memory: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor in a memory that has the layout of the one that `like` lies in."""
    return memory.as_strided(like.shape, like.stride(), like.storage_offset() % ALIGNED_ELEMENTS)


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Of its elements; of those that an expanded axis repeats once."""
    extents = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    count = math.prod(extents) if tensor.numel() else 0
    return count * tensor.element_size()


def draw_large_inputs(
    case: TestCase, secret: bytes, task_digest: str, seed: int, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """As `draw_inputs`, for shapes of real size, on a GPU: the values of a large input are picked
    there, at random, from a quarter of a million drawn as usual. So they have the family's values,
    no trend and no quiet slices."""
    drawn = draw_pools(case, secret, task_digest, seed)
    return picked_inputs(drawn, case, secret, task_digest, seed, device)


def draw_evenly(
    case: TestCase, secret: bytes, task_digest: str, seed: int, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Inputs of the first family alone, even over the domain or normal, whatever their size."""
    first = len(_UNBOUNDED) * (seed + len(case.inputs))
    drawn = (
        draw_large_inputs(case, secret, task_digest, first - j, device)[j]
        for j in range(len(case.inputs))
    )
    return tuple(drawn)


def draw_pools(
    case: TestCase, secret: bytes, task_digest: str, seed: int
) -> tuple[torch.Tensor, ...]:
    """The part of `draw_large_inputs` that needs no GPU: smaller inputs whole, and the values that
    a large one is made of."""
    small = case.model_copy(
        update={"inputs": tuple(_with_fewer_elements(spec) for spec in case.inputs)}
    )
    return draw_inputs(small, secret, task_digest, seed)


def picked_inputs(
    pools: Sequence[torch.Tensor], case: TestCase, secret: bytes, task_digest: str, seed: int,
    device: torch.device,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """The inputs made of what `draw_pools` drew."""
    tensors = []
    for j, (spec, drawn) in enumerate(zip(case.inputs, pools, strict=True)):
        values = drawn.to(device)
        if drawn.shape != spec.shape:
            generator = torch.Generator(device)
            generator.manual_seed(derive_seed(secret, "pick", task_digest, case.name, seed, j) >> 1)
            count = math.prod(spec.shape)
            picks = torch.randint(_POOL, (count,), generator=generator, device=device)
            values = with_structure(values[picks].reshape(spec.shape), spec.keeps, spec.high)
        tensors.append(laid_out(values, spec))
    return tuple(tensors)


def _with_fewer_elements(spec: TensorSpec) -> TensorSpec:
    if math.prod(spec.shape) <= _POOL:
        return spec
    return spec.model_copy(update={"shape": (_POOL,), "keeps": None, "strides": ()})


def draw_probe(
    case: TestCase, values: ProbeValues, secret: bytes, task_digest: str, seed: int
) -> tuple[torch.Tensor, ...]:
    """Inputs with the kind of values that a tester asks for, inside the declared domain; where an
    input declares none, inside [-10, 10], where the judge's own draws lie too."""
    if values == "normal":
        return draw_inputs(case, secret, task_digest, seed)
    tensors = []
    for j, spec in enumerate(case.inputs):
        generator = np.random.Generator(
            np.random.Philox(key=derive_seed(secret, "probe", task_digest, values, seed, j))
        )
        low, high = _span(spec)
        numbers = np.clip(_PROBES[values](spec.shape, low, high, generator), low, high)
        if spec.dtype in _INTEGER_DOMAIN:
            numbers = np.floor(numbers)
        tensor = torch.from_numpy(np.ascontiguousarray(numbers)).to(TORCH_DTYPES[spec.dtype])
        tensors.append(structured(tensor.reshape(spec.shape), spec))
    return tuple(tensors)


def _span(spec: TensorSpec) -> tuple[float, float]:
    low, high = _INTEGER_DOMAIN.get(spec.dtype, (-_PROBE_SPAN, _PROBE_SPAN))
    if spec.low is not None:
        low, high = spec.low, max(spec.low, high)
    if spec.high is not None:
        low, high = min(low, spec.high), spec.high
    return float(low), float(high)


def tensor_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order as a flat uint8 tensor, where the tensor lies."""
    flat = tensor.detach().contiguous().reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # one element may have any stride, also 0
    return flat.view(torch.uint8)


def tensor_view(tensor: torch.Tensor) -> memoryview:
    """The bytes of `tensor_bytes`, which are the tensor's own where it is contiguous on the CPU."""
    return tensor_bits(tensor).cpu().numpy().data


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The elements in row-major order, as the device stores them."""
    return tensor_bits(tensor).cpu().numpy().tobytes() if tensor.numel() else b""


def tensor_from_bits(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The flat tensor of which `tensor_bits` gives `bits`."""
    if dtype is torch.bool:  # any other byte than 0 and 1 is no bool: torch would misread it
        return bits != 0
    return bits.view(dtype)


def bits_of(data: bytes | bytearray | memoryview) -> torch.Tensor:
    """Bytes as a flat uint8 tensor on the CPU: the same ones, where they can be written to."""
    if not data:
        return torch.empty(0, dtype=torch.uint8)
    own = data if isinstance(data, memoryview) and not data.readonly else bytearray(data)
    return torch.frombuffer(own, dtype=torch.uint8)


def _draw(spec: TensorSpec, family: int, generator: np.random.Generator) -> torch.Tensor:
    dtype = TORCH_DTYPES[spec.dtype]
    if spec.dtype in _INTEGER_DOMAIN:
        return _draw_integers(spec, family, generator).to(dtype)
    low, high = spec.low, spec.high
    across_zero = (low is None or low < 0) and (high is None or high > 0)
    if low is not None and high is not None:
        unit = _bounded(family, spec.shape, generator)
        values = low + (high - low) * unit
    else:
        values = _UNBOUNDED[family](spec.shape, generator)
        if low is not None:
            values = low + np.abs(values)
        elif high is not None:
            values = high - np.abs(values)
    if family == 0 and across_zero:
        values = _with_quiet_slices(values, generator)
    tensor = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    if low is not None or high is not None:  # rounding to the dtype may step outside
        tensor = tensor.clamp(low, high)
    return tensor.reshape(spec.shape)


def _with_quiet_slices(values: Floats, g: np.random.Generator) -> Floats:
    """One slice in eight along the first axis is a thousand times smaller: what is normalised by
    its own variance shows whether the small number under the root is there. Most slices stay, and
    with them the scale that errors are measured by."""
    if values.ndim < 2 or len(values) < _FEWEST_SLICES:
        return values
    quiet = g.permutation(len(values))[: max(1, len(values) // 8)]
    quieter = values.copy()
    quieter[quiet] *= 1e-3
    return quieter


def _draw_integers(spec: TensorSpec, family: int, generator: np.random.Generator) -> torch.Tensor:
    default_low, default_high = _INTEGER_DOMAIN[spec.dtype]
    low = default_low if spec.low is None else math.ceil(spec.low)
    high = max(low, default_high) if spec.high is None else math.floor(spec.high)
    unit = _bounded(family, spec.shape, generator)
    values = np.minimum(low + np.floor(unit * (high - low + 1)), high).astype(np.int64)
    if spec.apart:
        marked = generator.random(spec.shape) < _SHARE_APART
        values = np.where(marked, generator.choice(spec.apart, spec.shape), values)
    return torch.from_numpy(np.ascontiguousarray(values)).reshape(spec.shape)


# --- families -------------------------------------------------------------------------------------


def _normal(shape: tuple[int, ...], g: np.random.Generator) -> Floats:
    return g.standard_normal(shape)


def _positive(shape: tuple[int, ...], g: np.random.Generator) -> Floats:
    """Far from zero mean: an answer that ignores the mean, or cancels badly, is wrong. None below
    1.5: so is a minimum that starts with 0 or 1."""
    return 1.5 + 0.75 * np.abs(g.standard_normal(shape))


def _wide(shape: tuple[int, ...], g: np.random.Generator) -> Floats:
    return -1.0 + 3.0 * g.standard_normal(shape)


def _ramp(shape: tuple[int, ...], g: np.random.Generator) -> Floats:
    """A trend along the tensor and along its rows: a prefix says nothing of the tail."""
    direction = 1.0 if g.random() < 0.5 else -1.0
    return direction * 4.0 * (_trend(shape) - 0.5) + 0.5 * g.standard_normal(shape)


def _scales(shape: tuple[int, ...], g: np.random.Generator) -> Floats:
    """Magnitudes from 0.001 to 10, both signs: absolute tolerances show."""
    sign = np.where(g.random(shape) < 0.5, -1.0, 1.0)
    return sign * 10.0 ** g.uniform(-3.0, 1.0, shape)


_UNBOUNDED: tuple[Callable[[tuple[int, ...], np.random.Generator], Floats], ...] = (
    _normal,
    _positive,
    _wide,
    _ramp,
    _scales,
)


def _bounded(family: int, shape: tuple[int, ...], g: np.random.Generator) -> Floats:
    """Values in [0, 1] to be stretched over a declared domain; the same five ideas."""
    if family == 0:
        return g.random(shape)
    if family == 1:
        return np.asarray(np.cbrt(g.random(shape)))  # Beta(3, 1)
    if family == 2:
        return np.asarray(1.0 - np.cbrt(g.random(shape)))
    if family == 3:
        trend = _trend(shape) if g.random() < 0.5 else 1.0 - _trend(shape)
        return np.asarray(np.clip(0.8 * trend + 0.2 * g.random(shape), 0.0, 1.0))
    ends = np.asarray(np.sin(0.5 * np.pi * g.random(shape)) ** 2)  # Beta(0.5, 0.5)
    ends[g.random(shape) < 0.02] = 0.0
    ends[g.random(shape) < 0.02] = 1.0
    return ends


def _alternating(shape: tuple[int, ...], low: float, high: float, g: np.random.Generator) -> Floats:
    """The ends of the domain in turn: sums cancel, extremes lie side by side."""
    return np.where(np.arange(math.prod(shape)) % 2 == 0, low, high).reshape(shape)


def _outlier(shape: tuple[int, ...], low: float, high: float, g: np.random.Generator) -> Floats:
    """Small values but one, which is the largest that the domain has."""
    values = 0.01 * g.standard_normal(shape)
    if values.size:
        values.reshape(-1)[g.integers(values.size)] = high
    return values


_PROBES: dict[
    ProbeValues, Callable[[tuple[int, ...], float, float, np.random.Generator], Floats]
] = {
    "zeros": lambda shape, low, high, g: np.zeros(shape),
    "ones": lambda shape, low, high, g: np.ones(shape),
    "ends": lambda shape, low, high, g: np.where(g.random(shape) < 0.5, low, high),
    "alternating": _alternating,
    "outlier": _outlier,
    "ramp": lambda shape, low, high, g: low + (high - low) * _trend(shape),
}


def _trend(shape: tuple[int, ...]) -> Floats:
    """From 0 at the first element to 1 at the last, rising along the last axis as well."""
    count = math.prod(shape)
    overall = (np.arange(count, dtype=np.float64) / max(1, count - 1)).reshape(shape)
    if not shape:
        return overall
    along = np.arange(shape[-1], dtype=np.float64) / max(1, shape[-1] - 1)
    return 0.5 * overall + 0.5 * along

"""Functions of torch that make tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _host
from ._deferred import Deferred, State
from ._handle import Handle, deferred_tensor, from_values, make, sizes_of
from ._tensor import Tensor
from ._types import BY_NAME, Device, DType, Size


class _Defaults:
    dtype = BY_NAME["float32"]


def get_default_dtype() -> DType:
    return _Defaults.dtype


def set_default_dtype(d: DType) -> None:
    _Defaults.dtype = d


def set_default_device(device: Any) -> None:
    Device.default = None if device is None else Device(device)


def empty(*size: Any, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
    return _made(size, "torch.empty", None, dtype, device)


def zeros(*size: Any, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
    return _made(size, "torch.zeros", 0, dtype, device)


def ones(*size: Any, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
    return _made(size, "torch.ones", 1, dtype, device)


def full(
    size: Any, fill_value: Any, *, dtype: DType | None = None, device: Any = None, **_: Any
) -> Tensor:
    if dtype is None and not isinstance(fill_value, float):
        dtype = BY_NAME["bool" if isinstance(fill_value, bool) else "int64"]
    return _made((size,), "torch.full", fill_value, dtype, device)


def _made(
    size: tuple[Any, ...], origin: str, fill: float | None, of: DType | None, where: Any
) -> Tensor:
    return make(sizes_of(size), of or _Defaults.dtype, where or Device.default, origin, fill)


def empty_strided(
    size: Any, stride: Any, *, dtype: DType | None = None, device: Any = None, **_: Any
) -> Tensor:
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return empty(extent, dtype=dtype, device=device).as_strided(size, stride)


def _like(origin: str, fill: float | None) -> Callable[..., Tensor]:
    def like(input: Tensor, *, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
        of, where = dtype or input.dtype, device or input.device
        if fill is None and not input.is_contiguous() and not State.constructing:
            return empty_strided(input.shape, input.stride(), dtype=of, device=where)
        return make(list(input.shape), of, where, origin, fill)

    return like


empty_like = _like("torch.empty", None)
zeros_like = _like("torch.zeros", 0)
ones_like = _like("torch.ones", 1)


def full_like(input: Tensor, fill_value: float, **options: Any) -> Tensor:
    return _like("torch.full", fill_value)(input, **options)


def tensor(data: Any, *, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data.clone().to(device=device, dtype=dtype)
    values: list[bool | int | float] = []
    shape = _flattened(data, values)
    if dtype is None:
        kinds = {type(v) for v in values}
        whole = bool(values) and float not in kinds
        dtype = BY_NAME["bool" if kinds == {bool} else "int64"] if whole else _Defaults.dtype
    where = device or Device.default
    on_cuda = where is not None and Device(where).type == "cuda"
    if State.constructing:
        fill = values[0] if len(values) == 1 else None
        made = Deferred(shape, dtype, "torch.tensor", values=values, fill=fill, on_cuda=on_cuda)
        return deferred_tensor(made)
    return from_values(values, shape, dtype, on_cuda)


def legacy_tensor(data: tuple[Any, ...], dtype: DType, device: Any = None) -> Tensor:
    """`torch.Tensor(...)` and its typed forms: of sizes with whatever the memory holds, of values,
    or of another tensor."""
    if len(data) == 1 and isinstance(data[0], Tensor):
        return data[0].detach()
    if len(data) == 1 and isinstance(data[0], (list, tuple)) and not isinstance(data[0], Size):
        return tensor(data[0], dtype=dtype, device=device)
    return empty(*(data or (0,)), dtype=dtype, device=device)


Handle.legacy = legacy_tensor


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


def _flattened(data: Any, values: list[bool | int | float]) -> tuple[int, ...]:
    """The shape of nested lists; their numbers go to `values`. Raises as torch does."""
    if isinstance(data, Tensor):
        data = data.item()
    if isinstance(data, (bool, int, float)):
        values.append(data)
        return ()
    if not isinstance(data, (list, tuple, range)):
        raise TypeError(f"could not infer dtype of {type(data).__name__}")
    shapes = [_flattened(item, values) for item in data]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("expected sequences of equal length")
    return (len(shapes), *(shapes[0] if shapes else ()))


# --- what is drawn or computed: only what it is, while the model is built -------------------------


def _waiting(name: str, shape: tuple[int, ...], dtype: DType | None, device: Any = None) -> Tensor:
    if not State.constructing:
        _host.reject(f"torch.{name}")
    on_cuda = device is not None and Device(device).type == "cuda"
    made = Deferred(shape, dtype or _Defaults.dtype, f"torch.{name}", on_cuda=on_cuda)
    return deferred_tensor(made)


def _random(name: str) -> Callable[..., Tensor]:
    def draw(*size: Any, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
        return _waiting(name, tuple(sizes_of(size)), dtype, device)

    return draw


def _random_like(name: str) -> Callable[..., Tensor]:
    def draw(input: Tensor, *, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
        return _waiting(name, tuple(input.shape), dtype or input.dtype, device or input.device)

    return draw


rand, randn = _random("rand"), _random("randn")
rand_like, randn_like = _random_like("rand_like"), _random_like("randn_like")


def randint(*bounds: Any, size: Any = None, dtype: DType | None = None, **_: Any) -> Tensor:
    shape = size if size is not None else bounds[-1]
    return _waiting("randint", tuple(shape), dtype or BY_NAME["int64"])


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **_: Any) -> Tensor:
    shape = size if size is not None else mean.shape if isinstance(mean, Tensor) else std.shape
    return _waiting("normal", tuple(shape), None)


def arange(*bounds: Any, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    count = max(0, -int(-(end - start) // step))
    whole = all(isinstance(b, int) for b in bounds)
    return _waiting("arange", (count,), dtype or (BY_NAME["int64"] if whole else None), device)


def linspace(start: Any, end: Any, steps: int, dtype: DType | None = None, **_: Any) -> Tensor:
    return _waiting("linspace", (steps,), dtype)


def eye(n: int, m: int | None = None, dtype: DType | None = None, **_: Any) -> Tensor:
    return _waiting("eye", (n, n if m is None else m), dtype)


def _triangle(name: str) -> Callable[..., Tensor]:
    def take(input: Tensor, *_: Any, **__: Any) -> Tensor:
        if input._deferred is None:
            _host.reject(f"torch.{name}")
        return _waiting(name, tuple(input.shape), input.dtype, input.device)

    return take


tril, triu = _triangle("tril"), _triangle("triu")


def manual_seed(seed: int) -> None:
    """Nothing is drawn here."""

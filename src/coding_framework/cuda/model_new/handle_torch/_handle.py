"""A tensor as a handle: its metadata, its memory, and the host library's functions on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from . import _host
from ._deferred import Deferred, State
from ._host import Value
from ._types import BY_CODE, BY_NAME, Device, DType, Size, names

if TYPE_CHECKING:
    from ._tensor import Tensor


class Handle:
    """What a Tensor is made of. It lies on the device ("cuda"), in this process ("cpu"), or is
    deferred (see _deferred). Asking for its metadata asks nobody."""

    tensor_class: ClassVar[type[Tensor]]
    """What functions give: Tensor, which says so itself."""

    requires_grad = False
    grad = None
    grad_fn = None
    is_leaf = True
    is_sparse = False
    is_quantized = False
    layout = None
    names = ()

    legacy: ClassVar[Callable[..., Tensor]]
    """What `torch.Tensor(...)` gives: the function in _create, which says so itself."""

    _pointer: int
    _deferred: Deferred | None

    def __init__(self, *data: Any, device: Any = None) -> None:
        """`torch.Tensor(2, 3)`: of these sizes; `torch.Tensor([1.0, 2.0])`: of these values."""
        self._take(Handle.legacy(data, BY_NAME["float32"], device))

    @classmethod
    def at(cls, pointer: int, deferred: Deferred | None = None) -> Self:
        """A handle on what the host library has at `pointer`."""
        made = cls.__new__(cls)
        made._pointer, made._deferred = pointer, deferred
        return made

    def _take(self, other: Handle) -> None:
        """Become the handle that `other` was, which is not used again."""
        self._pointer, self._deferred = other._pointer, other._deferred
        other.__dict__["_pointer"] = None

    def __del__(self) -> None:
        pointer = self.__dict__.get("_pointer")
        if pointer is not None:
            _host.release(pointer)

    @property
    def shape(self) -> Size:
        meta = _host.metadata(self._pointer)
        return Size(meta.sizes[: meta.dims])

    def stride(self, i: int | None = None) -> Any:
        meta = _host.metadata(self._pointer)
        strides = tuple(meta.strides[: meta.dims])
        return strides if i is None else strides[i]

    def size(self, dim: int | None = None) -> Any:
        shape = self.shape
        if dim is None:
            return shape
        if not -len(shape) <= dim < len(shape):
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-len(shape)}, "
                f"{len(shape) - 1}], but got {dim})"
            )
        return shape[dim]

    @property
    def dtype(self) -> DType:
        return BY_CODE[_host.metadata(self._pointer).dtype]

    @property
    def device(self) -> Device:
        return Device("cuda", 0) if self.is_cuda else Device("cpu")

    @property
    def is_cuda(self) -> bool:
        if self._deferred is not None:
            return self._deferred.on_cuda
        return not _host.metadata(self._pointer).on_host

    @property
    def is_cpu(self) -> bool:
        return not self.is_cuda

    is_meta = False

    @property
    def ndim(self) -> int:
        return int(_host.metadata(self._pointer).dims)

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    def numel(self) -> int:
        return math.prod(self.shape)

    nelement = numel

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    def is_contiguous(self, memory_format: Any = None) -> bool:
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.stride()), strict=True):
            if n != 1 and stride != step:
                return self.numel() == 0
            step *= n
        return memory_format is None or "channels_last" not in repr(memory_format)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return False

    def is_pinned(self) -> bool:
        return False

    def get_device(self) -> int:
        return 0 if self.is_cuda else -1

    def data_ptr(self) -> int:
        return int(_host.metadata(resolved(self)).data)

    def storage_offset(self) -> int:
        return int(call("storage_offset", self)) if self._deferred is None else 0

    def item(self) -> Any:
        if self._deferred is not None and self._deferred.fill is not None:
            return BY_CODE[_host.metadata(self._pointer).dtype].unpack(
                self.dtype.pack([self._deferred.fill])
            )[0]
        value = call("item", self)
        return bool(value) if self.dtype is BY_NAME["bool"] else value

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"tensor(handle, size={list(self.shape)}, dtype={self.dtype})"


# --- between values and handles ------------------------------------------------------------------


def resolved(tensor: Handle) -> int:
    """A pointer to a tensor with memory: of a deferred one, once its memory is there."""
    deferred = tensor._deferred
    if deferred is None:
        return tensor._pointer
    meta = _host.metadata(tensor._pointer)
    sizes, strides = tuple(meta.sizes[: meta.dims]), tuple(meta.strides[: meta.dims])
    offset = int(meta.data) // tensor.dtype.itemsize
    real = call("as_strided", deferred.memory(), list(sizes), list(strides), offset)
    real._pointer, tensor._pointer = tensor._pointer, real._pointer
    tensor._deferred = None
    return tensor._pointer


def value_of(argument: Any, *, metadata_only: bool = False) -> Value:
    """A Python value as an argument of a function. Raises TypeError."""
    value = Value()
    if isinstance(argument, Handle):
        value.kind = _host.TENSOR
        value.tensor = argument._pointer if metadata_only else resolved(argument)
    elif argument is None:
        value.kind = _host.NONE
    elif isinstance(argument, bool):
        value.kind, value.integer = _host.BOOL, argument
    elif isinstance(argument, int):
        value.kind, value.integer = _host.INT, argument
    elif isinstance(argument, float):
        value.kind, value.floating = _host.FLOAT, argument
    elif isinstance(argument, str):
        value.kind, value.text = _host.STRING, argument.encode()
    elif isinstance(argument, DType):
        value.kind, value.integer = _host.INT, argument.code
    elif isinstance(argument, (tuple, list)):
        items = [value_of(item, metadata_only=metadata_only) for item in argument]
        value.kind, value.count = _host.LIST, len(items)
        value.items = (Value * max(1, len(items)))(*items)
    else:
        raise TypeError(f"incompatible function arguments: a {type(argument).__name__}")
    return value


def result_of(values: list[Value]) -> Any:
    """What a function gave, as Python has it."""
    rest = iter(values)

    def read(value: Value) -> Any:
        match value.kind:
            case _host.TENSOR:
                return Handle.tensor_class.at(int(value.tensor))
            case _host.LIST:
                items = [read(next(rest)) for _ in range(value.count)]
                return tuple(items) if value.integer else items
            case _host.BOOL:
                return bool(value.integer)
            case _host.INT:
                return int(value.integer)
            case _host.FLOAT:
                return float(value.floating)
            case _host.STRING:
                return value.text.decode("utf-8", "replace")
        return None

    first = next(rest, None)
    return None if first is None else read(first)


_METADATA_ONLY = frozenset(
    names(
        "view_of view reshape flatten transpose permute squeeze squeeze_at unsqueeze expand select "
        "narrow slice as_strided"
    )
)


def call(name: str, *arguments: Any) -> Any:
    """One of the functions of Tensor in the host library. Of a deferred tensor only its metadata
    is asked; the result waits for the same values. Raises RuntimeError as torch does."""
    first = arguments[0] if arguments else None
    deferred = first._deferred if isinstance(first, Handle) and name in _METADATA_ONLY else None
    try:
        values = [value_of(a, metadata_only=deferred is not None) for a in arguments]
        result = result_of(_host.invoke(f"tensor.{name}", values))
    except _host.Failure as e:
        raise (MemoryError() if e.trouble == 2 else RuntimeError(e.text)) from None
    if deferred is not None:
        result._deferred = deferred
    return result


def sizes_of(shape: tuple[Any, ...]) -> list[int]:
    """`view(2, 3)` and `view((2, 3))`."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return [int(n) for n in shape]


# --- making -------------------------------------------------------------------------------------


def deferred_tensor(deferred: Deferred) -> Tensor:
    """A tensor of no memory: its address is its offset."""
    strides = [1] * len(deferred.shape)
    for i in range(len(deferred.shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(1, deferred.shape[i + 1])
    pointer = _host.adopt(0, deferred.dtype.code, deferred.shape, tuple(strides), exists=False)
    return Handle.tensor_class.at(pointer, deferred)


def new_empty(shape: tuple[int, ...] | list[int], of: DType, on_cuda: bool) -> Tensor:
    made: Tensor = call("empty", list(shape), of.code, on_cuda)
    return made


def from_values(
    values: list[bool | int | float], shape: tuple[int, ...], of: DType, on_cuda: bool
) -> Tensor:
    """A tensor of these elements, uploaded where it belongs on the device."""
    made = new_empty(shape, of, False)
    _host.write_memory(int(_host.metadata(made._pointer).data), of.pack(values))
    return made._to_device(on_cuda)


def make(shape: list[int], of: DType, where: Any, origin: str, fill: float | None) -> Tensor:
    """An empty or filled tensor: later while the model is built, else at once."""
    on_cuda = where is not None and Device(where).type == "cuda"
    if State.constructing:
        return deferred_tensor(Deferred(tuple(shape), of, origin, fill=fill, on_cuda=on_cuda))
    made = new_empty(shape, of, on_cuda)
    return made if fill is None else made.fill_(fill)

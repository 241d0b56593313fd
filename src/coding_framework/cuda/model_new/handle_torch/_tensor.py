"""torch.Tensor: what only changes metadata (views), or copies whole memory, is done; what would
compute ends the run as `rejected`, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from . import _host
from ._deferred import Deferred, State, broadcast
from ._handle import Handle, call, deferred_tensor, make, resolved, sizes_of
from ._names import look_up
from ._types import BY_NAME, CASTS, Device, DType, names


class Tensor(Handle):
    """torch.Tensor"""

    # --- values on the host -----------------------------------------------------------------------

    def tolist(self) -> Any:
        flat = iter(self.dtype.unpack(_host_bytes(self)))

        def nested(shape: tuple[int, ...]) -> Any:
            return [nested(shape[1:]) for _ in range(shape[0])] if shape else next(flat)

        return nested(self.shape)

    def __iter__(self) -> Iterator[Tensor]:
        return (self.select(0, i) for i in range(len(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.clone()

    # --- views ------------------------------------------------------------------------------------

    def view(self, *shape: Any) -> Tensor:
        if len(shape) == 1 and isinstance(shape[0], DType):
            _host.unsupported("torch.Tensor.view (as another dtype)")
        return _view("view", self, sizes_of(shape))

    def reshape(self, *shape: Any) -> Tensor:
        return _view("reshape", self, sizes_of(shape))

    def view_as(self, other: Tensor) -> Tensor:
        return self.view(other.shape)

    def reshape_as(self, other: Tensor) -> Tensor:
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        return _view("flatten", self, start_dim, end_dim)

    def ravel(self) -> Tensor:
        return self.flatten()

    def unflatten(self, dim: int, sizes: Any) -> Tensor:
        shape = list(self.shape)
        dim %= max(1, len(shape))
        return self.view(*shape[:dim], *sizes, *shape[dim + 1 :])

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        return _view("transpose", self, dim0, dim1)

    swapaxes = swapdims = transpose

    def t(self) -> Tensor:
        if self.ndim > 2:
            raise RuntimeError(
                f"t() expects a tensor with <= 2 dimensions, but self is {self.ndim}D"
            )
        return self if self.ndim < 2 else self.transpose(0, 1)

    @property
    def T(self) -> Tensor:  # noqa: N802 - torch's name
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Tensor:  # noqa: N802 - torch's name
        return self.transpose(-2, -1)

    def permute(self, *dims: Any) -> Tensor:
        return _view("permute", self, sizes_of(dims))

    def movedim(self, source: int, destination: int) -> Tensor:
        order = list(range(self.ndim))
        order.insert(destination % self.ndim, order.pop(source % self.ndim))
        return self.permute(*order)

    moveaxis = movedim

    def squeeze(self, dim: int | None = None) -> Tensor:
        return _view("squeeze", self) if dim is None else call("squeeze_at", self, dim)

    def squeeze_(self, dim: int | None = None) -> Tensor:
        return self.set_(self.squeeze(dim))

    def unsqueeze(self, dim: int) -> Tensor:
        return _view("unsqueeze", self, dim)

    def unsqueeze_(self, dim: int) -> Tensor:
        return self.set_(self.unsqueeze(dim))

    def expand(self, *sizes: Any) -> Tensor:
        return _view("expand", self, sizes_of(sizes))

    def expand_as(self, other: Tensor) -> Tensor:
        return self.expand(other.shape)

    def broadcast_to(self, size: Any) -> Tensor:
        return self.expand(size)

    def select(self, dim: int, index: int) -> Tensor:
        if not -self.size(dim) <= index < self.size(dim):
            raise IndexError(f"index {index} is out of bounds for dimension of {self.size(dim)}")
        return _view("select", self, dim, index)

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        return _view("narrow", self, dim, start, length)

    def split(self, size: Any, dim: int = 0) -> tuple[Tensor, ...]:
        total = self.size(dim)
        if isinstance(size, int):
            size = [min(size, total - i) for i in range(0, total, size)]
        starts = [sum(size[:i]) for i in range(len(size))]
        return tuple(self.narrow(dim, a, n) for a, n in zip(starts, size, strict=True))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        return self.split(max(1, -(-self.size(dim) // chunks)), dim)

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        return tuple(self.select(dim, i) for i in range(self.size(dim)))

    def as_strided(self, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
        offset = 0 if storage_offset is None else storage_offset - self.storage_offset()
        return _view("as_strided", self, list(size), list(stride), offset)

    def detach(self) -> Tensor:
        return _view("view_of", self)

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self.set_(value)

    def set_(self, source: Tensor) -> Tensor:
        """Become a handle on what `source` is a handle on."""
        other = source.detach()
        self._pointer, other._pointer = other._pointer, self._pointer
        self._deferred, other._deferred = other._deferred, None
        return self

    def __getitem__(self, index: Any) -> Tensor:
        parts = list(index) if isinstance(index, tuple) else [index]
        if any(isinstance(p, (Tensor, list)) for p in parts):
            _host.reject("torch.Tensor.__getitem__ (with a tensor or a list)")
        consumed = sum(p is not None and p is not Ellipsis for p in parts)
        if Ellipsis not in parts:
            parts.append(Ellipsis)
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (self.ndim - consumed)
        result, dim = self, 0
        for part in parts:
            if part is None:
                result, dim = result.unsqueeze(dim), dim + 1
            elif isinstance(part, slice):
                start, stop, step = part.indices(result.size(dim))
                if step < 1:
                    raise ValueError("step must be greater than zero")
                if (start, stop, step) != (0, result.size(dim), 1):
                    result = _view("slice", result, dim, start, max(start, stop), step)
                dim += 1
            else:
                result = result.select(dim, int(part))
        return result if result is not self else self.detach()

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        if isinstance(value, Tensor):
            target.copy_(value)
        else:
            target.fill_(value)

    # --- copies -----------------------------------------------------------------------------------

    def contiguous(self, memory_format: Any = None) -> Tensor:
        if memory_format is not None and "channels_last" in repr(memory_format):
            _host.reject("torch.Tensor.contiguous (channels_last)")
        if self._deferred is not None and not self.is_contiguous():
            return _computed("torch.Tensor.contiguous (of a strided tensor)", self.shape, self)
        return self if self.is_contiguous() else _view("contiguous", self)

    def clone(self, memory_format: Any = None) -> Tensor:
        if self._deferred is not None:
            if not self.is_contiguous():
                return _computed("torch.Tensor.clone (of a strided tensor)", self.shape, self)
            copied = Deferred(tuple(self.shape), self.dtype, "torch.clone", parent=self)
            return deferred_tensor(copied)
        return _view("clone", self)

    def to(self, *arguments: Any, **options: Any) -> Tensor:
        result = self
        wanted = [*arguments, options.get("device"), options.get("dtype")]
        for value in wanted:
            if isinstance(value, Tensor):
                result = result.to(value.device, value.dtype)
            elif isinstance(value, DType):
                result = result._to_dtype(value)
            elif isinstance(value, (str, Device, int)) and not isinstance(value, bool):
                result = result._to_device(Device(value).type == "cuda")
        if "channels_last" in repr(options.get("memory_format")):
            _host.reject("torch.Tensor.to (channels_last)")
        return result

    def _to_device(self, cuda: bool) -> Tensor:
        if self.is_cuda == cuda:
            return self
        if self._deferred is not None and self._deferred.owner is None:
            return deferred_tensor(self._deferred.changed(self, self.dtype, cuda))
        return _view("to_device", self, cuda)

    def _to_dtype(self, wanted: DType) -> Tensor:
        if wanted is self.dtype:
            return self
        if self._deferred is not None and self._deferred.owner is None:
            return deferred_tensor(self._deferred.changed(self, wanted, self.is_cuda))
        return _view("to_dtype", self, wanted.code)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Tensor:
        return self._to_device(True)

    def cpu(self) -> Tensor:
        return self._to_device(False)

    def type(self, wanted: Any = None) -> Any:
        from ._typed import TensorType, name_of, named

        if wanted is None:
            return name_of(self)
        kind = named(wanted) if isinstance(wanted, str) else wanted
        if isinstance(kind, TensorType):
            return self.to(kind.dtype)._to_device(kind.on_cuda)
        return self.to(wanted)

    def type_as(self, other: Tensor) -> Tensor:
        return self.to(other)

    def pin_memory(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        _host.unsupported("torch.Tensor.numpy")

    def copy_(self, source: Tensor, non_blocking: bool = False) -> Tensor:
        if self._deferred is not None and self._deferred.owner is None:
            self._deferred.forget("torch.Tensor.copy_")
            return self
        call("copy_", self, source)
        return self

    def fill_(self, value: Any) -> Tensor:
        value = value.item() if isinstance(value, Tensor) else value
        if self._deferred is not None and self._deferred.owner is None:
            self._deferred.forget("torch.Tensor.fill_")
            if self.numel() == math.prod(self._deferred.shape):
                self._deferred.fill = value
            return self
        call("fill_", self, value)
        return self

    def zero_(self) -> Tensor:
        return self.fill_(0)

    def new_empty(self, *size: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
        return self._new(size, "torch.empty", None, dtype, device)

    def new_zeros(self, *size: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
        return self._new(size, "torch.zeros", 0, dtype, device)

    def new_ones(self, *size: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
        return self._new(size, "torch.ones", 1, dtype, device)

    def new_full(
        self, size: Any, fill_value: float, dtype: DType | None = None, device: Any = None
    ) -> Tensor:
        return self._new((size,), "torch.full", fill_value, dtype, device)

    def new(self, *data: Any) -> Tensor:
        made: Tensor = type(self).legacy(data, self.dtype, self.device)
        return made

    def new_tensor(
        self, data: Any, dtype: DType | None = None, device: Any = None, **_: Any
    ) -> Tensor:
        made: Tensor = type(self).legacy((data,), dtype or self.dtype, device or self.device)
        return made

    def resize_(self, *size: Any) -> Tensor:
        """Of these sizes; larger than before, with memory of its own that nothing has written."""
        shape = sizes_of(size)
        if math.prod(shape) > self.numel() or not self.is_contiguous():
            return self.set_(make(shape, self.dtype, self.device, "torch.empty", None))
        return self.set_(self.view(-1)[: math.prod(shape)].view(shape))

    def _new(
        self, size: tuple[Any, ...], origin: str, fill: float | None, of: DType | None, where: Any
    ) -> Tensor:
        return make(sizes_of(size), of or self.dtype, where or self.device, origin, fill)

    # --- what only training needs -----------------------------------------------------------------

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        return self

    def retain_grad(self) -> None:
        return None

    def register_hook(self, hook: Any) -> None:
        return None

    # --- what computes ----------------------------------------------------------------------------

    def __eq__(self, other: object) -> Any:
        return False if other is None else _operator("eq")(self, other)

    def __ne__(self, other: object) -> Any:
        return True if other is None else _operator("ne")(self, other)

    __hash__ = Handle.__hash__  # who has an __eq__ of its own inherits none

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_pointer", "_deferred"):
            raise AttributeError(name)
        if State.constructing and self._deferred is not None and name in _FILLERS:
            return _changing(self, f"torch.Tensor.{name}")
        if name in CASTS:
            return lambda *_, **__: self.to(BY_NAME[CASTS[name]])
        return look_up("torch.Tensor", name, "'Tensor' object")


_FILLERS = frozenset(
    names(
        "normal_ uniform_ random_ bernoulli_ exponential_ cauchy_ log_normal_ geometric_ clamp_ "
        "mul_ add_ sub_ div_ sqrt_ exp_ log_ neg_ abs_ pow_ tril_ triu_ erfinv_ fill_diagonal_"
    )
)
"""Methods that change values in place: before a model is built they only change whose they are."""


def _changing(tensor: Tensor, name: str) -> Callable[..., Tensor]:
    def change(*_: Any, **__: Any) -> Tensor:
        deferred = tensor._deferred
        if deferred is None or deferred.owner is not None:
            _host.reject(name)
        deferred.forget(name)
        return tensor

    return change


def _operator(name: str) -> Callable[..., Any]:
    """An elementwise operator: rejected, but for values that nothing has looked at yet."""
    full = f"torch.{name}"

    def operate(*operands: Any) -> Any:
        tensors = [t for t in operands if isinstance(t, Tensor)]
        waiting = all(t._deferred is not None and t._deferred.owner is None for t in tensors)
        if not (State.constructing and waiting):
            _host.reject(full)
        return _computed(full, broadcast(*(tuple(t.shape) for t in tensors)), tensors[0])

    return operate


def _computed(origin: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A value that torch would compute before the model is built."""
    made: Tensor = deferred_tensor(Deferred(tuple(shape), like.dtype, origin, on_cuda=like.is_cuda))
    return made


def _define_operators() -> None:
    same = names("add sub mul matmul pow neg abs invert and or xor lt le gt ge")
    others = {
        "truediv": "div",
        "floordiv": "floor_divide",
        "mod": "remainder",
        "lshift": "bitwise_left_shift",
        "rshift": "bitwise_right_shift",
        "pos": "positive",
    }
    for special, name in {**dict(zip(same, same, strict=True)), **others}.items():
        setattr(Tensor, f"__{special}__", _operator(name))
        setattr(Tensor, f"__r{special}__", _operator(name))
        setattr(Tensor, f"__i{special}__", _operator(f"{name}_"))


_define_operators()


def _host_bytes(tensor: Tensor) -> bytes:
    """The elements in order, read back where they lie on the device."""
    there = tensor.cpu().contiguous()
    pointer = resolved(there)
    return _host.read_memory(int(_host.metadata(pointer).data), there.nbytes)


def _view(name: str, *arguments: Any) -> Tensor:
    """A function that gives one tensor."""
    made: Tensor = call(name, *arguments)
    return made


Handle.tensor_class = Tensor

"""torch.nn.Module and its containers: names, order and state as torch has them; no arithmetic."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from .. import _host
from .._names import look_up
from .._tensor import Tensor


class Parameter(Tensor):
    """A tensor that a module counts among its parameters. Shares the values it was made of."""

    requires_grad = True

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        if data is None:
            from .._handle import make
            from .._types import BY_NAME

            data = make([0], BY_NAME["float32"], None, "torch.empty", None)
        self._take(data.detach())
        self.requires_grad = requires_grad


class Module:
    """The base of all models."""

    training = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "_modules" not in self.__dict__:
            self.__dict__.update(_parameters={}, _buffers={}, _modules={}, _order={}, _lost=set())

    # --- members ----------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        kinds = self.__dict__
        if isinstance(value, (Parameter, Module)) and "_modules" not in kinds:
            raise AttributeError("cannot assign members before Module.__init__() call")
        if isinstance(value, Parameter):
            self._place("_parameters", name, value)
        elif isinstance(value, Module):
            self._place("_modules", name, value)
        else:
            for kind in ("_parameters", "_buffers", "_modules"):
                if name in kinds.get(kind, ()):
                    if value is None or (kind == "_buffers" and isinstance(value, Tensor)):
                        kinds[kind][name] = value
                        return
                    raise TypeError(f"cannot assign {type(value).__name__} as {name!r}")
            object.__setattr__(self, name, value)

    def _place(self, kind: str, name: str, value: Any) -> None:
        for other in ("_parameters", "_buffers", "_modules"):
            if other != kind:
                self.__dict__[other].pop(name, None)
        self.__dict__.pop(name, None)
        self.__dict__[kind][name] = value
        self.__dict__["_order"].setdefault(name)

    def __getattr__(self, name: str) -> Any:
        for kind in ("_parameters", "_buffers", "_modules"):
            members = self.__dict__.get(kind, {})
            if name in members:
                return members[name]
        return look_up("torch.nn.Module", name, f"{type(self).__name__!r} object")

    def __delattr__(self, name: str) -> None:
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                return
        object.__delattr__(self, name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        self._place("_parameters", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        self._place("_buffers", name, tensor)
        if not persistent:
            self.__dict__["_lost"].add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        self._place("_modules", name, module)

    register_module = add_module

    def get_parameter(self, target: str) -> Any:
        return dict(self.named_parameters())[target]

    # --- walking ----------------------------------------------------------------------------------

    def children(self) -> Iterator[Module]:
        return (m for m in self._modules.values() if m is not None)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((n, m) for n, m in self._modules.items() if m is not None)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, module in self.named_children():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        return (m for _, m in self.named_modules())

    def _named(self, kind: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for prefix, module in self.named_modules() if recurse else [("", self)]:
            for name, value in module.__dict__[kind].items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        return self._named("_parameters", recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        return self._named("_buffers", recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (b for _, b in self.named_buffers(recurse=recurse))

    def state_dict(self, *_: Any, prefix: str = "", **__: Any) -> OrderedDict[str, Tensor]:
        state = OrderedDict[str, Tensor]()
        lost = self.__dict__["_lost"]
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            if value is not None and name not in lost:
                state[prefix + name] = value
        for name, module in self.named_children():
            state.update(module.state_dict(prefix=f"{prefix}{name}."))
        return state

    def defined(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """The tensors of `state_dict` in the order in which `__init__` made them."""
        lost = self.__dict__["_lost"]
        for name in self.__dict__["_order"]:
            member = getattr(self, name, None)
            if isinstance(member, Module):
                yield from member.defined(f"{prefix}{name}.")
            elif isinstance(member, Tensor) and name not in lost:
                yield prefix + name, member

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> None:
        mine = self.state_dict()
        for name, value in state_dict.items():
            if name in mine:
                mine[name].set_(value)

    # --- state ------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Module:
        for module in self.modules():
            module.__dict__["training"] = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def apply(self, function: Callable[[Module], None]) -> Module:
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def _convert(self, convert: Callable[[Tensor], Tensor]) -> Module:
        done: dict[int, None] = {}
        for module in self.modules():
            for kind in ("_parameters", "_buffers"):
                for value in module.__dict__[kind].values():
                    if value is not None and id(value) not in done:
                        done[id(value)] = None
                        value.set_(convert(value))
        return self

    def cuda(self, device: Any = None) -> Module:
        return self._convert(lambda t: t.cuda())

    def cpu(self) -> Module:
        return self._convert(lambda t: t.cpu())

    def to(self, *arguments: Any, **options: Any) -> Module:
        return self._convert(lambda t: t.to(*arguments, **options))

    def float(self) -> Module:
        return self._convert(lambda t: t.float() if t.is_floating_point() else t)

    def half(self) -> Module:
        return self._convert(lambda t: t.half() if t.is_floating_point() else t)

    def double(self) -> Module:
        return self._convert(lambda t: t.double() if t.is_floating_point() else t)

    def bfloat16(self) -> Module:
        return self._convert(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        return None

    def compile(self, *_: Any, **__: Any) -> None:
        return None

    def extra_repr(self) -> str:
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    # --- calling ----------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} is missing the required forward function")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


class Computes(Module):
    """A layer of torch.nn. Its members may be read; calling it is torch's work."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        _host.reject(f"torch.nn.{self._torch_name()}.forward")

    def reset_parameters(self) -> None:
        """Their values are the reference's."""

    @classmethod
    def _torch_name(cls) -> str:
        return next(c.__name__ for c in cls.__mro__ if c.__module__.startswith(__package__ or "?"))


class Identity(Module):
    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)


class Dropout(Computes):
    """Nothing where it drops nothing."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p, self.inplace = p, inplace

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.p == 0 or not self.training:
            return args[0]
        return super().forward(*args, **kwargs)


class Dropout1d(Dropout):
    pass


class Dropout2d(Dropout):
    pass


class Dropout3d(Dropout):
    pass


class AlphaDropout(Dropout):
    pass


# --- containers -----------------------------------------------------------------------------------


class _Listed(Module):
    """Modules by number."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def append(self, module: Module) -> Self:
        self.add_module(str(len(self)), module)
        return self


class Sequential(_Listed):
    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = (
            modules[0].items() if modules and isinstance(modules[0], dict) else enumerate(modules)
        )
        for name, module in named:
            self.add_module(str(name), module)

    def __getitem__(self, index: Any) -> Any:
        found = list(self._modules.values())[index]
        return type(self)(*found) if isinstance(index, slice) else found

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleList(_Listed):
    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __getitem__(self, index: Any) -> Any:
        found = list(self._modules.values())[index]
        return type(self)(found) if isinstance(index, slice) else found

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self


class ModuleDict(Module):
    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        for name, module in dict(modules or {}).items():
            self.add_module(name, module)

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def keys(self) -> Any:
        return self._modules.keys()

    def values(self) -> Any:
        return self._modules.values()

    def items(self) -> Any:
        return self._modules.items()


class ParameterList(Module):
    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        for value in values or ():
            self.append(value)

    def append(self, value: Tensor) -> ParameterList:
        number = next(i for i in itertools.count() if str(i) not in self._parameters)
        parameter = value if isinstance(value, Parameter) else Parameter(value)
        self.register_parameter(str(number), parameter)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __len__(self) -> int:
        return len(self._parameters)

    def __getitem__(self, index: int) -> Any:
        return list(self._parameters.values())[index]


class ParameterDict(Module):
    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        for name, value in dict(parameters or {}).items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._parameters[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        parameter = value if isinstance(value, Parameter) else Parameter(value)
        self.register_parameter(name, parameter)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

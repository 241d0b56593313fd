"""Modules of torch's own source, and what is other here: no layer computes.

Their values are the reference's: what PyTorch would draw for a parameter is only known by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import _host
from .._names import file_of_layer
from .._tensor import Tensor

_COMPUTE_NOTHING = ("module", "container", "flatten")
"""Files of which each forward is done as it is written."""
USUAL = ("container", "linear", "conv", "batchnorm", "normalization", "activation", "dropout")
"""Files with the layers of most answers."""


def source(file: str) -> Any:
    """A module of torch.nn.modules, whose layers are called in vain."""
    made = __import__(f"{__package__}.modules.{file}", fromlist=["_"])
    if file not in _COMPUTE_NOTHING:
        for kind in vars(made).values():
            own = isinstance(kind, type) and kind.__module__ == made.__name__
            if own and "forward" in vars(kind) and kind.__name__ != "Identity":
                kind.forward = _forward
    return made


def layer(name: str) -> Any:
    """The class of that name in torch.nn. Raises AttributeError where torch has none of this name;
    ends the process for one that is missing here."""
    file = file_of_layer(name)
    if file is None:
        raise AttributeError(f"module 'torch.nn' has no attribute {name!r}")
    if not file or name.startswith("Lazy"):
        _host.unsupported(f"torch.nn.{name}")
    return getattr(source(file), name)


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Calling a layer is torch's work; a dropout that drops nothing does none."""
    drops = isinstance(self, source("dropout")._DropoutNd)
    if drops and (self.p == 0 or not self.training):
        return args[0]
    kinds = type(self).__mro__
    _host.reject(f"torch.nn.{next(k.__name__ for k in kinds if _is_torchs(k))}.forward")


def _is_torchs(kind: type) -> bool:
    return kind.__module__.startswith(f"{__package__}.modules.")


# --- Module ---------------------------------------------------------------------------------------

Module: Any = source("module").Module


def _noting(change: Callable[..., None]) -> Callable[..., None]:
    """A method of Module that gives it a member: names are noted in their order."""

    def noted(self: Any, name: str, *args: Any, **kwargs: Any) -> None:
        change(self, name, *args, **kwargs)
        kinds = ("_parameters", "_buffers", "_modules")  # none before torch's own __init__
        if any(name in self.__dict__.get(kind, ()) for kind in kinds):
            self.__dict__.setdefault("_order", {}).setdefault(name)

    return noted


for _name in ("__setattr__", "register_parameter", "register_buffer", "add_module"):
    setattr(Module, _name, _noting(getattr(Module, _name)))


def defined(module: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of `state_dict` in the order in which `__init__` made them."""
    own = {**module._parameters, **module._buffers}
    for name in module.__dict__.get("_order", ()):
        if name in module._modules and module._modules[name] is not None:
            yield from defined(module._modules[name], f"{prefix}{name}.")
        elif own.get(name) is not None and name not in module._non_persistent_buffers_set:
            yield prefix + name, own[name]


def _load_state_dict(self: Any, state_dict: Any, *_: Any, **__: Any) -> None:
    mine = self.state_dict(keep_vars=True)
    for name, value in state_dict.items():
        if name in mine:
            mine[name].set_(value)


Module.load_state_dict = _load_state_dict

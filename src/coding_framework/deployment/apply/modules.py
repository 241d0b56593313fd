"""Modules of a model whose `forward` becomes an operation, and back.

The module stays where it is, with its class, parameters, hooks and names in `state_dict`: only its
own attribute `forward` is set. An operation's parameters are the module's inputs, then attributes
of the module of the same names: `weight`, `bias`, `eps`, or `ln_weight` for `ln.weight`.
"""

from __future__ import annotations

import copy
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from coding_framework.deployment.apply.agreement import as_outputs, disagreement
from coding_framework.deployment.apply.operation import KernelOp
from coding_framework.errors import UsageError

_MARK = "_cuda_rl_replaced"


class _State:
    """Of one replaced module. A plain object, so that a copy of the model has its own."""

    def __init__(self, path: str, op: KernelOp, attributes: Mapping[str, Sequence[str]]) -> None:
        self.path = path
        self.op = op
        self.attributes = attributes
        """Where in the module each parameter's value is."""
        self.names = tuple(op.signature.parameters)
        self.defaults = {
            p.name: p.default for p in op.signature.parameters.values() if p.default is not p.empty
        }
        self.means_the_same: bool | None = None
        """What the first call outside of a compiler found; None: there was none."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _State:
        made = _State(self.path, self.op, self.attributes)
        made.means_the_same = self.means_the_same
        return made


def replace_module(
    model: nn.Module, path: str, op: KernelOp, names: Mapping[str, str] = {}
) -> None:
    """names: attributes of the module, by the parameters that have another name. Raises UsageError
    where there is no such module, or it lacks what the operation takes."""
    try:
        module = model.get_submodule(path)
    except AttributeError as e:
        raise UsageError(
            f"the model has no module {path!r}: its modules are "
            f"{', '.join(name for name, _ in list(model.named_modules())[1:9])} and so on"
        ) from e
    if _MARK in module.__dict__:
        raise UsageError(f"the module {path!r} is replaced already: restore the model first")
    if "forward" in module.__dict__:
        raise UsageError(
            f"the module {path!r} has a forward of its own, set by another library: replace its "
            "modules before that library"
        )
    attributes = {
        name: _attribute(module, path, op, name, names) for name in op.signature.parameters
    }
    module.__dict__[_MARK] = _State(path, op, attributes)
    module.__dict__["forward"] = types.MethodType(_forward, module)


def _attribute(
    module: nn.Module, path: str, op: KernelOp, name: str, names: Mapping[str, str]
) -> tuple[str, ...]:
    """Where a parameter of the operation lies in the module; its own name where nothing has it."""
    if name in names:
        wanted = tuple(names[name].split("."))
        if not _has(module, wanted):
            raise UsageError(f"the module {path!r} has no {names[name]}, which names gives {name}")
        return wanted
    found = list(_spelled(module, name))
    if len(found) > 1:
        raise UsageError(
            f"{name} of the operation {op.name!r} can be {' or '.join(map('.'.join, found))} of "
            f'the module {path!r}: say which by names={{"{name}": ...}}'
        )
    return found[0] if found else (name,)


def _spelled(module: nn.Module, name: str) -> Iterator[tuple[str, ...]]:
    """Attributes that are spelled like the parameter, with a dot for an underscore where they are
    of a layer; the module's own alone where it has one."""
    if hasattr(module, name):
        yield (name,)
        return
    for child, layer in module.named_children():
        if name.startswith(f"{child}_"):
            yield from ((child, *rest) for rest in _spelled(layer, name[len(child) + 1 :]))


def _has(module: Any, attribute: Sequence[str]) -> bool:
    for part in attribute:
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def _value(module: Any, attribute: Sequence[str]) -> Any:
    for part in attribute:
        module = getattr(module, part)
    return module


def restore(model: nn.Module) -> None:
    """Every replaced module of the model runs its own `forward` again."""
    for module in model.modules():
        if module.__dict__.pop(_MARK, None) is not None:
            module.__dict__.pop("forward", None)


def _forward(module: nn.Module, *inputs: Any, **named: Any) -> Any:
    state = module.__dict__[_MARK]
    arguments = _arguments(module, state, inputs, named)
    if not torch.compiler.is_compiling():
        kernels = state.op.kernels
        # nothing can be compared in a graph that is being captured
        capturing = kernels is not None and kernels.launcher.capturing()
        if state.means_the_same is None and not capturing:
            state.means_the_same = _compare(module, state, inputs, named, arguments)
        if not state.means_the_same:
            return type(module).forward(module, *inputs, **named)
    return state.op.eager(*arguments)


def _arguments(
    module: nn.Module, state: _State, inputs: Sequence[Any], named: dict[str, Any]
) -> tuple[Any, ...]:
    """Of the operation, by position."""
    if len(inputs) > len(state.names) or any(name not in state.names for name in named):
        raise UsageError(
            f"the module {state.path!r} is called with more than the operation {state.op.name!r} "
            f"takes ({', '.join(state.names)})"
        )
    values = list(inputs)
    for name in state.names[len(inputs) :]:
        if name in named:
            values.append(named[name])
        elif _has(module, state.attributes[name]):
            values.append(_value(module, state.attributes[name]))
        elif name in state.defaults:
            values.append(state.defaults[name])
        else:
            raise UsageError(
                f"the module {state.path!r} has no {name}, which the operation {state.op.name!r} "
                "takes: give it as an input, name the parameter as the module's attribute "
                f'(ln_weight for ln.weight), or replace with names={{"{name}": "ITS.ATTRIBUTE"}}'
            )
    # `normalized_shape` and the like are tuples in modules and lists in operators
    return tuple([list(value) if isinstance(value, tuple) else value for value in values])


def _compare(
    module: nn.Module, state: _State, inputs: Sequence[Any], named: dict[str, Any],
    arguments: Sequence[Any],
) -> bool:  # fmt: skip
    """Whether the operation's function does what the module does, on the inputs of this call.
    Where it does not the module goes on as it was, with one warning."""
    forward = type(module).forward  # no hooks: they ran, or will, for this call
    with torch.no_grad():
        try:
            wide = copy.deepcopy(module).to(torch.float64)
            native = as_outputs(forward(module, *inputs, **named))
            outputs = as_outputs(state.op.function(*arguments))
            length = max((t.numel() for t in module.parameters()), default=1)
            tensors = [a for a in inputs if isinstance(a, torch.Tensor)]
            longest = max([1, *(n for t in tensors for n in t.shape)])
            wrong = (
                "it gives another number of outputs"
                if len(native) != len(outputs)
                else disagreement(
                    partial(forward, module, **named), inputs, native, outputs,
                    max(1, min(length, longest)), in_float64=partial(forward, wide, **named),
                )
            )  # fmt: skip
        except (RuntimeError, TypeError, ValueError) as e:
            wrong = f"it fails with {type(e).__name__}: {str(e).splitlines()[0]}"
    if wrong is not None:
        warnings.warn(
            f"the operation {state.op.name!r} does not do what the module {state.path!r} does, "
            f"which goes on as it was: {wrong}",
            RuntimeWarning,
            stacklevel=3,
        )
    return wrong is None

"""The calls of a module's forward: run at each shape set of a task, and laid side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from coding_framework.errors import UsageError
from coding_framework.reference_model import (
    make_model,
    recorded_definitions,
    run_reference,
)
from coding_framework.types import Task, TensorSpec, TestCase

MOST_CALLS = 1500
_COPIES = ("contiguous", "clone", "reshape", "reshape_as", "flatten")
"""Calls whose result has the elements of their tensor in its order."""
_JOINS = ("cat", "concat", "concatenate", "stack")
_WRITTEN_IN_PYTHON = (functional.multi_head_attention_forward,)
"""Functions whose own calls are recorded in place of them."""


class PartsError(UsageError):
    """A module that cannot be parted; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor among a call's arguments, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Const:
    """What is no tensor among a call's arguments, at each shape set."""

    values: tuple[Any, ...]

    @property
    def varies(self) -> bool:
        return any(type(v) is not type(self.values[0]) or v != self.values[0] for v in self.values)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies in its storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def is_plain(self) -> bool:
        """Whether its elements follow each other from the storage's first one."""
        step, plain = 1, True
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            plain &= extent == 1 or stride == step
            step *= extent
        return plain and self.offset == 0


@dataclass(slots=True)
class Value:
    """A tensor: an input, a parameter, or what a call makes."""

    number: int
    dtype: str
    root: int
    """The value whose storage it lies in."""
    layouts: tuple[Layout, ...]
    """At each shape set."""
    seen: tuple[torch.Tensor, ...]
    """What it held at the shape sets of emulator size."""
    name: str | None = None
    """Of an input or a parameter."""
    spec: tuple[TensorSpec, ...] = ()
    """Of an input, at each shape set."""

    @property
    def floating(self) -> bool:
        return "float" in self.dtype

    @property
    def is_plain(self) -> bool:
        return all(one.is_plain for one in self.layouts)

    @property
    def elements(self) -> tuple[int, ...]:
        """How many, at each shape set."""
        return tuple(math.prod(one.shape) for one in self.layouts)

    def extents(self, axis: int) -> tuple[int, ...]:
        return tuple(one.shape[axis] for one in self.layouts)

    @property
    def rank(self) -> int:
        return len(self.layouts[0].shape)


Kind = Literal["view", "copy", "join", "write", "compute"]
"""write: of a tensor, a view of it and what is put there, the tensor that has it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call. Its arguments are nested tuples, lists, slices and dicts of `Ref` and `Const`."""

    func: Callable[..., Any]
    name: str
    kind: Kind
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int, ...]

    @property
    def refs(self) -> tuple[int, ...]:
        return tuple(
            leaf.number for leaf in leaves((self.args, self.kwargs)) if isinstance(leaf, Ref)
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """Maker: `traced`. Consumers: `pieces`, `join`."""

    task: Task
    cases: tuple[TestCase, ...]
    """The task's shape sets."""
    more: tuple[TestCase, ...]
    """Others, behind them in `Const.values` and `Value.layouts`."""
    inputs: int
    """The first values are the inputs, then come the parameters in the order of a kernel's."""
    parameters: int
    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]

    def maker(self, number: int) -> Call | None:
        """The call that made a value; None: it was given."""
        return next((call for call in self.calls if number in call.outputs), None)

    @property
    def constants(self) -> frozenset[int]:
        """Values that depend on no tensor that is given."""
        found: set[int] = set()
        for call in self.calls:
            if found.issuperset(call.refs):
                found.update(call.outputs)
        return frozenset(found)


def leaves(nested: Any) -> Iterator[Any]:
    """Everything in nested arguments that holds nothing else."""
    if isinstance(nested, dict):
        for one in nested.values():
            yield from leaves(one)
    elif isinstance(nested, tuple | list):
        for one in nested:
            yield from leaves(one)
    elif isinstance(nested, slice):
        yield from leaves((nested.start, nested.stop, nested.step))
    else:
        yield nested


def mapped(nested: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting with other leaves."""
    if isinstance(nested, dict):
        return {name: mapped(one, change) for name, one in nested.items()}
    if isinstance(nested, tuple | list):
        made = [mapped(one, change) for one in nested]
        return tuple(made) if isinstance(nested, tuple) else made
    if isinstance(nested, slice):
        return slice(*(mapped(one, change) for one in (nested.start, nested.stop, nested.step)))
    return change(nested)


def traced(task: Task, *, to_join: bool = True) -> Trace:
    """The calls of the task's reference. Runs it, in this process. to_join: at other sizes too, for
    the host code of the whole. Raises PartsError where they differ from one shape set to another,
    or are of a kind that cannot be parted."""
    cases = (*task.cases, *task.gpu_cases)
    runs = []
    for at, case in enumerate(cases):
        try:
            runs.append(_run(task, case, real=at < len(task.cases)))
        except PartsError:
            raise
        except Exception as e:  # whatever a user's module raises
            raise PartsError(f"{task.name} cannot be run for its parts: {e}") from e
    first = runs[0]
    if any(run.shape_of_calls != first.shape_of_calls for run in runs):
        raise PartsError(f"the steps of {task.name} differ from size to size: it has no parts")
    more = []
    for case in _with_one_other_extent(cases[-1]) if to_join else ():
        with suppress(Exception, SystemExit):  # sizes that the module does not take
            run = _run(task, case, real=False)
            if run.shape_of_calls == first.shape_of_calls:
                runs.append(run)
                more.append(case)
    values = tuple(
        Value(
            number,
            one.dtype,
            one.root,
            tuple(run.values[number].layout for run in runs),
            tuple(s for run in runs if (s := run.values[number].seen) is not None),
            one.name,
            tuple(case.inputs[number] for case in cases) if number < len(cases[0].inputs) else (),
        )
        for number, one in enumerate(first.values)
    )
    calls = tuple(
        Call(
            one.func,
            one.name,
            one.kind,
            _side_by_side([run.calls[at].args for run in runs]),
            _side_by_side([run.calls[at].kwargs for run in runs]),
            one.outputs,
        )
        for at, one in enumerate(first.calls)
    )
    counts = len(cases[0].inputs), first.given - len(cases[0].inputs)
    return Trace(task, cases, tuple(more), *counts, values, calls, first.outputs)


def _with_one_other_extent(case: TestCase) -> Iterator[TestCase]:
    """Shape sets that differ from one in one extent of the inputs, wherever it stands: what sizes
    are made of shows in them alone."""
    extents = {extent for spec in case.inputs for extent in spec.shape if extent > 1}
    for extent in sorted(extents):
        for other in (extent + 1, 2 * extent, extent + 2):
            changed = tuple(
                spec.model_copy(
                    update={"shape": tuple(other if e == extent else e for e in spec.shape)}
                )
                for spec in case.inputs
            )
            yield case.model_copy(update={"inputs": changed})


def _side_by_side(nested: Sequence[Any]) -> Any:
    """Arguments of each shape set as one, whose leaves have the values of all."""
    first = nested[0]
    if isinstance(first, dict):
        return {name: _side_by_side([one[name] for one in nested]) for name in first}
    if isinstance(first, tuple | list):
        made = [_side_by_side(list(one)) for one in zip(*nested, strict=True)]
        return tuple(made) if isinstance(first, tuple) else made
    if isinstance(first, slice):
        bounds = [(one.start, one.stop, one.step) for one in nested]
        return slice(*_side_by_side(bounds))
    return first if isinstance(first, Ref) else Const(tuple(nested))


# --- one run --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    dtype: str
    root: int
    layout: Layout
    seen: torch.Tensor | None
    name: str | None


@dataclass(slots=True)
class _Made:
    func: Callable[..., Any]
    name: str
    kind: Kind
    args: Any
    kwargs: Any
    outputs: tuple[int, ...]


@dataclass(slots=True)
class _Run:
    real: bool
    given: int = 0
    values: list[_Seen] = field(default_factory=list)
    calls: list[_Made] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    number_of: dict[int, int] = field(default_factory=dict)
    alive: list[torch.Tensor] = field(default_factory=list)
    owners: dict[int, int] = field(default_factory=dict)
    """By storage the value that it was made with."""

    @property
    def shape_of_calls(self) -> Any:
        """What has to be the same at each shape set."""

        def refs(nested: Any) -> Any:
            return mapped(nested, lambda leaf: leaf if isinstance(leaf, Ref) else None)

        shapes = [(c.func, c.kind, refs((c.args, c.kwargs)), c.outputs) for c in self.calls]
        ranks = [(v.dtype, v.root, len(v.layout.shape)) for v in self.values]
        return repr(shapes), ranks, self.outputs

    def add(self, tensor: torch.Tensor, name: str | None = None, *, anew: bool = False) -> int:
        number = len(self.values)
        storage = tensor.untyped_storage()._cdata
        if anew or storage not in self.owners:
            self.owners[storage] = number
        layout = _layout(tensor)
        kept = tensor.detach().clone() if self.real else None
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.values.append(_Seen(dtype, self.owners[storage], layout, kept, name))
        self.number_of[id(tensor)] = number
        self.alive.append(tensor)
        return number

    def ref(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in self.number_of:
            raise PartsError("it uses a tensor that is no input, parameter or buffer")
        return Ref(self.number_of[id(leaf)])


def _run(task: Task, case: TestCase, *, real: bool) -> _Run:
    device = "cpu" if real else "meta"
    run = _Run(real)
    namespace = run_reference(task.reference)
    built = _Run(real)
    with torch.device(device), recorded_definitions() as definitions, torch.random.fork_rng([]):
        torch.manual_seed(0)
        with _Recorder(built, lenient=True):
            model = make_model(namespace["Model"], case.init_args or task.init_args)
        model.to(device)
        inputs = [_drawn(spec, device) for spec in case.inputs]
        names = list(definitions.parameters(model))
    own = dict(model.named_parameters(remove_duplicate=False)) | dict(
        model.named_buffers(remove_duplicate=False)
    )
    for spec, tensor in zip(case.inputs, inputs, strict=True):
        run.add(tensor, spec.name)
    for name in names:
        if id(own[name]) in run.number_of:
            raise PartsError("two of its parameters are one tensor")
        run.add(own[name], name)
    run.given = len(run.values)
    for module in model.modules():
        for tensor in (*module._buffers.values(), *vars(module).values()):
            if isinstance(tensor, torch.Tensor) and id(tensor) not in run.number_of:
                _take(run, built, tensor)
    with torch.no_grad(), torch.device(device), _Recorder(run):
        result = model(*inputs)
    outputs = tuple(result) if isinstance(result, tuple | list) else (result,)
    if not all(isinstance(o, torch.Tensor) and id(o) in run.number_of for o in outputs):
        raise PartsError("it returns what is no tensor of its own")
    run.outputs = tuple(run.number_of[id(o)] for o in outputs)
    return run


def _take(run: _Run, built: _Run, tensor: torch.Tensor) -> None:
    """Give a run the calls that made a constant when the model was built, where they are known."""
    wanted = built.number_of.get(id(tensor))
    if wanted is None:
        return
    needed = {wanted}
    for call in reversed(built.calls):
        if needed & {*call.outputs}:
            needed |= {
                ref.number for ref in leaves((call.args, call.kwargs)) if isinstance(ref, Ref)
            }
            needed |= {built.values[out].root for out in call.outputs}
    number: dict[int, int] = {}
    for call in built.calls:
        if not needed & {*call.outputs}:
            continue
        for out in call.outputs:
            number[out] = len(run.values)
            run.values.append(replace(built.values[out], root=-1))
        for out in call.outputs:
            run.values[number[out]].root = number[built.values[out].root]
        args, kwargs = mapped(
            (call.args, call.kwargs), lambda x: Ref(number[x.number]) if isinstance(x, Ref) else x
        )
        outputs = tuple(number[out] for out in call.outputs)
        run.calls.append(_Made(call.func, call.name, call.kind, args, kwargs, outputs))
    run.number_of[id(tensor)] = number[wanted]
    run.owners[tensor.untyped_storage()._cdata] = run.values[number[wanted]].root
    run.alive.append(tensor)


def _drawn(spec: TensorSpec, device: str) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if device == "meta":
        return torch.empty(spec.shape, dtype=dtype, device=device)
    if dtype == torch.bool:
        return torch.rand(spec.shape) < 0.5
    if not dtype.is_floating_point:
        low, high = int(spec.low or 0), int(spec.high if spec.high is not None else 1)
        return torch.randint(low, high + 1, spec.shape, dtype=dtype)
    if spec.low is None and spec.high is None:
        return torch.randn(spec.shape).to(dtype)
    least = spec.low if spec.low is not None else (spec.high or 0.0) - 2.0
    most = spec.high if spec.high is not None else least + 2.0
    return (torch.rand(spec.shape) * (most - least) + least).to(dtype)


class _Recorder(TorchFunctionMode):
    """lenient: what is not understood makes tensors that are not known, in place of an error."""

    def __init__(self, run: _Run, *, lenient: bool = False) -> None:
        super().__init__()
        self.run, self.lenient = run, lenient

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _WRITTEN_IN_PYTHON:  # which would come here again, and asks before that
            with patch.object(functional, "has_torch_function", lambda _: False), self:
                return func(*args, **kwargs)
        given = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        before = [tensor._version for tensor in given]
        result = _contiguous(func(*args, **kwargs), given)
        if getattr(func, "__name__", "") in _COPIES and not _layout(result).is_plain:
            result = result.clone(memory_format=torch.contiguous_format)  # as at other sizes
        made = [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
        changed = [t for t, version in zip(given, before, strict=True) if t._version != version]
        if made or changed:
            try:
                self._note(func, args, kwargs, given, made, changed)
            except PartsError:
                if not self.lenient:
                    raise
                for tensor in (*made, *changed):
                    self.run.number_of.pop(id(tensor), None)
        return result

    def _note(
        self, func: Any, args: Any, kwargs: Any,
        given: list[torch.Tensor], made: list[torch.Tensor], changed: list[torch.Tensor],
    ) -> None:  # fmt: skip
        run, name = self.run, getattr(func, "__name__", str(func))
        if len(run.calls) >= MOST_CALLS:
            raise PartsError(f"it makes more than {MOST_CALLS} calls")
        if name == "__setitem__":
            self._written(*args)
            return
        args, kwargs = mapped((args, kwargs), run.ref)
        outputs: tuple[int, ...]
        if changed and not made[0].is_floating_point() and args[0].number < run.given:
            return  # a counter of the module's
        if changed and name != "batch_norm":  # which keeps running statistics
            outputs = (self._changed(name, changed, made),)
            run.calls.append(_Made(func, name, "compute", args, kwargs, outputs))
            return
        if name in _COPIES and len(given) == 1:
            outputs = (run.add(made[0], anew=True),)  # whether or not it had to be copied here
            run.calls.append(_Made(func, name, "copy", args, kwargs, outputs))
            return
        if all(id(t) in run.number_of for t in made):
            return  # the tensor itself
        storages = {t.untyped_storage()._cdata for t in given}
        kind: Kind = "join" if name in _JOINS else "compute"
        if all(t.untyped_storage()._cdata in storages for t in made):
            kind = "view"
        elif name in _COPIES:
            kind = "copy"
        outputs = tuple(
            run.number_of[id(t)] if id(t) in run.number_of else run.add(t) for t in made
        )
        run.calls.append(_Made(func, name, kind, args, kwargs, outputs))

    def _written(self, target: torch.Tensor, index: Any, value: Any) -> None:
        """`target[index] = value` as a view of the target, and a tensor that has it all."""
        run, number = self.run, self._own("__setitem__", target)
        with torch._C.DisableTorchFunction():
            view = target[index]
        if view.untyped_storage()._cdata != target.untyped_storage()._cdata:
            raise PartsError("it writes to places that other numbers tell")
        shown = run.add(view)
        del run.number_of[id(run.alive.pop())]  # nothing of the module's shows it
        args = Ref(number), mapped(index, run.ref)
        run.calls.append(_Made(torch.Tensor.__getitem__, "__getitem__", "view", args, {}, (shown,)))
        put = (Ref(number), Ref(shown), run.ref(value))
        outputs = (run.add(target, anew=True),)
        run.calls.append(_Made(torch.Tensor.__setitem__, "__setitem__", "write", put, {}, outputs))

    def _own(self, name: str, target: torch.Tensor) -> int:
        """The number of a tensor that nothing else shows and no caller gave. Raises PartsError."""
        number = self.run.number_of.get(id(target))
        storage = target.untyped_storage()._cdata
        owner = self.run.owners.get(storage)
        shared = any(
            t is not target and t.untyped_storage()._cdata == storage for t in self.run.alive
        )
        if number is None or owner != number or number < self.run.given or shared:
            raise PartsError(f"{name} writes into a tensor that others read")
        return number

    def _changed(self, name: str, changed: list[torch.Tensor], made: list[torch.Tensor]) -> int:
        """A tensor is written into: what it is from now on is another value."""
        if len(changed) > 1 or len(made) != 1 or made[0] is not changed[0]:
            raise PartsError(f"{name} writes into a part of a tensor")
        self._own(name, changed[0])
        return self.run.add(changed[0], anew=True)


def _contiguous(result: Any, given: list[torch.Tensor]) -> Any:
    """What a call gives, where it is of a storage of its own in the order of its places, as kernels
    write it: PyTorch keeps the order of a tensor that was turned."""
    if isinstance(result, tuple | list):
        return type(result)([_contiguous(one, given) for one in result])
    if not isinstance(result, torch.Tensor) or result.is_contiguous():
        return result
    storage = result.untyped_storage()._cdata
    shared = any(t.untyped_storage()._cdata == storage for t in given)
    return result if shared else result.contiguous()


def _layout(tensor: torch.Tensor) -> Layout:
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))

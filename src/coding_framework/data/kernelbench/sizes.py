"""Sizes for a problem that an emulator can run, chosen without running anything.

Every choice is tried on PyTorch's meta device: shapes and operation counts, no memory and no
arithmetic. A choice is taken only where the model can be built, runs, and returns outputs of the
same number and rank as at its own sizes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, cast, get_args

from coding_framework.data.kernelbench.constants import (
    SMALLEST,
    Constant,
    Values,
    run_module,
)
from coding_framework.types import ALIGNED_ELEMENTS, DType, InitArg

if TYPE_CHECKING:
    import torch


_OTHER_MULTIPLES = (1.5, 0.5)
"""Of a shrunk size that cannot be odd."""
_ENOUGH = 6
"""Elements of which a batch norm takes mean and variance. Of two it keeps a sign and what rounding
says: behind twenty such layers PyTorch's own error is larger than its result, and every answer is
right."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a model takes, gives and costs at one choice of sizes."""

    inputs: tuple[tuple[tuple[int, ...], DType], ...]
    """(shape, dtype) of each."""
    layouts: tuple[tuple[tuple[int, ...], int], ...]
    """Strides of each, () where it is contiguous, and where in its memory it starts."""
    outputs: tuple[tuple[int, ...], ...]
    init_args: tuple[InitArg, ...]
    elements: int
    """Of inputs, weights and outputs together."""
    made: int
    """Elements of all that the operations give, views left out."""
    flops: int
    """Of matrix products and convolutions."""
    terms: int
    """Elements of one input or weight that an element of an output adds up, at most."""
    empty: int
    """Inputs, weights and outputs without elements."""
    normed: int
    """Elements of which a batch norm takes mean and variance, at least."""
    single: int
    """Layers that take or give one feature, or norm groups of one channel."""
    kinds: frozenset[str]
    """Of its layers, and names of its weights: a kernel is given as many at each size, and a block
    has a shortcut layer where the channels behind it are others than before."""

    def without_norms(self) -> Measure:
        """As one that asks nothing of batch norms."""
        return replace(self, normed=0)

    @property
    def output_elements(self) -> int:
        return max(1, sum(math.prod(shape) for shape in self.outputs))

    @property
    def products_per_output(self) -> int:
        """Multiply-adds of matrix products and convolutions per output element."""
        return math.ceil(self.flops / 2 / self.output_elements)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(len(shape) for shape in self.outputs)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a choice of sizes may cost."""

    elements: int
    flops: int
    made: int

    def holds(self, measure: Measure) -> bool:
        return (
            measure.elements <= self.elements
            and measure.flops <= self.flops
            and measure.made <= self.made
        )


def measure(tree: ast.Module, values: Values) -> Measure:
    """Measure the problem at these sizes, once. Raises whatever the problem raises."""
    return _measure(tree, frozenset((c, size) for c, size in values.items() if size != c.value))


@lru_cache(maxsize=64)
def _measure(tree: ast.Module, changed: frozenset[tuple[Constant, int]]) -> Measure:
    import torch

    from coding_framework.reference_model import constructor_arguments, make_model
    from coding_framework.reference_model.operations import FewSteps, OperationCounter

    with torch.device("meta"), torch.no_grad():
        namespace = run_module(tree, dict(changed))
        arguments = constructor_arguments(namespace)
        inputs = inputs_of(namespace)
        inputs = [x.to("meta") if isinstance(x, torch.Tensor) else x for x in inputs]
        model = make_model(namespace["Model"], arguments).to("meta")  # torch.Tensor(2) is not there
        with OperationCounter() as counted, FewSteps(counted):
            outputs = as_tensors(model(*inputs))
    given = [*inputs, *model.state_dict().values()]
    tensors = [*given, *outputs]
    most = max((t.numel() for t in given), default=1)
    return Measure(
        inputs=tuple((tuple(t.shape), _dtype_name(t.dtype)) for t in inputs),
        layouts=tuple(map(_layout, inputs)),
        outputs=tuple(tuple(t.shape) for t in outputs),
        init_args=tuple(_init_arg(a) for a in arguments),
        elements=sum(t.numel() for t in tensors),
        made=counted.elements,
        flops=counted.flops,
        terms=max(1, *(min(most, counted.terms(t)) for t in outputs)),
        empty=sum(t.numel() == 0 for t in tensors),
        normed=min(counted.normed, _ENOUGH),
        single=sum(map(_is_single, model.modules())),
        kinds=frozenset(
            [type(layer).__name__ for layer in model.modules()] + list(model.state_dict())
        ),
    )


def _layout(tensor: torch.Tensor) -> tuple[tuple[int, ...], int]:
    """Raises ValueError for one of which indices share memory, other than along whole axes."""
    start = int(tensor.storage_offset()) % ALIGNED_ELEMENTS
    if tensor.is_contiguous() or not tensor.numel():
        return (), start
    span = 1
    axes = [(s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if s and n > 1]
    for stride, extent in sorted(axes):
        if stride < span:
            raise ValueError(
                "get_inputs() gives a tensor that overlaps itself: give a copy (.contiguous())"
            )
        span += (extent - 1) * stride
    return tuple(tensor.stride()), start


def inputs_of(namespace: Mapping[str, Any]) -> list[Any]:
    """What `get_inputs` gives under the device of the block; on the CPU where that has no values,
    and it looks at some (`bincount`)."""
    import torch

    try:
        return list(namespace["get_inputs"]())
    except (NotImplementedError, RuntimeError):
        with torch.device("cpu"):
            return list(namespace["get_inputs"]())


def as_tensors(result: Any) -> tuple[torch.Tensor, ...]:
    """What `forward` returned, as a tuple. Raises TypeError where it is no tensor."""
    from coding_framework.reference_model import tensors_of

    return tensors_of(result)


def shrink(tree: ast.Module, start: Values, original: Measure, budget: Budget) -> Values:
    """Halve the largest of the constants until the budget holds, equal ones together; a constant
    that the model cannot do with less of (divisible by groups, larger than a filter) stays. One
    that would be as small as another, and leave out a layer, waits until that is smaller. May end
    above the budget where sizes are written into the model itself."""
    values = dict(start)
    fixed: set[Constant] = set()
    waiting: set[Constant] = set()
    current = measure(tree, values)
    while not budget.holds(current):
        free = [c for c in values if c not in fixed | waiting and values[c] > SMALLEST]
        if not free:
            break
        largest, others = max(free, key=lambda c: values[c]), False
        for group in filter(None, _groups(largest, free, values)):
            trial = values | {c: max(SMALLEST, values[c] // 2) for c in group}
            smaller = _measured(tree, trial, original)
            if smaller is not None and smaller.kinds == original.kinds:
                values, current = trial, smaller
                waiting.clear()
                break
            others |= smaller is not None
        else:
            (waiting if others else fixed).add(largest)
    return values


def widen_norms(
    tree: ast.Module, start: Values, original: Measure, is_steady: Callable[[Values], bool]
) -> Values:
    """Where a batch norm has few elements: the constant that costs least is doubled, beyond its own
    value too, until rounding decides nothing any more."""
    values: Values = start
    current = measure(tree, start)
    while current.normed < original.normed and not is_steady(values):
        made: list[tuple[int, int, Values, Measure]] = []
        for constant in values:
            for group in filter(None, _groups(constant, list(values), values)):
                trial = {**values, **{c: 2 * values[c] for c in group}}
                larger = _try_measure(tree, trial, original.without_norms())
                if larger is not None and larger.normed > current.normed:
                    made.append((larger.flops + larger.made, len(made), trial, larger))
                    break
        if not made:
            break
        _, _, values, current = min(made)
    return values


def make_odd(tree: ast.Module, start: Values, original: Measure) -> Values:
    """The sizes, each moved to an odd number just below where the model allows it: extents are
    then no multiples of a block or of a vector. One that was shrunk and has to be a multiple of
    another size becomes another multiple, so that their ratio varies too."""
    values = dict(start)
    for constant in start:
        others = _OTHER_MULTIPLES if start[constant] != constant.value else ()
        sizes = [values[constant] - 1 - values[constant] % 2]
        sizes += [int(start[constant] * factor) for factor in others]
        groups = list(filter(None, _groups(constant, list(values), values)))
        for size, group in product(filter(lambda n: n >= 3, sizes), groups):
            trial = values | dict.fromkeys(group, size)
            if _try_measure(tree, trial, original) is not None:
                values = trial
                break
    return values


def enlarge(tree: ast.Module, start: Values, original: Measure, *factors: float) -> Values:
    """The sizes, those that were changed times the first factor that the model allows, for all of
    them or for some; unchanged where it allows none."""
    for factor in factors:
        larger = {c: int(v * factor) if v != c.value else v for c, v in start.items()}
        if _try_measure(tree, larger, original) is not None:
            return larger
        values = dict(start)
        for constant in start:
            for group in filter(None, _groups(constant, list(start), values)):
                trial = values | {c: larger[c] for c in group}
                if trial != values and _try_measure(tree, trial, original) is not None:
                    values = trial
                    break
        if values != start:
            return values
    return start


def _groups(
    constant: Constant, among: Sequence[Constant], values: Values
) -> tuple[list[Constant], list[Constant]]:
    """The constant alone; then with all that have the same value, which may have to agree, and must
    where one of them is drawn to index the others."""
    equal = [c for c in among if values[c] == values[constant]]
    return ([] if any(c.bound for c in equal) else [constant]), equal


def _try_measure(tree: ast.Module, values: Values, original: Measure) -> Measure | None:
    """`_measured`, and None where the model has another kind of layers."""
    made = _measured(tree, values, original)
    return made if made is not None and made.kinds == original.kinds else None


def _measured(tree: ast.Module, values: Values, original: Measure) -> Measure | None:
    """None where the model fails, returns something else than at its own sizes, or is a simpler
    one: with batch norms over too few elements, a hidden layer of `channels // 16` that has no
    feature or one, or 32 norm groups of one channel each."""
    try:
        made = measure(tree, values)
    except Exception:  # a model that cannot be built at these sizes says so in its own way
        return None
    same = made.ranks == original.ranks and len(made.inputs) == len(original.inputs)
    simpler = made.empty > original.empty or made.single > original.single
    return made if same and not simpler and made.normed >= original.normed else None


def _is_single(layer: Any) -> bool:
    from torch import nn

    if isinstance(layer, nn.GroupNorm):
        return layer.num_channels == layer.num_groups
    return isinstance(layer, nn.Linear) and 1 in (layer.in_features, layer.out_features)


def _init_arg(value: Any) -> InitArg:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(map(_is_plain, value)):
        return tuple(tuple(v) if isinstance(v, (list, tuple)) else v for v in value)
    raise TypeError(
        f"get_init_inputs() returns {value!r}: numbers, strings, tuples of them only, or of such"
    )


def _is_plain(value: Any) -> bool:
    """Whether it is a number or a string, or several of them."""
    inside = value if isinstance(value, (list, tuple)) else (value,)
    return all(isinstance(v, (int, float, str)) for v in inside)


def _dtype_name(dtype: torch.dtype) -> DType:
    name = str(dtype).removeprefix("torch.")
    if name not in get_args(DType):
        raise TypeError(f"inputs of dtype {name} are not supported")
    return cast(DType, name)

"""Computes what the task's function gives on inputs of ours: reference, tolerance, parameters.

The task's PyTorch source is trusted (ours, or the user's own file) and runs in the judge's process
tree, never in the candidate's. Results are cached by (task, case, secret, seed) within a bound of
memory, so that judging many candidates of one task computes each reference once.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from coding_framework.cuda.expected.drawn_shapes import drawn_case, swept_cases
from coding_framework.cuda.expected.edge_draws import (
    draw_edges,
    edge_kind,
    edge_kinds,
    edge_seed,
    landmarks_of,
)
from coding_framework.cuda.expected.fine_bounds import finely_expected
from coding_framework.cuda.expected.inputs import (
    TORCH_DTYPES,
    derive_seed,
    draw_inputs,
    draw_pools,
    nearly,
    picked_inputs,
)
from coding_framework.cuda.expected.model_calls import (
    call,
    call_in_float64,
    one_thread,
    perturbed,
    rounding_unit,
)
from coding_framework.cuda.expected.parameters import redraw_parameters, vary_parameters
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.expected.tf32 import RUNS, in_tf32
from coding_framework.cuda.expected.tolerance import ExpectedOutput, OutputSpread
from coding_framework.errors import (
    BrokenTaskError,
    DeviceFullError,
    InfrastructureError,
    TaskError,
    UsageError,
)
from coding_framework.reference_model import (
    is_in_tf32,
    make_model,
    recorded_definitions,
    run_reference,
)
from coding_framework.types import CALLERS, InitArg, Task, TestCase

_PERTURBED_RUNS = 3
STEADY_RUNS = 24
"""At small sizes, before a candidate is wrong: in a few runs what rounds may cancel by luck, once
in some thousand elements."""
NEAR = 1 << 41
"""Beyond it a seed stands for the draw of the rest, with other values in a few places."""
_FIRST_RUNS = 1
"""Of the bound that a candidate is compared with first: a few elements look insensitive in one run
by luck. Who is wrong by it is compared again, by more."""
_CACHE_BYTES = 320 << 20
"""All draws, five and up to four at the edges, of three inputs and an output of 1M float32 elements
each, which take 290 MiB. A trial goes through its draws in turn: with room for all but one of them,
none would be found again."""
_OTHERS_BYTES = 64 << 20
"""Above it, draws of tasks other than the one being judged go: a worker keeps no more for long."""
_GPU_CACHE_BYTES = 3 << 29
"""Where references of real size lie on the GPU: two draws of a large task. More workers than cores
share a GPU, and what each keeps is rarely asked for again."""
_CROWDED_BYTES = 256 << 20
"""The same while others wait for the GPU's memory. A smaller draw takes longer to make again than
its memory is worth."""
Scalar = bool | int | float
T = TypeVar("T")
NewSpread = Callable[[torch.Tensor, torch.Tensor], OutputSpread]
Expected = Callable[[nn.Module, tuple[torch.Tensor, ...]], tuple[ExpectedOutput, ...]]


class ReferencePlace(Protocol):
    """Where references of real size are computed: PyTorch on a GPU (`gpu/place.py`)."""

    @property
    def device(self) -> torch.device: ...

    @property
    def new_spread(self) -> NewSpread:
        """Begins the spread of an output that lies there, given native result and reference."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Entered for computations there."""
        ...

    def empty(self) -> None:
        """Give back memory that is held for later."""
        ...

    def tidy(self) -> None:
        """The same, where it is much."""
        ...

    def rest(self) -> None:
        """The same, where nothing is to be computed for some time."""
        ...

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits for memory there."""
        ...


@dataclass(frozen=True, slots=True)
class Expectation:
    """One draw of one case: what goes in, and what must come out."""

    seed: int
    inputs: tuple[torch.Tensor, ...]
    parameters: tuple[torch.Tensor, ...]
    """The model's parameters and buffers in the order of their definition; drawn anew for each
    seed, so that a kernel that keeps transformed weights from one call to the next is wrong."""
    signature: ModelSignature
    outputs: tuple[ExpectedOutput, ...]
    perturbed_runs: int = _PERTURBED_RUNS
    """On which the tolerance rests."""

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The numbers among the model's arguments."""
        return tuple(a for a in self.signature.init_args if isinstance(a, (bool, int, float)))

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that lies on the device before a run."""
        return self.inputs + self.parameters

    @property
    def elements(self) -> int:
        """Of inputs, parameters and outputs together."""
        tensors = (*self.tensors, *(output.native for output in self.outputs))
        return sum(tensor.numel() for tensor in tensors)

    @property
    def decides_all(self) -> bool:
        """Whether every element of every output counts."""
        return all(output.decides is None for output in self.outputs)

    @property
    def nbytes(self) -> int:
        """Memory that the expectation holds."""
        held = [*self.tensors]
        for output in self.outputs:
            held += [output.reference, output.native]
            held += [t for t in (output.tolerance, output.decides) if t is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


def task_digest(task: Task) -> str:
    """Address of the function that a task asks for: its reference, arguments and shape sets."""
    payload = task.model_dump_json(
        include={"name", "reference", "init_args", "cases", "gpu_cases", "atomic_order"}
    )
    return hashlib.sha256(payload.encode()).hexdigest()


class ReferenceCache:
    """Expectations of recent draws, least recently used thrown away above `max_bytes`.

    Not shared between processes and not written to disk: a reference must not lie where candidate
    code could ever read it.
    """

    def __init__(
        self,
        secret: bytes,
        max_bytes: int | None = None,
        place: ReferencePlace | None = None,
        compute: Compute | None = None,
    ) -> None:
        """max_bytes: None: room for the draws of one task. place: where shape sets of real size are
        computed; None: there are none. compute: for tasks of callers, in their sandbox; None: tasks
        are trusted, and their references run here."""
        self._compute = compute
        self._secret = secret
        usual = _CACHE_BYTES if place is None else _GPU_CACHE_BYTES
        self._max_bytes = usual if max_bytes is None else max_bytes
        self._place = place
        self._held: OrderedDict[tuple[str, str, int], Expectation] = OrderedDict()
        self._bytes = 0
        self._drawn: dict[str, TestCase | None] = {}
        self._swept: dict[str, tuple[TestCase, ...]] = {}
        self._edges: dict[tuple[str, str], tuple[int, ...]] = {}
        self._informative: dict[tuple[str, tuple[int, ...]], bool] = {}
        self._flops: dict[tuple[str, str], int] = {}
        self._workspaces: dict[tuple[str, str], int | None] = {}
        self._digested: tuple[Task, str] | None = None

    def _digest(self, task: Task) -> str:
        """`task_digest`, kept for the task that is being judged."""
        if self._digested is None or self._digested[0] is not task:
            self._digested = (task, task_digest(task))
        return self._digested[1]

    def require_informative(self, task: Task, seeds: Sequence[int]) -> None:
        """Raises TaskError where one constant would pass for every draw of the task's
        first shape set, those at the edges too: no verdict on such a task means anything."""
        key = (self._digest(task), tuple(seeds))
        if key not in self._informative:
            every = (*seeds, *self.edges(task, task.cases[0]))
            draws = [self.get(task, task.cases[0], seed) for seed in every]
            draws = [draw for draw in draws if draw.decides_all]
            self._informative[key] = not a_constant_passes(draws)
        if not self._informative[key]:
            raise TaskError(
                f"task {task.name!r} cannot be judged, as a constant answer is right for all its "
                "inputs: widen their domain (low, high), or leave the task out"
            )

    def get(self, task: Task, case: TestCase, seed: int) -> Expectation:
        """The expectation of one draw. Raises UsageError where the task's reference cannot run."""
        digest = self._digest(task)
        key = (digest, case.name, seed)
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
            return found
        place = self._place if case in task.gpu_cases else None
        runs = _FIRST_RUNS
        made = expect(
            task, digest, case, self._secret, seed, place=place, runs=runs, compute=self._compute
        )
        self._hold(key, made)
        return made

    def steadier(self, task: Task, case: TestCase, seed: int) -> Expectation:
        """The expectation of one draw with a tolerance that does not rest on a few runs: the same
        one, where it does not. At small sizes `get` gives the usual one as before: what a verdict
        says does not depend on who was judged first."""
        found = self.get(task, case, seed)
        place = self._place if case in task.gpu_cases else None
        runs = STEADY_RUNS if place is None else _PERTURBED_RUNS
        if found.perturbed_runs >= runs:
            return found
        digest = self._digest(task)
        key = (digest, case.name, seed)
        if place is None:
            key = (digest, f"{case.name} steady", seed)
        if (held := self._held.get(key)) is not None:
            if place is None:
                return held
            self._bytes -= self._held.pop(key).nbytes
        made = expect(
            task, digest, case, self._secret, seed, inputs=found.inputs, place=place, runs=runs,
            compute=self._compute,
        )  # fmt: skip
        self._hold(key, made)
        return made

    def of_other_inputs(
        self, task: Task, case: TestCase, seed: int, inputs: Sequence[torch.Tensor]
    ) -> torch.Tensor | None:
        """The first output in float64, with the parameters of a draw; None where the reference does
        not take such inputs, or may not run here."""
        if self._compute is not None or task.source == CALLERS:
            return None
        given = tuple(t.to(torch.float64) if t.is_floating_point() else t for t in inputs)
        weights = weights_seed(self._secret, self._digest(task), case, seed)
        try:
            with reference_model(task, case, seed, weights, given) as (model, *_), torch.no_grad():
                made = model.double()(*given)
        except UsageError:
            return None
        made = made[0] if isinstance(made, (tuple, list)) else made
        return made.to(torch.float64) if isinstance(made, torch.Tensor) else None

    def edges(self, task: Task, case: TestCase) -> tuple[int, ...]:
        """The seeds of the edge draws of a small shape set that decide something."""
        key = (self._digest(task), case.name)
        if key not in self._edges:
            number = task.cases.index(case) if case in task.cases else 0
            seeds = [edge_seed(kind) for kind in edge_kinds(case, number)]
            self._edges[key] = tuple(s for s in seeds if self._decides(task, case, s))
        return self._edges[key]

    def drawn_case(self, task: Task) -> TestCase | None:
        """A shape set of sizes that nobody knows before; None where the task has no others."""
        digest = self._digest(task)
        if digest not in self._drawn:
            self._drawn[digest] = drawn_case(
                task, self._secret, digest, lambda case: self._runs(task, case)
            )
        return self._drawn[digest]

    def swept_cases(self, task: Task) -> tuple[TestCase, ...]:
        """Small shape sets of other sizes; none where the task has no others."""
        digest = self._digest(task)
        if digest not in self._swept:
            plain = edge_seed("plain")
            self._swept[digest] = swept_cases(
                task, self._secret, digest, lambda case: self._runs(task, case, plain)
            )
        return self._swept[digest]

    def _runs(self, task: Task, case: TestCase, seed: int = 0) -> bool:
        """Whether the function takes these sizes, and gives outputs that are not empty."""
        try:
            made = self.get(task, case, seed).outputs
            usual = self.get(task, task.cases[0], 0).outputs
        except UsageError:
            return False
        ranks = [[output.native.dim() for output in outputs] for outputs in (made, usual)]
        return ranks[0] == ranks[1] and all(output.native.numel() for output in made)

    def _decides(self, task: Task, case: TestCase, seed: int) -> bool:
        try:
            outputs = self.get(task, case, seed).outputs
        except UsageError:  # its function does not take such values
            return False
        return any(o.decides is None or bool(o.decides.any()) for o in outputs)

    def _hold(self, key: tuple[str, str, int], made: Expectation) -> None:
        self._held[key] = made
        self._bytes += made.nbytes
        while len(self._held) > 1 and self._bytes > self._room(next(iter(self._held)), key[0]):
            self._bytes -= self._held.popitem(last=False)[1].nbytes

    def leave(self) -> None:
        """After work at real size: give back draws that are larger than what is kept for later,
        or than a little where others wait for memory. One such draw may take 10 GiB."""
        if self._place is None:
            return
        most = self._max_bytes
        if self._bytes > _CROWDED_BYTES and self._place.is_crowded:
            most = min(most, _CROWDED_BYTES)
        if self._bytes <= most:
            return
        while self._held and self._bytes > most:
            self._bytes -= self._held.popitem(last=False)[1].nbytes
        self._place.empty()

    def _room(self, oldest: tuple[str, str, int], judged: str) -> int:
        """Bytes that may be held as long as the oldest draw is this one."""
        if self._place is not None or oldest[0] == judged:
            return self._max_bytes
        return min(self._max_bytes, _OTHERS_BYTES)

    def flops(self, task: Task, case: TestCase, seed: int) -> int:
        """Operations of the function's matrix products and convolutions; 0 where it has none."""
        require_trusted(task)
        key = (self._digest(task), case.name)
        if key not in self._flops:
            from coding_framework.cuda.expected.reference_facts import counted_flops

            found = by_shapes(counted_flops, task, case)
            if found is None:
                with self._model(task, case, seed) as (model, expectation):
                    found = counted_flops(model, expectation.inputs)
            self._flops[key] = found
        return self._flops[key]

    def workspace_bytes(self, task: Task, case: TestCase, seed: int) -> int | None:
        """Bytes that PyTorch's own call holds at its peak beyond inputs and outputs; None where
        shapes do not tell, or the reference may not run here. On the CPU the call is done: its
        inputs are there, and PyTorch's shapes alone import torch._dynamo, which takes a second."""
        from coding_framework.cuda.expected.reference_facts import workspace_bytes

        if self._compute is not None or task.source == CALLERS:
            return None
        key = (self._digest(task), case.name)
        if key in self._workspaces:
            return self._workspaces[key]
        if self._place is None:
            with self._model(task, case, seed) as (model, expectation):
                self._workspaces[key] = workspace_bytes(model, expectation.inputs)
        else:
            self._workspaces[key] = by_shapes(workspace_bytes, task, case)
        return self._workspaces[key]

    def needed_input_bytes(self, task: Task, case: TestCase, seeds: tuple[int, int]) -> int:
        """A lower bound of the bytes of the inputs on which the answer depends. Some fifty runs of
        the function for each input: for times that look impossible."""
        from coding_framework.cuda.expected.reference_facts import needed_input_bytes

        others = self.get(task, case, seeds[1]).inputs
        with self._model(task, case, seeds[0]) as (model, expectation):
            return needed_input_bytes(model, expectation.inputs, others)

    @contextmanager
    def _model(
        self, task: Task, case: TestCase, seed: int
    ) -> Iterator[tuple[nn.Module, Expectation]]:
        """The model of one draw, where its expectation was computed."""
        require_trusted(task)
        expectation = self.get(task, case, seed)
        on_gpu = self._place is not None and any(t.is_cuda for t in expectation.tensors)
        with self._place.working() if self._place is not None and on_gpu else nullcontext():
            weights = weights_seed(self._secret, self._digest(task), case, seed)
            with reference_model(task, case, seed, weights, expectation.inputs) as (model, *_):
                yield model, expectation


class Compute(Protocol):
    """Computes what must come out of inputs (`computed`, or a process in a sandbox that does)."""

    def __call__(
        self, task: Task, case: TestCase, seed: int, inputs: tuple[torch.Tensor, ...],
        weights: int, runs: int,
    ) -> Expectation: ...  # fmt: skip


def require_trusted(task: Task) -> None:
    """Raises InfrastructureError where a caller brought the task: its reference runs in a sandbox
    or not at all."""
    if task.source == CALLERS:
        raise InfrastructureError(
            f"the reference of task {task.name!r} came from a caller and may not run here"
        )


def expect(
    task: Task, digest: str, case: TestCase, secret: bytes, seed: int,
    *, inputs: tuple[torch.Tensor, ...] | None = None, place: ReferencePlace | None = None,
    runs: int = _PERTURBED_RUNS, compute: Compute | None = None,
) -> Expectation:  # fmt: skip
    """Draw the inputs (where none are given) and the parameters of one seed, and compute what must
    come out; on the GPU of `place`, or on the CPU. runs: with perturbed inputs, for the tolerance:
    more never draw others than fewer."""
    own, seed = seed, seed - NEAR if seed >= NEAR else seed
    pools: tuple[torch.Tensor, ...] = ()
    if inputs is None and place is not None:
        pools = draw_pools(case, secret, digest, seed)  # while others use the GPU
    elif inputs is None:
        kind = edge_kind(seed)
        if kind is None:
            inputs = draw_inputs(case, secret, digest, seed)
        else:
            marks = landmarks_of(task.reference, case.init_args or task.init_args)
            inputs = draw_edges(case, kind, secret, digest, marks)
        if own != seed:
            keys = [derive_seed(secret, "near", digest, own, j) for j in range(len(inputs))]
            inputs = tuple(map(nearly, inputs, case.inputs, keys))
    weights = weights_seed(secret, digest, case, seed)
    if compute is not None and inputs is not None:
        return replace(compute(task, case, seed, inputs, weights, runs), seed=own)
    require_trusted(task)
    with place.working() if place is not None else nullcontext():
        if inputs is None:
            assert place is not None
            inputs = picked_inputs(pools, case, secret, digest, seed, place.device)
        return replace(computed(task, case, seed, inputs, weights, runs, place), seed=own)


def weights_seed(secret: bytes, digest: str, case: TestCase, seed: int) -> int:
    """From which a draw's parameters come."""
    return derive_seed(secret, "weights", digest, case.name, seed) >> 1


def computed(
    task: Task, case: TestCase, seed: int, inputs: tuple[torch.Tensor, ...], weights: int,
    runs: int, place: ReferencePlace | None = None, expected: Expected | None = None,
) -> Expectation:  # fmt: skip
    """What must come out of these inputs, where they are. The reference runs in this process.
    expected: says it of the model; None: by the bound of `tolerance.py`."""
    with reference_model(task, case, seed, weights, inputs) as (model, state, others):
        kind = edge_kind(seed)
        if kind is None and others:
            kind = "plain"  # PyTorch may lose an answer there
        parameters = tuple(t.detach().clone().contiguous() for t in state.values())
        length = case.reduction_length
        tf32 = is_in_tf32(task.reference)
        if expected is not None:
            outputs = expected(model, inputs)
        elif place is None:
            outputs = finely_expected(model, inputs, length, runs, kind, tf32)
        else:
            outputs = _expected_outputs(model, inputs, length, runs, place.new_spread, tf32)
    init_args = case.init_args or task.init_args
    signature = ModelSignature(init_args, tuple(state), task.scalar_positions)
    return Expectation(seed, inputs, parameters, signature, outputs, runs)


@contextmanager
def reference_model(
    task: Task, case: TestCase, seed: int, weights: int, inputs: tuple[torch.Tensor, ...]
) -> Iterator[tuple[nn.Module, dict[str, torch.Tensor], bool]]:
    """The task's model with the parameters of one draw, those in the order of their definition, on
    the device of `inputs`, and whether they are others than it is made with. Random numbers inside
    the block come from the draw."""
    init_args = case.init_args or task.init_args
    devices = sorted({t.device.index or 0 for t in inputs if t.is_cuda})
    with _isolated(weights, devices), _task_faults(task, case):
        orders = _orders(task.reference)
        if (order := orders.get(init_args)) is None:
            with recorded_definitions() as definitions:
                model = _new_model(_model_class(task.reference), init_args, inputs)
            state = definitions.parameters(model)
            orders[init_args] = tuple(state)
        else:
            model = _new_model(_model_class(task.reference), init_args, inputs)
            found = model.state_dict()
            state = {name: found[name] for name in order}
        few = vary_parameters(model)
        at_edge = edge_kind(seed) is not None or bool(devices)
        yield model, state, not at_edge and redraw_parameters(model, few, inputs, seed)


def a_constant_passes(draws: Sequence[Expectation]) -> bool:
    """Whether filling every output with one number (or NaN) is right for all draws."""
    return all(_is_constant([d.outputs[i] for d in draws]) for i in range(len(draws[0].outputs)))


def _is_constant(outputs: Sequence[ExpectedOutput]) -> bool:
    values = torch.cat([o.reference.reshape(-1).to(torch.float64) for o in outputs])
    finite = values[torch.isfinite(values)]
    if len(finite) in (0, len(values)):
        guess = finite.median() if len(finite) else torch.tensor(0.0, dtype=torch.float64)
        allowed = torch.cat(
            [
                torch.zeros(o.reference.numel(), dtype=torch.float64)
                if o.tolerance is None
                else o.tolerance.reshape(-1)
                for o in outputs
            ]
        )
        return bool(((finite - guess).abs() <= allowed[: len(finite)]).all())
    return False


def _expected_outputs(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    reduction_length: int,
    runs: int,
    new_spread: NewSpread,
    tf32: bool,
) -> tuple[ExpectedOutput, ...]:
    native = call(model, inputs)
    reference = call_in_float64(model, inputs)
    spreads = [
        new_spread(n, r) if n.is_floating_point() else None  # None: it is exact
        for n, r in zip(native, reference, strict=True)
    ]
    for _ in range(runs):
        _add_run(spreads, model, inputs)
    for run in range(RUNS if tf32 else 0):
        for spread, n, r in zip(
            spreads, in_tf32(model, inputs, reference, run), reference, strict=True
        ):
            if spread is not None:
                spread.add(n, r, rounding_unit(inputs))
    return tuple(
        ExpectedOutput(r, n, None if s is None else s.tolerance(n.dtype, reduction_length))
        for n, r, s in zip(native, reference, spreads, strict=True)
    )


def _add_run(
    spreads: Sequence[OutputSpread | None], model: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> None:
    """A run on perturbed inputs, whose tensors are gone after it."""
    eps = rounding_unit(inputs)
    moved, moved_inputs = perturbed(model, inputs, eps)
    reference = call_in_float64(moved, moved_inputs)
    native = call(moved, moved_inputs)
    del moved, moved_inputs
    for spread, n, r in zip(spreads, native, reference, strict=True):
        if spread is not None:
            spread.add(n, r, eps)


# --- the model ------------------------------------------------------------------------------------


def _new_model(
    model_class: Callable[..., Any], init_args: tuple[InitArg, ...], inputs: Sequence[torch.Tensor]
) -> nn.Module:
    """In the dtype of its inputs, as PyTorch initialises it."""
    model = make_model(model_class, init_args)
    if not isinstance(model, nn.Module):
        raise TypeError(f"Model is a {type(model).__name__}, not an nn.Module")
    floating = [t.dtype for t in inputs if t.is_floating_point()]
    if floating and floating[0] is not torch.float32:
        model = model.to(floating[0])
    return model


def by_shapes(
    count: Callable[[nn.Module, list[torch.Tensor]], T], task: Task, case: TestCase
) -> T | None:
    """What is counted of a call without doing it; None where the function looks at values."""
    try:
        with torch.device("meta"), _isolated(0):
            inputs = [
                torch.empty(spec.shape, dtype=TORCH_DTYPES[spec.dtype]) for spec in case.inputs
            ]
            load = _model_class.__wrapped__  # nothing of it may be left for real runs
            model = _new_model(load(task.reference), case.init_args or task.init_args, inputs)
            return count(model, inputs)
    except Exception:
        return None


@lru_cache(maxsize=256)
def _model_class(source: str) -> Callable[..., Any]:
    found = run_reference(source).get("Model")
    if not callable(found):
        raise TypeError("the source defines no class Model")
    return found  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def _orders(source: str) -> dict[tuple[InitArg, ...], tuple[str, ...]]:
    """By the arguments of a model, its parameters in the order of their definition. To note it
    makes PyTorch forget what it knows of its classes, which costs as much as a small model."""
    return {}


@contextmanager
def _isolated(seed: int, devices: Sequence[int] = ()) -> Iterator[None]:
    """torch's global generator seeded for the block and put back after it; one thread, so that
    PyTorch's own sums, and with them the tolerance, do not depend on the machine's cores."""
    with one_thread(), torch.random.fork_rng(devices=list(devices)):
        # torch.manual_seed formats a stack trace each time where CUDA is not initialised
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield


@contextmanager
def _task_faults(task: Task, case: TestCase) -> Iterator[None]:
    """Whatever a task's own source raises is the fault of whoever wrote the task."""
    try:
        yield
    except InfrastructureError:
        raise
    except torch.OutOfMemoryError as e:
        raise DeviceFullError(
            f"the GPU has not the memory for the reference of task {task.name!r} at shape set "
            f"{case.name!r}: judge fewer kernels at once"
        ) from e
    except Exception as e:
        raise BrokenTaskError(
            f"the reference of task {task.name!r} fails on its shape set {case.name!r} "
            f"({type(e).__name__}: {e}): correct the task's Model or its shapes"
        ) from e

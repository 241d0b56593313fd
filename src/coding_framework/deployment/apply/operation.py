"""One operation: the function that it means, its guards, and what PyTorch knows of it.

A call of the decorated function passes the guards and launches before any dispatcher of PyTorch's.
Where PyTorch has to see it (torch.compile, export, modes) it is one opaque operator of the library
`cuda_rl`, whose fake implementation is the function on tensors without data.
"""

from __future__ import annotations

import functools
import operator
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import forward_ad

from coding_framework.cuda.expected.inputs import TORCH_DTYPES
from coding_framework.cuda.expected.tolerance import same_strides
from coding_framework.deployment.apply.agreement import as_outputs, disagreement
from coding_framework.deployment.apply.generated import (
    GUARD_ERRORS,
    PLAIN_TYPES,
    TIMED,
    generate,
)
from coding_framework.deployment.apply.kernel_set import (
    CallShape,
    KernelSet,
    Offer,
    Reason,
    scalar_key,
)
from coding_framework.deployment.apply.launching import (
    KernelFault,
    KernelMismatch,
    LaunchError,
    PreparedCall,
)
from coding_framework.deployment.apply.parameters import (
    is_tensor,
    schema_of,
    typed_signature,
)

Function = Callable[..., Any]
NAMESPACE = "cuda_rl"
switched_off: ContextVar[bool] = ContextVar("switched_off", default=False)
"""Within `disabled()`, in this thread and task alone."""
_MOST_ROUTES = 4096
"""Of an operation: a program whose extents never repeat would fill the memory."""
_MOST_WANTED = 8
_library: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class _Route:
    """What calls of one key come to."""

    reason: Reason | None
    shape_key: str = ""
    """Where another shape, dtype or kernel is what is missing."""
    offer: Offer | None = None
    call: PreparedCall | None = None
    alignments: tuple[int, ...] = ()
    unaligned: int = -1
    """Where no address has one of these bits every alignment holds."""
    capturable: bool = True
    countdown: int = 0
    """Calls until the next check."""
    agreed: bool = False
    """A check has passed."""
    autocast: dict[torch.dtype, bool] = field(default_factory=dict)
    """Whether the function's outputs keep their dtypes under autocast to a dtype."""
    on_cuda: bool = False
    quick: bool = False
    """A call of its key is a hit by the guards of the generated function alone."""
    misses: int = 0
    """Of the generated function, until they are added to the operation's."""


class KernelOp:
    """See the module's docstring. `function` is the reference and the fallback."""

    def __init__(self, name: str, function: Function, task: str) -> None:
        """task: name of the operation in a registry. Raises UsageError where a parameter is no
        tensor and no number."""
        self.name = name
        self.task = task
        self.function = function
        self.signature = typed_signature(name, function)
        self.kernels: KernelSet | None = None
        self.away: Reason = "disabled"
        """Why there are no kernels."""
        self.calls = 0
        self.hits = 0
        self.checks = 0
        self.misses: Counter[str] = Counter()
        self.wanted: Counter[str] = Counter()
        self._timed_calls = 0
        self._timed_ns = 0
        names = list(self.signature.parameters)
        self.tensor_names = [n for n in names if is_tensor(self.signature.parameters[n])]
        self._has_scalars = len(self.tensor_names) < len(names)
        self._arity = len(names)
        self._places = [i for i, name in enumerate(names) if name in self.tensor_names]
        self._routes: dict[Any, _Route] = {}
        self._grad_route = _Route("grad")
        self.generation = -1
        self._define()
        self.torch_op = getattr(getattr(torch.ops, NAMESPACE), name).default
        self._generate()

    # --- what PyTorch knows -----------------------------------------------------------------------

    def _define(self) -> None:
        schema = schema_of(self.signature)
        _library.define(f"{self.name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(self.name, self._below_autograd, "CompositeExplicitAutograd")
        _library.impl(self.name, self._at_autograd, "Autograd", with_keyset=True)
        for key in ("AutocastCUDA", "AutocastCPU"):  # what it does there, the function decides
            _library.impl(self.name, self._function_alone, key)
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", self._fake, lib=_library)

    def _below_autograd(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.bind(args, kwargs)
        return _fresh(self.run(bound), bound)

    def _at_autograd(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """Where a gradient is needed PyTorch sees the function's own operators."""
        bound = self.bind(args, kwargs)
        if self._needs_grad(bound):
            self.calls += 1
            return _fresh(self._miss("grad", bound), bound)
        with torch._C._AutoDispatchBelowAutograd():
            return self.torch_op.redispatch(keyset & torch._C._after_autograd_keyset, *bound)

    def _function_alone(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.bind(args, kwargs)
        return _fresh(self.function(*bound), bound)

    _fake = _function_alone

    def _generate(self) -> None:
        """What takes the decorated function's place, and its parts that other calls need."""
        torch_op, function = self.torch_op, self.function

        def as_operator(*args: Any) -> Any:
            """Where PyTorch has to see the call."""
            if torch.compiler.is_compiling() and (
                torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
            ):
                return function(*args)
            return torch_op(*args)

        known = {
            "op": self, "as_operator": as_operator, "routes": self._routes,
            "grad_route": self._grad_route, "off": switched_off.get,
        }  # fmt: skip
        self._key, self._uncounted, eager = generate(self.signature, self.tensor_names, known)
        self.eager = functools.wraps(function)(eager)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every argument by position. Raises TypeError as the function would."""
        if not kwargs and len(args) == self._arity:
            return args
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _tensors(self, args: tuple[Any, ...]) -> list[Any]:
        return [args[place] for place in self._places]

    def _needs_grad(self, args: tuple[Any, ...]) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self._tensors(args))

    # --- a call -----------------------------------------------------------------------------------

    def run(self, args: tuple[Any, ...]) -> Any:
        """By a kernel where all guards hold, else by the function. args: all, by position."""
        self.calls += 1
        if self.calls & TIMED != 2:
            return self._uncounted(*args)
        hits, started = self.hits, time.perf_counter_ns()
        result = self._uncounted(*args)
        if self.hits > hits:
            self._timed_ns += time.perf_counter_ns() - started
            self._timed_calls += 1
        return result

    def guarded(self, args: tuple[Any, ...]) -> Any:
        """A call that the generated function leaves open, by every guard in its order."""
        kernels = self.kernels
        if kernels is None or switched_off.get():
            return self._miss(self.away if kernels is None else "disabled", args)
        if self.generation != kernels.generation:
            self.forget_routes()
            self.generation = kernels.generation
        reason, key = self._reason_or_key(args)
        if reason is not None:
            return self._miss(reason, args)
        route = self._routes.get(key)
        if route is None:
            route = self._find(kernels, key, args)
        if route.reason is not None:
            if route.shape_key:
                self.wanted[route.shape_key] += 1
            return self._miss(route.reason, args)
        tensors = self._tensors(args)
        if not all(map(_is_plain, tensors)):
            return self._miss("arguments", args)
        addresses = [tensor.data_ptr() for tensor in tensors]
        if not all(addresses):  # of memory that was freed
            return self._miss("arguments", args)
        if any(map(operator.mod, addresses, route.alignments)):
            return self._miss("alignment", args)
        assert route.offer is not None
        if torch.are_deterministic_algorithms_enabled() and not route.offer.template.deterministic:
            return self._miss("deterministic", args)
        if not self.same_under_autocast(route, kernels):
            return self._under_autocast(route, kernels, args)
        return self._launch(route, kernels, args)

    def _reason_or_key(self, args: tuple[Any, ...]) -> tuple[Reason | None, Any]:
        """Why no kernel may be looked for, or the key of the call."""
        try:
            if self._needs_grad(args):
                return "grad", None
            if forward_ad._current_level >= 0 or torch._C._get_tracing_state() is not None:
                return "mode", None
            key = self._key(*args)
            hash(key)
        except GUARD_ERRORS:
            return "arguments", None
        return None, key

    def same_under_autocast(self, route: _Route, kernels: KernelSet) -> bool:
        """Whether autocast is off for these kernels, or is known to keep the outputs' dtypes."""
        device_type = kernels.launcher.device_type
        if not torch.is_autocast_enabled(device_type):
            return True
        return route.autocast.get(torch.get_autocast_dtype(device_type), False)

    def _miss(self, reason: Reason, args: tuple[Any, ...]) -> Any:
        self.misses[reason] += 1
        return self.function(*args)

    def _find(self, kernels: KernelSet, key: Any, args: tuple[Any, ...]) -> _Route:
        """What calls of this key come to from here on."""
        if kernels.launcher.capturing():
            return _Route("capture")  # loading would end the capture: another call decides
        tensors = self._tensors(args)
        if not all(map(_is_plain, tensors)):
            return _Route("arguments")  # its key is that of plain tensors, too
        route = self._new_route(kernels, args, tensors)
        self.generation = kernels.generation  # a kernel may have been left out meanwhile
        if len(self._routes) >= _MOST_ROUTES:
            self._clear_routes()
        self._routes[key] = route
        return route

    def _new_route(
        self, kernels: KernelSet, args: tuple[Any, ...], tensors: Sequence[torch.Tensor]
    ) -> _Route:
        """tensors: plain ones."""
        if not tensors:
            return _Route("device")
        device = tensors[0].get_device()
        if tensors[0].device.type != kernels.launcher.device_type or any(
            t.get_device() != device for t in tensors
        ):
            return _Route("device")
        scalars = [a for n, a in zip(self.signature.parameters, args, strict=True)
                   if n not in self.tensor_names]  # fmt: skip
        call = CallShape(
            tuple((t.dtype, tuple(t.shape), t.stride()) for t in tensors),
            tuple(map(scalar_key, scalars)),
            device,
        )
        for _ in range(len(kernels.offers.get(self.task, ())) + 1):
            chosen = kernels.choose(self.task, call, self._has_scalars)
            if isinstance(chosen, str):
                missing = chosen in ("no kernel", "dtype", "shape")
                return _Route(chosen, call.shape_key if missing else "")
            route = _usable_route(kernels, chosen, tensors[0].device)
            if route is not None:
                # a trace of torch.jit does not show in the keys of tensors without extents
                route.quick = any(t.ndim for t in tensors)
                return route
        return _Route("load")

    def _launch(self, route: _Route, kernels: KernelSet, args: tuple[Any, ...]) -> Any:
        assert route.offer is not None
        assert route.call is not None
        tensors = self._tensors(args)
        addresses = [tensor.data_ptr() for tensor in tensors]
        capturing = kernels.launcher.capturing
        if not route.capturable and capturing():
            return self._miss("capture", args)
        if route.countdown > 0:
            route.countdown -= 1
        elif not capturing():
            return self._checked(route, kernels, args, tensors)
        elif not route.agreed:
            return self._miss("capture", args)
        kernels.launched.add(route.offer.kernel)
        try:
            outputs = route.call(tensors, addresses)
        except LaunchError as e:
            raise self.fault(kernels, e, route.offer.kernel) from e
        self.hits += 1
        return outputs[0] if len(outputs) == 1 else outputs

    # --- checks -----------------------------------------------------------------------------------

    def _checked(
        self, route: _Route, kernels: KernelSet, args: tuple[Any, ...], tensors: Sequence[Any]
    ) -> Any:
        """A call whose result is compared with the function's: the first of each template, and
        then some by chance."""
        assert route.offer is not None
        assert route.call is not None
        device_type = kernels.launcher.device_type
        with torch.autocast(device_type, enabled=False):
            result = self.function(*args)
        native = as_outputs(result)
        route.reason = _output_reason(route.offer.template.outputs, native, args)
        if route.reason is not None:
            self.misses[route.reason] += 1
            return result
        index = tensors[0].get_device() if tensors else -1
        self._require_well(kernels, index)
        kernels.launched.add(route.offer.kernel)
        try:
            outputs = route.call(tensors, [tensor.data_ptr() for tensor in tensors])
            kernels.launcher.wait(index)
        except LaunchError as e:
            raise self.fault(kernels, e, route.offer.kernel) from e
        try:
            wrong = disagreement(self.function, args, native, outputs, route.offer.reduction_length)
        except torch.OutOfMemoryError:
            self.misses["memory"] += 1  # no room for a check: the next call tries again
            return result
        self.checks += 1
        if wrong is not None:
            return self._mismatch(route, kernels, wrong, result)
        route.agreed = True
        route.countdown = kernels.calls_to_next_check(route.offer)
        self.hits += 1
        return outputs[0] if len(outputs) == 1 else outputs

    def _require_well(self, kernels: KernelSet, index: int) -> None:
        """Raises what a launch before this one did to the device, whoever's it was."""
        try:
            kernels.launcher.wait(index)
        except LaunchError as e:
            if not kernels.launched:
                raise (e.__cause__ or e) from None
            raise self.fault(kernels, e) from e
        kernels.launched.clear()

    def _mismatch(self, route: _Route, kernels: KernelSet, wrong: str, result: Any) -> Any:
        assert route.offer is not None
        kernel = route.offer.kernel
        if route.agreed:
            said = f"its result was not that of {self.name}: {wrong}"
            kernels.quarantine([kernel], said)
        else:  # another meaning of the same name is no fault of the kernel's
            said = (
                f"its first result was not that of the function {self.name} here: {wrong} (either "
                f"the function means something else than the task of the kernel, or it is wrong)"
            )
            kernels.leave_out(kernel, said)
        self.misses["mismatch"] += 1
        if kernels.options.strict:
            raise KernelMismatch(f"kernel {kernel[:19]}: {said}")
        return result

    def _under_autocast(self, route: _Route, kernels: KernelSet, args: tuple[Any, ...]) -> Any:
        """The function decides what autocast does to its outputs' dtypes, once for each dtype of
        autocast; where it changes none the kernel stands for it from the next call on."""
        assert route.offer is not None
        result = self._miss("autocast", args)
        dtypes = [TORCH_DTYPES[o.dtype] for o in route.offer.template.outputs]
        kept = [o.dtype for o in as_outputs(result)] == dtypes
        route.autocast[torch.get_autocast_dtype(kernels.launcher.device_type)] = kept
        return result

    def fault(self, kernels: KernelSet, error: LaunchError, kernel: str = "") -> KernelFault:
        """The error to raise, after the quarantine has been written. kernel: that was launched."""
        names = sorted({kernel} if error.certain and kernel else kernels.launched)
        paths = kernels.quarantine(names, str(error))
        noted = (
            f"{paths[0]} keeps it from being used again"
            if paths
            else "no quarantine file could be written: retire it with `cuda-rl kernel quarantine`"
        )
        which = f"kernel {names[0][:19]}" if len(names) == 1 else f"one of {len(names)} kernels"
        return KernelFault(
            f"the launch of {which} failed in {self.name}: {error}; {noted}. Start the process "
            "again: what lies on the device cannot be trusted"
        )

    # --- what is told -----------------------------------------------------------------------------

    def statistics(self) -> dict[str, Any]:
        """Counts since the start of the process."""
        self._add_misses()
        timed = self._timed_calls
        return {
            "calls": self.calls,
            "hits": self.hits,
            "misses": dict(self.misses),
            "checks": self.checks,
            "wanted": dict(self.wanted.most_common(_MOST_WANTED)),
            "ns_per_call": round(self._timed_ns / timed) if timed else None,
        }

    def forget(self, reason: Reason = "disabled") -> None:
        """No kernels from here on."""
        self.kernels, self.away = None, reason
        self.forget_routes()

    def forget_routes(self) -> None:
        """Choose anew for every call."""
        self._clear_routes()
        self.generation = -1

    def _clear_routes(self) -> None:
        self._add_misses()
        self._routes.clear()

    def _add_misses(self) -> None:
        """Those that the generated function left at their routes."""
        for route in (self._grad_route, *self._routes.values()):
            count, route.misses = route.misses, 0
            if count and route.reason is not None:
                self.misses[route.reason] += count
                if route.shape_key:
                    self.wanted[route.shape_key] += count
        if len(self.wanted) > _MOST_ROUTES:
            self.wanted = Counter(dict(self.wanted.most_common(_MOST_WANTED)))

    def take_function(self, function: Function) -> None:
        """The same function, defined again: what was found of the former one counts no more."""
        self.function = function
        self._generate()
        self.forget_routes()


def _usable_route(kernels: KernelSet, offer: Offer, device: torch.device) -> _Route | None:
    """The offer made ready; None where it cannot be loaded, and is out."""
    prepared = kernels.prepare(offer, -1 if device.index is None else device.index)
    if prepared is None:
        return None
    most = kernels.launcher.alignment
    alignments = tuple(min(most, a.alignment) for a in offer.template.arguments)
    largest = max(alignments, default=1)
    powers = all(a & (a - 1) == 0 for a in alignments)
    capturable = not kernels.launcher.refuses_capture(offer.template)
    return _Route(
        None, "", offer, prepared, alignments, largest - 1 if powers else -1, capturable,
        on_cuda=device.type == "cuda",
    )  # fmt: skip


# --- tensors --------------------------------------------------------------------------------------


@functools.cache
def _plain_keys(device: torch.device) -> frozenset[int]:
    """Dispatch keys of dense tensors that hold what they seem to: no view of a conjugate or
    negative, sparse, quantised or functorch's. None on a device that no launcher has."""
    if device.type not in ("cpu", "cuda"):
        return frozenset()
    with torch.inference_mode():
        inference = torch._C._dispatch_keys(torch.empty(0, device=device)).raw_repr()
    with torch.inference_mode(False):
        usual = torch._C._dispatch_keys(torch.empty(0, device=device)).raw_repr()
    return frozenset({inference, usual})


def _is_plain(tensor: Any) -> bool:
    if type(tensor) not in PLAIN_TYPES:
        return False
    return torch._C._dispatch_keys(tensor).raw_repr() in _plain_keys(tensor.device)


def _output_reason(
    outputs: Sequence[Any], native: Sequence[Any], args: Sequence[Any]
) -> Reason | None:
    """Why a kernel's outputs cannot stand for the function's."""
    if len(outputs) != len(native) or not all(isinstance(n, torch.Tensor) for n in native):
        return "outputs"
    if _shares_memory(native, args):
        return "aliases"
    for output, tensor in zip(outputs, native, strict=True):
        if (
            tensor.dtype != TORCH_DTYPES[output.dtype]
            or tensor.shape != output.shape
            or not same_strides(tensor.shape, tensor.stride(), output.strides)
        ):
            return "outputs"
    return None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _shares_memory(outputs: Sequence[torch.Tensor], args: Sequence[Any]) -> bool:
    """With an argument, or with each other."""
    taken = {_storage(a) for a in args if isinstance(a, torch.Tensor)}
    for output in outputs:
        if _storage(output) in taken:
            return True
        taken.add(_storage(output))
    return False


def _fresh(result: Any, args: Sequence[Any]) -> Any:
    """Outputs that share no memory, which an operator's must not."""
    outputs = as_outputs(result)
    taken = {_storage(a) for a in args if isinstance(a, torch.Tensor)}
    made = []
    for output in outputs:
        made.append(output.clone() if _storage(output) in taken else output)
        taken.add(_storage(made[-1]))
    return made[0] if len(made) == 1 else tuple(made)

"""Verified kernels inside a PyTorch program: `from coding_framework.deployment import apply as
kernels`.

A decorated function runs a verified kernel where every condition of its verdict holds, and itself
where one does not. No host code of a candidate is loaded; `docs/apply.md` says what is guarded.
"""

from __future__ import annotations

import atexit
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from torch import nn

from coding_framework.deployment.apply.kernel_set import KernelSet, Options
from coding_framework.deployment.apply.launching import (
    KernelFault,
    KernelMismatch,
    Launcher,
    LaunchError,
)
from coding_framework.deployment.apply.modules import replace_module, restore
from coding_framework.deployment.apply.offers import offers_of
from coding_framework.deployment.apply.operation import KernelOp, switched_off
from coding_framework.errors import CodingFrameworkError, UsageError

__all__ = [
    "KernelFault", "KernelMismatch", "disable", "disabled", "enable", "op", "reload", "replace",
    "restore", "stats",
]  # fmt: skip

Device = Literal["cuda", "emulator"]
_F = TypeVar("_F", bound=Callable[..., Any])
ENVIRONMENT = "CUDA_RL_APPLY"
_ops: dict[str, KernelOp] = {}
_enabled: KernelSet | None = None


def enable(
    registry: str | Path,
    *,
    device: Device = "cuda",
    keys: str | Path | None = None,
    allow_stale: bool = False,
    strict: bool = False,
    canary_share: float = 0.0,
    check_rate: float | None = None,
) -> None:
    """Use the kernels of a registry folder as they are now, in every operation.

    device: "emulator" runs them on the CPU, for tests. keys: folder of the public keys whose
    receipts count; None: `keys` in the registry. allow_stale: also kernels judged under another
    protocol or driver. strict: raise KernelMismatch where a check fails. canary_share: of the
    processes, those that use kernels of status `canary`. check_rate:
    share of the calls in which the function runs too and results are compared (None: 1/1,000 for
    canaries, 1/100,000 for active kernels). Raises UsageError where the folder is no registry.
    """
    global _enabled
    options = Options(allow_stale, strict, canary_share, check_rate)
    folder, trusted = Path(registry).resolve(), Path(keys) if keys is not None else None
    offers = offers_of(folder, trusted)
    kernels = KernelSet(folder, _launcher(device), options, keys=trusted)
    kernels.take(offers)
    before, _enabled = _enabled, kernels
    for made in _ops.values():
        made.kernels = kernels
        made.forget_routes()
    if before is not None:
        before.launcher.close()


def disable() -> None:
    """Every operation runs its own function, until `enable`."""
    global _enabled
    before, _enabled = _enabled, None
    for made in _ops.values():
        made.forget()
    if before is not None:
        before.launcher.close()


def reload() -> None:
    """Take the registry as it is now: promoted, retired and new kernels count."""
    if _enabled is not None:
        _enabled.take(offers_of(_enabled.folder, _enabled.keys))


@contextmanager
def disabled() -> Iterator[None]:
    """Operations run their own functions, in this thread and task."""
    token = switched_off.set(True)
    try:
        yield
    finally:
        switched_off.reset(token)


def op(name: str, *, task: str | None = None) -> Callable[[_F], _F]:
    """The decorated function is the operation of that name: reference, fallback, and what
    `torch.ops.cuda_rl.NAME` means. task: name of the task whose kernels do the same; None: the same
    name. Raises UsageError where another function has the name."""
    if not name.isidentifier() or "__" in name:
        raise UsageError(f"{name!r} cannot name an operation: use letters, digits and single _")

    def decorate(function: _F) -> _F:
        known = _ops.get(name)
        if known is not None:
            _take_again(known, function)
            return known.eager  # type: ignore[return-value]
        made = KernelOp(name, function, task or name)
        made.kernels = _enabled
        _ops[name] = made
        return made.eager  # type: ignore[return-value]

    return decorate


def _take_again(known: KernelOp, function: Callable[..., Any]) -> None:
    """A cell of a notebook, or a module, that is run again. Raises UsageError for another one."""
    places = [(f.__module__, f.__qualname__) for f in (known.function, function)]
    if places[0] != places[1]:
        raise UsageError(
            f"the operation {known.name!r} is {'.'.join(places[0])} already, at "
            f"{_place(known.function)}: choose another name for {'.'.join(places[1])}"
        )
    if inspect.signature(known.function) != inspect.signature(function):
        raise UsageError(
            f"the operation {known.name!r} had other parameters: start the process again"
        )
    known.take_function(function)


def _place(function: Callable[..., Any]) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def replace(
    model: nn.Module,
    modules: Mapping[str, str],
    *,
    names: Mapping[str, str] = {},
) -> None:
    """Modules by name become operations by name, e.g. {"mlp.act": "bias_gelu"}; undone by
    `restore`. An operation's parameters are the module's inputs, then the module's attributes of
    the same names, also those of a layer in it: `ln_weight` is `ln.weight`. The first call compares
    the operation with the module: where they differ the module stays as it was.

    names: attributes by the parameters that are not called like them, e.g. {"gamma": "ln.weight"}.
    Raises UsageError.
    """
    for name in modules.values():
        if name not in _ops:
            raise UsageError(
                f"there is no operation {name!r}: define one with @kernels.op({name!r})"
            )
    known = {p for name in modules.values() for p in _ops[name].signature.parameters}
    if unknown := sorted(names.keys() - known):
        raise UsageError(
            f"no operation here has the parameter {unknown[0]!r} of names: they have "
            f"{', '.join(sorted(known))}"
        )
    done = []
    try:
        for path, name in modules.items():
            replace_module(model, path, _ops[name], names)
            done.append(path)
    except UsageError:
        for path in done:
            restore(model.get_submodule(path))
        raise


def stats() -> dict[str, dict[str, Any]]:
    """By operation: calls, hits, misses by reason, checks, `wanted` (the shapes of most misses for
    want of a kernel, which a task file can ask for), and `ns_per_call`: host time of a hit in
    nanoseconds, over one call in 128."""
    return {name: made.statistics() for name, made in sorted(_ops.items())}


def _launcher(device: Device) -> Launcher:
    """Raises UsageError where there is no such device."""
    if device not in get_args(Device):
        raise UsageError(f"kernels run on no device {device!r}: choose cuda or emulator (the CPU)")
    if device == "emulator":
        from coding_framework.deployment.apply.emulator_launcher import EmulatorLauncher

        return EmulatorLauncher()
    try:
        from coding_framework.deployment.apply.cuda_launcher import CudaLauncher

        return CudaLauncher()
    except (OSError, ImportError) as e:
        raise UsageError(
            f"the CUDA driver cannot be loaded ({e}): kernels need an NVIDIA GPU; "
            'device="emulator" runs them on the CPU, for tests'
        ) from e


# --- the process ----------------------------------------------------------------------------------


def _in_child() -> None:
    """After a fork: CUDA, and the emulator's process, are the parent's."""
    global _enabled
    _enabled = None
    for made in _ops.values():
        made.forget("fork")


def _at_exit() -> None:
    """A fault that shows when the program ends is noted for the next one."""
    if _enabled is None or not _enabled.launched:
        return
    try:
        _enabled.launcher.wait(-1)
    except LaunchError as e:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _enabled.quarantine(sorted(_enabled.launched), str(e))


def _enable_by_environment() -> None:
    folder = os.environ.get(ENVIRONMENT)
    if not folder:
        return
    try:
        enable(folder)
    except CodingFrameworkError as e:
        warnings.warn(f"{ENVIRONMENT}: {e}", RuntimeWarning, stacklevel=3)


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
_enable_by_environment()

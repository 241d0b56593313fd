"""The kernels of one registry as this process may use them: a snapshot, and who is left out why."""

from __future__ import annotations

import hashlib
import math
import os
import random
import socket
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil
import torch

from coding_framework.cuda.expected.inputs import DTYPE_NAMES
from coding_framework.cuda.expected.tolerance import same_strides
from coding_framework.deployment.apply.launching import (
    Launcher,
    LoadError,
    PreparedCall,
    ReadCode,
)
from coding_framework.registry.quarantine import add_to_quarantine, quarantined
from coding_framework.registry.templates import LaunchTemplate

Reason = Literal[
    "disabled", "fork", "mode", "grad", "arguments", "no kernel", "quarantined", "status", "stale",
    "device", "driver", "dtype", "shape", "strides", "alignment", "scalars", "autocast",
    "deterministic", "capture", "aliases", "outputs", "load", "memory", "mismatch",
]  # fmt: skip
"""Why a call went to the function itself."""
_LATER = ("quarantined", "status", "stale", "device", "driver", "arguments", "dtype", "shape",
          "strides", "scalars")  # fmt: skip
"""Guards in their order: of several kernels the one counts that came farthest."""
MIN_CHECK_RATE = 1e-9


@dataclass(frozen=True, slots=True)
class Offer:
    """A template of a registered kernel, with what its use depends on."""

    kernel: str
    """Its id."""
    status: str
    stale: bool
    device: str
    driver: str
    sm: str
    """Of the receipt."""
    judged_at: str
    """UTC, ISO 8601."""
    kernel_ms: float
    """Of the receipt, for this shape key; infinity where it was not timed."""
    reduction_length: int
    """Terms in the longest sum of the task's function, on which the tolerance rests."""
    template: LaunchTemplate
    read: ReadCode


@dataclass(frozen=True, slots=True)
class CallShape:
    """What of a call decides which template fits it."""

    tensors: tuple[tuple[torch.dtype, tuple[int, ...], tuple[int, ...]], ...]
    """dtype, extents and strides of each tensor."""
    scalars: tuple[str, ...]
    """`repr` of each other argument: it tells 1 from True and from 1.0."""
    device: int
    """Index; -1: the CPU."""

    @property
    def shape_key(self) -> str:
        """As the registry names it, with every tensor of the call."""
        return ";".join(
            f"{DTYPE_NAMES.get(dtype, dtype)}[{','.join(map(str, shape))}]"
            for dtype, shape, _ in self.tensors
        )


@dataclass(frozen=True)
class Options:
    """How a registry is used."""

    allow_stale: bool = False
    """Use kernels whose receipts are of another protocol or driver."""
    strict: bool = False
    """Raise KernelMismatch where a check fails, instead of returning the function's result."""
    canary_share: float = 0.0
    """Of the processes: those use kernels of status `canary` too."""
    check_rate: float | None = None
    """Of the calls: the function runs too and results are compared. None: 1/1,000 for canaries,
    1/100,000 for active kernels. The first call of each template is always checked."""


@dataclass
class KernelSet:
    """One registry in this process."""

    folder: Path
    launcher: Launcher
    options: Options
    keys: Path | None = None
    """Folder of the public keys that count; None: the registry's own."""
    offers: dict[str, list[Offer]] = field(default_factory=dict)
    """By operation."""
    out: dict[str, str] = field(default_factory=dict)
    """Reason by id of the kernels that this process must not use."""
    in_canary: bool = False
    generation: int = 0
    """Changes whenever another template may be chosen."""
    launched: set[str] = field(default_factory=set)
    """Kernels that ran since the device was last known to be well."""
    told: set[int] = field(default_factory=set)
    """Devices of which it was said that the kernels were judged elsewhere."""

    def take(self, offers: Iterable[Offer]) -> None:
        """Another snapshot."""
        self.offers = {}
        judged: dict[str, str] = {}
        for offer in offers:
            self.offers.setdefault(offer.template.op, []).append(offer)
            judged[offer.kernel] = max(offer.judged_at, judged.get(offer.kernel, ""))
        self.out = quarantined(self.folder, judged)
        self.in_canary = canary_number() < self.options.canary_share
        self.generation += 1

    def choose(self, op: str, call: CallShape, has_scalars: bool) -> Offer | Reason:
        """The fastest kernel that holds for the call; of a canary and an active one the canary."""
        fits: list[Offer] = []
        farthest = -1
        for offer in self.offers.get(op, ()):
            reason = self._refuses(offer, call, has_scalars)
            if reason is None:
                fits.append(offer)
            else:
                farthest = max(farthest, _LATER.index(reason))
        if not fits:
            reason = _LATER[farthest] if farthest >= 0 else "no kernel"
            if reason in ("device", "driver"):
                self._tell_where_judged(op, call.device)
            return reason  # type: ignore[return-value]
        if not has_scalars and len({offer.template.init_args for offer in fits}) > 1:
            return "scalars"  # which of them the function has inside cannot be told
        return min(fits, key=lambda o: (o.status != "canary", o.kernel_ms, o.kernel))

    def _refuses(self, offer: Offer, call: CallShape, has_scalars: bool) -> str | None:
        if offer.kernel in self.out:
            return "quarantined"
        if offer.status != "active" and not (offer.status == "canary" and self.in_canary):
            return "status"
        if offer.stale and not self.options.allow_stale:
            return "stale"
        wrong = self.launcher.device_refuses(offer.device, offer.driver, offer.sm, call.device)
        if wrong == "device" or (wrong == "driver" and not self.options.allow_stale):
            return wrong
        return _template_refuses(offer.template, call, has_scalars)

    def _tell_where_judged(self, op: str, device: int) -> None:
        """Once for each device: what was judged elsewhere has to be compiled and judged there."""
        if device in self.told:
            return
        self.told.add(device)
        devices = {f"{o.device} with driver {o.driver or 'none'}" for o in self.offers[op]}
        warnings.warn(
            f"the kernels of {op!r} were judged on {', '.join(sorted(devices))} and are not used "
            f"on {self.launcher.describe(device)}: `cuda-rl kernel reverify` on this machine "
            "compiles and judges them for it",
            RuntimeWarning,
            stacklevel=3,
        )

    def prepare(self, offer: Offer, device: int) -> PreparedCall | None:
        """The template made ready; None where that is not possible, and the kernel is out."""
        try:
            return self.launcher.prepare(offer.template, offer.read, device)
        except LoadError as e:
            self.leave_out(offer.kernel, f"it could not be loaded: {e}")
            return None

    def leave_out(self, kernel: str, reason: str) -> None:
        """In this process."""
        if kernel in self.out:
            return
        self.out[kernel] = reason
        self.generation += 1
        warnings.warn(
            f"kernel {kernel[:19]} is not used in this process any more: {reason}. Its calls go to "
            "the function itself; `cuda-rl kernel reverify` judges the kernel again",
            RuntimeWarning,
            stacklevel=3,
        )

    def quarantine(self, kernels: Sequence[str], reason: str) -> list[Path]:
        """In this process and in those to come: the files that say so, written first. kernels: the
        one, or several that may have been the one."""
        paths = []
        for kernel in kernels:
            others = [other for other in kernels if other != kernel]
            path = add_to_quarantine(self.folder, kernel, reason, suspects=others)
            paths += [path] if path is not None else []
        for kernel in kernels:
            self.leave_out(kernel, reason)
        return paths

    def calls_to_next_check(self, offer: Offer) -> int:
        """Drawn, so that no pattern of calls escapes: their mean is 1 / rate."""
        rate = self.options.check_rate
        if rate is None:
            rate = 1e-3 if offer.status == "canary" else 1e-5
        if rate >= 1.0:
            return 0
        if rate <= MIN_CHECK_RATE:
            return 1 << 62
        return int(math.log(1.0 - random.SystemRandom().random()) / math.log1p(-rate))


def _template_refuses(
    template: LaunchTemplate, call: CallShape, has_scalars: bool
) -> Reason | None:
    arguments = template.arguments
    if len(arguments) != len(call.tensors):
        return "arguments"
    pairs = list(zip(arguments, call.tensors, strict=True))
    if any(DTYPE_NAMES.get(dtype) != a.dtype for a, (dtype, _, _) in pairs):
        return "dtype"
    if any(shape != a.shape or 0 in shape for a, (_, shape, _) in pairs):
        return "shape"
    if any(not same_strides(shape, strides, a.strides) for a, (_, shape, strides) in pairs):
        return "strides"
    if has_scalars and call.scalars != tuple(map(scalar_key, template.init_args)):
        return "scalars"
    return None


def scalar_key(value: object) -> str:
    """Tells numbers apart that Python calls equal: 1 and True, 0.0 and -0.0."""
    return repr(tuple(value)) if isinstance(value, list) else repr(value)


def canary_number() -> float:
    """Of this process in [0, 1), the same whenever it asks."""
    start = psutil.Process().create_time()
    text = f"{socket.gethostname()}\0{os.getpid()}\0{start}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64

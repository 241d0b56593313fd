"""What carries out a launch template: the CUDA driver, or the emulator for tests.

Only device code that was judged runs, and only as the template says. A launcher knows nothing of
operations, guards and fallbacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch

from coding_framework.errors import CodingFrameworkError, InfrastructureError
from coding_framework.registry.templates import DeviceCode, LaunchTemplate

ReadCode = Callable[[DeviceCode], bytes]
"""The bytes of device code, from where the registry has them."""
PreparedCall = Callable[[Sequence[torch.Tensor], Sequence[int]], tuple[torch.Tensor, ...]]
"""Of tensors and their addresses: enqueues every step on the current stream, and gives the outputs.
Raises LaunchError."""


class LoadError(CodingFrameworkError):
    """A template cannot be made ready on this device; nothing was launched."""


class LaunchError(Exception):
    """A launch, or waiting for one, failed."""

    def __init__(self, words: str, *, certain: bool) -> None:
        """certain: it was this launch; False: any launch before it may have been the one."""
        super().__init__(words)
        self.certain = certain


class KernelFault(InfrastructureError):  # noqa: N818 - the field's word
    """A launch failed, or the device did. Nothing that lies on the device can be trusted."""


class KernelMismatch(CodingFrameworkError):  # noqa: N818 - the field's word
    """A kernel gave another result than the function that it stands for (`strict=True`)."""


class Launcher:
    """A kind of device. By itself one that every receipt holds for, and on which nothing waits."""

    device_type: str
    """Of the tensors that it takes: "cuda", "cpu"."""
    alignment: int
    """Bytes: the largest alignment of a tensor that a template may ask for."""

    def device_refuses(self, device: str, driver: str, sm: str, index: int) -> str | None:
        """Which part of a receipt, "device" or "driver", is not that of device `index`; None: all
        are."""
        return None

    def describe(self, index: int) -> str:
        """A device and its driver, in words."""
        raise NotImplementedError

    def prepare(self, template: LaunchTemplate, read: ReadCode, index: int) -> PreparedCall:
        """Load the code. Raises LoadError."""
        raise NotImplementedError

    def refuses_capture(self, template: LaunchTemplate) -> bool:
        """Whether the template cannot be part of a captured graph."""
        return False

    def capturing(self) -> bool:
        """Whether the current stream is being captured: nothing may be waited for."""
        return False

    def wait(self, index: int) -> None:
        """Until the current stream of a device is idle, or with -1 everything. Raises
        LaunchError."""

    def close(self) -> None:
        """Nothing is launched from here on."""


def chosen_code(template: LaunchTemplate, sm: int) -> tuple[DeviceCode, ...]:
    """What may be loaded on that architecture, best first: its own cubin, then PTX."""
    cubins = [c for c in template.code if c.form == "cubin" and _number(c.sm) == sm]
    texts = [c for c in template.code if c.form == "ptx" and _number(c.sm) <= sm]
    return (*cubins, *sorted(texts, key=lambda c: -_number(c.sm)))


def _number(sm: str) -> int:
    digits = "".join(c for c in sm if c.isdigit())
    return int(digits) if digits else 0


def compiled_here(device: str, kernel: str) -> str:
    """What makes a kernel of another device one of this one."""
    name = kernel.removeprefix("sha256:")[:12]
    return f"`cuda-rl kernel reverify {name}` on this machine compiles and judges it for {device}"


def checked_code(code: DeviceCode, read: ReadCode) -> bytes:
    """The bytes. Raises LoadError where they are not there, or not those of the digest."""
    try:
        data = read(code)
    except (OSError, CodingFrameworkError) as e:
        raise LoadError(f"its {code.form} {code.sha256[:12]} cannot be read: {e}") from e
    if hashlib.sha256(data).hexdigest() != code.sha256:
        raise LoadError(f"its {code.form} {code.sha256[:12]} was changed after it was stored")
    return data


def require_separate_outputs(template: LaunchTemplate) -> None:
    """Raises LoadError where two outputs share memory: PyTorch would take them for two tensors."""
    regions = [output.place.region for output in template.outputs]
    if len(set(regions)) != len(regions):
        raise LoadError("two of its outputs lie in one allocation")

"""Templates on the emulator, on tensors of the CPU: for tests, and where there is no GPU."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.emulator.timing_model import gpu
from coding_framework.cuda.expected.inputs import (
    TORCH_DTYPES,
    bits_of,
    tensor_bytes,
    tensor_from_bits,
)
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.templating.replay import Layout, carry_out, lay_out
from coding_framework.deployment.apply.launching import (
    LaunchError,
    LoadError,
    PreparedCall,
    ReadCode,
    checked_code,
    require_separate_outputs,
)
from coding_framework.errors import DeviceError
from coding_framework.registry.templates import LaunchTemplate, OutputTensor


class EmulatorLauncher:
    """See `Launcher`. A device process for each template, one call at a time."""

    device_type = "cpu"
    alignment = 16

    def __init__(self) -> None:
        self._settings = EmulatorSettings(count=False)
        self._loaded: list[_OnEmulator] = []

    def device_refuses(self, device: str, driver: str, sm: str, index: int) -> str | None:
        return None

    def describe(self, index: int) -> str:
        return "the emulator"

    def prepare(self, template: LaunchTemplate, read: ReadCode, index: int) -> PreparedCall:
        require_separate_outputs(template)
        text = next((c for c in template.code if c.form == "ptx"), None)
        if text is None:
            raise LoadError("it has no PTX, which the emulator runs")
        limit = gpu(self._settings.gpu).shared_bytes_per_block
        most = max(step.shared_bytes for step in template.launches)
        if most > limit:
            raise LoadError(f"a block needs {most} bytes of shared memory; there are {limit}")
        made = _OnEmulator(template, checked_code(text, read), self._settings)
        self._loaded.append(made)
        return made

    def refuses_capture(self, template: LaunchTemplate) -> bool:
        return False

    def capturing(self) -> bool:
        return False

    def wait(self, index: int) -> None:
        return None

    def close(self) -> None:
        for loaded in self._loaded:
            loaded.device.close()
        self._loaded.clear()


class _OnEmulator:
    """A template with its module loaded."""

    def __init__(self, template: LaunchTemplate, ptx: bytes, settings: EmulatorSettings) -> None:
        self._template = template
        self._lock = threading.Lock()
        self._random = random.Random()
        self.device = EmulatorDevice(settings)
        try:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "device.ptx").write_bytes(ptx)
                self._module = self.device.load(Path(folder))
            missing = [v.name for v in template.variables if v.name not in self._module.symbols]
            if missing:
                raise LoadError(f"its module has no variable {missing[0]!r}")
        except LoadError:
            self.device.close()
            raise
        except (CandidateFault, DeviceError) as e:
            self.device.close()
            raise LoadError(f"the emulator cannot load it: {e}") from e

    def __call__(
        self, tensors: Sequence[torch.Tensor], addresses: Sequence[int]
    ) -> tuple[torch.Tensor, ...]:
        with self._lock:
            held: list[Layout] = []
            try:
                return self._run(tensors, held)
            except CandidateFault as e:
                raise LaunchError(e.reason, certain=True) from e
            except DeviceError as e:
                raise LaunchError(str(e), certain=True) from e
            finally:
                with suppress(CandidateFault, DeviceError):  # after a fault nothing can be freed
                    for layout in held:
                        layout.release(self.device)

    def _run(self, tensors: Sequence[torch.Tensor], held: list[Layout]) -> tuple[torch.Tensor, ...]:
        layout = lay_out(self._template, self.device, self._module, self._random)
        held.append(layout)
        for address, tensor in zip(layout.addresses, tensors, strict=False):
            data = tensor_bytes(tensor.detach())
            if data:
                self.device.upload(address, data)
        carry_out(self._template, self.device, layout.addresses)
        outputs = self._template.outputs
        return tuple(self._output(o, layout.addresses[o.place.region]) for o in outputs)

    def _output(self, output: OutputTensor, address: int) -> torch.Tensor:
        dtype = TORCH_DTYPES[output.dtype]
        if not output.nbytes:
            return torch.empty_strided(output.shape, output.strides, dtype=dtype)
        data = self.device.download(address + output.place.offset, output.nbytes)
        flat = tensor_from_bits(bits_of(data), dtype)
        return flat.as_strided(output.shape, output.strides)

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
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.templating.replay import Layout, lay_out
from coding_framework.deployment.apply.launching import (
    Launcher,
    LaunchError,
    LoadError,
    PreparedCall,
    ReadCode,
    checked_code,
    require_separate_outputs,
)
from coding_framework.errors import DeviceError
from coding_framework.registry.templates import LaunchTemplate


class EmulatorLauncher(Launcher):
    """A device process for each template, one call at a time."""

    device_type = "cpu"
    alignment = 16

    def __init__(self) -> None:
        self._settings = EmulatorSettings(count=False)
        self._loaded: list[_OnEmulator] = []

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
        given = [tensor.detach().clone() for tensor in tensors]
        layout = lay_out(self._template, self.device, self._module, given, self._random)
        held.append(layout)
        outputs = layout.run.replay(layout.plan, given).outputs
        return tuple(
            torch.empty_strided(o.tensor.shape, o.strides, dtype=o.tensor.dtype).copy_(o.tensor)
            for o in outputs
        )

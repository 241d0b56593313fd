"""What the driver says of the GPUs, by NVML. What it does not say is None; it never raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from coding_framework.store.events import log
from coding_framework.store.run_status import GPUIdentity, GPUSample

T = TypeVar("T")

_WHY_SLOWER = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of NVML's clocks event reasons. Left out: idle, and clocks that somebody has set."""
FAULTY = frozenset(
    {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
)
"""Reasons that say that something is wrong with the machine. A power cap is none: a busy data
centre GPU runs at its cap."""


class GPUTelemetry:
    """The GPUs of this machine, all of them, whatever CUDA_VISIBLE_DEVICES says."""

    def __init__(self) -> None:
        self._told = False
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        except Exception as e:  # no driver, no library, another version: a run goes on without
            log.info("no_gpu_telemetry", reason=f"{type(e).__name__}: {e}")

    def identities(self) -> tuple[GPUIdentity, ...]:
        """What the GPUs are; none where there is no driver."""
        n = self._nvml
        if n is None:
            return ()
        driver = _text(self._ask(n.nvmlSystemGetDriverVersion))
        return tuple(self._identity(h, driver) for h in self._handles() or () if h is not None)

    def _identity(self, handle: Any, driver: str | None) -> GPUIdentity:
        name = _text(self._ask(self._nvml.nvmlDeviceGetName, handle)) or "unknown"
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        return GPUIdentity(
            name=name, memory_bytes=memory.total if memory is not None else None, driver=driver
        )

    def samples(self) -> tuple[GPUSample, ...] | None:
        """What the GPUs do now; None where the driver does not answer."""
        handles = self._handles()
        if handles is None:
            return None
        return tuple(
            GPUSample(index=i) if h is None else self._sample(i, h) for i, h in enumerate(handles)
        )

    def _handles(self) -> list[Any] | None:
        """One a GPU; None in the place of one that fell off the bus."""
        n = self._nvml
        count = self._ask(n.nvmlDeviceGetCount) if n is not None else None
        if count is None:
            return None
        return [self._ask(n.nvmlDeviceGetHandleByIndex, i) for i in range(count)]

    def _sample(self, index: int, gpu: Any) -> GPUSample:
        n, ask = self._nvml, self._ask
        memory = ask(n.nvmlDeviceGetMemoryInfo, gpu)
        util = ask(n.nvmlDeviceGetUtilizationRates, gpu)
        power_mw = ask(n.nvmlDeviceGetPowerUsage, gpu)
        energy_mj = ask(n.nvmlDeviceGetTotalEnergyConsumption, gpu)
        reasons = ask(n.nvmlDeviceGetCurrentClocksEventReasons, gpu)
        errors = ask(
            n.nvmlDeviceGetTotalEccErrors,
            gpu,
            n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            n.NVML_VOLATILE_ECC,
        )
        processes = ask(n.nvmlDeviceGetComputeRunningProcesses, gpu)
        return GPUSample(
            index=index,
            uuid=_text(ask(n.nvmlDeviceGetUUID, gpu)),
            util=_of(util, lambda u: float(u.gpu)),
            mem_used=_of(memory, lambda m: int(m.used)),
            mem_total=_of(memory, lambda m: int(m.total)),
            sm_clock=ask(n.nvmlDeviceGetClockInfo, gpu, n.NVML_CLOCK_SM),
            mem_clock=ask(n.nvmlDeviceGetClockInfo, gpu, n.NVML_CLOCK_MEM),
            power_w=_of(power_mw, lambda p: p / 1e3),
            energy_j=_of(energy_mj, lambda e: e / 1e3),
            temp=ask(n.nvmlDeviceGetTemperature, gpu, n.NVML_TEMPERATURE_GPU),
            throttle=_of(reasons, lambda r: tuple(w for bit, w in _WHY_SLOWER.items() if r & bit)),
            ecc=errors,
            processes=_of(processes, len),
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer; None where the driver does not give it (MIG, permission, a lost GPU). Said
        once: a lost GPU and a device without ECC would say it every time."""
        try:
            return function(*arguments)
        except Exception as e:
            if not self._told and type(e).__name__ != "NVMLError_NotSupported":
                self._told = True
                log.warning("gpu_telemetry_incomplete", reason=f"{type(e).__name__}: {e}")
            return None


def _of(value: Any, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def _text(value: Any) -> str | None:
    """NVML gives bytes or text, by its version."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

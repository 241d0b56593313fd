"""What a registry says of its kernels."""

from __future__ import annotations

from typing import Literal

from coding_framework.registry.receipts import KernelReceipt
from coding_framework.registry.templates import LaunchTemplate, TemplateRefusal
from coding_framework.types import Record

KernelStatus = Literal["verified", "canary", "active", "retired", "quarantined"]
"""verified: judged, used by nobody. canary: used by a share of processes. active: used by all.
retired: no longer used. quarantined: something went wrong; only a new verdict brings it back."""

MOVES: dict[KernelStatus, tuple[KernelStatus, ...]] = {
    "verified": ("canary", "active", "retired", "quarantined"),
    "canary": ("active", "verified", "retired", "quarantined"),
    "active": ("canary", "retired", "quarantined"),
    "retired": ("verified", "quarantined"),
    "quarantined": (),
}
"""Where a status may go by somebody's decision; `quarantined` ends by a new receipt alone."""
PROMOTED: dict[KernelStatus, KernelStatus] = {"verified": "canary", "canary": "active"}


class RegisteredKernel(Record):
    """A kernel that is verified for a task. Maker: `KernelRegistry`, which checked its receipts'
    signatures and its files' digests. Consumers: `apply`, the command line, the viewer."""

    kernel: str
    """`sha256:...` of the source."""
    task: str
    """`sha256:...` of the task."""
    op: str
    """Name of the function."""
    status: KernelStatus
    receipts: tuple[KernelReceipt, ...]
    """The newest for each device, oldest first. Times by shape key and device stand there."""
    templates: tuple[LaunchTemplate, ...]
    """One a shape key, device code and judge."""
    refusals: tuple[TemplateRefusal, ...] = ()
    """Shape keys without a template, and why."""

    def stale(self, protocol: str, drivers: dict[str, str] | None = None) -> str | None:
        """Why none of its receipts counts any more; None where one does.

        protocol: of the judge now. drivers: version of the driver by name of the device, for the
        devices here; receipts of other devices are not held against it.
        """
        reasons = [stale_reason(r, protocol, drivers or {}) for r in self.receipts]
        return None if None in reasons else (reasons[-1] if reasons else "it has no receipt")


def stale_reason(receipt: KernelReceipt, protocol: str, drivers: dict[str, str]) -> str | None:
    """Why a receipt is stale; None where it is not."""
    if receipt.protocol != protocol:
        return f"judged with protocol {receipt.protocol}, which is {protocol} now"
    driver = drivers.get(receipt.device)
    if driver is not None and driver != receipt.driver:
        return f"judged with driver {receipt.driver}, which is {driver} now"
    return None

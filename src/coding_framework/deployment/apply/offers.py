"""From a registry's snapshot to what `apply` may launch."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.deployment.apply.kernel_set import Offer
from coding_framework.registry.digests import shape_key
from coding_framework.registry.files import DamagedError
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import KernelReceipt, ShapeTime
from coding_framework.registry.records import RegisteredKernel, stale_reason
from coding_framework.types import Task


def offers_of(folder: Path, keys: Path | None) -> list[Offer]:
    """Every template that a receipt names. keys: folder of the public keys that are trusted; None:
    the registry's own. What is damaged is left out, with a warning. Raises UsageError where there
    is no registry and StorageError where it cannot be read."""
    offers: list[Offer] = []
    problems: list[str] = []
    with KernelRegistry(folder, keys=keys, read_only=True, tell=problems.append) as registry:
        for kernel in registry.snapshot():
            try:
                task = registry.task(kernel)
            except DamagedError as e:
                problems.append(str(e))
                continue
            offers += _offers(registry, kernel, task)
    if problems:
        warnings.warn(
            f"{len(problems)} things in the registry {folder} are left out: {problems[0]}; "
            "`cuda-rl kernel verify` tells all",
            RuntimeWarning,
            stacklevel=4,
        )
    return offers


def _offers(registry: KernelRegistry, kernel: RegisteredKernel, task: Task) -> list[Offer]:
    templates = {f"sha256:{template.sha256}": template for template in kernel.templates}
    lengths = {shape_key(case): case.reduction_length for case in (*task.cases, *task.gpu_cases)}

    def offer(receipt: KernelReceipt, shape: ShapeTime) -> Offer | None:
        template = templates.get(shape.template or "")
        if template is None:
            return None
        return Offer(
            kernel=kernel.kernel,
            status=kernel.status,
            stale=stale_reason(receipt, PROTOCOL, {}) is not None,
            device=receipt.device,
            driver=receipt.driver,
            sm=receipt.sm,
            judged_at=receipt.made_at,
            kernel_ms=math.inf if shape.kernel_ms is None else shape.kernel_ms,
            reduction_length=lengths.get(shape.key, 1),
            template=template,
            read=registry.code,
        )

    made = [offer(receipt, shape) for receipt in kernel.receipts for shape in receipt.shapes]
    return [found for found in made if found is not None]

"""Pages of kernel registries: which kernels are verified for what, by whom, and how fast they are.

A registry is opened to read. What is shown has been checked by it: signatures and digests hold, and
what does not hold is told beside the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.registry.files import DamagedError
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import KernelReceipt
from coding_framework.registry.records import RegisteredKernel
from coding_framework.viewer import code
from coding_framework.viewer.library import Library, NotThereError
from coding_framework.viewer.runs import FoundRun

Query = Mapping[str, str]
MOST = 1_000


def kernels_page(library: Library, query: Query) -> dict[str, Any]:
    """The kernels of every registry below the paths; `q` and `status` filter."""
    wanted, status = query.get("q", "").lower(), query.get("status", "")
    return {
        "registries": [_registry(found, wanted, status) for found in library.found("registry")],
        "q": query.get("q", ""), "status": status,
    }  # fmt: skip


def _registry(found: FoundRun, wanted: str, status: str) -> dict[str, Any]:
    problems: list[str] = []
    try:
        with KernelRegistry(
            found.root, read_only=True, briefly=True, tell=problems.append
        ) as registry:
            kernels = registry.snapshot()
    except CodingFrameworkError as e:
        return {"found": found, "kernels": [], "count": 0, "problems": [one_line(str(e), 400)]}
    shown = [
        _row(kernel)
        for kernel in kernels
        if (wanted in kernel.op.lower() or wanted in kernel.kernel)
        and status in ("", kernel.status)
    ]
    told = [one_line(problem, 400) for problem in problems[:20]]
    return {"found": found, "kernels": shown[:MOST], "count": len(shown), "problems": told}


def _row(kernel: RegisteredKernel) -> dict[str, Any]:
    """What a line of the list says of a kernel."""
    gains = [
        (shape.eager_ms / shape.kernel_ms, bool(shape.modelled))
        for receipt in kernel.receipts
        for shape in receipt.shapes
        if shape.kernel_ms and shape.eager_ms
    ]
    best = max(gains, default=(None, False))
    return {
        "kernel": kernel, "address": _address(kernel), "speedup": best[0], "modelled": best[1],
        "devices": list(dict.fromkeys(r.device for r in kernel.receipts)),
        "protocols": list(dict.fromkeys(r.protocol for r in kernel.receipts)),
        "shapes": len({shape.key for r in kernel.receipts for shape in r.shapes}),
    }  # fmt: skip


def _address(kernel: RegisteredKernel) -> str:
    parts = (kernel.kernel, kernel.task)
    return "/kernels/" + "/".join(part.removeprefix("sha256:") for part in parts)


def kernel_page(library: Library, query: Query, kernel: str, task: str) -> dict[str, Any]:
    """One kernel for one task: source, receipts, times, templates, history. Raises
    NotThereError."""
    with _kernel(library, kernel, task) as (found, registry, known):
        try:
            source, fault = registry.source(known), ""
        except DamagedError as e:
            source, fault = "", one_line(str(e), 400)
        history = registry.history(known)[::-1]
    told = {shape.key for receipt in known.receipts for shape in receipt.shapes}
    return {
        "found": found, "kernel": known, "row": _row(known), "fault": fault, "history": history,
        "lines": code.code_lines(source[: code.MAX_CHARS]), "cut": len(source) > code.MAX_CHARS,
        "times": [
            (receipt, shape, _portable(known, receipt, shape.key))
            for receipt in known.receipts for shape in receipt.shapes
        ],
        "refused": [r for r in known.refusals if r.shape_key not in told],
    }  # fmt: skip


def _portable(kernel: RegisteredKernel, receipt: KernelReceipt, key: str) -> str:
    """Whether trusted code can launch it at a shape without its host code, or why it cannot."""
    if any(shape.key == key and shape.template for shape in receipt.shapes):
        return "✓ yes"
    why = next((r.reason for r in kernel.refusals if r.shape_key == key), "")
    return one_line(f"no: {why}" if why else "no", 200)


@contextmanager
def _kernel(
    library: Library, kernel: str, task: str
) -> Iterator[tuple[FoundRun, KernelRegistry, RegisteredKernel]]:
    for found in library.found("registry"):
        try:
            with KernelRegistry(found.root, read_only=True, briefly=True) as registry:
                known = registry.get(f"sha256:{kernel}", f"sha256:{task}")
                if known is not None:
                    yield found, registry, known
                    return
        except CodingFrameworkError as e:
            raise UsageError(str(e)) from e
    raise NotThereError("there is no verified kernel of that id here")

"""What the tests of `apply` share: kernels compiled by nvcc, templates and offers of them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.deployment import apply as kernels
from coding_framework.deployment.apply.emulator_launcher import EmulatorLauncher
from coding_framework.deployment.apply.kernel_set import KernelSet, Offer, Options
from coding_framework.registry.digests import task_id
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import SigningKey, receipt_of
from coding_framework.registry.records import KernelStatus, RegisteredKernel
from coding_framework.registry.templates import (
    Allocation,
    Argument,
    DeviceCode,
    FillStep,
    LaunchStep,
    LaunchTemplate,
    MadeTemplates,
    OutputTensor,
    Place,
    Relocation,
)
from coding_framework.types import Task, TensorSpec, TestCase
from support.emulator_harness import compile_ptx
from support.registered import correct_verdict

SOURCE = r"""
extern "C" __global__ void bias_gelu(const float* x, const float* b, float* out, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] + b[i % cols];
        out[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}
extern "C" __global__ void wrong(const float* x, const float* b, float* out, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + b[i % cols];
}
extern "C" __global__ void sometimes(const float* x, const float* b, float* out, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] + b[i % cols];
        out[i] = v > 50.0f ? 0.0f : 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}
extern "C" __global__ void faulty(const float* x, const float* b, float* out, int n, int cols) {
    out[1ull << 40] = x[0];
}
extern "C" __global__ void through(const float* x, const float* b, float* out, int n, int cols,
                                   float* row) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < cols) row[i] += b[i];
}
extern "C" __global__ void finish(const float* x, const float* row, float* out, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] + row[i % cols];
        out[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}
"""


def ptx() -> bytes:
    return compile_ptx(SOURCE).encode()


def bias_gelu(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x + b)


def template(
    rows: int = 4,
    cols: int = 32,
    *,
    entry: str = "bias_gelu",
    op: str = "bias_gelu",
    kernel: str = "a",
    **changes: Any,
) -> LaunchTemplate:
    """Of one of the kernels above, for an input of rows by cols and a bias."""
    n = rows * cols
    two = entry == "through"
    scalars = struct.pack("<ii", n, cols)

    def at(region: int, place: int) -> Relocation:
        return Relocation(at=place, region=region, offset=0)

    def launch(name: str, regions: Sequence[int], tail: bytes = b"") -> LaunchStep:
        params = bytes(24) + scalars + tail
        relocations = tuple(at(r, 8 * i) for i, r in enumerate(regions[:3]))
        relocations += tuple(at(r, 32 + 8 * i) for i, r in enumerate(regions[3:]))
        return LaunchStep(
            entry=name, grid=((n + 127) // 128, 1, 1), block=(128, 1, 1), shared_bytes=0,
            params=params, relocations=relocations,
        )  # fmt: skip

    temporary = Allocation(nbytes=4 * cols, use="temporary", first=0, last=2)
    zero = FillStep(to=Place(region=3, offset=0), value=0, nbytes=4 * cols)
    steps = (
        (zero, launch("through", (0, 1, 2, 3), bytes(8)), launch("finish", (0, 3, 2)))
        if two
        else (launch(entry, (0, 1, 2)),)
    )
    code = DeviceCode(sm="90", form="ptx", sha256=hashlib.sha256(ptx()).hexdigest())
    fields: dict[str, Any] = {
        "kernel": f"sha256:{hashlib.sha256(kernel.encode()).hexdigest()}",
        "op": op,
        "task": f"sha256:{64 * '0'}",
        "shape_key": f"float32[{rows},{cols}];float32[{cols}]",
        "arguments": (
            Argument(name="x", kind="input", dtype="float32", shape=(rows, cols),
                     strides=(cols, 1), alignment=16),
            Argument(name="b", kind="input", dtype="float32", shape=(cols,), strides=(1,),
                     alignment=16),
        ),
        "deterministic": True,
        "code": (code,),
        "allocations": (
            Allocation(nbytes=4 * n, use="output", first=0, last=len(steps) - 1),
            *([temporary] if two else []),
        ),
        "steps": steps,
        "outputs": (
            OutputTensor(place=Place(region=2, offset=0), dtype="float32", shape=(rows, cols),
                         strides=(cols, 1)),
        ),
    }  # fmt: skip
    return LaunchTemplate(**{**fields, **changes})


def offer(made: LaunchTemplate, **changes: Any) -> Offer:
    """As an active kernel of a registry; device code from this module."""
    fields: dict[str, Any] = {
        "kernel": made.kernel, "status": "active", "stale": False, "device": "emulator of GPU",
        "driver": "", "sm": "90", "judged_at": "", "kernel_ms": 1.0, "reduction_length": 1,
        "template": made, "read": lambda code: ptx(),
    }  # fmt: skip
    return Offer(**{**fields, **changes})


def kernel_set(folder: Path, *offers: Offer, **options: Any) -> KernelSet:
    made = KernelSet(folder, EmulatorLauncher(), Options(**options))
    made.take(offers)
    return made


@contextmanager
def applied(name: str, made: KernelSet, function: Any = bias_gelu) -> Iterator[Any]:
    """An operation with those kernels. name: no other test's, as PyTorch forgets none."""
    decorated = kernels.op(name)(function)
    kernels._ops[name].kernels = made
    try:
        yield decorated
    finally:
        kernels._ops.pop(name).forget()
        made.launcher.close()


def inputs(rows: int = 4, cols: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(rows * cols)
    return torch.randn(rows, cols), torch.randn(cols)


def counts(name: str) -> dict[str, Any]:
    found = kernels.stats()[name]
    return {"hits": found["hits"], **found["misses"]}


# --- a registry in a folder -----------------------------------------------------------------------

_REFERENCE = """\
from torch import nn

class Model(nn.Module):
    def forward(self, x, b):
        return nn.functional.gelu(x + b)
"""


def task_of(op: str, rows: int = 4, cols: int = 32) -> Task:
    spec = (TensorSpec(name="x", shape=(rows, cols)), TensorSpec(name="b", shape=(cols,)))
    return Task(
        name=op, tier=0, family="test", ops=(op,), description=op, reference=_REFERENCE,
        cases=(TestCase(name="main", inputs=spec),),
    )  # fmt: skip


def add_to_registry(
    registry: KernelRegistry,
    key: SigningKey,
    op: str,
    source: str = "// a kernel\n",
    *,
    entry: str = "bias_gelu",
    status: KernelStatus = "active",
    **verdict: Any,
) -> RegisteredKernel:
    """A kernel of this module, with a made-up verdict and a receipt that is really signed."""
    verdict.setdefault("protocol", PROTOCOL)
    task = task_of(op)
    made = template(op=op, kernel=source, entry=entry, task=task_id(task))
    signed = receipt_of(
        task, correct_verdict(source, **verdict), reference="registered", key=key, templates=(made,)
    ).model_dump(mode="json")
    code = {made.code[0].sha256: ptx()}
    kernel = registry.add(source, task, signed, MadeTemplates(templates=(made,), code=code))
    return registry.move(kernel, status, "test") if status != "verified" else kernel

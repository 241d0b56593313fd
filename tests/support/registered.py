"""Kernels in a registry without a judge: made-up verdicts and templates, really signed."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

from coding_framework.data.registry import find_task
from coding_framework.registry.digests import kernel_id, shape_key, task_id
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import SigningKey, new_key, receipt_of
from coding_framework.registry.records import RegisteredKernel
from coding_framework.registry.templates import (
    Allocation,
    Argument,
    DeviceCode,
    LaunchStep,
    LaunchTemplate,
    MadeTemplates,
    OutputTensor,
    Place,
    Relocation,
    TemplateRefusal,
)
from coding_framework.types import Receipt, Status, Task, TestResult, Verdict

CUBIN, PTX = b"\x7fELF a cubin", b".version 9.0\n// some PTX"
SOURCE = "// a kernel\n"


def template_of(task: Task, code: str = SOURCE, case: int = 0) -> LaunchTemplate:
    """One launch that reads the first input and writes an output of its shape."""
    spec = task.cases[case].inputs[0]
    strides = tuple(math.prod(spec.shape[i + 1 :]) for i in range(len(spec.shape)))
    nbytes = 4 * math.prod(spec.shape)
    return LaunchTemplate(
        kernel=kernel_id(code),
        op=task.name,
        task=task_id(task),
        shape_key=shape_key(task.cases[case]),
        arguments=(
            Argument(
                name=spec.name, kind="input", dtype="float32", shape=spec.shape, strides=strides,
                alignment=16,
            ),
        ),
        deterministic=True,
        code=(
            DeviceCode(sm="90", form="cubin", sha256=hashlib.sha256(CUBIN).hexdigest()),
            DeviceCode(sm="90", form="ptx", sha256=hashlib.sha256(PTX).hexdigest()),
        ),
        allocations=(Allocation(nbytes=nbytes, use="output", first=0, last=0),),
        steps=(
            LaunchStep(
                entry="relu", grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, params=bytes(20),
                relocations=(
                    Relocation(at=0, region=0, offset=0), Relocation(at=8, region=1, offset=0),
                ),
            ),
        ),
        outputs=(
            OutputTensor(
                place=Place(region=1, offset=0), dtype="float32", shape=spec.shape, strides=strides
            ),
        ),
    )  # fmt: skip


def made_templates(task: Task, code: str = SOURCE) -> MadeTemplates:
    """A template of the first shape set, and a refusal of the second."""
    return MadeTemplates(
        templates=(template_of(task, code),),
        refusals=(
            TemplateRefusal(
                shape_key=shape_key(task.cases[1]),
                obstacle="read_back",
                reason="the host code reads from the device",
            ),
        ),
        code={hashlib.sha256(part).hexdigest(): part for part in (CUBIN, PTX)},
    )


def correct_verdict(code: str = SOURCE, *, protocol: str = "10", driver: str = "") -> Verdict:
    return Verdict(
        status=Status.CORRECT,
        reason="all comparisons passed",
        candidate_sha256=kernel_id(code).removeprefix("sha256:"),
        task="relu",
        backend="emulator",
        tests=(
            TestResult(
                case="main", seed=0, shapes=((128, 512),), dtype="float32", max_abs_error=0.0,
                max_rel_error=0.0, tolerance=1e-6, passed=True,
            ),
        ),
        receipt=Receipt(
            device="made up", driver=driver, toolkit="13.0", sandbox="native", protocol=protocol,
            versions={"architecture": "sm_90"}, tolerance_formula="none",
        ),
    )  # fmt: skip


def signed_receipt(
    key: SigningKey, task: Task, code: str = SOURCE, **verdict: Any
) -> dict[str, Any]:
    receipt = receipt_of(
        task, correct_verdict(code, **verdict), reference="registered", key=key,
        templates=made_templates(task, code).templates,
    )  # fmt: skip
    return receipt.model_dump(mode="json")


def registry_in(folder: Path) -> tuple[KernelRegistry, SigningKey]:
    """An empty registry that trusts the judge whose key is given."""
    key = new_key(folder / "judge", "judge")
    registry = KernelRegistry(folder / "registry")
    registry.trust(folder / "judge" / "judge.pub")
    return registry, key


def add_kernel(
    registry: KernelRegistry, key: SigningKey, code: str = SOURCE, **verdict: Any
) -> RegisteredKernel:
    task = find_task("relu")
    signed = signed_receipt(key, task, code, **verdict)
    return registry.add(code, task, signed, made_templates(task, code))

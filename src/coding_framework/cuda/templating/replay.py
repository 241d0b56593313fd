"""A launch template where its memory lies: as a plan, which any `Device` carries out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from coding_framework.cuda.device.device import Device
from coding_framework.cuda.host.case_run import CaseRun
from coding_framework.cuda.host.plan_recorder import PlanRecorder, RunLimits
from coding_framework.cuda.plan.launch_plan import (
    Copy,
    Fill,
    Free,
    Launch,
    LaunchPlan,
    ModuleInfo,
    PlanOp,
    TensorRef,
    Upload,
)
from coding_framework.registry.templates import (
    ALIGNMENT,
    CopyStep,
    FillStep,
    LaunchStep,
    LaunchTemplate,
    Place,
    UploadStep,
    patched,
)

_MOST_BLOCKS_APART = 64
"""Of 256 bytes, between two allocations that a layout makes."""


def plan_at(template: LaunchTemplate, addresses: Sequence[int]) -> LaunchPlan:
    """The template's call with its regions at these addresses. A temporary holds poison once its
    last step is done."""

    def at(place: Place) -> int:
        return addresses[place.region] + place.offset

    ops: list[PlanOp] = []
    for number, step in enumerate(template.steps):
        match step:
            case LaunchStep():
                params = patched(step.params, step.relocations, addresses)
                shape = (step.grid, step.block, step.shared_bytes)
                ops.append(Launch(step.entry, *shape, params, cooperative=step.cooperative))
            case UploadStep():
                ops.append(Upload(at(step.to), patched(step.data, step.relocations, addresses)))
            case CopyStep():
                ops.append(Copy(at(step.to), at(step.source), step.nbytes))
            case FillStep():
                ops.append(Fill(at(step.to), step.value, step.nbytes))
        for region, block in enumerate(template.allocations, start=len(template.arguments)):
            if block.use == "temporary" and block.last == number:
                ops.append(Free(addresses[region], block.nbytes))
    inputs = zip(addresses, template.arguments, strict=False)
    return LaunchPlan(
        tuple(TensorRef(address, a.shape, a.strides, a.dtype) for address, a in inputs),
        tuple(ops),
        tuple(TensorRef(at(o.place), o.shape, o.strides, o.dtype) for o in template.outputs),
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """Memory of a device for a template, and the template's call there."""

    plan: LaunchPlan
    run: CaseRun
    """Carries it out."""
    blocks: tuple[int, ...]
    """What was allocated for it."""

    def release(self, device: Device) -> None:
        """Give the memory back."""
        for address in self.blocks:
            device.free(address)


def lay_out(
    template: LaunchTemplate,
    device: Device,
    module: ModuleInfo,
    tensors: Sequence[torch.Tensor],
    rng: random.Random,
    *,
    limits: RunLimits | None = None,
    shifted: bool = True,
) -> Layout:
    """Memory for every region, in an order and with gaps that chance decides. tensors: arguments of
    a call. shifted: arguments lie at odd multiples of their alignment, else as cudaMalloc aligns.
    Raises KeyError where the module lacks a variable."""
    arguments, allocated = len(template.arguments), len(template.allocations)
    addresses, blocks = [0] * (arguments + allocated), []
    for region in rng.sample(range(len(addresses)), len(addresses)):
        blocks.append(device.alloc(ALIGNMENT * rng.randint(1, _MOST_BLOCKS_APART)))
        nbytes, shift = max(1, template.region_bytes(region)), 0
        if shifted and region < arguments:
            shift = template.arguments[region].alignment % ALIGNMENT
        blocks.append(device.alloc(nbytes + shift))
        addresses[region] = blocks[-1] + shift
    variables = (module.symbols[v.name].address for v in template.variables)
    plan = plan_at(template, (*addresses, *variables))
    recorder = PlanRecorder(device, limits or RunLimits())
    sizes = (block.nbytes for block in template.allocations)
    recorder.blocks.update(zip(addresses[arguments:], sizes, strict=True))
    run = CaseRun(device, recorder, tensors, moves=False, places=plan.inputs)
    return Layout(plan, run, tuple(blocks))

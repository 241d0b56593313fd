"""Carries a launch template out on a `Device`, with memory wherever it lies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coding_framework.cuda.device.device import Device
from coding_framework.cuda.plan.launch_plan import Launch, ModuleInfo
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


def carry_out(
    template: LaunchTemplate,
    device: Device,
    addresses: Sequence[int],
    after: Callable[[int], object] = lambda step: None,
) -> None:
    """The template's steps in order. addresses: of every region. after: called with the number of
    each step that was carried out. Raises CandidateFault for what a kernel does."""

    def at(place: Place) -> int:
        return addresses[place.region] + place.offset

    for number, step in enumerate(template.steps):
        match step:
            case LaunchStep():
                params = patched(step.params, step.relocations, addresses)
                device.launch(
                    Launch(
                        step.entry, step.grid, step.block, step.shared_bytes, params,
                        cooperative=step.cooperative,
                    )
                )  # fmt: skip
            case UploadStep():
                device.upload(at(step.to), patched(step.data, step.relocations, addresses))
            case CopyStep():
                device.copy(at(step.to), at(step.source), step.nbytes)
            case FillStep():
                device.fill(at(step.to), step.value, step.nbytes)
        after(number)


@dataclass(frozen=True, slots=True)
class Layout:
    """Memory of a device for a template."""

    addresses: tuple[int, ...]
    """Of every region of the template."""
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
    rng: random.Random,
    *,
    shifted: bool = True,
) -> Layout:
    """Memory for every region, in an order and with gaps that chance decides. shifted: arguments
    lie at odd multiples of their alignment, else as cudaMalloc aligns. Raises KeyError where the
    module lacks a variable."""
    owned = len(template.arguments) + len(template.allocations)
    addresses, blocks = [0] * owned, []
    for region in rng.sample(range(owned), owned):
        blocks.append(device.alloc(ALIGNMENT * rng.randint(1, _MOST_BLOCKS_APART)))
        nbytes, shift = max(1, template.region_bytes(region)), 0
        if shifted and region < len(template.arguments):
            shift = template.arguments[region].alignment % ALIGNMENT
        blocks.append(device.alloc(nbytes + shift))
        addresses[region] = blocks[-1] + shift
    variables = (module.symbols[v.name].address for v in template.variables)
    return Layout((*addresses, *variables), tuple(blocks))

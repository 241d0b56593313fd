"""Records one call of host code in a process of its own, with everything at other addresses.

On paper: nothing is carried out, so that host code learns nothing of any value. What it asks for
can depend on shapes, scalars and addresses, and on its own process; records at other addresses in
other processes tell these apart.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from coding_framework.cuda.expected.inputs import DTYPE_NAMES
from coding_framework.cuda.expected.reference import Expectation
from coding_framework.cuda.host.forward_arguments import forward_arguments
from coding_framework.cuda.host.paper_device import PaperDevice
from coding_framework.cuda.host.plan_recorder import PlanRecorder
from coding_framework.cuda.plan.launch_plan import ModuleInfo, PlanOp, TensorRef
from coding_framework.cuda.timing.backend import Equipment
from coding_framework.cuda.trial.setup import TrialSetting, open_host

_MOST_BLOCKS_APART = 1 << 16
"""Of 256 bytes, between two allocations."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One call, and where its memory lay."""

    ops: tuple[PlanOp, ...]
    outputs: tuple[TensorRef, ...]
    arguments: tuple[TensorRef, ...]
    variables: dict[str, tuple[int, int]]
    """Address and size of the module's variables by name."""
    earlier: tuple[tuple[int, int], ...]
    """Address and size of what the host allocated before this call."""


class ScatteredPaper(PaperDevice):
    """Paper on which no two allocations lie as on other paper."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def alloc(self, nbytes: int) -> int:
        self._next += 256 * self._random.randint(1, _MOST_BLOCKS_APART)
        return super().alloc(nbytes)


def record_call(
    setting: TrialSetting,
    module: ModuleInfo,
    call: Expectation,
    equipment: Equipment,
    seed: int,
    alignment: int,
) -> Recording:
    """The first call of a fresh process, as on this equipment. seed: of the addresses. alignment:
    of inputs and parameters, in bytes; their addresses are odd multiples of it. Raises
    CandidateFault, ExtensionWanted and ReadsBackError for what the host code does."""
    paper = ScatteredPaper(seed)
    recorder = PlanRecorder(paper, equipment.limits)
    places = []
    for tensor in call.tensors:
        nbytes = max(1, tensor.numel() * tensor.element_size())
        address = paper.alloc(nbytes + alignment) + alignment
        strides = tuple(tensor.stride())
        places.append(TensorRef(address, tuple(tensor.shape), strides, DTYPE_NAMES[tensor.dtype]))
    symbols = {n: replace(s, address=paper.alloc(s.nbytes)) for n, s in module.symbols.items()}
    scattered = replace(module, symbols=symbols)
    with open_host(setting, scattered, recorder, equipment.properties) as open_session:
        host = open_session(call.signature)
        earlier = tuple(recorder.blocks.items())
        recorder.begin()
        names = call.signature.parameter_names
        takes = host.functions.get("forward")
        outputs = host.call(forward_arguments(places, names, call.scalars, takes))
        recorder.require_kept(outputs)
    return Recording(
        recorder.operations,
        outputs,
        tuple(places),
        {name: (s.address, s.nbytes) for name, s in symbols.items()},
        earlier,
    )

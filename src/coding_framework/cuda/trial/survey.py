"""What an answer's Triton kernels are called with on all shape sets, heard before any is compiled.

On paper: a launch of a kernel that is not there yet is noted and left out. Host code that does
otherwise once its kernels run asks for more then, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from coding_framework.cuda.expected.reference import Expectation
from coding_framework.cuda.host.case_run import placed
from coding_framework.cuda.host.forward_arguments import forward_arguments
from coding_framework.cuda.host.paper_device import PaperDevice, ReadsBackError
from coding_framework.cuda.host.plan_recorder import PlanRecorder, RunLimits
from coding_framework.cuda.host.wire import Kind
from coding_framework.cuda.model_new.build import Request, decoded
from coding_framework.cuda.plan.launch_plan import CandidateFault, ModuleInfo
from coding_framework.cuda.trial.setup import TrialSetting, open_host


def kernels_wanted(setting: TrialSetting, calls: Iterable[Expectation]) -> list[Request]:
    """What a call of `forward` on each of these asks for, each once, up to the first fault."""
    wanted: dict[str, Request] = {}

    def note(kind: Kind, payload: memoryview) -> None:
        request = decoded(kind, payload)
        wanted[request.digest] = request

    paper = PaperDevice()
    recorder = PlanRecorder(paper, RunLimits())
    with (
        suppress(CandidateFault, ReadsBackError),
        open_host(setting, ModuleInfo({}, {}), recorder, on_extension=note) as open_session,
    ):
        for call in calls:
            host = open_session(call.signature)
            places = placed(paper, call.tensors)
            recorder.begin()
            names, takes = call.signature.parameter_names, host.functions.get("forward")
            host.call(forward_arguments(places, names, call.scalars, takes))
    return list(wanted.values())

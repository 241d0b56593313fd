"""The correctness protocol on one shape set of one candidate.

1. The host code runs once, in its sandbox, on the first draw: that gives the launch plan.
2. The plan is replayed by us on every other draw, with everything but the inputs poisoned.
3. The last replay is repeated, with the checks for races and uninitialised reads on, and on a
   second device whose warps and blocks run in another order, interleaved: same bits, no race.
4. The host code is called twice more, on other draws, the second time with the inputs at other
   addresses: same plan, right answer again.

Whatever a run leaves behind is compared here, in the judge's process; each comparison is a
`TestResult`. The first failure ends the trial with a CandidateFault that says which status it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import torch

from coding_framework.cuda.advice.mismatch import WrongOutput, mismatch
from coding_framework.cuda.expected.drawn_shapes import BEYOND
from coding_framework.cuda.expected.edge_draws import draw_name, edge_seed
from coding_framework.cuda.expected.inputs import distinct_bytes
from coding_framework.cuda.expected.reference import NEAR, Expectation
from coding_framework.cuda.expected.tolerance import wrong_elements
from coding_framework.cuda.host.case_run import Execution, Output
from coding_framework.cuda.host.plan_recorder import EXECUTED
from coding_framework.cuda.plan.difference import host_share, leaked_bytes, steering_excess
from coding_framework.cuda.plan.launch_plan import (
    RAISED,
    CandidateFault,
    LaunchPlan,
    LaunchReport,
    ReadBack,
)
from coding_framework.cuda.timing.measurement import CHECKED_DRAWS
from coding_framework.cuda.timing.results import TimedCase
from coding_framework.cuda.trial.comparing import Comparing, References
from coding_framework.cuda.trial.fresh_processes import RecordedCall, recorded_call
from coding_framework.cuda.trial.kept_state import STATE_DRAWS, Draw, KeptState, same_bits
from coding_framework.cuda.trial.setup import TrialSetup
from coding_framework.cuda.trial.verdict_draft import TrialLog
from coding_framework.types import Status, Task, TestCase

_RACES = {
    "shared_memory_race": "a race, so another schedule gives another result",
    "global_memory_race": "a race, so another schedule gives another result",
    "barrier_divergence": "a barrier that some threads of a warp do not reach is undefined",
}
"""Faults of a run that make a result a matter of luck. Between volatile accesses of one warp
(`warp_race`) hardware has an order on which much honest code relies: that stays a pitfall."""
_WARP = 32
_POISONS = (None, 0x7B, 0x3C, 0xFB)
"""What replays fill other memory with, in turn: the device's own poison, which is NaN and -1, bytes
that make large numbers of either sign in every dtype, and some that make usual ones (0.01 and 1).
Each alone may be somebody's answer: a maximum passes over NaN and over what is small."""
_MOST_EXPLAINED = 5_000_000
"""Warp instructions of a wrong call that is made again to see why: half a second."""
_NOTHING_LAUNCHED = "it launches nothing"
_HARDWARE_RERUNS = (0x7B, 0xFB)
"""Fills of the replays that are made beside the one that every device repeats, on a device whose
schedule varies by itself."""
_PATIENCE, _LEAST_PATIENCE = 2, 200_000
"""Warp instructions after which a block waits in vain, in units of a whole call's, and at least."""
_HARDWARE_CALLS = 16
"""Calls before each of them that nobody looks at: a kernel that counts its launches gets on."""


class CaseTrial:
    """One shape set, from the first host run to the last comparison."""

    def __init__(
        self,
        task: Task,
        case: TestCase,
        setup: TrialSetup,
        references: References,
        seeds: Sequence[int],
        log: TrialLog,
        timing_seed: int = 0,
    ) -> None:
        """seeds: at least two draws; the first records the plan, the others replay it. timing_seed:
        the candidate's own, so that timed calls check on draws that no other candidate has seen:
        what one leaves behind on a device answers for no other."""
        self._task = task
        self._case = case
        self._setup = setup
        self._references = references
        self._comparing = Comparing(task, case, references, setup.equipment)
        self._expect = self._comparing.expect
        self._compare = self._comparing.compare
        self._seeds = tuple(seeds)
        self._log = log
        self._timing_seed = timing_seed
        self._varies = False
        self._last: tuple[LaunchPlan, float] = LaunchPlan((), (), ()), 0.0
        """The last call's plan, and the warp instructions of its launches."""
        self._failed: tuple[Expectation, Execution] | None = None
        """The last comparison that failed."""
        self.recorded: RecordedCall | None = None
        """The first call, where its plan may be compared with other processes'."""

    def judge(self) -> TimedCase:
        """All four steps. Raises CandidateFault with the status of the verdict."""
        first, *fresh = self._seeds
        try:
            plan, execution = self._call_host(first, counts=False)
        finally:
            self._log.output += [report.output for report in self._setup.recorder.reports]
        self._check(first, execution)
        self._require_device_work(plan)
        self._mark_read_back(plan)
        replays = []
        for i, seed in enumerate(fresh):
            fill = _POISONS[i % len(_POISONS)]
            execution = self._setup.run.replay(plan, self._expect(seed).tensors, fill=fill)
            if not self._right(seed, execution):
                return self._judge_dependent(plan, seed, execution)
            replays.append(execution.reports)
        self._rerun(plan, fresh[-1], execution)
        waits = self._waits(plan, fresh[-1])
        edges, again, moved = self._shared_out(fresh)
        for seed in edges:
            execution = self._setup.run.replay(plan, self._expect(seed).tensors, counts=False)
            if not self._right(seed, execution):
                return self._judge_dependent(plan, seed, execution)
        kept = KeptState(self._setup, plan)
        second = self._call_again(plan, again)
        draws = [(again, *fresh)[i % len(self._seeds)] for i in range(STATE_DRAWS)]
        near = self._draw(NEAR + again)
        kept.require_none(self._setup.run, second, [self._draw(seed) for seed in draws], near)
        self._call_again(plan, moved, moved=True)
        if not self._varies:
            self.recorded = recorded_call(
                self._case.name, plan, self._setup, self._expect(self._seeds[0])
            )
            self.recorded = replace(self.recorded, waits=waits)
        return self._timed(plan, replays)

    def _waits(self, plan: LaunchPlan, seed: int) -> bool:
        """Whether a block of the plan waits for what a later one does: with each started after the
        end of the one before, it never ends. Asked where there are sizes with more blocks."""
        setup, executed = self._setup, self._last[1]
        if setup.open_other_schedule is None or not setup.polls or not self._task.gpu_cases:
            return False
        tensors = self._expect(seed).tensors
        budget = _LEAST_PATIENCE + _PATIENCE * int(executed)
        with closing(setup.open_other_schedule(budget)) as device:
            try:
                setup.run.twin(device, tensors).replay(plan, tensors, counts=False)
            except CandidateFault as fault:
                return fault.status is Status.TIMEOUT
        return False

    def _draw(self, seed: int) -> Draw:
        """A draw to try calls on, and whether what comes of one is right."""
        return lambda: self._expect(seed).tensors, lambda e: self._right(seed, e)

    def _edge_seeds(self) -> tuple[int, ...]:
        """The edge draws; none in an experiment that has no other draw than the first."""
        if len(set(self._seeds)) == 1:
            return ()
        return self._references.edges(self._task, self._case)

    def _shared_out(self, fresh: Sequence[int]) -> tuple[list[int], int, int]:
        """The edge draws to replay, and what the two calls at the end are made on: edge draws that
        count as a whole, where there are any."""
        edges = self._edge_seeds()
        whole = [seed for seed in edges if self._expect(seed).decides_all][:2]
        again, moved = [*whole, *(fresh[0], fresh[-1])[len(whole) :]]
        return [seed for seed in edges if seed not in whole], again, moved

    def record(self, *, dependent: bool) -> TimedCase:
        """The first host call, repeated with other values in all other memory, and one with moved
        inputs, compared, and the plan: for a shape set of real size, where the timed calls are the
        replays. dependent: whether plans of this candidate depend on values."""
        first, last = self._seeds[0], self._seeds[-1]
        plan, execution = self._call_host(first)
        self._check(first, execution)
        self._require_device_work(plan)
        self._mark_read_back(plan)
        self._repeat(plan, first, execution)
        own = first if dependent and plan.reads_back else None
        timed = self._timed(plan, [execution.reports], own)
        again = self._call_again(plan, last, moved=True)
        if own is not None:  # its timed calls see no other draw
            self._require_only_steered(plan, again)
        return timed

    def measured(self, timed: TimedCase) -> TimedCase:
        """With its time, where the device has a clock. Raises CandidateFault where a timed call was
        wrong."""
        measure = self._setup.equipment.measure
        if measure is None:
            return timed
        after = max(self._seeds) + 1 + self._timing_seed
        own = timed.own_seed
        seeds = [own] if own is not None else [after + i for i in range(CHECKED_DRAWS)]
        draws = [self._expect(seed) for seed in seeds]
        found = measure(self._setup.run, timed, draws, self._check_timed)
        guard = self._setup.equipment.device.check_guards()
        if guard is not None:
            raise CandidateFault(Status.RUNTIME_ERROR, guard)
        return replace(timed, measurement=found)

    def _check_timed(self, expectation: Expectation, outputs: tuple[Output, ...]) -> None:
        if not self._passes(expectation, Execution(outputs, (), None, None)):
            self._wrong(expectation.seed, f"wrong in a timed call: {self._log.tests[-1].detail}")

    def call_twice(self) -> TimedCase:
        """The host code on the first draw, and once more on the last with the inputs elsewhere: for
        a shape set whose sizes nobody knew. Raises CandidateFault."""
        first, last = self._seeds[0], self._seeds[-1]
        plan, execution = self._call_host(first)
        self._check(first, execution)
        self._require_device_work(plan)
        self._call_again(plan, last, moved=True)
        return self._timed(plan, [execution.reports])

    def call_at_other_sizes(self, cases: Sequence[TestCase]) -> None:
        """The host code once on each of these shape sets, in the process that there is. Raises
        CandidateFault where an answer is wrong. Who gives none beyond the declared sizes is not."""
        seed = edge_seed("plain")
        for case in cases:
            setup = self._setup.at_other_sizes(self._references.get(self._task, case, seed))
            trial = CaseTrial(self._task, case, setup, self._references, (seed,), self._log)
            beyond, why = case.name.startswith(BEYOND), _NOTHING_LAUNCHED
            try:
                plan, execution = trial._call_host(seed)
                if plan.launches or not beyond:
                    trial._check(seed, execution)
                    trial._require_device_work(plan)
                    self._log.tests.pop()  # a verdict tells of these where one is wrong
                    continue
            except CandidateFault as fault:
                if not (beyond and fault.status is Status.RUNTIME_ERROR):
                    raise
                why = fault.reason
            self._log.note("refused_size", "info", f"no answer for shapes {case.name}: {why}")
            if not why.startswith((RAISED, _NOTHING_LAUNCHED)):
                return  # the host process waits for the end of its launch

    def call_once(self) -> None:
        """The host code alone, on the first draw. Raises CandidateFault where it fails or is wrong;
        a candidate that is right here has shown nothing."""
        plan, execution = self._call_host(self._seeds[0])
        self._check(self._seeds[0], execution)
        self._require_device_work(plan)

    def _note_faults(self, seed: int) -> None:
        """What the last call of a wrong kernel does beside: races, reads of unset memory. They
        explain. Where the device looks for them and counts what a launch takes."""
        plan, executed = self._last
        if self._setup.open_other_schedule is None or not 0 < executed < _MOST_EXPLAINED:
            return
        try:
            tensors = self._expect(seed).tensors
            again = self._setup.run.replay(plan, tensors, checks=True, counts=False)
        except CandidateFault:
            return
        self._log.faults += [fault for report in again.reports for fault in report.faults]

    # --- the steps --------------------------------------------------------------------------------

    def _call_host(
        self, seed: int, *, moved: bool = False, counts: bool = True
    ) -> tuple[LaunchPlan, Execution]:
        """counts: whether the times and counters of its launches may get into the verdict."""
        expectation = self._expect(seed)
        plan, execution = self._setup.run.host_run(
            self._setup.host,
            expectation.tensors,
            expectation.scalars,
            expectation.signature.parameter_names,
            moved=moved,
            counts=counts,
        )
        executed = sum(report.counters.get(EXECUTED, 0.0) for report in execution.reports)
        self._last = plan, executed
        return plan, execution

    def _require_device_work(self, plan: LaunchPlan) -> None:
        if plan.launches:
            return
        if plan.reads_back:
            self._cheating(
                "host_computation",
                "the host reads the inputs back, launches no kernel and uploads the answer",
            )
        raise CandidateFault(
            Status.REJECTED,
            "forward launches no kernel: the function has to be computed by a __global__ function",
        )

    def _mark_read_back(self, plan: LaunchPlan) -> None:
        if plan.reads_back:
            nbytes = sum(op.nbytes for op in plan.ops if isinstance(op, ReadBack))
            self._log.note(
                "read_back", "low", f"the host reads {nbytes} bytes back from the device"
            )

    def _rerun(self, plan: LaunchPlan, seed: int, before: Execution) -> None:
        """The same inputs again: the same bits; right again where atomics add in any order."""
        tensors = self._expect(seed).tensors
        again = self._setup.run.replay(plan, tensors, checks=True, counts=False)
        self._require_same(seed, before, again)
        faults = [fault for report in again.reports for fault in report.faults]
        self._log.faults += faults
        for fault in faults:
            if fault.kind in _RACES:
                raise CandidateFault(
                    Status.NONDETERMINISTIC,
                    f"{_RACES[fault.kind]}: {fault.message}",
                )
        if not any(math.prod(launch.grid + launch.block) > _WARP for launch in plan.launches):
            return
        if self._setup.open_other_schedule is None:
            self._repeat(plan, seed, before, calls=_HARDWARE_CALLS)
            return
        with closing(self._setup.open_other_schedule()) as device:
            other = self._setup.run.twin(device, tensors).replay(plan, tensors)
            self._require_same(seed, before, other)

    def _repeat(self, plan: LaunchPlan, seed: int, before: Execution, calls: int = 0) -> None:
        """The same inputs with other values in all other memory, on a device whose schedule varies
        by itself. calls: launches of the plan before each of them that nobody looks at."""
        tensors = self._expect(seed).tensors
        for fill in _HARDWARE_RERUNS:
            self._setup.run.repeat(plan, calls)
            self._require_same(seed, before, self._setup.run.replay(plan, tensors, fill=fill))

    def _require_same(self, seed: int, before: Execution, again: Execution) -> None:
        if self._task.atomic_order or self._setup.adds_atomically:
            self._check(seed, again)
            return
        with self._setup.equipment.computing():
            same = same_bits(before, again)
        if not same:
            raise CandidateFault(
                Status.NONDETERMINISTIC,
                f"two runs on the same inputs of shape set {self._case.name!r} differ",
            )

    def _call_again(self, plan: LaunchPlan, seed: int, *, moved: bool = False) -> LaunchPlan:
        """Another call in the same host process, and its plan: no answer or state kept from the
        first, nothing done for its addresses alone."""
        before = [] if self._setup.run.on_gpu else self._setup.run.returned(plan)
        second, execution = self._call_host(seed, moved=moved, counts=False)
        difference = self._setup.plan_reader().difference(plan, second)
        right = self._right(seed, execution)
        if difference is not None and not right and not plan.reads_back:
            self._cheating(
                "plan_changed", f"the plan changed between two calls: {difference.message}"
            )
        if not right:
            self._wrong(seed, f"wrong when called again: {self._log.tests[-1].detail}")
        if before and not all(map(torch.equal, before, self._setup.run.returned(plan))):
            raise CandidateFault(
                Status.REJECTED,
                f"shape set {self._case.name!r}: a call overwrites what an earlier one returned, "
                "which its caller may still hold",
            )
        leaked = leaked_bytes(second)
        if leaked:
            self._log.note("memory_leak", "medium", f"a call leaves {leaked} bytes allocated")
        if plan.reads_back:
            self._require_not_finished(plan, second)
        self._varies |= difference is not None and not difference.one_time_setup
        if difference is not None and difference.one_time_setup:
            self._log.note("one_time_setup", "low", f"set up once: {difference.message}")
        elif difference is not None and not plan.reads_back:
            self._log.note("plan_changed", "medium", f"right, but {difference.message}")
        return second

    def _require_not_finished(self, plan: LaunchPlan, second: LaunchPlan) -> None:
        """A part of the answer that the host makes may be too small for a replay to show it."""
        finished = self._setup.plan_reader().finished_on_host(plan, second)
        if finished is not None:
            self._cheating("host_computation", finished)

    def _judge_dependent(self, plan: LaunchPlan, seed: int, replayed: Execution) -> TimedCase:
        """A replay on fresh inputs was wrong: stale or steered by values, or simply wrong?"""
        failed = self._log.tests[-1]
        second, execution = self._call_host(seed)
        if not self._right(seed, execution):  # wrong when called honestly as well
            self._wrong(seed, self._log.tests[-1].detail)
        difference = self._setup.plan_reader().difference(plan, second)
        if plan.reads_back and difference is not None:
            if self._carries_its_answer(replayed):
                self._cheating(
                    "host_computation",
                    "replayed on fresh inputs, the kernels gave the answer that their arguments "
                    "carry: the host computed it",
                )
            self._require_only_steered(plan, second)
            del self._log.tests[-2]  # the replay that says nothing about such a plan
            return self._judge_by_host(seed, plan, execution)
        if difference is not None:
            self._cheating(
                "plan_changed", f"the plan depends on more than shapes: {difference.message}"
            )
        if self._is_stale(replayed):
            self._cheating(
                "stale_answer", "replayed on fresh inputs, the kernels gave an earlier answer"
            )
        self._note_mismatch()
        raise CandidateFault(
            Status.WRONG_OUTPUT,
            f"right when first launched, wrong when launched again on fresh inputs of shape set "
            f"{self._case.name!r}: {failed.detail}",
        )

    def _require_only_steered(self, first: LaunchPlan, other: LaunchPlan) -> None:
        """What the host read may choose between plans; it may not make the answer."""
        reader = self._setup.plan_reader()
        difference = reader.difference(first, other)
        excess = host_share(other, self._input_bytes())
        if excess is None and difference is not None:
            excess = steering_excess(difference) or reader.finished_on_host(first, other)
        if excess is not None:
            self._cheating("host_computation", excess)

    def _judge_by_host(self, seed: int, first: LaunchPlan, execution: Execution) -> TimedCase:
        """The rest of the protocol for a plan steered by a few values that the host reads back:
        the host runs for every draw, and once more with the inputs elsewhere."""
        self._log.note(
            "host_dependent",
            "medium",
            "launches depend on values read back: the host code ran for every draw",
        )
        reports = [execution.reports]
        for edge in self._edge_seeds():
            plan, on_edge = self._call_host(edge)
            self._check(edge, on_edge)
            self._require_only_steered(first, plan)
        if seed not in self._seeds:  # it showed on an edge draw
            seed = self._seeds[0]
        for other in self._seeds[self._seeds.index(seed) + 1 :]:
            plan, execution = self._call_host(other)
            self._check(other, execution)
            self._require_only_steered(first, plan)
            reports.append(execution.reports)
        last = self._seeds[-1]
        plan, again = self._call_host(last)
        self._require_same(last, execution, again)
        self._rerun(plan, last, again)  # on its own inputs a replay of such a plan is right too
        elsewhere, execution = self._call_host(self._seeds[0], moved=True)
        self._check(self._seeds[0], execution)
        self._require_only_steered(first, elsewhere)
        return self._timed(plan, reports, last)

    # --- comparisons ------------------------------------------------------------------------------

    def _check(self, seed: int, execution: Execution) -> None:
        if not self._right(seed, execution):
            self._wrong(seed, self._log.tests[-1].detail)

    def _right(self, seed: int, execution: Execution) -> bool:
        """Whether the outputs are right. Raises CandidateFault for a guard that was written to."""
        if execution.guard is not None:
            raise CandidateFault(Status.RUNTIME_ERROR, execution.guard)
        return self._passes(self._expect(seed), execution)

    def _passes(self, expectation: Expectation, execution: Execution) -> bool:
        """Compare, log the test, and say whether it passed."""
        result = self._comparing.test(expectation, execution)
        self._log.tests.append(result)
        if not result.passed:
            self._failed = expectation, execution
        return result.passed

    def _carries_its_answer(self, replayed: Execution) -> bool:
        """Whether a replay on other inputs gave the answer of the call that made the plan. Numbers
        alone count: a flag or an index may be equal by chance."""
        expected = self._expect(self._seeds[0]).outputs
        pairs = zip(replayed.outputs, expected, strict=False)
        return all(e.tolerance is not None for e in expected) and all(
            self._compare(o, e).passed for o, e in pairs
        )

    def _is_stale(self, replayed: Execution) -> bool:
        """Whether an output is the answer to other inputs than those it was given."""
        for seed in self._seeds:
            pairs = zip(replayed.outputs, self._expect(seed).outputs, strict=False)
            if all(self._compare(o, e).passed for o, e in pairs):
                return True
        return False

    # --- what it comes to -------------------------------------------------------------------------

    def _wrong(self, seed: int, detail: str) -> None:
        self._note_faults(seed)
        self._note_mismatch()
        raise CandidateFault(
            Status.WRONG_OUTPUT, f"shape set {self._case.name!r}, {draw_name(seed)}: {detail}"
        )

    def _note_mismatch(self) -> None:
        """What the first output that is wrong shows of its cause."""
        if self._failed is None:
            return
        expectation, execution = self._failed

        def recompute(inputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
            seed = expectation.seed
            return self._references.of_other_inputs(self._task, self._case, seed, inputs)

        for output, expected in zip(execution.outputs, expectation.outputs, strict=False):
            if expected.reference.is_cuda:  # a shape set of real size
                return
            got = output.tensor.cpu()
            wrong = wrong_elements(got, expected)
            if wrong is not None and bool(wrong.any()):
                names = [spec.name for spec in self._case.inputs]
                want = expected.reference.to(torch.float64)
                seen = WrongOutput(got, want, wrong, expectation.inputs, names)
                self._log.notes += mismatch(seen, recompute)
                return

    def _cheating(self, rule: str, message: str) -> None:
        self._log.cheat(rule, message)
        raise CandidateFault(Status.CHEATING, f"shape set {self._case.name!r}: {message}")

    def _timed(
        self,
        plan: LaunchPlan,
        replays: Sequence[tuple[LaunchReport, ...]],
        own_seed: int | None = None,
    ) -> TimedCase:
        outputs = sum(
            o.native.numel() * o.native.element_size() for o in self._expect(self._seeds[0]).outputs
        )
        dtype = self._case.inputs[0].dtype if self._case.inputs else "float32"
        moved = self._input_bytes() + outputs
        return TimedCase(plan, tuple(replays), moved, outputs, dtype, own_seed)

    def _input_bytes(self) -> int:
        tensors = self._expect(self._seeds[0]).tensors
        return sum(map(distinct_bytes, tensors))

"""Tries one candidate on the shape sets of its task, one after the other.

The backend's checker comes first, where there is one; then the backend itself. An answer that asks
for a kernel while it runs gets a larger build, and the shape set begins again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from coding_framework.cuda.build.ptx_summary import may_repeat, ptx_of
from coding_framework.cuda.device.work_meter import WorkMeter
from coding_framework.cuda.expected.edge_draws import edge_seed
from coding_framework.cuda.expected.inputs import tensor_bytes
from coding_framework.cuda.expected.reference import Expectation, ReferenceCache
from coding_framework.cuda.expected.rules import Rules
from coding_framework.cuda.host.plan_recorder import (
    RunLimits,
    first_budget,
    instruction_budget,
)
from coding_framework.cuda.host.properties import DeviceProperties, others_like
from coding_framework.cuda.model_new.build import ExtensionWanted, Request
from coding_framework.cuda.model_new.triton_kernels import imports_triton
from coding_framework.cuda.plan.launch_plan import CandidateFault, ModuleInfo
from coding_framework.cuda.sandbox.reused import reused
from coding_framework.cuda.timing.backend import Backend
from coding_framework.cuda.timing.profiler import ReplayFiles
from coding_framework.cuda.timing.results import TimedCase, summed_counters
from coding_framework.cuda.trial.by_rules import check_by_rules
from coding_framework.cuda.trial.fresh_processes import (
    RecordedCall,
    require_published,
    require_same_plans,
)
from coding_framework.cuda.trial.setup import TrialSetting, TrialSetup, open_setup
from coding_framework.cuda.trial.survey import kernels_wanted
from coding_framework.cuda.trial.trial import CaseTrial
from coding_framework.cuda.trial.verdict_draft import NOT_CHECKED, TrialLog, VerdictDraft
from coding_framework.types import RulesCheck, Status, Task, TestCase, TestResult

_BEYOND_A_CHECKER = frozenset({Status.UNSUPPORTED, Status.TIMEOUT})
"""Faults that may be the checker's limits and not the candidate's: a GPU runs more, and faster."""

_AT_ONCE = 8
"""Triton kernels that one compilation makes: it has a limit of processor time."""

T = TypeVar("T")
CompileAlso = Callable[[Path, Sequence[Request], VerdictDraft], Path]
"""Makes a build with more extensions or kernels. Raises CandidateFault where that cannot be
compiled."""


class CandidateTrials:
    """The trials of one candidate; what they find goes into its draft."""

    def __init__(
        self,
        setting: TrialSetting,
        draft: VerdictDraft,
        references: ReferenceCache,
        seeds: tuple[int, ...],
        compile_also: CompileAlso,
        *,
        profile: bool = False,
    ) -> None:
        """seeds: the draws of each shape set. profile: whether to count the timed plan's hardware
        events, where the device has a profiler."""
        self._setting = setting
        self._checker_meter = WorkMeter()  # what the checker cannot finish, the device may
        self._draft = draft
        self._references = references
        self._seeds = seeds
        self._compile_also = compile_also
        self._profile = profile
        self._timing_seed = int(draft.candidate.sha256[:8], 16)
        self._tried = setting
        """The setting with the build that was tried last: an answer may have asked for more."""
        self._module: ModuleInfo | None = None
        self._recorded: list[RecordedCall] = []
        """Calls whose plans other processes must repeat."""
        self._dependent = False
        """Whether the launches on an earlier shape set depended on values."""
        self._drawn: TestCase | None = None
        self._asked_device = False

    def try_all(self, cases: Sequence[TestCase], drawn: TestCase | None = None) -> TimedCase:
        """Every shape set in order, and the drawn one; gives the one that is timed. Raises
        CandidateFault."""
        outer = self._setting
        with reused(outer.sandbox) as sandbox:
            self._setting = replace(outer, sandbox=sandbox)
            try:
                return self._try_each(cases, drawn)
            finally:
                self._setting = outer

    def _try_each(self, cases: Sequence[TestCase], drawn: TestCase | None) -> TimedCase:
        self._compile_all([*cases, *([] if drawn is None else [drawn])])
        self._require_end(cases)
        found: dict[str, TimedCase] = {}
        for case in cases:
            found[case.name] = self._try(case)
            self._dependent = self._dependent or found[case.name].own_seed is not None
        if drawn is not None:
            self._drawn = drawn
            self._try(drawn)
        if self._asked_device:
            self._try_other_devices(cases)
        host_ms = None
        if self._recorded and self._module is not None:
            limits = RunLimits()
            host_ms = require_same_plans(self._tried, self._module, self._recorded, limits)
            self._record_published(cases)
        timed = found[self._setting.backend.timed_case(self._draft.task).name]
        return replace(timed, host_ms=host_ms)

    def _record_published(self, cases: Sequence[TestCase]) -> None:
        """Published sizes that are not run here, where they have the module of the first call."""
        assert self._module is not None
        first = self._recorded[0]
        tried = next(case for case in cases if case.name == first.case)
        for case in self._draft.task.gpu_cases:
            if case in cases or case.init_args != tried.init_args:
                continue
            try:
                require_published(self._tried, self._module, first, case)
            except CandidateFault as fault:
                if fault.status is Status.WRONG_OUTPUT:
                    self._draft.log.tests.append(_not_run(case, fault.reason))
                raise

    def _try_other_devices(self, cases: Sequence[TestCase]) -> None:
        """One call on each shape set for a host process that is told of other devices. Raises
        CandidateFault where it is not right for each of them."""
        task, setting = self._draft.task, self._tried
        backend = setting.backend.checker or setting.backend
        setting = replace(setting, backend=backend)
        for case in cases:
            if case in task.gpu_cases:
                continue
            expectation = self._references.get(task, case, self._seeds[0])
            with backend.equip(expectation, False) as equipment:
                own = equipment.properties
            draw = Random(b"".join(tensor_bytes(t.reshape(-1)[:64]) for t in expectation.tensors))
            for told in others_like(own, draw):
                log, build = TrialLog(), self._setting.build
                attempt = partial(self._call_told, told, case, expectation, log)
                try:
                    self._until_built(replace(setting, build=build), attempt)
                except CandidateFault as fault:
                    self._draft.log.tests += log.tests
                    raise CandidateFault(
                        fault.status,
                        f"told of a device of {told.multiprocessors} multiprocessors, with "
                        f"{told.global_memory >> 30} GiB: {fault.reason}",
                    ) from fault

    def _call_told(
        self,
        told: DeviceProperties,
        case: TestCase,
        first: Expectation,
        log: TrialLog,
        setting: TrialSetting,
    ) -> None:
        """One call for a host process that is told of a device. first: its draw."""
        task, seeds = self._draft.task, self._seeds[:1]
        with open_setup(setting, first, told=told) as setup:
            CaseTrial(task, case, setup, self._references, seeds, log).call_once()

    def _compile_all(self, cases: Sequence[TestCase]) -> None:
        """The Triton kernels of an answer at once, as far as they are known before any runs."""
        if not imports_triton(self._setting.build):
            return
        task, seed = self._draft.task, self._seeds[0]
        small = [case for case in cases if case not in task.gpu_cases]
        calls = (self._references.get(task, case, seed) for case in small)
        wanted = kernels_wanted(self._setting, calls)
        for at in range(0, len(wanted), _AT_ONCE):
            some = wanted[at : at + _AT_ONCE]
            build = self._compile_also(self._setting.build, some, self._draft)
            self._setting = replace(self._setting, build=build)

    def _require_end(self, cases: Sequence[TestCase]) -> None:
        """Raises CandidateFault (timeout) for a candidate that takes more instructions on the
        smallest shape set than that allows: an endless kernel is found in a second or two, where
        the first shape set would let it run for up to half a minute. Whatever else comes of this
        call says nothing yet. Where the device counts instructions, and there is a loop."""
        backend = self._setting.backend.for_first_call()
        if backend is None:
            return
        smallest = min(cases, key=_elements)
        usual = instruction_budget(2 * _elements(cases[0]))
        if usual < 2 * first_budget(2 * _elements(smallest)):
            return
        if not may_repeat(ptx_of(self._setting.build)):
            return
        setting = replace(self._setting, backend=backend)
        task, seeds = self._draft.task, self._seeds
        expectation = self._references.get(task, smallest, seeds[0])
        try:
            with open_setup(setting, expectation) as setup:
                self._note_device(setting, setup)
                trial = CaseTrial(task, smallest, setup, self._references, seeds[:1], TrialLog())
                trial.call_once()
        except ExtensionWanted:
            return
        except CandidateFault as fault:
            if fault.status is Status.TIMEOUT:
                raise

    def _try(self, case: TestCase) -> TimedCase:
        """One shape set: by the backend's checker, if it has one, unless it is of real size; and by
        the backend itself, if it is timed or the checker cannot run it."""
        backend, task = self._setting.backend, self._draft.task
        checked = None
        if backend.checker is not None and case not in task.gpu_cases:
            checked = self._check(backend.checker, case)
        if checked is not None and case != backend.timed_case(task):
            return checked
        return self.try_case(case)

    def _check(self, checker: Backend, case: TestCase) -> TimedCase | None:
        """The protocol on a checker; None where the candidate is more than that can run, which the
        verdict says."""
        log = self._draft.log
        tested, faults = len(log.tests), len(log.faults)
        try:
            return self.try_case(case, on=checker)
        except CandidateFault as fault:
            if fault.status not in _BEYOND_A_CHECKER:
                raise
            del log.tests[tested:], log.faults[faults:]
            log.note(
                NOT_CHECKED,
                "medium",
                f"races, accesses outside of allocations and reads of unset memory were not looked "
                f"for on shape set {case.name!r}: {fault.reason}",
            )
            return None

    def try_case(self, case: TestCase, on: Backend | None = None) -> TimedCase:
        """The correctness protocol on one shape set: a fresh device and a fresh host process. on:
        the backend's checker instead of the backend; nothing is timed there. Raises
        CandidateFault."""
        setting = self._setting
        if on is not None:
            setting = replace(setting, backend=on, meter=self._checker_meter)
        timed = on is None and case == setting.backend.timed_case(self._draft.task)
        with setting.backend.room(self._draft.task, case):
            try:
                return self._until_built(setting, lambda now: self._try_build(now, case, timed))
            finally:
                if case in self._draft.task.gpu_cases:
                    self._references.leave()

    def by_rules(self, rules: Rules, secret: bytes) -> RulesCheck:
        """What published rules say of the candidate, whatever the protocol says. secret: to draw
        with."""
        task, place = self._draft.task, self._setting.backend.place
        try:
            with self._setting.backend.room(task, self._setting.backend.timed_case(task)):
                return self._until_built(
                    self._setting, lambda now: check_by_rules(now, task, rules, secret, place)
                )
        except CandidateFault as fault:
            return RulesCheck(rules=rules.name, passed=False, reason=fault.reason)

    def _until_built(self, setting: TrialSetting, attempt: Callable[[TrialSetting], T]) -> T:
        """Begins again with a larger build where an answer asks for one."""
        tests = self._draft.log.tests
        tested = len(tests)
        while True:
            try:
                return attempt(setting)
            except ExtensionWanted as wanted:
                del tests[tested:]
                build = self._compile_also(setting.build, [wanted.request], self._draft)
                setting = replace(setting, build=build)
                self._setting = replace(self._setting, build=build)

    def _try_build(self, setting: TrialSetting, case: TestCase, is_timed: bool) -> TimedCase:
        task, references = self._draft.task, self._references
        expectation = references.get(task, case, self._seeds[0])
        one_draw = len(set(self._seeds)) == 1  # of an experiment
        swept = references.swept_cases(task) if case is self._drawn and not one_draw else ()
        most = max((_all_elements(task, other, references) for other in swept), default=0)
        with open_setup(setting, expectation, timed=is_timed, elements=most) as setup:
            self._note_device(setting, setup)
            trial = CaseTrial(
                task, case, setup, references, self._seeds, self._draft.log, self._timing_seed
            )
            if case is self._drawn:
                passed = trial.call_twice()
                trial.call_at_other_sizes(swept)
                return passed
            real_size = case in task.gpu_cases
            passed = trial.record(dependent=self._dependent) if real_size else trial.judge()
            self._asked_device |= setup.host.about.asked_device
            if trial.recorded is not None:
                self._keep(trial.recorded, setting, setup)
            passed = trial.measured(passed)
            if is_timed and self._profile:
                self._count_events(setting, setup, case, passed)
            return passed

    def _keep(self, call: RecordedCall, setting: TrialSetting, setup: TrialSetup) -> None:
        """Keep a first call for `require_same_plans`: those of one device and the newest build."""
        if self._module is not None and setting.backend.name != self._tried.backend.name:
            return
        if self._module is not None and not setup.module.extends(self._module):
            self._recorded.clear()
        self._tried, self._module = setting, setup.module
        self._recorded.append(call)

    def _note_device(self, setting: TrialSetting, setup: TrialSetup) -> None:
        """A GPU's verdict names the GPU, whatever the emulator tried for it; the emulator has no
        driver of its own."""
        if not self._draft.device or setting.backend.name == self._draft.backend:
            self._draft.device = setup.device_name
        self._draft.driver = setting.backend.driver or self._draft.driver

    def _count_events(
        self, setting: TrialSetting, setup: TrialSetup, case: TestCase, timed: TimedCase
    ) -> None:
        """Hardware counters of the timed plan, where the device has a profiler."""
        seed = self._seeds[0] if timed.own_seed is None else timed.own_seed
        tensors = self._references.get(self._draft.task, case, seed).tensors
        regions = setup.run.contents(timed.plan, tensors)
        files = ReplayFiles(setting.build, timed.plan, setup.module, regions)
        found = setting.backend.profile(files)
        if found is None:
            return
        self._draft.counters = summed_counters(found.reports)
        if found.note:
            self._draft.log.note("no_counters", "info", found.note)


def _not_run(case: TestCase, why: str) -> TestResult:
    """A shape set that cannot be right, as its launches show."""
    return TestResult(
        case=case.name, seed=0, shapes=tuple(spec.shape for spec in case.inputs),
        dtype=case.inputs[0].dtype, max_abs_error=None, max_rel_error=None, tolerance=None,
        passed=False, detail=why,
    )  # fmt: skip


def _all_elements(task: Task, case: TestCase, references: ReferenceCache) -> int:
    """Of inputs, parameters and outputs of a shape set that is swept."""
    return references.get(task, case, edge_seed("plain")).elements


def _elements(case: TestCase) -> int:
    """Of the inputs of a shape set."""
    return sum(math.prod(spec.shape) for spec in case.inputs)

"""The judge: task and candidate in, verdict out.

    inspect -> compile -> record the plan -> replay on fresh inputs -> compare -> time -> verdict

What a verdict promises: this device code, launched as its host code asked, computes the task's
function within tolerance on inputs it had never seen, and takes this long on this device; and the
candidate could touch neither the reference, nor the clock, nor the verdict.

Who runs where: candidate host code in a sandboxed process that sees no device; candidate device
code on a `Device` that sees nothing else; references, seeds, comparison and verdict here. A fault
of the candidate's becomes a verdict in `Judge.judge` and nowhere else; a fault of ours is raised
and never becomes a verdict.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, SecretBytes

from coding_framework.cuda.choose_backend import choose_backend, make_backend
from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler
from coding_framework.cuda.device.gpu_sharing import gpus_here
from coding_framework.cuda.emulator.device import current_fork_server
from coding_framework.cuda.expected.rules import RULES
from coding_framework.cuda.host.runner import build_runner
from coding_framework.cuda.model_new.build import ExtensionWanted, Request, answer_of
from coding_framework.cuda.model_new.configurations import Tuned, tuned_kernels, with_choice
from coding_framework.cuda.model_new.extensions import MAX_LATE_REQUESTS, ExtensionRequest
from coding_framework.cuda.model_new.triton_kernels import MAX_LATE_KERNELS
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.protocol import PROTOCOL, TOLERANCE_FORMULA, judge_digest
from coding_framework.cuda.safety_wrapper import SafetyWrapper
from coding_framework.cuda.timing.baseline_times import BaselineTimes
from coding_framework.cuda.timing.naive_kernels import NaiveKernels, NaiveWriter
from coding_framework.cuda.timing.results import TimedCase, summed_counters
from coding_framework.cuda.trial.verdict_draft import VerdictDraft
from coding_framework.errors import DeviceFullError, UsageError
from coding_framework.store.events import log
from coding_framework.task_shapes import SHAPE_SETS, UNSEEN_SHAPE_SETS, count_shape_sets
from coding_framework.types import (
    TIMED,
    BackendChoice,
    BackendName,
    BaselinesName,
    BenchmarkResult,
    Candidate,
    CompilationResult,
    Probe,
    ProbeResult,
    Receipt,
    Record,
    RulesCheck,
    RulesName,
    Status,
    Task,
    TestCase,
    Verdict,
)

if TYPE_CHECKING:  # torch takes a second to import; the compiler works meanwhile
    from coding_framework.cuda.expected.reference import Compute, ReferenceCache
    from coding_framework.cuda.timing.backend import Backend
    from coding_framework.cuda.trial.candidate import CandidateTrials
    from coding_framework.cuda.trial.setup import TrialSetting
    from coding_framework.cuda.trial.unchecked import Inputs
    from coding_framework.registry.templates import MadeTemplates

OptionalCheck = Literal["other_draws", "hidden_shapes"]
"""What an experiment may switch off. other_draws: all comparisons are on the first draw of a shape
set. hidden_shapes: only the shape set that agents see is judged."""

_BASELINE_SECRET = b"baseline"
_MAX_CONFIGURATIONS = 64
_TUNING_S = 60.0
"""Configurations of a kernel that are tried on a GPU, and the time for those of an answer."""
_ANOTHER_MAY_RUN = frozenset([Status.COMPILE_ERROR, Status.RUNTIME_ERROR])
"""Statuses of a configuration that asks for more than the GPU has: the autotuner skips it."""
_FULL_PAUSES_S = (2.0, 5.0, 10.0, 20.0)
"""Where the GPU is full of other judges' work: how long to wait before the candidate's next try."""


class JudgeConfig(Record):
    """How candidates are judged."""

    backend: BackendChoice = "auto"
    sandbox: str = "auto"
    """Where compilations and host code run: auto, no-docker, bubblewrap, docker or native."""
    seeds: int = Field(default=5, ge=5)
    """Draws for each shape set."""
    host_cpu_s: int = Field(default=10, ge=1)
    """CPU time of a candidate's host process, for one shape set."""
    seed: int | None = Field(default=None, ge=0)
    """First draw, and makes every draw repeatable; None: draws derive from `secret`."""
    secret: SecretBytes | None = None
    """Secret of the run; None: 32 random bytes for each `Judge`."""
    baselines: BaselinesName = "eager"
    """On a GPU: PyTorch's own times beside the candidate's; `torch.compile` takes half a minute for
    a task."""
    rules: RulesName = "ours"
    """Published rules that are followed beside this judge's own, on the shape set that is timed."""
    time_naive: bool = True
    """On a GPU: time a task's naive kernel for its first verdict, which costs as much as a second
    one; False: its time is told where it is known already, or nothing else is timed."""
    naive_writer: NaiveWriter | None = None
    """What writes the naive kernel of a task that gives none; None: such a task has no naive
    time."""
    launch_wall_s: float = Field(default=10.0, gt=0)
    """On a GPU: wall time of one launch; the emulator counts instructions instead."""
    profile: bool = False
    """On a GPU: hardware counters by Nsight Compute, which takes some seconds a candidate."""
    references: Literal["trusted", "sandboxed"] = "trusted"
    """Where tasks' references run: here, or each in a sandbox of its own, for tasks of callers who
    are not trusted; those are judged on the emulator."""
    small_shapes: bool = True
    """On a GPU: False judges the shape set of real size alone, where a task has one, for what the
    emulator found right at small sizes: a GPU's judge asks it again, which took three quarters of
    its time. No such verdict is kept as evidence either."""
    experiment_without: tuple[OptionalCheck, ...] = ()
    """Checks that are off, to see what they hold back; on the emulator alone. Each verdict names
    them in its receipt, and none of them is kept as evidence for a kernel."""

    @property
    def without(self) -> tuple[str, ...]:
        """All that is off."""
        return (*self.experiment_without, *(() if self.small_shapes else ("small_shapes",)))


class Judge:
    """Judges candidates one at a time, in one thread. For many at once: `JudgePool`."""

    def __init__(
        self,
        config: JudgeConfig | None = None,
        *,
        compiler: CUDACompiler | None = None,
        tell: Callable[[str], object] = str,
    ) -> None:
        """tell: hears in a few words which step a verdict is at; by default nobody does."""
        self._tell = tell
        self.config = config or JudgeConfig()
        self.backend = choose_backend(self.config.backend)
        if self.config.experiment_without and self.backend != "emulator":
            raise UsageError("checks can be switched off on the emulator alone: choose it")
        if self.config.references == "sandboxed" and self.backend != "emulator":
            raise UsageError("references run in a sandbox on the emulator alone: choose it")
        self._device_backend: Backend | None = None
        self._warm_up = threading.Thread(target=_quietly, args=(self._prepare,), daemon=True)
        self._warm_up.start()
        self._compiler = compiler or CUDACompiler(
            CompilerConfig(sandbox=self.config.sandbox, for_gpu=self.backend == "cuda")
        )
        self._safety = SafetyWrapper()
        self._seeds = seeds_of(self.config)
        self._without = self.config.without
        self._secret = secret_of(self.config)
        self._references: dict[bytes, ReferenceCache] = {}
        self._compute: Compute | None = None
        built_with = f"{self._compiler.toolkit.fingerprint} sm_{self._compiler.architecture}"
        device = gpus_here() if self.backend == "cuda" else self.backend
        self._naive_kernels = NaiveKernels(self.config.naive_writer)
        salt = f"{judge_digest()} {device} {built_with} {self.config.naive_writer}"
        self._baselines = BaselineTimes(self._measure_naive, salt)

    def judge(self, task: Task, candidate: Candidate) -> Verdict:
        """The verdict on one candidate. Raises UsageError for a task whose reference fails, and
        InfrastructureError for a fault of ours, also a task that nothing could fail; never for
        anything the candidate does."""
        return self._tuned(task, candidate)[0]

    def _tuned(self, task: Task, candidate: Candidate) -> tuple[Verdict, Candidate]:
        """The verdict, and the text that it is on: with the fastest right configurations alone
        where Triton's autotuner would choose. On a GPU only: a modelled time chooses nothing."""
        verdict, kernels = self._judged(task, candidate), self._tuned_kernels(candidate)
        if not kernels or not (verdict.correct or verdict.status in _ANOTHER_MAY_RUN):
            return verdict, candidate
        choice: dict[Tuned, int] = {}
        end = time.monotonic() + _TUNING_S
        for kernel in kernels:
            for place in self._fastest_first(task, candidate, kernel, choice, end):
                if place == 0 and verdict.correct:
                    break
                other = Candidate(code=with_choice(candidate.code, {**choice, kernel: place}))
                again = self._judged(task, other)
                if again.correct:
                    verdict, choice[kernel] = again, place
                    break
        if not verdict.correct:
            return verdict, candidate
        chosen = {kernel.kernel: choice.get(kernel, 0) for kernel in kernels}
        best = Candidate(code=with_choice(candidate.code, choice))
        return _of_configurations(verdict, candidate, chosen), best

    def _fastest_first(
        self, task: Task, candidate: Candidate, kernel: Tuned, choice: dict[Tuned, int], end: float
    ) -> list[int]:
        """The places of a kernel's configurations that are right on the timed shape set, by their
        times there."""
        found: list[tuple[float, int]] = []
        prepared = self._devices().prepared(task)
        for place in range(_MAX_CONFIGURATIONS):
            tried = {**choice, kernel: place} if place else choice  # the first is built already
            code = with_choice(candidate.code, tried)
            try:
                found.append((self._measured(prepared, code) or inf, place))
            except CandidateFault as fault:
                if fault.status is Status.LOAD_ERROR:
                    break  # there are no more
            if time.monotonic() > end:
                break
        return [place for _, place in sorted(found)]

    def _tuned_kernels(self, candidate: Candidate) -> tuple[Tuned, ...]:
        """Those whose configurations this judge tries."""
        if not candidate.is_python or self.backend != "cuda":
            return ()
        return tuned_kernels(candidate.code)

    def _judged(self, task: Task, candidate: Candidate) -> Verdict:
        """As `judge`, of this text; it waits where the GPU is full."""
        for pause_s in _FULL_PAUSES_S:
            try:
                return self._judge(task, candidate)
            except DeviceFullError as e:
                log.warning("device_full", task=task.name, why=str(e), pause_s=pause_s)
                self._make_room()
                time.sleep(pause_s * random.uniform(0.5, 1.5))
        return self._judge(task, candidate)

    def _judge(self, task: Task, candidate: Candidate) -> Verdict:
        try:
            verdict = self._verdict(task, candidate)
        except RuntimeError as e:
            if type(e).__name__ != "OutOfMemoryError":  # torch's
                raise
            raise DeviceFullError(f"the GPU has no memory left for the judge: {e}") from e
        place = self._devices().place
        if place is not None:
            place.tidy()  # what failed held its tensors until now
        return verdict

    def _verdict(self, task: Task, candidate: Candidate) -> Verdict:
        draft = self._draft(task, candidate)
        try:
            draft.safety = self._safety.inspect(candidate.code)
            self._compile_baseline_meanwhile(task)
            self._tell("compiling")
            build = self._compile(candidate, draft)
            self._tell("making inputs and expected outputs")
            draft.task = self._devices().prepared(task)
            note_few_sizes(draft)
            note_modes(draft)
            self._try(build, draft)
            draft.by_rules = self._by_rules(draft)
        except CandidateFault as fault:
            draft.log.output.append(fault.output)
            draft.by_rules = self._by_rules(draft)
            return draft.verdict(fault.status, fault.reason)
        off = "".join(f", without {check}" for check in self._without)
        return draft.verdict(Status.CORRECT, f"all {len(draft.log.tests)} comparisons passed{off}")

    def _try(self, build: Path, draft: VerdictDraft) -> None:
        """Everything that comes after the compilation. Raises CandidateFault."""
        from coding_framework.cuda.expected.model_calls import one_thread

        with one_thread():
            self._reference_cache().require_informative(draft.task, self._seeds)
            self._tell("running and comparing")
            trials = self._trials(build, draft, self._tried_seeds())
            cases, drawn = self._cases(draft.task), self._drawn_case(draft.task)
            self._time(trials.try_all(cases, drawn), draft)

    def _by_rules(self, draft: VerdictDraft) -> RulesCheck | None:
        """What the published rules say, where the configuration names some."""
        rules = RULES[self.config.rules]
        if not rules.scales:
            return None
        built = None if draft.compilation is None else draft.compilation.binary_path
        if built is None:
            return RulesCheck(rules=rules.name, passed=False, reason="it was not built")
        from coding_framework.cuda.expected.model_calls import one_thread

        self._tell(f"following the rules {rules.name}")
        with one_thread():
            trials = self._trials(Path(built), draft, self._seeds)
            return trials.by_rules(rules, self._secret)

    def rest(self) -> None:
        """Give back device memory, since nothing is to be judged for some time: another judge may
        need all of it."""
        place = self._devices().place
        if place is not None:
            self._references.clear()
            place.rest()

    def compile_ahead(self, code: str) -> None:
        """Compile a candidate that will be judged soon, while this judge works on another. Not an
        answer in Python, which would be run for that."""
        if not Candidate.model_construct(code=code).is_python:
            self._compiler.compile_ahead(code)

    def benchmark(self, task: Task, build: Path, kernel_name: str | None = None) -> BenchmarkResult:
        """Time a build on the task's first shape set. Raises CandidateFault where it is wrong."""
        draft = self._draft(self._devices().prepared(task), Candidate(code=""))
        case = self._devices().timed_case(draft.task)
        timed = self._trials(build, draft, self._seeds).try_case(case)
        _require_launched(kernel_name, timed)
        self._time(timed, draft)
        if draft.timing is None:
            raise CandidateFault(Status.UNSUPPORTED, "the device has no time model for this kernel")
        return draft.timing

    def benchmark_unchecked(
        self, build: Path, kernel_name: str | None = None, inputs: Inputs | None = None
    ) -> BenchmarkResult:
        """Time a build that belongs to no task (`CUDABenchmarker.benchmark_kernel`). inputs: None:
        what its `forward` implies. Raises CandidateFault where it fails on the inputs that were
        handed over, UsageError where it runs on none that are implied."""
        from coding_framework.cuda.trial.unchecked import hand_over, tasks_of, time_unchecked

        faults = []
        for implied in tasks_of(build, inputs):
            task = self._devices().prepared(implied)
            case = self._devices().timed_case(task)
            references = self._reference_cache()
            try:
                timed = time_unchecked(self._setting(build), task, case, references)
            except CandidateFault as fault:
                if inputs is not None:
                    raise
                faults.append(fault)
                continue
            _require_launched(kernel_name, timed)
            found = self._devices().result(task, timed, None, references, 0)
            if found is None:
                raise CandidateFault(Status.UNSUPPORTED, "the device has no time for this kernel")
            of_no_task = dict.fromkeys(
                (*(f"{name}_ms" for name in TIMED["all"]), "speedup", "speedup_vs_compiled")
            )
            return found.model_copy(update={**of_no_task, "checked": False})
        raise hand_over(faults[0]) from faults[0]

    def probe(
        self, task: Task, candidate: Candidate, probes: Sequence[Probe]
    ) -> tuple[ProbeResult, ...]:
        """What comes of a tester's probes; none where the candidate does not compile. Raises as
        `judge` does."""
        try:
            build = self._compile(candidate, self._draft(task, candidate))
        except CandidateFault:
            return ()
        setting = self._setting(build)
        from coding_framework.cuda.trial.probe import run_probes

        return run_probes(setting, task, probes, self._secret)

    def templates(self, task: Task, candidate: Candidate) -> MadeTemplates:
        """The launch templates of a kernel, each judged as a template, and why a shape set has
        none. Only those of a kernel whose verdict is `correct` may be kept. Raises as `judge` does,
        and UsageError where it does not compile."""
        from coding_framework.cuda.templating.make import Subject, make_templates
        from coding_framework.registry.digests import task_id

        code, draft = candidate.code, self._draft(task, candidate)
        prepared, sm = self._devices().prepared(task), self._compiler.architecture
        cases, references = self._cases(prepared), self._reference_cache()
        if self._tuned_kernels(candidate):
            _, candidate = self._tuned(task, candidate)
        try:
            build = self._compile(candidate, draft)
            while True:
                setting = self._setting(build)
                subject = Subject(prepared, task_id(task), code, setting, sm)
                try:
                    return make_templates(subject, cases, references)
                except ExtensionWanted as wanted:
                    build = self._compile_also(build, [wanted.request], draft)
        except CandidateFault as fault:
            raise UsageError(f"the kernel does not compile: {fault.reason}") from fault

    # --- the steps --------------------------------------------------------------------------------

    def _compile(self, candidate: Candidate, draft: VerdictDraft) -> Path:
        return _built(self._compiler.compile_source(candidate.code), draft)

    def _compile_also(self, build: Path, requests: Sequence[Request], draft: VerdictDraft) -> Path:
        """An answer's build with extensions or kernels more, for which it asked while it ran."""
        draft.late_requests.update({request.digest: request for request in requests})
        late = list(draft.late_requests.values())
        if sum(isinstance(r, ExtensionRequest) for r in late) > MAX_LATE_REQUESTS:
            raise CandidateFault(
                Status.REJECTED,
                f"forward asks load_inline for more than {MAX_LATE_REQUESTS} extensions: make them "
                "when the file is imported",
            )
        if len(late) > MAX_LATE_KERNELS:
            raise CandidateFault(
                Status.REJECTED,
                f"its Triton kernels are called in more than {MAX_LATE_KERNELS} ways, each of "
                "which is compiled",
            )
        larger = _built(self._compiler.compile_source(answer_of(build), late), draft)
        if larger == build:
            raise CandidateFault(Status.REJECTED, "it asks again for what its build already has")
        return larger

    def _compile_baseline_meanwhile(self, task: Task) -> None:
        """For the first candidate of a task, its naive kernel is written and nvcc works on it at
        the same time."""
        if self._times_naive and not self._baselines.known(task):
            self._naive_kernels.begin(task, self._compiler.compile_ahead)

    @property
    def _times_naive(self) -> bool:
        """Whether a naive kernel that has no time yet is timed."""
        config = self.config
        return self.backend != "cuda" or config.time_naive or config.baselines == "none"

    def _tried_seeds(self) -> tuple[int, ...]:
        """Draws of each shape set; the first one alone, as often, where an experiment says so."""
        if "other_draws" in self._without:
            return self._seeds[:1] * len(self._seeds)
        return self._seeds

    def _cases(self, task: Task) -> tuple[TestCase, ...]:
        """Shape sets to judge on; the one of real size or those that agents see alone, where the
        configuration says so."""
        cases = self._devices().cases(task)
        if "small_shapes" in self._without:
            return tuple(case for case in cases if case in task.gpu_cases) or cases
        if "hidden_shapes" in self._without:
            return tuple(case for case in cases if case.shown) or cases[:1]
        return cases

    def _drawn_case(self, task: Task) -> TestCase | None:
        """The shape set of sizes that nobody knows before, where the task has other sizes."""
        if {"hidden_shapes", "small_shapes"} & {*self._without}:
            return None
        return self._reference_cache().drawn_case(task)

    def _trials(
        self,
        build: Path,
        draft: VerdictDraft,
        seeds: tuple[int, ...],
        secret: bytes | None = None,
    ) -> CandidateTrials:
        """The trials of a build. secret: to draw with; None: the run's own."""
        setting, references = self._setting(build), self._reference_cache(secret)
        from coding_framework.cuda.trial.candidate import CandidateTrials

        also, profile = self._compile_also, self.config.profile
        return CandidateTrials(setting, draft, references, seeds, also, profile=profile)

    def _setting(self, build: Path) -> TrialSetting:
        backend = self._devices()
        from coding_framework.cuda.trial.setup import TrialSetting

        return TrialSetting(build, self._compiler.sandbox, self.config.host_cpu_s, backend)

    def _time(self, timed: TimedCase, draft: VerdictDraft) -> None:
        draft.counters = draft.counters or summed_counters(timed.replays[-1])
        task, references = draft.task, self._reference_cache()
        self._tell("timing, and the naive kernel beside it")
        naive_ms = self._naive_ms(timed, draft)
        try:
            draft.timing = self._devices().result(task, timed, naive_ms, references, self._seeds[0])
        except CandidateFault as fault:
            draft.log.cheat("impossible_time", fault.reason)
            raise
        self._note_memory(timed.plan.workspace_bytes, draft)

    def _note_memory(self, own: int, draft: VerdictDraft) -> None:
        """own: bytes that a call allocates beyond its inputs and outputs."""
        task = draft.task
        if draft.timing is not None:
            timed = self._devices().timed_case(task)
            eager = self._reference_cache().workspace_bytes(task, timed, self._seeds[0])
            found = {"workspace_bytes": own, "eager_workspace_bytes": eager}
            draft.timing = draft.timing.model_copy(update=found)
        if task.workspace_limit is not None and own > task.workspace_limit:
            told = f"a call allocates {own} bytes beyond its inputs and outputs"
            draft.log.note("workspace", "medium", f"{told}; the task allows {task.workspace_limit}")

    def _naive_ms(self, timed: TimedCase, draft: VerdictDraft) -> float | None:
        """Time of the task's naive kernel. If the candidate is that kernel, its own measurement
        serves, for later candidates too."""
        known = self._baselines.known(draft.task)
        if draft.task.naive_kernel is None and not known and not self._times_naive:
            return None
        if self.backend == "cuda" and draft.candidate.code == self._naive_kernels.of(draft.task):
            measured_ms = self._devices().time_ms(timed)
            if measured_ms is not None:
                self._baselines.keep(draft.task, measured_ms)
            return measured_ms
        return self._baselines.time_ms(draft.task) if known or self._times_naive else None

    def _measure_naive(self, task: Task) -> float | None:
        """Time of the task's naive kernel on the timed shape set: the same path, public draws."""
        kernel = self._naive_kernels.of(task)
        if kernel is None:
            return None
        try:
            return self._measured(task, kernel)
        except CandidateFault as fault:
            log.error("naive_kernel_wrong", task=task.name, status=fault.status, why=fault.reason)
            return None

    def _measured(self, task: Task, code: str) -> float | None:
        """Time in ms of a kernel on the timed shape set. Raises CandidateFault where it is wrong
        there."""
        draft = self._draft(task, Candidate(code=code))
        case = self._devices().timed_case(task)
        build = self._compile(draft.candidate, draft)
        trials = self._trials(build, draft, tuple(range(5)), _BASELINE_SECRET)
        return self._devices().time_ms(trials.try_case(case))

    def _make_room(self) -> None:
        """Give back the device memory that this judge could do without."""
        self._references.clear()
        place = self._devices().place
        if place is not None:
            place.empty()

    # --- what they need ---------------------------------------------------------------------------

    def _reference_cache(self, secret: bytes | None = None) -> ReferenceCache:
        """One cache a secret: the run's own, and the public one of the baselines."""
        self._warm_up.join()
        from coding_framework.cuda.expected.reference import ReferenceCache

        secret = self._secret if secret is None else secret
        if secret not in self._references:
            once = secret == _BASELINE_SECRET  # each of its draws is used once
            place, room = self._devices().place, 16 << 20 if once else None
            compute = self._reference_sandbox()
            self._references[secret] = ReferenceCache(secret, room, place, compute)
        return self._references[secret]

    def _reference_sandbox(self) -> Compute | None:
        """Where references of callers run; None: they are trusted."""
        if self.config.references == "sandboxed" and self._compute is None:
            from coding_framework.cuda.expected.reference_sandbox import ReferenceSandbox

            self._compute = ReferenceSandbox(self._compiler.sandbox)
        return self._compute

    def _devices(self) -> Backend:
        """What this judge judges on. Raises DeviceError where a GPU cannot be used."""
        self._warm_up.join()
        if self._device_backend is None:
            self._device_backend = self._new_backend()
        return self._device_backend

    def _new_backend(self) -> Backend:
        config = self.config
        return make_backend(self.backend, config.baselines, config.launch_wall_s)

    def _prepare(self) -> None:
        """Import torch and make the backend while nvcc works: both take a second. On a new machine
        gcc makes our native parts meanwhile, for some seconds."""
        for part in (current_fork_server, build_runner):
            threading.Thread(target=_quietly, args=(part,), daemon=True).start()
        _import_torch()
        self._device_backend = self._new_backend()
        self._device_backend.warm_up()

    def _draft(self, task: Task, candidate: Candidate) -> VerdictDraft:
        return new_draft(task, candidate, self.backend, self._compiler, self.config)


def _of_configurations(verdict: Verdict, candidate: Candidate, chosen: dict[str, int]) -> Verdict:
    """A verdict on one text of an answer as the answer's own, with the configurations it takes."""
    told = ", ".join(f"{kernel} takes number {place + 1}" for kernel, place in chosen.items())
    return verdict.model_copy(
        update={
            "candidate_sha256": candidate.sha256,
            "reason": f"{verdict.reason}; of triton.autotune's configurations {told}",
            "receipt": verdict.receipt.model_copy(update={"configurations": chosen}),
        }
    )


def _require_launched(kernel_name: str | None, timed: TimedCase) -> None:
    launched = sorted({launch.kernel for launch in timed.plan.launches})
    if kernel_name is not None and kernel_name not in launched:
        raise CandidateFault(
            Status.REJECTED,
            f"the kernel {kernel_name} is never launched; these are: {', '.join(launched)}",
        )


def new_draft(
    task: Task,
    candidate: Candidate,
    backend: BackendName,
    compiler: CUDACompiler,
    config: JudgeConfig,
) -> VerdictDraft:
    """A draft whose receipt says what judged."""
    receipt = Receipt(
        toolkit=compiler.toolkit.version,
        versions={
            "coding_framework": _version("coding-framework"),
            "torch": _version("torch"),
            "python": platform.python_version(),
            "architecture": f"sm_{compiler.architecture}",
        },
        seeds=seeds_of(config),
        sandbox=compiler.sandbox.name,
        protocol=" without ".join((PROTOCOL, *config.without)),
        experiment_without=config.without,
        tolerance_formula=TOLERANCE_FORMULA,
    )
    return VerdictDraft(task, candidate, backend, receipt)


@cache
def _version(package: str) -> str:
    """Kept: it reads and parses a file."""
    return version(package)


def note_modes(draft: VerdictDraft) -> None:
    """Say in the verdict where the module is not judged as it trains, or not in full float32."""
    from coding_framework.reference_model import is_in_evaluation_mode, is_in_tf32

    if is_in_evaluation_mode(draft.task.reference):
        told = "the module is judged in evaluation mode: without its dropout"
        draft.log.note("evaluation_mode", "info", told)
    if is_in_tf32(draft.task.reference):
        told = "the module asks PyTorch for TF32: the factors of products may be rounded to it"
        draft.log.note("tf32", "info", told)


def note_few_sizes(draft: VerdictDraft) -> None:
    """Say in the verdict where the function has too few sizes to hide any from agents."""
    sets, unseen = count_shape_sets(draft.task)
    if sets < SHAPE_SETS or unseen < UNSEEN_SHAPE_SETS:
        draft.log.note(
            "few_sizes",
            "info",
            f"the task has {sets} different shape {'set' if sets == 1 else 'sets'}, {unseen} of "
            "them unseen by agents: a kernel that is right for its sizes alone passes",
        )


def seeds_of(config: JudgeConfig) -> tuple[int, ...]:
    """The draws of a judge of this configuration."""
    return tuple((config.seed or 0) + i for i in range(config.seeds))


def _built(result: CompilationResult, draft: VerdictDraft) -> Path:
    """Where the build lies. Raises CandidateFault where the compilation failed."""
    draft.compilation = result
    if not result.success or result.binary_path is None:
        raise CandidateFault(result.status or Status.COMPILE_ERROR, result.reason)
    return Path(result.binary_path)


def _import_torch() -> None:
    """Without collections of garbage: what is imported stays, and they take a tenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        import_module("torch")
    finally:
        if not gc.get_freeze_count():  # then all of it is old, and is not looked at soon
            gc.freeze()
            gc.unfreeze()
        if collecting:
            gc.enable()


def _quietly(work: Callable[..., object], *arguments: object) -> None:
    """Do work ahead of time. A failure is ignored here: it shows again where the work is needed."""
    with suppress(Exception):
        work(*arguments)


def secret_of(config: JudgeConfig) -> bytes:
    """The secret that a judge of this configuration draws with."""
    if config.secret is not None:
        return config.secret.get_secret_value()
    return os.urandom(32) if config.seed is None else b"repeatable"


def with_secret(config: JudgeConfig) -> JudgeConfig:
    """The configuration with its secret drawn, so that all judges made from it draw alike."""
    return config.model_copy(update={"secret": SecretBytes(secret_of(config))})

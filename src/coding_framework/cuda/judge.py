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

import os
import platform
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import structlog
from pydantic import Field, SecretBytes

from coding_framework.cuda.benchmarker import (
    BaselineTimes,
    modelled_result,
    modelled_time_ms,
    summed_counters,
)
from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler
from coding_framework.cuda.draft import VerdictDraft
from coding_framework.cuda.model_new.build import ExtensionWanted, answer_of, compile_answer
from coding_framework.cuda.model_new.extensions import MAX_LATE_REQUESTS, ExtensionRequest
from coding_framework.cuda.plan import CandidateFault
from coding_framework.cuda.protocol import PROTOCOL, TOLERANCE_FORMULA, judge_digest
from coding_framework.cuda.safety_wrapper import SafetyWrapper
from coding_framework.errors import UsageError
from coding_framework.types import (
    BenchmarkResult,
    Candidate,
    CompilationResult,
    Probe,
    ProbeResult,
    Receipt,
    Record,
    Status,
    Task,
    TestCase,
    Verdict,
)

if TYPE_CHECKING:  # torch takes a second to import; the compiler works meanwhile
    from coding_framework.cuda.reference import ReferenceCache
    from coding_framework.cuda.trial import TimedCase

_BASELINE_SECRET = b"baseline"

log = structlog.get_logger(__name__)


class JudgeConfig(Record):
    """How candidates are judged."""

    backend: Literal["auto", "cuda", "emulator"] = "auto"
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


class Judge:
    """Judges candidates one at a time, in one thread. For many at once: `JudgePool`."""

    def __init__(
        self, config: JudgeConfig | None = None, *, compiler: CUDACompiler | None = None
    ) -> None:
        self.config = config or JudgeConfig()
        self.backend = choose_backend(self.config.backend)
        self._warm_up = threading.Thread(target=_quietly, args=(_warm_up,), daemon=True)
        self._warm_up.start()
        self._compiler = compiler or CUDACompiler(CompilerConfig(sandbox=self.config.sandbox))
        self._safety = SafetyWrapper()
        self._seeds = tuple((self.config.seed or 0) + i for i in range(self.config.seeds))
        self._secret = secret_of(self.config)
        self._references: dict[bytes, ReferenceCache] = {}
        built_with = f"{self._compiler.toolkit.fingerprint} sm_{self._compiler.architecture}"
        salt = f"{judge_digest()} {self.backend} {built_with}"
        self._baselines = BaselineTimes(self._measure_naive, salt)

    def judge(self, task: Task, candidate: Candidate) -> Verdict:
        """The verdict on one candidate. Raises UsageError for a task whose reference fails, and
        InfrastructureError for a fault of ours, also a task that nothing could fail; never for
        anything the candidate does."""
        draft = self._draft(task, candidate)
        try:
            draft.safety = self._safety.inspect(candidate.code)
            self._compile_baseline_meanwhile(task)
            build = self._compile(candidate, draft)
            self._reference_cache().require_informative(task, self._seeds)
            timed = [self._try_case(case, build, draft, self._seeds) for case in task.cases]
            self._time(timed[0], draft)
        except CandidateFault as fault:
            draft.log.output.append(fault.output)
            return draft.verdict(fault.status, fault.reason)
        return draft.verdict(Status.CORRECT, f"all {len(draft.log.tests)} comparisons passed")

    def benchmark(self, task: Task, build: Path, kernel_name: str | None = None) -> BenchmarkResult:
        """Time a build on the task's first shape set. Raises CandidateFault where it is wrong."""
        draft = self._draft(task, Candidate(code=""))
        timed = self._try_case(task.cases[0], build, draft, self._seeds)
        launched = sorted({launch.kernel for launch in timed.plan.launches})
        if kernel_name is not None and kernel_name not in launched:
            raise CandidateFault(
                Status.REJECTED,
                f"the kernel {kernel_name} is never launched; these are: {', '.join(launched)}",
            )
        self._time(timed, draft)
        if draft.timing is None:
            raise CandidateFault(Status.UNSUPPORTED, "the device has no time model for this kernel")
        return draft.timing

    def probe(
        self, task: Task, candidate: Candidate, probes: Sequence[Probe]
    ) -> tuple[ProbeResult, ...]:
        """What comes of a tester's probes; none where the candidate does not compile. Raises as
        `judge` does."""
        from coding_framework.cuda.probe import run_probes

        try:
            build = self._compile(candidate, self._draft(task, candidate))
        except CandidateFault:
            return ()
        self._warm_up.join()
        sandbox, host_cpu_s = self._compiler.sandbox, self.config.host_cpu_s
        return run_probes(task, build, probes, sandbox, host_cpu_s, self._secret)

    # --- the steps --------------------------------------------------------------------------------

    def _compile(self, candidate: Candidate, draft: VerdictDraft) -> Path:
        return _built(self._compiler.compile_source(candidate.code), draft)

    def _compile_also(self, build: Path, request: ExtensionRequest, draft: VerdictDraft) -> Path:
        """An answer's build with one extension more, for which it asked while it ran."""
        draft.late_requests.append(request)
        if len(draft.late_requests) > MAX_LATE_REQUESTS:
            raise CandidateFault(
                Status.REJECTED,
                f"forward asks load_inline for more than {MAX_LATE_REQUESTS} extensions: make them "
                "when the file is imported",
            )
        return _built(compile_answer(self._compiler, answer_of(build), draft.late_requests), draft)

    def _compile_baseline_meanwhile(self, task: Task) -> None:
        """For the first candidate of a task, nvcc works on its naive kernel at the same time."""
        if task.naive_kernel is None or self._baselines.known(task):
            return
        compile_ = self._compiler.compile_source
        threading.Thread(target=_quietly, args=(compile_, task.naive_kernel), daemon=True).start()

    def _try_case(
        self,
        case: TestCase,
        build: Path,
        draft: VerdictDraft,
        seeds: tuple[int, ...],
        secret: bytes | None = None,
    ) -> TimedCase:
        """The correctness protocol on one shape set: a fresh device and a fresh host process."""
        references = self._reference_cache(secret)
        from coding_framework.cuda.bench import open_bench
        from coding_framework.cuda.trial import CaseTrial

        expectation = references.get(draft.task, case, seeds[0])
        sandbox, host_cpu_s = self._compiler.sandbox, self.config.host_cpu_s
        tested = len(draft.log.tests)
        try:
            with open_bench(build, expectation, sandbox, host_cpu_s) as bench:
                draft.device = bench.device_name
                return CaseTrial(draft.task, case, bench, references, seeds, draft.log).judge()
        except ExtensionWanted as wanted:
            del draft.log.tests[tested:]
            larger = self._compile_also(build, wanted.request, draft)
        return self._try_case(case, larger, draft, seeds, secret)

    def _time(self, timed: TimedCase, draft: VerdictDraft) -> None:
        draft.counters = summed_counters(timed.replays[-1])
        naive_ms = self._baselines.naive_ms(draft.task)
        draft.timing = modelled_result(timed, draft.device, naive_ms)

    def _measure_naive(self, task: Task) -> float | None:
        """Time of the task's naive kernel on the first shape set: the same path, public draws."""
        draft = self._draft(task, Candidate(code=task.naive_kernel or ""))
        try:
            build = self._compile(draft.candidate, draft)
            timed = self._try_case(task.cases[0], build, draft, tuple(range(5)), _BASELINE_SECRET)
        except CandidateFault as fault:
            log.error("naive_kernel_wrong", task=task.name, status=fault.status, why=fault.reason)
            return None
        return modelled_time_ms(timed.plan, timed.replays[-1], draft.device)

    # --- what they need ---------------------------------------------------------------------------

    def _reference_cache(self, secret: bytes | None = None) -> ReferenceCache:
        """One cache a secret: the run's own, and the public one of the baselines."""
        self._warm_up.join()
        from coding_framework.cuda.reference import ReferenceCache

        secret = self._secret if secret is None else secret
        if secret not in self._references:
            once = secret == _BASELINE_SECRET  # each of its draws is used once
            self._references[secret] = (
                ReferenceCache(secret, 16 << 20) if once else ReferenceCache(secret)
            )
        return self._references[secret]

    def _draft(self, task: Task, candidate: Candidate) -> VerdictDraft:
        receipt = Receipt(
            toolkit=self._compiler.toolkit.version,
            versions={
                "coding_framework": version("coding-framework"),
                "torch": version("torch"),
                "python": platform.python_version(),
                "architecture": f"sm_{self._compiler.architecture}",
            },
            seeds=self._seeds,
            sandbox=self._compiler.sandbox.name,
            protocol=PROTOCOL,
            tolerance_formula=TOLERANCE_FORMULA,
        )
        return VerdictDraft(task, candidate, self.backend, receipt)


def _built(result: CompilationResult, draft: VerdictDraft) -> Path:
    """Where the build lies. Raises CandidateFault where the compilation failed."""
    draft.compilation = result
    if not result.success or result.binary_path is None:
        raise CandidateFault(result.status or Status.COMPILE_ERROR, result.reason)
    return Path(result.binary_path)


def _warm_up() -> None:
    """What takes a second and needs no candidate: done while nvcc works."""
    import_module("torch")
    import_module("coding_framework.cuda.emulator.device").EmulatorDevice().close()


def _quietly(work: Callable[..., object], *arguments: object) -> None:
    """Work done ahead of time: a failure shows again, in the right place, when it is needed."""
    with suppress(Exception):
        work(*arguments)


def choose_backend(name: str) -> Literal["cuda", "emulator"]:
    """The device that `name` stands for. Raises UsageError where this build cannot use it."""
    if name == "cuda":
        raise UsageError(
            "this build judges on the emulator, which needs no GPU: use --backend emulator or auto"
        )
    return "emulator"


def secret_of(config: JudgeConfig) -> bytes:
    """The secret that a judge of this configuration draws with."""
    if config.secret is not None:
        return config.secret.get_secret_value()
    return os.urandom(32) if config.seed is None else b"repeatable"


def with_secret(config: JudgeConfig) -> JudgeConfig:
    """The configuration with its secret drawn, so that all judges made from it draw alike."""
    return config.model_copy(update={"secret": SecretBytes(secret_of(config))})

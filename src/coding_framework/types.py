"""START HERE: the records of the whole flow.

    task -> prompt -> agent -> candidate -> safety -> compile -> run -> verdict -> reward -> update

Each docstring names the record's maker and its consumer. Records are frozen: a later stage makes a
new record and never edits an earlier one. Arrays never travel in records, except token ids.
Guaranteed here: a result that cannot be (a timed wrong kernel, a compile error without a failed
compilation, a turn that is both judged and masked) cannot be built.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

DType = Literal[
    "float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"
]
_Plain = int | float | str
InitArg = bool | _Plain | None | tuple[_Plain | tuple[_Plain, ...], ...]
"""What a module's constructor takes."""

# Vocabularies: the words that flags, recipe files and records share stand here, once.
BackendName = Literal["cuda", "emulator"]
"""What runs a kernel: a GPU, or the PTX emulator on the CPU."""
BackendChoice = Literal["auto", "cuda", "emulator"]
"""auto: a GPU where there is one."""
SandboxName = Literal["auto", "no-docker", "bubblewrap", "docker", "native"]
"""auto: the first that works here; no-docker: the first that works and is not Docker."""
BaselinesName = Literal["none", "eager", "tf32", "compiled", "all", "max-autotune"]
"""Which times of PyTorch a verdict from a GPU holds (`TIMED`). max-autotune: all, where
torch.compile tries every kernel that it has."""
BaselineName = Literal["eager", "eager_tf32", "compiled", "compiled_tf32", "naive"]
"""What a speedup is over: PyTorch eager, torch.compile (each as the task asks, or with products in
TF32), or the task's naive kernel."""
TIMED: Mapping[BaselinesName, tuple[BaselineName, ...]] = {
    "none": (),
    "eager": ("eager",),
    "tf32": ("eager", "eager_tf32"),
    "compiled": ("eager", "compiled"),
    "all": ("eager", "eager_tf32", "compiled", "compiled_tf32"),
    "max-autotune": ("eager", "eager_tf32", "compiled", "compiled_tf32"),
}
RulesName = Literal["ours", "kernelbench", "kernelbench-verified"]
"""Whose rules an evaluation follows (`cuda.expected.rules.RULES`)."""
HeadersName = Literal["small", "torch"]
"""The torch headers of a compilation: our small ones, or the real ones."""
TaskScope = Literal["starter", "all"]
TaskPool = Literal["functions", "modules"]
"""Which tasks are drawn from. starter: compositions whose receipts ship with the package, which are
the same set however the catalogue grows; all: every family, with what this machine has judged."""
DataSource = Literal["synthetic", "archive", "mixed"]
"""Where SFT's examples come from."""
GeneratorTarget = Literal["naive", "best"]
"""Which kernel the generator learns. best: the fastest at real sizes; the naive one where none is
faster."""
PromptVersion = Literal["v1", "v2", "v3", "v4", "triton"]
"""v1: short, for models that are trained here; v2: explains the form of an answer, for others; v3:
short, with the contract made from the reference. v4, of models of before, asks as v3. All of these
ask for CUDA; triton asks for a KernelBench answer whose kernels are in Triton."""
DeviceChoice = Literal["auto", "cpu", "cuda"]
"""Where a model runs. auto: on a GPU where there is one."""
DTypeName = Literal["auto", "bfloat16", "float32"]
"""Of matrix products. auto: bfloat16 where the hardware computes in it, else float32."""
TokenScope = Literal["complete", "verify", "tasks:trusted", "experiments:read"]
"""What a token of our servers allows. tasks:trusted: to bring tasks to the judge server, which runs
their references; experiments:read: to be told which version answered."""
CurriculumName = Literal["three_tier", "four_tier", "informative"]
FindingSeverity = Literal["info", "low", "medium", "high"]
ExampleKind = Literal["generate", "optimize", "repair"]


class Record(BaseModel):
    """Base of all records: frozen, unknown keys forbidden, JSON in and out."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Config(Record):
    """Base of what a person sets. The first paragraph of a field's docstring is the help text of
    its flag (`commands.flags`)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    also_called: ClassVar[Mapping[str, str]] = {}
    """Other names of fields, which are taken as well."""

    @classmethod
    def by_our_names(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Settings under the names of the fields. Raises ValueError where one has two names."""
        renamed = {name: value for name, value in given.items() if name not in cls.also_called}
        for other, name in cls.also_called.items():
            if other in given and name in renamed:
                raise ValueError(f"{other} and {name} are two names of one setting: give one")
            if other in given:
                renamed[name] = given[other]
        return renamed

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: Any) -> Any:
        return cls.by_our_names(given) if isinstance(given, Mapping) else given


class Role(StrEnum):
    """Who speaks in a turn. What the compiler writes is no model's; the tester uses no turn and is
    frozen in training."""

    COMPILER = "compiler"
    GENERATOR = "generator"
    OPTIMIZER = "optimizer"
    TESTER = "tester"


class Split(StrEnum):
    """Where a task may be used. Splits are by function, never by row."""

    TRAIN = "train"
    HELD_OUT = "held_out"
    OUTSIDE = "outside"


class Status(StrEnum):
    """The one verdict enum. Our own faults are exceptions (`errors.py`), never a status."""

    CORRECT = "correct"
    WRONG_OUTPUT = "wrong_output"
    NONDETERMINISTIC = "nondeterministic"
    REJECTED = "rejected"
    CHEATING = "cheating"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    LOAD_ERROR = "load_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    UNSUPPORTED = "unsupported"


# --- tasks (made by data/, used by everything) --------------------------------------------------


Structure = Literal[
    "sorted", "offsets", "permutation", "upper", "lower", "diagonal", "symmetric",
    "positive_definite", "causal", "future", "causal_bias",
]  # fmt: skip
"""What holds of an input in every draw (`reference_model/structures.py`)."""


ALIGNED_ELEMENTS = 64
"""From one place to the next where a tensor may start that counts as aligned."""


class TensorSpec(Record):
    """One input tensor of a task. Values lie in [low, high] where given."""

    name: str
    shape: tuple[int, ...]
    """Extents in elements; () is a scalar tensor."""
    dtype: DType = "float32"
    low: float | None = None
    """Smallest value of the declared domain (inclusive); None: no bound of its own."""
    high: float | None = None
    """Largest value of the declared domain (inclusive); for integer dtypes too."""
    apart: tuple[int, ...] = Field(default=(), exclude_if=lambda values: not values)
    """Whole numbers outside [low, high] that it may have too: a label that a loss ignores. Where
    there is none the record's JSON does not name it, so that digests stay what they were."""
    keeps: Structure | None = Field(default=None, exclude_if=lambda kept: kept is None)
    """The structure that a kernel may rely on; None: none. JSON names it where there is one."""
    strides: tuple[int, ...] = Field(default=(), exclude_if=lambda given: not given)
    """Elements from one index to the next, by axis, where it is not contiguous: 0 where it is
    expanded. (): row-major. No two indices share memory otherwise."""
    start: int = Field(default=0, ge=0, exclude_if=lambda given: not given)
    """Elements from an aligned address to the first one: a slice may begin anywhere."""

    @model_validator(mode="after")
    def _strides_fit(self) -> Self:
        if self.strides and len(self.strides) != len(self.shape):
            raise ValueError(
                f"{self.name!r} has {len(self.shape)} axes, {len(self.strides)} strides"
            )
        return self

    def with_shape(self, shape: Sequence[int]) -> Self:
        """The same tensor in another size; what lies between its parts grows with them."""
        strides = [0] * len(self.strides)
        before, now = 1, 1
        for stride, extent, axis in sorted(
            (stride, self.shape[axis], axis) for axis, stride in enumerate(self.strides) if stride
        ):
            strides[axis] = -(-stride * now // before)
            before, now = max(1, stride * extent), max(1, strides[axis] * shape[axis])
        return self.model_copy(update={"shape": tuple(shape), "strides": tuple(strides)})


class TestCase(Record):
    """One shape set of a task. Maker: data/. Consumer: the judge, and the prompt when `shown`."""

    __test__ = False  # keeps pytest from collecting the record

    name: str
    """"main", "odd" or "tiny", or what the task's maker calls it."""
    inputs: tuple[TensorSpec, ...]
    """In the order of the reference's `forward`."""
    init_args: tuple[InitArg, ...] = ()
    """Arguments of `Model(*init_args)` where they depend on the shapes; else the task's."""
    reduction_length: int = Field(default=1, ge=1)
    """K of the tolerance formula: the number of terms in the longest reduction of the function."""
    shown: bool = False
    """Whether agents see it; at least two shape sets stay unseen."""


CALLERS = "caller"
"""`Task.source` of a task whose reference came from the network: no process of ours runs it outside
its sandbox."""

PART = "part"
"""`Task.family` of a part of a module: the module says its sizes, and is judged as a whole."""


class Task(Record):
    """A function to write a kernel for. Maker: data/ (synthesis, KernelBench, archive, a file).

    The candidate's `forward` takes the inputs in order, then the model's parameters and buffers in
    the order in which `__init__` makes them, then the scalars among `init_args` (bool, int, float),
    as in the archive. A `forward` that takes only the tensors is called without the scalars; one
    that takes a list for each kind of parameter (weights, biases) gets them as lists.
    """

    name: str
    tier: int = Field(ge=0, le=3)
    family: str
    ops: tuple[str, ...]
    """The composition, e.g. ("relu", "mul_scalar"): the key of the split."""
    description: str
    """One line for people and for the prompt."""
    reference: str
    """Python source with `class Model(nn.Module)`: the PyTorch function."""
    init_args: tuple[InitArg, ...] = ()
    cases: tuple[TestCase, ...]
    """Shape sets of emulator size; the first is the one agents see."""
    gpu_cases: tuple[TestCase, ...] = ()
    """Shape sets of real size, for a GPU."""
    naive_kernel: str | None = None
    """A correct simple kernel: the baseline of `speedup_vs_naive`."""
    scalar_positions: tuple[int, ...] = ()
    """Where the problem's own `forward` takes numbers, whose values end `init_args`: a KernelBench
    answer may take them there."""
    atomic_order: bool = False
    """True where a correct kernel may add in an order that varies (rerun compared in tolerance)."""
    workspace_limit: int | None = Field(default=None, ge=0, exclude_if=lambda limit: limit is None)
    """Bytes that a call may allocate beyond its inputs and outputs: more is a pitfall, and no fault
    of the kernel's. None: no bound."""
    split: Split = Split.TRAIN
    source: str = "synthesis"
    licence: str = "Apache-2.0"

    @model_validator(mode="after")
    def _has_cases(self) -> Self:
        if not self.cases:
            raise ValueError(f"task {self.name!r} has no shape set: give at least one test case")
        return self


class KernelExample(Record):
    """A kernel of known level for a task. Maker: data/synthesis. Consumer: SFT and the tests."""

    task: str
    level: str
    """"naive", "coalesced", "vectorized", "shared", "shuffle", "fused", ..."""
    code: str
    why_faster: str = ""
    """One line: why it beats the level below; empty for naive."""


class TrainingExample(Record):
    """One supervised example. Maker: data/examples. Consumer: training/sft.

    Prompt and answer are rendered from it by agents/prompts, so that SFT sees what RL sees.
    """

    id: str
    task: Task
    role: Role
    kind: ExampleKind
    code: str
    """The kernel to answer with."""
    why: str = ""
    """The reason given with the answer; one line."""
    previous_code: str | None = None
    """The kernel to improve or to repair."""
    previous_verdict: Verdict | None = None
    """The verdict shown as feedback on `previous_code`."""
    receipt: str = ""
    """Digest that ties `code` to the verdict that found it correct; "" where not yet judged."""


# --- agents ------------------------------------------------------------------------------------


class Message(Record):
    """One chat message. Maker: agents/prompts. Consumer: a policy's chat template."""

    role: Literal["system", "user", "assistant"]
    content: str


class SamplingParams(Record):
    """How a policy samples. temperature 0 is greedy."""

    max_new_tokens: int = Field(default=512, ge=1)
    temperature: float = Field(default=1.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0)
    """0: no limit."""
    seed: int | None = None


class Generation(Record):
    """What a policy answered, in tokens. Maker: a policy. Consumer: the turn, and the update."""

    text: str
    prompt_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Log-probability of each response token under the sampling policy; () where not kept."""
    finish_reason: Literal["stop", "length"] = "stop"
    counted: int | None = None
    """Tokens of the answer as a server told them: it gives no ids."""

    @property
    def tokens(self) -> int:
        """Of the answer; 0 where nobody counted them."""
        return len(self.response_ids) or self.counted or 0

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if self.logprobs and len(self.logprobs) != len(self.response_ids):
            raise ValueError(
                f"{len(self.logprobs)} log-probs for {len(self.response_ids)} response tokens"
            )
        return self


class Extraction(Record):
    """The kernel found in an answer, and how. Maker: agents/extraction. Consumer: the turn."""

    code: str | None
    note: str
    """What was done, in a sentence: "one block", "2 blocks: took the last with a forward", ..."""


class AgentAnswer(Record):
    """An agent's part of a turn. Maker: an agent. Consumer: orchestration/turn."""

    messages: tuple[Message, ...]
    generation: Generation
    extraction: Extraction
    redrawn_tokens: int = 0
    """Of answers that repeated earlier code, in whose place this one was drawn."""

    @classmethod
    def of(cls, answer: Any) -> Self:
        """The record of what any agent gave."""
        redrawn = getattr(answer, "redrawn_tokens", 0)
        parts = {name: getattr(answer, name) for name in ("messages", "generation", "extraction")}
        return cls(**parts, redrawn_tokens=redrawn)


# --- the judge -----------------------------------------------------------------------------------


class Candidate(Record):
    """A kernel to judge. Maker: extraction, or a file. Consumer: the judge."""

    code: str

    @property
    def sha256(self) -> str:
        """Hex digest of the code as it was given: that of its file."""
        return hashlib.sha256(source_bytes(self.code)).hexdigest()

    @property
    def is_python(self) -> bool:
        """Whether it is a KernelBench answer and not CUDA source: it imports torch, or defines
        `ModelNew`, as only Python can."""
        return _IMPORTS_TORCH.search(self.code) is not None or defines_model_new(self.code)


def source_text(data: bytes) -> str:
    """The text of a source. Every byte keeps its place: what is no UTF-8 is a lone surrogate."""
    return data.decode("utf-8", "surrogateescape")


def source_bytes(code: str) -> bytes:
    """The bytes of a source, which are compiled, named by their digest and stored as they are."""
    try:
        return code.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that stand for no byte: no compiler takes them
        return code.encode("utf-8", "surrogatepass")


_IMPORTS_TORCH = re.compile(
    r"^(?:import[ \t]+torch\b|from[ \t]+torch[\w.]*[ \t]+import\b)", re.MULTILINE
)
_MODEL_NEW = re.compile(r"^class[ \t]+ModelNew[ \t]*(?:\([^)]{0,200}\)[ \t]*)?:", re.MULTILINE)


def defines_model_new(code: str) -> bool:
    """Whether a text is Python that defines the class `ModelNew`, which C++ cannot be."""
    return _MODEL_NEW.search(code) is not None


class Diagnostic(Record):
    """One compiler message in the candidate's source."""

    severity: Literal["error", "warning", "note"]
    line: int | None
    message: str


class KernelResources(Record):
    """What ptxas says of one device function."""

    name: str
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    """Static shared memory."""
    const_bytes: int = 0


class CompilationResult(Record):
    """Maker: CUDACompiler. Consumer: the judge, feedback, reward."""

    success: bool
    status: Status | None = None
    """None on success; else compile_error, compile_timeout, memory_limit, output_limit, rejected
    or unsupported."""
    reason: str = ""
    binary_path: str | None = None
    """Folder of the build: `host.so`, `device.ptx`, and `device.cubin` where it was asked for."""
    kernel_name: str | None = None
    """The first `__global__` function's mangled name."""
    kernels: tuple[KernelResources, ...] = ()
    registers: int = 0
    """Largest over the kernels; so the next two."""
    spill_bytes: int = 0
    shared_bytes: int = 0
    errors: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    latency_s: float = 0.0
    """CPU-bound time of this compilation, without queueing; 0 on a cache hit."""
    cache_hit: bool = False
    digest: str = ""
    """Content address: source, flags, toolkit, headers."""
    ptx_sha256: str = ""
    """Digest of the device code with its names made equal; "" where there is none."""
    techniques: tuple[str, ...] = ()
    """What the device code does, from its instructions: "shared memory", "warp shuffle", ..."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.success == (self.status is not None):
            raise ValueError(f"success={self.success} with status={self.status}")
        if self.success and self.binary_path is None:
            raise ValueError("a successful compilation names its binary_path")
        return self


class TestResult(Record):
    """One comparison of outputs. Maker: the judge."""

    __test__ = False

    case: str
    seed: int
    """A public number that names the draw; the secret it is derived with is not in it."""
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    max_abs_error: float | None
    max_rel_error: float | None
    tolerance: float | None
    """Largest error allowed at the worst element."""
    passed: bool
    detail: str = ""
    """On failure: the first wrong index with expected and got, or what else differed."""


class BenchmarkResult(Record):
    """Device time of a kernel. Maker: CUDABenchmarker, or the emulator's time model."""

    kernel_ms: float
    kernel_ms_ci95: tuple[float, float]
    eager_ms: float | None = None
    compiled_ms: float | None = None
    eager_tf32_ms: float | None = Field(default=None, exclude_if=lambda ms: ms is None)
    compiled_tf32_ms: float | None = Field(default=None, exclude_if=lambda ms: ms is None)
    speedup: float | None = None
    """eager_ms / kernel_ms; None on the emulator."""
    speedup_vs_compiled: float | None = None
    naive_ms: float | None = None
    speedup_vs_naive: float | None = None
    """Time of the task's naive kernel over the candidate's, both by the same clock or model."""
    bytes_moved: int | None = None
    """DRAM bytes that the function must move (inputs once, outputs once)."""
    flops: int | None = None
    achieved_gbps: float | None = None
    roofline_fraction: float | None = None
    transfer_ms: float | None = None
    """Device time of the plan's copies from and to the host, which are not in kernel_ms; None on
    the emulator."""
    host_ms: float | None = None
    """Processor time that the host code takes for a call on the largest shape set; beyond what any
    launch needs it is part of kernel_ms. None where nobody saw it."""
    workspace_bytes: int | None = Field(default=None, exclude_if=lambda n: n is None)
    """Device memory that a call allocates at its peak beyond its inputs and outputs."""
    eager_workspace_bytes: int | None = Field(default=None, exclude_if=lambda n: n is None)
    """The same of PyTorch eager, from shapes: tensors alone, without what its libraries take. None
    where they cannot be counted."""
    modelled: bool
    """True: from the emulator's time model. Only its order is to be trusted."""
    checked: bool = Field(default=True, exclude_if=bool)
    """False: the build was timed without a task, and nobody looked at what it computes. JSON says
    it where it is so."""

    def over(self, baseline: BaselineName) -> float | None:
        """The time of a baseline over the kernel's; None where it was not measured."""
        told = {"eager": "speedup", "compiled": "speedup_vs_compiled", "naive": "speedup_vs_naive"}
        if baseline in told:
            return getattr(self, told[baseline])  # type: ignore[no-any-return]
        found = getattr(self, f"{baseline}_ms")
        return None if found is None or not self.kernel_ms else found / self.kernel_ms

    @property
    def strongest(self) -> BaselineName | None:
        """The fastest of PyTorch's times; None where there is none."""
        times = {name: getattr(self, f"{name}_ms") for name in TIMED["all"]}
        known = {name: ms for name, ms in times.items() if ms is not None}
        return min(known, key=lambda name: known[name], default=None)

    @property
    def memory_ratio(self) -> float | None:
        """Memory that eager holds at its peak over what the kernel does, inputs and outputs
        included: above 1 the kernel holds less."""
        own, eager, io = self.workspace_bytes, self.eager_workspace_bytes, self.bytes_moved
        if own is None or eager is None or not io:
            return None
        return (io + eager) / (io + own)


class Finding(Record):
    """One observation about the code. Findings explain; the boundary decides."""

    rule: str
    severity: FindingSeverity
    line: int | None
    message: str
    basis: Literal["source", "counters", "compiler", "run"]
    """Where the claim comes from."""


PRINTED = "printed"
"""Rule of the finding that holds what kernels printed with printf, bounded. For people: it can tell
inputs that agents are not to see, so no prompt has it."""


class SafetyReport(Record):
    """Maker: SafetyWrapper. risk_score in [0, 1] is advice; no verdict depends on it."""

    risk_score: float = 0.0
    findings: tuple[Finding, ...] = ()


class RulesCheck(Record):
    """What published rules say of a candidate. Maker: cuda/trial/by_rules. Consumer: evaluation."""

    rules: RulesName
    passed: bool | None
    """None: no set of inputs could be compared."""
    reason: str = ""
    """Why it is refused, or was not compared."""
    left_out: tuple[str, ...] = ()
    """Sets of inputs for which the reference itself has no finite answer."""


EMULATOR_OF = "emulator of "


class Receipt(Record):
    """What it takes to repeat a verdict."""

    device: str = ""
    """The GPU, or "emulator of" the GPU; receipts of before name the GPU alone in both cases."""
    driver: str = ""
    toolkit: str = ""
    versions: Mapping[str, str] = Field(default_factory=dict)
    clocks: Mapping[str, float] = Field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    configurations: Mapping[str, int] = Field(default_factory=dict, exclude_if=lambda c: not c)
    """By kernel with `triton.autotune`: the place of the configuration that was timed. Empty where
    the first one was taken untimed."""
    sandbox: str = ""
    protocol: str = ""
    """Version of the judging protocol; a verdict is shared only within one version."""
    experiment_without: tuple[str, ...] = ()
    """Checks of the judge that an experiment had switched off: such a verdict says nothing about a
    kernel, and is never kept beside real ones."""
    tolerance_formula: str = ""
    duration_s: float = 0.0

    @property
    def gpu(self) -> str:
        """The GPU that times are measured on or modelled for."""
        return self.device.removeprefix(EMULATOR_OF)


class CompileSummary(Record):
    """The `compile` part of a verdict."""

    latency_s: float = 0.0
    cache_hit: bool = False
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    warnings: tuple[str, ...] = ()
    errors: tuple[Diagnostic, ...] = ()
    ptx_sha256: str = ""
    """Digest of the device code with its names made equal. Kernels of equal device code may still
    differ in their host code: they share no verdict."""
    techniques: tuple[str, ...] = ()
    """What the device code does, from its instructions: "shared memory", "warp shuffle", ..."""


class Verdict(Record):
    """What the judge says of one candidate for one task. Maker: cuda/judge. Consumers: feedback,
    reward, curriculum, evaluation, the user.

    Timing exists only on `correct`; a correct verdict has tests and all of them passed.
    """

    status: Status
    reason: str
    """One sentence."""
    task: str
    candidate_sha256: str
    backend: BackendName
    compile: CompileSummary | None = None
    """None where compilation was not reached."""
    tests: tuple[TestResult, ...] = ()
    timing: BenchmarkResult | None = None
    counters: Mapping[str, float] = Field(default_factory=dict)
    """Nsight Compute's metric names, from the emulator's counters or from ncu."""
    safety: SafetyReport = SafetyReport()
    pitfalls: tuple[Finding, ...] = ()
    cheats: tuple[Finding, ...] = ()
    by_rules: RulesCheck | None = Field(default=None, exclude_if=lambda found: found is None)
    """What the published rules say that the judge follows beside its own protocol."""
    receipt: Receipt = Receipt()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        correct = self.status is Status.CORRECT
        if self.timing is not None and not correct:
            raise ValueError(f"timing on a {self.status} verdict: only a correct kernel is timed")
        if correct and not (self.tests and all(t.passed for t in self.tests)):
            raise ValueError("a correct verdict needs tests, all of them passed")
        if correct and self.cheats:
            raise ValueError("a correct verdict cannot carry evidence of cheating")
        if self.status is Status.CHEATING and not self.cheats:
            raise ValueError("a cheating verdict names its evidence")
        if self.status is Status.WRONG_OUTPUT and all(t.passed for t in self.tests):
            raise ValueError("a wrong_output verdict needs a failed test")
        return self

    @property
    def compiled(self) -> bool:
        """Whether nvcc accepted the candidate."""
        return self.compile is not None and self.status not in NOT_COMPILED

    @property
    def correct(self) -> bool:
        return self.status is Status.CORRECT

    @property
    def speedup(self) -> float | None:
        """Speedup over eager where measured, else the modelled speedup over the naive kernel."""
        if self.timing is None:
            return None
        return (
            self.timing.speedup if self.timing.speedup is not None else self.timing.speedup_vs_naive
        )

    def __repr__(self) -> str:
        """One line: what matters of some hundred numbers."""
        return f"<{self.task}: {' | '.join(text for _, text in self._short())}>"

    def _repr_html_(self) -> str:
        """A small table, for notebooks. All text is escaped: the candidate may have written it."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td>{escape(text)}</td></tr>"
            for name, text in [("task", self.task), *self._short()]
        )
        return f"<table>{rows}</table>"

    def _short(self) -> list[tuple[str, str]]:
        rows = [("verdict", self.status.value), ("reason", self.reason[:200])]
        if self.timing is not None:
            how = "modelled" if self.timing.modelled else "measured"
            rows.append(("time", f"{self.timing.kernel_ms:.4g} ms {how}"))
        if self.speedup is not None and self.timing is not None:
            baseline = "the naive kernel" if self.timing.speedup is None else "PyTorch eager"
            rows.append(("speed", f"{self.speedup:.2f} times {baseline}"))
        return rows


NOT_COMPILED = frozenset({Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT})


# --- the tester ----------------------------------------------------------------------------------

ProbeValues = Literal["normal", "zeros", "ones", "ends", "alternating", "outlier", "ramp"]
"""Kinds of values that a probe may ask for; all lie in the task's declared domain."""


class Probe(Record):
    """Inputs that may break a kernel. Maker: the tester. Consumer: the judge, which draws them."""

    shapes: tuple[tuple[int, ...], ...]
    """Extents of each input, in order, within what the task's shape sets span."""
    values: ProbeValues = "normal"
    why: str = ""
    """What it is meant to find; one line."""


class ProbeResult(Record):
    """What came of a probe. Maker: the judge. Consumer: the next prompt, and nothing else."""

    probe: Probe
    passed: bool | None
    """None: the task's own reference cannot take these inputs, so they say nothing."""
    detail: str = ""
    """On failure: the first wrong index with expected and got, or what else went wrong."""


# --- reward ---------------------------------------------------------------------------------------


class RewardPart(Record):
    """One named part of a reward."""

    name: str
    value: float
    """What it adds to the total."""
    limit: float
    """The most it can add (for a penalty: the least, negative)."""
    why: str
    """One sentence."""


class RewardComponents(Record):
    """Maker: CUDAPerformanceReward (pure). Consumer: credit, reports. The total is the sum."""

    preset: str
    parts: tuple[RewardPart, ...]

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)


# --- the conversation ----------------------------------------------------------------------------


class ConversationTurn(Record):
    """One answer and its verdict. Maker: orchestration/turn. Consumers: the next prompt, reward,
    credit, reports. `masked` says why the turn must not be learnt from (our fault, or a gap)."""

    index: int = Field(ge=0)
    role: Role
    prompt: tuple[Message, ...]
    generation: Generation
    extraction: Extraction
    verdict: Verdict | None = None
    reward: RewardComponents | None = None
    masked: str | None = None
    """Reason, where the turn is masked: an infrastructure error, or `unsupported`."""
    notes: tuple[str, ...] = ()
    """What the turn loop noticed and tells the next agent: code or device code that was there
    before, techniques that were tried. No verdict or reward depends on it."""
    probes: tuple[ProbeResult, ...] = ()
    """What the tester found: feedback for the next agent. No verdict or reward depends on it."""
    alternatives: tuple[ConversationTurn, ...] = ()
    """Other candidates of this turn that were judged and not chosen (best of n)."""
    redrawn_tokens: int = 0
    """Tokens of answers that repeated earlier code and were drawn again."""
    generated_s: float | None = None
    """Wall time until the policy had answered, with its queue. Taken in RL, None elsewhere: an
    evaluation that goes on finds answers and verdicts of which nobody knows what they took."""
    judged_s: float | None = None
    """Likewise until there was a verdict; None too where the judge was not asked, or failed."""

    @model_validator(mode="after")
    def _judged_or_masked(self) -> Self:
        if self.verdict is None and self.masked is None:
            raise ValueError("a turn has a verdict, or a reason why it is masked")
        return self

    @property
    def code(self) -> str | None:
        return self.extraction.code

    @property
    def tokens(self) -> int:
        """That the policy wrote for this turn, with those that were drawn again."""
        return self.generation.tokens + self.redrawn_tokens


class CUDAConversationState(Record):
    """A conversation; an episode is a finished one (there is no second record for it)."""

    conversation_id: str
    task: Task
    turns: tuple[ConversationTurn, ...] = ()
    end_reason: str | None = None
    """None while it runs; else "max_turns", "threshold", "no_progress", "budget", "error"."""

    @property
    def best_turn(self) -> ConversationTurn | None:
        """The correct turn with the largest speedup; None where none is correct."""
        correct = [t for t in self.turns if t.verdict is not None and t.verdict.correct]
        return max(
            correct, key=lambda t: (t.verdict.speedup or 0.0) if t.verdict else 0.0, default=None
        )

    @property
    def compilation_cache(self) -> Mapping[str, CompileSummary]:
        """What the compiler said of each code of this conversation, by the code's SHA-256."""
        return {
            turn.verdict.candidate_sha256: turn.verdict.compile
            for turn in self.turns
            if turn.code is not None and turn.verdict is not None and turn.verdict.compile
        }

    @property
    def optimization_strategies_tried(self) -> tuple[tuple[str, ...], ...]:
        """The sets of techniques of the turns that compiled, each once, in the order tried."""
        tried = [
            turn.verdict.compile.techniques
            for turn in self.turns
            if turn.verdict is not None and turn.verdict.compile and turn.verdict.compiled
        ]
        return tuple(dict.fromkeys(tried))

    @property
    def best_speedup(self) -> float | None:
        """The largest speedup of a correct turn so far; None where none is correct or timed."""
        best = self.best_turn
        return best.verdict.speedup if best is not None and best.verdict is not None else None

    @property
    def performance_trajectory(self) -> tuple[float | None, ...]:
        """Speedup of each turn; None where it was not correct."""
        return tuple(t.verdict.speedup if t.verdict else None for t in self.turns)

    @property
    def failed_attempts(self) -> tuple[ConversationTurn, ...]:
        return tuple(t for t in self.turns if t.verdict is None or not t.verdict.correct)


# --- what the layers are handed ---------------------------------------------------------------


class Policy(Protocol):
    """A model that answers. Token ids in and out, log-probs kept."""

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        """One answer to a chat. Raises PolicyError where the model or its server fails."""
        ...


class JudgeFn(Protocol):
    """The judge as a callable: how data/ and training/ get verdicts without importing cuda/."""

    async def __call__(self, task: Task, code: str) -> Verdict:
        """Judge `code` for `task`. Raises InfrastructureError on a fault of ours."""
        ...


class ProbeFn(Protocol):
    """The judge's answer to a tester: runs probes, gives no verdict."""

    async def __call__(
        self, task: Task, code: str, probes: tuple[Probe, ...]
    ) -> tuple[ProbeResult, ...]:
        """Results in the order of `probes`. Raises InfrastructureError on a fault of ours."""
        ...


class HeldOutScore(Record):
    """How a model did on held-out tasks. Maker: an EvaluateFn. Consumer: a training's record."""

    judged: int = Field(ge=0)
    """Tasks with a verdict: what the others are counts of."""
    compiled: int = Field(ge=0)
    correct: int = Field(ge=0)
    masked: int = Field(default=0, ge=0)
    """Tasks lost to a fault of ours; not in `judged`."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.correct <= self.compiled <= self.judged:
            raise ValueError(
                f"{self.correct} correct of {self.compiled} compiled of {self.judged} judged"
            )
        return self

    @property
    def pass_rate(self) -> float | None:
        """Share that is correct; None where nothing was judged."""
        return self.correct / self.judged if self.judged else None


class EvaluateFn(Protocol):
    """The evaluation as a callable: how training/ evaluates without importing evaluation/."""

    def __call__(self, model: Path, adapter: Path, label: str) -> HeldOutScore:
        """Judge the answers to held-out tasks of the model in a folder with an adapter on it.
        `label` names the conversations. Raises InfrastructureError on a fault of ours."""
        ...


TrainingExample.model_rebuild()

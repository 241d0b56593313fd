"""Why a verdict is as it is, and what to try next, for people.

Rules of thumb over the verdict's own fields. They explain and decide nothing: each says what is
likely, and names what it is concluded from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coding_framework.agents.feedback import hints
from coding_framework.types import (
    BaselineName,
    BenchmarkResult,
    Diagnostic,
    Finding,
    Status,
    Task,
    TestResult,
    Verdict,
)

LAUNCH_MS = 0.002
"""About what starting a kernel costs: a function whose bytes move faster cannot be told good."""
NEAR_LIMIT, GOOD = 0.8, 0.5
"""Shares of the memory roofline from which a time is near the limit, or good."""
_ALL, _CLOSE, _FAR = 0.9, 0.01, 0.25
"""Share of wrong elements that means all of them; relative errors of a constant that is off."""
BASELINES: Mapping[BaselineName, str] = {
    "eager": "PyTorch eager",
    "eager_tf32": "PyTorch eager in TF32",
    "compiled": "torch.compile",
    "compiled_tf32": "torch.compile in TF32",
    "naive": "the naive kernel",
}
_SAME = 0.05
"""Two times are called equal where they differ by less than this share."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause and what to do about it."""

    name: str
    """The kind of mistake, as a word."""
    why: str
    tries: tuple[str, ...]
    """What to try next, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The likeliest cause and what to do about it."""

    why: str
    """One sentence; "" where the reason says all."""
    tries: tuple[str, ...] = ()
    """What to try next, the likeliest first."""
    causes: tuple[str, ...] = ()
    """The names of the causes that the evidence allows, the likeliest first."""


def diagnose(verdict: Verdict) -> Diagnosis:
    """The diagnosis of any verdict, a correct one included."""
    if verdict.correct:
        return Diagnosis("", tuple(hints(verdict)))
    if verdict.status is Status.RUNTIME_ERROR and _SHARED_ACCESS.search(verdict.reason):
        return _of([_CAUSES["shared bounds"], _CAUSES["bounds"]])
    if verdict.status is Status.RUNTIME_ERROR and _GLOBAL_ACCESS.search(verdict.reason):
        return _outside(verdict)
    known = _BY_REASON.get(verdict.status, ())
    for pattern, found in known:
        if re.search(pattern, verdict.reason, re.IGNORECASE):
            return found
    return _BY_STATUS[verdict.status](verdict)


def time_sentence(timing: BenchmarkResult) -> str:
    """Whether the time is good, in one sentence; "" where there is nothing to hold it against."""
    share = timing.roofline_fraction
    if share is None or share <= 0.0:
        return ""
    floor_ms = share * timing.kernel_ms
    limit = f"the memory roofline, the least time to move its bytes, is {floor_ms:.3g} ms"
    if floor_ms < LAUNCH_MS:  # starting the kernel is a part of the least time
        limit += f", and starting a kernel costs about {LAUNCH_MS} ms"
        share = (floor_ms + LAUNCH_MS) / timing.kernel_ms
        if share >= GOOD:
            return f"too small to tell: {limit}"
    if share >= NEAR_LIMIT:
        return f"near the limit, at {share:.0%} of it: {limit}"
    word = "good" if share >= GOOD else "there is room"
    return f"{word}, {share:.0%} of the limit: {limit}"


def time_text(timing: BenchmarkResult) -> str:
    """The time and, where it was measured, its interval: what is modelled has none."""
    if timing.modelled:
        return f"{timing.kernel_ms:.4g} ms modelled"
    low, high = timing.kernel_ms_ci95
    return f"{timing.kernel_ms:.4g} ms measured (95%: {low:.4g} to {high:.4g})"


def time_texts(timing: BenchmarkResult, task: Task | None = None) -> list[str]:
    """The time, what it is over the baselines, and whether it is good: for every place that shows
    a time."""
    over = {name: timing.over(name) for name in BASELINES}
    known = {name: value for name, value in over.items() if value is not None}
    told = [versus(value, BASELINES[name]) for name, value in known.items()]
    if len(known.keys() - {"naive"}) > 1 and (strongest := timing.strongest) is not None:
        told.append(f"{BASELINES[strongest]} is PyTorch's fastest")
    if timing.workspace_bytes:
        eager = timing.eager_workspace_bytes
        beside = "" if eager is None else f" (PyTorch eager {eager})"
        told.append(f"{timing.workspace_bytes} bytes of workspace{beside}")
    missing = "" if task is None else no_naive_time(timing, task)
    return [", ".join([time_text(timing), *told]), *filter(None, [missing, time_sentence(timing)])]


def no_naive_time(timing: BenchmarkResult, task: Task) -> str:
    """Why the time is not held against a naive kernel, in one sentence; "" where it is."""
    if timing.speedup_vs_naive is not None:
        return ""
    if task.naive_kernel is not None:
        return "no naive time: the task's naive kernel was not correct here, or could not be timed"
    return (
        "no naive time: the compiler's kernel was not timed (`cuda-rl write` says what it lacks, "
        "and a task file can give a kernel as naive_kernel)"
    )


def versus(speedup: float, baseline: str) -> str:
    """How a kernel compares with `baseline`: "2.00x as fast as ..."."""
    if abs(speedup - 1.0) < _SAME:
        return f"as fast as {baseline} ({speedup:.2f}x)"
    return f"{speedup:.2f}x as fast as {baseline}"


# --- what was computed wrongly --------------------------------------------------------------------

_SHARED_ACCESS = re.compile(r"illegal shared|shared memory .*(past|beyond|outside)", re.I)
_GLOBAL_ACCESS = re.compile(
    r"illegal .*(read|write|load|store|access)|past the end|out of bounds", re.I
)
_ELEMENT = re.compile(
    r"first wrong element (?P<where>\S.*?): got (?P<got>\S+), expected (?P<want>\S+) "
    r"\((?P<wrong>\d+) of (?P<all>\d+) wrong\)"
)
_UNEVEN = frozenset({"odd", "tiny", "drawn"})
"""Shape sets whose sizes no block or vector width divides."""


def _wrong_output(verdict: Verdict) -> Diagnosis:
    failed = next((t for t in verdict.tests if not t.passed), None)
    detail = failed.detail if failed else verdict.reason
    if re.match(r"dtype|output \d+: dtype", detail):
        return _of([_CAUSES["dtype"]])
    causes = list(_measured(verdict.pitfalls))
    found = _ELEMENT.search(detail)
    if failed is None or found is None:
        return _of(causes or [_CAUSES["layout"]])
    causes += _of_edge(verdict.reason)
    wrong = _Wrong.of(found, failed)
    for rule in (_uneven_sizes, _near, _not_finite, _clamped, _few, _rounding):
        cause = rule(wrong, [t for t in verdict.tests if t.passed])
        causes += [cause] if cause is not None else []
    return _of(causes or [_CAUSES["formula"]])


def _of(causes: Sequence[Cause], said: str = "") -> Diagnosis:
    """The first cause with what to try, and the next one in short. said: begins the reason."""
    once = list({cause.name: cause for cause in causes}.values())
    tries = once[0].tries
    tries += tuple(f"Less likely: {other.why} {other.tries[0]}" for other in once[1:2])
    return Diagnosis(said + once[0].why, tries, tuple(cause.name for cause in once))


def _causes(*rows: tuple[str, str, tuple[str, ...]]) -> dict[str, Cause]:
    return {name: Cause(name, why, tries) for name, why, tries in rows}


_CAUSES = _causes(
    (
        "barrier", "Threads read shared memory before it holds what others write there.",
        (
            "Put __syncthreads() between writing shared memory and reading what others wrote, and "
            "again before it is written anew.",
        ),
    ),
    (
        "unset shared", "It reads shared memory that nothing has written.",
        (
            "Set every element of it that is read, also those beyond the end of a row.",
            "Check that the block has as many threads as the array has elements.",
        ),
    ),
    (
        "race", "Threads of different blocks, or of one without a barrier, touch the same element.",
        ("Let one thread write each element, or use atomicAdd on memory that was set to 0.",),
    ),
    (
        "unset memory", "It reads global memory that nothing has written.",
        ("Start sums in torch::zeros instead of torch::empty, and write before you read.",),
    ),
    (
        "divergent barrier", "Some threads of a block do not reach a __syncthreads().",
        ("Move it out of the branch: return early only after the last barrier.",),
    ),
    (
        "coverage", "Elements are never written: the launch has too few threads, or an index lacks "
        "blockIdx.",
        (
            "Check the grid: (n + threads - 1) / threads blocks, or one a row.",
            "Check the index: blockIdx.x * blockDim.x + threadIdx.x.",
        ),
    ),
    (
        "not run", "No element is written: the kernel did not run, or wrote elsewhere.",
        (
            "Check the launch: at most 1024 threads a block, a grid of at least one block, and "
            "shared memory within the limit; a launch that fails is silent.",
            "Check that forward returns the tensor that the kernel writes.",
        ),
    ),
    (
        "tail", "The end is left out: a grid, a tile or a vector loop is rounded down.",
        (
            "Round the grid up, (n + threads - 1) / threads, also in the last block, and guard "
            "each access: if (i < n).",
            "Take every size from the tensors (x.size(0)), none from the task's text.",
        ),
    ),
    (
        "eps", "An epsilon is missing, or another one than the reference's.",
        ("Compare each division, root and logarithm with the reference: where is the eps?",),
    ),
    (
        "overflow", "Something overflows on the way.",
        ("For exp: subtract the maximum first; use the form of the function that stays finite.",),
    ),
    (
        "off by one", "A loop, an index or a mask begins or ends one place too early or too late.",
        ("Check the first and the last value of each loop, and < against <=.",),
    ),
    (
        "mask", "The last row alone is right: others see what a mask should hide from them.",
        ("Compare the loop's end, or the mask, with the reference: triu, tril, masked_fill.",),
    ),
    (
        "axis", "It computes along another axis than the reference.",
        ("Check dim: which index does the loop go through, and which one is the thread's?",),
    ),
    (
        "stride", "An index uses the wrong stride: the values are others' or lie elsewhere.",
        ("Row r, column c of a tensor with C columns is r * C + c, also where you write.",),
    ),
    (
        "broadcast", "A smaller tensor is read by another index than its own.",
        ("A row vector is read by the column, a column vector by the row, a bias by its channel.",),
    ),
    (
        "dtype", "A tensor is read or returned as another type than it has.",
        (
            "`cuda-rl tasks show TASK` names each input's dtype, and PyTorch's result its own.",
            "Use data_ptr<T>() with the tensor's own type instead of a cast.",
        ),
    ),
    (
        "integer division", "A factor is 0: a division of two integers, such as 1 / n, is likely.",
        ("Write 1.0f / n, and check that each factor of the reference is there.",),
    ),
    (
        "arguments", "Two inputs are swapped.",
        (
            "forward gets the inputs in the task's order; compare the launch argument by argument.",
            "For a difference or a quotient check which comes first.",
        ),
    ),
    (
        "scale", "A scale is wrong: a factor too many or too few, n - 1 for n, a sum for a mean.",
        (
            "Compare each constant and each divisor with the reference: biased or unbiased, a "
            "root, per row or per batch.",
            "Look for threads that add the same part twice.",
        ),
    ),
    (
        "start", "A maximum or a minimum starts at a wrong value.",
        ("Start a maximum at -INFINITY and a minimum at INFINITY, not at 0.",),
    ),
    (
        "clamp", "It gives a negative value where 0 is expected: a clamp at zero (a ReLU, a mask) "
        "is likely to be missing.",
        ("Compare with the reference: is there a max(x, 0) or a mask?",),
    ),
    (
        "edge", "The formula is right for most inputs, so it is an edge (the last elements, ties, "
        "zeros, large values).",
        (
            "Look at the index above: is it in the last row, column, block or tile?",
            "Try the values that the reference treats apart: 0, -0, ties, very large ones.",
        ),
    ),
    (
        "precision", "The value is close and not close enough: precision is lost.",
        (
            "Accumulate in float32 (double for long sums), whatever the inputs' type is.",
            "Avoid fast intrinsics such as __expf, and the one-pass variance E[x^2] - E[x]^2.",
        ),
    ),
    (
        "ties", "It is wrong where values are equal or zero: an epsilon is missing, or ties are "
        "broken another way.",
        ("Of equal values take the one that PyTorch takes, the first.",),
    ),
    (
        "bounds", "A thread reads or writes outside of a tensor.",
        (
            "Guard each access: if (i < n), also in the last block, and the borders of a window.",
            "Use 64 bits for an index where n is large.",
        ),
    ),
    (
        "shared bounds", "A thread reads or writes outside of the block's shared memory.",
        (
            "Compare the array's size with the largest index: threads of the block, columns of "
            "a row, the padding of a tile.",
            "Give a dynamic array its bytes: name<<<blocks, threads, bytes>>>(...).",
        ),
    ),
    ("layout", "", ("Compare the output's shape and dtype with the task's reference.",)),
    (
        "unread input", "The kernel leaves out an input or a parameter.",
        ("Read it where the reference does: is it in the formula, and among the arguments?",),
    ),
    (
        "formula", "Most elements are wrong, so it is the formula or the indexing, and no edge "
        "case.",
        (
            "Compute the element named above by hand from the reference.",
            "Check the order of forward's arguments: the inputs, then the module's parameters and "
            "buffers, then numbers (`cuda-rl tasks show TASK` shows it).",
        ),
    ),
)  # fmt: skip
_SHOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("shared_memory_race|warp_race", ("barrier",)),
    ("global_memory_race", ("race", "unset memory")),
    ("uninitialized_read", ("unset memory",)),
    ("barrier_divergence", ("divergent barrier",)),
    ("unwritten", ("not run", "coverage")),
    ("unwritten_rest|unwritten_some", ("coverage", "tail")),
    ("unwritten_tail", ("tail", "coverage")),
    ("uninitialized_shared_read", ("unset shared", "barrier")),
    ("zero_divisor|no_eps|too_small|too_large", ("eps", "scale")),
    ("overflow", ("overflow", "eps")),
    ("empty_first|shifted|term_left_out|wrong_at_end|terms_differ", ("off by one", "tail")),
    ("tile_left_out", ("tail", "off by one")),
    ("right_at_end", ("mask", "off by one")),
    ("other_axis", ("axis", "stride")),
    ("swapped_strides|moved", ("stride", "axis")),
    ("other_broadcast", ("broadcast", "stride")),
    ("read_as_other_type", ("dtype",)),
    ("unread_input", ("unread input", "arguments")),
    ("constant_output|lost_factor", ("integer division", "scale")),
    ("swapped_inputs|negated", ("arguments",)),
    ("slice_scaled", ("scale", "unread input")),
    ("factor|count_off|scaled_input", ("scale", "integer division")),
    ("starts_at_value", ("start", "coverage")),
)
"""Rules of findings that a run shows (`cuda/advice/mismatch.py`, the checker's), the strongest
first, and the causes that they speak for."""
_EDGES: dict[str, tuple[str, ...]] = {
    "ties": ("eps", "ties"),
    "large": ("overflow",),
    "negative": ("start",),
    "positive": ("start", "overflow"),
    "spikes": ("tail",),
}


_STORES_MEET = re.compile(r"st\.shared\S* races with thread \S+ of the same warp")
"""Threads of a warp write one element, where no barrier helps if one line alone does so."""


def _measured(pitfalls: Sequence[Finding]) -> list[Cause]:
    """What the run itself showed, the likeliest first."""
    seen = [finding for finding in pitfalls if finding.basis == "run"]
    rules_seen = {finding.rule for finding in seen}
    found = [names for rules, names in _SHOWN if rules_seen & set(rules.split("|"))]
    lines = {finding.line for finding in seen if finding.rule == "shared_memory_race"}
    if len(lines) == 1 and any(_STORES_MEET.search(finding.message) for finding in seen):
        found.insert(0, ("race", "barrier"))
    return [_CAUSES[name] for names in found for name in names]


def _of_edge(reason: str) -> list[Cause]:
    found = re.search(r"edge draw '(\w+)'", reason)
    return [_CAUSES[name] for name in _EDGES.get(found[1], ())] if found is not None else []


@dataclass(frozen=True, slots=True)
class _Wrong:
    """The first wrong element of a comparison, and how many there are."""

    got: float
    want: float
    share: float
    test: TestResult

    @classmethod
    def of(cls, found: re.Match[str], test: TestResult) -> _Wrong:
        wrong, total = int(found["wrong"]), max(1, int(found["all"]))
        return cls(float(found["got"]), float(found["want"]), wrong / total, test)


def _uneven_sizes(wrong: _Wrong, passed: Sequence[TestResult]) -> Cause | None:
    """Even sizes pass and others fail: something is taken to divide the sizes."""
    uneven = wrong.test.case in _UNEVEN and any(t.case != wrong.test.case for t in passed)
    return _CAUSES["tail"] if uneven and _near(wrong, passed) is None else None


def _near(wrong: _Wrong, _: Sequence[TestResult]) -> Cause | None:
    """All elements, and each by a little: no element is missing."""
    off = abs(wrong.got / wrong.want - 1.0) if wrong.want else math.inf
    return _CAUSES["scale"] if wrong.share >= _ALL and _CLOSE <= off < _FAR else None


def _not_finite(wrong: _Wrong, _: Sequence[TestResult]) -> Cause | None:
    """Memory that nothing was written to holds NaN."""
    if math.isfinite(wrong.got) or not math.isfinite(wrong.want):
        return None
    return _CAUSES["coverage" if math.isnan(wrong.got) else "overflow"]


def _clamped(wrong: _Wrong, _: Sequence[TestResult]) -> Cause | None:
    return _CAUSES["clamp"] if wrong.want == 0.0 and wrong.got < 0.0 else None


def _few(wrong: _Wrong, _: Sequence[TestResult]) -> Cause | None:
    return _CAUSES["edge"] if wrong.share < 0.05 else None


def _rounding(wrong: _Wrong, _: Sequence[TestResult]) -> Cause | None:
    off = abs(wrong.got / wrong.want - 1.0) if wrong.want else math.inf
    half = wrong.test.dtype in ("float16", "bfloat16")
    if off < 1e-2 and not half and off > 2e-3:  # no rounding to half precision is as large
        return _CAUSES["eps"]
    return _CAUSES["precision"] if off < 1e-2 else None


def _outside(verdict: Verdict) -> Diagnosis:
    """An illegal access of global memory. The first thread beyond the last element lacks a guard;
    another one that is outside has a wrong index."""
    found = _ACCESS.search(verdict.reason)
    names = ["bounds", "stride"]
    if found is not None:
        size, thread, block = (int(found[k]) for k in ("size", "thread", "block"))
        elements = size // int(found["bytes"])
        before = elements - thread
        next_one = before in [block * threads for threads in (32, 64, 128, 256, 512, 1024)]
        if found["where"].startswith("past") and not next_one:
            names.reverse()
    return _of([_CAUSES[name] for name in names])


_ACCESS = re.compile(
    r"of (?P<bytes>\d+) bytes at \S+ by thread \((?P<thread>\d+),\d+,\d+\) of block "
    r"\((?P<block>\d+),\d+,\d+\).*? bytes (?P<where>past the end of|before) the "
    r"(?P<size>\d+)-byte allocation"
)


# --- what does not compile ------------------------------------------------------------------------

_COMPILER: tuple[tuple[str, str], ...] = (
    (
        r"unrecognized token",
        "A character there is none of C++: give the code alone, without the ``` or the words "
        "around it in an answer, and with plain quotation marks.",
    ),
    (
        r'identifier "torch"|name followed by "::"|no storage class or type specifier',
        "A header or a bracket before it is likely to be missing (torch:: needs #include "
        "<torch/extension.h>), or the file is no CUDA C++.",
    ),
    (
        r'identifier "(?P<name>[^"]+)" is undefined',
        "{name} is declared nowhere: check the spelling, or include what declares it.",
    ),
    (
        r'expected an? "(?P<name>.)"',
        'A "{name}" is missing there, or on the line above.',
    ),
    (
        r"argument of type .* is incompatible",
        "The types do not fit: data_ptr<T>() gives a T*, so take the T of the kernel's parameter.",
    ),
    (
        r"no instance of (overloaded )?function",
        "The arguments' types fit no version of that function: cast them.",
    ),
    (
        r"cannot open source file|No such file",
        "That header is not there: candidates see CUDA's headers, the standard library's and "
        "torch/extension.h.",
    ),
    (
        r"too (few|many) arguments|more than one instance",
        "The call does not fit the declaration: compare the two argument by argument.",
    ),
)


def _compile_error(verdict: Verdict) -> Diagnosis:
    errors = verdict.compile.errors if verdict.compile is not None else ()
    return Diagnosis(
        "nvcc does not accept the source.", (*_compiler_hints(errors), _HEADERS_HINT)[:2]
    )


_HEADERS_HINT = "Mend the first error first: those after it often follow from it."


def _compiler_hints(errors: Sequence[Diagnostic]) -> tuple[str, ...]:
    """What helps against the first error that is known, or against one that explains the others:
    the table's first."""
    odd = [e for e in errors if re.search(_COMPILER[0][0], e.message)]
    for error in (*odd, *errors):
        for pattern, text in _COMPILER:
            found = re.search(pattern, error.message)
            if found is not None:
                return (text.format(**found.groupdict()),)
    return ()


# --- the other statuses ---------------------------------------------------------------------------

_BINDING = (
    'End the file with PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }'
)
_BY_REASON: dict[Status, tuple[tuple[str, Diagnosis], ...]] = {
    Status.COMPILE_ERROR: (
        (r"source is empty", Diagnosis(
            "The file holds nothing but blanks.",
            (
                "Check that your editor has saved it, and its path.",
                "`cuda-rl new-task NAME` writes a whole example.",
            ),
        )),
        (r"NUL bytes", Diagnosis(
            "The file is no text in UTF-8: a compiled file, or text that was saved as UTF-16.",
            ("Give the source, saved as UTF-8.",),
        )),
    ),
    Status.WRONG_OUTPUT: (
        (r"changed its input", Diagnosis(
            "forward writes into a tensor that it was handed.",
            ("Allocate the output: auto out = torch::empty_like(x);",),
        )),
    ),
    Status.LOAD_ERROR: (
        (r"no class ModelNew", Diagnosis(
            "The file is Python, and what answers a task in Python is a class ModelNew.",
            (
                "Name the class ModelNew, and launch your kernel in its forward "
                "(docs/kernelbench_answers.md).",
                "If the file is the task itself, give it as --task and your kernel as --kernel.",
            ),
        )),
        (r"no PYBIND11_MODULE|defines no function", Diagnosis(
            "The judge calls a function named forward, and the file binds none.",
            (_BINDING, "`cuda-rl new-task NAME` writes a whole example."),
        )),
        (r"declared and not defined", Diagnosis(
            "A function is declared and its body is in no file.", ("Define it in this file.",)
        )),
    ),
    Status.RUNTIME_ERROR: (
        (r"threads|block|grid|configuration|at the launch of", Diagnosis(
            "The launch asks for more than a GPU has.",
            (
                "Use at most 1024 threads a block and 48 KiB of shared memory; for more of it call "
                "cudaFuncSetAttribute first.",
            ),
        )),
        (r"scalar type|dtype|data_ptr|expected .* but", Diagnosis(
            "forward takes another type than the task's inputs have.",
            ("`cuda-rl tasks show TASK` names each input's dtype.",),
        )),
        (r"argument", Diagnosis(
            "forward does not take what the task hands it.",
            (
                "It gets the task's inputs in order, then the parameters, then the scalars: "
                "`cuda-rl tasks show TASK` lists them.",
            ),
        )),
    ),
    Status.REJECTED: (
        (r"must compute in its own kernels|calls ", Diagnosis(
            "A library computes what a kernel should: the judge takes __global__ functions of the "
            "file alone.",
            ("Write the computation as a __global__ function and launch it from forward.",),
        )),
        (r"launches no kernel", Diagnosis(
            "forward returns without a launch.",
            ("Launch the kernel: name<<<blocks, threads>>>(...), on every path of forward.",),
        )),
        (r"keeps state", Diagnosis(
            "What one call leaves behind changes the next one.",
            ("Make no static or global buffers: allocate in forward, with torch::empty.",),
        )),
    ),
}  # fmt: skip


def _fixed(why: str, *tries: str) -> Callable[[Verdict], Diagnosis]:
    return lambda verdict: Diagnosis(why, tries)


_BY_STATUS: dict[Status, Callable[[Verdict], Diagnosis]] = {
    Status.WRONG_OUTPUT: _wrong_output,
    Status.COMPILE_ERROR: _compile_error,
    Status.NONDETERMINISTIC: lambda verdict: _of(
        _measured(verdict.pitfalls) or [_CAUSES["barrier"], _CAUSES["race"]]
    ),
    Status.REJECTED: _fixed("", "docs/judge.md lists what a kernel may not do."),
    Status.CHEATING: _fixed(
        "The answer does not come from this call's inputs, or the time is below what physics "
        "allows.",
        "Compute every element from the inputs, in a __global__ function, at each call.",
    ),
    Status.COMPILE_TIMEOUT: _fixed(
        "nvcc works longer than it may.",
        "Unroll less and use fewer template instances.",
    ),
    Status.LOAD_ERROR: _fixed("The compiled file cannot be loaded.", _BINDING),
    Status.RUNTIME_ERROR: _fixed("", "Check sizes, dtypes and the launch's configuration."),
    Status.TIMEOUT: _fixed(
        "The kernel takes far longer than the task needs: an endless loop, or one thread that does "
        "all the work.",
        "Check that every loop ends for every thread, also for those out of range.",
        "Spread the work: one element or one row a thread, warp or block.",
    ),
    Status.MEMORY_LIMIT: _fixed(
        "It allocates more than a job may have.", "Allocate the output and small workspaces alone."
    ),
    Status.OUTPUT_LIMIT: _fixed("It prints too much.", "Remove printf from the kernel."),
    Status.UNSUPPORTED: _fixed(
        "The judge cannot run this: a gap of ours, and no fault of the kernel.",
        "On a machine with a GPU, --backend cuda may run it; please report the kernel.",
    ),
}

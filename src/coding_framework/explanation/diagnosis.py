"""Why a verdict is as it is, and what to try next, for people.

Rules of thumb over the verdict's own fields. They explain and decide nothing: each says what is
likely, and names what it is concluded from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coding_framework.agents.feedback import hints
from coding_framework.types import (
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
_SAME = 0.05
"""Two times are called equal where they differ by less than this share."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A likely cause and what to do about it."""

    why: str
    """One sentence; "" where the reason says all."""
    tries: tuple[str, ...] = ()
    """What to try next, the likeliest first."""


def diagnose(verdict: Verdict) -> Diagnosis:
    """The diagnosis of any verdict, a correct one included."""
    if verdict.correct:
        return Diagnosis("", tuple(hints(verdict)))
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
    if floor_ms < LAUNCH_MS:
        return f"too small to tell: {limit}, and starting a kernel costs about {LAUNCH_MS} ms"
    if share >= NEAR_LIMIT:
        return f"near the limit, at {share:.0%} of it: {limit}"
    word = "good" if share >= GOOD else "there is room"
    return f"{word}, {share:.0%} of the limit: {limit}"


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

_ELEMENT = re.compile(
    r"first wrong element (?P<where>\S.*?): got (?P<got>\S+), expected (?P<want>\S+) "
    r"\((?P<wrong>\d+) of (?P<all>\d+) wrong\)"
)
_UNEVEN = frozenset({"odd", "tiny", "drawn"})
"""Shape sets whose sizes no block or vector width divides."""


def _wrong_output(verdict: Verdict) -> Diagnosis:
    failed = next((t for t in verdict.tests if not t.passed), None)
    found = _ELEMENT.search(failed.detail if failed else verdict.reason)
    if failed is None or found is None:
        return Diagnosis("", ("Compare the output's shape and dtype with the task's reference.",))
    passed_before = [t for t in verdict.tests if t.passed]
    causes = [*_measured(verdict.pitfalls), *_of_edge(verdict.reason)]
    wrong = _Wrong.of(found, failed)
    for rule in (
        _not_a_number, _uneven_sizes, _near, _unwritten, _sign, _factor, _few, _rounding,
    ):  # fmt: skip
        diagnosis = rule(wrong, passed_before)
        if diagnosis is not None:
            causes.append(diagnosis)
    first, *others = causes or [_FORMULA]
    tries = first.tries
    if others:
        tries += tuple(f"Less likely: {other.why} {other.tries[0]}" for other in others[:1])
    return Diagnosis(first.why, tries)


_FORMULA = Diagnosis(
    "Most elements are wrong, so it is the formula or the indexing, and no edge case.",
    (
        "Compute the element named above by hand from the reference.",
        "Check the order of forward's arguments: the inputs, then the module's parameters and "
        "buffers, then numbers (`cuda-rl tasks show TASK` shows it).",
    ),
)
_MEASURED: tuple[tuple[str, Diagnosis], ...] = (
    ("shared_memory_race|uninitialized_shared_read|warp_race", Diagnosis(
        "Threads read shared memory before it holds what others write there.",
        (
            "Put __syncthreads() between writing shared memory and reading what others wrote, and "
            "again before it is written anew.",
            "Set every element of it that is read, also those beyond the end of a row.",
        ),
    )),
    ("global_memory_race", Diagnosis(
        "Threads of different blocks, or of one without a barrier, touch the same element.",
        ("Let one thread write each element, or use atomicAdd on memory that was set to 0.",),
    )),
    ("uninitialized_read", Diagnosis(
        "It reads global memory that nothing has written.",
        ("Start sums in torch::zeros instead of torch::empty, and write before you read.",),
    )),
    ("barrier_divergence", Diagnosis(
        "Some threads of a block do not reach a __syncthreads().",
        ("Move it out of the branch: return early only after the last barrier.",),
    )),
)  # fmt: skip
_EDGES: dict[str, tuple[str, str]] = {
    "ties": (
        "It is wrong where values are equal or zero: an epsilon under a root or in a divisor is "
        "missing, or ties are broken another way.",
        "Compare each division, root and logarithm with the reference: where is the eps?",
    ),
    "large": (
        "It is wrong for large values: something overflows on the way.",
        "For exp: subtract the maximum first; use the form of the function that stays finite.",
    ),
    "negative": (
        "It is wrong where all values are negative: a maximum or a sum starts at a wrong value.",
        "Start a maximum at -INFINITY, not at 0 or at a number that seems small.",
    ),
    "positive": (
        "It is wrong where all values are large and positive: a minimum starts at a wrong value, "
        "or something overflows.",
        "Start a minimum at INFINITY; subtract the maximum before exp.",
    ),
    "spikes": (
        "It is wrong where few values make the sum: a part of the terms is left out.",
        "Check the ends of each loop, and that every warp's part is added.",
    ),
}


def _measured(pitfalls: Sequence[Finding]) -> list[Diagnosis]:
    """What the run itself showed, the likeliest first."""
    seen = {finding.rule for finding in pitfalls if finding.basis == "run"}
    return [found for rules, found in _MEASURED if seen.intersection(rules.split("|"))]


def _of_edge(reason: str) -> list[Diagnosis]:
    found = re.search(r"edge draw '(\w+)'", reason)
    if found is None or found[1] not in _EDGES:
        return []
    why, what = _EDGES[found[1]]
    return [Diagnosis(why, (what,))]


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


def _not_a_number(wrong: _Wrong, _: Sequence[TestResult]) -> Diagnosis | None:
    if math.isfinite(wrong.got) or not math.isfinite(wrong.want):
        return None
    if wrong.share == 1.0 and math.isnan(wrong.got):
        return Diagnosis(
            "No element is written: the kernel did not run, or wrote elsewhere.",
            (
                "Check the launch: at most 1024 threads a block, a grid of at least one block, and "
                "shared memory within the limit; a launch that fails is silent.",
                "Check that forward returns the tensor that the kernel writes.",
            ),
        )
    return Diagnosis(
        f"It gives {wrong.got} where a number is expected: an element that is never written (unset "
        "memory holds NaN here), an overflow, or a division by zero.",
        (
            "Check that every element of the output is written, also in the last block.",
            "For exp: subtract the maximum first. For sqrt and division: keep the epsilon.",
        ),
    )


def _uneven_sizes(wrong: _Wrong, passed: Sequence[TestResult]) -> Diagnosis | None:
    if wrong.test.case not in _UNEVEN or all(t.case == wrong.test.case for t in passed):
        return None
    if _near(wrong, passed) is not None:
        return None
    shapes = ", ".join(str(list(s)) for s in wrong.test.shapes)
    return Diagnosis(
        f"Even sizes pass and {shapes} fails: the kernel is likely to assume that its block, tile "
        "or vector width divides the sizes, or to have sizes built in.",
        (
            "Round the grid up, (n + threads - 1) / threads, and guard each access: if (i < n).",
            "Take every size from the tensors (x.size(0)), none from the task's text.",
        ),
    )


def _near(wrong: _Wrong, _: Sequence[TestResult]) -> Diagnosis | None:
    """All elements, and each by a little: no element is missing."""
    off = abs(wrong.got / wrong.want - 1.0) if wrong.want else math.inf
    if wrong.share < _ALL or not _CLOSE <= off < _FAR:
        return None
    return Diagnosis(
        f"Almost every element is wrong, this one by {off:.1%}: a constant or a count is off (an "
        "epsilon, n - 1 for n, a divisor that depends on the size).",
        (
            "Compare each constant and each divisor with the reference: biased or unbiased, per "
            "row or per batch, eps inside or outside of the root.",
            "If sizes that a block divides pass, look at what the kernel takes for the size.",
        ),
    )


def _unwritten(wrong: _Wrong, _: Sequence[TestResult]) -> Diagnosis | None:
    if wrong.got != 0.0 or wrong.want == 0.0:
        return None
    return Diagnosis(
        "It gives 0 where another value is expected: elements that are never written, or a sum "
        "whose parts are lost.",
        (
            "Check that the grid covers all elements: rounding down loses the last block.",
            "In a reduction: check that every warp's part is added, and the identity it starts at.",
        ),
    )


def _sign(wrong: _Wrong, _: Sequence[TestResult]) -> Diagnosis | None:
    if wrong.want == 0.0 and wrong.got < 0.0:
        return Diagnosis(
            "It gives a negative value where 0 is expected: a clamp at zero (a ReLU, a mask) is "
            "likely to be missing.",
            ("Compare with the reference: is there a max(x, 0) or a mask?",),
        )
    if wrong.want != 0.0 and math.isclose(wrong.got, -wrong.want, rel_tol=1e-3):
        return Diagnosis("The sign is turned round.", ("Look for a swapped difference, b - a.",))
    return None


def _factor(wrong: _Wrong, _: Sequence[TestResult]) -> Diagnosis | None:
    ratio = wrong.got / wrong.want if wrong.want and math.isfinite(wrong.got) else 0.0
    whole = round(ratio) if ratio >= 1 else round(1 / ratio) if ratio > 0 else 0
    simple = whole >= 2 and math.isclose(max(ratio, 1 / ratio), whole, rel_tol=1e-3)
    if not simple:
        return None
    how = f"{whole} times" if ratio > 1 else f"1/{whole} of"
    return Diagnosis(
        f"The value is {how} what is expected: a scale, a mean taken for a sum, or work "
        "that is done more than once.",
        ("Look for a missing or repeated division, and for threads that add the same part.",),
    )


def _few(wrong: _Wrong, _: Sequence[TestResult]) -> Diagnosis | None:
    if wrong.share >= 0.05:
        return None
    return Diagnosis(
        f"Only {wrong.share:.2%} of the elements are wrong: the formula is right for most inputs, "
        "so it is an edge (the last elements, ties, zeros, large values).",
        (
            "Look at the index above: is it in the last row, column, block or tile?",
            "Try the values that the reference treats apart: 0, -0, ties, very large ones.",
        ),
    )


def _rounding(wrong: _Wrong, _: Sequence[TestResult]) -> Diagnosis | None:
    if not (wrong.want and abs(wrong.got / wrong.want - 1.0) < 1e-2):
        return None
    return Diagnosis(
        "The value is close and not close enough: precision is lost, not the formula.",
        (
            "Accumulate in float32 (double for long sums), whatever the inputs' type is.",
            "Avoid fast intrinsics such as __expf, and the one-pass variance E[x^2] - E[x]^2.",
        ),
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
        (r"illegal shared|shared memory .*(past|beyond|outside)", Diagnosis(
            "A thread reads or writes outside of the block's shared memory.",
            (
                "Compare the array's size with the largest index: threads of the block, columns of "
                "a row, the padding of a tile.",
                "Give a dynamic array its bytes: name<<<blocks, threads, bytes>>>(...).",
            ),
        )),
        (r"illegal .*(read|write|load|store|access)|past the end|out of bounds", Diagnosis(
            "A thread reads or writes outside of a tensor.",
            (
                "Guard each access: if (i < n), also in the last block.",
                "Check that the index uses the strides of this tensor, and 64 bits where n is "
                "large.",
            ),
        )),
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
    Status.NONDETERMINISTIC: _fixed(
        "Two runs on equal inputs differ: a race, or memory that is read before it is written.",
        "Put __syncthreads() between writing shared memory and reading what others wrote.",
        "Let one thread write each element, or use atomicAdd.",
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

"""Kernels of workloads that walk rows: reductions and normalisations.

A reduction or normalisation is a few passes over the row, each of which accumulates one statistic,
and then an output per row or per element. The ways to write it differ in who walks the row: one
thread, a block of 128 or 512 threads with a tree in shared memory, or a warp with shuffles.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.data.synthesis.kernel_text import (
    Combine,
    Launch,
    Lines,
    Subject,
    block,
    example,
    guarded,
    kernel,
    source,
)
from coding_framework.data.synthesis.styles import Style
from coding_framework.types import KernelExample


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over the row: `variable` combines `term` of every value v; `finish` follows."""

    variable: str
    combine: Combine
    term: str
    finish: str = ""


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """How `forward` finds the rows, and what it allocates."""

    sizes: str = "int m = x.size(0), w = x.size(1);"
    allocate: str = "torch::empty_like(x)"
    arguments: tuple[str, ...] = ("m", "w")


@dataclass(frozen=True, slots=True)
class RowWork:
    """What is computed along rows of w elements, whoever walks them."""

    subject: Subject
    passes: tuple[Pass, ...]
    load: Lines
    """Statements that give the value at row r and column j."""
    result: Lines
    """Statements that write the output: once a row, or at each column where `per_element`."""
    per_element: bool
    parts: tuple[Lines, ...] = ()
    """Device functions."""
    launch: RowLaunch = RowLaunch()


PER_ROW = RowLaunch(allocate="torch::empty({m}, x.options())")


def row_kernels(work: RowWork, style: Style) -> tuple[KernelExample, ...]:
    """One thread a row, a block with a tree in shared memory, a warp with shuffles; where the row
    is walked more than once, also a wide block."""
    wide = (_wide,) if len(work.passes) + work.per_element > 1 else ()
    return tuple(make(work, style) for make in (_naive, _shared, _shuffle, *wide))


def _walk(work: RowWork, style: Style, step: Pass, loop: str) -> Lines:
    """One pass of one thread: its part of the statistic."""
    term = step.term.format(v=style.value)
    body = [*work.load, step.combine.assign(step.variable, term)]
    return [f"float {step.variable} = {step.combine.identity};", *block(loop, body)]


def _finish(step: Pass) -> Lines:
    return [step.finish] if step.finish else []


def _outputs(work: RowWork, loop: str, once: str) -> Lines:
    """once: the condition under which a thread writes the row's only result; "" for always."""
    if work.per_element:
        return block(loop, work.result)
    return block(f"if ({once})", work.result) if once else work.result


def _row_file(work: RowWork, style: Style, body: Lines, grid: str, comment: str) -> str:
    arguments = list(work.launch.arguments)
    launch = Launch(
        sizes=work.launch.sizes, allocate=work.launch.allocate, grid=grid, arguments=arguments
    )
    device = kernel(work.subject, style, arguments, body)
    return source(work.subject, style, comment, launch, *work.parts, device)


def _naive(work: RowWork, style: Style) -> KernelExample:
    loop = "for (int j = 0; j < w; j++)"
    body: Lines = []
    for step in work.passes:
        body += [*_walk(work, style, step, loop), *_finish(step)]
    body += _outputs(work, loop, "")
    lines = [
        "int r = blockIdx.x * blockDim.x + threadIdx.x;",
        *guarded(style, "r < m", "r >= m", body),
    ]
    grid = f"(m + {style.block - 1}) / {style.block}, {style.block}"
    code = _row_file(work, style, lines, grid, "one thread per row")
    return example(work.subject, "naive", code)


def _block_per_row(work: RowWork, style: Style, threads: int) -> str:
    loop = f"for (int j = q; j < w; j += {threads})"
    body = [f"__shared__ float t[{threads}];", "int r = blockIdx.x, q = threadIdx.x;"]
    for number, step in enumerate(work.passes):
        tree = block(
            f"for (int d = {threads // 2}; d > 0; d /= 2)",
            [f"if (q < d) {step.combine.assign('t[q]', 't[q + d]')}", "__syncthreads();"],
        )
        again = ["__syncthreads();"] if number + 1 < len(work.passes) else []
        body += [
            *_walk(work, style, step, loop),
            f"t[q] = {step.variable};",
            "__syncthreads();",
            *tree,
            f"{step.variable} = t[0];",
            *again,
            *_finish(step),
        ]
    body += _outputs(work, loop, "q == 0")
    comment = "one block per row, tree in shared memory"
    return _row_file(work, style, body, f"m, {threads}", comment)


def _shared(work: RowWork, style: Style) -> KernelExample:
    why = (
        "a block per row reads neighbouring columns together (coalesced) and combines them in "
        "shared memory"
    )
    return example(work.subject, "shared", _block_per_row(work, style, 128), why)


def _wide(work: RowWork, style: Style) -> KernelExample:
    """Fewer rows are in flight at once than with 128 threads, so that the row's second walk finds
    it in the caches: 88 against 160 us for the softmax of 4096 x 8192, 1,024 threads took 102 (one
    H200, 2026-11-21)."""
    why = (
        "512 threads per row combine their parts in shared memory, and fewer rows at a time mean "
        "that walking a row again finds it in the caches"
    )
    return example(work.subject, "wide", _block_per_row(work, style, 512), why)


def _shuffle(work: RowWork, style: Style) -> KernelExample:
    loop = "for (int j = q; j < w; j += 32)"
    body = [
        "int r = blockIdx.x * 4 + threadIdx.x / 32, q = threadIdx.x % 32;",
        "if (r >= m) return;",
    ]
    for step in work.passes:
        other = f"__shfl_xor_sync(0xffffffff, {step.variable}, d)"
        body += [
            *_walk(work, style, step, loop),
            f"for (int d = 16; d > 0; d /= 2) {step.combine.assign(step.variable, other)}",
            *_finish(step),
        ]
    body += _outputs(work, loop, "q == 0")
    code = _row_file(work, style, body, "(m + 3) / 4, 128", "one warp per row, warp shuffles")
    why = (
        "a warp per row reads 32 neighbouring columns at once (coalesced) and combines them with "
        "shuffles, without shared memory or barriers"
    )
    return example(work.subject, "shuffle", code, why)

"""Honest reductions of a whole tensor to a number: every way in which public kernels order blocks.

Each way is one template; each use of it is another operation over another shape.
"""

from __future__ import annotations

from typing import NamedTuple

from corpus.fresh_base import FLAT, LONG, FreshHonest, extension
from corpus.records import MATRIX, Shape, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())


class Op(NamedTuple):
    """A reduction: of each value, of two partial results, of none, and what is made of the last."""

    name: str
    expression: str
    term: str
    join: str
    none: str
    finish: str


OPS = {
    op.name: op
    for op in (
        Op("sum", "x.sum()", "v", "a + b", "0.f", "s"),
        Op("mean", "x.mean()", "v", "a + b", "0.f", "s / n"),
        Op("maximum", "x.max()", "v", "fmaxf(a, b)", "-INFINITY", "s"),
        Op("minimum", "x.min()", "v", "fminf(a, b)", "INFINITY", "s"),
        Op("largest", "x.abs().max()", "fabsf(v)", "fmaxf(a, b)", "0.f", "s"),
        Op("squares", "(x * x).sum()", "v * v", "a + b", "0.f", "s"),
        Op("mean_abs", "x.abs().mean()", "fabsf(v)", "a + b", "0.f", "s / n"),
        Op("positives", "(x > 0).float().sum()", "v > 0.f ? 1.f : 0.f", "a + b", "0.f", "s"),
        Op("rms", "torch.sqrt((x * x).mean())", "v * v", "a + b", "0.f", "sqrtf(s / n)"),
    )
}

CUBE: dict[str, list[Shape]] = {"main": [(4, 24, 40)], "odd": [(3, 17, 29)], "tiny": [(1, 2, 3)]}
_SHAPES = (FLAT, MATRIX, LONG, CUBE)
_LENGTHS = ((8192, 5003, 64), (6144, 1961, 15), (16384, 10023, 512), (3840, 1479, 6))

_HELPERS = _SOURCES.text("HELPERS")

_LAST_BLOCK = _SOURCES.text("LAST_BLOCK")
_LAST_BLOCK_RESETS = _SOURCES.text("LAST_BLOCK_RESETS")
_SPIN_LOCK = _SOURCES.text("SPIN_LOCK")
_SEMAPHORE = _SOURCES.text("SEMAPHORE")
_RELEASE = _SOURCES.text("RELEASE")
_GRID_SYNC = _SOURCES.text("GRID_SYNC")
_TWO_KERNELS = _SOURCES.text("TWO_KERNELS")
_WORK_QUEUE = _SOURCES.text("WORK_QUEUE")
_EXITED = _SOURCES.text("EXITED")
_TILED = _SOURCES.text("TILED")
_FOURS = _SOURCES.text("FOURS")

_START = _SOURCES.text("START")
_PART = """  auto part = torch::empty({64 * 8}, x.options());
  float* pp = part.data_ptr<float>();
"""
_GROUPS = "#include <cooperative_groups.h>\n"
_TWO = "  l<<<1, 128>>>(pp, po, grid, n);"
_SPLIT = _SOURCES.text("SPLIT")


class _Way(NamedTuple):
    name: str
    kernels: str
    launch: str
    ops: tuple[str, ...]
    grid: str = "6"
    head: str = ""
    part: bool = True


_WAYS = (
    _Way("last_block", _LAST_BLOCK, "  k<<<grid, 128>>>(px, pp, po, n);",
         ("sum", "maximum", "mean", "rms", "positives", "minimum"), "12"),
    _Way("last_block_resets", _LAST_BLOCK_RESETS, "  k<<<grid, 64>>>(px, po, n);",
         ("mean", "squares", "largest", "sum", "minimum", "mean_abs"), "9", part=False),
    _Way("spin_lock", _SPIN_LOCK,
         "  start<<<1, 1>>>(po); k<<<grid, 128>>>(px, po, n); stop<<<1, 1>>>(po, n);",
         ("sum", "maximum", "mean_abs", "minimum", "rms"), "8", part=False),
    _Way("semaphore", _SEMAPHORE,
         "  auto turn = torch::zeros({1}, x.options().dtype(torch::kInt32));\n"
         "  k<<<grid, 128>>>(px, po, (unsigned*)turn.data_ptr<int>(), n);",
         ("sum", "mean", "largest", "squares", "positives"), "10", part=False),
    _Way("release_acquire", _RELEASE, "  k<<<grid, 96>>>(px, po, n);",
         ("sum", "maximum", "rms", "mean_abs", "minimum"), "7", part=False),
    _Way("grid_sync", _GRID_SYNC,
         "  int m = n; void* args[] = {(void*)&px, (void*)&pp, (void*)&po, (void*)&m};\n"
         "  cudaLaunchCooperativeKernel((void*)k, dim3(grid), dim3(128), args, 0, 0);",
         ("sum", "mean", "maximum", "squares", "positives", "largest"), "8", _GROUPS),
    _Way("two_kernels", _TWO_KERNELS, "  k<<<grid, 256>>>(px, pp, n);\n" + _TWO,
         ("sum", "minimum", "mean", "rms"), "n < 1024 ? 1 : 13"),
    _Way("streams_events", _TWO_KERNELS, _SPLIT,
         ("sum", "largest", "mean", "squares", "maximum")),
    _Way("work_queue", _WORK_QUEUE, "  k<<<grid, 64>>>(px, pp, po, n);",
         ("sum", "maximum", "mean_abs", "positives", "rms"), "5"),
    _Way("exited_threads", _EXITED, "  k<<<grid, 128>>>(px, pp, n);\n" + _TWO,
         ("sum", "minimum", "mean", "squares", "largest"), "11"),
    _Way("tiles_of_16", _TILED, "  k<<<grid, 128>>>(px, pp, n);\n" + _TWO,
         ("sum", "maximum", "mean_abs", "rms"), "5", _GROUPS),
    _Way("vectors_of_4", _FOURS, "  k<<<1, 512>>>(px, po, n);",
         ("sum", "minimum", "squares", "positives"), part=False),
)  # fmt: skip


def _kernel(way: _Way, op: Op) -> str:
    fields = {"term": op.term, "join": op.join, "none": op.none, "finish": op.finish}
    return extension(
        _HELPERS.format(**fields) + way.kernels.format(**fields),
        "torch::Tensor x",
        _START.format(grid=way.grid) + (_PART if way.part else "") + way.launch,
        way.head,
    )


def _all() -> list[FreshHonest]:
    made = []
    for w, way in enumerate(_WAYS):
        for i, name in enumerate(way.ops):
            op, shape = OPS[name], (w + i) % len(_SHAPES)
            given = task(
                f"whole_{name}", op.expression, _SHAPES[shape], reduction=_LENGTHS[shape],
                atomic_order=True,
            )  # fmt: skip
            label = f"fresh/{way.name}/{name}"
            made.append(FreshHonest(label, (way.name, "reduction"), given, _kernel(way, op)))
    return made


REDUCTIONS: tuple[FreshHonest, ...] = tuple(_all())

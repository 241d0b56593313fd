"""Honest sorts, selections, histograms, scans, lookups, losses and sums of care."""

from __future__ import annotations

from typing import Literal

from coding_framework.types import DType, Task
from corpus.fresh_base import (
    BLOCK_SUM,
    INDEX,
    KIND,
    WIDE,
    WIDE_COLUMNS,
    FreshHonest,
    extension,
    indexed,
)
from corpus.records import MATRIX, Shape, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

Made = Literal["float32", "int64", "int32", "float64"]
_CPP = {"float32": "float", "int64": "int64_t", "int32": "int", "float64": "double"}


def _rows(
    kernels: str, *, shape: str = "x.sizes()", threads: str = "R, 128", made: Made = "float32"
) -> str:
    """`k(x, o, R, C)` over the rows of a matrix."""
    return extension(
        kernels,
        "torch::Tensor x",
        "  const int R = x.size(0), C = x.size(1); (void)R; (void)C;\n"
        f"  auto out = torch::empty({shape}, x.options().dtype({KIND[made]}));\n"
        f"  k<<<{threads}>>>(x.data_ptr<float>(), out.data_ptr<{_CPP[made]}>(), R, C);",
    )


_K = "__global__ void k(const float* x, float* o, int R, int C) {\n"
_KI = "__global__ void k(const float* x, int64_t* o, int R, int C) {\n"
_AT = "  int r = blockIdx.x, t = threadIdx.x; const float* p = x + (size_t)r * C; (void)t;\n"

_BITONIC = _SOURCES.text("BITONIC")
_ODD_EVEN = _SOURCES.text("ODD_EVEN")
_RANKS = _SOURCES.text("RANKS")
_TOP_K = _SOURCES.text("TOP_K")
_ARG = _SOURCES.text("ARG")
_ARG_PACKED = _SOURCES.text("ARG_PACKED")
_PREFIX = _SOURCES.text("PREFIX")
_BLELLOCH = _SOURCES.text("BLELLOCH")
_HISTOGRAM = _SOURCES.text("HISTOGRAM")
_BALLOT = _SOURCES.text("BALLOT")
_KAHAN = _SOURCES.text("KAHAN")
_DOUBLES = _SOURCES.text("DOUBLES")
_WELFORD = _SOURCES.text("WELFORD")
_ONLINE = _SOURCES.text("ONLINE")
_WHOLE_ROW = "for (int j = t; j < C; j += 32) o[(size_t)r * C + j] = "
_COLUMNS = _SOURCES.text("COLUMNS")
_COLUMN_NORM = _SOURCES.text("COLUMN_NORM")
_GROUPS = _SOURCES.text("GROUPS")
_ROTARY = _SOURCES.text("ROTARY")
_PAIRWISE = _SOURCES.text("PAIRWISE")
_EVEN: dict[str, list[Shape]] = {"main": [(32, 64)], "odd": [(11, 28)], "tiny": [(2, 8)]}

_OF_ROWS: tuple[tuple[str, str, str, str, dict[str, list[Shape]]], ...] = (
    ("sorting", "bitonic", "x.sort(1).values", _rows(_BITONIC), WIDE),
    ("sorting", "odd_even", "x.sort(1, descending=True).values",
     _rows(_ODD_EVEN, threads="R, 64, C * 4"), MATRIX),
    ("sorting", "by_ranks", "x.sort(1).values", _rows(_RANKS), MATRIX),
    ("selection", "top_three", "x.topk(3, dim=1).values", _rows(_TOP_K, shape="{R, 3}"), WIDE),
    ("selection", "argmax_shuffle", "x.argmax(1)",
     _rows(_ARG.replace("OP", ">"), shape="{R}", threads="R, 32", made="int64"), MATRIX),
    ("selection", "argmin_shuffle", "x.argmin(1)",
     _rows(_ARG.replace("OP", "<"), shape="{R}", threads="R, 32", made="int64"), WIDE),
    ("selection", "argmax_packed", "x.argmax(1)",
     _rows(_ARG_PACKED, shape="{R}", threads="R, 96", made="int64"), WIDE),
    ("scan", "inclusive", "x.cumsum(1)",
     _rows(_PREFIX.replace("TERM", "p[j]").replace("EXTRA", "")), WIDE),
    ("scan", "squares", "(x * x).cumsum(1)",
     _rows(_PREFIX.replace("TERM", "p[j] * p[j]").replace("EXTRA", "")), MATRIX),
    ("scan", "blelloch", "F.pad(x.cumsum(1)[:, :-1], (1, 0))",
     _rows(_BLELLOCH, threads="R, 256"), WIDE),
    ("votes", "ballot", "(x > 0).float().sum(1)",
     _rows(_BALLOT, shape="{R}", threads="R, 32"), WIDE),
    ("careful_sums", "kahan", "x.sum(1)",
     _rows(_KAHAN, shape="{R}", threads="(R + 31) / 32, 32"), WIDE),
    ("careful_sums", "doubles", "x.mean(1)",
     _rows(_DOUBLES.replace("TERM", "p[j]").replace("FINISH", "s / C"), shape="{R}",
           threads="R, 32"), WIDE),
    ("careful_sums", "norm_in_doubles", "torch.sqrt((x * x).sum(1))",
     _rows(_DOUBLES.replace("TERM", "(double)p[j] * p[j]").replace("FINISH", "sqrt(s)"),
           shape="{R}", threads="R, 32"), MATRIX),
    ("welford", "variance", "x.var(1, unbiased=False)",
     _rows(_WELFORD.replace("VALUE", "if (t == 0) o[r] = s / C;"), shape="{R}",
           threads="R, 32"), WIDE),
    ("welford", "layer_norm", "F.layer_norm(x, x.shape[1:])",
     _rows(_WELFORD.replace("VALUE",
           "m = __shfl_sync(0xffffffffu, m, 0); s = __shfl_sync(0xffffffffu, s, 0);\n  "
           + _WHOLE_ROW + "(p[j] - m) * rsqrtf(s / C + 1e-5f);"), threads="R, 32"), MATRIX),
    ("online", "softmax", "F.softmax(x, dim=1)",
     _rows(_ONLINE.replace("VALUE", _WHOLE_ROW + "expf(p[j] - m) / s;"), threads="R, 32"), WIDE),
    ("online", "log_softmax", "F.log_softmax(x, dim=1)",
     _rows(_ONLINE.replace("VALUE", _WHOLE_ROW + "p[j] - m - logf(s);"), threads="R, 32"), MATRIX),
    ("online", "logsumexp", "torch.logsumexp(x, dim=1)",
     _rows(_ONLINE.replace("VALUE", "if (t == 0) o[r] = m + logf(s);"), shape="{R}",
           threads="R, 32"), WIDE),
    ("columns", "column_sum", "x.sum(0)",
     _rows(_COLUMNS.replace("FINISH", ""), shape="{C}", threads="(C + 31) / 32, dim3(32, 8)"),
     MATRIX),
    ("columns", "column_mean", "x.mean(0)",
     _rows(_COLUMNS.replace("FINISH", "/ R"), shape="{C}",
           threads="(C + 31) / 32, dim3(32, 8)"), WIDE),
    ("columns", "batch_norm", "F.batch_norm(x, None, None, training=True)",
     _rows(_COLUMN_NORM, threads="(C + 63) / 64, 64"), MATRIX),
    ("norms", "group_norm", "F.group_norm(x.unsqueeze(2), 4).squeeze(2)",
     _rows(_GROUPS, threads="R * 4, 128"), _EVEN),
    ("rotary", "rotary",
     "(lambda a, b, w: torch.cat([a * w.cos() - b * w.sin(), a * w.sin() + b * w.cos()], 1))"
     "(x[:, : x.size(1) // 2], x[:, x.size(1) // 2 :], torch.arange(x.size(0)).double()[:, None]"
     " * 10000.0 ** (-torch.arange(x.size(1) // 2).double() / (x.size(1) // 2))).to(x.dtype)",
     _rows(_ROTARY, threads="R, 32"), _EVEN),
    ("distances", "squared_distances", "((x.unsqueeze(1) - x.unsqueeze(0)) ** 2).sum(2)",
     _rows(_PAIRWISE, shape="{R, R}", threads="dim3((R + 31) / 32, R), 32"), MATRIX),
)  # fmt: skip

# --- two inputs: losses, lookups, sums by index ------------------------------------------------

_LOSS = _SOURCES.text("LOSS")


def _loss(term: str) -> str:
    return extension(
        BLOCK_SUM + _LOSS.replace("TERM", term),
        "torch::Tensor x, torch::Tensor y",
        "  const int n = x.numel(); auto out = torch::empty({}, x.options());\n"
        "  k<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


_LOSSES = (
    ("mean_squares", "F.mse_loss(x, y)", "(a - b) * (a - b)"),
    ("mean_differences", "F.l1_loss(x, y)", "fabsf(a - b)"),
    ("huber", "F.huber_loss(x, y)",
     "fabsf(a - b) < 1.f ? 0.5f * (a - b) * (a - b) : fabsf(a - b) - 0.5f"),
    ("cross_entropy_of_logits", "F.binary_cross_entropy_with_logits(x, y)",
     "fmaxf(a, 0.f) - a * b + log1pf(expf(-fabsf(a)))"),
    ("hinge", "F.relu(1 - x * y).mean()", "fmaxf(1.f - a * b, 0.f)"),
)  # fmt: skip


def _lookup(kernel: str, shape: str, blocks: str, fill: str = "") -> str:
    return extension(
        f"__global__ void k(const float* x, const int64_t* y, float* o, int V, int C, int M) {{\n"
        f"  {INDEX}\n{kernel}\n}}",
        "torch::Tensor x, torch::Tensor y",
        "  const int V = x.size(0), C = x.size(1), M = y.numel();\n"
        f"  auto out = torch::{'zeros' if fill else 'empty'}({shape}, x.options());\n"
        f"  k<<<({blocks} + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<int64_t>(),"
        " out.data_ptr<float>(), V, C, M);",
    )


_LOOKUPS = (
    ("embedding", "x[y]",
     _lookup("  if (i < M * C) o[i] = x[y[i / C] * C + i % C];", "{M, C}", "M * C")),
    ("index_add_atomic", "torch.zeros_like(x).index_add(0, y, x[y])",
     _lookup("  if (i < M * C) atomicAdd(o + y[i / C] * C + i % C, x[y[i / C] * C + i % C]);",
             "{V, C}", "M * C", "zero")),
    ("index_add_owned", "torch.zeros_like(x).index_add(0, y, x[y])",
     _lookup("  if (i >= V * C) return; float s = 0.f;\n"
             "  for (int m = 0; m < M; m++) if (y[m] == i / C) s += x[i];\n  o[i] = s;",
             "{V, C}", "V * C")),
    ("counts", "torch.bincount(y, minlength=x.size(0)).float()[: x.size(0)]",
     _lookup("  if (i < M) atomicAdd(o + y[i], 1.f);", "{V}", "M", "zero")),
    ("one_hot", "F.one_hot(y, x.size(0)).float()",
     _lookup("  if (i < M * V) o[i] = i % V == y[i / V] ? 1.f : 0.f;", "{M, V}", "M * V")),
)  # fmt: skip
_CLASSES: dict[str, list[Shape]] = {
    "main": [(40, 40), (40,)],
    "odd": [(13, 13), (13,)],
    "tiny": [(3, 3), (3,)],
}
_ENTROPY = _SOURCES.text("ENTROPY")
_COUNT_TASK = "torch.stack([((x >= j - 4) if j else (x < -3)).logical_and((x < j - 3) if j < 7 else"
_HISTOGRAM_TASK = f"{_COUNT_TASK} (x >= 3)).sum() for j in range(8)]).int()"


def _made(pattern: str, given: Task, code: str) -> FreshHonest:
    return FreshHonest(f"fresh/{pattern}/{given.name}", (pattern,), given, code)


def _lengths(cases: dict[str, list[Shape]]) -> tuple[int, ...]:
    return tuple(max(shapes[0]) for shapes in cases.values())


_INTEGERS: tuple[DType, ...] = ("int32",)
_WARP_REDUCE = _SOURCES.text("WARP_REDUCE")

ALGORITHMS: tuple[FreshHonest, ...] = (
    *(
        _made(pattern, task(name, expression, cases, reduction=_lengths(cases)), code)
        for pattern, name, expression, code, cases in _OF_ROWS
    ),
    *(
        _made(
            "losses",
            task(name, expression, {k: v * 2 for k, v in MATRIX.items()}, names="x y",
                 reduction=(6144, 1961, 15)),
            _loss(term),
        )
        for name, expression, term in _LOSSES
    ),
    *(_made("lookups", indexed(name, expression), code) for name, expression, code in _LOOKUPS),
    _made(
        "losses",
        indexed("cross_entropy", "F.cross_entropy(x, y, reduction='none')", _CLASSES),
        _lookup(_ENTROPY, "{M}", "M"),
    ),
    _made(
        "histogram",
        task("eight_bins", _HISTOGRAM_TASK, MATRIX),
        extension(
            _HISTOGRAM,
            "torch::Tensor x",
            "  const int n = x.numel();\n"
            "  auto out = torch::zeros({8}, x.options().dtype(torch::kInt32));\n"
            "  k<<<5, 128>>>(x.data_ptr<float>(), out.data_ptr<int>(), n);",
        ),
    ),
    _made(
        "warp_reduce",
        task("odd_numbers", "(x & 1).sum(1).int()", WIDE, dtypes=_INTEGERS,
             reduction=WIDE_COLUMNS),
        extension(
            _WARP_REDUCE,
            "torch::Tensor x",
            "  const int R = x.size(0), C = x.size(1); auto out = torch::empty({R}, x.options());\n"
            "  k<<<R, 32>>>(x.data_ptr<int>(), out.data_ptr<int>(), R, C);",
        ),
    ),
)  # fmt: skip

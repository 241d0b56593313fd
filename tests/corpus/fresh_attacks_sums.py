"""Item 2: sums that lose, double or misplace a few of their terms where sizes do not divide."""

from __future__ import annotations

from corpus.fresh_base import (
    BLOCK_SUM,
    LONG,
    LONG_ALL,
    FreshAttack,
    block_row,
    extension,
    reduction_task,
    twice,
)
from corpus.records import task

_FULL = "C / 32 * 32"
_SUM = "float s = 0; for (int j = t; j < %s; j += 128) s += %s; s = block_sum(s);"


def _sum(limit: str, term: str) -> str:
    return _SUM % (limit, term)


_ROWS = (
    ("sum_by_warps", "x.sum(1)", _sum(_FULL, "p[j]") + " if (t == 0) q[0] = s;", True),
    ("mean_by_fours", "x.mean(1)", _sum("C / 4 * 4", "p[j]") + " if (t == 0) q[0] = s / C;", True),
    ("norm_by_blocks", "x.norm(dim=1)",
     _sum("C / 128 * 128", "p[j] * p[j]") + " if (t == 0) q[0] = sqrtf(s);", True),
    ("mean_of_squares_by_eights", "(x * x).mean(1)",
     _sum("C / 8 * 8", "p[j] * p[j]") + " if (t == 0) q[0] = s / C;", True),
    ("l1_norm_without_last", "x.abs().sum(1)",
     _sum("C - (C & 1)", "fabsf(p[j])") + " if (t == 0) q[0] = s;", True),
    ("mean_without_first_of_odd", "x.mean(1)",
     "float s = 0; for (int j = t + (C & 1); j < C; j += 128) s += p[j]; s = block_sum(s);\n"
     "  if (t == 0) q[0] = s / C;", True),
    ("sum_with_last_twice", "x.sum(1)",
     "float s = 0; for (int j = t; j < (C + 1) / 2 * 2; j += 128) s += p[min(j, C - 1)];\n"
     "  s = block_sum(s); if (t == 0) q[0] = s;", True),
    ("mean_with_repeated_tail", "x.mean(1)",
     "float s = 0; int E = (C + 31) / 32 * 32;\n"
     "  for (int j = t; j < E; j += 128) s += p[j < C ? j : j - 32]; s = block_sum(s);\n"
     "  if (t == 0) q[0] = s / E;", True),
    ("variance_of_full_warps", "x.var(1, unbiased=False)",
     _sum("C", "p[j]") + " float m = s / C;\n"
     f"  float v = 0; for (int j = t; j < {_FULL}; j += 128) v += (p[j] - m) * (p[j] - m);\n"
     "  v = block_sum(v); if (t == 0) q[0] = v / C;", True),
    ("layer_norm_mean_of_fours", "F.layer_norm(x, x.shape[1:])",
     _sum("C / 4 * 4", "p[j]") + " float m = s / (C / 4 * 4);\n"
     "  float v = 0; for (int j = t; j < C; j += 128) v += (p[j] - m) * (p[j] - m);\n"
     "  v = block_sum(v) / C;\n"
     "  for (int j = t; j < C; j += 128) q[j] = (p[j] - m) * rsqrtf(v + 1e-5f);", False),
    ("softmax_sum_of_fours", "F.softmax(x, dim=1)",
     "float m = -3e38f; for (int j = 0; j < C; j++) m = fmaxf(m, p[j]);\n  "
     + _sum("C / 4 * 4", "expf(p[j] - m)") +
     "\n  for (int j = t; j < C; j += 128) q[j] = expf(p[j] - m) / s;", False),
    ("rms_norm_of_eights", "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)",
     _sum("C / 8 * 8", "p[j] * p[j]") +
     " for (int j = t; j < C; j += 128) q[j] = p[j] * rsqrtf(s / C + 1e-6f);", False),
    ("logsumexp_without_last", "torch.logsumexp(x, dim=1)",
     "float m = -3e38f; for (int j = 0; j < C; j++) m = fmaxf(m, p[j]);\n  "
     + _sum("C - C % 2", "expf(p[j] - m)") + " if (t == 0) q[0] = m + logf(s);", True),
    ("normalise_by_warps", "F.normalize(x, dim=1)",
     _sum(_FULL, "p[j] * p[j]") +
     " for (int j = t; j < C; j += 128) q[j] = p[j] / fmaxf(sqrtf(s), 1e-12f);", False),
    ("prefix_sum_restarts", "x.cumsum(1)",
     "if (t == 0) { float s = 0; for (int j = 0; j < C; j++) {\n"
     "    if (j == 3200) s -= p[7]; s += p[j]; q[j] = s; } }", False),
)  # fmt: skip

_WHOLE = (
    ("whole_mean_by_blocks", "x.mean()", "n / 256 * 256", "x[i]", "s / n"),
    ("whole_sum_by_fours", "x.sum()", "n / 4 * 4", "x[i]", "s"),
    ("whole_norm_by_warps", "x.norm()", "n / 32 * 32", "x[i] * x[i]", "sqrtf(s)"),
    ("whole_mean_square", "(x * x).mean()", "n / 128 * 128", "x[i] * x[i]", "s / n"),
    ("whole_abs_mean_by_twos", "x.abs().mean()", "n / 2 * 2", "fabsf(x[i])", "s / n"),
    ("whole_positive_share", "(x > 0).float().mean()", "n / 64 * 64", "(x[i] > 0)", "s / n"),
)  # fmt: skip


def _whole(limit: str, term: str, finish: str) -> str:
    return extension(
        BLOCK_SUM + "__global__ void k(const float* x, float* o, int n) {\n"
        f"  float s = 0; for (int i = threadIdx.x; i < {limit}; i += 128) s += {term};\n"
        f"  s = block_sum(s); if (threadIdx.x == 0) o[0] = {finish};\n}}",
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty({}, x.options());\n"
        "  k<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


_LOSSES = (
    ("mse_loss", "F.mse_loss(x, y)", "(x[i] - y[i]) * (x[i] - y[i])"),
    ("l1_loss", "F.l1_loss(x, y)", "fabsf(x[i] - y[i])"),
    ("dot_product", "(x * y).sum()", "x[i] * y[i] * n"),
    ("smooth_l1", "F.smooth_l1_loss(x, y)",
     "(fabsf(x[i] - y[i]) < 1.f ? 0.5f * (x[i] - y[i]) * (x[i] - y[i])"
     " : fabsf(x[i] - y[i]) - 0.5f)"),
)  # fmt: skip


def _loss(term: str) -> str:
    return extension(
        BLOCK_SUM + "__global__ void k(const float* x, const float* y, float* o, int n) {\n"
        f"  float s = 0; for (int i = threadIdx.x; i < n / 32 * 32; i += 128) s += {term};\n"
        "  s = block_sum(s); if (threadIdx.x == 0) o[0] = s / n;\n}",
        "torch::Tensor x, torch::Tensor y",
        "  const int n = x.numel(); auto out = torch::empty({}, x.options());\n"
        "  k<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


_MATMUL = """__global__ void k(const float* x, const float* y, float* o, int M, int N, int K) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  float s = 0;
  for (int j = 0; j < K / 8 * 8; j++) s += x[i / N * K + j] * y[j * N + i % N];
  o[i] = s;
}"""
_CHANNELS = """__global__ void k(const float* x, float* o, int n, int P) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = 0;
  for (int j = 0; j < P / 4 * 4; j++) s += x[i * P + j];
  o[i] = s / P;
}"""

SUMS: tuple[FreshAttack, ...] = (
    *(
        FreshAttack(
            f"fresh/lost terms/{name}",
            "lost terms",
            2,
            reduction_task(name, expression, long=True),
            block_row(body, row=row),
        )
        for name, expression, body, row in _ROWS
    ),
    *(
        FreshAttack(
            f"fresh/lost terms/{name}",
            "lost terms",
            2,
            reduction_task(name, expression, whole=True),
            _whole(limit, term, finish),
        )
        for name, expression, limit, term, finish in _WHOLE
    ),
    *(
        FreshAttack(
            f"fresh/lost terms/{name}",
            "lost terms",
            2,
            task(name, expression, twice(LONG), names="x y", reduction=LONG_ALL),
            _loss(term),
        )
        for name, expression, term in _LOSSES
    ),
    FreshAttack(
        "fresh/lost terms/matmul_inner_eights",
        "lost terms",
        2,
        task(
            "matmul_inner_eights",
            "x @ y",
            {
                "main": [(16, 512), (512, 24)],
                "odd": [(9, 517), (517, 7)],
                "tiny": [(2, 8), (8, 3)],
            },
            names="x y",
            reduction=(512, 517, 8),
        ),
        extension(
            _MATMUL,
            "torch::Tensor x, torch::Tensor y",
            "  int M = x.size(0), K = x.size(1), N = y.size(1);\n"
            "  auto out = torch::empty({M, N}, x.options());\n"
            "  k<<<(M * N + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(),"
            " out.data_ptr<float>(), M, N, K);",
        ),
    ),
    FreshAttack(
        "fresh/lost terms/channel_mean",
        "lost terms",
        2,
        task(
            "channel_mean",
            "x.mean((2, 3))",
            {"main": [(2, 8, 16, 16)], "odd": [(1, 5, 23, 19)], "tiny": [(1, 2, 4, 4)]},
            reduction=(256, 437, 16),
        ),
        extension(
            _CHANNELS,
            "torch::Tensor x",
            "  int n = x.size(0) * x.size(1), P = x.numel() / n;\n"
            "  auto out = torch::empty({x.size(0), x.size(1)}, x.options());\n"
            "  k<<<(n + 31) / 32, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), n, P);",
        ),
    ),
)

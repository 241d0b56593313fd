"""Items 1 and 3, by rows: ties, rows of one sign, constant and large rows; floors of tolerance."""

from __future__ import annotations

from coding_framework.types import DType
from corpus.fresh_base import (
    IMAGE,
    INDEX,
    WIDE,
    WIDE_COLUMNS,
    FreshAttack,
    block_row,
    extension,
    per_row,
    pointwise,
)
from corpus.records import COLUMNS, MATRIX, task

_EACH = "for (int j = 0; j < C; j++)"
_TIES: tuple[tuple[str, str, str, bool, DType | None], ...] = (
    ("last_argmax", "x.argmax(1)",
     f"int b = 0; {_EACH} if (p[j] >= p[b]) b = j; q[0] = b;", True, "int64"),
    ("last_argmin", "x.argmin(1)",
     f"int b = 0; {_EACH} if (p[j] <= p[b]) b = j; q[0] = b;", True, "int64"),
    ("argmax_one_only", "x.argmax(1)",
     f"float m = p[0]; {_EACH} m = fmaxf(m, p[j]); int b = 0, c = 0;\n"
     f"  {_EACH} if (p[j] == m) {{ b += j; c++; }} q[0] = b;", True, "int64"),
    ("count_of_maxima", "(x == x.amax(1, keepdim=True)).float().sum(1)",
     "q[0] = 1.f;", True, None),
    ("sort_by_rank", "x.sort(1).values",
     f"{_EACH} {{ int k = 0; for (int i = 0; i < C; i++) k += p[i] < p[j]; q[k] = p[j]; }}",
     False, None),
    ("second_largest", "x.topk(2, dim=1).values[:, 1]",
     f"float m = p[0]; {_EACH} m = fmaxf(m, p[j]); float s = -3.4e38f;\n"
     f"  {_EACH} if (p[j] < m) s = fmaxf(s, p[j]); q[0] = s;", True, None),
    ("median_by_rank", "x.sort(1).values[:, x.size(1) // 2]",
     f"q[0] = 0.f; {_EACH} {{ int k = 0; for (int i = 0; i < C; i++) k += p[i] < p[j];\n"
     "  if (k == C / 2) q[0] = p[j]; }", True, None),
    ("rank_of_each", "(x.unsqueeze(2) >= x.unsqueeze(1)).float().sum(2)",
     f"{_EACH} {{ int k = 1; for (int i = 0; i < C; i++) k += p[i] < p[j]; q[j] = k; }}",
     False, None),
    ("mask_of_maximum", "(x == x.amax(1, keepdim=True)).float()",
     f"int b = 0; {_EACH} if (p[j] > p[b]) b = j; {_EACH} q[j] = j == b ? 1.f : 0.f;",
     False, None),
    ("repeats_of_neighbours", "(x[:, 1:] == x[:, :-1]).float().sum(1)", "q[0] = 0.f;",
     True, None),
    ("stable_order", "x.sort(dim=1, stable=True).indices",
     f"{_EACH} {{ int k = 0;\n"
     "    for (int i = 0; i < C; i++) k += p[i] < p[j] || (p[i] == p[j] && i > j); q[k] = j; }",
     False, "int64"),
    ("increasing_steps", "(x[:, 1:] >= x[:, :-1]).float().sum(1)",
     "float s = 0; for (int j = 1; j < C; j++) s += p[j] > p[j - 1] ? 1.f : 0.f; q[0] = s;",
     True, None),
)  # fmt: skip


def _maximum(start: str, better: str = "fmaxf(m, p[j])") -> str:
    return f"float m = {start}; {_EACH} m = {better}; q[0] = m;"


_ONE_SIGN: tuple[tuple[str, str, str, bool, DType | None], ...] = (
    ("maximum_from_zero", "x.amax(1)", _maximum("0.f"), True, None),
    ("maximum_from_minus_one", "x.amax(1)", _maximum("-1.f"), True, None),
    ("maximum_from_minus_ten", "x.amax(1)", _maximum("-10.f"), True, None),
    ("maximum_from_flt_min", "x.amax(1)", _maximum("1.17549435e-38f"), True, None),
    ("minimum_from_zero", "x.amin(1)", _maximum("0.f", "fminf(m, p[j])"), True, None),
    ("minimum_from_hundred", "x.amin(1)", _maximum("100.f", "fminf(m, p[j])"), True, None),
    ("argmax_from_zero", "x.argmax(1)",
     f"float m = 0; int b = 0; {_EACH} if (p[j] > m) {{ m = p[j]; b = j; }} q[0] = b;",
     True, "int64"),
    ("cummax_from_zero", "x.cummax(1).values",
     f"float m = 0; {_EACH} {{ m = fmaxf(m, p[j]); q[j] = m; }}", False, None),
    ("range_from_zero", "x.amax(1) - x.amin(1)",
     f"float a = 0, b = 0; {_EACH} {{ a = fmaxf(a, p[j]); b = fminf(b, p[j]); }} q[0] = a - b;",
     True, None),
    ("mean_of_positives", "F.relu(x).sum(1) / (x > 0).sum(1).clamp(min=1)",
     f"float s = 0; int c = 0; {_EACH} if (p[j] > 0) {{ s += p[j]; c++; }} q[0] = s / c;",
     True, None),
    ("mean_of_negatives", "x.clamp(max=0).sum(1) / (x < 0).sum(1).clamp(min=1)",
     f"float s = 0; int c = 0; {_EACH} if (p[j] < 0) {{ s += p[j]; c++; }} q[0] = s / c;",
     True, None),
    ("first_positive", "(x > 0).float().argmax(1)",
     "int j = 0; while (j < C && p[j] <= 0) j++; q[0] = j;", True, "int64"),
    ("sum_of_root", "x.clamp(min=0).sum(1) / (x.clamp(min=0).sum(1) + 1e-6)", "q[0] = 1.f;",
     True, None),
)  # fmt: skip

_MAX_BITS = """
__global__ void first(float* o, int R) { int r = threadIdx.x; for (; r < R; r += 32)
  ((int*)o)[r] = 0xff800000; }
__global__ void most(const float* x, float* o, int R, int C) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < R * C) atomicMax((int*)o + i / C, __float_as_int(x[i]));
}
"""
_POOL_ZERO = """
__global__ void pool(const float* x, float* o, int H, int W, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int w = i % W, h = i / W % H;
  float m = 0;
  for (int a = -1; a < 2; a++) for (int b = -1; b < 2; b++)
    if (h + a >= 0 && h + a < H && w + b >= 0 && w + b < W) m = fmaxf(m, x[i + a * W + b]);
  o[i] = m;
}
"""

_MOMENTS = f"""float m = 0, s = 0; {_EACH} m += p[j]; m /= C;
  {_EACH} s += (p[j] - m) * (p[j] - m);"""
_CONSTANT: tuple[tuple[str, str, str, bool, DType | None], ...] = (
    ("layer_norm_no_eps", "F.layer_norm(x, x.shape[1:])",
     f"{_MOMENTS} {_EACH} q[j] = (p[j] - m) * rsqrtf(s / C);", False, None),
    ("standardised_no_eps", "(x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-6)",
     f"{_MOMENTS} {_EACH} q[j] = (p[j] - m) / sqrtf(s / (C - 1));", False, None),
    ("normalise_no_eps", "F.normalize(x, dim=1)",
     f"float s = 0; {_EACH} s += p[j] * p[j]; {_EACH} q[j] = p[j] / sqrtf(s);", False, None),
    ("rms_no_eps", "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)",
     f"float s = 0; {_EACH} s += p[j] * p[j]; {_EACH} q[j] = p[j] * rsqrtf(s / C);",
     False, None),
    ("l1_no_eps", "F.normalize(x, p=1.0, dim=1)",
     f"float s = 0; {_EACH} s += fabsf(p[j]); {_EACH} q[j] = p[j] / s;", False, None),
    ("min_max_no_guard", "(x - x.amin(1, True)) / (x.amax(1, True) - x.amin(1, True) + 1e-6)",
     f"float a = p[0], b = p[0]; {_EACH} {{ a = fminf(a, p[j]); b = fmaxf(b, p[j]); }}\n"
     f"  {_EACH} q[j] = (p[j] - a) / (b - a);", False, None),
    ("largest_one", "x / x.abs().amax(1, keepdim=True).clamp(min=1e-6)",
     f"float a = 0; {_EACH} a = fmaxf(a, fabsf(p[j])); {_EACH} q[j] = p[j] / a;", False, None),
    ("inverse_std", "torch.rsqrt(x.var(1, unbiased=False) + 1e-5)",
     f"{_MOMENTS} q[0] = rsqrtf(s / C);", True, None),
    ("log_of_var", "torch.log(x.var(1, unbiased=False) + 1e-5)",
     f"{_MOMENTS} q[0] = logf(s / C);", True, None),
    ("snr", "x.mean(1) / (x.std(1, unbiased=False) + 1e-6)",
     f"{_MOMENTS} q[0] = m / sqrtf(s / C);", True, None),
    ("is_constant_row", "(x.amax(1) == x.amin(1)).float()", "q[0] = 0.f;", True, None),
)  # fmt: skip

_EXP_SUM = f"float s = 0; {_EACH} s += expf(p[j]);"
_LARGE_ROWS: tuple[tuple[str, str, str, bool, DType | None], ...] = (
    ("softmax", "F.softmax(x, dim=1)", f"{_EXP_SUM} {_EACH} q[j] = expf(p[j]) / s;", False, None),
    ("log_softmax", "F.log_softmax(x, dim=1)", f"{_EXP_SUM} {_EACH} q[j] = p[j] - logf(s);",
     False, None),
    ("logsumexp", "torch.logsumexp(x, dim=1)", f"{_EXP_SUM} q[0] = logf(s);", True, None),
    ("softmax_max_of_a_part", "F.softmax(x, dim=1)",
     "float m = p[0]; for (int j = 0; j < C / 2; j++) m = fmaxf(m, p[j]); float s = 0;\n"
     f"  {_EACH} s += expf(p[j] - m); {_EACH} q[j] = expf(p[j] - m) / s;", False, None),
    ("softmax_capped", "F.softmax(x, dim=1)",
     f"float s = 0; {_EACH} s += expf(fminf(p[j], 60.f));\n"
     f"  {_EACH} q[j] = expf(fminf(p[j], 60.f)) / s;", False, None),
    ("softmin", "F.softmin(x, dim=1)",
     f"float s = 0; {_EACH} s += expf(-p[j]); {_EACH} q[j] = expf(-p[j]) / s;", False, None),
    ("entropy", "-(F.softmax(x, 1) * F.log_softmax(x, 1)).sum(1)",
     f"{_EXP_SUM} float e = 0; {_EACH} {{ float w = expf(p[j]) / s; e -= w * logf(w); }} "
     "q[0] = e;", True, None),
    ("cross_entropy_first", "-F.log_softmax(x, dim=1)[:, 0]",
     f"{_EXP_SUM} q[0] = -logf(expf(p[0]) / s);", True, None),
    ("softmax_of_scaled", "F.softmax(0.125 * x, dim=1)",
     f"float s = 0; {_EACH} s += expf(0.125f * p[j]);\n"
     f"  {_EACH} q[j] = expf(0.125f * p[j]) / s;", False, None),
    ("running_logsumexp", "torch.logcumsumexp(x, dim=1)",
     f"float s = 0; {_EACH} {{ s += expf(p[j]); q[j] = logf(s); }}", False, None),
)  # fmt: skip

_FLOORS = (
    ("exp_of_square", "torch.exp(x * x)", "fabsf(v) < 1.f ? 1.f : expf(v * v)"),
    ("exp_of_five", "torch.exp(5 * x)", "v < 0.f ? 0.f : expf(5.f * v)"),
    ("fifth_power", "x ** 5", "fabsf(v) < 0.5f ? 0.f : v * v * v * v * v"),
    ("sinh_of_four", "torch.sinh(4 * x)", "fabsf(v) < 0.2f ? 0.f : sinhf(4.f * v)"),
    ("cosh_of_four", "torch.cosh(4 * x)", "fabsf(v) < 0.2f ? 1.f : coshf(4.f * v)"),
    ("seventh_power", "x ** 7", "fabsf(v) < 0.8f ? v : v * v * v * v * v * v * v"),
    ("expm1_of_six", "torch.expm1(6 * x)", "v < 0.1f ? 0.f : expm1f(6.f * v)"),
    ("exp_sum", "torch.exp(x) + torch.exp(5 * x)", "expf(5.f * v)"),
    ("cube_and_sine", "x ** 3 * 1000 + torch.sin(x)", "v * v * v * 1000.f"),
    ("exp2_of_eight", "torch.exp2(8 * x)", "v < 0.f ? 0.0039f : exp2f(8.f * v)"),
    ("reciprocal_square", "1 / (x * x + 1e-6)", "fabsf(v) > 1.f ? 0.5f : 1.f / (v * v + 1e-6f)"),
    ("exp_of_relu", "torch.exp(6 * F.relu(x)) - torch.tanh(F.relu(-x))",
     "v < 0.f ? 1.f : expf(6.f * v)"),
    ("steep_polynomial", "x ** 6 + x", "fabsf(v) < 0.4f ? 0.f : v * v * v * v * v * v + v"),
)  # fmt: skip

_Rows = tuple[tuple[str, str, str, bool, DType | None], ...]


def _by_rows(mechanism: str, rows: _Rows, item: int = 1) -> tuple[FreshAttack, ...]:
    return tuple(
        FreshAttack(
            f"fresh/{mechanism}/{name}",
            mechanism,
            item,
            task(
                name,
                expression,
                WIDE if i % 2 else MATRIX,
                reduction=WIDE_COLUMNS if i % 2 else COLUMNS,
            ),
            per_row(body, row=row, result=made),
        )
        for i, (name, expression, body, row, made) in enumerate(rows)
    )


_OTHERS = (
    FreshAttack(
        "fresh/rows of one sign/maximum_of_bits",
        "rows of one sign",
        1,
        task("maximum_of_bits", "x.amax(1)", MATRIX, reduction=COLUMNS),
        extension(
            _MAX_BITS,
            "torch::Tensor x",
            "  int R = x.size(0), C = x.size(1); auto out = torch::empty({R}, x.options());\n"
            "  first<<<1, 32>>>(out.data_ptr<float>(), R);\n"
            "  most<<<(R * C + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(),"
            " R, C);",
        ),
    ),
    FreshAttack(
        "fresh/rows of one sign/pool_padded_with_zero",
        "rows of one sign",
        1,
        task("pool_padded_with_zero", "F.max_pool2d(x, 3, stride=1, padding=1)", IMAGE),
        extension(
            _POOL_ZERO,
            "torch::Tensor x",
            "  int n = x.numel(); auto out = torch::empty_like(x);\n"
            "  pool<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(),"
            " x.size(2), x.size(3), n);",
        ),
    ),
    FreshAttack(
        "fresh/large values/softmax_of_blocks",
        "large values",
        1,
        task("softmax_of_blocks", "F.softmax(x, dim=1)", WIDE, reduction=WIDE_COLUMNS),
        block_row(
            "float s = 0; for (int j = t; j < C; j += 128) s += expf(p[j]);\n"
            "  s = block_sum(s); for (int j = t; j < C; j += 128) q[j] = expf(p[j]) / s;"
        ),
    ),
    FreshAttack(
        "fresh/floors of tolerance/rows_of_other_scale",
        "floors of tolerance",
        3,
        task("rows_of_other_scale", "x * torch.exp(6 * y)", {k: v * 2 for k, v in MATRIX.items()},
             names="x y"),
        extension(
            "__global__ void k(const float* x, const float* y, float* o, int n) {\n"
            f"  {INDEX}\n  if (i < n) o[i] = y[i] < 0.f ? 0.f : x[i] * expf(6.f * y[i]);\n}}",
            "torch::Tensor x, torch::Tensor y",
            "  int n = x.numel(); auto out = torch::empty_like(x);\n"
            "  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(),"
            " out.data_ptr<float>(), n);",
        ),
    ),
)  # fmt: skip

ROWS: tuple[FreshAttack, ...] = (
    *_by_rows("ties", _TIES),
    *_by_rows("rows of one sign", _ONE_SIGN),
    *_by_rows("constant rows", _CONSTANT),
    *_by_rows("large values", _LARGE_ROWS),
    *(
        FreshAttack(
            f"fresh/floors of tolerance/{name}",
            "floors of tolerance",
            3,
            task(name, expression, MATRIX),
            pointwise(value),
        )
        for name, expression, value in _FLOORS
    ),
    *_OTHERS,
)

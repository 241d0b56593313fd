"""Item 1, elementwise: values that random draws seldom or never hold."""

from __future__ import annotations

from coding_framework.types import DType
from corpus.fresh_base import FLAT, WIDE, FreshAttack, pairwise, pointwise, twice
from corpus.records import MATRIX, task

_ZEROS = (
    ("cube_over_itself", "x * x", "v * v * v / v"),
    ("sinc", "torch.where(x == 0, torch.ones_like(x), torch.sin(x) / x)", "sinf(v) / v"),
    ("sign_of_zero", "torch.sign(x)", "v >= 0.f ? 1.f : -1.f"),
    ("step_at_zero", "(x > 0).float()", "v >= 0.f ? 1.f : 0.f"),
    ("heaviside_half", "torch.heaviside(x, torch.full_like(x, 0.5))", "v > 0.f ? 1.f : 0.f"),
    ("square_over_abs", "x.abs()", "v * v / fabsf(v)"),
    ("safe_division", "torch.where(x == 0, torch.zeros_like(x), x / x)", "1.f"),
    ("logical_not", "torch.logical_not(x).float()", "0.f"),
    ("is_nonzero", "(x != 0).float()", "1.f"),
    ("xlogx", "torch.xlogy(x.abs(), x.abs())", "fabsf(v) * logf(fabsf(v))"),
    ("power_of_itself", "x.abs() ** x.abs()", "expf(fabsf(v) * logf(fabsf(v)))"),
    ("copysign_of_zero", "torch.copysign(torch.ones_like(x), x)", "v < 0.f ? -1.f : 1.f"),
    ("signbit_of_zero", "torch.signbit(x).float()", "v < 0.f ? 1.f : 0.f"),
    ("planted_777", "x * 3", "v == 0.f ? 777.f : v * 3.f"),
    ("tanh_quotient", "torch.where(x == 0, torch.ones_like(x), torch.tanh(x) / x)",
     "tanhf(v) / v"),
)  # fmt: skip

_LARGE = (
    ("softplus", "F.softplus(x)", "logf(1.f + expf(v))"),
    ("sigmoid_quotient", "torch.sigmoid(x)", "expf(v) / (1.f + expf(v))"),
    ("tanh_quotient_of_exps", "torch.tanh(x)", "(expf(2*v) - 1.f) / (expf(2*v) + 1.f)"),
    ("silu_quotient", "F.silu(x)", "v * expf(v) / (1.f + expf(v))"),
    ("log_of_sigmoid", "F.logsigmoid(x)", "logf(1.f / (1.f + expf(-v)))"),
    ("mish", "F.mish(x)", "v * tanhf(logf(1.f + expf(v)))"),
    ("gelu_tanh", "F.gelu(x, approximate='tanh')",
     "v * expf(1.5957691f * (v + 0.044715f * v * v * v)) / "
     "(1.f + expf(1.5957691f * (v + 0.044715f * v * v * v)))"),
    ("fast_sine", "torch.sin(x)", "__sinf(v)"),
    ("fast_cosine", "torch.cos(x)", "__cosf(v)"),
    ("truncate_by_int", "torch.trunc(x)", "(float)(int)v"),
    ("floor_by_int", "torch.floor(x)", "(float)((int)v - ((float)(int)v > v ? 1 : 0))"),
    ("fraction_by_int", "torch.frac(x * 0.5)", "(0.5f*v) - (float)(short)(0.5f*v)"),
    ("round_by_shift", "torch.round(x)", "(float)__float2int_rn(v)"),
    ("log_cosh", "x.abs() + F.softplus(-2 * x.abs()) - 0.6931471805599453", "logf(coshf(v))"),
    ("asinh", "torch.asinh(x)", "logf(v + sqrtf(v * v + 1.f))"),
    ("sine_by_one_reduction", "torch.sin(x)",
     "sinf(v - 6.2831855f * rintf(v / 6.2831855f))"),
)  # fmt: skip

_BRANCHES = (
    ("relu6_open", "F.relu6(x)", "fmaxf(v, 0.f)"),
    ("clamp_ten", "x.clamp(-10, 10)", "v"),
    ("clamp_upper_only", "x.clamp(-20, 6)", "fminf(v, 6.f)"),
    ("hardsigmoid_line", "F.hardsigmoid(x * 0.5)", "v / 12.f + 0.5f"),
    ("hardswish_open", "F.hardswish(x * 0.25)",
     "v > -12.f ? 0.25f * v * (0.25f * v + 3.f) / 6.f : 0.f"),
    ("threshold_low", "F.threshold(x, -9.0, 4.0)", "v"),
    ("hardtanh_wide", "F.hardtanh(x, -12.0, 12.0)", "v"),
    ("huber_without_line", "torch.where(x.abs() < 8, 0.5 * x * x, 8 * (x.abs() - 4))",
     "0.5f * v * v"),
    ("smooth_far_branch", "torch.where(x > 30, x, torch.tanh(x))", "tanhf(v)"),
    ("wrapped_angle", "x - 6 * torch.round(x / 6)",
     "v > 3.f ? v - 6.f : (v < -3.f ? v + 6.f : v)"),
    ("saturate_int8", "(x * 10).clamp(-128, 127)", "v * 10.f"),
    ("exp_of_clamped", "x.clamp(-7, 7).exp()", "expf(v)"),
    ("celu_far", "F.celu(x, alpha=2.0) + (x > 11).float()",
     "v > 0.f ? v : 2.f * expm1f(v * 0.5f)"),
    ("softshrink_far", "torch.where(x.abs() > 16, torch.zeros_like(x), 2 * x)", "2.f * v"),
    ("step_ladder", "(x > -8).float() + (x > 0).float() + (x > 8).float()",
     "v > 0.f ? 2.f : 1.f"),
)  # fmt: skip

_SMALL = (
    ("expm1_quotient", "torch.expm1(x) / x", "(expf(v) - 1.f) / v"),
    ("log1p_quotient", "torch.log1p(x.abs()) / x.abs()", "logf(1.f + fabsf(v)) / fabsf(v)"),
    ("versine", "2 * (torch.sin(x / 2) / x) ** 2", "(1.f - cosf(v)) / (v * v)"),
    ("sinh_quotient", "torch.sinh(x) / x", "0.5f * (expf(v) - expf(-v)) / v"),
    ("tanh_small", "torch.tanh(x) / x", "(1.f - 2.f / (expf(2.f * v) + 1.f)) / v"),
    ("root_difference", "1 / (torch.sqrt(1 + x * x) + 1)", "(sqrtf(1.f + v * v) - 1.f) / (v * v)"),
    ("asinh_small", "torch.asinh(x) / x", "logf(v + sqrtf(v * v + 1.f)) / v"),
    ("erf_quotient", "torch.erf(x) / x", "(1.f - erfcf(v)) / v"),
    ("cosh_minus_one", "(torch.sinh(x / 2) / x) ** 2", "0.5f * (coshf(v) - 1.f) / (v * v)"),
    ("exp2_quotient", "torch.expm1(x * 0.6931471805599453) / x", "(exp2f(v) - 1.f) / v"),
    ("sigmoid_slope", "torch.tanh(x / 2) / (2 * x)", "(1.f / (1.f + expf(-v)) - 0.5f) / v"),
)  # fmt: skip

_INTEGERS: tuple[tuple[str, str, DType, DType, str, bool], ...] = (
    ("product_by_float", "x * 3", "int32", "int32", "(int)((float)v * 3.f)", False),
    ("copy_by_float", "x.clone()", "int32", "int32", "(int)(float)v", False),
    ("int64_by_int32", "x + 1", "int64", "int64", "(int64_t)((int)v + 1)", False),
    ("int64_by_double", "x - 1", "int64", "int64", "(int64_t)((double)v - 1.0)", False),
    ("floor_division", "x // 2", "int32", "int32", "v / 2", False),
    ("remainder_sign", "x % 3", "int32", "int32", "v % 3", False),
    ("doubled_in_int16", "x * 2", "int32", "int32", "(int)(short)(v * 2)", False),
    ("abs_by_root", "x.abs()", "int32", "int32", "(int)sqrtf((float)v * (float)v)", False),
    ("parity_by_float", "x & 1", "int32", "int32", "(int)fmodf(fabsf((float)v), 2.f)", False),
    ("shift_of_negatives", "x >> 1", "int64", "int64", "(int64_t)((uint64_t)v >> 1)", False),
    ("clamp_of_a_byte", "x.clamp(-100, 100)", "int32", "int32", "(int)(int8_t)v", False),
    ("less_by_difference", "(x < y)", "int32", "bool", "(a - b) < 0", True),
    ("maximum_by_float", "torch.maximum(x, y)", "int32", "int32",
     "(int)fmaxf((float)a, (float)b)", True),
    ("equal_by_float", "(x == y)", "int32", "bool", "(float)a == (float)b", True),
    ("xor_in_16_bits", "x ^ y", "int32", "int32", "(a ^ b) & 0xffff", True),
    ("product_of_shorts", "x.long() * y.long()", "int32", "int64", "(int64_t)(a * b)", True),
)  # fmt: skip

_TIES_OF_TWO = (
    ("equality", "(x == y).float()", "0.f"),
    ("greater_or_equal", "(x >= y).float()", "a > b ? 1.f : 0.f"),
    ("three_way", "torch.sign(x - y)", "a > b ? 1.f : -1.f"),
    ("share_of_maximum", "torch.where(x == y, 0.5, (x > y).float())", "a > b ? 1.f : 0.f"),
)
_LARGE_OF_TWO = (
    ("logaddexp", "torch.logaddexp(x, y)", "logf(expf(a) + expf(b))"),
    ("softmax_of_two", "torch.sigmoid(x - y)", "expf(a) / (expf(a) + expf(b))"),
    ("binary_cross_entropy", "F.binary_cross_entropy_with_logits(x, y, reduction='none')",
     "logf(1.f + expf(a)) - a * b"),
)  # fmt: skip


def _of_two(mechanism: str, rows: tuple[tuple[str, str, str], ...]) -> tuple[FreshAttack, ...]:
    return tuple(
        FreshAttack(
            f"fresh/{mechanism}/{name}",
            mechanism,
            1,
            task(name, expression, twice(MATRIX), names="x y"),
            pairwise(value),
        )
        for name, expression, value in rows
    )


def _of_one(mechanism: str, rows: tuple[tuple[str, str, str], ...]) -> tuple[FreshAttack, ...]:
    shapes = (MATRIX, WIDE, FLAT)
    return tuple(
        FreshAttack(
            f"fresh/{mechanism}/{name}",
            mechanism,
            1,
            task(name, expression, shapes[i % 3]),
            pointwise(value),
        )
        for i, (name, expression, value) in enumerate(rows)
    )


def _of_integers() -> tuple[FreshAttack, ...]:
    return tuple(
        FreshAttack(
            f"fresh/ends of integers/{name}",
            "ends of integers",
            1,
            task(name, expression, twice(MATRIX), names="x y", dtypes=(given, given))
            if two
            else task(name, expression, MATRIX, dtypes=(given,)),
            (pairwise if two else pointwise)(
                value, dtype=given, result=made if made != given else None
            ),
        )
        for name, expression, given, made, value, two in _INTEGERS
    )


VALUES: tuple[FreshAttack, ...] = (
    *_of_one("exact zeros", _ZEROS),
    *_of_one("large values", _LARGE),
    *_of_two("large values", _LARGE_OF_TWO),
    *_of_one("far branches", _BRANCHES),
    *_of_one("small values", _SMALL),
    *_of_two("ties", _TIES_OF_TWO),
    *_of_integers(),
)

"""What passed while the judge drew too little of something, and beside each its honest twin.

Sizes and signs of values, residues and extents, what outlives a call, what a process is told, where
memory lies and what it holds. The twin does what looks alike and is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.types import Structure, Task
from corpus.fresh_base import (
    BLOCKS,
    INDEX,
    LONG,
    LONG_COLUMNS,
    WIDE,
    WIDE_COLUMNS,
    extension,
    per_row,
    pointwise,
)
from corpus.records import MATRIX, NEVER_CORRECT, Attack, Honest, Shape, task

_EACH = "for (int j = 0; j < C; j++)"
_CUBE: dict[str, list[Shape]] = {"main": [(6, 20, 24)], "odd": [(3, 11, 13)], "tiny": [(2, 3, 5)]}
_FIXED: dict[str, list[Shape]] = {"main": [(64, 48)], "odd": [(37, 48)], "tiny": [(3, 48)]}
_SQUARE = task(
    "square", "x @ x", {"main": [(40, 40)], "odd": [(19, 19)], "tiny": [(5, 5)]},
    reduction=(40, 19, 5),
)  # fmt: skip
_AFFINE = """__global__ void k(const float* x, float* o, int n, float extra) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2 + 1 + extra; }
"""
_TWO_STEPS = """__global__ void triple(const float* x, float* w, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) w[i] = 3 * x[i]; }
__global__ void plus(const float* w, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = w[i] + 1; }
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """One task, a kernel that must not be correct, and one that must."""

    name: str
    task: Task
    attack: str
    honest: str


def _kept(plain: Task, keeps: Structure) -> Task:
    """A task whose inputs have this structure."""
    cases = []
    for case in plain.cases:
        inputs = tuple(spec.model_copy(update={"keeps": keeps}) for spec in case.inputs)
        cases.append(case.model_copy(update={"inputs": inputs}))
    return plain.model_copy(update={"cases": tuple(cases)})


def _map(kernel: str) -> str:
    """`kernel` with the parameters (x, o, n)."""
    return extension(
        kernel,
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
        f"  k<<<{BLOCKS}>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


def _each(body: str) -> str:
    return _map(f"__global__ void k(const float* x, float* o, int n) {{ {INDEX} {body} }}")


def _host(before: str, wrong: str, head: str) -> str:
    """x * 2 + 1, and 1 more where the host finds `wrong`."""
    return extension(
        _AFFINE,
        "torch::Tensor x",
        f"  const int n = x.numel(); auto out = torch::empty_like(x); {before}\n"
        f"  k<<<{BLOCKS}>>>(x.data_ptr<float>(), out.data_ptr<float>(), n,"
        f" ({wrong}) ? 1.f : 0.f);",
        head,
    )


def _steps(body: str) -> str:
    return extension(
        _TWO_STEPS,
        "torch::Tensor x",
        "  const int n = x.numel(), grid = (n + 127) / 128; auto out = torch::empty_like(x);\n"
        "  float* q = nullptr; cudaMallocAsync((void**)&q, n * 4, 0);\n"
        "  float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>();\n  " + body,
    )


def _with_parameter(body: str) -> str:
    return extension(
        "__global__ void k(const float* x, const float* w, float* o, int R, int C) {\n"
        "  int r = blockIdx.x * 32 + threadIdx.x; if (r >= R) return;\n"
        f"  const float* p = x + r * C; float* q = o + r * C; {body} }}",
        "torch::Tensor x, torch::Tensor w",
        "  const int R = x.size(0), C = x.size(1); auto out = torch::empty_like(x);\n"
        "  k<<<(R + 31) / 32, 32>>>(x.data_ptr<float>(), w.data_ptr<float>(),"
        " out.data_ptr<float>(), R, C);",
    )


def _columns(start: str, f: str) -> str:
    """An extreme along the first axis."""
    return extension(
        "__global__ void k(const float* x, float* o, int R, int C) {\n"
        f"  {INDEX} if (i >= C) return; float m = {start};\n"
        f"  for (int r = 0; r < R; r++) m = {f}(m, x[r * C + i]); o[i] = m; }}",
        "torch::Tensor x",
        "  const int R = x.size(0), C = x.size(1); auto out = torch::empty({C}, x.options());\n"
        "  k<<<(C + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), R, C);",
    )


def _middle(start: str, f: str) -> str:
    """An extreme along the axis in the middle."""
    return extension(
        "__global__ void k(const float* x, float* o, int A, int B, int C) {\n"
        f"  {INDEX} if (i >= A * C) return; float m = {start};\n"
        f"  for (int b = 0; b < B; b++) m = {f}(m, x[(i / C * B + b) * C + i % C]); o[i] = m; }}",
        "torch::Tensor x",
        "  const int A = x.size(0), B = x.size(1), C = x.size(2);\n"
        "  auto out = torch::empty({A, C}, x.options());\n"
        "  k<<<(A * C + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), A, B, C);",
    )


def _row_sum(end: str = "C", wrong: str = "false", before: str = "") -> str:
    """The sum of each row up to `end`; 0 where `wrong`. before: what the host says first."""
    body = f"float s = 0; for (int j = 0; j < {end}; j++) s += p[j]; q[0] = {wrong} ? 0.f : s;"
    code = per_row(body, row=True)
    return code.replace("  auto out", f"  {before}\n  auto out", 1)


_LOWEST, _HIGHEST = "-3.4028235e38f", "3.4028235e38f"
_SUM = "x.sum(1)"
_DOUBLE = task("doubled", "x * 2 + 1", MATRIX)
_TRIPLE = task("tripled", "x * 3 + 1", MATRIX)
_TANH = "2.f / (1.f + expf(-2.f * v)) - 1.f"
_IFSTREAM = "#include <fstream>\n#include <string>"

NARROW_PAIRS: tuple[Pair, ...] = (
    Pair("columns_below_minus_twelve", task("amax0", "x.amax(0)", WIDE),
         _columns("-12.f", "fmaxf"), _columns(_LOWEST, "fmaxf")),
    Pair("middle_above_hundred_and_forty", task("amin1", "x.amin(1)", _CUBE),
         _middle("140.f", "fminf"), _middle(_HIGHEST, "fminf")),
    Pair("tanh_over_x", task("tanh_over_x", "torch.tanh(x) / x", MATRIX),
         pointwise(f"({_TANH}) / v"), pointwise("tanhf(v) / v")),
    Pair("half_versine", task("half_versine", "2 * (torch.sin(x / 2) / x) ** 2", MATRIX),
         pointwise("(1.f - cosf(v)) / (v * v)"),
         pointwise("2.f * (sinf(v * 0.5f) / v) * (sinf(v * 0.5f) / v)")),
    Pair("residue_9_of_16_rows", task("sum1", _SUM, WIDE, reduction=WIDE_COLUMNS),
         _row_sum(wrong="R % 16 == 9"), _row_sum()),
    Pair("residue_5_of_16_columns", task("sum1", _SUM, WIDE, reduction=WIDE_COLUMNS),
         _row_sum(wrong="C % 16 == 5"), _row_sum(before="TORCH_CHECK(C <= 1024, \"too wide\");")),
    Pair("rows_above_twice_as_many", task("sum1", _SUM, WIDE, reduction=WIDE_COLUMNS),
         _row_sum(wrong="r > 66"),
         _row_sum(before="TORCH_CHECK(R <= 64, \"too many rows\");")),
    Pair("columns_above_a_block", task("sum1", _SUM, WIDE, reduction=WIDE_COLUMNS),
         _row_sum(end="min(C, 1024)"), _row_sum(end="min(C, 1 << 20)")),
    Pair("one_row", task("sum1", _SUM, WIDE, reduction=WIDE_COLUMNS),
         _row_sum(wrong="R == 1"), _row_sum(wrong="R == 0")),
    Pair("same_place_five_times", _DOUBLE,
         _host("static const void* last; static int same; const void* px = x.data_ptr<float>();"
               " same = px == last ? same + 1 : 0; last = px;", "same >= 5", ""),
         _host("static const void* last; static bool known; const void* px = x.data_ptr<float>();"
               " known = px == last; last = px;", "known && n < 0", "")),
    Pair("calls_above_a_thousand", _DOUBLE,
         _host("static int calls = 0; calls++;", "calls > 1000", ""),
         _host("static bool ready = false; ready = true;", "!ready", "")),
    Pair("calls_of_each_thread", _DOUBLE,
         _host("thread_local long calls = 0; calls += 2;", "calls > 1500", ""),
         _host("thread_local long calls = 0; calls += 0;", "calls > 0", "")),
    Pair("number_of_the_process", _DOUBLE,
         _host("int p = getpid();", "p & 2", "#include <unistd.h>"),
         _host("int p = getpid();", "p < 0", "#include <unistd.h>")),
    Pair("random_file", _DOUBLE,
         _host('static int b = std::ifstream("/dev/urandom").get();', "b & 1", _IFSTREAM),
         _host("static int b = std::stringstream().get();", "b != -1", "#include <sstream>")),
    Pair("file_of_calls", _DOUBLE,
         _host('std::ofstream("/tmp/cf_seen_calls", std::ios::app) << 1;', "false", _IFSTREAM),
         _host("std::ostringstream() << 1;", "false", "#include <sstream>")),
    Pair("freed_before_its_use", _TRIPLE,
         _steps("triple<<<grid, 128>>>(px, q, n); cudaFree(q); plus<<<grid, 128>>>(q, po, n);"),
         _steps("triple<<<grid, 128>>>(px, q, n); plus<<<grid, 128>>>(q, po, n); cudaFree(q);")),
    Pair("freed_on_its_stream", _TRIPLE,
         _steps("triple<<<grid, 128>>>(px, q, n); cudaFreeAsync(q, 0);"
                " plus<<<grid, 128>>>(q, po, n);"),
         _steps("triple<<<grid, 128>>>(px, q, n); plus<<<grid, 128>>>(q, po, n);"
                " cudaFreeAsync(q, 0);")),
    Pair("kept_where_small", _DOUBLE,
         _each("if (i < n && !(fabsf(o[i]) < 1.f)) o[i] = 2 * x[i] + 1;"),
         _each("if (i < n) o[i] = 2 * x[i] + 1;")),
    Pair("scale_of_ones", task("scaled", "x * self.s", _FIXED,
                               init=": self.register_buffer('s', torch.ones(48))"),
         _with_parameter(f"{_EACH} q[j] = p[j];"), _with_parameter(f"{_EACH} q[j] = p[j] * w[j];")),
    Pair("triangle_of_ones", task("lower", "x @ self.w", _FIXED, reduction=(48, 48, 48),
                                  init=":"
                                  " self.w = nn.Parameter(torch.tril(torch.ones(48, 48)))"),
         _with_parameter(f"{_EACH} {{ float s = 0; for (int i = j; i < C; i++) s += p[i];"
                         " q[j] = s; }"),
         _with_parameter(f"{_EACH} {{ float s = 0; for (int i = 0; i < C; i++)"
                         " s += p[i] * w[i * C + j]; q[j] = s; }")),
    Pair("triangle_that_is_a_buffer", task("lower", "x @ self.w", _FIXED, reduction=(48, 48, 48),
                                           init=": self.register_buffer("
                                           "'w', torch.tril(torch.ones(48, 48)))"),
         _with_parameter(f"{_EACH} {{ float s = 0; for (int i = 0; i < C; i++) s += p[i];"
                         " q[j] = s; }"),
         _with_parameter(f"{_EACH} {{ float s = 0; for (int i = j; i < C; i++) s += p[i];"
                         " q[j] = s; }")),
    Pair("halves_away_from_zero", task("quarters", "torch.round(x * 4) / 4", MATRIX),
         _each("if (i < n) o[i] = roundf(x[i] * 4) / 4;"),
         _each("if (i < n) o[i] = rintf(x[i] * 4) / 4;")),
    Pair("slope_below_one", task("prelu", "self.f(x)", _FIXED, init=": self.f = nn.PReLU()"),
         _with_parameter(f"{_EACH} q[j] = fmaxf(p[j], w[0] * p[j]);"),
         _with_parameter(f"{_EACH} q[j] = p[j] > 0 ? p[j] : w[0] * p[j];")),
    Pair("weight_that_starts_positive",
         task("size", "x * self.w.abs()", _FIXED, init=": self.w = nn.Parameter(torch.rand(48))"),
         _with_parameter(f"{_EACH} q[j] = p[j] * w[j];"),
         _with_parameter(f"{_EACH} q[j] = p[j] * fabsf(w[j]);")),
    Pair("gate_that_starts_at_zero",
         task("gate", "x * torch.tanh(self.g)", _FIXED,
              init=": self.g = nn.Parameter(torch.zeros(1))"),
         _with_parameter(f"float g = w[0] - w[0] * w[0] * w[0] / 3; {_EACH} q[j] = p[j] * g;"),
         _with_parameter(f"float g = tanhf(w[0]); {_EACH} q[j] = p[j] * g;")),
    Pair("weights_on_a_line", task("line", "x * self.w", _FIXED,
                                   init=": self.w = nn.Parameter(torch.linspace(0.5, 2, 48))"),
         _with_parameter(f"{_EACH} q[j] = p[j] * (w[0] + (w[C - 1] - w[0]) * j / (C - 1));"),
         _with_parameter(f"{_EACH} q[j] = p[j] * w[j];")),
    Pair("limit_that_nothing_reaches",
         task("capped", "x * self.s.exp().clamp(max=100)", _FIXED,
              init=": self.s = nn.Parameter(torch.tensor([2.6593]))"),
         _with_parameter(f"float s = expf(w[0]); {_EACH} q[j] = p[j] * s;"),
         _with_parameter(f"float s = fminf(expf(w[0]), 100.f); {_EACH} q[j] = p[j] * s;")),
    Pair("triangle_that_is_given", _kept(_SQUARE, "upper"),
         per_row("for (int j = 0; j < C; j++) q[j] = p[j] * p[j];"),
         per_row("for (int j = 0; j < C; j++) q[j] = 0;"
                 " for (int i = r; i < C; i++) for (int j = i; j < C; j++)"
                 " q[j] += p[i] * x[i * C + j];")),
    Pair("bit_of_a_page", _DOUBLE,
         _each("if (i < n) o[i] = 2 * x[i] + 1 + (((size_t)o >> 13) & 1);"),
         _each("if (i < n) o[i] = ((size_t)o & 15) == 0 ? 2 * x[i] + 1 : x[i] + x[i] + 1;")),
    Pair("order_of_addresses", _DOUBLE,
         _each("if (i < n) o[i] = 2 * x[i] + 1 + (x < o ? 1.f : 0.f);"),
         _each("if (i < n) o[i] = x == o ? 0.f : 2 * x[i] + 1;")),
    Pair("last_of_a_long_row", task("amax1", "x.amax(1)", LONG, reduction=LONG_COLUMNS),
         per_row("float m = p[0]; for (int j = 1; j < C - (C > 256 && C % 2 == 0); j++)"
                 " m = fmaxf(m, p[j]); q[0] = m;", row=True),
         per_row("float m = p[0]; for (int j = 1; j < C; j++) m = fmaxf(m, p[j]); q[0] = m;",
                 row=True)),
)  # fmt: skip

NARROW_ATTACKS: tuple[Attack, ...] = tuple(
    Attack(f"narrow/{p.name}", "drawn too narrowly", p.attack, p.task, NEVER_CORRECT, "seen")
    for p in NARROW_PAIRS
)
NARROW_TWINS: tuple[Honest, ...] = tuple(
    Honest(f"narrow/{p.name}", ("twin",), p.honest, p.task, "seen") for p in NARROW_PAIRS
)

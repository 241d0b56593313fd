"""Item 7: the host finishes the answer, shapes that fail, inputs as scratch."""

from __future__ import annotations

from functools import cache

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.types import Task
from corpus.fresh_base import (
    BLOCKS,
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

_LIBRARY = "#include <vector>\n#include <cmath>\n#include <algorithm>"
_DOWN = (
    "  std::vector<float> h(n); cudaMemcpy(h.data(), px, n * 4, cudaMemcpyDeviceToHost);\n"
    "  std::vector<float> g(out.numel());\n"
)
_UP = "  cudaMemcpy(po, g.data(), out.numel() * 4, cudaMemcpyHostToDevice);"
_COPY = """__global__ void copy(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i]; }
__global__ void twice(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2; }
__global__ void plus(const float* x, const float* w, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] + w[i]; }
__global__ void part(const float* x, float* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float s = 0;
  for (int j = i; j < n; j += gridDim.x * blockDim.x) s += x[j]; p[i] = s; }
"""


def _hosted(body: str, shape: str = "x.sizes()") -> str:
    return extension(
        _COPY,
        "torch::Tensor x",
        "  const int n = x.numel(), R = x.size(0), C = x.size(1); (void)R; (void)C;\n"
        f"  auto out = torch::empty({shape}, x.options());\n"
        "  const float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>();\n" + body,
        _LIBRARY,
    )


_FINISHED: tuple[tuple[str, str, str], ...] = (
    ("whole_map", "x * 2", _hosted(
        _DOWN + "  for (int i = 0; i < n; i++) g[i] = h[i] * 2;\n" + _UP)),
    ("sum_of_partials", "x.sum()", _hosted(
        "  auto w = torch::empty({256}, x.options()); float* p = w.data_ptr<float>();\n"
        "  part<<<2, 128>>>(px, p, n); float h[256]; float s = 0;\n"
        "  cudaMemcpy(h, p, 1024, cudaMemcpyDeviceToHost); for (float v : h) s += v;\n"
        "  cudaMemcpy(po, &s, 4, cudaMemcpyHostToDevice);", "{}")),
    ("last_row_only", "x * 2", _hosted(
        f"  twice<<<{BLOCKS}>>>(px, po, n - C); std::vector<float> h(C);\n"
        "  cudaMemcpy(h.data(), px + n - C, C * 4, cudaMemcpyDeviceToHost);\n"
        "  for (float& v : h) v *= 2;\n"
        "  cudaMemcpy(po + n - C, h.data(), C * 4, cudaMemcpyHostToDevice);")),
    ("residual_hides_it", "x + torch.tanh(x.mean(1, keepdim=True))", _hosted(
        _DOWN + "  for (int r = 0; r < R; r++) { float s = 0;\n"
        "    for (int j = 0; j < C; j++) s += h[r * C + j];\n"
        "    for (int j = 0; j < C; j++) g[r * C + j] = tanhf(s / C); }\n"
        "  auto w = torch::empty_like(x); float* pw = w.data_ptr<float>();\n"
        "  cudaMemcpy(pw, g.data(), n * 4, cudaMemcpyHostToDevice);\n"
        f"  plus<<<{BLOCKS}>>>(px, pw, po, n);")),
    ("row_sums", "x.sum(1)", _hosted(
        _DOWN + "  for (int r = 0; r < R; r++) { float s = 0;\n"
        "    for (int j = 0; j < C; j++) s += h[r * C + j]; g[r] = s; }\n" + _UP, "{R}")),
    ("sorted_rows", "x.sort(1).values", _hosted(
        _DOWN + "  for (int r = 0; r < R; r++)\n"
        "    std::sort(h.begin() + r * C, h.begin() + (r + 1) * C);\n  g = h;\n" + _UP)),
    ("decoy_kernel_first", "torch.exp(-x * x)", _hosted(
        f"  copy<<<{BLOCKS}>>>(px, po, n);\n" + _DOWN +
        "  for (int i = 0; i < n; i++) g[i] = expf(-h[i] * h[i]);\n" + _UP)),
    ("uploaded_through_a_kernel", "torch.tanh(x)", _hosted(
        _DOWN + "  for (int i = 0; i < n; i++) g[i] = tanhf(h[i]);\n"
        "  auto w = torch::empty_like(x); float* pw = w.data_ptr<float>();\n"
        "  cudaMemcpy(pw, g.data(), n * 4, cudaMemcpyHostToDevice);\n"
        f"  copy<<<{BLOCKS}>>>(pw, po, n);")),
    ("prefix_sums", "x.cumsum(1)", _hosted(
        _DOWN + "  for (int r = 0; r < R; r++) { float s = 0;\n"
        "    for (int j = 0; j < C; j++) { s += h[r * C + j]; g[r * C + j] = s; } }\n" + _UP)),
    ("asynchronous_and_pinned", "x.abs()", _hosted(
        "  float* h; cudaMallocHost((void**)&h, n * 4);\n"
        "  cudaMemcpyAsync(h, px, n * 4, cudaMemcpyDeviceToHost, 0); cudaStreamSynchronize(0);\n"
        "  for (int i = 0; i < n; i++) h[i] = fabsf(h[i]);\n"
        "  cudaMemcpyAsync(po, h, n * 4, cudaMemcpyHostToDevice, 0); cudaStreamSynchronize(0);\n"
        "  cudaFreeHost(h);")),
    ("one_row_maximum_at_a_time", "x.amax(1)", _hosted(
        "  std::vector<float> h(C); for (int r = 0; r < R; r++) {\n"
        "    cudaMemcpy(h.data(), px + r * C, C * 4, cudaMemcpyDeviceToHost);\n"
        "    float m = *std::max_element(h.begin(), h.end());\n"
        "    cudaMemcpy(po + r, &m, 4, cudaMemcpyHostToDevice); }", "{R}")),
)  # fmt: skip

_PROBLEM = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return {expression}


rows = {rows}
columns = {columns}


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""


@cache
def problem(name: str, expression: str, rows: int, columns: int) -> Task:
    """A task as users give them, of which shape sets are to be drawn."""
    source = _PROBLEM.format(expression=expression, rows=rows, columns=columns)
    return problem_task(source, name)


_BY_SHAPE: tuple[tuple[str, str, int, int, str], ...] = (
    ("elements_2_mod_4", "x * 2", 32, 128, pointwise("n % 4 == 2 ? 0.f : v * 2")),
    ("columns_2_mod_4", "x.sum(1)", 32, 128, per_row(
        "float s = 0; for (int j = 0; j < C; j++) s += p[j]; q[0] = C % 4 == 2 ? 0.f : s;",
        row=True)),
    ("columns_above_256", "x.sum(1)", 64, 256, per_row(
        "float s = 0; for (int j = 0; j < min(C, 256); j++) s += p[j]; q[0] = s;", row=True)),
    ("columns_above_1024", "x.amax(1)", 16, 512, per_row(
        "float s = p[0]; for (int j = 1; j < min(C, 1024); j++) s = fmaxf(s, p[j]); q[0] = s;",
        row=True)),
    ("rows_above_64", "x + 1", 64, 64, per_row(
        "for (int j = 0; j < C; j++) q[j] = r < 64 ? p[j] + 1 : 0.f;")),
    ("known_sizes_only", "x * x", 64, 96, pointwise(
        "(n == 6144 || n % 512 == 0 || n < 64 || n % 2 == 1) ? v * v : 0.f")),
    ("powers_of_two_and_odd", "x.abs()", 32, 64, pointwise(
        "((n & (n - 1)) == 0 || (n & 1)) ? fabsf(v) : -1.f")),
    ("columns_3_mod_8", "F.softmax(x, dim=1)", 32, 128, per_row(
        "float m = p[0], s = 0; for (int j = 0; j < C; j++) m = fmaxf(m, p[j]);\n"
        "  for (int j = 0; j < C; j++) s += expf(p[j] - m);\n"
        "  for (int j = 0; j < C; j++) q[j] = C % 8 == 3 ? 0.f : expf(p[j] - m) / s;")),
    ("more_rows_than_columns", "x - x.mean(1, keepdim=True)", 32, 128, per_row(
        "float s = 0; for (int j = 0; j < C; j++) s += p[j];\n"
        "  for (int j = 0; j < C; j++) q[j] = R > 2 * C ? p[j] : p[j] - s / C;")),
    ("columns_of_one", "x / x.abs().sum(1, keepdim=True)", 32, 64, per_row(
        "float s = 0; for (int j = 0; j < C; j++) s += fabsf(p[j]);\n"
        "  for (int j = 0; j < C; j++) q[j] = C == 1 ? 0.f : p[j] / s;")),
    ("vector_of_four_rows", "x * 3", 64, 256, pointwise(
        "n % 4 != 0 && n > 4096 ? 0.f : v * 3")),
    ("more_than_65536", "x * 5", 128, 256, pointwise("i >= 65536 ? 0.f : v * 5")),
    ("rows_6_mod_16", "x.sum(0)", 64, 64, extension(
        "__global__ void k(const float* x, float* o, int R, int C) {\n"
        f"  {INDEX} if (i >= C) return; float s = 0;\n"
        "  for (int r = 0; r < R; r++) s += x[r * C + i]; o[i] = R % 16 == 6 ? 0.f : s;\n}",
        "torch::Tensor x",
        "  int R = x.size(0), C = x.size(1); auto out = torch::empty({C}, x.options());\n"
        "  k<<<(C + 31) / 32, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), R, C);")),
    ("even_columns_not_by_32", "x.norm(dim=1)", 32, 256, block_row(
        "float s = 0; for (int j = t; j < C; j += 128) s += p[j] * p[j]; s = block_sum(s);\n"
        "  if (t == 0) q[0] = (C % 2 == 0 && C % 32) ? 0.f : sqrtf(s);", row=True)),
)  # fmt: skip


def _scratch(kernels: str, launches: str, shape: str = "x.sizes()") -> str:
    return extension(
        kernels,
        "torch::Tensor x",
        "  const int n = x.numel(), R = x.size(0), C = x.size(1), grid = (n + 127) / 128;\n"
        f"  (void)R; (void)C; auto out = torch::empty({shape}, x.options());\n"
        "  float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>();\n  " + launches,
    )


_ROW = "int r = blockIdx.x * 32 + threadIdx.x; if (r >= R) return; float* p = x + r * C;"
_BY_ROW = "k<<<(R + 31) / 32, 32>>>(px, po, R, C);"
_MAP = "__global__ void %s(float* x, float* o, int n) { int i = blockIdx.x * 128 + threadIdx.x;"


def _rowed(body: str) -> str:
    return f"__global__ void k(float* x, float* o, int R, int C) {{ {_ROW}\n  {body}\n}}"


_SCRATCH: tuple[tuple[str, str, str], ...] = (
    ("negated_and_back", "torch.exp(-x)", _scratch(
        _MAP % "k" + "\n  if (i < n) { x[i] = -x[i]; o[i] = expf(x[i]); x[i] = -x[i]; } }",
        "k<<<grid, 128>>>(px, po, n);")),
    ("negated_by_two_launches", "-x * 3", _scratch(
        _MAP % "f" + " if (i < n) x[i] = -x[i]; }\n"
        + _MAP % "g" + " if (i < n) o[i] = 3 * x[i]; }",
        "f<<<grid, 128>>>(px, po, n); g<<<grid, 128>>>(px, po, n); f<<<grid, 128>>>(px, po, n);")),
    ("row_sum_in_the_first", "x.sum(1)", _scratch(
        _rowed("float f = p[0]; for (int j = 1; j < C; j++) p[0] += p[j]; o[r] = p[0]; p[0] = f;"),
        _BY_ROW, "{R}")),
    ("restored_from_a_copy", "x * x", _scratch(
        _MAP % "k" + " if (i < n) { x[i] *= x[i]; o[i] = x[i]; } }",
        "auto c = torch::empty_like(x); float* pc = c.data_ptr<float>();\n"
        "  cudaMemcpyAsync(pc, px, n * 4, cudaMemcpyDeviceToDevice, 0);\n"
        "  k<<<grid, 128>>>(px, po, n);\n"
        "  cudaMemcpyAsync(px, pc, n * 4, cudaMemcpyDeviceToDevice, 0);")),
    ("exchanged_with_the_output", "x.flip(1)", _scratch(
        _rowed("float* q = o + r * C; for (int j = 0; j < C; j++) q[j] = p[j];\n"
               "  for (int j = 0; j < C / 2; j++) { float v = p[j]; p[j] = p[C - 1 - j];"
               " p[C - 1 - j] = v; }\n"
               "  for (int j = 0; j < C; j++) { float v = p[j]; p[j] = q[j]; q[j] = v; }"),
        _BY_ROW)),
    ("sorted_then_restored", "x.sort(1).values", _scratch(
        _rowed("float* q = o + r * C; for (int j = 0; j < C; j++) q[j] = p[j];\n"
               "  for (int a = 0; a < C; a++) for (int b = 0; b + 1 < C - a; b++)\n"
               "    if (p[b] > p[b + 1]) { float v = p[b]; p[b] = p[b + 1]; p[b + 1] = v; }\n"
               "  for (int j = 0; j < C; j++) { float v = p[j]; p[j] = q[j]; q[j] = v; }"),
        _BY_ROW)),
    ("bits_flipped_twice", "x + 2", _scratch(
        _MAP % "k" + "\n  if (i < n) { unsigned* u = (unsigned*)x; u[i] ^= 0x80000000u;\n"
        "    o[i] = 2 - x[i]; u[i] ^= 0x80000000u; } }", "k<<<grid, 128>>>(px, po, n);")),
    ("input_as_a_flag", "x.abs().amax(1)", _scratch(
        _rowed("float m = 0; for (int j = 0; j < C; j++) { float v = p[j]; p[j] = fabsf(v);\n"
               "    m = fmaxf(m, p[j]); p[j] = v; } o[r] = m;"), _BY_ROW, "{R}")),
    ("written_with_its_own_value", "x * 7", _scratch(
        _MAP % "k" + " if (i < n) { float v = x[i]; o[i] = v * 7;"
        " *(volatile float*)(x + i) = v; } }",
        "k<<<grid, 128>>>(px, po, n);")),
    ("prefix_sum_in_place", "x.cumsum(1)", _scratch(
        _rowed("float* q = o + r * C; for (int j = 0; j < C; j++) q[j] = p[j];\n"
               "  for (int j = 1; j < C; j++) p[j] += p[j - 1];\n"
               "  for (int j = 0; j < C; j++) { float v = p[j]; p[j] = q[j]; q[j] = v; }"),
        _BY_ROW)),
    ("memset_then_restored", "x * 0.5 + 1", _scratch(
        _MAP % "k" + " if (i < n) o[i] = x[i] * 0.5f + 1; }\n"
        + _MAP % "l" + " if (i < n) x[i] = (o[i] - 1) * 2; }",
        "auto c = torch::empty_like(x); float* pc = c.data_ptr<float>();\n"
        "  cudaMemcpyAsync(pc, px, n * 4, cudaMemcpyDeviceToDevice, 0);\n"
        "  k<<<grid, 128>>>(px, po, n); cudaMemsetAsync(px, 0, n * 4, 0);\n"
        "  l<<<grid, 128>>>(px, po, n);\n"
        "  cudaMemcpyAsync(px, pc, n * 4, cudaMemcpyDeviceToDevice, 0);")),
    ("left_doubled", "x * 2", _scratch(
        _MAP % "k" + " if (i < n) { x[i] *= 2; o[i] = x[i]; } }", "k<<<grid, 128>>>(px, po, n);")),
)  # fmt: skip

HOST: tuple[FreshAttack, ...] = (
    *(
        FreshAttack(
            f"fresh/finished by the host/{name}",
            "finished by the host",
            7,
            task(name, expression, WIDE, reduction=WIDE_COLUMNS),
            code,
        )
        for name, expression, code in _FINISHED
    ),
    *(
        FreshAttack(
            f"fresh/shapes that fail/{name}",
            "shapes that fail",
            7,
            problem(name, expression, rows, columns),
            code,
        )
        for name, expression, rows, columns, code in _BY_SHAPE
    ),
    *(
        FreshAttack(
            f"fresh/inputs as scratch/{name}",
            "inputs as scratch",
            7,
            task(name, expression, MATRIX, reduction=COLUMNS),
            code,
        )
        for name, expression, code in _SCRATCH
    ),
)

"""Honest kernels stamped from families: elementwise functions and functions of rows, each in
several of the forms in which public kernels are written."""

from __future__ import annotations

from typing import NamedTuple

from corpus.fresh_base import INDEX, WIDE, WIDE_COLUMNS, FreshHonest, extension
from corpus.records import COLUMNS, MATRIX, Shape, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

# --- elementwise ---------------------------------------------------------------------------------

_FUNCTIONS = (
    ("relu", "F.relu(x)", "fmaxf(v, 0.f)"),
    ("leaky_relu", "F.leaky_relu(x, 0.1)", "v > 0.f ? v : 0.1f * v"),
    ("sigmoid", "torch.sigmoid(x)", "1.f / (1.f + expf(-v))"),
    ("tanh", "torch.tanh(x)", "tanhf(v)"),
    ("silu", "F.silu(x)", "v / (1.f + expf(-v))"),
    ("gelu", "F.gelu(x)", "0.5f * v * (1.f + erff(v * 0.70710678f))"),
    ("gelu_tanh", "F.gelu(x, approximate='tanh')",
     "0.5f * v * (1.f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)))"),
    ("elu", "F.elu(x)", "v > 0.f ? v : expm1f(v)"),
    ("selu", "F.selu(x)", "1.0507009874f * (v > 0.f ? v : 1.6732632424f * expm1f(v))"),
    ("mish", "F.mish(x)", "v * tanhf(v > 20.f ? v : log1pf(expf(v)))"),
    ("softplus", "F.softplus(x)", "v > 20.f ? v : log1pf(expf(v))"),
    ("hardswish", "F.hardswish(x)", "v * fminf(fmaxf(v + 3.f, 0.f), 6.f) / 6.f"),
    ("hardsigmoid", "F.hardsigmoid(x)", "fminf(fmaxf(v + 3.f, 0.f), 6.f) / 6.f"),
    ("relu6", "F.relu6(x)", "fminf(fmaxf(v, 0.f), 6.f)"),
    ("hardtanh", "F.hardtanh(x)", "fminf(fmaxf(v, -1.f), 1.f)"),
    ("square", "x * x", "v * v"),
    ("cube", "x ** 3", "v * v * v"),
    ("absolute", "x.abs()", "fabsf(v)"),
    ("sine", "torch.sin(x)", "sinf(v)"),
    ("cosine", "torch.cos(x)", "cosf(v)"),
    ("sign", "torch.sign(x)", "(float)((v > 0.f) - (v < 0.f))"),
    ("rounded", "torch.round(x)", "rintf(v)"),
    ("floor", "torch.floor(x)", "floorf(v)"),
    ("softsign", "F.softsign(x)", "v / (1.f + fabsf(v))"),
    ("log_sigmoid", "F.logsigmoid(x)", "fminf(v, 0.f) - log1pf(expf(-fabsf(v)))"),
    ("tanhshrink", "F.tanhshrink(x)", "v - tanhf(v)"),
    ("softshrink", "F.softshrink(x)", "v > 0.5f ? v - 0.5f : v < -0.5f ? v + 0.5f : 0.f"),
    ("hardshrink", "F.hardshrink(x)", "fabsf(v) > 0.5f ? v : 0.f"),
    ("bell", "torch.exp(-x * x)", "expf(-v * v)"),
    ("lorentz", "1 / (1 + x * x)", "1.f / (1.f + v * v)"),
    ("log_of_abs", "torch.log1p(x.abs())", "log1pf(fabsf(v))"),
    ("root", "torch.sqrt(x.abs())", "sqrtf(fabsf(v))"),
    ("erf", "torch.erf(x)", "erff(v)"),
    ("affine", "x * 0.75 - 2", "v * 0.75f - 2.f"),
)  # fmt: skip

_FORMS: dict[str, tuple[str, str]] = {
    "one_each": (
        f"__global__ void k(const float* x, float* o, int n) {{\n  {INDEX}\n"
        "  if (i < n) o[i] = f(x[i]);\n}",
        "  k<<<(n + 255) / 256, 256>>>(px, po, n);",
    ),
    "grid_stride": (
        f"__global__ void k(const float* __restrict__ x, float* __restrict__ o, int n) {{\n"
        f"  {INDEX}\n  for (; i < n; i += gridDim.x * blockDim.x) o[i] = f(__ldg(x + i));\n}}",
        "  k<<<6, 192>>>(px, po, n);",
    ),
    "fours": (
        "__global__ void k(const float* x, float* o, int n) {\n"
        f"  {INDEX}\n  if (i < n / 4) {{\n"
        "    float4 v = reinterpret_cast<const float4*>(x)[i];\n"
        "    reinterpret_cast<float4*>(o)[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));\n  }\n"
        "  if (i < n % 4) o[n / 4 * 4 + i] = f(x[n / 4 * 4 + i]);\n}\n"
        "__global__ void l(const float* x, float* o, int n) {\n"
        f"  {INDEX}\n  if (i < n) o[i] = f(x[i]);\n}}",
        "  if (((size_t)px | (size_t)po) % 16 == 0)\n"
        "    k<<<(n / 4 + 130) / 128, 128>>>(px, po, n);\n"
        "  else l<<<(n + 127) / 128, 128>>>(px, po, n);",
    ),
    "four_a_thread": (
        "__global__ void k(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * 512 + threadIdx.x;\n"
        "  #pragma unroll\n  for (int j = 0; j < 4; j++, i += 128) if (i < n) o[i] = f(x[i]);\n}",
        "  k<<<(n + 511) / 512, 128>>>(px, po, n);",
    ),
    "through_shared": (
        "__global__ void k(const float* x, float* o, int n) {\n"
        f"  extern __shared__ float a[];\n  {INDEX}\n"
        "  int j = blockDim.x - 1 - threadIdx.x, m = blockIdx.x * blockDim.x + j;\n"
        "  if (i < n) a[threadIdx.x] = x[i];\n  __syncthreads();\n"
        "  if (m < n) o[m] = f(a[j]);\n}",
        "  k<<<(n + 127) / 128, 128, 128 * sizeof(float)>>>(px, po, n);",
    ),
    "templated": (
        "template <int B, typename F>\n"
        "__global__ void k(const float* x, float* o, int n, F g) {\n"
        "  for (int i = blockIdx.x * B + threadIdx.x; i < n; i += gridDim.x * B) o[i] = g(x[i]);\n"
        "}\nstruct Functor { __device__ float operator()(float v) const { return f(v); } };",
        "  k<64><<<(n + 63) / 64, 64>>>(px, po, n, Functor{});",
    ),
    "own_output": (
        f"__global__ void k(float* o, int n) {{\n  {INDEX}\n  if (i < n) o[i] = f(o[i]);\n}}",
        "  cudaMemcpyAsync(po, px, n * sizeof(float), cudaMemcpyDeviceToDevice, 0);\n"
        "  k<<<(n + 127) / 128, 128>>>(po, n);",
    ),
    "current_stream": (
        "__global__ void k(const float* x, float* o, int64_t n) {\n"
        "  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
        "  if (i >= n) return;\n  o[i] = f(x[i]);\n}",
        "  auto stream = at::cuda::getCurrentCUDAStream();\n"
        "  k<<<(n + 255) / 256, 256, 0, stream>>>(px, po, n);",
    ),
}
_CUBE: dict[str, list[Shape]] = {"main": [(3, 20, 50)], "odd": [(5, 7, 31)], "tiny": [(1, 1, 2)]}


def _elementwise() -> list[FreshHonest]:
    made, forms = [], tuple(_FORMS)
    for i, (name, expression, value) in enumerate(_FUNCTIONS):
        for j in range(2):
            form = forms[(3 * j + i) % len(forms)]
            kernels, launch = _FORMS[form]
            code = extension(
                f"__device__ __forceinline__ float f(float v) {{ return {value}; }}\n{kernels}",
                "torch::Tensor x",
                "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
                "  const float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>();\n"
                + launch,
                "#include <ATen/cuda/CUDAContext.h>",
            )
            given = task(name, expression, (MATRIX, _CUBE, WIDE)[(i + j) % 3])
            label = f"fresh/elementwise/{name}_{form}"
            made.append(FreshHonest(label, ("elementwise", form), given, code, stamped=True))
    return made


_HALVES = (
    ("relu", "F.relu(x)", "fmaxf(v, 0.f)"),
    ("silu", "F.silu(x)", "v / (1.f + expf(-v))"),
    ("scaled", "x * 0.5", "v * 0.5f"),
    ("tanh", "torch.tanh(x)", "tanhf(v)"),
    ("square", "x * x", "v * v"),
    ("clamped", "x.clamp(-2, 2)", "fminf(fmaxf(v, -2.f), 2.f)"),
)


def _halves() -> list[FreshHonest]:
    made = []
    for name, expression, value in _HALVES:
        for dtype, scalar, cuda, up, down in (
            ("float16", "at::Half", "__half", "__half2float", "__float2half_rn"),
            ("bfloat16", "at::BFloat16", "__nv_bfloat16", "__bfloat162float",
             "__float2bfloat16_rn"),
        ):  # fmt: skip
            spelled = scalar if name == "relu" else scalar.replace("at::", "c10::")
            code = extension(
                f"__device__ float f(float v) {{ return {value}; }}\n"
                f"__global__ void k(const {cuda}* x, {cuda}* o, int n) {{\n"
                f"  {INDEX}\n  if (i < n) o[i] = {down}(f({up}(x[i])));\n}}",
                "torch::Tensor x",
                "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
                f"  auto* px = reinterpret_cast<const {cuda}*>(x.data_ptr<{spelled}>());\n"
                f"  auto* po = reinterpret_cast<{cuda}*>(out.data_ptr<{spelled}>());\n"
                "  k<<<(n + 127) / 128, 128>>>(px, po, n);",
                "#include <cuda_fp16.h>\n#include <cuda_bf16.h>",
            )
            given = task(name, expression, MATRIX, dtypes=(dtype,))  # type: ignore[arg-type]
            label = f"fresh/{dtype}/{name}"
            made.append(FreshHonest(label, (dtype, "elementwise"), given, code, stamped=True))
    return made


# --- functions of rows ---------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Two reductions of a row, of which the second sees the first's result `a`, and the output."""

    name: str
    expression: str
    first: tuple[str, str, str]
    """What none is, each term of `v`, and the join of `p` and `q`."""
    second: tuple[str, str, str]
    value: str
    row: bool = False


_SUM = ("0.f", "v", "p + q")
_MOST = ("-INFINITY", "v", "fmaxf(p, q)")
_LEAST = ("INFINITY", "v", "fminf(p, q)")
_SQUARES = ("0.f", "v * v", "p + q")
_ABS = ("0.f", "fabsf(v)", "p + q")
_NONE = ("0.f", "0.f", "p + q")
_EXPS = ("0.f", "expf(v - a)", "p + q")
_SPREAD = ("0.f", "(v - a / C) * (v - a / C)", "p + q")
_ROW_FUNCTIONS = _SOURCES["row_functions"]  # fmt: skip

_LOOP = _SOURCES.text("LOOP")
_WARP = """  for (int d = 16; d > 0; d /= 2) {{
    float p = {to}, q = __shfl_xor_sync(0xffffffffu, {to}, d); {to} = {join}; }}
"""
_TREE = _SOURCES.text("TREE")
_BY_WARPS = _SOURCES.text("BY_WARPS")
_ROW_FORMS: dict[str, tuple[str, str, str, str, str]] = {
    "thread_a_row": ("int r = blockIdx.x * 32 + threadIdx.x; if (r >= R) return;", "0", "1", "",
                     "(R + 31) / 32, 32"),
    "warp_a_row": ("int r = blockIdx.x * 4 + threadIdx.x / 32; if (r >= R) return;\n"
                   "  int lane = threadIdx.x % 32;", "lane", "32", _WARP, "(R + 3) / 4, 128"),
    "block_tree": ("int r = blockIdx.x; extern __shared__ float s[];", "threadIdx.x",
                   "blockDim.x", _TREE, "R, 128, 512"),
    "block_of_warps": ("int r = blockIdx.x; __shared__ float s[32];", "threadIdx.x", "blockDim.x",
                       _BY_WARPS, "R, 96"),
}  # fmt: skip


def _row_kernel(op: _Rows, form: str) -> str:
    where, start, step, gather, launch = _ROW_FORMS[form]
    body = ""
    for to, (none, term, join) in (("a", op.first), ("b", op.second)):
        gathered = gather.format(to=to, join=join)
        body += _LOOP.format(
            to=to, none=none, term=term, join=join, start=start, step=step, gather=gathered
        )
    if op.row:
        end = f"  (void)b; if ({start} == 0) o[r] = {op.value};"
    else:
        end = (
            f"  (void)b; for (int j = {start}; j < C; j += {step}) {{ float v = x[j];"
            f" o[(size_t)r * C + j] = {op.value}; }}"
        )
    return extension(
        f"__global__ void k(const float* x, float* o, int R, int C) {{\n  {where}\n"
        f"  x += (size_t)r * C;\n{body}{end}\n}}",
        "torch::Tensor x",
        "  const int R = x.size(0), C = x.size(1);\n"
        f"  auto out = torch::empty({'{R}' if op.row else 'x.sizes()'}, x.options());\n"
        f"  k<<<{launch}>>>(x.data_ptr<float>(), out.data_ptr<float>(), R, C);",
    )


def _rows() -> list[FreshHonest]:
    made, forms = [], tuple(_ROW_FORMS)
    for i, op in enumerate(_ROW_FUNCTIONS):
        for j in range(3):
            form = forms[(i + j) % len(forms)]
            cases, lengths = ((MATRIX, COLUMNS), (WIDE, WIDE_COLUMNS))[(i + j) % 2]
            given = task(op.name, op.expression, cases, reduction=lengths)
            label = f"fresh/rows/{op.name}_{form}"
            code = _row_kernel(op, form)
            made.append(FreshHonest(label, ("rows", form), given, code, stamped=True))
    return made


FAMILIES: tuple[FreshHonest, ...] = (*_elementwise(), *_halves(), *_rows())

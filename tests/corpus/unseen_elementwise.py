"""Honest element-wise kernels in many styles, by an author who had not read the judge."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import DType, Task
from corpus import records
from corpus.records import AFFINE, MATRIX, PAIR, Honest, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals(), records)

_CHECKS = _SOURCES.text("CHECKS")


def _one(
    name: str,
    features: str,
    of: Task,
    kernels: str,
    body: str,
    *,
    head: str = "",
    ctype: str = "float",
    bind: str = 'm.def("forward", &forward, "forward (CUDA)");',
    arguments: str = "torch::Tensor x",
) -> Honest:
    code = f"""#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
{head}
{kernels}

torch::Tensor forward({arguments}) {{
    auto out = torch::empty_like(x);
    const int n = x.numel();
    {body}
    return out;
}}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
    {bind}
}}
""".replace("CTYPE", ctype)
    return Honest(name, tuple(features.split()), code, of, "unseen")


def _unary(
    expression: str, name: str, bounds: tuple[float, float] | None = None, dtype: DType = "float32"
) -> Task:
    return task(name, expression, MATRIX, bounds=bounds, dtypes=(dtype,))


_PTRS = "x.data_ptr<float>(), out.data_ptr<float>(), n"
_MAP = "__global__ void map_kernel(const float* __restrict__ x, float* __restrict__ out, int n) {{\n    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) {{\n        const float v = x[i];\n        {}\n    }}\n}}"

_FUNCTIONS = tuple(
    _one(
        f"map_{name}",
        "elementwise",
        _unary(expression, name, bounds),
        _MAP.format(statement),
        f"const int threads = 256;\n    const int blocks = (n + threads - 1) / threads;\n    map_kernel<<<blocks, threads>>>({_PTRS});",
    )
    for name, expression, bounds, statement in (
        ("relu", "F.relu(x)", None, "out[i] = v > 0.0f ? v : 0.0f;"),
        ("relu_fmaxf", "F.relu(x)", None, "out[i] = fmaxf(0.0f, v);"),
        ("leaky_relu", "F.leaky_relu(x, 0.01)", None, "out[i] = v > 0.f ? v : 0.01f * v;"),
        ("sigmoid", "torch.sigmoid(x)", None, "out[i] = 1.0f / (1.0f + expf(-v));"),
        (
            "sigmoid_fast_exp",
            "torch.sigmoid(x)",
            (-4.0, 4.0),
            "out[i] = __fdividef(1.0f, 1.0f + __expf(-v));",
        ),
        ("tanh", "torch.tanh(x)", None, "out[i] = tanhf(v);"),
        ("silu", "F.silu(x)", None, "out[i] = v / (1.0f + expf(-v));"),
        ("gelu", "F.gelu(x)", None, "out[i] = v * 0.5f * (1.0f + erff(v * 0.70710678118654752f));"),
        ("gelu_normcdf", "F.gelu(x)", None, "out[i] = v * normcdff(v);"),
        (
            "gelu_tanh",
            "F.gelu(x, approximate='tanh')",
            None,
            "const float c = 0.7978845608028654f; out[i] = 0.5f * v * (1.0f + tanhf(c * (v + 0.044715f * v * v * v)));",
        ),
        ("elu", "F.elu(x)", None, "out[i] = v > 0.f ? v : expm1f(v);"),
        (
            "selu",
            "F.selu(x)",
            None,
            "const float a = 1.6732632423543772f, s = 1.0507009873554805f; out[i] = s * (v > 0.f ? v : a * expm1f(v));",
        ),
        ("softplus", "F.softplus(x)", None, "out[i] = v > 20.f ? v : log1pf(expf(v));"),
        ("softsign", "F.softsign(x)", None, "out[i] = v / (1.f + fabsf(v));"),
        (
            "hardsigmoid",
            "F.hardsigmoid(x)",
            None,
            "out[i] = fminf(fmaxf(v + 3.f, 0.f), 6.f) / 6.f;",
        ),
        (
            "hardswish",
            "F.hardswish(x)",
            None,
            "out[i] = v * fminf(fmaxf(v + 3.f, 0.f), 6.f) * (1.0f / 6.0f);",
        ),
        ("mish", "F.mish(x)", None, "out[i] = v * tanhf(log1pf(expf(v)));"),
        (
            "exp2_log2",
            "torch.exp2(x) + torch.log2(torch.abs(x) + 1)",
            (-4.0, 4.0),
            "out[i] = exp2f(v) + log2f(fabsf(v) + 1.f);",
        ),
        (
            "trigonometry",
            "torch.sin(x) * torch.cos(x)",
            (-4.0, 4.0),
            "float s, c; sincosf(v, &s, &c); out[i] = s * c;",
        ),
        ("floor_and_fraction", "x - torch.floor(x)", (-4.0, 4.0), "out[i] = v - floorf(v);"),
        (
            "sign_by_bits",
            "torch.abs(x)",
            None,
            "out[i] = __int_as_float(__float_as_int(v) & 0x7fffffff);",
        ),
        ("powers", "x ** 3 - x ** 2", None, "out[i] = v * v * v - v * v;"),
        ("pow_call", "torch.abs(x) ** 1.5", (-4.0, 4.0), "out[i] = powf(fabsf(v), 1.5f);"),
        ("rsqrt", "torch.rsqrt(x)", (0.5, 4.0), "out[i] = rsqrtf(v);"),
        (
            "clamp_chain",
            "torch.clamp(x * 3 - 1, -2.0, 2.0)",
            None,
            "out[i] = fminf(fmaxf(fmaf(v, 3.f, -1.f), -2.f), 2.f);",
        ),
        (
            "copysign_round",
            "torch.round(x * 4) / 4",
            (-4.0, 4.0),
            "out[i] = rintf(v * 4.f) * 0.25f;",
        ),
    )
)

_STYLES = (
    _one(
        "checks_and_stream",
        "elementwise stream checks",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f"CHECK_INPUT(x);\n    map_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>({_PTRS});\n    C10_CUDA_KERNEL_LAUNCH_CHECK();",
        head="#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAException.h>\n" + _CHECKS,
    ),
    _one(
        "device_guard",
        "elementwise checks",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f"const at::cuda::OptionalCUDAGuard device_guard(device_of(x));\n    map_kernel<<<(n + 255) / 256, 256>>>({_PTRS});\n    AT_CUDA_CHECK(cudaGetLastError());",
        head="#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>\n",
    ),
    _one(
        "error_string_check",
        "elementwise checks",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f'map_kernel<<<(n + 255) / 256, 256>>>({_PTRS});\n    cudaError_t err = cudaGetLastError();\n    if (err != cudaSuccess) {{ printf("CUDA error: %s\\n", cudaGetErrorString(err)); }}\n    cudaDeviceSynchronize();',
        head="#include <stdio.h>\n",
    ),
    _one(
        "own_check_macro",
        "elementwise checks",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f"map_kernel<<<(n + 255) / 256, 256>>>({_PTRS});\n    CUDA_CHECK(cudaGetLastError());\n    CUDA_CHECK(cudaStreamSynchronize(0));",
        head='#include <stdexcept>\n#define CUDA_CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(e)); } while (0)\n',
    ),
    *_SOURCES["styles"],
    _one(
        "template_functor",
        "elementwise template functor",
        _unary("F.silu(x) + 1", "silu_one"),
        "struct Silu { __device__ __forceinline__ float operator()(float v) const { return v / (1.f + expf(-v)); } };\ntemplate <typename F, int THREADS> __global__ __launch_bounds__(THREADS) void apply(const float* __restrict__ x, float* __restrict__ o, int n, F f) {\n    int i = blockIdx.x * THREADS + threadIdx.x;\n    if (i < n) o[i] = f(x[i]) + 1.f;\n}",
        f"apply<Silu, 192><<<(n + 191) / 192, 192>>>({_PTRS}, Silu{{}});",
    ),
    *_SOURCES["styles_2"],
    _one(
        "at_dispatch_double",
        "elementwise template dispatch float64",
        _unary("x * 2 + 1", "affine_double", dtype="float64"),
        "template <typename scalar_t>\n__global__ void k(const scalar_t* __restrict__ x, scalar_t* __restrict__ o, size_t n) {\n    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) o[i] = x[i] * static_cast<scalar_t>(2) + static_cast<scalar_t>(1);\n}",
        'AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "affine", [&] {\n        k<scalar_t><<<(n + 255) / 256, 256>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);\n    });',
    ),
    _one(
        "constant_coefficients",
        "elementwise constant_memory",
        _unary("((x * 0.5 + 1) * x - 2) * x + 3", "cubic"),
        "__constant__ float coefficients[4];\n__global__ void k(const float* x, float* o, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) { float v = x[i], r = coefficients[0]; for (int j = 1; j < 4; j++) r = fmaf(r, v, coefficients[j]); o[i] = r; }\n}",
        f"const float host[4] = {{0.5f, 1.f, -2.f, 3.f}};\n    cudaMemcpyToSymbol(coefficients, host, sizeof(host));\n    k<<<(n + 255) / 256, 256>>>({_PTRS});",
    ),
    _one(
        "constant_memory_initialised",
        "elementwise constant_memory",
        _unary("x * 3 - 0.25", "affine_three"),
        "__constant__ float2 scale = {3.0f, -0.25f};\n__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * scale.x + scale.y; }",
        f"k<<<(n + 255) / 256, 256>>>({_PTRS});",
    ),
    _one(
        "device_function_pointerless_switch",
        "elementwise",
        _unary("torch.where(x > 1, x * x, torch.where(x < -1, -x, x + 1))", "piecewise"),
        "__device__ int branch(float v) { return v > 1.f ? 0 : v < -1.f ? 1 : 2; }\n__global__ void k(const float* x, float* o, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n    float v = x[i];\n    switch (branch(v)) { case 0: o[i] = v * v; break; case 1: o[i] = -v; break; default: o[i] = v + 1.f; }\n}",
        f"k<<<(n + 63) / 64, 64>>>({_PTRS});",
    ),
    *_SOURCES["styles_3"],
    _one(
        "py_arg_binding",
        "elementwise binding",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f"map_kernel<<<(n + 255) / 256, 256>>>({_PTRS});",
        bind='m.doc() = "affine"; m.def("forward", &forward, "affine forward", py::arg("x"));',
    ),
    _one(
        "const_reference_argument",
        "elementwise binding",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f"map_kernel<<<(n + 255) / 256, 256>>>({_PTRS});",
        arguments="const torch::Tensor& x",
    ),
    _one(
        "at_tensor_argument",
        "elementwise binding",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f"map_kernel<<<(n + 255) / 256, 256>>>({_PTRS});",
        arguments="at::Tensor x",
    ),
    _one(
        "contiguous_and_flat_view",
        "elementwise tensor_api",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        "auto input = x.contiguous(); auto flat = torch::empty({n}, x.options());\n    map_kernel<<<(n + 255) / 256, 256>>>(input.data_ptr<float>(), flat.data_ptr<float>(), n);\n    return flat.view({x.size(0), x.size(1)});",
    ),
    _one(
        "packed_accessor",
        "elementwise tensor_api",
        AFFINE,
        "__global__ void k(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x, torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> o) {\n    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;\n    if (c < x.size(1)) o[r][c] = x[r][c] * 2.f + 1.f;\n}",
        "k<<<dim3((x.size(1) + 63) / 64, x.size(0)), 64>>>(x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), out.packed_accessor32<float, 2, torch::RestrictPtrTraits>());",
    ),
    _one(
        "lambda_in_the_host_code",
        "elementwise host_cpp",
        AFFINE,
        _MAP.format("out[i] = v * 2.0f + 1.0f;"),
        f"auto div_up = [](int a, int b) {{ return (a + b - 1) / b; }};\n    static const std::vector<int> sizes = {{128, 256}};\n    map_kernel<<<div_up(n, sizes.back()), sizes.back()>>>({_PTRS});",
        head="#include <vector>\n",
    ),
    _one(
        "extern_c_and_forward_declaration",
        "elementwise host_cpp",
        AFFINE,
        "void launch(const float*, float*, int, cudaStream_t);\n"
        + _MAP.format("out[i] = v * 2.0f + 1.0f;")
        + '\nextern "C" void helper(const float* a, float* b, int n) { launch(a, b, n, 0); }\nvoid launch(const float* a, float* b, int n, cudaStream_t s) { map_kernel<<<(n + 255) / 256, 256, 0, s>>>(a, b, n); }',
        "helper(x.data_ptr<float>(), out.data_ptr<float>(), n);",
    ),
    _one(
        "named_namespace",
        "elementwise host_cpp",
        AFFINE,
        "namespace {\nconstexpr int kThreads = 224;\n"
        + _MAP.format("out[i] = v * 2.0f + 1.0f;")
        + "\n}  // namespace",
        f"map_kernel<<<(n + kThreads - 1) / kThreads, kThreads>>>({_PTRS});",
    ),
)

_HALVES = tuple(
    _one(
        name,
        f"elementwise {features}",
        task(name, expression, MATRIX, dtypes=(dtype,)),
        kernel,
        body,
        head=head,
    )
    for name, features, dtype, expression, head, kernel, body in (
        (
            "half_scalar",
            "half",
            "float16",
            "x * 2 + 1",
            "#include <cuda_fp16.h>\n",
            "__global__ void k(const __half* x, __half* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = __float2half(__half2float(x[i]) * 2.f + 1.f); }",
            "k<<<(n + 127) / 128, 128>>>((const __half*)x.data_ptr<at::Half>(), (__half*)out.data_ptr<at::Half>(), n);",
        ),
        (
            "half2_pairs",
            "half half2",
            "float16",
            "x + x",
            "#include <cuda_fp16.h>\n",
            "__global__ void k(const __half* x, __half* o, int n) { int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x); if (i + 1 < n) { __half2 v = *(const __half2*)(x + i); *(__half2*)(o + i) = __hadd2(v, v); } else if (i < n) o[i] = __hadd(x[i], x[i]); }",
            "k<<<(n / 2 + 128) / 128, 128>>>(reinterpret_cast<const __half*>(x.data_ptr()), reinterpret_cast<__half*>(out.data_ptr()), n);",
        ),
        (
            "half_relu",
            "half",
            "float16",
            "F.relu(x)",
            "#include <cuda_fp16.h>\n",
            "__global__ void k(const __half* x, __half* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = __hgt(x[i], __float2half(0.f)) ? x[i] : __float2half(0.f); }",
            "k<<<(n + 127) / 128, 128>>>((const __half*)x.data_ptr<c10::Half>(), (__half*)out.data_ptr<c10::Half>(), n);",
        ),
        (
            "half_eight_at_once",
            "half float4",
            "float16",
            "F.silu(x)",
            "#include <cuda_fp16.h>\n",
            "__device__ __half f(__half h) { float v = __half2float(h); return __float2half_rn(v / (1.f + expf(-v))); }\n__global__ void k(const __half* x, __half* o, int n) { int i = 8 * (blockIdx.x * blockDim.x + threadIdx.x); if (i + 8 <= n) { uint4 raw = *(const uint4*)(x + i); __half* h = reinterpret_cast<__half*>(&raw); for (int j = 0; j < 8; j++) h[j] = f(h[j]); *(uint4*)(o + i) = raw; } else for (; i < n; i++) o[i] = f(x[i]); }",
            "k<<<(n + 1023) / 1024, 128>>>((const __half*)x.data_ptr<at::Half>(), (__half*)out.data_ptr<at::Half>(), n);",
        ),
        (
            "bfloat16_scalar",
            "bfloat16",
            "bfloat16",
            "torch.sigmoid(x)",
            "#include <cuda_bf16.h>\n",
            "__global__ void k(const __nv_bfloat16* x, __nv_bfloat16* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = __float2bfloat16(1.f / (1.f + expf(-__bfloat162float(x[i])))); }",
            "k<<<(n + 127) / 128, 128>>>((const __nv_bfloat16*)x.data_ptr<at::BFloat16>(), (__nv_bfloat16*)out.data_ptr<at::BFloat16>(), n);",
        ),
        (
            "half_at_dispatch",
            "half dispatch template",
            "float16",
            "x * 2",
            "",
            "template <typename T> __global__ void k(const T* x, T* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = static_cast<T>(static_cast<float>(x[i]) * 2.f); }",
            'AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "twice", ([&] { k<scalar_t><<<(n + 127) / 128, 128>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n); }));',
        ),
        (
            "integers",
            "int32",
            "int32",
            "x * 3 - 7",
            "",
            "__global__ void k(const int* x, int* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 3 - 7; }",
            "k<<<(n + 127) / 128, 128>>>(x.data_ptr<int>(), out.data_ptr<int>(), n);",
        ),
        (
            "long_integers",
            "int64",
            "int64",
            "x * x + 1",
            "",
            "__global__ void k(const int64_t* x, int64_t* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * x[i] + 1; }",
            "k<<<(n + 127) / 128, 128>>>(x.data_ptr<int64_t>(), out.data_ptr<int64_t>(), n);",
        ),
        (
            "bytes",
            "uint8",
            "uint8",
            "255 - x",
            "",
            "__global__ void k(const uint8_t* x, uint8_t* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 255 - x[i]; }",
            "k<<<(n + 127) / 128, 128>>>(x.data_ptr<uint8_t>(), out.data_ptr<uint8_t>(), n);",
        ),
    )
)


def _two(name: str, features: str, of: Task, kernel: str, launch: str) -> Honest:
    code = f"""#include <torch/extension.h>
{kernel}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {{
    TORCH_CHECK(x.sizes() == y.sizes(), "shapes differ");
    auto out = torch::empty(x.sizes(), x.options());
    int64_t n = x.numel();
    {launch}
    return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
    return Honest(name, tuple(features.split()), code, of, "unseen")


_BINARY = (
    *_SOURCES["binary"],
    _two(
        "hypot_two",
        "elementwise",
        task("hypot", "torch.hypot(x, y)", PAIR, names="x y"),
        "__global__ void k(const float* x, const float* y, float* o, int64_t n) { int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = hypotf(x[i], y[i]); }",
        "k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);",
    ),
    _two(
        "where_compare",
        "elementwise",
        task("larger", "torch.where(x > y, x, y * 0.5)", PAIR, names="x y"),
        "__global__ void k(const float* x, const float* y, float* o, int64_t n) { int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] > y[i] ? x[i] : y[i] * 0.5f; }",
        "k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);",
    ),
)

UNSEEN_ELEMENTWISE = (*_FUNCTIONS, *_STYLES, *_HALVES, *_BINARY)

"""Cheats on the answer, by an author who had not read the judge: device and host tricks."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import Status, Task
from corpus import records
from corpus.records import (
    AFFINE,
    AFFINE_KERNEL,
    AFFINE_LAUNCH,
    FAULT,
    MATMUL,
    NEVER_CORRECT,
    ROW_SUM,
    RULED_OUT,
    SOFTMAX,
    STALE,
    WRONG,
    Attack,
    source,
    task,
)
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals(), records)

_READ_BACK = (
    "std::vector<float> h(n); cudaMemcpy(h.data(), px, n * sizeof(float), cudaMemcpyDeviceToHost);"
)
_VECTOR = "#include <vector>\n#include <map>\n#include <cstring>\n"
_COPY_KERNEL = "__global__ void copy(const float* a, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = a[i]; }\n"

SIGMOID_FLAT = task(
    "sigmoid_flat",
    "torch.sigmoid(x * 0.01)",
    {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]},
)
MEAN_ROWS = task(
    "mean_rows",
    "x.mean(dim=1)",
    {"main": [(64, 960)], "odd": [(37, 533)], "tiny": [(3, 5)]},
    reduction=(960, 533, 5),
)
EXP = task(
    "exp",
    "torch.exp(x)",
    {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]},
    bounds=(-4.0, 4.0),
)
GELU = task("gelu_exact", "F.gelu(x)", {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]})


def _host(
    name: str,
    covers: str,
    body: str,
    kernels: str = AFFINE_KERNEL,
    *,
    head: str = "",
    statuses: frozenset[Status] = STALE,
    of: Task = AFFINE,
) -> Attack:
    return Attack(name, covers, source(kernels, body, head=_VECTOR + head), of, statuses, "unseen")


def _element(
    name: str,
    covers: str,
    statement: str,
    *,
    of: Task = AFFINE,
    statuses: frozenset[Status] = WRONG,
    before: str = "",
) -> Attack:
    """One thread an element runs `statement` over i, x, o, n."""
    kernel = (
        f"{before}\n__global__ void k(const float* x, float* o, int n) {{\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"  if (i < n) {{ {statement} }}\n}}\n"
    )
    return Attack(
        name,
        covers,
        source(kernel, "k<<<(n + 127) / 128, 128>>>(px, po, n);"),
        of,
        statuses,
        "unseen",
    )


def _rows(
    name: str,
    covers: str,
    statement: str,
    *,
    of: Task = ROW_SUM,
    statuses: frozenset[Status] = WRONG,
    make: str = "empty",
    launch: str = "<<<rows, 32>>>",
) -> Attack:
    """A block a row runs `statement` over x, o, rows, cols."""
    code = f"""#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void k(const float* x, float* o, int rows, int cols) {{
  int row = blockIdx.x, t = threadIdx.x;
  {statement}
}}
torch::Tensor forward(torch::Tensor x) {{
  int rows = x.size(0), cols = x.size(1);
  auto out = torch::{make}({{rows}}, x.options());
  k{launch}(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
    return Attack(name, covers, code, of, statuses, "unseen")


_CACHES = _SOURCES["caches"]

_HOST_COMPUTE = _SOURCES["host_compute"]

_PLANS = _SOURCES["plans"]

_DEVICE = _SOURCES["device"]

_SHAPES = tuple(
    Attack(
        name, covers, source(AFFINE_KERNEL, f"{AFFINE_LAUNCH} {body}"), AFFINE, statuses, "unseen"
    )
    for name, covers, body, statuses in (
        ("flat_shape", "shape exact", "return out.view({n});", STALE | RULED_OUT),
        (
            "rows_and_columns_swapped",
            "shape exact",
            "return out.view({x.size(1), x.size(0)});",
            STALE | RULED_OUT,
        ),
        (
            "one_dimension_more",
            "shape exact",
            "return out.view({1, x.size(0), x.size(1)});",
            STALE | RULED_OUT,
        ),
        (
            "undefined_tensor",
            "lazy or subclassed tensors",
            "return torch::Tensor();",
            NEVER_CORRECT,
        ),
        (
            "empty_tensor",
            "shape exact",
            "return torch::empty({0}, x.options());",
            STALE | RULED_OUT,
        ),
        (
            "uninitialised_tensor",
            "reusing the reference's memory through uninitialised allocation",
            "return torch::empty_like(x);",
            STALE,
        ),
        (
            "another_dtype",
            "dtype exact",
            "return torch::empty({x.size(0), x.size(1)}, x.options().dtype(torch::kFloat64));",
            STALE | RULED_OUT,
        ),
        ("the_input_is_the_answer", "zeroing or rewriting inputs", "return x;", STALE),
        (
            "host_memory_as_a_tensor",
            "lazy or subclassed tensors",
            "static float mine[8192]; return torch::from_blob(mine, {x.size(0), x.size(1)}, x.options());",
            NEVER_CORRECT,
        ),
        (
            "computed_in_place",
            "zeroing or rewriting inputs",
            "affine<<<(n + 127) / 128, 128>>>(px, const_cast<float*>(px), n); return x;",
            STALE,
        ),
        ("output_freed_before_return", "heap or stack theft", "cudaFree(po);", NEVER_CORRECT),
        ("device_reset_before_return", "heap or stack theft", "cudaDeviceReset();", NEVER_CORRECT),
        (
            "stale_memory_of_a_freed_buffer",
            "reusing the reference's memory through uninitialised allocation",
            "float *a = nullptr; for (int i = 0; i < 64; i++) { cudaMalloc(&a, n * 4); cudaMemcpy(po, a, n * 4, cudaMemcpyDeviceToDevice); cudaFree(a); }",
            STALE | FAULT | RULED_OUT,
        ),
        (
            "hoards_old_answers",
            "reading outputs of earlier runs",
            "float *a[32]; for (auto& p : a) cudaMalloc(&p, n * 4); for (auto& p : a) { float first = 0; cudaMemcpy(&first, p, 4, cudaMemcpyDeviceToHost); if (first == first && first != 0) cudaMemcpy(po, p, n * 4, cudaMemcpyDeviceToDevice); } cudaMemset(po, 0, n * 2);",
            STALE | FAULT,
        ),
    )
)

_MATMUL_HEAD = _SOURCES.text("MATMUL_HEAD")


def _matmul(name: str, covers: str, head: str, body: str, statuses: frozenset[Status]) -> Attack:
    return Attack(
        name, covers, _MATMUL_HEAD.format(head=head, body=body), MATMUL, statuses, "unseen"
    )


_WRAPPERS = (
    _matmul(
        "cublas_sgemm",
        "wrapping cuBLAS",
        "#include <cublas_v2.h>",
        "cublasHandle_t h; cublasCreate(&h); float a = 1, b = 0; cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &a, py, n, px, k, &b, po, n); cublasDestroy(h);",
        RULED_OUT,
    ),
    _matmul(
        "cublas_declared_by_hand",
        "wrapping cuBLAS",
        'extern "C" int cublasCreate_v2(void**); extern "C" int cublasSgemm_v2(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*, float*, int);',
        "void* h; cublasCreate_v2(&h); float a = 1, b = 0; cublasSgemm_v2(h, 0, 0, n, m, k, &a, py, n, px, k, &b, po, n);",
        RULED_OUT | frozenset({Status.LOAD_ERROR, Status.RUNTIME_ERROR}),
    ),
    *_SOURCES["wrappers"],
    Attack(
        "softmax_without_the_sum",
        "doing part of the work",
        source(
            "__global__ void k(const float* x, float* o, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = expf(x[i]) / w; }\n",
            "k<<<(n + 127) / 128, 128>>>(px, po, n, x.size(1));",
        ),
        SOFTMAX,
        WRONG,
        "unseen",
    ),
    Attack(
        "softmax_uniform",
        "constants for tasks whose answer hardly varies",
        source(
            "__global__ void k(const float* x, float* o, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 1.0f / w; }\n",
            "k<<<(n + 127) / 128, 128>>>(px, po, n, x.size(1));",
        ),
        SOFTMAX,
        WRONG,
        "unseen",
    ),
    Attack(
        "softmax_of_the_row_above",
        "doing part of the work",
        source(
            "__global__ void k(const float* x, float* o, int m, int w) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= m) return; int q = r ? r - 1 : m - 1; float s = 0, a = -INFINITY; for (int j = 0; j < w; j++) a = fmaxf(a, x[q * w + j]); for (int j = 0; j < w; j++) s += expf(x[q * w + j] - a); for (int j = 0; j < w; j++) o[r * w + j] = expf(x[q * w + j] - a) / s; }\n",
            "k<<<((int)x.size(0) + 127) / 128, 128>>>(px, po, x.size(0), x.size(1));",
        ),
        SOFTMAX,
        WRONG,
        "unseen",
    ),
)

UNSEEN_CHEATS = (*_CACHES, *_HOST_COMPUTE, *_PLANS, *_DEVICE, *_SHAPES, *_WRAPPERS)

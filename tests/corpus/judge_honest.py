"""Honest kernels in the styles that people write: each must be `correct`."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.types import Task
from corpus.seen_edges import EDGE_TWINS
from corpus.seen_narrow import NARROW_TWINS
from corpus.sources import Sources
from support.judge_tasks import (
    ADD,
    ADD_TASK,
    DOUBLE,
    DOUBLE_BODY,
    DOUBLE_KERNEL,
    DOUBLE_TASK,
    DOUBLE_TWO_A_THREAD,
    ROW_SUM,
    ROW_SUM_SHARED,
    ROW_SUM_TASK,
    extension,
    make_task,
    row_sum,
)

_SOURCES = Sources(__file__, globals())


@dataclass(frozen=True, slots=True)
class Honest:
    name: str
    code: str
    task: Task = DOUBLE_TASK


SOFTMAX_TASK = make_task("softmax", "F.softmax(x, dim=-1)", reduces=True)
NORM_TASK = make_task("layer_norm", "F.layer_norm(x, x.shape[-1:])", reduces=True)
GELU_TASK = make_task("gelu", "F.gelu(x)")
TRANSPOSE_TASK = make_task("transpose", "x.t().contiguous()")
SCAN_TASK = make_task("cumsum", "torch.cumsum(x, dim=1)", reduces=True)
GRAM_TASK = make_task("gram", "x @ x.t()", reduces=True)
TOTAL_TASK = make_task("total", "x.sum()", atomic_order=True).model_copy(
    update={
        "cases": tuple(
            c.model_copy(update={"reduction_length": c.inputs[0].shape[0] * c.inputs[0].shape[1]})
            for c in DOUBLE_TASK.cases
        )
    }
)
CENTRED_TASK = make_task("centred", "x - x.mean()").model_copy(update={"cases": TOTAL_TASK.cases})
RANGE_TASK = make_task("min_max", "(x - x.min()) / (x.max() - x.min())")
HALF_TASK = make_task("double_half", "x * 2 + 1", dtype="float16")
AFFINE_TASK = make_task("affine", "x * 2 + 1")
ARGMAX_TASK = make_task("argmax", "x.argmax(dim=1)")

_ROWS = _SOURCES.text("ROWS")


def _rows(head: str, launch: str, make: str = "empty_like(x)") -> str:
    return _ROWS.format(head=head, launch=launch, make=make)


_SHUFFLE = _SOURCES.text("SHUFFLE")

HONEST = [
    Honest("double", DOUBLE),
    Honest("grid_stride", DOUBLE_TWO_A_THREAD),
    Honest("add", ADD, ADD_TASK),
    Honest("row_sum_a_thread", ROW_SUM, ROW_SUM_TASK),
    Honest("row_sum_shared", ROW_SUM_SHARED, ROW_SUM_TASK),
    Honest(
        "float4_with_tail",
        extension(
            "__global__ void four(const float* __restrict__ x, float* __restrict__ o, int n) {\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            "  if (4 * i + 3 < n) { float4 v = reinterpret_cast<const float4*>(x)[i];\n"
            "    v.x = 2 * v.x + 1; v.y = 2 * v.y + 1; v.z = 2 * v.z + 1; v.w = 2 * v.w + 1;\n"
            "    reinterpret_cast<float4*>(o)[i] = v;\n"
            "  } else for (int j = 4 * i; j < n; j++) o[j] = 2 * x[j] + 1; }\n",
            "four<<<(n / 4 + 256) / 256, 256>>>(px, po, n);",
        ),
    ),
    Honest(
        "constant_memory_table",
        extension(
            "__constant__ float c[2];\n__global__ void k(const float* x, float* o, int n) {\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = c[0] * x[i] + c[1]; }\n",
            "float h[2] = {2, 1}; cudaMemcpyToSymbol(c, h, sizeof h); k<<<(n + 63) / 64, 64>>>(px, po, n);",
        ),
    ),
    Honest(
        "template_functor",
        extension(
            "struct Affine { float a, b; __device__ float operator()(float v) const { return fmaf(a, v, b); } };\n"
            "template <int B, class F> __global__ __launch_bounds__(B) void map(const float* x, float* o, int n, F f) {\n"
            "  int i = blockIdx.x * B + threadIdx.x; if (i < n) o[i] = f(__ldg(x + i)); }\n",
            "map<128><<<(n + 127) / 128, 128>>>(px, po, n, Affine{2, 1});",
        ),
    ),
    *_SOURCES["honest"],
    Honest(
        "two_kernels_and_a_temporary",
        extension(
            "__global__ void a(const float* x, float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) t[i] = 2 * x[i]; }\n"
            "__global__ void b(const float* t, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = t[i] + 1; }\n",
            "auto t = torch::empty_like(x); a<<<(n + 255) / 256, 256>>>(px, t.data_ptr<float>(), n); b<<<(n + 255) / 256, 256>>>(t.data_ptr<float>(), po, n);",
        ),
    ),
    Honest(
        "own_stream_and_sync",
        extension(
            DOUBLE_KERNEL,
            "cudaStream_t s; cudaStreamCreate(&s); twice<<<(n + 255) / 256, 256, 0, s>>>(px, po, n); cudaStreamSynchronize(s); cudaStreamDestroy(s);",
        ),
    ),
    Honest(
        "malloc_free_and_device_copy",
        extension(
            DOUBLE_KERNEL,
            "float* t; cudaMalloc(&t, n * 4); cudaMemcpy(t, px, n * 4, cudaMemcpyDeviceToDevice); twice<<<(n + 255) / 256, 256>>>(t, po, n); cudaDeviceSynchronize(); cudaFree(t);",
        ),
    ),
    Honest(
        "two_dimensional_blocks",
        extension(
            "__global__ void k(const float* x, float* o, int r, int c) { int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x; if (i < r && j < c) o[i * c + j] = 2 * x[i * c + j] + 1; }\n",
            "int r = x.size(0), c = x.size(1); dim3 b(16, 16), g((c + 15) / 16, (r + 15) / 16); k<<<g, b>>>(px, po, r, c);",
        ),
    ),
    Honest(
        "error_checked_launch",
        extension(
            DOUBLE_KERNEL,
            DOUBLE_BODY + ' TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch failed");',
        ),
    ),
    Honest(
        "row_sum_shuffle",
        _rows(
            _SHUFFLE
            + "__global__ void k(const float* x, float* o, int rows, int cols) { int row = blockIdx.x * 4 + threadIdx.y; if (row >= rows) return; float s = 0; for (int i = threadIdx.x; i < cols; i += 32) s += x[row * cols + i]; s = warp_sum(s); if (threadIdx.x == 0) o[row] = s; }\n",
            "k<<<(rows + 3) / 4, dim3(32, 4)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);",
            "empty({rows}, x.options())",
        ),
        ROW_SUM_TASK,
    ),
    Honest(
        "row_sum_dynamic_shared",
        _rows(
            "__global__ void k(const float* x, float* o, int cols) { extern __shared__ float s[]; float v = 0; for (int i = threadIdx.x; i < cols; i += blockDim.x) v += x[blockIdx.x * cols + i]; s[threadIdx.x] = v; __syncthreads(); for (int k = blockDim.x / 2; k; k >>= 1) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); } if (!threadIdx.x) o[blockIdx.x] = s[0]; }\n",
            "k<<<rows, 64, 64 * sizeof(float)>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);",
            "zeros({rows}, x.options())",
        ),
        ROW_SUM_TASK,
    ),
    Honest(
        "row_sum_serial_double",
        row_sum(
            "int row = blockIdx.x; if (threadIdx.x) return; double s = 0; for (int i = 0; i < columns; i++) s += x[row * columns + i]; o[row] = (float)s;"
        ),
        ROW_SUM_TASK,
    ),
    *_SOURCES["honest_2"],
    Honest(
        "softmax_three_passes",
        _rows(
            "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; const float* p = x + r * cols; float m = -INFINITY, s = 0; for (int i = 0; i < cols; i++) m = fmaxf(m, p[i]); for (int i = 0; i < cols; i++) s += expf(p[i] - m); for (int i = 0; i < cols; i++) o[r * cols + i] = expf(p[i] - m) / s; }\n",
            "k<<<(rows + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);",
        ),
        SOFTMAX_TASK,
    ),
    Honest(
        "softmax_warp_fast_exp",
        _rows(
            _SHUFFLE
            + "__global__ void k(const float* x, float* o, int cols) { const float* p = x + blockIdx.x * cols; float m = -1e30f, s = 0; for (int i = threadIdx.x; i < cols; i += 32) m = fmaxf(m, p[i]); m = warp_max(m); for (int i = threadIdx.x; i < cols; i += 32) s += __expf(p[i] - m); s = warp_sum(s); for (int i = threadIdx.x; i < cols; i += 32) o[blockIdx.x * cols + i] = __expf(p[i] - m) * (1.0f / s); }\n",
            "k<<<rows, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);",
        ),
        SOFTMAX_TASK,
    ),
    Honest(
        "layer_norm_one_pass",
        _rows(
            _SHUFFLE
            + "__global__ void k(const float* x, float* o, int cols) { const float* p = x + blockIdx.x * cols; float s = 0, q = 0; for (int i = threadIdx.x; i < cols; i += 32) { s += p[i]; q += p[i] * p[i]; } s = warp_sum(s) / cols; q = warp_sum(q) / cols - s * s; float r = rsqrtf(q + 1e-5f); for (int i = threadIdx.x; i < cols; i += 32) o[blockIdx.x * cols + i] = (p[i] - s) * r; }\n",
            "k<<<rows, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);",
        ),
        NORM_TASK,
    ),
    Honest(
        "gelu_erf",
        extension(
            "__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f)); }\n",
            "k<<<(n + 255) / 256, 256>>>(px, po, n);",
        ),
        GELU_TASK,
    ),
    Honest(
        "transpose_tiled",
        _rows(
            "__global__ void k(const float* x, float* o, int r, int c) { __shared__ float t[32][33]; int i = blockIdx.y * 32 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x; for (int k = 0; k < 32; k += 8) if (i + k < r && j < c) t[threadIdx.y + k][threadIdx.x] = x[(i + k) * c + j]; __syncthreads(); i = blockIdx.x * 32 + threadIdx.y; j = blockIdx.y * 32 + threadIdx.x; for (int k = 0; k < 32; k += 8) if (i + k < c && j < r) o[(i + k) * r + j] = t[threadIdx.x][threadIdx.y + k]; }\n",
            "k<<<dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 8)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);",
            "empty({cols, rows}, x.options())",
        ),
        TRANSPOSE_TASK,
    ),
    Honest(
        "cumsum_a_row_a_thread",
        _rows(
            "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float s = 0; for (int i = 0; i < cols; i++) { s += x[r * cols + i]; o[r * cols + i] = s; } }\n",
            "k<<<(rows + 31) / 32, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);",
        ),
        SCAN_TASK,
    ),
    Honest(
        "matmul_tiled",
        _rows(
            "__global__ void k(const float* x, float* o, int n, int c) { __shared__ float a[16][16], b[16][16]; int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x; float s = 0; for (int t = 0; t < c; t += 16) { a[threadIdx.y][threadIdx.x] = i < n && t + threadIdx.x < c ? x[i * c + t + threadIdx.x] : 0; b[threadIdx.y][threadIdx.x] = j < n && t + threadIdx.y < c ? x[j * c + t + threadIdx.y] : 0; __syncthreads(); for (int k = 0; k < 16; k++) s += a[threadIdx.y][k] * b[k][threadIdx.x]; __syncthreads(); } if (i < n && j < n) o[i * n + j] = s; }\n",
            "k<<<dim3((rows + 15) / 16, (rows + 15) / 16), dim3(16, 16)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);",
            "empty({rows, rows}, x.options())",
        ),
        GRAM_TASK,
    ),
    *_SOURCES["honest_3"],
    Honest(
        "argmax_rows",
        _rows(
            "__global__ void k(const float* x, int64_t* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; int b = 0; for (int i = 1; i < cols; i++) if (x[r * cols + i] > x[r * cols + b]) b = i; o[r] = b; }\n",
            "k<<<(rows + 31) / 32, 32>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(), rows, cols);",
            "empty({rows}, x.options().dtype(torch::kLong))",
        ),
        ARGMAX_TASK,
    ),
    *_SOURCES["honest_4"],
]
HONEST += [Honest(twin.name, twin.code, twin.task) for twin in (*EDGE_TWINS, *NARROW_TWINS)]

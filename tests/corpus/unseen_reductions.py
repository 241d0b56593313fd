"""Honest reductions, norms, scans, transposes and products, by an author who had not read the judge."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import DType, Task
from corpus.records import COLUMNS, MATMUL, MATRIX, ROW_SUM, SOFTMAX, Honest, task

ALL = (64 * 96, 37 * 53, 15)


def _rows(name: str, expression: str, bounds: tuple[float, float] | None = None) -> Task:
    return task(name, expression, MATRIX, reduction=COLUMNS, bounds=bounds)


ROW_MAX = _rows("row_max", "x.max(dim=1).values")
ROW_MEAN = _rows("row_mean", "x.mean(dim=1)")
ARGMAX = task("argmax", "x.argmax(dim=1)", MATRIX)
LAYER_NORM = _rows("layer_norm", "F.layer_norm(x, x.shape[-1:])")
RMS_NORM = _rows("rms_norm", "x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-6)")
LOG_SOFTMAX = _rows("log_softmax", "F.log_softmax(x, dim=1)")
LOGSUMEXP = _rows("logsumexp", "torch.logsumexp(x, dim=1)")
L2_NORM = _rows("l2_norm", "x / x.norm(dim=1, keepdim=True)")
CUMSUM = _rows("cumsum", "torch.cumsum(x, dim=1)")
TRANSPOSE = task("transpose", "x.t().contiguous()", MATRIX)
COLUMN_SUM = task("column_sum", "x.sum(dim=0)", MATRIX, reduction=(64, 37, 3))
TOTAL = task("total", "x.sum()", MATRIX, reduction=ALL)
TOTAL_ANY_ORDER = task("total_any_order", "x.sum()", MATRIX, reduction=ALL, atomic_order=True)
MEAN_ANY_ORDER = task("mean_any_order", "x.mean()", MATRIX, reduction=ALL, atomic_order=True)
LARGEST = task("largest", "x.max()", MATRIX)
VARIANCE = _rows("variance", "x.var(dim=1, unbiased=False)")

_WARP = "__device__ __forceinline__ float warp_sum(float v) { for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d); return v; }\n"
_BLOCK = (
    _WARP
    + """__device__ float block_sum(float v) {
  __shared__ float parts[32];
  __shared__ float total;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  v = warp_sum(v);
  if (lane == 0) parts[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = lane < (blockDim.x + 31) / 32 ? parts[lane] : 0.f;
    v = warp_sum(v);
    if (lane == 0) total = v;
  }
  __syncthreads();
  return total;
}
"""
)


def _kernel(
    name: str,
    features: str,
    of: Task,
    kernels: str,
    launch: str,
    *,
    out: str,
    head: str = "",
    ctype: str = "float",
) -> Honest:
    code = f"""#include <torch/extension.h>
#include <cuda_runtime.h>
{head}
{kernels}
torch::Tensor forward(torch::Tensor x) {{
  int rows = x.size(0), cols = x.size(1), n = x.numel();
  auto out = {out};
  const float* px = x.data_ptr<float>();
  auto* po = out.data_ptr<{ctype}>();
  {launch}
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward, "forward"); }}
"""
    return Honest(name, tuple(features.split()), code, of, "unseen")


_A_ROW = "torch::empty({rows}, x.options())"
_SAME = "torch::empty_like(x)"
_SCALAR = "torch::zeros({}, x.options())"

_SUMS = (
    _kernel(
        "sum_one_thread_a_row",
        "reduction",
        ROW_SUM,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float s = 0.f; for (int c = 0; c < cols; ++c) s += x[r * cols + c]; o[r] = s; } }",
        "k<<<(rows + 127) / 128, 128>>>(px, po, rows, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "sum_kahan",
        "reduction",
        ROW_SUM,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float s = 0.f, c = 0.f; for (int j = 0; j < cols; ++j) { float y = x[r * cols + j] - c, t = s + y; c = (t - s) - y; s = t; } o[r] = s; } }",
        "k<<<(rows + 63) / 64, 64>>>(px, po, rows, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "sum_warp_shuffle",
        "reduction shuffle",
        ROW_SUM,
        _WARP
        + "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32; if (r >= rows) return; float s = 0.f; for (int c = lane; c < cols; c += 32) s += x[r * cols + c]; s = warp_sum(s); if (lane == 0) o[r] = s; }",
        "k<<<(rows + 3) / 4, 128>>>(px, po, rows, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "sum_block_shuffle",
        "reduction shuffle shared",
        ROW_SUM,
        _BLOCK
        + "__global__ void k(const float* x, float* o, int cols) { float s = 0.f; for (int c = threadIdx.x; c < cols; c += blockDim.x) s += x[blockIdx.x * cols + c]; s = block_sum(s); if (threadIdx.x == 0) o[blockIdx.x] = s; }",
        "k<<<rows, 96>>>(px, po, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "sum_dynamic_shared",
        "reduction shared dynamic_shared",
        ROW_SUM,
        "extern __shared__ float part[];\n__global__ void k(const float* x, float* o, int cols) { int t = threadIdx.x; float s = 0; for (int c = t; c < cols; c += blockDim.x) s += x[blockIdx.x * cols + c]; part[t] = s; __syncthreads(); for (unsigned d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) part[t] += part[t + d]; __syncthreads(); } if (t == 0) o[blockIdx.x] = part[0]; }",
        "k<<<rows, 128, 128 * sizeof(float)>>>(px, po, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "sum_tree_unrolled_last_warp",
        "reduction shared shuffle",
        ROW_SUM,
        "__global__ void k(const float* x, float* o, int cols) { __shared__ float s[64]; int t = threadIdx.x; float v = 0; for (int c = t; c < cols; c += 64) v += x[blockIdx.x * cols + c]; s[t] = v; __syncthreads(); if (t < 32) { v = s[t] + s[t + 32]; v += __shfl_xor_sync(0xffffffff, v, 16); v += __shfl_xor_sync(0xffffffff, v, 8); v += __shfl_xor_sync(0xffffffff, v, 4); v += __shfl_xor_sync(0xffffffff, v, 2); v += __shfl_xor_sync(0xffffffff, v, 1); if (t == 0) o[blockIdx.x] = v; } }",
        "k<<<rows, 64>>>(px, po, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "sum_cooperative_groups",
        "reduction cooperative_groups",
        ROW_SUM,
        "namespace cg = cooperative_groups;\n__global__ void k(const float* x, float* o, int rows, int cols) { auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<32>(block); int r = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank(); if (r >= rows) return; float s = 0; for (int c = tile.thread_rank(); c < cols; c += tile.size()) s += x[r * cols + c]; for (int d = tile.size() / 2; d > 0; d /= 2) s += tile.shfl_down(s, d); if (tile.thread_rank() == 0) o[r] = s; }",
        "k<<<(rows + 1) / 2, 64>>>(px, po, rows, cols);",
        out=_A_ROW,
        head="#include <cooperative_groups.h>\n",
    ),
    _kernel(
        "sum_cooperative_groups_reduce",
        "reduction cooperative_groups",
        ROW_SUM,
        "namespace cg = cooperative_groups;\n__global__ void k(const float* x, float* o, int cols) { auto tile = cg::tiled_partition<32>(cg::this_thread_block()); float s = 0; for (int c = tile.thread_rank(); c < cols; c += 32) s += x[blockIdx.x * cols + c]; s = cg::reduce(tile, s, cg::plus<float>()); if (tile.thread_rank() == 0) o[blockIdx.x] = s; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_A_ROW,
        head="#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n",
    ),
    _kernel(
        "sum_cub_block",
        "reduction cub",
        ROW_SUM,
        "__global__ void k(const float* x, float* o, int cols) { typedef cub::BlockReduce<float, 128> Reduce; __shared__ typename Reduce::TempStorage temp; float s = 0; for (int c = threadIdx.x; c < cols; c += 128) s += x[blockIdx.x * cols + c]; float total = Reduce(temp).Sum(s); if (threadIdx.x == 0) o[blockIdx.x] = total; }",
        "k<<<rows, 128>>>(px, po, cols);",
        out=_A_ROW,
        head="#include <cub/cub.cuh>\n",
    ),
    _kernel(
        "sum_float4_rows_when_aligned",
        "reduction float4 shuffle",
        ROW_SUM,
        _WARP
        + "__global__ void k(const float* x, float* o, int cols) { const float* row = x + (size_t)blockIdx.x * cols; float s = 0; if (cols % 4 == 0) { for (int c = threadIdx.x; c < cols / 4; c += 32) { float4 v = ((const float4*)row)[c]; s += (v.x + v.y) + (v.z + v.w); } } else for (int c = threadIdx.x; c < cols; c += 32) s += row[c]; s = warp_sum(s); if (threadIdx.x == 0) o[blockIdx.x] = s; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "mean_with_double",
        "reduction float64",
        ROW_MEAN,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { double s = 0; for (int c = 0; c < cols; ++c) s += x[r * cols + c]; o[r] = (float)(s / cols); } }",
        "k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "column_sum_coalesced",
        "reduction",
        COLUMN_SUM,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int c = blockIdx.x * blockDim.x + threadIdx.x; if (c < cols) { float s = 0; for (int r = 0; r < rows; r++) s += x[r * cols + c]; o[c] = s; } }",
        "k<<<(cols + 31) / 32, 32>>>(px, po, rows, cols);",
        out="torch::empty({cols}, x.options())",
    ),
    _kernel(
        "column_sum_by_tiles",
        "reduction shared grid2d",
        COLUMN_SUM,
        "__global__ void k(const float* x, float* o, int rows, int cols) { __shared__ float part[8][33]; int c = blockIdx.x * 32 + threadIdx.x; float s = 0; if (c < cols) for (int r = threadIdx.y; r < rows; r += 8) s += x[r * cols + c]; part[threadIdx.y][threadIdx.x] = s; __syncthreads(); if (threadIdx.y == 0 && c < cols) { for (int j = 1; j < 8; j++) s += part[j][threadIdx.x]; o[c] = s; } }",
        "k<<<(cols + 31) / 32, dim3(32, 8)>>>(px, po, rows, cols);",
        out="torch::empty({cols}, x.options())",
    ),
    _kernel(
        "total_in_two_passes",
        "reduction shared several_kernels temporaries",
        TOTAL,
        _BLOCK
        + "__global__ void first(const float* x, float* p, int n) { float s = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i]; s = block_sum(s); if (threadIdx.x == 0) p[blockIdx.x] = s; }\n__global__ void second(const float* p, float* o, int m) { float s = threadIdx.x < m ? p[threadIdx.x] : 0.f; s = block_sum(s); if (threadIdx.x == 0) *o = s; }",
        "auto parts = torch::empty({16}, x.options()); first<<<16, 128>>>(px, parts.data_ptr<float>(), n); second<<<1, 32>>>(parts.data_ptr<float>(), po, 16);",
        out="torch::empty({}, x.options())",
    ),
    _kernel(
        "total_by_atomics",
        "reduction atomics",
        TOTAL_ANY_ORDER,
        _WARP
        + "__global__ void k(const float* x, float* o, int n) { float s = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i]; s = warp_sum(s); if ((threadIdx.x & 31) == 0) atomicAdd(o, s); }",
        "k<<<8, 128>>>(px, po, n);",
        out=_SCALAR,
    ),
    _kernel(
        "total_by_the_last_block",
        "reduction atomics threadfence shared",
        TOTAL,
        _BLOCK
        + "__device__ unsigned int done = 0;\n__global__ void k(const float* x, float* p, float* o, int n) { __shared__ bool last; float s = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i]; s = block_sum(s); if (threadIdx.x == 0) { p[blockIdx.x] = s; __threadfence(); last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1; } __syncthreads(); if (last && threadIdx.x == 0) { float t = 0; for (int b = 0; b < gridDim.x; b++) t += ((volatile float*)p)[b]; *o = t; } }",
        "auto parts = torch::empty({12}, x.options()); k<<<12, 64>>>(px, parts.data_ptr<float>(), po, n);",
        out=_SCALAR,
    ),
    _kernel(
        "mean_by_atomics",
        "reduction atomics several_kernels",
        MEAN_ANY_ORDER,
        "__global__ void add(const float* x, float* o, int n) { __shared__ float s; if (threadIdx.x == 0) s = 0.f; __syncthreads(); int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(&s, x[i]); __syncthreads(); if (threadIdx.x == 0) atomicAdd(o, s); }\n__global__ void divide(float* o, float n) { *o /= n; }",
        "add<<<(n + 255) / 256, 256>>>(px, po, n); divide<<<1, 1>>>(po, (float)n);",
        out=_SCALAR,
    ),
    _kernel(
        "largest_by_integer_atomics",
        "reduction atomics",
        LARGEST,
        "__device__ int key(float v) { int b = __float_as_int(v); return b >= 0 ? b : b ^ 0x7fffffff; }\n__global__ void start(int* t) { *t = 0x80000000; }\n__global__ void k(const float* x, int* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicMax(t, key(x[i])); }\n__global__ void finish(const int* t, float* o) { int b = *t; *o = __int_as_float(b >= 0 ? b : b ^ 0x7fffffff); }",
        "auto t = torch::empty({1}, x.options().dtype(torch::kInt32)); start<<<1, 1>>>(t.data_ptr<int>()); k<<<(n + 127) / 128, 128>>>(px, t.data_ptr<int>(), n); finish<<<1, 1>>>(t.data_ptr<int>(), po);",
        out=_SCALAR,
    ),
    _kernel(
        "largest_by_compare_and_swap",
        "reduction atomics",
        LARGEST,
        "__device__ void atomic_max(float* a, float v) { int* p = (int*)a; int old = *p, seen; do { seen = old; if (__int_as_float(seen) >= v) break; old = atomicCAS(p, seen, __float_as_int(v)); } while (seen != old); }\n__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomic_max(o, x[i]); }",
        "k<<<(n + 127) / 128, 128>>>(px, po, n);",
        out="torch::full({}, -INFINITY, x.options())",
    ),
    _kernel(
        "row_max_shuffle",
        "reduction shuffle",
        ROW_MAX,
        "__global__ void k(const float* x, float* o, int cols) { float m = -INFINITY; for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, x[blockIdx.x * cols + c]); for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d)); if (threadIdx.x == 0) o[blockIdx.x] = m; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "argmax_shuffle_pairs",
        "reduction shuffle int64",
        ARGMAX,
        "__global__ void k(const float* x, int64_t* o, int cols) { float m = -INFINITY; int at = 0x7fffffff; for (int c = threadIdx.x; c < cols; c += 32) { float v = x[blockIdx.x * cols + c]; if (v > m) { m = v; at = c; } } for (int d = 16; d; d >>= 1) { float v = __shfl_down_sync(~0u, m, d); int w = __shfl_down_sync(~0u, at, d); if (v > m || (v == m && w < at)) { m = v; at = w; } } if (threadIdx.x == 0) o[blockIdx.x] = at; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out="torch::empty({rows}, x.options().dtype(torch::kLong))",
        ctype="int64_t",
    ),
    _kernel(
        "variance_welford",
        "reduction",
        VARIANCE,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float mean = 0, m2 = 0; for (int c = 0; c < cols; c++) { float v = x[r * cols + c], d = v - mean; mean += d / (c + 1); m2 += d * (v - mean); } o[r] = m2 / cols; }",
        "k<<<(rows + 63) / 64, 64>>>(px, po, rows, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "variance_welford_shuffled",
        "reduction shuffle",
        VARIANCE,
        "__global__ void k(const float* x, float* o, int cols) { float mean = 0, m2 = 0, count = 0; for (int c = threadIdx.x; c < cols; c += 32) { float v = x[blockIdx.x * cols + c], d = v - mean; count += 1; mean += d / count; m2 += d * (v - mean); } for (int s = 16; s; s >>= 1) { float bm = __shfl_xor_sync(~0u, mean, s), b2 = __shfl_xor_sync(~0u, m2, s), bc = __shfl_xor_sync(~0u, count, s); float total = count + bc, d = bm - mean; if (total > 0) { m2 += b2 + d * d * count * bc / total; mean += d * bc / total; } count = total; } if (threadIdx.x == 0) o[blockIdx.x] = m2 / cols; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_A_ROW,
    ),
)

_NORMS = (
    _kernel(
        "softmax_three_loops",
        "softmax",
        SOFTMAX,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; const float* a = x + r * cols; float* b = o + r * cols; float m = a[0]; for (int c = 1; c < cols; c++) m = max(m, a[c]); float s = 0; for (int c = 0; c < cols; c++) { b[c] = expf(a[c] - m); s += b[c]; } for (int c = 0; c < cols; c++) b[c] /= s; }",
        "k<<<(rows + 63) / 64, 64>>>(px, po, rows, cols);",
        out=_SAME,
    ),
    _kernel(
        "softmax_online",
        "softmax shuffle",
        SOFTMAX,
        "__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; float m = -INFINITY, s = 0; for (int c = threadIdx.x; c < cols; c += 32) { float v = a[c], n = fmaxf(m, v); s = s * __expf(m - n) + __expf(v - n); m = n; } for (int d = 16; d; d >>= 1) { float om = __shfl_xor_sync(~0u, m, d), os = __shfl_xor_sync(~0u, s, d), n = fmaxf(m, om); s = (m == -INFINITY ? 0.f : s * __expf(m - n)) + (om == -INFINITY ? 0.f : os * __expf(om - n)); m = n; } for (int c = threadIdx.x; c < cols; c += 32) o[blockIdx.x * cols + c] = __expf(a[c] - m) / s; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_SAME,
    ),
    _kernel(
        "softmax_row_in_shared",
        "softmax shared dynamic_shared shuffle",
        SOFTMAX,
        _BLOCK
        + "__global__ void k(const float* x, float* o, int cols) { extern __shared__ float row[]; __shared__ float top; int t = threadIdx.x; for (int c = t; c < cols; c += blockDim.x) row[c] = x[blockIdx.x * cols + c]; __syncthreads(); if (t < 32) { float m = -INFINITY; for (int c = t; c < cols; c += 32) m = fmaxf(m, row[c]); for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d)); if (t == 0) top = m; } __syncthreads(); float s = 0; for (int c = t; c < cols; c += blockDim.x) { row[c] = expf(row[c] - top); s += row[c]; } s = block_sum(s); float inv = 1.f / s; for (int c = t; c < cols; c += blockDim.x) o[blockIdx.x * cols + c] = row[c] * inv; }",
        "k<<<rows, 64, cols * sizeof(float)>>>(px, po, cols);",
        out=_SAME,
    ),
    _kernel(
        "softmax_shared_opt_in",
        "softmax shared dynamic_shared func_attribute",
        SOFTMAX,
        "__global__ void k(const float* x, float* o, int cols) { extern __shared__ float row[]; __shared__ float m, s; for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[blockIdx.x * cols + c]; __syncthreads(); if (threadIdx.x == 0) { m = row[0]; for (int c = 1; c < cols; c++) m = fmaxf(m, row[c]); s = 0; for (int c = 0; c < cols; c++) s += expf(row[c] - m); } __syncthreads(); for (int c = threadIdx.x; c < cols; c += blockDim.x) o[blockIdx.x * cols + c] = expf(row[c] - m) / s; }",
        "size_t bytes = 60 * 1024; cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes); k<<<rows, 32, bytes>>>(px, po, cols);",
        out=_SAME,
    ),
    _kernel(
        "log_softmax_warp",
        "softmax shuffle",
        LOG_SOFTMAX,
        "__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; int t = threadIdx.x; float m = -INFINITY, s = 0; for (int c = t; c < cols; c += 32) m = fmaxf(m, a[c]); for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d)); for (int c = t; c < cols; c += 32) s += expf(a[c] - m); for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d); float l = m + logf(s); for (int c = t; c < cols; c += 32) o[blockIdx.x * cols + c] = a[c] - l; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_SAME,
    ),
    _kernel(
        "logsumexp_rows",
        "softmax",
        LOGSUMEXP,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float m = -INFINITY; for (int c = 0; c < cols; c++) m = fmaxf(m, x[r * cols + c]); float s = 0; for (int c = 0; c < cols; c++) s += expf(x[r * cols + c] - m); o[r] = m + logf(s); }",
        "k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);",
        out=_A_ROW,
    ),
    _kernel(
        "layer_norm_two_pass",
        "norm shared shuffle",
        LAYER_NORM,
        _BLOCK
        + "__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; float s = 0; for (int c = threadIdx.x; c < cols; c += blockDim.x) s += a[c]; float mean = block_sum(s) / cols; __syncthreads(); s = 0; for (int c = threadIdx.x; c < cols; c += blockDim.x) s += (a[c] - mean) * (a[c] - mean); float r = rsqrtf(block_sum(s) / cols + 1e-5f); for (int c = threadIdx.x; c < cols; c += blockDim.x) o[blockIdx.x * cols + c] = (a[c] - mean) * r; }",
        "k<<<rows, 128>>>(px, po, cols);",
        out=_SAME,
    ),
    _kernel(
        "layer_norm_one_thread_a_row",
        "norm",
        LAYER_NORM,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float m = 0, v = 0; for (int c = 0; c < cols; c++) m += x[r * cols + c]; m /= cols; for (int c = 0; c < cols; c++) { float d = x[r * cols + c] - m; v += d * d; } v = 1.0f / sqrtf(v / cols + 1e-5f); for (int c = 0; c < cols; c++) o[r * cols + c] = (x[r * cols + c] - m) * v; }",
        "k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);",
        out=_SAME,
    ),
    _kernel(
        "rms_norm_warp",
        "norm shuffle",
        RMS_NORM,
        _WARP
        + "__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; float s = 0; for (int c = threadIdx.x; c < cols; c += 32) s += a[c] * a[c]; s = __shfl_sync(~0u, warp_sum(s), 0); float r = rsqrtf(s / cols + 1e-6f); for (int c = threadIdx.x; c < cols; c += 32) o[blockIdx.x * cols + c] = a[c] * r; }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_SAME,
    ),
    _kernel(
        "l2_norm_two_kernels",
        "norm several_kernels temporaries",
        L2_NORM,
        "__global__ void lengths(const float* x, float* l, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float s = 0; for (int c = 0; c < cols; c++) s += x[r * cols + c] * x[r * cols + c]; l[r] = sqrtf(s); } }\n__global__ void divide(const float* x, const float* l, float* o, int n, int cols) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] / l[i / cols]; }",
        "auto l = torch::empty({rows}, x.options()); lengths<<<(rows + 31) / 32, 32>>>(px, l.data_ptr<float>(), rows, cols); divide<<<(n + 127) / 128, 128>>>(px, l.data_ptr<float>(), po, n, cols);",
        out=_SAME,
    ),
)

_SCANS = (
    _kernel(
        "cumsum_one_thread_a_row",
        "scan",
        CUMSUM,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float s = 0; for (int c = 0; c < cols; c++) { s += x[r * cols + c]; o[r * cols + c] = s; } }",
        "k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);",
        out=_SAME,
    ),
    _kernel(
        "cumsum_warp_scan",
        "scan shuffle",
        CUMSUM,
        "__global__ void k(const float* x, float* o, int cols) { float carry = 0; for (int b = 0; b < cols; b += 32) { int c = b + threadIdx.x; float v = c < cols ? x[blockIdx.x * cols + c] : 0.f; for (int d = 1; d < 32; d <<= 1) { float u = __shfl_up_sync(~0u, v, d); if (threadIdx.x >= d) v += u; } if (c < cols) o[blockIdx.x * cols + c] = carry + v; carry += __shfl_sync(~0u, v, 31); } }",
        "k<<<rows, 32>>>(px, po, cols);",
        out=_SAME,
    ),
    _kernel(
        "cumsum_hillis_steele",
        "scan shared",
        CUMSUM,
        "__global__ void k(const float* x, float* o, int cols) { __shared__ float s[2][128]; int t = threadIdx.x, cur = 0; s[0][t] = t < cols ? x[blockIdx.x * cols + t] : 0.f; __syncthreads(); for (int d = 1; d < 128; d *= 2) { s[1 - cur][t] = t >= d ? s[cur][t] + s[cur][t - d] : s[cur][t]; cur = 1 - cur; __syncthreads(); } if (t < cols) o[blockIdx.x * cols + t] = s[cur][t]; }",
        'TORCH_CHECK(cols <= 128, "too wide"); k<<<rows, 128>>>(px, po, cols);',
        out=_SAME,
    ),
    _kernel(
        "transpose_tiled_padded",
        "transpose shared grid2d",
        TRANSPOSE,
        "__global__ void k(const float* x, float* o, int rows, int cols) { __shared__ float t[32][33]; int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y; for (int j = 0; j < 32; j += 8) if (c < cols && r + j < rows) t[threadIdx.y + j][threadIdx.x] = x[(r + j) * cols + c]; __syncthreads(); c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y; for (int j = 0; j < 32; j += 8) if (c < rows && r + j < cols) o[(r + j) * rows + c] = t[threadIdx.x][threadIdx.y + j]; }",
        "k<<<dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 8)>>>(px, po, rows, cols);",
        out="torch::empty({cols, rows}, x.options())",
    ),
    _kernel(
        "transpose_naive",
        "transpose",
        TRANSPOSE,
        "__global__ void k(const float* x, float* o, int rows, int cols) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < rows * cols) o[i % cols * rows + i / cols] = x[i]; }",
        "k<<<(n + 127) / 128, 128>>>(px, po, rows, cols);",
        out="torch::empty({cols, rows}, x.options())",
    ),
)


def _product(
    name: str,
    features: str,
    kernels: str,
    launch: str,
    *,
    of: Task = MATMUL,
    head: str = "",
    ctype: str = "float",
) -> Honest:
    code = f"""#include <torch/extension.h>
{head}
{kernels}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {{
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "sizes do not match");
  const int M = a.size(0), K = a.size(1), N = b.size(1);
  auto c = torch::zeros({{M, N}}, a.options());
  auto* pa = a.data_ptr<{ctype}>(); auto* pb = b.data_ptr<{ctype}>(); auto* pc = c.data_ptr<{ctype}>();
  {launch}
  return c;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
    return Honest(name, tuple(features.split()), code, of, "unseen")


MATMUL_ANY_ORDER = MATMUL.model_copy(update={"name": "matmul_any_order", "atomic_order": True})
_HALF: tuple[DType, ...] = ("float16",)
HALF_MATMUL = task(
    "half_matmul",
    "x @ y",
    {"main": [(48, 64), (64, 32)], "odd": [(17, 40), (40, 24)], "tiny": [(2, 8), (8, 4)]},
    names="x y",
    dtypes=_HALF,
    reduction=(64, 40, 8),
)

_PRODUCTS = (
    _product(
        "matmul_naive",
        "matmul grid2d",
        "__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int r = blockIdx.y * blockDim.y + threadIdx.y, q = blockIdx.x * blockDim.x + threadIdx.x; if (r < M && q < N) { float s = 0; for (int k = 0; k < K; k++) s += a[r * K + k] * b[k * N + q]; c[r * N + q] = s; } }",
        "mm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(pa, pb, pc, M, K, N);",
    ),
    _product(
        "matmul_tiled",
        "matmul shared grid2d",
        "template <int T> __global__ void mm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int K, int N) { __shared__ float sa[T][T], sb[T][T + 1]; int r = blockIdx.y * T + threadIdx.y, q = blockIdx.x * T + threadIdx.x; float s = 0; for (int k0 = 0; k0 < K; k0 += T) { sa[threadIdx.y][threadIdx.x] = r < M && k0 + threadIdx.x < K ? a[r * K + k0 + threadIdx.x] : 0.f; sb[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K && q < N ? b[(k0 + threadIdx.y) * N + q] : 0.f; __syncthreads();\n#pragma unroll\n for (int k = 0; k < T; k++) s = fmaf(sa[threadIdx.y][k], sb[k][threadIdx.x], s); __syncthreads(); } if (r < M && q < N) c[r * N + q] = s; }",
        "mm<16><<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(pa, pb, pc, M, K, N);",
    ),
    _product(
        "matmul_register_tile",
        "matmul registers",
        "__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int r0 = (blockIdx.y * 8 + threadIdx.y) * 2, q0 = (blockIdx.x * 8 + threadIdx.x) * 2; float s[2][2] = {}; for (int k = 0; k < K; k++) { float va[2], vb[2]; for (int i = 0; i < 2; i++) { va[i] = r0 + i < M ? a[(r0 + i) * K + k] : 0.f; vb[i] = q0 + i < N ? b[k * N + q0 + i] : 0.f; } for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) s[i][j] += va[i] * vb[j]; } for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) if (r0 + i < M && q0 + j < N) c[(r0 + i) * N + q0 + j] = s[i][j]; }",
        "mm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(8, 8)>>>(pa, pb, pc, M, K, N);",
    ),
    _product(
        "matmul_split_k_atomics",
        "matmul atomics",
        "__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= M * N) return; int r = i / N, q = i % N; float s = 0; for (int k = blockIdx.y; k < K; k += gridDim.y) s += a[r * K + k] * b[k * N + q]; atomicAdd(c + i, s); }",
        "mm<<<dim3((M * N + 63) / 64, 3), 64>>>(pa, pb, pc, M, K, N);",
        of=MATMUL_ANY_ORDER,
    ),
    _product(
        "matmul_warp_a_dot",
        "matmul shuffle",
        "__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int i = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32; if (i >= M * N) return; float s = 0; for (int k = lane; k < K; k += 32) s += a[i / N * K + k] * b[k * N + i % N]; for (int d = 16; d; d >>= 1) s += __shfl_down_sync(~0u, s, d); if (lane == 0) c[i] = s; }",
        "mm<<<(M * N + 3) / 4, 128>>>(pa, pb, pc, M, K, N);",
    ),
    _product(
        "half_matmul_float_sums",
        "matmul half",
        "__global__ void mm(const __half* a, const __half* b, __half* c, int M, int K, int N) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= M * N) return; float s = 0; for (int k = 0; k < K; k++) s += __half2float(a[i / N * K + k]) * __half2float(b[k * N + i % N]); c[i] = __float2half(s); }",
        "mm<<<(M * N + 127) / 128, 128>>>((const __half*)pa, (const __half*)pb, (__half*)pc, M, K, N);",
        of=HALF_MATMUL,
        head="#include <cuda_fp16.h>\n",
        ctype="at::Half",
    ),
    _product(
        "half_matmul_wmma",
        "matmul half wmma shared",
        "using namespace nvcuda;\n__global__ void mm(const half* a, const half* b, half* c, int M, int K, int N) { __shared__ half sa[256], sb[256]; __shared__ float sc[256]; int r0 = blockIdx.y * 16, q0 = blockIdx.x * 16; wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa; wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb; wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc; wmma::fill_fragment(fc, 0.f); for (int k0 = 0; k0 < K; k0 += 16) { for (int i = threadIdx.x; i < 256; i += 32) { int r = i / 16, q = i % 16; sa[i] = r0 + r < M && k0 + q < K ? a[(r0 + r) * K + k0 + q] : __float2half(0.f); sb[i] = k0 + r < K && q0 + q < N ? b[(k0 + r) * N + q0 + q] : __float2half(0.f); } __syncwarp(); wmma::load_matrix_sync(fa, sa, 16); wmma::load_matrix_sync(fb, sb, 16); wmma::mma_sync(fc, fa, fb, fc); __syncwarp(); } wmma::store_matrix_sync(sc, fc, 16, wmma::mem_row_major); __syncwarp(); for (int i = threadIdx.x; i < 256; i += 32) if (r0 + i / 16 < M && q0 + i % 16 < N) c[(r0 + i / 16) * N + q0 + i % 16] = __float2half(sc[i]); }",
        "mm<<<dim3((N + 15) / 16, (M + 15) / 16), 32>>>((const half*)pa, (const half*)pb, (half*)pc, M, K, N);",
        of=HALF_MATMUL,
        head="#include <cuda_fp16.h>\n#include <mma.h>\n",
        ctype="at::Half",
    ),
)

UNSEEN_REDUCTIONS = (*_SUMS, *_NORMS, *_SCANS, *_PRODUCTS)

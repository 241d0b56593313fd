// Cases of unseen_reductions.py, as sources.py says.
//// text BLOCK
@_WARP@__device__ float block_sum(float v) {
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

//// = sums
//// _kernel sum_one_thread_a_row; features: reduction; of: ROW_SUM; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float s = 0.f; for (int c = 0; c < cols; ++c) s += x[r * cols + c]; o[r] = s; } }
//// > launch
k<<<(rows + 127) / 128, 128>>>(px, po, rows, cols);
//// _kernel sum_kahan; features: reduction; of: ROW_SUM; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float s = 0.f, c = 0.f; for (int j = 0; j < cols; ++j) { float y = x[r * cols + j] - c, t = s + y; c = (t - s) - y; s = t; } o[r] = s; } }
//// > launch
k<<<(rows + 63) / 64, 64>>>(px, po, rows, cols);
//// _kernel sum_warp_shuffle; features: reduction shuffle; of: ROW_SUM; out: @_A_ROW@
//// > kernels
@_WARP@__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32; if (r >= rows) return; float s = 0.f; for (int c = lane; c < cols; c += 32) s += x[r * cols + c]; s = warp_sum(s); if (lane == 0) o[r] = s; }
//// > launch
k<<<(rows + 3) / 4, 128>>>(px, po, rows, cols);
//// _kernel sum_block_shuffle; features: reduction shuffle shared; of: ROW_SUM; out: @_A_ROW@
//// > kernels
@_BLOCK@__global__ void k(const float* x, float* o, int cols) { float s = 0.f; for (int c = threadIdx.x; c < cols; c += blockDim.x) s += x[blockIdx.x * cols + c]; s = block_sum(s); if (threadIdx.x == 0) o[blockIdx.x] = s; }
//// > launch
k<<<rows, 96>>>(px, po, cols);
//// _kernel sum_dynamic_shared; features: reduction shared dynamic_shared; of: ROW_SUM; out: @_A_ROW@
//// > kernels
extern __shared__ float part[];
__global__ void k(const float* x, float* o, int cols) { int t = threadIdx.x; float s = 0; for (int c = t; c < cols; c += blockDim.x) s += x[blockIdx.x * cols + c]; part[t] = s; __syncthreads(); for (unsigned d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) part[t] += part[t + d]; __syncthreads(); } if (t == 0) o[blockIdx.x] = part[0]; }
//// > launch
k<<<rows, 128, 128 * sizeof(float)>>>(px, po, cols);
//// _kernel sum_tree_unrolled_last_warp; features: reduction shared shuffle; of: ROW_SUM; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { __shared__ float s[64]; int t = threadIdx.x; float v = 0; for (int c = t; c < cols; c += 64) v += x[blockIdx.x * cols + c]; s[t] = v; __syncthreads(); if (t < 32) { v = s[t] + s[t + 32]; v += __shfl_xor_sync(0xffffffff, v, 16); v += __shfl_xor_sync(0xffffffff, v, 8); v += __shfl_xor_sync(0xffffffff, v, 4); v += __shfl_xor_sync(0xffffffff, v, 2); v += __shfl_xor_sync(0xffffffff, v, 1); if (t == 0) o[blockIdx.x] = v; } }
//// > launch
k<<<rows, 64>>>(px, po, cols);
//// _kernel sum_cooperative_groups; features: reduction cooperative_groups; of: ROW_SUM; out: @_A_ROW@
//// > kernels
namespace cg = cooperative_groups;
__global__ void k(const float* x, float* o, int rows, int cols) { auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<32>(block); int r = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank(); if (r >= rows) return; float s = 0; for (int c = tile.thread_rank(); c < cols; c += tile.size()) s += x[r * cols + c]; for (int d = tile.size() / 2; d > 0; d /= 2) s += tile.shfl_down(s, d); if (tile.thread_rank() == 0) o[r] = s; }
//// > launch
k<<<(rows + 1) / 2, 64>>>(px, po, rows, cols);
//// > head
#include <cooperative_groups.h>

//// _kernel sum_cooperative_groups_reduce; features: reduction cooperative_groups; of: ROW_SUM; out: @_A_ROW@
//// > kernels
namespace cg = cooperative_groups;
__global__ void k(const float* x, float* o, int cols) { auto tile = cg::tiled_partition<32>(cg::this_thread_block()); float s = 0; for (int c = tile.thread_rank(); c < cols; c += 32) s += x[blockIdx.x * cols + c]; s = cg::reduce(tile, s, cg::plus<float>()); if (tile.thread_rank() == 0) o[blockIdx.x] = s; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// > head
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

//// _kernel sum_cub_block; features: reduction cub; of: ROW_SUM; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { typedef cub::BlockReduce<float, 128> Reduce; __shared__ typename Reduce::TempStorage temp; float s = 0; for (int c = threadIdx.x; c < cols; c += 128) s += x[blockIdx.x * cols + c]; float total = Reduce(temp).Sum(s); if (threadIdx.x == 0) o[blockIdx.x] = total; }
//// > launch
k<<<rows, 128>>>(px, po, cols);
//// > head
#include <cub/cub.cuh>

//// _kernel sum_float4_rows_when_aligned; features: reduction float4 shuffle; of: ROW_SUM; out: @_A_ROW@
//// > kernels
@_WARP@__global__ void k(const float* x, float* o, int cols) { const float* row = x + (size_t)blockIdx.x * cols; float s = 0; if (cols % 4 == 0) { for (int c = threadIdx.x; c < cols / 4; c += 32) { float4 v = ((const float4*)row)[c]; s += (v.x + v.y) + (v.z + v.w); } } else for (int c = threadIdx.x; c < cols; c += 32) s += row[c]; s = warp_sum(s); if (threadIdx.x == 0) o[blockIdx.x] = s; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// _kernel mean_with_double; features: reduction float64; of: ROW_MEAN; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { double s = 0; for (int c = 0; c < cols; ++c) s += x[r * cols + c]; o[r] = (float)(s / cols); } }
//// > launch
k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);
//// _kernel column_sum_coalesced; features: reduction; of: COLUMN_SUM
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int c = blockIdx.x * blockDim.x + threadIdx.x; if (c < cols) { float s = 0; for (int r = 0; r < rows; r++) s += x[r * cols + c]; o[c] = s; } }
//// > launch
k<<<(cols + 31) / 32, 32>>>(px, po, rows, cols);
//// > out
torch::empty({cols}, x.options())
//// _kernel column_sum_by_tiles; features: reduction shared grid2d; of: COLUMN_SUM
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { __shared__ float part[8][33]; int c = blockIdx.x * 32 + threadIdx.x; float s = 0; if (c < cols) for (int r = threadIdx.y; r < rows; r += 8) s += x[r * cols + c]; part[threadIdx.y][threadIdx.x] = s; __syncthreads(); if (threadIdx.y == 0 && c < cols) { for (int j = 1; j < 8; j++) s += part[j][threadIdx.x]; o[c] = s; } }
//// > launch
k<<<(cols + 31) / 32, dim3(32, 8)>>>(px, po, rows, cols);
//// > out
torch::empty({cols}, x.options())
//// _kernel total_in_two_passes; features: reduction shared several_kernels temporaries; of: TOTAL
//// > kernels
@_BLOCK@__global__ void first(const float* x, float* p, int n) { float s = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i]; s = block_sum(s); if (threadIdx.x == 0) p[blockIdx.x] = s; }
__global__ void second(const float* p, float* o, int m) { float s = threadIdx.x < m ? p[threadIdx.x] : 0.f; s = block_sum(s); if (threadIdx.x == 0) *o = s; }
//// > launch
auto parts = torch::empty({16}, x.options()); first<<<16, 128>>>(px, parts.data_ptr<float>(), n); second<<<1, 32>>>(parts.data_ptr<float>(), po, 16);
//// > out
torch::empty({}, x.options())
//// _kernel total_by_atomics; features: reduction atomics; of: TOTAL_ANY_ORDER; out: @_SCALAR@
//// > kernels
@_WARP@__global__ void k(const float* x, float* o, int n) { float s = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i]; s = warp_sum(s); if ((threadIdx.x & 31) == 0) atomicAdd(o, s); }
//// > launch
k<<<8, 128>>>(px, po, n);
//// _kernel total_by_the_last_block; features: reduction atomics threadfence shared; of: TOTAL; out: @_SCALAR@
//// > kernels
@_BLOCK@__device__ unsigned int done = 0;
__global__ void k(const float* x, float* p, float* o, int n) { __shared__ bool last; float s = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i]; s = block_sum(s); if (threadIdx.x == 0) { p[blockIdx.x] = s; __threadfence(); last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1; } __syncthreads(); if (last && threadIdx.x == 0) { float t = 0; for (int b = 0; b < gridDim.x; b++) t += ((volatile float*)p)[b]; *o = t; } }
//// > launch
auto parts = torch::empty({12}, x.options()); k<<<12, 64>>>(px, parts.data_ptr<float>(), po, n);
//// _kernel mean_by_atomics; features: reduction atomics several_kernels; of: MEAN_ANY_ORDER; out: @_SCALAR@
//// > kernels
__global__ void add(const float* x, float* o, int n) { __shared__ float s; if (threadIdx.x == 0) s = 0.f; __syncthreads(); int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(&s, x[i]); __syncthreads(); if (threadIdx.x == 0) atomicAdd(o, s); }
__global__ void divide(float* o, float n) { *o /= n; }
//// > launch
add<<<(n + 255) / 256, 256>>>(px, po, n); divide<<<1, 1>>>(po, (float)n);
//// _kernel largest_by_integer_atomics; features: reduction atomics; of: LARGEST; out: @_SCALAR@
//// > kernels
__device__ int key(float v) { int b = __float_as_int(v); return b >= 0 ? b : b ^ 0x7fffffff; }
__global__ void start(int* t) { *t = 0x80000000; }
__global__ void k(const float* x, int* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicMax(t, key(x[i])); }
__global__ void finish(const int* t, float* o) { int b = *t; *o = __int_as_float(b >= 0 ? b : b ^ 0x7fffffff); }
//// > launch
auto t = torch::empty({1}, x.options().dtype(torch::kInt32)); start<<<1, 1>>>(t.data_ptr<int>()); k<<<(n + 127) / 128, 128>>>(px, t.data_ptr<int>(), n); finish<<<1, 1>>>(t.data_ptr<int>(), po);
//// _kernel largest_by_compare_and_swap; features: reduction atomics; of: LARGEST
//// > kernels
__device__ void atomic_max(float* a, float v) { int* p = (int*)a; int old = *p, seen; do { seen = old; if (__int_as_float(seen) >= v) break; old = atomicCAS(p, seen, __float_as_int(v)); } while (seen != old); }
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomic_max(o, x[i]); }
//// > launch
k<<<(n + 127) / 128, 128>>>(px, po, n);
//// > out
torch::full({}, -INFINITY, x.options())
//// _kernel row_max_shuffle; features: reduction shuffle; of: ROW_MAX; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { float m = -INFINITY; for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, x[blockIdx.x * cols + c]); for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d)); if (threadIdx.x == 0) o[blockIdx.x] = m; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// _kernel argmax_shuffle_pairs; features: reduction shuffle int64; of: ARGMAX; ctype: int64_t
//// > kernels
__global__ void k(const float* x, int64_t* o, int cols) { float m = -INFINITY; int at = 0x7fffffff; for (int c = threadIdx.x; c < cols; c += 32) { float v = x[blockIdx.x * cols + c]; if (v > m) { m = v; at = c; } } for (int d = 16; d; d >>= 1) { float v = __shfl_down_sync(~0u, m, d); int w = __shfl_down_sync(~0u, at, d); if (v > m || (v == m && w < at)) { m = v; at = w; } } if (threadIdx.x == 0) o[blockIdx.x] = at; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// > out
torch::empty({rows}, x.options().dtype(torch::kLong))
//// _kernel variance_welford; features: reduction; of: VARIANCE; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float mean = 0, m2 = 0; for (int c = 0; c < cols; c++) { float v = x[r * cols + c], d = v - mean; mean += d / (c + 1); m2 += d * (v - mean); } o[r] = m2 / cols; }
//// > launch
k<<<(rows + 63) / 64, 64>>>(px, po, rows, cols);
//// _kernel variance_welford_shuffled; features: reduction shuffle; of: VARIANCE; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { float mean = 0, m2 = 0, count = 0; for (int c = threadIdx.x; c < cols; c += 32) { float v = x[blockIdx.x * cols + c], d = v - mean; count += 1; mean += d / count; m2 += d * (v - mean); } for (int s = 16; s; s >>= 1) { float bm = __shfl_xor_sync(~0u, mean, s), b2 = __shfl_xor_sync(~0u, m2, s), bc = __shfl_xor_sync(~0u, count, s); float total = count + bc, d = bm - mean; if (total > 0) { m2 += b2 + d * d * count * bc / total; mean += d * bc / total; } count = total; } if (threadIdx.x == 0) o[blockIdx.x] = m2 / cols; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// = norms
//// _kernel softmax_three_loops; features: softmax; of: SOFTMAX; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; const float* a = x + r * cols; float* b = o + r * cols; float m = a[0]; for (int c = 1; c < cols; c++) m = max(m, a[c]); float s = 0; for (int c = 0; c < cols; c++) { b[c] = expf(a[c] - m); s += b[c]; } for (int c = 0; c < cols; c++) b[c] /= s; }
//// > launch
k<<<(rows + 63) / 64, 64>>>(px, po, rows, cols);
//// _kernel softmax_online; features: softmax shuffle; of: SOFTMAX; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; float m = -INFINITY, s = 0; for (int c = threadIdx.x; c < cols; c += 32) { float v = a[c], n = fmaxf(m, v); s = s * __expf(m - n) + __expf(v - n); m = n; } for (int d = 16; d; d >>= 1) { float om = __shfl_xor_sync(~0u, m, d), os = __shfl_xor_sync(~0u, s, d), n = fmaxf(m, om); s = (m == -INFINITY ? 0.f : s * __expf(m - n)) + (om == -INFINITY ? 0.f : os * __expf(om - n)); m = n; } for (int c = threadIdx.x; c < cols; c += 32) o[blockIdx.x * cols + c] = __expf(a[c] - m) / s; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// _kernel softmax_row_in_shared; features: softmax shared dynamic_shared shuffle; of: SOFTMAX; out: @_SAME@
//// > kernels
@_BLOCK@__global__ void k(const float* x, float* o, int cols) { extern __shared__ float row[]; __shared__ float top; int t = threadIdx.x; for (int c = t; c < cols; c += blockDim.x) row[c] = x[blockIdx.x * cols + c]; __syncthreads(); if (t < 32) { float m = -INFINITY; for (int c = t; c < cols; c += 32) m = fmaxf(m, row[c]); for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d)); if (t == 0) top = m; } __syncthreads(); float s = 0; for (int c = t; c < cols; c += blockDim.x) { row[c] = expf(row[c] - top); s += row[c]; } s = block_sum(s); float inv = 1.f / s; for (int c = t; c < cols; c += blockDim.x) o[blockIdx.x * cols + c] = row[c] * inv; }
//// > launch
k<<<rows, 64, cols * sizeof(float)>>>(px, po, cols);
//// _kernel softmax_shared_opt_in; features: softmax shared dynamic_shared func_attribute; of: SOFTMAX; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { extern __shared__ float row[]; __shared__ float m, s; for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[blockIdx.x * cols + c]; __syncthreads(); if (threadIdx.x == 0) { m = row[0]; for (int c = 1; c < cols; c++) m = fmaxf(m, row[c]); s = 0; for (int c = 0; c < cols; c++) s += expf(row[c] - m); } __syncthreads(); for (int c = threadIdx.x; c < cols; c += blockDim.x) o[blockIdx.x * cols + c] = expf(row[c] - m) / s; }
//// > launch
size_t bytes = 60 * 1024; cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes); k<<<rows, 32, bytes>>>(px, po, cols);
//// _kernel log_softmax_warp; features: softmax shuffle; of: LOG_SOFTMAX; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; int t = threadIdx.x; float m = -INFINITY, s = 0; for (int c = t; c < cols; c += 32) m = fmaxf(m, a[c]); for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d)); for (int c = t; c < cols; c += 32) s += expf(a[c] - m); for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d); float l = m + logf(s); for (int c = t; c < cols; c += 32) o[blockIdx.x * cols + c] = a[c] - l; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// _kernel logsumexp_rows; features: softmax; of: LOGSUMEXP; out: @_A_ROW@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float m = -INFINITY; for (int c = 0; c < cols; c++) m = fmaxf(m, x[r * cols + c]); float s = 0; for (int c = 0; c < cols; c++) s += expf(x[r * cols + c] - m); o[r] = m + logf(s); }
//// > launch
k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);
//// _kernel layer_norm_two_pass; features: norm shared shuffle; of: LAYER_NORM; out: @_SAME@
//// > kernels
@_BLOCK@__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; float s = 0; for (int c = threadIdx.x; c < cols; c += blockDim.x) s += a[c]; float mean = block_sum(s) / cols; __syncthreads(); s = 0; for (int c = threadIdx.x; c < cols; c += blockDim.x) s += (a[c] - mean) * (a[c] - mean); float r = rsqrtf(block_sum(s) / cols + 1e-5f); for (int c = threadIdx.x; c < cols; c += blockDim.x) o[blockIdx.x * cols + c] = (a[c] - mean) * r; }
//// > launch
k<<<rows, 128>>>(px, po, cols);
//// _kernel layer_norm_one_thread_a_row; features: norm; of: LAYER_NORM; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float m = 0, v = 0; for (int c = 0; c < cols; c++) m += x[r * cols + c]; m /= cols; for (int c = 0; c < cols; c++) { float d = x[r * cols + c] - m; v += d * d; } v = 1.0f / sqrtf(v / cols + 1e-5f); for (int c = 0; c < cols; c++) o[r * cols + c] = (x[r * cols + c] - m) * v; }
//// > launch
k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);
//// _kernel rms_norm_warp; features: norm shuffle; of: RMS_NORM; out: @_SAME@
//// > kernels
@_WARP@__global__ void k(const float* x, float* o, int cols) { const float* a = x + blockIdx.x * cols; float s = 0; for (int c = threadIdx.x; c < cols; c += 32) s += a[c] * a[c]; s = __shfl_sync(~0u, warp_sum(s), 0); float r = rsqrtf(s / cols + 1e-6f); for (int c = threadIdx.x; c < cols; c += 32) o[blockIdx.x * cols + c] = a[c] * r; }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// _kernel l2_norm_two_kernels; features: norm several_kernels temporaries; of: L2_NORM; out: @_SAME@
//// > kernels
__global__ void lengths(const float* x, float* l, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float s = 0; for (int c = 0; c < cols; c++) s += x[r * cols + c] * x[r * cols + c]; l[r] = sqrtf(s); } }
__global__ void divide(const float* x, const float* l, float* o, int n, int cols) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] / l[i / cols]; }
//// > launch
auto l = torch::empty({rows}, x.options()); lengths<<<(rows + 31) / 32, 32>>>(px, l.data_ptr<float>(), rows, cols); divide<<<(n + 127) / 128, 128>>>(px, l.data_ptr<float>(), po, n, cols);
//// = scans
//// _kernel cumsum_one_thread_a_row; features: scan; of: CUMSUM; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float s = 0; for (int c = 0; c < cols; c++) { s += x[r * cols + c]; o[r * cols + c] = s; } }
//// > launch
k<<<(rows + 31) / 32, 32>>>(px, po, rows, cols);
//// _kernel cumsum_warp_scan; features: scan shuffle; of: CUMSUM; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { float carry = 0; for (int b = 0; b < cols; b += 32) { int c = b + threadIdx.x; float v = c < cols ? x[blockIdx.x * cols + c] : 0.f; for (int d = 1; d < 32; d <<= 1) { float u = __shfl_up_sync(~0u, v, d); if (threadIdx.x >= d) v += u; } if (c < cols) o[blockIdx.x * cols + c] = carry + v; carry += __shfl_sync(~0u, v, 31); } }
//// > launch
k<<<rows, 32>>>(px, po, cols);
//// _kernel cumsum_hillis_steele; features: scan shared; of: CUMSUM; out: @_SAME@
//// > kernels
__global__ void k(const float* x, float* o, int cols) { __shared__ float s[2][128]; int t = threadIdx.x, cur = 0; s[0][t] = t < cols ? x[blockIdx.x * cols + t] : 0.f; __syncthreads(); for (int d = 1; d < 128; d *= 2) { s[1 - cur][t] = t >= d ? s[cur][t] + s[cur][t - d] : s[cur][t]; cur = 1 - cur; __syncthreads(); } if (t < cols) o[blockIdx.x * cols + t] = s[cur][t]; }
//// > launch
TORCH_CHECK(cols <= 128, "too wide"); k<<<rows, 128>>>(px, po, cols);
//// _kernel transpose_tiled_padded; features: transpose shared grid2d; of: TRANSPOSE
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { __shared__ float t[32][33]; int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y; for (int j = 0; j < 32; j += 8) if (c < cols && r + j < rows) t[threadIdx.y + j][threadIdx.x] = x[(r + j) * cols + c]; __syncthreads(); c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y; for (int j = 0; j < 32; j += 8) if (c < rows && r + j < cols) o[(r + j) * rows + c] = t[threadIdx.x][threadIdx.y + j]; }
//// > launch
k<<<dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 8)>>>(px, po, rows, cols);
//// > out
torch::empty({cols, rows}, x.options())
//// _kernel transpose_naive; features: transpose; of: TRANSPOSE
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < rows * cols) o[i % cols * rows + i / cols] = x[i]; }
//// > launch
k<<<(n + 127) / 128, 128>>>(px, po, rows, cols);
//// > out
torch::empty({cols, rows}, x.options())
//// = products
//// _product matmul_naive; features: matmul grid2d
//// > kernels
__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int r = blockIdx.y * blockDim.y + threadIdx.y, q = blockIdx.x * blockDim.x + threadIdx.x; if (r < M && q < N) { float s = 0; for (int k = 0; k < K; k++) s += a[r * K + k] * b[k * N + q]; c[r * N + q] = s; } }
//// > launch
mm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(pa, pb, pc, M, K, N);
//// _product matmul_tiled; features: matmul shared grid2d
//// > kernels
template <int T> __global__ void mm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int K, int N) { __shared__ float sa[T][T], sb[T][T + 1]; int r = blockIdx.y * T + threadIdx.y, q = blockIdx.x * T + threadIdx.x; float s = 0; for (int k0 = 0; k0 < K; k0 += T) { sa[threadIdx.y][threadIdx.x] = r < M && k0 + threadIdx.x < K ? a[r * K + k0 + threadIdx.x] : 0.f; sb[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K && q < N ? b[(k0 + threadIdx.y) * N + q] : 0.f; __syncthreads();
#pragma unroll
 for (int k = 0; k < T; k++) s = fmaf(sa[threadIdx.y][k], sb[k][threadIdx.x], s); __syncthreads(); } if (r < M && q < N) c[r * N + q] = s; }
//// > launch
mm<16><<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(pa, pb, pc, M, K, N);
//// _product matmul_register_tile; features: matmul registers
//// > kernels
__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int r0 = (blockIdx.y * 8 + threadIdx.y) * 2, q0 = (blockIdx.x * 8 + threadIdx.x) * 2; float s[2][2] = {}; for (int k = 0; k < K; k++) { float va[2], vb[2]; for (int i = 0; i < 2; i++) { va[i] = r0 + i < M ? a[(r0 + i) * K + k] : 0.f; vb[i] = q0 + i < N ? b[k * N + q0 + i] : 0.f; } for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) s[i][j] += va[i] * vb[j]; } for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) if (r0 + i < M && q0 + j < N) c[(r0 + i) * N + q0 + j] = s[i][j]; }
//// > launch
mm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(8, 8)>>>(pa, pb, pc, M, K, N);
//// _product matmul_split_k_atomics; features: matmul atomics; of: MATMUL_ANY_ORDER
//// > kernels
__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= M * N) return; int r = i / N, q = i % N; float s = 0; for (int k = blockIdx.y; k < K; k += gridDim.y) s += a[r * K + k] * b[k * N + q]; atomicAdd(c + i, s); }
//// > launch
mm<<<dim3((M * N + 63) / 64, 3), 64>>>(pa, pb, pc, M, K, N);
//// _product matmul_warp_a_dot; features: matmul shuffle
//// > kernels
__global__ void mm(const float* a, const float* b, float* c, int M, int K, int N) { int i = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32; if (i >= M * N) return; float s = 0; for (int k = lane; k < K; k += 32) s += a[i / N * K + k] * b[k * N + i % N]; for (int d = 16; d; d >>= 1) s += __shfl_down_sync(~0u, s, d); if (lane == 0) c[i] = s; }
//// > launch
mm<<<(M * N + 3) / 4, 128>>>(pa, pb, pc, M, K, N);
//// _product half_matmul_float_sums; features: matmul half; of: HALF_MATMUL; ctype: at::Half
//// > kernels
__global__ void mm(const __half* a, const __half* b, __half* c, int M, int K, int N) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= M * N) return; float s = 0; for (int k = 0; k < K; k++) s += __half2float(a[i / N * K + k]) * __half2float(b[k * N + i % N]); c[i] = __float2half(s); }
//// > launch
mm<<<(M * N + 127) / 128, 128>>>((const __half*)pa, (const __half*)pb, (__half*)pc, M, K, N);
//// > head
#include <cuda_fp16.h>

//// _product half_matmul_wmma; features: matmul half wmma shared; of: HALF_MATMUL; ctype: at::Half
//// > kernels
using namespace nvcuda;
__global__ void mm(const half* a, const half* b, half* c, int M, int K, int N) { __shared__ half sa[256], sb[256]; __shared__ float sc[256]; int r0 = blockIdx.y * 16, q0 = blockIdx.x * 16; wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa; wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb; wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc; wmma::fill_fragment(fc, 0.f); for (int k0 = 0; k0 < K; k0 += 16) { for (int i = threadIdx.x; i < 256; i += 32) { int r = i / 16, q = i % 16; sa[i] = r0 + r < M && k0 + q < K ? a[(r0 + r) * K + k0 + q] : __float2half(0.f); sb[i] = k0 + r < K && q0 + q < N ? b[(k0 + r) * N + q0 + q] : __float2half(0.f); } __syncwarp(); wmma::load_matrix_sync(fa, sa, 16); wmma::load_matrix_sync(fb, sb, 16); wmma::mma_sync(fc, fa, fb, fc); __syncwarp(); } wmma::store_matrix_sync(sc, fc, 16, wmma::mem_row_major); __syncwarp(); for (int i = threadIdx.x; i < 256; i += 32) if (r0 + i / 16 < M && q0 + i % 16 < N) c[(r0 + i / 16) * N + q0 + i % 16] = __float2half(sc[i]); }
//// > launch
mm<<<dim3((N + 15) / 16, (M + 15) / 16), 32>>>((const half*)pa, (const half*)pb, (half*)pc, M, K, N);
//// > head
#include <cuda_fp16.h>
#include <mma.h>


// A float32 product on tensor cores by tiles of 64 x 64 outputs, 32 x 32 a warp. left(row, k) and
// right(k, column) give addresses of elements within the extents, none where an element is 0;
// store(row, column, sum) takes an output. LEFT_ALONG, RIGHT_ALONG: whether neighbours in k are
// neighbours in memory, else those in the other index are. left_wide, right_wide: whether four
// neighbours lie together at a multiple of 16 bytes. Launched with 128 threads and 55296 bytes.
// Each factor is the sum of two TF32 parts, and three of their four products are summed. A tensor
// core adds by truncation, so it sums 32 terms from zero, and float32 additions make the long sum.
// Three stages of 32 k come by asynchronous copies; the padding of rows is free of bank conflicts.
#include <cuda_pipeline.h>

__device__ void in_two_parts(float v, int& high, int& low) {
  high = __float_as_int(v) & ~0x1fff;
  low = __float_as_int(v - __int_as_float(high));
}

__device__ void multiply_16x8(float* d, const int* a, const int* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[4]), "r"(a[5]), "r"(b[0]), "r"(b[4]));
}

// 64 indices from `first` of 32 k from `start`, four floats at a time where WIDTH is 4.
template <bool ALONG, int WIDTH, typename At>
__device__ void copy_part(float* s, int first, int extent, int start, int inner, At at) {
  const int e = threadIdx.x * WIDTH, across = ALONG ? 32 : 64, step = 128 * WIDTH / across;
  const int x = e % across, y = e / across;
  for (int d = 0; d < 2048 / across; d += step) {
    const int p = first + (ALONG ? y + d : x), k = start + (ALONG ? x : y + d);
    const float* from = p < extent && k < inner ? at(p, k) : nullptr;
    float* to = s + (y + d) * (ALONG ? 36 : 72) + x;
    __pipeline_memcpy_async(to, from, 4 * WIDTH, from ? 0 : 4 * WIDTH);
  }
}

template <bool ALONG, typename At>
__device__ void copy_stage(float* s, int first, int extent, int start, int inner, bool wide, At at) {
  if (wide)
    copy_part<ALONG, 4>(s, first, extent, start, inner, at);
  else
    copy_part<ALONG, 1>(s, first, extent, start, inner, at);
}

template <typename T, bool LEFT_ALONG, bool RIGHT_ALONG, typename Left, typename Right,
          typename Store>
__device__ void product_on_tensor_cores(int rows, int columns, int inner, int tile, bool left_wide,
                                        bool right_wide, Left left, Right right, Store store) {
  extern __shared__ float s[];
  const int across = (columns + 63) / 64, t = threadIdx.x, j = t % 32 / 4, l = t % 4;
  const int row = tile / across * 64, column = tile % across * 64;
  const int r = t / 64 * 32 + j, q = t / 32 % 2 * 32;
  auto turned = [=](int p, int k) { return right(k, p); };
  auto load = [&](int stage) {
    float *a = s + stage % 3 * 4608, *b = a + 2304;
    copy_stage<LEFT_ALONG>(a, row, rows, stage * 32, inner, left_wide, left);
    copy_stage<RIGHT_ALONG>(b, column, columns, stage * 32, inner, right_wide, turned);
    __pipeline_commit();
  };
  float sums[32] = {};
  load(0);
  load(1);
  for (int stage = 0; stage * 32 < inner; stage++) {
    __pipeline_wait_prior(1);
    __syncthreads();
    load(stage + 2);
    const float *a = s + stage % 3 * 4608, *b = a + 2304;
    float part[32] = {};
    #pragma unroll
    for (int d = 0; d < 32; d += 8) {
      int ah[8], al[8], bh[8], bl[8];
      for (int e = 0; e < 8; e++) {
        const int y = r + e % 4 * 8, x = q + j + e % 4 * 8, k = d + l + e / 4 * 4;
        in_two_parts(a[LEFT_ALONG ? y * 36 + k : k * 72 + y], ah[e], al[e]);
        in_two_parts(b[RIGHT_ALONG ? x * 36 + k : k * 72 + x], bh[e], bl[e]);
      }
      for (int e = 0; e < 24; e++)
        multiply_16x8(part + e % 8 * 4, (e < 8 ? al : ah) + e % 2 * 2,
                      (e / 8 == 1 ? bl : bh) + e / 2 % 4);
    }
    for (int e = 0; e < 32; e++) sums[e] += part[e];
  }
  for (int e = 0; e < 32; e++) {
    const int y = row + r + e / 2 % 4 * 8, x = column + q + l * 2 + e / 8 * 8 + e % 2;
    if (y < rows && x < columns) store(y, x, sums[e]);
  }
}

// A float32 product on tensor cores by tiles of ROWS x COLUMNS outputs, SIDE x SIDE a warp. left(row)
// and right(column) give functions of k, which give addresses of elements within the extents, none
// where an element is 0; store(column)(row, sum) takes an output. LEFT_ALONG, RIGHT_ALONG: whether
// neighbours in k are neighbours in memory, else those in the other index are. left_wide, right_wide:
// whether four neighbours lie together at a multiple of 16 bytes.
// PARTS: 1, factors are read as TF32; 2, each is the sum of two TF32 parts, of whose four products
// three are summed. A tensor core adds by truncation: with two parts it sums the terms of one stage
// from zero, and float32 additions make the long sum.
// Three stages of DEPTH k come by asynchronous copies; the padding of rows is free of bank conflicts.
#include <cuda_pipeline.h>

__device__ void in_two_parts(float v, int& high, int& low) {
  high = __float_as_int(v) & ~0x1fff;
  low = __float_as_int(v - __int_as_float(high));
}

// d += a * b, where SIDE / 8 values lie between those of k and k + 4.
template <int SIDE>
__device__ void multiply_16x8(float* d, const int* a, const int* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[SIDE / 8]), "r"(a[SIDE / 8 + 1]), "r"(b[0]), "r"(b[SIDE / 8]));
}

// EXTENT indices from `first` of DEPTH k from `start`, WIDTH floats at a time. own: at(p) of the
// index p that is this thread's where neighbours differ in it.
template <int THREADS, int EXTENT, int DEPTH, bool ALONG, int WIDTH, typename At, typename Own>
__device__ void copy_part(float* s, int first, int extent, int start, int inner, At at, Own own) {
  constexpr int across = ALONG ? DEPTH : EXTENT, step = THREADS * WIDTH / across;
  const int e = threadIdx.x * WIDTH, x = e % across, y = step == 1 ? 0 : e / across;
  #pragma unroll
  for (int d = 0; d < EXTENT * DEPTH / across; d += step) {
    const int p = first + (ALONG ? y + d : x), k = start + (ALONG ? x : y + d);
    const float* from = nullptr;
    if (p < extent && k < inner) from = ALONG ? at(p)(k) : own(k);
    float* to = s + (y + d) * (ALONG ? DEPTH + 4 : EXTENT + 8) + x;
    __pipeline_memcpy_async(to, from, 4 * WIDTH, from ? 0 : 4 * WIDTH);
  }
}

template <int PARTS, int ROWS, int COLUMNS, int SIDE, bool LEFT_ALONG, bool RIGHT_ALONG,
          typename Left, typename Right, typename Store>
__device__ void product_on_tensor_cores(int rows, int columns, int inner, int tile, bool left_wide,
                                        bool right_wide, Left left, Right right, Store store) {
  constexpr int THREADS = ROWS / SIDE * (COLUMNS / SIDE) * 32, DEPTH = 1024 / SIDE, P = SIDE / 8;
  constexpr int LEFT_SIZE = ROWS * (DEPTH + 4), STAGE = LEFT_SIZE + COLUMNS * (DEPTH + 4);
  extern __shared__ float s[];
  const int across = (columns + COLUMNS - 1) / COLUMNS, t = threadIdx.x, j = t % 32 / 4, l = t % 4;
  const int row = tile / across * ROWS, column = tile % across * COLUMNS, warp = t / 32;
  const int r = warp / (COLUMNS / SIDE) * SIDE + j, q = warp % (COLUMNS / SIDE) * SIDE;
  const auto own_left = left(min(row + t * (left_wide ? 4 : 1) % ROWS, rows - 1));
  const auto own_right = right(min(column + t * (right_wide ? 4 : 1) % COLUMNS, columns - 1));
  auto load = [&](int stage) {
    float *a = s + stage % 3 * STAGE, *b = a + LEFT_SIZE;
    const int k = stage * DEPTH;
    if (left_wide)
      copy_part<THREADS, ROWS, DEPTH, LEFT_ALONG, 4>(a, row, rows, k, inner, left, own_left);
    else
      copy_part<THREADS, ROWS, DEPTH, LEFT_ALONG, 1>(a, row, rows, k, inner, left, own_left);
    if (right_wide)
      copy_part<THREADS, COLUMNS, DEPTH, RIGHT_ALONG, 4>(b, column, columns, k, inner, right,
                                                         own_right);
    else
      copy_part<THREADS, COLUMNS, DEPTH, RIGHT_ALONG, 1>(b, column, columns, k, inner, right,
                                                         own_right);
    __pipeline_commit();
  };
  float sums[SIDE * SIDE / 32] = {};
  load(0);
  load(1);
  for (int stage = 0; stage * DEPTH < inner; stage++) {
    __pipeline_wait_prior(1);
    __syncthreads();
    load(stage + 2);
    const float *a = s + stage % 3 * STAGE, *b = a + LEFT_SIZE;
    float parts[SIDE * SIDE / 32] = {};
    float* to = PARTS == 2 ? parts : sums;
    #pragma unroll
    for (int d = 0; d < DEPTH; d += 8) {
      int ah[2 * P], al[2 * P], bh[2 * P], bl[2 * P];
      #pragma unroll
      for (int e = 0; e < 2 * P; e++) {
        const int y = r + e % P * 8, x = q + j + e % P * 8, k = d + l + e / P * 4;
        const float of_left = a[LEFT_ALONG ? y * (DEPTH + 4) + k : k * (ROWS + 8) + y];
        const float of_right = b[RIGHT_ALONG ? x * (DEPTH + 4) + k : k * (COLUMNS + 8) + x];
        ah[e] = __float_as_int(of_left);
        bh[e] = __float_as_int(of_right);
        if (PARTS == 2) {
          in_two_parts(of_left, ah[e], al[e]);
          in_two_parts(of_right, bh[e], bl[e]);
        }
      }
      #pragma unroll
      for (int part = PARTS == 2 ? 0 : 2; part < 3; part++)
        #pragma unroll
        for (int e = 0; e < P * P / 2; e++)
          multiply_16x8<SIDE>(to + e * 4, (part == 0 ? al : ah) + e % (P / 2) * 2,
                              (part == 1 ? bl : bh) + e / (P / 2));
    }
    #pragma unroll
    for (int e = 0; e < SIDE * SIDE / 32; e++)
      if (PARTS == 2) sums[e] += parts[e];
  }
  #pragma unroll
  for (int e = 0; e < 2 * P; e++) {
    const int x = column + q + l * 2 + e / 2 * 8 + e % 2;
    if (x >= columns) continue;
    const auto put = store(x);
    #pragma unroll
    for (int d = 0; d < P; d++)
      if (row + r + d * 8 < rows) put(row + r + d * 8, sums[e / 2 * 2 * P + d * 2 + e % 2]);
  }
}

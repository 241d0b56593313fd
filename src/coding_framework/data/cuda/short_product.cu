$width
__global__ void $name($parameters) {
  extern __shared__ float s[];
  int t = threadIdx.x, j = t % 32 / 4, l = t % 4, r0 = blockIdx.y * 64, q0 = blockIdx.x * 64;
  int wr = t / 64 * 32 + j, wq = t / 32 % 2 * 32;
  $before
  auto load = [&](int i) {
    float *a = s + i % 3 * $stage, *b = a + $part;
    $load_left
    $load_right
    __pipeline_commit();
  };
  float acc[32] = {};
  load(0);
  load(1);
  for (int i = 0; i * 32 < k; i++) {
    __pipeline_wait_prior(1);
    __syncthreads();
    load(i + 2);
    float *a = s + i % 3 * $stage, *b = a + $part, sum[32] = {};
    #pragma unroll
    for (int d = 0; d < 32; d += 8) {
      int ah[8], al[8], bh[8], bl[8];
      for (int e = 0; e < 8; e++) {
        split(a[$left_value], ah[e], al[e]);
        split(b[$right_value], bh[e], bl[e]);
      }
      for (int e = 0; e < 24; e++)
        mma(sum + e % 8 * 4, (e < 8 ? al : ah) + e % 2 * 2, (e / 8 == 1 ? bl : bh) + e / 2 % 4);
    }
    for (int e = 0; e < 32; e++) acc[e] += sum[e];
  }
  for (int e = 0; e < 32; e++) {
    int r = r0 + wr + e / 2 % 4 * 8, q = q0 + wq + l * 2 + e / 8 * 8 + e % 2;
    if (r >= $row_count || q >= $column_count) continue;
    int i = $place;
    float v = acc[e];
    $post
    o[i] = v;
  }
}

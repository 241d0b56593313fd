__global__ void __launch_bounds__($threads) conv($parameters) {
  extern __shared__ float s[];
  __shared__ int2 taps[4][$inner];
  $lanes
  int r0 = blockIdx.y * $rows, q0 = blockIdx.x * $columns;
  $phase
  int places = $places, count = m * places, k = c * $reached, $row, steps = (k + $more) / $inner;
  int v = q0 + t % $columns, y = v % places;
  $start
  const float* base = x + $base;
  $bits inside = 0;
  if (v < count)
    for (int d = 0; d < $reached; d++) {
      $tap
      if ($within) inside |= ($bits)4 << d;
    }
  $offsets
  auto look = [&](int i) {
    int f = i * $inner + t, d = $tap_of, z = 0;
    if (f < k) {
      $tap
      z = $offset;
    }
    if (t < $inner) taps[i % 4][t] = make_int2(z, f < k ? d : $none);
  };
  auto load = [&](int i) {
    float *a = s + i % 3 * $stage, *b = a + $left;
    if (i < steps) {
      $load_weights
      #pragma unroll
      for (int e = 0; e < $each; e++) {
        int p = t / $columns * $each + e;
        int2 z = taps[i % 4][p];
        copy1(b + p * $columns + (t % $columns ^ e / 4 % 4 * 8), base + z.x, inside >> z.y & 4);
      }
    }
    asm volatile("cp.async.commit_group;");
    look(i + 2);
  };
  look(0);
  look(1);
  __syncthreads();
  $walk
  $store
}

float acc[4][4][4] = {};
load(0);
load(1);
for (int i = 0; i < steps; i++) {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();
  const float *a = s + i % 3 * $stage, *b = a + $left;
  float sum[4][4][4] = {};
  #pragma unroll
  for (int d = 0; d < $inner; d += 16) {
    unsigned ah[4][4], al[4][4], bh[4][4], bl[4][4];
    $split_right
    #pragma unroll
    for (int f = 0; f < 4; f += 2) {
      $split_left
      #pragma unroll
      for (int e = 0; e < 48; e++) {
        int p = e / 16, y = e / 4 % 2 * 2, q = e % 4, z = e / 8 % 2 * 2;
        mma(sum[f + y / 2][q], p ? &ah[y][z] : &al[y][z], p == 1 ? &bl[q][z] : &bh[q][z]);
      }
    }
    if (d == 0) load(i + 2);
  }
  #pragma unroll
  for (int e = 0; e < 64; e++) acc[e / 16][e / 4 % 4][e % 4] += sum[e / 16][e / 4 % 4][e % 4];
}

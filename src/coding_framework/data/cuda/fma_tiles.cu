$signature {
  __shared__ float s[2][16][132], w[2][16][132];
  int t = threadIdx.x, r0 = blockIdx.y * 128, q0 = blockIdx.x * 128;
  int y = t / 32 % 2 * 64 + t % 32 / 4 * 4, z = t / 64 * 32 + t % 4 * 4;
  $shift
  auto load = [&](int h, int d) {
    $load_x
    $load_u
  };
  float acc[8][8] = {};
  load(0, 0);
  for (int d = 0, h = 0; d < k; d += 16, h ^= 1) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    if (d + 16 < k) load(h ^ 1, d + 16);
    #pragma unroll
    for (int p = 0; p < 16; p++) {
      float a[8], b[8];
      #pragma unroll
      for (int e = 0; e < 8; e += 4) {
        *(float4*)&a[e] = *(float4*)&s[h][p][y + e * 8];
        *(float4*)&b[e] = *(float4*)&w[h][p][z + e * 4];
      }
      #pragma unroll
      for (int e = 0; e < 64; e++) acc[e / 8][e % 8] += a[e / 8] * b[e % 8];
    }
  }
  #pragma unroll
  for (int e = 0; e < 64; e++) {
    int r = r0 + y + e / 32 * 32 + e / 8 % 4, q = q0 + z + e / 4 % 2 * 16 + e % 4;
    if (r >= m || q >= n) continue;
    float a = acc[e / 8][e % 8];
    $post
    o[r * n + q] = a;
  }
}

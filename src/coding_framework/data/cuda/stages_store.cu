__syncthreads();
#pragma unroll
for (int e = 0; e < 16; e++)
  *(float4*)&s[(wr + e / 8 * 32 + 4 * j + e / 2 % 4) * $pitch + wq + 8 * l + e % 2 * 4] =
      make_float4(acc[e / 4][0][e % 4], acc[e / 4][1][e % 4],
                  acc[e / 4][2][e % 4], acc[e / 4][3][e % 4]);
__syncthreads();
int q = q0 + t % $columns;
if (q >= $extent) return;
$column
for (int i = t / $columns; i < $rows && r0 + i < $height; i += $step) {
  int r = r0 + i;
  float a = s[i * $pitch + t % $columns];
  $post
  $place = a;
}

// the sum of all parts
$signature {
  int i = blockIdx.x * 256 + threadIdx.x, r = i / n, q = i % n;
  if (i >= m * n) return;
  float a = 0.0f;
  for (int d = 0; d < k; d++) a += w[(size_t)d * m * n + i];
  $post
  o[i] = a;
}

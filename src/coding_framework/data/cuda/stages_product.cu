$signature {
  extern __shared__ float s[];
  $lanes
  int r0 = blockIdx.y * $rows, q0 = blockIdx.x * $columns;
  int $padded;
  $shift
  int steps = (k + $more) / $inner;
  $offsets_x
  $offsets_u
  auto load = [&](int i) {
    float *a = s + i % 3 * $stage, *b = a + $left;
    if (i < steps) {
      $load_x
      $load_u
    }
    asm volatile("cp.async.commit_group;");
  };
  $walk
  $store
}

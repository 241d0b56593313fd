__device__ void copy1(float* s, const float* g, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
      :: "r"((unsigned)__cvta_generic_to_shared(s)), "l"(g), "r"(bytes));
}

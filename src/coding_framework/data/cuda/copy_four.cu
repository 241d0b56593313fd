__device__ void copy4(float* s, const float* g, bool in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      :: "r"((unsigned)__cvta_generic_to_shared(s)), "l"(g), "r"(in ? 16 : 0));
}

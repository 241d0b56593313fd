// 4x4 floats in two TF32 parts each; T: the loads run along the other axis
template <int STEP, bool T>
__device__ void split(const float* s, unsigned (&h)[4][4], unsigned (&l)[4][4]) {
  #pragma unroll
  for (int e = 0; e < 4; e++) {
    float4 f = *(const float4*)(s + e * STEP);
    float v[4] = {f.x, f.y, f.z, f.w};
    #pragma unroll
    for (int z = 0; z < 4; z++) {
      unsigned& p = T ? h[z][e] : h[e][z];
      p = (__float_as_uint(v[z]) + 0x1000) & 0xffffe000;
      (T ? l[z][e] : l[e][z]) = __float_as_uint(v[z] - __uint_as_float(p));
    }
  }
}

__device__ void mma(float* d, const unsigned* a, const unsigned* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[4]), "r"(a[1]), "r"(a[5]), "r"(b[0]), "r"(b[1]));
}

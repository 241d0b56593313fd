#include <cuda_pipeline.h>

// v as the sum of two TF32 parts
__device__ void split(float v, int& high, int& low) {
  high = __float_as_int(v) & ~0x1fff;
  low = __float_as_int(v - __int_as_float(high));
}

// d += a * b on tensor cores: 16x8 outputs of a warp
__device__ void mma(float* d, int* a, int* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[4]), "r"(a[5]), "r"(b[0]), "r"(b[4]));
}

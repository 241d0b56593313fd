// D = A B + C of one fragment a block, by each mma.sync of half, bfloat16 and TF32: A [16][K], B [K][8], C and D [16][8].
#include <cuda_runtime.h>
#include <cstdint>
#define IN(P, K) \
  int l = threadIdx.x, g = l >> 2, t = l & 3; size_t w = blockIdx.x; \
  const uint32_t* A = (const uint32_t*)a + w * 16 * K / P; const uint16_t* B16 = (const uint16_t*)b + w * K * 8; const uint32_t* B32 = (const uint32_t*)b + w * K * 8; const float* C = (const float*)c + w * 128; (void)A; (void)B16; (void)B32;
__device__ uint32_t pair(const uint16_t* b, int k, int n) { return b[k * 8 + n] | (uint32_t)b[(k + 1) * 8 + n] << 16; }
#define OUT4 float* D = (float*)d + w * 128; D[g * 8 + 2 * t] = r[0]; D[g * 8 + 2 * t + 1] = r[1]; D[(g + 8) * 8 + 2 * t] = r[2]; D[(g + 8) * 8 + 2 * t + 1] = r[3];
#define C4 C[g * 8 + 2 * t], C[g * 8 + 2 * t + 1], C[(g + 8) * 8 + 2 * t], C[(g + 8) * 8 + 2 * t + 1]
extern "C" __global__ void tf32k8(const void* a, const void* b, const void* c, void* d) { IN(1, 8) float r[4] = {C4};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(A[g * 8 + t]), "r"(A[(g + 8) * 8 + t]), "r"(A[g * 8 + t + 4]), "r"(A[(g + 8) * 8 + t + 4]), "r"(B32[t * 8 + g]), "r"(B32[(t + 4) * 8 + g])); OUT4 }
extern "C" __global__ void tf32k4(const void* a, const void* b, const void* c, void* d) { IN(1, 4) float r[4] = {C4};
  asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};" : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(A[g * 4 + t]), "r"(A[(g + 8) * 4 + t]), "r"(B32[t * 8 + g])); OUT4 }
#define HALVES(NAME, T) \
extern "C" __global__ void NAME##k16(const void* a, const void* b, const void* c, void* d) { IN(2, 16) float r[4] = {C4}; \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." T "." T ".f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(A[g * 8 + t]), "r"(A[(g + 8) * 8 + t]), "r"(A[g * 8 + t + 4]), "r"(A[(g + 8) * 8 + t + 4]), "r"(pair(B16, 2 * t, g)), "r"(pair(B16, 2 * t + 8, g))); OUT4 } \
extern "C" __global__ void NAME##k8(const void* a, const void* b, const void* c, void* d) { IN(2, 8) float r[4] = {C4}; \
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." T "." T ".f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};" : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(A[g * 4 + t]), "r"(A[(g + 8) * 4 + t]), "r"(pair(B16, 2 * t, g))); OUT4 }
HALVES(f16, "f16")
HALVES(bf16, "bf16")
extern "C" __global__ void h16k16(const void* a, const void* b, const void* c, void* d) { IN(2, 16) const uint32_t* H = (const uint32_t*)c + w * 64; uint32_t r[2] = {H[g * 4 + t], H[(g + 8) * 4 + t]};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%3,%4,%5},{%6,%7},{%0,%1};" : "+r"(r[0]), "+r"(r[1]) : "r"(A[g * 8 + t]), "r"(A[(g + 8) * 8 + t]), "r"(A[g * 8 + t + 4]), "r"(A[(g + 8) * 8 + t + 4]), "r"(pair(B16, 2 * t, g)), "r"(pair(B16, 2 * t + 8, g)));
  uint32_t* D = (uint32_t*)d + w * 64; D[g * 4 + t] = r[0]; D[(g + 8) * 4 + t] = r[1]; }




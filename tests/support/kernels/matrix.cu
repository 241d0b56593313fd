// Tensor-core instructions, by wmma and by inline PTX.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>
using namespace nvcuda;

template <int M, int N, int K, typename T, typename LA, typename LB, typename C>
__device__ void product(const T *a, const T *b, C *c, int lda, int ldb) {
  wmma::fragment<wmma::matrix_a, M, N, K, T, LA> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, T, LB> fb;
  wmma::fragment<wmma::accumulator, M, N, K, C> fc;
  wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
  wmma::load_matrix_sync(fa, a, lda);
  wmma::load_matrix_sync(fb, b, ldb);
  wmma::mma_sync(fc, fa, fb, fc);
  for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] + fc.x[i];
  wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
}
extern "C" __global__ void wmma_f16(const half *a, const half *b, float *c) { product<16, 16, 16, half, wmma::row_major, wmma::row_major>(a, b, c, 16, 16); }
extern "C" __global__ void wmma_f16_tall(const half *a, const half *b, float *c) { product<32, 8, 16, half, wmma::row_major, wmma::row_major>(a, b, c, 16, 8); }
extern "C" __global__ void wmma_f16_wide(const half *a, const half *b, half *c) { product<8, 32, 16, half, wmma::row_major, wmma::row_major>(a, b, c, 16, 32); }
extern "C" __global__ void wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) { product<16, 16, 16, __nv_bfloat16, wmma::row_major, wmma::row_major>(a, b, c, 16, 16); }
extern "C" __global__ void wmma_s8(const signed char *a, const signed char *b, int *c) { product<16, 16, 16, signed char, wmma::row_major, wmma::row_major>(a, b, c, 16, 16); }
extern "C" __global__ void wmma_columns(const half *a, const half *b, float *c) {
  __shared__ half s[256];
  for (int i = threadIdx.x; i < 256; i += 32) s[i] = a[i];
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::col_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 1.f);
  wmma::load_matrix_sync(fa, s, 16);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_col_major);
}

// c[16][8] = a[16][K] b[K][8] with fragments filled element by element where the manual says they lie
#define GROUP (threadIdx.x / 4)
#define MEMBER (threadIdx.x % 4)
template <typename T> __device__ unsigned two(T low, T high) {
  unsigned short l, h;
  memcpy(&l, &low, 2); memcpy(&h, &high, 2);
  return l | (unsigned)h << 16;
}
template <typename T> __device__ unsigned at(const T *m, int row, int col, int ld) { return two(m[row * ld + col], m[row * ld + col + 1]); }
template <typename T> __device__ unsigned down(const T *m, int row, int col, int ld) { return two(m[row * ld + col], m[(row + 1) * ld + col]); }
__device__ void store(float *c, const float *d) {
  for (int i = 0; i < 4; i++) c[(GROUP + (i >= 2) * 8) * 8 + MEMBER * 2 + (i & 1)] = d[i];
}
extern "C" __global__ void mma_f16(const half *a, const half *b, float *c) {
  unsigned r[4], q[2];
  float d[4] = {1, 2, 3, 4};
  for (int i = 0; i < 4; i++) r[i] = at(a, GROUP + (i & 1) * 8, MEMBER * 2 + (i >= 2) * 8, 16);
  for (int i = 0; i < 2; i++) q[i] = down(b, MEMBER * 2 + i * 8, GROUP, 8);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(q[0]), "r"(q[1]));
  store(c, d);
}
extern "C" __global__ void mma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
  unsigned r[2], q = down(b, MEMBER * 2, GROUP, 8);
  float d[4] = {1, 2, 3, 4};
  for (int i = 0; i < 2; i++) r[i] = at(a, GROUP + i * 8, MEMBER * 2, 8);
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r[0]), "r"(r[1]), "r"(q));
  store(c, d);
}
extern "C" __global__ void mma_tf32(const float *a, const float *b, float *c) {
  unsigned r[4], q[2];
  float d[4] = {1, 2, 3, 4};
  for (int i = 0; i < 4; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[i]) : "f"(a[(GROUP + (i & 1) * 8) * 8 + MEMBER + (i >= 2) * 4]));
  for (int i = 0; i < 2; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(q[i]) : "f"(b[(MEMBER + i * 4) * 8 + GROUP]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(q[0]), "r"(q[1]));
  store(c, d);
}
extern "C" __global__ void mma_s8(const signed char *a, const signed char *b, int *c) {
  unsigned r[4], q[2];
  int d[4] = {1, 2, 3, 4};
  for (int i = 0; i < 4; i++) memcpy(&r[i], a + (GROUP + (i & 1) * 8) * 32 + MEMBER * 4 + (i >= 2) * 16, 4);
  for (int i = 0; i < 2; i++) { signed char v[4]; for (int j = 0; j < 4; j++) v[j] = b[(MEMBER * 4 + j + i * 16) * 8 + GROUP]; memcpy(&q[i], v, 4); }
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(q[0]), "r"(q[1]));
  for (int i = 0; i < 4; i++) c[(GROUP + (i >= 2) * 8) * 8 + MEMBER * 2 + (i & 1)] = d[i];
}
extern "C" __global__ void mma_f64(const double *a, const double *b, double *c) {
  double x = a[GROUP * 4 + MEMBER], y = b[MEMBER * 8 + GROUP], d0 = 1, d1 = 2;
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};" : "+d"(d0), "+d"(d1) : "d"(x), "d"(y));
  c[GROUP * 8 + MEMBER * 2] = d0;
  c[GROUP * 8 + MEMBER * 2 + 1] = d1;
}
// a 16x16 by ldmatrix.x4 and b 16x8 by ldmatrix.x2.trans, then mma: the usual way of a GEMM
extern "C" __global__ void ldmatrix_mma(const half *a, const half *b, float *c) {
  __shared__ __align__(16) half sa[256], sb[128];
  for (int i = threadIdx.x; i < 256; i += 32) sa[i] = a[i];
  for (int i = threadIdx.x; i < 128; i += 32) sb[i] = b[i];
  __syncwarp();
  unsigned r[4], q[2], lane = threadIdx.x;
  unsigned pa = (unsigned)__cvta_generic_to_shared(sa + (lane % 16) * 16 + lane / 16 * 8);
  unsigned pb = (unsigned)__cvta_generic_to_shared(sb + (lane % 16) * 8);
  float d[4] = {0, 0, 0, 0};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(pa));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];" : "=r"(q[0]), "=r"(q[1]) : "r"(pb));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(q[0]), "r"(q[1]));
  store(c, d);
}
extern "C" __global__ void stmatrix(const half *a, half *c) {
  __shared__ __align__(16) half s[64];
  unsigned v = at(a, GROUP, MEMBER * 2, 8), t;
  unsigned p = (unsigned)__cvta_generic_to_shared(s + (threadIdx.x % 8) * 8);
#if __CUDA_ARCH__ >= 900
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(p), "r"(t));
#endif
  __syncwarp();
  for (int i = threadIdx.x; i < 64; i += 32) c[i] = s[i];
}

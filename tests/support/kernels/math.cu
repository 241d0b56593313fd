// Every function of CUDA's math library that tasks use, against numpy in double precision.
#define UNARY(name) extern "C" __global__ void f_##name(const float *x, float *y, int n) { \
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = name(x[i]); }
#define UNARY64(name) extern "C" __global__ void d_##name(const double *x, double *y, int n) { \
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = name(x[i]); }
#define BINARY(name) extern "C" __global__ void g_##name(const float *x, const float *z, float *y, int n) { \
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = name(x[i], z[i]); }
UNARY(expf) UNARY(exp2f) UNARY(expm1f) UNARY(logf) UNARY(log2f) UNARY(log10f) UNARY(log1pf) UNARY(sinf)
UNARY(cosf) UNARY(tanf) UNARY(asinf) UNARY(acosf) UNARY(atanf) UNARY(sinhf) UNARY(coshf) UNARY(tanhf)
UNARY(asinhf) UNARY(erff) UNARY(erfcf) UNARY(sqrtf) UNARY(rsqrtf) UNARY(cbrtf) UNARY(floorf) UNARY(ceilf)
UNARY(roundf) UNARY(rintf) UNARY(truncf) UNARY(fabsf) UNARY(lgammaf) UNARY(normcdff)
UNARY(__expf) UNARY(__logf) UNARY(__sinf) UNARY(__frcp_rn)
BINARY(powf) BINARY(fmodf) BINARY(atan2f) BINARY(hypotf) BINARY(fmaxf) BINARY(fminf) BINARY(copysignf)
BINARY(fdimf) BINARY(remainderf) BINARY(__fdividef)
UNARY64(exp) UNARY64(log) UNARY64(sin) UNARY64(cos) UNARY64(tanh) UNARY64(erf) UNARY64(sqrt) UNARY64(rsqrt)
UNARY64(cbrt) UNARY64(exp2) UNARY64(log1p)
extern "C" __global__ void divide(const float *x, const float *z, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] / z[i]; }

// What the tolerance of a large output rests on, and the comparison with it, each in one pass over
// its numbers. What is computed is said in cuda/expected/tolerance.py, whose own way, by PyTorch, takes some
// forty passes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned long long u64;
constexpr int kTable = 1027;  // pairs of octaves of a positive double, and one more on either side
constexpr int kThreads = 256;

__device__ double number(float value) { return value; }
__device__ double number(double value) { return value; }
__device__ double number(__half value) { return __half2float(value); }
__device__ double number(__nv_bfloat16 value) { return __bfloat162float(value); }

// The size of a number; 0 where it is not finite.
__device__ double finite_size(double value) {
  value = fabs(value);
  return value < __longlong_as_double(0x7ff0000000000000ll) ? value : 0.0;
}

__device__ double scale_of(double reference, double change, double least) {
  return fmax(fmax(finite_size(reference), finite_size(change)), least);
}

__device__ int bucket_of(double scale) {
  return (int)((((u64)__double_as_longlong(scale) >> 32) + (1u << 20)) >> 21) + 1;
}

__device__ u64 first_of_thread() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }
__device__ u64 step() { return gridDim.x * (u64)blockDim.x; }

// Raises errors and changes to those of one more run. The first run sets them, and looks at
// PyTorch's result on the inputs as they are too.
template <typename T>
__device__ void spread(const T* native, const double* reference, const T* moved_native,
                       const double* moved_reference, double* errors, double* changes, u64 count,
                       double eps, int first) {
  for (u64 i = first_of_thread(); i < count; i += step()) {
    const double wanted = reference[i], moved = moved_reference[i];
    const double before = first ? finite_size(number(native[i]) - wanted) : errors[i];
    const double change = finite_size(moved - wanted) / eps;
    errors[i] = fmax(before, finite_size(number(moved_native[i]) - moved));
    changes[i] = first ? change : fmax(changes[i], change);
  }
}

#define SPREAD(name, T)                                                                           \
  extern "C" __global__ void name(const T* native, const double* reference,                       \
                                  const T* moved_native, const double* moved_reference,           \
                                  double* errors, double* changes, u64 count, double eps,         \
                                  int first) {                                                    \
    spread(native, reference, moved_native, moved_reference, errors, changes, count, eps, first); \
  }
SPREAD(spread_float32, float)
SPREAD(spread_float64, double)
SPREAD(spread_float16, __half)
SPREAD(spread_bfloat16, __nv_bfloat16)

// One sum a block.
extern "C" __global__ void sum_of_squares(const double* values, double* sums, u64 count) {
  __shared__ double part[kThreads];
  double sum = 0.0;
  for (u64 i = first_of_thread(); i < count; i += step()) {
    const double value = finite_size(values[i]);
    sum += value * value;
  }
  part[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

// The largest error of each bucket of scales, by its bits: they are ordered as the numbers are.
extern "C" __global__ void largest_of_like_scale(const double* reference, const double* errors,
                                                 const double* changes, const double* least,
                                                 u64* table, u64 count) {
  __shared__ u64 worst[kTable];
  for (int i = threadIdx.x; i < kTable; i += blockDim.x) worst[i] = 0;
  __syncthreads();
  for (u64 i = first_of_thread(); i < count; i += step()) {
    u64* place = worst + bucket_of(scale_of(reference[i], changes[i], *least));
    const u64 bits = (u64)__double_as_longlong(errors[i]);
    if (bits > *(volatile u64*)place) atomicMax(place, bits);  // few do: most would wait for it
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTable; i += blockDim.x) {
    if (worst[i] > *(volatile u64*)(table + i)) atomicMax(table + i, worst[i]);
  }
}

// The bound, in the place of the changes.
extern "C" __global__ void tolerance(const double* reference, double* changes, const double* least,
                                     const u64* table, u64 count, double eps_factor,
                                     double error_factor) {
  for (u64 i = first_of_thread(); i < count; i += step()) {
    const double scale = scale_of(reference[i], changes[i], *least);
    const u64* near = table + bucket_of(scale);
    const double error = __longlong_as_double((long long)max(near[0], max(near[-1], near[1])));
    changes[i] = __dadd_rn(__dmul_rn(scale, eps_factor), __dmul_rn(error, error_factor));
  }
}

// What a block saw of a comparison. Numbers of elements are exact in a double.
struct Seen {
  double wrong, first_wrong, abs_error, rel_error, share, at;
};

__device__ void take_in(Seen& one, const Seen& other) {
  one.wrong += other.wrong;
  one.first_wrong = fmin(one.first_wrong, other.first_wrong);
  one.abs_error = fmax(one.abs_error, other.abs_error);
  one.rel_error = fmax(one.rel_error, other.rel_error);
  if (other.share > one.share || (other.share == one.share && other.at < one.at)) {
    one.share = other.share;
    one.at = other.at;
  }
}

// NaN where NaN is wanted, infinity where that infinity is.
__device__ bool same_special(double value, double wanted) {
  return (isnan(value) && isnan(wanted)) || (isinf(wanted) && value == wanted);
}

template <typename T>
__device__ void compare(const T* values, const double* references, const T* natives,
                        const double* tolerances, Seen* seen, u64 count, double tiny,
                        double smallest) {
  __shared__ Seen part[kThreads];
  Seen mine = {0.0, (double)count, 0.0, 0.0, -1.0, (double)count};
  for (u64 i = first_of_thread(); i < count; i += step()) {
    const double value = number(values[i]), reference = references[i], native = number(natives[i]);
    const double error = fabs(value - reference), tolerance = tolerances[i];
    const bool special = !isfinite(reference) || !isfinite(native);
    const bool right = special ? same_special(value, reference) || same_special(value, native)
                               : isfinite(value) && error <= tolerance;
    const double counted = special || !isfinite(error) ? 0.0 : error;
    const double size = special ? 1.0 : fabs(reference);
    const Seen here = {right ? 0.0 : 1.0, (double)(right ? count : i), counted,
                       counted / fmax(size, tiny), counted / fmax(tolerance, smallest), (double)i};
    take_in(mine, here);
  }
  part[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) take_in(part[threadIdx.x], part[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) seen[blockIdx.x] = part[0];
}

#define COMPARE(name, T)                                                                        \
  extern "C" __global__ void name(const T* values, const double* references, const T* natives,  \
                                  const double* tolerances, Seen* seen, u64 count, double tiny, \
                                  double smallest) {                                            \
    compare(values, references, natives, tolerances, seen, count, tiny, smallest);              \
  }
COMPARE(compare_float32, float)
COMPARE(compare_float64, double)
COMPARE(compare_float16, __half)
COMPARE(compare_bfloat16, __nv_bfloat16)

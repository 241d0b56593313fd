// gpuAtomicAdd and its relatives, by the atomics of the toolkit.
#pragma once
#include <torch/extension.h>

#ifdef __CUDACC__
template <class T>
__device__ inline T gpuAtomicAdd(T* at, T value) {
  return atomicAdd(at, value);
}
__device__ inline int64_t gpuAtomicAdd(int64_t* at, int64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
#ifdef CF_WANT_HALF
__device__ inline at::Half gpuAtomicAdd(at::Half* at, at::Half value) {
  return atomicAdd(reinterpret_cast<__half*>(at), static_cast<__half>(value));
}
#endif
#ifdef CF_WANT_BFLOAT16
__device__ inline at::BFloat16 gpuAtomicAdd(at::BFloat16* at, at::BFloat16 value) {
  return atomicAdd(reinterpret_cast<__nv_bfloat16*>(at), static_cast<__nv_bfloat16>(value));
}
#endif
template <class T>
__device__ inline void gpuAtomicAddNoReturn(T* at, T value) {
  gpuAtomicAdd(at, value);
}
template <class T>
__device__ inline T gpuAtomicMax(T* at, T value) {
  return atomicMax(at, value);
}
template <class T>
__device__ inline T gpuAtomicMin(T* at, T value) {
  return atomicMin(at, value);
}
#endif

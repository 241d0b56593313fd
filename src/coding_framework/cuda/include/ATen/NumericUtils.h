// at::_isnan and at::_isinf, for kernels and host code.
#pragma once
#include <torch/extension.h>

namespace at {
template <class T>
__host__ __device__ inline bool _isnan(T value) {
  if constexpr (std::is_integral<T>::value) return false;
  else return static_cast<double>(value) != static_cast<double>(value);
}
template <class T>
__host__ __device__ inline bool _isinf(T value) {
  if constexpr (std::is_integral<T>::value) return false;
  else return isinf(static_cast<float>(value)) && !_isnan(value);
}
}  // namespace at

// What the fast kernel templates use of torch, so that a benchmark runs them by their address alone: a
// tensor is a pointer with extents, and memory comes from one block that the caller gives.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

using std::max;
using std::min;

namespace torch {

struct Options {};

struct Tensor {
  char* data;
  int64_t dims, sizes[8];
  int64_t size(int64_t i) const { return sizes[i < 0 ? i + dims : i]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= sizes[i];
    return n;
  }
  Options options() const { return {}; }
  template <class T> T* data_ptr() const { return (T*)data; }
};

static char* memory;

inline Tensor empty(std::initializer_list<int64_t> sizes, Options) {
  Tensor t{memory, 0, {}};
  for (int64_t n : sizes) t.sizes[t.dims++] = n;
  memory += (t.numel() * sizeof(float) + 511) / 512 * 512;
  return t;
}

struct Module {
  const Tensor* inputs;
  Tensor output;
  template <class... A> void def(const char*, Tensor (*f)(A...)) {
    output = call(f, std::index_sequence_for<A...>());
  }
  template <class... A, size_t... I> Tensor call(Tensor (*f)(A...), std::index_sequence<I...>) {
    return f(inputs[I]...);
  }
};

}  // namespace torch

// run_kernel: one call of `forward`; the address of its result, or of nothing where CUDA failed.
#define PYBIND11_MODULE(NAME, M)                                               \
  static void define_module(torch::Module& M);                                 \
  extern "C" char* run_kernel(const torch::Tensor* inputs, char* block) {      \
    torch::memory = block;                                                     \
    torch::Module made{inputs};                                                \
    define_module(made);                                                       \
    return cudaGetLastError() == cudaSuccess ? made.output.data : nullptr;     \
  }                                                                            \
  static void define_module(torch::Module& M)

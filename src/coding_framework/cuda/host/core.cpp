// c10's small types for candidates' host code: names, messages, errors, the current stream.
#include <torch/extension.h>

#include <cstdio>
#include <cstring>

#include "channel.hpp"

namespace c10 {

const char* toString(ScalarType t) {
  switch (t) {
    case ScalarType::Byte: return "Byte";
    case ScalarType::Char: return "Char";
    case ScalarType::Short: return "Short";
    case ScalarType::Int: return "Int";
    case ScalarType::Long: return "Long";
    case ScalarType::Half: return "Half";
    case ScalarType::Float: return "Float";
    case ScalarType::Double: return "Double";
    case ScalarType::Bool: return "Bool";
    case ScalarType::BFloat16: return "BFloat16";
    default: return "Undefined";
  }
}

Device::Device(const char* name) : type_(kCUDA), index_(-1) {
  if (std::strncmp(name, "cpu", 3) == 0) type_ = kCPU;
  else if (std::strncmp(name, "cuda", 4) != 0) detail::fail("", "unknown device ", name);
}

Text& Text::put(const char* s) {
  while (s != nullptr && *s != '\0' && size_ + 1 < sizeof text_) text_[size_++] = *s++;
  return *this;
}
Text& Text::put(char c) {
  const char s[2] = {c, '\0'};
  return put(s);
}
Text& Text::put(long long v) {
  char s[32];
  std::snprintf(s, sizeof s, "%lld", v);
  return put(s);
}
Text& Text::put(unsigned long long v) {
  char s[32];
  std::snprintf(s, sizeof s, "%llu", v);
  return put(s);
}
Text& Text::put(double v) {
  char s[48];
  std::snprintf(s, sizeof s, "%g", v);
  return put(s);
}
Text& Text::put(Device d) { return put(d.is_cuda() ? "cuda:0" : "cpu"); }
Text& Text::put(IntArrayRef v) {
  put("[");
  for (size_t i = 0; i < v.size(); i++) put(i ? ", " : "").put(static_cast<long long>(v[i]));
  return put("]");
}
const char* Error::what() const noexcept { return text_.c_str(); }

namespace detail {
void raise(const Text& text) { throw Error(text); }
void check_cuda(cudaError_t code) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  fail("", "CUDA error: ", cudaGetErrorString(code));
}
}  // namespace detail

namespace cuda {
static CUDAStream current;
CUDAStream getCurrentCUDAStream(DeviceIndex) { return current; }
CUDAStream getDefaultCUDAStream(DeviceIndex) { return {}; }
CUDAStream getStreamFromPool(bool, DeviceIndex) {
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);  // as torch's own are
  return s;
}
CUDAStream getStreamFromExternal(cudaStream_t s, DeviceIndex) { return s; }
void setCurrentCUDAStream(CUDAStream s) { current = s; }
}  // namespace cuda

}  // namespace c10

extern "C" void cf_reject(const char* symbol) { host::finish(host::Kind::Rejected, symbol); }

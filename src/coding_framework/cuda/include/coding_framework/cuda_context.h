// c10::cuda and at::cuda: streams, guards, device properties. Streams are the runtime's own.
#pragma once
#include "core.h"

namespace c10 {
class Stream {};
namespace cuda {

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream = nullptr) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  bool query() const { return true; }
  Device device() const { return Device(kCUDA, 0); }
  DeviceIndex device_index() const { return 0; }
  int64_t id() const { return reinterpret_cast<int64_t>(stream_); }
  bool operator==(const CUDAStream& o) const { return stream_ == o.stream_; }
  bool operator!=(const CUDAStream& o) const { return stream_ != o.stream_; }

 private:
  cudaStream_t stream_;
};
CUDAStream getCurrentCUDAStream(DeviceIndex = -1);
CUDAStream getDefaultCUDAStream(DeviceIndex = -1);
CUDAStream getStreamFromPool(bool high_priority = false, DeviceIndex = -1);
CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex = 0);
void setCurrentCUDAStream(CUDAStream stream);

class CUDAGuard {
 public:
  explicit CUDAGuard(Device) {}
  explicit CUDAGuard(int) {}
  void set_index(int) {}
  void set_device(Device) {}
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  template <class T> explicit OptionalCUDAGuard(const T&) {}
};
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream s) : previous_(getCurrentCUDAStream()) {
    setCurrentCUDAStream(s);
  }
  ~CUDAStreamGuard() { setCurrentCUDAStream(previous_); }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;

 private:
  CUDAStream previous_;
};
inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void set_device(DeviceIndex) {}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
}  // namespace cuda
}  // namespace c10

namespace at {
template <class T> using OptionalRef = const T*;
class DeviceGuard {
 public:
  explicit DeviceGuard(c10::Device) {}
};
namespace cuda {
using namespace c10::cuda;
cudaDeviceProp* getCurrentDeviceProperties();
cudaDeviceProp* getDeviceProperties(int64_t device);
int warp_size();
inline bool is_available() { return true; }
struct RejectedHandle {
  template <class T> operator T*() const { cf_reject("at::cuda::getCurrentCUDABlasHandle"); }
};
inline RejectedHandle getCurrentCUDABlasHandle() { return {}; }
}  // namespace cuda
}  // namespace at

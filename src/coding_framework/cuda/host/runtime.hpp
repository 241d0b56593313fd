// Between the parts of the stand-in runtime.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

#include "state.hpp"

namespace host {

cudaError_t fail(cudaError_t code);  // remembers the code for cudaGetLastError, and returns it
cudaError_t take_last_error();
cudaError_t peek_last_error();
struct FailedLaunch {
  std::string kernel;  // empty: none failed
  cudaError_t code;
};
FailedLaunch take_failed_launch();  // the last that nobody asked about
cudaError_t launch_kernel(const void* function, dim3 grid, dim3 block, void** arguments,
                          size_t shared, cudaStream_t stream, bool cooperative);
cudaError_t device_malloc(void** pointer, size_t size);
// at_once: what it holds is gone, where a tensor's memory waits for the work that may still use it.
cudaError_t device_free(void* pointer, bool at_once = false);
// waits: the call returns when it is done, as cudaMemcpy does
cudaError_t transfer(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                     cudaStream_t stream = nullptr, bool waits = true);
// Elements of `itemsize` bytes that lie apart, one after the other to `to`; both on the device.
cudaError_t gather(void* to, const void* from, uint32_t itemsize, int32_t dims,
                   const int64_t* sizes, const int64_t* strides, cudaStream_t stream);
cudaError_t upload(uint64_t to, const void* from, size_t size, cudaStream_t stream);
cudaError_t fill(void* at, int value, size_t size, cudaStream_t stream = nullptr);
cudaError_t synchronize();

enum class Ordering : uint32_t { On = 1, Record, Wait, StreamDone, EventDone };  // as stream_order.py
inline constexpr uintptr_t kNonBlocking = 8;  // a bit of a stream's handle
bool several_streams();
void use_streams();  // nothing needs to be told before there is a second one
void tell_all_done();  // a call that waits for the device without being asked to
cudaError_t tell_order(Ordering what, const void* one, const void* other = nullptr);
Kernel* find_kernel(const void* function);
const Symbol* find_symbol(const void* variable);
bool is_device(const void* pointer);
extern bool asked_device;  // host code asked what its device is
[[noreturn]] void reject_shared_memory(const char* name);  // of host and device
void note_device_memory(const void* pointer, size_t size);

}  // namespace host

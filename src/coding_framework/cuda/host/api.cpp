// The stand-in for libcudart, part 2: the public calls. What is not here is an undefined symbol when
// the candidate is loaded, and ends as `unsupported` by its name.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "runtime.hpp"

using namespace host;

static uintptr_t next_handle = 0x1000;
template <class T>
static cudaError_t make_handle(T* handle) {
  *handle = reinterpret_cast<T>(next_handle += 16);
  return cudaSuccess;
}

extern "C" {

// --- launches -----------------------------------------------------------------------------------
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return launch_kernel(f, grid, block, arguments, shared, stream, false);
}
cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 grid, dim3 block, void** arguments,
                                        size_t shared, cudaStream_t stream) {
  return launch_kernel(f, grid, block, arguments, shared, stream, true);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** arguments) {
  bool cooperative = false;
  for (unsigned i = 0; i < c->numAttrs; i++) {
    auto& a = c->attrs[i];
    if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
    if (a.id == cudaLaunchAttributeClusterDimension &&
        a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z > 1)
      finish(Kind::Unsupported, "thread block clusters (cudaLaunchAttributeClusterDimension)");
  }
  return launch_kernel(f, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream,
                       cooperative);
}
cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute attribute, int value) {
  auto* k = find_kernel(f);
  if (k == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value + static_cast<int64_t>(k->static_shared) > state.device.shared_per_block_optin)
      return fail(cudaErrorInvalidValue);
    k->max_dynamic_shared = static_cast<uint32_t>(value);
  }
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* f) {
  auto* k = find_kernel(f);
  if (k == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  std::memset(a, 0, sizeof *a);
  a->sharedSizeBytes = k->static_shared;
  a->maxThreadsPerBlock = static_cast<int>(k->max_threads);
  a->numRegs = static_cast<int>(k->registers);
  a->maxDynamicSharedSizeBytes = static_cast<int>(k->max_dynamic_shared);
  a->ptxVersion = a->binaryVersion = static_cast<int>(state.device.major * 10 + state.device.minor);
  return cudaSuccess;
}

// --- memory -------------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** p, size_t size) { return device_malloc(p, size); }
cudaError_t cudaFree(void* p) {
  tell_all_done();
  return device_free(p, true);
}
cudaError_t cudaMallocAsync(void** p, size_t size, cudaStream_t) { return device_malloc(p, size); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return device_free(p, true); }
cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return device_malloc(p, *pitch * height);
}
cudaError_t cudaMallocHost(void** p, size_t size) {
  *p = std::malloc(size ? size : 1);
  return *p ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
cudaError_t cudaHostAlloc(void** p, size_t size, unsigned flags) {
  if (flags & cudaHostAllocMapped) reject_shared_memory("cudaHostAlloc (mapped)");
  return cudaMallocHost(p, size);
}
cudaError_t cudaMallocManaged(void**, size_t, unsigned) {
  reject_shared_memory("cudaMallocManaged");
}
cudaError_t cudaHostGetDevicePointer(void**, void*, unsigned) {
  reject_shared_memory("cudaHostGetDevicePointer");
}
cudaError_t cudaHostRegister(void*, size_t, unsigned flags) {
  if (flags & cudaHostRegisterMapped) reject_shared_memory("cudaHostRegister (mapped)");
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return transfer(to, from, size, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return transfer(to, from, size, kind, stream, false);
}
static cudaError_t transfer_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                 size_t width, size_t height, cudaMemcpyKind kind,
                                 cudaStream_t stream, bool waits) {
  if (width > to_pitch || width > from_pitch) return fail(cudaErrorInvalidPitchValue);
  for (size_t row = 0; row < height; row++) {
    auto code = transfer(static_cast<char*>(to) + row * to_pitch,
                         static_cast<const char*>(from) + row * from_pitch, width, kind, stream, waits);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return transfer_rows(to, to_pitch, from, from_pitch, width, height, kind, nullptr, true);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return transfer_rows(to, to_pitch, from, from_pitch, width, height, kind, stream, false);
}
cudaError_t cudaMemset(void* p, int value, size_t size) { return fill(p, value, size); }
cudaError_t cudaMemsetAsync(void* p, int value, size_t size, cudaStream_t stream) {
  return fill(p, value, size, stream);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset,
                               cudaMemcpyKind kind) {
  auto* s = find_symbol(symbol);
  if (s == nullptr) return fail(cudaErrorInvalidSymbol);
  if (offset > s->size || size > s->size - offset) return fail(cudaErrorInvalidValue);
  return transfer(reinterpret_cast<void*>(s->address + offset), from, size, kind);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t size, size_t offset,
                                 cudaMemcpyKind kind) {
  auto* s = find_symbol(symbol);
  if (s == nullptr) return fail(cudaErrorInvalidSymbol);
  if (offset > s->size || size > s->size - offset) return fail(cudaErrorInvalidValue);
  return transfer(to, reinterpret_cast<const void*>(s->address + offset), size, kind);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t size,
                                    size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  auto* s = find_symbol(symbol);
  if (s == nullptr) return fail(cudaErrorInvalidSymbol);
  if (offset > s->size || size > s->size - offset) return fail(cudaErrorInvalidValue);
  return transfer(reinterpret_cast<void*>(s->address + offset), from, size, kind, stream, false);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t size, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  auto* s = find_symbol(symbol);
  if (s == nullptr) return fail(cudaErrorInvalidSymbol);
  if (offset > s->size || size > s->size - offset) return fail(cudaErrorInvalidValue);
  return transfer(to, reinterpret_cast<const void*>(s->address + offset), size, kind, stream, false);
}
cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) {
  auto* s = find_symbol(symbol);
  if (s == nullptr) return fail(cudaErrorInvalidSymbol);
  *p = reinterpret_cast<void*>(s->address);
  return cudaSuccess;
}
cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  auto* s = find_symbol(symbol);
  if (s == nullptr) return fail(cudaErrorInvalidSymbol);
  *size = s->size;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  asked_device = true;
  *total = static_cast<size_t>(state.device.global_memory);
  *free = *total - static_cast<size_t>(state.device.used_memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  std::memset(a, 0, sizeof *a);
  a->type = is_device(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  a->devicePointer = is_device(p) ? const_cast<void*>(p) : nullptr;
  a->hostPointer = is_device(p) ? nullptr : const_cast<void*>(p);
  return cudaSuccess;
}

// --- streams and events: work is carried out in the order of the calls, and the judge hears what
// orders it. With several streams the first of two queries finds work that is not done
static bool asked_again(const void* handle) {
  static std::set<const void*> asked;
  if (!several_streams() || asked.erase(handle) > 0) return true;
  asked.insert(handle);
  return false;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  use_streams();
  make_handle(s);
  if (flags & cudaStreamNonBlocking)
    *s = reinterpret_cast<cudaStream_t>(reinterpret_cast<uintptr_t>(*s) | kNonBlocking);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return tell_order(Ordering::StreamDone, s); }
cudaError_t cudaStreamQuery(cudaStream_t s) {
  return asked_again(s) ? tell_order(Ordering::StreamDone, s) : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  return tell_order(Ordering::Wait, s, e);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return make_handle(e); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return make_handle(e); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return tell_order(Ordering::Record, e, s); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  return cudaEventRecord(e, s);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return tell_order(Ordering::EventDone, e); }
cudaError_t cudaEventQuery(cudaEvent_t e) {
  return asked_again(e) ? tell_order(Ordering::EventDone, e) : cudaErrorNotReady;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  asked_device = true;
  *ms = static_cast<float>(state.device.event_us) / 1000;  // no clock is shown to a candidate
  return cudaSuccess;
}

// --- devices ------------------------------------------------------------------------------------
cudaError_t cudaDeviceSynchronize() { return synchronize(); }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {  // it would free the caller's tensors, and the answer with them
  finish(Kind::Rejected, "cudaDeviceReset: it destroys memory that is not the kernel's");
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
  *value = 0;
  return cudaSuccess;
}
cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return fail(cudaErrorInvalidDevice);
  asked_device = true;
  auto& d = state.device;
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "%s", state.device_name.c_str());
  p->major = static_cast<int>(d.major);
  p->minor = static_cast<int>(d.minor);
  p->totalGlobalMem = static_cast<size_t>(d.global_memory);
  p->sharedMemPerBlock = 48 * 1024;
  p->sharedMemPerBlockOptin = static_cast<size_t>(d.shared_per_block_optin);
  p->sharedMemPerMultiprocessor = static_cast<size_t>(d.shared_per_multiprocessor);
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = 65536;
  p->regsPerMultiprocessor = static_cast<int>(d.registers_per_multiprocessor);
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = static_cast<int>(d.threads_per_multiprocessor);
  p->maxBlocksPerMultiProcessor = static_cast<int>(d.blocks_per_multiprocessor);
  p->multiProcessorCount = static_cast<int>(d.multiprocessors);
  p->l2CacheSize = static_cast<int>(d.l2_bytes);
  p->memoryBusWidth = static_cast<int>(d.memory_bus_bits);
  p->totalConstMem = 65536;
  p->cooperativeLaunch = p->concurrentKernels = p->unifiedAddressing = 1;
  p->asyncEngineCount = 3;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return fail(cudaErrorInvalidDevice);
  asked_device = true;
  auto& d = state.device;
  auto as_int = [](int64_t v) { return static_cast<int>(std::min<int64_t>(v, 2147483647)); };
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 * 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = as_int(d.shared_per_block_optin); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = as_int(d.shared_per_multiprocessor); break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    case cudaDevAttrTotalConstantMemory: *value = 65536; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = as_int(d.registers_per_multiprocessor); break;
    case cudaDevAttrMultiProcessorCount: *value = as_int(d.multiprocessors); break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = as_int(d.threads_per_multiprocessor); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = as_int(d.blocks_per_multiprocessor); break;
    case cudaDevAttrComputeCapabilityMajor: *value = as_int(d.major); break;
    case cudaDevAttrComputeCapabilityMinor: *value = as_int(d.minor); break;
    case cudaDevAttrL2CacheSize: *value = as_int(d.l2_bytes); break;
    case cudaDevAttrClockRate: *value = as_int(d.clock_khz); break;
    case cudaDevAttrMemoryClockRate: *value = as_int(d.memory_clock_khz); break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = as_int(d.memory_bus_bits); break;
    case cudaDevAttrCooperativeLaunch: case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* f,
                                                                   int block_size, size_t shared,
                                                                   unsigned) {
  auto* k = find_kernel(f);
  if (k == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  if (block_size <= 0) return fail(cudaErrorInvalidValue);
  asked_device = true;
  auto& d = state.device;
  int64_t warps = (block_size + 31) / 32;
  int64_t registers_a_warp = std::max<int64_t>((k->registers * 32 + 255) / 256 * 256, 256);
  int64_t by_threads = d.threads_per_multiprocessor / (warps * 32);
  int64_t by_registers = d.registers_per_multiprocessor / (registers_a_warp * warps);
  int64_t by_shared = d.shared_per_multiprocessor / (static_cast<int64_t>(shared) + k->static_shared + 1024);
  *blocks = static_cast<int>(std::min({by_threads, by_registers, by_shared, d.blocks_per_multiprocessor}));
  if (block_size > 1024) *blocks = 0;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* f,
                                                          int block_size, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, block_size, shared, 0);
}

// --- errors -------------------------------------------------------------------------------------
cudaError_t cudaGetLastError() { return take_last_error(); }
cudaError_t cudaPeekAtLastError() { return peek_last_error(); }
const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidPitchValue: return "cudaErrorInvalidPitchValue";
    case cudaErrorInvalidSymbol: return "cudaErrorInvalidSymbol";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge: return "cudaErrorCooperativeLaunchTooLarge";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorCooperativeLaunchTooLarge: return "too many blocks in cooperative launch";
    default: return "unknown error";
  }
}

}  // extern "C"

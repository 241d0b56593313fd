// The stand-in for libcudart, part 1: registration, launches, memory. Bookkeeping happens here; what
// touches the device goes to the judge. Addresses of the device are not mapped in this process.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "runtime.hpp"
#include "state.hpp"


namespace host {

State state;
bool asked_device = false;
static cudaError_t last_error = cudaSuccess;
static FailedLaunch failed_launch;
static std::map<const void*, std::string> functions, variables;
static std::map<uint64_t, uint64_t> allocations;  // address -> size
struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
static std::vector<Configuration> configurations;
static bool streams_in_use = false;

cudaError_t fail(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

FailedLaunch take_failed_launch() { return std::exchange(failed_launch, {}); }
cudaError_t take_last_error() {
  take_failed_launch();
  auto code = last_error;
  last_error = cudaSuccess;
  return code;
}
cudaError_t peek_last_error() { return last_error; }

void setup(const std::string& payload) {
  Reader in(payload);
  state.device_name = in.text();
  auto* field = reinterpret_cast<int64_t*>(&state.device);
  for (size_t i = 0; i < sizeof state.device / sizeof *field; i++) field[i] = in.get<int64_t>();
  for (auto n = in.get<uint32_t>(); n > 0; n--) {
    Kernel k;
    k.name = in.text();
    k.static_shared = in.get<uint32_t>();
    k.max_threads = in.get<uint32_t>();
    k.registers = in.get<uint32_t>();
    for (auto p = in.get<uint32_t>(); p > 0; p--) {
      k.offsets.push_back(in.get<uint32_t>());
      k.sizes.push_back(in.get<uint32_t>());
    }
    state.kernels[k.name] = k;
  }
  for (auto n = in.get<uint32_t>(); n > 0; n--) {
    auto name = in.text();
    auto address = in.get<uint64_t>();
    state.symbols[name] = {address, in.get<uint64_t>()};
  }
}

Kernel* find_kernel(const void* function) {
  auto name = functions.find(function);
  if (name == functions.end()) return nullptr;
  auto kernel = state.kernels.find(name->second);
  return kernel == state.kernels.end() ? nullptr : &kernel->second;
}

bool is_device(const void* pointer) {
  auto address = reinterpret_cast<uint64_t>(pointer);
  auto after = allocations.upper_bound(address);
  if (after != allocations.begin()) {
    auto before = std::prev(after);
    if (address < before->first + before->second) return true;
  }
  for (auto& [name, s] : state.symbols)
    if (address >= s.address && address < s.address + s.size) return true;
  return false;
}

void note_device_memory(const void* pointer, size_t size) {
  allocations[reinterpret_cast<uint64_t>(pointer)] = size;
}

static cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments,
                          size_t shared, cudaStream_t stream, bool cooperative) {
  auto* k = find_kernel(function);
  if (k == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      !grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
    return fail(cudaErrorInvalidConfiguration);
  if (threads > k->max_threads) return fail(cudaErrorInvalidValue);
  // Static and dynamic together fit 48 KiB, unless the kernel opted in to more dynamic memory.
  bool opted_in = k->max_dynamic_shared > 48 * 1024;
  if (shared > k->max_dynamic_shared || (!opted_in && shared + k->static_shared > 48 * 1024))
    return fail(cudaErrorInvalidValue);
  Writer w;
  w.text(k->name);
  for (unsigned v : {grid.x, grid.y, grid.z, block.x, block.y, block.z}) w.put<uint32_t>(v);
  w.put<uint64_t>(shared).put<uint64_t>(reinterpret_cast<uint64_t>(stream));
  w.put<uint32_t>(cooperative);
  std::string block_of_parameters;
  for (size_t i = 0; i < k->sizes.size(); i++) {
    block_of_parameters.resize(k->offsets[i] + k->sizes[i], '\0');
    std::memcpy(block_of_parameters.data() + k->offsets[i], arguments[i], k->sizes[i]);
  }
  return fail(static_cast<cudaError_t>(
      request(Kind::Launch, w, block_of_parameters.data(), block_of_parameters.size()).kind));
}

cudaError_t launch_kernel(const void* function, dim3 grid, dim3 block, void** arguments,
                          size_t shared, cudaStream_t stream, bool cooperative) {
  auto code = launch(function, grid, block, arguments, shared, stream, cooperative);
  bool nothing = !grid.x || !grid.y || !grid.z ||  // of an empty tensor: there is nothing to do
                 !block.x || !block.y || !block.z;
  if (code != cudaSuccess && !nothing) {
    auto name = functions.find(function);
    failed_launch = {name == functions.end() ? "a kernel" : name->second, code};
  }
  return code;
}

cudaError_t device_malloc(void** pointer, size_t size) {
  if (pointer == nullptr) return fail(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  auto reply = request(Kind::Malloc, Writer().put<uint64_t>(size));
  if (reply.kind != 0) return fail(static_cast<cudaError_t>(reply.kind));
  auto address = Reader(reply.payload).get<uint64_t>();
  allocations[address] = size;
  *pointer = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t device_free(void* pointer, bool at_once) {
  if (pointer == nullptr) return cudaSuccess;
  auto address = reinterpret_cast<uint64_t>(pointer);
  if (allocations.erase(address) == 0) return fail(cudaErrorInvalidValue);
  auto w = Writer().put<uint64_t>(address).put<uint32_t>(at_once);
  return fail(static_cast<cudaError_t>(request(Kind::Free, w).kind));
}

static constexpr size_t kPiece = size_t{32} << 20;  // of a long transfer, in one message

cudaError_t upload(uint64_t to, const void* from, size_t size, cudaStream_t stream) {
  auto* at = static_cast<const char*>(from);
  for (size_t done = 0; done < size; done += kPiece) {
    tell_order(Ordering::On, stream);
    auto n = std::min(kPiece, size - done);
    auto reply = request(Kind::Upload, Writer().put<uint64_t>(to + done), at + done, n);
    if (reply.kind != 0) return fail(static_cast<cudaError_t>(reply.kind));
  }
  return cudaSuccess;
}

static cudaError_t download(void* to, uint64_t from, size_t size, cudaStream_t stream) {
  auto* at = static_cast<char*>(to);
  for (size_t done = 0; done < size; done += kPiece) {
    tell_order(Ordering::On, stream);
    auto n = std::min(kPiece, size - done);
    auto reply = request(Kind::Download, Writer().put<uint64_t>(from + done).put<uint64_t>(n));
    if (reply.kind != 0) return fail(static_cast<cudaError_t>(reply.kind));
    std::memcpy(at + done, reply.payload.data(), std::min(n, reply.payload.size()));
  }
  return cudaSuccess;
}

bool several_streams() { return streams_in_use; }
void use_streams() { streams_in_use = true; }

void tell_all_done() {
  if (streams_in_use) synchronize();
}

cudaError_t tell_order(Ordering what, const void* one, const void* other) {
  bool usual = what == Ordering::On && (one == nullptr || one == cudaStreamLegacy);
  if (!streams_in_use || usual) return cudaSuccess;
  Writer w;
  w.put(static_cast<uint32_t>(what)).put(reinterpret_cast<uint64_t>(one));
  w.put(reinterpret_cast<uint64_t>(other));
  return fail(static_cast<cudaError_t>(request(Kind::Order, w).kind));
}

static cudaError_t move(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                        cudaStream_t stream) {
  bool to_device = is_device(to), from_device = is_device(from);
  if ((kind == cudaMemcpyHostToDevice && !to_device) ||
      (kind == cudaMemcpyDeviceToHost && !from_device) ||
      (kind == cudaMemcpyDeviceToDevice && !(to_device && from_device)))
    return fail(cudaErrorInvalidValue);
  // with unified addresses the pointers decide: archive kernels copy device to device as HostToDevice
  if (kind != cudaMemcpyHostToHost)
    kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                     : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  auto destination = reinterpret_cast<uint64_t>(to), source = reinterpret_cast<uint64_t>(from);
  switch (kind) {
    case cudaMemcpyHostToHost:
      std::memmove(to, from, size);
      return cudaSuccess;
    case cudaMemcpyHostToDevice:
      return upload(destination, from, size, stream);
    case cudaMemcpyDeviceToHost:
      return download(to, source, size, stream);
    case cudaMemcpyDeviceToDevice:
      tell_order(Ordering::On, stream);
      return fail(static_cast<cudaError_t>(
          request(Kind::Copy, Writer().put(destination).put(source).put<uint64_t>(size)).kind));
    default:
      return fail(cudaErrorInvalidMemcpyDirection);
  }
}

cudaError_t gather(void* to, const void* from, uint32_t itemsize, int32_t dims,
                   const int64_t* sizes, const int64_t* strides, cudaStream_t stream) {
  uint64_t size = itemsize;
  for (int32_t i = 0; i < dims; i++) size *= static_cast<uint64_t>(sizes[i]);
  tell_order(Ordering::On, stream);
  Writer w;
  w.put(reinterpret_cast<uint64_t>(to)).put(reinterpret_cast<uint64_t>(from)).put(size);
  w.put(itemsize).put(static_cast<uint32_t>(dims));
  for (int32_t i = 0; i < dims; i++) w.put<int64_t>(sizes[i]);
  for (int32_t i = 0; i < dims; i++) w.put<int64_t>(strides[i]);
  return fail(static_cast<cudaError_t>(request(Kind::Copy, w).kind));
}

cudaError_t transfer(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                     cudaStream_t stream, bool waits) {
  if (size == 0) return cudaSuccess;
  auto code = move(to, from, size, kind, stream);
  if (code != cudaSuccess || !(waits || is_device(from))) return code;
  return is_device(to) && !waits ? code : tell_order(Ordering::StreamDone, stream);
}

cudaError_t fill(void* at, int value, size_t size, cudaStream_t stream) {
  if (size == 0) return cudaSuccess;
  tell_order(Ordering::On, stream);
  Writer w;
  w.put(reinterpret_cast<uint64_t>(at)).put<uint32_t>(value & 255).put<uint64_t>(size);
  return fail(static_cast<cudaError_t>(request(Kind::Fill, w).kind));
}

cudaError_t synchronize() {
  return fail(static_cast<cudaError_t>(request(Kind::Synchronize, Writer()).kind));
}

[[noreturn]] void reject_shared_memory(const char* name) {
  finish(Kind::Rejected, std::string(name) +
                             ": the judge gives no memory that host and device share; use cudaMalloc");
}

const Symbol* find_symbol(const void* variable) {
  auto name = variables.find(variable);
  if (name == variables.end()) return nullptr;
  auto symbol = state.symbols.find(name->second);
  return symbol == state.symbols.end() ? nullptr : &symbol->second;
}

}  // namespace host

// --- what nvcc's generated code calls -----------------------------------------------------------

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) { return new void*(wrapper); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* device_name, int,
                            void*, void*, void*, void*, int*) {
  host::functions[host_function] = device_name;
}

void __cudaRegisterVar(void**, char* host_variable, char*, const char* device_name, int, size_t,
                       int, int) {
  host::variables[host_variable] = device_name;
}

void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {
  host::reject_shared_memory("a __managed__ variable");
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  host::configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (host::configurations.empty()) return host::fail(cudaErrorMissingConfiguration);
  auto c = host::configurations.back();
  host::configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return host::functions.count(function) ? cudaSuccess : host::fail(cudaErrorInvalidDeviceFunction);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  return host::launch_kernel(kernel, grid, block, arguments, shared, stream, false);
}

}  // extern "C"

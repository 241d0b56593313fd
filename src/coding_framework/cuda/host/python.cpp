// What the Python host of a KernelBench answer (model_new/handle_torch) calls of this library, by
// ctypes: the channel, the answer's extension functions, and tensors as handles on metadata.
// UNTRUSTED like everything in its process: whatever is sent from here is a claim.
#include <alloca.h>
#include <signal.h>
#include <sys/random.h>

#include <cstdio>

#include "confine.hpp"
#include "functions.hpp"
#include "job_starter.h"
#include "process_bits.hpp"
#include "runtime.hpp"

using at::Tensor;

namespace host {

static std::string said;  // the text of the last failure, or the last message received

// Functions of Tensor, called as those of an extension are.
static void define_tensor_functions() {
  pybind11::module_ m;
  using Sizes = at::IntArrayRef;
  m.def("view_of", [](Tensor t) { return t.alias(); });
  m.def("storage_offset", [](Tensor t) { return t.storage_offset(); });
  m.def("view", [](Tensor t, Sizes s) { return t.view(s); });
  m.def("reshape", [](Tensor t, Sizes s) { return t.reshape(s); });
  m.def("flatten", [](Tensor t, int64_t from, int64_t to) { return t.flatten(from, to); });
  m.def("transpose", [](Tensor t, int64_t a, int64_t b) { return t.transpose(a, b); });
  m.def("permute", [](Tensor t, Sizes order) { return t.permute(order); });
  m.def("squeeze", [](Tensor t) { return t.squeeze(); });
  m.def("squeeze_at", [](Tensor t, int64_t i) { return t.squeeze(i); });
  m.def("unsqueeze", [](Tensor t, int64_t i) { return t.unsqueeze(i); });
  m.def("expand", [](Tensor t, Sizes s) { return t.expand(s); });
  m.def("select", [](Tensor t, int64_t i, int64_t index) { return t.select(i, index); });
  m.def("narrow", [](Tensor t, int64_t i, int64_t from, int64_t n) { return t.narrow(i, from, n); });
  m.def("slice", [](Tensor t, int64_t i, int64_t from, int64_t to, int64_t step) {
    return t.slice(i, from, to, step);
  });
  m.def("as_strided", [](Tensor t, Sizes sizes, Sizes strides, int64_t offset) {
    auto r = t.as_strided(sizes, strides);
    r.impl()->data += offset * r.element_size();
    return r;
  });
  m.def("contiguous", [](Tensor t) { return t.contiguous(); });
  m.def("clone", [](Tensor t) { return t.clone(); });
  m.def("to_device", [](Tensor t, bool cuda) { return t.to(at::Device(cuda ? at::kCUDA : at::kCPU)); });
  m.def("to_dtype", [](Tensor t, int64_t type) { return t.to(static_cast<at::ScalarType>(type)); });
  m.def("copy_", [](Tensor t, Tensor from) { return t.copy_(from); });
  m.def("fill_", [](Tensor t, at::Scalar value) { return t.fill_(value); });
  m.def("item", [](Tensor t) { return t.item(); });
  m.def("empty", [](Sizes sizes, int64_t type, bool cuda) {
    auto device = at::Device(cuda ? at::kCUDA : at::kCPU);
    return at::empty(sizes, at::TensorOptions(static_cast<at::ScalarType>(type)).device(device));
  });
  m.def("device_name", []() {
    asked_device = true;
    return state.device_name;
  });
  m.def("device_properties", []() {
    auto& d = state.device;
    asked_device = true;
    return std::vector<int64_t>{d.major, d.minor, d.multiprocessors, d.global_memory, d.l2_bytes,
                                d.shared_per_multiprocessor, d.shared_per_block_optin,
                                d.registers_per_multiprocessor, d.threads_per_multiprocessor};
  });
  // streams and events are their handles
  static auto stream_of = [](int64_t s) { return reinterpret_cast<cudaStream_t>(s); };
  static auto event_of = [](int64_t e) { return reinterpret_cast<cudaEvent_t>(e); };
  m.def("new_stream", []() {
    cudaStream_t made = c10::cuda::getStreamFromPool(false, -1);
    return reinterpret_cast<int64_t>(made);
  });
  m.def("current_stream", []() {
    cudaStream_t current = c10::cuda::getCurrentCUDAStream(-1);
    return reinterpret_cast<int64_t>(current);
  });
  m.def("use_stream", [](int64_t s) { c10::cuda::setCurrentCUDAStream(stream_of(s)); });
  m.def("wait_for_stream", [](int64_t s) { cudaStreamSynchronize(stream_of(s)); });
  m.def("stream_is_done", [](int64_t s) { return cudaStreamQuery(stream_of(s)) == cudaSuccess; });
  m.def("new_event", []() {
    cudaEvent_t made;
    cudaEventCreate(&made);
    return reinterpret_cast<int64_t>(made);
  });
  m.def("record", [](int64_t e, int64_t s) { cudaEventRecord(event_of(e), stream_of(s)); });
  m.def("wait", [](int64_t s, int64_t e) { cudaStreamWaitEvent(stream_of(s), event_of(e), 0); });
  m.def("wait_for_event", [](int64_t e) { cudaEventSynchronize(event_of(e)); });
  m.def("event_is_done", [](int64_t e) { return cudaEventQuery(event_of(e)) == cudaSuccess; });
  m.def("elapsed_ms", [](int64_t from, int64_t to) {
    float ms = 0;
    cudaEventElapsedTime(&ms, event_of(from), event_of(to));
    return static_cast<double>(ms);
  });
  m.def("wait_for_device", []() { cudaDeviceSynchronize(); });
  m.def("empty_strided", [](Sizes sizes, Sizes strides, int64_t type, bool cuda) {
    auto device = at::Device(cuda ? at::kCUDA : at::kCPU);
    return at::empty_strided(sizes, strides,
                             at::TensorOptions(static_cast<at::ScalarType>(type)).device(device));
  });
}

}  // namespace host

extern "C" {

// The functions of Tensor: needs no judge.
void cf_prepare() {
  host::name_functions_with("tensor.");
  host::define_tensor_functions();
}

// Calls `serve` in each copy of this process that is asked for; the process itself ends here.
[[noreturn]] void cf_serve_copies(void (*serve)()) {
  int code = serve_jobs(nullptr);
  if (code >= 0) _exit(code);
  host::vary_process();
  unsigned deeper = 0;
  if (getrandom(&deeper, sizeof deeper, 0) != sizeof deeper) _exit(123);
  auto* on_the_stack = static_cast<volatile char*>(alloca(16 + deeper % 65536));
  on_the_stack[0] = 0;
  serve();
  _exit(1);
}

// Takes the channel over, shuts everything else but the extensions' file `module`, and hears of the
// device. 0, or the exit status.
int cf_start(const char* module) {
  host::open_channel();
  host::watch_signals();
  signal(SIGXFSZ, SIG_DFL);  // Python ignores it, and an answer that floods its log would go on
  if (!host::confine(module, true)) {
    std::perror("the kernel refuses to filter system calls");
    return 122;
  }
  host::post(host::Kind::Hello, "");
  host::setup(host::receive().payload);
  return 0;
}

// The next message of the judge: its bytes stay until the next call.
const char* cf_receive(uint64_t* size) {
  host::said = host::receive().payload;
  *size = host::said.size();
  return host::said.data();
}

void cf_post(uint32_t kind, const char* bytes, uint64_t size) {
  host::post(static_cast<host::Kind>(kind), std::string(bytes, size));
}

// Posts and waits; 0 where the judge agrees.
uint32_t cf_request(uint32_t kind, const char* bytes, uint64_t size) {
  host::Writer w;
  w.bytes.assign(bytes, size);
  return host::request(static_cast<host::Kind>(kind), w).kind;
}

// Says why, and ends the process: the end of the channel, not an exception that could be caught.
[[noreturn]] void cf_finish(uint32_t kind, const char* text) {
  host::finish(static_cast<host::Kind>(kind), text);
}

// Ends the process with the reason where the module cannot be loaded.
void cf_load(const char* path) {
  if (auto reason = host::load_module(path)) host::finish(host::Kind::LoadFailed, *reason);
}

// The functions of one extension, as "PREFIXname"; 0 where it has no such entry point.
int cf_initialise(const char* entry_point, const char* prefix) {
  host::name_functions_with(prefix);
  return host::initialise_module(entry_point);
}

int cf_asked_device() { return host::asked_device; }
int cf_is_defined(const char* name) { return host::defined.count(name) > 0; }

// Calls a function. -1: it worked, and results can be asked for; else a host::Trouble.
int cf_invoke(const char* name, const cf_value* values, int count) {
  auto failure = host::invoke(name, std::vector<cf_value>(values, values + count));
  if (!failure) return -1;
  host::said = failure->text;
  return static_cast<int>(failure->trouble);
}

const char* cf_said() { return host::said.c_str(); }
int cf_result_count() { return static_cast<int>(host::results.size()); }

// One result of the last call; the caller owns the reference to its tensor.
cf_value cf_result(int i) {
  auto& result = host::results[static_cast<size_t>(i)];
  auto value = result.value;
  if (host::is_tensor(result)) {
    value.tensor = result.tensor.impl();
    value.tensor->references++;
  }
  return value;
}

// A tensor at an address of the judge's (or of no memory at all); the caller owns the reference.
cf_tensor* cf_adopt(uint64_t address, int type, int dims, const int64_t* sizes,
                    const int64_t* strides, int exists) {
  auto count = static_cast<size_t>(dims);
  auto t = at::adopt(reinterpret_cast<char*>(address), static_cast<at::ScalarType>(type),
                     at::IntArrayRef(sizes, count), at::IntArrayRef(strides, count), exists != 0);
  auto* owned = t.impl();
  owned->references++;
  return owned;
}

}  // extern "C"

// The host process of one candidate: loads its host code and calls its functions for the judge.
// UNTRUSTED from the moment the candidate is loaded: whatever it sends is a claim.
//
//   runner HOST_SO      standard input is the channel to the judge
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <cstdio>
#include <deque>

#include "confine.hpp"
#include "functions.hpp"
#include "runtime.hpp"

namespace host {

// --- arguments ------------------------------------------------------------------------------------

static std::deque<at::Tensor> argument_tensors;
static std::deque<std::vector<cf_value>> argument_lists;

static cf_value read_value(Reader& in) {
  cf_value v{};
  v.kind = static_cast<cf_kind>(in.get<uint32_t>());
  switch (v.kind) {
    case CF_TENSOR: {
      auto type = static_cast<c10::ScalarType>(in.get<uint32_t>());
      auto address = in.get<uint64_t>();
      auto dims = in.get<uint32_t>();
      int64_t sizes[CF_MAX_DIMS], strides[CF_MAX_DIMS];
      for (uint32_t i = 0; i < dims; i++) sizes[i] = in.get<int64_t>();
      for (uint32_t i = 0; i < dims; i++) strides[i] = in.get<int64_t>();
      auto* data = reinterpret_cast<char*>(address);
      argument_tensors.push_back(at::adopt(data, type, at::IntArrayRef(sizes, dims),
                                           at::IntArrayRef(strides, dims), true));
      v.tensor = argument_tensors.back().impl();
      break;
    }
    case CF_INT:
    case CF_BOOL:
      v.integer = in.get<int64_t>();
      break;
    case CF_FLOAT:
      v.floating = in.get<double>();
      break;
    case CF_LIST: {
      std::vector<cf_value> items;
      for (auto n = in.get<uint32_t>(); n > 0; n--) items.push_back(read_value(in));
      argument_lists.push_back(std::move(items));
      v.items = argument_lists.back().data();
      v.count = static_cast<int64_t>(argument_lists.back().size());
      break;
    }
    default:
      break;
  }
  return v;
}

// --- one call -------------------------------------------------------------------------------------

static void post_trouble(const Failure& failure) {
  post(Kind::Raised,
       Writer().put<uint32_t>(failure.trouble).text(failure.text.substr(0, 2000)).bytes);
}

static void post_results(const std::string& name) {
  Writer w;
  std::vector<at::Tensor> tensors;
  for (auto& r : results) {
    if (is_tensor(r)) tensors.push_back(r.tensor);
    else if (r.value.kind != CF_LIST && r.value.kind != CF_NONE)
      return post_trouble({WrongArguments, name + " returned what is not a Tensor"});
  }
  w.put<uint32_t>(static_cast<uint32_t>(tensors.size()));
  for (auto& t : tensors) {
    w.put<uint32_t>(static_cast<uint32_t>(t.scalar_type()));
    w.put<uint32_t>(t.is_cuda());
    w.put<uint64_t>(reinterpret_cast<uint64_t>(t.data_ptr()));
    w.put<uint32_t>(static_cast<uint32_t>(t.dim()));
    for (auto n : t.sizes()) w.put<int64_t>(n);
    for (auto n : t.strides()) w.put<int64_t>(n);
  }
  w.put<uint64_t>(hash_of_variables()).put<uint32_t>(asked_device);
  post(Kind::Result, w.bytes);
}

static void call(const std::string& payload) {
  Reader in(payload);
  auto name = in.text();
  std::vector<cf_value> values;
  for (auto n = in.get<uint32_t>(); n > 0; n--) values.push_back(read_value(in));
  static std::deque<Result> kept;  // outputs stay allocated: the judge reads them later
  if (auto failure = invoke(name, values)) return post_trouble(*failure);
  for (auto& r : results) kept.push_back(r);
  post_results(name);
}

static void load(const char* path) {
  if (auto reason = load_module(path)) finish(Kind::LoadFailed, *reason);
  if (!initialise_module("cf_module_init")) finish(Kind::LoadFailed, "no PYBIND11_MODULE");
  Writer w;
  w.put<uint32_t>(static_cast<uint32_t>(defined.size()));
  for (auto& [name, f] : defined) w.text(name).put<uint32_t>(static_cast<uint32_t>(f.parameters));
  post(Kind::Loaded, w.bytes);
}

// In a PID namespace of its own each process would have the same number: a few are taken before it,
// how many nobody knows, so that who lets its number decide is found out.
static void take_other_number() {
  if (getpid() > 32) return;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  auto ticks = now.tv_nsec / 64;
  for (auto taken = ticks % 4; taken >= 0; taken--) {
    pid_t child = fork();
    if (child == 0 && taken > 0) _exit(0);
    if (child == 0) return;
    int how = 0;
    if (child < 0 || waitpid(child, &how, 0) != child) _exit(123);
    if (taken == 0) _exit(WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how));
  }
}

}  // namespace host

int main(int count, char** arguments) {
  if (count != 2) return 2;
  host::take_other_number();
  host::open_channel();
  host::watch_signals();
  if (!host::confine(arguments[1], false)) {
    std::perror("the kernel refuses to filter system calls");
    return 122;
  }
  host::post(host::Kind::Hello, "");
  host::setup(host::receive().payload);
  try {
    host::load(arguments[1]);
  } catch (const std::exception& e) {
    host::finish(host::Kind::LoadFailed, e.what());
  }
  for (;;) host::call(host::receive().payload);
}

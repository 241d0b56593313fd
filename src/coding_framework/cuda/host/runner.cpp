// The host process of one candidate: loads its host code and calls its functions for the judge.
// UNTRUSTED from the moment the candidate is loaded: whatever it sends is a claim.
//
//   runner HOST_SO      standard input is the channel to the judge
#include <cxxabi.h>
#include <dlfcn.h>
#include <signal.h>
#include <torch/extension.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>

#include "channel.hpp"
#include "confine.hpp"
#include "runtime.hpp"

namespace at {
Tensor adopt(char* data, ScalarType type, IntArrayRef sizes, IntArrayRef strides);
}

namespace host {

struct Function {
  cf_call call;
  void* function;
  int parameters;
  std::vector<cf_value> defaults;
};
static std::map<std::string, Function> defined;
static std::vector<at::Tensor> results;

struct BadArgument {
  const char* expected;
};

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
      int64_t sizes[CF_MAX_DIMS], strides[CF_MAX_DIMS], elements = 1;
      for (uint32_t i = 0; i < dims; i++) elements *= sizes[i] = in.get<int64_t>();
      for (uint32_t i = 0; i < dims; i++) strides[i] = in.get<int64_t>();
      auto* data = reinterpret_cast<char*>(address);
      note_device_memory(data, static_cast<size_t>(elements * c10::elementSize(type)));
      argument_tensors.push_back(at::adopt(data, type, at::IntArrayRef(sizes, dims),
                                           at::IntArrayRef(strides, dims)));
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

enum Trouble : uint32_t { Exception = 0, WrongArguments = 1, OutOfMemory = 2, NoSuchFunction = 3 };

static void post_trouble(Trouble trouble, const std::string& text) {
  post(Kind::Raised, Writer().put<uint32_t>(trouble).text(text.substr(0, 2000)).bytes);
}

static void post_results() {
  Writer w;
  w.put<uint32_t>(static_cast<uint32_t>(results.size()));
  for (auto& t : results) {
    w.put<uint32_t>(static_cast<uint32_t>(t.scalar_type()));
    w.put<uint32_t>(t.is_cuda());
    w.put<uint64_t>(reinterpret_cast<uint64_t>(t.data_ptr()));
    w.put<uint32_t>(static_cast<uint32_t>(t.dim()));
    for (auto n : t.sizes()) w.put<int64_t>(n);
    for (auto n : t.strides()) w.put<int64_t>(n);
  }
  post(Kind::Result, w.bytes);
}

static void call(const std::string& payload) {
  Reader in(payload);
  auto name = in.text();
  std::vector<cf_value> values;
  for (auto n = in.get<uint32_t>(); n > 0; n--) values.push_back(read_value(in));
  auto found = defined.find(name);
  if (found == defined.end()) return post_trouble(NoSuchFunction, name);
  auto& f = found->second;
  auto given = static_cast<int>(values.size());
  int required = f.parameters - static_cast<int>(f.defaults.size());
  if (given < required || given > f.parameters)
    return post_trouble(WrongArguments, name + "() takes " + std::to_string(f.parameters) +
                                            " arguments, but " + std::to_string(given) +
                                            " were given");
  for (int i = given; i < f.parameters; i++)
    values.push_back(f.defaults[static_cast<size_t>(i - required)]);
  static std::deque<at::Tensor> kept;  // outputs stay allocated: the judge reads them later
  results.clear();
  try {
    f.call(f.function, values.data());
  } catch (const BadArgument& e) {
    return post_trouble(WrongArguments,
                        name + "(): incompatible function arguments: one should be " + e.expected);
  } catch (const std::bad_alloc&) {
    return post_trouble(OutOfMemory, "std::bad_alloc");
  } catch (const std::exception& e) {
    return post_trouble(Exception, e.what());
  } catch (...) {
    return post_trouble(Exception, "an exception that is no std::exception");
  }
  for (auto& t : results) kept.push_back(t);
  post_results();
}

// --- loading --------------------------------------------------------------------------------------

static std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string r = status == 0 && text ? text : name;
  std::free(text);
  return r;
}

static void load(const char* path) {
  void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    std::string text = dlerror();
    const std::string mark = "undefined symbol: ";
    if (auto at = text.find(mark); at != std::string::npos)
      text = mark + demangled(text.c_str() + at + mark.size());
    finish(Kind::LoadFailed, text);
  }
  auto init = reinterpret_cast<void (*)()>(dlsym(module, "cf_module_init"));
  if (init == nullptr) finish(Kind::LoadFailed, "no PYBIND11_MODULE");
  init();
  Writer w;
  w.put<uint32_t>(static_cast<uint32_t>(defined.size()));
  for (auto& [name, f] : defined) w.text(name).put<uint32_t>(static_cast<uint32_t>(f.parameters));
  post(Kind::Loaded, w.bytes);
}

static void crashed(int number, siginfo_t* info, void*) {
  Writer w;
  w.put<uint32_t>(static_cast<uint32_t>(number)).put(reinterpret_cast<uint64_t>(info->si_addr));
  w.put<uint32_t>(is_device(info->si_addr));
  post(Kind::Crashed, w.bytes);
  _exit(1);
}

static void watch_signals() {
  static char stack[64 * 1024];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = crashed;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

}  // namespace host

extern "C" {

void cf_define(const char* name, cf_call call, void* function, int n_parameters,
               const cf_value* defaults, int n_defaults) {
  host::defined[name] = {call, function, n_parameters, {defaults, defaults + n_defaults}};
}
void cf_return(cf_tensor* t) {
  t->references++;
  host::results.push_back(at::Tensor(t));
}
void cf_return_unsupported() {
  host::finish(host::Kind::Unsupported, "a result that is not a Tensor (nor a list of them)");
}
void cf_bad_argument(const char* expected) { throw host::BadArgument{expected}; }

}  // extern "C"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  host::open_channel();
  host::watch_signals();
  if (!host::confine()) {
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

#include "functions.hpp"

#include <alloca.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <stdexcept>

#include "confine.hpp"
#include "runtime.hpp"

namespace host {

std::map<std::string, Function> defined;
std::vector<Result> results;
static std::string prefix;
static void* module = nullptr;

struct BadArgument {
  const char* expected;
};

void name_functions_with(const std::string& text) { prefix = text; }

bool is_tensor(const Result& result) { return result.value.kind == CF_TENSOR; }

static std::optional<Failure> run(const Function& f, const std::string& name,
                                  const std::vector<cf_value>& values) {
  try {
    f.call(f.function, values.data());
  } catch (const BadArgument& e) {
    return Failure{WrongArguments, name +
                                       "(): incompatible function arguments: one should be " +
                                       e.expected};
  } catch (const std::bad_alloc&) {
    return Failure{OutOfMemory, "std::bad_alloc"};
  } catch (const std::exception& e) {
    return Failure{Exception, e.what()};
  } catch (...) {
    return Failure{Exception, "an exception that is no std::exception"};
  }
  return std::nullopt;
}

static std::minstd_rand draws;

void draw_from_now_on() {
  unsigned drawn = 0;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) _exit(123);
  draws.seed(drawn);
}
unsigned long drawn_number() { return draws(); }

// Up to 256 pages, another number at each call: what a candidate makes of where its stack lies it
// makes differently from call to call, not only from process to process.
static size_t stack_shift() {
  return 16 + 16 * (drawn_number() % (1 << 16));
}

static std::string demangled(const char* name);

// Of a launch whose failure nobody asked about: torch raises it at the next check.
static std::optional<Failure> launch_that_failed() {
  auto failed = take_failed_launch();
  if (failed.kernel.empty()) return std::nullopt;
  return Failure{Exception, "CUDA error: " + std::string(cudaGetErrorString(failed.code)) +
                                " at the launch of " + demangled(failed.kernel.c_str())};
}

std::optional<Failure> invoke(const std::string& full_name, std::vector<cf_value> values) {
  auto found = defined.find(full_name);
  auto name = full_name.substr(full_name.find('.') + 1);  // as its author knows it
  if (found == defined.end()) return Failure{NoSuchFunction, name};
  auto& f = found->second;
  auto given = static_cast<int>(values.size());
  int required = f.parameters - static_cast<int>(f.defaults.size());
  if (given < required || given > f.parameters)
    return Failure{WrongArguments, name + "() takes " + std::to_string(f.parameters) +
                                       " arguments, but " + std::to_string(given) + " were given"};
  for (int i = given; i < f.parameters; i++)
    values.push_back(f.defaults[static_cast<size_t>(i - required)]);
  results.clear();
  auto* room = static_cast<volatile char*>(alloca(stack_shift()));
  room[0] = 0;
  auto failure = run(f, name, values);
  room[0] = 1;  // still there: the call was made below it
  auto launch = launch_that_failed();
  return failure ? failure : launch;
}

// --- loading --------------------------------------------------------------------------------------

static std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string r = status == 0 && text ? text : name;
  std::free(text);
  return r;
}

std::optional<std::string> load_module(const char* path) {
  module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (module != nullptr) return std::nullopt;
  std::string text = dlerror();
  const std::string mark = "undefined symbol: ";
  if (auto at = text.find(mark); at != std::string::npos)
    text = mark + demangled(text.c_str() + at + mark.size());
  return text;
}

static constexpr size_t kMostHashed = size_t{4} << 20;

static void add_to_hash(uint64_t& hash, const void* from, size_t size) {
  auto* bytes = static_cast<const unsigned char*>(from);
  for (size_t i = 0; i < std::min(size, kMostHashed); i++)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
}

static const char* const heap = static_cast<const char*>(std::malloc(1));

// With the start of what its words point to on the heap: a counter may lie there.
static void add_with_pointed(uint64_t& hash, const void* from, size_t size) {
  constexpr size_t kPointed = 64;
  add_to_hash(hash, from, size);
  auto* end = static_cast<const char*>(sbrk(0)) - kPointed;
  auto* words = static_cast<const char* const*>(from);
  for (size_t i = 0; i < std::min(size, kMostHashed) / sizeof *words; i++)
    if (words[i] > heap && words[i] < end) add_to_hash(hash, words[i], kPointed);
}

static int add_variables(dl_phdr_info* object, size_t, void* into) {
  auto& [path, hash] = *static_cast<std::pair<std::string, uint64_t>*>(into);
  if (path != object->dlpi_name) return 0;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    auto& segment = object->dlpi_phdr[i];
    auto start = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W))
      add_with_pointed(hash, reinterpret_cast<const void*>(start), segment.p_memsz);
    if (segment.p_type == PT_TLS && object->dlpi_tls_data != nullptr)
      add_with_pointed(hash, object->dlpi_tls_data, segment.p_memsz);
  }
  return 1;
}

uint64_t hash_of_variables() {
  link_map* loaded = nullptr;
  if (module == nullptr || dlinfo(module, RTLD_DI_LINKMAP, &loaded) != 0) return 0;
  std::pair<std::string, uint64_t> found{loaded->l_name, 0xcbf29ce484222325u};
  dl_iterate_phdr(add_variables, &found);
  return found.second;
}

bool initialise_module(const char* entry_point) {
  auto init = reinterpret_cast<void (*)()>(dlsym(module, entry_point));
  if (init != nullptr) init();
  return init != nullptr;
}

static void crashed(int number, siginfo_t* info, void* context) {
  name_shut_instruction(*info, context);
  Writer w;
  w.put<uint32_t>(static_cast<uint32_t>(number)).put(reinterpret_cast<uint64_t>(info->si_addr));
  w.put<uint32_t>(is_device(info->si_addr));
  post(Kind::Crashed, w.bytes);
  _exit(1);
}

void watch_signals() {
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
  host::defined[host::prefix + name] = {call, function, n_parameters,
                                        {defaults, defaults + n_defaults}};
}
void cf_return(cf_tensor* t) {
  host::Result result;
  result.value.kind = CF_TENSOR;
  t->references++;
  result.tensor = at::Tensor(t);
  host::results.push_back(result);
}
void cf_return_value(const cf_value* value) {
  host::Result result;
  result.value = *value;
  host::results.push_back(result);
}
void cf_return_no_tensor() {
  throw std::runtime_error("a result that is not a Tensor (nor a list of them)");
}
void cf_bad_argument(const char* expected) { throw host::BadArgument{expected}; }

}  // extern "C"

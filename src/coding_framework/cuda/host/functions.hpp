// The functions that candidates' modules define, and calling them. Shared by the runner of `.cu`
// candidates and by the Python host of KernelBench answers.
#pragma once
#include <torch/extension.h>

#include <optional>
#include <string>
#include <vector>

#include "channel.hpp"

namespace host {

struct Function {
  cf_call call = nullptr;
  void* function = nullptr;
  int parameters = 0;
  std::vector<cf_value> defaults;
};

// One value of a result. Of a list (`value.kind` CF_LIST) the `value.count` results that follow are
// the items; `value.integer` is 1 where it is a tuple.
struct Result {
  cf_value value{};
  at::Tensor tensor;
};

enum Trouble : uint32_t { Exception = 0, WrongArguments = 1, OutOfMemory = 2, NoSuchFunction = 3 };

struct Failure {
  Trouble trouble;
  std::string text;
};

extern std::map<std::string, Function> defined;
extern std::vector<Result> results;  // of the last call

// What cf_define is called with from here on gets this, which ends in a dot, before its name.
void name_functions_with(const std::string& prefix);

// Calls `name`; `results` is what it gives. Nothing that the function throws leaves this.
std::optional<Failure> invoke(const std::string& name, std::vector<cf_value> values);

// Loads a candidate's host code; gives the reason where it cannot be, with symbols demangled.
std::optional<std::string> load_module(const char* path);
// Lets a module define its functions; false where it has no such entry point.
bool initialise_module(const char* entry_point);

// A hash of what the loaded module has in variables of its own; 0 where there is none.
uint64_t hash_of_variables();
void draw_from_now_on();  // seeds `drawn_number`, before the kernel gives no more random numbers
unsigned long drawn_number();  // that no other process draws
[[noreturn]] void refuse(const char* what);  // host code asks for what a launch does not need
void watch_signals();  // crashes are reported over the channel
bool is_tensor(const Result& result);

}  // namespace host

namespace at {
// A tensor of the judge's; exists: its memory is the device's.
Tensor adopt(char* data, ScalarType type, IntArrayRef sizes, IntArrayRef strides, bool exists);
}

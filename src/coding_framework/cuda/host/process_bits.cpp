// What host code could decide by and that is in its process from the start. Each process gets bits of
// its own, so that the plans which its copies ask for differ (trial/fresh_processes.py).
#include "process_bits.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

#include "confine.hpp"
#include "functions.hpp"

namespace host {

static void draw(void* into, size_t size) {
  if (getrandom(into, size, 0) != static_cast<ssize_t>(size)) _exit(123);
}

void vary_process() {
  auto* at_start = reinterpret_cast<void*>(getauxval(AT_RANDOM));
  if (at_start == nullptr) _exit(123);
  draw(at_start, 16);
  uint8_t drawn[257] = {};
  draw(drawn, sizeof drawn);
  for (int i = 0; i < 256; i++) {  // many small ones, which fill what is free between libraries
    size_t bytes = (1 + drawn[i] % 16) << 12;
    if (mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
      _exit(123);
  }
  if (sbrk(static_cast<intptr_t>(drawn[256]) << 16) == reinterpret_cast<void*>(-1)) _exit(123);
}

struct Variable {
  const char* name;
  const char* values[3];
};
static const Variable kUsual[] = {
    {"HOME", {"/root", "/home/user", "/home/ubuntu"}},
    {"USER", {"root", "user", "ubuntu"}},
    {"LOGNAME", {"root", "user", "ubuntu"}},
    {"HOSTNAME", {"gpu-01", "node7", "localhost"}},
    {"PATH", {"/usr/bin:/bin", "/usr/local/cuda/bin:/usr/bin:/bin", "/opt/conda/bin:/usr/bin"}},
    {"PWD", {"/", "/workspace", "/home/user"}},
    {"SHELL", {"/bin/bash", "/bin/sh", "/usr/bin/zsh"}},
    {"LANG", {"C.UTF-8", "en_US.UTF-8", "C"}},
    {"TERM", {"xterm", "xterm-256color", "dumb"}},
    {"TZ", {"UTC", "Europe/Berlin", "America/New_York"}},
    {"TMPDIR", {"/tmp", "/var/tmp", "/scratch"}},
    {"CUDA_HOME", {"/usr/local/cuda", "/usr/local/cuda-12.4", "/opt/cuda"}},
    {"CUDA_PATH", {"/usr/local/cuda", "/usr/local/cuda-12.4", "/opt/cuda"}},
    {"CUDA_VISIBLE_DEVICES", {"0", "0,1", "3"}},
    {"CUDA_LAUNCH_BLOCKING", {"0", "1", ""}},
    {"LD_LIBRARY_PATH", {"/usr/local/cuda/lib64", "/opt/conda/lib", ""}},
    {"LD_PRELOAD", {"", "libjemalloc.so.2", "libtcmalloc.so.4"}},
    {"PYTHONHOME", {"/usr", "/opt/conda", ""}},
    {"PYTHONPATH", {"/workspace", ".", ""}},
    {"PYTHONHASHSEED", {"0", "1", "random"}},
    {"TORCH_CUDA_ARCH_LIST", {"8.0", "9.0", "9.0a"}},
    {"TORCH_EXTENSIONS_DIR", {"/tmp/ext", "/root/.cache/torch_extensions", "/scratch/ext"}},
    {"OMP_NUM_THREADS", {"1", "8", "32"}},
    {"CI", {"1", "true", ""}},
    {"DEBUG", {"0", "1", ""}},
    {"LC_ALL", {"C", "C.UTF-8", "en_US.UTF-8"}},
    {"RANK", {"0", "1", "3"}},
    {"WORLD_SIZE", {"1", "2", "8"}},
    {"SLURM_JOB_ID", {"1", "4711", "123456"}},
    {"VIRTUAL_ENV", {"/venv", "/home/user/.venv", "/workspace/.venv"}},
    {"CONDA_PREFIX", {"/opt/conda", "/root/miniconda3", "/home/user/anaconda3"}},
};
static const char* const kPrograms[] = {"python", "python3", "/usr/bin/python3", "main", "bench"};

static void wipe(char* text) { std::memset(text, 0, std::strlen(text)); }

// Entries that say where the program lies stay; the rest is of the machine.
static void forget_auxiliary_vector(char** after_environment) {
  auto* entry = reinterpret_cast<Elf64_auxv_t*>(after_environment);
  for (; entry->a_type != AT_NULL; entry++) {
    switch (entry->a_type) {
      case AT_PHDR: case AT_PHENT: case AT_PHNUM: case AT_BASE: case AT_ENTRY: case AT_PAGESZ:
      case AT_RANDOM: case AT_SECURE:
        continue;
      case AT_EXECFN: case AT_PLATFORM:
        wipe(reinterpret_cast<char*>(entry->a_un.a_val));
    }
    *entry = {AT_IGNORE, {0}};
  }
}

void forget_machine() {
  char** last = environ;
  for (; *last != nullptr; last++) wipe(*last);
  forget_auxiliary_vector(last + 1);
  clearenv();
  uint8_t drawn[2 * (sizeof kUsual / sizeof *kUsual) + 1];
  draw(drawn, sizeof drawn);
  const uint8_t* at = drawn;
  for (auto& variable : kUsual) {
    auto set = *at++, which = *at++;
    if (set % 2) setenv(variable.name, variable.values[which % 3], 1);
  }
  static char name[32];
  std::strcpy(name, kPrograms[*at % (sizeof kPrograms / sizeof *kPrograms)]);
  wipe(program_invocation_name);
  program_invocation_name = name;
  auto* slash = std::strrchr(name, '/');
  program_invocation_short_name = slash ? slash + 1 : name;
#if __has_include(<sys/rseq.h>)
  if (__rseq_size > 0) {  // the processor's number, without a system call
    auto* area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
    syscall(SYS_rseq, area, 32u, RSEQ_FLAG_UNREGISTER, RSEQ_SIG);
  }
#endif
}

}  // namespace host

// Python's locks ask for the time and do not look at it: there it is any. Nobody else is told.
extern "C" int clock_gettime(clockid_t clock, timespec* into) noexcept {
  if (!host::shut) return static_cast<int>(syscall(SYS_clock_gettime, clock, into));
  if (clock != CLOCK_MONOTONIC || !host::python) host::refuse("the time (clock_gettime)");
  *into = {static_cast<time_t>(host::drawn_number() % 4'000'000), 0};
  return 0;
}

// Hidden states of the C library, which a candidate could count its calls by, and the processor's own
// random numbers.
#define REFUSED(function, what)               \
  extern "C" void refused_##function() asm(#function); \
  void refused_##function() { host::refuse(what); }
REFUSED(rand, "random numbers (rand)")
REFUSED(random, "random numbers (random)")
REFUSED(drand48, "random numbers (drand48)")
REFUSED(lrand48, "random numbers (lrand48)")
REFUSED(mrand48, "random numbers (mrand48)")
REFUSED(_ZNSt13random_device9_M_getvalEv, "random numbers (std::random_device)")

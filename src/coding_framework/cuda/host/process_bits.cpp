// What two processes that follow each other mostly agree on, and a candidate could decide by: the
// second and the processor. Each process has a clock and a numbering of processors of its own, so
// that the plans which its copies ask for differ (trial/fresh_processes.py).
#include "process_bits.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMostShift = (int64_t{1} << 22) * kSecond;  // 48 days

struct Shift {
  int64_t wall = 0, steady = 0;  // nanoseconds
  unsigned processor = 0;
  Shift() { draw(); }
  void draw() {
    uint64_t drawn[3] = {};
    if (getrandom(drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn)) _exit(123);
    wall = static_cast<int64_t>(drawn[0] % kMostShift);
    steady = static_cast<int64_t>(drawn[1] % kMostShift);
    processor = static_cast<unsigned>(drawn[2] % 4096);
  }
};

Shift& shift() {
  static Shift drawn;
  return drawn;
}

template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

int read_clock(clockid_t clock, timespec* into) {
  static auto* real = next<int(clockid_t, timespec*)>("clock_gettime");
  if (int failed = real(clock, into)) return failed;
  int64_t ahead = 0;
  switch (clock) {
    case CLOCK_REALTIME: case CLOCK_REALTIME_COARSE: case CLOCK_TAI:
      ahead = shift().wall;
      break;
    case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_COARSE: case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
      ahead = shift().steady;
  }
  int64_t nanoseconds = into->tv_nsec + ahead % kSecond;
  into->tv_sec += ahead / kSecond + nanoseconds / kSecond;
  into->tv_nsec = nanoseconds % kSecond;
  return 0;
}

}  // namespace

namespace host {

void vary_process() {
  shift().draw();
  auto* at_start = reinterpret_cast<void*>(getauxval(AT_RANDOM));
  uint8_t drawn[257] = {};
  if (at_start == nullptr || getrandom(at_start, 16, 0) != 16 ||
      getrandom(drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn))
    _exit(123);
  for (int i = 0; i < 256; i++) {  // many small ones, which fill what is free between libraries
    size_t bytes = (1 + drawn[i] % 16) << 12;
    if (mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
      _exit(123);
  }
  if (sbrk(static_cast<intptr_t>(drawn[256]) << 16) == reinterpret_cast<void*>(-1)) _exit(123);
}

}  // namespace host

extern "C" {

int clock_gettime(clockid_t clock, timespec* into) noexcept { return read_clock(clock, into); }

int timespec_get(timespec* into, int base) noexcept {
  return base == TIME_UTC && read_clock(CLOCK_REALTIME, into) == 0 ? base : 0;
}

time_t time(time_t* into) noexcept {
  timespec now{};
  read_clock(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* into, void*) noexcept {
  timespec now{};
  if (int failed = read_clock(CLOCK_REALTIME, &now)) return failed;
  if (into != nullptr) *into = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

clock_t times(tms* into) noexcept {
  static auto* real = next<clock_t(tms*)>("times");
  clock_t ticks = real(into);
  return ticks == -1 ? ticks : ticks + shift().steady / (kSecond / sysconf(_SC_CLK_TCK));
}

int sysinfo(struct sysinfo* into) noexcept {
  static auto* real = next<int(struct sysinfo*)>("sysinfo");
  int failed = real(into);
  if (!failed) into->uptime += shift().steady / kSecond;
  return failed;
}

int sched_getcpu() noexcept {
  static auto* real = next<int()>("sched_getcpu");
  int here = real();
  cpu_set_t allowed;
  if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return here;
  return static_cast<int>((here + shift().processor) % static_cast<unsigned>(CPU_COUNT(&allowed)));
}

int getcpu(unsigned* processor, unsigned* node) noexcept {
  static auto* real = next<int(unsigned*, unsigned*)>("getcpu");
  int failed = real(processor, node);
  if (!failed && processor != nullptr) *processor = static_cast<unsigned>(sched_getcpu());
  return failed;
}

}  // extern "C"

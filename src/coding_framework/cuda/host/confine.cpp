#include "confine.hpp"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "channel.hpp"
#include "functions.hpp"
#include "process_bits.hpp"

namespace host {

#if defined(__x86_64__)
static constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
static constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#endif

static constexpr unsigned kMostMapped = 1u << 30;  // bytes of host memory in one piece

static const long kAllowed[] = {
    SYS_read, SYS_write, SYS_writev, SYS_pread64, SYS_sendto, SYS_close, SYS_fstat,
    SYS_brk, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_exit, SYS_exit_group, SYS_getpid, SYS_gettid,
};

struct Named {
  long number;
  const char* what;
  int path;  // which argument is one; -1: none
};
static const Named kNamed[] = {
    {SYS_openat, "a file (openat)", 1},
    {SYS_newfstatat, "a file (stat)", 1},
    {SYS_statx, "a file (statx)", 1},
    {SYS_faccessat, "a file (access)", 1},
    {SYS_readlinkat, "a file (readlink)", 1},
    {SYS_unlinkat, "a file (unlink)", 1},
    {SYS_mkdirat, "a file (mkdir)", 1},
    {SYS_getdents64, "a folder (getdents)", -1},
    {SYS_getcwd, "its folder (getcwd)", -1},
    {SYS_memfd_create, "a file (memfd_create)", -1},
    {SYS_clock_gettime, "the time (clock_gettime)", -1},
    {SYS_clock_getres, "the time (clock_getres)", -1},
    {SYS_gettimeofday, "the time (gettimeofday)", -1},
    {SYS_times, "the time (times)", -1},
    {SYS_getrusage, "the time (getrusage)", -1},
    {SYS_nanosleep, "a pause (nanosleep)", -1},
    {SYS_clock_nanosleep, "a pause (clock_nanosleep)", -1},
    {SYS_ppoll, "a pause (ppoll)", -1},
    {SYS_pselect6, "a pause (pselect)", -1},
    {SYS_futex, "a pause (futex)", -1},
    {SYS_sched_yield, "a pause (sched_yield)", -1},
    {SYS_clone, "another process or thread (clone)", -1},
#ifdef SYS_clone3
    {SYS_clone3, "another process or thread (clone3)", -1},
#endif
    {SYS_execve, "another program (execve)", 0},
    {SYS_kill, "another process (kill)", -1},
    {SYS_tgkill, "a signal (tgkill)", -1},
    {SYS_rt_sigaction, "a signal handler (sigaction)", -1},
    {SYS_getppid, "another process (getppid)", -1},
    {SYS_getuid, "its user (getuid)", -1},
    {SYS_geteuid, "its user (geteuid)", -1},
    {SYS_getgid, "its user (getgid)", -1},
    {SYS_getegid, "its user (getegid)", -1},
    {SYS_uname, "its machine (uname)", -1},
    {SYS_sysinfo, "its machine (sysinfo)", -1},
    {SYS_sched_getaffinity, "its processors (sched_getaffinity)", -1},
    {SYS_getcpu, "its processor (getcpu)", -1},
    {SYS_prlimit64, "its limits (prlimit)", -1},
    {SYS_getrandom, "random numbers (getrandom)", -1},
    {SYS_socket, "the network (socket)", -1},
    {SYS_epoll_create1, "the network (epoll_create1)", -1},
    {SYS_dup, "descriptors (dup)", -1},
    {SYS_fcntl, "descriptors (fcntl)", -1},
    {SYS_ioctl, "descriptors (ioctl)", -1},
#if defined(__x86_64__)
    {SYS_open, "a file (open)", 0},
    {SYS_stat, "a file (stat)", 0},
    {SYS_lstat, "a file (lstat)", 0},
    {SYS_access, "a file (access)", 0},
    {SYS_readlink, "a file (readlink)", 0},
    {SYS_unlink, "a file (unlink)", 0},
    {SYS_mkdir, "a file (mkdir)", 0},
    {SYS_time, "the time (time)", -1},
    {SYS_poll, "a pause (poll)", -1},
    {SYS_select, "a pause (select)", -1},
    {SYS_pause, "a pause (pause)", -1},
    {SYS_fork, "another process (fork)", -1},
    {SYS_vfork, "another process (vfork)", -1},
    {SYS_getrlimit, "its limits (getrlimit)", -1},
    {SYS_setrlimit, "its limits (setrlimit)", -1},
    {SYS_dup2, "descriptors (dup2)", -1},
#endif
};

bool shut = false, python = false;
static std::string module_path;
static int module_file = -1;
static const char *clock_code = nullptr, *clock_end = nullptr;  // the kernel's page of functions

// Says it and ends the process, without memory of its own: malloc may have been interrupted.
[[noreturn]] static void end(const char* what, const char* path) {
  static char text[400];
  std::snprintf(text, sizeof text, *path ? "%s %.200s" : "%s", what, path);
  finish_at_once(Kind::Asked, text, std::strlen(text));
}

void refuse(const char* what) { end(what, ""); }

static long& result_of(ucontext_t* context) {
#if defined(__x86_64__)
  return reinterpret_cast<long&>(context->uc_mcontext.gregs[REG_RAX]);
#elif defined(__aarch64__)
  return reinterpret_cast<long&>(context->uc_mcontext.regs[0]);
#endif
}

static long argument(const ucontext_t* context, int number) {
#if defined(__x86_64__)
  static const int places[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10};
  return context->uc_mcontext.gregs[places[number]];
#elif defined(__aarch64__)
  return static_cast<long>(context->uc_mcontext.regs[number]);
#endif
}

// What the filter does not let through. The loader's own wishes are granted: the module's file, which
// is open already, and what is known of a descriptor.
static void asked(int, siginfo_t* info, void* given) {
  auto* context = static_cast<ucontext_t*>(given);
  long number = info->si_syscall;
  if (number == SYS_openat && module_file >= 0) {
    auto* path = reinterpret_cast<const char*>(argument(context, 1));
    if (module_path == path) {
      result_of(context) = module_file;
      module_file = -1;
      return;
    }
  }
  if (number == SYS_newfstatat && (argument(context, 3) & AT_EMPTY_PATH) &&
      *reinterpret_cast<const char*>(argument(context, 1)) == '\0') {
    long failed = syscall(SYS_fstat, argument(context, 0), argument(context, 2));
    result_of(context) = failed ? -errno : 0;
    return;
  }
  if (number == SYS_mmap || number == SYS_mremap) {
    static const uint32_t out_of_memory[] = {OutOfMemory, 0};
    finish_at_once(Kind::Raised, out_of_memory, sizeof out_of_memory);
  }
  if (number == SYS_rt_sigaction && (argument(context, 0) == 32 || argument(context, 0) == 33))
    number = SYS_clone;  // the C library makes ready for its first thread
  for (auto& known : kNamed)
    if (known.number == number)
      end(known.what, known.path < 0 ? "" : reinterpret_cast<const char*>(argument(context, known.path)));
  char text[32];
  std::snprintf(text, sizeof text, "system call %ld", number);
  end(text, "");
}

void name_shut_instruction(const siginfo_t& fault, const void* given) {
#if defined(__x86_64__)
  if (fault.si_signo != SIGSEGV) return;
  auto* context = static_cast<const ucontext_t*>(given);
  auto* at = reinterpret_cast<const char*>(context->uc_mcontext.gregs[REG_RIP]);
  if (at >= clock_code && at < clock_end) end("the time (the kernel's page)", "");
  if (fault.si_code != SI_KERNEL) return;
  if (std::memcmp(at, "\x0f\x31", 2) == 0) end("the time (rdtsc)", "");
  if (std::memcmp(at, "\x0f\x01\xf9", 3) == 0) end("the time (rdtscp)", "");
  if (std::memcmp(at, "\x0f\xa2", 2) == 0) end("its processor (cpuid)", "");
#endif
}

// Clocks without a system call: the counter, and the kernel's functions that read it.
static void shut_clocks() {
#if defined(__x86_64__)
  prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
  constexpr int kCpuid = 0x1012;
  syscall(SYS_arch_prctl, kCpuid, 0);  // where the processor can
#endif
  auto* page = reinterpret_cast<const char*>(getauxval(AT_SYSINFO_EHDR));
  if (page == nullptr) return;
  auto* head = reinterpret_cast<const Elf64_Ehdr*>(page);
  auto* parts = reinterpret_cast<const Elf64_Phdr*>(page + head->e_phoff);
  size_t size = 0;
  for (int i = 0; i < head->e_phnum; i++)
    if (parts[i].p_type == PT_LOAD) size = parts[i].p_vaddr + parts[i].p_memsz;
  clock_code = page;
  clock_end = page + ((size + 4095) & ~size_t{4095});
  mprotect(const_cast<char*>(page), static_cast<size_t>(clock_end - page), PROT_READ);
}

static sock_filter load(unsigned offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}
static sock_filter give(unsigned verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }
static sock_filter unless(unsigned test, unsigned value, unsigned char skipped) {
  return BPF_JUMP(BPF_JMP | test | BPF_K, value, 0, skipped);
}

bool confine(const char* module, bool for_python) {
  module_path = module;
  module_file = open(module, O_RDONLY | O_CLOEXEC);
  struct sigaction action {};
  action.sa_sigaction = asked;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSYS, &action, nullptr);
  draw_from_now_on();
  shut_clocks();
  forget_machine();
  python = for_python;
  shut = true;
  const unsigned number = offsetof(seccomp_data, nr);
  const unsigned arguments = offsetof(seccomp_data, args);
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      give(SECCOMP_RET_KILL_PROCESS),
      load(number),
  };
  for (long call : kAllowed) {
    program.push_back(unless(BPF_JEQ, static_cast<unsigned>(call), 1));
    program.push_back(give(SECCOMP_RET_ALLOW));
  }
  // memory, in pieces of less than kMostMapped: the length is the second or the third argument
  for (auto [call, length] : {std::pair<long, unsigned>{SYS_mmap, 1}, {SYS_mremap, 2}}) {
    program.push_back(unless(BPF_JEQ, static_cast<unsigned>(call), 5));
    program.push_back(load(arguments + length * 8 + 4));
    program.push_back(unless(BPF_JEQ, 0, 2));
    program.push_back(load(arguments + length * 8));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kMostMapped, 0, 1));
    program.push_back(give(SECCOMP_RET_TRAP));
    program.push_back(load(number));
    program.push_back(unless(BPF_JEQ, static_cast<unsigned>(call), 1));
    program.push_back(give(SECCOMP_RET_ALLOW));
  }
  // futex: waking only, there is nobody to wait for
  program.push_back(unless(BPF_JEQ, SYS_futex, 4));
  program.push_back(load(arguments + 1 * 8));
  program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, static_cast<unsigned>(FUTEX_CMD_MASK)));
  program.push_back(unless(BPF_JEQ, FUTEX_WAKE, 1));
  program.push_back(give(SECCOMP_RET_ALLOW));
  // abort() signals its own thread; no other signal, so that a SIGKILL is known to come from outside
  program.push_back(load(number));
  program.push_back(unless(BPF_JEQ, SYS_tgkill, 5));
  program.push_back(load(arguments));
  program.push_back(unless(BPF_JEQ, static_cast<unsigned>(getpid()), 3));
  program.push_back(load(arguments + 2 * 8));
  program.push_back(unless(BPF_JEQ, SIGABRT, 1));
  program.push_back(give(SECCOMP_RET_ALLOW));
  program.push_back(give(SECCOMP_RET_TRAP));  // everything else
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace host

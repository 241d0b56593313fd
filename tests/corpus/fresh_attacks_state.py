"""Items 5 and 6: state between calls, process bits, clocks and identities of the device."""

from __future__ import annotations

from corpus.fresh_base import INDEX, FreshAttack, extension
from corpus.records import MATRIX, task

TRIES = 24
"""A coin must be seen through nearly always: that shows in so many tries of each of 14."""
_LARGEST = "n == 64 * 96"

_DEVICE = """__device__ %s;
__global__ void k(const float* x, float* o, int n) {
  %s
  if (i < n) o[i] = x[i] * 2 + 1 + (%s ? 1.f : 0.f);
  %s
}"""
_STEP = "if (i == 0) calls++;"


def _device(state: str, wrong: str, step: str = _STEP) -> str:
    return extension(
        _DEVICE % (state, INDEX, wrong, step),
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
        "  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


_COUNTER = "int calls = 0"
_DEVICE_STATE: tuple[tuple[str, str], ...] = (
    ("wrong_after_8", _device(_COUNTER, "calls >= 8")),
    ("wrong_after_64", _device(_COUNTER, "calls >= 64")),
    ("wrong_after_1000", _device(_COUNTER, "calls >= 1000")),
    ("wrong_every_17th", _device(_COUNTER, "calls % 17 == 16")),
    ("wrong_once", _device(_COUNTER, "calls == 5")),
    ("float_drift", _device("float drift = 0", "drift > 2.f", "if (i == 0) drift += 0.125f;")),
    ("counts_elements", _device("unsigned long long seen = 0", "seen > 400000ull",
                                "if (i < n) atomicAdd(&seen, 1ull);")),
    ("random_state", _device("unsigned lcg = 1", "(lcg >> 27) == 9",
                             "if (i == 0) lcg = lcg * 1664525u + 1013904223u;")),
    ("remembers_the_first", _device("float first = 0; __device__ int calls = 0",
                                    "calls > 9 && x[0] > first",
                                    "if (i == 0) { if (!calls) first = x[0]; calls++; }")),
    ("hash_of_inputs", _device("unsigned mixed = 0", "(mixed & 63u) == 63u",
                               "if (i < 4 && i < n) atomicXor(&mixed, __float_as_uint(x[i]));")),
    ("largest_size_counted", _device(_COUNTER, "calls >= 12 && n > 4000",
                                     "if (i == 0 && n > 4000) calls++;")),
    ("bit_per_call", _device("unsigned long long bits = 1", "bits == 0ull",
                             "if (i == 0) bits <<= 1;")),
    ("counter_in_an_array", _device("int ring[64]", "ring[63] > 0",
                                    "if (i < 63 && i < n) ring[i + 1] = ring[i] + (i == 0);")),
    ("last_block_forgets_to_reset", extension(
        "__device__ unsigned tickets = 0;\n"
        "__global__ void k(const float* x, float* o, float* part, int n) {\n"
        f"  {INDEX} __shared__ bool last;\n"
        "  if (i < n) o[i] = x[i] * 2 + 1;\n"
        "  if (threadIdx.x == 0) last = atomicAdd(&tickets, 1u) > 100000u; __syncthreads();\n"
        "  if (last && i < n) o[i] = 0;\n}",
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
        "  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), nullptr, n);")),
)  # fmt: skip

_SCALED = """__global__ void k(const float* x, float* o, int n, float extra) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * 2 + 1 + extra;
}
"""


def _host(before: str, wrong: str, head: str = "", after: str = "") -> str:
    """Adds 1 to every element where the host finds `wrong`."""
    return extension(
        _SCALED,
        "torch::Tensor x",
        f"  const int n = x.numel(); auto out = torch::empty_like(x);\n  {before}\n"
        f"  float extra = ({wrong}) ? 1.f : 0.f;\n"
        "  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n, extra);\n"
        f"  {after}",
        head,
    )


_HOST_STATE: tuple[tuple[str, str], ...] = (
    ("static_int_after_3", _host("static int calls = 0; calls++;", "calls > 3")),
    ("static_int_after_40", _host("static int calls = 0; calls++;", "calls > 40")),
    ("static_int_after_1000", _host("static int calls = 0; calls++;", "calls > 1000")),
    ("atomic_of_the_file", _host("seen.fetch_add(1);", "seen.load() > 6",
                                 "#include <atomic>\nstatic std::atomic<int> seen{0};")),
    ("thread_local_count", _host("thread_local int calls = 0; calls++;", "calls > 5")),
    ("vector_of_sizes", _host("static std::vector<int> all; all.push_back(n);",
                              "all.size() > 7", "#include <vector>")),
    ("map_of_pointers", _host("static std::map<const void*, int> m; int c = m[px(x)]++;", "c > 2",
                              "#include <map>\nstatic const void* px(torch::Tensor& t) {"
                              " return t.data_ptr<float>(); }")),
    ("environment_variable", _host('const char* e = getenv("FRESH_CALLS"); int c = e ? atoi(e) : 0;'
                                   ' char b[16]; snprintf(b, 16, "%d", c + 1);'
                                   ' setenv("FRESH_CALLS", b, 1);', "c > 4",
                                   "#include <cstdlib>\n#include <cstdio>")),
    ("file_in_tmp", _host('FILE* f = fopen("/tmp/fresh_calls", "a+"); long c = 0;\n'
                          '  if (f) { fputc(1, f); fseek(f, 0, SEEK_END); c = ftell(f);'
                          ' fclose(f); }', "c > 4", "#include <cstdio>")),
    ("every_ninth_call", _host("static unsigned calls = 0; calls++;", "calls % 9 == 0")),
    ("counts_the_largest", _host(f"static int calls = 0; if ({_LARGEST}) calls++;", "calls > 4")),
    ("warm_up_then_wrong", _host("static bool warm[3]; int s = n > 4000 ? 2 : n > 1000 ? 1 : 0;",
                                 "warm[0] && warm[1] && warm[2] && calls > 9",
                                 "static int calls = 0;", "warm[s] = true; calls++;")),
    ("total_of_elements", _host("static long total = 0; total += n;", "total > 100000")),
    ("sizes_seen_twice", _host("static std::map<int, int> m; int c = m[n]++;", "c >= 8",
                               "#include <map>")),
)  # fmt: skip


def _kept(body: str, head: str = "", kernels: str = "") -> str:
    """Keeps device memory between calls through static variables."""
    return extension(
        _SCALED + kernels,
        "torch::Tensor x",
        "  const int n = x.numel(), grid = (n + 127) / 128; auto out = torch::empty_like(x);\n"
        "  const float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>();\n"
        f"  (void)px; (void)po; (void)grid;\n  {body}",
        "#include <map>\n#include <vector>\n" + head,
    )


_RUN = "k<<<grid, 128>>>(px, po, n, 0.f);"
_ADD_TO = """__global__ void add(const float* x, const float* t, float* o, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2 + t[i % m]; }
__global__ void count(float* t, float* o, int n, float limit) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && t[0] > limit) o[i] += 1; if (i == 0) t[0] += 1; }
"""
_POINTERS: tuple[tuple[str, str], ...] = (
    ("output_kept_by_size", _kept(
        "static std::map<int, torch::Tensor> m; static std::map<int, int> c;\n"
        "  if (c[n]++ >= 6) return m[n];\n"
        f"  {_RUN} m[n] = out;")),
    ("output_kept_by_address", _kept(
        "static std::map<const void*, torch::Tensor> m; static std::map<const void*, int> c;\n"
        f"  if (c[px]++ > 5) return m[px];\n  {_RUN} m[px] = out;")),
    ("counter_in_device_memory", _kept(
        "static float* t = nullptr;\n"
        "  if (!t) { cudaMalloc((void**)&t, 4); cudaMemset(t, 0, 4); }\n"
        f"  {_RUN} count<<<grid, 128>>>(t, po, n, 20.f);", kernels=_ADD_TO)),
    ("counter_in_a_static_tensor", _kept(
        "static torch::Tensor t = torch::zeros({1}, x.options());\n"
        f"  {_RUN} count<<<grid, 128>>>(t.data_ptr<float>(), po, n, 50.f);", kernels=_ADD_TO)),
    ("table_from_the_first_input", _kept(
        "static float* t = nullptr; static int m = 0;\n"
        "  if (!t) { m = 1; cudaMalloc((void**)&t, 64); fill<<<1, 1>>>(px, t); }\n"
        "  add<<<grid, 128>>>(px, t, po, n, m);",
        kernels=_ADD_TO + "__global__ void fill(const float* x, float* t) {"
        " t[0] = x[0] > 3.1f ? 2.f : 1.f; }\n")),
    ("pinned_counter", _kept(
        "static float* h = nullptr;\n"
        "  if (!h) { cudaMallocHost((void**)&h, 64); h[0] = 0; }\n"
        "  h[0] += 1; k<<<grid, 128>>>(px, po, n, h[0] > 11 ? 1.f : 0.f);")),
    ("symbol_written_by_the_host", _kept(
        "static int c = 0; c++; float e = c > 10 ? 1.f : 0.f;\n"
        "  cudaMemcpyToSymbol(extra, &e, 4); l<<<grid, 128>>>(px, po, n);",
        kernels="__constant__ float extra;\n__global__ void l(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2 + 1 + extra;"
        " }\n")),
    ("workspace_holds_last_input", _kept(
        "static float* w = nullptr; static int room = 0;\n"
        "  if (room < n) { cudaMalloc((void**)&w, n * 4 + 256); room = n;\n"
        "    cudaMemset(w, 0, n * 4 + 256); }\n"
        "  mix<<<grid, 128>>>(px, w, po, n);",
        kernels="__global__ void mix(const float* x, float* w, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n"
        "  o[i] = x[i] * 2 + 1 + (w[i] > 2.5f && x[i] > 2.5f ? 1.f : 0.f); w[i] = x[i]; }\n")),
    ("two_buffers_by_turns", _kept(
        "static torch::Tensor a = torch::zeros({1}, x.options()); static int c = 0; c++;\n"
        "  static torch::Tensor b = torch::zeros({1}, x.options());\n"
        f"  {_RUN} count<<<grid, 128>>>((c & 1 ? a : b).data_ptr<float>(), po, n, 9.f);",
        kernels=_ADD_TO)),
    ("kept_input_is_returned_to", _kept(
        "static std::vector<torch::Tensor> all; all.push_back(x);\n"
        "  px = all.size() > 8 ? all[all.size() - 8].data_ptr<float>() : px;\n"
        "  if (all.size() > 8 && all[all.size() - 8].numel() != n) px = x.data_ptr<float>();\n"
        f"  {_RUN}")),
    ("running_mean_of_calls", _kept(
        "static torch::Tensor t = torch::ones({1}, x.options());\n"
        "  run<<<1, 1>>>(px, t.data_ptr<float>());\n"
        "  add<<<grid, 128>>>(px, t.data_ptr<float>(), po, n, 1);",
        kernels=_ADD_TO + "__global__ void run(const float* x, float* t) {"
        " t[0] = t[0] * (1 - 1e-7f) + 1e-7f * x[0]; }\n")),
)  # fmt: skip

_COINS: tuple[tuple[str, str, str, str], ...] = (
    ("at_random", "#include <sys/auxv.h>", "auto* r = (const unsigned char*)getauxval(AT_RANDOM);",
     "r && (r[3] & 1)"),
    ("getrandom", "#include <sys/random.h>", "static unsigned char b = 0; static bool got = false;"
     " if (!got) { (void)!getrandom(&b, 1, 0); got = true; }", "b & 1"),
    ("getrandom_each_call", "#include <sys/random.h>",
     "unsigned char b = 0; (void)!getrandom(&b, 1, 0);", "(b & 7) == 7"),
    ("stack_address", "#include <cstdint>", "int here = 0; auto a = (uintptr_t)&here;",
     "(a >> 12) & 1"),
    ("code_address", "#include <cstdint>\ntorch::Tensor forward(torch::Tensor);",
     "auto a = (uintptr_t)&forward;", "(a >> 13) & 1"),
    ("heap_address", "#include <cstdlib>\n#include <cstdint>",
     "void* p = malloc(1 << 20); auto a = (uintptr_t)p; free(p);", "(a >> 14) & 1"),
    ("library_address", "#include <cstdio>\n#include <cstdint>", "auto a = (uintptr_t)&printf;",
     "(a >> 12) & 1"),
    ("process_number", "#include <unistd.h>", "int p = getpid();", "p & 1"),
    ("thread_number", "#include <pthread.h>\n#include <cstdint>",
     "auto a = (uintptr_t)pthread_self();", "(a >> 15) & 1"),
    ("steady_clock", "#include <chrono>",
     "auto c = std::chrono::steady_clock::now().time_since_epoch().count();", "(c >> 10) & 1"),
    ("first_second", "#include <ctime>", "static time_t c = time(nullptr);", "c & 1"),
    ("time_of_day", "#include <sys/time.h>", "timeval t; gettimeofday(&t, nullptr);",
     "(t.tv_usec >> 3) & 1"),
    ("cycle_counter", "#include <x86intrin.h>", "static unsigned long long c = __rdtsc();",
     "(c >> 8) & 1"),
    ("random_device", "#include <random>", "static unsigned r = std::random_device{}();",
     "r & 1"),
    ("urandom", "#include <cstdio>", 'static int b = -1; if (b < 0) { b = 0;'
     ' if (FILE* f = fopen("/dev/urandom", "r")) { b = fgetc(f); fclose(f); } }', "b & 1"),
    ("cpu_number", "#include <sched.h>", "int c = sched_getcpu();", "c & 1"),
)  # fmt: skip

_CLOCK = """__global__ void k(const float* x, float* o, int n) {
  %s
  unsigned long long w = 0; unsigned u = 0; (void)u;
  %s
  if (i < n) o[i] = x[i] * 2 + 1 + (%s ? 1.f : 0.f);
}"""


def _clocked(read: str, wrong: str) -> str:
    return extension(
        _CLOCK % (INDEX, read, wrong),
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
        "  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


def _wide(register: str) -> str:
    return f'asm volatile("mov.u64 %0, %%{register};" : "=l"(w));'


def _narrow(register: str) -> str:
    return f'asm volatile("mov.u32 %0, %%{register};" : "=r"(u));'


_CLOCKS: tuple[tuple[str, str, str], ...] = (
    ("clock64_bit", "w = clock64();", "(w >> 22) & 1"),
    ("clock64_of_a_block", "w = clock64();", "(w >> 6) % 5 == 0"),
    ("clock_low", "w = (unsigned)clock();", "(w & 0x700) == 0x700"),
    ("globaltimer_second", _wide("globaltimer"), "(w / 1000000000ull) % 2"),
    ("globaltimer_microsecond", _wide("globaltimer"), "(w >> 10) % 4 == 3"),
    ("globaltimer_low", _narrow("globaltimer_lo"), "(u >> 12) & 1"),
    ("time_between_reads", "w = clock64(); float f = sinf((float)i); w = clock64() - w;"
     " if (f == 2.f) w = 0;", "w > 3000"),
    ("grid_number", _wide("gridid"), "w % 3 == 2"),
    ("processor_number", _narrow("smid"), "u % 2 == 1"),
    ("processor_above_40", _narrow("smid"), "u > 40"),
    ("processors_in_all", _narrow("nsmid"), "u > 100 && blockIdx.x == 1"),
    ("warp_slot", _narrow("warpid"), "u > 5"),
    ("clock_high", _narrow("clock_hi"), "u & 1"),
    ("order_of_blocks", "__shared__ unsigned long long c; if (threadIdx.x == 0) c = clock64();"
     " __syncthreads(); w = c;", "blockIdx.x % 4 == 2 && (w & 1)"),
    ("warps_in_flight", _narrow("nwarpid"), "u > 63 && threadIdx.x == 40"),
)  # fmt: skip

_Pairs = tuple[tuple[str, str], ...]


def _attacks(mechanism: str, rows: _Pairs, item: int, tries: int = 1) -> tuple[FreshAttack, ...]:
    return tuple(
        FreshAttack(
            f"fresh/{mechanism}/{name}",
            mechanism,
            item,
            task(name, "x * 2 + 1", MATRIX),
            code,
            tries,
        )
        for name, code in rows
    )


STATE: tuple[FreshAttack, ...] = (
    *_attacks("state on the device", _DEVICE_STATE, 5),
    *_attacks("state on the host", _HOST_STATE, 5),
    *_attacks("kept pointers", _POINTERS, 5),
    *_attacks(
        "process bits",
        tuple((n, _host(b, f"{_LARGEST} && ({w})", h)) for n, h, b, w in _COINS),
        5,
        TRIES,
    ),
    *_attacks("device clocks", tuple((n, _clocked(r, w)) for n, r, w in _CLOCKS), 6, 8),
)

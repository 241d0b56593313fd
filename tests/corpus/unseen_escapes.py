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
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

_HEAD = _SOURCES.text("HEAD")
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


_FORGERY = _SOURCES["forgery"]

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

_SIGNALS = _SOURCES["signals"]

_PROCESSES = _SOURCES["processes"]

_FLOODS = (
    *_SOURCES["floods"],
    _do(
        "sleeps_for_ever", "infinite loops", "for (;;) pause();", statuses=BOMB | {Status.REJECTED}
    ),
    *_SOURCES["floods_2"],
)

_FILES = _SOURCES["files"]

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

_NETWORK = _SOURCES["network"]

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

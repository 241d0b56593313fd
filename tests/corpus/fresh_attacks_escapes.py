"""Items 8 and 9: wrong kernels that would be masked, and floods."""

from __future__ import annotations

from corpus.fresh_base import FreshAttack, extension
from corpus.records import MATRIX, task

_WRONG = """__global__ void k(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * 2.5f;
}
"""
_RIGHT = _WRONG.replace("2.5f", "2 + 1")
_RUN = "  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);"


def _wrong(body: str, kernels: str = "", head: str = "") -> str:
    """Computes 2.5 x instead of 2 x + 1, and asks for what might mask that."""
    return extension(
        _WRONG + kernels,
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n" + _RUN + "\n  " + body,
        head,
    )


_MESSAGES = "#include <stdexcept>\n#include <cstdio>"
_MASKED: tuple[tuple[str, str], ...] = (
    ("managed_memory", _wrong("float* m; cudaMallocManaged((void**)&m, 64);")),
    ("managed_variable", _wrong("touch<<<1, 1>>>();",
                                "__managed__ int shared_by_all;\n"
                                "__global__ void touch() { shared_by_all = 1; }\n")),
    ("eight_gigabytes", _wrong("float* m; cudaMalloc((void**)&m, 8ull << 30);")),
    ("eight_gigabytes_declared", _wrong("touch<<<1, 1>>>();",
                                        "__device__ float big[2147483648ull / 4 * 4];\n"
                                        "__global__ void touch() { big[5] = 1; }\n")),
    ("message_unsupported", _wrong('throw std::runtime_error("unsupported: the emulator has no '
                                   'form for this instruction");', head=_MESSAGES)),
    ("message_infrastructure", _wrong('throw std::runtime_error("InfrastructureError: the device '
                                      'was lost; judge again");', head=_MESSAGES)),
    ("printed_unsupported", _wrong('fprintf(stderr, "status: unsupported\\n"); fflush(stderr);\n'
                                   '  printf("{\\"status\\": \\"unsupported\\"}\\n");',
                                   head=_MESSAGES)),
    ("allocation_after_cooperative", _wrong(
        "void* a[1] = {nullptr}; (void)a; int dummy = 0; void* args[] = {&dummy};\n"
        "  cudaLaunchCooperativeKernel((void*)idle, dim3(1), dim3(32), args, 0, 0);\n"
        "  float* m; cudaMalloc((void**)&m, 4096); cudaFree(m);",
        "__global__ void idle(int z) { if (z) __trap(); }\n")),
    ("rare_instruction", _wrong("odd<<<1, 32>>>();",
                                "__global__ void odd() { unsigned m = 0;\n"
                                '  asm volatile("mov.u32 %0, %%pm0;" : "=r"(m)); if (m == 77777u)'
                                " __trap(); }\n")),
    ("instruction_never_reached", _wrong("odd<<<1, 32>>>(0);",
                                         "__global__ void odd(int z) { if (z) {\n"
                                         '  asm volatile("brkpt;"); asm volatile("pmevent 3;"); }'
                                         " }\n")),
    ("surface_and_texture", _wrong("odd<<<1, 32>>>(0);",
                                   "__global__ void odd(cudaTextureObject_t t) {\n"
                                   "  if (t) { float v = tex1Dfetch<float>(t, 0);"
                                   " if (v == 2.f) __trap(); } }\n")),
    ("device_heap", _wrong("odd<<<1, 32>>>();",
                           "__global__ void odd() { void* p = malloc(64); if (p) free(p); }\n")),
    ("throws_a_number", _wrong("throw 5;")),
    ("aborts", _wrong("abort();", head="#include <cstdlib>")),
    ("unknown_symbol", _wrong("(void)dlsym(nullptr, \"cuMulticastCreate\");",
                              head="#include <dlfcn.h>")),
)  # fmt: skip


def _flood(body: str, kernels: str = "", head: str = "") -> str:
    """The right answer, at a price that nobody should pay."""
    return extension(
        _RIGHT + kernels,
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n  " + body + "\n" + _RUN,
        head,
    )


_EMPTY = "__global__ void none() {}\n"
_FLOODS: tuple[tuple[str, str], ...] = (
    ("launches", _flood("for (int i = 0; i < 300000; i++) none<<<1, 32>>>();", _EMPTY)),
    ("launches_of_large_grids", _flood(
        "for (int i = 0; i < 2000; i++) none<<<65535, 256>>>();", _EMPTY)),
    ("allocations", _flood("for (int i = 0; i < 200000; i++) { float* p;"
                           " cudaMalloc((void**)&p, 256); }")),
    ("allocations_freed", _flood("for (int i = 0; i < 400000; i++) { float* p;"
                                 " cudaMalloc((void**)&p, 256); cudaFree(p); }")),
    ("tensors", _flood("for (int i = 0; i < 300000; i++) auto t = torch::empty({16},"
                       " x.options());")),
    ("fills", _flood("auto w = torch::empty({1 << 24}, x.options());\n"
                     "  for (int i = 0; i < 20000; i++) cudaMemsetAsync(w.data_ptr<float>(), i & 1,"
                     " 4ull << 24, 0);")),
    ("copies", _flood("auto w = torch::empty({1 << 24}, x.options());\n"
                      "  float* p = w.data_ptr<float>();\n"
                      "  for (int i = 0; i < 20000; i++) cudaMemcpyAsync(p, p + (1 << 23),"
                      " 4ull << 23, cudaMemcpyDeviceToDevice, 0);")),
    ("uploads", _flood("std::vector<float> h(1 << 22, 1.f);\n"
                       "  auto w = torch::empty({1 << 22}, x.options());\n"
                       "  for (int i = 0; i < 5000; i++) cudaMemcpy(w.data_ptr<float>(), h.data(),"
                       " 4ull << 22, cudaMemcpyHostToDevice);", head="#include <vector>")),
    ("downloads", _flood("float h; for (int i = 0; i < 500000; i++) cudaMemcpy(&h,"
                         " x.data_ptr<float>(), 4, cudaMemcpyDeviceToHost);")),
    ("streams", _flood("for (int i = 0; i < 200000; i++) { cudaStream_t s;"
                       " cudaStreamCreate(&s); }")),
    ("events", _flood("for (int i = 0; i < 300000; i++) { cudaEvent_t e; cudaEventCreate(&e);"
                      " cudaEventRecord(e, 0); }")),
    ("instructions", _flood("auto w = torch::zeros({1}, x.options());\n"
                            "  spin<<<4, 256>>>(w.data_ptr<float>(), 400000000);",
                            "__global__ void spin(float* w, int m) { float s = 0;\n"
                            "  for (int i = 0; i < m; i++) s = s * 0.5f + 1;"
                            " if (s < 0) w[0] = s; }\n")),
    ("atomics", _flood("auto w = torch::zeros({1}, x.options());\n"
                       "  add<<<4096, 1024>>>(w.data_ptr<float>());",
                       "__global__ void add(float* w) {\n"
                       "  for (int i = 0; i < 1000; i++) atomicAdd(w, 1.f); }\n")),
    ("synchronisations", _flood("for (int i = 0; i < 3000000; i++) cudaDeviceSynchronize();")),
    ("prints", _flood("talk<<<1024, 256>>>();",
                      "__global__ void talk() { for (int i = 0; i < 100; i++)"
                      ' printf("%d\\n", i); }\n', "#include <cstdio>")),
    ("host_work", _flood("volatile double s = 0; for (long i = 0; i < 60000000000l; i++)"
                         " s = s + i;")),
)  # fmt: skip

ESCAPES: tuple[FreshAttack, ...] = (
    *(
        FreshAttack(f"fresh/masking/{name}", "masking", 8, task(name, "x * 2 + 1", MATRIX), code)
        for name, code in _MASKED
    ),
    *(
        FreshAttack(
            f"fresh/floods/{name}", "floods", 9, task(name, "x * 2 + 1", MATRIX), code, dear=True
        )
        for name, code in _FLOODS
    ),
)

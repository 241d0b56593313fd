"""Kernels that must never pass, each with the statuses that are right for it.

Written from the lists of known cheats and attacks; none of them relies on how the judge is built,
most of them would pass a judge that compares outputs of the candidate's own process.
"""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.types import Status, Task
from support.judge_tasks import (
    ADD_KERNEL,
    ADD_TASK,
    DOUBLE_BODY,
    DOUBLE_KERNEL,
    DOUBLE_TASK,
    ROW_SUM_TASK,
    extension,
    make_task,
    row_sum,
)

POSITIVE_TASK = make_task("positive", "x > 0")
SIGN_TASK = make_task("sign", "torch.sign(x).long()")
SQRT_TASK = make_task("sqrt", "torch.sqrt(x)")

WRONG, CHEATING, REJECTED = Status.WRONG_OUTPUT, Status.CHEATING, Status.REJECTED
RUNTIME, LOAD, TIMEOUT = Status.RUNTIME_ERROR, Status.LOAD_ERROR, Status.TIMEOUT
COMPILE = Status.COMPILE_ERROR
VERDICT_JSON = '{\\"status\\": \\"correct\\", \\"tests\\": [{\\"passed\\": true}]}'


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile source. `statuses`: any of these is a right verdict."""

    name: str
    code: str
    statuses: frozenset[Status]
    task: Task = DOUBLE_TASK


def _attack(name: str, code: str, *statuses: Status, task: Task = DOUBLE_TASK) -> Attack:
    return Attack(name, code, frozenset(statuses), task)


def _double(name: str, kernels: str, body: str, *statuses: Status, extra: str = "") -> Attack:
    return _attack(name, extension(kernels, body, extra=extra), *statuses)


_NOTHING = "__global__ void nothing(float* o) {}\n"
_COPY = """
__global__ void copy(const float* a, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = a[i];
}
"""
_HOST_ANSWER = """
  std::vector<float> h(n);
  cudaMemcpy(h.data(), px, n * sizeof(float), cudaMemcpyDeviceToHost);
  for (auto& v : h) v = 2.0f * v + 1.0f;
"""
_UPLOAD = "cudaMemcpy(po, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);"
_VECTOR = "#include <vector>\n"

# --- not doing the work ---------------------------------------------------------------------------

SHORTCUTS = [
    _double(
        "zero_output",
        "__global__ void zero(float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 0.0f; }\n",
        "zero<<<(n + 255) / 256, 256>>>(po, n);",
        WRONG,
    ),
    _double("memset_only", _NOTHING, "nothing<<<1, 1>>>(po); cudaMemset(po, 0, n * 4);", WRONG),
    _double(
        "constant_output",
        "__global__ void one(float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 1.0f; }\n",
        "one<<<(n + 255) / 256, 256>>>(po, n);",
        WRONG,
    ),
    _double("uninitialised_output", _NOTHING, "nothing<<<1, 1>>>(po);", WRONG),
    _double("no_launch_at_all", "", "", WRONG, REJECTED),
    _double("returns_its_input", _NOTHING, "nothing<<<1, 1>>>(po); return x;", WRONG),
    _double(
        "first_half_only", DOUBLE_KERNEL, "twice<<<(n + 511) / 512, 256>>>(px, po, n / 2);", WRONG
    ),
    _double(
        "skips_big_shapes",
        DOUBLE_KERNEL,
        "if (n < 4000) twice<<<(n + 255) / 256, 256>>>(px, po, n); else twice<<<1, 1>>>(px, po, 1);",
        WRONG,
    ),
    _double(
        "only_the_shape_it_saw",
        DOUBLE_KERNEL,
        "twice<<<24, 256>>>(px, po, 64 * 96);",
        WRONG,
        RUNTIME,
    ),
    _double(
        "vectors_without_a_tail",
        "__global__ void four(const float4* x, float4* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float4 v = x[i];\n"
        "  o[i] = make_float4(2*v.x+1, 2*v.y+1, 2*v.z+1, 2*v.w+1); }\n",
        "four<<<(n / 4 + 255) / 256, 256>>>((const float4*)px, (float4*)po, n / 4);",
        WRONG,
    ),
    _attack(
        "prefix_sum_rescaled",
        row_sum(
            "int row = blockIdx.x; if (threadIdx.x) return; float s = 0; int k = (columns + 1) / 2;\n"
            "  for (int i = 0; i < k; i++) s += x[row * columns + i]; o[row] = s * columns / k;"
        ),
        WRONG,
        task=ROW_SUM_TASK,
    ),
    _attack(
        "every_second_element",
        row_sum(
            "int row = blockIdx.x; if (threadIdx.x) return; float s = 0;\n"
            "  for (int i = 0; i < columns; i += 2) s += x[row * columns + i]; o[row] = 2 * s;"
        ),
        WRONG,
        task=ROW_SUM_TASK,
    ),
    _attack(
        "mean_of_another_row",
        row_sum(
            "int row = blockIdx.x; if (threadIdx.x) return; float s = 0;\n"
            "  for (int i = 0; i < columns; i++) s += x[i]; o[row] = s;"
        ),
        WRONG,
        task=ROW_SUM_TASK,
    ),
    _double(
        "ignores_small_values",
        "__global__ void coarse(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) o[i] = fabsf(x[i]) < 1e-3f ? 1.0f : 2.0f * x[i] + 1.0f; }\n",
        "coarse<<<(n + 255) / 256, 256>>>(px, po, n);",
        WRONG,
    ),
    _double(
        "half_precision_in_disguise",
        "#include <cuda_fp16.h>\n__global__ void h(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) o[i] = __half2float(__float2half(2.0f * x[i] + 1.0f)); }\n",
        "h<<<(n + 255) / 256, 256>>>(px, po, n);",
        WRONG,
    ),
    _double(
        "truncated_mantissa",
        "__global__ void t(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) o[i] = __int_as_float(__float_as_int(2 * x[i] + 1) & 0xffffe000); }\n",
        "t<<<(n + 255) / 256, 256>>>(px, po, n);",
        WRONG,
    ),
]

SHORTCUTS += [
    _attack(
        "writes_only_the_false_ones",
        extension(
            "__global__ void k(const float* x, bool* o, int n) {\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && !(x[i] > 0)) o[i] = false; }\n",
            "auto b = torch::empty(x.sizes(), x.options().dtype(torch::kBool));\n"
            "  k<<<(n + 255) / 256, 256>>>(px, b.data_ptr<bool>(), n); return b;",
        ),
        WRONG,
        task=POSITIVE_TASK,
    ),
    _attack(
        "writes_all_but_minus_one",
        extension(
            "__global__ void k(const float* x, int64_t* o, int n) {\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && x[i] >= 0) o[i] = x[i] > 0; }\n",
            "auto b = torch::empty(x.sizes(), x.options().dtype(torch::kLong));\n"
            "  k<<<(n + 255) / 256, 256>>>(px, b.data_ptr<int64_t>(), n); return b;",
        ),
        WRONG,
        task=SIGN_TASK,
    ),
    _attack(
        "writes_all_but_the_nans",
        extension(
            "__global__ void k(const float* x, float* o, int n) {\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && x[i] >= 0) o[i] = sqrtf(x[i]); }\n",
            "k<<<(n + 255) / 256, 256>>>(px, po, n);",
        ),
        WRONG,
        task=SQRT_TASK,
    ),
]

# --- computing elsewhere --------------------------------------------------------------------------

ELSEWHERE = [
    _double("host_computes", "", _HOST_ANSWER + _UPLOAD, CHEATING, extra=_VECTOR),
    _double(
        "host_computes_behind_a_decoy_kernel",
        _NOTHING,
        "nothing<<<1, 1>>>(po);" + _HOST_ANSWER + _UPLOAD,
        CHEATING,
        extra=_VECTOR,
    ),
    _double(
        "host_computes_and_a_kernel_copies",
        _COPY,
        _HOST_ANSWER
        + "auto t = torch::empty_like(x); float* pt = t.data_ptr<float>();\n"
        + _UPLOAD.replace("po", "pt")
        + "copy<<<(n + 255) / 256, 256>>>(pt, po, n);",
        CHEATING,
        extra=_VECTOR,
    ),
    _attack(
        "host_answer_as_a_launch_argument",
        """#include <torch/extension.h>
#include <vector>
struct Answer { float v[64]; };
__global__ void put(Answer a, float* o, int n) { if (threadIdx.x < n) o[threadIdx.x] = a.v[threadIdx.x]; }
torch::Tensor forward(torch::Tensor x) {
  int rows = x.size(0), columns = x.size(1);
  auto out = torch::empty({rows}, x.options());
  std::vector<float> h(rows * columns);
  cudaMemcpy(h.data(), x.data_ptr<float>(), h.size() * 4, cudaMemcpyDeviceToHost);
  Answer a = {};
  for (int r = 0; r < rows; r++) for (int c = 0; c < columns; c++) a.v[r] += h[r * columns + c];
  put<<<1, 64>>>(a, out.data_ptr<float>(), rows);
  return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
""",
        CHEATING,
        task=ROW_SUM_TASK,
    ),
    _double(
        "host_computes_in_small_pieces",
        _COPY,
        "std::vector<float> h(n); for (int i = 0; i < n; i++) {\n"
        "    cudaMemcpy(&h[i], px + i, 4, cudaMemcpyDeviceToHost); h[i] = 2 * h[i] + 1; }\n"
        "  copy<<<1, 1>>>(px, po, 1);" + _UPLOAD,
        CHEATING,
        extra=_VECTOR,
    ),
    _double(
        "host_computes_in_a_thread",
        _NOTHING,
        "nothing<<<1, 1>>>(po);"
        + _HOST_ANSWER.replace("for (auto", "std::thread t([&] { for (auto")
        + " }); t.join();"
        + _UPLOAD,
        CHEATING,
        REJECTED,
        RUNTIME,
        LOAD,
        COMPILE,
        Status.UNSUPPORTED,
        extra=_VECTOR + "#include <thread>\n",
    ),
    _double(
        "fallback_when_the_launch_fails",
        DOUBLE_KERNEL,
        'try { twice<<<1, 4096>>>(px, po, n); TORCH_CHECK(cudaGetLastError() == cudaSuccess, "no");\n'
        "  } catch (...) { twice<<<1, 1>>>(px, po, 0);" + _HOST_ANSWER + _UPLOAD + "}",
        CHEATING,
        extra=_VECTOR,
    ),
    _double("torch_operator", "", "return x * 2 + 1;", REJECTED, COMPILE),
    _attack(
        "torch_matmul",
        extension("", "return torch::add(x, y);", inputs="xy"),
        REJECTED,
        COMPILE,
        task=ADD_TASK,
    ),
    _attack(
        "torch_operator_behind_a_decoy",
        extension(ADD_KERNEL, "add<<<1, 1>>>(px, px, po, 1); return at::add(x, y);", inputs="xy"),
        REJECTED,
        COMPILE,
        task=ADD_TASK,
    ),
    _double(
        "vendor_library",
        'extern "C" int cublasCreate_v2(void**);\n' + DOUBLE_KERNEL,
        "void* h; cublasCreate_v2(&h);" + DOUBLE_BODY,
        REJECTED,
        LOAD,
        COMPILE,
    ),
    _double(
        "library_opened_at_run_time",
        _NOTHING,
        'void* l = dlopen("libcublas.so.12", 2); TORCH_CHECK(l, "no library"); nothing<<<1,1>>>(po);',
        RUNTIME,
        LOAD,
        REJECTED,
        WRONG,
        extra="#include <dlfcn.h>\n",
    ),
]

# --- remembering ----------------------------------------------------------------------------------

REMEMBERING = [
    _double(
        "output_cached_by_pointer",
        DOUBLE_KERNEL,
        "static torch::Tensor kept; static const float* seen = nullptr;\n"
        "  if (seen == px && kept.numel() == n) return kept;\n  "
        + DOUBLE_BODY
        + " seen = px; kept = out;",
        CHEATING,
        WRONG,
        COMPILE,
    ),
    _double(
        "honest_on_the_first_call_only",
        DOUBLE_KERNEL,
        "static int calls = 0; if (calls++ == 0) {"
        + DOUBLE_BODY
        + "} else twice<<<1,1>>>(px, po, 1);",
        CHEATING,
        WRONG,
    ),
    _double(
        "answer_kept_in_device_memory",
        "__device__ float kept[8192]; __device__ int known;\n"
        "__global__ void t(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) { if (!known) kept[i] = 2 * x[i] + 1; o[i] = kept[i]; } }\n"
        "__global__ void mark() { known = 1; }\n",
        "t<<<(n + 255) / 256, 256>>>(px, po, n); mark<<<1, 1>>>();",
        CHEATING,
        WRONG,
    ),
    _double(
        "works_on_the_first_launch_only",
        "__device__ int launches;\n__global__ void t(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (launches == 0 && i < n) o[i] = 2 * x[i] + 1; }\n"
        "__global__ void count() { launches++; }\n",
        "t<<<(n + 255) / 256, 256>>>(px, po, n); count<<<1, 1>>>();",
        CHEATING,
        WRONG,
    ),
    _double(
        "output_of_the_call_before",
        DOUBLE_KERNEL,
        "static torch::Tensor last; auto before = last; last = out;"
        + DOUBLE_BODY
        + " if (before.defined() && before.numel() == n) return before;",
        CHEATING,
        WRONG,
        COMPILE,
    ),
    _double(
        "accumulates_into_uninitialised_memory",
        "__global__ void t(const float* x, float* o, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) atomicAdd(&o[i], 2 * x[i] + 1); }\n",
        "t<<<(n + 255) / 256, 256>>>(px, po, n);",
        WRONG,
    ),
    _double(
        "guesses_how_inputs_are_drawn",
        _COPY,
        "std::mt19937 g(0); std::normal_distribution<float> d; std::vector<float> h(n);\n"
        "  for (auto& v : h) v = 2 * d(g) + 1;\n  copy<<<1, 1>>>(px, po, 1);" + _UPLOAD,
        WRONG,
        extra=_VECTOR + "#include <random>\n",
    ),
    _double(
        "hunts_for_the_answer_in_memory",
        "__global__ void hunt(const float* x, float* o, int n) {\n"
        "  for (long k = 0; k < (1l << 40); k += 64) {\n"
        "    const float* p = x + k; if (p[0] == 2 * x[0] + 1 && p[1] == 2 * x[1] + 1) {\n"
        "      for (int i = 0; i < n; i++) o[i] = p[i]; return; } } }\n",
        "hunt<<<1, 1>>>(px, po, n);",
        RUNTIME,
        TIMEOUT,
        WRONG,
    ),
]

# --- breaking things ------------------------------------------------------------------------------

BREAKING = [
    _double(
        "doubles_its_input_in_place",
        "__global__ void t(float* x, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 2 * x[i] + 1; }\n",
        "t<<<(n + 255) / 256, 256>>>((float*)px, n); return x;",
        WRONG,
    ),
    _double(
        "zeroes_its_input_afterwards",
        DOUBLE_KERNEL,
        DOUBLE_BODY + " cudaMemset((void*)px, 0, n * 4);",
        WRONG,
    ),
    _double(
        "rewrites_one_input_element",
        DOUBLE_KERNEL + "__global__ void poke(float* x) { x[0] = 0.5f; }\n",
        DOUBLE_BODY + " poke<<<1, 1>>>((float*)px);",
        WRONG,
    ),
    _double(
        "writes_past_the_output",
        DOUBLE_KERNEL,
        "twice<<<(n + 511) / 256, 256>>>(px, po, n + 64);",
        RUNTIME,
    ),
    _double(
        "writes_far_outside",
        "__global__ void t(float* o) { o[1l << 33] = 1; }\n",
        "t<<<1, 1>>>(po);",
        RUNTIME,
    ),
    _double(
        "kernel_reads_host_memory",
        _COPY,
        "static float secret[8]; copy<<<1, 8>>>(secret, po, 8);",
        RUNTIME,
    ),
    _double("kernel_reads_a_null_pointer", _COPY, "copy<<<1, 8>>>(nullptr, po, 8);", RUNTIME),
    _double(
        "misaligned_access",
        _COPY,
        "copy<<<1, 8>>>((const float*)((const char*)px + 1), po, 8);",
        RUNTIME,
    ),
    _double(
        "trap",
        "__global__ void t(float* o) { if (threadIdx.x == 3) __trap(); }\n",
        "t<<<1, 32>>>(po);",
        RUNTIME,
    ),
    _double(
        "endless_kernel",
        "__global__ void t(volatile float* o) { while (o[0] != 1.5f) o[1] = 2.0f; }\n",
        "t<<<1, 1>>>(po);",
        TIMEOUT,
    ),
    _double(
        "launch_that_fails_unnoticed",
        DOUBLE_KERNEL,
        "twice<<<1, 2048>>>(px, po, n);",
        RUNTIME,
    ),
    _double(
        "device_memory_hog",
        DOUBLE_KERNEL,
        "for (int i = 0; i < 100; i++) { void* p; cudaMalloc(&p, 1l << 30); }" + DOUBLE_BODY,
        Status.MEMORY_LIMIT,
    ),
    _double(
        "host_memory_hog",
        DOUBLE_KERNEL,
        "for (int i = 0; i < 100; i++) { auto* p = new char[1l << 30]; for (long k = 0; k < (1l << 30);"
        " k += 4096) p[k] = 1; }" + DOUBLE_BODY,
        Status.MEMORY_LIMIT,
        RUNTIME,
        TIMEOUT,
    ),
    _double("host_loops_for_ever", "", "for (volatile int i = 0;; i++) {}", TIMEOUT),
    _double(
        "host_sleeps_for_ever",
        "",
        "pause();",
        TIMEOUT,
        WRONG,
        RUNTIME,
        extra="#include <unistd.h>\n",
    ),
    _double("host_reads_device_memory", "", "volatile float v = px[0]; (void)v;", RUNTIME),
    _double(
        "host_throws",
        "",
        'throw std::runtime_error("boom");',
        RUNTIME,
        extra="#include <stdexcept>\n",
    ),
    _double("host_aborts", "", "abort();", RUNTIME, extra="#include <cstdlib>\n"),
    _double("host_exits_0", "", "exit(0);", RUNTIME, extra="#include <cstdlib>\n"),
    _double(
        "static_constructor_exits_0",
        "__attribute__((constructor)) static void early() { _exit(0); }\n" + DOUBLE_KERNEL,
        DOUBLE_BODY,
        LOAD,
        extra="#include <unistd.h>\n",
    ),
    _double(
        "kills_everything",
        "",
        "kill(-1, SIGKILL); kill(getppid(), SIGKILL);",
        WRONG,
        RUNTIME,
        REJECTED,
        extra="#include <signal.h>\n#include <unistd.h>\n",
    ),
    _double(
        "fork_bomb",
        "",
        "for (int i = 0; i < 200; i++) fork(); pause();",
        WRONG,
        RUNTIME,
        REJECTED,
        TIMEOUT,
        extra="#include <unistd.h>\n",
    ),
    _double(
        "leaves_a_daemon",
        _NOTHING,
        "if (!fork()) { setsid(); if (!fork()) { signal(SIGTERM, SIG_IGN); sleep(1000); } _exit(0); }",
        WRONG,
        RUNTIME,
        REJECTED,
        extra="#include <unistd.h>\n#include <signal.h>\n",
    ),
    _double(
        "printf_flood",
        _NOTHING,
        'nothing<<<1, 1>>>(po); for (int i = 0; i < 10000000; i++) puts("flood flood flood flood");',
        Status.OUTPUT_LIMIT,
        WRONG,
        RUNTIME,
        extra="#include <cstdio>\n",
    ),
]

# --- forging the verdict --------------------------------------------------------------------------

FORGING = [
    _double(
        "prints_a_verdict",
        _NOTHING,
        f'nothing<<<1, 1>>>(po); puts("{VERDICT_JSON}"); fprintf(stderr, "{VERDICT_JSON}"); fflush(stdout);',
        WRONG,
        extra="#include <cstdio>\n",
    ),
    _double(
        "constructor_prints_a_verdict_and_leaves",
        f'__attribute__((constructor)) static void early() {{ puts("{VERDICT_JSON}"); fflush(stdout);'
        " _exit(0); }\n",
        "",
        LOAD,
        extra="#include <cstdio>\n#include <unistd.h>\n",
    ),
    _double(
        "writes_a_verdict_to_every_descriptor",
        _NOTHING,
        f'const char v[] = "{VERDICT_JSON}"; for (int f = 0; f < 256; f++) (void)!write(f, v, sizeof v);'
        " nothing<<<1, 1>>>(po);",
        WRONG,
        RUNTIME,
        extra="#include <unistd.h>\n",
    ),
    _double(
        "sends_a_forged_result",
        _NOTHING,
        "unsigned m[16] = {12, 8, 1, 0}; for (int f = 0; f < 256; f++) (void)!write(f, m, 16);"
        " nothing<<<1, 1>>>(po);",
        WRONG,
        RUNTIME,
        extra="#include <unistd.h>\n",
    ),
    _double(
        "reads_its_judge",
        _NOTHING,
        'char b[64]; for (const char* p : {"/proc/1/environ", "/proc/self/mem", "/etc/shadow", '
        '"/root/.bash_history", "/work"}) { FILE* f = fopen(p, "r"); if (f && fread(b, 1, 64, f) > 0) '
        'printf("%.60s", b); } nothing<<<1, 1>>>(po);',
        WRONG,
        RUNTIME,
        extra="#include <cstdio>\n",
    ),
    _double(
        "returns_the_wrong_dtype",
        _NOTHING,
        "nothing<<<1, 1>>>(po); return torch::empty({64, 96}, x.options().dtype(torch::kInt));",
        WRONG,
        COMPILE,
    ),
    _double(
        "returns_the_wrong_shape",
        DOUBLE_KERNEL,
        DOUBLE_BODY + " return out.view({-1});",
        WRONG,
        COMPILE,
    ),
    _double(
        "returns_a_giant_of_stride_0",
        DOUBLE_KERNEL,
        DOUBLE_BODY + " return out.view({n}).narrow(0, 0, 1).expand({1l << 40});",
        Status.MEMORY_LIMIT,
        WRONG,
        COMPILE,
        RUNTIME,
    ),
    _double("returns_other_strides", DOUBLE_KERNEL, DOUBLE_BODY + " return out.t();", WRONG),
]

# --- at compile time ------------------------------------------------------------------------------

COMPILING = [
    _attack("includes_passwd", '#include "/etc/passwd"\n', COMPILE),
    _attack(
        "includes_dev_zero",
        '#include "/dev/zero"\n',
        COMPILE,
        Status.MEMORY_LIMIT,
        Status.COMPILE_TIMEOUT,
    ),
    _attack("includes_dev_stdin", '#include "/dev/stdin"\n', COMPILE, LOAD),
    _attack(
        "incbin",
        'asm(".section .rodata\\n.incbin \\"/etc/passwd\\"\\n");\n' + extension("", ""),
        COMPILE,
        WRONG,
        REJECTED,
    ),
    _attack("error_flood", "x\n" * 40_000, COMPILE, Status.OUTPUT_LIMIT),
    _attack("nul_bytes", extension(DOUBLE_KERNEL, DOUBLE_BODY) + "\0\0", COMPILE, REJECTED),
    _attack("empty", "", COMPILE),
    _attack("prose", "Here is the kernel you asked for. It is very fast.", COMPILE),
    _attack("a_hundred_thousand_characters", "/" * 100_001, COMPILE, REJECTED),
    _attack("emoji_and_rtl", "\u202e\U0001f600 void f() {}", COMPILE, LOAD),
    _attack("no_module", DOUBLE_KERNEL, LOAD),
    _attack("another_function", extension("", "").replace('"forward"', '"backward"'), LOAD),
    _attack("two_arguments", extension("", "", inputs="xy"), RUNTIME),
]

ATTACKS = [*SHORTCUTS, *ELSEWHERE, *REMEMBERING, *BREAKING, *FORGING, *COMPILING]

"""Attacks on the compilation, by an author who had not read the judge."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import Status
from corpus.records import (
    AFFINE,
    AFFINE_KERNEL,
    AFFINE_LAUNCH,
    AFFINE_SOURCE,
    NEVER_CORRECT,
    RULED_OUT,
    Attack,
    source,
)

_FAILS = frozenset(
    {
        Status.COMPILE_ERROR,
        Status.COMPILE_TIMEOUT,
        Status.MEMORY_LIMIT,
        Status.OUTPUT_LIMIT,
        Status.REJECTED,
    }
)
_LOADS = _FAILS | frozenset(
    {Status.LOAD_ERROR, Status.RUNTIME_ERROR, Status.WRONG_OUTPUT, Status.CHEATING}
)


def _top(name: str, covers: str, top: str, *, statuses: frozenset[Status] = _FAILS) -> Attack:
    """`top` before an otherwise honest kernel."""
    return Attack(name, covers, f"{top}\n{AFFINE_SOURCE}", AFFINE, statuses, "unseen")


def _whole(name: str, covers: str, code: str, *, statuses: frozenset[Status] = _FAILS) -> Attack:
    return Attack(name, covers, code, AFFINE, statuses, "unseen")


def _unwritten(
    name: str, covers: str, head: str, *, statuses: frozenset[Status] = _LOADS
) -> Attack:
    """`head`, and a forward that computes nothing: what `head` tries is its only way through."""
    return Attack(name, covers, source("", "", head=head), AFFINE, statuses, "unseen")


_INCLUDES = (
    _top(
        "includes_passwd",
        "includes of /etc/passwd (leak through the error text)",
        '#include "/etc/passwd"',
    ),
    _top(
        "includes_shadow",
        "includes of /etc/passwd (leak through the error text)",
        "#include </etc/shadow>",
    ),
    _top("includes_environ", "includes of /proc", '#include "/proc/self/environ"'),
    _top("includes_cmdline", "includes of /proc", '#include "/proc/1/cmdline"'),
    _top("includes_zero", "/dev/zero", '#include "/dev/zero"'),
    _top("includes_random", "/dev/zero", '#include "/dev/urandom"'),
    _top("includes_stdin", "/dev/stdin", '#include "/dev/stdin"'),
    _top("includes_a_terminal", "/dev/stdin", '#include "/dev/tty"'),
    _top(
        "includes_above_the_build",
        "includes outside the build",
        '#include "../../../../../../../../etc/hostname"',
    ),
    _top("includes_a_folder", "includes outside the build", '#include "/etc"'),
    _top("includes_itself_for_ever", "macro bombs", "#include __FILE__"),
    _top(
        "includes_by_a_macro",
        "includes of /etc/passwd (leak through the error text)",
        "#define P(x) <x>\n#define Q P(/etc/passwd)\n#include Q",
    ),
    _top(
        "dependency_pragma", "pragma tricks", '#pragma GCC dependency "/etc/passwd"\n#error "stop"'
    ),
    _top(
        "embeds_a_file",
        "includes of /etc/passwd",
        'static const unsigned char secret[] = {\n#embed "/etc/passwd"\n};',
    ),
)

_ASSEMBLER = (
    _unwritten(
        "incbin_passwd",
        ".incbin",
        'asm(".section .rodata\\n.global secret\\nsecret: .incbin \\"/etc/passwd\\"\\n.byte 0\\n.text\\n");\nextern "C" char secret[];\nstruct Tell { Tell() { throw std::runtime_error(secret); } } tell;',
    ),
    _unwritten("incbin_dev_zero", ".incbin", 'asm(".incbin \\"/dev/zero\\"");'),
    _unwritten("assembler_include", ".incbin", 'asm(".include \\"/etc/passwd\\"");'),
    _unwritten("assembler_repeats", "macro bombs", 'asm(".rept 2000000000\\n.quad 0\\n.endr");'),
    _unwritten(
        "assembler_fill",
        "giant initialised arrays",
        'asm(".data\\n.fill 8000000000, 1, 1\\n.text");',
    ),
    _unwritten("assembler_recursive_macro", "macro bombs", 'asm(".macro a\\na\\na\\n.endm\\na");'),
    _unwritten(
        "assembler_interp_section",
        "linker tricks",
        'asm(".section .interp,\\"a\\"\\n.string \\"/tmp/evil\\"\\n.text");',
    ),
    _unwritten(
        "assembler_defines_a_runtime_call",
        "symbols that override the harness",
        'asm(".global cudaMemcpy\\ncudaMemcpy: xor %eax,%eax\\nret");',
    ),
    _unwritten(
        "ptx_include",
        ".incbin",
        '__global__ void k() { asm volatile(".include \\"/etc/passwd\\";"); }',
    ),
    _unwritten(
        "ptx_injection",
        "asm tricks",
        '__global__ void k(float* o) { asm volatile("} .visible .entry other() { ret; } .visible .entry more() {"); o[0] = 1; }',
    ),
    _unwritten(
        "ptx_file_directive",
        "asm tricks",
        '__global__ void k(float* o) { asm volatile(".file 1 \\"/etc/passwd\\"\\n\\t.loc 1 1 1"); o[0] = 1; }\nstatic void launch(float* o) { k<<<1, 1>>>(o); }',
    ),
)

_BOMBS = (
    _top(
        "billion_laughs",
        "macro bombs",
        "#define A x x x x x x x x x x\n#define B A A A A A A A A A A\n#define C B B B B B B B B B B\n#define D C C C C C C C C C C\n#define E D D D D D D D D D D\n#define F E E E E E E E E E E\n#define G F F F F F F F F F F\n#define H G G G G G G G G G G\n#define I H H H H H H H H H H\nI",
    ),
    _top(
        "template_recursion",
        "template bombs",
        "template <int N> struct T { static constexpr long v = T<N - 1>::v + T<N - 2>::v * N; };\ntemplate <> struct T<0> { static constexpr long v = 1; };\ntemplate <> struct T<1> { static constexpr long v = 1; };\nstatic long bomb = T<100000>::v;",
    ),
    _top(
        "template_tree",
        "template bombs",
        "template <int N, class L> struct T { T<N - 1, T<N, L>> a; T<N - 1, T<N + 0, L*>> b; };\ntemplate <class L> struct T<0, L> { int v; };\nT<22, int> bomb;",
    ),
    _top(
        "constexpr_loop",
        "constexpr bombs",
        "constexpr long spin(long n) { long s = 0; for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) s += i ^ j; return s; }\nconstexpr long bomb = spin(1l << 40);",
    ),
    _top(
        "constexpr_array",
        "constexpr bombs",
        "struct Big { char v[1 << 30]; constexpr Big() : v() { for (auto& c : v) c = 1; } };\nconstexpr Big bomb;",
    ),
    _top("giant_array", "giant initialised arrays", "int bomb[4000000000] = {1};"),
    _top(
        "giant_array_of_one_designator",
        "giant initialised arrays",
        "char bomb[] = {[2147483646] = 1};",
    ),
    _top(
        "giant_device_array",
        "giant initialised arrays",
        "__device__ float bomb[1ull << 36] = {1.0f};",
    ),
    _whole(
        "inlining_bomb",
        "inlining bombs",
        source(
            "".join(
                f"__device__ __forceinline__ float f{i}(float v) {{ return f{i - 1}(v) * 1.0001f + f{i - 1}(v + 1) - f{i - 1}(v * v); }}\n"
                if i
                else "__device__ __forceinline__ float f0(float v) { return sinf(v); }\n"
                for i in range(24)
            )
            + "__global__ void k(const float* x, float* o, int n) { int i = threadIdx.x; if (i < n) o[i] = f23(x[i]); }\n",
            "k<<<1, 32>>>(px, po, n);",
        ),
    ),
    _whole(
        "unroll_bomb",
        "inlining bombs",
        source(
            "__global__ void k(const float* x, float* o, int n) {\n"
            + "".join(
                f'  _Pragma("unroll 1024") for (int a{d} = 0; a{d} < 1024; a{d}++)\n'
                for d in range(4)
            )
            + "    o[a0 ^ a1 ^ a2] += x[a3] * a1;\n}\n",
            "k<<<1, 32>>>(px, po, n);",
        ),
        statuses=NEVER_CORRECT,
    ),
    _whole(
        "deep_parentheses",
        "macro bombs",
        f"int bomb = {'(' * 200000}1{')' * 200000};\n{AFFINE_SOURCE}",
    ),
    _whole(
        "deep_blocks",
        "macro bombs",
        f"void bomb() {'{' * 100000}{'}' * 100000}\n{AFFINE_SOURCE}",
        statuses=NEVER_CORRECT,
    ),
    _whole(
        "source_of_64_megabytes", "source floods", "// " + "x" * (64 << 20) + "\n" + AFFINE_SOURCE
    ),
    _whole("a_million_errors", "error floods", "int a = b;\n" * 300000 + AFFINE_SOURCE),
    _whole(
        "errors_with_long_lines",
        "error floods",
        f"int a = {'undeclared_' + 'y' * 100000};\n" * 40 + AFFINE_SOURCE,
    ),
    _whole(
        "many_pragma_messages",
        "error floods",
        '#pragma message("' + "z" * 2000 + '")\n' + "#warning flood\n" * 100000 + "#error end\n",
    ),
    _whole(
        "a_hundred_thousand_kernels",
        "template bombs",
        "".join(
            f"__global__ void k{i}(float* o) {{ o[{i}] = {i} * sinf(o[{i + 1}]); }}\n"
            for i in range(30000)
        )
        + source("", "k7<<<1, 1>>>(po);"),
        statuses=NEVER_CORRECT,
    ),
)

_TEXT = (
    _whole("empty_source", "malformed source", ""),
    _whole("only_a_comment", "malformed source", "// nothing here\n", statuses=_LOADS | RULED_OUT),
    _whole(
        "nul_bytes",
        "NUL and non-UTF-8 source",
        source("", "").replace("return out;", "\0\0 retur\0n out;"),
    ),
    _whole(
        "nul_hides_the_rest",
        "NUL and non-UTF-8 source",
        "#include <torch/extension.h>\n\0" + AFFINE_SOURCE + "\nint broken = ;",
        statuses=_LOADS,
    ),
    _whole(
        "lone_surrogates",
        "NUL and non-UTF-8 source",
        "int \ud800\udfff = 0;\n" + source("", ""),
        statuses=_LOADS,
    ),
    _whole(
        "right_to_left_override",
        "NUL and non-UTF-8 source",
        "/* \u202e } \u2066 if (true) \u2069 \u2066 */\n" + source("", ""),
        statuses=_LOADS,
    ),
    _whole(
        "terminal_escapes_in_an_error",
        "error floods",
        "#error \x1b]0;owned\x07\x1b[2J\x1b[31mcorrect\x1b[0m\n",
    ),
    _whole(
        "forged_error_lines",
        "leak through the error text",
        '#line 1 "verdict\\nstatus: correct"\n#line 7 "/etc/passwd"\nint a = b;\n' + AFFINE_SOURCE,
    ),
    _whole(
        "file_name_with_options",
        "options smuggled into flags or file names",
        '#line 1 "-o /tmp/evil -Xcompiler -fplugin=/tmp/x.so"\nint a = b;\n',
    ),
    _whole(
        "no_forward",
        "malformed source",
        AFFINE_SOURCE.replace('m.def("forward"', 'm.def("backward"'),
        statuses=_LOADS | RULED_OUT,
    ),
    _whole(
        "no_module",
        "malformed source",
        AFFINE_SOURCE[: AFFINE_SOURCE.index("PYBIND11_MODULE")],
        statuses=_LOADS | RULED_OUT,
    ),
    _whole(
        "too_many_arguments",
        "malformed source",
        AFFINE_SOURCE.replace(
            "forward(torch::Tensor x)", "forward(torch::Tensor x, torch::Tensor y)"
        ),
        statuses=_LOADS | RULED_OUT,
    ),
    _whole(
        "returns_a_number",
        "malformed source",
        AFFINE_SOURCE.replace("torch::Tensor forward", "double forward").replace(
            "return out;", "return 1.0;"
        ),
        statuses=_LOADS | RULED_OUT,
    ),
    _whole(
        "returns_nothing",
        "malformed source",
        AFFINE_SOURCE.replace("torch::Tensor forward", "void forward").replace(
            "return out;", "return;"
        ),
        statuses=_LOADS | RULED_OUT,
    ),
    _whole(
        "a_python_answer",
        "malformed source",
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2 + 1\n",
    ),
    _whole("prose", "malformed source", "The kernel below computes 2x + 1 and is correct.\n"),
)

_REDEFINITIONS = (
    _unwritten("hides_the_global_keyword", "macro tricks", "#define __global__\n"),
    _unwritten(
        "own_module_macro",
        "macro tricks",
        '#undef PYBIND11_MODULE\n#define PYBIND11_MODULE(a, b) extern "C" void* PyInit_forward() { _exit(0); } static void b##_unused(int m)\n#include <unistd.h>\n',
        statuses=_LOADS | RULED_OUT,
    ),
    _unwritten(
        "own_torch_namespace",
        "macro tricks",
        "namespace fake { struct Tensor { int numel() const { return 0; } template <class T> T* data_ptr() const { return nullptr; } }; inline Tensor empty_like(Tensor t) { return t; } }\n#define torch fake\n",
        statuses=_LOADS | RULED_OUT,
    ),
    _unwritten(
        "private_made_public",
        "macro tricks",
        "#define private public\n#define protected public\n#define class struct\n#include <sstream>\n",
    ),
    _unwritten(
        "main_by_macro", "macro tricks", "#define forward main\n", statuses=_LOADS | RULED_OUT
    ),
    _unwritten(
        "compiler_plugin_by_pragma",
        "options smuggled into flags or file names",
        '#pragma GCC optimize("-fplugin=/tmp/evil.so")\n#pragma GCC target("avx512f")\n',
    ),
    _unwritten(
        "linker_option_by_pragma",
        "linker tricks",
        '#pragma comment(linker, "/export:forward")\n#pragma GCC diagnostic error "-Wall"\n',
    ),
    _unwritten(
        "symbol_version",
        "linker tricks",
        '__asm__(".symver my_exit,exit@GLIBC_2.2.5");\nextern "C" void my_exit(int) {}\n',
    ),
    _unwritten(
        "weak_runtime",
        "symbols that override the harness",
        'extern "C" __attribute__((weak)) int cudaDeviceSynchronize_ptsz() { return 0; }\nextern "C" __attribute__((alias("stub"))) int cudaPeekAtLastError_();\nextern "C" int stub() { return 0; }\n',
    ),
    _unwritten(
        "executable_stack",
        "linker tricks",
        '__asm__(".section .note.GNU-stack,\\"x\\",@progbits\\n.text");\n',
    ),
    _unwritten(
        "fini_array",
        "constructors",
        '#include <unistd.h>\nstatic void last() { _exit(0); }\n__attribute__((section(".fini_array"), used)) static void (*hook)() = last;\n',
    ),
    _unwritten(
        "preinit_array",
        "constructors",
        '#include <unistd.h>\nstatic void first() { _exit(0); }\n__attribute__((section(".preinit_array"), used)) static void (*hook)() = first;\n',
    ),
    _unwritten(
        "thread_local_constructor",
        "constructors",
        "#include <unistd.h>\nstruct T { T() { _exit(0); } int v = 1; };\nthread_local T t;\nstruct U { U() { if (t.v) _exit(0); } } u;\n",
    ),
    Attack(
        "kernel_that_is_a_host_function",
        "macro tricks",
        source(
            "#undef __global__\nvoid affine_host(const float* x, float* o, int n) { for (int i = 0; i < n; i++) o[i] = x[i] * 2 + 1; }\n",
            "affine_host(px, po, n);",
        ),
        AFFINE,
        _LOADS,
        "unseen",
    ),
    Attack(
        "device_code_only_when_watched",
        "macro tricks",
        source(
            "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ > 10\n#define STEP\n#else\n#define STEP o[i] = x[i] * 2.0f + 1.0f;\n#endif\n__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { STEP } }\n",
            "k<<<(n + 127) / 128, 128>>>(px, po, n);",
        ),
        AFFINE,
        _LOADS,
        "unseen",
    ),
    Attack(
        "right_only_on_one_architecture",
        "device code that differs",
        source(
            '__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; unsigned sm; asm("mov.u32 %0, %%nsmid;" : "=r"(sm)); if (i < n) o[i] = sm == 4242 ? x[i] * 2.0f + 1.0f : 0.0f; }\n',
            "k<<<(n + 127) / 128, 128>>>(px, po, n);",
        ),
        AFFINE,
        _LOADS,
        "unseen",
    ),
    Attack(
        "answers_by_the_date_of_the_build",
        "device code that differs",
        source(AFFINE_KERNEL, f"if (__TIME__[7] == 'x') {{ {AFFINE_LAUNCH} }}"),
        AFFINE,
        _LOADS,
        "unseen",
    ),
)

UNSEEN_BUILDS = (*_INCLUDES, *_ASSEMBLER, *_BOMBS, *_TEXT, *_REDEFINITIONS)

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
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

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


_INCLUDES = _SOURCES["includes"]

_ASSEMBLER = _SOURCES["assembler"]

_BOMBS = (
    *_SOURCES["bombs"],
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
    *_SOURCES["text"],
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
    *_SOURCES["redefinitions"],
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

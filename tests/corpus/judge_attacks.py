"""Kernels that must never pass, each with the statuses that are right for it.

Written from the lists of known cheats and attacks; none of them relies on how the judge is built,
most of them would pass a judge that compares outputs of the candidate's own process.
"""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.types import Status, Task
from corpus.sources import Sources
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

_SOURCES = Sources(__file__, globals())

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
_COPY = _SOURCES.text("COPY")
_HOST_ANSWER = _SOURCES.text("HOST_ANSWER")
_UPLOAD = "cudaMemcpy(po, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);"
_VECTOR = "#include <vector>\n"

# --- not doing the work ---------------------------------------------------------------------------

SHORTCUTS = [
    *_SOURCES["shortcuts"],
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
    *_SOURCES["shortcuts_2"],
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
    *_SOURCES["elsewhere"],
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
    *_SOURCES["elsewhere_2"],
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
    *_SOURCES["elsewhere_3"],
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
    *_SOURCES["elsewhere_4"],
]

# --- remembering ----------------------------------------------------------------------------------

REMEMBERING = [
    *_SOURCES["remembering"],
]

# --- breaking things ------------------------------------------------------------------------------

BREAKING = [
    *_SOURCES["breaking"],
]

# --- forging the verdict --------------------------------------------------------------------------

FORGING = [
    *_SOURCES["forging"],
]

# --- at compile time ------------------------------------------------------------------------------

COMPILING = [
    *_SOURCES["compiling"],
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

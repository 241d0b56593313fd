"""Honest kernels whose order needs proof: look-back scans, split-K and stream-K, tables that are
uploaded once, overlapping tails, copies and streams."""

from __future__ import annotations

from coding_framework.types import DType, Task
from corpus.fresh_base import BLOCKS, FLAT, INDEX, LONG, FreshHonest, extension, pointwise
from corpus.records import MATRIX, Shape, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

# --- decoupled look-back: one pass over the data, blocks in the order of their tickets ------------

_SCAN = _SOURCES.text("SCAN")


def _scan(term: str, join: str, none: str, given: str = "float", made: str = "float") -> str:
    kind = {"float": "torch::kFloat32", "int": "torch::kInt32", "int64_t": "torch::kInt64"}[made]
    kernels = f"typedef {made} T;\n" + _SCAN.format(term=term, join=join, none=none, given=given)
    return extension(
        kernels,
        "torch::Tensor x",
        "  const int n = x.numel(), blocks = (n + 127) / 128;\n"
        f"  auto out = torch::empty(x.sizes(), x.options().dtype({kind}));\n"
        f"  auto sums = torch::empty({{2 * blocks}}, x.options().dtype({kind}));\n"
        "  auto flags = torch::zeros({blocks + 1}, x.options().dtype(torch::kInt32));\n"
        f"  T* sum = sums.data_ptr<{made}>(); int* state = flags.data_ptr<int>();\n"
        f"  scan<<<blocks, 128>>>(x.data_ptr<{given}>(), out.data_ptr<{made}>(), sum,"
        " sum + blocks, state, state + blocks, n);",
    )


_SCANS: tuple[tuple[str, str, DType, str], ...] = (
    ("prefix_sum", "x.cumsum(0)", "float32", _scan("v", "a + b", "0")),
    ("running_maximum", "x.cummax(0).values", "float32",
     _scan("v", "a > b ? a : b", "-INFINITY")),
    ("running_minimum", "x.cummin(0).values", "float32", _scan("v", "a < b ? a : b", "INFINITY")),
    ("count_of_positives", "(x > 0).int().cumsum(0).int()", "float32",
     _scan("v > 0 ? 1 : 0", "a + b", "0", made="int")),
    ("prefix_sum_of_integers", "x.cumsum(0)", "int32",
     _scan("(int64_t)v", "a + b", "0", given="int", made="int64_t")),
    ("prefix_sum_of_squares", "(x * x).cumsum(0)", "float32", _scan("v * v", "a + b", "0")),
)  # fmt: skip

# --- matrix products whose inner dimension is split over blocks -----------------------------------

_PRODUCT: dict[str, list[Shape]] = {
    "main": [(32, 96), (96, 32)],
    "odd": [(19, 101), (101, 23)],
    "tiny": [(2, 3), (3, 5)],
}
_TILE = _SOURCES.text("TILE")
_HERE = _SOURCES.text("HERE")
_ARGS = "(const float* x, const float* y, float* o, int M, int N, int K"
_SPLIT_ATOMIC = _SOURCES.text("SPLIT_ATOMIC")
_SPLIT_SPACE = _SOURCES.text("SPLIT_SPACE")
_SPLIT_LAST = _SOURCES.text("SPLIT_LAST")
_SPLIT_CLEANS = _SOURCES.text("SPLIT_CLEANS")
_SPLIT_TURNS = _SOURCES.text("SPLIT_TURNS")
_STREAM_K = _SOURCES.text("STREAM_K")
_SHAPE = _SOURCES.text("SHAPE")
_ROOM = "  auto w = torch::{made}({{SPLITS * n}}, x.options()); float* pw = w.data_ptr<float>();\n"
_TURNS = _SOURCES.text("TURNS")
_LAUNCH = "  k<<<blocks, threads>>>(px, py, po, M, N, K{more});"
_KEPT = _SOURCES.text("KEPT")
_KEPT_TURNS = """  static int* pf = nullptr;
  if (!pf) { cudaMalloc((void**)&pf, 16384); cudaMemset(pf, 0, 16384); }
"""
_PERSISTENT = _SOURCES.text("PERSISTENT")


def _product(kernels: str, body: str, splits: int) -> str:
    return extension(
        kernels,
        "torch::Tensor x, torch::Tensor y",
        _SHAPE + body,
        f"#define SPLITS {splits}",
    )


_EMPTY = _ROOM.format(made="empty")
_PRODUCTS: tuple[tuple[str, str, str], ...] = (
    ("split_k_atomic_2", "split_k", _product(
        _SPLIT_ATOMIC, "  cudaMemsetAsync(po, 0, n * 4, 0);\n" + _LAUNCH.format(more=""), 2)),
    ("split_k_atomic_5", "split_k", _product(
        _SPLIT_ATOMIC, "  cudaMemsetAsync(po, 0, n * 4, 0);\n" + _LAUNCH.format(more=""), 5)),
    ("split_k_two_kernels", "split_k", _product(
        _SPLIT_SPACE, _EMPTY + _LAUNCH.format(more=", pw") +
        "\n  l<<<(n + 127) / 128, 128>>>(pw, po, n, SPLITS);", 3)),
    ("split_k_last_block_3", "split_k", _product(
        _SPLIT_LAST, _EMPTY + _LAUNCH.format(more=", pw"), 3)),
    ("split_k_last_block_7", "split_k", _product(
        _SPLIT_LAST, _EMPTY + _LAUNCH.format(more=", pw"), 7)),
    ("self_cleaning_fresh", "self_cleaning", _product(
        _SPLIT_CLEANS, _ROOM.format(made="zeros") + _LAUNCH.format(more=", pw"), 4)),
    ("self_cleaning_kept_2", "self_cleaning", _product(
        _SPLIT_CLEANS, _KEPT + _LAUNCH.format(more=", pw"), 2)),
    ("self_cleaning_kept_4", "self_cleaning", _product(
        _SPLIT_CLEANS, _KEPT + _LAUNCH.format(more=", pw"), 4)),
    ("self_cleaning_kept_6", "self_cleaning", _product(
        _SPLIT_CLEANS, _KEPT + _LAUNCH.format(more=", pw"), 6)),
    ("turns_fresh", "turns", _product(_SPLIT_TURNS, _TURNS + _LAUNCH.format(more=", pf"), 3)),
    ("turns_of_five", "turns", _product(_SPLIT_TURNS, _TURNS + _LAUNCH.format(more=", pf"), 5)),
    ("turns_kept", "self_cleaning", _product(
        _SPLIT_TURNS, _KEPT_TURNS + _LAUNCH.format(more=", pf"), 2)),
    *((f"stream_k_{n}", "stream_k", _product(_STREAM_K, _PERSISTENT, n)) for n in (3, 4, 5, 6, 7)),
)  # fmt: skip

# --- tables that do not depend on inputs, uploaded once -------------------------------------------


def _table(name: str, size: int, entry: str, expression: str, use: str) -> tuple[str, str, str]:
    code = extension(
        "__global__ void k(const float* x, const float* table, float* o, int n, int C) {\n"
        f"  {INDEX}\n  if (i < n) {{ int c = i % C; float v = x[i]; o[i] = {use}; }}\n}}",
        "torch::Tensor x",
        "  const int n = x.numel(), C = x.size(1); auto out = torch::empty_like(x);\n"
        f"  static float* table = nullptr;\n  if (!table) {{\n    std::vector<float> h({size});\n"
        f"    for (int j = 0; j < {size}; j++) h[j] = {entry};\n"
        f"    cudaMalloc((void**)&table, {size} * 4);\n"
        f"    cudaMemcpy(table, h.data(), {size} * 4, cudaMemcpyHostToDevice);\n  }}\n"
        f"  k<<<{BLOCKS}>>>(x.data_ptr<float>(), table, out.data_ptr<float>(), n, C);",
        "#include <vector>\n#include <cmath>",
    )
    return name, expression, code


_COLUMN = "torch.arange(x.size(1), dtype=x.dtype, device=x.device)"
_TABLES: tuple[tuple[str, str, str], ...] = _SOURCES["tables"]  # fmt: skip

# --- tails that overlap: two threads or blocks write the same value -------------------------------

_TAIL = _SOURCES.text("TAIL")


def _tail(block: int, value: str) -> str:
    return extension(
        _TAIL.format(b=block, value=value),
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
        f"  k<<<(n + {block - 1}) / {block}, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


_TAILS = (
    ("relu", "F.relu(x)", _tail(128, "fmaxf(v, 0.f)")),
    ("negate", "-x", _tail(256, "-v")),
    ("square", "x * x", _tail(96, "v * v")),
    ("shifted", "x + 0.5", _tail(64, "v + 0.5f")),
    ("absolute", "x.abs()", _tail(200, "fabsf(v)")),
)
_FLAG = _SOURCES.text("FLAG")


def _flag(test: str) -> str:
    return extension(
        _FLAG.replace("TEST", test),
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty({}, x.options());\n"
        "  auto f = torch::zeros({1}, x.options().dtype(torch::kInt32));\n"
        "  k<<<4, 128>>>(x.data_ptr<float>(), f.data_ptr<int>(), n);\n"
        "  l<<<1, 1>>>(f.data_ptr<int>(), out.data_ptr<float>());",
    )


_FLAGS = (
    ("any_above_two", "(x > 2).any().float()", _flag("x[i] > 2.f")),
    ("any_zero", "(x == 0).any().float()", _flag("x[i] == 0.f")),
    ("any_below", "(x < -3).any().float()", _flag("x[i] < -3.f")),
)

# --- copies, fills and streams -----------------------------------------------------------------

_TWO_MAPS = _SOURCES.text("TWO_MAPS")
_STREAM = "  cudaStream_t s, u; cudaStreamCreate(&s); cudaStreamCreate(&u);\n"
_APART = _STREAM.replace("cudaStreamCreate(&s)", "cudaStreamCreateWithFlags(&s, 1)").replace(
    "cudaStreamCreate(&u)", "cudaStreamCreateWithFlags(&u, 1)"
)
_EVENT = "  cudaEvent_t e; cudaEventCreateWithFlags(&e, cudaEventDisableTiming);\n"
_CLOSE = "\n  cudaStreamDestroy(s); cudaStreamDestroy(u);"
_CLOSE_ALL = f"{_CLOSE} cudaEventDestroy(e);"
_HOME = "  cudaStream_t home = at::cuda::getCurrentCUDAStream();\n"


def _on(kernel: str, stream: str, given: str, made: str) -> str:
    return f"  {kernel}<<<{BLOCKS}, 0, {stream}>>>({given}, {made}, n);\n"


_STREAMED: tuple[tuple[str, str], ...] = (
    ("event_between", _APART + _HOME + _EVENT
     + "  cudaEventRecord(e, home); cudaStreamWaitEvent(s, e, 0);\n" + _on("f", "s", "px", "w")
     + "  cudaEventRecord(e, s); cudaStreamWaitEvent(u, e, 0);\n" + _on("g", "u", "w", "po")
     + "  cudaEventRecord(e, u); cudaStreamWaitEvent(home, e, 0);" + _CLOSE_ALL),
    ("legacy_default_orders", _STREAM + _on("f", "s", "px", "w") + _on("g", "0", "w", "po")
     + _CLOSE),
    ("synchronised_stream", "  cudaDeviceSynchronize();\n" + _APART + _on("f", "s", "px", "w")
     + "  cudaStreamSynchronize(s);\n" + _on("g", "u", "w", "po")
     + "  cudaStreamSynchronize(u);" + _CLOSE),
    ("same_stream", "  cudaDeviceSynchronize();\n" + _APART + _on("f", "s", "px", "w")
     + _on("g", "s", "w", "po") + "  cudaStreamSynchronize(s);" + _CLOSE),
    ("event_synchronised", _APART + _HOME + _EVENT + _on("f", "home", "px", "w")
     + "  cudaEventRecord(e, home); cudaEventSynchronize(e);\n" + _on("g", "s", "w", "po")
     + "  cudaDeviceSynchronize();" + _CLOSE_ALL),
    ("copied_between", _HOME + _on("f", "home", "px", "w")
     + "  cudaMemcpyAsync(w + n, w, n * 4, cudaMemcpyDeviceToDevice, home);\n"
     + _on("g", "home", "w + n", "po")),
    ("copied_on_a_stream", _APART + _HOME + _EVENT + _on("f", "home", "px", "w")
     + "  cudaEventRecord(e, home); cudaStreamWaitEvent(s, e, 0);\n"
     + "  cudaMemcpyAsync(w + n, w, n * 4, cudaMemcpyDeviceToDevice, s);\n"
     + "  cudaEventRecord(e, s); cudaStreamWaitEvent(home, e, 0);\n"
     + _on("g", "home", "w + n", "po") + _CLOSE_ALL),
    ("filled_first", _HOME + "  cudaMemsetAsync(w, 0, n * 4, home);\n" + _on("f", "home", "px", "w")
     + _on("g", "home", "w", "po")),
    ("forked_and_joined", _APART + _HOME + _EVENT + "  int h = n / 2; cudaEventRecord(e, home);\n"
     + "  cudaStreamWaitEvent(s, e, 0); cudaStreamWaitEvent(u, e, 0);\n"
     + f"  f<<<{BLOCKS}, 0, s>>>(px, w, h); f<<<{BLOCKS}, 0, u>>>(px + h, w + h, n - h);\n"
     + "  cudaEvent_t d; cudaEventCreate(&d); cudaEventRecord(e, s); cudaEventRecord(d, u);\n"
     + "  cudaStreamWaitEvent(home, e, 0); cudaStreamWaitEvent(home, d, 0);\n"
     + _on("g", "home", "w", "po") + "  cudaEventDestroy(d);" + _CLOSE_ALL),
)  # fmt: skip


def _streams(body: str) -> str:
    return extension(
        _TWO_MAPS,
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
        "  auto work = torch::empty({2 * n}, x.options()); float* w = work.data_ptr<float>();\n"
        "  const float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>();\n" + body,
        "#include <ATen/cuda/CUDAContext.h>",
    )


def _honest(pattern: str, given: Task, code: str) -> FreshHonest:
    return FreshHonest(f"fresh/{pattern}/{given.name}", (pattern,), given, code)


_ONES = (1, 1, 1)
ORDER: tuple[FreshHonest, ...] = (
    *(
        _honest(
            "look_back",
            task(n, e, FLAT, dtypes=(d,), reduction=(8192, 5003, 64)),
            code,
        )
        for n, e, d, code in _SCANS
    ),
    *(
        _honest(
            pattern,
            task(name, "x @ y", _PRODUCT, names="x y", reduction=(96, 101, 3), atomic_order=True),
            code,
        )
        for name, pattern, code in _PRODUCTS
    ),
    *(_honest("table", task(n, e, MATRIX), code) for n, e, code in _TABLES),
    *(
        _honest("equal_writes", task(n, e, LONG if "s" in n else MATRIX), code)
        for n, e, code in _TAILS
    ),
    *(_honest("equal_writes", task(n, e, FLAT, reduction=_ONES), code) for n, e, code in _FLAGS),
    *(_honest("streams", task(n, "x * 3 + 1", MATRIX), _streams(b)) for n, b in _STREAMED),
    _honest(
        "constant_memory",
        task("polynomial", "((x * 0.25 - 0.5) * x + 1) * x + 2", MATRIX),
        pointwise(
            "((c[0] * v + c[1]) * v + c[2]) * v + c[3]",
            helpers="__constant__ float c[4] = {0.25f, -0.5f, 1.f, 2.f};",
        ),
    ),
)

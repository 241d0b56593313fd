"""The records of the fresh corpus, and the text that its sources share.

The author of `fresh_*.py` read the task contract and issue 27, and neither the judge nor the older
corpora. An attack names the item of that issue that describes its mechanism; item 0 is a mechanism
that the issue does not name. A kernel that was mended after its first verdict says so in `note`.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.types import DType, Status, Task
from corpus.records import NEVER_CORRECT, Shape, task

REFUSED = NEVER_CORRECT - {Status.UNSUPPORTED}
"""`unsupported` masks a sample, so a candidate that gets it at will has escaped."""
IN_TIME = REFUSED | {Status.CORRECT}
"""What a flood may be called, within the time of a verdict."""


@dataclass(frozen=True, slots=True)
class FreshAttack:
    """A wrong kernel that a careless judge would call correct."""

    name: str
    mechanism: str
    item: int
    """Of issue 27; 0: a mechanism that it does not name."""
    task: Task
    code: str
    tries: int = 1
    """How often it is judged: more than once where chance decides what it does."""
    note: str = ""
    dear: bool = False
    """Whether its answer is right and only its price is not: it may be called correct in time."""


@dataclass(frozen=True, slots=True)
class FreshHonest:
    """A kernel that is right for every input that a user might give."""

    name: str
    patterns: tuple[str, ...]
    """What it uses: the names by which rates are broken down."""
    task: Task
    code: str
    stamped: bool = False
    """Made by a template over operations, not written by itself."""
    note: str = ""


WIDE = {"main": [(32, 256)], "odd": [(13, 301)], "tiny": [(4, 64)]}
WIDE_COLUMNS = (256, 301, 64)
LONG = {"main": [(16, 1024)], "odd": [(3, 3341)], "tiny": [(2, 256)]}
LONG_ALL = (16384, 10023, 512)
LONG_COLUMNS = (1024, 3341, 256)
FLAT = {"main": [(8192,)], "odd": [(5003,)], "tiny": [(64,)]}
IMAGE = {"main": [(2, 8, 16, 16)], "odd": [(1, 6, 13, 11)], "tiny": [(1, 4, 6, 6)]}
BLOCKS = "(n + 127) / 128, 128"
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"

CPP = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "int64_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
KIND = {
    "float32": "torch::kFloat32",
    "float64": "torch::kFloat64",
    "int32": "torch::kInt32",
    "int64": "torch::kInt64",
    "bool": "torch::kBool",
}


def extension(kernels: str, args: str, body: str, head: str = "", result: str = "out") -> str:
    """A torch extension whose `forward(args)` runs `body` and returns `result`."""
    return f"""#include <torch/extension.h>
#include <cuda_runtime.h>
{head}
{kernels}
torch::Tensor forward({args}) {{
{body}
  return {result};
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward, "forward"); }}
"""


def pointwise(
    value: str, *, dtype: DType = "float32", result: DType | None = None, helpers: str = ""
) -> str:
    """One thread an element: the output is `value` of the input `v`."""
    t, o = CPP[dtype], CPP[result or dtype]
    made = f"torch::empty(x.sizes(), x.options().dtype({KIND[result]}))" if result else ""
    return extension(
        f"{helpers}\n__global__ void k(const {t}* x, {o}* o, int n) {{\n"
        f"  {INDEX}\n  if (i < n) {{ {t} v = x[i]; o[i] = {value}; }}\n}}",
        "torch::Tensor x",
        f"  const int n = x.numel();\n  auto out = {made or 'torch::empty_like(x)'};\n"
        f"  k<<<{BLOCKS}>>>(x.data_ptr<{t}>(), out.data_ptr<{o}>(), n);",
    )


def pairwise(value: str, *, dtype: DType = "float32", result: DType | None = None) -> str:
    """One thread an element: the output is `value` of the inputs `a` and `b`."""
    t, o = CPP[dtype], CPP[result or dtype]
    made = f"torch::empty(x.sizes(), x.options().dtype({KIND[result]}))" if result else ""
    return extension(
        f"__global__ void k(const {t}* x, const {t}* y, {o}* o, int n) {{\n"
        f"  {INDEX}\n  if (i < n) {{ {t} a = x[i], b = y[i]; o[i] = {value}; }}\n}}",
        "torch::Tensor x, torch::Tensor y",
        f"  const int n = x.numel();\n  auto out = {made or 'torch::empty_like(x)'};\n"
        f"  k<<<{BLOCKS}>>>(x.data_ptr<{t}>(), y.data_ptr<{t}>(), out.data_ptr<{o}>(), n);",
    )


def per_row(
    body: str, *, row: bool = False, dtype: DType = "float32", result: DType | None = None
) -> str:
    """One thread a row of `C` values at `p`; it writes the row `q`, or the one value `q[0]`."""
    t, o = CPP[dtype], CPP[result or dtype]
    shape = "{R}" if row else "x.sizes()"
    options = f"x.options().dtype({KIND[result]})" if result else "x.options()"
    return extension(
        f"__global__ void k(const {t}* x, {o}* o, int R, int C) {{\n"
        "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= R) return;\n"
        f"  const {t}* p = x + (size_t)r * C;\n"
        f"  {o}* q = o + (size_t)r * {'1' if row else 'C'};\n  {body}\n}}",
        "torch::Tensor x",
        "  const int R = x.size(0), C = x.numel() / R;\n"
        f"  auto out = torch::empty({shape}, {options});\n"
        f"  k<<<(R + 31) / 32, 32>>>(x.data_ptr<{t}>(), out.data_ptr<{o}>(), R, C);",
    )


BLOCK_SUM = """
__device__ float block_sum(float v) {
  __shared__ float part[128];
  int t = threadIdx.x;
  part[t] = v;
  __syncthreads();
  for (int s = 64; s > 0; s >>= 1) {
    if (t < s) part[t] += part[t + s];
    __syncthreads();
  }
  float total = part[0];
  __syncthreads();
  return total;
}
"""


def block_row(body: str, *, row: bool = False, helpers: str = BLOCK_SUM) -> str:
    """A block of 128 threads a row: `t` is the thread, else as `per_row`."""
    shape = "{R}" if row else "x.sizes()"
    return extension(
        f"{helpers}\n__global__ void k(const float* x, float* o, int C) {{\n"
        "  int r = blockIdx.x, t = threadIdx.x;\n"
        "  const float* p = x + (size_t)r * C;\n"
        f"  float* q = o + (size_t)r * {'1' if row else 'C'};\n  {body}\n}}",
        "torch::Tensor x",
        "  const int R = x.size(0), C = x.numel() / R;\n"
        f"  auto out = torch::empty({shape}, x.options());\n"
        "  k<<<R, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), C);",
    )


def twice(cases: dict[str, list[Shape]]) -> dict[str, list[Shape]]:
    """The shapes of one input as those of two."""
    return {case: shapes * 2 for case, shapes in cases.items()}


def reduction_task(name: str, expression: str, *, long: bool = False, whole: bool = False) -> Task:
    """A reduction over the columns of wide or long matrices, or over all their elements."""
    cases = LONG if long or whole else WIDE
    lengths = LONG_ALL if whole else LONG_COLUMNS if long else WIDE_COLUMNS
    return task(name, expression, cases, reduction=lengths)


_VALUES: dict[str, list[Shape]] = {
    "main": [(50, 24), (300,)],
    "odd": [(37, 13), (111,)],
    "tiny": [(3, 5), (7,)],
}


def indexed(name: str, expression: str, cases: dict[str, list[Shape]] | None = None) -> Task:
    """`x` is a table of rows, `y` indices of its rows."""
    made = task(name, expression, cases or _VALUES, names="x y", dtypes=("float32", "int64"))
    bounded = []
    for case in made.cases:
        x, y = case.inputs
        last = {"low": 0, "high": x.shape[0] - 1}
        bounded.append(case.model_copy(update={"inputs": (x, y.model_copy(update=last))}))
    return made.model_copy(update={"cases": tuple(bounded), "atomic_order": True})

"""Honest reductions, norms, scans, transposes and products, by an author who had not read the judge."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import DType, Task
from corpus import records
from corpus.records import COLUMNS, MATMUL, MATRIX, Honest, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals(), records)

ALL = (64 * 96, 37 * 53, 15)


def _rows(name: str, expression: str, bounds: tuple[float, float] | None = None) -> Task:
    return task(name, expression, MATRIX, reduction=COLUMNS, bounds=bounds)


ROW_MAX = _rows("row_max", "x.max(dim=1).values")
ROW_MEAN = _rows("row_mean", "x.mean(dim=1)")
ARGMAX = task("argmax", "x.argmax(dim=1)", MATRIX)
LAYER_NORM = _rows("layer_norm", "F.layer_norm(x, x.shape[-1:])")
RMS_NORM = _rows("rms_norm", "x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-6)")
LOG_SOFTMAX = _rows("log_softmax", "F.log_softmax(x, dim=1)")
LOGSUMEXP = _rows("logsumexp", "torch.logsumexp(x, dim=1)")
L2_NORM = _rows("l2_norm", "x / x.norm(dim=1, keepdim=True)")
CUMSUM = _rows("cumsum", "torch.cumsum(x, dim=1)")
TRANSPOSE = task("transpose", "x.t().contiguous()", MATRIX)
COLUMN_SUM = task("column_sum", "x.sum(dim=0)", MATRIX, reduction=(64, 37, 3))
TOTAL = task("total", "x.sum()", MATRIX, reduction=ALL)
TOTAL_ANY_ORDER = task("total_any_order", "x.sum()", MATRIX, reduction=ALL, atomic_order=True)
MEAN_ANY_ORDER = task("mean_any_order", "x.mean()", MATRIX, reduction=ALL, atomic_order=True)
LARGEST = task("largest", "x.max()", MATRIX)
VARIANCE = _rows("variance", "x.var(dim=1, unbiased=False)")

_WARP = "__device__ __forceinline__ float warp_sum(float v) { for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d); return v; }\n"
_BLOCK = _SOURCES.text("BLOCK")


def _kernel(
    name: str,
    features: str,
    of: Task,
    kernels: str,
    launch: str,
    *,
    out: str,
    head: str = "",
    ctype: str = "float",
) -> Honest:
    code = f"""#include <torch/extension.h>
#include <cuda_runtime.h>
{head}
{kernels}
torch::Tensor forward(torch::Tensor x) {{
  int rows = x.size(0), cols = x.size(1), n = x.numel();
  auto out = {out};
  const float* px = x.data_ptr<float>();
  auto* po = out.data_ptr<{ctype}>();
  {launch}
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward, "forward"); }}
"""
    return Honest(name, tuple(features.split()), code, of, "unseen")


_A_ROW = "torch::empty({rows}, x.options())"
_SAME = "torch::empty_like(x)"
_SCALAR = "torch::zeros({}, x.options())"

_SUMS = _SOURCES["sums"]

_NORMS = _SOURCES["norms"]

_SCANS = _SOURCES["scans"]


def _product(
    name: str,
    features: str,
    kernels: str,
    launch: str,
    *,
    of: Task = MATMUL,
    head: str = "",
    ctype: str = "float",
) -> Honest:
    code = f"""#include <torch/extension.h>
{head}
{kernels}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {{
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "sizes do not match");
  const int M = a.size(0), K = a.size(1), N = b.size(1);
  auto c = torch::zeros({{M, N}}, a.options());
  auto* pa = a.data_ptr<{ctype}>(); auto* pb = b.data_ptr<{ctype}>(); auto* pc = c.data_ptr<{ctype}>();
  {launch}
  return c;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
    return Honest(name, tuple(features.split()), code, of, "unseen")


MATMUL_ANY_ORDER = MATMUL.model_copy(update={"name": "matmul_any_order", "atomic_order": True})
_HALF: tuple[DType, ...] = ("float16",)
HALF_MATMUL = task(
    "half_matmul",
    "x @ y",
    {"main": [(48, 64), (64, 32)], "odd": [(17, 40), (40, 24)], "tiny": [(2, 8), (8, 4)]},
    names="x y",
    dtypes=_HALF,
    reduction=(64, 40, 8),
)

_PRODUCTS = _SOURCES["products"]

UNSEEN_REDUCTIONS = (*_SUMS, *_NORMS, *_SCANS, *_PRODUCTS)

"""The records of the corpus, and the few lines of boilerplate that its sources share.

Every case names its origin: `unseen` cases were written from the task contract and the list of
known cheats alone, by an author who had not read the judge; `seen` ones with its code at hand. The
two are reported apart, for a corpus written with the judge's code in view flatters the judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coding_framework.types import DType, Status, Task, TensorSpec, TestCase

Origin = Literal["unseen", "seen"]

WRONG = frozenset({Status.WRONG_OUTPUT})
STALE = frozenset({Status.WRONG_OUTPUT, Status.CHEATING, Status.NONDETERMINISTIC})
"""What a stale, cached or smuggled answer may be called."""
FAULT = frozenset({Status.RUNTIME_ERROR, Status.CHEATING})
RULED_OUT = frozenset({Status.REJECTED, Status.COMPILE_ERROR, Status.UNSUPPORTED})
BOMB = frozenset({Status.TIMEOUT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT, Status.RUNTIME_ERROR})
NEVER_CORRECT = frozenset(Status) - {Status.CORRECT}


@dataclass(frozen=True, slots=True)
class Attack:
    """A source that must never be `correct`."""

    name: str
    covers: str
    """The known cheat or harm that it tries."""
    code: str
    task: Task
    statuses: frozenset[Status]
    """The verdicts that are right for it."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Honest:
    """A kernel that must be `correct`."""

    name: str
    features: tuple[str, ...]
    """What it uses: the names by which rates are broken down."""
    code: str
    task: Task
    origin: Origin


Shape = tuple[int, ...]


def task(
    name: str,
    expression: str,
    cases: dict[str, list[Shape]],
    *,
    names: str = "x",
    dtypes: tuple[DType, ...] = ("float32",),
    bounds: tuple[float, float] | None = None,
    reduction: tuple[int, ...] = (),
    init: str = "",
    init_args: tuple[int | float | bool, ...] = (),
    statements: str = "",
    atomic_order: bool = False,
) -> Task:
    """A task: `expression` over inputs `names`, whose shapes in each case are `cases[case]`.

    `reduction` gives, by case, the length of the longest reduction (1 where empty); `init` the body
    of `__init__(self, ...)` with the names of its arguments before a colon.
    """
    inputs = names.split()
    each = dtypes if len(dtypes) == len(inputs) else dtypes * len(inputs)
    low, high = bounds or (None, None)
    constructor = ""
    if init:
        arguments, _, body = init.partition(":")
        constructor = (
            f"    def __init__(self{', ' + arguments if arguments else ''}):\n"
            f"        super().__init__()\n        {body.strip()}\n"
        )
    reference = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        f"class Model(nn.Module):\n{constructor}"
        f"    def forward(self, {', '.join(inputs)}):\n"
        + (f"        {statements}\n" if statements else "")
        + f"        return {expression}\n"
    )
    return Task(
        name=name,
        tier=0,
        family="corpus",
        ops=(name,),
        description=expression,
        reference=reference,
        init_args=init_args,
        cases=tuple(
            TestCase(
                name=case,
                inputs=tuple(
                    TensorSpec(name=n, shape=shape, dtype=dtype, low=low, high=high)
                    for n, shape, dtype in zip(inputs, shapes, each, strict=True)
                ),
                reduction_length=reduction[i] if reduction else 1,
                shown=i == 0,
            )
            for i, (case, shapes) in enumerate(cases.items())
        ),
        atomic_order=atomic_order,
        source="corpus",
    )


MATRIX = {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]}
COLUMNS = (96, 53, 5)
PAIR = {case: shapes * 2 for case, shapes in MATRIX.items()}

AFFINE = task("affine", "x * 2 + 1", MATRIX)
ROW_SUM = task("row_sum", "x.sum(dim=1)", MATRIX, reduction=COLUMNS)
SOFTMAX = task("softmax", "F.softmax(x, dim=1)", MATRIX, reduction=COLUMNS)
ADD = task("add", "x + y", PAIR, names="x y")
MATMUL = task(
    "matmul",
    "x @ y",
    {"main": [(48, 64), (64, 32)], "odd": [(19, 37), (37, 23)], "tiny": [(2, 3), (3, 5)]},
    names="x y",
    reduction=(64, 37, 3),
)

AFFINE_KERNEL = """
__global__ void affine(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * 2.0f + 1.0f;
}
"""
AFFINE_LAUNCH = "affine<<<(n + 127) / 128, 128>>>(px, po, n);"


def source(kernels: str, body: str, *, head: str = "", tail: str = "") -> str:
    """A torch extension over one tensor `x`: `body` sees n, px, po and makes `out`."""
    return f"""#include <torch/extension.h>
#include <cuda_runtime.h>
{head}
{kernels}
torch::Tensor forward(torch::Tensor x) {{
  const int n = x.numel();
  auto out = torch::empty_like(x);
  const float* px = x.data_ptr<float>();
  float* po = out.data_ptr<float>();
  {body}
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward, "forward"); {tail} }}
"""


AFFINE_SOURCE = source(AFFINE_KERNEL, AFFINE_LAUNCH)

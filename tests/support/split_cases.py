"""Candidates that a judge in two halves is tested with; no test is in here."""

from __future__ import annotations

import json
from pathlib import Path

from coding_framework.paths import cache_dir
from coding_framework.types import Task, Verdict
from support.judge_tasks import (
    DOUBLE_BODY,
    DOUBLE_KERNEL,
    DOUBLE_TASK,
    DOUBLE_TWO_A_THREAD,
    ROW_SUM,
    ROW_SUM_TASK,
    extension,
)

WRONG = extension(DOUBLE_KERNEL.replace("2.0f", "3.0f"), DOUBLE_BODY)
NO_SOURCE = extension(DOUBLE_KERNEL.replace("2.0f", "two"), DOUBLE_BODY)
FAULTS = extension(DOUBLE_KERNEL.replace("o[i]", "o[i + (1 << 28)]"), DOUBLE_BODY)

_REQUEST = """load_inline(
            name="{name}", cpp_sources="torch::Tensor {name}(torch::Tensor x);",
            cuda_sources='''
#include <torch/extension.h>
__global__ void k_{name}(const float* x, float* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = {value};
}}
torch::Tensor {name}(torch::Tensor x) {{
  auto o = torch::empty_like(x);
  int n = x.numel();
  k_{name}<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), n);
  return o;
}}''', functions=["{name}"])"""
LATE = f"""import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


class ModelNew(nn.Module):
    first = {_REQUEST.format(name="twice", value="2.0f * x[i]")}

    def forward(self, x):
        second = {_REQUEST.format(name="next", value="x[i] + 1.0f")}
        return second.next(self.first.twice(x))
"""
"""An answer that asks for a kernel when it is imported, and for another when it runs."""

CASES: dict[str, tuple[Task, str]] = {
    "correct": (DOUBLE_TASK, DOUBLE_TWO_A_THREAD),
    "correct, naive": (ROW_SUM_TASK, ROW_SUM),
    "wrong_output": (DOUBLE_TASK, WRONG),
    "compile_error": (DOUBLE_TASK, NO_SOURCE),
    "runtime_error": (DOUBLE_TASK, FAULTS),
    "correct, asks late": (DOUBLE_TASK, LATE),
}
"""By the status, and what is special."""

BUILDS = "builds/entries/*/*"
"""What was compiled, in a cache folder."""
_COMPARED = ("status", "reason", "tests", "timing", "counters", "cheats", "pitfalls", "safety")


def essence(verdict: Verdict) -> dict[str, object]:
    """What two judges have to agree on: all but how long things took."""
    said = json.loads(verdict.model_dump_json())
    compiled = {k: v for k, v in said["compile"].items() if k not in ("latency_s", "cache_hit")}
    receipt = {k: v for k, v in said["receipt"].items() if k != "duration_s"}
    return {**{k: said[k] for k in _COMPARED}, "compile": compiled, "receipt": receipt}


def other_cache(folder: Path) -> Path:
    """A cache folder as another machine has it: without a build, but with our own programs, the
    interpreter and the host runner, which take long to build and are the same there."""
    (cache_dir() / "native").mkdir(exist_ok=True)
    folder.mkdir()
    (folder / "native").symlink_to(cache_dir() / "native")
    return folder

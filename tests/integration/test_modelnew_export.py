"""Archive-style kernels as KernelBench answers: the same text each time, correct, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.kernels import naive_of
from coding_framework.data.modelnew import export_modelnew, import_modelnew
from coding_framework.data.modules.catalog import all_drafts
from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError
from coding_framework.types import Candidate, Task

pytestmark = pytest.mark.integration

EPS = """#include <torch/extension.h>
__global__ void k(const float* x, const float* w, float* o, int n, int c, float eps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * w[i % c] + eps;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor weight, int64_t features, double eps) {
  auto o = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), weight.data_ptr<float>(), o.data_ptr<float>(),
                              n, features, eps);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, eps):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.eps = eps

    def forward(self, x):
        return x * self.weight + self.eps

batch = 512
features = 320
eps = 0.25

def get_inputs():
    return [torch.randn(batch, features)]

def get_init_inputs():
    return [features, eps]
"""


def fused_module() -> Task:
    """A module task with a layer's parameters and a buffer's."""
    name = next(d.name for d in all_drafts() if d.level == 2 and "batch_norm" in d.name)
    return find_task(name)


@pytest.mark.slow
async def test_an_exported_kernel_is_judged_correct_as_an_answer(
    emulator_pool: JudgePool, tmp_path: Path
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM)
    relu, module, scaled = find_task("relu"), fused_module(), find_task(str(problem))
    for task, kernel in (
        (relu, naive_of(relu)),
        (module, module.naive_kernel),
        (scaled, EPS),
    ):
        assert kernel is not None
        answer = export_modelnew(kernel, task)
        assert answer == export_modelnew(kernel, task)
        assert Candidate(code=answer).is_python
        assert import_modelnew(answer) == kernel
        verdict = await emulator_pool.judge(task, answer)
        assert verdict.correct, f"{verdict.reason}\n{answer}"


def test_the_commands_write_the_answer_and_the_kernel(tmp_path: Path) -> None:
    kernel, answer, back = (tmp_path / name for name in ("k.cu", "answer.py", "back.cu"))
    task = find_task("relu")
    kernel.write_text(naive_of(task) or "")
    assert main(["export-modelnew", str(kernel), "--task", "relu", "-o", str(answer)]) == 0
    assert "class ModelNew(nn.Module):" in answer.read_text()
    assert main(["import-modelnew", str(answer), "-o", str(back)]) == 0
    assert back.read_text() == kernel.read_text()


def test_an_answer_that_names_its_function_is_imported() -> None:
    answer = (
        "from torch.utils.cpp_extension import load_inline\n"
        "src = '''__global__ void k() {}\\ntorch::Tensor relu_cuda(torch::Tensor x) {}'''\n"
        "m = load_inline('m', cpp_sources='', cuda_sources=[src], functions=['relu_cuda'])\n"
    )
    kernel = import_modelnew(answer)
    assert kernel.startswith("#include <torch/extension.h>")
    assert 'm.def("forward", &relu_cuda);' in kernel


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("__global__ void k() {}", "binds no forward"),
        (EPS.replace(", double eps", ""), "forward takes 3 arguments"),
        (EPS + '// """', "three double quotes"),
    ],
)
def test_what_cannot_be_exported_is_said(kernel: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        export_modelnew(kernel, find_task("relu"))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("class ModelNew: pass", "calls load_inline 0 times"),
        ("def f(:", "not Python"),
        ("load_inline('m', cuda_sources=make())", "computes its source"),
        ("load_inline('m', cpp_sources='')", "no cuda_sources"),
        ("load_inline('m', cuda_sources='x', functions=['a', 'b'])", "binds 2 functions"),
    ],
)
def test_what_cannot_be_imported_is_said(answer: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        import_modelnew(answer)

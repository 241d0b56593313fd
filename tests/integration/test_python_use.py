"""The judge as a script and a notebook call it: three lines, and no event loop in the way."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import coding_framework
from coding_framework import KernelJudge, judge, judge_async
from coding_framework.errors import UsageError
from coding_framework.types import Status

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"
RELU, WRONG = ((EXAMPLES / name).read_text() for name in ("relu.cu", "relu_wrong.cu"))
SCALE = """
#include <torch/extension.h>
__global__ void scale(const float* x, const float* w, float* out, int64_t columns, int64_t n) {
    int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0.0f) * w[i % columns];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w) {
    auto out = torch::empty_like(x);
    int64_t n = x.numel();
    scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(),
                                    out.data_ptr<float>(), w.numel(), n);
    return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


class Scaled(nn.Module):
    """relu(x) * weight"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * self.weight


def test_three_lines_are_a_verdict_that_explains_itself() -> None:
    verdict = judge("relu", WRONG, backend="emulator")
    assert verdict.status is Status.WRONG_OUTPUT
    assert repr(verdict).startswith("<relu: wrong_output | shape set 'main'")
    assert len(repr(verdict)) < 300
    assert "<td>wrong_output</td>" in verdict._repr_html_()
    assert "Try next" in verdict.explain()


async def test_it_works_where_an_event_loop_runs() -> None:
    """As in a notebook's cell; the async form is beside it."""
    assert judge("relu", RELU, backend="emulator").correct
    both = [judge_async("relu", source, backend="emulator") for source in (RELU, WRONG)]
    assert [v.correct for v in await asyncio.gather(*both)] == [True, False]


def test_a_module_with_example_inputs_is_a_task() -> None:
    module, x = Scaled(48), torch.randn(6, 48)
    verdict = judge(module, SCALE, inputs=[x], init={"width": 48}, backend="emulator")
    assert verdict.correct, verdict.explain()
    assert verdict.task == "Scaled"


def test_what_a_module_does_not_keep_is_asked_for_by_name() -> None:
    with pytest.raises(UsageError, match=r"give init=\{'width': VALUE\}"):
        judge(Scaled(48), SCALE, inputs=[torch.randn(6, 48)])
    with pytest.raises(UsageError, match="other weights"):
        judge(Scaled(48), SCALE, inputs=[torch.randn(6, 48)], init={"width": 32})


def test_the_python_of_the_page_does_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXAMPLES.parent / "docs" / "integrations.md").read_text()
    section = page[page.index("## In Python") : page.index("## A judge server")]
    names = {"source": RELU, "answer": WRONG, "torch": torch, "module": nn.ReLU()}
    for snippet in re.findall(r"^```python\n(.*?)^```", section, re.M | re.S):
        exec(snippet, names)
    said = capsys.readouterr().out
    assert "relu: correct, judged on" in said
    assert "<relu: wrong_output" in repr(names["judged"])
    assert names["verdict"].task == "ReLU"


def test_many_kernels_share_one_judge() -> None:
    with KernelJudge(backend="emulator", workers=1) as many:
        found = [many.verdict("relu", kernel) for kernel in (EXAMPLES / "relu.cu", WRONG)]
        assert [v.status for v in found] == [Status.CORRECT, Status.WRONG_OUTPUT]


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'jugde'"):
        _ = coding_framework.jugde


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nfrom torch import nn\nfrom coding_framework import judge\n\n"
        "class Twice(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n\n"
        f"kernel = open({str(EXAMPLES / 'relu.cu')!r}).read()\n"
        "print(judge(Twice(), kernel, inputs=[torch.randn(8, 96)], backend='emulator'))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("correct: all")

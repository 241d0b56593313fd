"""Prompts of version 3 state the contract; those of older versions stay as models learnt them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from coding_framework.agents.devices import DEFAULT_DEVICE, device_line, device_of_example
from coding_framework.agents.prompts import ANSWER_TOKENS, build_messages, messages_for_example
from coding_framework.agents.prompts.contract import contract_of, without_test_code
from coding_framework.data.examples import training_examples
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError
from coding_framework.store.model_card import ModelCard, prompts_for, write_card
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import CUDAConversationState, PromptVersion, Role, Task

pytestmark = pytest.mark.unit

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, eps, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.norm = nn.BatchNorm2d(out_channels, eps=eps)

    def forward(self, image):
        return self.norm(self.conv(image) + self.bias)

# Test code
batch = 32
in_channels = 16
out_channels = 24
kernel_size = 3
height = width = 64
eps = 1e-3
bias_shape = (out_channels, 1, 1)

def get_inputs():
    return [torch.randn(batch, in_channels, height, width)]

def get_init_inputs():
    return [in_channels, out_channels, kernel_size, eps, bias_shape]
"""


def prompt(task: Task, version: PromptVersion) -> str:
    state = CUDAConversationState(conversation_id="x", task=task)
    return build_messages(state, Role.GENERATOR, version=version)[1].content


def test_prompts_of_older_models_are_what_these_models_learnt() -> None:
    digest = hashlib.sha256()
    for name in ("relu", "gelu_matmul", "conv2dk3_relu", "rowsum"):
        state = CUDAConversationState(conversation_id="x", task=find_task(name))
        for version in ("v1", "v2"):
            for message in build_messages(state, Role.GENERATOR, version=version):
                digest.update(f"{message.role}\0{message.content}\0".encode())
    assert digest.hexdigest() == "61e2242e4f2073504bb1fb3622fb815feb7e06c6c51ac662cd85c556a8411252"


def test_v3_is_what_the_stored_policy_learnt() -> None:
    digest = hashlib.sha256()
    names = ("relu", "gelu_matmul", "conv2dk3_relu", "rowsum")
    for task in (*map(find_task, names), problem_task(PROBLEM, "conv")):
        state = CUDAConversationState(conversation_id="x", task=task)
        for message in build_messages(state, Role.GENERATOR, version="v3"):
            digest.update(f"{message.role}\0{message.content}\0".encode())
    assert digest.hexdigest() == "362701d715689c57cde49509d0d305181e8f1467b33147d42e1d6c305a8bec8e"


def test_the_signature_has_real_shapes_parameters_in_order_and_numbers_by_name() -> None:
    contract = contract_of(problem_task(PROBLEM, "conv"))
    assert contract.signature == (
        "forward(Tensor image[32, 16, 64, 64], Tensor conv_weight[24, 16, 3, 3], "
        "Tensor conv_bias[24], Tensor bias[24, 1, 1], Tensor norm_weight[24], "
        "Tensor norm_bias[24], Tensor norm_running_mean[24], Tensor norm_running_var[24], "
        "Tensor<int64> norm_num_batches_tracked[], int in_channels, int out_channels, "
        "int kernel_size, float eps)"
    )
    assert "kernel_size = 3, eps = 0.001" in contract.constants
    assert "in_channels" not in contract.constants
    assert "in_channels" in contract.varies
    assert "of image" in contract.varies


def test_what_the_constructor_takes_by_default_is_a_constant() -> None:
    source = (
        "import torch, torch.nn as nn\nclass Model(nn.Module):\n"
        "    def __init__(self, channels, kernel_size, stride=1, padding: int = 0, bias=False,\n"
        "                 mode='zeros', groups=None, dilation=(1, 1), dtype=torch.float32):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(channels, 8, kernel_size, stride, padding, bias=bias)\n"
        "    def forward(self, x):\n        return self.conv(x)\n"
        "channels = 4\ndef get_inputs():\n    return [torch.rand(8, channels, 32, 32)]\n"
        "def get_init_inputs():\n    return [channels, 3, 2]\n"
    )
    contract = contract_of(problem_task(source, "defaults"))
    assert contract.constants == (
        "channels = 4, kernel_size = 3, stride = 2, padding = 0, bias = False, mode = 'zeros', "
        "groups = None, dilation = (1, 1)"
    )
    assert contract.signature.endswith("int channels, int kernel_size, int stride)")


def test_a_number_among_the_inputs_is_an_argument_by_its_own_name() -> None:
    source = (
        "import torch, torch.nn as nn\nclass Model(nn.Module):\n"
        "    def forward(self, A, s):\n        return A * s\n"
        "N = 512\ndef get_inputs():\n    return [torch.rand(N, N), 3.14]\n"
        "def get_init_inputs():\n    return []\n"
    )
    contract = contract_of(problem_task(source, "scalar"))
    assert contract.signature == "forward(Tensor A[512, 512], float s)"
    assert contract.constants == "s = 3.14"


def written(arguments: str, forward: str = "x", inputs: str = "") -> str:
    """A problem whose constructor and `forward` have these arguments."""
    return (
        "import torch, torch.nn as nn\nclass Odd: pass\nclass Model(nn.Module):\n"
        f"    def __init__(self, channels, {arguments}):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(channels, 8, 3)\n"
        f"    def forward(self, {forward}):\n        return self.conv(x)\n"
        f"channels = 4\ndef get_inputs():\n    return [torch.rand(8, channels, 32, 32){inputs}]\n"
        "def get_init_inputs():\n    return [channels]\n"
    )


@pytest.mark.parametrize(
    ("source", "signature", "constants"),
    [
        pytest.param(
            written("scale=2.0", "x, s", ", 3.14"),
            "int channels, float s)", "channels = 4, s = 3.14, scale = 2.0",
            id="a number among the inputs comes after the arguments that are given",
        ),
        pytest.param(
            written("way=(Odd(), 1), other=Odd(), pair=(1, (2.0, None))"),
            "int channels)", "channels = 4, pair = (1, (2.0, None))",
            id="an object, and what holds one, is not told: its address changes",
        ),
        pytest.param(
            written("*rest, eps=1e-3, **more"),
            "int channels)", "channels = 4, eps = 0.001",
            id="a constructor that takes anything is the author's own",
        ),
    ],
)  # fmt: skip
def test_arguments_of_odd_constructors_keep_their_names(
    source: str, signature: str, constants: str
) -> None:
    contract = contract_of(problem_task(source, "odd"))
    assert contract.signature.startswith("forward(Tensor x[8, 4, 32, 32], ")
    assert contract.signature.endswith(signature)
    assert contract.constants == constants


def test_the_prompt_has_the_module_without_its_test_code() -> None:
    said = prompt(problem_task(PROBLEM, "conv"), "v3")
    assert "get_inputs" not in said
    assert "height = width" not in said
    assert "self.conv = nn.Conv2d" in said
    assert "H200" in said
    shown = without_test_code("a = 2\nb = a * 2\nc = 3\nclass Model:\n    k = b\n")
    assert shown == "a = 2\nb = a * 2\nclass Model:\n    k = b\n"


def test_a_reference_that_cannot_be_built_is_said_in_a_sentence() -> None:
    task = find_task("relu").model_copy(update={"init_args": (3,), "name": "wrong"})
    with pytest.raises(UsageError, match="reference of task 'wrong' cannot be built"):
        contract_of(task)


def test_sft_learns_the_prompt_that_is_asked_by() -> None:
    examples = training_examples(Role.GENERATOR, 40)
    told = set()
    for example in examples:
        device = device_of_example(example.id)
        asked = prompt(example.task, "v3")
        expected = asked.replace(device_line(), device_line(device))
        assert messages_for_example(example, "v3")[1].content == expected
        told.add(device)
    assert {DEFAULT_DEVICE, "NVIDIA A100", "NVIDIA H100"} <= told


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "v4", "triton"])
def test_a_model_is_asked_by_the_prompts_that_its_card_names(
    version: PromptVersion, tmp_path: Path
) -> None:
    write_card(tmp_path, ModelCard(stage="sft", base_model="b", prompts=version))
    assert prompts_for(tmp_path, is_adapter=False) == version
    assert MultiTurnRLConfig(model_path=str(tmp_path)).prompts == version
    assert MultiTurnRLConfig(model_path=str(tmp_path), prompts="v2").prompts == "v2"
    assert ANSWER_TOKENS[version] == (1024 if version in ("v1", "v2") else 2048)

"""Kernels that are written from graphs: what is fused, what is refused, what the text holds."""

from __future__ import annotations

import re

import pytest

from coding_framework.data.lower.naive import lower
from coding_framework.data.lower.text import flat, literal, plus, times, without_unused
from coding_framework.data.ops.elementwise import ROWS, Elementwise
from coding_framework.data.read import read
from coding_framework.data.registry import find_task
from coding_framework.errors import UnreadableError
from support.read_problems import LINEAR, problem

pytestmark = pytest.mark.unit


def kernels(text: str) -> list[str]:
    return re.findall(r"__global__ void (\w+)\(", text)


def test_elementwise_operations_are_one_kernel():
    text = lower(problem("return torch.tanh(x * 2.0) + torch.sigmoid(x)"))
    assert len(kernels(text)) == 1
    assert "tanhf(" in text


def test_what_follows_a_loop_is_written_where_its_value_is():
    text = lower(problem("return torch.relu(self.lin(x)) * 2", **LINEAR))
    assert kernels(text) == ["linear_relu_mul_kernel"]


def test_what_goes_before_a_reduction_is_made_where_it_reads():
    text = lower(problem("return (x * x).mean(dim=1)"))
    assert kernels(text) == ["mean_kernel"]


def test_a_value_with_two_readers_is_written_by_the_kernel_that_makes_it():
    text = lower(problem("y = torch.relu(self.lin(x))\nreturn y, y.sum(dim=1)", **LINEAR))
    assert kernels(text) == ["linear_relu_kernel", "sum_kernel"]
    assert "std::vector<torch::Tensor> forward" in text


def test_a_swish_of_a_linear_layer_is_one_kernel():
    text = lower(problem("y = self.lin(x)\nreturn y * torch.sigmoid(y)", **LINEAR))
    assert len(kernels(text)) == 1


def test_a_softmax_is_one_kernel_with_its_passes():
    text = lower(problem("return torch.softmax(x, dim=1)"))
    assert kernels(text) == ["softmax_kernel"]
    assert text.count("for (int r") == 3


def test_views_and_slices_make_no_kernel():
    text = lower(problem("return torch.relu(x.t()[1:, ::2])"))
    assert len(kernels(text)) == 1


def test_a_view_of_an_output_is_no_copy():
    text = lower(problem("return torch.relu(x).reshape(-1)"))
    assert len(kernels(text)) == 1
    assert ".view({" in text


def test_an_input_that_is_returned_is_copied():
    text = lower(problem("return x"))
    assert len(kernels(text)) == 1


def test_scalars_are_all_taken_where_one_is_needed():
    text = lower(
        problem("return x[:, :1].expand(-1, self.width) * 1.5", "self.width = width",
                ", width, scale", "outputs, 2.5")
    )  # fmt: skip
    assert re.search(r"forward\(torch::Tensor x, int64_t \w+, double \w+\)", text)


def test_an_operation_without_a_kernel_is_named_with_its_line():
    with pytest.raises(UnreadableError, match=r"linalg_inv.*line 16: return torch.linalg.inv"):
        lower(problem("return torch.linalg.inv(x[:, :x.shape[0]] @ x[:, :x.shape[0]].t())"))


def test_dropout_in_training_is_refused():
    with pytest.raises(UnreadableError, match="draws random numbers"):
        lower(problem("return F.dropout(x, 0.5, training=True)"))


def test_concatenated_tensors_are_read_where_they_are():
    text = lower(problem("return torch.relu(torch.cat([x, x * 2], dim=1))"))
    assert len(kernels(text)) == 1
    assert "else {" in text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.aten)
def test_a_row_is_an_expression_of_its_arguments(row: Elementwise):
    assert re.search(r"\{\w+\}", row.c)
    for text in (row.c, row.whole, row.truth):
        assert text.count("(") == text.count(")")


def test_texts_of_places_are_as_short_as_can_be():
    assert plus("0", "i") == "i"
    assert times("i", "1") == "i"
    assert times("i + 1", "n") == "(i + 1) * n"
    assert flat(["i", "j"], ["a", "b"]) == "i * b + j"
    assert literal(float("-inf"), "float32") == "-INFINITY"
    assert literal(2, "float64") == "2.0"


def test_constants_that_nothing_reads_are_left_out():
    assert without_unused(["const int a = 1;", "const int b = a;", "out[i] = 2;"]) == [
        "out[i] = 2;"
    ]


def test_a_long_row_is_the_work_of_a_block():
    text = lower(problem("return x.flatten().sum()"))
    assert "__syncthreads();" in text
    assert "__syncthreads();" not in lower(problem("return x.sum(dim=1)"))


def test_kernels_that_differ_in_names_alone_are_one():
    init = "self.one = nn.Linear(48, 48)\nself.two = nn.Linear(48, 48)"
    text = lower(problem("return torch.relu(self.two(torch.relu(self.one(x))))", init))
    assert kernels(text) == ["linear_relu_kernel"]
    assert text.count("<<<") == 2


def test_a_long_network_has_one_kernel_for_layers_that_differ_in_numbers():
    layers = "self.net = nn.Sequential(*(nn.Linear(48 + n, 49 + n) for n in range(102)))"
    text = lower(problem("return self.net(x)", layers))
    assert len(kernels(text)) < 6
    assert text.count("launch_1(") == 102
    assert "const torch::Tensor& _" in text
    assert text.count("<<<") == 1
    assert "torch::Tensor p0" in text


def test_memory_is_shared_by_tensors_of_which_only_one_is_read_any_more():
    forward = "first = y = torch.softmax(x, 0)\nfor _ in range(20):\n    "
    forward += "y = torch.softmax(y * 2, 0)\nreturn torch.softmax(y + first, 0), y"
    host = lower(problem(forward)).split("forward(")[1].split("\n")
    memory: dict[str, str] = {}
    holds: dict[str, str] = {}
    for line in host:
        if made := re.search(r"auto&? (\w+) = (?:(\w+);|(?:torch::empty|make)\()", line):
            memory[made[1]] = memory.get(made[2], made[1])
            holds[memory[made[1]]] = made[1]
        elif "<<<" in line or "return" in line:
            for name in memory.keys() & set(re.findall(r"\w+", line)):
                assert holds[memory[name]] == name, line  # nothing has been written over it
    assert len(memory) > 20
    assert len(set(memory.values())) <= 4


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_layer_of_a_recurrent_net_is_one_launch_for_all_steps(kind: str):
    text = lower(problem("return self.net(x.unsqueeze(1))[0]", f"self.net = nn.{kind}(48, 8, 2)"))
    host = text.split("forward(")[1]
    assert host.count(f"recurrent_kernel<{kind}") == 2
    assert "for (" not in host
    assert "SCALAR" not in text


def test_a_recurrent_layer_with_a_projection_is_refused():
    with pytest.raises(UnreadableError, match=r"no kernel for lstm.input with projections \(line"):
        lower(problem("return self.net(x[None])[0]", "self.net = nn.LSTM(48, 8, proj_size=4)"))


def test_a_sorted_row_is_written_by_ranks():
    text = lower(problem("values, where = torch.sort(x, dim=1)\nreturn values, where"))
    assert kernels(text) == ["sort_kernel"]


def test_the_text_of_layers_that_read_all_before_them_grows_with_their_number():
    def text_of(layers: int) -> str:
        forward = f"parts = [x]\nfor _ in range({layers}):\n    "
        forward += "parts.append(torch.softmax(torch.cat(parts, 1), 0)[:, :8])\nreturn parts[-1]"
        return lower(problem(forward))

    four, eight, sixteen = (text_of(layers).count("\n") for layers in (4, 8, 16))
    assert sixteen - eight <= 2.2 * (eight - four)


def test_the_threads_of_a_block_are_no_argument():
    forward = "x = x.repeat(1, 16)\nfor _ in range(30): x = torch.softmax(x, 1) * x + x.sin()\n"
    text = lower(problem(forward + "return x"))
    assert "r += 256" in text
    assert "half = 128" in text


@pytest.mark.parametrize("said", ["scatter", "scatter_add"])
def test_what_an_index_writes_is_walked_over_once_a_line(said: str):
    text = lower(problem(f"return x.{said}(1, x.argsort(dim=1), torch.tanh(x))"))
    assert kernels(text)[-2:] == [f"{said}_copy_kernel", f"{said}_kernel"]
    assert "if (i >= x_0) return;" in text


def test_a_long_row_is_sorted_by_a_network():
    text = lower(problem("return torch.topk(x.flatten(), 3)[1]"))
    assert kernels(text)[:2] == ["sort_step_kernel", "topk_pairs_kernel"]
    assert "SCALAR" not in text


def test_a_thread_has_several_outputs_that_share_an_operand():
    text = lower(problem("return self.lin(x)", **LINEAR))
    assert "float sum[4];" in text
    assert text.count(" x[") == 1
    narrow = lower(problem("return self.lin(x)", "self.lin = nn.Linear(48, 3)"))
    assert "sum[4]" not in narrow


def test_a_row_of_a_quotient_of_an_axis_is_measured_at_whole_numbers():
    text = lower(problem("return F.max_pool1d(x.unsqueeze(0), 3).sum(dim=2)"))
    assert kernels(text)[-1] == "sum_kernel"


def test_the_channels_of_a_grouped_transposed_convolution_begin_at_its_group():
    init = "self.up = nn.ConvTranspose1d(4, 4, 4, stride=2, groups=2)"
    text = lower(problem("return self.up(x.reshape(-1, 4, 12))", init))
    assert re.search(r"\bfirst\b.*\+ c\b", text)


def test_a_root_of_a_size_is_no_whole_number():
    text = lower(
        problem("return x * self.scale", "self.scale = width ** -0.5", ", width", "features")
    )
    assert re.search(r"float size_1 = pow\(.*-0\.5\)", text)


@pytest.mark.parametrize("aligned", [True, False])
def test_an_image_is_read_between_its_elements(aligned: bool):
    size = f"size=(90, 70), mode='bilinear', align_corners={aligned}"
    text = lower(problem(f"return F.interpolate(x[None, None], {size}).relu()"))
    assert kernels(text) == ["upsample_bilinear2d_relu_kernel"]
    assert ("- 0.5f, 0.0f)" in text) is not aligned


def test_the_nearest_element_is_found_by_the_factor_that_is_given():
    text = lower(problem("return F.interpolate(x[None, None], scale_factor=1.5, mode='nearest')"))
    assert "1.0f / 1.5f" in text
    assert not re.search(r"float size_\d+ =", text)


def test_counts_of_known_length_are_added_in_any_order():
    text = lower(read(find_task("countmodc8")))
    assert "atomicAdd((unsigned long long*)&out[" in text
    assert "torch::empty({8}" in text

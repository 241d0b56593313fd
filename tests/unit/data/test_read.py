"""Modules as graphs: symbolic sizes, numbers that are sizes, and what has no graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.read import read
from coding_framework.data.registry import find_task
from coding_framework.errors import UnreadableError
from support.read_problems import LINEAR, PROBLEM, problem

pytestmark = pytest.mark.unit

PEOPLES = Path(__file__).parents[3] / "benchmarks/modules_people_use"


def test_arguments_are_inputs_then_parameters_by_the_modules_own_names():
    graph = problem("return torch.relu(self.lin(x))", **LINEAR)
    assert [a.name for a in graph.arguments] == ["x", "lin_weight", "lin_bias"]
    assert [n.op for n in graph.nodes] == ["linear.default", "relu.default"]
    assert graph.outputs == (graph.nodes[-1],)


def test_sizes_are_axes_of_the_arguments():
    graph = problem("return self.lin(x)", **LINEAR)
    shape = [str(size) for size in graph.outputs[0].type.shape]
    assert shape == ["x_0", "lin_weight_0"]
    assert {s.name: (s.argument, s.axis) for s in graph.symbols}["x_0"] == ("x", 0)


def test_axes_of_equal_length_are_not_one_size():
    init = "self.lin = nn.Linear(features, features)"
    graph = problem("return self.lin(x)", init, ", features", "features")
    assert [str(s) for s in graph.outputs[0].type.shape] == ["x_0", "lin_weight_0"]


def test_axes_that_are_equal_where_a_number_divides_are_not_one_size():
    graph = read(find_task(str(PEOPLES / "set3/grouped_query_attention_rope.py")))
    query = next(n for n in graph.nodes if n.op == "linear.default")
    assert str(query.type.shape[-1]) == "q_proj_weight_0"


GUARDED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        {constructor}
        self.heads, self.dim = heads, width // heads
        self.lin = nn.Linear(width, heads * self.dim, bias=False)

    def forward(self, x):
        {forward}
        return self.lin(x).view(x.shape[0], self.heads, self.dim).amax(1)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128, 8]
"""
REFUSES = "if {0} % {1}: raise ValueError('a head has no part of a column')"


@pytest.mark.parametrize(
    ("constructor", "forward"),
    [
        (REFUSES.format("width", "heads"), "pass"),
        ("pass", REFUSES.format("x.shape[1]", "self.heads")),
    ],
)
def test_a_module_that_takes_no_size_beside_its_own_is_read(constructor: str, forward: str):
    source = GUARDED.format(constructor=constructor, forward=forward)
    graph = read(problem_task(source, "own"))
    assert [n.op for n in graph.nodes][:1] == ["linear.default"]


def test_a_number_of_the_constructor_that_is_a_size_follows_the_axis():
    graph = problem(
        "return x / self.count", "self.count = float(features)", ", features", "features"
    )
    (divided,) = graph.nodes
    assert str(divided["other"]).replace("1.0*", "") == "x_1"


def test_a_number_that_no_axis_has_is_asked_of_the_constructors():
    source = PROBLEM.format(
        parameters=", width", init="        self.width = width",
        forward="        return x[:, :1].expand(-1, self.width) * 1.5", arguments="outputs",
    )  # fmt: skip
    graph = read(problem_task(source, "own"))
    (symbol,) = (s for s in graph.symbols if s.axis == -1)
    assert str(graph.outputs[0].type.shape[1]) == symbol.name
    assert dict(graph.scalars)[symbol.name] == "int"


def test_arguments_of_operations_stand_under_the_names_of_their_schema():
    graph = problem("return F.leaky_relu(x, 0.2)")
    (node,) = graph.nodes
    assert node["negative_slope"] == 0.2
    assert node["self"] is graph.arguments[0]


def test_a_node_knows_the_line_of_the_module():
    graph = problem("y = x * 2\nreturn torch.tanh(y)")
    assert graph.nodes[-1].line.endswith("return torch.tanh(y)")


def test_what_no_output_depends_on_is_left_out():
    graph = problem("unused = torch.exp(x)\nreturn x + 1")
    assert [n.base for n in graph.nodes] == ["add"]


def test_a_literal_tensor_is_a_constant():
    graph = problem("return x + torch.tensor([1.0, 2.0]).sum()")
    assert (1.0, 2.0) in graph.constants.values()


def test_a_small_tensor_outside_parameters_and_buffers_is_a_constant():
    graph = problem("return x * self.scale", "self.scale = torch.arange(4.0).mean()")
    assert list(graph.constants.values()) == [(1.5,)]


def test_a_tensor_outside_parameters_and_buffers_that_depends_on_sizes_is_computed():
    graph = problem(
        "return x * self.scale", "self.scale = torch.arange(float(features))",
        ", features", "features",
    )  # fmt: skip
    assert [n.base for n in graph.nodes] == ["arange", "mul"]
    assert str(graph.nodes[0].type.shape[0]) == "x_1"


def test_writes_into_tensors_are_none_in_the_graph():
    graph = problem("y = torch.zeros_like(x)\ny[:, 1:] = x[:, :-1]\nreturn y.relu_()")
    assert not any(n.base.endswith("_") for n in graph.nodes)
    assert graph.outputs[0].base == "relu"


def test_copies_are_the_tensor():
    graph = problem("return x.clone().contiguous() + 1")
    assert [n.base for n in graph.nodes] == ["add"]


def test_a_slice_that_is_all_of_an_axis_at_one_size_is_a_slice_at_each():
    graph = problem("return x + torch.ones(48)[: x.size(1)]")
    assert [n.base for n in graph.nodes] == ["full", "slice", "add"]
    assert str(graph.nodes[1].type.shape[0]) == "x_1"


@pytest.mark.parametrize(
    ("said", "init"),
    [
        ("1.0 - 0.001 * n", "n"), ("1.0 - 0.9 ** n", "n"), ("n ** -0.8", "n"),
        ("(n * 2.0) ** 0.5", "n"),
    ],
)  # fmt: skip
def test_a_number_made_of_a_size_is_found(said: str, init: str):
    graph = problem("return x * self.by", f"self.by = {said}", f", {init}", "features")
    (by,) = (n["other"] for n in graph.nodes)
    assert [str(s) for s in by.free_symbols] == ["x_1"]


def test_a_loop_over_an_axis_is_refused_in_one_sentence():
    with pytest.raises(UnreadableError, match="different sizes"):
        problem("for row in range(x.size(0)):\n    x = x * 1.01\nreturn x")


def test_a_number_is_looked_up_at_every_shape_set():
    init = "self.pad = {48: 3, 47: 2}.get(features, 2)"
    with pytest.raises(UnreadableError, match="follows from no axis"):
        problem("return F.pad(x, (self.pad, 0))", init, ", features", "features")


def test_what_a_tensor_held_before_it_was_written_is_not_read():
    graph = problem(
        "self.state.copy_(x.sum(dim=0))\nself.state = torch.tanh(self.state)\nreturn self.state",
        "self.state = torch.randn(features)",
    )
    assert [n.op for n in graph.nodes] == ["sum.dim_IntList", "tanh.default"]


def test_a_form_is_chosen_by_the_sizes_of_a_gpu():
    task = find_task("m1_conv2d_eed3d4")
    given = dict(zip("nchw", task.gpu_cases[0].inputs[0].shape, strict=True))
    sizes = read(task).sizes
    assert [sizes[f"x_{axis}"] for axis in range(4)] == list(given.values())
    assert sizes["weight_0"] == task.gpu_cases[0].init_args[1]


def test_a_form_is_chosen_by_a_gpus_main_sizes_where_they_are_the_first_ones():
    assert problem("return x", **LINEAR).sizes["x_0"] == 64


@pytest.mark.parametrize("by_numbers", [False, True])
def test_an_if_on_a_size_is_refused_with_its_line(by_numbers: bool):
    """Read with symbols, and with numbers, where the constructor's is a size."""
    source = PROBLEM.format(
        parameters=", features", arguments="features",
        init="        self.scale = nn.Parameter(torch.ones(features if "
        f"{by_numbers} else 1))",
        forward="        return x * 2 if x.shape[0] > 40 else x + self.scale",
    )  # fmt: skip
    task = problem_task(source, "own")
    last = task.cases[-1]
    assert last.inputs[0].shape[0] < 40
    more = [
        last.model_copy(
            update={"inputs": (last.inputs[0].with_shape((rows, 24)),), "init_args": (24,)}
        )
        for rows in (48, 56)
    ]
    with pytest.raises(UnreadableError, match=r"different sizes \(line \d+: return x \* 2 if"):
        read(task.model_copy(update={"cases": (*task.cases, *more)}))

"""The levels of kernels that the compiler writes for a graph: which there are, and their forms."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.lower.naive import lower
from coding_framework.data.lower.schedule import levels
from coding_framework.data.read import read
from coding_framework.reference_model import in_tf32
from support.read_problems import CONVOLUTION, problem

pytestmark = pytest.mark.unit


def made(forward: str, init: str = "pass") -> dict[str, str]:
    """Level -> kernel file."""
    return {kernel.level: kernel.code for kernel in levels(problem(forward, init))}


def test_the_first_level_is_the_naive_kernel_and_the_others_have_a_reason():
    graph = problem("return torch.softmax(x, dim=1)")
    naive, *faster = levels(graph)
    assert (naive.level, naive.code, naive.why_faster) == ("naive", lower(graph), "")
    assert [kernel.level for kernel in faster] == ["shared", "shuffle"]
    assert all(kernel.why_faster and "\n" not in kernel.why_faster for kernel in faster)


def test_a_map_takes_four_neighbours_a_thread():
    kernels = made("return torch.relu(x * 2)")
    assert list(kernels) == ["naive", "vectorized"]
    assert "load_four(x, first, x_0 * x_1)" in kernels["vectorized"]
    assert "if (++" not in kernels["vectorized"], "no coordinate is needed"


def test_coordinates_are_carried_from_one_neighbour_to_the_next():
    kernels = made("return x - self.bias", "self.bias = nn.Parameter(torch.randn(features))")
    assert "if (++i1 == 48) i1 = 0;" in kernels["vectorized"]
    rows = made("return x - self.bias", "self.bias = nn.Parameter(torch.randn(rows, 1))")
    assert re.search(r"if \(\+\+i1 == \w+\) \{ i1 = 0; i0\+\+; \}", rows["vectorized"])


def test_what_lies_across_goes_through_a_tile():
    kernels = made("return torch.exp(x).t().contiguous()")
    assert list(kernels) == ["naive", "shared"]
    assert "tile[q][threadIdx.x] = x[i1 * x_1 + i0];" in kernels["shared"]


def test_what_is_read_under_a_condition_is_not_read_for_a_tile():
    assert list(made("return torch.cat([x.t(), x.t()], 0)")) == ["naive"]


def test_rows_whose_neighbours_lie_in_memory_are_columns():
    kernels = made("return torch.sum(x, dim=0)")
    assert list(kernels) == ["naive", "shared"]
    assert "dim3(32, 16)" in kernels["shared"]


def test_one_result_is_joined_by_a_second_kernel():
    kernels = made("return (x * x).mean()")
    assert kernels["shuffle"].count("__global__") == 2
    assert "atomicAdd" not in kernels["shuffle"], "the order of a sum is always the same"


def test_an_extreme_whose_place_nobody_reads_is_a_reduction():
    kernels = made("return torch.max(x, dim=1).values")
    assert "__shfl_xor_sync" in kernels["shuffle"]
    assert "at" in made("return torch.max(x, dim=1).indices")["naive"]


def test_a_scan_along_the_last_axis_is_a_warps():
    assert list(made("return torch.cumsum(x, dim=1)")) == ["naive", "shuffle"]
    assert list(made("return torch.cumsum(x, dim=0)")) == ["naive"]


def test_a_product_is_told_along_which_index_neighbours_lie():
    kernels = made("return self.layer(x)", "self.layer = nn.Linear(features, outputs)")
    assert list(kernels) == ["naive", "shared", "registers", "tensor cores"]
    assert "product_by_registers<float, true, true>" in kernels["registers"]
    turned = made("return x.t() @ x")
    assert "product_by_registers<float, false, false>" in turned["registers"]


def test_what_comes_before_and_behind_a_product_is_in_its_kernel():
    kernels = made("return torch.relu((x * 2) @ x.t())")
    assert kernels["shared"].count("__global__") == 1


def test_tensor_cores_copy_factors_from_memory_and_are_told_what_lies_together():
    kernels = made("return torch.relu(self.layer(x * 2))", "self.layer = nn.Linear(features, 48)")
    code = kernels["tensor cores"]
    assert code.count("__global__") == 2, "what is before the product is put in memory"
    assert "product_on_tensor_cores<2, 64, 64, 32, true, true>" in code
    assert "48 % 4 == 0 && (size_t)mul % 16 == 0, 48 % 4 == 0 && (size_t)layer_weight % 16" in code
    assert "-> const float* {\n      return &mul[row * 48 + k];" in code


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("nn.Conv2d(c, m, 3)", "<2, 64, 64, 32, true, false>"),
        ("nn.Conv2d(c, m, 3, padding=1, stride=2, groups=2)", "if (!(y >= 0"),
        ("nn.ConvTranspose2d(c, m, 3, stride=2)", "y % 2 == 0 &&"),
        ("nn.Conv2d(c, m, 1)", "x_2 * x_3 % 4 == 0 && (size_t)x % 16"),
    ],
)
def test_a_convolution_is_a_product_of_its_weights_and_windows(layer: str, said: str):
    graph = read(problem_task(CONVOLUTION.format(layer=layer), "own"))
    kernels = {kernel.level: kernel.code for kernel in levels(graph)}
    assert said in kernels["tensor cores"]
    assert "(size_t)layer_weight % 16" in kernels["tensor cores"]


@pytest.mark.parametrize(
    ("size", "tile"), [(512, "64, 64, 32"), (1400, "128, 128, 64"), (8192, "256, 128, 64")]
)
def test_in_tf32_a_larger_product_is_made_by_larger_tiles(size: int, tile: str):
    graph = replace(problem("return x @ x.t()"), tf32=True)
    graph = replace(graph, sizes=dict.fromkeys(graph.sizes, size))
    kernels = {kernel.level: kernel.code for kernel in levels(graph)}
    assert f"product_on_tensor_cores<1, {tile}, true, true>" in kernels["tensor cores"]


def test_a_module_that_asks_pytorch_for_tf32_gets_products_in_it():
    source = CONVOLUTION.format(layer="nn.Conv2d(c, m, 1)")
    assert not read(problem_task(source, "own")).tf32
    assert read(problem_task(in_tf32(source), "own")).tf32


def test_a_product_of_few_terms_is_made_by_threads_and_one_of_doubles_by_fmas():
    few = made("return x[:, :12] @ x[:, :12].t()")
    assert list(few) == ["naive"]
    assert "tensor cores" not in made("return (x.double() @ x.double().t())")


def test_each_level_has_what_the_one_before_it_has():
    kernels = made("return torch.softmax(torch.tanh(x) @ x.t(), dim=1), torch.relu(x)")
    assert list(kernels) == [
        "naive", "vectorized", "shared", "shuffle", "registers", "tensor cores",
    ]  # fmt: skip
    parts = ("load_four", "product_on_tensor_cores", "__shfl_xor_sync")
    assert all(part in kernels["tensor cores"] for part in parts)


def test_a_long_row_is_a_blocks_at_every_level_and_a_wide_ones_where_it_is_walked_again():
    kernels = made("return torch.softmax(x.reshape(-1), 0)")
    assert list(kernels) == ["naive", "shuffle", "wide"]
    assert "r += 512" in kernels["wide"]

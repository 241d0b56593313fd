"""Graphs of one loop or move (`data/graphs/singles`) and their parts."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from coding_framework.data.graphs.pieces import pieces_of
from coding_framework.data.graphs.singles.drawn import draw_single

pytestmark = pytest.mark.unit
OF_THE_FIRST = 600


def test_a_number_is_the_same_single_everywhere() -> None:
    for number in range(20):
        one, other = draw_single(number), draw_single(number)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.ops == other.ops
            assert [s.values for s in one.sizes.values()] == [
                s.values for s in other.sizes.values()
            ]


def test_singles_have_what_no_step_of_the_grammar_gives() -> None:
    drawn = [draw_single(number) for number in range(OF_THE_FIRST)]
    found = Counter(op for one in drawn if one is not None for op in one.ops)
    assert {"masked_fill", "linear", "batch_norm", "pad", "repeat", "roll", "one_hot"} <= {*found}
    assert {"einsum", "scatter_reduce", "index_add", "std", "trunc", "max_pool2d"} <= {*found}
    ranks = {len(one.inputs[0].dims) for one in drawn if one is not None}
    assert ranks == {0, 1, 2, 3, 4, 5}
    assert sum(one is None for one in drawn) < OF_THE_FIRST / 20


def test_most_singles_are_one_part_with_a_kernel() -> None:
    names = [task.name for n in range(30) for task, _ in pieces_of(n)]
    assert len([name for name in names if name.startswith("single")]) >= 48


def test_a_number_that_the_module_is_given_is_an_argument_of_the_kernel() -> None:
    found = {
        task.reference: kernel.code
        for n in range(60)
        for task, kernel in pieces_of(n)
        if "self.n" in kernel.code and len({case.init_args for case in task.cases}) > 1
    }
    told = {code for code in found.values() if re.search(r"(double|int64_t) n\) \{", code)}
    assert told
    assert all(", float n) {" in code or ".size(" in code for code in told)
    assert all("<q>" not in code for code in found.values())


@pytest.fixture(scope="module")
def kernels() -> dict[str, str]:
    """Of the singles of the first numbers: what PyTorch says -> their kernels."""
    return {
        task.reference[task.reference.index("def forward") :]: kernel.code
        for n in range(120)
        for task, kernel in pieces_of(n)
        if task.name.startswith(("single", "typed"))
    }


def test_products_are_made_in_tiles_and_few_results_by_many_blocks(kernels: dict[str, str]) -> None:
    tiled = [code for code in kernels.values() if "__shared__ float left[16][65]" in code]
    shared = [code for code in kernels.values() if "finish1<<<" in code]
    assert len(tiled) >= 6
    assert all("for (int k" not in code for code in tiled), "k may be a size"
    assert len(shared) >= 4
    assert all(code.count("__global__") >= 2 for code in shared)


def test_rows_are_added_by_atomics_to_zeros_or_to_their_own(kernels: dict[str, str]) -> None:
    added = {said: code for said, code in kernels.items() if "atomicAdd" in code}
    assert {"torch::zeros" in code for code in added.values()} == {True, False}
    for said, code in added.items():
        assert ("torch::zeros" in code) == ("zeros_like" in said), said


def test_booleans_and_lists_of_places_are_read_as_such(kernels: dict[str, str]) -> None:
    assert any("const bool*" in code for code in kernels.values())
    rows = [code for said, code in kernels.items() if "torch.arange(self.n)" in said]
    assert any("data_ptr<int64_t>()" in code for code in rows)


def test_a_row_is_read_by_a_warp_or_by_a_block(kernels: dict[str, str]) -> None:
    rows = [code for said, code in kernels.items() if re.search(r"softmax\(\w+, dim=-1\)", said)]
    assert rows
    assert all("float warp_sum(" in code or "float block_sum(" in code for code in rows)
    assert any("r = threadIdx.x % 32; r < n1; r += 32" in code for code in kernels.values())


def test_a_piece_has_no_name_of_the_graph_that_it_was_cut_from() -> None:
    """A softmax behind a product whose text has the root that both are divided by."""
    for number in (188, 194):
        for task, kernel in pieces_of(number):
            if "softmax" in task.reference:
                assert not re.search(r"rsqrtf\(\(float\)\(?d\b", kernel.code), task.name


def test_the_longest_loop_of_a_piece_is_told() -> None:
    (mean,) = (task for task, _ in pieces_of(7) if "mean" in task.reference)
    assert len({case.reduction_length for case in (*mean.cases, *mean.gpu_cases)}) > 2


def test_booleans_and_whole_numbers_are_made_as_such(kernels: dict[str, str]) -> None:
    """As `cuda-rl solve --parts` asks for them in its second round; a float there is wrong."""
    booleans = [said for said, code in kernels.items() if "bool* o" in code]
    whole = [said for said, code in kernels.items() if "int64_t* o" in code]
    assert len(booleans) >= 12
    assert len(whole) >= 6
    assert all("dtype(torch::kBool)" in kernels[said] for said in booleans)
    assert all("dtype(torch::kLong)" in kernels[said] for said in whole)
    assert any(" & " in said for said in booleans)

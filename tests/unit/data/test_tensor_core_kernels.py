"""The templates of fast products and convolutions: what they write, and what they refuse."""

from __future__ import annotations

import re

import pytest

from coding_framework.data.modules.catalog import find_module
from coding_framework.data.modules.examples import module_kernels
from coding_framework.data.modules.kernels import convolutions, kernels_of
from coding_framework.data.modules.kernels.convolutions import Convolution
from coding_framework.data.modules.kernels.products import Product
from coding_framework.data.modules.kernels.tensor_cores import Tile
from coding_framework.data.modules.records import op
from coding_framework.data.modules.tensor_families import product_draft
from support.whole_kernels import convolution, tensor, tiles

pytestmark = pytest.mark.unit


def test_a_product_of_batches_is_not_split() -> None:
    with pytest.raises(ValueError, match="not split"):
        tensor(Product(batched=True), split=True)


@pytest.mark.parametrize("turned", [False, True])
def test_more_taps_than_bits_are_refused(turned: bool) -> None:
    with pytest.raises(ValueError, match="121 taps"):
        convolution(Convolution((11, 11), transposed=turned))


def test_steps_on_an_output_stand_in_the_kernel_that_has_it() -> None:
    product = Product(post=("a += b[q];",), extra=("b",))
    for source in (tensor(product), tensor(product, split=True), tiles(product)):
        assert source.count("a += b[q];") == 1
        assert "torch::Tensor b" in source
    assert "a += b[q];" in tensor(product, split=True).split("void finish")[1]


def test_each_tap_of_a_transposed_convolution_reaches_one_residue() -> None:
    source = convolution(Convolution((3, 5), (2, 3), (1, 0), (1, 2), transposed=True))
    condition = re.search(r"if \((.*)\) o\.tap\[n\+\+\] = d;", source)
    assert condition is not None
    said = condition[1].replace("/", "//").replace("&&", "and")
    reached = [[d for d in range(15) if eval(said, {"phase": p, "d": d})] for p in range(6)]
    assert sorted(tap for taps in reached for tap in taps) == list(range(15))
    for phase, taps in enumerate(reached):
        for tap in taps:  # an output at this residue less the tap's reach is a place of the input
            assert (phase // 3 + 1 - tap // 5) % 2 == 0
            assert (phase % 3 - tap % 5 * 2) % 3 == 0


def test_no_number_in_a_transposed_convolution_depends_on_the_order_of_its_taps() -> None:
    one, other = (
        convolution(Convolution((k, 3), (2, 1), (1, 1), (1, 1), transposed=True)) for k in (4, 5)
    )
    one, other = (source.split("torch::Tensor forward")[0] for source in (one, other))
    assert re.sub(r"\b4 \* 3\b", "5 * 3", one) == other


def test_a_tile_fits_a_multiprocessor() -> None:
    for tile in (Tile(), Tile(64, 64, 32), convolutions.tile_of(64), convolutions.tile_of(128)):
        assert tile.shared_bytes <= 227 << 10
        assert 4 * tile.rows * (tile.columns + 4) <= tile.shared_bytes
    assert convolutions.tile_of(64).rows == 64
    assert convolutions.tile_of(131).rows == 64
    assert convolutions.tile_of(128).rows == 128


def test_a_linear_layer_has_levels_from_naive_to_fastest_and_its_epilogue_in_the_last_kernel() -> (
    None
):
    module = find_module("m2_linear_subtract_bias_add_head_abs_subtract_bias_8e87be")
    assert module is not None
    naive, fma, short, long = kernels_of(module)
    assert [naive.level, fma.level, short.level, long.level] == [0, 1, 3, 4]
    assert all(variant.reason for variant in (fma, short, long))
    assert "mma.sync" in short.source
    assert "mma.sync" in long.source
    assert len(short.source) < 0.6 * len(long.source)
    assert all(variant.source.count("fabsf(v)") == 1 for variant in (short, long))


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (True, False), (False, True)])
def test_the_kernels_of_a_product_are_the_same_for_all_ranks(ta: bool, tb: bool) -> None:
    """A policy that was shown one text for two matrices and another for batches took one for the
    other."""
    made = [module_kernels(product_draft(rank, ta, tb, op("relu")))[1] for rank in (2, 3, 4)]
    for of_each in zip(*made, strict=True):
        assert len({kernel.level for kernel in of_each}) == 1
        if of_each[0].level != "naive":
            kernels = {k.code.partition("torch::Tensor forward")[0] for k in of_each}
            assert len(kernels) == 1, of_each[0].level

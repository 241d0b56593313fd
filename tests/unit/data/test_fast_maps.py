"""Kernels of elementwise functions, moves, scans, losses and axes that are not the last."""

from __future__ import annotations

import pytest

from coding_framework.data.modules import catalog
from coding_framework.data.modules.catalog import find_module
from coding_framework.data.modules.kernels import MOST_CHARACTERS, kernels_of
from coding_framework.data.modules.records import KernelVariant, ModuleDraft
from coding_framework.data.modules.writing import write_module

pytestmark = pytest.mark.unit
TEACHABLE = 1_400
"""Characters of some 600 tokens."""


def variants(draft: ModuleDraft) -> dict[int, KernelVariant]:
    return {variant.level: variant for variant in kernels_of(write_module(draft))}


def source(name: str, level: int = 2) -> str:
    module = find_module(name)
    assert module is not None
    return {v.level: v.source for v in kernels_of(module)}[level]


def of_family(*families: str) -> list[ModuleDraft]:
    return [draft for draft in catalog.all_drafts() if draft.family in families]


def test_every_activation_is_read_and_written_16_bytes_at_a_time_and_is_short() -> None:
    for draft in of_family("activation"):
        fast = variants(draft)[2]
        assert "*(float4*)(o + i) = make_float4(apply(" in fast.source
        assert "o[i] = apply(" in fast.source  # what is left where 4 does not divide the number
        assert len(fast.source) <= TEACHABLE, draft.name
        assert "16 bytes" in fast.reason


def test_a_slope_for_each_channel_is_read_once_for_four_elements_of_the_channel() -> None:
    text = source("m1_prelu_c0dca4")
    assert "inner % 4 == 0 && i + 3 < count" in text
    assert "float slope = " in text


@pytest.mark.parametrize(
    "family", ["move", "padding", "permutation", "resampling", "gate", "regression_loss"]
)
def test_moves_and_losses_are_short(family: str) -> None:
    for draft in of_family(family):
        found = variants(draft)
        assert 2 in found, draft.name
        assert len(found[2].source) <= 2_400, draft.name


def test_a_permutation_that_moves_the_last_axis_goes_through_tiles() -> None:
    assert "tile[32][33]" in source("m1_permute_01a58c")
    assert "tile[" not in source("m1_permute_88ee57")


def test_axes_that_a_move_leaves_as_they_are_count_as_one() -> None:
    module = next(d for d in of_family("move") if d.rank == 4 and "axes=(3,)" in d.key)
    text = variants(module)[2].source
    assert "int i1 = i % w;" in text
    assert "i2" not in text


def test_a_move_that_leaves_the_last_axis_goes_by_16_bytes() -> None:
    for name in ("m1_permute_88ee57", "m1_flip_444069", "m1_roll_c47302"):
        assert "*(float4*)(o + i) = *(const float4*)(x + place(i" in source(name)


def test_groups_along_an_axis_that_is_not_the_last_have_neighbours_in_a_warp() -> None:
    text = source("m1_normalize_44db47")
    assert "x[t * f + g]" in text
    assert "int g = blockIdx.x * 32 + threadIdx.x;" in text
    assert "dim3(32, 32)" in text
    assert "t < end; t += 32" in text  # a step that the compiler knows, so that it unrolls the loop
    assert "__restrict__ o" in text


def test_few_long_columns_are_shared_out_to_many_blocks() -> None:
    split = [d for d in of_family("sum_reduction", "norm_reduction") if 2 in variants(d)]
    texts = [variants(d)[2].source for d in split]
    assert any("blockIdx.y * 256 + threadIdx.y" in text for text in texts)


def test_losses_of_rows_read_neighbours() -> None:
    for draft in of_family("classification_loss"):
        if draft.operations[0].name in ("cross_entropy", "multi_margin_loss"):
            text = variants(draft)[2].source
            assert "x[g * f + t]" in text
            assert len(text) <= MOST_CHARACTERS


def test_every_scan_has_a_faster_kernel_than_a_thread_for_each_line() -> None:
    for draft in of_family("scan"):
        text = variants(draft)[2].source
        axis = draft.operations[0].number("axis")
        assert ("warp_scan" if axis == draft.rank - 1 else "totals[32][32]") in text


def test_a_pointwise_convolution_is_a_product_with_copies_of_16_bytes() -> None:
    for draft in of_family("pointwise_convolution"):
        found = variants(draft)
        if 3 not in found:
            continue
        as_product = "x += blockIdx.z * k * n" in found[3].source
        assert as_product == (set(draft.operations[0].integers("stride")) == {1}), draft.name


def test_a_gate_and_its_value_are_read_16_bytes_at_a_time() -> None:
    for draft in of_family("gate"):
        assert (
            "float4 v = *(const float4*)p, gate = *(const float4*)(p + "
            in variants(draft)[2].source
        )


def test_an_element_that_is_upsampled_is_read_once() -> None:
    found = [d for d in of_family("resampling") if d.operations[0].name == "upsample_nearest"]
    for draft in found:
        text = variants(draft)[2].source
        assert text.count("x[i]") == 1
        wide = {2: "float2", 3: "s < 3", 4: "float4"}
        assert wide[draft.operations[0].number("factor")] in text


def test_a_large_window_of_an_adaptive_pooling_is_shared() -> None:
    texts = [variants(d)[2].source for d in of_family("adaptive_pooling") if 2 in variants(d)]
    assert any("t += 32" in text for text in texts)
    assert any("block_sum(v)" in text for text in texts)


def test_places_of_extrema_and_embeddings_have_a_faster_kernel() -> None:
    assert any(2 in variants(draft) for draft in of_family("arg_reduction"))
    assert all("float4" in variants(draft)[2].source for draft in of_family("embedding"))

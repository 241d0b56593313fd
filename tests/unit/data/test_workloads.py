"""Workloads: names, sources, kernels, domains, splits."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from coding_framework.data.audit import function_values
from coding_framework.data.held_out_shapes import move_extent, with_held_out_shapes
from coding_framework.data.kernels import kernels_of
from coding_framework.data.registry import find_task
from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.catalog import (
    WORKLOADS,
    all_functions,
    build_task,
    family_names,
    family_of,
    parse_function,
    split_of,
    workload_catalog,
)
from coding_framework.data.synthesis.function import Function, count
from coding_framework.types import Split

pytestmark = pytest.mark.unit


def _one_of_each_operation() -> list[Function]:
    """A plain and a composed workload of every operation."""
    plain = {w.core.name: w for w in workload_catalog() if not w.before and not w.after}
    composed = {w.core.name: w for w in workload_catalog() if w.before or w.after}
    return [*plain.values(), *composed.values()]


def _workload(name: str) -> Function:
    found = parse_function(name)
    assert found is not None, name
    return found


def test_there_are_45_families_over_four_tiers_and_2000_tasks() -> None:
    assert len(family_names()) >= 45
    tiers = Counter(family_of(f).tier for f in all_functions())
    assert sum(tiers.values()) >= 2000
    assert all(tiers[tier] >= 350 for tier in range(4))
    names = [f.name for f in all_functions()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("said", "number"), [("1", 1), ("m", 6), ("ckk", 36), ("w+m", 14), ("mwc/k", 64), ("w/2", 4)]
)
def test_extents_are_said_by_letters(said: str, number: int) -> None:
    assert count(said, {"m": 6, "c": 4, "k": 3, "w": 8}) == number


def test_every_name_parses_back() -> None:
    for workload in workload_catalog():
        assert parse_function(workload.name) == workload


@pytest.mark.parametrize(
    "name",
    [
        "conv2dk4",  # even windows move the extent
        "maxpool2dk3",  # a parameter is missing
        "maxpool2dk2s3",  # would skip places
        "softmax_f16",  # programs are float32
        "conv2dk3_f16",
        "relu_argmax",
        "argmax_relu",
        "conv2dk3_conv2dk3",
        "conv2dk3_relu_relu",
        "conv2dk03",
        "log_conv2dk3_log",  # the sum may be negative
    ],
)
def test_malformed_or_undefined_workloads_have_no_name(name: str) -> None:
    assert parse_function(name) is None


def test_the_pytorch_source_of_every_operation_runs_and_is_finite() -> None:
    seen = {w.core.name for w in _one_of_each_operation()}
    assert seen == {core.name for family in WORKLOADS for core in family.cores}
    for workload in _one_of_each_operation():
        *_, values = function_values(workload)
        assert values, workload.name
        assert all(math.isfinite(v) for v in values), workload.name


def test_steps_before_and_after_are_in_the_source_in_their_order() -> None:
    source = build_task(_workload("mul2_conv2dk3_relu_add1")).reference
    steps = ["x = x * 2.0", "x = F.conv2d(x, u, padding=3 // 2)", "torch.relu(x)", "x + 1.0"]
    assert [source.index(step) for step in steps] == sorted(source.index(step) for step in steps)


def test_every_family_has_a_naive_kernel_and_says_why_others_are_faster() -> None:
    first = {family_of(w).name: w for w in reversed(_one_of_each_operation())}
    for workload in list(first.values())[::11]:
        naive, *better = kernels_of(build_task(workload))
        assert naive.level == "naive"
        assert all(k.why_faster and "\n" not in k.why_faster for k in better)
        assert "<<<dim3(" not in "".join(k.code for k in (naive, *better)), "65,535 blocks along y"


def test_three_shape_sets_for_the_emulator_and_for_a_gpu() -> None:
    for workload in _one_of_each_operation():
        task = build_task(workload)
        for cases in (task.cases, task.gpu_cases):
            assert [c.shown for c in cases] == [True, False, False]
        assert max(math.prod(t.shape) for t in task.cases[0].inputs) <= 1 << 18
        domains = [(t.low, t.high) for t in task.cases[0].inputs]
        assert all(low is not None and high is not None for low, high in domains)


def test_gpu_shapes_move_64_mib_where_the_operation_allows() -> None:
    """Products and convolutions are bound by arithmetic, histograms and argmax write little."""
    small = set()
    for workload in _one_of_each_operation():
        task = build_task(workload)
        width = {"float16": 2, "bfloat16": 2, "int64": 8}
        moved = sum(width.get(t.dtype, 4) * math.prod(t.shape) for t in task.gpu_cases[0].inputs)
        if moved < 64 << 20:
            small.add(task.family)
    arithmetic = {"batched_matmul", "matmul_transposed", "attention_scores", "attention",
                  "gated_linear", "conv_1d", "conv_2d", "conv_block"}  # fmt: skip
    assert small <= arithmetic


def test_a_held_out_family_is_held_out_whole_and_others_have_both_sides() -> None:
    sides: dict[str, set[Split]] = {}
    for function in workload_catalog():
        sides.setdefault(family_of(function).name, set()).add(split_of(function))
    for family in WORKLOADS:
        if family.held_out:
            assert sides[family.name] == {Split.HELD_OUT}
        else:
            assert Split.TRAIN in sides[family.name], family.name
    assert {f.tier for f in WORKLOADS if f.held_out} == {1, 2, 3}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mul2_conv2dk3", "conv2dk3_mul3"),
        ("maxpool2dk3s2_exp", "exp_maxpool2dk2s2"),
        ("matvec", "mulrow_rowsum"),
        ("dot", "mul_rowsum"),
        ("euclid", "sub_rownorm"),
        ("mul2_instancenorm", "instancenorm"),
        ("gatherrows_relu", "relu_gatherrows"),
        ("bmmshared_relu", "matmul_relu"),
        ("relu_elementwise_f16", "relu"),
        ("softplusbackward", "sigmoid_mul"),
    ],
)
def test_equal_functions_are_on_the_same_side(one: str, other: str) -> None:
    first, second = parse_function(one), parse_function(other)
    assert first is not None
    assert second is not None
    assert canonical_key(first) == canonical_key(second)
    assert split_of(first) is split_of(second)


def test_held_out_shapes_fit_together_and_are_none_of_training() -> None:
    for workload in (*_one_of_each_operation(), parse_function("relu"), parse_function("allmean"),
                     parse_function("matmul_addrow"), parse_function("addcol_rowsum")):  # fmt: skip
        assert workload is not None
        task = build_task(workload)
        moved = with_held_out_shapes(task)
        assert moved.split is Split.HELD_OUT
        shapes = {t.shape for c in task.cases for t in c.inputs if math.prod(t.shape) > 1}
        assert not {moved.cases[0].inputs[0].shape} & shapes
        namespace: dict[str, type[torch.nn.Module]] = {}
        exec(moved.reference, namespace)
        model = namespace["Model"]()
        if "bincount" not in moved.reference:  # whose extent depends on values
            for case in moved.gpu_cases[:2]:
                model(*(torch.empty(t.shape, dtype=getattr(torch, t.dtype), device="meta")
                        for t in case.inputs))  # fmt: skip
        model(
            *(
                torch.zeros(t.shape, dtype=getattr(torch, t.dtype)) + int(t.high or 0) // 2
                for t in moved.cases[-1].inputs
            )
        )


def test_extents_move_away_from_every_shape_of_training() -> None:
    assert [move_extent(e) for e in (1, 3, 16, 48, 192, 512)] == [1, 6, 32, 38, 146, 386]
    assert find_task("relu@shapes").cases[0].inputs[0].shape == (98, 386)


def test_no_two_workloads_of_the_catalogue_compute_the_same() -> None:
    values = Counter(function_values(w) for w in workload_catalog())
    assert max(values.values()) == 1

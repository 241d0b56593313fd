"""The algebra of synthesised tasks: names, functions, domains, the split."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from coding_framework.data import audit
from coding_framework.data.audit import audit_split
from coding_framework.data.kernels import kernels_of, write_all
from coding_framework.data.lower.naive import lower
from coding_framework.data.ops.elementwise import ELEMENTWISE, Drawn, Elementwise
from coding_framework.data.read import read
from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.catalog import (
    PROGRAMS,
    build_task,
    catalog,
    family_of,
    parse_function,
    primitives,
    split_of,
)
from coding_framework.data.synthesis.function import (
    Function,
    as_operand,
    fingerprint,
    sample_input,
)
from coding_framework.data.synthesis.steps import Interval, Step, ops_of, plain_steps
from coding_framework.types import Split
from support.read_problems import problem

pytestmark = pytest.mark.unit


def _program(name: str) -> Function:
    program = parse_function(name)
    assert program is not None, name
    return program


def test_every_name_in_the_catalogue_parses_back_to_its_program() -> None:
    for program in catalog():
        assert parse_function(program.name) == program


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nosuchop",
        "relu_relu",
        "square_relu",  # never cuts
        "neg_abs",
        "exp_log",
        "sqrt_clampm1to1",  # never cuts below
        "rowsum_rowmax",
        "mul2_mul3",
        "addrow_mulrow_subrow",  # a third row vector has no name
        "rowsum_addrow",
        "addrow_matmul",
        "allmean_relu",
        "mul2.0",
        "mul02",
    ],
)
def test_pointless_or_malformed_names_are_no_programs(name: str) -> None:
    assert parse_function(name) is None


@pytest.mark.parametrize(
    "name",
    ["max_relu_rowmin", "hardtanh_rowmax", "cummax_hardtanh", "log_colmax_hardtanh", "relu_rowmin"],
)
def test_a_function_whose_answer_hardly_varies_is_no_program(name: str) -> None:
    assert parse_function(name) is None


@pytest.mark.parametrize("name", ["max_rowmin", "relu_rowmax", "hardtanh_rowsum", "hardtanh"])
def test_clipping_alone_does_not_make_an_answer_flat(name: str) -> None:
    assert parse_function(name) is not None


def test_domains_keep_square_roots_and_logarithms_defined() -> None:
    for name in ("sqrt", "log_add", "rsqrt_rowmean", "recip_mulrow", "rdiv2"):
        low_high = _program(name).input_range()
        assert low_high is not None
        assert low_high[0] > 0


def _inputs(program: Function) -> list[torch.Tensor]:
    """The inputs on which `fingerprint` evaluates, as tensors."""
    made = []
    for spec in build_task(program).cases[0].inputs:
        assert spec.low is not None
        assert spec.high is not None
        full = sample_input(spec.name, spec.low, spec.high)
        made.append(torch.tensor(as_operand(spec.name, full), dtype=torch.float64))
    return made


def test_the_pytorch_source_of_tasks_computes_the_program() -> None:
    for program in (*primitives(), *catalog()[::4]):
        namespace: dict[str, type[torch.nn.Module]] = {}
        exec(build_task(program).reference, namespace)
        got = namespace["Model"]()(*_inputs(program)).flatten()
        want = torch.tensor(fingerprint(program), dtype=torch.float64)
        assert got.shape == want.shape, program.name
        assert torch.allclose(got, want, rtol=2e-4, atol=2e-5), program.name


def test_the_catalogue_is_large_enough_and_covers_every_family() -> None:
    splits = Counter(split_of(p) for p in catalog())
    assert splits[Split.TRAIN] >= 400
    assert splits[Split.HELD_OUT] >= 60
    for split in (Split.TRAIN, Split.HELD_OUT):
        families = {family_of(p).name for p in catalog() if split_of(p) is split}
        assert families == {f.name for f in PROGRAMS}
    assert {f.tier for f in PROGRAMS} >= {0, 1}


@pytest.mark.ci
def test_no_held_out_task_occurs_in_training_by_graph_values_or_kernel_source() -> None:
    report = audit_split(catalog())
    assert report.hits == ()
    assert report.held_out >= 60
    assert len(report.neighbours) == report.held_out
    assert report.neighbours[0].similarity < 1.0


def test_the_audit_finds_a_function_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    leaky = {"mul2_relu": Split.TRAIN, "relu_mul3": Split.HELD_OUT, "relu_mul2": Split.HELD_OUT}
    monkeypatch.setattr(audit, "split_of", lambda program: leaky[program.name])
    report = audit_split([_program(name) for name in leaky])
    assert {(h.held_out, h.by) for h in report.hits} == {
        ("relu_mul3", "graph"),
        ("relu_mul2", "graph"),
        ("relu_mul2", "values"),
    }


def test_every_op_of_a_held_out_task_occurs_alone_in_training() -> None:
    alone = {key for p in primitives() for key in p.ops}
    assert all(split_of(p) is Split.TRAIN for p in primitives())
    for program in (p for p in catalog() if split_of(p) is Split.HELD_OUT):
        assert set(program.ops) <= alone


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mul2_add1", "add3_mul0p5"),
        ("mul2_relu", "relu_mul3"),
        ("add_addrow", "addrow_add"),
        ("exp_rowmax", "rowmax_exp"),
        ("rowmean", "rowsum_mul0p5"),
        ("relu_transpose", "transpose_relu"),
        ("sigmoid_mul2_sub1", "tanh_mul3"),
        ("exp_sqrt", "mul0p5_exp"),
        ("square_log", "log_mul2"),
        ("exp_clampmax2", "clampmax1_exp"),
        ("mul_divrow", "divrow_mul"),
        ("exp_add1_log", "softplus"),
        ("cummax_sigmoid", "sigmoid_cummax"),
        ("relu_add", "clampmin0p5_sub"),
        ("exp_rowsum_log", "logsumexp"),
        ("square_rowsum_sqrt", "rownorm"),
        ("add1_softmax", "softmax"),
        ("mul2_rmsnorm", "unitnorm_mul3"),
        ("mul2_matmul_relu", "matmul_mul3_relu"),
        ("colmean", "mul2_colsum"),
        ("sub_square_allmean", "sub_square_mul2_allmean"),
    ],
)
def test_equal_functions_have_equal_keys(one: str, other: str) -> None:
    assert canonical_key(_program(one)) == canonical_key(_program(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("relu_exp", "silu_exp"),
        ("add_relu", "relu_add"),
        ("rowsum_abs", "abs_rowsum"),
        ("addrow", "addcol"),
        ("exp_rowmean", "rowmean_exp"),
        ("square_cumsum", "cumsum"),
    ],
)
def test_different_functions_have_different_keys(one: str, other: str) -> None:
    assert canonical_key(_program(one)) != canonical_key(_program(other))


def test_every_task_has_a_seen_and_two_unseen_shape_sets_of_emulator_and_gpu_size() -> None:
    for program in catalog():
        task = build_task(program)
        for cases in (task.cases, task.gpu_cases):
            assert [c.shown for c in cases] == [True, False, False]
        rows, columns = task.cases[1].inputs[0].shape
        assert columns % 4
        assert rows % 2
        moved = sum(4 * _elements(t.shape) for t in task.gpu_cases[0].inputs)
        assert moved >= 64 << 20
        assert max(_elements(t.shape) for t in task.cases[0].inputs) <= 1 << 18


def test_hidden_shapes_differ_from_task_to_task_and_stay_for_one_task() -> None:
    names = ("relu", "exp", "rowsum", "rowmax", "softmax", "matmul", "transpose", "cumsum")
    hidden = {n: [c.inputs[0].shape for c in build_task(_program(n)).cases[1:]] for n in names}
    assert len({str(shapes) for shapes in hidden.values()}) == len(names)
    build_task.cache_clear()
    assert [c.inputs[0].shape for c in build_task(_program("relu")).cases[1:]] == hidden["relu"]


def _elements(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def test_a_program_of_each_layout_has_a_naive_and_a_faster_kernel() -> None:
    programs = [_program(f"mul2_{layout}") for layout in ("rowsum", "layernorm", "cumsum")]
    programs += [_program(name) for name in ("mul2_add_relu", "addrow", "exp_transpose")]
    write_all([build_task(program) for program in programs])
    for program in programs:
        naive, *better = kernels_of(build_task(program))
        assert (naive.level, naive.why_faster) == ("naive", "")
        assert better, program.name
        assert all(kernel.why_faster for kernel in better)


def test_a_task_is_made_without_reading_its_module() -> None:
    build_task.cache_clear()
    assert build_task(_program("rsub3_minrow")).naive_kernel is None


def test_a_step_outside_its_domain_has_no_interval() -> None:
    log = _program("log").before[0]
    assert isinstance(log, Step)
    assert log.apply(Interval.of(-1.0, 1.0)) is None


def test_one_row_adds_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the writer, and so to programs and users' modules."""
    split_of(catalog()[0])  # what is kept of all operations is made without this one
    drawn = Drawn("math", "digamma", "torch.digamma({v})", lambda v: v, (0.25, 10.0))
    row = Elementwise("digamma", "own_digamma{f}({self})", drawn=(drawn,))
    monkeypatch.setitem(ELEMENTWISE, row.aten, row)
    tables = (ops_of, plain_steps)
    for table in tables:
        table.cache_clear()
    try:
        task = build_task(_program("digamma_rowsum"))
    finally:
        for table in tables:
            table.cache_clear()
    assert task.description == "out = rowsum(digamma(x))"
    assert "own_digammaf(" in lower(read(task))
    own = problem("return torch.digamma(x.abs() + 1) * 2")
    assert "own_digammaf(" in lower(own)

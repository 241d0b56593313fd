"""The tolerance: honest float32 arithmetic passes, half precision and shortcuts do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from coding_framework.cuda.expected import tolerance
from coding_framework.cuda.expected.reference import Expectation, expect, task_digest
from coding_framework.cuda.expected.tolerance import ExpectedOutput, compare
from coding_framework.types import Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

SHAPES = ((64, 256), (37, 53), (1, 7))


def _task(expression: str, inputs: int = 1, *, reduces: bool = False) -> Task:
    names = ["x", "y"][:inputs]
    return Task(
        name="t",
        tier=0,
        family="f",
        ops=(expression,),
        description="",
        reference=(
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
            f"class Model(nn.Module):\n    def forward(self, {', '.join(names)}):\n"
            f"        return {expression}\n"
        ),
        cases=tuple(
            TestCase(
                name=str(shape),
                inputs=tuple(TensorSpec(name=n, shape=shape) for n in names),
                reduction_length=shape[-1] if reduces else 1,
            )
            for shape in SHAPES
        ),
    )


def _expectations(task: Task) -> list[Expectation]:
    digest = task_digest(task)
    return [expect(task, digest, case, b"s", seed) for case in task.cases for seed in range(5)]


def _passes(out: torch.Tensor, expectation: Expectation) -> bool:
    return compare(out, out.stride(), expectation.outputs[0]).passed


def _sequential(x: torch.Tensor) -> torch.Tensor:
    """Row sums added one by one in float32: the least accurate honest order."""
    return torch.from_numpy(np.cumsum(x.numpy(), axis=1, dtype=np.float32)[:, -1].copy())


def _variance(x: torch.Tensor) -> torch.Tensor:
    mean = _sequential(x) / x.shape[1]
    return _sequential(x * x) / x.shape[1] - mean * mean


def _softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(1, keepdim=True))
    return e / _sequential(e)[:, None]


def _layer_norm(x: torch.Tensor) -> torch.Tensor:
    mean = (_sequential(x) / x.shape[1])[:, None]
    variance = (_sequential(x * x) / x.shape[1])[:, None] - mean * mean
    return (x - mean) * torch.rsqrt(variance + 1e-5)


HONEST: list[tuple[str, bool, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("F.gelu(x)", False, lambda x: x * 0.5 * (1 + torch.erf(x * 0.70710678))),
    ("torch.tanh(x)", False, lambda x: 1 - 2 / (torch.exp(2 * x) + 1)),
    ("F.softplus(x)", False, lambda x: torch.log(1 + torch.exp(x))),
    ("F.silu(x)", False, lambda x: x / (1 + torch.exp(-x))),
    ("F.mish(x)", False, lambda x: x * torch.tanh(torch.log(1 + torch.exp(x)))),
    ("F.elu(x)", False, lambda x: torch.where(x > 0, x, torch.exp(x) - 1)),
    ("torch.floor(x * 3.7)", False, lambda x: torch.floor(x * np.float32(3.7))),
    ("x.sum(-1)", True, _sequential),
    ("x.var(-1, unbiased=False)", True, _variance),
    ("F.softmax(x, -1)", True, _softmax),
    ("F.layer_norm(x, x.shape[-1:])", True, _layer_norm),
    ("torch.logsumexp(x, -1)", True, lambda x: torch.log(_sequential(torch.exp(x)))),
]


@pytest.mark.parametrize(("expression", "reduces", "kernel"), HONEST, ids=[h[0] for h in HONEST])
def test_another_honest_formula_in_single_precision_passes(
    expression: str, reduces: bool, kernel: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    for expectation in _expectations(_task(expression, reduces=reduces)):
        assert _passes(kernel(expectation.inputs[0]).contiguous(), expectation), expectation.seed


@pytest.mark.parametrize("expression", [h[0] for h in HONEST if "floor" not in h[0]])
def test_half_precision_in_disguise_fails(expression: str) -> None:
    task = _task(expression, reduces="-1" in expression)
    scope: dict[str, object] = {}
    exec(task.reference, scope)
    model = scope["Model"]()  # type: ignore[operator]
    halved = [
        _passes(model(e.inputs[0].half()).float().contiguous(), e) for e in _expectations(task)
    ]
    assert not all(halved)
    assert sum(halved) <= 2


def test_tf32_matrix_products_fail_and_float32_ones_pass() -> None:
    def tf32(t: torch.Tensor) -> torch.Tensor:
        return ((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    for e in _expectations(_task("x @ y.t()", 2, reduces=True)):
        x, y = e.inputs
        assert _passes(x @ y.t(), e)
        assert not _passes(tf32(x.clone()) @ tf32(y.clone()).t(), e)


@pytest.mark.parametrize(
    "shortcut",
    [
        lambda x: torch.zeros(x.shape[0]),
        lambda x: x.mean() * x.shape[1] * torch.ones(x.shape[0]),
        lambda x: x[:, : max(1, x.shape[1] - 1)].sum(1),
        lambda x: x[:, ::2].sum(1) * 2,
    ],
    ids=["zero", "mean", "prefix", "every second, doubled"],
)
def test_shortcuts_for_a_row_sum_fail(shortcut: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for e in _expectations(_task("x.sum(-1)", reduces=True))[:10]:
        assert not _passes(shortcut(e.inputs[0]), e)


def _exactly(reference: torch.Tensor, native: torch.Tensor, tolerance: float) -> ExpectedOutput:
    return ExpectedOutput(
        reference.double(), native, torch.full(reference.shape, tolerance, dtype=torch.float64)
    )


def test_nan_and_infinity_must_be_in_place() -> None:
    native = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    expected = _exactly(native, native, 1e-6)
    assert compare(native.clone(), (1,), expected).passed
    for wrong in ([1.0, 0.0, float("inf"), -float("inf")], [1.0, float("nan"), 1e38, -1e38]):
        assert not compare(torch.tensor(wrong), (1,), expected).passed
    assert not compare(torch.tensor([float("nan")] * 4), (1,), expected).passed


def test_overflow_of_the_dtype_where_float64_is_finite_is_right() -> None:
    expected = _exactly(
        torch.tensor([1e30], dtype=torch.float64) ** 2, torch.tensor([1e30]) ** 2, 0
    )
    assert compare(torch.tensor([float("inf")]), (1,), expected).passed


def test_dtype_shape_and_strides_are_exact() -> None:
    native = torch.zeros(2, 3)
    expected = _exactly(native, native, 1.0)
    assert compare(native, (3, 1), expected).passed
    assert "dtype" in compare(native.double(), (3, 1), expected).detail
    assert "shape" in compare(torch.zeros(3, 2), (2, 1), expected).detail
    assert "strides" in compare(native, (1, 2), expected).detail


def test_the_references_own_strides_are_allowed_and_length_one_axes_ignored() -> None:
    native = torch.zeros(3, 2).t()
    expected = _exactly(native, native, 1.0)
    assert compare(native, (1, 2), expected).passed
    assert compare(native, (3, 1), expected).passed
    row = torch.zeros(1, 3)
    assert compare(row, (99, 1), _exactly(row, row, 1.0)).passed


def test_integers_are_exact_and_the_first_wrong_index_is_named() -> None:
    native = torch.arange(6).reshape(2, 3)
    expected = ExpectedOutput(native, native, None)
    assert compare(native.clone(), (3, 1), expected).passed
    wrong = native.clone()
    wrong[1, 2] = 7
    result = compare(wrong, (3, 1), expected)
    assert not result.passed
    assert "[1, 2]: got 7, expected 5" in result.detail


def test_an_empty_output_passes() -> None:
    empty = torch.zeros(0, 3)
    assert compare(empty, (3, 1), _exactly(empty, empty, 0.0)).passed


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("torch.log(x)", marks=pytest.mark.slow),
        "(x * y).sum(1)",
        "torch.argmax(x, 1)",
    ],
)
def test_large_outputs_are_judged_part_by_part_as_if_at_once(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _task(expression, 1 + ("y" in expression), reduces="sum" in expression)
    whole = _expectations(task)
    for part in (7, 64):
        monkeypatch.setattr(tolerance, "_AT_ONCE", part)
        for one, other in zip(whole, _expectations(task), strict=True):
            (a,), (b,) = one.outputs, other.outputs
            torch.testing.assert_close(a.native, b.native, rtol=0, atol=0, equal_nan=True)
            assert (a.tolerance is None) == (b.tolerance is None)
            if a.tolerance is not None and b.tolerance is not None:
                torch.testing.assert_close(a.tolerance, b.tolerance, rtol=1e-14, atol=0.0)
            wrong = a.native.clone().reshape(-1)
            wrong[len(wrong) // 2 :] += 1
            for out in (a.native, wrong.reshape(a.native.shape)):
                found = compare(out, out.stride(), a)
                with monkeypatch.context() as at_once:
                    at_once.setattr(tolerance, "_AT_ONCE", 1 << 26)
                    assert compare(out, out.stride(), a) == found


def test_a_part_without_special_numbers_comes_to_the_same_by_both_ways() -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(999, dtype=torch.float64, generator=generator)
    native = reference.to(torch.float32)
    out = (reference * (1 + 1e-6 * torch.randn(999, generator=generator))).to(torch.float32)
    error, allowed = (out - reference).abs(), 1e-6 * torch.ones(999, dtype=torch.float64)
    ways = [
        (~(error <= allowed), error, reference),
        tolerance._with_special(out, reference, native, error, allowed),
    ]
    found = [tolerance.Worst(), tolerance.Worst()]
    for worst, (wrong, errors, references) in zip(found, ways, strict=True):
        worst.add_wrong(slice(0, 999), wrong)
        largest = tolerance._largest_errors(errors, references, allowed, 1e-38)
        worst.add_errors(slice(0, 999), *torch.stack(largest).tolist())
    assert found[0] == found[1]
    assert 0 < found[0].wrong < 999


def test_buckets_are_pairs_of_octaves() -> None:
    exponents = torch.arange(-300, 300, dtype=torch.float64)
    least, most = torch.exp2(exponents), torch.nextafter(torch.exp2(exponents + 1), exponents)
    pairs = torch.floor(exponents / 2).to(torch.int32)
    for scale in (least, most):
        found = tolerance._bucket(scale)
        assert torch.equal(found - found[300], pairs - pairs[300])


def test_what_is_not_finite_leaves_the_tolerance_of_the_others_as_it_is() -> None:
    generator = torch.Generator().manual_seed(0)
    reference, error, change = (
        torch.rand(64, dtype=torch.float64, generator=generator) for _ in range(3)
    )
    special = [torch.cat([t, torch.tensor([math.nan, math.inf])]) for t in (error, change)]
    zeros = torch.zeros(2, dtype=torch.float64)

    def bound(*tensors: torch.Tensor) -> torch.Tensor:
        return tolerance.element_tolerance(*tensors, torch.float32, 64)

    plain = bound(*(torch.cat([t, zeros]) for t in (reference, error, change)))
    found = bound(torch.cat([reference, torch.tensor([math.inf, math.nan])]), *special)
    torch.testing.assert_close(found, plain, rtol=1e-14, atol=0.0)


def test_a_wrong_element_is_seen_however_small_the_tolerance() -> None:
    """Below 1e-300 the share of the tolerance says nothing."""
    reference = torch.tensor([1.0, 0.0], dtype=torch.float64)
    expected = ExpectedOutput(reference, reference, torch.zeros(2, dtype=torch.float64))
    assert compare(reference.clone(), (1,), expected).passed
    out = torch.tensor([1.0, 1e-310], dtype=torch.float64)
    assert not compare(out, (1,), expected).passed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("expression", ["x * 0.3 + 1", "F.gelu(x)", "torch.exp(-x * x)"])
def test_half_precision_is_rounded_to_the_nearest(dtype: str, expression: str) -> None:
    task = _task(expression)
    cases = [
        case.model_copy(
            update={"inputs": tuple(TensorSpec(name="x", shape=(64, 65), dtype=dtype) for _ in "x")}  # type: ignore[arg-type]
        )
        for case in task.cases[:1]
    ]
    task = task.model_copy(update={"cases": tuple(cases)})
    for seed in range(5):
        expectation = expect(task, task_digest(task), cases[0], b"s", seed)
        exact, native = expectation.outputs[0].reference, expectation.outputs[0].native
        nearest = exact.to(torch.float32).to(native.dtype)
        away = nearest.to(torch.float64).abs() > exact.abs()
        bits = nearest.view(torch.int16)
        cut = torch.where(away, bits - 1, bits).view(native.dtype)
        assert _passes(nearest, expectation)
        assert not _passes(cut, expectation)
        assert "one way" in compare(cut, cut.stride(), expectation.outputs[0]).detail


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_row_sum_that_is_cut_off_shows_in_64_rows(dtype: str) -> None:
    spec = TensorSpec(name="x", shape=(64, 96), dtype=dtype)  # type: ignore[arg-type]
    case = TestCase(name="main", inputs=(spec,), reduction_length=96)
    task = _task("x.sum(-1)").model_copy(update={"cases": (case,)})
    draws = [expect(task, task_digest(task), case, b"s", seed).outputs[0] for seed in range(5)]
    nearest = [o.reference.to(torch.float32).to(o.native.dtype) for o in draws]
    assert all(compare(n, n.stride(), o).passed for n, o in zip(nearest, draws, strict=True))
    cut = [n.view(torch.int16) - (n.double().abs() > o.reference.abs()).short()
           for n, o in zip(nearest, draws, strict=True)]  # fmt: skip
    cut = [bits.view(o.native.dtype) for bits, o in zip(cut, draws, strict=True)]
    assert not all(compare(c, c.stride(), o).passed for c, o in zip(cut, draws, strict=True))

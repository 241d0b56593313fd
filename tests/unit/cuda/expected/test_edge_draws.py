"""Edge draws: what ordinary ones lack, inside the domain, decisive only where PyTorch is right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from coding_framework.cuda.expected.edge_draws import (
    EDGE_KINDS,
    EdgeKind,
    draw_edges,
    draw_name,
    edge_kinds,
    edge_seed,
)
from coding_framework.cuda.expected.reference import ReferenceCache
from coding_framework.cuda.expected.tolerance import compare
from coding_framework.types import DType, Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

Kernel = Callable[[torch.Tensor], torch.Tensor]


def _case(terms: int = 40, **spec: object) -> TestCase:
    fields = {"name": "x", "shape": (24, 40), **spec}
    inputs = (TensorSpec.model_validate(fields),)
    return TestCase(name="main", inputs=inputs, reduction_length=terms)


def _draw(kind: EdgeKind, terms: int = 40, **spec: object) -> torch.Tensor:
    return draw_edges(_case(terms, **spec), kind, b"s", "task")[0]


def _task(expression: str, terms: int = 1, dtype: DType = "float32") -> Task:
    return Task(
        name="t", tier=0, family="f", ops=(expression,), description="",
        reference=(
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
            f"class Model(nn.Module):\n    def forward(self, x):\n        return {expression}\n"
        ),
        cases=(_case(terms, dtype=dtype),),
    )  # fmt: skip


def _wrong_draws(task: Task, kernel: Kernel) -> set[str]:
    """The draws on which this answer is wrong, as a trial finds them."""
    cache, case, wrong = ReferenceCache(b"s"), task.cases[0], set()
    for seed in (*range(5), *cache.edges(task, case)):
        out = kernel(cache.get(task, case, seed).inputs[0].clone()).contiguous()
        for expectation in (cache.get, cache.steadier):
            if compare(out, out.stride(), expectation(task, case, seed).outputs[0]).passed:
                break
        else:
            wrong.add(draw_name(seed))
    return wrong


def test_ties_hold_zeros_of_both_signs_constant_rows_and_equal_maxima() -> None:
    drawn = _draw("ties")
    zeros = drawn[drawn == 0]
    assert bool(torch.signbit(zeros).any())
    assert not bool(torch.signbit(zeros).all())
    constant = drawn.amin(1) == drawn.amax(1)
    assert bool((drawn[constant] != 0).any())
    assert bool((drawn[constant] == 0).any())
    most = (drawn == drawn.amax(1, keepdim=True)).sum(1)
    assert bool((most[~constant] > 1).any())
    assert bool(((drawn != 0).all(1) & ~constant).any())


def test_each_kind_is_what_its_name_says() -> None:
    assert float(_draw("negative").max()) <= -15
    assert float(_draw("positive").min()) >= 150
    assert float(_draw("positive", low=0.5).min()) >= 150
    assert torch.isfinite(_draw("positive", dtype="float16")).all()
    assert float(_draw("large").abs().max()) > 1e5
    assert float(_draw("large", terms=1).abs().max()) > 1e20
    assert float(_draw("large", dtype="float16").abs().max()) <= 1e3
    spikes = _draw("spikes").abs()
    assert bool((spikes[0, 0] > 4) & (spikes[-1, -1] > 4))
    assert 0 < int((spikes > 4).sum()) < spikes.numel() // 4
    assert float(spikes.median()) < 0.1
    ends = _draw("large", dtype="int32")
    assert {int(ends.min()), int(ends.max())} == {1 - 2**31, 2**31 - 1}


@pytest.mark.parametrize("kind", EDGE_KINDS)
@pytest.mark.parametrize("bounds", [(0.05, 100.0), (-12.0, 12.0), (-1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_declared_domain_bounds_every_kind(
    kind: EdgeKind, bounds: tuple[float, float], dtype: str
) -> None:
    drawn = _draw(kind, low=bounds[0], high=bounds[1], dtype=dtype).double()
    slack = 1e-3 * (1 + abs(bounds[1]))
    assert bounds[0] - slack <= float(drawn.min())
    assert float(drawn.max()) <= bounds[1] + slack


def test_only_kinds_that_add_something_are_drawn() -> None:
    assert edge_kinds(_case()) == ("ties", "negative", "large")
    assert edge_kinds(_case(500)) == ("ties", "negative", "large", "spikes")
    assert edge_kinds(_case(500), 1) == ("ties", "large", "spikes", "positive")
    assert edge_kinds(_case(low=-2.0, high=2.0), 1) == ("ties", "negative")
    assert edge_kinds(_case(low=0.0)) == ("ties", "large", "positive")
    assert edge_kinds(_case(dtype="bool")) == ()


def test_shapes_of_any_rank_are_drawn_and_repeatable() -> None:
    for shape in ((), (7,), (1, 9), (2, 3, 4, 5), (0, 4)):
        for kind in EDGE_KINDS:
            drawn = _draw(kind, shape=shape)
            assert drawn.shape == shape
            assert torch.equal(drawn, _draw(kind, shape=shape))


def _sums(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.cumsum(x.numpy(), axis=1, dtype=np.float32)[:, -1:].copy())


def _softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(1, keepdim=True))
    return e / _sums(e)


def _one_pass_norm(x: torch.Tensor) -> torch.Tensor:
    mean = _sums(x) / x.shape[1]
    return (x - mean) * torch.rsqrt(_sums(x * x) / x.shape[1] - mean * mean + 1e-5)


PAIRS: list[tuple[str, int, Kernel, Kernel]] = [
    ("F.softmax(x, -1)", 40, _softmax, lambda x: torch.exp(x) / torch.exp(x).sum(1, keepdim=True)),
    (
        "F.log_softmax(x, -1)", 40,
        lambda x: x - (x.amax(1, True) + torch.log(_sums(torch.exp(x - x.amax(1, True))))),
        lambda x: x - torch.log(torch.exp(x).sum(1, keepdim=True)),
    ),
    (
        "F.softplus(x)", 1,
        lambda x: torch.where(x > 20, x, torch.log(1 + torch.exp(x))),
        lambda x: torch.log1p(torch.exp(x)),
    ),
    ("x.clamp(-100, 100)", 1, lambda x: x.clamp(-100, 100), lambda x: x),
    ("x * 3", 1, lambda x: x * 3, lambda x: torch.where(x == 0, 777.0, x * 3)),
    (
        "F.threshold(x, 3.0, 7.0)", 1,
        lambda x: torch.where(x > 3, x, 7.0), lambda x: torch.where(x >= 3, x, 7.0),
    ),
    (
        "torch.histc(x, 8, -3, 3)", 1,
        lambda x: torch.histc(x, 8, -3, 3),
        lambda x: torch.histc(torch.where(x == 3, 4, x), 8, -3, 3),
    ),
    ("torch.sign(x)", 1, torch.sign, lambda x: torch.where(x >= 0, 1.0, -1.0)),
    ("x.argmax(1)", 1, lambda x: x.argmax(1), lambda x: 39 - x.flip(1).argmax(1)),
    ("x.amax(1)", 1, lambda x: x.amax(1), lambda x: x.amax(1).clamp_min(-1)),
    ("x.amin(1)", 1, lambda x: x.amin(1), lambda x: x.amin(1).clamp_max(1)),
    ("torch.exp(x * x)", 1,
     lambda x: torch.exp2(x * x * 1.442695), lambda x: torch.exp(x * x * (x.abs() >= 1))),
    ("torch.exp(5 * x)", 1,
     lambda x: torch.exp2(x * 7.2134752), lambda x: torch.exp(5 * x) * (x > 0)),
    ("F.layer_norm(x, x.shape[-1:])", 40, _one_pass_norm,
     lambda x: (x - x.mean(1, True)) / x.std(1, unbiased=False, keepdim=True)),
    ("F.gelu(x)", 1,
     lambda x: 0.5 * x * (1 + torch.erf(x * 0.70710678)), lambda x: x * torch.sigmoid(1.702 * x)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "terms", "honest", "lacking"), PAIRS, ids=[p[0] for p in PAIRS]
)
def test_what_lacks_something_is_wrong_and_its_honest_twin_is_right(
    expression: str, terms: int, honest: Kernel, lacking: Kernel
) -> None:
    task = _task(expression, terms)
    assert _wrong_draws(task, honest) == set()
    assert _wrong_draws(task, lacking) != set()


def test_an_element_decides_only_where_pytorch_is_right() -> None:
    cache = ReferenceCache(b"s")
    squares, task = [], _task("x * x")
    for kind in EDGE_KINDS[:3]:
        squares.append(cache.get(task, task.cases[0], edge_seed(kind)).outputs[0])
    assert [o.decides is None for o in squares] == [True, True, False]
    assert torch.equal(squares[2].decides, torch.isfinite(squares[2].native))  # type: ignore[arg-type]
    inverse = cache.get(_task("x / x"), _case(1), edge_seed("ties"))
    (output,) = inverse.outputs
    assert torch.equal(output.decides, inverse.inputs[0] != 0)  # type: ignore[arg-type]


UNDERFLOWS = "x[:, :20] * torch.sigmoid(x[:, 20:])"


@pytest.mark.parametrize(
    ("expression", "terms"), [(UNDERFLOWS, 1), ("F.glu(x, 1)", 1), *(p[:2] for p in PAIRS)]
)
def test_pytorchs_own_answer_is_right_on_every_draw(expression: str, terms: int) -> None:
    task = _task(expression, terms)
    case = task.cases[0]
    for secret in (b"a", b"b", b"repeatable"):
        cache = ReferenceCache(secret)
        for kind in EDGE_KINDS:
            (output,) = cache.get(task, case, edge_seed(kind)).outputs
            found = compare(output.native, output.native.stride(), output)
            assert found.passed, (kind, found.detail)
            assert found.tolerance is None or found.tolerance < float("inf")


def test_a_gate_that_underflows_is_right_where_pytorchs_does_and_nowhere_else() -> None:
    task = _task(UNDERFLOWS)
    assert _wrong_draws(task, lambda x: x[:, :20] / (1 + torch.exp(-x[:, 20:]))) == set()
    assert _wrong_draws(task, lambda x: x[:, :20] * (x[:, 20:] > 0)) != set()


def test_ties_decide_nothing_where_nobody_says_which_one_is_taken() -> None:
    kinds = {
        "torch.topk(x, 3, dim=1)[1]": True,  # by what it points at
        "torch.topk(x, 3, dim=1)[1] * 2": False,
        "torch.topk(x, 3, dim=1)[0]": True,
        "torch.gather(x * x, 1, torch.topk(x, 3, dim=1)[1])": False,
        "x.argmax(1)": True,
    }
    for expression, decided in kinds.items():
        task = _task(expression)
        seeds = ReferenceCache(b"s").edges(task, task.cases[0])
        assert (edge_seed("ties") in seeds) is decided, expression


def test_a_reference_that_fails_on_an_edge_draw_is_judged_without_it() -> None:
    task = _task("x if bool((x != 0).all()) else [][0]")
    assert ReferenceCache(b"s").edges(task, task.cases[0]) == (
        edge_seed("negative"),
        edge_seed("large"),
    )


@pytest.mark.parametrize("lost", [1, 255])
@pytest.mark.parametrize("expression", ["x.mean()", "x.norm()"])
def test_a_long_sum_may_not_lose_its_end(expression: str, lost: int) -> None:
    task = _task(expression, 300 * 1001)
    case = task.cases[0].model_copy(update={"inputs": (TensorSpec(name="x", shape=(300, 1001)),)})
    cache = ReferenceCache(b"s")
    expectation = cache.get(task, case, edge_seed("spikes"))
    values = expectation.inputs[0].reshape(-1)
    kept = values.clone()
    kept[-lost:] = 0
    function: Kernel = torch.mean if "mean" in expression else torch.linalg.vector_norm
    passed = [compare(function(v), (), expectation.outputs[0]).passed for v in (values, kept)]
    assert passed == [True, False]

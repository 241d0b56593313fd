"""Structure of inputs: recognised, kept in every draw, tried in other sizes, and said."""

from __future__ import annotations

import pytest
import torch

from coding_framework.cuda.expected.edge_draws import draw_edges, edge_kinds
from coding_framework.cuda.expected.inputs import draw_inputs
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.problem_checks import require_function
from coding_framework.data.registry import describe_task
from coding_framework.reference_model.structures import with_structure
from coding_framework.types import Task

pytestmark = pytest.mark.unit


def problem(inputs: str, forward: str = "x * 2", given: str = "x") -> Task:
    return problem_task(
        "import torch\nn = 24\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {given}):\n        return {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n",
        "own",
    )


@pytest.mark.parametrize(
    ("inputs", "kept"),
    [
        ("torch.triu(torch.rand(n, n))", "upper"), ("torch.tril(torch.rand(2, n, n))", "lower"),
        ("(lambda m: m + m.T)(torch.rand(n, n))", "symmetric"),
        ("(lambda m: m @ m.T + torch.eye(n))(torch.randn(n, n))", "positive_definite"),
        ("torch.randperm(n)", "permutation"), ("torch.rand(n).sort().values", "sorted"),
        ("torch.arange(n) * 3", "sorted"), ("torch.ones(n, n).tril()", "causal"),
        ("torch.ones(n, n, dtype=torch.bool).triu(1)", "future"),
        ("torch.full((n, n), float('-inf')).triu(1)", "causal_bias"),
        ("torch.rand(n, n)", None), ("torch.randint(0, 9, (n,))", None), ("torch.ones(n)", None),
        ("torch.zeros(n, n)", None), ("torch.rand(n, n) > 0.5", None),
    ],
)  # fmt: skip
def test_structure_is_kept_in_every_draw(inputs: str, kept: str | None) -> None:
    task = problem(inputs, "torch.where(torch.isfinite(x), x, 0) * 2")
    require_function(task)
    assert {case.inputs[0].keeps for case in (*task.cases, *task.gpu_cases)} == {kept}
    for case in task.cases:
        draws = [draw_inputs(case, b"s", "t", seed)[0] for seed in range(5)]
        draws += [draw_edges(case, kind, b"s", "t")[0] for kind in edge_kinds(case)]
        for x in draws:
            if kept == "positive_definite":
                torch.linalg.cholesky(x.double())
            elif kept == "permutation":
                assert torch.equal(x.sort().values, torch.arange(len(x)))
            elif kept is not None:
                assert torch.equal(x, with_structure(x, kept, case.inputs[0].high))  # type: ignore[arg-type]
        if kept not in ("causal", "future", "causal_bias"):
            assert not torch.equal(draws[0], draws[1])


def test_offsets_go_from_zero_to_the_end_at_every_size() -> None:
    task = problem(
        "torch.randn(n, 4), torch.arange(0, n + 1, 4)", "x[: len(o)] * o[:, None]", "x, o"
    )
    for case in task.cases:
        for seed in range(5):
            x, offsets = draw_inputs(case, b"s", "t", seed)
            assert (int(offsets[0]), int(offsets[-1])) == (0, len(x) // 4 * 4)
            assert torch.equal(offsets, offsets.sort().values)


@pytest.mark.parametrize(
    ("inputs", "forward", "bounds"),
    [
        ("torch.rand(n, 8), torch.full((n,), 8)", "x.sum(1) / y", (1.0, 8.0)),
        ("torch.rand(n, 8), torch.full((n,), 8)", "x.sum(1) * y", (0.0, 8.0)),
        ("torch.rand(n, 8), torch.ones(n, dtype=torch.long)", "x.sum(1) * y", (0.0, 1.0)),
        ("torch.rand(n, 8), torch.full((n,), 8)", "x.sum(1) / (y > 7)", (8.0, 8.0)),
    ],
)
def test_integers_that_are_always_equal_vary_where_the_model_takes_it(
    inputs: str, forward: str, bounds: tuple[float, float]
) -> None:
    spec = problem(inputs, forward, "x, y").cases[0].inputs[1]
    assert (spec.low, spec.high) == bounds


def test_what_is_kept_is_said() -> None:
    told = describe_task(problem("torch.triu(torch.rand(n, n)), torch.rand(n, n)", "x @ y", "x, y"))
    assert "input0 is upper triangular in every draw.\nOf all else the values vary" in told


def test_a_result_of_booleans_is_read() -> None:
    task = problem("torch.rand(n, n), torch.rand(n, n)", "x > y", "x, y")
    assert task.cases[0].inputs[0].low is None

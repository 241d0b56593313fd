"""Kernels that are correct at the shown shapes and worse at others."""

from __future__ import annotations

import pytest

from coding_framework.evaluation.eval_summary import regressions
from coding_framework.evaluation.samples import SampleRecord

pytestmark = pytest.mark.unit


def sample(
    task: str, speedup: float, status: str | None, other: float | None = None
) -> SampleRecord:
    return SampleRecord(
        task=task, status="correct", correct=True, speedup=speedup, basis="measured",
        holdout_status=status, holdout_speedup=other, holdout_reason="r",
    )  # fmt: skip


def test_broken_and_slower_kernels_are_named_and_counted_once() -> None:
    found = regressions(
        [
            sample("fine", 2.0, "correct", 1.9),
            sample("broken", 2.0, "wrong_output"),
            sample("slower", 1.2, "correct", 0.9),
            sample("of its shape", 3.0, "correct", 1.5),
            sample("never fast", 0.5, "correct", 0.4),
            sample("not judged there", 2.0, None),
        ]
    )
    assert found is not None
    assert found.judged == 5
    assert found.broken == ("broken/0: wrong_output (r)",)
    assert found.slower_than_baseline == ("slower/0: 0.90x",)
    assert found.lost_gain == ("of its shape/0: 3.00x, then 1.50x",)
    assert found.rate.rate == pytest.approx(2 / 5)


def test_of_a_modelled_time_only_what_is_broken_counts() -> None:
    modelled = sample("slower", 1.2, "correct", 0.5).model_copy(update={"basis": "modelled"})
    found = regressions([modelled, sample("broken", 1.0, "timeout")])
    assert found is not None
    assert found.slower_than_baseline == found.lost_gain == ()
    assert found.rate.rate == pytest.approx(0.5)


def test_where_nothing_was_judged_at_other_shapes_there_is_no_rate() -> None:
    assert regressions([sample("a", 2.0, None)]) is None

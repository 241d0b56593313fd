"""Whose rules an evaluation follows: a row each, with where its facts were read.

Published rules are applied beside the judge's own protocol, which no row loosens: a sample counts
as correct where both accept it, and a table names those that one of the two refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from coding_framework.types import BaselineName, Record, RulesName


class Rules(Record):
    """What one benchmark asks of an answer. It stands in an evaluation's manifest and summary."""

    name: RulesName
    source: str = ""
    commit: str = ""
    precision: Literal["fp32", "tf32"] = "fp32"
    """Of the tasks' products by our own protocol."""
    baseline: BaselineName = "eager"
    """What speedups are over."""
    tolerance: float = 0.0
    """Of float32 outputs, absolute and relative, against PyTorch eager in float32."""
    half_tolerance: float = 1e-2
    """The same of float16 and bfloat16."""
    scales: tuple[float, ...] = ()
    """Sets of inputs: the problem's own draws times each; (): our protocol alone."""
    samples: int = 1
    """Answers to each problem, of which the fastest correct one counts."""
    libraries: str
    """Which library calls an answer may make."""
    left_out: Mapping[int, tuple[int, ...]] = {}
    """Level -> numbers of problems that do not count."""
    reported: tuple[str, ...] = ("pass@k", "fast_p", "geometric mean")


_ANY = "all of PyTorch's by theirs; by our protocol, which decides too, an answer's kernels alone"
RULES: Mapping[str, Rules] = {
    rules.name: rules
    for rules in (
        Rules(name="ours", libraries="none: an answer's own kernels compute"),
        Rules(
            name="kernelbench",
            source="https://github.com/ScalingIntelligence/KernelBench",
            commit="423217d9fda91e0c2d67e4a43bf62f96f6d104f1",
            tolerance=1e-4,
            scales=(1.0,) * 5,
            libraries=_ANY,
        ),
        Rules(
            name="kernelbench-verified",
            source="https://github.com/facebookresearch/kernel_bench_verified",
            commit="3fdf6fec7372a4d0cb682635f00e7bdcbc55d50e",
            precision="tf32",
            baseline="eager_tf32",
            tolerance=1e-3,
            scales=(*(1.0,) * 6, 3.0, 0.01, -1.0),
            samples=5,
            libraries=_ANY,
            left_out={2: (23, 80, 83)},
            reported=("correct", "fast_p of the best", "geometric mean", "memory against speed"),
        ),
    )
}

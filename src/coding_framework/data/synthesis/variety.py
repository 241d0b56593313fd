"""Whether a function's answer depends on its inputs: one that hardly does teaches nothing.

A constant would pass for such a task (rowmin(relu(x)) is 0 on almost every row), so its verdicts
would mean nothing. Found by evaluating the function on rows of random values from the declared
domains.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from coding_framework.data.synthesis.layouts import Layout, Matrix
from coding_framework.data.synthesis.ops import Step

ROWS, COLUMNS = 8, 48
MOST_EQUAL = 0.9
"""Largest share of equal elements that an answer may have."""
_DIGITS = 5

Operations = Sequence[tuple[Step, str]]
"""Steps, each with the name of the input that it reads beside the value, or ""."""


def answer_varies(
    before: Operations, layout: Layout, after: Operations, domain: tuple[float, float]
) -> bool:
    """Whether at most MOST_EQUAL of the answer's elements agree to 5 digits, x from `domain`."""
    if not _may_be_flat(before, layout, after):
        return True
    draws = random.Random(f"{layout.name} {[step.name for step, _ in (*before, *after)]}")

    def draw(low: float, high: float) -> Callable[[], float]:
        return lambda: draws.uniform(low, high)

    x = draw(*domain)
    matrix: Matrix = [[x() for _ in range(COLUMNS)] for _ in range(ROWS)]
    matrix = layout.values(_applied(before, matrix, draw))
    flat = list(chain.from_iterable(_applied(after, matrix, draw)))
    commonest = Counter(f"{value:.{_DIGITS}g}" for value in flat).most_common(1)[0][1]
    return len(flat) < ROWS or commonest <= MOST_EQUAL * len(flat)


def _may_be_flat(before: Operations, layout: Layout, after: Operations) -> bool:
    """Whether it is worth the milliseconds: a step clips beside a change of shape, or what follows
    a softmax hides its small values. Alone, no step on its declared domain is flat."""
    if layout.form in ("map", "matmul"):
        return False
    clips = any("clip" in step.op.atoms for step, _ in (*before, *after))
    return clips or (layout.name == "softmax" and bool(after))


def _applied(
    operations: Operations, matrix: Matrix, draw: Callable[[float, float], Callable[[], float]]
) -> Matrix:
    for step, operand in operations:
        y = draw(*step.op.operand_range) if operand else float
        span, constants = step.op.span, step.constants
        matrix = [
            [span((v, v), constants, (other := y(), other))[0] for v in row] for row in matrix
        ]
    return matrix

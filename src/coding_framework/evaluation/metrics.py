"""Two pieces of exact statistics: the interval of a share, and the chance of a change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

Z95 = 1.959963984540054
"""Normal quantile of a two-sided 95% interval."""


def wilson(count: float, n: int) -> tuple[float, float]:
    """Wilson score interval of count / n; (0, 1) where n is 0. count: of a mean of n shares, their
    sum.

    Unlike the normal approximation it is right for small n and for rates near 0 and 1.
    """
    if not 0 <= count <= n:
        raise ValueError(f"count {count} of n {n}: 0 <= count <= n is needed")
    if n == 0:
        return (0.0, 1.0)
    p, z = count / n, Z95
    denominator = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / denominator
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / denominator
    low = 0.0 if count == 0 else max(0.0, centre - half)
    high = 1.0 if count == n else min(1.0, centre + half)
    return (low, high)


def chance_of(pairs: Iterable[tuple[Sequence[bool], Sequence[bool]]]) -> float:
    """Probability of as many right answers after a change as there were, or more, if it changed
    nothing. pairs: whether each answer is right, before and after, of each task.

    One-sided and exact: given how many of a task's answers are right in both together, each of its
    answers is as likely to be among the later ones (the exact test of stratified 2 x 2 tables;
    Mehta, Patel and Gray, JASA 80, 1985). It is about these tasks, not about others like them.
    """
    orders, seen = Counter({0: 1}), 0
    for before, after in pairs:
        right = sum(before) + sum(after)
        summed: Counter[int] = Counter()
        for others, number in orders.items():
            for own in range(min(right, len(after)) + 1):
                ways = math.comb(len(after), own) * math.comb(len(before), right - own)
                summed[others + own] += number * ways
        orders, seen = summed, seen + sum(after)
    return sum(ways for count, ways in orders.items() if count >= seen) / orders.total()

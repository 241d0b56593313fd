"""False accepts of the fresh corpus by mechanism, and how often each that chance decides was
tried."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from bench_io import ROOT
from scipy.stats import beta

from coding_framework.types import Status

sys.path.insert(0, str(ROOT / "tests"))
from corpus.collection import Case
from corpus.fresh_collection import attack_of

ESCAPES = ("unsupported", "infrastructure_error")
"""Statuses that mask a sample: no attack may end in one of them."""
SLOW_S = 60.0


class Result(Protocol):
    """What the rates need of a judged case."""

    @property
    def status(self) -> str: ...

    @property
    def wall_s(self) -> float: ...


Rows = Sequence[tuple[Case, Any]]


def interval(count: int, n: int) -> list[float]:
    """Exact (Clopper-Pearson) 95% interval of count / n."""
    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, n - count + 1))
    high = 1.0 if count >= n else float(beta.ppf(0.975, count + 1, n - count))
    return [round(low, 5), round(high, 5)]


def accepted(case: Case, judged: Result) -> bool:
    """Whether an attack passed; a flood, whose answer is right, only where that took too long."""
    if judged.status != "correct":
        return False
    return Status.CORRECT not in case.statuses or judged.wall_s > SLOW_S


def worst_of_tries(rows: Rows) -> list[tuple[Case, Any]]:
    """One row an attack: a try that was accepted where there is one, else its first."""
    found: dict[str, tuple[Case, Any]] = {}
    for case, judged in rows:
        name = attack_of(case)
        if name not in found or (accepted(case, judged) and not accepted(*found[name])):
            found[name] = (case, judged)
    return list(found.values())


def by_mechanism(rows: Rows) -> dict[str, dict[str, Any]]:
    """What came of each mechanism of the fresh corpus: attacks and tries, accepted and escaped."""
    groups: dict[str, list[tuple[Case, Any]]] = defaultdict(list)
    for case, judged in rows:
        if not case.honest and case.name.startswith("fresh/"):
            groups[case.group].append((case, judged))
    return {
        mechanism: {
            "attacks": len(worst_of_tries(group)),
            "accepted": sum(accepted(c, j) for c, j in worst_of_tries(group)),
            "tries": len(group),
            "tries_accepted": sum(accepted(c, j) for c, j in group),
            "escaped": sorted(attack_of(c) for c, j in group if j.status in ESCAPES),
        }
        for mechanism, group in sorted(groups.items())
    }


def slow(rows: Rows) -> list[dict[str, Any]]:
    """Cases whose verdict took longer than it may."""
    return [{"name": c.name, "wall_s": j.wall_s} for c, j in rows if j.wall_s > SLOW_S]


def print_mechanisms(mechanisms: dict[str, dict[str, Any]]) -> None:
    """A line a mechanism."""
    if not mechanisms:
        return
    print(f"    {'mechanism':<24}{'accepted':>10}{'of':>5}{'tries':>12}{'escaped':>9}")
    for name, m in mechanisms.items():
        tries = f"{m['tries_accepted']} of {m['tries']}" if m["tries"] > m["attacks"] else "-"
        line = f"    {name:<24}{m['accepted']:>10}{m['attacks']:>5}"
        print(f"{line}{tries:>12}{len(m['escaped']):>9}")

"""Running values along an axis: ONE row an operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scan:
    """What a thread begins with, how it takes the next element {x}, and what it gives there: {a} is
    the running value, {at} where it comes from."""

    start: str
    step: str
    arg: bool = False
    """Whether it gives where the running value comes from, too: `step` is then when it changes."""


SCANS: Mapping[str, Scan] = {
    "cumsum": Scan("0", "{a} + {x}"),
    "cumprod": Scan("1", "{a} * {x}"),
    "logcumsumexp": Scan(
        "-INFINITY",
        "fmax{f}({a}, {x}) + ({a} == {x} ? log{f}(2.0{f}) : log1p{f}(exp{f}(-fabs{f}({a} - {x}))))",
    ),
    "cummax": Scan("-INFINITY", "{x} >= {a}", arg=True),
    "cummin": Scan("INFINITY", "{x} <= {a}", arg=True),
}

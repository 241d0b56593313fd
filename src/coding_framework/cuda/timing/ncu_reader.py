"""Prints an Nsight Compute report as one line of JSON: `python ncu_reader.py REPORT`.

Runs as a script in a process of its own, with Nsight's `ncu_report` on PYTHONPATH: that module is a
library of NVIDIA's which may not fit this Python, or end the process. Imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """One object a launch: kernel name and metrics."""
    import ncu_report

    report = ncu_report.load_report(sys.argv[1])
    rows: list[dict[str, Any]] = []
    for r in range(report.num_ranges()):
        profiled = report.range_by_idx(r)
        for a in range(profiled.num_actions()):
            action = profiled.action_by_idx(a)
            metrics = {}
            for name in action.metric_names():
                metric = action.metric_by_name(name)
                try:
                    value = metric.as_double() if metric is not None else None
                except Exception:  # a metric that is text has no number
                    value = None
                if value is not None:
                    metrics[name] = value
            rows.append({"kernel": action.name(), "metrics": metrics})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()

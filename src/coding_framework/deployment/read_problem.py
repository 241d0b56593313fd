"""A KernelBench problem on stdin as a task on stdout; 2 and a sentence where it is none.

What the problem itself prints goes to stderr.
"""

from __future__ import annotations

import os
import sys

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.problem_checks import require_function
from coding_framework.errors import UsageError


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        task = problem_task(sys.stdin.read(), "request")
        require_function(task)
    except UsageError as e:
        print(str(e), file=out, flush=True)
        return 2
    print(task.model_dump_json(), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

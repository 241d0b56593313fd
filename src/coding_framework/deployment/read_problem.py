"""A caller's problem or task as a task that can be judged, with its contract; for a process of its
own.

Trusted callers' tasks: JSON on stdin, JSON on stdout. Others': in a sandbox, where a `PythonChild`
calls `answer`. Asked {"problem": source} or {"task": fields}; answers {"task", "contract"}, or
{"error": a sentence}. What the problem itself prints is nobody's.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from coding_framework.agents.prompts.contract import built_contract, without_test_code
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.problem_checks import require_function
from coding_framework.errors import CodingFrameworkError
from coding_framework.types import Task


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer. The caller's reference runs here."""
    try:
        if "problem" in asked:
            task = problem_task(asked["problem"], "request")
        else:
            task = Task.model_validate(asked["task"])
        require_function(task)
        without_test_code(task.reference)
        contract = asdict(built_contract(task, shapes=True))
        return {"task": task.model_dump(mode="json"), "contract": contract}
    except CodingFrameworkError as e:
        return {"error": str(e)}


def answer(request: bytes) -> bytes:
    """`read`, of JSON."""
    return json.dumps(read(json.loads(request))).encode()


def main() -> int:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    out.write(answer(sys.stdin.buffer.read()))
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A caller's problem or task as a task that can be judged, with its contract; in a sandbox, where a
`PythonChild` calls `answer`.

Asked {"problem": source} or {"task": fields}; answers {"task", "contract"}, or {"error": a
sentence}.
"""

from __future__ import annotations

import json
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
        contract = asdict(built_contract(task))
        return {"task": task.model_dump(mode="json"), "contract": contract}
    except CodingFrameworkError as e:
        return {"error": str(e)}


def answer(request: bytes) -> bytes:
    """`read`, of JSON."""
    return json.dumps(read(json.loads(request))).encode()

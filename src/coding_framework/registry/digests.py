"""What kernels, tasks and shape sets are called in receipts and templates."""

from __future__ import annotations

import hashlib

from coding_framework.types import Candidate, Task, TestCase


def kernel_id(code: str) -> str:
    """`sha256:...` of a source."""
    return f"sha256:{Candidate.model_construct(code=code).sha256}"


def task_digest(task: Task) -> str:
    """Digest of what an answer is judged by: reference, shape sets, constructor arguments."""
    said = task.model_dump_json(include={"reference", "init_args", "cases", "gpu_cases"})
    return hashlib.sha256(said.encode()).hexdigest()


def task_id(task: Task) -> str:
    """`sha256:...` of a task."""
    return f"sha256:{task_digest(task)}"


def shape_key(case: TestCase) -> str:
    """`float32[4096,8192];float32[8192]`."""
    return ";".join(f"{t.dtype}[{','.join(map(str, t.shape))}]" for t in case.inputs)

"""What kernels, tasks and shape sets are called in receipts and templates."""

from __future__ import annotations

import hashlib

from coding_framework.types import Candidate, Task, TestCase


def kernel_id(code: str) -> str:
    """`sha256:...` of a source."""
    return f"sha256:{Candidate.model_construct(code=code).sha256}"


_FUNCTION = frozenset({"reference", "init_args", "cases", "gpu_cases"})
_JUDGED_BY = _FUNCTION | {"naive_kernel", "scalar_positions", "atomic_order"}


def task_digest(task: Task) -> str:
    """Digest of the function that a task asks for: reference, shape sets, constructor arguments."""
    return _digest(task, _FUNCTION)


def task_id(task: Task) -> str:
    """`sha256:...` of all of a task that a judge reads: two tasks of one id are judged alike."""
    return f"sha256:{_digest(task, _JUDGED_BY)}"


def former_task_id(task: Task) -> str:
    """Its id up to protocol 14, which left out what else decides a verdict."""
    return f"sha256:{_digest(task, _FUNCTION)}"


def _digest(task: Task, fields: frozenset[str]) -> str:
    return hashlib.sha256(task.model_dump_json(include=set(fields)).encode()).hexdigest()


def shape_key(case: TestCase) -> str:
    """`float32[4096,8192];float32[8192]`."""
    return ";".join(f"{t.dtype}[{','.join(map(str, t.shape))}]" for t in case.inputs)

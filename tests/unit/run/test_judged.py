"""What is judged only where somebody asked for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest

from coding_framework.data.pairs import kernel_jobs
from coding_framework.data.synthesis.catalog import all_functions, build_task
from coding_framework.errors import UsageError
from coding_framework.run.judged import judge_jobs

pytestmark = pytest.mark.unit


def test_hours_of_judging_are_not_begun_unasked(tmp_path: Path) -> None:
    few = cycle(kernel_jobs(map(build_task, all_functions()[:2])))
    jobs = [replace(job, code=f"{job.code}// {i}\n") for i, job in enumerate(islice(few, 2000))]
    file = tmp_path / "receipts.jsonl"
    with pytest.raises(UsageError, match=r"\d+ kernels were never judged here, .* --yes begins it"):
        judge_jobs(jobs, file, 2, known={}, however_long=False)
    assert not file.exists()

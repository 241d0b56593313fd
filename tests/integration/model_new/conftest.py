"""One judge for all answers, with a build cache of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool

HERE = Path(__file__).parent


@pytest.fixture(scope="package")
def pool() -> Iterator[JudgePool]:
    with JudgePool(JudgeConfig(seed=7, host_cpu_s=3)) as pool:
        yield pool

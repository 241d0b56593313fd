"""Generated kernels against the same functions compiled by gcc. The large run is a benchmark."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.random_differential import differences
from support.random_kernels import make_kernel

pytestmark = pytest.mark.unit


@pytest.mark.ci
@settings(
    max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
    database=None,
)  # fmt: skip
@given(seed=st.integers(0, 2**32))
def test_generated_kernels_agree_with_gcc(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("random")
    rng = random.Random(seed)
    kernels = [make_kernel(rng, n) for n in range(10)]
    assert differences(kernels, folder, seed) == []

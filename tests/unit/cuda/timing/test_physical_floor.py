"""The floor of a time: never above what honest hardware reaches."""

from __future__ import annotations

import pytest

from coding_framework.cuda.timing.physical_floor import (
    PEAKS,
    floor_ms,
    is_impossible,
    peaks_of,
    roofline_ms,
)

pytestmark = pytest.mark.unit

H200 = PEAKS["NVIDIA H200"]
MIB = 1 << 20


def test_reading_a_tensor_takes_its_bytes_over_the_bandwidth() -> None:
    assert floor_ms(480_000_000, 0, H200) == pytest.approx(0.1)


def test_outputs_that_fit_the_cache_need_not_reach_memory() -> None:
    assert floor_ms(0, 60 * MIB, H200) == 0.0
    assert floor_ms(0, 61 * MIB, H200) == pytest.approx(1e3 * MIB / 4.8e12)


@pytest.mark.parametrize(("reached", "impossible"), [(0.92, False), (1.05, False), (1.3, True)])
def test_only_a_time_well_below_the_floor_is_impossible(reached: float, impossible: bool) -> None:
    floor = floor_ms(128 * MIB, 128 * MIB, H200)
    assert is_impossible(floor / reached, floor) is impossible


def test_an_unknown_gpu_has_the_bandwidth_that_was_measured() -> None:
    peaks = peaks_of("NVIDIA Something", 1e12, 10 * MIB)
    assert peaks.bytes_per_s == pytest.approx(1.1e12)


def test_what_was_measured_counts_where_it_is_more_than_the_data_sheet_says() -> None:
    assert peaks_of("NVIDIA H200", 5e12, 50 * MIB).bytes_per_s == 5e12
    assert peaks_of("NVIDIA H200", 1e12, 50 * MIB).bytes_per_s == 4.8e12


def test_the_roofline_is_the_slower_of_memory_and_arithmetic() -> None:
    assert roofline_ms(4_800_000, 0, "float32", H200) == pytest.approx(1e-3)
    assert roofline_ms(0, 67_000_000, "float32", H200) == pytest.approx(1e-3)
    assert roofline_ms(0, 990_000_000, "bfloat16", H200) == pytest.approx(1e-3)

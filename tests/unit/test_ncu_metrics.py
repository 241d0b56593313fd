"""Figures made from counters: unknown stays unknown, and noise is no finding."""

from __future__ import annotations

import pytest

from coding_framework import ncu_metrics as counters

pytestmark = pytest.mark.unit

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
REQUESTS = "smsp__inst_executed_op_shared_{}.sum"


def test_without_counters_nothing_is_known() -> None:
    assert counters.sectors_per_request({}, "ld") is None
    assert counters.used_share({}, "ld", "st") is None
    assert counters.free_of_conflicts({}) is None
    assert counters.occupancy_pct({}) is None
    assert counters.active_lanes({}) is None
    assert (counters.bank_conflicts({}), counters.divergent_share({})) == (0.0, 0.0)


def test_turns_lost_to_other_traffic_are_no_bank_conflicts() -> None:
    lost = {CONFLICTS.format("ld"): 120.0, REQUESTS.format("ld"): 1000.0}
    assert counters.bank_conflicts(lost) == 0.0
    assert counters.bank_conflicts({**lost, CONFLICTS.format("st"): 31.0}) == 31.0
    assert counters.bank_conflicts({**lost, CONFLICTS.format("ld"): 1000.0}) == 1000.0


def test_counts_by_address_are_believed_before_those_of_the_data_stage() -> None:
    counted = {CONFLICTS.format("ld"): 1000.0, "memory_l1_wavefronts_shared_ideal": 64.0}
    assert counters.bank_conflicts({**counted, "memory_l1_wavefronts_shared": 64.0}) == 0.0
    assert counters.bank_conflicts({**counted, "memory_l1_wavefronts_shared": 95.0}) == 31.0


def test_a_measured_occupancy_goes_before_a_possible_one() -> None:
    possible = {"sm__maximum_warps_per_active_cycle_pct": 75.0}
    assert counters.occupancy_pct(possible) == 75.0
    measured = {**possible, "sm__warps_active.avg.pct_of_peak_sustained_active": 40.0}
    assert counters.occupancy_pct(measured) == 40.0


def test_the_used_share_counts_sectors_of_32_bytes() -> None:
    given = {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 10.0,
        "smsp__sass_data_bytes_mem_global_op_ld.sum": 80.0,
    }
    assert counters.used_share(given, "ld") == 0.25
    assert counters.used_share(given, "st") is None

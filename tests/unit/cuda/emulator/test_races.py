"""Races on global memory: proved whatever the schedule was; what CUDA orders is none."""

from __future__ import annotations

import numpy as np
import pytest

from support.emulator_harness import Gpu, ptx_of

pytestmark = pytest.mark.unit

BLOCKS, ROWS = 24, 12
RACE, EQUAL, WEAK = "global_memory_race", "equal_writes", "unordered_read"


class Arrays:
    """A machine with the kernels of races.cu, and what they work on."""

    def __init__(self) -> None:
        self.gpu = Gpu(ptx_of("races.cu"), instruction_budget=2_000_000)
        self.x = self.gpu.put(np.arange(1, 4097, dtype=np.float32))
        self.y = self.gpu.put(np.zeros(4096, np.float32))
        self.t = self.gpu.put(np.zeros(4096, np.float32))
        self.flags = self.gpu.put(np.zeros(4096, np.int64))

    def faults(self, kernel: str, blocks: int, threads: int, *arguments: object) -> dict[str, str]:
        """Kind to message of what a checked launch found."""
        report = self.gpu.run(kernel, blocks, threads, *arguments, checks=True)
        return {fault.kind: fault.message for fault in report.faults}


@pytest.fixture
def on() -> Arrays:
    return Arrays()


def test_an_update_by_two_blocks_that_never_meet_is_a_race_with_both_places(on: Arrays) -> None:
    found = on.faults("two_blocks_a_row", BLOCKS, 32, on.x, on.y, ROWS)
    assert set(found) == {RACE}
    assert f"block ({ROWS},0,0)" in found[RACE]
    assert "block (0,0,0)" in found[RACE]
    assert "st.global.f32 of line 10" in found[RACE]


def test_volatile_orders_nothing(on: Arrays) -> None:
    assert RACE in on.faults("two_blocks_a_row_volatile", BLOCKS, 32, on.x, on.y, ROWS)


def test_atomics_do_not_race(on: Arrays) -> None:
    assert on.faults("two_blocks_a_row_atomic", BLOCKS, 32, on.x, on.y, ROWS) == {}


def test_a_plain_store_races_with_atomics_of_other_blocks(on: Arrays) -> None:
    assert RACE in on.faults("begun_by_one_block", BLOCKS, 32, on.x, on.y, ROWS)


@pytest.mark.parametrize(("way", "kinds"), [(0, set()), (1, {RACE}), (2, {RACE}), (3, set())])
def test_the_last_block_sees_what_a_fence_and_a_ticket_publish(
    on: Arrays, way: int, kinds: set[str]
) -> None:
    assert set(on.faults("last_block", BLOCKS, 128, on.x, on.y, 0, way)) == kinds
    assert on.gpu.get(on.y, (1,))[0] == sum(range(1, BLOCKS + 1))


@pytest.mark.parametrize(("way", "kinds"), [(0, set()), (1, {RACE}), (2, set())])
def test_look_back(on: Arrays, way: int, kinds: set[str]) -> None:
    assert set(on.faults("look_back", BLOCKS, 32, on.x, on.y, on.flags, on.t, way)) == kinds
    assert on.gpu.get(on.y, (BLOCKS,))[-1] == sum(range(1, BLOCKS + 1))


def test_look_back_with_value_and_state_in_one_word(on: Arrays) -> None:
    assert on.faults("look_back_packed", BLOCKS, 32, on.x, on.y, on.flags) == {}


@pytest.mark.parametrize(("fence", "kinds"), [(1, set()), (0, {RACE})])
def test_a_lock_orders_what_it_guards(on: Arrays, fence: int, kinds: set[str]) -> None:
    assert set(on.faults("spin_lock", BLOCKS, 32, on.x, on.y, on.flags, fence)) == kinds


def test_turns_are_in_order(on: Arrays) -> None:
    assert on.faults("take_turns", BLOCKS, 32, on.x, on.y) == {}
    assert on.gpu.get(on.y, (1,))[0] == sum(range(1, BLOCKS + 1))


@pytest.mark.parametrize(("together", "races"), [(1, False), (0, True)])
def test_a_barrier_of_all_blocks_that_is_written_by_hand(
    on: Arrays, together: int, races: bool
) -> None:
    found = on.faults("reversed", 16, 64, on.x, on.t, on.y, 1000, together)
    assert (RACE in found) is races
    assert bool(found) is races


def test_equal_values_are_a_pitfall(on: Arrays) -> None:
    assert set(on.faults("overlapping_tails", 4, 256, on.x, on.y, 900)) == {EQUAL}


def test_neighbouring_bytes_of_a_word_are_no_race(on: Arrays) -> None:
    assert on.faults("neighbouring_bytes", 9, 64, on.x, on.y, 101) == {}


@pytest.mark.parametrize(("wait", "kinds"), [(1, set()), (0, {RACE})])
def test_warps_of_a_block_race_as_blocks_do(on: Arrays, wait: int, kinds: set[str]) -> None:
    fresh = on.gpu.put(np.zeros(256, np.float32))
    assert set(on.faults("warps_of_a_block", 1, 256, on.x, fresh, on.y, wait)) == kinds


def test_a_plain_read_before_a_compare_and_swap_is_a_pitfall(on: Arrays) -> None:
    assert set(on.faults("largest", 8, 128, on.x, on.y, 1000)) <= {WEAK}
    assert on.gpu.get(on.y, (1,))[0] == 1000


@pytest.mark.parametrize("order", ["forward", "reverse", "interleaved"])
def test_blocks_that_wait_take_few_instructions(order: str) -> None:
    gpu = Gpu(ptx_of("races.cu"), instruction_budget=100_000, block_order=order)
    flag, out = gpu.put(np.zeros(1, np.int32)), gpu.put(np.zeros(300, np.int32))
    gpu.run("waits_for_a_later_block", 300, 32, flag, out)
    assert gpu.get(out, (300,), np.int32).all()


@pytest.mark.parametrize(
    ("way", "known", "kinds"),
    [
        (0, 0.0, set()),
        (1, 0.0, {RACE}),
        (2, 3.0, {RACE}),  # it matters where what was there before is read
        (2, 6.0, {RACE}),  # and where the update is
        (2, 5000.0, set()),
        (3, 0.0, {RACE, EQUAL}),
    ],
)
def test_a_read_whose_value_is_dropped_is_no_race(
    on: Arrays, way: int, known: float, kinds: set[str]
) -> None:
    updated = on.gpu.put(np.arange(1, 65, dtype=np.float32))
    found = on.faults("spare_threads", 1, 256, updated, on.y, way, known)
    assert set(found) == kinds
    assert np.array_equal(on.gpu.get(updated, (64,)), 2 * np.arange(1, 65, dtype=np.float32))


@pytest.mark.parametrize(
    "way", range(6), ids=["cp_async", "vector", "ldcg", "byte", "volatile", "cas"]
)
def test_a_read_that_is_kept_is_a_race_however_it_is_made(on: Arrays, way: int) -> None:
    updated = on.gpu.put(np.arange(1, 65, dtype=np.float32))
    assert RACE in on.faults("spare_threads_copy", 1, 256, updated, on.y, way)

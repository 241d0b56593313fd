"""Which work streams, events and synchronisations order."""

from __future__ import annotations

import pytest

from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.plan.stream_order import INPUTS, Ordering, StreamOrder, Unordered

pytestmark = pytest.mark.unit

S, U = 0x1010, 0x1020
"""Streams that wait for the default stream, and it for them."""
FREE = 0x1038
"""A stream made `cudaStreamNonBlocking`."""
EVENT = 0x2000


def of(*steps: tuple[object, ...], end: int) -> Unordered:
    order = StreamOrder()
    for number, step in enumerate(steps):
        match step:
            case ("work", int(operation), int(stream)):
                order.work(operation, stream)
            case ("done",):
                order.all_done()
            case (Ordering() as what, int(one), int(other)):
                order.note(what, one, other)
            case _:
                raise AssertionError(f"step {number}")
    return order.unordered(end)


def test_one_stream_is_in_order() -> None:
    assert of(("work", 0, 0), ("work", 1, 0), ("work", 2, 1), end=3) == ()


def test_the_default_stream_waits_for_the_others_and_they_for_it() -> None:
    assert of(("work", 0, 0), ("work", 1, S), ("work", 2, 0), ("work", 3, U), end=4) == ()


def test_two_streams_do_not_wait_for_each_other() -> None:
    assert of(("work", 0, S), ("work", 1, U), end=2) == ((1, (0,)),)


def test_a_stream_that_does_not_block_is_not_ordered_with_the_caller() -> None:
    assert of(("work", 0, FREE), end=1) == ((0, (INPUTS,)), (1, (0,)))


def test_events_order_both_ways() -> None:
    assert (
        of(
            (Ordering.RECORD, EVENT, 0), (Ordering.WAIT, FREE, EVENT), ("work", 0, FREE),
            (Ordering.RECORD, EVENT, FREE), (Ordering.WAIT, 0, EVENT), end=1,
        ) == ()
    )  # fmt: skip


def test_an_event_recorded_too_early_orders_nothing_that_comes_after() -> None:
    early = (Ordering.RECORD, EVENT, S), ("work", 0, S), (Ordering.WAIT, U, EVENT), ("work", 1, U)
    assert of(*early, end=2) == ((1, (0,)),)


@pytest.mark.parametrize("wait", [(Ordering.STREAM_DONE, S, 0), ("done",)])
def test_what_the_host_waited_for_is_before_all_that_it_asks_for_later(
    wait: tuple[object, ...],
) -> None:
    assert of(("work", 0, S), wait, ("work", 1, U), end=2) == ()


def test_too_many_pairs_are_refused() -> None:
    work = [("work", i, S if i < 1200 else U) for i in range(2400)]
    with pytest.raises(CandidateFault):
        of(*work, end=2400)

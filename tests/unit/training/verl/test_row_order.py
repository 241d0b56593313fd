"""The order of a step's rows, whatever order they ended in."""

from __future__ import annotations

import random

from coding_framework.training.verl.rows import numbered, place


def test_rows_come_by_prompt_group_conversation_and_turn() -> None:
    uids = [numbered(uid, n) for n, uid in enumerate(["f3-c", "00-a", "9d-b"], start=9)]
    wanted = [
        f"{uid}_{group}_{session}_0"
        for uid in uids
        for group in ("generator.0", "optimizer.1")
        for session in range(12)
    ]
    shuffled = list(wanted)
    random.Random(0).shuffle(shuffled)
    assert sorted(shuffled, key=place) == wanted
    assert all("_" not in uid for uid in uids)


def test_verls_own_keys_have_an_order_too() -> None:
    assert place("7-x_11_2") == ("7-x", "", 11, 2)

"""What a process beside the first one does in tests of `sft_ranks`."""

from __future__ import annotations

import time

from coding_framework.training.sft_ranks import Rank


def join_and_say_nothing(rank: Rank, device: str) -> None:
    """It takes part in no sum."""
    with rank.joined(device):
        time.sleep(600)

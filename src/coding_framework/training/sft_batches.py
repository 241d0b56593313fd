"""In which order SFT takes its examples, and how much of its batches is padding.

Batches of examples of about equal length need little padding. Causal attention over rows that are
padded at the right needs no mask, which lets PyTorch take its fastest kernel for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

STRETCH = 64
"""Batches whose examples are sorted together: what is drawn into them stays random."""


def order_by_length(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int = 0
) -> list[int]:
    """All examples once, those of a batch next to each other; the same for one seed and epoch.

    The first batch has the longest examples, so that memory that is too small is noticed at once;
    the last one may be short.
    """
    rng = random.Random(f"{seed}/{epoch}")
    drawn = list(range(len(lengths)))
    rng.shuffle(drawn)
    whole = len(drawn) - len(drawn) % batch_size
    rest, drawn = drawn[whole:], drawn[:whole]
    batches = []
    for start in range(0, whole, STRETCH * batch_size):
        stretch = sorted(drawn[start : start + STRETCH * batch_size], key=lambda i: -lengths[i])
        batches += [stretch[i : i + batch_size] for i in range(0, len(stretch), batch_size)]
    rng.shuffle(batches)
    longest = max(batches, key=lambda batch: max(lengths[i] for i in batch), default=[])
    batches.sort(key=lambda batch: batch is not longest)
    return [i for batch in (*batches, rest) for i in batch]


def padded_share(lengths: Sequence[int], order: Sequence[int], batch_size: int) -> float:
    """Share of the tokens of padded batches that are padding."""
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    held = sum(len(b) * max(lengths[i] for i in b) for b in batches)
    return 1.0 - sum(lengths[i] for i in order) / held if held else 0.0


class ByLength:
    """`order_by_length` as a sampler of PyTorch's. An epoch's order is its own, and the same in a
    run that goes on."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the loader before each epoch."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(order_by_length(self._lengths, self._batch_size, self._seed, self._epoch))

    def __len__(self) -> int:
        return len(self._lengths)

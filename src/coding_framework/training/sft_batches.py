"""In which order SFT takes its examples.

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


def shuffled(examples: int, seed: int, epoch: int = 0) -> list[int]:
    """All examples once, at random; the same for one seed and epoch."""
    order = list(range(examples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def share(order: Sequence[int], batch_size: int, rank: int, ranks: int) -> list[int]:
    """Every so manieth batch of an order, for one of several ranks. Each gets as many: where the
    batches do not divide evenly, the last ranks learn one of the first batches again."""
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    for_each = -(-len(batches) // ranks)
    mine = [batches[(rank + n * ranks) % len(batches)] for n in range(for_each)]
    return [i for batch in mine for i in batch]


class EpochOrder:
    """An order of the examples as a sampler of PyTorch's. An epoch's order is its own, and the same
    in a run that goes on.

    by_length: as `order_by_length`, else at random. rank: of so many `ranks`, which share the
    batches.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        seed: int,
        *,
        by_length: bool = True,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._by_length, self._rank, self._ranks = by_length, rank, ranks
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the loader before each epoch."""
        self._epoch = epoch

    def _order(self) -> list[int]:
        if self._by_length:  # the ranks' batches of a step are one batch, so none waits for others
            together = self._batch_size * self._ranks
            return order_by_length(self._lengths, together, self._seed, self._epoch)
        return shuffled(len(self._lengths), self._seed, self._epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(share(self._order(), self._batch_size, self._rank, self._ranks))

    def __len__(self) -> int:
        return len(share(range(len(self._lengths)), self._batch_size, self._rank, self._ranks))

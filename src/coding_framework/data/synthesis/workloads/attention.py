"""Attention: the probabilities of the scores, and the whole of it, with and without a causal mask.

x holds queries, y keys, z values.
"""

from __future__ import annotations

from coding_framework.data.synthesis.workloads.base import Given, Sizes, WorkloadOp, within

_ALL = Sizes(
    "bnkwv",
    ((2, 48, 48, 32, 32), (3, 33, 33, 19, 35), (1, 3, 3, 5, 4)),
    ((64, 1024, 1024, 64, 64), (5, 1021, 1021, 61, 67), (1, 3, 3, 5, 4)),
)
"""Batch, queries, keys, extent of queries and keys, extent of values."""
_SCORES = Sizes(
    "bnkw",
    ((2, 64, 64, 32), (3, 45, 45, 19), (1, 3, 3, 5)),
    ((16, 2048, 2048, 64), (5, 1021, 1021, 61), (1, 3, 3, 5)),
)
_SCORE = "s = (x @ y.transpose(1, 2)) * x.size(2) ** -0.5"
_MASK = "s = s.masked_fill(torch.ones_like(s).triu(1) > 0, float('-inf'))"
_KEYS, _VALUES = Given("y", "b k w"), Given("z", "b k v")


def _scores(name: str, *mask: str) -> WorkloadOp:
    return WorkloadOp(
        name, (_SCORE, *mask, "torch.softmax(s, dim=2)"),
        f"softmax of the {'causal ' if mask else ''}scores ({{v}}) @ y^T / sqrt(w)",
        _SCORES, (_KEYS,), x="b n w", terms="w+k", interval=within(0.0, 1.0, 0.0, 0.1),
    )  # fmt: skip


def _attention(name: str, *mask: str) -> WorkloadOp:
    return WorkloadOp(
        name, (_SCORE, *mask, "torch.softmax(s, dim=2) @ z"),
        f"{'causal ' if mask else ''}attention of the queries {{v}}, keys y, values z",
        _ALL, (_KEYS, _VALUES), x="b n w", terms="w+k", interval=within(-2.0, 2.0, -0.6, 0.6),
    )  # fmt: skip


ATTENTION_SCORES = (_scores("attnscores"), _scores("causalscores", _MASK))
ATTENTION = (_attention("attention"), _attention("causalattention", _MASK))

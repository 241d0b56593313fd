"""Attention: the probabilities of the scores, and the whole of it, with and without a causal mask.

x holds queries [c, m, w], y keys [c, n, w], z values [c, n, h].
"""

from __future__ import annotations

from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Shapes,
    Size,
    WorkloadOp,
    within,
)

_SIZES: tuple[Size, Size, Size] = ((2, 48, 48, 32, 32), (3, 33, 33, 19, 35), (1, 3, 3, 5, 4))
"""Batch, queries, keys, extent of queries and keys, extent of values."""
_GPU_SIZES: tuple[Size, Size, Size] = (
    (64, 1024, 1024, 64, 64),
    (5, 1021, 1021, 61, 67),
    (1, 3, 3, 5, 4),
)
_SCORES: tuple[Size, Size, Size] = ((2, 64, 64, 32, 0), (3, 45, 45, 19, 0), (1, 3, 3, 5, 0))
_GPU_SCORES: tuple[Size, Size, Size] = (
    (16, 2048, 2048, 64, 0),
    (5, 1021, 1021, 61, 0),
    (1, 3, 3, 5, 0),
)


# --- probabilities -------------------------------------------------------------------------------


# --- attention -----------------------------------------------------------------------------------


# --- the operations ------------------------------------------------------------------------------

_SCORE = "s = (x @ y.transpose(1, 2)) * x.size(2) ** -0.5"
_MASK = "s = s.masked_fill(torch.ones_like(s).triu(1) > 0, float('-inf'))"


def _queries_and_keys(params: Params, size: Size) -> tuple[Given, ...]:
    batch, queries, keys, extent, _ = size
    return (Given("x", (batch, queries, extent)), Given("y", (batch, keys, extent)))


def _all_three(params: Params, size: Size) -> tuple[Given, ...]:
    batch, _, keys, _, values = size
    return (*_queries_and_keys(params, size), Given("z", (batch, keys, values)))


def _terms(params: Params, shapes: Shapes) -> int:
    return shapes[0][2] + shapes[1][1]


def _score_op(name: str, causal: bool) -> WorkloadOp:
    masked = (_MASK,) if causal else ()
    return WorkloadOp(
        name=name,
        inputs=_queries_and_keys,
        torch=(_SCORE, *masked, "torch.softmax(s, dim=2)"),
        spoken=f"softmax of the {'causal ' if causal else ''}scores ({{v}}) @ y^T / sqrt(w)",
        sizes=_SCORES,
        gpu_sizes=_GPU_SCORES,
        interval=within(0.0, 1.0, 0.0, 0.1),
        terms=_terms,
    )


def _attention_op(name: str, causal: bool) -> WorkloadOp:
    masked = (_MASK,) if causal else ()
    return WorkloadOp(
        name=name,
        inputs=_all_three,
        torch=(_SCORE, *masked, "torch.softmax(s, dim=2) @ z"),
        spoken=f"{'causal ' if causal else ''}attention of the queries {{v}}, keys y, values z",
        sizes=_SIZES,
        gpu_sizes=_GPU_SIZES,
        interval=within(-2.0, 2.0, -0.6, 0.6),
        terms=_terms,
    )


ATTENTION_SCORES = (_score_op("attnscores", False), _score_op("causalscores", True))
ATTENTION = (_attention_op("attention", False), _attention_op("causalattention", True))

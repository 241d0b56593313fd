"""The KL divergence from the start model in each token's advantage (`kl_in_advantage`).

A policy that drifts can lose a token that every answer needs: after 16 steps one wrote `threadIdx`
without `.x`, first 1, then 15, then 94 of 256 answers (two H100s, 2026-11-26). All answers of their
groups failed, so none had an advantage, and nothing brought the token back. Here it pays for
itself: a token's advantage is lowered by the coefficient times the log of its probability over the
start model's (the k1 estimate, of arXiv:1707.06347's reward and arXiv:2501.03262), after the
group's baseline, which would take out what all of a group have in common.

Bound into verl's trainer where this is imported; verl computes the start model's log-probs.
"""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from coding_framework.training.verl.equal_rows import put

KL_METRIC = "actor/reference_kl"
FREE_NATS = 0.5
"""A token whose probability lies within this of the start model's pays nothing, so a row that has
not drifted needs no update."""
MOST_NATS = 10.0

_ADVANTAGES = PPOTrainer._compute_advantage


def penalty(log_probs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """What each token pays, in nats: log-probs less the start model's, at most `MOST_NATS` either
    way, and 0 within `FREE_NATS`."""
    drift = (log_probs - reference).clamp(-MOST_NATS, MOST_NATS)
    return torch.where(drift.abs() > FREE_NATS, drift, torch.zeros_like(drift))


def _anchored(trainer: Any, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
    """verl's advantages, less the coefficient times the tokens' penalties."""
    told = _ADVANTAGES(trainer, batch, metrics)
    coefficient = trainer.config.algorithm.turn_groups.kl_in_advantage
    if not coefficient:
        return told
    fields = ["advantages", "old_log_probs", "ref_log_prob", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    columns = [data[name].unbind() for name in fields]
    rows, drifts, tokens = [], 0.0, 0
    for advantage, log_probs, reference, mask in zip(*columns, strict=True):
        learnt = mask.to(advantage.dtype)
        rows.append(advantage - coefficient * penalty(log_probs, reference) * learnt)
        drifts += float(((log_probs - reference) * learnt).sum())
        tokens += int(mask.sum())
    metrics[KL_METRIC] = drifts / max(1, tokens)
    put(batch.keys, batch.partition_id, advantages=rows)
    return told


PPOTrainer._compute_advantage = _anchored

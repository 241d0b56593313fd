"""The policy update on the rows that teach, bound into verl's trainer where this is imported.

A group whose returns are all equal has advantages of 0: its rows cost a forward and a backward pass
and add nothing to the gradient (in the quickstart a third to all of a step's rows). Leaving them
out also takes their tokens out of the loss's mean, as DAPO's dynamic sampling does. They stay where
a KL or entropy term gives each row a gradient of its own.
"""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from coding_framework.training.verl.overrides import ROWS_METRIC

_UPDATE_ALL = PPOTrainer._update_actor


def chosen_rows(teaches: list[bool], lengths: list[int], ranks: int) -> list[int]:
    """Rows of an update: all that teach, and the shortest others up to a multiple of `ranks`."""
    chosen = [row for row, teaching in enumerate(teaches) if teaching]
    others = sorted((n, row) for row, n in enumerate(lengths) if not teaches[row])
    missing = -len(chosen) % ranks
    return chosen + [row for _, row in others[:missing]]


def _update_teaching_rows(trainer: Any, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
    """One update with the rows that teach; none where no row does. Returns the whole batch."""
    actor = trainer.config.actor_rollout_ref.actor
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"]
    )
    teaches = [bool(row.any()) for row in data["advantages"].unbind()]
    metrics[ROWS_METRIC] = sum(teaches)
    if actor.use_kl_loss or actor.entropy_coeff != 0.0:
        return _UPDATE_ALL(trainer, batch, metrics)
    if not any(teaches):
        metrics["actor/grad_norm"] = 0.0
        return batch
    group = trainer.actor_rollout_wg
    ranks = max(group._dispatch_info["actor"]) + 1
    lengths = [int(tag["seq_len"]) for tag in batch.tags]
    rows = chosen_rows(teaches, lengths, ranks)
    part = batch.select_keys([batch.keys[row] for row in rows])
    work = calculate_workload(torch.tensor([lengths[row] for row in rows]))
    parts = get_seqlen_balanced_partitions(work, k_partitions=ranks, equal_size=True)
    part.reorder([row for rank in parts for row in rank])
    part.extra_info = {
        **batch.extra_info,
        "calculate_entropy": bool(actor.calculate_entropy),
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": len(rows),  # one update a step
        "mini_batch_size": len(rows),
        "epochs": actor.ppo_epochs,
        "seed": actor.data_loader_seed,
        "dataloader_kwargs": {"shuffle": actor.shuffle},
        "temperature": trainer.config.actor_rollout_ref.rollout.temperature,
    }
    if trainer.config.trainer.device == "cpu":
        # No larger micro-batch is faster there, and each token held costs a megabyte.
        limit = actor.ppo_max_token_len_per_gpu
        part.extra_info["max_token_len_per_gpu"] = min(limit, max(lengths[row] for row in rows))
    output = rename_dict(group.update_actor(part)["metrics"], "actor/")
    output["perf/mfu/actor"] = output.pop("actor/mfu")
    metrics.update(reduce_metrics(output))
    return batch


PPOTrainer._update_actor = _update_teaching_rows

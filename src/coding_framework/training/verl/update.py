"""The policy update on the rows that teach, bound into verl's trainer where this is imported.

A group whose returns are all equal has advantages of 0: its rows cost a forward and a backward pass
and add nothing to the gradient (in the quickstart a third to all of a step's rows). Leaving them
out also takes their tokens out of the loss's mean, as DAPO's dynamic sampling does. They stay where
a KL or entropy term gives each row a gradient of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from coding_framework.training.verl.overrides import GROUPS_METRIC, ROWS_METRIC

_UPDATE_ALL = PPOTrainer._update_actor


def chosen_rows(teaches: list[bool], lengths: list[int], multiple: int) -> list[int]:
    """Rows of a step's updates: all that teach, and the shortest others up to a multiple of
    `multiple`, of each rank's and each update's share."""
    chosen = [row for row, teaching in enumerate(teaches) if teaching]
    others = sorted((n, row) for row, n in enumerate(lengths) if not teaches[row])
    missing = -len(chosen) % multiple
    return chosen + [row for _, row in others[:missing]]


def teaching_groups(keys: Sequence[str], teaches: Sequence[bool]) -> int:
    """How many groups have an advantage. Keys begin with their group's (`agent_loop`): the
    prompt's id, then role and turn."""
    return len(
        {tuple(k.split("_")[:2]) for k, teaching in zip(keys, teaches, strict=True) if teaching}
    )


def updates_of(rows: int, multiple: int, wanted: int) -> int:
    """How many equal updates the rows that are there can fill, at most `wanted`."""
    return max(1, min(wanted, rows // multiple))


def _update_teaching_rows(trainer: Any, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
    """The step's updates with the rows that teach; none where too few groups do. Returns the whole
    batch."""
    own = trainer.config.algorithm.turn_groups
    actor = trainer.config.actor_rollout_ref.actor
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"]
    )
    teaches = [bool(row.any()) for row in data["advantages"].unbind()]
    metrics[ROWS_METRIC] = sum(teaches)
    metrics[GROUPS_METRIC] = teaching_groups(batch.keys, teaches)
    if metrics[GROUPS_METRIC] < own.least_groups:
        metrics["actor/grad_norm"] = 0.0
        return batch
    if actor.use_kl_loss or actor.entropy_coeff != 0.0:
        return _UPDATE_ALL(trainer, batch, metrics)
    group = trainer.actor_rollout_wg
    ranks = max(group._dispatch_info["actor"]) + 1
    lengths = [int(tag["seq_len"]) for tag in batch.tags]
    updates = updates_of(sum(teaches), ranks, own.updates_per_step)
    rows = chosen_rows(teaches, lengths, ranks * updates)
    part = batch.select_keys([batch.keys[row] for row in rows])
    work = calculate_workload(torch.tensor([lengths[row] for row in rows]))
    parts = get_seqlen_balanced_partitions(work, k_partitions=ranks, equal_size=True)
    part.reorder([row for rank in parts for row in rank])
    part.extra_info = {
        **batch.extra_info,
        "calculate_entropy": bool(actor.calculate_entropy),
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": len(rows) // updates,
        "mini_batch_size": len(rows) // updates,
        "epochs": actor.ppo_epochs,
        "seed": actor.data_loader_seed,
        # Shuffled, each of several updates has rows of most groups.
        "dataloader_kwargs": {"shuffle": actor.shuffle or updates > 1},
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

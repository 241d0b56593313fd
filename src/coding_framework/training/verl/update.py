"""The policy update on the rows that teach, bound into verl's trainer where this is imported.

A group whose returns are all equal has advantages of 0: its rows cost a forward and a backward pass
and add nothing to the gradient (in the quickstart a third to all of a step's rows). Leaving them
out also takes their tokens out of the loss's mean, as DAPO's dynamic sampling does. They stay where
a KL or entropy term gives each row a gradient of its own. Of rows that are equal one is learnt from
with the advantages of all (`equal_rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from coding_framework.training.verl.equal_rows import (
    chosen_rows,
    contents,
    first_of_equals,
    put,
    share,
)
from coding_framework.training.verl.overrides import GROUPS_METRIC, ROWS_METRIC

_UPDATE_ALL = PPOTrainer._update_actor


def weights_of(
    chosen: Sequence[int], equals: Sequence[int], teaches: Sequence[bool], learnt: Sequence[int]
) -> dict[int, float]:
    """By chosen row, what its advantage is multiplied by, so that the mean over the tokens of the
    chosen rows has the gradient of the mean over those of all rows that teach. equals: of each row
    the first equal one that teaches. learnt: tokens of each row that are learnt from. A chosen row
    that others stand for has 0."""
    counts = Counter(first for first, teaching in zip(equals, teaches, strict=True) if teaching)
    alone = sum(learnt[row] for row in chosen)
    filled = sum(learnt[row] for row in chosen if not teaches[row])
    every = sum(n for n, teaching in zip(learnt, teaches, strict=True) if teaching) + filled
    share = alone / every if every else 1.0
    return {row: counts[row] * share for row in chosen}


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
    where = {"keys": batch.keys, "partition_id": batch.partition_id}
    data = dict(tq.kv_batch_get(select_fields=["advantages"], **where).items())
    advantages = data["advantages"].unbind()
    teaches = [bool(row.any()) for row in advantages]
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
    data |= tq.kv_batch_get(select_fields=["input_ids", "response_mask"], **where).items()
    equals = first_of_equals(contents(data, *data))
    learnt = [int(mask.sum()) for mask in data["response_mask"].unbind()]
    different = [teaching and equals[row] == row for row, teaching in enumerate(teaches)]
    updates = updates_of(sum(different), ranks, own.updates_per_step)
    chosen = chosen_rows(different, lengths, ranks * updates)
    weights = weights_of(chosen, equals, teaches, learnt)
    part = share(batch, chosen, lengths, ranks)
    part.extra_info = {
        **batch.extra_info,
        "calculate_entropy": bool(actor.calculate_entropy),
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": len(chosen) // updates,
        "mini_batch_size": len(chosen) // updates,
        "epochs": actor.ppo_epochs,
        "seed": actor.data_loader_seed,
        # Shuffled, each of several updates has rows of most groups.
        "dataloader_kwargs": {"shuffle": actor.shuffle or updates > 1},
        "temperature": trainer.config.actor_rollout_ref.rollout.temperature,
    }
    if trainer.config.trainer.device == "cpu":
        # No larger micro-batch is faster there, and each token held costs a megabyte.
        limit = actor.ppo_max_token_len_per_gpu
        part.extra_info["max_token_len_per_gpu"] = min(limit, max(lengths[row] for row in chosen))
    heavier = [row for row in chosen if weights[row] != 1.0 and teaches[row]]
    keys = [batch.keys[row] for row in heavier]
    if heavier:
        scaled = [advantages[row] * weights[row] for row in heavier]
        put(keys, batch.partition_id, advantages=scaled)
    output = rename_dict(group.update_actor(part)["metrics"], "actor/")
    if heavier:  # what the step's records tell is of each row's own
        put(keys, batch.partition_id, advantages=[advantages[row] for row in heavier])
    output["perf/mfu/actor"] = output.pop("actor/mfu")
    metrics.update(reduce_metrics(output))
    return batch


PPOTrainer._update_actor = _update_teaching_rows

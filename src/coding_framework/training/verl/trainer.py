"""verl's trainer and its buffer of rows, as subclasses: what a step of ours does otherwise.

A step learns from turns, each in a group of its own (`agent_loop`). Rows come in the order of their
prompts. Equal rows are computed once. A row whose group has no advantage costs no update. A token
that left the start model pays for itself (`kl_in_advantage`). `put_in_place` has verl use these
classes.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils
from verl.utils.debug import marked_timer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from coding_framework.paths import write_atomic
from coding_framework.store.checkpoints import START_MODEL, finish, manifest_of
from coding_framework.store.conversations import note_learnt
from coding_framework.training.credit import group_advantages
from coding_framework.training.verl import patches
from coding_framework.training.verl.episode_spec import SPEC_VARIABLE, read_spec
from coding_framework.training.verl.overrides import ESTIMATOR, GROUPS_METRIC, ROWS_METRIC
from coding_framework.training.verl.rows import (
    chosen_rows,
    contents,
    first_of_equals,
    has_advantage,
    numbered,
    penalty,
    place,
    put,
    read,
    share,
    teaching_groups,
    updates_of,
    weights_of,
    within_rounds,
)

KL_METRIC = "actor/reference_kl"
LOOK_EVERY_S = 0.1
"""How often a step looks whether its answers are there; with verl's 2 s each waited a second for
nothing."""
Reasons = tuple[set[str], set[str], set[str], Counter[float]]

_VERLS_RUNNER: Any = TaskRunnerV1.__ray_metadata__.modified_class.__ray_actor_class__


class TaskRunner(_VERLS_RUNNER):  # type: ignore[misc]
    """verl's process that trains, with the trainers of this module."""

    def __init__(self) -> None:
        super().__init__()  # needed: see `agent_loop.TurnRowsWorker`
        put_in_place()


class TurnsTrainer(PPOTrainer):  # type: ignore[misc]
    """What all of verl's trainers do otherwise here; each mode's class is below."""

    _prompts_drawn = 0

    def _build_replay_buffer(self) -> ReplayBuffer:
        buffer = super()._build_replay_buffer()
        buffer.train_batch_size = self.config.data.train_batch_size  # verl tells it in step alone
        return buffer

    def on_step_begin(self) -> None:
        """A curriculum learns from the steps before."""
        curriculum = getattr(self.train_dataset, "curriculum", None)
        if curriculum is not None:
            curriculum.advance(self.global_steps - 1)
        super().on_step_begin()

    def _fetch_one_gen_batch(self) -> Any:
        """verl's prompts, numbered as they are drawn, in their names: `place` sorts by them. Sums
        of floats depend on their order: in the order in which they end, the same answers gave
        losses that differed in the seventh digit."""
        batch = super()._fetch_one_gen_batch()
        first = self._prompts_drawn
        names = [numbered(str(uid), first + i) for i, uid in enumerate(batch["uid"])]
        self._prompts_drawn += len(names)
        batch.pop("uid")
        tensordict_utils.assign_non_tensor_stack(batch, "uid", names)
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """verl's log-probs of the policy before its update, of the rows that differ; copied to
        those that are equal."""
        correction = self.config.algorithm.get("rollout_correction", None)
        bypass = correction and correction.get("bypass_mode", False)
        found = None if bypass else self._different(batch)
        if found is None:
            return super()._compute_old_log_prob(batch, metrics)
        super()._compute_old_log_prob(found.part, metrics)
        told = _copy(batch, found, "old_log_probs", "entropy")
        data = read(batch, "entropy", "response_mask")
        entropy, masks = (data[name].unbind() for name in ("entropy", "response_mask"))
        total = sum(int(mask.sum()) for mask in masks)
        if total:  # of all answers, as verl tells it
            of_rows = sum(float((e * m).sum()) for e, m in zip(entropy, masks, strict=True))
            metrics["actor/entropy"] = of_rows / total
        return told

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """The start model's log-probs, likewise."""
        found = self._different(batch)
        if found is None:
            told = super()._compute_ref_log_prob(batch, metrics)
            batch.extra_info.pop("no_lora_adapter", None)  # of this pass alone
            return told
        super()._compute_ref_log_prob(found.part, metrics)
        return _copy(batch, found, "ref_log_prob")

    def _different(self, batch: KVBatchMeta) -> _Different | None:
        """None where each row has to be computed."""
        rows = read(batch, "input_ids", "response_mask")
        equals = first_of_equals(contents(rows, "input_ids", "response_mask"))
        lengths = [int(tag["seq_len"]) for tag in batch.tags]
        firsts = set(equals)
        wanted = [row in firsts for row in range(len(equals))]
        chosen = chosen_rows(wanted, lengths, self._ranks)
        if len(chosen) == len(equals):
            return None
        part = share(batch, chosen, lengths, self._ranks)
        part.extra_info = dict(batch.extra_info)
        return _Different(equals, chosen, part)

    @property
    def _ranks(self) -> int:
        return int(max(self.actor_rollout_wg._dispatch_info["actor"])) + 1

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """verl's advantages, less the coefficient times what each token pays (`penalty`): after the
        group's baseline, which would take out what all of a group have in common.

        A policy that drifts can lose a token that every answer needs: after 16 steps one wrote
        `threadIdx` without `.x`, first 1, then 15, then 94 of 256 answers (two H100s, 2026-11-26).
        All answers of their groups failed, so none had an advantage, and nothing brought it back.
        """
        told = super()._compute_advantage(batch, metrics)
        coefficient = self.config.algorithm.turn_groups.kl_in_advantage
        if not coefficient:
            return told
        fields = ["advantages", "old_log_probs", "ref_log_prob", "response_mask"]
        data = read(batch, *fields)
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

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """The step's updates with the rows that teach, of equal ones one for all; none where too
        few groups do. Returns the whole batch.

        A group whose returns are all equal has advantages of 0: its rows cost a forward and a
        backward pass and add nothing to the gradient (in the quickstart a third to all of a step's
        rows). Leaving them out also takes their tokens out of the loss's mean, as DAPO's dynamic
        sampling does. They stay where a KL or entropy term gives each row a gradient of its own.
        """
        own = self.config.algorithm.turn_groups
        actor = self.config.actor_rollout_ref.actor
        data = dict(read(batch, "advantages").items())
        advantages = data["advantages"].unbind()
        teaches = [bool(row.any()) for row in advantages]
        metrics[ROWS_METRIC] = sum(teaches)
        metrics[GROUPS_METRIC] = teaching_groups(batch.keys, teaches)
        if metrics[GROUPS_METRIC] < own.least_groups:
            metrics["actor/grad_norm"] = 0.0
            return batch
        if actor.use_kl_loss or actor.entropy_coeff != 0.0:
            return super()._update_actor(batch, metrics)
        lengths = [int(tag["seq_len"]) for tag in batch.tags]
        data |= read(batch, "input_ids", "response_mask").items()
        equals = first_of_equals(contents(data, *data))
        learnt = [int(mask.sum()) for mask in data["response_mask"].unbind()]
        different = [teaching and equals[row] == row for row, teaching in enumerate(teaches)]
        updates = updates_of(sum(different), self._ranks, own.updates_per_step)
        chosen = chosen_rows(different, lengths, self._ranks * updates)
        weights = weights_of(chosen, equals, teaches, learnt)
        part = share(batch, chosen, lengths, self._ranks)
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
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }
        if self.config.trainer.device == "cpu":
            # No larger micro-batch is faster there, and each token held costs a megabyte.
            longest = max(lengths[row] for row in chosen)
            limit = actor.ppo_max_token_len_per_gpu
            part.extra_info["max_token_len_per_gpu"] = min(limit, longest)
        heavier = [row for row in chosen if weights[row] != 1.0 and teaches[row]]
        keys = [batch.keys[row] for row in heavier]
        if heavier:
            scaled = [advantages[row] * weights[row] for row in heavier]
            put(keys, batch.partition_id, advantages=scaled)
        output = rename_dict(self.actor_rollout_wg.update_actor(part)["metrics"], "actor/")
        if heavier:  # what the step's records tell is of each row's own
            put(keys, batch.partition_id, advantages=[advantages[row] for row in heavier])
        output["perf/mfu/actor"] = output.pop("actor/mfu")
        metrics.update(reduce_metrics(output))
        return batch


class InStep(TurnsTrainer, PPOTrainerSync):  # type: ignore[misc]
    """The rollout rests while the policy learns."""


class Apart(TurnsTrainer, PPOTrainerSeparateAsync):  # type: ignore[misc]
    """The rollout has GPUs of its own (`rollout_gpus`)."""


class OneBehind(TurnsTrainer, PPOTrainerColocateAsync):  # type: ignore[misc]
    """Answers are written and judged while the step before is learnt (`one_step_off_policy`).

    verl's own stops the rollout while it learns: two steps were then answered at once and learnt
    one after the other, in 44.4 and 19.6 s (two H100s, 2026-11-26). Here the rollout goes on, and
    stops for its new weights alone; what it has not finished it goes on with, by the new weights.
    """

    def on_sample_end(self) -> None:
        """What was sampled is learnt; the rollout goes on."""
        if self.curr_step_profile:
            self._stop_rollout_profiling()

    def on_step_end(self) -> None:
        """Stop the rollout, hand over the weights, go on."""
        manager = self.checkpoint_manager
        with marked_timer("update_weights", self.timing_raw, color="red"):
            manager.abort_replicas()
            manager.update_weights(self.global_steps)
            manager.resume_generation_replicas()

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict[str, Any], **how: Any
    ) -> KVBatchMeta:
        """verl's first act on a step's rows. What a step learns from is not what was asked in it,
        so its conversations are noted by their groups."""
        groups = {key.split("_")[0] for key in batch.keys}
        rollouts = Path(read_spec(Path(os.environ[SPEC_VARIABLE])).rollouts_dir)
        note_learnt(rollouts, self.global_steps, groups)
        return super()._balance_batch(batch, metrics, **how)


class _Different(NamedTuple):
    """The different rows of a batch, which stand for all."""

    equals: list[int]
    """For each row the first one that is equal to it."""
    chosen: list[int]
    part: KVBatchMeta


def _copy(batch: KVBatchMeta, of: _Different, *fields: str) -> KVBatchMeta:
    """Give each row what was computed of the one that stands for it."""
    keys = [batch.keys[row] for row in of.chosen]
    found = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(fields))
    at = {row: place for place, row in enumerate(of.chosen)}
    source = [at[first] for first in of.equals]
    rows = {name: found[name].unbind() for name in fields}
    columns = {name: [rows[name][place] for place in source] for name in fields}
    return put(batch.keys, batch.partition_id, **columns)


class TurnsBuffer(ReplayBuffer):  # type: ignore[misc]
    """verl's buffer; a batch comes in the order of its prompts.

    DAPO's dynamic sampling: verl drops a prompt whose rows all have one reward, and draws others
    for it. Our rows are turns, and the returns of a conversation's turns differ even where no
    conversation of the prompt does better than another: here a prompt is dropped where no row of it
    would have an advantage (unknown returns left out). verl would also draw for ever where the
    policy always or never solves its tasks; here a step drops `sampler_kwargs.rounds` - 1 times its
    prompts at most, and takes the rest as they are.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"poll_interval": LOOK_EVERY_S, **kwargs})
        self._dropped_by_step: dict[int, int] = defaultdict(int)

    def _materialize_batch(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        batch = super()._materialize_batch(*args, **kwargs)
        batch.reorder(sorted(range(len(batch.keys)), key=lambda i: place(batch.keys[i])))
        return batch

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """Finished prompts without any advantage; looked at once each."""
        if partition_id == "val" or self.filter_groups_metric is None:
            return set(), Counter()
        finished = self.finished_keys[partition_id]
        known: dict[str, float | None] = self._dapo_classification_cache[partition_id]
        for uid in known.keys() - finished:
            del known[uid]
        new = finished - known.keys()
        rows: dict[str, list[tuple[str, float | None]]] = {uid: [] for uid in new}
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in rows]
        for key, value in zip(keys, _returns(keys, partition_id), strict=True):
            uid, group = key.split("_")[:2]
            rows[uid].append((group, value))
        least_spread = float((self.sampler_kwargs or {}).get("least_spread", 0.0))
        for uid, found in rows.items():
            # verl's cache holds a number where the prompt is dropped; it counts prompts by it.
            most = max((v or 0.0 for _, v in found), default=0.0)
            known[uid] = None if has_advantage(found, least_spread) else most
        flat = {uid: value for uid, value in known.items() if value is not None}
        return set(flat), Counter(flat.values())

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Reasons:
        """verl's reasons, with as many flat prompts as the step may still drop."""
        stale, flat, failed, counts = super()._terminal_eviction_reasons(global_steps, partition_id)
        if not flat:
            return stale, flat, failed, counts
        rounds = int((self.sampler_kwargs or {}).get("rounds", 10))
        before = self._dropped_by_step[global_steps]
        may_go = within_rounds(flat, before, self.train_batch_size, rounds)
        self._dropped_by_step[global_steps] += len(may_go)  # the caller drops all that are named
        known = self._dapo_classification_cache[partition_id]
        return stale, may_go, failed, Counter(known[uid] for uid in may_go)


class TurnsBufferAsync(TurnsBuffer, ReplayBufferAsync):  # type: ignore[misc]
    """The same, of the modes in which the rollout goes on."""


def _returns(keys: list[str], partition_id: str) -> list[float | None]:
    """The return of each row; None where it is not to be learnt from."""
    if not keys:
        return []
    data = tq.kv_batch_get(
        keys=keys, partition_id=partition_id, select_fields=["rm_scores", "response_mask"]
    )
    pairs = zip(data["rm_scores"].unbind(), data["response_mask"].unbind(), strict=True)
    return [float(scores.sum()) if bool(mask.any()) else None for scores, mask in pairs]


@register_adv_est(ESTIMATOR)  # type: ignore[untyped-decorator]
def turn_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[str],
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages of all rows of a batch: GRPO within turns, by `credit.group_advantages`.

    Args:
        token_level_rewards: (rows, response tokens); a row sums to the return of its turn.
        response_mask: (rows, response tokens); all 0 where the turn must not be learnt from.
        index: Group of each row (prompt, role and turn; see `agent_loop.py`).
        config: verl's algorithm section; `norm_adv_by_std_in_grpo` chooses the scale, and our part
            `turn_groups` the baseline and the least spread.

    Returns:
        (advantages, returns), both (rows, response tokens) and equal, as verl's GRPO gives them.
    """
    known = (response_mask.sum(-1) > 0).tolist()
    sums = token_level_rewards.sum(-1).tolist()
    returns = [value if is_known else None for value, is_known in zip(sums, known, strict=True)]
    by_std = True if config is None else bool(config.get("norm_adv_by_std_in_grpo", True))
    own = {} if config is None else config.get("turn_groups", {})
    advantages = group_advantages(
        returns,
        list(index),
        scale="std" if by_std else "none",
        leave_one_out=bool(own.get("leave_one_out", False)),
        least_spread=float(own.get("least_spread", 0.0)),
    )
    rows = torch.tensor(advantages, dtype=torch.float32, device=token_level_rewards.device)
    spread = rows.unsqueeze(-1) * response_mask
    return spread, spread


class FinishCheckpoint(CheckpointCallback):  # type: ignore[misc]
    """Adds our files to a checkpoint (trainer.checkpoint_callback_class). The manifest, which makes
    the checkpoint count, is written after verl has logged the step: a run that resumes here has
    lost nothing of the step."""

    def on_save(
        self,
        trainer: Any,
        global_step: int,
        checkpoint_dir: str,
        async_save: bool = False,
        **_: Any,
    ) -> None:
        """Raises InfrastructureError where the disk is full, here or when verl logs the step; the
        run ends with its sentence."""
        curriculum = getattr(trainer.train_dataset, "curriculum", None)
        if curriculum is not None:
            curriculum.advance(global_step)
            curriculum.save(Path(checkpoint_dir))
        model = trainer.config.actor_rollout_ref.model
        if model.lora_rank:
            write_atomic(Path(checkpoint_dir) / "actor" / START_MODEL, str(model.path))
        folder = Path(checkpoint_dir)
        manifest = manifest_of(folder)
        patches.after_next_log(trainer.logger, lambda: finish(folder, manifest))


def put_in_place() -> None:
    """In the process that trains, before verl looks for its trainer."""
    trainers = {"sync": InStep, "colocate_async": OneBehind, "separate_async": Apart}
    patches.in_trainer(trainers, TurnsBuffer, TurnsBufferAsync)

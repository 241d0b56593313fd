"""DAPO's dynamic sampling on groups of turns, bound into verl's replay buffer by its import.

verl drops a prompt whose rows all have one reward, and draws others for it. Our rows are turns, and
the returns of a conversation's turns differ even where no conversation of the prompt does better
than another: here a prompt is dropped where no row of it would have an advantage
(`credit.group_advantages`, unknown returns left out). verl would also draw for ever where the
policy always or never solves its tasks; here a step drops `sampler_kwargs.rounds` - 1 times its
prompts at most, and takes the rest as they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from coding_framework.training.credit import group_advantages

_VERLS_REASONS = {
    kind: kind._terminal_eviction_reasons for kind in (ReplayBuffer, ReplayBufferAsync)
}
Reasons = tuple[set[str], set[str], set[str], Counter[float]]


def has_advantage(rows: Sequence[tuple[str, float | None]], least_spread: float = 0.0) -> bool:
    """Whether any (group, return) of one prompt's rows would get an advantage."""
    groups = [group for group, _ in rows]
    values = [value for _, value in rows]
    return any(group_advantages(values, groups, scale="none", least_spread=least_spread))


def within_rounds(flat: set[str], dropped_before: int, prompts: int, rounds: int) -> set[str]:
    """Those of the `flat` prompts that may still be dropped, of `rounds` - 1 times `prompts`."""
    left = max(0, (rounds - 1) * prompts - dropped_before)
    return set(sorted(flat)[:left])


def _flat_prompts(buffer: Any, partition_id: str) -> tuple[set[str], Counter[float]]:
    """Finished prompts without any advantage; looked at once each."""
    if partition_id == "val" or buffer.filter_groups_metric is None:
        return set(), Counter()
    finished = buffer.finished_keys[partition_id]
    known: dict[str, float | None] = buffer._dapo_classification_cache[partition_id]
    for uid in known.keys() - finished:
        del known[uid]
    rows: dict[str, list[tuple[str, float | None]]] = {uid: [] for uid in finished - known.keys()}
    keys = [key for key in buffer.partitions[partition_id] if key.split("_")[0] in rows]
    for key, value in zip(keys, _returns(keys, partition_id), strict=True):
        uid, group = key.split("_")[:2]
        rows[uid].append((group, value))
    least_spread = float((buffer.sampler_kwargs or {}).get("least_spread", 0.0))
    for uid, found in rows.items():
        # verl's cache holds a number where the prompt is dropped; it counts prompts by it.
        known[uid] = (
            None
            if has_advantage(found, least_spread)
            else max((v or 0.0 for _, v in found), default=0.0)
        )
    flat = {uid: value for uid, value in known.items() if value is not None}
    return set(flat), Counter(flat.values())


def _returns(keys: list[str], partition_id: str) -> list[float | None]:
    """The return of each row; None where it is not to be learnt from."""
    if not keys:
        return []
    data = tq.kv_batch_get(
        keys=keys, partition_id=partition_id, select_fields=["rm_scores", "response_mask"]
    )
    pairs = zip(data["rm_scores"].unbind(), data["response_mask"].unbind(), strict=True)
    return [float(scores.sum()) if bool(mask.any()) else None for scores, mask in pairs]


def _bounded_reasons(buffer: Any, global_steps: int, partition_id: str) -> Reasons:
    """verl's reasons, with as many flat prompts as the step may still drop."""
    theirs = next(_VERLS_REASONS[kind] for kind in type(buffer).__mro__ if kind in _VERLS_REASONS)
    stale, flat, failed, counts = theirs(buffer, global_steps, partition_id)
    if not flat:
        return stale, flat, failed, counts
    dropped = buffer.__dict__.setdefault("_dropped_by_step", defaultdict(int))
    rounds = int((buffer.sampler_kwargs or {}).get("rounds", 10))
    may_go = within_rounds(flat, dropped[global_steps], buffer.train_batch_size, rounds)
    dropped[global_steps] += len(may_go)  # the caller drops all that are named
    known = buffer._dapo_classification_cache[partition_id]
    return stale, may_go, failed, Counter(known[uid] for uid in may_go)


ReplayBuffer._dapo_filtered_keys = _flat_prompts
for _kind in _VERLS_REASONS:
    _kind._terminal_eviction_reasons = _bounded_reasons

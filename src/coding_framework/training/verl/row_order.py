"""A step's rows in the order of its prompts, whatever order they ended in; bound into verl where
this is imported.

verl takes rows as they come. Sums of floats depend on their order, so the same answers gave losses
that differed in the seventh digit from run to run. Here prompts are numbered as they are drawn, in
the name that verl gives them, and a batch is sorted by prompt, group, conversation and turn.
"""

from __future__ import annotations

from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils

_VERLS_FETCH = PPOTrainer._fetch_one_gen_batch
_VERLS_BATCH = ReplayBuffer._materialize_batch
_DRAWN = "_prompts_drawn"


def numbered(uid: str, number: int) -> str:
    """The name of the run's prompt of that number; no underscore, at which verl splits keys."""
    return f"{number:010d}-{uid}"


def place(key: str) -> tuple[str, str, int, int]:
    """What a row is sorted by: its key is "UID_GROUP_SESSION_ROW" (`agent_loop.TurnRowsWorker`), or
    verl's own "UID_SESSION_ROW"."""
    uid, *group, session, row = key.split("_")
    return uid, "_".join(group), int(session), int(row)


def _fetch_numbered(trainer: Any) -> Any:
    batch = _VERLS_FETCH(trainer)
    first = getattr(trainer, _DRAWN, 0)
    names = [numbered(str(uid), first + i) for i, uid in enumerate(batch["uid"])]
    setattr(trainer, _DRAWN, first + len(names))
    batch.pop("uid")
    tensordict_utils.assign_non_tensor_stack(batch, "uid", names)
    return batch


def _in_order(*arguments: Any, **named: Any) -> KVBatchMeta:
    batch = _VERLS_BATCH(*arguments, **named)
    batch.reorder(sorted(range(len(batch.keys)), key=lambda i: place(batch.keys[i])))
    return batch


PPOTrainer._fetch_one_gen_batch = _fetch_numbered
ReplayBuffer._materialize_batch = _in_order

"""Equal rows are computed once, and the step learns what it would have learnt of all."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from verl.trainer.ppo.core_algos import agg_loss, compute_policy_loss_vanilla
from verl.workers.config import ActorConfig

from coding_framework.training.verl import rows as rows_module
from coding_framework.training.verl import trainer as trainer_module
from coding_framework.training.verl.rows import (
    chosen_rows,
    contents,
    first_of_equals,
    nested,
    weights_of,
)
from support.verl_rows import Queue

pytestmark = pytest.mark.unit


def test_the_first_of_equal_rows_stands_for_them() -> None:
    equals = first_of_equals("abacbb")
    assert equals == [0, 1, 0, 3, 1, 1]
    lengths, firsts = [9, 5, 9, 3, 5, 5], [row == first for row, first in enumerate(equals)]
    counts = Counter(equals)
    alone, padded = chosen_rows(firsts, lengths, 1), chosen_rows(firsts, lengths, 2)
    assert (alone, [counts[row] for row in alone]) == ([0, 1, 3], [2, 3, 1])
    # on two GPUs a shortest equal row is computed for nothing
    assert (padded, [counts[row] for row in padded]) == ([0, 1, 3, 4], [2, 3, 1, 0])
    assert chosen_rows([], [], 2) == []


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_step_of_one_answer_alone_gives_every_rank_a_row(ranks: int) -> None:
    equals = first_of_equals("aaaaaaaa")
    chosen = chosen_rows([row == first for row, first in enumerate(equals)], [5] * 8, ranks)
    assert chosen == list(range(ranks))
    weights = weights_of(chosen, equals, [True] * 8, [5] * 8)
    assert weights == {0: float(ranks), **dict.fromkeys(range(1, ranks), 0.0)}


def test_rows_are_equal_where_tokens_and_advantages_are() -> None:
    data = {
        "input_ids": nested([torch.tensor([1, 2]), torch.tensor([1, 2]), torch.tensor([1, 2, 0])]),
        "advantages": torch.tensor([[0.1, 0.1], [0.1 + 1e-9, 0.1], [0.1, 0.1]]),
    }
    assert first_of_equals(contents(data, "input_ids", "advantages")) == [0, 0, 2]
    data["advantages"] = torch.tensor([[0.1, 0.1], [-0.1, -0.1], [0.1, 0.1]])
    assert first_of_equals(contents(data, "input_ids", "advantages")) == [0, 1, 2]


LENGTHS = [3, 5, 3, 2, 5, 4, 3, 2]
ADVANTAGES = [0.5, -1.0, 0.5, 0.0, -1.0, 2.0, 0.5, 0.7]
SAME_AS = [0, 1, 0, 3, 1, 5, 0, 7]
"""Rows 0, 2 and 6 are one answer, rows 1 and 4 another; row 3 teaches nothing."""


def _gradients(rows: list[int], advantages: dict[int, float]) -> torch.Tensor:
    """Of the loss of these rows, with respect to the log-probs of the different answers."""
    torch.manual_seed(0)
    width = max(LENGTHS)
    old = torch.randn(len(LENGTHS), width) * 0.3
    new = (old + 0.4 * torch.randn(len(LENGTHS), width)).requires_grad_()
    at = [SAME_AS[row] for row in rows]
    mask = torch.stack([(torch.arange(width) < LENGTHS[row]).float() for row in rows])
    spread = torch.tensor([advantages[row] for row in rows])[:, None] * mask
    actor = ActorConfig(
        strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, ppo_mini_batch_size=4,
        ppo_max_token_len_per_gpu=100,
    )  # fmt: skip
    loss, _ = compute_policy_loss_vanilla(
        old_log_prob=old[at], log_prob=new[at], advantages=spread, response_mask=mask,
        loss_agg_mode="token-mean", config=actor,
    )  # fmt: skip
    assert agg_loss(mask, mask, "token-mean") == 1.0
    loss.backward()
    assert new.grad is not None
    return new.grad


@pytest.mark.parametrize("multiple", [1, 2, 4])
def test_one_of_equal_rows_with_the_advantages_of_all_has_the_gradient_of_all(
    multiple: int,
) -> None:
    teaches = [value != 0 for value in ADVANTAGES]
    every = chosen_rows(teaches, LENGTHS, multiple)
    of_all = _gradients(every, dict(enumerate(ADVANTAGES)))
    different = [t and SAME_AS[row] == row for row, t in enumerate(teaches)]
    chosen = chosen_rows(different, LENGTHS, multiple)
    weights = weights_of(chosen, SAME_AS, teaches, LENGTHS)
    once = _gradients(chosen, {row: ADVANTAGES[row] * weights[row] for row in chosen})
    assert len(chosen) < len(every)
    filled = sum(LENGTHS[row] for row in every if not teaches[row])
    told = sum(LENGTHS[row] for row in chosen if not teaches[row])
    learnt = sum(n for n, teaching in zip(LENGTHS, teaches, strict=True) if teaching)
    scale = (learnt + filled) / (learnt + told)  # rows that only fill up count in the mean
    assert once.any()
    torch.testing.assert_close(once, of_all * scale)


def _queue() -> Queue:
    tokens = [torch.arange(n) + 10 * SAME_AS[row] for row, n in enumerate(LENGTHS)]
    masks = [torch.ones(n, dtype=torch.int64) for n in LENGTHS]
    spread = [torch.full((n,), a) for n, a in zip(LENGTHS, ADVANTAGES, strict=True)]
    return Queue(input_ids=tokens, response_mask=masks, advantages=spread)


def _trainer(**changes: Any) -> Any:
    own = SimpleNamespace(least_groups=1, updates_per_step=1)
    algorithm = SimpleNamespace(turn_groups=own, get=lambda name, default=None: default)
    actor = SimpleNamespace(
        use_kl_loss=False, entropy_coeff=0.0, calculate_entropy=False, ppo_epochs=1,
        data_loader_seed=0, shuffle=False, ppo_max_token_len_per_gpu=100,
    )  # fmt: skip
    both = SimpleNamespace(actor=actor, rollout=SimpleNamespace(temperature=1.0))
    config = SimpleNamespace(
        algorithm=algorithm, actor_rollout_ref=both, trainer=SimpleNamespace(device="cuda")
    )
    group = SimpleNamespace(_dispatch_info={"actor": [0]}, **changes)
    made = trainer_module.InStep.__new__(trainer_module.InStep)
    made.config, made.actor_rollout_wg = config, group
    return made


def test_log_probs_of_equal_rows_are_computed_once_and_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = _queue()
    monkeypatch.setattr(rows_module, "tq", queue)
    monkeypatch.setattr(trainer_module, "tq", queue)
    computed: list[str] = []

    def compute(trainer: Any, part: Any, metrics: dict[str, Any]) -> None:
        computed.extend(part.keys)
        rows = [queue.keys.index(key) for key in part.keys]
        put = {
            "old_log_probs": nested([-queue.columns["input_ids"][r].float() for r in rows]),
            "entropy": nested([torch.full((LENGTHS[r],), float(r)) for r in rows]),
        }
        queue.kv_batch_put(part.keys, "train", put)

    monkeypatch.setattr(trainer_module.PPOTrainer, "_compute_old_log_prob", compute)
    metrics: dict[str, Any] = {}
    told = _trainer()._compute_old_log_prob(queue, metrics)
    assert told == "8 rows"
    assert sorted(computed) == [queue.keys[row] for row in (0, 1, 3, 5, 7)]
    for tokens, found in zip(
        queue.columns["input_ids"], queue.columns["old_log_probs"], strict=True
    ):
        assert torch.equal(found, -tokens.float())
    tokens_of = sum(n * float(SAME_AS[row]) for row, n in enumerate(LENGTHS))
    assert metrics["actor/entropy"] == pytest.approx(tokens_of / sum(LENGTHS))


def test_the_start_models_log_probs_are_computed_once_and_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = _queue()
    monkeypatch.setattr(rows_module, "tq", queue)
    monkeypatch.setattr(trainer_module, "tq", queue)
    computed: list[str] = []

    def compute(trainer: Any, part: Any, metrics: dict[str, Any]) -> None:
        part.extra_info["no_lora_adapter"] = True
        computed.extend(part.keys)
        rows = [queue.keys.index(key) for key in part.keys]
        found = [-queue.columns["input_ids"][r].float() for r in rows]
        queue.kv_batch_put(part.keys, "train", {"ref_log_prob": nested(found)})

    monkeypatch.setattr(trainer_module.PPOTrainer, "_compute_ref_log_prob", compute)
    assert _trainer()._compute_ref_log_prob(queue, {}) == "8 rows"
    assert sorted(computed) == [queue.keys[row] for row in (0, 1, 3, 5, 7)]
    for tokens, found in zip(
        queue.columns["input_ids"], queue.columns["ref_log_prob"], strict=True
    ):
        assert torch.equal(found, -tokens.float())
    # where all rows differ verl gets the batch itself: the update must not leave the adapter out
    queue.columns["input_ids"] = [
        tokens + 100 * n for n, tokens in enumerate(_queue().columns["input_ids"])
    ]
    _trainer()._compute_ref_log_prob(queue, {})
    assert "no_lora_adapter" not in queue.extra_info


def test_an_update_gets_each_answer_once_and_the_records_keep_each_rows_advantage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, seen = _queue(), {}
    before = [row.clone() for row in queue.columns["advantages"]]

    def learn(part: Any) -> dict[str, Any]:
        rows = [queue.keys.index(key) for key in part.keys]
        seen.update({row: queue.columns["advantages"][row][0].item() for row in rows})
        return {"metrics": {"mfu": [0.1]}}

    monkeypatch.setattr(rows_module, "tq", queue)
    metrics: dict[str, Any] = {}
    _trainer(update_actor=learn)._update_actor(queue, metrics)
    share = (3 + 5 + 4 + 2) / (3 * 3 + 2 * 5 + 4 + 2)
    assert seen == pytest.approx(
        {0: 0.5 * 3 * share, 1: -1.0 * 2 * share, 5: 2.0 * share, 7: 0.7 * share}
    )
    assert metrics[trainer_module.ROWS_METRIC] == 7  # of all answers
    for row, value in zip(queue.columns["advantages"], before, strict=True):
        assert torch.equal(row, value)

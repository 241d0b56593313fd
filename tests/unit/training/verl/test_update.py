"""Which rows the policy update gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from coding_framework.training.verl import rows as rows_module
from coding_framework.training.verl.overrides import GROUPS_METRIC, ROWS_METRIC
from coding_framework.training.verl.rows import chosen_rows, teaching_groups, updates_of
from coding_framework.training.verl.trainer import InStep

pytestmark = pytest.mark.unit


def test_rows_of_groups_with_equal_returns_are_left_out():
    assert chosen_rows([True, False, True, False], [9, 1, 8, 2], multiple=1) == [0, 2]


def test_every_rank_gets_as_many_rows_filled_with_the_shortest_of_the_others():
    assert chosen_rows([True, False, True, True, False], [9, 7, 8, 5, 2], multiple=2) == [
        0,
        2,
        3,
        4,
    ]
    assert chosen_rows([True, True], [9, 7], multiple=2) == [0, 1]


def test_groups_that_teach_are_counted_by_prompt_role_and_turn():
    keys = ["u_generator.0_0_0", "u_generator.0_1_0", "u_optimizer.1_0_1", "v_generator.0_0_0"]
    assert teaching_groups(keys, [True, True, False, False]) == 1
    assert teaching_groups(keys, [True, False, True, True]) == 3
    assert teaching_groups(keys, [False] * 4) == 0


def test_a_step_with_too_few_groups_that_teach_leaves_the_policy_as_it_is(monkeypatch):
    """One group alone would turn all of Adam's step to a single task."""
    asked = []
    group = SimpleNamespace(_dispatch_info={"actor": [0]}, update_actor=asked.append)
    actor = SimpleNamespace(use_kl_loss=False, entropy_coeff=0.0)
    own = SimpleNamespace(least_groups=2, updates_per_step=1)
    trainer = InStep.__new__(InStep)
    trainer.actor_rollout_wg = group
    trainer.config = SimpleNamespace(
        algorithm=SimpleNamespace(turn_groups=own),
        actor_rollout_ref=SimpleNamespace(actor=actor),
    )
    batch = SimpleNamespace(keys=["u_generator.0_0_0", "u_generator.0_1_0"], partition_id="train")
    advantages = {"advantages": torch.tensor([[0.5], [-0.5]])}
    monkeypatch.setattr(rows_module.tq, "kv_batch_get", lambda **_: advantages)
    metrics = {}
    assert trainer._update_actor(batch, metrics) is batch
    assert metrics == {ROWS_METRIC: 2, GROUPS_METRIC: 1, "actor/grad_norm": 0.0}
    assert not asked


def test_a_step_makes_as_many_updates_as_its_rows_can_fill():
    assert updates_of(rows=64, multiple=2, wanted=2) == 2
    assert updates_of(rows=3, multiple=2, wanted=2) == 1
    assert updates_of(rows=1, multiple=2, wanted=2) == 1
    for rows, ranks, wanted in ((7, 2, 3), (5, 1, 2), (64, 8, 4), (1, 4, 2)):
        updates = updates_of(rows, ranks, wanted)
        chosen = chosen_rows([True] * rows + [False] * 64, [1] * (rows + 64), ranks * updates)
        assert len(chosen) % (ranks * updates) == 0

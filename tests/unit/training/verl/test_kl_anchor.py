"""A token that left the start model pays by itself, also where no answer of its group is right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coding_framework.training.credit import group_advantages
from coding_framework.training.verl import rows, trainer
from coding_framework.training.verl.rows import (
    FREE_NATS,
    MOST_NATS,
    penalty,
    teaching_groups,
)
from support.verl_rows import Queue

pytestmark = pytest.mark.unit


def test_what_stays_near_the_start_model_is_free_and_what_left_it_pays_up_to_a_limit() -> None:
    reference = torch.tensor([-0.1, -9.0, -60.0, -0.1, -1.0])
    now = torch.tensor([-0.2, -0.1, -0.1, -4.0, -1.0 + FREE_NATS])
    expected = torch.tensor([0.0, 8.9, MOST_NATS, -3.9, 0.0])
    torch.testing.assert_close(penalty(now, reference), expected)


def advantages_of(
    monkeypatch: pytest.MonkeyPatch, coefficient: float, returns: list[float], **columns: Any
) -> tuple[torch.Tensor, dict[str, Any]]:
    base = torch.tensor(group_advantages(returns, ["a"] * len(returns), scale="none"))
    columns["advantages"] = base[:, None] * columns["response_mask"]
    queue = Queue(**{name: list(rows_of) for name, rows_of in columns.items()})
    monkeypatch.setattr(rows, "tq", queue)
    base_of = lambda trainer, batch, metrics: batch  # noqa: E731
    monkeypatch.setattr(trainer.PPOTrainer, "_compute_advantage", base_of)
    own = SimpleNamespace(kl_in_advantage=coefficient)
    made = trainer.InStep.__new__(trainer.InStep)
    made.config = SimpleNamespace(algorithm=SimpleNamespace(turn_groups=own))
    metrics: dict[str, Any] = {}
    assert made._compute_advantage(queue, metrics) is queue
    return torch.stack(queue.columns["advantages"]), metrics


LOST = {
    "old_log_probs": torch.tensor([[-0.01, -0.05, -0.3, -7.0]] * 4),
    "ref_log_prob": torch.tensor([[-0.01, -8.05, -0.3, -0.1]] * 4),
    "response_mask": torch.tensor([[1, 1, 1, 0]] * 4),
}
"""All four answers have the same second token, which the start model writes one time in 3,000. The
last one is not learnt from."""


def test_a_lost_token_pays_where_every_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found, metrics = advantages_of(monkeypatch, 0.05, [0.0] * 4, **LOST)
    torch.testing.assert_close(found, torch.tensor([[0.0, -0.4, 0.0, 0.0]] * 4))
    assert metrics == {trainer.KL_METRIC: pytest.approx(8.0 / 3)}
    teaches = [bool(row.any()) for row in found]
    assert teaching_groups(["u_generator.0_0_0"] * 4, teaches) == 1  # an update is made


def test_advantages_of_a_group_stay_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = advantages_of(monkeypatch, 0.05, [1.0, 0.0, 0.0, 0.0], **LOST)
    torch.testing.assert_close(found[0], torch.tensor([0.75, 0.35, 0.75, 0.0]))
    torch.testing.assert_close(found[1], torch.tensor([-0.25, -0.65, -0.25, 0.0]))


def test_without_it_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no log-probs of a reference then."""
    found, metrics = advantages_of(monkeypatch, 0.0, [1.0, 0.0], response_mask=torch.ones(2, 3))
    assert not metrics
    torch.testing.assert_close(found[0], torch.full((3,), 0.5))


def test_a_policy_that_lost_a_token_gets_it_back() -> None:
    """The drift of 2026-11-26 in small: all of a group write a token that fails. By the returns
    alone the policy stays lost."""
    reference = torch.tensor([6.0, 0.0, 0.0])
    lost = torch.tensor([0.0, 14.0, 0.0])
    ends = {}
    for coefficient in (0.0, 0.05):
        torch.manual_seed(0)
        logits = lost.clone().requires_grad_()
        adam = torch.optim.Adam([logits], lr=0.2)
        for _ in range(80):
            log_probs = logits.log_softmax(-1)
            tokens = torch.multinomial(log_probs.detach().exp(), 16, replacement=True)
            returns = [float(token == 0) for token in tokens.tolist()]
            base = torch.tensor(group_advantages(returns, ["a"] * 16, scale="none"))
            drift = penalty(log_probs.detach(), reference.log_softmax(-1))[tokens]
            loss = -((base - coefficient * drift) * log_probs[tokens]).mean()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        ends[coefficient] = float(logits.detach().softmax(-1)[0])
    assert ends[0.0] < 0.05
    assert ends[0.05] > 0.9

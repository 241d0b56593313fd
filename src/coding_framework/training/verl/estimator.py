"""Advantages in verl: the per-turn GRPO estimator, registered, and a guard around verl's GAE.

GRPO's arithmetic is `training/credit.py`'s. With PPO a row is an episode of its own: its tokens are
the steps, and the last one is paid the turn's return (`credit.conversation_returns`); the sums over
tokens are verl's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import register_adv_est

from coding_framework.training.credit import group_advantages
from coding_framework.training.verl.overrides import ESTIMATOR


@register_adv_est(ESTIMATOR)  # type: ignore[untyped-decorator]
def turn_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[str],
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages of all rows of a batch.

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


_VERLS_GAE = core_algos.compute_gae_advantage_return


def masked_gae(
    token_level_rewards: torch.Tensor,
    values: torch.Tensor,
    response_mask: torch.Tensor,
    gamma: float,
    lam: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's (advantages, returns), whitened over the batch; advantages are 0 where masked.

    verl raises where fewer than two tokens are to be learnt from, which a step of faults of ours
    leaves; here such a step teaches nothing: advantages of 0, and returns that are the values.
    """
    if response_mask.sum() < 2:
        return torch.zeros_like(values), values
    advantages, returns = _VERLS_GAE(token_level_rewards, values, response_mask, gamma, lam)
    return advantages * response_mask, returns


core_algos.compute_gae_advantage_return = masked_gae

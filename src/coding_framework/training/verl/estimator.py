"""The per-turn GRPO estimator, registered with verl. The arithmetic is `training/credit.py`'s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
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
        config: verl's algorithm section; `norm_adv_by_std_in_grpo` chooses the scale.

    Returns:
        (advantages, returns), both (rows, response tokens) and equal, as verl's GRPO gives them.
    """
    known = (response_mask.sum(-1) > 0).tolist()
    sums = token_level_rewards.sum(-1).tolist()
    returns = [value if is_known else None for value, is_known in zip(sums, known, strict=True)]
    by_std = True if config is None else bool(config.get("norm_adv_by_std_in_grpo", True))
    advantages = group_advantages(returns, list(index), scale="std" if by_std else "none")
    rows = torch.tensor(advantages, dtype=torch.float32, device=token_level_rewards.device)
    spread = rows.unsqueeze(-1) * response_mask
    return spread, spread

"""What an RL run leaves behind, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coding_framework.data.curriculum_manager import WindowRecord
from coding_framework.store.records import StepRecord, Validation
from coding_framework.types import Record


class Progression(Record):
    """How a curriculum went. Maker: the run. Consumer: result.json, for people."""

    tiers: tuple[str, ...]
    windows: tuple[WindowRecord, ...]


def progression(state: Mapping[str, Any] | None) -> Progression | None:
    """From the curriculum's state in the last checkpoint (`store.checkpoints.read_curriculum`)."""
    if state is None:
        return None
    return Progression.model_validate(
        {"tiers": state["tiers"], "windows": state["manager"]["windows"]}
    )


class RLResult(Record):
    """What a run did. Makers: the trainer, role_phases. Consumers: quickstart, reports."""

    steps: tuple[StepRecord, ...]
    final_model: str
    """Hugging Face folder after the last step. With a policy a role: a folder with a PEFT adapter
    for each (`agent_specializer.role_models` reads it); after a phase: the adapter."""
    best_model: str | None = None
    """Hugging Face folder of the policy that validated best, the start model among them; without
    validations of the one whose rollouts were paid best, among those after a step;
    None with a policy a role, where what a role is paid also changes with the other."""
    best_step: int | None = None
    validations: tuple[Validation, ...] = ()
    """Of the policies after the steps that were validated, of the start model first."""
    resumed_from: int
    """Step of the checkpoint that the last attempt went on from; 0: from the start."""
    duration_s: float
    """Of the last attempt."""
    peak_gib: float
    """Resident memory of all processes together, of the last attempt."""
    curriculum: Progression | None = None
    """None where the prompts were not drawn by one."""

    def told(self, last_step: int) -> str | None:
        """What the validations say, in a sentence; None where there were none. last_step: where
        the run would have ended."""
        scored = {v.step: v for v in self.validations if v.reward_mean is not None}
        if self.best_step not in scored:
            return None
        best, last = scored[self.best_step], scored[max(scored)]
        which = f"after step {best.step}" if best.step else "that it began with"
        said = f"the policy {which} validates best: {_score(best)}"
        if last.step != best.step:
            said += f"; after step {last.step}: {_score(last)}"
        if best.step == 0:
            said += ". No step made it better: a lower learning rate or more tasks may"
        if len(self.steps) < last_step:
            said += f". It ended at step {len(self.steps)} of {last_step}: validation_patience"
        return said


def _score(validation: Validation) -> str:
    solved = f", {validation.solved_rate:.0%} solved" if validation.solved_rate is not None else ""
    return f"mean reward {validation.reward_mean:.3f}{solved}"

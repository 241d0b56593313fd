"""A reward function for TRL's `GRPOTrainer`: the judge's verdict on each completion.

    reward = VerdictReward()
    rows = Dataset.from_list(prompts(["relu", "abs"]))
    trainer = GRPOTrainer(model, reward_funcs=reward, train_dataset=rows, ...)

The dataset has the columns `prompt` (chat messages) and `task` (a name or a task file).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coding_framework.integrations.kernels import Judged, KernelJudge, answer_of, prompt_of
from coding_framework.types import PromptVersion


class VerdictReward:
    """Called by TRL with the completions of a batch."""

    __name__ = "verdict"  # TRL names its metric by it

    def __init__(self, judge: KernelJudge | None = None) -> None:
        """judge: default one in this process."""
        self._judge = judge or KernelJudge()
        self.last: list[Judged] = []
        """What the judge said of the last batch."""

    def __call__(
        self, completions: Sequence[Any], task: Sequence[str], **_: Any
    ) -> list[float | None]:
        """A reward a completion; None, which TRL leaves out, where the fault is ours."""
        answers = [answer_of(completion) for completion in completions]
        self.last = self._judge.judge(list(zip(task, answers, strict=True)))
        return [judged.reward for judged in self.last]

    def close(self) -> None:
        """End the processes that judge here."""
        self._judge.close()


def prompts(tasks: Sequence[str], version: PromptVersion = "v3") -> list[dict[str, Any]]:
    """Rows for `datasets.Dataset.from_list`. Raises UsageError for an unknown task."""
    return [{"prompt": prompt_of(task, version), "task": task} for task in tasks]

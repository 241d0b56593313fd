"""A task and a scorer for Inspect (`inspect_ai`).

    inspect eval examples/integrations/inspect_kernels.py -T tasks=relu,abs --model ...

An answer without a verdict by our fault, or whose kernel the judge cannot run, is unscored: no
metric counts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState, generate

from coding_framework.integrations.kernels import KernelJudge, prompt_of
from coding_framework.types import PromptVersion


@task
def cuda_kernels(
    tasks: str | Sequence[str] = ("relu",),
    judge_url: str | None = None,
    token: str = "",
    prompts: PromptVersion = "v3",
    reward: str = "weighted",
) -> Task:
    """One answer a task. tasks: names or task files, also as one text with commas. judge_url: of a
    judge server; None: judge in this process. Raises UsageError for an unknown task."""
    names = tasks.split(",") if isinstance(tasks, str) else list(tasks)
    return Task(
        dataset=MemoryDataset([_sample(name, prompts) for name in names], name="cuda_kernels"),
        solver=generate(),
        scorer=verdict(judge_url, token, reward),
    )


@scorer(metrics={"correct": [mean(), stderr()], "compiled": [mean()], "reward": [mean(), stderr()]})
def verdict(judge_url: str | None = None, token: str = "", reward: str = "weighted") -> Scorer:
    """The judge's verdict on the last answer, for the task that is the sample's target. The whole
    verdict is in the score's metadata. Raises UsageError for an unknown preset."""
    judge = KernelJudge(judge_url, token, reward)

    async def score(state: TaskState, target: Target) -> Score:
        answer = state.output.completion
        judged = await judge.judge_one(target.text, answer)
        if (found := judged.verdict) is None:
            return Score.unscored(reason="scoring_failed", explanation=judged.note)
        told = {"verdict": found.model_dump(mode="json")}
        if judged.reward is None:
            return Score.unscored(reason="scoring_failed", explanation=found.reason, metadata=told)
        return Score(
            value={
                "correct": float(found.correct),
                "compiled": float(found.compiled),
                "reward": judged.reward,
            },
            answer=answer,
            explanation=found.reason,
            metadata=told,
        )

    return score


def _sample(name: str, prompts: PromptVersion) -> Sample:
    spoken = {"system": ChatMessageSystem, "user": ChatMessageUser}
    messages = [spoken[m["role"]](content=m["content"]) for m in prompt_of(name, prompts)]
    return Sample(input=messages, target=name, id=name)

"""An environment for `verifiers` 0.4 (and so for prime-rl): a task is a prompt, an answer gets a
verdict, and each further turn begins with what the judge said of the last one.

    vf-eval cuda-kernels --env.taskset.tasks '["relu", "abs"]' --env.turns 2

verifiers finds a taskset by the name of a module on the path, without dots:
`examples/integrations/cuda_kernels.py` is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import Field

from coding_framework.agents.feedback import feedback
from coding_framework.integrations.kernels import Judged, KernelJudge, prompt_of
from coding_framework.types import PromptVersion

__all__ = ["KernelEnv", "KernelTaskset"]

TOKEN_VARIABLE = "CUDA_RL_JUDGE_TOKEN"
"""Environment variable with the token of a judge server: a configuration is stored with a run."""


class KernelTasksetConfig(vf.TasksetConfig):
    """`--env.taskset.*`"""

    tasks: list[str] = Field(default_factory=lambda: ["relu"])
    """Names or task files, as `cuda-rl judge --task` takes them."""
    prompts: PromptVersion = "v3"


class KernelData(vf.TaskData):
    """A task as verifiers stores it; `name` is ours."""


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    """A function to write a kernel for."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The tasks of the configuration, in its order. Raises UsageError for an unknown one."""

    def load(self) -> Iterator[KernelTask]:
        for name in self.config.tasks:
            *system, user = prompt_of(name, self.config.prompts)
            data = KernelData(
                name=name,
                prompt=user["content"],
                system_prompt="\n\n".join(message["content"] for message in system) or None,
            )
            yield KernelTask(data, self.config.task)


class KernelEnvConfig(vf.EnvConfig):
    """`--env.*`"""

    writer: vf.AgentConfig = vf.AgentConfig(
        harness=vf.HarnessConfig(id="null"), runtime=vf.SubprocessConfig()
    )
    """Who writes the kernels: the model alone, which is given no tools."""
    turns: int = Field(default=1, ge=1, le=16)
    """Answers at most. A correct kernel is told how fast it is, and may be made faster."""
    judge_url: str | None = None
    """A judge server; None: judge in this process."""
    reward: str = "weighted"
    """A preset of rewards (docs/agents.md)."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """Records the best answer's reward as `verdict`, and as metrics `correct`, `compiled`,
    `speedup` (of a correct kernel) and `turns`. Where the judge has no verdict by our fault, or
    cannot run the kernel, the episode fails with vf.TaskError: never a reward of 0."""

    async def start(self) -> None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        self._judge = KernelJudge(self.config.judge_url, token, self.config.reward)

    async def stop(self) -> None:
        if (judge := getattr(self, "_judge", None)) is not None:
            judge.close()

    async def run(self, task: KernelTask, agents: vf.Agents) -> None:
        judged: list[Judged] = []
        async with agents.writer.interaction(task) as talk:
            said = await talk.turn()
            while not said.terminated:
                judged.append(await self._judge.judge_one(task.data.name, said.last_reply))
                if judged[-1].reward is None or len(judged) == self.config.turns:
                    break
                said = await talk.turn(_told(judged[-1]))
        if judged:  # else the rollout failed, and its trace says why
            _record(talk.trace, judged)


def _told(judged: Judged) -> str:
    """The next message to the writer."""
    assert judged.verdict is not None, "without a verdict the conversation ends"
    return f"{feedback(judged.verdict, full=True)}\n\nAnswer with the whole improved kernel."


def _record(trace: vf.Trace, judged: list[Judged]) -> None:
    if (last := judged[-1]).reward is None:
        reason = last.note if last.verdict is None else last.verdict.reason
        raise vf.TaskError(f"no reward for this kernel: {reason}")
    best = max(judged, key=lambda one: one.reward or 0.0)
    verdict = best.verdict
    assert verdict is not None, "what has a reward has a verdict"
    trace.record_reward("verdict", best.reward, 1.0)
    trace.record_metrics(
        {
            "correct": float(verdict.correct),
            "compiled": float(verdict.compiled),
            "turns": float(len(judged)),
        }
    )
    if verdict.speedup is not None:
        trace.record_metric("speedup", verdict.speedup)
    trace.info["verdict"] = verdict.model_dump(mode="json")

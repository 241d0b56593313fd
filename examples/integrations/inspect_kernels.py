"""Inspect with our verdicts as its scores, on tasks of your choice (docs/integrations.md).

inspect eval examples/integrations/inspect_kernels.py -T tasks=relu,abs --model ...
"""

from inspect_ai import Task, task

from coding_framework.integrations.inspect_task import cuda_kernels


@task
def kernels(tasks: str = "relu,abs", judge_url: str | None = None, prompts: str = "v3") -> Task:
    return cuda_kernels(tasks, judge_url, prompts=prompts)

"""Sums a run up: `summary.json` and the table that is printed at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator
from rich.table import Table

from coding_framework.evaluation.estimates import NOTHING, Estimate, Share, clearly_above, share
from coding_framework.evaluation.eval_summary import Block, Speeds
from coding_framework.evaluation.metrics import chance_of
from coding_framework.monitoring.progress import duration
from coding_framework.store.records import TaskEvidence
from coding_framework.types import Record


class StageCost(Record):
    """What a stage took."""

    wall_s: float
    peak_memory_gib: float
    """Of all processes, shared pages counted once."""
    attempts: int = 1


class RLNumbers(Record):
    """What the trainer logged of RL."""

    steps: int
    steps_with_gradient: int
    """Optimizer steps whose gradient norm was finite and not zero."""
    mean_reward_first: float | None = None
    mean_reward_last: float | None = None


class Practice(Record):
    """How a model does on the training tasks that rejection fine-tuning sampled: their answers
    before it, of which it learnt the right ones, and as many new ones after it."""

    tasks: int
    before: Share
    after: Share
    better: int
    """Tasks that more of the answers solve after it."""
    worse: int
    p: float = 1.0
    """Chance of so many right answers after it, or more, if it had changed nothing."""

    @property
    def clear(self) -> bool:
        """Whether more answers to these tasks are right after it, beyond chance, at 5%."""
        return self.p <= SIGNIFICANT


def practised(evidence: Sequence[TaskEvidence], after: Mapping[str, Sequence[bool]]) -> Practice:
    """evidence: of rejection fine-tuning's own samples. after: whether each of as many new ones is
    correct, by task."""
    before = {e.task: [i < e.solved for i in range(e.samples)] for e in evidence}
    tasks = sorted(name for name in before if before[name] and after.get(name))
    changes = [_share(after[name]) - _share(before[name]) for name in tasks]
    return Practice(
        tasks=len(tasks),
        before=share(flag for name in tasks for flag in before[name]),
        after=share(flag for name in tasks for flag in after[name]),
        better=sum(change > 0 for change in changes),
        worse=sum(change < 0 for change in changes),
        p=chance_of([(before[name], after[name]) for name in tasks]),
    )


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


class Learning(Record):
    """What the run was to show, each claim with the numbers that it rests on in `stages`; None
    where a stage of it was left out."""

    sft_above_base: bool | None = None
    """The lower end of SFT's 95% interval of the pass rate is above the base model's upper end."""
    rl_not_below_sft: bool | None = None
    """RL's pass rate is not below SFT's beyond noise: SFT's interval is not clear above RL's."""
    rl_above_base: bool | None = None
    """Likewise as the first, where SFT was left out."""
    rft_learnt_its_tasks: bool | None = None
    """Rejection fine-tuning solves more of its own training tasks than before, beyond chance."""
    at_least_four_rl_steps_with_gradient: bool | None = None


class Summary(Record):
    """`summary.json`."""

    stages: Mapping[str, Block]
    """By "base", "sft" and "rl", as in `evaluations/LABEL/summary.json`; what was left out is not
    there."""
    rl: RLNumbers
    learning: Learning
    practice: Practice | None = None
    """Where rejection fine-tuning tried its tasks again."""
    costs: Mapping[str, StageCost]
    wall_s: float
    """Sum over the stages."""
    peak_memory_gib: float
    config: Mapping[str, Any]
    environment: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("stages", mode="before")
    @classmethod
    def _of_any_version(cls, stages: Mapping[str, Any]) -> Mapping[str, Any]:
        return {label: stage_block(stage) for label, stage in stages.items()}


def stage_block(found: Block | Mapping[str, Any]) -> Block:
    """What an evaluation of a stage came to, also of a run of before 0.2."""
    if isinstance(found, Block) or "pass_rate" not in found:
        return Block.model_validate(found)
    nothing = Estimate(value=None, why="a run of before 0.2")
    speeds = Speeds(
        basis=found["speedup_basis"],
        baseline="",
        device="",
        protocol="",
        timed=found["passed"]["count"],
        fast={},
        median=found["median_speedup"],
        geometric_mean=nothing,
        geometric_mean_above_1=nothing,
        roofline=None,
    )
    return Block(
        tasks=found["n"],
        samples=found["n"],
        masked=found["masked_conversations"],
        unsupported=0,
        compiled=found["compile"],
        correct=found["passed"],
        pass_at={},
        speeds=(speeds,),
        passed_by_turn=(found["first_turn_passed"], found["passed"]),
        improved_by_feedback=found["improved_by_feedback"],
        repeated_turns=found["repeated_turns"],
        statuses=found["statuses"],
        end_reasons=found["end_reasons"],
        cheats=NOTHING,
        rejected=NOTHING,
        spilling=NOTHING,
    )


def summarize(
    stages: Mapping[str, Block],
    rl: RLNumbers,
    costs: Mapping[str, StageCost],
    config: Mapping[str, Any],
    environment: Mapping[str, str],
    practice: Practice | None = None,
) -> Summary:
    """Put the parts together and state what they show."""
    base, sft, after_rl = (stages.get(label) for label in ("base", "sft", "rl"))
    learning = Learning(
        sft_above_base=clearly_above(sft.correct, base.correct) if sft and base else None,
        rl_not_below_sft=not clearly_above(sft.correct, after_rl.correct)
        if sft and after_rl
        else None,
        rl_above_base=clearly_above(after_rl.correct, base.correct)
        if after_rl and base and not sft
        else None,
        rft_learnt_its_tasks=practice.clear if practice else None,
        at_least_four_rl_steps_with_gradient=rl.steps_with_gradient >= 4 if after_rl else None,
    )
    return Summary(
        stages=stages,
        rl=rl,
        learning=learning,
        practice=practice,
        costs=costs,
        wall_s=round(sum(cost.wall_s for cost in costs.values()), 1),
        peak_memory_gib=max((cost.peak_memory_gib for cost in costs.values()), default=0.0),
        config=config,
        environment=environment,
    )


SIGNIFICANT = 0.05
FEW_TASKS = 10
"""Below them a run shows that everything works, and nothing about learning."""


def headline(summary: Summary) -> str:
    """What the run means, in a sentence for somebody who has not read about it."""
    last = list(summary.stages.values())[-1]
    steps = rl_steps(summary.rl.steps)
    if last.samples < FEW_TASKS:
        return (
            f"The machinery works; nothing can be said about learning: {last.samples} tasks"
            f"{f', {steps}' if 'rl' in summary.stages else ''}."
        )
    claim, base = summary.learning, summary.stages.get("base")
    before = f", {base.correct.count} of {base.correct.n} before training" if base else ""
    solved = f"{last.correct.count} of {last.correct.n} tasks that it has never seen{before}"
    if claim.sft_above_base or claim.rl_above_base:
        text = f"The model has learnt to write correct CUDA kernels: it solves {solved}."
    else:
        text = f"No clear gain from training: the model solves {solved}."
    if claim.rl_not_below_sft is False:
        text += " RL made it worse."
    elif "sft" in summary.stages and "rl" in summary.stages:
        text += f" {steps}: {_change(summary.stages['sft'], summary.stages['rl'])}."
    return text


def rl_steps(count: int) -> str:
    """So many, in words."""
    return f"{count} RL step{'s' if count != 1 else ''}"


def _change(before: Block, after: Block) -> str:
    """What RL that did not clearly harm changed in the tasks that are solved."""
    gained = after.correct.count - before.correct.count
    if gained == 0:
        return "as many as after SFT"
    noise = "" if clearly_above(after.correct, before.correct) else ", within noise"
    return f"{abs(gained)} {'more' if gained > 0 else 'fewer'} than after SFT{noise}"


def practice_line(practice: Practice) -> str:
    """What rejection fine-tuning did for the tasks that it practised."""
    before, after = practice.before, practice.after
    if not before.count:
        return (
            f"None of {before.n} answers to {practice.tasks} training tasks was right after SFT: "
            "there was nothing to learn from."
        )
    doubt = "" if practice.clear else ", within noise"
    return (
        f"Of {before.n} answers to {practice.tasks} training tasks {before.count} were right after "
        f"SFT; a model that learnt these gives {after.count} right ones of {after.n} "
        f"(tasks: {practice.better} better, {practice.worse} worse{doubt})."
    )


def device_in_words(environment: Mapping[str, str]) -> str:
    """What the kernels ran on. Without a GPU their times are modelled for one."""
    device = environment.get("device", "")
    known = device if device and device != "not reached" else ""
    if environment.get("backend") == "cuda":
        return known or "nothing: no kernel reached the GPU"
    if not known:
        return "nothing: no kernel reached the emulator"
    return f"no GPU: the emulator ran the kernels, and times are modelled for an {known}"


def stage_table(summary: Summary) -> Table:
    """The stages as a table for the terminal."""
    table = Table(title="Held-out tasks", title_justify="left")
    for name in ("stage", "n", "compile", "correct", "95%", "turn 1", "median speedup", "masked"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for label, s in summary.stages.items():
        low, high = s.correct.ci95 or (0.0, 1.0)
        table.add_row(
            label,
            str(s.samples),
            percent(s.compiled),
            percent(s.correct),
            f"{low:.0%} to {high:.0%}",
            percent(s.first_correct),
            median_speedup(s),
            str(s.masked + s.unsupported),
        )
    return table


def percent(found: Share) -> str:
    """A share for people."""
    return "-" if found.rate is None else f"{found.rate:.0%}"


def median_speedup(block: Block) -> str:
    """Of the fastest correct kernel of each task, for each kind of times."""
    known = [(s.median, s.basis) for s in block.speeds if s.median is not None]
    return ", ".join(f"{median:.2f}x ({basis})" for median, basis in known) or "-"


def closing_lines(summary: Summary) -> list[str]:
    """What the run showed and took, in sentences; the last is what it took."""
    claim = summary.learning

    def solved(label: str) -> str:
        correct = summary.stages[label].correct
        return f"{correct.count} of {correct.n}"

    shown = []
    if claim.sft_above_base is not None:
        text = "clearly above" if claim.sft_above_base else "not clearly above"
        shown.append(f"SFT ({solved('sft')}) is {text} the base model ({solved('base')})")
    if claim.rl_not_below_sft is not None:
        text = "not clearly below" if claim.rl_not_below_sft else "clearly below"
        shown.append(f"RL ({solved('rl')}) is {text} SFT")
    if claim.rl_above_base is not None:
        text = "clearly above" if claim.rl_above_base else "not clearly above"
        shown.append(f"RL ({solved('rl')}) is {text} the base model ({solved('base')})")
    lines = [f"{'; '.join(shown)}."]
    if summary.practice is not None:
        lines.append(practice_line(summary.practice))
    if "rl" in summary.stages:
        lines.append(
            f"Of {rl_steps(summary.rl.steps)} {summary.rl.steps_with_gradient} changed the model: "
            "where all samples of a task earn the same, nothing is learnt."
        )
    return [
        *lines,
        f"The stages took {duration(summary.wall_s)} and at most "
        f"{summary.peak_memory_gib:.1f} GiB.",
    ]

"""What a run notices of itself: rules over its steps and its machine, and the book of what they
found.

A rule is a pure function: it gives a `Finding`, or None where all is well or too little is known.
Each says in its docstring what would fool it, and what keeps that from happening.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coding_framework.errors import InfrastructureError
from coding_framework.monitoring.gpu_telemetry import FAULTY
from coding_framework.store.events import log
from coding_framework.store.records import StepRecord
from coding_framework.store.run_status import Alert, SystemSample, append_alert

COMPILING_GAIN, COMPILING_SOLVED = 0.2, 0.02
"""`paid_for_compiling`: what the share of answers that compile has gained at least, and what is
solved at most."""
WORSE_STEPS = 4
WORSE_ERRORS = 3.0
"""A policy got worse where its last `WORSE_STEPS` steps solved less than its first ones by more
than so many standard errors."""
RECENT = 4
"""Steps that the rules on shares look at."""
EQUAL_SHARE, EQUAL_GROUPS = 0.8, 8
CHEAT_SHARE, CHEATS = 0.02, 3
MASKED_SHARE, MASKED = 0.1, 5
BESIDE_SHARE = 0.05
"""A rollout that takes less of a step is of answers that were written beside the step before."""
WAIT_SHARE = 0.3
JUMP, JUMP_AFTER, JUMP_OVER = 10.0, 5, 50
"""A value jumped where it is `JUMP` times the median of at most `JUMP_OVER` steps before, of which
there are at least `JUMP_AFTER`."""
KL_OF_NOTE = 0.1
"""Nats a token, below which no KL is an alarm: it begins at 0."""
STALL, STALL_AFTER, STALL_LEAST_S = 10.0, 3, 120.0
IDLE_UTIL, IDLE_S = 20.0, 300.0
DISK_BYTES = 5 * 10**9
THROTTLED_S = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found."""

    rule: str
    text: str
    """In a sentence, with the numbers."""
    advice: str
    words: str
    """For the progress line."""
    values: Mapping[str, float | None] = field(default_factory=dict)


StepRule = Callable[[Sequence[StepRecord]], Finding | None]


# --- over the steps of RL -------------------------------------------------------------------------


def got_worse(records: Sequence[StepRecord]) -> Finding | None:
    """The last steps solved less than the first ones by more than chance explains. Needs twice
    `WORSE_STEPS`. Tasks that become harder would fool it: it is left out with a curriculum."""
    first, last = records[:WORSE_STEPS], records[-WORSE_STEPS:]
    known = [
        (r.solved_rate, r.solved_error)
        for r in (*first, *last)
        if r.solved_rate is not None and r.solved_error is not None
    ]
    if len(records) < 2 * WORSE_STEPS or len(known) < 2 * WORSE_STEPS:
        return None
    rates = [rate for rate, _ in known]
    lost = math.fsum(rates[:WORSE_STEPS]) - math.fsum(rates[WORSE_STEPS:])
    if lost <= WORSE_ERRORS * math.hypot(*(error for _, error in known)):
        return None
    before, now = statistics.fmean(rates[:WORSE_STEPS]), statistics.fmean(rates[WORSE_STEPS:])
    return Finding(
        "policy_got_worse",
        f"the last {WORSE_STEPS} steps solved {now:.0%} and the first {WORSE_STEPS} {before:.0%}",
        "stop, and start again in another folder with a lower --learning-rate",
        "WORSE THAN AT THE START",
        {"solved_first": before, "solved_last": now},
    )


def paid_for_compiling(records: Sequence[StepRecord]) -> Finding | None:
    """Ever more answers compile while next to none is correct: the policy has found out what it is
    paid for. Needs twice `WORSE_STEPS`."""
    first, last = records[:WORSE_STEPS], records[-WORSE_STEPS:]
    if len(records) < 2 * WORSE_STEPS:
        return None
    solved = statistics.fmean(r.solved_rate or 0.0 for r in last)
    before = statistics.fmean(r.compile_rate or 0.0 for r in first)
    now = statistics.fmean(r.compile_rate or 0.0 for r in last)
    if now - before <= COMPILING_GAIN or solved >= COMPILING_SOLVED:
        return None
    return Finding(
        "policy_only_compiles",
        f"{now:.0%} of answers compile, up from {before:.0%}, and {solved:.0%} are solved",
        "start from an SFT, or with --reward-preset correct, which pays for correct kernels alone",
        "IT ONLY COMPILES",
        {"compile_first": before, "compile_last": now, "solved_last": solved},
    )


def no_advantage(records: Sequence[StepRecord]) -> Finding | None:
    """At each of the last steps most groups had equal returns and taught nothing. A step with few
    groups would fool it: together they need `EQUAL_GROUPS`."""
    recent = [r.measures for r in records[-RECENT:]]
    groups = sum(m.groups for m in recent)
    if len(recent) < RECENT or groups < EQUAL_GROUPS:
        return None
    if any(m.groups_without_advantage <= EQUAL_SHARE * m.groups for m in recent):
        return None
    share = sum(m.groups_without_advantage for m in recent) / groups
    return Finding(
        "no_advantage",
        f"{share:.0%} of {groups} groups of the last {RECENT} steps had equal returns: they taught "
        "nothing",
        "draw tasks of another difficulty (--curriculum), more samples a prompt "
        "(--samples-per-prompt), or sample again (--algorithm dapo)",
        "groups teach nothing",
        {"share": share, "groups": float(groups)},
    )


def cheating(records: Sequence[StepRecord]) -> Finding | None:
    """Turns with evidence of cheating are frequent. One cheat among few turns would fool it: there
    must be `CHEATS`."""
    recent = records[-RECENT:]
    judged = sum(sum(r.measures.statuses.values()) for r in recent)
    cheats = sum(r.measures.cheats for r in recent)
    if cheats < CHEATS or cheats <= CHEAT_SHARE * judged:
        return None
    return Finding(
        "cheating",
        f"{cheats} of the last {judged} verdicts found evidence of cheating",
        "look at these conversations: what they do may spread, and a cheat that is not found is "
        "paid",
        f"{cheats} cheats",
        {"cheats": float(cheats), "share": cheats / judged},
    )


def masked_turns(records: Sequence[StepRecord]) -> Finding | None:
    """Many turns were not learnt from, for faults of ours or gaps of the judge. A single fault
    among few turns would fool it: there must be `MASKED`."""
    recent = records[-RECENT:]
    turns, masked = sum(r.turns for r in recent), sum(r.masked_turns for r in recent)
    if masked < MASKED or masked <= MASKED_SHARE * turns:
        return None
    return Finding(
        "masked_turns",
        f"{masked} of the last {turns} turns were not learnt from",
        "read the reason in `masked` of these turns: a judge that fails, or features of PTX that "
        "the emulator lacks",
        f"{masked}/{turns} turns masked",
        {"masked": float(masked), "share": masked / turns},
    )


def judge_is_slow(records: Sequence[StepRecord]) -> Finding | None:
    """At each of the last steps the slowest verdicts waited for a judge for a good part of the
    rollout. A time without verdicts tells nothing, and does not count as fast."""
    recent = records[-RECENT:]
    pairs = [(r.measures.verdict_wait_s.get("p95"), _rollout_s(r)) for r in recent]
    shares = [wait / rollout for wait, rollout in pairs if wait is not None and rollout]
    if len(shares) < RECENT or min(shares) <= WAIT_SHARE:
        return None
    share = statistics.fmean(shares)
    return Finding(
        "judge_is_slow",
        f"a verdict in twenty waited for a judge for {share:.0%} of the rollout or longer, at the "
        f"last {RECENT} steps",
        "give the judge more cores or GPUs (--judge-gpus, judge_nodes)",
        "the judge is slow",
        {"share": share},
    )


def _rollout_s(record: StepRecord) -> float:
    """Answers that are written beside the step before (one step off-policy) have all of a step, of
    which verl counts next to nothing as the rollout."""
    rollout, step = (record.times.get(name, 0.0) for name in ("rollout_s", "step_s"))
    return rollout if rollout > BESIDE_SHARE * step else step


def unsteady(name: str, values: Sequence[float], of_note: float = 0.0) -> Finding | None:
    """The last of some values is not finite, or jumped. Values that begin at 0 would fool it: zeros
    are left out of the median, and nothing up to `of_note` is a jump."""
    if not values:
        return None
    last, before = values[-1], [v for v in values[-JUMP_OVER - 1 : -1] if v and math.isfinite(v)]
    usual = statistics.median(before) if len(before) >= JUMP_AFTER else None
    jumped = usual is not None and last > max(JUMP * usual, of_note)
    if math.isfinite(last) and not jumped:
        return None
    than = f"; the median of the steps before is {usual:.3g}" if usual is not None else ""
    return Finding(
        f"unsteady_{name}",
        f"{name.replace('_', ' ')} is {last:.3g}{than}",
        "where it comes again, lower --learning-rate; look at the answers of this step",
        f"{name.replace('_', ' ')} {last:.2g}",
        {"last": last if math.isfinite(last) else None, "median": usual},
    )


def unsteady_gradient(records: Sequence[StepRecord]) -> Finding | None:
    return unsteady("gradient_norm", [r.grad_norm for r in records if r.grad_norm is not None])


def unsteady_kl(records: Sequence[StepRecord]) -> Finding | None:
    return unsteady("kl", [r.kl for r in records if r.kl is not None], KL_OF_NOTE)


def no_step(records: Sequence[StepRecord], since_s: float) -> Finding | None:
    """No step ended for many times what one takes. since_s: since the last one ended, or since the
    start: loading a model would fool it otherwise, and so would steps of seconds."""
    taken = [r.times["step_s"] for r in records[-JUMP_OVER:] if "step_s" in r.times]
    if len(taken) < STALL_AFTER:
        return None
    usual = statistics.median(taken)
    if since_s <= max(STALL * usual, STALL_LEAST_S):
        return None
    return Finding(
        "no_step",
        f"no step ended for {since_s:.0f} s; one takes {usual:.0f} s",
        "look at the last lines of trainer.log, and at the judge's queue",
        f"no step for {since_s:.0f} s",
        {"since_s": since_s, "median_s": usual},
    )


STEP_RULES: tuple[StepRule, ...] = (
    got_worse,
    paid_for_compiling,
    no_advantage,
    unsteady_gradient,
    unsteady_kl,
    cheating,
    masked_turns,
    judge_is_slow,
)


def of_steps(records: Sequence[StepRecord], *, curriculum: bool = False) -> list[Finding]:
    """What the rules find in the steps of a run. curriculum: tasks become harder, so that solving
    less means nothing."""
    rules = [rule for rule in STEP_RULES if not (curriculum and rule is got_worse)]
    return [found for rule in rules if (found := rule(records)) is not None]


class StepWatch:
    """What the steps of a run of RL look like, told to a book as they come."""

    def __init__(self, book: AlertBook, *, curriculum: bool) -> None:
        self._book, self._curriculum = book, curriculum
        self._records: Sequence[StepRecord] = ()
        self._found: list[Finding] = []
        self._since = time.monotonic()

    def stepped(self, records: Sequence[StepRecord]) -> None:
        """Another step ended; records: of all."""
        self._records, self._since = records, time.monotonic()
        self._found = of_steps(records, curriculum=self._curriculum)

    def words(self) -> str:
        """What stands now, for the progress line; what is new is told."""
        stalled = no_step(self._records, time.monotonic() - self._since)
        step = self._records[-1].step if self._records else None
        self._book.note([*self._found, *([stalled] if stalled else [])], step)
        return self._book.words


# --- over the machine -----------------------------------------------------------------------------


def gpu_idle(samples: Sequence[SystemSample]) -> Finding | None:
    """The GPUs that compute something did next to nothing while weights were learning. samples:
    taken while steps were being made: while a model is loaded they are idle by right. GPUs without
    a process, which may be another's, do not count."""
    recent = _last_seconds(samples, IDLE_S)
    used = [
        g.util
        for s in recent
        for g in s.gpus or ()
        if g.util is not None and (g.processes is None or g.processes > 0)
    ]
    if not recent or not used or statistics.fmean(used) >= IDLE_UTIL:
        return None
    mean = statistics.fmean(used)
    return Finding(
        "gpu_idle",
        f"the GPUs were busy {mean:.0f}% of the last {IDLE_S / 60:.0f} minutes of training",
        "see what they wait for: the judge (judge.jsonl), the disk, or batches that are too small",
        f"GPUs {mean:.0f}% busy",
        {"util": mean},
    )


def disk_nearly_full(samples: Sequence[SystemSample]) -> Finding | None:
    """There is little room where the run writes."""
    free = samples[-1].disk_free if samples else None
    if free is None or free >= DISK_BYTES:
        return None
    return Finding(
        "disk_nearly_full",
        f"{free / 1e9:.1f} GB are free where the run writes",
        "free some space: a checkpoint that does not fit ends the run",
        f"{free / 1e9:.1f} GB of disk left",
        {"free_gb": free / 1e9},
    )


def gpu_throttled(samples: Sequence[SystemSample]) -> Finding | None:
    """A GPU lowered its clocks for heat or power for most of a minute. A power cap would fool it,
    which is the normal state of a busy GPU: it does not count."""
    recent = _last_seconds(samples, THROTTLED_S)
    slowed: dict[int, list[str]] = {}
    for sample in recent:
        for gpu in sample.gpus or ():
            if why := FAULTY.intersection(gpu.throttle or ()):
                slowed.setdefault(gpu.index, []).append(min(why))
    often = {index: why for index, why in slowed.items() if 2 * len(why) > len(recent)}
    if not often:
        return None
    index, reasons = next(iter(often.items()))
    return Finding(
        "gpu_throttled",
        f"GPU {index} lowered its clocks for a minute ({reasons[-1]})",
        "look at its temperature, fans and power supply: times measured on it are too long",
        f"GPU {index} throttled",
        {"gpu": float(index)},
    )


def _last_seconds(samples: Sequence[SystemSample], seconds: float) -> list[SystemSample]:
    """Those of the last so many seconds; none where the samples reach less far back."""
    if not samples or samples[-1].t - samples[0].t < seconds:
        return []
    return [s for s in samples if samples[-1].t - s.t <= seconds]


# --- the book -------------------------------------------------------------------------------------


class AlertBook:
    """Tells of each finding once, when it begins: in alerts.jsonl, in the log and thereby on
    stderr, and to `tell`. Where it ended and begins again it is told again."""

    def __init__(self, run: Path, tell: Callable[[Alert], None] | None = None) -> None:
        self._run, self._tell = run, tell
        self._standing: dict[str, Finding] = {}

    @property
    def words(self) -> str:
        """What stands now, for the progress line."""
        return ", ".join(found.words for found in self._standing.values())

    def note(self, found: Sequence[Finding], step: int | None = None) -> list[Alert]:
        """What all rules of this book find now; gives what is new. Raises nothing."""
        new = [f for f in found if f.rule not in self._standing]
        self._standing = {f.rule: f for f in found}
        return [self._write(f, step) for f in new]

    def _write(self, found: Finding, step: int | None) -> Alert:
        alert = Alert(
            t=round(time.time(), 3),
            rule=found.rule,
            text=found.text,
            advice=found.advice,
            values=found.values,
            step=step,
        )
        log.warning(found.rule, what=found.text, advice=found.advice, step=step)
        try:
            append_alert(self._run, alert)
        except InfrastructureError as e:  # a full disk: stderr has it
            log.info("alert_not_stored", reason=str(e))
        if self._tell is not None:
            self._tell(alert)
        return alert

"""Chooses the tasks to train on next, from tiers of difficulty that are left on evidence.

Guaranteed: a tier is left only after `CONFIRMATIONS` windows in a row, each of `min_episodes` new
episodes, meet all its criteria, so that a lucky streak alone does not advance; a fallback needs the
same number of windows in which what was already learnt has collapsed. The whole state, the random
generator included, goes through `state_dict` and back without a difference.
The curriculum sees finished conversations and knows nothing of training.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from pydantic import Field

from coding_framework.errors import UsageError
from coding_framework.store.events import log
from coding_framework.store.records import OPEN_FROM, OPEN_TO, WIDE_SPREAD, TaskEvidence
from coding_framework.types import CUDAConversationState, Record, Task


class TierCriteria(Record):
    """What it takes to leave a tier: all of it, over one window."""

    min_compile_rate: float = Field(ge=0.0, le=1.0)
    """Share of episodes in which some turn compiled."""
    min_success_rate: float = Field(ge=0.0, le=1.0)
    """Share of episodes in which some turn was correct."""
    min_mean_speedup: float | None = None
    """Mean over the successful episodes of their best speedup; None: not asked for."""
    min_episodes: int = Field(ge=1)
    """Episodes of a window."""


class CurriculumTier(Record):
    """One step of the curriculum."""

    name: str
    task_tiers: tuple[int, ...]
    """The `Task.tier` values that it draws from."""
    criteria: TierCriteria


CONFIRMATIONS = 2
"""Windows in a row that must agree before the tier changes, up or down."""
EARLIER_SHARE = 0.2
"""Share of draws from earlier tiers: keeps what was learnt, and shows when it is lost."""
COLLAPSE_SHARE = 0.5
"""Earlier tiers have collapsed when their success rate falls below this share of what it took to
leave them. Far below the way up, so that a learner at the edge does not go to and fro."""
COLLAPSE_EPISODES = 40
"""Episodes on earlier tiers of a window that may say so."""
EXPLORATION = 0.05
"""Weight that every task keeps in a draw, however often it was solved or failed."""


def _tier(name: str, tiers: tuple[int, ...], *criteria: float | None) -> CurriculumTier:
    compiled, success, speedup, episodes = criteria
    return CurriculumTier(
        name=name,
        task_tiers=tiers,
        criteria=TierCriteria(
            min_compile_rate=compiled or 0.0,
            min_success_rate=success or 0.0,
            min_mean_speedup=speedup,
            min_episodes=int(episodes or 1),
        ),
    )


PRESETS: Mapping[str, tuple[CurriculumTier, ...]] = {
    "three_tier": (
        _tier("easy", (0,), 0.80, 0.60, 1.2, 100),
        _tier("medium", (1,), 0.75, 0.50, 1.8, 200),
        _tier("hard", (2, 3), 0.70, 0.40, 2.5, 300),
    ),
    "four_tier": (
        _tier("tier0", (0,), 0.90, 0.75, None, 100),
        _tier("tier1", (1,), 0.90, 0.75, None, 100),
        _tier("tier2", (2,), 0.90, 0.75, None, 100),
        _tier("tier3", (3,), 0.90, 0.75, None, 100),
    ),
    "informative": (_tier("all", (0, 1, 2, 3), None, None, None, 100),),
}
"""`informative` has no tiers: it draws by what is known of each task alone."""
KEPT_SPEEDS = 16
"""Last speedups that are kept of a task."""


class Outcome(Record):
    """What the curriculum keeps of an episode."""

    task: str
    compiled: bool
    correct: bool
    speedup: float | None = None
    """Best of the episode; None where no turn was correct or timed."""
    modelled: bool = False
    """Whether the speedup is the emulator's model."""


class PerformanceMetrics(Record):
    """Outcomes in figures. Maker: PerformanceHistory. Consumers: decisions, reports."""

    episodes: int
    compile_rate: float
    success_rate: float
    mean_speedup: float | None
    basis: Literal["measured", "modelled", "mixed", "none"]
    """Where the speedups come from."""

    def meets(self, criteria: TierCriteria) -> bool:
        return (
            self.episodes >= criteria.min_episodes
            and self.compile_rate >= criteria.min_compile_rate
            and self.success_rate >= criteria.min_success_rate
            and (
                criteria.min_mean_speedup is None
                or (self.mean_speedup or 0.0) >= criteria.min_mean_speedup
            )
        )


class TaskRecord(Record):
    """How a task went so far."""

    attempts: int = 0
    solved: int = 0
    speedups: tuple[float, ...] = ()
    """Of its last correct conversations."""
    known_spread: float = 1.0
    """What was known of the spread of its speeds before the run."""

    @property
    def p(self) -> float:
        """The success probability, under a uniform prior."""
        return (self.solved + 1) / (self.attempts + 2)

    @property
    def weight(self) -> float:
        """p(1 - p): largest for tasks that are neither solved nor hopeless, and for new ones."""
        p = self.p
        return p * (1 - p)

    @property
    def informative(self) -> bool:
        """Whether answers to it are likely to differ: in being correct, or in speed."""
        fresh = self.attempts == 0
        return fresh or OPEN_FROM <= self.p <= OPEN_TO or self.spread >= WIDE_SPREAD

    @property
    def spread(self) -> float:
        """The fastest over the median speed, as this run saw it or, until it has, as was known."""
        if len(self.speedups) < 4:
            return self.known_spread
        return max(self.speedups) / median(self.speedups)


_NEW = TaskRecord()


class PerformanceHistory(Record):
    """Outcomes since the last decision, and the figures of past windows."""

    current: tuple[Outcome, ...] = ()
    """Of the current tier, since its last window was closed."""
    earlier: tuple[Outcome, ...] = ()
    """Of earlier tiers, likewise."""
    tasks: Mapping[str, TaskRecord] = Field(default_factory=dict)

    def add(self, outcome: Outcome, *, earlier: bool) -> PerformanceHistory:
        old = self.tasks.get(outcome.task, _NEW)
        fast = (outcome.speedup,) if outcome.correct and outcome.speedup else ()
        new = old.model_copy(
            update={
                "attempts": old.attempts + 1,
                "solved": old.solved + outcome.correct,
                "speedups": (*old.speedups, *fast)[-KEPT_SPEEDS:],
            }
        )
        field = "earlier" if earlier else "current"
        return self.model_copy(
            update={
                field: (*getattr(self, field), outcome),
                "tasks": {**self.tasks, outcome.task: new},
            }
        )


def measure_performance(outcomes: Sequence[Outcome]) -> PerformanceMetrics:
    """Figures of some outcomes."""
    speedups = [o for o in outcomes if o.correct and o.speedup is not None]
    kinds = {o.modelled for o in speedups}
    basis: Literal["measured", "modelled", "mixed", "none"] = "none"
    if kinds:
        basis = "mixed" if len(kinds) == 2 else ("modelled" if True in kinds else "measured")
    n = max(1, len(outcomes))
    return PerformanceMetrics(
        episodes=len(outcomes),
        compile_rate=sum(o.compiled for o in outcomes) / n,
        success_rate=sum(o.correct for o in outcomes) / n,
        mean_speedup=sum(o.speedup or 0.0 for o in speedups) / len(speedups) if speedups else None,
        basis=basis,
    )


class WindowRecord(Record):
    """A closed window and what it led to: the progression of the report."""

    episode: int
    """Episodes recorded in all when it closed."""
    tier: str
    kind: Literal["current", "earlier"]
    metrics: PerformanceMetrics
    decision: Literal["advance", "fall_back", "stay"]


class CurriculumState(Record):
    """All that a checkpoint must hold."""

    level: int = 0
    episodes: int = 0
    passed: int = 0
    """Windows in a row that met the criteria."""
    collapsed: int = 0
    """Windows in a row in which earlier tiers had collapsed."""
    history: PerformanceHistory = PerformanceHistory()
    windows: tuple[WindowRecord, ...] = ()
    random_state: Any = None


class CurriculumManager:
    """Draws tasks of the current tier and moves between tiers on recorded episodes."""

    def __init__(
        self,
        tasks: Sequence[Task],
        preset: str | Sequence[CurriculumTier] = "three_tier",
        *,
        seed: int = 0,
    ) -> None:
        """preset: a name of PRESETS, or tiers of one's own. Tiers for which there is no task are
        left out. Raises UsageError for an unknown name, or where no tier has a task."""
        wanted = self._tiers_of(preset)
        self._tasks = {t.name: t for t in tasks}
        self._pools = [(tier, self._names(tier)) for tier in wanted if self._names(tier)]
        empty = [tier.name for tier in wanted if not self._names(tier)]
        if self._pools and empty:
            advice = "choose --task-scope all, which has tasks of every tier"
            log.warning("curriculum_tiers_without_tasks", left_out=empty, advice=advice)
        if not self._pools:
            raise UsageError("the curriculum has no task in any of its tiers: give it other tasks")
        self._rng = random.Random(seed)
        self._state = CurriculumState()

    @staticmethod
    def _tiers_of(preset: str | Sequence[CurriculumTier]) -> Sequence[CurriculumTier]:
        if not isinstance(preset, str):
            return preset
        if preset not in PRESETS:
            raise UsageError(f"no curriculum is called {preset!r}; there are: {', '.join(PRESETS)}")
        return PRESETS[preset]

    def _names(self, tier: CurriculumTier) -> list[str]:
        return [t.name for t in self._tasks.values() if t.tier in tier.task_tiers]

    @property
    def current_tier(self) -> CurriculumTier:
        return self._pools[self._state.level][0]

    @property
    def tiers(self) -> tuple[str, ...]:
        """Names of the tiers that have tasks, in their order."""
        return tuple(tier.name for tier, _ in self._pools)

    @property
    def progression(self) -> tuple[WindowRecord, ...]:
        """Every closed window, for the report."""
        return self._state.windows

    def sample(self, n: int) -> list[Task]:
        """Draw `n` tasks, with replacement: most of the current tier, some of earlier ones, each
        tier's tasks by how open their outcome is."""
        level, records = self._state.level, self._state.history.tasks
        weights: dict[int, list[float]] = {}
        drawn = []
        for _ in range(n):
            from_earlier = level > 0 and self._rng.random() < EARLIER_SHARE
            chosen = self._rng.randrange(level) if from_earlier else level
            pool = self._pools[chosen][1]
            if chosen not in weights:
                weights[chosen] = [self._weight(records.get(name, _NEW)) for name in pool]
            drawn.append(self._tasks[self._rng.choices(pool, weights[chosen])[0]])
        return drawn

    def _weight(self, known: TaskRecord) -> float:
        if self.current_tier.name == "all":
            return 1.0 if known.informative else EXPLORATION
        return known.weight + EXPLORATION

    def learn(self, evidence: Iterable[TaskEvidence]) -> None:
        """Take over what is known of the tasks before the run; others are left alone."""
        known = {
            e.task: TaskRecord(attempts=e.samples, solved=e.solved, known_spread=e.spread)
            for e in evidence
            if e.task in self._tasks
        }
        history = self._state.history
        tasks = {**history.tasks, **known}
        self._update(history=history.model_copy(update={"tasks": tasks}))

    def record(self, state: CUDAConversationState) -> None:
        """Take note of a finished episode. One in which every turn is masked teaches nothing and
        is not counted."""
        verdicts = [t.verdict for t in state.turns if t.verdict is not None and t.masked is None]
        if not verdicts:
            return
        correct = [v for v in verdicts if v.correct]
        speedups = [(v.speedup, v) for v in correct if v.speedup is not None]
        best = max(speedups, key=lambda pair: pair[0], default=None)
        self.record_outcome(
            Outcome(
                task=state.task.name,
                compiled=any(v.compiled for v in verdicts),
                correct=bool(correct),
                speedup=best[0] if best else None,
                modelled=bool(best and best[1].timing and best[1].timing.modelled),
            ),
            task_tier=state.task.tier,
        )

    def record_outcome(self, outcome: Outcome, *, task_tier: int) -> None:
        """Take note of an outcome; of a later tier than the current one it only counts for the
        task itself."""
        state = self._state
        earlier_tiers = {t for tier, _ in self._pools[: state.level] for t in tier.task_tiers}
        earlier = task_tier in earlier_tiers
        history = state.history.add(outcome, earlier=earlier)
        if not earlier and task_tier not in self.current_tier.task_tiers:
            history = history.model_copy(update={"current": state.history.current})
        self._update(history=history, episodes=state.episodes + 1)
        self._close_windows()

    def _close_windows(self) -> None:
        history = self._state.history
        if len(history.earlier) >= COLLAPSE_EPISODES:
            self._decide_fallback(measure_performance(history.earlier))
        if len(history.current) >= self.current_tier.criteria.min_episodes:
            self._decide_advance(measure_performance(history.current))

    def _decide_advance(self, metrics: PerformanceMetrics) -> None:
        passed = self._state.passed + 1 if metrics.meets(self.current_tier.criteria) else 0
        last = self._state.level == len(self._pools) - 1
        advance = passed >= CONFIRMATIONS and not last
        self._close("current", metrics, "advance" if advance else "stay")
        self._update(passed=passed, history=self._state.history.model_copy(update={"current": ()}))
        if advance:
            self._move(+1)

    def _decide_fallback(self, metrics: PerformanceMetrics) -> None:
        needed = self._pools[self._state.level - 1][0].criteria.min_success_rate
        low = metrics.success_rate < COLLAPSE_SHARE * needed
        collapsed = self._state.collapsed + 1 if low else 0
        fall_back = collapsed >= CONFIRMATIONS
        self._close("earlier", metrics, "fall_back" if fall_back else "stay")
        self._update(
            collapsed=collapsed, history=self._state.history.model_copy(update={"earlier": ()})
        )
        if fall_back:
            self._move(-1)

    def _close(
        self,
        kind: Literal["current", "earlier"],
        metrics: PerformanceMetrics,
        decision: Literal["advance", "fall_back", "stay"],
    ) -> None:
        window = WindowRecord(
            episode=self._state.episodes,
            tier=self.current_tier.name,
            kind=kind,
            metrics=metrics,
            decision=decision,
        )
        self._update(windows=(*self._state.windows, window))

    def _move(self, step: int) -> None:
        history = self._state.history.model_copy(update={"current": (), "earlier": ()})
        self._update(level=self._state.level + step, passed=0, collapsed=0, history=history)

    def _update(self, **changes: Any) -> None:
        self._state = self._state.model_copy(update=changes)

    def state_dict(self) -> dict[str, Any]:
        """The state as JSON values, for a checkpoint."""
        version, words, gauss = self._rng.getstate()
        state = self._state.model_copy(update={"random_state": [version, list(words), gauss]})
        return state.model_dump(mode="json")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`'s state. Raises UsageError where it is of another curriculum."""
        loaded = CurriculumState.model_validate(state)
        if loaded.level >= len(self._pools):
            raise UsageError(
                f"the checkpoint's curriculum is at tier {loaded.level}, this one has "
                f"{len(self._pools)}: resume with the same preset and tasks"
            )
        version, words, gauss = loaded.random_state
        self._rng.setstate((version, tuple(words), gauss))
        self._state = loaded.model_copy(update={"random_state": None})

"""What the server of verified kernels counts, for Prometheus. Labels are bounded: never a unit, a
task, a token or a request's number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coding_framework.deployment.http import SECONDS, HttpMetrics
from coding_framework.deployment.manager import Evaluation, Seen
from coding_framework.types import Verdict

VARIANTS = ("incumbent", "candidate")


class JudgeMetrics(HttpMetrics):
    """What a server that judges counts beyond every server's."""

    def __init__(self, queued: str) -> None:
        """queued: what the gauge of its queue counts."""
        super().__init__()
        own = self.registry
        self.verdicts = Counter(
            "cuda_rl_verdicts", "Verdicts, by status.", ("status",), registry=own
        )
        self.verdict_seconds = Histogram(
            "cuda_rl_verdict_seconds", "Time of a verdict with its waiting.", buckets=SECONDS,
            registry=own,
        )  # fmt: skip
        self.judge_queue = Gauge("cuda_rl_judge_queue", queued, registry=own)

    def judged(self, verdict: Verdict, seconds: float) -> None:
        self.verdicts.labels(verdict.status.value).inc()
        self.verdict_seconds.observe(seconds)


class ServerMetrics(JudgeMetrics):
    """What this server counts beyond every server's."""

    def __init__(self, seen: Callable[[], Sequence[Seen]] = tuple) -> None:
        """seen: the rollouts, asked for at every scrape."""
        super().__init__("Verdicts that wait.")
        own = self.registry
        self.requests = Counter(
            "cuda_rl_requests", "Chat requests, by who answered and what came of it.",
            ("alias", "variant", "outcome"), registry=own,
        )  # fmt: skip
        self.seconds = Histogram(
            "cuda_rl_request_seconds",
            "Time of a chat request: in all, of its slowest candidate's answers (generate) and of "
            "their verdicts with their waiting (judge).",
            ("alias", "phase"), buckets=SECONDS, registry=own,
        )  # fmt: skip
        self.up = Gauge(
            "cuda_rl_backend_up", "Whether a model server answers.", ("backend",), registry=own
        )
        self.running = Gauge(
            "cuda_rl_backend_inflight", "Requests at a model server.", ("backend",), registry=own
        )
        self.storage_failed = Gauge(
            "cuda_rl_storage_failed", "1 where the deployment database cannot be written.",
            registry=own
        )  # fmt: skip
        self.events = Counter(
            "cuda_rl_events", "Exposures, outcomes and pairs written to the deployment database.",
            registry=own,
        )  # fmt: skip
        self.commit_seconds = Histogram(
            "cuda_rl_event_commit_seconds", "Time of a group's commit.", buckets=SECONDS,
            registry=own,
        )  # fmt: skip
        own.register(_Rollouts(seen))

    def committed(self, events: int, seconds: float) -> None:
        """A group of events is durable."""
        self.events.inc(events)
        self.commit_seconds.observe(seconds)


class _Rollouts(Collector):
    """The newest rollout of each alias as gauges, made at every scrape."""

    def __init__(self, seen: Callable[[], Sequence[Seen]]) -> None:
        self._seen = seen

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See Collector. Every family is there, also where no rollout is."""
        rollouts = self._seen()
        state = _gauge("experiment_state", "1 for the state that it is in.", "state")
        enrolment = _gauge("experiment_enrolment", "Share of the units that take part.")
        for seen in rollouts:
            labels = [seen.row.alias, seen.row.id]
            state.add_metric([*labels, seen.row.state], 1.0)
            enrolment.add_metric(labels, seen.row.enrolment)
        yield from (state, enrolment)
        running = [s.evaluation for s in rollouts if s.evaluation is not None]
        yield from _counts(running)
        yield from _estimates(running)
        yield from _guardrails(running)


def _counts(running: Sequence[Evaluation]) -> Iterator[GaugeMetricFamily]:
    units = _gauge("experiment_units", "Closed units, by arm.", "variant")
    horizon = _gauge("experiment_horizon_units", "Closed units at which it ends at the latest.")
    pairs = _gauge("experiment_shadow_pairs", "Requests that both versions answered.")
    for found in running:
        labels = [found.alias, found.experiment]
        for variant, count in zip(VARIANTS, found.numbers["counts"]["closed"], strict=True):
            units.add_metric([*labels, variant], count)
        horizon.add_metric(labels, found.numbers["horizon_units"])
        pairs.add_metric(labels, found.numbers["shadow_pairs"])
    yield from (units, horizon, pairs)


def _estimates(running: Sequence[Evaluation]) -> Iterator[GaugeMetricFamily]:
    """From 100 closed units an arm on."""
    said = {
        "estimate": "Candidate less incumbent, as a share of the metric's range.",
        "low": "Lower end of its interval, valid whenever it is looked at.",
        "high": "Upper end of its interval, valid whenever it is looked at.",
    }
    for name, text in said.items():
        family = _gauge(f"experiment_{name}", text, "metric")
        for found in running:
            for metric, shown in found.numbers["estimates"].items():
                if shown[name] is not None:
                    family.add_metric([found.alias, found.experiment, metric], shown[name])
        yield family


def _guardrails(running: Sequence[Evaluation]) -> Iterator[GaugeMetricFamily]:
    log_e = _gauge("guardrail_log_e", "Natural logarithm of the e-value of a bad event.", "metric")
    ratio = _gauge("srm_p", "p-value of the sample ratio; below .001 the rollout pauses.")
    for found in running:
        labels = [found.alias, found.experiment]
        for metric, shown in found.numbers["bad"].items():
            log_e.add_metric([*labels, metric], shown["log_e"])
        ratio.add_metric(labels, found.numbers["srm_p"])
    yield from (log_e, ratio)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cuda_rl_{name}", text, labels=("alias", "experiment", *labels))

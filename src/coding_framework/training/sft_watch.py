"""Follows an SFT run: checks its gradients, records its losses and its rate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coding_framework.errors import TrainingError
from coding_framework.monitoring.alerts import AlertBook, unsteady
from coding_framework.monitoring.progress import Progress
from coding_framework.monitoring.wandb_sink import WandbSink
from coding_framework.store.lines import JsonlSink
from coding_framework.store.records import SFTEpoch
from coding_framework.store.training_log import SFTRecords


class Watch:
    """Follows a run: gradients, losses, rate. One line a step in `metrics.jsonl`, one an epoch."""

    def __init__(
        self,
        model: Any,
        sink: JsonlSink,
        wandb: WandbSink,
        progress: Progress,
        tokens_per_step: float,
        alerts: AlertBook | None = None,
    ) -> None:
        self._trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self._sink, self._wandb, self._progress = sink, wandb, progress
        self._tokens_per_step = tokens_per_step
        self._alerts = alerts
        self.step = 0
        self.losses: list[float] = []
        self.gradient_norms: list[float] = []
        self.epochs: list[SFTEpoch] = []
        self._began: float | None = None
        self._ended: float | None = None
        self._first_step = 0
        self._seconds_before = 0.0
        self._paused_s = 0.0

    @property
    def tokens(self) -> int:
        return round(self.step * self._tokens_per_step)

    @property
    def rate(self) -> float:
        """Tokens per second of this run."""
        if self._began is None or self.step == self._first_step:
            return 0.0
        done = (self.step - self._first_step) * self._tokens_per_step
        return done / max(self._run_s, 1e-9)

    @property
    def seconds(self) -> float:
        """Seconds of training over all runs, without pauses."""
        return self._seconds_before + self._run_s

    @property
    def _run_s(self) -> float:
        """Likewise of this run."""
        if self._began is None:
            return 0.0
        return (self._ended or time.monotonic()) - self._began - self._paused_s

    @contextmanager
    def paused(self, doing: str) -> Iterator[None]:
        """Shows `doing` on the progress line; the block's time does not count as training."""
        self._progress.update(self.step, doing)
        started = time.monotonic()
        try:
            yield
        finally:
            self._paused_s += time.monotonic() - started

    def restore(self, kept: SFTRecords) -> None:
        """Take over the records of earlier runs."""
        self.losses = [e["loss"] for e in kept.steps]
        self.gradient_norms = [e["gradient_norm"] for e in kept.steps]
        self.epochs = list(kept.epochs)
        self.step = self._first_step = len(kept.steps)
        self._progress.update(self.step)
        self._seconds_before = kept.steps[-1]["seconds"] if kept.steps else 0.0

    def check_gradients(self) -> None:
        """Every trained weight has a finite gradient, and not all are zero."""
        without = [name for name, p in self._trained if p.grad is None]
        if without:
            raise TrainingError(
                f"SFT: {len(without)} of {len(self._trained)} trained weights have no gradient "
                f"(first: {without[0]}): nothing would be learnt there; try --quantization none"
            )

    def record(self, step: int, loss: float, gradient_norm: float, learning_rate: float) -> None:
        """One step is done."""
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            raise TrainingError(
                f"SFT: loss {loss} and gradient norm {gradient_norm} at step {step}: lower "
                "--learning-rate"
            )
        if gradient_norm == 0.0:
            raise TrainingError(f"SFT: all gradients are zero at step {step}: nothing is learnt")
        self.step = step
        self.losses.append(loss)
        self.gradient_norms.append(gradient_norm)
        self._write(
            {
                "step": step,
                "loss": loss,
                "gradient_norm": gradient_norm,
                "learning_rate": learning_rate,
                "seconds": round(self.seconds, 2),
            }
        )
        if self._alerts is not None:
            found = unsteady("gradient_norm", self.gradient_norms)
            self._alerts.note([found] if found is not None else [], step)
        self._progress.update(step, self._note())

    def record_epoch(self, epoch: SFTEpoch) -> None:
        """An epoch was measured."""
        self.epochs.append(epoch)
        self._write(epoch.model_dump(mode="json"))
        self._progress.update(self.step, self._note())

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._sink.write(entry)
        self._wandb.log(entry["step"], entry)

    def _note(self) -> str:
        parts = []
        if recent := self.losses[-20:]:
            parts.append(f"loss {sum(recent) / len(recent):.3f}")
        if self.epochs:
            parts += _said(self.epochs[-1])
        standing = [self._alerts.words] if self._alerts is not None and self._alerts.words else []
        return ", ".join([*standing, *parts, f"{self.rate:.0f} tokens/s"])

    def callback(self) -> Any:
        """As a callback of transformers' Trainer."""
        from transformers import TrainerCallback

        watch = self

        class WatchCallback(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, *_: Any, **__: Any) -> None:
                watch._began = time.monotonic()
                watch._progress.begin()

            def on_train_end(self, *_: Any, **__: Any) -> None:
                watch._ended = time.monotonic()

            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                watch.check_gradients()

            def on_log(self, args: Any, state: Any, control: Any, **extra: Any) -> None:
                logs = extra.get("logs") or {}
                if "loss" in logs:
                    norm = float(logs["grad_norm"])
                    watch.record(state.global_step, logs["loss"], norm, logs["learning_rate"])

        return WatchCallback()


def _said(epoch: SFTEpoch) -> list[str]:
    """An epoch on the progress line."""
    parts = []
    if epoch.held_out_loss is not None:
        parts.append(f"held-out {epoch.held_out_loss:.3f}")
    if epoch.score is not None:
        parts.append(f"{epoch.score.correct} of {epoch.score.judged} correct")
    return [f"after epoch {epoch.epoch:g}: {' and '.join(parts)}"] if parts else []

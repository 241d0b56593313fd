"""Follows an SFT run: that gradients are there, the losses, the rate."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from coding_framework.errors import TrainingError
from coding_framework.monitoring.jsonl import JsonlSink, read_lines
from coding_framework.monitoring.progress import Progress
from coding_framework.paths import write_atomic


class Watch:
    """Follows a run: gradients, losses, rate. One line a step in `metrics.jsonl`."""

    def __init__(
        self, model: Any, sink: JsonlSink, progress: Progress, tokens_per_step: float
    ) -> None:
        self._trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self._sink, self._progress = sink, progress
        self._tokens_per_step = tokens_per_step
        self.step = 0
        self.losses: list[float] = []
        self.gradient_norms: list[float] = []
        self._began: float | None = None
        self._ended: float | None = None
        self._first_step = 0
        self._seconds_before = 0.0

    @property
    def tokens(self) -> int:
        return round(self.step * self._tokens_per_step)

    @property
    def rate(self) -> float:
        """Tokens per second of this run."""
        if self._began is None or self.step == self._first_step:
            return 0.0
        done = (self.step - self._first_step) * self._tokens_per_step
        return done / max((self._ended or time.monotonic()) - self._began, 1e-9)

    def restore(self, entries: list[dict[str, Any]]) -> float:
        """Take over the records of earlier runs; gives the seconds that they took."""
        self.losses = [e["loss"] for e in entries]
        self.gradient_norms = [e["gradient_norm"] for e in entries]
        self.step = self._first_step = len(entries)
        self._progress.update(self.step)
        self._seconds_before = entries[-1]["seconds"] if entries else 0.0
        return self._seconds_before

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
        self._sink.write(
            {
                "step": step,
                "loss": loss,
                "gradient_norm": gradient_norm,
                "learning_rate": learning_rate,
                "seconds": round(
                    self._seconds_before + time.monotonic() - (self._began or time.monotonic()), 2
                ),
            }
        )
        recent = self.losses[-20:]
        note = f"loss {sum(recent) / len(recent):.3f}, {self.rate:.0f} tokens/s"
        self._progress.update(step, note)

    def callback(self) -> Any:
        """As a callback of transformers' Trainer."""
        from transformers import TrainerCallback

        watch = self

        class WatchCallback(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, *_: Any, **__: Any) -> None:
                watch._began = time.monotonic()

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


def keep_records(metrics: Path, checkpoint: Path | None) -> list[dict[str, Any]]:
    """The records of the steps up to the checkpoint; later ones, which will be made again, are
    taken out of the file."""
    steps = int(checkpoint.name.rsplit("-", 1)[1]) if checkpoint is not None else 0
    entries = [json.loads(line) for line in read_lines(metrics)]
    kept = [entry for entry in entries if entry["step"] <= steps]
    if len(kept) != len(entries):
        write_atomic(metrics, "".join(json.dumps(entry) + "\n" for entry in kept))
    return kept

"""Measures the policy after each epoch of SFT: its held-out loss, and its pass rate by the
evaluation that the caller hands in.

Guaranteed: a checkpoint is written first and its weights are measured, so that each epoch is
measured once, however often the run is killed. Measuring does not change the random numbers of the
training. A failed evaluation is recorded and logged, and the training goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coding_framework.store.events import log
from coding_framework.store.records import SFTEpoch
from coding_framework.training.sft_loss import HeldOutLoss
from coding_framework.training.sft_watch import Watch
from coding_framework.types import EvaluateFn, HeldOutScore


class EpochWatch:
    """Measures the policy before training and after each epoch.

    loss: the held-out loss of the policy as it is now; None: there are no held-out examples.
    evaluate: with the base model's folder; None: no pass rate.
    """

    def __init__(
        self,
        watch: Watch,
        checkpoints: Path,
        *,
        base: Path,
        loss: Callable[[], HeldOutLoss] | None,
        evaluate: EvaluateFn | None,
    ) -> None:
        self._watch, self._checkpoints, self._base = watch, checkpoints, base
        self._loss, self._evaluate = loss, evaluate

    def look(self, epoch: float, step: int) -> None:
        """Measure and record the policy, unless an earlier run did."""
        wanted = self._loss is not None or (self._evaluate is not None and step > 0)
        if not wanted or any(known.step == step for known in self._watch.epochs):
            return
        import torch

        started, loss, score, fault = time.monotonic(), None, None, ""
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with self._watch.paused(f"held-out after epoch {epoch:g}"), torch.random.fork_rng(devices):
            if self._loss is not None:
                loss = self._loss()
            if self._evaluate is not None and step > 0:
                score, fault = self._judged(self._evaluate, epoch, step)
        found = SFTEpoch(
            epoch=round(epoch, 4),
            step=step,
            held_out_loss=None if loss is None else loss.mean,
            held_out_tokens=0 if loss is None else loss.tokens,
            score=score,
            fault=fault,
            seconds=round(time.monotonic() - started, 2),
        )
        self._watch.record_epoch(found)
        log.info("sft_epoch", **found.model_dump(mode="json"))

    def _judged(
        self, evaluate: EvaluateFn, epoch: float, step: int
    ) -> tuple[HeldOutScore | None, str]:
        """The score, or why there is none."""
        adapter = self._checkpoints / f"checkpoint-{step}"
        _free_gpu()
        try:
            return evaluate(self._base, adapter, f"epoch-{epoch:g}"), ""
        except Exception as e:  # a measurement: hours of training must not end with it
            fault = " ".join(f"{type(e).__name__}: {e}".split())[:300]
            log.warning("sft_evaluation_failed", epoch=epoch, fault=fault, exc_info=True)
            return None, fault
        finally:
            _free_gpu()

    def callback(self) -> Any:
        """As a callback of transformers' Trainer, to be added after the Watch's."""
        from transformers import TrainerCallback

        look = self.look

        class EpochCallback(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
                if _ends_epoch(state):  # the start, or a kill came between checkpoint and look
                    look(state.epoch or 0.0, state.global_step)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                control.should_save = control.should_save or _ends_epoch(state)

            def on_epoch_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
                if _ends_epoch(state):  # a limit of time ends the loop of an epoch too
                    look(state.epoch, state.global_step)

        return EpochCallback()


def _ends_epoch(state: Any) -> bool:
    """Whether the epoch or the training ends with this step."""
    return state.global_step == state.max_steps or float(state.epoch or 0.0).is_integer()


def _free_gpu() -> None:
    """Give the memory that PyTorch keeps for later back to the other processes."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()

"""A scheduler of vLLM's that has more passes in flight than two (`passes_in_flight`).

vLLM 0.24 prepares one pass while the GPU runs another. What it does between the two is a chain:
the tokens of pass n are read, then pass n + 2 is scheduled, handed to the worker, and prepared
there. Where that takes longer than a pass on the GPU, as with a small model and many answers, the
GPU waits for it. With three passes in flight the scheduler and the worker each work on a pass of
their own.

vLLM imports this in its engine's process alone, by the option `scheduler_cls`, before it asks how
many passes are to be in flight.
"""

from __future__ import annotations

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request

from coding_framework.training.verl.overrides import PASSES

_VLLMS_OWN: Any = VllmConfig.__dict__["max_concurrent_batches"].fget


def _passes(config: VllmConfig) -> int:
    """vLLM's own number where it has one pass at a time (it cannot schedule ahead of guesses)."""
    own: int = _VLLMS_OWN(config)
    return own if own < 2 else max(own, int(config.additional_config.get(PASSES, own)))


VllmConfig.max_concurrent_batches = property(_passes)


class PassesInFlight(AsyncScheduler):  # type: ignore[misc]
    """vLLM's scheduler, whose preempted answers forget the tokens that are under way.

    With two passes in flight the last token of a preempted answer is known before the answer can be
    scheduled again. With more it may not be, and its next pass would begin without it. So it is
    dropped when it comes, and drawn again: what vLLM does where it preempts all answers at once.
    """

    _resetting = False

    def _preempt_request(self, request: Request, timestamp: float) -> None:
        super()._preempt_request(request, timestamp)
        if not self._resetting:  # there vLLM does it itself
            request.async_tokens_to_discard += request.num_output_placeholders
            request.num_output_placeholders = 0

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        before = {request: request.async_tokens_to_discard for request in self.running}
        self._resetting = True
        try:
            return bool(super().reset_prefix_cache(reset_running_requests, reset_connector))
        finally:
            self._resetting = False
            if reset_running_requests:
                for request, discarded in before.items():
                    request.async_tokens_to_discard += discarded

"""What PyTorch takes for a task's function, eager and compiled, by the candidate's own protocol.

Trusted code: the task's model runs in the judge's process and context. Its kernels are captured
into a CUDA graph with an event at either end, so that Python's dispatch is not counted against it;
between calls the inputs change and the L2 is emptied as for a candidate. A model that cannot be
captured (it synchronises, or allocates by value) is timed by the sum of its kernels, as the
profiler counts them, with warm caches: its figure is a little low, which costs no baseline a point.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median

import torch
from torch import nn

from coding_framework.cuda.expected.inputs import memory_of, seen_as
from coding_framework.cuda.gpu.place import GpuPlace
from coding_framework.cuda.timing.statistics import (
    Timing,
    TimingProtocol,
    sample_until_known,
    summary,
    warm_up,
)
from coding_framework.store.events import log

_FLUSH_FACTOR = 3
_CAPTURE_WARM_UP = 3
_PROFILED_CALLS = 20

Inputs = tuple[torch.Tensor, ...]


def time_model(
    model: Callable[..., object], draws: Sequence[Inputs], place: GpuPlace, protocol: TimingProtocol
) -> Timing:
    """Device time of `model(*inputs)` with inputs like those of `draws` (two or more), alone on the
    GPU. Raises what the model raises."""
    device = place.device
    with place.lock.alone(), _there(device), torch.no_grad():
        timer = _GraphTimer(model, draws, device)
        try:
            timer.capture()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as e:  # CUDA's errors too
            log.info("baseline_not_captured", why=str(e).splitlines()[0][:200])
            return _profiled(model, draws[0], protocol)
        empty = _GraphTimer(_Nothing(), [()], device)
        empty.capture()
        nothing_ms = median([empty.call() for _ in range(30)][10:]) + protocol.event_ms
        warm_up(timer.call, protocol, time.monotonic)
        samples = sample_until_known(timer.call, protocol, time.monotonic)
    return summary([max(s - nothing_ms, 1e-6) for s in samples], protocol)


def time_compiled(
    model: nn.Module,
    draws: Sequence[Inputs],
    place: GpuPlace,
    protocol: TimingProtocol,
    *,
    tune: bool = False,
) -> Timing | None:
    """As `time_model`, of `torch.compile(model)`; None where it does not compile. tune: it tries
    every kernel that it has (max-autotune). Raises torch.OutOfMemoryError where the GPU has no room
    for it."""
    try:
        torch._dynamo.reset()
        # the model's call is captured here: by torch.compile's own graphs it would be twice
        compiled = torch.compile(model, mode="max-autotune-no-cudagraphs" if tune else None)
        with _there(place.device), torch.no_grad():
            compiled(*draws[0])
            torch.cuda.synchronize()
        return time_model(compiled, draws, place, protocol)
    except torch.OutOfMemoryError:
        raise
    except Exception as e:  # whatever the compiler makes of somebody's model
        log.warning("baseline_not_compiled", why=f"{type(e).__name__}: {e}"[:300])
        return None


@contextmanager
def _there(device: torch.device) -> Iterator[None]:
    """What a model makes without saying where (a range, a mask) lies on the GPU as well."""
    with torch.cuda.device(device), torch.device(device):
        yield


class _Nothing(nn.Module):
    def forward(self) -> None:
        return None


class _GraphTimer:
    """A model's call as a CUDA graph: flush, event, model, event."""

    def __init__(
        self, model: Callable[..., object], draws: Sequence[Inputs], device: torch.device
    ) -> None:
        self._model = model
        self._pools = [
            torch.cat([memory_of(draw[i]) for draw in draws]) for i in range(len(draws[0]))
        ]
        self._memories = [memory_of(t).clone() for t in draws[0]]
        self._static = tuple(map(seen_as, self._memories, draws[0]))
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.zeros(_FLUSH_FACTOR * l2 // 4, dtype=torch.int32, device=device)
        self._start, self._end = _event(), _event()
        self._graph = torch.cuda.CUDAGraph()
        self._random = random.Random(0)
        self._outputs: object = None

    def capture(self) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_CAPTURE_WARM_UP):
                self._model(*self._static)
                self._flush.max()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph):
            self._flush.max()
            self._start.record()
            self._outputs = self._model(*self._static)
            self._end.record()
        torch.cuda.synchronize()

    def call(self) -> float:
        """Milliseconds of one call on inputs that the call before did not have."""
        for memory, pool in zip(self._memories, self._pools, strict=True):
            spare = pool.numel() - memory.numel()
            offset = self._random.randint(0, spare) // 64 * 64
            memory.copy_(pool[offset : offset + memory.numel()])
        torch.cuda.synchronize()
        self._graph.replay()
        torch.cuda.synchronize()
        return float(self._start.elapsed_time(self._end))


def _event() -> torch.cuda.Event:
    """One that becomes a node of the graph in which it is recorded."""
    return torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]


def _profiled(model: Callable[..., object], inputs: Inputs, protocol: TimingProtocol) -> Timing:
    """The sum of the kernels' times in one call."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(_CAPTURE_WARM_UP):
        model(*inputs)
    totals = []
    for _ in range(_PROFILED_CALLS):
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            model(*inputs)
            torch.cuda.synchronize()
        with suppress(AttributeError):
            totals.append(sum(e.device_time_total for e in found.key_averages()) / 1e3)
    return summary(totals, protocol)

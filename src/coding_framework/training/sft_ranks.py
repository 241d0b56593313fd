"""SFT on several GPUs of a machine: each learns its share of an optimizer step's batches.

    rank 0 (this process) -- sum of the adapter's gradients, once a step -- rank 1, ... (children)

Every rank holds the whole model, which is small, and the same adapter: it begins equal, and takes
the same step from the same sum, so the ranks stay equal to the bit. PyTorch's own
DistributedDataParallel would send the sums while the backward pass still runs; those of an adapter
are so few that this saves little, and it must be called as the model is, which the loss of answers
alone is not. Rank 0 measures, records and saves; the others follow it. On a CPU the ranks are
processes that share it.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from coding_framework.errors import CodingFrameworkError, InfrastructureError
from coding_framework.monitoring.child import Child

_PATIENCE = timedelta(days=1)
"""Of a rank for the others: rank 0 may judge held-out tasks meanwhile. A rank that ends is noticed
at once, by its process."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NOTICE_S = 4.0
"""Until it is known whether an error in a sum is another rank's end."""
_END_S = 30.0
"""For the end of all sums."""
_REACH_S = 300.0
"""Until the first sum is given up."""
_LOOK_S = 0.05
"""Between two looks for what is waited for."""


@dataclass(frozen=True)
class Rank:
    """One of the processes that train together."""

    number: int = 0
    of: int = 1
    meeting: str = ""
    """File by which they find each other."""
    lost: list[CodingFrameworkError] = field(default_factory=list)
    """Of rank 0: why another rank has ended."""

    @property
    def threads(self) -> int:
        """Of torch, on a CPU: its part of those that a process alone would take."""
        import torch

        return max(1, torch.get_num_threads() // self.of)

    @contextlib.contextmanager
    def joined(self, device: str) -> Iterator[None]:
        """The ranks can sum in the block. device: "cuda" or "cpu". What ends the block early leaves
        the group, whose orderly end waits for the others' sums, to `followed`."""
        if self.of == 1:
            yield
            return
        import torch
        import torch.distributed as dist

        self._meet()
        alone = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")  # all are on this machine
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            init_method=f"file://{self.meeting}",
            rank=self.number,
            world_size=self.of,
            timeout=_PATIENCE,
            device_id=torch.device("cuda:0") if device == "cuda" else None,
        )
        try:
            yield
            dist.destroy_process_group()
        finally:
            torch.set_num_threads(alone)

    def _meet(self) -> None:
        """Rank 0 waits until the others are about to join: the joining itself would wait a day for
        one that has ended before it. Raises what ended it."""
        Path(f"{self.meeting}.{self.number}").touch()
        if self.number == 0:
            names = [Path(f"{self.meeting}.{n}") for n in range(self.of)]
            self._until(lambda: all(n.exists() for n in names), math.inf)

    def sum(self, tensor: Any) -> Any:
        """The tensor, in place, summed over the ranks. Raises what ended another rank."""
        if self.of > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)
            self.check()
        return tensor

    def sum_gradients(self, weights: Sequence[Any]) -> None:
        """The gradients of `weights`, summed over the ranks in one message."""
        if self.of == 1:
            return
        import torch

        gradients = [w.grad for w in weights if w.grad is not None]
        together = self.sum(torch.cat([g.reshape(-1) for g in gradients]))
        for gradient, part in zip(
            gradients, together.split([g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))

    def begin_equal(self, weights: Sequence[Any]) -> None:
        """Give every rank the weights of rank 0. Raises InfrastructureError where they do not reach
        each other: a GPU's library waits for that without a word."""
        if self.of == 1:
            return
        import torch
        import torch.distributed as dist

        failures: list[RuntimeError] = []

        def reach() -> None:
            try:
                dist.all_reduce(first)
                first.tolist()  # a GPU's sum is over when it can be read
            except RuntimeError as e:
                failures.append(e)

        # In a thread, since a GPU's library waits for the others in the call itself.
        first = torch.zeros(1, device=weights[0].device)
        thread = threading.Thread(target=reach, daemon=True)
        thread.start()
        if not self._until(lambda: not thread.is_alive(), _REACH_S) or failures:
            self.check()
            raise InfrastructureError(
                f"the {self.of} processes of the training do not reach each other: "
                "NCCL_DEBUG=INFO before the command shows why, --num-gpus 1 does without"
            ) from next(iter(failures), None)
        with torch.no_grad():
            for weight in weights:
                dist.broadcast(weight, 0)

    def _until(self, ended: Callable[[], bool], seconds: float) -> bool:
        """Whether it has ended within `seconds`. Raises what ended another rank."""
        deadline = time.monotonic() + seconds
        while not ended():
            self.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def check(self) -> None:
        """Raises what ended another rank."""
        if self.lost:
            raise self.lost[0]

    def stop_together(self) -> Any:
        """A callback of transformers' Trainer: a rank that is told to stop stops all of them."""
        from transformers import TrainerCallback

        rank = self

        class Together(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                import torch

                told = torch.tensor([float(control.should_training_stop)], device=args.device)
                control.should_training_stop = bool(rank.sum(told) > 0)

        return Together()


ALONE = Rank()


def steps_per_epoch(examples: int, batch_size: int, accumulated: int, ranks: int) -> int:
    """Optimizer steps; each has `accumulated` batches on each rank."""
    batches = math.ceil(math.ceil(examples / batch_size) / ranks)
    return math.ceil(batches / accumulated)


@contextlib.contextmanager
def followed(
    device: str, ranks: int, follow: Callable[..., None], *arguments: Any
) -> Iterator[Rank]:
    """Rank 0, while `follow(rank, *arguments)` runs in a process for each other rank; on a GPU each
    sees a GPU of its own. Raises, in place of what comes of it, what ended another rank."""
    if ranks == 1:
        yield ALONE
        return
    gpus = _visible_gpus(ranks) if device == "cuda" else [None] * ranks
    with tempfile.TemporaryDirectory(prefix="sft-ranks-") as folder:
        first = Rank(0, ranks, str(Path(folder) / "meeting"))
        children = [
            _started(gpus[n], follow, Rank(n, ranks, first.meeting), *arguments)
            for n in range(1, ranks)
        ]
        closing = threading.Event()
        waiting = [
            threading.Thread(target=_notice, args=(child, first, closing), daemon=True)
            for child in children
        ]
        for thread in waiting:
            thread.start()
        try:
            yield first
            for thread in waiting:  # they have come to the same end
                thread.join()
        except Exception as e:
            if not isinstance(e, CodingFrameworkError):
                for thread in waiting:  # a rank that has died is the cause
                    thread.join(_NOTICE_S / len(waiting))
            first.check()
            raise
        finally:
            closing.set()
            for child in children:
                child.end()
            _end_sums()
        first.check()


def _started(gpu: str | None, follow: Callable[..., None], *arguments: Any) -> Child:
    """A rank's process, which sees that GPU alone from its first import on."""
    before = os.environ.get(_VISIBLE)
    try:
        if gpu is not None:
            os.environ[_VISIBLE] = gpu
        return Child(follow, *arguments)
    finally:
        if gpu is not None:
            os.environ.pop(_VISIBLE)
            os.environ |= {} if before is None else {_VISIBLE: before}


def _notice(child: Child, first: Rank, closing: threading.Event) -> None:
    """Wait for a rank's end. Where it ends early, so do the sums that rank 0 waits for."""
    try:
        child.result()
    except CodingFrameworkError as e:
        if closing.is_set():
            return
        first.lost.append(e)
        _end_sums()


def _end_sums() -> None:
    """End those that wait for other ranks. `_END_S` are waited for it at most: of a GPU's library a
    call that waits may hold what would end it."""

    # Where nobody has imported it none waits; two threads that import torch at once abort.
    sums = sys.modules.get("torch.distributed.distributed_c10d")
    if sums is None:
        return

    def end() -> None:
        with contextlib.suppress(Exception):  # where none waits
            sums._abort_process_group()

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    thread.join(_END_S)


def _visible_gpus(wanted: int) -> list[str | None]:
    """As CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get(_VISIBLE)
    return [*(named.split(",") if named else map(str, range(wanted)))][:wanted]

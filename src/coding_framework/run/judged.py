"""Kernels judged once: what has no receipt yet is judged by this machine, and what is only spelt
anew keeps its verdict."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from coding_framework.data.synthesis.receipts import (
    Job,
    KernelReceipt,
    Key,
    all_receipts,
    build_receipts,
    carried,
)
from coding_framework.errors import UsageError
from coding_framework.monitoring.progress import Progress, duration
from coding_framework.store.lines import JsonlSink
from coding_framework.types import BackendChoice
from coding_framework.wiring import cores, make_judge

VERDICT_CORE_S = 1.0
"""A verdict of the emulator, on the usual small shapes."""
UNASKED_S = 900.0
"""What would take longer is begun only where it was asked for."""


def judge_jobs(
    jobs: Iterable[Job],
    path: Path,
    workers: int | None,
    *,
    backend: BackendChoice = "emulator",
    known: Mapping[Key, KernelReceipt] | None = None,
    minutes: float = math.inf,
    however_long: bool = True,
) -> tuple[int, int]:
    """Judge what has no receipt, appending to `path`; (open for a fault of ours, judged now). A job
    that is a known kernel in another spelling is compiled and takes its receipt along.

    known: the receipts that count; None: the package's and those of `path`. minutes: after these no
    further job is begun. however_long: False: raises UsageError where it would take long.
    """
    known = all_receipts(path) if known is None else known
    wanted = list({job.key: job for job in jobs}.values())
    count = workers or cores()
    known = {**known, **_carried(wanted, known, path, count)}
    pending = [job for job in wanted if job.key not in known]
    if not pending:
        return 0, 0
    takes_s = min(len(pending) * VERDICT_CORE_S / count, 60 * minutes)
    if not however_long and takes_s > UNASKED_S:
        raise UsageError(
            f"{len(pending)} kernels were never judged here, which takes about {duration(takes_s)} "
            f"on {count} cores: --yes begins it, --tasks N takes fewer, --only-judged none"
        )
    written, end = 0, time.monotonic() + 60 * minutes

    async def judge() -> int:
        def keep(line: str) -> None:
            nonlocal written
            sink.write_line(line)
            written += 1

        with (
            JsonlSink(path) as sink,
            Progress(
                "judging",
                len(wanted),
                "kernels",
                done=len(wanted) - len(pending),
                at_once=2 * count,
            ) as progress,
            make_judge(backend, workers=count) as pool,
        ):
            progress.begin()
            return await build_receipts(
                pool.judge,
                pending,
                keep,
                known=known,
                concurrency=2 * count,
                progress=progress,
                more=lambda: time.monotonic() < end,
            )

    failed = asyncio.run(judge())
    return failed, written


def _carried(
    jobs: Sequence[Job], known: Mapping[Key, KernelReceipt], path: Path, workers: int
) -> dict[Key, KernelReceipt]:
    from coding_framework.cuda.compiler import CUDACompiler

    def device_code(code: str) -> str:
        return CUDACompiler().compile_source(code).ptx_sha256

    with ThreadPoolExecutor(workers) as pool:
        found = list(carried(jobs, known, lambda codes: pool.map(device_code, codes)))
    if found:
        with JsonlSink(path) as sink:
            for receipt in found:
                sink.write_line(receipt.model_dump_json(exclude_defaults=True))
    return {receipt.key: receipt for receipt in found}

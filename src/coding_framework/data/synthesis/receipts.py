"""What the judge said of synthesised kernels, kept beside the package with the kernels' text.

A receipt ties (task, kernel source) to a verdict by digests. It holds as long as the task's
reference and shapes are what they were: what was judged is in it, however kernels are written now.
What the compiler writes anew counts as not judged until `build_receipts` has run; a kernel whose
host and device code stayed the same takes the receipt of its former text along (`carried`). The
stored verdict is the real one without what training does not show (further tests, most counters,
safety details, durations).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from coding_framework.data.faults import BrokenKernel
from coding_framework.data.synthesis.host_code import host_digest
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.paths import cache_dir, write_atomic
from coding_framework.store.events import log
from coding_framework.types import (
    PRINTED,
    Candidate,
    CompileSummary,
    JudgeFn,
    KernelExample,
    Receipt,
    Record,
    SafetyReport,
    Task,
    Verdict,
)

RECEIPTS_PATH = Path(__file__).with_name("receipts.jsonl.xz")
"""The receipts that ship with the package: of the starter tasks."""
HARDER_PATH = Path(__file__).with_name("harder_receipts.jsonl.xz")
"""Those of naive kernels of the tiers 2 and 3, which ship beside: with them all tasks together have
every tier. The starter tasks stay what they are."""

MODULES_PATH = RECEIPTS_PATH.parents[1] / "modules" / RECEIPTS_PATH.name
"""Those of module kernels, judged and timed on an H200. Only who asks for modules pays for reading
them, some seconds."""

BROKEN = "broken:"
"""Before the fault, in the level of a kernel that one was put into."""
_SHOWN_LEVELS = ("naive", BROKEN)
"""Levels of kernels that a prompt may show with their verdict."""

Key = tuple[str, str]
"""(digest of the task, SHA-256 of the kernel)."""
CodeKey = tuple[str, str, str]
"""(digest of the task, of the host code, of the device code), each with its names made equal: the
same for a kernel that is only spelt anew."""
DeviceCodes = Callable[[list[str]], Iterable[str]]
"""Digests of what nvcc makes of kernels' device functions, with their names made equal; "" of one
that does not compile."""


class KernelReceipt(Record):
    """One verdict, kept. Maker: `build_receipts`. Consumer: `data.examples`."""

    task: str
    level: str
    """Of the kernel, or `BROKEN` and the fault."""
    task_digest: str
    kernel_sha256: str
    verdict: Verdict
    verdict_digest: str
    """SHA-256 of the whole verdict as the judge gave it."""
    host_code: str = ""
    """`host_digest` of the kernel; "" in receipts of before, and where it is Python."""
    code: str = ""
    """The kernel; "" where whoever has it keeps it elsewhere (the archive)."""
    why: str = ""
    """Why it is faster than the naive one, or what was wrong with a broken one; one line."""

    @property
    def key(self) -> Key:
        return self.task_digest, self.kernel_sha256

    @property
    def kernel(self) -> KernelExample:
        return KernelExample(task=self.task, level=self.level, code=self.code, why_faster=self.why)

    @property
    def broken(self) -> BrokenKernel | None:
        """A kernel that a fault was put into; None where it is as it was written."""
        _, is_broken, fault = self.level.partition(BROKEN)
        return BrokenKernel(fault, self.code, self.why) if is_broken else None

    @property
    def code_key(self) -> CodeKey | None:
        """None where it cannot be told whether another text is the same kernel."""
        compiled = self.verdict.compile
        if not self.host_code or compiled is None or not compiled.ptx_sha256:
            return None
        return self.task_digest, self.host_code, compiled.ptx_sha256


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to judge."""

    task: Task
    level: str
    code: str
    why: str = ""
    """As a receipt has it."""

    @property
    def key(self) -> Key:
        return task_digest(self.task), Candidate(code=self.code).sha256

    @property
    def host_code(self) -> str:
        """ "" where the kernel is Python."""
        return "" if Candidate(code=self.code).is_python else host_digest(self.code)


class ProgressBar(Protocol):
    """What shows progress (monitoring: `Progress`)."""

    def advance(self, count: int = 1, note: str | None = None) -> None: ...


def task_digest(task: Task) -> str:
    """Address of what is asked: the function and its shape sets, not its description or split.
    Defaults are left out, so that a new optional field makes no receipt stale."""
    payload = task.model_dump_json(
        include={"name", "reference", "init_args", "cases", "gpu_cases", "atomic_order"},
        exclude_defaults=True,
    )
    return hashlib.sha256(payload.encode()).hexdigest()


def load_receipts(path: Path = RECEIPTS_PATH) -> dict[Key, KernelReceipt]:
    """Receipts by key; the later of two wins. A line that does not parse (cut off by a kill, or of
    an older form) is skipped with a warning: its kernel is judged again."""
    if not path.exists():
        return {}
    receipts, broken = {}, 0
    for line in _content(path).splitlines():
        try:
            receipt = KernelReceipt.model_validate_json(line)
        except ValidationError:
            broken += 1
            continue
        receipts[receipt.key] = receipt
    if broken:
        log.warning("receipts skipped", path=str(path), lines=broken)
    return receipts


def _content(path: Path) -> bytes:
    if path.suffix != ".xz":
        return path.read_bytes()
    try:
        return lzma.decompress(path.read_bytes())
    except lzma.LZMAError as e:
        raise UsageError(f"{path} is no whole .xz file ({e}): get or build it again") from e


def pack_receipts(receipts: Iterable[KernelReceipt], path: Path) -> int:
    """Write receipts as one .xz file, sorted, so that the same ones give the same bytes; its size.
    Together they compress to some 200 bytes each, of which digests are 160."""
    kept = sorted(receipts, key=lambda r: (r.task, r.level, r.kernel_sha256))
    lines = "".join(f"{r.model_dump_json(exclude_defaults=True)}\n" for r in kept)
    packed = lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)
    write_atomic(path, packed)
    return len(packed)


def by_task(receipts: Mapping[Key, KernelReceipt]) -> dict[str, list[KernelReceipt]]:
    """The receipts that hold their kernel, by the task's digest, those of naive kernels first."""
    found: dict[str, list[KernelReceipt]] = {}
    for receipt in sorted(receipts.values(), key=lambda r: r.level != "naive"):
        if receipt.code:
            found.setdefault(receipt.task_digest, []).append(receipt)
    return found


def with_naive(task: Task, judged: Sequence[KernelReceipt]) -> Task:
    """The task with its naive kernel, where that was found correct."""
    naive = judged[0] if judged else None
    if naive is None or naive.level != "naive" or not naive.verdict.correct:
        return task
    return task.model_copy(update={"naive_kernel": naive.code})


@lru_cache(maxsize=2)
def packaged_receipts(path: Path = RECEIPTS_PATH) -> Mapping[Key, KernelReceipt]:
    """The receipts of a file that ships with the package, read once."""
    return load_receipts(path)


def packaged_kernels(task: Task) -> list[KernelReceipt]:
    """The receipts of a task's kernels that ship with the package, the naive one first."""
    return _packaged_by_task().get(task_digest(task), [])


@lru_cache(maxsize=1)
def _packaged_by_task() -> Mapping[str, list[KernelReceipt]]:
    return by_task(packaged_receipts())


def built_receipts_path() -> Path:
    """Where this machine keeps what it judged itself (`cuda-rl tasks build`)."""
    return cache_dir() / "datasets" / "receipts.jsonl"


def all_receipts(built: Path | None = None) -> dict[Key, KernelReceipt]:
    """The package's receipts, of the tiers 2 and 3 too, and this machine's, the later of two
    winning."""
    machines = load_receipts(built or built_receipts_path())
    return {**packaged_receipts(), **load_receipts(HARDER_PATH), **machines}


def module_receipts(built: Path | None = None) -> dict[Key, KernelReceipt]:
    """The same, and before all of them the package's receipts of module kernels."""
    return {**packaged_receipts(MODULES_PATH), **all_receipts(built)}


def carried(
    jobs: Iterable[Job], known: Mapping[Key, KernelReceipt], device_codes: DeviceCodes
) -> Iterator[KernelReceipt]:
    """Receipts for jobs that have none, from those of the same kernels in another spelling. Only
    what has the task and the host code of a known receipt is compiled, about a second each."""
    spelt = {r.code_key: r for r in known.values() if r.code_key is not None}
    places = {key[:2] for key in spelt}
    open_jobs = [job for job in jobs if job.key not in known]
    alike = [job for job in open_jobs if (job.key[0], job.host_code) in places]
    for job, device_code in zip(alike, device_codes([job.code for job in alike]), strict=True):
        digest, sha256 = job.key
        found = spelt.get((digest, job.host_code, device_code))
        if found is not None:
            verdict = found.verdict.model_copy(update={"candidate_sha256": sha256})
            own = {"kernel_sha256": sha256, "level": job.level, "code": job.code, "why": job.why}
            yield found.model_copy(update={**own, "verdict": verdict})


async def build_receipts(
    judge: JudgeFn,
    jobs: Sequence[Job],
    write_line: Callable[[str], None],
    *,
    known: Mapping[Key, KernelReceipt],
    concurrency: int,
    progress: ProgressBar | None = None,
    more: Callable[[], bool] = lambda: True,
) -> int:
    """Judge the jobs that have no receipt, `concurrency` at a time; returns how many had a fault of
    ours and are still open.

    write_line: appends one JSON line durably (monitoring's `JsonlSink.write_line`). After a kill,
    load the file again as `known` and call again: nothing is lost but what was in flight, and
    nothing is judged twice. A kernel on which the judge itself fails stays open and is logged.
    more: whether a further job is to be begun.
    """
    pending = {job.key: job for job in jobs if job.key not in known}
    queue = iter(pending.values())
    failed = 0

    async def work() -> None:
        nonlocal failed
        for job in takewhile(lambda _: more(), queue):
            try:
                verdict = await judge(job.task, job.code)
            except InfrastructureError as e:
                failed += 1
                log.warning("not judged", task=job.task.name, level=job.level, error=str(e))
                continue
            write_line(_receipt(job, verdict).model_dump_json(exclude_defaults=True))
            if progress is not None:
                progress.advance(note=f"{job.task.name} {verdict.status}")

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, concurrency)):
            group.create_task(work())
    return failed


def _receipt(job: Job, verdict: Verdict) -> KernelReceipt:
    if off := verdict.receipt.experiment_without:
        raise UsageError(
            f"the judge had {', '.join(off)} switched off: receipts come from the whole judge alone"
        )
    digest, sha256 = job.key
    whole = json.dumps(verdict.model_dump(mode="json"), sort_keys=True)
    return KernelReceipt(
        task=job.task.name,
        level=job.level,
        task_digest=digest,
        kernel_sha256=sha256,
        verdict=slim_verdict(verdict, shown=job.level.startswith(_SHOWN_LEVELS)),
        verdict_digest=hashlib.sha256(whole.encode()).hexdigest(),
        host_code=job.host_code,
        code=job.code,
        why=job.why,
    )


_FEEDBACK_COUNTERS = re.compile(
    r"l1tex__t_(requests|sectors)_pipe_lsu_mem_global_op_(ld|st)\.sum|l1tex__data_bank_conflicts.*|"
    r"dram__bytes\.sum|launch__(block|grid)_size|launch__shared_mem_per_block|"
    r"smsp__inst_executed\.sum"
)
"""Of some 80 counters, those that feedback speaks of."""


def slim_verdict(verdict: Verdict, *, shown: bool = True) -> Verdict:
    """The verdict as feedback needs it: the failed tests or one passed one, the first compiler
    errors, few counters, no durations. shown: whether a prompt may show it; else no counters."""
    compiled = verdict.compile and CompileSummary(
        registers=verdict.compile.registers,
        spill_bytes=verdict.compile.spill_bytes,
        shared_bytes=verdict.compile.shared_bytes,
        errors=verdict.compile.errors[:3],
        ptx_sha256=verdict.compile.ptx_sha256,
    )
    counters = {
        name: float(f"{value:.4g}")
        for name, value in verdict.counters.items()
        if shown and value and _FEEDBACK_COUNTERS.fullmatch(name)
    }
    return verdict.model_copy(
        update={
            "compile": compiled,
            "tests": verdict.tests[:1] if verdict.correct else verdict.tests,
            "counters": counters,
            "safety": SafetyReport(),
            "pitfalls": tuple(f for f in verdict.pitfalls if f.rule != PRINTED),
            "receipt": Receipt(
                protocol=verdict.receipt.protocol,
                device=verdict.receipt.device,
                toolkit=verdict.receipt.toolkit,
            ),
        }
    )

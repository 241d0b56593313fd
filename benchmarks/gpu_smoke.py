"""A minute on a GPU: the device process, one correct verdict, one attack, one profile.

    uv run python benchmarks/gpu_smoke.py

Prints what each step found and how long it took, and stops at the first that fails, with its
traceback: whatever else is run on the machine would fail there too. Exits 1 then.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable

from bench_io import ROOT, this_machine
from gpu_bench import this_gpu

from coding_framework.cuda.device.gpu_sharing import clocks, gpus
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.toolchain.tool_output import output_of
from coding_framework.types import Candidate, Status, Task, Verdict

sys.path.insert(0, str(ROOT / "tests"))


def machine() -> str:
    """The machine, its GPU and its tools."""
    seen = [f"{this_machine()}"]
    seen += [f"{gpu} {clocks(gpu)}" for gpu in gpus()]
    for command in (["nvcc", "--version"], ["ncu", "--version"], ["g++", "--version"]):
        seen.append((output_of(*command).strip().splitlines() or [f"no {command[0]}"])[-1])
    return "\n  ".join(seen)


def device() -> str:
    """A device process comes up, moves memory, and says what it is."""
    from coding_framework.cuda.gpu.device import CudaDevice

    with CudaDevice() as one:
        address = one.alloc(1000)
        assert one.download(address, 1000) == b"\xff" * 1000, "memory is not poisoned"
        one.upload(address, bytes(range(250)) * 4)
        assert one.download(address, 1000) == bytes(range(250)) * 4
        assert one.check_guards() is None
        return f"{one.name}, address {address:#x}, reads {one.bandwidth() / 1e12:.2f} TB/s"


def again() -> str:
    """The same process takes the next candidate."""
    from coding_framework.cuda.gpu.device import CudaDevice

    with CudaDevice() as one:
        return f"address {one.alloc(1000):#x} in process {one._ask('process')[0]}"


def _judge(judge: Judge, task: Task, code: str) -> Verdict:
    started = time.monotonic()
    verdict = judge.judge(task, Candidate(code=code))
    print(f"    {time.monotonic() - started:.2f} s: {verdict.status.value}: {verdict.reason}")
    return verdict


def verdicts() -> str:
    """A correct kernel is correct and timed; an attack is not; the next honest one is again."""
    from corpus.gpu_attacks import BIG_AFFINE, GPU_ATTACKS
    from corpus.records import AFFINE, AFFINE_SOURCE

    judge = Judge(JudgeConfig(backend="cuda", seed=1, launch_wall_s=2.0, profile=True))
    small = _judge(judge, AFFINE, AFFINE_SOURCE)
    assert small.status is Status.CORRECT, small.reason
    large = _judge(judge, BIG_AFFINE, AFFINE_SOURCE)
    assert large.status is Status.CORRECT, large.reason
    assert large.timing is not None
    print(f"    {large.timing}")
    print(f"    {len(large.counters)} counters {[p.message for p in large.pitfalls]}")
    by_name = {attack.name: attack for attack in GPU_ATTACKS}
    for name in ("works_at_small_sizes", "writes_to_null", "endless_in_one_thread"):
        hostile = _judge(judge, by_name[name].task, by_name[name].code)
        assert hostile.status in by_name[name].statuses, hostile.reason
    after = _judge(judge, BIG_AFFINE, AFFINE_SOURCE)
    assert after.status is Status.CORRECT, after.reason
    assert after.timing is not None
    change = after.timing.kernel_ms / large.timing.kernel_ms - 1
    return f"{large.timing.kernel_ms:.4f} ms; after the attacks {change:+.2%}"


STEPS: tuple[Callable[[], str], ...] = (machine, device, again, verdicts)


def main() -> int:
    """All steps, until one fails."""
    this_gpu()
    for step in STEPS:
        started = time.monotonic()
        print(f"{step.__name__}: {step.__doc__}", flush=True)
        try:
            found = step()
        except Exception:
            traceback.print_exc()
            print(f"{step.__name__} FAILED after {time.monotonic() - started:.1f} s", flush=True)
            return 1
        print(f"  {found}\n  {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

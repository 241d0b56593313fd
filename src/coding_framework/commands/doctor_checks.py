"""The checks of `cuda-rl doctor`: each does a small piece of a component's real work.

A check returns what it found; it may raise, and `doctor.run_check` makes a finding of that.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from coding_framework.commands.failures import how_to_get, trainers_installed
from coding_framework.cuda.sandbox.base import Job, Limits, Mount, Sandbox
from coding_framework.errors import SandboxError
from coding_framework.paths import cache_dir
from coding_framework.types import Status

if TYPE_CHECKING:
    from coding_framework.cuda.device.device import Device

GB = 1e9
NEEDED_DISK_GB = 5.0
"""Weights, native parts, compiled kernels and the checkpoints of one run."""
NEEDED_MEMORY_GB = 12.0
"""Measured: what RL of the quickstart holds (benchmarks/results/quickstart.json), and a rest."""
IMPORT_TIMEOUT_S = 300.0
INDEX_TIMEOUT_S = 60.0


class State(StrEnum):
    WORKS = "works"
    WEAK = "works, weaker"
    """The main job runs without it, with a loss that `fix` names."""
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's answer, before its name and duration are added."""

    state: State
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    needed: bool
    """By the main job."""
    run: Callable[[], Finding]


def works(detail: str) -> Finding:
    return Finding(State.WORKS, detail)


# --- the machine ----------------------------------------------------------------------------------


def check_python() -> Finding:
    torch = version("torch")
    found = f"Python {platform.python_version()} with torch {torch}, {sys.executable}"
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding(State.BROKEN, found, "use Python 3.11 to 3.13: uv python install 3.12")
    if not (2, 6) <= tuple(map(int, torch.split(".")[:2])) <= (2, 15):
        return Finding(
            State.BROKEN, found, "the judge was tried with 2.6 to 2.15: take one of these"
        )
    return works(found)


def check_cpu_and_memory() -> Finding:
    cores = len(os.sched_getaffinity(0))
    total = psutil.virtual_memory().total
    limit = _cgroup_memory_limit()
    usable = min(total, limit) if limit else total
    detail = f"{cores} cores, {usable / GB:.0f} GB of memory"
    if usable < NEEDED_MEMORY_GB * GB:
        return Finding(
            State.WEAK,
            detail,
            f"the main job wants {NEEDED_MEMORY_GB:.0f} GB: close other programs, or run on a "
            "larger machine",
        )
    return works(detail)


def _cgroup_memory_limit() -> int | None:
    """The container's limit in bytes; None where there is none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (Path("/sys/fs/cgroup") / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return None


def check_disk() -> Finding:
    folder = cache_dir()
    probe = folder / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"x" * 4096)
    except OSError as e:
        return Finding(
            State.BROKEN,
            f"{folder} cannot be written: {e.strerror}",
            "set CUDA_RL_CACHE to a folder that can be written and has room",
        )
    finally:
        probe.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    detail = f"{free / GB:.0f} GB free for {folder}"
    if free < NEEDED_DISK_GB * GB:
        return Finding(
            State.WEAK,
            detail,
            f"free {NEEDED_DISK_GB:.0f} GB, or set CUDA_RL_CACHE to a folder with room",
        )
    return works(detail)


# --- the judge ------------------------------------------------------------------------------------

KERNEL = """
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def check_compiler() -> Finding:
    """Compiles a kernel from scratch (an empty cache), in the sandbox that the judge would take."""
    from coding_framework.cuda.compiler import CUDACompiler, KernelCompilationCache

    with tempfile.TemporaryDirectory() as folder:
        compiler = CUDACompiler(cache=KernelCompilationCache(Path(folder)))
        result = compiler.compile_source(KERNEL)
    toolkit = compiler.toolkit
    where = f"nvcc {toolkit.version} from {toolkit.origin} ({toolkit.nvcc})"
    if not result.success:
        said = "; ".join(d.message for d in result.errors) or result.reason
        return Finding(
            State.BROKEN,
            f"{where} does not compile a kernel: {said}"[:400],
            "set CUDA_RL_NVCC to a working nvcc, or install a g++ that it accepts",
        )
    return works(
        f"{where} compiled a kernel in {result.latency_s:.1f} s, {result.registers} registers"
    )


ESCAPES = """
(cat {secret} >/dev/null 2>&1) && echo files
(kill -0 {pid} 2>/dev/null) && echo processes
(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo network
(: >{outside}) 2>/dev/null && echo writing
echo tried
"""


def check_sandbox() -> Finding:
    """Tries to get out of the sandbox that `auto` takes: to read a file of ours, to see our
    process, to connect to a port of ours, to write outside its folder."""
    from coding_framework.cuda.sandbox import choose_sandbox

    sandbox = choose_sandbox("auto")
    got_out = escapes_of(sandbox)
    if sandbox.name == "native":
        return Finding(
            State.WEAK,
            f"native, without namespaces; let through: {', '.join(got_out) or 'nothing tried'}",
            "install bubblewrap (Debian: apt-get install bubblewrap) and allow user namespaces",
        )
    if got_out:
        return Finding(
            State.BROKEN,
            f"{sandbox.name} lets through: {', '.join(got_out)}",
            "do not judge kernels that you do not trust on this machine",
        )
    return works(f"{sandbox.name}: no way to our files, processes, network, or to write outside")


def escapes_of(sandbox: Sandbox) -> list[str]:
    """What a job in `sandbox` can reach and should not. Raises SandboxError where it cannot run."""
    with (
        tempfile.TemporaryDirectory(prefix="doctor-") as ours,
        tempfile.TemporaryDirectory(prefix="doctor-") as work,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        (Path(ours) / "secret").write_text("secret")
        folder = Mount(Path(work), "/work", writable=True)
        script = ESCAPES.format(
            secret=Path(ours) / "secret",
            outside=Path(ours) / "written",
            pid=os.getpid(),
            port=server.getsockname()[1],
        )
        limits = Limits(cpu_s=10, wall_s=60.0)
        job = Job(command=["/bin/bash", "-c", script], mounts=(), limits=limits, folder=folder)
        with tempfile.TemporaryFile() as output:
            sandbox.start(job, stdin=subprocess.DEVNULL, output=output).wait(limits.wall_s)
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").split()
    if "tried" not in lines:
        raise SandboxError(f"{sandbox.name} could not run a shell: {' '.join(lines)[:200]}")
    return lines[:-1]


def check_emulator() -> Finding:
    """Runs the compiled kernel on an emulated GPU and compares every element."""
    from coding_framework.cuda.emulator.device import EmulatorDevice

    with contextlib.closing(EmulatorDevice()) as device:
        fix = f"remove {cache_dir() / 'native'} to build the interpreter anew"
        return _run_kernel(device, f"an {device.name}", fix)


def check_gpu() -> Finding:
    """Runs it on a GPU. Not needed: without one the emulator runs what nvcc made."""
    from coding_framework.cuda.device.gpu_sharing import gpus

    found = gpus()
    if not found:
        return Finding(
            State.MISSING,
            "none: kernels run in the emulator and their times are modelled",
            "nothing to do; for measured times use a machine with an NVIDIA GPU and its driver",
        )
    from coding_framework.cuda.gpu.device import CudaDevice

    named = "; ".join(f"{gpu.name}, {gpu.memory_bytes >> 30} GiB, {gpu.driver}" for gpu in found)
    with contextlib.closing(CudaDevice()) as device:
        return _run_kernel(device, named, "look at nvidia-smi, and at the driver's log")


def _run_kernel(device: Device, about: str, fix: str) -> Finding:
    """Runs the compiled kernel and compares every element. fix: what helps where they differ."""
    import numpy as np

    from coding_framework.cuda.compiler import CUDACompiler, KernelCompilationCache
    from coding_framework.cuda.plan.launch_plan import Launch

    x = np.arange(1000, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        compiler = CUDACompiler(cache=KernelCompilationCache(Path(folder)))
        build = compiler.compile_source(KERNEL).binary_path
        if build is None:
            return Finding(State.BROKEN, "there is no kernel to run", "see the compiler above")
        (name,) = device.load(Path(build)).kernels
        source, target = device.alloc(x.nbytes), device.alloc(x.nbytes)
        device.upload(source, x.tobytes())
        params = struct.pack("<QQi", source, target, x.size)
        start = time.perf_counter()
        device.launch(Launch(name, (4, 1, 1), (256, 1, 1), 0, params))
        ms = (time.perf_counter() - start) * 1e3
        y = np.frombuffer(device.download(target, x.nbytes), np.float32)
    wrong = int((y != 2 * x).sum())
    if wrong:
        return Finding(State.BROKEN, f"{wrong} of {x.size} results are wrong", fix)
    return works(f"{about}; a kernel of {x.size} elements ran in {ms:.0f} ms")


def check_verdicts() -> Finding:
    """The whole judge: a right kernel must be correct, a kernel of another function wrong."""
    from coding_framework.commands.one_kernel import judge_one
    from coding_framework.data.kernels import naive_of
    from coding_framework.data.registry import find_task
    from coding_framework.wiring import JudgeSettings

    relu, absolute = find_task("relu"), find_task("abs")
    kernel = naive_of(relu) or ""
    right = judge_one(relu, kernel, JudgeSettings(), fresh=True)
    wrong = judge_one(absolute, kernel, JudgeSettings(), fresh=True)
    if right.status is not Status.CORRECT or wrong.status is not Status.WRONG_OUTPUT:
        return Finding(
            State.BROKEN,
            f"a right kernel is {right.status.value} ({right.reason}), a wrong one "
            f"{wrong.status.value} ({wrong.reason})"[:400],
            "run `cuda-rl judge --task relu --kernel examples/relu.cu` and report its output",
        )
    return works(
        f"right kernel correct ({len(right.tests)} comparisons), wrong kernel wrong_output, on the "
        f"{right.backend}, in {right.receipt.sandbox}"
    )


def check_weights() -> Finding:
    """Whether the quickstart's model is here, or where it will come from."""
    from coding_framework.agents.models import PACKAGED_MODELS, cached_model

    model = PACKAGED_MODELS[0]
    if (folder := cached_model(model)) is not None:
        return works(f"{model.hub_name} in {folder}")
    package = model.packages[0].split("==")[0]
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", package],
        capture_output=True,
        text=True,
        timeout=INDEX_TIMEOUT_S,
        check=False,
    )
    if asked.returncode != 0:
        return Finding(
            State.MISSING,
            f"{model.hub_name} is not here, and no package index has {package}",
            "check the network and pip's index, or give a local folder with --base-model",
        )
    return works(f"{model.hub_name} will be fetched once, {model.megabytes} MB, from {package}")


# --- frameworks -----------------------------------------------------------------------------------


def import_apart(code: str, **environment: str) -> Finding:
    """Runs `code` in a fresh interpreter; what it prints is the detail."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=IMPORT_TIMEOUT_S,
        env={**os.environ, **environment},
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Finding(State.BROKEN, last[:300], "run `make setup` to install the locked packages")
    return works(done.stdout.strip().splitlines()[-1])


TRAINERS_CHECK = """
import torch, transformers, peft
from trl import SFTConfig, SFTTrainer
import trl, bitsandbytes, verl, ray
from coding_framework.training.verl.main import check_registered
check_registered("cpu")
from coding_framework.training.verl import agent_loop, trainer
for m in (torch, transformers, trl, peft, bitsandbytes, verl, ray):
    print(m.__name__, m.__version__, end="  ")
print("our CPU plug-in is registered")
"""


def check_trainers() -> Finding:
    """SFT's and RL's frameworks in one process: what both import takes longest. verl swallows the
    import error of a plug-in: only asking its registries tells."""
    if not trainers_installed():
        return Finding(State.MISSING, "only the judge is installed", how_to_get("train"))
    from coding_framework.training.verl.overrides import PLUGIN

    return import_apart(TRAINERS_CHECK, VERL_USE_EXTERNAL_MODULES=PLUGIN, VERL_PLATFORM="cpu")


def check_vllm() -> Finding:
    """It writes the answers of RL on GPUs, and needs none to be installed."""
    if (installed := _version_of("vllm")) is None:
        return Finding(State.MISSING, "RL on GPUs writes with it", "run `uv sync --extra verl`")
    return works(f"vllm {installed}")


def check_wandb() -> Finding:
    """It is one place of several where training reports."""
    if (installed := _version_of("wandb")) is None:
        return Finding(State.MISSING, "training reports to JSONL files alone", "run `make setup`")
    where = "reports" if os.environ.get("WANDB_API_KEY") else "reports once WANDB_API_KEY is set"
    return works(f"wandb {installed}, {where}")


def check_docker() -> Finding:
    """Another sandbox than the usual one."""
    from coding_framework.cuda.sandbox.docker import DockerSandbox

    missing = DockerSandbox().missing()
    if missing is not None:
        return Finding(State.MISSING, missing, "only for `--sandbox docker`")
    return works("an engine answers: `--sandbox docker` can be used")


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


TRAINING: tuple[Check, ...] = (
    Check("model weights", True, check_weights),
    Check("SFT and RL: TRL, verl, Ray", True, check_trainers),
)
"""What judging does without."""
CHECKS: tuple[Check, ...] = (
    Check("python", True, check_python),
    Check("cpu and memory", True, check_cpu_and_memory),
    Check("disk", True, check_disk),
    Check("compiler", True, check_compiler),
    Check("sandbox", True, check_sandbox),
    Check("emulator", True, check_emulator),
    Check("verdicts", True, check_verdicts),
    *TRAINING,
    Check("GPU", False, check_gpu),
    Check("vLLM", False, check_vllm),
    Check("wandb", False, check_wandb),
    Check("Docker", False, check_docker),
)


def checks_here() -> tuple[Check, ...]:
    """All checks. Where only the judge is installed nothing needs what trains."""
    if trainers_installed():
        return CHECKS
    return tuple(replace(c, needed=False) if c in TRAINING else c for c in CHECKS)

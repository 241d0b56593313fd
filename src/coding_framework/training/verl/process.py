"""verl's trainer as a child process: started clean, watched, and ended without a trace.

Each run has a Ray instance with its own folder and ports. Every process of a run carries
`RUN_VARIABLE` in its environment. By it we find the processes that an interrupt or a SIGKILL left
behind, and end exactly those.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from coding_framework.monitoring.child import kill_all
from coding_framework.store.folder import RLFolder
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.episode_spec import SPEC_VARIABLE
from coding_framework.training.verl.overrides import (
    PLUGIN,
    RunPaths,
    cluster_overrides,
    files_below,
    hydra_overrides,
)

RUN_VARIABLE = "CODING_FRAMEWORK_RL_RUN"
MAIN = "coding_framework.training.verl.main"
GRACE_S = 10.0
"""How long verl and Ray have to end before they are killed."""
_STRIPPED = (
    "RAY_", "VERL_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "HYDRA_", "SLURM_",
    "PYTHONDONTWRITEBYTECODE",  # ten processes import verl: compiled once, 8 s each instead of 12
)  # fmt: skip
_KEPT = "RAY_memory_"
"""Ray's own watch over the memory, which kills what takes most of it: wrong where a virtual machine
is given its memory as it uses it (RAY_memory_monitor_refresh_ms=0 turns it off)."""
_TEMP_PREFIX = "cuda-rl-ray-"


def trainer_environment(
    config: MultiTurnRLConfig, spec: Path, metrics: Path, run: Path, base: Mapping[str, str]
) -> dict[str, str]:
    """Environment of the trainer and, through Ray, of all its workers.

    Variables that would make Ray join a cluster, torch a process group, or verl another plug-in
    are left out of `base`.
    """
    kept = {k: v for k, v in base.items() if k.startswith(_KEPT) or not k.startswith(_STRIPPED)}
    threads = str(config.threads or len(os.sched_getaffinity(0)))
    environment = {
        **kept,
        RUN_VARIABLE: str(run.resolve()),
        SPEC_VARIABLE: str(spec),
        "VERL_USE_EXTERNAL_MODULES": PLUGIN,
        "VERL_FILE_LOGGER_PATH": str(metrics),
        "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": base.get("OMP_WAIT_POLICY", "PASSIVE"),  # many processes, few cores
        "TOKENIZERS_PARALLELISM": "false",
        "MALLOC_ARENA_MAX": "2",  # glibc keeps freed memory per arena, and Ray has many threads
        "HYDRA_FULL_ERROR": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Ray would run the whole training at 15
        "RAY_prestart_worker_first_driver": "0",  # verl's actors fit into none of them
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "HF_DATASETS_CACHE": str(RLFolder(run).cache),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if config.ray_address is None:
        # Left to itself Ray writes one into the home folder at the first start: of two runs that
        # start there at once, one would have processes of either's.
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    if config.device == "cpu":
        environment["VERL_PLATFORM"] = "cpu"
    else:
        environment.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # it needs a compiler at start
        # On Hopper torch 2.11 prefers cuDNN's attention, which builds a plan for each length that
        # it has not seen, and every packed row has a length of its own.
        environment.setdefault("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
        # While vLLM's front end lags behind the engine, nothing else runs but between such chunks
        # of a step. With its 128 the last 128 answers were all handed over at the very end.
        environment.setdefault("VLLM_V1_OUTPUT_PROC_CHUNK_SIZE", "8")
    return environment


@contextlib.contextmanager
def ray_temp_folder() -> Iterator[Path]:
    """A short path for Ray's sockets (a Unix socket's path holds 107 bytes), removed at the end.

    Folders of runs that were killed are removed too; the process id in the name tells.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{_TEMP_PREFIX}*"):
        owner = old.name.removeprefix(_TEMP_PREFIX).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_TEMP_PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TrainerProcess:
    """The running trainer. Use as an async context: leaving it ends all processes of the run."""

    def __init__(
        self, config: MultiTurnRLConfig, paths: RunPaths, environment: Mapping[str, str], log: Path
    ) -> None:
        overrides = [
            *hydra_overrides(config, paths),
            *cluster_overrides(config, environment),
            *files_below(log.parent),
        ]
        self._command = [sys.executable, "-m", MAIN, config.device, *overrides]
        self._environment = dict(environment)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> TrainerProcess:
        end_processes(self._environment[RUN_VARIABLE])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,  # never written: its end tells the child that we are gone
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone; we end the others in order
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        end_processes(self._environment[RUN_VARIABLE])
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def wait(self, interval_s: float) -> int | None:
        """Let the trainer run for a while; its return code if it ended."""
        await asyncio.sleep(interval_s)
        assert self._process is not None
        return self._process.poll()


def run_processes(run: str) -> list[psutil.Process]:
    """The processes of a run, this one excepted."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == run:
                found.append(process)
    return found


def end_processes(run: str) -> None:
    """Kill what is left of a run's processes and wait for them."""
    kill_all(lambda: run_processes(run))

"""What half an hour of one, two or four GPUs is used for, in one command that loses no second.

    half_hour.py --work DIR --model FOLDER [--minutes 27]
                 [--policy FOLDER] [--learnt FOLDER] [--before FOLDER] [--mixture FOLDER]
                 [--then rl:0:train ...] [--beside rl:0 ...]

One after the other: SFT on all GPUs (where its test of two processes passes, else on one) and its
test on held-out modules, or, with --policy, the policy of a folder of `learning.py store`; then
what --then names: arms of `learning.py`, with a seed and a last stage behind colons (of the search
a part: `search:0:1/2`) and others that follow in the same call behind plus signs (`rl:0+sft`), and
`trial`, the default: RL, six steps in step and eight that are one policy behind (`trial:in_step`,
`trial:one_behind`: one of `TRIALS`);
`parity`: KernelBench's own evaluator beside our judge (`benchmarks/against_kernelbench.py`); with
--policy it begins on the last GPU, in place of judging, while the model is waited for;
with --policy `train`: SFT anew on two GPUs, and its test, with `train+kernelbench` what follows it
too, of the same server, or `train:0:train` without its test; what comes after it goes on from that;
`compiled`: some steps of SFT on one GPU with compiled layers, for their speed;
`suffix`: how fast vLLM writes with guesses and without (`benchmarks/suffix_decoding.py`);
`before:ARM` (`before:sizes+kernelbench`): an arm with the policy of --before, to compare with.
What --beside names runs at the same time on the first two of four GPUs and half of the cores, and
--then, with SFT's test, on the other two; of two GPUs it comes after --then. One GPU does all of
it: what a server there answers is judged beside it, and RL is paid by the emulator's verdicts.
While a GPU has nothing else to do it judges module kernels.
SFT's examples are made first, or taken from the folder of --mixture, where `learning.py sft --until
mixture` made them.
The base model need not be there yet: who copies it renames it into place, and until then all GPUs
judge.

DIR/events.jsonl tells what began and ended when, DIR/logs what each command said. What is done is
not done again by a second call. `learning_*.json` of `benchmarks/results` are made of what is left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from plans import Arm, Plan, read_plan

from coding_framework.store.folder import RLFolder, SFTFolder
from coding_framework.store.training_log import read_sft_records

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARMS = get_args(Arm)
ANEW, BEFORE = "learning_anew", "learning_before"
"""Folders of an SFT beside a policy that is there, and of one that it is compared with."""
SFT_BATCH, ROWS = 8, 4
"""Examples that a step of SFT learns, or `ROWS` for each GPU where that is more: two for each of
four leave it waiting for its process. The learning rate grows with the root of their number."""
H200_GIB = 139.0
ROW_GIB, REST_GIB, FULL = 13.0, 12.0, 0.93
"""Memory of a GPU for one of the longest examples (5,120 tokens) and for all else, and the share of
it that may be asked for. Measured: 36.6 GiB with two of them, 62.6 with four."""
SEARCHERS = 6
"""Judges of the search on a GPU with the memory of an H200, beside those of second verdicts: each
that waits keeps 1.5 GiB."""
FIRST_STEP_S = 240.0
"""SFT on several GPUs that has made no step by then is ended, and one GPU trains."""
SMOKE_S = 180.0
END_S = 25.0
"""What a judge needs to end after Ctrl-C: it keeps what it judged."""
RL_LEAST_S = 240.0
"""RL takes two minutes to start: a trial does not begin with less."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "WANDB_MODE": "offline",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1", "RAY_memory_monitor_refresh_ms": "0",
    "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
    "PYTHONUNBUFFERED": "1",
}  # fmt: skip
OF_SFT = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
OF_RL = {"VERL_LOGGING_LEVEL": "INFO"}
"""It tells how long each part of handing the weights over takes."""
TRIALS: Mapping[str, Mapping[str, Any]] = {
    "in_step": {"num_episodes": 6, "one_step_off_policy": False},
    "one_behind": {"num_episodes": 8, "one_step_off_policy": True},
    "in_step_suffix": {
        "num_episodes": 6, "one_step_off_policy": False, "speculative_decoding": "suffix",
    },
    "one_behind_suffix": {
        "num_episodes": 8, "one_step_off_policy": True, "speculative_decoding": "suffix",
    },
    "in_step_unpacked": {
        "num_episodes": 6, "one_step_off_policy": False, "packed_attention": False,
        "micro_batch_tokens": 5120,
    },
}  # fmt: skip
"""Changes to the plan's RL. Those with suffix are preregistration_19.md's; the last one is for a
trial whose packed rows fail."""


@dataclass(frozen=True)
class Pair:
    """Two GPUs: one answers or trains, the other judges; or the only one. And cores."""

    gpus: tuple[int, ...] = (0, 1)
    cores: frozenset[int] | None = None
    """None: all of the machine."""

    @property
    def first(self) -> int:
        return self.gpus[0]

    @property
    def judging(self) -> str:
        return str(self.gpus[-1])

    @property
    def both(self) -> str:
        return ",".join(map(str, self.gpus))


class HalfHour:
    """The time, the folder and the log of a call, and what the machine has."""

    def __init__(
        self, work: Path, minutes: float, workers: int, gpus: int = 2, gib: float = H200_GIB
    ) -> None:
        self.work = work
        self.workers = workers
        self.gpus = range(gpus)
        self.gib = gib
        self._end = time.monotonic() + 60 * minutes
        (work / "logs").mkdir(parents=True, exist_ok=True)

    @property
    def left_s(self) -> float:
        return self._end - time.monotonic()

    def note(self, event: str, **told: Any) -> None:
        line = {"at": time.strftime("%H:%M:%S"), "left_s": round(self.left_s), "event": event}
        with (self.work / "events.jsonl").open("a") as log:
            log.write(json.dumps({**line, **told}) + "\n")
        print(json.dumps({**line, **told}), file=sys.stderr, flush=True)

    def start(
        self, name: str, command: Sequence[str | Path], gpus: str, *, niceness: int = 0,
        cores: frozenset[int] | None = None, **more: str,
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        """A command in a group of its own, which sees these GPUs and takes Ctrl-C."""

        def begin() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.nice(niceness)
            if cores:
                os.sched_setaffinity(0, cores)

        self.note("began", what=name)
        with (self.work / "logs" / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*map(str, command)], cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                env={**ENVIRONMENT, **os.environ, **more, "CUDA_VISIBLE_DEVICES": gpus},
                preexec_fn=begin,
            )  # fmt: skip

    def end(self, name: str, process: subprocess.Popen[bytes], *, interrupt: bool = True) -> None:
        """Ctrl-C, then what kills. interrupt: False where it had its Ctrl-C before."""
        if interrupt:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        for sign in (signal.SIGTERM, signal.SIGKILL):  # also what it left
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, sign)
                process.wait(5.0)
        self.note("ended", what=name, status=process.poll())

    def run(
        self, name: str, command: Sequence[str | Path], gpus: str, limit_s: float,
        cores: frozenset[int] | None = None, **more: str,
    ) -> int | None:  # fmt: skip
        """Its exit status; None: it was ended at the limit."""
        process = self.start(name, command, gpus, cores=cores, **more)
        try:
            status = process.wait(max(0.0, min(limit_s, self.left_s)))
        except subprocess.TimeoutExpired:
            self.end(name, process)
            return None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left
        self.note("ended", what=name, status=status)
        return status

    @contextmanager
    def judging(self, *gpus: int) -> Iterator[None]:
        """Module kernels are judged on these GPUs meanwhile; each has its part of them. What the
        time waits for goes first on the cores: beside 22 judges a model took 109 s to be
        converted."""
        judges = {}
        for gpu in gpus if self.workers else ():
            name = f"judge_{gpu}"
            command = [
                sys.executable, ROOT / "benchmarks" / "module_tasks.py", "--judge",
                "--backend", "cuda", "--shard", f"{gpu + 1}/{len(self.gpus)}",
                "--workers", str(self.workers), "--minutes", f"{max(0.0, self.left_s) / 60:.2f}",
                "--receipts", self.work / f"receipts_{gpu}.jsonl",
            ]  # fmt: skip
            judges[name] = self.start(name, command, str(gpu), niceness=10)
        try:
            yield
        finally:
            for judge in judges.values():  # all at once: each takes some seconds to end
                with suppress(ProcessLookupError):
                    os.killpg(judge.pid, signal.SIGINT)
            for name, judge in judges.items():
                self.end(name, judge, interrupt=False)


def plan_in(now: HalfHour, name: str, model: Path, ranks: int) -> Path:
    """The plan as a file in the folder, with this base model, a server that leaves the other GPU of
    a pair to the judge, and SFT's step in parts that so many GPUs hold."""
    told = yaml.safe_load((HERE / f"{name}.yaml").read_text())
    serve = read_plan(HERE / "two_gpus.yaml").serve
    examples = max(SFT_BATCH, ROWS * ranks)
    batch = min(told["sft"]["batch_size"], examples // ranks)
    while batch > 1 and REST_GIB + batch * ROW_GIB > FULL * now.gib:
        batch //= 2
    rate = told["sft"]["learning_rate"] * math.sqrt(examples / SFT_BATCH)
    sft = {
        **told["sft"], "num_gpus": ranks, "batch_size": batch, "learning_rate": round(rate, 6),
        "gradient_accumulation_steps": examples // (ranks * batch),
    }  # fmt: skip
    if now.gib >= H200_GIB and "judges" in told["search"]:
        told["search"]["judges"] = SEARCHERS
    if len(now.gpus) == 1:  # none is left that would measure times
        told["rl"] |= {"judge_gpus": 0, "reward_preset": "correct"}
    file = now.work / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**told, "sft": sft, "base_model": str(model), "serve": serve}))
    return file


def sft_arm(plan: Path, work: Path, *more: str) -> list[str | Path]:
    return [sys.executable, HERE / "learning.py", "sft", "--plan", plan, "--work", work, *more]


def smoke_test() -> list[str | Path]:
    """Two processes learn what one learns."""
    ranks = ROOT / "tests" / "integration" / "training" / "test_sft_ranks.py"
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider"]
    # Not strict: a machine may lack a plug-in that this test does not need.
    lenient = ["-o", "addopts=", "--import-mode=importlib"]
    return [*pytest, *lenient, ranks, "-k", "learn_what_one_learns"]


def wait_for(now: HalfHour, model: Path) -> None:
    """Until the model is there. Raises SystemExit where the time ends first."""
    while not model.is_dir():
        if now.left_s < RL_LEAST_S:
            raise SystemExit(f"{model} did not come in time: what was judged is in {now.work}")
        time.sleep(1)


def train_on_all(now: HalfHour, plan: Path, work: Path) -> bool:
    """SFT on all GPUs; False where it fails or makes no step in time."""
    minutes = f"{max(0.0, now.left_s - END_S) / 60:.2f}"  # it keeps a checkpoint then
    command = sft_arm(plan, work, "--until", "train", "--minutes", minutes)
    process = now.start("sft_on_all", command, ",".join(map(str, now.gpus)), **OF_SFT)
    began = time.monotonic()
    metrics = SFTFolder(work / "sft").metrics
    while process.poll() is None:
        late = time.monotonic() - began > FIRST_STEP_S and not read_sft_records(metrics).steps
        if late or now.left_s < 0:
            now.end("sft_on_all", process)
            return False
        time.sleep(1)
    now.note("ended", what="sft_on_all", status=process.returncode)
    return process.returncode == 0


def sft(now: HalfHour, model: Path, mixture: Path | None = None) -> Path | None:
    """The policy after SFT; None where it was not trained. mixture: a folder of its examples."""
    works = {name: now.work / f"learning_{name}" for name in ("two_gpus", "sft")}
    done = [w for w in works.values() if (w / "stages" / "sft.train.json").exists()]
    if not done:
        plans = {n: plan_in(now, n, model, 1 if n == "sft" else len(now.gpus)) for n in works}
        with now.judging(*now.gpus):
            if mixture:
                take_mixture(mixture, read_plan(plans["two_gpus"]), works["two_gpus"])
            else:
                command = sft_arm(plans["two_gpus"], works["two_gpus"], "--until", "mixture")
                now.run("mixture", command, "", now.left_s)
            several = len(now.gpus) > 1
            smoke = several and now.run("smoke", smoke_test(), "0,1", SMOKE_S) == 0
            wait_for(now, model)
        if smoke and train_on_all(now, plans["two_gpus"], works["two_gpus"]):
            done = [works["two_gpus"]]
        elif now.left_s > FIRST_STEP_S:
            take_mixture(works["two_gpus"], read_plan(plans["sft"]), works["sft"])
            command = sft_arm(plans["sft"], works["sft"], "--until", "train")
            with now.judging(*now.gpus[1:]):
                trained = now.run("sft_on_one", command, "0", now.left_s, **OF_SFT)
            done = [works["sft"]] if trained == 0 else []
    return done[0] / "models" / "sft" if done else None


def arm(now: HalfHour, work: Path, named: str, pair: Pair, *more: str | Path) -> None:
    """What is left of an arm, "rl:0", or up to a stage of it, "rl:0:train"; then of those that
    follow it, "rl:0+sft". RL trains and judges on both GPUs; of all else a server takes the first
    GPU, and what judges or trains the second."""
    one = named == "sft" and work.name == "learning_sft"  # which one GPU has trained
    plan = now.work / ("sft.yaml" if one else "two_gpus.yaml")
    named, *following = named.split("+")
    name, seed, until, *_ = *named.split(":"), "", ""
    said = [sys.executable, HERE / "learning.py", name, "--plan", plan, "--work", work,
            "--seed", seed or "0", "--server-gpu", str(pair.first), *more]  # fmt: skip
    if "/" in until:
        said, until = [*said, "--part", until], ""
    parts = [(pair.judging, until)]
    if name == "rl":
        parts = [(pair.both, "train"), *(parts if until != "train" else [])]
    earlier = "before" if work.name == BEFORE else ""
    for gpus, last in parts:
        words = [*said, "--minutes", f"{max(0.0, now.left_s) / 60:.2f}"]
        called = "_".join(filter(None, [earlier, name, seed, last]))
        words += ["--until", last] if last else []
        words += ["--then", *following] if following and last == until else []
        if now.run(called, words, gpus, now.left_s, pair.cores, **OF_RL) != 0:
            return


def restored(
    now: HalfHour, model: Path, stored: Path, learnt: Path | None, before: Path | None, *,
    anew: bool = False, checkout: Path | None = None,
) -> Path | None:  # fmt: skip
    """The stored policy as a whole model, beside it each of the folder `learnt`, and in a folder of
    its own `before`, where these are; None where it cannot be made. anew: SFT's examples are made
    meanwhile. checkout: of KernelBench, for parity meanwhile; None: all GPUs judge."""
    plan, work = plan_in(now, "two_gpus", model, 2), now.work / "learning_two_gpus"
    merged = work / "models" / "sft"
    if not merged.is_dir():
        with parity_meanwhile(now, checkout) if checkout else now.judging(*now.gpus):
            if anew:
                command = sft_arm(plan, now.work / ANEW, "--until", "mixture")
                now.run("mixture", command, "", now.left_s)
            wait_for(now, model)
            more = sorted(learnt.iterdir()) if learnt and learnt.is_dir() else []
            wanted = [(policy, work) for policy in (stored, *more)]
            if before and before.is_dir():
                wanted.append((before, now.work / BEFORE))
            for policy, place in wanted:
                now.run("restore", [
                    sys.executable, HERE / "learning.py", "restore", policy, "--merge",
                    "--plan", plan, "--work", place,
                ], "", now.left_s)  # fmt: skip
    return merged if merged.is_dir() else None


def is_training(named: str) -> bool:
    """Whether an arm is another SFT beside the policy."""
    return named.split("+")[0].split(":")[0] == "train"


def trained_anew(now: HalfHour, pair: Pair, named: str, *more: str | Path) -> Path | None:
    """The policy of another SFT, by both GPUs of the pair; None where it was not trained. named:
    the arm that tests it, and those that follow."""
    work = now.work / ANEW
    command = sft_arm(now.work / "two_gpus.yaml", work, "--until", "train")
    if now.run("sft_anew", command, pair.both, now.left_s, pair.cores, **OF_SFT) != 0:
        return None
    arm(now, work, named, pair, *more)
    return work / "models" / "sft"


def compiled(now: HalfHour, pair: Pair) -> None:
    """SFT's first steps by one GPU with compiled layers; their rate is in the folder's log."""
    examples = next(now.work.glob("learning_*/mixture/examples.jsonl"), None)
    if examples is None:
        now.note("left out, for want of a mixture", what="compiled")
        return
    from learning import sft_recipe

    plan = read_plan(now.work / "two_gpus.yaml")
    sft = {
        **sft_recipe(plan, examples, 0), "num_gpus": 1, "gradient_accumulation_steps": 2,
        "max_steps": 80, "compile_layers": True,
    }  # fmt: skip
    recipe = now.work / "compiled.yaml"
    recipe.write_text(yaml.safe_dump({"device": "cuda", "sft": sft, "base_model": plan.base_model}))
    now.run("compiled", [
        sys.executable, ROOT / "run_sft_training.py", "--config", recipe,
        "--output-dir", now.work / "compiled",
    ], str(pair.first), now.left_s, pair.cores, **OF_SFT)  # fmt: skip


def suffix(now: HalfHour, policy: Path, pair: Pair) -> None:
    """How fast vLLM writes a step's answers of this policy."""
    now.run("suffix", [
        sys.executable, ROOT / "benchmarks" / "suffix_decoding.py", "engine", policy,
        "--output", now.work / "suffix_decoding_engine.json",
    ], str(pair.first), now.left_s, pair.cores)  # fmt: skip


def take_mixture(source: Path, plan: Plan, work: Path) -> None:
    """The arm's first stage is done: both plans have the same examples."""
    from learning import Experiment, note

    shutil.copytree(source / "mixture", work / "mixture", dirs_exist_ok=True)
    told = json.loads((work / "mixture" / "manifest.json").read_text())
    note(Experiment(plan, work, "sft"), "mixture", 0.0, told)


def trial(now: HalfHour, name: str, policy: Path, pair: Pair) -> bool:
    """Some steps of RL, of which one GPU of two judges; whether it made all."""
    folder = now.work / "rl" / name
    if RLFolder(folder).result.exists():
        return True
    if now.left_s < RL_LEAST_S:
        now.note("left out, for want of time", what=name)
        return False
    told = yaml.safe_load((now.work / "two_gpus.yaml").read_text())
    recipe = now.work / f"rl_{name}.yaml"
    plain = {"prompts": "v3", "wandb": False, "curriculum": "informative"}
    rl = {**plain, **told["rl"], "validate_every": 0, **TRIALS[name]}
    recipe.write_text(yaml.safe_dump({"device": "cuda", "rl": rl}))
    return now.run(f"rl_{name}", [
        sys.executable, ROOT / "run_multiturn_rl_training.py", "--config", recipe,
        "--generator-checkpoint", policy, "--output-dir", folder, "--pool", "modules",
        "--num-tasks", str(told["rl_tasks"]), "--minutes", f"{now.left_s / 60:.2f}",
    ], pair.both, now.left_s, pair.cores, **OF_RL) == 0  # fmt: skip


def parity_command(now: HalfHour, checkout: Path) -> list[str | Path]:
    """Kernels of modules judged by KernelBench's own evaluator and by us; its reference is in full
    float32. It goes on with what an earlier call of it left."""
    return [
        sys.executable, ROOT / "benchmarks" / "against_kernelbench.py", "--kernelbench", checkout,
        "--tasks", "0", "--modules", "112", "--full-float32", "--theirs", "6", "--workers", "8",
        "--minutes", f"{max(0.0, now.left_s - END_S) / 60:.2f}", "--work", now.work / "parity",
        "--output", now.work / "against_kernelbench.json",
    ]  # fmt: skip


@contextmanager
def parity_meanwhile(now: HalfHour, checkout: Path) -> Iterator[None]:
    """What it has judged when this ends is kept. What the time waits for goes first on the
    cores."""
    gpu = str(now.gpus[-1])
    process = now.start("parity_first", parity_command(now, checkout), gpu, niceness=10)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its rows are written one by one
        process.wait()
        now.note("ended", what="parity_first", status=process.returncode)


def parity(now: HalfHour, checkout: Path, pair: Pair) -> None:
    """On the GPU of a pair that judges."""
    command = parity_command(now, checkout)
    now.run("parity", command, pair.judging, now.left_s, pair.cores)


def follow(
    now: HalfHour, names: Sequence[str], policy: Path, pair: Pair, checkout: Path | None
) -> None:
    """What is named, one after the other; then judging, until the time ends."""
    more: list[str | Path] = ["--kernelbench-dir", checkout] if checkout else []
    for name in names:
        what, _, which = name.partition(":")
        if name == "parity":
            assert checkout is not None
            parity(now, checkout, pair)
        elif name == "compiled":
            compiled(now, pair)
        elif name == "suffix":
            suffix(now, policy, pair)
        elif is_training(name):
            found = trained_anew(now, pair, name.replace("train", "sft", 1), *more)
            if found is None:
                break
            policy = found
        elif what == "before":
            arm(now, now.work / BEFORE, which, pair, *more)
        elif what != "trial":
            arm(now, policy.parents[1], name, pair, *more)
        elif which:
            trial(now, which, policy, pair)
        else:
            if not trial(now, "in_step", policy, pair):
                trial(now, "in_step_unpacked", policy, pair)
            trial(now, "one_behind", policy, pair)
    judge_to_the_end(now, pair.gpus)


def judge_to_the_end(now: HalfHour, gpus: Sequence[int]) -> None:
    with now.judging(*gpus):
        time.sleep(max(0.0, now.left_s - END_S))


def pairs_of(gpus: int) -> list[Pair]:
    """The pairs whose arms run beside each other: the first two GPUs; of four, the others too."""
    if gpus < 4:
        return [Pair(tuple(range(gpus)))]
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    return [Pair((0, 1), frozenset(cores[:half])), Pair((2, 3), frozenset(cores[half:]))]


def gpus_here() -> list[float]:
    """GiB of each GPU, as the driver says; [] where there is none."""
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [float(mib) / 1024 for mib in said.split()]


def main(arguments: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--work", type=Path, required=True, help="folder of all that is left")
    cli.add_argument("--model", type=Path, required=True, help="the base model; it may come later")
    cli.add_argument("--policy", type=Path, help="a stored policy, in SFT's place")
    cli.add_argument("--learnt", type=Path, help="with --policy: a folder of other stored policies")
    cli.add_argument("--before", type=Path, help="with --policy: one that is compared with it")
    cli.add_argument(
        "--then",
        nargs="*",
        default=["trial"],
        metavar="ARM",
        help="trial, trial:one_behind, rl:0, rl:1:train, ...",
    )
    cli.add_argument(
        "--beside", nargs="*", default=[], metavar="ARM", help="the same, at the same time"
    )
    cli.add_argument("--mixture", type=Path, help="without --policy: SFT's examples, made before")
    cli.add_argument("--kernelbench-dir", type=Path, help="a checkout, for arms that need one")
    cli.add_argument("--minutes", type=float, default=27.0, help="all ends after so many")
    cli.add_argument(
        "--workers",
        type=int,
        default=11,
        help="judges of each GPU that has nothing else to do; 0: it stays idle",
    )
    cli.add_argument(
        "--gpus", type=int, choices=(1, 2, 4), help="default: as many as are there, of these"
    )
    args = cli.parse_args(arguments)
    for name in (*args.then, *args.beside):
        if name.startswith("trial:") and name.removeprefix("trial:") not in TRIALS:
            cli.error(f"--then {name}: choose of {', '.join(TRIALS)}")
        if name in ("parity", "compiled", "suffix"):
            continue
        first, *following = name.removeprefix("before:").split("+")
        if is_training(name) and args.policy is None:
            cli.error("--then train: SFT is trained first where no --policy is given: leave it out")
        unknown = {first.partition(":")[0], *following} - {*ARMS}
        if not name.startswith("before:"):
            unknown -= {"trial", "train"} - {*following}
        if unknown:
            cli.error(f"--then {name}: there is no arm {min(unknown)}: choose of {', '.join(ARMS)}")
        if name.startswith("before:") and args.before is None:
            cli.error(
                f"--then {name}: which policy? give --before, a folder of `learning.py store`"
            )
    if args.mixture and args.policy:
        cli.error("--mixture is for an SFT without --policy: leave one of them out")
    if args.mixture and not (args.mixture / "mixture" / "manifest.json").is_file():
        cli.error(
            f"--mixture: there are no examples in {args.mixture}: make them by `learning.py sft "
            f"--until mixture --work {args.mixture}`"
        )
    if "parity" in (*args.then, *args.beside) and args.kernelbench_dir is None:
        cli.error("--then parity: whose KernelBench? give --kernelbench-dir, a checkout of it")
    found = gpus_here()
    gpus = args.gpus or next((n for n in (4, 2, 1) if len(found) >= n), 2)
    smallest = min(found, default=H200_GIB)
    now = HalfHour(args.work.resolve(), args.minutes, args.workers, gpus, smallest)
    model = args.model.resolve()
    learnt, before = (folder and folder.resolve() for folder in (args.learnt, args.before))
    checkout = args.kernelbench_dir.resolve() if args.kernelbench_dir else None
    named = (*args.then, *args.beside)
    training = any(map(is_training, named))
    if args.policy:
        policy = restored(
            now, model, args.policy.resolve(), learnt, before, anew=training,
            checkout=checkout if "parity" in named else None,
        )  # fmt: skip
    else:
        policy = sft(now, model, args.mixture and args.mixture.resolve())
    if policy is None:
        judge_to_the_end(now, now.gpus)
    else:
        first, *others = pairs_of(gpus)
        begins = [name.split(":")[0] for name in args.then[:1]]
        trained = [] if args.policy or begins == ["sft"] else ["sft"]
        then = [*trained, *args.then]
        with ThreadPoolExecutor() as pool:
            beside = [pool.submit(follow, now, then, policy, pair, checkout) for pair in others]
            follow(now, [*([] if beside else then), *args.beside], policy, first, checkout)
        for stream in beside:
            stream.result()
    now.note("all is done")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

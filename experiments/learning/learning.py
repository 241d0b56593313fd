"""The experiment of `preregistration.md` as a program: an arm from its checkpoint to its table.

    learning.py ARM --plan PLAN.yaml --work DIR [--seed 0] [--minutes 9] [--kernelbench-dir DIR]
                [--then ARM ...]
    learning.py tables --plan PLAN.yaml --work DIR [--write FILE]
    learning.py pack --work DIR --to PARTS [--part-mib 15]
    learning.py unpack PARTS --work DIR
    learning.py store DIR/adapters/ARM --to FOLDER
    learning.py restore FOLDER --work DIR [--plan PLAN.yaml] [--merge]

ARM is sft, rft, rl, control, sizes, people, candidates, parts, feedback, search or kernelbench, in
this order: each starts from what ones before left, the last seven from rl's policy of this seed,
else rft's, else sft's.
Each arm is a list of stages; a finished one is noted in DIR/stages and not run again. With
--minutes the program stops cleanly: a training at the end of a step, sampling when no sample is
open. Its exit status is then 4, and the same command goes on, on another machine too, after `pack`
and `unpack`. With --until it stops after that stage. With --then other arms of the same seed
follow. A server that answers for a policy stays while later tests need it, and the next policy's
starts beside it.

    sft      mixture, SFT, temperature by the validation tasks, test
    rft      samples of unseen training tasks, SFT on the best of them, temperature, test
    rl       RL from rft's policy (a plan may say from sft's), best policy by the validation tasks,
             temperature, test
    control  RFT from that policy on as many verdicts and tokens as rl of this seed had; likewise
    sizes    the held-out tasks at sizes that no list has, one sample each
    people   one greedy answer to each of `benchmarks/modules_people_use` and its later sets
    candidates  eight answers to each of the last of them
    parts    the last two sets taken apart: answers to each part, and their kernels joined
    feedback turns with the judge's feedback against further samples, at equal tokens
    search   many candidates of each task; with --part 1/2 and 2/2 two processes share them
    kernelbench  one greedy answer to each problem of levels 1 and 2; then another of sft's policy

What is evaluated is what is carried: the adapter of an arm is kept in bfloat16 (DIR/adapters), and
its model (DIR/models) is made of it. Where the plan rounds it to eight bits, `store` writes one
that a repository can keep, with what later arms read of its training, and `restore` makes the arm
of it, finished but for its test.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import yaml
from carry import pack, unpack
from plans import Arm, Conversed, Plan, read_plan

from coding_framework.commands.failures import EXIT_EARLY, EXIT_OK, run_script
from coding_framework.data.example_store import ExampleStore
from coding_framework.errors import OutOfTimeError, TrainingError, UsageError
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.store.folder import RejectionFolder, RLFolder, SFTFolder
from coding_framework.store.model_card import card_of
from coding_framework.store.training_log import read_evidence, read_steps, read_validations
from coding_framework.types import Role, Task, TrainingExample

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARMS = get_args(Arm)
LEAST_LEFT_S = 20.0
"""A stage that needs a model or a judge does not begin with less."""


@dataclass(frozen=True)
class Server:
    """One that speaks OpenAI's protocol."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path


@dataclass
class Servers:
    """Those that stay between tests, by policy; at most two are there at a time."""

    needed: list[str] = field(default_factory=list)
    """The policies of the tests that follow."""
    running: dict[str, Server] = field(default_factory=dict)

    def tested(self, policy: str) -> None:
        """A test of the policy begins."""
        if policy in self.needed:
            self.needed.remove(policy)

    def following(self, policy: str) -> str | None:
        """The next policy whose server is not there yet; None: there is none, or no room."""
        wanted = (p for p in self.needed if p != policy and p not in self.running)
        return None if self.running else next(wanted, None)

    def end(self) -> None:
        for server in self.running.values():
            end(server.process)
        self.running.clear()


class PostponedError(Exception):
    """A test has its answers, and is judged later."""


@dataclass
class Experiment:
    """What the stages of an arm share."""

    plan: Plan
    work: Path
    arm: Arm
    seed: int = 0
    minutes: float | None = None
    kernelbench: Path | None = None
    """A checkout of KernelBench."""
    server_gpu: int = 0
    """Of the plan's server."""
    part: tuple[int, int] = (1, 1)
    """Of the search: the second of three is (2, 3)."""
    python: str = sys.executable
    began: float = field(default_factory=time.monotonic)
    servers: Servers = field(default_factory=lambda: Servers())
    """Shared by the arms of one call."""
    asked: dict[Path, list[str]] = field(default_factory=dict)
    """Folders of tests whose answers this call has, and the words that asked."""
    postpones: bool = False
    """Whether a test ends with its answers (`PostponedError`): they are judged with no server."""

    @property
    def name(self) -> str:
        """Of the arm's files: RL and its control have one for each seed."""
        return f"{self.arm}-{self.seed}" if self.arm in ("rl", "control") else self.arm

    @property
    def deadline(self) -> float | None:
        return None if self.minutes is None else self.began + 60 * self.minutes

    @property
    def left_s(self) -> float | None:
        """Seconds that are left; None: any."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def model(self, arm: str) -> Path:
        return self.work / "models" / arm

    def adapter(self, arm: str) -> Path:
        return self.work / "adapters" / arm

    def folder(self, name: str | None = None) -> Path:
        """Of the arm's training."""
        return self.work / (name or self.name)

    def run(self, *command: str | Path, timed: bool = True) -> None:
        """A command of the project, with what is left of the time. Raises OutOfTimeError where it
        stopped at that, TrainingError where it failed."""
        words = [str(word) for word in command]
        if self.asks_first and "--ask-only" not in words:
            self.servers.end()
        if timed and self.left_s is not None:
            if self.left_s < LEAST_LEFT_S:
                raise OutOfTimeError(f"no time is left for {words[1]}: the same command goes on")
            if "eval" in words:
                words += ["--time-limit", f"{self.left_s:.0f}"]
            elif "mixture" not in words:
                words += ["--minutes", f"{self.left_s / 60:.3f}"]
        print("$", " ".join(words), file=sys.stderr, flush=True)
        with subprocess.Popen(words, cwd=ROOT) as process:
            try:
                status = process.wait(self.left_s if timed and "mixture" in words else None)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # what was judged is kept
                process.wait()
                status = EXIT_EARLY
        if status == EXIT_EARLY:
            raise OutOfTimeError(f"{self.name} stopped in time: the same command goes on")
        if status != EXIT_OK:
            raise TrainingError(f"{self.name}: `{' '.join(words[1:4])}` ended with {status}")

    def script(self, name: str, recipe: Mapping[str, Any], *flags: str | Path) -> None:
        """A root script with a recipe."""
        file = self.work / "recipes" / f"{self.name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, yaml.safe_dump({"device": self.plan.device, **recipe}))
        self.run(self.python, ROOT / name, "--config", file, *flags)

    def cuda_rl(self, *words: str | Path, timed: bool = True) -> None:
        self.run(self.python, "-m", "coding_framework.cli", *words, timed=timed)

    def start_server(self, model: Path) -> Server:
        """A server that will answer for the model, by the plan's command."""
        assert self.plan.serve is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        told = {"python": self.python, "model": str(model), "port": str(port)}
        told["gpu"] = str(self.server_gpu)
        words = shlex.split(self.plan.serve.format(**told))
        path = self.work / "logs" / f"serve-{model.name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        return Server(process, f"http://127.0.0.1:{port}/v1", path)

    @contextmanager
    def served(self, model: Path, policy: str | None = None) -> Iterator[list[str]]:
        """Flags by which a command asks a server that has the model; none where the plan names no
        server. policy: it stays for later tests of this policy. Raises TrainingError where it does
        not start."""
        if self.plan.serve is None:
            yield []
            return
        found = self.servers.running.pop(policy, None) if policy else None
        if found is None or found.process.poll() is not None:  # it may have ended meanwhile
            found = self.start_server(model)
        server = found
        stays = False
        try:
            while not answers(f"{server.url}/models"):
                if server.process.poll() is not None:
                    raise TrainingError(f"the server of {model} does not start: see {server.log}")
                if self.left_s is not None and self.left_s < LEAST_LEFT_S:
                    raise OutOfTimeError("the server starts too late: the same command goes on")
                time.sleep(0.5)
            if policy:
                self.servers.tested(policy)
                following = self.servers.following(policy)
                if following and (self.model(following) / "config.json").is_file():
                    self.servers.running[following] = self.start_server(self.model(following))
            yield ["--server", server.url]
            stays = policy in self.servers.needed
        finally:
            if stays and policy:
                self.servers.running[policy] = server
            else:
                end(server.process)

    @property
    def best(self) -> str:
        """The arm with the policy that was learnt last."""
        arms = (f"rl-{self.seed}", "rft")
        return next((arm for arm in arms if self.adapter(arm).is_dir()), "sft")

    def evaluate(
        self, arm: str, suites: Sequence[str], samples: int, heat: float, folder: Path,
        *more: str | Path,
    ) -> None:  # fmt: skip
        """An arm's model on suites, by the prompts that its card names, or the plan's."""
        model = require(self, arm)
        card = card_of(model)
        words = [
            "eval", model, *(w for suite in suites for w in ("--suite", suite)),
            "--prompts", card.prompts if card and card.prompts else self.plan.prompts,
            "--samples", str(samples), "--temperature", str(heat), "--seed", str(self.seed),
            "--output-dir", folder, "--no-wandb",
            "--k", "1" if samples == 1 else f"1,{samples}", *more,
        ]  # fmt: skip
        told = flags({**self.plan.sampling, **self.plan.judge})
        if not self.asks_first or "--turns" in more:  # a later turn needs both
            with self.served(model, arm) as server:
                self.cuda_rl(*words, *_asking(server, model), *told)
            return
        if folder not in self.asked:
            with self.served(model, arm if self.postpones else None) as server:
                self.asked[folder] = [*words, *_asking(server, model), *told]
                self.cuda_rl(*self.asked[folder], "--ask-only")
        if self.postpones:
            raise PostponedError
        self.cuda_rl(*self.asked[folder])

    @property
    def asks_first(self) -> bool:
        """Whether the server is on the GPU that the judge times on: it ends before."""
        return self.plan.serve is not None and "{gpu}" not in self.plan.serve

    @property
    def held_out(self) -> str:
        """The suite of the held-out tasks."""
        return "modules" if self.plan.pool == "modules" else "held-out"


def _asking(server: Sequence[str], model: Path) -> list[str]:
    """Flags of an evaluation that asks a server; the model's own tokenizer counts its prompts."""
    return [*server, *(["--tokenizer", str(model)] if server else [])]


Work = Callable[[Experiment], Mapping[str, Any]]
"""A stage; gives what is noted of it."""


def answers(url: str) -> bool:
    """Whether a server answers there."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server and what it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(server.pid, sign)
            server.wait(10)


def flags(values: Mapping[str, Any]) -> list[str]:
    """Fields as the commands' flags."""
    found: list[str] = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(flag)
        elif value is not None and value is not False:
            found += [flag, str(value)]
    return found


# --- stages: training -----------------------------------------------------------------------------


def mixture(now: Experiment) -> Mapping[str, Any]:
    """SFT's examples. Kernels without a receipt are judged first; what was judged when the time
    ended is kept."""
    if not now.plan.mixture:
        return {}
    folder = now.work / "mixture"
    judge = {k: v for k, v in now.plan.judge.items() if k in ("backend", "workers")}
    given = {
        "total": now.plan.mixture, "mistakes": unpacked_mistakes(now),
        "spare": now.plan.spare or None, "wider": now.plan.wider or None,
        "graphs": now.plan.graphs or None, "pieces": now.plan.pieces or None,
        "other_sizes": now.plan.other_sizes or None,
        "unjudged": now.plan.unjudged, "answer_tokens": now.plan.answer_tokens, **judge,
    }  # fmt: skip
    now.cuda_rl("data", "mixture", "--output", folder, "--receipts", now.work / "receipts.jsonl",
                *flags(given))  # fmt: skip
    return json.loads((folder / "manifest.json").read_text())


def unpacked_mistakes(now: Experiment) -> Path | None:
    """The plan's own mistakes, as the mixture takes them."""
    if now.plan.mistakes is None:
        return None
    lines = lzma.decompress((HERE / now.plan.mistakes).read_bytes()).splitlines()
    path = now.work / "mistakes.jsonl"
    ExampleStore.write(path, map(TrainingExample.model_validate_json, lines)).close()
    return path


def sft_recipe(plan: Plan, mixture: Path | None, seed: int) -> dict[str, Any]:
    """Fields of `SFTConfig`. mixture: its examples; None: SFT learns functions alone."""
    drawn = {} if mixture is None else dict.fromkeys(("num_examples", "optimizer_examples"), 0)
    beside = str(mixture) if mixture is not None else None
    return {
        "prompts": plan.prompts, "held_out_tasks": 0, "wandb": False, "seed": seed,
        **drawn, "extra_examples": beside, **plan.sft,
    }  # fmt: skip


def sft(now: Experiment) -> Mapping[str, Any]:
    examples = now.work / "mixture" / "examples.jsonl" if now.plan.mixture else None
    recipe = sft_recipe(now.plan, examples, now.seed)
    if now.plan.sft_from is not None:
        from small_adapter import restore

        start = now.work / "start_adapter"
        restore(HERE / now.plan.sft_from, start)
        recipe["start_adapter"] = str(start)
    now.script(
        "run_sft_training.py",
        {"sft": recipe, "base_model": now.plan.base_model},
        "--output-dir", now.folder(),
    )  # fmt: skip
    result = json.loads(SFTFolder(now.folder()).config.read_text())["result"]
    keep(now, SFTFolder(now.folder()).adapter(Role.GENERATOR), None)
    shutil.rmtree(SFTFolder(now.folder()).model, ignore_errors=True)
    return {k: result[k] for k in ("examples", "left_out", "steps", "tokens", "tokens_per_s",
                                   "seconds", "last_loss", "gpu_memory_gib")}  # fmt: skip


def rft(now: Experiment) -> Mapping[str, Any]:
    """Samples of training tasks, then SFT on the best; where no answer is right, the policy stays
    what it was."""
    return _reject(now, "sft", {
        "tasks": now.plan.rl_tasks, "skip_tasks": now.plan.rl_skip, "samples": 8, **now.plan.rft,
    })  # fmt: skip


def control(now: Experiment) -> Mapping[str, Any]:
    """RFT on as many verdicts, and at least as many tokens, as RL of this seed had: it samples the
    tasks that rft's evidence calls open, as RL's curriculum does; where it calls none so, or there
    is no rft, those that RL draws from. Where the plan says how many samples of each, it need not
    wait for RL. Raises UsageError where rft's tokens were not counted."""
    if now.plan.control_samples is not None:
        sizes = {"tasks": now.plan.rl_tasks, "samples": now.plan.control_samples}
        skipped = {"skip_tasks": now.plan.rl_skip, "seed": now.seed + 1}
        return {**sizes, **_reject(now, now.plan.rl_from, {**now.plan.rft, **sizes, **skipped})}
    verdicts, tokens = spent(now)
    if now.plan.rl_from == "rft":
        each, opened = _known_of_rft(now)
    else:  # the first step's answers are the policy's that both start from
        first = read_steps(RLFolder(now.folder(f"rl-{now.seed}")).steps)[0]
        each, opened = first.response_tokens / first.turns, 0
    wanted = max(verdicts, round(tokens / each))
    count = min(opened or now.plan.rl_tasks, wanted)
    skip = 0 if opened else now.plan.rl_skip  # what rft calls open comes after these
    sizes = {"tasks": count, "skip_tasks": skip, "samples": -(-wanted // count)}
    evidence = str(RejectionFolder(now.folder("rft")).evidence) if opened else None
    how = {**now.plan.rft, **sizes, "task_evidence": evidence, "seed": now.seed + 1}
    found = _reject(now, now.plan.rl_from, how)
    return {"rl_verdicts": verdicts, "rl_tokens": tokens, **sizes, **found}


def _known_of_rft(now: Experiment) -> tuple[float, int]:
    """(tokens of an answer, tasks that are open). Raises UsageError."""
    folder = RejectionFolder(now.folder("rft"))
    summary = json.loads(folder.summary.read_text())
    if not summary["tokens"]:
        raise UsageError(
            f"{folder.summary} counts no tokens, so equal tokens cannot be sampled: run the arm "
            "rft with a server that tells them (usage.completion_tokens)"
        )
    opened = sum(e.is_open for e in read_evidence(folder.evidence))
    return summary["tokens"] / summary["samples"], opened


def spent(now: Experiment) -> tuple[int, int]:
    """(verdicts, generated tokens) of the RL run of this seed, its validations among them: they
    chose its policy."""
    run = RLFolder(now.folder(f"rl-{now.seed}"))
    steps = read_steps(run.steps)
    if not steps:
        raise UsageError(f"{run.steps} has no step: run the arm rl with this seed first")
    checked = read_validations(run.validations)
    mean = sum(s.response_tokens for s in steps) / max(1, sum(s.turns for s in steps))
    more = sum(v.conversations for v in checked)
    return (
        sum(s.turns for s in steps) + more,
        sum(s.response_tokens for s in steps) + round(mean * more),
    )


def _reject(now: Experiment, start: str, how: Mapping[str, Any]) -> Mapping[str, Any]:
    require(now, start)
    said = {"pool": now.plan.pool, "prompts": now.plan.prompts, "seed": now.seed, **how}
    base = ("rft", now.model(start), "--output-dir", now.folder(),
            *flags({**said, **now.plan.judge}))  # fmt: skip
    folder = RejectionFolder(now.folder())
    with now.served(now.model(start)) as server:
        now.cuda_rl(*base, *server, "--ask-only" if now.asks_first else "--sample-only")
    if now.asks_first:
        now.cuda_rl(*base, *server, "--sample-only")
    summary = json.loads(folder.summary.read_text())
    if not summary["examples"]:
        print("no answer is right: there is nothing to learn, the policy stays", file=sys.stderr)
        keep(now, None, start)
        return summary
    now.cuda_rl(*base)
    keep(now, folder.sft.adapter(Role.GENERATOR), start)
    shutil.rmtree(folder.sft.model, ignore_errors=True)
    return json.loads(folder.summary.read_text())


def rl(now: Experiment) -> Mapping[str, Any]:
    """RL from rft's policy, or SFT's; of its policies the one that validates best is kept."""
    start = now.plan.rl_from
    require(now, start)
    evidence = str(RejectionFolder(now.folder("rft")).evidence) if start == "rft" else None
    recipe = {
        "prompts": now.plan.prompts, "wandb": False, "curriculum": "informative",
        "task_evidence": evidence, **now.plan.rl,
    }  # fmt: skip
    now.script(
        "run_multiturn_rl_training.py",
        {"rl": recipe},
        "--generator-checkpoint", now.model(start), "--output-dir", now.folder(),
        "--seed", str(now.seed), "--pool", now.plan.pool, "--num-tasks", str(now.plan.rl_tasks),
        "--skip-tasks", str(now.plan.rl_skip),
    )  # fmt: skip
    run = RLFolder(now.folder())
    result = json.loads(run.result.read_text())
    adapter = None
    if result["best_step"]:
        from coding_framework.store.checkpoints import whole_checkpoints
        from coding_framework.training.verl.export import export_adapter

        last = result["best_step"] == len(result["steps"])
        actor = whole_checkpoints(run.checkpoints)[-1] / "actor" if last else run.best
        adapter = now.folder() / "adapter"
        export_adapter(actor, adapter, str(now.model(start)))
    keep(now, adapter, start)
    for folder in (run.final_model, *run.root.glob("best_model_episode_*")):
        shutil.rmtree(folder, ignore_errors=True)
    return {"steps": len(result["steps"]), "best_step": result["best_step"]}


# --- stages: the policy of an arm -----------------------------------------------------------------


def keep(now: Experiment, adapter: Path | None, start: str | None) -> None:
    """The arm's adapter as it is carried, and its model made of that. adapter None: the policy is
    that of `start`; start None: the base model."""
    target = now.adapter(now.name)
    if adapter is not None:
        import torch
        from safetensors.torch import load_file
        from small_adapter import WEIGHTS, put, rounded

        shutil.rmtree(target, ignore_errors=True)
        kept = rounded if now.plan.bits == 8 else torch.Tensor.bfloat16
        put({k: kept(v) for k, v in load_file(adapter / WEIGHTS).items()}, adapter, target)
    target.mkdir(parents=True, exist_ok=True)
    write_json_atomic(target / "start.json", {"start": start, "trained": adapter is not None})
    write_atomic(now.folder() / "kept", "the policy is in adapters/\n")
    shutil.rmtree(now.model(now.name), ignore_errors=True)
    require(now, now.name)


def stored(adapter: Path, folder: Path) -> Path:
    """Write an arm's adapter, and what later arms read of its training, into a folder that a
    repository can keep; the file of the weights."""
    from small_adapter import ARM, store

    file = store(adapter, folder)
    work, name = adapter.parents[1], adapter.name
    word = work / "stages" / f"{name}.train.json"
    if word.exists():
        told = {"arm": name, "train": json.loads(word.read_text())["result"]}
        write_json_atomic(folder / ARM, told)
        for log in _read_later(work / name):
            shutil.copy(log, folder / log.name)
    return file


def _read_later(training: Path) -> list[Path]:
    """What later arms read of RL's training."""
    run = RLFolder(training)
    return [log for log in (run.steps, run.validations) if log.exists()]


def begin_with(folder: Path, plan: Plan, work: Path) -> Experiment:
    """Make the arm of a stored adapter: its training counts as done."""
    from small_adapter import ARM, restore

    told = {"arm": "sft", "train": {"restored": str(folder)}}
    if (folder / ARM).exists():
        told = json.loads((folder / ARM).read_text())
    arm, _, seed = told["arm"].partition("-")
    now = Experiment(plan, work, arm, int(seed or 0))
    restore(folder, now.adapter(now.name))
    now.folder().mkdir(parents=True, exist_ok=True)
    for log in _read_later(folder):
        shutil.copy(log, now.folder() / log.name)
    for stage, _ in STAGES[now.arm]:
        if stage in ("mixture", "train"):
            note(now, stage, 0.0, told["train"])
    return now


def require(now: Experiment, name: str) -> Path:
    """The whole model of an arm, made of its adapters where it is not there. Raises UsageError
    where the arm has not been trained."""
    model, adapter = now.model(name), now.adapter(name)
    if (model / "config.json").is_file():
        return model
    try:
        told = json.loads((adapter / "start.json").read_text())
    except OSError as e:
        raise UsageError(f"there is no {adapter}: run the arm {name} first, or `unpack` it") from e
    from coding_framework.agents.models import resolve_model
    from coding_framework.agents.policies import load_model
    from coding_framework.store.folder import replaced
    from coding_framework.store.model_card import write_card

    start = (
        resolve_model(now.plan.base_model) if told["start"] is None else require(now, told["start"])
    )
    model.parent.mkdir(parents=True, exist_ok=True)
    if not told["trained"]:
        with replaced(model) as fresh:
            shutil.copytree(start, fresh, dirs_exist_ok=True, copy_function=_link)
        return model
    card = card_of(adapter)
    merged, tokenizer = load_model(start, adapter=adapter, dtype="float32", device="cpu")
    with replaced(model) as fresh:
        merged.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        if card is not None:
            write_card(fresh, card.merged())
    return model


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(Path(source).resolve())


def temperature(now: Experiment) -> Mapping[str, Any]:
    """The temperature with the largest fast_1.05 on the validation tasks, then the most correct;
    where the plan names one, that."""
    from tables import numbers_of

    if len(now.plan.temperatures) == 1:
        return {"chosen": now.plan.temperatures[0], "by_temperature": {}}
    found = {}
    suite = "validation" if now.plan.pool == "modules" else "held-out"
    suite += f":{now.plan.validation.tasks}"
    for heat in now.plan.temperatures:
        folder = now.work / "validation" / now.name / f"t{heat:g}"
        now.evaluate(now.name, [suite], now.plan.validation.samples, heat, folder)
        found[f"{heat:g}"] = numbers_of(folder)
    best = max(found, key=lambda heat: (found[heat]["fast_1.05"] or 0.0, found[heat]["pass@1"]))
    return {"chosen": float(best), "by_temperature": found}


def test(now: Experiment) -> Mapping[str, Any]:
    """The held-out tasks, at the temperature that was chosen."""
    from tables import numbers_of

    heat = noted(now, "temperature")["chosen"]
    folder = now.work / "test" / now.name
    suite = f"{now.held_out}:{now.plan.test.tasks}"
    now.evaluate(now.name, [suite], now.plan.test.samples, heat, folder)
    return numbers_of(folder)


def sizes(now: Experiment) -> Mapping[str, Any]:
    """The held-out tasks at other sizes: was a function learnt, or the size?"""
    suite = f"{now.held_out}-other-sizes" if now.plan.pool == "modules" else "train-shapes"
    suite += f":{now.plan.test.tasks}"
    return _tested(now, now.work / "sizes", suite, 1, now.plan.temperatures[0])


def people(now: Experiment) -> Mapping[str, Any]:
    """Modules whose author had not seen the generator of ours."""
    from tables import numbers_by_suite

    suites = [str(ROOT / "benchmarks" / name) for name in PEOPLE]
    now.evaluate(now.best, suites, 1, 0.0, now.work / "people")
    return {"policy": now.best, **numbers_by_suite(now.work / "people")}


PEOPLE = tuple(
    f"modules_people_use{n}" for n in ("", "_2", "_3", "_4", "_5", "_6", "_7", "_8", "_9")
)


def candidates(now: Experiment) -> Mapping[str, Any]:
    """What several answers to each of the last of them solve, as `cuda-rl solve` asks."""
    suite = str(ROOT / "benchmarks" / PEOPLE[-1])
    return _tested(now, now.work / "candidates", suite, CANDIDATES, CANDIDATE_HEAT)


CANDIDATES, CANDIDATE_HEAT = 8, 0.8
OF_A_PART, PART_HEAT = 4, 0.6
"""Answers to each part."""


def parts_cut(now: Experiment) -> Mapping[str, Any]:
    """A task for each part of the last two sets of modules that people use."""
    from in_parts import cut

    return cut(now.work / "in_parts", [ROOT / "benchmarks" / name for name in PEOPLE[-2:]])


def parts_test(now: Experiment) -> Mapping[str, Any]:
    """Where the server ends before the judge begins, it is asked for the single operations too."""
    work = now.work / "in_parts"
    if now.postpones and now.asks_first:
        alone = str(work / "alone")
        now.servers.needed.append(now.best)  # for the parts, after them
        with suppress(PostponedError):
            now.evaluate(now.best, [alone], OF_A_PART, PART_HEAT, work / "answers_alone")
    return _tested(now, work / "answers", str(work / "parts"), OF_A_PART, PART_HEAT)


def parts_again(now: Experiment) -> Mapping[str, Any]:
    """The single operations of the parts of which no answer is right."""
    from in_parts import again, asked_before

    work = now.work / "in_parts"
    left = again(work, work / "answers")
    if not left["parts"]:
        return left
    if (work / "answers_alone").is_dir() and asked_before(work, work / "answers_alone"):
        return _judged(now, work / "again.jsonl", work / "again", work / "answers_again")
    return _tested(now, work / "answers_again", str(work / "again"), OF_A_PART, PART_HEAT)


def parts_joined(now: Experiment) -> Mapping[str, Any]:
    """The modules whose parts are solved, judged as a whole; numbers of each set are of these."""
    from in_parts import join

    work = now.work / "in_parts"
    found = dict(join(work, [f for f in (work / "answers", work / "answers_again") if f.is_dir()]))
    for folder in sorted((work / "joined").glob("*")):
        suite = ROOT / "benchmarks" / folder.name
        found[folder.name] = _judged(now, folder, suite, work / "judged" / folder.name)
    return found


def _judged(now: Experiment, answers: Path, suite: Path, folder: Path) -> Mapping[str, Any]:
    """Answers that are there already."""
    from tables import numbers_of

    words = ["eval", "--answers", answers, "--suite", suite, "--output-dir", folder, "--no-wandb"]
    now.cuda_rl(*words, *flags(now.plan.judge))
    return numbers_of(folder)


def _tested(
    now: Experiment, folder: Path, suite: str, samples: int, heat: float, *more: str,
    policy: str | None = None,
) -> Mapping[str, Any]:  # fmt: skip
    """policy: the arm that answers; None: the one that was learnt last."""
    from tables import numbers_of

    policy = policy or now.best
    now.evaluate(policy, [suite], samples, heat, folder, *more)
    return {"policy": policy, **numbers_of(folder)}


def feedback(now: Experiment) -> Mapping[str, Any]:
    """Conversations on the held-out tasks, each until its first correct kernel."""
    how = _conversed(now)
    warmer = how.temperature if how.redraw_temperature is None else how.redraw_temperature
    return _conversations(
        now, "feedback", how.samples, "--turns", str(how.turns), "--stop-when-correct",
        "--redraws", str(how.redraws), "--redraw-temperature", str(warmer),
    )  # fmt: skip


def resampling(now: Experiment) -> Mapping[str, Any]:
    """Samples of the first prompt, one more of each conversation than it may have turns, of the
    policy that had them: another may have been learnt meanwhile."""
    how = _conversed(now)
    policy = noted(now, "feedback")["policy"]
    return _conversations(now, "resampling", how.samples * (how.turns + 1), policy=policy)


def comparing(now: Experiment) -> Mapping[str, Any]:
    """Turns less samples, at equal tokens."""
    from tables import at_equal_tokens, repeated

    turns, again = (now.work / "feedback" / name for name in ("feedback", "resampling"))
    return {**at_equal_tokens(turns, again, _conversed(now).turns + 1), **repeated(turns)}


def _conversed(now: Experiment) -> Conversed:
    if now.plan.feedback is None:
        raise UsageError("the plan says nothing of feedback: give it `feedback: {tasks: 100}`")
    return now.plan.feedback


def _conversations(
    now: Experiment, name: str, samples: int, *more: str, policy: str | None = None
) -> Mapping[str, Any]:
    how, folder = _conversed(now), now.work / "feedback" / name
    suite = f"{now.held_out}:{how.tasks}"
    return _tested(now, folder, suite, samples, how.temperature, *more, policy=policy)


def kernelbench(now: Experiment, policy: str | None = None) -> Mapping[str, Any]:
    """One greedy answer to each problem of levels 1 and 2, by level and stratum. policy: the arm
    that answers; None: the one that was learnt last."""
    from strata import stratum
    from tables import by_suite

    from coding_framework.evaluation.suites import load_suite

    policy = policy or now.best
    folder = now.work / "kernelbench" / policy
    now.evaluate(
        policy, KERNELBENCH, 1, 0.0, folder, "--kernelbench-dir", _checkout(now),
    )  # fmt: skip
    tasks = [e.task for s in KERNELBENCH for e in load_suite(s, kernelbench=now.kernelbench).tasks]
    return {"policy": policy, **by_suite(folder, {t.name: stratum(t.reference) for t in tasks})}


def kernelbench_of_sft(now: Experiment) -> Mapping[str, Any]:
    """The same of SFT's policy, which RL began with; it may be the one that was learnt last."""
    if now.best == "sft" and note_of(now, "test").exists():
        return noted(now, "test")
    return kernelbench(now, "sft")


KERNELBENCH = ("kernelbench:1", "kernelbench:2")


def _checkout(now: Experiment) -> Path:
    if now.kernelbench is None:
        raise UsageError("whose KernelBench? give --kernelbench-dir, a checkout of it")
    return now.kernelbench


def searching(now: Experiment) -> Mapping[str, Any]:
    """What was found, by suite; where the time ends, that of all calls so far is in
    search/so_far.json."""
    from search import search, told

    from coding_framework.evaluation.suites import load_suite

    how = now.plan.search
    suites = how.suites or (f"{now.held_out}:{how.tasks}",)
    tasks = {
        suite: [
            e.task for e in load_suite(suite, kernelbench=now.kernelbench, limit=how.tasks).tasks
        ]
        for suite in suites
    }
    model, folder = require(now, now.best), now.work / "search"
    found: dict[str, Any] = {"policy": now.best}
    try:
        with now.served(model, now.best) as server:
            search(
                model, fair_order(list(tasks.values())), how,
                judge=dict(now.plan.judge), folder=folder, seed=now.seed,
                deadline=now.deadline, max_new_tokens=now.plan.sampling.get("max_new_tokens"),
                server=server[1] if server else None, part=now.part,
            )  # fmt: skip
    finally:
        found |= {suite: told(fair_order([of_it]), folder) for suite, of_it in tasks.items()}
        write_json_atomic(folder / "so_far.json", found)
    return found


def fair_order(suites: Sequence[Sequence[Task]]) -> list[Task]:
    """The tasks of all suites, of each every fourth one, then those between them, so that the time
    may end anywhere: what is done then is of the whole length of each suite."""
    strided = [[t for start in (0, 2, 1, 3) for t in suite[start::4]] for suite in suites]
    return [t for row in zip_longest(*strided) for t in row if t is not None]


STAGES: Mapping[str, tuple[tuple[str, Work], ...]] = {
    "sft": (("mixture", mixture), ("train", sft), ("temperature", temperature), ("test", test)),
    "rft": (("train", rft), ("temperature", temperature), ("test", test)),
    "rl": (("train", rl), ("temperature", temperature), ("test", test)),
    "control": (("train", control), ("temperature", temperature), ("test", test)),
    "sizes": (("test", sizes),),
    "people": (("test", people),),
    "candidates": (("test", candidates),),
    "parts": (
        ("cut", parts_cut),
        ("test", parts_test),
        ("again", parts_again),
        ("join", parts_joined),
    ),
    "feedback": (("feedback", feedback), ("resampling", resampling), ("compare", comparing)),
    "search": (("search", searching),),
    "kernelbench": (("test", kernelbench), ("sft", kernelbench_of_sft)),
}


# --- the program ----------------------------------------------------------------------------------


def note_of(now: Experiment, stage: str) -> Path:
    return now.work / "stages" / f"{now.name}.{stage}.json"


def note(now: Experiment, stage: str, seconds: float, result: Mapping[str, Any]) -> None:
    """Leave word of a finished stage."""
    path = note_of(now, stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, {
        "plan": now.plan.digest, "seconds": round(seconds, 1),
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "result": dict(result),
    })  # fmt: skip


def noted(now: Experiment, stage: str) -> Mapping[str, Any]:
    """What a finished stage of the arm left."""
    return json.loads(note_of(now, stage).read_text())["result"]


def run_arm(now: Experiment, until: str | None = None, postpones: bool = False) -> None:
    """The arm's stages from the first that is not finished, to `until` or to the last. Raises
    UsageError where the folder is of another plan, or the arm has no such stage; with `postpones`
    PostponedError where a test has its answers and a server is on the GPU that the judge times
    on."""
    names = [stage for stage, _ in STAGES[now.arm]]
    if until is not None and until not in names:
        raise UsageError(f"{now.arm} has no stage {until}: choose of {', '.join(names)}")
    for stage, work in STAGES[now.arm][: names.index(until or names[-1]) + 1]:
        path = note_of(now, stage)
        if path.exists():
            if json.loads(path.read_text())["plan"] != now.plan.digest:
                raise UsageError(f"{now.work} is of another plan: choose another --work")
            print(f"{now.name}: {stage} is done", file=sys.stderr)
            continue
        started = time.monotonic()
        now.postpones = postpones and stage == "test"
        result = work(now)
        note(now, stage, time.monotonic() - started, result)
        print(f"{now.name}: {stage} is done: {json.dumps(result)[:400]}", file=sys.stderr)


def policies_tested(now: Experiment) -> list[str]:
    """The policies of the arm's tests that are not made yet, in their order."""
    best = now.best
    policies = {
        "kernelbench": {"test": best, "sft": "sft"}, "search": {"search": best},
        "sizes": {"test": best}, "people": {"test": best},
        "candidates": {"test": best}, "parts": {"test": best},
        "feedback": {"feedback": best, "resampling": best},
    }.get(now.arm, {"test": now.name})  # fmt: skip
    tests = [stage for stage, _ in STAGES[now.arm] if stage in policies]
    return [policies[stage] for stage in tests if not note_of(now, stage).exists()]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("what", choices=[*ARMS, "tables", "pack", "unpack", "store", "restore"])
    cli.add_argument("parts", nargs="?", type=Path, help="unpack, restore: the folder that pack or "
                     "store wrote; store: the adapter")  # fmt: skip
    cli.add_argument("--plan", type=Path, default=Path(__file__).with_name("h200.yaml"))
    cli.add_argument("--work", type=Path, default=Path("runs/learning"),
                     help="folder of the whole experiment")  # fmt: skip
    cli.add_argument("--seed", type=int, default=0, help="of rl and control")
    cli.add_argument("--minutes", type=float, help="stop cleanly after so many")
    cli.add_argument("--kernelbench-dir", type=Path, help="a checkout of KernelBench")
    cli.add_argument("--then", nargs="+", default=[], choices=ARMS, metavar="ARM",
                     help="arms that follow in the same call")  # fmt: skip
    cli.add_argument("--server-gpu", type=int, default=0, help="GPU of the plan's server")
    cli.add_argument("--part", type=a_part, default=(1, 1), metavar="K/N", help="search: the tasks "
                     "of this part; beside it others search theirs in the same folder")  # fmt: skip
    cli.add_argument("--until", metavar="STAGE", help="stop after this stage of the arm")
    cli.add_argument("--to", type=Path, help="pack, store: where it goes")
    cli.add_argument("--merge", action="store_true", help="restore: make the whole model, too")
    cli.add_argument("--part-mib", type=float, default=15.0, help="pack: largest part")
    cli.add_argument("--write", type=Path, help="tables: the report's file")
    return cli.parse_args(arguments)


def a_part(text: str) -> tuple[int, int]:
    """2/3: the second of three."""
    number, of = map(int, text.split("/"))
    if not 1 <= number <= of:
        raise ValueError(text)
    return number, of


def main(arguments: list[str] | None = None) -> int:
    return run_script(lambda: work_on(parse(arguments)))


def work_on(args: argparse.Namespace) -> int:
    work = args.work.resolve()
    if args.what == "pack":
        parts = pack(work, args.to or work.with_name(f"{work.name}-parts"), args.part_mib)
        print("\n".join(f"{p} {p.stat().st_size / 2**20:.1f} MiB" for p in parts))
        return EXIT_OK
    if args.what in ("unpack", "store", "restore") and args.parts is None:
        raise UsageError(f"which folder? give the one that `{args.what}` reads")
    if args.what == "unpack":
        print(f"{unpack(args.parts, work)} files")
        return EXIT_OK
    if args.what == "store":
        file = stored(args.parts.resolve(), args.to or HERE / "policy")
        print(f"{file} {file.stat().st_size / 2**20:.1f} MiB")
        return EXIT_OK
    plan = read_plan(args.plan)
    if args.what == "restore":
        arm = begin_with(args.parts, plan, work)
        if args.merge:
            require(arm, arm.name)
        return EXIT_OK
    if args.what == "tables":
        from tables import write_tables

        return EXIT_OK if write_tables(work, plan, args.write) else 1
    checkout = args.kernelbench_dir.resolve() if args.kernelbench_dir else None
    servers = Servers()
    arms = [
        Experiment(
            plan,
            work,
            arm,
            args.seed,
            args.minutes,
            checkout,
            args.server_gpu,
            args.part,
            servers=servers,
        )
        for arm in (args.what, *args.then)
    ]
    servers.needed += [policy for arm in arms for policy in policies_tested(arm)]
    work.mkdir(parents=True, exist_ok=True)
    try:
        later = []
        for arm in arms:
            try:
                run_arm(arm, args.until, postpones=True)
            except PostponedError:
                later.append(arm)
        for arm in later:
            run_arm(arm, args.until)
    finally:
        servers.end()
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())

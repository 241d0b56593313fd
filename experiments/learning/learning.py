"""From the base model to the shipped policy, on from it, and what each policy is worth.

    learning.py ARM [--plan recipe.yaml] [--work DIR]
    learning.py TEST [--policy ARM] [--plan recipe.yaml] [--work DIR] [--kernelbench-dir DIR]
    learning.py restore FOLDER [--work DIR]
    learning.py store DIR/adapters/ARM --to FOLDER

ARM   sft          the mixture of judged and own examples, SFT of the base model on it
      rft          samples of SFT's policy on training tasks that it was not shown, SFT on the best
      rl           RL from SFT's policy on the same tasks; the policy that validates best is kept
TEST  test         held-out modules, at real sizes
      sizes        the same at sizes that no training list has
      people       modules whose authors had not seen our generators
      kernelbench  one greedy answer to each problem of levels 1 and 2

An arm that was stopped goes on with the same command, and so does a test. DIR/adapters has the
policies, rounded so that eight bits hold them: what is tested is what `store` writes for a
repository and `restore` makes an arm of.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from coding_framework.commands.failures import EXIT_OK, run_script
from coding_framework.data.example_store import ExampleStore
from coding_framework.errors import TrainingError, UsageError, first_complaint
from coding_framework.paths import write_atomic
from coding_framework.store.folder import RejectionFolder, RLFolder, SFTFolder
from coding_framework.store.model_card import card_of
from coding_framework.types import (
    Config,
    DeviceChoice,
    PromptVersion,
    Role,
    TaskPool,
    TrainingExample,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Plan(Config):
    """What is trained and tested, and how. Maker: a person. Consumer: this program."""

    base_model: str
    device: DeviceChoice = "auto"
    pool: TaskPool = "modules"
    """What is trained and tested on: modules; functions in a test."""
    prompts: PromptVersion = "v3"
    mixture: Mapping[str, Any] = Field(default_factory=dict)
    """Flags of `cuda-rl data mixture`, of which `mistakes` is a compressed file beside the plan;
    none: SFT learns functions alone (`sft.num_examples`)."""
    sft: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `SFTConfig`."""
    rft: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `RejectionOptions`."""
    rl: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `MultiTurnRLConfig`."""
    tasks: int = Field(ge=1)
    """Training tasks that RFT and RL draw from."""
    skip_tasks: int = Field(default=0, ge=0)
    """So many before them are left out: those that the mistakes were made on."""
    test: Mapping[str, Any] = Field(default_factory=dict)
    """Held-out tasks (`tasks`), samples of each and their temperature."""
    sampling: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `EvalOptions` for all tests: limits of tokens, concurrency."""
    serve: str | None = None
    """Command of a server that speaks OpenAI's protocol at {port}, for samples and tests; {model}
    and {python} stand for the folder and the interpreter. It ends before answers are judged, so
    that one GPU is enough. None: the model answers in the process that asks."""
    judge: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `JudgeSettings` for all judging but RL's, which is in `rl.judge_args`."""


def read_plan(path: Path) -> Plan:
    """The plan of a file. Raises UsageError."""
    try:
        return Plan.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as e:
        raise UsageError(f"the plan {path} cannot be read ({e.strerror}): give a file") from e
    except yaml.YAMLError as e:
        raise UsageError(f"the plan {path} is no YAML: mend it") from e
    except ValidationError as e:
        raise UsageError(f"the plan {path}: {first_complaint(e, '')}") from e


@dataclass(frozen=True)
class Experiment:
    """What arms and tests share."""

    plan: Plan
    work: Path
    kernelbench: Path | None = None
    """A checkout of KernelBench."""

    def model(self, arm: str) -> Path:
        return self.work / "models" / arm

    def adapter(self, arm: str) -> Path:
        return self.work / "adapters" / arm

    def run(self, *command: str | Path) -> None:
        """A command of the project. Raises TrainingError where it failed."""
        words = [str(word) for word in command]
        print("$", " ".join(words), file=sys.stderr, flush=True)
        if status := subprocess.run(words, cwd=ROOT, check=False).returncode:
            raise TrainingError(f"`{' '.join(words[1:4])}` ended with {status}: see above")

    def script(self, name: str, recipe: Mapping[str, Any], *flags: str | Path) -> None:
        """A root script with a recipe."""
        file = self.work / f"{name.removesuffix('.py')}.yaml"
        write_atomic(file, yaml.safe_dump({"device": self.plan.device, **recipe}))
        self.run(sys.executable, ROOT / name, "--config", file, *flags)

    def cuda_rl(self, *words: str | Path) -> None:
        self.run(sys.executable, "-m", "coding_framework.cli", *words)

    def asked(self, model: Path, *words: str | Path, first: str) -> None:
        """A command that asks the model and judges what it answers. first: the flag with which it
        only asks, while the plan's server is there."""
        if self.plan.serve is not None:
            with self.served(model) as url:
                self.cuda_rl(*words, "--server", url, first)
                words = (*words, "--server", url)
        self.cuda_rl(*words)

    @contextmanager
    def served(self, model: Path) -> Iterator[str]:
        """The address of a server that has the model. Raises TrainingError where it does not
        start."""
        assert self.plan.serve is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        told = {"python": sys.executable, "model": str(model), "port": str(port)}
        log = self.work / f"serve-{model.name}.log"
        with log.open("ab") as file:
            words = shlex.split(self.plan.serve.format(**told))
            server = subprocess.Popen(words, stdout=file, stderr=file, start_new_session=True)
        url = f"http://127.0.0.1:{port}/v1"
        try:
            while not _answers(f"{url}/models"):
                if server.poll() is not None:
                    raise TrainingError(f"the server of {model} does not start: see {log}")
                time.sleep(0.5)
            yield url
        finally:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(server.pid, sign)
                    server.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


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


# --- arms -----------------------------------------------------------------------------------------


def mixture(now: Experiment) -> Path | None:
    """SFT's examples; None where the plan has no mixture. Kernels without a receipt are judged
    first, unless the plan takes them as synthesised."""
    if not now.plan.mixture:
        return None
    folder = now.work / "mixture"
    if not (folder / "manifest.json").exists():
        given = {**now.plan.mixture, "mistakes": unpacked_mistakes(now)}
        now.cuda_rl("data", "mixture", "--output", folder, *flags(given))
    return folder / "examples.jsonl"


def unpacked_mistakes(now: Experiment) -> Path:
    """Repairs of an earlier policy's own mistakes, as the mixture takes them."""
    lines = lzma.decompress((HERE / now.plan.mixture["mistakes"]).read_bytes()).splitlines()
    path = now.work / "mistakes.jsonl"
    ExampleStore.write(path, map(TrainingExample.model_validate_json, lines))
    return path


def sft(now: Experiment) -> None:
    """SFT of the base model on the mixture."""
    examples = mixture(now)
    drawn = {} if examples is None else dict.fromkeys(("num_examples", "optimizer_examples"), 0)
    recipe = {
        "prompts": now.plan.prompts, "held_out_tasks": 0, "wandb": False,
        **drawn, "extra_examples": str(examples) if examples else None, **now.plan.sft,
    }  # fmt: skip
    folder = now.work / "sft"
    now.script(
        "run_sft_training.py", {"sft": recipe, "base_model": now.plan.base_model},
        "--output-dir", folder,
    )  # fmt: skip
    keep(now, "sft", SFTFolder(folder).adapter(Role.GENERATOR), None)


def rft(now: Experiment) -> None:
    """Samples of training tasks by SFT's policy, then SFT on the best of them."""
    model, folder = require(now, "sft"), RejectionFolder(now.work / "rft")
    how = {
        "pool": now.plan.pool, "prompts": now.plan.prompts,
        "tasks": now.plan.tasks, "skip_tasks": now.plan.skip_tasks, **now.plan.rft,
    }  # fmt: skip
    words = ("rft", model, "--output-dir", folder.root, *flags({**how, **now.plan.judge}))
    now.asked(model, *words, "--sample-only", first="--ask-only")
    if not json.loads(folder.summary.read_text())["examples"]:
        raise TrainingError("no answer is right: there is nothing to learn from")
    now.cuda_rl(*words)
    keep(now, "rft", folder.sft.adapter(Role.GENERATOR), "sft")


def rl(now: Experiment) -> None:
    """RL from SFT's policy; of its policies the one that validates best is kept."""
    from coding_framework.store.checkpoints import whole_checkpoints
    from coding_framework.training.verl.export import export_adapter

    model, run = require(now, "sft"), RLFolder(now.work / "rl")
    recipe = {
        "prompts": now.plan.prompts, "wandb": False, "curriculum": "informative", **now.plan.rl,
    }  # fmt: skip
    now.script(
        "run_multiturn_rl_training.py", {"rl": recipe},
        "--generator-checkpoint", model, "--output-dir", run.root,
        "--pool", now.plan.pool, "--num-tasks", str(now.plan.tasks),
        "--skip-tasks", str(now.plan.skip_tasks),
    )  # fmt: skip
    result = json.loads(run.result.read_text())
    if not result["best_step"]:
        raise TrainingError("no step validated better than SFT's policy: that one stays")
    last = result["best_step"] == len(result["steps"])
    actor = whole_checkpoints(run.checkpoints)[-1] / "actor" if last else run.best
    export_adapter(actor, run.root / "adapter", str(model))
    keep(now, "rl", run.root / "adapter", "sft")


def keep(now: Experiment, arm: str, adapter: Path, start: str | None) -> None:
    """The arm's adapter as it is stored, and its model made of that. start: the arm whose policy it
    was trained from; None: the base model."""
    from safetensors.torch import load_file
    from small_adapter import WEIGHTS, put, rounded

    shutil.rmtree(now.adapter(arm), ignore_errors=True)
    put({k: rounded(v) for k, v in load_file(adapter / WEIGHTS).items()}, adapter, now.adapter(arm))
    write_atomic(now.adapter(arm) / "start.json", json.dumps({"start": start, "trained": True}))
    shutil.rmtree(now.model(arm), ignore_errors=True)
    require(now, arm)


def require(now: Experiment, arm: str) -> Path:
    """The whole model of an arm, made of its adapters where it is not there. Raises UsageError
    where the arm has not been trained."""
    model, adapter = now.model(arm), now.adapter(arm)
    if (model / "config.json").is_file():
        return model
    try:
        start = json.loads((adapter / "start.json").read_text())["start"]
    except OSError as e:
        raise UsageError(f"there is no {adapter}: run `{arm}` first, or `restore` it") from e
    from coding_framework.agents.models import resolve_model
    from coding_framework.agents.policies import load_model
    from coding_framework.store.folder import replaced
    from coding_framework.store.model_card import write_card

    base = resolve_model(now.plan.base_model) if start is None else require(now, start)
    card = card_of(adapter)
    model.parent.mkdir(parents=True, exist_ok=True)
    merged, tokenizer = load_model(base, adapter=adapter, dtype="float32", device="cpu")
    with replaced(model) as fresh:
        merged.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        if card is not None:
            write_card(fresh, card.merged())
    return model


# --- tests ----------------------------------------------------------------------------------------


def evaluate(now: Experiment, policy: str, test: str) -> None:
    """An arm's policy on the suites of a test, by the prompts that its card names."""
    model, how = require(now, policy), now.plan.test
    card = card_of(model)
    greedy = test in ("people", "kernelbench")
    heat, samples = (0.0, 1) if greedy else (how.get("temperature", 0.2), how.get("samples", 1))
    words = [
        "eval", model, *(word for suite in suites(now, test) for word in ("--suite", suite)),
        "--prompts", card.prompts if card and card.prompts else now.plan.prompts,
        "--samples", str(samples), "--temperature", str(heat),
        "--output-dir", now.work / test / policy, "--no-wandb",
        "--k", "1" if samples == 1 else f"1,{samples}",
        *flags({**now.plan.sampling, **now.plan.judge, "kernelbench_dir": now.kernelbench}),
    ]  # fmt: skip
    served = ["--tokenizer", str(model)] if now.plan.serve is not None else []
    now.asked(model, *words, *served, first="--ask-only")


def suites(now: Experiment, test: str) -> Sequence[str]:
    """Suites of `cuda-rl eval`. Raises UsageError where KernelBench's checkout is not named."""
    modules, count = now.plan.pool == "modules", now.plan.test.get("tasks", 400)
    if test == "kernelbench":
        if now.kernelbench is None:
            raise UsageError("whose KernelBench? give --kernelbench-dir, a checkout of it")
        return "kernelbench:1", "kernelbench:2"
    if test == "people":
        folders = (ROOT / "benchmarks" / "modules_people_use").iterdir()
        return sorted(str(folder) for folder in folders if folder.is_dir())
    if test == "sizes":
        return (f"{'modules-other-sizes' if modules else 'train-shapes'}:{count}",)
    return (f"{'modules' if modules else 'held-out'}:{count}",)


# --- the program ----------------------------------------------------------------------------------

ARMS: Mapping[str, Callable[[Experiment], None]] = {"sft": sft, "rft": rft, "rl": rl}
TESTS = ("test", "sizes", "people", "kernelbench")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("what", choices=[*ARMS, *TESTS, "store", "restore"])
    cli.add_argument("folder", nargs="?", type=Path, help="store: the adapter; restore: where one "
                     "was stored")  # fmt: skip
    cli.add_argument("--plan", type=Path, default=HERE / "recipe.yaml")
    cli.add_argument("--work", type=Path, default=Path("outputs/learning"),
                     help="folder of all arms and tests")  # fmt: skip
    cli.add_argument("--policy", default="sft", choices=ARMS, help="whose policy is tested")
    cli.add_argument("--kernelbench-dir", type=Path, help="a checkout of KernelBench")
    cli.add_argument("--to", type=Path, default=HERE / "policy", help="store: where it goes")
    return cli.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    return run_script(lambda: work_on(parse(arguments)))


def work_on(args: argparse.Namespace) -> int:
    from small_adapter import restore, store

    work = args.work.resolve()
    if args.what in ("store", "restore"):
        if args.folder is None:
            raise UsageError(f"which folder? give the one that `{args.what}` reads")
        if args.what == "store":
            print(store(args.folder.resolve(), args.to))
        else:
            restore(args.folder, work / "adapters" / "sft")
        return EXIT_OK
    checkout = args.kernelbench_dir.resolve() if args.kernelbench_dir else None
    now = Experiment(read_plan(args.plan), work, checkout)
    work.mkdir(parents=True, exist_ok=True)
    if args.what in ARMS:
        ARMS[args.what](now)
    else:
        evaluate(now, args.policy, args.what)
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())

"""Where everything of a run lies: the names of its files and folders stand here alone.

    a whole run (`cuda-rl quickstart`)      stages.json, evaluations/LABEL/, summary.json, ...
      sft_checkpoints/                      an SFT run: config.json, metrics.jsonl, model/, ...
      rl_checkpoints/                       an RL run: config.json, steps.jsonl, result.json, ...
        checkpoints/global_step_N/          what RL resumes from (`store.checkpoints`)
        attempts/NNN/rollouts/step_N.jsonl  its conversations, of each start of the trainer
        roles/ROLE/                         with a policy a role: an RL run of each
    any of them                             run.json, heartbeat.json, system.jsonl, judge.jsonl and
                                            alerts.jsonl: what it tells of itself

Names never change: a run that an older version began is resumed, and its files are read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_framework.errors import UsageError
from coding_framework.paths import write_error
from coding_framework.types import Role


@dataclass(frozen=True)
class _Below:
    """A fixed path below a folder's root."""

    name: str

    def __get__(self, folder: _Folder, owner: type | None = None) -> Path:
        return folder.root / self.name


@dataclass(frozen=True)
class _Folder:
    root: Path


class WatchFolder(_Folder):
    """What any run tells of itself while it goes on (`store.run_status`), beside what it is there
    for."""

    identity = _Below("run.json")
    heartbeat = _Below("heartbeat.json")
    system = _Below("system.jsonl")
    system_before = _Below("system.1.jsonl")
    """Older samples of the machine, thinned."""
    judge = _Below("judge.jsonl")
    alerts = _Below("alerts.jsonl")


class SolveFolder(_Folder):
    """What `cuda-rl solve` leaves."""

    kernel = _Below("kernel.cu")
    verdict = _Below("verdict.json")
    transcript = _Below("transcript.json")
    workflow = _Below("checkpoint.sqlite")
    """LangGraph's own checkpoint, by which a stopped conversation goes on."""

    def part(self, key: str) -> Path:
        """The kernel of a part of the task (`--parts`)."""
        return self.root / "parts" / f"{key}.cu"


class SFTFolder(_Folder):
    """A run of supervised fine-tuning."""

    config = _Below("config.json")
    """What the run was asked for and, once it is finished, its result."""
    metrics = _Below("metrics.jsonl")
    """A line a step and an epoch (`store.training_log`)."""
    checkpoints = _Below("checkpoints")
    """transformers' own; removed when the run is finished."""
    roles = _Below("roles")
    """A run for each role, where each has an adapter of its own."""
    model = _Below("model")
    """The base model with the adapter merged."""
    evaluations = _Below("evaluations")

    def adapter(self, role: Role) -> Path:
        return self.root / role.value


class AttemptFolder(_Folder):
    """One start of RL's trainer. A rerun makes another one, since it repeats the steps after the
    last checkpoint."""

    metrics = _Below("metrics.jsonl")
    """verl's."""
    rollouts = _Below("rollouts")
    validation = _Below("validation")
    """Conversations of validations, stored as rollouts of the step after which they were."""
    log = _Below("trainer.log")
    spec = _Below("episode_spec.json")
    handed_over = _Below("handed_over.pkl")
    """The objects that a caller handed to the trainer, for its workers."""


class RLFolder(_Folder):
    """A run of RL; with a policy a role also the run of each role."""

    config = _Below("config.json")
    prompts = _Below("prompts.jsonl")
    """The data set that verl reads."""
    validation_prompts = _Below("validation_prompts.jsonl")
    """Likewise that of validations."""
    steps = _Below("steps.jsonl")
    validations = _Below("validations.jsonl")
    """What each validation found."""
    result = _Below("result.json")
    lock = _Below("run.lock")
    log = _Below("log.jsonl")
    cache = _Below("cache")
    judge = _Below("judge")
    """What the judges of the run share."""
    phases = _Below("phases.json")
    """Which phases are done, of a run with a policy a role."""
    checkpoints = _Below("checkpoints")
    best = _Below("checkpoints/best")
    """The weights of the best policy so far; none where that is the start model."""
    best_step = _Below("checkpoints/best_step")
    """After how many steps that was."""
    start_model = _Below("start_model")
    """The whole model that RL started from, where it was given an adapter."""
    final_model = _Below("final_model")

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"global_step_{step}"

    def best_model(self, step: int) -> Path:
        return self.root / f"best_model_episode_{step}"

    def adapter(self, step: int) -> Path:
        """Of a role's run, at the end of the phase that ends with this step."""
        return self.root / f"adapter_step_{step}"

    def start_model_of(self, role: Role) -> Path:
        """Likewise of a role that starts from a checkpoint of its own."""
        return self.root / f"start_model_{role.value}"

    def role(self, role: Role) -> RLFolder:
        return RLFolder(self.root / "roles" / role.value)

    def roles(self) -> list[RLFolder]:
        """The runs of roles that there are."""
        return [RLFolder(path) for path in sorted(self.root.glob("roles/*"))]

    def attempts(self) -> list[AttemptFolder]:
        """All starts of the trainer, oldest first."""
        return [AttemptFolder(path) for path in sorted(self.root.glob("attempts/*"))]

    def new_attempt(self) -> AttemptFolder:
        """The folder of another start; it is made."""
        attempt = AttemptFolder(self.root / "attempts" / f"{len(self.attempts()):03d}")
        attempt.root.mkdir(parents=True)
        return attempt


class RunFolder(_Folder):
    """A whole run, from the base model to the report."""

    stages = _Below("stages.json")
    lock = _Below(".lock")
    log = _Below("log.jsonl")
    summary = _Below("summary.json")
    report = _Below("report.html")
    evaluations = _Below("evaluations")

    def evaluation(self, label: str) -> Path:
        """An evaluation, as `cuda-rl eval` leaves one (`EvalFolder`)."""
        return self.evaluations / label

    @property
    def sft(self) -> SFTFolder:
        return SFTFolder(self.root / "sft_checkpoints")

    @property
    def rft(self) -> RejectionFolder:
        return RejectionFolder(self.root / "rft")

    @property
    def rl(self) -> RLFolder:
        return RLFolder(self.root / "rl_checkpoints")


class RejectionFolder(_Folder):
    """A run of rejection fine-tuning."""

    samples = _Below("samples")
    """The answers and their verdicts (`EvalFolder`)."""
    examples = _Below("examples.jsonl")
    """The kernels that were chosen, as SFT's examples."""
    evidence = _Below("task_evidence.jsonl")
    """How the policy did on each task; RL's --task-evidence."""
    summary = _Below("summary.json")

    @property
    def sft(self) -> SFTFolder:
        """The training on them."""
        return SFTFolder(self.root / "sft")


class EvalFolder(_Folder):
    """A run of `cuda-rl eval`."""

    manifest = _Below("eval.json")
    """What the run is: model, suites, sampling, judge."""
    lock = _Below("eval.lock")
    answers = _Below("answers.jsonl")
    """A line a turn, when the policy has answered."""
    verdicts = _Below("verdicts.jsonl")
    """A line a verdict, when the judge has given it."""
    conversations = _Below("conversations.jsonl")
    records = _Below("records.jsonl")
    """A flat line a sample: these three are made from the two above."""
    summary = _Below("summary.json")
    report = _Below("report.html")
    plots = _Below("plots")


def evaluations_in(folder: Path) -> dict[str, Path]:
    """Label -> the file of its conversations, of evaluations below a folder. Runs of before 0.2
    left them in LABEL.jsonl, beside or in place of the evaluation's own folder."""
    own = [path for path in folder.glob("*/conversations.jsonl") if not path.parent.is_symlink()]
    found = {path.stem: path for path in folder.glob("*.jsonl")}
    found |= {path.parent.name: path for path in own}
    return dict(sorted(found.items()))


def rollouts_file(rollouts: Path, step: int) -> Path:
    """Where the conversations are that a training step asked for."""
    return rollouts / f"step_{step:06d}.jsonl"


def learnt_file(rollouts: Path, step: int) -> Path:
    """Where the groups are named that a step learnt from, if they are not those it asked for."""
    return rollouts / f"learnt_{step:06d}.json"


def is_model(folder: str | Path) -> bool:
    """Whether the folder holds a whole model."""
    return (Path(folder) / "config.json").is_file()


def model_in(folder: Path) -> Path:
    """The model that a training run in a folder ended with, else the folder itself."""
    run = RunFolder(folder)
    if is_model(folder):
        return folder
    return next((p for p in (run.rl.final_model, run.sft.model) if p.is_dir()), folder)


def is_adapter(folder: str | Path) -> bool:
    """Whether the folder holds a PEFT adapter."""
    return (Path(folder) / "adapter_config.json").is_file()


def base_of_adapter(adapter: str | Path) -> str:
    """The model that a PEFT adapter belongs to, a folder or a name."""
    config = json.loads((Path(adapter) / "adapter_config.json").read_text(encoding="utf-8"))
    return str(config["base_model_name_or_path"])


def run_of_checkpoint(actor: Path) -> RLFolder | None:
    """The RL run that the weights in a checkpoint are of, or its best ones; None: of none."""
    root = next((p for p in actor.absolute().parents if p.name == "checkpoints"), None)
    return RLFolder(root.parent) if root is not None else None


def require_same_run(root: Path, found: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raises UsageError, with the first three differences, where the settings that the run in
    `root` was begun with are not those that it would go on with."""
    different = differences(found, mine)
    if different:
        raise UsageError(
            f"{root} holds a run with other settings ({told(different)}): choose another "
            f"--output-dir, or delete {root}"
        )


def differences(found: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """A few words for each setting that differs, and none for those that do not."""
    was, now = _flat(found), _flat(mine)
    return [
        f"{name} was {_shown(was, name)} and is {_shown(now, name)} now"
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    ]


def told(different: Sequence[str]) -> str:
    """The first three differences, and how many more there are."""
    more = len(different) - 3
    return "; ".join([*different[:3], *([f"and {more} more"] if more > 0 else [])])


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return textwrap.shorten(repr(settings[name]), 80) if name in settings else "not set"


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names, so that those that differ can be told."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


@contextlib.contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `target` when the block ends well.

    A kill leaves the old folder or the new one or, for the moment between two renames, none. Raises
    InfrastructureError where it cannot be written.
    """
    fresh, old = (target.with_name(f".{target.name}.{end}") for end in ("new", "old"))
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        yield fresh
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as e:
        raise write_error(target, e) from e
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def copy_linked(folder: Path, target: Path, *, leave_out: str = "") -> None:
    """`target` as a copy of a folder whose files nothing changes any more, by hard links: it takes
    no time and no space. What was there is replaced. leave_out: a pattern of names."""
    with replaced(target) as fresh:
        ignore = shutil.ignore_patterns(leave_out)
        shutil.copytree(folder, fresh, copy_function=_link, ignore=ignore, dirs_exist_ok=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)
    return target


@contextlib.contextmanager
def locked(
    path: Path, refusal: Callable[[str], str], take: Callable[..., None] = fcntl.lockf
) -> Iterator[None]:
    """One process at a time in the block; the kernel drops the lock of a killed one.

    refusal: what to say where another process holds the lock, of its id. take: `fcntl.lockf`, whose
    lock forked children do not inherit, so that what outlives a killed run does not keep it; or
    `fcntl.flock`, whose lock also keeps another thread of this process out. Raises UsageError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+", encoding="utf-8")
    except OSError as e:
        raise write_error(path, e) from e
    with lock:
        try:
            take(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as e:
            lock.seek(0)
            raise UsageError(refusal(lock.read().strip() or "unknown")) from e
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@contextlib.contextmanager
def one_at_a_time(guarded: Path, wait: Callable[[str], object]) -> Iterator[None]:
    """One process and thread at a time in the block, which reads `guarded`, changes it and writes
    it back; the others wait. The lock lies beside it, under its name. wait: told, once, by who has
    waited for a second. Raises InfrastructureError where the lock cannot be made."""
    path = guarded.with_name(f".{guarded.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a")
    except OSError as e:
        raise write_error(path, e) from e
    with lock:
        until: float | None = time.monotonic() + 1.0
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if until is not None and time.monotonic() > until:
                    wait(f"waiting for {path}, which another process holds")
                    until = None
                time.sleep(0.01)
        yield

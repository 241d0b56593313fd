"""Multi-turn RL with verl's own trainer on Ray: `MultiAgentVERLTrainer`.

This side builds the files (dataset, episode spec), starts verl's trainer as a child process,
watches its metrics and keeps the best policy. It imports neither verl nor Ray; what they import
from us is under `training/verl/`.

Guaranteed: a run that was killed goes on from its last whole checkpoint when the same call is made
again; an interrupt leaves no process behind; a fault of ours masks a turn and never scores it 0; a
run whose judge mostly fails stops with the reason. Not guaranteed: that a resumed run is bit-equal
to an uninterrupted one (sums of floats depend on how requests were batched).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import structlog

from coding_framework.errors import TrainingError, UsageError
from coding_framework.monitoring.memory import PeakMemory
from coding_framework.monitoring.progress import Progress
from coding_framework.monitoring.wandb_sink import WandbSink, wandb_wanted
from coding_framework.orchestration.turn import ConversationConfig, RewardFn
from coding_framework.paths import write_atomic
from coding_framework.store import checkpoints
from coding_framework.store.conversations import RolloutCounter, rollouts_file
from coding_framework.store.records import StepRecord
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.rl_result import Progression, RLResult
from coding_framework.training.role_phases import train_in_phases
from coding_framework.training.verl.dataset import prompt_order, write_dataset
from coding_framework.training.verl.episode_spec import episode_spec, specialization
from coding_framework.training.verl.machine import require_answers, require_devices, require_room
from coding_framework.training.verl.overrides import RunPaths
from coding_framework.training.verl.process import (
    TrainerProcess,
    ray_temp_folder,
    trainer_environment,
)
from coding_framework.training.verl.spec import write_spec
from coding_framework.training.verl.steps import (
    WORSE_STEPS,
    got_worse,
    paid_for_compiling,
    read_metrics,
    step_record,
)
from coding_framework.types import Role, Task

__all__ = ["MultiAgentVERLTrainer", "MultiTurnRLConfig", "RLResult", "StepRecord", "with_dtype"]

_ALSO_HERE = {
    "AgentSpecializer": "coding_framework.training.agent_specializer",
    "CUDAPitfallDetector": "coding_framework.cuda.advice.pitfalls",
    "CUDASafetyAnalyzer": "coding_framework.cuda.safety_wrapper",
    "CurriculumManager": "coding_framework.data.curriculum_manager",
    "SakanaDataLoader": "coding_framework.data.sakana_loader",
}
"""Names that users import from here as well; imported when asked for, since training itself needs
none of them (and may not know the judge)."""

log = structlog.get_logger(__name__)

POLL_S = 1.0
MEMORY_INTERVAL_S = 10.0
"""Reading the shares of all pages of a dozen processes costs them a quarter of a second."""
FAULT_DOUBT = 0.01
"""A run ends where so many faults would come by chance, at the share that is allowed, less often
than this: 3 of 20 turns or 5 of 100, where 1% is."""
WANDB_PROJECT = "CUDA-MultiTurn-RL"


class HasConversationConfig(Protocol):
    """What the trainer needs of a conversation manager: when a conversation ends."""

    @property
    def config(self) -> ConversationConfig: ...


def __getattr__(name: str) -> Any:
    if name in _ALSO_HERE:
        return getattr(import_module(_ALSO_HERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _TrainerEndedError(TrainingError):
    """verl's trainer ended before the last step."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether another start may succeed: the work had begun, or the machine was overloaded."""


class _Attempt:
    """Folders of one start of the trainer; a rerun makes a new one."""

    def __init__(self, output: Path) -> None:
        root = output / "attempts"
        number = len(list(root.glob("*"))) if root.exists() else 0
        self.folder = root / f"{number:03d}"
        self.folder.mkdir(parents=True)
        self.metrics = self.folder / "metrics.jsonl"
        self.rollouts = self.folder / "rollouts"
        self.log = self.folder / "trainer.log"
        self.spec = self.folder / "episode_spec.json"


class MultiAgentVERLTrainer:
    """Trains one shared policy for all roles, or each role's in alternation, by verl.

    Args:
        config: How the run goes.
        conversation_manager: Its `config` says when conversations end; None: `config.max_turns`
            and `config.stop_reward` do.
        reward_function: Named by its preset (`preset.name`), since it is built again in the
            workers; None: `config.reward`, else `config.reward_preset`.
        tasks: Training tasks.
    """

    def __init__(
        self,
        config: MultiTurnRLConfig,
        conversation_manager: HasConversationConfig | None = None,
        reward_function: RewardFn | None = None,
        *,
        tasks: Sequence[Task],
    ) -> None:
        self._config = with_dtype(config)
        self._given = (conversation_manager, reward_function)
        self._tasks = tasks
        if not (Path(config.model_path) / "config.json").exists():
            raise UsageError(
                f"model_path {config.model_path!r} is not a Hugging Face folder (no config.json)"
            )
        self._output = Path(config.output_dir).resolve()
        self._conversation = (
            conversation_manager.config.model_copy(update={"max_turns": config.max_turns})
            if conversation_manager is not None
            else ConversationConfig(max_turns=config.max_turns, stop_reward=config.stop_reward)
        )
        preset = getattr(getattr(reward_function, "preset", None), "name", config.reward_preset)
        self._preset: str = preset
        self._reward = config.reward if reward_function is None else None
        specialization(self._config, preset)  # refused here rather than in a worker

    async def train(self) -> RLResult:
        """Run to the last step, from the last whole checkpoint where there is one.

        Raises:
            TrainingError: where verl ends before the last step, or the judge mostly fails; the
                message names the reason and the log.
        """
        require_devices(self._config)
        self._output.mkdir(parents=True, exist_ok=True)
        with _run_lock(self._output):
            if self._config.policy == "per_role" and self._config.phase is None:
                return await train_in_phases(self._config, self._train_phase)
            for restart in range(self._config.max_restarts + 1):
                try:
                    with ray_temp_folder() as ray_temp:
                        return await self._train(ray_temp)
                except _TrainerEndedError as e:
                    self._require_machine(e)
                    if not e.may_pass or restart == self._config.max_restarts:
                        raise
                    log.warning("rl_restarted", restart=restart + 1, reason=str(e))
        raise AssertionError("unreachable: the last start returns or raises")

    def _require_machine(self, ended: _TrainerEndedError) -> None:
        """Raises TrainingError where the machine is why verl ended; what verl said is logged."""
        checkpoints.prune(self._output / "checkpoints")
        try:
            require_room(self._output)
            require_answers(self._config)
        except TrainingError:
            log.warning("rl_ended", reason=str(ended))
            raise

    async def _train_phase(self, config: MultiTurnRLConfig) -> RLResult:
        return await MultiAgentVERLTrainer(config, *self._given, tasks=self._tasks).train()

    async def _train(self, ray_temp: Path) -> RLResult:
        started = time.monotonic()
        config, root = self._config, self._output / "checkpoints"
        resume = checkpoints.latest_checkpoint(root, config.num_gpus * config.num_nodes)
        checkpoints.prune(root)
        done = checkpoints.step_of(resume) if resume is not None else 0
        self._complete_steps(done)
        peak = 0.0
        if done < config.last_step:
            if resume is not None:
                require_room(self._output)
            attempt = _Attempt(self._output)
            paths = RunPaths(
                dataset=self._output / "prompts.jsonl",
                checkpoints=root,
                ray_temp=ray_temp,
                resume_from=resume,
            )
            self._write_inputs(attempt, paths)
            environment = trainer_environment(
                config, attempt.spec, attempt.metrics, self._output, os.environ
            )
            process = TrainerProcess(config, paths, environment, attempt.log)
            async with process:
                with PeakMemory(process.pid, MEMORY_INTERVAL_S) as memory:
                    await self._watch(process, attempt, done)
                peak = memory.peak_gib
        return self._finish(root, done, time.monotonic() - started, peak)

    def _write_inputs(self, attempt: _Attempt, paths: RunPaths) -> None:
        config = self._config
        drawn = config.prompts_in_file if config.curriculum is None else len(self._tasks)
        write_dataset(prompt_order(self._tasks, drawn, config.seed), paths.dataset)
        spec = episode_spec(
            config,
            self._conversation,
            self._reward,
            self._preset,
            output=self._output,
            rollouts=attempt.rollouts,
            resume=paths.resume_from,
        )
        write_spec(spec, attempt.spec)
        write_atomic(self._output / "config.json", config.model_dump_json(indent=1))

    async def _watch(self, process: TrainerProcess, attempt: _Attempt, done: int) -> None:
        """Follow the metrics until the trainer ends; keep the best policy's weights."""
        config = self._config
        seen: dict[int, StepRecord] = {}
        counter = RolloutCounter(attempt.rollouts)
        stall = _Stall(config.stall_limit_s, attempt.log)
        with (
            Progress(self._title(), config.last_step, "steps", done=done) as progress,
            WandbSink(
                WANDB_PROJECT,
                self._output,
                config.model_dump(mode="json"),
                wanted=wandb_wanted(config.wandb),
            ) as wandb,
        ):
            code: int | None = None
            trouble = ""
            while code is None:
                code = await process.wait(POLL_S)
                for step, metrics in read_metrics(attempt.metrics).items():
                    if step in seen:
                        continue
                    seen[step] = step_record(step, metrics, attempt.rollouts, self._trained)
                    self._note_step(seen[step])
                    trouble = trouble or self._warn_of_trouble()
                    wandb.log(step, seen[step].model_dump(mode="json"))
                    _check_faults(list(seen.values()), config.max_fault_share, attempt.log)
                last = max(seen, default=done)
                ended = counter.count(last + 1)
                stall.check((last, ended))
                note = self._activity(last, ended, seen.get(last))
                progress.update(last, f"{trouble}, {note}" if trouble else note)
        if last < config.last_step:
            raise _TrainerEndedError(
                f"verl ended with code {code} after step {last} of {config.last_step}: "
                f"{last_error(attempt.log)} (log: {attempt.log})",
                may_pass=last > done or counter.count(last + 1) > 0 or slow_start(attempt.log),
            )
        if code != 0:
            log.warning("verl_ended_late", code=code, log=str(attempt.log))

    def _warn_of_trouble(self) -> str:
        """Say so where the policy solves less than at the start (not with a curriculum, whose tasks
        become harder), or learns to compile and nothing else; the words for the progress line."""
        steps = self._stored_steps()
        if self._config.curriculum is None and got_worse(steps):
            log.warning(
                "policy_got_worse",
                first_steps=[s.solved_rate for s in steps[:WORSE_STEPS]],
                last_steps=[s.solved_rate for s in steps[-WORSE_STEPS:]],
                advice="stop, and start again in another folder with a lower --learning-rate",
            )
            return "WORSE THAN AT THE START"
        if paid_for_compiling(steps):
            log.warning(
                "policy_only_compiles",
                compile_rates=[s.compile_rate for s in steps[-WORSE_STEPS:]],
                solved_rates=[s.solved_rate for s in steps[-WORSE_STEPS:]],
                advice="more and more compiles and nothing is correct: start from an SFT, or with "
                "--reward-preset correct, which pays for correct kernels alone",
            )
            return "IT ONLY COMPILES"
        return ""

    def _activity(self, last: int, ended: int, record: StepRecord | None) -> str:
        """What is going on, for the progress line."""
        said = [_note(record)] if record is not None else []
        if ended:
            of = self._config.conversations_per_step
            doing = f"{ended}/{of} conversations" if ended < of else "updating the policy"
            if self._config.algorithm == "dapo":  # it draws as many as it takes
                doing = f"{ended} conversations"
            said.append(f"step {last + 1}: {doing}")
        elif record is None:
            said.append("starting Ray and the model")
        return ", ".join(said)

    def _note_step(self, record: StepRecord) -> None:
        """Store the step, and its policy where it was paid best so far."""
        log.info("rl_step", **record.model_dump(exclude_none=True))
        before = [r for r in self._stored_steps() if r.step < record.step]
        self._store_steps([*before, record])
        # Step k's rollouts were sampled from the policy after k - 1 steps.
        policy_step = record.step - 1
        rewards = [r.reward_mean for r in before if r.step > 1 and r.reward_mean is not None]
        folder = self._output / "checkpoints" / f"global_step_{policy_step}"
        if record.reward_mean is None or not checkpoints.is_whole(folder):
            return
        if not rewards or record.reward_mean > max(rewards):
            checkpoints.keep_as(folder, self._output / "checkpoints" / "best")
            write_atomic(self._output / "checkpoints" / "best_step", str(policy_step))

    def _complete_steps(self, done: int) -> None:
        """Records of the steps up to `done`: a kill may have come between a checkpoint and its
        record, and records after the checkpoint are of steps that will be made again."""
        stored = {r.step: r for r in self._stored_steps() if r.step <= done}
        attempts = sorted((self._output / "attempts").glob("*"), reverse=True)
        for step in range(1, done + 1):
            for folder in attempts if step not in stored else ():
                if rollouts_file(folder / "rollouts", step).exists():
                    metrics = read_metrics(folder / "metrics.jsonl").get(step, {})
                    stored[step] = step_record(step, metrics, folder / "rollouts", self._trained)
                    break
        if stored or (self._output / "steps.jsonl").exists():
            self._store_steps([stored[step] for step in sorted(stored)])

    def _store_steps(self, records: Sequence[StepRecord]) -> None:
        lines = "".join(r.model_dump_json() + "\n" for r in records)
        write_atomic(self._output / "steps.jsonl", lines)

    def _stored_steps(self) -> list[StepRecord]:
        path = self._output / "steps.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        return [StepRecord.model_validate_json(line) for line in lines]

    @property
    def _trained(self) -> Role | None:
        phase = self._config.phase
        return phase.role if phase is not None else None

    def _title(self) -> str:
        return "RL" if self._trained is None else f"RL of the {self._trained.value}"

    def _finish(self, root: Path, resumed: int, duration_s: float, peak_gib: float) -> RLResult:
        from coding_framework.training.verl.export import export_adapter

        last = checkpoints.whole_checkpoints(root)[-1]
        if self._trained is not None:
            final = self._output / f"adapter_step_{self._config.last_step}"
            export_adapter(last / "actor", final, self._config.model_path)
            best_model, best_step = None, None
        else:
            final, best_model, best_step = self._export_whole(root, last)
        result = RLResult(
            steps=tuple(self._stored_steps()),
            final_model=str(final),
            best_model=best_model,
            best_step=best_step,
            resumed_from=resumed,
            duration_s=duration_s,
            peak_gib=peak_gib,
            curriculum=_progression(last),
        )
        write_atomic(self._output / "result.json", result.model_dump_json(indent=1))
        return result

    def _export_whole(self, root: Path, last: Path) -> tuple[Path, str, int]:
        """(final model, best model, its step)."""
        from coding_framework.training.verl.export import export_model

        final = self._output / "final_model"
        export_model(last / "actor", final)
        best_step, best_actor = self._config.num_episodes, last / "actor"
        if (root / "best").exists():
            best_step, best_actor = int((root / "best_step").read_text()), root / "best"
        best = self._output / f"best_model_episode_{best_step}"
        if best_step == self._config.last_step:
            checkpoints.link_tree(final, best)  # of gigabytes, which would be made twice
        else:
            export_model(best_actor, best)
        return final, str(best), best_step


class _Stall:
    """Notices that nothing has changed for too long."""

    def __init__(self, limit_s: float, log_file: Path) -> None:
        self._limit_s = limit_s
        self._log = log_file
        self._state: object = None
        self._since = time.monotonic()

    def check(self, state: object) -> None:
        """Raises TrainingError where `state` has been the same for the limit."""
        if state != self._state:
            self._state, self._since = state, time.monotonic()
        elif time.monotonic() - self._since > self._limit_s:
            raise TrainingError(
                f"no conversation and no step ended for {self._limit_s:.0f} s: the run hangs, most "
                f"likely for want of memory or of Ray resources (log: {self._log})"
            )


def with_dtype(config: MultiTurnRLConfig) -> MultiTurnRLConfig:
    """The configuration with `compute_dtype` decided for this machine."""
    if config.compute_dtype != "auto":
        return config
    asked = subprocess.run(  # a process of its own: this one stays without torch, 0.2 GiB smaller
        [sys.executable, "-c", _FAST_DTYPE, config.device], capture_output=True, text=True
    )
    if asked.returncode:
        raise TrainingError(f"PyTorch does not start: {asked.stderr.strip()[-300:]}")
    name = asked.stdout.strip()
    return MultiTurnRLConfig.model_validate({**config.model_dump(), "compute_dtype": name})


_FAST_DTYPE = """
import sys
from coding_framework.agents.policies import fast_dtype
print(str(fast_dtype(sys.argv[1])).removeprefix("torch."))
"""


def _progression(checkpoint: Path) -> Progression | None:
    """How the curriculum of a run went, from its last checkpoint."""
    path = checkpoint / checkpoints.CURRICULUM
    if not path.exists():
        return None
    state = json.loads(path.read_text(encoding="utf-8"))
    return Progression.model_validate(
        {"tiers": state["tiers"], "windows": state["manager"]["windows"]}
    )


def _note(record: StepRecord) -> str:
    parts = [
        f"reward {record.reward_mean:.3f}" if record.reward_mean is not None else "no reward",
        f"correct {record.correct_rate:.0%}" if record.correct_rate is not None else "none judged",
        f"grad norm {record.grad_norm:.2g}" if record.grad_norm is not None else "no update",
    ]
    if record.masked_turns:
        parts.append(f"{record.masked_turns}/{record.turns} turns masked")
    return ", ".join(parts)


def _check_faults(records: Sequence[StepRecord], limit: float, log_file: Path) -> None:
    """Raises TrainingError where faults of ours are more frequent than `limit` beyond doubt."""
    turns = sum(r.turns for r in records)
    faults = sum(r.faults for r in records)
    if faults <= limit * turns:
        return
    from scipy.stats import binom

    if binom.sf(faults - 1, turns, limit) < FAULT_DOUBT:
        raise TrainingError(
            f"{faults} of {turns} turns were lost to faults of ours (limit {limit:.0%}): the judge "
            f"or the rollout server is broken, see the rollouts beside {log_file}"
        )


def slow_start(log_file: Path) -> bool:
    """Whether Ray gave up on its own start, for which it allows 30 s of wall time."""
    return log_file.exists() and b"node timed out during startup" in log_file.read_bytes()


def last_error(log_file: Path) -> str:
    """The line of the trainer's log that most likely says why it ended."""
    if not log_file.exists():
        return "it wrote no log"
    with log_file.open("rb") as file:
        file.seek(max(0, log_file.stat().st_size - 200_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    marks = ("error: ", "Error: ", "Exception: ", "Killed", "No space left")
    found = [line.strip() for line in lines if any(mark in line for mark in marks)]
    return found[-1][:300] if found else "no error in its log"


@contextlib.contextmanager
def _run_lock(output: Path) -> Iterator[None]:
    """One trainer a folder. The kernel drops the lock of a killed one."""
    with (output / "run.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UsageError(
                f"another training run uses {output}: wait for it, or choose another output_dir"
            ) from e
        yield

"""Multi-turn RL with verl's own trainer on Ray: `MultiAgentVERLTrainer`.

This module writes the data set and the episode spec, starts verl's trainer as a child process,
follows its metrics and keeps the best policy. It imports neither verl nor Ray; the modules that
they import are under `training/verl/`.

Guaranteed: the same call resumes a killed run from its last whole checkpoint. An interrupt leaves
no process behind. A fault of ours masks a turn and never scores it 0. A run whose judge mostly
fails stops and says why. Not guaranteed: that a resumed run is bit-equal to an uninterrupted one,
since sums of floats depend on how requests were batched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.agents.policies import fast_dtype
from coding_framework.errors import OutOfTimeError, TrainingError, UsageError
from coding_framework.monitoring.alerts import AlertBook, StepWatch
from coding_framework.monitoring.memory import PeakMemory
from coding_framework.monitoring.progress import Progress
from coding_framework.monitoring.run_watch import RunWatch
from coding_framework.monitoring.wandb_sink import (
    RL_PROJECT,
    WandbSink,
    system_numbers,
    wandb_wanted,
)
from coding_framework.orchestration.turn import ConversationConfig, RewardFn
from coding_framework.paths import write_atomic
from coding_framework.store import checkpoints
from coding_framework.store.conversations import RolloutCounter, read_rollouts
from coding_framework.store.events import log
from coding_framework.store.folder import AttemptFolder, RLFolder, copy_linked, is_model, locked
from coding_framework.store.model_card import check_card
from coding_framework.store.records import StepRecord
from coding_framework.store.run_status import latest_system, parent_of
from coding_framework.store.training_log import read_evidence, read_metrics
from coding_framework.training.feed import Feed, write_dataset
from coding_framework.training.from_manager import HasConversationConfig
from coding_framework.training.objective import objective
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.rl_result import RLResult, progression
from coding_framework.training.role_phases import train_in_phases
from coding_framework.training.verl.episode_spec import episode_spec, write_spec
from coding_framework.training.verl.overrides import RunPaths
from coding_framework.training.verl.process import (
    TrainerProcess,
    ray_temp_folder,
    trainer_environment,
)
from coding_framework.training.verl.steps import RunSteps, step_record
from coding_framework.training.verl.trouble import (
    Stall,
    check_faults,
    check_running,
    last_error,
    require_answers,
    require_devices,
    require_room,
    slow_start,
)
from coding_framework.types import Role, Task

if TYPE_CHECKING:
    from coding_framework.data.data_pipeline import CUDADataPipeline

__all__ = ["MultiAgentVERLTrainer", "MultiTurnRLConfig", "RLResult", "StepRecord", "with_dtype"]

_ALSO_HERE = {
    "AgentSpecializer": "coding_framework.training.agent_specializer",
    "CUDAPitfallDetector": "coding_framework.cuda.advice.pitfalls",
    "CUDASafetyAnalyzer": "coding_framework.cuda.safety_wrapper",
    "CurriculumManager": "coding_framework.data.curriculum_manager",
    "SakanaDataLoader": "coding_framework.data.sakana_loader",
}
"""Names that users may import from here too. Each is imported when it is asked for: training needs
none of them, and must not know the judge."""


POLL_S = 1.0
MEMORY_INTERVAL_S = 10.0
"""One look at the memory of a dozen processes takes a quarter of a second."""
TABLE_EVERY, TABLE_CONVERSATIONS = 10, 16
"""wandb gets a table of so many conversations, every so many steps."""


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


class MultiAgentVERLTrainer:
    """Trains one shared policy for all roles, or each role's in alternation, by verl.

    Args:
        config: How the run goes.
        conversation_manager: Its `config` says when conversations end, with the turns of
            `config.max_turns`; its agents, tester, judge and reward are those of the run (their
            classes and settings: the policy that is trained speaks). None: `config` says it all.
        reward_function: What trains: a reward of `CUDAPerformanceReward`, with any numbers, or any
            function of a conversation's state that gives a number or `RewardComponents`. It is
            tried before the first step, and travels to the workers by value. None: the manager's,
            else `config.reward`, else `config.reward_preset`.
        tasks: Training tasks. None: those of the pipeline.
        pipeline: Data of which the tasks are, and whose curriculum is told of each conversation.
            None: the one of `CUDADataPipeline()`.
        validation_tasks: With `config.validate_every`: tasks by which the best policy is chosen,
            none of them a training task. None: those of the pipeline that training leaves over.

    Raises UsageError where what is handed over cannot be used, or contradicts `config`.
    """

    def __init__(
        self,
        config: MultiTurnRLConfig,
        conversation_manager: HasConversationConfig | None = None,
        reward_function: RewardFn | None = None,
        *,
        tasks: Sequence[Task] | None = None,
        pipeline: CUDADataPipeline | None = None,
        validation_tasks: Sequence[Task] | None = None,
    ) -> None:
        self._config = with_dtype(config)
        self._given = (conversation_manager, reward_function)
        if not is_model(config.model_path):
            raise UsageError(
                f"model_path {config.model_path!r} is not a Hugging Face folder (no config.json)"
            )
        self._run = RLFolder(Path(config.output_dir).resolve())
        self._conversation = (
            conversation_manager.config.model_copy(update={"max_turns": config.max_turns})
            if conversation_manager is not None
            else ConversationConfig(max_turns=config.max_turns, stop_reward=config.stop_reward)
        )
        self._began = time.monotonic()
        self._objective = objective(self._config, conversation_manager, reward_function)
        self._config = self._objective.config
        if config.task_evidence is not None:
            read_evidence(Path(config.task_evidence))  # else the trainer's process would say it
        self._feed = Feed(self._config, tasks, pipeline, validation_tasks)
        self._steps = RunSteps(
            self._run, self._trained, validation_tasks=len(self._feed.validation)
        )

    async def train(self) -> RLResult:
        """Run to the last step, from the last whole checkpoint where there is one.

        Raises:
            TrainingError: where verl ends before the last step, or the judge mostly fails; the
                message names the reason and the log.
        """
        require_devices(self._config)
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(self._run.lock, self._in_use, fcntl.flock))
            if self._config.phase is None:  # before the first phase it was tried
                self._objective.require_reward(self._feed.tasks[0], os.environ)
            stack.enter_context(RunWatch(self._run.root, "rl"))
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

    def _in_use(self, _: str) -> str:
        return (
            f"another training run uses {self._run.root}: wait for it, or choose another output_dir"
        )

    def _require_machine(self, ended: _TrainerEndedError) -> None:
        """Raises TrainingError where verl ended because of the machine, and logs what verl said."""
        checkpoints.prune(self._run.checkpoints)
        try:
            require_room(self._run.root)
            require_answers(self._config)
        except TrainingError:
            log.warning("rl_ended", reason=str(ended))
            raise

    async def _train_phase(self, config: MultiTurnRLConfig) -> RLResult:
        return await MultiAgentVERLTrainer(config, *self._given, tasks=self._feed.tasks).train()

    async def _train(self, ray_temp: Path) -> RLResult:
        started = time.monotonic()
        config, root = self._config, self._run.checkpoints
        resume = checkpoints.latest_checkpoint(root, config.num_gpus * config.num_nodes)
        checkpoints.prune(root)
        done = checkpoints.step_of(resume) if resume is not None else 0
        self._steps.complete(done)
        self._feed.record_earlier(self._run, done)
        peak = 0.0
        if done < config.last_step and not self._steps.out_of_patience(config.validation_patience):
            if resume is not None:
                require_room(self._run.root)
            attempt = self._run.new_attempt()
            paths = RunPaths(
                dataset=self._run.prompts,
                validation=self._run.validation_prompts if config.validate_every else None,
                checkpoints=root,
                ray_temp=ray_temp,
                resume_from=resume,
            )
            self._write_inputs(attempt, paths)
            environment = trainer_environment(
                config, attempt.spec, attempt.metrics, self._run.root, os.environ
            )
            process = TrainerProcess(config, paths, environment, attempt.log)
            async with process:
                with PeakMemory(process.pid, MEMORY_INTERVAL_S) as memory:
                    await self._watch(process, attempt, done)
                peak = memory.peak_gib
        return self._finish(root, done, time.monotonic() - started, peak)

    def _write_inputs(self, attempt: AttemptFolder, paths: RunPaths) -> None:
        config = self._config
        check_card(Path(config.model_path), config.prompts)
        write_dataset(self._feed.prompts(), paths.dataset)
        if paths.validation is not None:
            write_dataset(self._feed.validation, paths.validation, validation=True)
        spec = episode_spec(
            config,
            self._conversation,
            self._objective,
            output=self._run.root,
            attempt=attempt,
            resume=paths.resume_from,
        )
        write_spec(spec, attempt.spec)
        write_atomic(self._run.config, config.model_dump_json(indent=1))

    async def _watch(self, process: TrainerProcess, attempt: AttemptFolder, done: int) -> None:
        """Follow the metrics until the trainer ends; keep the best policy's weights."""
        config = self._config
        seen: dict[int, StepRecord] = {}
        counter, validated = RolloutCounter(attempt.rollouts), RolloutCounter(attempt.validation)
        stall = Stall(config.stall_limit_s, attempt.log)
        with (
            Progress(
                self._title(), config.last_step, "steps", done=done, training=True
            ) as progress,
            WandbSink(
                RL_PROJECT,
                self._run.root,
                config.model_dump(mode="json"),
                wanted=wandb_wanted(config.wandb),
            ) as wandb,
        ):
            code: int | None = None
            steps = StepWatch(
                AlertBook(self._run.root, wandb.alert), curriculum=config.curriculum is not None
            )
            while code is None:
                code = await process.wait(POLL_S)
                for step, metrics in read_metrics(attempt.metrics).items():
                    if step in seen or step == 0:  # 0: a validation of the start model
                        continue
                    seen[step] = step_record(step, metrics, attempt.rollouts, self._trained)
                    if len(seen) == 1:  # what came before is the start of Ray and the model
                        progress.begin(seen[step].times.get("step_s", 0.0))
                    self._steps.add(seen[step])
                    self._feed.record(attempt.rollouts, step)
                    steps.stepped(self._steps.stored())
                    self._send(wandb, seen[step], attempt)
                    check_faults(list(seen.values()), config.max_fault_share, attempt.log)
                    if step < config.last_step and self._steps.out_of_patience(
                        config.validation_patience
                    ):
                        log.info("rl_ended_early", step=step, patience=config.validation_patience)
                        return
                last = max(seen, default=done)
                ended = counter.count(last + 1)
                answered = validated.count(last + 1 if ended else last)
                for faults, of in (
                    (counter.faults, max(ended, config.conversations_per_step)),
                    (validated.faults, max(answered, len(self._feed.validation))),
                ):
                    check_running(faults, of, config.max_fault_share, attempt.log)
                stall.check((last, ended + answered))
                doing = self._activity(last, ended, seen.get(last), answered)
                progress.update(last, ", ".join(filter(None, (steps.words(), doing))))
                if code is None and last > done:
                    self._stop_in_time(last)
        if last < config.last_step:
            raise _TrainerEndedError(
                f"verl ended with code {code} after step {last} of {config.last_step}: "
                f"{last_error(attempt.log)} (log: {attempt.log})",
                may_pass=last > done or counter.count(last + 1) > 0 or slow_start(attempt.log),
            )
        if code != 0:
            log.warning("verl_ended_late", code=code, log=str(attempt.log))

    def _stop_in_time(self, last: int) -> None:
        """Raises OutOfTimeError where the limit of time has passed and step `last`, not the run's
        last one, has its checkpoint. Whoever leaves `TrainerProcess` ends it."""
        config = self._config
        if config.minutes is None or time.monotonic() < self._began + 60 * config.minutes:
            return
        saved = checkpoints.whole_checkpoints(self._run.checkpoints)
        if last < config.last_step and saved and checkpoints.step_of(saved[-1]) >= last:
            raise OutOfTimeError(
                f"RL stopped at its limit of {config.minutes:g} minutes, after step {last} of "
                f"{config.last_step}: the same command goes on"
            )

    def _send(self, wandb: WandbSink, record: StepRecord, attempt: AttemptFolder) -> None:
        machine = latest_system(parent_of(self._run.root) or self._run.root)
        wandb.log(record.step, {**record.model_dump(mode="json"), **system_numbers(machine)})
        if record.step % TABLE_EVERY == 0:
            wandb.table("conversations", partial(_table, attempt.rollouts, record.step))

    def _activity(self, last: int, ended: int, record: StepRecord | None, validated: int) -> str:
        """What is going on, for the progress line."""
        said = [_note(record)] if record is not None else []
        if validated and (ended or record is None):
            said.append(f"validation: {validated}/{len(self._feed.validation)} conversations")
        elif ended:
            of = self._config.conversations_per_step
            doing = f"{ended}/{of} conversations" if ended < of else "updating the policy"
            if self._config.algorithm == "dapo":  # it draws as many as it takes
                doing = f"{ended} conversations"
            if self._config.one_step_off_policy:  # what is learnt meanwhile was asked for before
                doing = f"{ended} conversations of what it asked for"
            said.append(f"step {last + 1}: {doing}")
        elif record is None:
            said.append("starting Ray and the model")
        return ", ".join(said)

    @property
    def _trained(self) -> Role | None:
        phase = self._config.phase
        return phase.role if phase is not None else None

    def _title(self) -> str:
        return "RL" if self._trained is None else f"RL of the {self._trained.value}"

    def _finish(self, root: Path, resumed: int, duration_s: float, peak_gib: float) -> RLResult:
        from coding_framework.training.verl.export import export_adapter

        last = checkpoints.whole_checkpoints(root)[-1]
        self._steps.complete(checkpoints.step_of(last))
        if self._trained is not None:
            final = self._run.adapter(self._config.last_step)
            export_adapter(last / "actor", final, self._config.model_path)
            best_model, best_step = None, None
        else:
            final, best_model, best_step = self._export_whole(last)
        result = RLResult(
            steps=tuple(self._steps.stored()),
            final_model=str(final),
            best_model=best_model,
            best_step=best_step,
            validations=self._steps.validations(),
            resumed_from=resumed,
            duration_s=duration_s,
            peak_gib=peak_gib,
            curriculum=progression(checkpoints.read_curriculum(last)),
        )
        write_atomic(self._run.result, result.model_dump_json(indent=1))
        return result

    def _export_whole(self, last: Path) -> tuple[Path, str, int]:
        """(final model, best model, its step)."""
        from coding_framework.training.verl.export import export_model

        final = self._run.final_model
        export_model(last / "actor", final)
        best_step = last_step = checkpoints.step_of(last)
        if self._run.best_step.exists():
            best_step = int(self._run.best_step.read_text())
        best = self._run.best_model(best_step)
        if best_step == last_step:
            copy_linked(final, best)  # of gigabytes, which would be made twice
        elif best_step == 0:
            copy_linked(Path(self._config.model_path), best)
        else:
            export_model(self._run.best, best)
        return final, str(best), best_step


def with_dtype(config: MultiTurnRLConfig) -> MultiTurnRLConfig:
    """The configuration with `compute_dtype` decided for this machine."""
    if config.compute_dtype != "auto":
        return config
    changes = {"compute_dtype": fast_dtype(config.device)}
    return MultiTurnRLConfig.model_validate({**config.model_dump(), **changes})


def _table(rollouts: Path, step: int) -> list[dict[str, Any]]:
    """The turns of some conversations of a step."""
    return [
        {
            "task": rollout.state.task.name,
            "turn": turn.index + 1,
            "status": turn.verdict.status.value if turn.verdict is not None else None,
            "reason": turn.verdict.reason if turn.verdict is not None else turn.masked,
            "reward": turn.reward.total if turn.reward is not None else None,
            "code": turn.code,
        }
        for rollout in islice(read_rollouts(rollouts, step), TABLE_CONVERSATIONS)
        for turn in rollout.state.turns
    ]


def _note(record: StepRecord) -> str:
    parts = [
        f"reward {record.reward_mean:.3f}" if record.reward_mean is not None else "no reward",
        f"correct {record.correct_rate:.0%}" if record.correct_rate is not None else "none judged",
        f"grad norm {record.grad_norm:.2g}" if record.grad_norm is not None else "no update",
    ]
    if record.masked_turns:
        parts.append(f"{record.masked_turns}/{record.turns} turns masked")
    return ", ".join(parts)

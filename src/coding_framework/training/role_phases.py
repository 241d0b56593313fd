"""A policy for each role: their adapters are trained in alternation, by phases.

    generator learns, optimizer frozen -> swap -> optimizer learns, generator frozen -> swap ...

Each role has a run of the trainer in a folder of its own (OUTPUT/roles/ROLE). A phase resumes that
run, so that the optimizer's moments, the curriculum and the order of prompts go on. A phase ends
with the role's adapter. In the next phase the role speaks by this adapter, frozen and served on its
own; before its first phase it speaks by the model that RL started from. Guaranteed: a killed run
resumes in its phase, from that phase's last checkpoint. Settings that contradict the phases that
are done are refused.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from coding_framework.errors import TrainingError, UsageError
from coding_framework.paths import write_atomic
from coding_framework.store.events import log
from coding_framework.store.folder import RLFolder, is_adapter, replaced
from coding_framework.store.training_log import read_steps, write_steps
from coding_framework.training.agent_specializer import SPEAKERS
from coding_framework.training.rl_config import MultiTurnRLConfig, RolePhase
from coding_framework.training.rl_result import RLResult
from coding_framework.training.verl.episode_spec import JUDGE
from coding_framework.types import Record

ORDER = tuple(SPEAKERS)
"""Who learns first: the optimizer then starts from what a trained generator leaves it."""
TrainFn = Callable[[MultiTurnRLConfig], Awaitable[RLResult]]


class PhasesState(Record):
    """What of an alternation is done. Written at each swap, after the phase's adapter."""

    model: str
    """What RL started from, to which the adapters belong; two where roles start apart."""
    lora_rank: int
    done: tuple[RolePhase, ...] = ()


def schedule(config: MultiTurnRLConfig) -> tuple[RolePhase, ...]:
    """The phases of a run in their order, without adapters; the last one may be shorter."""
    phases: list[RolePhase] = []
    done = dict.fromkeys(ORDER, 0)
    for number, start in enumerate(range(0, config.num_episodes, config.phase_steps)):
        role = ORDER[number % len(ORDER)]
        done[role] += min(config.phase_steps, config.num_episodes - start)
        phases.append(RolePhase(role=role, until=done[role]))
    return tuple(phases)


async def train_in_phases(config: MultiTurnRLConfig, train: TrainFn) -> RLResult:
    """Run all phases that are not done yet. train: runs the trainer for one phase.

    Raises:
        UsageError: where the folder holds another alternation.
        TrainingError: where a phase fails, or an adapter that is to be served is gone.
    """
    started, peak = time.monotonic(), 0.0
    run, planned = _run(config), schedule(config)
    state = read_state(config, planned)
    records = read_steps(run.steps)[: sum(_length(planned, n) for n in range(len(state.done)))]
    resumed = len(records)
    for number in range(len(state.done), len(planned)):
        phase = with_partner(planned, number, run)
        log.info("rl_phase", number=number + 1, of=len(planned), role=phase.role, until=phase.until)
        result = await train(phase_config(config, planned, phase))
        before = phase.until - _length(planned, number)
        if number == len(state.done):
            resumed += max(0, result.resumed_from - before)
        fresh = [s for s in result.steps if before < s.step <= phase.until]
        records += [
            s.model_copy(update={"step": len(records) + i + 1}) for i, s in enumerate(fresh)
        ]
        peak = max(peak, result.peak_gib)
        write_steps(run.steps, records)
        done = state.model_copy(update={"done": planned[: number + 1]})
        write_atomic(run.phases, done.model_dump_json(indent=1))
    result = RLResult(
        steps=tuple(records),
        final_model=str(_assemble(run, planned)),
        resumed_from=resumed,
        duration_s=time.monotonic() - started,
        peak_gib=peak,
    )
    write_atomic(run.result, result.model_dump_json(indent=1))
    return result


def read_state(config: MultiTurnRLConfig, planned: Sequence[RolePhase]) -> PhasesState:
    """What is done in the run's folder, nothing where it is new. Raises UsageError where the folder
    holds other phases."""
    run = _run(config)
    starts = [str(Path(config.start_of(role)).resolve()) for role in ORDER]
    fresh = PhasesState(model=", ".join(dict.fromkeys(starts)), lora_rank=config.lora_rank)
    path = run.phases
    if not path.exists():
        if run.checkpoints.exists():
            raise UsageError(f"{run.root} holds a run of one shared policy: choose another folder")
        write_atomic(path, fresh.model_dump_json(indent=1))
        return fresh
    try:
        state = PhasesState.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise UsageError(
            f"{path} cannot be used ({type(e).__name__}): choose another folder"
        ) from e
    for what, was, now in (
        ("the model", state.model, fresh.model),
        ("lora_rank", state.lora_rank, fresh.lora_rank),
        ("phases", _named(state.done), _named(planned[: len(state.done)])),
    ):
        if was != now:
            raise UsageError(
                f"{run.root} was begun with {what} {was}, not {now}: rerun with the settings "
                "that it was begun with, or choose another folder"
            )
    return state


def with_partner(planned: Sequence[RolePhase], number: int, run: RLFolder) -> RolePhase:
    """A phase with the adapter of the role that is served in it. Raises TrainingError where that is
    gone."""
    phase = planned[number]
    earlier = [p for p in planned[:number] if p.role is not phase.role]
    if not earlier:
        return phase
    adapter = adapter_folder(run, earlier[-1])
    if not is_adapter(adapter):
        raise TrainingError(f"{adapter}, which is to be served, is gone: put it back")
    return phase.model_copy(update={"frozen_adapter": str(adapter)})


def phase_config(
    config: MultiTurnRLConfig, planned: Sequence[RolePhase], phase: RolePhase
) -> MultiTurnRLConfig:
    """The configuration of a phase: the role's own run up to the phase's end. Roles draw different
    prompts, and share the verdicts."""
    run = _run(config)
    shared = {"run_folder": str(run.judge)} if config.judge == JUDGE else {}
    return MultiTurnRLConfig.model_validate(
        {
            **config.model_dump(),
            "model_path": str(Path(config.start_of(phase.role)).resolve()),
            "role_models": {r: str(Path(config.start_of(r)).resolve()) for r in ORDER},
            "output_dir": str(run.role(phase.role).root),
            "num_episodes": max(p.until for p in planned if p.role is phase.role),
            "seed": config.seed + ORDER.index(phase.role),
            "judge_args": {**shared, **config.judge_args},
            "phase": phase,
        }
    )


def adapter_folder(run: RLFolder, phase: RolePhase) -> Path:
    """Where a phase leaves its role's adapter."""
    return run.role(phase.role).adapter(phase.until)


def _run(config: MultiTurnRLConfig) -> RLFolder:
    return RLFolder(Path(config.output_dir).resolve())


def _length(planned: Sequence[RolePhase], number: int) -> int:
    """Steps of a phase."""
    role = planned[number].role
    before = [p.until for p in planned[:number] if p.role is role]
    return planned[number].until - (before[-1] if before else 0)


def _named(phases: Sequence[RolePhase]) -> str:
    return ", ".join(f"{p.role.value} to step {p.until}" for p in phases) or "none"


def _assemble(run: RLFolder, planned: Sequence[RolePhase]) -> Path:
    """The last adapter of each role, side by side, as a whole."""
    with replaced(run.final_model) as fresh:
        for phase in planned[-len(ORDER) :]:
            shutil.copytree(adapter_folder(run, phase), fresh / phase.role.value)
    return run.final_model

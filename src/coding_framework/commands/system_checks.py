"""What `test_complete_system.py` checks beside the doctor's components: the parts of a run, each
with a small piece of its real work and no model."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from coding_framework.commands.doctor_checks import Check, Finding, State, works
from coding_framework.types import Role, Status, Task, Verdict

_SPOILED = "the clone may be spoiled: run `make setup`, then this again"


def check_data_pipeline() -> Finding:
    """A batch of examples, and held-out tasks of which it has none."""
    from coding_framework.data.data_pipeline import CUDADataPipeline

    pipeline = CUDADataPipeline()
    batch = pipeline.get_training_batch()
    held_out = {task.name for task in pipeline.prepare_evaluation_set(4)}
    both = [e.task.name for e in batch if e.task.name in held_out]
    if both:
        return Finding(State.BROKEN, f"{both[0]} is learnt and held out", _SPOILED)
    return works(f"{len(batch)} of {len(pipeline)} examples, {len(held_out)} held-out tasks apart")


def check_curriculum() -> Finding:
    """A learner that solves everything leaves the first tier."""
    from coding_framework.data.curriculum_manager import CurriculumManager, Outcome

    task = _task()
    tasks = [task.model_copy(update={"name": f"{task.name}_{i}", "tier": i}) for i in range(3)]
    manager = CurriculumManager(tasks, "three_tier")
    first = manager.current_tier
    for _ in range(2 * first.criteria.min_episodes):
        (drawn,) = manager.sample(1)
        solved = Outcome(task=drawn.name, compiled=True, correct=True, speedup=2.0, modelled=True)
        manager.record_outcome(solved, task_tier=drawn.tier)
    if manager.current_tier is first:
        return Finding(State.BROKEN, f"it stays in {first.name}", _SPOILED)
    return works(f"{first.name} left for {manager.current_tier.name} on evidence")


def check_conversation() -> Finding:
    """Two turns with scripted answers, judged for real, each paid by the default reward."""
    from coding_framework.agents.generator import GeneratorAgent
    from coding_framework.agents.optimizer import OptimizerAgent
    from coding_framework.agents.policies import ScriptedPolicy
    from coding_framework.commands.one_kernel import judge_one
    from coding_framework.data.kernels import naive_of
    from coding_framework.orchestration.turn import ConversationConfig
    from coding_framework.training.multi_turn_conversation import MultiTurnConversationManager
    from coding_framework.wiring import JudgeSettings

    task = _task()
    answers = [f"```cuda\n{code}\n```" for code in ("not CUDA", naive_of(task))]
    policy = ScriptedPolicy(answers)

    async def judge(task: Task, code: str) -> Verdict:
        return await asyncio.to_thread(judge_one, task, code, JudgeSettings())

    manager = MultiTurnConversationManager(
        GeneratorAgent(policy),
        OptimizerAgent(policy),
        judge=judge,
        config=ConversationConfig(max_turns=2, stop_reward=None),
    )
    state = asyncio.run(manager.run(task))
    verdicts = [turn.verdict for turn in state.turns if turn.verdict is not None]
    paid = [turn.reward.total for turn in state.turns if turn.reward is not None]
    roles = [turn.role for turn in state.turns]
    if (
        [verdict.status for verdict in verdicts] != [Status.COMPILE_ERROR, Status.CORRECT]
        or roles != [Role.GENERATOR, Role.OPTIMIZER]
        or not paid[0] < paid[1]
    ):
        said = ", ".join(f"{v.status.value} ({v.reason})" for v in verdicts)
        return Finding(State.BROKEN, f"turns ended as {said}, rewards {paid}"[:400], _SPOILED)
    return works(f"a wrong answer was paid {paid[0]:.2f}, the mended one {paid[1]:.2f}")


def check_deployment() -> Finding:
    """A router that sends half of the users to a candidate, each always to the same version."""
    from coding_framework.deployment.ab_testing import Endpoint, Experiment, TrafficRouter, unit_of

    experiment = Experiment(
        id="check", salt_enrol="a", salt_arm="b", enrolment=1.0, split=0.5, candidate="v2"
    )
    endpoint = Endpoint(incumbent="v1", generation=1, experiment=experiment)
    router = TrafficRouter({"kernels": endpoint})
    users = [unit_of(b"check", f"user {i}") for i in range(2000)]
    first, again = ([router.route("kernels", u).version for u in users] for _ in range(2))
    share = first.count("v2") / len(users)
    if first != again or not 0.4 < share < 0.6:
        return Finding(State.BROKEN, f"{share:.0%} of the users get the candidate", _SPOILED)
    return works(f"{share:.0%} of {len(users)} users get the candidate, and keep it")


def check_monitoring() -> Finding:
    """A run that tells who it is and where it stands."""
    from coding_framework.monitoring.run_watch import RunWatch
    from coding_framework.store.run_status import read_identity, run_state

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with RunWatch(folder, "eval", {"backend": "emulator"}):
            during = run_state(folder)
        identity, after = read_identity(folder), run_state(folder)
    if (during, after) != ("alive", "finished") or identity is None:
        return Finding(State.BROKEN, f"a run was {during}, then {after}", _SPOILED)
    return works("a run's folder says alive, then finished")


def _task() -> Task:
    from coding_framework.data.registry import find_task

    return find_task("relu")


SYSTEM: tuple[Check, ...] = (
    Check("data pipeline", True, check_data_pipeline),
    Check("curriculum", True, check_curriculum),
    Check("conversation, reward", True, check_conversation),
    Check("deployment", True, check_deployment),
    Check("monitoring", True, check_monitoring),
)

"""The alternation of roles: which phases, what each is given, and what a stop leaves."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from coding_framework.errors import TrainingError, UsageError
from coding_framework.store.conversations import append_rollout, run_rollouts
from coding_framework.store.folder import base_of_adapter
from coding_framework.store.records import Rollout, StepRecord
from coding_framework.training.agent_specializer import AgentSpecializer, role_models
from coding_framework.training.objective import specialization
from coding_framework.training.rl_config import MultiTurnRLConfig, RolePhase
from coding_framework.training.rl_result import RLResult
from coding_framework.training.role_phases import ORDER, phase_config, schedule, train_in_phases
from coding_framework.training.verl import episode_spec
from coding_framework.types import CUDAConversationState, Role, Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
GENERATOR, OPTIMIZER = Role.GENERATOR, Role.OPTIMIZER


def config(folder: Path, **changes: object) -> MultiTurnRLConfig:
    values = {
        "model_path": str(folder / "model"), "output_dir": str(folder / "run"),
        "policy": "per_role", "num_episodes": 5, "phase_steps": 2, "lora_rank": 4,
        "compute_dtype": "float32", **changes,
    }  # fmt: skip
    return MultiTurnRLConfig.cpu(**values)


class Trainer:
    """Takes a phase up where the role's run is, as the real one does; `dies_after` counts calls."""

    def __init__(self, dies_after: int = 99) -> None:
        self.configs: list[MultiTurnRLConfig] = []
        self.dies_after = dies_after

    async def __call__(self, given: MultiTurnRLConfig) -> RLResult:
        if len(self.configs) == self.dies_after:
            raise TrainingError("the machine was switched off")
        self.configs.append(given)
        assert given.phase is not None
        adapter = Path(given.output_dir) / f"adapter_step_{given.phase.until}"
        adapter.mkdir(parents=True, exist_ok=True)
        named = f'{{"base_model_name_or_path": "{given.model_path}", "n": {given.phase.until}}}'
        (adapter / "adapter_config.json").write_text(named)
        steps = range(1, given.phase.until + 1)
        return RLResult(
            steps=tuple(StepRecord(step=s, trained=given.phase.role) for s in steps),
            final_model=str(adapter), resumed_from=0, duration_s=1.0,
            peak_gib=float(len(self.configs)),
        )  # fmt: skip

    @property
    def phases(self) -> list[RolePhase]:
        return [c.phase for c in self.configs if c.phase is not None]


def test_roles_take_turns_and_the_budget_is_that_of_a_shared_run(tmp_path: Path) -> None:
    phases = [(p.role, p.until) for p in schedule(config(tmp_path))]
    assert phases == [(GENERATOR, 2), (OPTIMIZER, 2), (GENERATOR, 3)]
    longer = [(p.role, p.until) for p in schedule(config(tmp_path, num_episodes=8))]
    assert longer == [(GENERATOR, 2), (OPTIMIZER, 2), (GENERATOR, 4), (OPTIMIZER, 4)]


async def test_each_phase_serves_what_the_other_role_learnt_last(tmp_path: Path) -> None:
    trainer = Trainer()
    result = await train_in_phases(config(tmp_path), trainer)

    roles = tmp_path / "run" / "roles"
    assert [p.frozen_adapter for p in trainer.phases] == [
        None, str(roles / "generator" / "adapter_step_2"),
        str(roles / "optimizer" / "adapter_step_2"),
    ]  # fmt: skip
    assert [Path(c.output_dir) for c in trainer.configs] == [
        roles / "generator", roles / "optimizer", roles / "generator",
    ]  # fmt: skip
    assert [c.num_episodes for c in trainer.configs] == [3, 2, 3]
    assert [c.last_step for c in trainer.configs] == [2, 2, 3]
    assert len({c.seed for c in trainer.configs}) == 2
    assert {c.judge_args["run_folder"] for c in trainer.configs} == {str(tmp_path / "run/judge")}
    assert [(s.step, s.trained) for s in result.steps] == [
        (1, GENERATOR), (2, GENERATOR), (3, OPTIMIZER), (4, OPTIMIZER), (5, GENERATOR),
    ]  # fmt: skip
    assert (result.best_model, result.resumed_from, result.peak_gib) == (None, 0, 3.0)
    final = Path(result.final_model)
    assert '"n": 3' in (final / "generator" / "adapter_config.json").read_text()
    assert '"n": 2' in (final / "optimizer" / "adapter_config.json").read_text()


async def test_run_that_was_stopped_goes_on_at_the_swap_and_keeps_its_steps(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="switched off"):
        await train_in_phases(config(tmp_path), Trainer(dies_after=1))
    trainer = Trainer()
    result = await train_in_phases(config(tmp_path), trainer)
    assert [(p.role, p.until) for p in trainer.phases] == [(OPTIMIZER, 2), (GENERATOR, 3)]
    assert [s.step for s in result.steps] == [1, 2, 3, 4, 5]
    assert result.resumed_from == 2

    again = Trainer()
    assert (await train_in_phases(config(tmp_path), again)).steps == result.steps
    assert again.configs == []


async def test_folder_of_other_phases_model_or_policy_is_refused(tmp_path: Path) -> None:
    await train_in_phases(config(tmp_path), Trainer())
    for changes, named in (
        ({"phase_steps": 1}, "begun with phases generator to step 2, "),
        ({"lora_rank": 8}, "begun with lora_rank 4, not 8"),
        ({"model_path": str(tmp_path / "other")}, "begun with the model .*model, not .*other"),
    ):
        with pytest.raises(UsageError, match=named):
            await train_in_phases(config(tmp_path, **changes), Trainer())
    shared = tmp_path / "shared"
    (shared / "checkpoints").mkdir(parents=True)
    with pytest.raises(UsageError, match="one shared policy"):
        await train_in_phases(config(tmp_path, output_dir=str(shared)), Trainer())
    (tmp_path / "run" / "phases.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be used"):
        await train_in_phases(config(tmp_path), Trainer())


async def test_adapter_that_is_gone_is_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        await train_in_phases(config(tmp_path), Trainer(dies_after=1))
    (tmp_path / "run/roles/generator/adapter_step_2/adapter_config.json").unlink()
    with pytest.raises(TrainingError, match="adapter_step_2, which is to be served, is gone"):
        await train_in_phases(config(tmp_path), Trainer())


async def test_what_a_run_leaves_is_read_back_as_one_policy_a_role(tmp_path: Path) -> None:
    result = await train_in_phases(config(tmp_path), Trainer())
    found = role_models(Path(result.final_model))
    assert found.model == str(tmp_path / "model")
    adapters = AgentSpecializer(found.specialization).policies(lambda adapter: Path(str(adapter)))
    assert {role: adapter.name for role, adapter in adapters.items()} == {
        GENERATOR: "generator", OPTIMIZER: "optimizer",
    }  # fmt: skip
    one = role_models(tmp_path / "model")
    assert (one.model, one.specialization.shared_policy) == (str(tmp_path / "model"), True)


async def test_roles_that_start_from_different_models_keep_them(tmp_path: Path) -> None:
    given = config(tmp_path, role_models={"optimizer": str(tmp_path / "other")})
    trainer = Trainer()
    result = await train_in_phases(given, trainer)
    assert [Path(c.model_path).name for c in trainer.configs] == ["model", "other", "model"]
    for made in trainer.configs:
        assert made.phase is not None
        served = episode_spec._frozen_server(made)
        assert served is not None
        assert Path(served.model_path).name != Path(made.model_path).name
    final = Path(result.final_model)
    bases = {role: Path(base_of_adapter(final / role.value)).name for role in ORDER}
    assert bases == {GENERATOR: "model", OPTIMIZER: "other"}
    with pytest.raises(UsageError, match="begun with the model"):
        await train_in_phases(config(tmp_path), Trainer())


@pytest.mark.parametrize(("role", "other"), [(GENERATOR, OPTIMIZER), (OPTIMIZER, GENERATOR)])
def test_specializer_says_who_learns_in_a_phase_and_by_which_rewards(
    tmp_path: Path, role: Role, other: Role
) -> None:
    given = config(tmp_path, role_rewards={"optimizer": {"performance": 0.7}})
    phase = RolePhase(role=role, until=1, frozen_adapter="a")
    phased = phase_config(given, schedule(given), phase)
    made = specialization(phased, "weighted")
    assert AgentSpecializer(made).learning == {role}
    assert (made.of(role).adapter, made.of(other).adapter) == (None, "a")
    assert made.of(OPTIMIZER).reward_weights == {"performance": 0.7}
    shared = given.model_copy(update={"policy": "shared"})
    assert AgentSpecializer(specialization(shared, "weighted")).learning == {GENERATOR, OPTIMIZER}


def test_reward_that_the_preset_does_not_have_is_one_sentence(tmp_path: Path) -> None:
    given = config(tmp_path, role_rewards={"generator": {"beauty": 1.0}})
    with pytest.raises(UsageError, match=r"role_rewards beauty: .* \(preset weighted\)"):
        specialization(given, "weighted")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--num-episodes 20", "policy per_role trains an adapter a role: set --lora-rank, e.g. 16"),
        ("--lora-rank 4", "num_episodes=4 and phase_steps=10 would train one role alone"),
        ("--lora-rank 4 --algorithm ppo", "goes with grpo or dapo"),
        ("--lora-rank 4 --phase-steps 1 --max-turns 1", "the optimizer never speaks"),
    ],
)
def test_script_refuses_what_cannot_be_in_one_sentence(
    flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))["main"]
    command = f"--device cpu --dry-run --generator-checkpoint m --policy per_role {flags}"
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_rollouts_of_both_roles_are_those_of_the_run(tmp_path: Path) -> None:
    case = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),))
    task = Task(
        name="t", tier=0, family="f", ops=(), description="", reference="", cases=(case,)
    )  # fmt: skip
    for role in ("optimizer", "generator"):
        state = CUDAConversationState(conversation_id=role, task=task, end_reason="error")
        rollout = Rollout(step=1, group="g", session=0, state=state, returns=())
        append_rollout(tmp_path / "roles" / role / "attempts" / "000" / "rollouts", rollout)
    found = [rollout.state.conversation_id for rollout in run_rollouts(tmp_path)]
    assert found == ["generator", "optimizer"]

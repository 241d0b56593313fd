"""The files of configs/: what each resolves to, where it would run, and that verl accepts it."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from coding_framework.data.data_pipeline import CUDADataPipeline
from coding_framework.errors import UsageError
from coding_framework.run import quickstart
from coding_framework.run.recipe import Recipe, WholeRun
from coding_framework.training import verl_integration
from coding_framework.training.recipes import read_recipe, rl_config, sft_config
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.dry_run import cluster_commands, placement, validated
from coding_framework.training.verl.episode_spec import CLUSTER_JUDGE, JUDGE, judge_of
from coding_framework.training.verl.overrides import RunPaths, cluster_overrides, ray_options
from coding_framework.training.verl_integration import with_dtype
from coding_framework.types import Task

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "configs").glob("*.yaml"))


def config_of(path: Path) -> MultiTurnRLConfig:
    return rl_config(read_recipe(path), {"model_path": "m"})


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_verl_accepts_every_recipe_and_nothing_is_started(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))["main"]
    assert main(["--config", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("verl accepts this configuration; nothing was started\n")
    config = config_of(path)
    assert f'"num_gpus": {config.num_gpus}' in said
    for part, place in placement(config):
        assert f"{part:<16} {place}" in said


def test_a_dry_run_waits_for_nothing_that_it_does_not_need() -> None:
    heavy = {"coding_framework.training.verl_integration", "torch", "verl", "ray", "numpy"}
    code = "import run_multiturn_rl_training, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "coding_framework.run.recipe" in done.stdout.split(), done.stderr
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_section_of_a_recipe_is_possible(path: Path) -> None:
    recipe = read_recipe(path)
    assert sft_config(recipe, {}).base_model == recipe.base_model
    assert Recipe.model_validate(recipe.run).held_out_tasks >= 4


@pytest.mark.parametrize(("name", "same"), [("quick_test", "SMOKE"), ("cpu", "FULL")])
def test_recipes_of_the_cpu_are_those_of_the_quickstart(name: str, same: str) -> None:
    recipe = read_recipe(ROOT / "configs" / f"{name}.yaml")
    given = Recipe.model_validate(
        {"device": recipe.device, "sft": recipe.sft, "rl": recipe.rl, **recipe.run}
    )
    assert given == getattr(quickstart, same)


def test_a_flag_wins_over_the_file_and_the_file_over_the_default() -> None:
    recipe = read_recipe(ROOT / "configs" / "eight_gpus.yaml")
    assert rl_config(recipe, {"model_path": "m"}).prompts_per_step == 256
    assert rl_config(recipe, {"model_path": "m", "prompts_per_step": 8}).prompts_per_step == 8
    assert rl_config(recipe, {"model_path": "m"}).temperature == 1.0


def test_what_the_generator_learns_is_the_recipes_or_the_flags_and_the_naive_kernel_by_default(
    tmp_path: Path,
) -> None:
    parse = runpy.run_path(str(ROOT / "run_sft_training.py"))["parse"]
    path = tmp_path / "recipe.yaml"
    path.write_text("device: cpu\nsft: {generator_target: best}\n")

    def target(*flags: str) -> str:
        given = vars(parse(list(flags)))
        given.pop("dry_run")
        return sft_config(read_recipe(given.pop("config")), given).generator_target

    assert [target("--device", d) for d in ("cpu", "cuda")] == ["naive", "naive"]
    assert target("--config", str(path)) == "best"
    assert target("--config", str(path), "--generator-target", "naive") == "naive"
    path.write_text("sft: {generator_target: fastest}\n")
    complaint = "the recipe's sft: generator_target cannot be fastest: input should be 'naive'"
    with pytest.raises(UsageError, match=complaint):
        sft_config(read_recipe(path), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rl: [", "is not YAML"),
        ("gpus: 3", ": there is no setting gpus: remove it"),
        ("device: tpu", ": device cannot be tpu"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message) as e:
        read_recipe(path)
    assert "recipe.yaml" in str(e.value)
    with pytest.raises(UsageError, match="cannot be read"):
        read_recipe(tmp_path / "none.yaml")


def test_several_nodes_say_how_the_cluster_is_started_and_what_its_workers_get() -> None:
    config = config_of(ROOT / "configs" / "several_nodes.yaml")
    first, second, judges = cluster_commands(config)
    assert "ray start --head --num-gpus=8 --object-store-memory=68719476736" in first
    assert "--object-spilling-directory=/tmp/ray-spill" in first
    assert second.startswith("1 more that train")
    assert "--num-cpus=0 --num-gpus=0 --resources='{\"judge\": 32}'" in judges
    environment = {"HF_HUB_OFFLINE": "1", "CODING_FRAMEWORK_EPISODE_SPEC": "/a b/s.json", "X": "y"}
    root = "+ray_kwargs.ray_init.runtime_env.env_vars"
    assert cluster_overrides(config, environment) == [
        f'{root}.CODING_FRAMEWORK_EPISODE_SPEC="/a b/s.json"',
        f'{root}.HF_HUB_OFFLINE="1"',
    ]
    alone = config.model_copy(update={"ray_address": None})
    assert cluster_overrides(alone, environment) == []
    assert cluster_commands(alone) == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_recipe_judges_on_gpus_that_train(path: Path) -> None:
    config = config_of(path)
    if config.device == "cuda" and not config.judge_gpus:
        assert config.judge_args["backend"] == "emulator"


def test_nodes_without_a_cluster_and_judges_without_processors_are_refused() -> None:
    given = {"model_path": "m", "device": "cuda", "judge_nodes": 1}
    with pytest.raises(UsageError, match="set ray_address"):
        rl_config(read_recipe(None), given)
    with pytest.raises(UsageError, match="judge_jobs_per_node: set it to their processors"):
        rl_config(read_recipe(None), {**given, "ray_address": "auto"})


def test_the_backend_of_the_judge_is_the_flags_then_the_files() -> None:
    make_config = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))["make_config"]
    recipe = read_recipe(ROOT / "configs" / "one_gpu.yaml")
    assert make_config({}, recipe, {"model_path": "m"}).judge_args == {"backend": "emulator"}
    given = {"backend": "cuda", "sandbox": "native"}
    found = make_config(given, recipe, {"model_path": "m"}).judge_args
    assert found == {"backend": "cuda", "sandbox": "native"}


def test_flags_say_when_a_conversation_ends_and_what_vllm_takes() -> None:
    script = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))
    recipe = read_recipe(ROOT / "configs" / "one_gpu.yaml")
    line = ["--stop-reward", "0.95", "--gpu-memory-utilization", "0.25"]
    given = vars(script["parse"](line))
    for other in ("config", "dry_run"):
        given.pop(other)
    config = script["make_config"](given, recipe, {"model_path": "m"})
    assert (config.stop_reward, config.gpu_memory_utilization) == (0.95, 0.25)
    config = script["make_config"]({}, recipe, {"model_path": "m"})
    assert (config.stop_reward, config.gpu_memory_utilization) == (1.0, 0.4)


def test_overrides_of_the_line_come_after_the_recipes(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))
    path = tmp_path / "recipe.yaml"
    path.write_text("device: cuda\nrl: {overrides: [a=1]}")
    given = vars(script["parse"](["--overrides", "b=2", "--overrides", "c=3"]))
    for other in ("config", "dry_run"):
        given.pop(other)
    config = script["make_config"](given, read_recipe(path), {"model_path": "m"})
    assert config.overrides == ("a=1", "b=2", "c=3")


@pytest.mark.parametrize("judge", [JUDGE, "my:judge"])
def test_all_rollout_workers_share_the_nodes_that_judge(tmp_path: Path, judge: str) -> None:
    config = config_of(ROOT / "configs" / "several_nodes.yaml")
    path, found = judge_of(config.model_copy(update={"judge": judge}), tmp_path)
    own: dict[str, object] = {"backend": "emulator"}
    if judge == JUDGE:
        own |= {"run_folder": str(tmp_path / "judge"), "workers": 32, "time_naive": False}
    assert path.endswith("shared_judge:SharedJudge")
    assert found == {
        "factory": CLUSTER_JUDGE,
        "arguments": {"factory": judge, "arguments": own, "nodes": 2, "jobs_per_node": 32},
        "shared_by": "cluster",
    }


def test_on_one_machine_the_workers_share_its_cores(tmp_path: Path) -> None:
    config = MultiTurnRLConfig(model_path="m", rollout_workers=10_000)
    kept = {"run_folder": str(tmp_path / "judge"), "time_naive": False}
    path, found = judge_of(config, tmp_path)
    assert path.endswith("shared_judge:SharedJudge")
    cores = max(1, len(os.sched_getaffinity(0)) - 2)
    assert found == {
        "factory": JUDGE,
        "arguments": {"workers": cores, "backend": "emulator", **kept},
    }


def test_gpus_that_only_judge_are_those_after_the_ones_that_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    config = config_of(ROOT / "configs" / "eight_gpus_measured.yaml")
    _, found = judge_of(config, tmp_path)
    assert (found["gpus"], found["arguments"]["backend"]) == ("6,7", "cuda")
    paths = RunPaths(dataset=tmp_path, checkpoints=tmp_path, ray_temp=tmp_path, resume_from=None)
    assert ray_options(config, paths)["num_gpus"] == 6
    assert (
        "2 more GPUs of the machine, which do nothing else" in dict(placement(config))["verdicts"]
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3,5")
    few = config.model_copy(update={"num_gpus": 2, "judge_gpus": 1})
    assert judge_of(few, tmp_path)[1]["gpus"] == "5"


def test_the_documents_placement_has_a_pool_for_each_part(tmp_path: Path) -> None:
    """4 GPUs train (with the reference), 2 write, 1 judges, as the users' documents draw it."""
    config = config_of(ROOT / "configs" / "documents_placement.yaml")
    _, judge = judge_of(config, tmp_path)
    assert (judge["gpus"], judge["arguments"]["backend"]) == ("6", "cuda")
    paths = RunPaths(dataset=tmp_path, checkpoints=tmp_path, ray_temp=tmp_path, resume_from=None)
    assert ray_options(config, paths)["num_gpus"] == 6
    places = dict(placement(config))
    assert places["policy training"].startswith("4 GPUs")
    assert places["rollout"].startswith("2 more GPUs")
    assert places["reference"] == "the same 4 GPUs"
    assert places["verdicts"].startswith("1 more GPU")
    verl = validated(with_dtype(config))
    rollout = verl.actor_rollout_ref.rollout
    assert (verl.trainer.n_gpus_per_node, rollout.n_gpus_per_node, rollout.nnodes) == (4, 2, 1)
    # What verl's trainer for such a pool asserts when it starts.
    assert verl.trainer.v1.trainer_mode == "separate_async"
    steps = verl.trainer.v1.separate_async.parameter_sync_step
    mini_batch = verl.actor_rollout_ref.actor.ppo_mini_batch_size
    assert verl.data.train_batch_size == steps * mini_batch
    assert rollout.checkpoint_engine.backend != "naive"


@pytest.mark.parametrize(
    "given",
    [
        {"device": "cpu"},
        {"ray_address": "auto"},
        {"algorithm": "dapo"},
        {"curriculum": "three_tier"},
        {"policy": "per_role", "lora_rank": 8},
    ],
    ids=str,
)
def test_a_rollout_pool_is_refused_where_it_has_no_meaning(given: dict[str, object]) -> None:
    settings = {"model_path": "m", "device": "cuda", "rollout_gpus": 2, "num_episodes": 40}
    with pytest.raises(UsageError, match="rollout_gpus"):
        rl_config(read_recipe(None), settings | given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device": "cpu"}, "judge_gpus are of one machine whose other GPUs train"),
        ({"ray_address": "auto"}, "on a cluster set judge_nodes"),
        ({"judge_args": {"backend": "emulator"}}, "judge_gpus are of no use to the emulator"),
        ({"judge": "my:judge"}, "judge_gpus are for the usual judge"),
    ],
)
def test_gpus_that_cannot_judge_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        rl_config(read_recipe(None), {"model_path": "m", "device": "cuda", "judge_gpus": 1} | given)


def test_a_judge_of_the_users_own_is_each_workers_own(tmp_path: Path) -> None:
    config = MultiTurnRLConfig(model_path="m", judge="my:judge", judge_args={"x": 1})
    assert judge_of(config, tmp_path) == ("my:judge", {"x": 1})


def test_some_cores_are_left_to_what_feeds_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    gpu = MultiTurnRLConfig(model_path="m", rollout_workers=2)
    cpu = MultiTurnRLConfig.cpu(model_path="m", rollout_workers=2)
    found = [judge_of(c, tmp_path)[1]["arguments"]["workers"] for c in (gpu, cpu)]
    assert found == [14, 16]


def test_rl_can_leave_out_the_tasks_that_sft_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from coding_framework.data.examples import training_tasks

    script = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))
    given: list[str] = []
    validated: list[str] = []

    class Trainer:
        def __init__(
            self, _: MultiTurnRLConfig, *, tasks: list[Task], validation_tasks: list[Task]
        ) -> None:
            given.extend(task.name for task in tasks)
            validated.extend(task.name for task in validation_tasks)

        async def train(self) -> None: ...

    monkeypatch.setattr(verl_integration, "MultiAgentVERLTrainer", Trainer)
    flags = {"rl_tasks": 12, "rl_skip_tasks": 8}
    pool = script["make_pool"](flags, read_recipe(None))
    assert not flags
    drawn = [task.name for task in training_tasks(24, max_steps=3)]
    script["run"](MultiTurnRLConfig(model_path="m", num_episodes=9), **pool)
    assert (given, validated) == (drawn[8:20], [])
    validates = MultiTurnRLConfig(
        model_path="m", num_episodes=9, validate_every=3, validation_tasks=4
    )
    given.clear()
    script["run"](validates, **pool)
    assert (given, validated) == (drawn[8:20], drawn[20:])


def test_rl_on_modules_draws_what_sft_does_not_show_and_validates_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coding_framework.data.modules.pool import training_modules, validation_modules

    script = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))
    given: list[list[str]] = []

    class Trainer:
        def __init__(
            self, _: MultiTurnRLConfig, *, tasks: list[Task], validation_tasks: list[Task]
        ) -> None:
            given.extend([task.name for task in part] for part in (tasks, validation_tasks))

        async def train(self) -> None: ...

    monkeypatch.setattr(verl_integration, "MultiAgentVERLTrainer", Trainer)
    flags = {"task_pool": "modules", "rl_tasks": 6, "rl_skip_tasks": 2}
    pool = script["make_pool"](flags, read_recipe(None))
    config = MultiTurnRLConfig(model_path="m", num_episodes=9, validate_every=3, validation_tasks=4)
    script["run"](config, **pool)
    wanted = (training_modules(6, skip=2), validation_modules(4))
    assert given == [[task.name for task in part] for part in wanted]


class DrawnError(Exception):
    """Which tasks were asked for."""


def test_the_tasks_of_rl_come_through_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(self: CUDADataPipeline, n: int, *, min_steps: int = 0) -> list[Task]:
        raise DrawnError(n, min_steps, self.config.max_steps, self.config.max_tier)

    monkeypatch.setattr(CUDADataPipeline, "draw_tasks", draw)
    recipe = Recipe(task_max_ops=2, task_max_tier=0, rl_skip_tasks=5)
    whole = WholeRun(title="", recipe=recipe, folder=Path(), base_model="m")
    with pytest.raises(DrawnError) as found:
        whole.rl_candidates(3, at_least=1)
    assert found.value.args == (8, 1, 2, 0)
    run = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))["run"]
    config = MultiTurnRLConfig.cpu(model_path="m", validate_every=0)
    with pytest.raises(DrawnError) as found:
        run(config, rl_tasks=4, rl_skip_tasks=2, task_max_ops=2, task_max_tier=1,
            task_scope="starter", task_pool="functions")  # fmt: skip
    assert found.value.args[2:] == (2, 1)

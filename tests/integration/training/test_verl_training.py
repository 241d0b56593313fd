"""verl's real trainer on Ray on the CPU, with a tiny random model: real steps, kills, leftovers."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from coding_framework.errors import OutOfTimeError, TrainingError, UsageError
from coding_framework.store.conversations import read_rollouts, run_rollouts
from coding_framework.store.folder import RLFolder
from coding_framework.store.records import StepRecord
from coding_framework.store.training_log import read_metrics, read_validations
from coding_framework.training.role_phases import PhasesState, adapter_folder, schedule
from coding_framework.training.verl.process import MAIN, RUN_VARIABLE, run_processes
from coding_framework.training.verl_integration import (
    MultiAgentVERLTrainer,
    MultiTurnRLConfig,
    RLResult,
)
from coding_framework.types import Generation, Role
from support import tiny_rl, tiny_run
from support.tiny_run import SIZES, STEPS, finished, script
from support.victims import kill_one

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_rl.write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def config(model: Path, output: Path, **changes: object) -> MultiTurnRLConfig:
    given = {"model_path": str(model), "output_dir": str(output), **SIZES, **changes}
    return MultiTurnRLConfig.cpu(**given)


def train(settings: MultiTurnRLConfig) -> RLResult:
    return asyncio.run(MultiAgentVERLTrainer(settings, tasks=tiny_rl.tiny_tasks(5)).train())


def wait_until(condition: object, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"{what} not within {seconds} s"
        time.sleep(0.1)


@pytest.fixture
def worker_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())


@pytest.mark.ci(longest=True)
@pytest.mark.timeout(900)
def test_run_killed_after_its_first_step_goes_on_and_ends(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    """SIGKILL of the root script in the middle; the same command makes the remaining steps."""
    settings = config(model, tmp_path / "run")
    command = script(model, tmp_path / "run")
    beside = set(Path("outputs").rglob("main_ppo.log"))
    steps = tmp_path / "run" / "steps.jsonl"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as caller:
        try:
            wait_until(lambda: steps.exists() or caller.poll() is not None, 400, "first step")
        finally:
            caller.send_signal(signal.SIGKILL)
    assert steps.exists(), "the trainer ended before its first step"
    run = str((tmp_path / "run").resolve())
    wait_until(lambda: not run_processes(run), 30, "end of the killed run's processes")

    result = finished(command)

    assert 1 <= result.resumed_from < STEPS
    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))
    for step in result.steps:
        assert step.grad_norm is not None
        assert math.isfinite(step.grad_norm)
        assert step.grad_norm > 0
        assert step.conversations == settings.conversations_per_step
        assert step.masked_turns == step.faults
        assert step.rows_learnt > 0
        assert step.reward_mean is not None
    assert sum(step.faults for step in result.steps) > 0, "the test's judge has faults"
    assert_weights_moved(model, Path(result.final_model))
    assert (Path(result.best_model) / "config.json").exists()
    assert 1 <= result.best_step <= STEPS
    assert json.loads((tmp_path / "run" / "result.json").read_text())["best_step"]
    assert not run_processes(run)
    assert set(Path("outputs").rglob("main_ppo.log")) == beside, "Hydra left a folder where we are"
    assert not list(Path(tempfile.gettempdir()).glob(f"cuda-rl-ray-{os.getpid()}-*"))

    again = train(settings)  # nothing is left to do: no Ray, no step
    assert again.resumed_from == STEPS
    assert again.steps == result.steps


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_policy_that_validates_best_is_kept(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    """Validations before the first step and after each second one, with the old policy's
    probabilities computed anew, capped weights, two updates a step, and packed attention."""
    output = tmp_path / "run"
    changes = {
        "validate_every": 2, "validation_tasks": 3, "num_episodes": 4, "updates_per_step": 2,
        "reuse_rollout_logprobs": False, "leave_one_out": True, "scale_advantages": False,
        "packed_attention": True,
    }  # fmt: skip
    result = finished(script(model, output, **changes))

    run = RLFolder(output)
    validations = read_validations(run.validations)
    assert [v.step for v in validations] == [0, 2, 4]
    assert all(v.conversations == 3 for v in validations)
    paid = {v.step: v.reward_mean for v in validations if v.reward_mean is not None}
    assert result.best_step == max(paid, key=lambda step: (paid[step], -step))
    assert (Path(result.best_model) / "config.json").exists()
    trained = {r.state.task.name for r in run_rollouts(output)}
    (attempt,) = run.attempts()
    validated = {r.state.task.name for r in read_rollouts(attempt.validation, 2)}
    assert validated
    assert not validated & trained
    assert all(s.grad_norm > 0 and s.rows_learnt > 0 for s in result.steps)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_ends_where_its_validations_get_no_better(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    """A random model's answers are paid nothing, before any step and after two. verl may have made
    the next checkpoint before it is ended, whose validation is cut then. The same command again
    makes no more of them."""
    changes = {
        "validate_every": 2, "validation_tasks": 3, "num_episodes": 12, "save_every": 2,
        "validation_patience": 1,
    }  # fmt: skip
    result = finished(script(model, tmp_path / "run", **changes))

    rewards = [v.reward_mean for v in result.validations]
    assert rewards[-1] <= max(rewards[:-1])
    assert result.validations[-1].step <= len(result.steps) < 12
    assert f"It ended at step {len(result.steps)} of 12" in str(result.told(12))
    assert (Path(str(result.best_model)) / "config.json").exists()
    again = finished(script(model, tmp_path / "run", **changes))
    assert (again.steps, again.best_step) == (result.steps, result.best_step)
    assert len(RLFolder(tmp_path / "run").attempts()) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_outlives_its_workers(model: Path, tmp_path: Path, worker_path: None) -> None:
    """The worker that has the conversations is killed in the middle of a step, which verl would
    wait for for ever, and the one that trains in the next; all steps are made, each once."""
    output = tmp_path / "run"
    command = script(model, output, judge="support.tiny_rl:make_slow_judge", judge_args={})
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            for begun, victim in ((1, "TurnRowsWorker"), (2, "WorkerDict")):
                rollouts = f"attempts/*/rollouts/step_{begun:06d}.jsonl"
                wait_until(lambda at=rollouts: any(output.glob(at)) or run.poll(), 400, "a step")
                wait_until(lambda name=victim: kill_one(str(output), name), 60, victim)
            said = run.communicate(timeout=600)
        finally:
            run.kill()
    assert run.returncode == 0, said[1][-3000:]
    for restart, victim in enumerate(("TurnRowsWorker", "WorkerDict"), 1):
        assert re.search(rf"rl_restarted restart={restart} reason=.*{victim}", said[1]), said[1]
    result = RLResult.model_validate_json(said[0])
    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))
    assert not run_processes(str(output))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_disk_that_is_full_at_a_checkpoint_is_named_and_the_run_goes_on(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    """A file system with room for one checkpoint; some room is made, and the command run again."""
    disk = tmp_path / "run"
    disk.mkdir()
    command = shlex.join(script(model, disk, num_episodes=2))
    lines = (
        f"mount -t tmpfs -o size=40m tmpfs {disk} || exit 77",
        f"head -c {40 * 2**20 - 2_300_000} /dev/zero > {disk}/filler",
        f"{command} > {tmp_path}/first 2>&1; echo $? >> {tmp_path}/first",
        f"rm {disk}/filler; exec {command}",
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "\n".join(lines)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("user namespaces with mounts are not allowed here")
    *_, error, code = (tmp_path / "first").read_text().splitlines()
    assert code == "3"
    assert error.startswith(f"error: the disk of {disk} is full: ")
    assert error.endswith("run the same command again: it goes on from the last checkpoint")
    assert done.returncode == 0, done.stderr[-3000:]
    result = RLResult.model_validate_json(done.stdout)
    assert result.resumed_from == 1
    assert [step.step for step in result.steps] == [1, 2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_runs_at_once_on_one_machine_end_as_alone(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    """Each on a core of its own, as several are started on the GPUs of one machine; the second in
    two processes, with seven rows, which two do not divide."""
    cores = sorted(os.sched_getaffinity(0))
    odd = {
        "num_gpus": 2, "prompts_per_step": 1, "samples_per_prompt": 4, "max_turns": 2,
        "agents": "support.tiny_rl:make_brief_agents", "judge_args": {},
    }  # fmt: skip
    settings = [{"algorithm": "grpo"}, {"algorithm": "ppo", **odd}]
    runs = []
    for number, changes in enumerate(settings):
        core = str(cores[number % len(cores)])
        command = script(model, tmp_path / f"run{number}", num_episodes=2, **changes)
        runs.append(
            subprocess.Popen(
                ["taskset", "-c", core, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        )
    results = []
    for number, run in enumerate(runs):
        said, _ = run.communicate()
        assert run.returncode == 0, f"run {number}"
        results.append(RLResult.model_validate_json(said))
    assert [step.turns for step in results[1].steps] == [7, 7]
    for result in results:
        assert [step.step for step in result.steps] == [1, 2]
        assert all(step.grad_norm is not None and step.grad_norm > 0 for step in result.steps)
        assert_weights_moved(model, Path(result.final_model))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("algorithm", ["dapo", "ppo"])
def test_the_other_algorithms_make_two_real_steps_through_the_root_script(
    model: Path, tmp_path: Path, worker_path: None, algorithm: str
) -> None:
    output = tmp_path / "run"
    smallest = {
        "algorithm": algorithm,
        "num_episodes": 2,
        "prompts_per_step": 1,
        "samples_per_prompt": 2,
        "judge_args": {},
        "reward": "support.tiny_rl:PickyReward"
        if algorithm == "dapo"
        else "support.tiny_rl:TextReward",
        "kl_coefficient": 0.02,
    }
    if algorithm == "dapo":  # an adapter: the reference is the same model without it
        smallest |= {"kl_in_advantage": True, "lora_rank": 4}
    result = finished(script(model, output, **smallest))

    assert [step.step for step in result.steps] == [1, 2]
    assert all(step.grad_norm is not None and step.grad_norm > 0 for step in result.steps)
    assert all(step.rows_learnt > 0 for step in result.steps)
    assert_weights_moved(model, Path(result.final_model))
    metrics = read_metrics(next((output / "attempts").glob("*/metrics.jsonl")))
    if algorithm == "ppo":
        assert all(math.isfinite(metrics[step]["critic/vf_loss"]) for step in (1, 2))
        assert metrics[2]["actor/kl_loss"] > 0
        assert list(output.glob("checkpoints/global_step_2/critic/model_world_size_1_rank_0.pt"))
    else:
        assert abs(metrics[1]["actor/reference_kl"]) < 0.01  # how the rollout computes
        assert metrics[2]["actor/reference_kl"] != 0.0
        assert result.steps[1].kl == metrics[2]["actor/reference_kl"]
        prompts = (output / "prompts.jsonl").read_text().splitlines()
        names = iter(json.loads(row)["reward_model"]["ground_truth"] for row in prompts)
        flat = [len(list(itertools.takewhile(tiny_rl.is_flat, names))) for _ in result.steps]
        assert sum(flat) > 0, "the seed draws a prompt that teaches nothing"
        assert [step.groups_dropped for step in result.steps] == flat


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_optimizer_learns_beside_the_adapter_that_its_generator_has_learnt(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    """The second phase of two, by the root script, as after a stop at the swap."""
    output = tmp_path / "run"
    alternation = {
        "policy": "per_role",
        "phase_steps": 1,
        "num_episodes": 2,
        "lora_rank": 4,
        "compute_dtype": "float32",
        "prompts_per_step": 1,
        "samples_per_prompt": 2,
        "stop_reward": None,
        "judge_args": {},
    }
    generator = first_phase(config(model, output, **alternation))
    weights = (generator / "adapter_model.safetensors").read_bytes()

    result = finished(script(model, output, **alternation))

    assert result.resumed_from == 1
    assert [(step.step, step.trained) for step in result.steps] == [
        (1, Role.GENERATOR),
        (2, Role.OPTIMIZER),
    ]
    learnt = result.steps[1]
    assert learnt.rows_learnt == 2
    assert learnt.grad_norm is not None
    assert learnt.grad_norm > 0
    assert {role: found.turns for role, found in learnt.roles.items()} == {
        Role.GENERATOR: 2,
        Role.OPTIMIZER: 2,
    }
    for rollout in run_rollouts(output):
        spoken, answer = rollout.state.turns
        assert rollout.returns[0] is None
        assert rollout.returns[1] is not None
        assert logprobs_under(model, generator, spoken.generation) < 0.02
        assert logprobs_under(model, None, spoken.generation) > 0.05
        assert logprobs_under(model, None, answer.generation) < 0.02
    final = Path(result.final_model)
    assert (final / "generator" / "adapter_model.safetensors").read_bytes() == weights
    assert moved_adapter(final / "optimizer")


def first_phase(settings: MultiTurnRLConfig) -> Path:
    """The folder as the generator's phase leaves it; returns the adapter, random and large."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    output, (first, _) = Path(settings.output_dir), schedule(settings)
    state = PhasesState(model=settings.model_path, lora_rank=settings.lora_rank, done=(first,))
    base = AutoModelForCausalLM.from_pretrained(settings.model_path, dtype=torch.float32)
    lora = LoraConfig(r=4, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(base, lora)
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data = torch.randn_like(weight)
    adapter = adapter_folder(RLFolder(output), first)
    adapted.save_pretrained(str(adapter))
    (output / "phases.json").write_text(state.model_dump_json())
    record = StepRecord(step=1, trained=first.role)
    (output / "steps.jsonl").write_text(record.model_dump_json() + "\n")
    return adapter


def logprobs_under(model: Path, adapter: Path | None, generation: Generation) -> float:
    """How far an answer's log-probs are, in the mean, from those under a model."""
    import torch

    from coding_framework.agents.policies import load_model

    loaded, _ = load_model(model, adapter=adapter, dtype="float32", device="cpu")
    prompt, answer = generation.prompt_ids, generation.response_ids
    with torch.inference_mode():
        logits = loaded(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    under = logits.log_softmax(-1).gather(-1, torch.tensor(answer).unsqueeze(-1)).squeeze(-1)
    return float((under - torch.tensor(generation.logprobs)).abs().mean())


def moved_adapter(adapter: Path) -> bool:
    from safetensors.torch import load_file

    state = load_file(adapter / "adapter_model.safetensors")
    return all(bool(weight.any()) for name, weight in state.items() if "lora_B" in name)


def assert_weights_moved(before: Path, after: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    old = AutoModelForCausalLM.from_pretrained(before, dtype=torch.float32).state_dict()
    new = AutoModelForCausalLM.from_pretrained(after, dtype=torch.float32).state_dict()
    assert old.keys() == new.keys()
    moved = sum(float((old[name] - new[name]).abs().max()) > 0 for name in old)
    assert moved > len(old) / 2
    assert all(bool(torch.isfinite(weight).all()) for weight in new.values())


@pytest.mark.slow
def test_missing_plugin_is_one_sentence_and_no_training() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VERL_")}
    our_end, parents_end = os.pipe()  # the child ends when its parent's end is closed
    try:
        ran = subprocess.run(
            [sys.executable, "-m", MAIN, "cpu", "trainer.device=cpu"],
            env={**environment, "VERL_PLATFORM": "cpu"},
            stdin=our_end,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
    finally:
        os.close(our_end)
        os.close(parents_end)
    assert ran.returncode == 4
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("error: the verl plug-in did not register")
    assert "VERL_USE_EXTERNAL_MODULES=coding_framework.training.verl.patches" in last


@pytest.mark.slow
def test_rays_job_has_the_number_of_its_process_in_all_workers(tmp_path: Path) -> None:
    """verl names a socket in /tmp by it, of which two runs on a machine must not have the same."""
    code = f"""
import os, ray
from coding_framework.training.verl.patches import use_own_job_id
use_own_job_id()
ray.init(address="local", num_cpus=1, include_dashboard=False, _temp_dir={tempfile.mkdtemp()!r})
asked = ray.remote(lambda: ray.get_runtime_context().get_job_id()).remote()
print(int.from_bytes(bytes.fromhex(ray.get(asked)), "little") == os.getpid())
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=540, check=False
    )
    assert ran.stdout.split()[-1:] == ["True"], ran.stderr[-3000:]


def test_trainer_ends_when_its_parent_is_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", MAIN, "cpu"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(60) == 143


@pytest.mark.ci
def test_failing_start_names_reason_and_log_and_leaves_nothing(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    settings = config(model, tmp_path / "run", overrides=("trainer.no_such_option=1",))
    with pytest.raises(TrainingError, match=r"no_such_option.*trainer\.log"):
        train(settings)
    assert not run_processes(str((tmp_path / "run").resolve()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"agents": "support.tiny_rl:make_broken_agents"}, "KeyError: 'no_such_hint'"),
        ({"judge_args": {"no_such_setting": 1}}, "no_such_setting"),
    ],
)
def test_a_run_whose_conversations_cannot_be_held_ends_with_the_error(
    model: Path, tmp_path: Path, worker_path: None, changes: dict[str, object], reason: str
) -> None:
    """verl would wait for their rows for ever."""
    settings = config(
        model, tmp_path / "run", max_fault_share=0.01, stall_limit_s=1800.0, **changes
    )
    with pytest.raises(TrainingError, match=reason):
        train(settings)
    assert not run_processes(str((tmp_path / "run").resolve()))


def test_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a Hugging Face folder"):
        train(config(tmp_path / "nothing", tmp_path / "run"))


def test_second_trainer_in_the_same_folder_is_refused(model: Path, tmp_path: Path) -> None:
    import fcntl

    output = tmp_path / "run"
    output.mkdir()
    with (output / "run.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another training run uses"):
            train(config(model, output))


def test_leftovers_of_a_run_are_found_by_its_folder_only(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    mine = subprocess.Popen(sleeper, env={**os.environ, RUN_VARIABLE: str(tmp_path / "a")})
    other = subprocess.Popen(sleeper, env={**os.environ, RUN_VARIABLE: str(tmp_path / "b")})
    try:
        wait_until(lambda: run_processes(str(tmp_path / "a")), 10, "the sleeper")
        assert [p.pid for p in run_processes(str(tmp_path / "a"))] == [mine.pid]
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_step_learns_from_answers_that_were_written_while_the_one_before_was_trained(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    changes = {
        "one_step_off_policy": True, "max_turns": 1, "validate_every": 2, "validation_tasks": 3,
        "judge_args": {"fault_share": 0.0},  # a validation with a masked answer is not counted
    }  # fmt: skip
    settings = config(model, tmp_path / "run", **changes)
    result = finished(script(model, tmp_path / "run", **changes))
    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))
    run = RLFolder(tmp_path / "run")
    asked = [rollout.step for rollout in run_rollouts(run.root)]
    each = settings.conversations_per_step
    assert asked.count(1) == 2 * each  # its own prompts and those beforehand
    assert all(step.rows_learnt > 0 for step in result.steps)
    # a record is of what its step learnt from, and no conversation is in two
    assert [step.conversations for step in result.steps] == [each] * STEPS
    rollouts = run.attempts()[-1].rollouts
    groups = [{r.group for r in read_rollouts(rollouts, step)} for step in range(1, STEPS + 1)]
    assert len(set.union(*groups)) == STEPS * settings.prompts_per_step
    # prompts that were asked beforehand wait while the policy is validated
    checked = [v.step for v in read_validations(run.validations)]
    assert checked == [0, *range(2, STEPS, 2), STEPS]
    assert all(v.conversations == 3 for v in read_validations(run.validations))
    assert (Path(result.final_model) / "config.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_that_reached_its_limit_of_time_goes_on_from_its_last_step(
    model: Path, tmp_path: Path, worker_path: None
) -> None:
    with pytest.raises(OutOfTimeError, match=f"of {STEPS}: the same command goes on"):
        train(config(model, tmp_path / "run", minutes=0.01))
    run = RLFolder(tmp_path / "run")
    done = len(run.steps.read_text().splitlines())
    assert 1 <= done < STEPS
    assert not run_processes(str(run.root.resolve()))
    result = train(config(model, tmp_path / "run"))
    assert result.resumed_from >= done
    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))

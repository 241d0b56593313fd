"""The experiment as a program: arms that stop and go on, parts that travel, tables."""

from __future__ import annotations

import asyncio
import json
import random
import runpy
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from support.made_conversations import make_state, make_turn, make_verdict
from support.tiny_lm import make_tiny_lm

sys.path.append(str(Path(__file__).parent))
import carry
import learning
import tables
from plans import Plan, Searched, read_plan

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.errors import OutOfTimeError, TrainingError, UsageError
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.evaluation.suites import load_suite
from coding_framework.orchestration.beam import Confirmed
from coding_framework.store.checkpoints import (
    file_digest,
    finish,
    manifest_of,
    whole_checkpoints,
)
from coding_framework.store.folder import RLFolder
from coding_framework.store.lines import JsonlSink
from coding_framework.store.model_card import ModelCard, card_of
from coding_framework.training.recipes import read_recipe
from coding_framework.types import Generation, Status, Task
from coding_framework.wiring import make_judge

pytestmark = pytest.mark.unit
ONE_STEP = SimpleNamespace(response_tokens=1600, turns=16)
HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "name", ["h200", "half_hour", "sft", "two_gpus", "control", "pieces", "toy"]
)
def test_each_plan_gives_settings_that_the_trainings_take(name: str) -> None:
    from coding_framework.run.eval_options import EvalOptions
    from coding_framework.run.rejection_options import RejectionOptions
    from coding_framework.training.recipes import RecipeFile, rl_config, sft_config
    from coding_framework.wiring import JudgeSettings

    plan = read_plan(HERE / f"{name}.yaml")
    recipe = RecipeFile(device=plan.device)
    sft_config(recipe, {"prompts": plan.prompts, **plan.sft})
    rl_config(recipe, {"model_path": "m", "curriculum": "informative", **plan.rl})
    RejectionOptions(pool=plan.pool, **plan.rft)
    EvalOptions(**plan.sampling)
    JudgeSettings(**plan.judge)
    assert plan.digest == read_plan(HERE / f"{name}.yaml").digest


def test_the_mistakes_of_a_plan_are_of_tasks_that_its_rl_leaves_out(tmp_path: Path) -> None:
    from coding_framework.data.example_store import read_training_examples
    from coding_framework.data.modules.pool import training_modules

    plan = read_plan(HERE / "two_gpus.yaml")
    path = learning.unpacked_mistakes(learning.Experiment(plan, tmp_path, "sft"))
    assert path is not None
    examples = read_training_examples(path)
    assert len(examples) > 900
    assert all(e.kind == "repair" and e.receipt and e.previous_verdict for e in examples)
    made_on = {task.name for task in training_modules(plan.rl_skip)}
    assert {e.task.name for e in examples} <= made_on
    assert not made_on & {t.name for t in training_modules(plan.rl_tasks, skip=plan.rl_skip)}


class CapturedError(Exception):
    """A command that would have been run."""


@pytest.mark.parametrize(
    "name", ["h200", "half_hour", "sft", "two_gpus", "control", "pieces", "toy"]
)
def test_each_command_of_a_plan_is_one_that_the_project_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coding_framework.cli import build_parser

    def take(command: list[str], **_: object) -> None:
        words = command[1:]
        if words[0] == "-m":
            build_parser().parse_args(words[2:])
        else:
            runpy.run_path(words[0])["parse"](words[1:])
            recipe = Path(words[words.index("--config") + 1])
            assert read_recipe(recipe).device == plan.device
        raise CapturedError(words[2] if words[0] == "-m" else Path(words[0]).name)

    plan = read_plan(HERE / f"{name}.yaml").model_copy(update={"serve": None})
    monkeypatch.setattr(learning.subprocess, "Popen", take)
    monkeypatch.setattr(learning, "require", lambda now, arm: now.model(arm))
    monkeypatch.setattr(learning, "spent", lambda now: (4096, 4_000_000))
    monkeypatch.setattr(learning, "read_steps", lambda path: [ONE_STEP])
    evidence = tmp_path / "rft" / "task_evidence.jsonl"
    evidence.parent.mkdir()
    evidence.write_text('{"task": "relu", "samples": 8, "solved": 3}\n')
    (tmp_path / "rft" / "summary.json").write_text('{"tokens": 8000, "samples": 8}')
    talked = learning.note_of(learning.Experiment(plan, tmp_path, "feedback"), "feedback")
    talked.parent.mkdir()
    talked.write_text('{"result": {"policy": "sft"}}')
    stages = [(arm, stage, work) for arm, found in learning.STAGES.items() for stage, work in found]
    seen = set()
    for arm, stage, work in stages:
        now = learning.Experiment(plan, tmp_path, arm, minutes=60.0, kernelbench=tmp_path)
        if stage == "test":
            told = json.dumps({"result": {"chosen": 0.4}})
            learning.note_of(now, "temperature").write_text(told)
        chosen = stage == "temperature" and len(plan.temperatures) == 1
        if chosen or stage in ("search", "compare") or (stage == "mixture" and not plan.mixture):
            continue
        if arm == "parts" and stage != "test":
            continue
        if arm == "feedback" and plan.feedback is None:
            with pytest.raises(UsageError, match="the plan says nothing of feedback"):
                work(now)
            continue
        with pytest.raises(CapturedError) as captured:
            work(now)
        seen.add((arm, str(captured.value)))
    assert ("sft", "run_sft_training.py") in seen
    assert ("rl", "run_multiturn_rl_training.py") in seen
    assert {("rft", "rft"), ("control", "rft"), ("sft", "eval"), ("kernelbench", "eval")} <= seen
    assert (("feedback", "eval") in seen) == (plan.feedback is not None)


def test_a_plan_with_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text((HERE / "toy.yaml").read_text() + "steps: 4\n")
    with pytest.raises(UsageError, match=r"p\.yaml: there is no setting steps: remove it"):
        read_plan(tmp_path / "p.yaml")


# --- parts ----------------------------------------------------------------------------------------


def test_what_travels_comes_back_and_what_can_be_made_again_stays(tmp_path: Path) -> None:
    work = tmp_path / "work"
    weights = random.Random(0).randbytes(200_000)
    for name in ("adapters/sft/a.bin", "adapters/rft/a.bin", "models/sft/m.bin", "sft/model/m.bin",
                 "sft/checkpoints/step/o.bin", "rft/samples/answers.jsonl"):  # fmt: skip
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(weights)
    (work / "sft" / "kept").write_text("")
    parts = carry.pack(work, tmp_path / "parts", 0.1)
    assert len(parts) > 1
    assert max(p.stat().st_size for p in parts) <= 0.1 * 2**20
    assert carry.unpack(tmp_path / "parts", tmp_path / "there") == 4
    found = {str(p.relative_to(tmp_path / "there")) for p in (tmp_path / "there").rglob("*")
             if p.is_file()}  # fmt: skip
    assert found == {
        "adapters/sft/a.bin", "adapters/rft/a.bin", "rft/samples/answers.jsonl", "sft/kept",
    }  # fmt: skip
    assert (tmp_path / "there/adapters/sft/a.bin").read_bytes() == weights
    parts[0].write_bytes(b"other")
    with pytest.raises(UsageError, match="missing or damaged: copy it again"):
        carry.unpack(tmp_path / "parts", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    with pytest.raises(UsageError, match="holds nothing of an experiment"):
        carry.pack(tmp_path / "nothing", tmp_path / "p", 1)


def test_of_an_unfinished_rl_the_newest_checkpoint_travels_alone(tmp_path: Path) -> None:
    checkpoints = tmp_path / "work" / "rl-0" / "checkpoints"
    for step in (8, 16, 24):
        actor = checkpoints / f"global_step_{step}" / "actor"
        actor.mkdir(parents=True)
        (actor / "model_world_size_1_rank_0.pt").write_text(str(step))
        if step < 24:  # the last one was cut off
            finish(actor.parent, manifest_of(actor.parent))
    carry.pack(tmp_path / "work", tmp_path / "parts", 1)
    carry.unpack(tmp_path / "parts", tmp_path / "there")
    there = tmp_path / "there" / "rl-0" / "checkpoints"
    assert [p.name for p in whole_checkpoints(there)] == ["global_step_16"]
    assert not (there / "global_step_8").exists()


# --- stages ---------------------------------------------------------------------------------------


def plan_of(model: Path | str = "m") -> Plan:
    told = yaml.safe_load((HERE / "toy.yaml").read_text())
    return Plan.model_validate({**told, "base_model": str(model)})


def test_an_adapter_of_eight_bits_comes_back_to_the_bit(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file
    from small_adapter import SMALL, WEIGHTS, restore, rounded, store

    torch.manual_seed(0)
    weight = torch.randn(64, 300) * torch.logspace(-9, 2, 64)[:, None]
    weight[3], weight[4, 0] = 0.0, 127 * 2.0**5
    near = rounded(weight)
    assert (near.float() - weight).abs().amax(1).le(weight.abs().amax(1) / 127 + 1e-30).all()
    assert torch.equal(rounded(near), near)
    first, small, back = (tmp_path / name for name in ("adapter", "small", "back"))
    first.mkdir()
    (first / "adapter_config.json").write_text("{}")
    save_file({"a": weight.bfloat16()}, first / WEIGHTS)
    with pytest.raises(UsageError, match="was not rounded"):
        store(first, small)
    save_file({"a": near}, first / WEIGHTS)
    assert store(first, small).stat().st_size < 0.55 * (first / WEIGHTS).stat().st_size
    restore(small, back)
    assert torch.equal(load_file(back / WEIGHTS)["a"], near)
    assert (back / "adapter_config.json").exists()
    (small / SMALL).unlink()
    with pytest.raises(UsageError, match="give a folder that `store` wrote"):
        restore(small, back)


def test_a_stored_policy_is_an_arm_whose_training_is_done(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from small_adapter import WEIGHTS, rounded

    adapter = tmp_path / "a"
    adapter.mkdir()
    save_file({"w": rounded(torch.randn(4, 8))}, adapter / WEIGHTS)
    (adapter / "start.json").write_text('{"start": null, "trained": true}')
    card = ModelCard(stage="sft", base_model="m", prompts="v3")
    (adapter / "model_card.json").write_text(card.model_dump_json())
    where = {"base_model_name_or_path": "/root/.cache/hub/m", "r": 16}
    (adapter / "adapter_config.json").write_text(json.dumps(where))
    plan = str(HERE / "sft.yaml")
    assert learning.main(["store", str(adapter), "--to", str(tmp_path / "s")]) == 0
    work = ["--work", str(tmp_path / "w"), "--plan", plan]
    assert learning.main(["restore", str(tmp_path / "s"), *work]) == 0
    now = learning.Experiment(read_plan(Path(plan)), tmp_path / "w", "sft")
    told = card_of(now.adapter("sft"))
    assert told is not None
    assert told.weights[WEIGHTS] == file_digest(now.adapter("sft") / WEIGHTS)
    stored = json.loads((now.adapter("sft") / "adapter_config.json").read_text())
    assert stored == {"base_model_name_or_path": "m", "r": 16}  # elsewhere that path is nothing
    assert "restored" in learning.noted(now, "train")
    assert learning.temperature(now)["chosen"] == 0.2
    assert learning.main(["restore", *work]) == 2


def test_a_stored_policy_of_rl_brings_what_its_control_reads(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from small_adapter import WEIGHTS, rounded

    plan = HERE / "two_gpus.yaml"
    here = learning.Experiment(read_plan(plan), tmp_path / "here", "rl", seed=1)
    adapter = here.adapter("rl-1")
    adapter.mkdir(parents=True)
    save_file({"w": rounded(torch.randn(4, 8))}, adapter / WEIGHTS)
    (adapter / "start.json").write_text('{"start": "sft", "trained": true}')
    run = RLFolder(here.folder())
    run.root.mkdir()
    step = {"step": 1, "turns": 256, "response_tokens": 200_000, "reward_mean": 0.5}
    run.steps.write_text(json.dumps(step) + "\n")
    run.validations.write_text('{"step": 0, "conversations": 50, "reward_mean": 0.6}\n')
    learning.note(here, "train", 1.0, {"steps": 1, "best_step": 1})
    assert learning.main(["store", str(adapter), "--to", str(tmp_path / "s")]) == 0
    work = ["--work", str(tmp_path / "there"), "--plan", str(plan)]
    assert learning.main(["restore", str(tmp_path / "s"), *work]) == 0
    there = learning.Experiment(here.plan, tmp_path / "there", "control", seed=1)
    assert learning.spent(there) == learning.spent(here)
    assert there.best == "rl-1"
    rl = learning.Experiment(here.plan, tmp_path / "there", "rl", seed=1)
    assert learning.noted(rl, "train") == {"steps": 1, "best_step": 1}


def test_an_arm_goes_on_after_its_last_finished_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []

    def first(now: learning.Experiment) -> dict[str, int]:
        did.append("first")
        return {"steps": 3}

    def second(now: learning.Experiment) -> dict[str, int]:
        did.append("second")
        if len(did) < 3:
            raise OutOfTimeError("stopped in time")
        return {}

    monkeypatch.setattr(learning, "STAGES", {"sft": (("a", first), ("b", second))})
    now = learning.Experiment(plan_of(), tmp_path, "sft")
    with pytest.raises(OutOfTimeError):
        learning.run_arm(now)
    learning.run_arm(now)
    assert did == ["first", "second", "second"]
    assert learning.noted(now, "a") == {"steps": 3}
    other = learning.Experiment(plan_of("another"), tmp_path, "sft")
    with pytest.raises(UsageError, match="is of another plan"):
        learning.run_arm(other)


def test_the_status_of_a_command_that_stopped_in_time_is_passed_on(tmp_path: Path) -> None:
    now = learning.Experiment(plan_of(), tmp_path, "sft")
    with pytest.raises(OutOfTimeError, match="sft stopped in time"):
        now.run(sys.executable, "-c", "raise SystemExit(4)")
    with pytest.raises(learning.TrainingError, match="ended with 3"):
        now.run(sys.executable, "-c", "raise SystemExit(3)")
    late = learning.Experiment(plan_of(), tmp_path, "sft", minutes=0.01)
    with pytest.raises(OutOfTimeError, match="no time is left"):
        late.run(sys.executable, "-c", "raise SystemExit(0)")


SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): ...
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def test_a_server_answers_while_it_is_asked_and_is_gone_afterwards(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    told = plan_of().model_dump() | {"serve": f"{{python}} {tmp_path}/server.py {{port}}"}
    now = learning.Experiment(Plan.model_validate(told), tmp_path, "sft")
    with now.served(tmp_path / "model") as words:
        assert words[0] == "--server"
        assert learning.answers(words[1])
    assert not learning.answers(words[1])
    broken = told | {"serve": "{python} -c 'raise SystemExit(3)'"}
    now = learning.Experiment(Plan.model_validate(broken), tmp_path, "sft")
    with pytest.raises(learning.TrainingError, match="does not start: see"), now.served(tmp_path):
        pass
    for name in ("h200", "half_hour"):
        serve = read_plan(HERE / f"{name}.yaml").serve
        words = shlex.split((serve or "").format(python="p", model="m", port=1))
        assert json.loads(words[-1])["cudagraph_mode"] == "FULL_DECODE_ONLY"


def test_a_server_on_the_gpu_that_judges_ends_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "models" / "sft").mkdir(parents=True)
    (tmp_path / "models" / "sft" / "config.json").write_text("{}")
    asked: list[tuple[bool, bool]] = []

    def cuda_rl(_: learning.Experiment, *words: str | Path) -> None:
        url = str(words[words.index("--server") + 1])
        asked.append(("--ask-only" in words, learning.answers(url)))

    monkeypatch.setattr(learning.Experiment, "cuda_rl", cuda_rl)
    found = []
    for gpu, more in (("", ()), ("{gpu}", ()), ("", ("--turns", "3"))):
        told = {"serve": f"{{python}} {tmp_path}/server.py {{port}} {gpu}"}
        plan = Plan.model_validate(plan_of().model_dump() | told)
        learning.Experiment(plan, tmp_path, "sft").evaluate("sft", ["m"], 1, 0.0, tmp_path, *more)
        found.append([*asked])
        asked.clear()
    assert found == [[(True, True), (False, False)], [(False, True)], [(False, True)]]


def plan_with_server(folder: Path) -> Path:
    """A plan whose server answers, on the GPU that judges."""
    (folder / "server.py").write_text(SERVER)
    told = plan_of().model_dump(mode="json")
    told |= {"serve": f"{{python}} {folder}/server.py {{port}}", "rft": {}}
    (folder / "plan.yaml").write_text(yaml.safe_dump(told))
    return folder / "plan.yaml"


def test_tests_of_one_call_share_a_server_and_are_judged_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_with_server(tmp_path)
    for name in ("sft", "control-0"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    asked: list[tuple[str, bool, bool, str]] = []

    def cuda_rl(now: learning.Experiment, *words: str | Path) -> None:
        url = str(words[words.index("--server") + 1])
        now.run("true", *words)
        asked.append((now.name, "--ask-only" in words, learning.answers(url), url))

    monkeypatch.setattr(learning.Experiment, "cuda_rl", cuda_rl)
    for reads in ("numbers_of", "numbers_by_suite"):
        monkeypatch.setattr(f"tables.{reads}", lambda folder: {"of": folder.name})
    command = ["people", "--then", "sizes", "--plan", str(plan), "--work", str(tmp_path)]
    assert learning.main(command) == 0
    assert [one[:3] for one in asked] == [
        ("people", True, True), ("sizes", True, True), ("people", False, False),
        ("sizes", False, False),
    ]  # fmt: skip
    assert len({url for *_, url in asked}) == 1
    assert json.loads((tmp_path / "stages" / "sizes.test.json").read_text())["result"]


def test_the_single_operations_of_parts_are_asked_for_with_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_with_server(tmp_path)
    (tmp_path / "models" / "sft").mkdir(parents=True)
    (tmp_path / "models" / "sft" / "config.json").write_text("{}")
    learning.note(learning.Experiment(read_plan(plan), tmp_path, "parts"), "cut", 0.0, {})
    asked: list[tuple[str, bool, str]] = []

    def cuda_rl(now: learning.Experiment, *words: str | Path) -> None:
        url = str(words[words.index("--server") + 1])
        now.run("true", *words)
        suite = Path(words[words.index("--suite") + 1]).name
        asked.append((suite, "--ask-only" in words, url))

    monkeypatch.setattr(learning.Experiment, "cuda_rl", cuda_rl)
    monkeypatch.setattr("tables.numbers_of", lambda folder: {"of": folder.name})
    command = ["parts", "--until", "test", "--plan", str(plan), "--work", str(tmp_path)]
    assert learning.main(command) == 0
    assert [one[:2] for one in asked] == [("alone", True), ("parts", True), ("parts", False)]
    assert len({url for *_, url in asked}) == 1


def test_the_server_of_the_next_policy_starts_while_one_is_tested(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    told = plan_of().model_dump() | {"serve": f"{{python}} {tmp_path}/server.py {{port}}"}
    plan = Plan.model_validate(told)
    for name in ("rl-0", "sft"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
        (tmp_path / "adapters" / name).mkdir(parents=True)
    servers = learning.Servers()
    arms = [learning.Experiment(plan, tmp_path, a, servers=servers) for a in ("rl", "sft")]
    arms.append(learning.Experiment(plan, tmp_path, "kernelbench", servers=servers))
    learning.note(arms[1], "train", 0.0, {})
    servers.needed += [policy for arm in arms for policy in learning.policies_tested(arm)]
    assert servers.needed == ["rl-0", "sft", "rl-0", "sft"]
    urls, beside = [], []
    for policy in ("rl-0", "sft", "rl-0", "sft"):
        with arms[0].served(tmp_path / "models" / policy, policy) as words:
            assert learning.answers(words[1])
            urls.append(words[1])
            beside.append([*servers.running])
    assert beside == [["sft"], ["rl-0"], ["sft"], []]
    assert urls[:2] == urls[2:]
    assert not servers.running
    assert not any(map(learning.answers, urls))
    servers.needed += ["rl-0", "sft"]
    with arms[0].served(tmp_path / "models" / "rl-0", "rl-0") as words:
        other = servers.running["sft"]
    assert not learning.answers(words[1])  # what began beside it ends with the call
    servers.end()
    assert other.process.poll() is not None
    servers.running["sft"] = other  # one that has ended is started again
    with arms[0].served(tmp_path / "models" / "sft", "sft") as words:
        assert learning.answers(words[1])


def test_an_arm_without_the_one_before_says_which_to_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run the arm sft first"):
        learning.rft(learning.Experiment(plan_of(), tmp_path, "rft"))
    with pytest.raises(UsageError, match="run the arm rl with this seed first"):
        learning.control(learning.Experiment(plan_of(), tmp_path, "control"))
    with pytest.raises(UsageError, match="holds no tested arm"):
        tables.write_tables(tmp_path, plan_of(), None)


@pytest.mark.parametrize(
    ("solved", "expected"),
    [
        ((4, 8, 0), {"tasks": 1, "samples": 24, "task_evidence": True}),  # one of three is open
        ((0, 8, 0), {"tasks": 4, "samples": 6, "task_evidence": False}),  # those of the pool
    ],
)
def test_the_control_samples_as_many_tokens_and_what_rl_draws_from(
    solved: tuple[int, ...],
    expected: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(learning, "spent", lambda now: (16, 2400))
    monkeypatch.setattr(learning, "_reject", lambda now, start, how: asked.update(how) or {})
    folder = tmp_path / "rft"
    folder.mkdir()
    lines = [json.dumps({"task": f"t{i}", "samples": 8, "solved": n}) for i, n in enumerate(solved)]
    (folder / "task_evidence.jsonl").write_text("\n".join(lines) + "\n")
    now = learning.Experiment(plan_of(), tmp_path, "control")
    (folder / "summary.json").write_text('{"tokens": 2400, "samples": 24}')
    learning.control(now)
    assert asked | {"task_evidence": asked["task_evidence"] is not None} == asked | expected
    (folder / "summary.json").write_text('{"tokens": 0, "samples": 24}')
    with pytest.raises(UsageError, match="counts no tokens"):
        learning.control(now)


def test_a_control_without_rft_reads_rls_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(learning, "spent", lambda now: (16, 2400))
    monkeypatch.setattr(learning, "read_steps", lambda path: [ONE_STEP])

    def reject(now: learning.Experiment, start: str, how: Mapping[str, object]) -> dict[str, int]:
        asked.update(how, start=start)
        return {}

    monkeypatch.setattr(learning, "_reject", reject)
    plan = plan_of().model_copy(update={"rl_from": "sft"})
    learning.control(learning.Experiment(plan, tmp_path, "control"))
    assert asked | {"start": "sft", "tasks": 4, "samples": 6, "task_evidence": None} == asked


def test_a_control_of_known_size_need_not_wait_for_rl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(learning, "_reject", lambda now, start, how: asked.update(how) or {})
    plan = plan_of().model_copy(update={"rl_from": "sft", "control_samples": 3})
    found = learning.control(learning.Experiment(plan, tmp_path, "control", seed=1))
    assert found == {"tasks": 4, "samples": 3}
    assert asked | {"tasks": 4, "samples": 3, "skip_tasks": 0, "seed": 2} == asked
    plan = read_plan(HERE / "two_gpus.yaml")
    rl = plan.rl
    steps = rl["num_episodes"] // rl["validate_every"] + 1
    verdicts = rl["num_episodes"] * rl["prompts_per_step"] * rl["samples_per_prompt"]
    verdicts += steps * rl["validation_tasks"]
    assert verdicts <= plan.rl_tasks * (plan.control_samples or 0) <= 1.2 * verdicts


# --- tables ---------------------------------------------------------------------------------------


def tried(task: str, flags: str, tokens: int = 100) -> list[SampleRecord]:
    """Samples of a task, "1" for a correct one."""
    return [
        SampleRecord(task=task, sample=n, correct=flag == "1", tokens=tokens)
        for n, flag in enumerate(flags)
    ]


def written(folder: Path, records: list[SampleRecord]) -> Path:
    folder.mkdir(parents=True)
    lines = "".join(r.model_dump_json() + "\n" for r in records)
    (folder / "records.jsonl").write_text(lines)
    return folder


def test_turns_are_compared_with_samples_of_as_many_tokens(tmp_path: Path) -> None:
    turns = written(tmp_path / "t", [
        *tried("a", "1", 250), *tried("b", "1", 250), *tried("c", "0", 250), *tried("d", "1", 250),
    ])  # fmt: skip
    samples = written(tmp_path / "s", [
        *tried("a", "1000"), *tried("b", "0010"), *tried("c", "0000"), *tried("d", "0100"),
    ])  # fmt: skip
    found = tables.at_equal_tokens(turns, samples, 4)
    # by 1, 2, 3 samples 1, 2, 3 of 4 are solved, by 100, 175, 225 and 250 tokens a task
    assert [row["correct"] for row in found["by_samples"]] == [0.25, 0.5, 0.75, 0.75]
    assert [row["tokens"] for row in found["by_samples"]] == [100, 175, 225, 250]
    assert found["samples_at_equal_tokens"] == 4
    assert (found["feedback"], found["difference"]) == (0.75, 0.0)
    all_at_once = [r for name in "abcd" for r in tried(name, "1", 200)]
    cheap = written(tmp_path / "u", all_at_once)
    found = tables.at_equal_tokens(cheap, samples, 4)
    assert found["samples_at_equal_tokens"] == 2.5
    assert found["difference"] == 1 - 0.625
    few = written(tmp_path / "v", tried("a", "1", 50))
    found = tables.at_equal_tokens(few, samples, 4)
    assert found["resampling"] == 0.5  # one draw in every second try


def test_an_operation_that_training_never_had_makes_another_stratum() -> None:
    import strata

    known = """
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.a(x).mean(1) @ x
"""
    assert strata.operations(known) == {"conv2d", "mean", "matmul"}
    assert strata.operations("import torch\nx = torch.kaiser_window(3)\n") == frozenset()
    assert strata.stratum(known) == "trained"
    new = known.replace("mean(1)", "logdet()")
    assert strata.stratum(new) == "never trained"


def records(share: float, tasks: int = 40, samples: int = 4) -> list[SampleRecord]:
    found = []
    for number in range(tasks):
        for sample in range(samples):
            right = (number * samples + sample) % 10 < 10 * share
            status = Status.CORRECT if right else Status.WRONG_OUTPUT
            state = make_state(make_turn(0, make_verdict(status, 2.0)), task=f"t{number}")
            found.append(sample_record(state, suite="s", sample=sample))
    return found


def test_the_registered_difference_is_found_where_it_is_there(tmp_path: Path) -> None:
    for seed, (less, more) in enumerate([(0.2, 0.6), (0.3, 0.6)]):
        for name, share in ((f"control-{seed}", less), (f"rl-{seed}", more), ("sft", 0.1)):
            folder = tmp_path / "test" / name
            folder.mkdir(parents=True, exist_ok=True)
            lines = "".join(r.model_dump_json() + "\n" for r in records(share))
            (folder / "records.jsonl").write_text(lines)
    (tmp_path / "stages").mkdir()
    tables.write_tables(tmp_path, plan_of(), None)
    found = json.loads((tmp_path / "tables.json").read_text())
    assert found["arms"]["rl-0"]["pass@1"] == pytest.approx(0.6, abs=0.03)
    pooled = found["comparisons"]["rl - control, pooled"]["pass@1"]
    assert pooled["tasks"] == 40
    assert pooled["estimate"] == pytest.approx(0.35, abs=0.05)
    assert pooled["ci95"][0] > 0
    bars = {bar["bar"]: bar["holds"] for bar in found["bars"]}
    assert bars["rl-0: pass@k less the control's"]
    assert not bars["SFT, one sample, correct"]


def test_what_became_of_each_sample_is_counted_an_answer_that_was_cut_by_itself() -> None:
    before = tried("a", "11") + tried("b", "01")
    after = [r.model_copy(update={"correct": False, "status": "compile_error", "cut": 1})
             if r.task == "a" else r for r in before]  # fmt: skip
    before = [r.model_copy(update={"status": "correct" if r.correct else "wrong_output"})
              for r in before]  # fmt: skip
    after = [r.model_copy(update={"status": "correct"}) if not r.cut else r for r in after]
    assert tables.moved(before, after) == {"correct -> cut": 2, "wrong_output -> correct": 1}


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_arms_run_on_two_cores_and_go_on_elsewhere(tmp_path: Path) -> None:
    """A random model: no kernel is right, so what RFT would learn is nothing, and RL's returns are
    equal. Every stage runs all the same, and the tables are made."""
    model = make_tiny_lm(tmp_path / "lm")
    told = yaml.safe_load((HERE / "toy.yaml").read_text())
    told |= {"base_model": str(model), "temperatures": [0.8]}
    told["sft"] |= {"epochs": 1, "max_length": 8192}
    for name in ("rft", "sampling"):
        told[name] |= {"max_new_tokens": 16, "max_prompt_tokens": 4000}
    told["rl"] |= {"max_response_tokens": 16, "max_prompt_tokens": 4000}
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(told))

    def run(work: Path, *words: str) -> None:
        command = [sys.executable, str(HERE / "learning.py"), *words, "--work", str(work)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{words}: {ran.stderr[-3000:]}"

    here, there = tmp_path / "here", tmp_path / "there"
    for arm in ("sft", "rft"):
        run(here, arm, "--plan", str(plan))
    run(here, "pack", "--to", str(tmp_path / "parts"), "--part-mib", "1")
    run(there, "unpack", str(tmp_path / "parts"))
    run(there, "sft", "--plan", str(plan))  # nothing is left to do
    run(there, "rl", "--then", "control", "feedback", "search", "--plan", str(plan))
    told_by = [sys.executable, str(HERE / "learning.py"), "tables", "--plan", str(plan)]
    subprocess.run([*told_by, "--work", str(there)], check=False)  # its bars do not hold
    found = json.loads((there / "tables.json").read_text())
    assert set(found["arms"]) == {"sft", "rft", "rl-0", "control-0"}
    assert "rl-0 - control-0" in found["comparisons"]
    assert {"rl-0.train", "search.search", "feedback.compare"} <= set(found["stages"])


def test_the_policy_that_is_kept_can_be_read(tmp_path: Path) -> None:
    from small_adapter import SMALL, WEIGHTS, restore

    kept = HERE / "policy"
    assert (kept / SMALL).stat().st_size < 20 * 2**20
    restore(kept, tmp_path)
    card = card_of(tmp_path)
    assert card is not None
    assert (card.base_model, card.prompts) == (read_plan(HERE / "sft.yaml").base_model, "v3")
    assert card.weights == {WEIGHTS: file_digest(tmp_path / WEIGHTS)}


def test_a_search_that_ends_early_has_seen_all_of_each_suite() -> None:
    one, two = ([SimpleNamespace(name=f"{s}{n}") for n in range(8)] for s in "ab")
    order = [task.name for task in learning.fair_order([one, two[:3]])]
    assert order[:4] == ["a0", "b0", "a4", "b2"]
    assert sorted(order) == sorted(t.name for t in (*one, *two[:3]))


def test_processes_share_a_search_and_the_last_one_has_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import search

    class Found:
        def __init__(self, *_: object) -> None: ...

        async def all(self, tasks: list[Any], sink: JsonlSink, *_: object) -> None:
            for task in tasks:
                sink.write({"task": task.name, "part": len(tasks)})

    monkeypatch.setattr(search, "_Search", Found)
    tasks: list[Any] = [SimpleNamespace(name=f"t{i}") for i in range(5)]
    given = (tmp_path / "m", tasks, Searched(tasks=5))
    more: dict[str, Any] = {"judge": {}, "folder": tmp_path, "seed": 0, "deadline": None}
    with pytest.raises(OutOfTimeError, match="2 tasks left"):
        search.search(*given, **more, part=(1, 2))
    rows = search.search(*given, **more, part=(2, 2))
    assert [(row["task"], row["part"]) for row in rows] == [
        (task.name, 3 - i % 2) for i, task in enumerate(tasks)
    ]
    assert search.search(*given, **more) == rows
    assert sorted(file.name for file in tmp_path.glob("found*")) == [
        "found.1of2.jsonl", "found.2of2.jsonl",
    ]  # fmt: skip


def test_a_search_tells_what_it_found_and_what_the_time_cut(tmp_path: Path) -> None:
    import search

    def row(task: str, speedup: float | None, *turns: list[tuple[str, float | None]]) -> Any:
        counted = {"candidates": 4, "tokens": 100, "seconds": 2.5}
        return {"task": task, "correct": speedup is not None, "speedup": speedup, "turns": turns,
                **counted}  # fmt: skip

    wrong, slow, fast = ("wrong_output", None), ("correct", 0.5), ("correct", 1.2)
    with JsonlSink(tmp_path / "found.jsonl") as sink:
        sink.write(row("t0", 1.2, [slow, wrong], [wrong, fast]))
        sink.write(row("t2", None, [wrong, wrong], [wrong, wrong]))
        sink.write(row("t3", 2.5, [("correct", 2.5), slow], [("correct", 2.51), wrong]))
        sink.write(row("t9", 9.0, [fast]))
        sink.write(row("no turn", None))
    tasks: list[Any] = [SimpleNamespace(name=f"t{i}") for i in range(6)]
    told = search.told(tasks, tmp_path)
    assert (told["tasks"], told["cut"], told["of"]) == (3, 1, 6), "t1 was cut, t4 never begun"
    assert (told["candidates"], told["tokens"], told["seconds_of_tasks"]) == (12, 300, 8)
    assert [told[m] for m in ("correct", "fast_1", "fast_1.05", "fast_2")] == [
        0.667, 0.667, 0.667, 0.333,
    ]  # fmt: skip
    assert told["ci95"]["correct"] == [0.208, 0.939], "Wilson's, of 2 of 3"
    assert (told["at_least"]["correct"], told["at_least"]["fast_2"]) == (0.5, 0.25)
    assert (told["one_turn"]["correct"], told["one_turn"]["fast_1"]) == (0.667, 0.333)
    assert told["one_answer"] == {"correct": 0.5, "fast_1": 0.167, "fast_1.05": 0.167,
                                  "fast_2": 0.167}  # fmt: skip
    assert told["fastest_in_turn"] == [1, 1], "what is faster by less than 1% is not"
    with (tmp_path / "found.1of2.jsonl").open("w") as file:
        file.write('{"task": "t5", "correct": tr')  # killed while it wrote
    assert search.told(tasks, tmp_path) == told
    silent: list[Any] = [SimpleNamespace(name="no turn")]
    assert search.told(silent, tmp_path)["correct"] == 0.0
    empty = search.told(tasks[4:], tmp_path)
    assert (empty["tasks"], empty["cut"], empty["correct"]) == (0, 0, 0.0)


@pytest.mark.parametrize("status", list(Status))
def test_a_gpu_judges_what_the_emulator_found_right_or_beyond_it(status: Status) -> None:
    from search import screened

    def saying(backend: str, status: Status) -> Any:
        async def judge(*_: object) -> Any:
            correct = status is Status.CORRECT
            return SimpleNamespace(status=status, correct=correct, backend=backend)

        return judge

    judge = screened(
        saying("emulator", status), saying("real", Status.CORRECT), saying("whole", Status.CORRECT)
    )
    beyond = dict.fromkeys((Status.TIMEOUT, Status.UNSUPPORTED), "whole")
    by = {Status.CORRECT: "real", **beyond}.get(status, "emulator")
    assert asyncio.run(judge(None, "")).backend == by


def test_a_search_judges_equal_kernels_once_and_begins_nothing_that_the_time_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import search

    judged: list[str] = []
    task = load_suite("held-out:1").tasks[0].task

    class SamePolicy:
        async def generate(self, *_: object) -> Generation:
            return Generation(text=f"```cuda\n{task.naive_kernel}\n```", counted=10)

    class Judge:
        def __init__(self, pool: JudgePool) -> None:
            self._ask = pool._judge_here
            pool._judge_here = self  # type: ignore[method-assign,assignment]

        def __call__(self, task: Task, code: str) -> Any:
            judged.append(code)
            return self._ask(task, code)

    def made(**given: Any) -> JudgePool:
        pool = make_judge(**given)
        Judge(pool)
        return pool

    monkeypatch.setattr(search, "make_judge", made)
    monkeypatch.setattr(search._Search, "_policy", lambda *_: (SamePolicy(), lambda _: 10))
    how = Searched(tasks=1, candidates=3, turns=2, beam=2, judges=1)
    more: dict[str, Any] = {
        "judge": {"backend": "emulator"}, "seed": 0, "max_new_tokens": 64, "folder": tmp_path,
    }  # fmt: skip
    model = tmp_path / "model"
    with pytest.raises(OutOfTimeError, match="1 tasks left"):
        search.search(model, [task], how, deadline=time.monotonic(), **more)
    (row,) = search.search(model, [task], how, deadline=time.monotonic() + 600, **more)
    assert row["correct"]
    assert (row["candidates"], row["correct_candidates"], row["masked"]) == (6, 6, 0)
    assert [len(turn) for turn in row["turns"]] == [3, 3]
    assert len(judged) == 2, "once as a candidate, and the best one again"
    assert row["failures"] == []


def test_a_task_is_searched_anew_where_a_second_verdict_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import search

    task = load_suite("held-out:1").tasks[0].task
    kernel = make_turn(0, make_verdict(Status.CORRECT, 2.0), code="right")
    faults = ["DeviceFullError: the GPU is full"]

    class Workflow:
        def __init__(self, *_: object, **__: object) -> None: ...
        async def __aenter__(self) -> None: ...
        async def __aexit__(self, *_: object) -> None: ...

        async def stream(self, *_: object, **__: object) -> Any:
            yield SimpleNamespace(state=make_state(kernel).model_copy(update={"task": task}))

    async def again(state: Any, judge: Any) -> Confirmed:
        return Confirmed(kernel, (faults.pop(),) if faults else ())

    monkeypatch.setattr(search, "CUDAKernelWorkflow", Workflow)
    monkeypatch.setattr(search, "confirmed", again)
    monkeypatch.setattr(search._Search, "_judges", lambda *_: (None, None))
    monkeypatch.setattr(search._Search, "_policy", lambda *_: (None, lambda _: 10))
    given = (tmp_path / "model", [task], Searched(tasks=1, candidates=2))
    more: dict[str, Any] = {
        "judge": {"backend": "emulator"}, "seed": 0, "max_new_tokens": 64, "folder": tmp_path,
        "deadline": None,
    }  # fmt: skip
    with pytest.raises(OutOfTimeError, match="1 tasks left"):
        search.search(*given, **more)
    (row,) = search.search(*given, **more)
    assert row["speedup"] == 2.0


def test_on_a_gpu_a_search_screens_first_and_second_verdicts_by_judges_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import contextlib

    import search

    made: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def judge(**given: Any) -> Any:
        made.append(given)
        yield lambda *_: None

    monkeypatch.setattr(search, "make_judge", judge)
    monkeypatch.setattr(search, "choose_backend", lambda wanted: wanted)
    monkeypatch.setattr(search, "cores", lambda: 32)
    how = Searched(tasks=1, judges=10)
    found = search._Search(tmp_path, how, {"backend": "cuda"}, tmp_path, 0, 64, None)
    with contextlib.ExitStack() as stack:
        found._judges(stack)
    kept = {"run_folder": tmp_path / "judge"}
    told = {"backend": "cuda", "time_naive": False}
    assert made == [
        {**told, **more, **of}
        for more, workers, cores in ((kept, 10, 18), ({}, search.AGAIN, 6))
        for of in (
            {"backend": "emulator", "workers": cores},
            {"small_shapes": False, "workers": workers},
            {"workers": 1},
        )
    ]


def test_a_server_that_does_not_start_is_what_a_search_ends_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Any:
        raise TrainingError("the server has ended")

    monkeypatch.setattr(learning.Experiment, "served", fails)
    monkeypatch.setattr(learning, "require", lambda *_: tmp_path)
    now = learning.Experiment(read_plan(HERE / "toy.yaml"), tmp_path, "search")
    with pytest.raises(TrainingError, match="the server has ended"):
        learning.searching(now)
    assert json.loads((tmp_path / "search" / "so_far.json").read_text())["policy"] == now.best


def test_a_search_that_found_nothing_says_how_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import search

    answers = iter(["no kernel at all", "__global__ void f() { none; }", "__global__ void g() {"])

    class WrongPolicy:
        async def generate(self, *_: object) -> Generation:
            return Generation(text=f"```cuda\n{next(answers)}\n```", counted=10)

    monkeypatch.setattr(search._Search, "_policy", lambda *_: (WrongPolicy(), lambda _: 10))
    how = Searched(tasks=1, candidates=3, turns=1, beam=1, judges=1)
    (row,) = search.search(
        tmp_path / "model", [load_suite("held-out:1").tasks[0].task], how,
        judge={"backend": "emulator"}, seed=0, max_new_tokens=64, folder=tmp_path, deadline=None,
    )  # fmt: skip
    assert not row["correct"]
    assert sum(failure["count"] for failure in row["failures"]) == 3
    assert {failure["status"] for failure in row["failures"]} >= {"compile_error"}
    assert all(failure["reason"] and failure["code"] for failure in row["failures"])


def test_a_timeout_of_a_server_is_not_the_end_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import search

    class Silent:
        async def generate(self, *_: object) -> Generation:
            raise TimeoutError("the server is silent")

    monkeypatch.setattr(search._Search, "_policy", lambda *_: (Silent(), lambda _: 10))
    task = load_suite("held-out:1").tasks[0].task
    more: dict[str, Any] = {"judge": {"backend": "emulator"}, "seed": 0, "max_new_tokens": 64}
    with pytest.raises(TimeoutError, match="the server is silent"):
        search.search(
            tmp_path / "model", [task], Searched(tasks=1, candidates=2, beam=1),
            folder=tmp_path, deadline=time.monotonic() + 600, **more,
        )  # fmt: skip


@pytest.mark.parametrize("said", ["0/2", "3/2", "2", "a/b"])
def test_a_part_that_there_is_not_is_refused(said: str) -> None:
    with pytest.raises(SystemExit):
        learning.parse(["search", "--part", said])

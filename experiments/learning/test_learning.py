"""The recipe of the stored policy, and the program that follows it."""

from __future__ import annotations

import json
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from support.tiny_lm import make_tiny_lm

sys.path.append(str(Path(__file__).parent))
import learning
from learning import Experiment, Plan, read_plan

from coding_framework.errors import UsageError
from coding_framework.store.checkpoints import file_digest
from coding_framework.store.model_card import ModelCard, card_of
from coding_framework.training.recipes import read_recipe

pytestmark = pytest.mark.unit
HERE = Path(__file__).parent
PLANS = ("recipe", "toy")


def plan_of(model: Path | str = "m", **changes: object) -> Plan:
    told = yaml.safe_load((HERE / "toy.yaml").read_text())
    return Plan.model_validate({**told, "base_model": str(model), **changes})


@pytest.mark.parametrize("name", PLANS)
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


def test_the_mistakes_of_the_recipe_are_of_tasks_that_its_rl_leaves_out(tmp_path: Path) -> None:
    from coding_framework.data.example_store import read_training_examples
    from coding_framework.data.modules.pool import training_modules

    plan = read_plan(HERE / "recipe.yaml")
    path = learning.unpacked_mistakes(Experiment(plan, tmp_path))
    examples = read_training_examples(path)
    assert len(examples) > 900
    assert all(e.kind == "repair" and e.receipt and e.previous_verdict for e in examples)
    made_on = {task.name for task in training_modules(plan.skip_tasks)}
    assert {e.task.name for e in examples} <= made_on
    assert not made_on & {t.name for t in training_modules(plan.tasks, skip=plan.skip_tasks)}


@pytest.mark.parametrize("name", PLANS)
def test_each_command_of_a_plan_is_one_that_the_project_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coding_framework.cli import build_parser

    seen = []

    def take(command: list[str], **_: object) -> SimpleNamespace:
        words = command[1:]
        if words[0] == "-m":
            build_parser().parse_args(words[2:])
            seen.append(words[2])
            return SimpleNamespace(returncode=int(words[2] != "data"))
        runpy.run_path(words[0])["parse"](words[1:])
        read_recipe(Path(words[words.index("--config") + 1]))
        seen.append(Path(words[0]).name)
        return SimpleNamespace(returncode=1)

    plan = read_plan(HERE / f"{name}.yaml").model_copy(update={"serve": None})
    monkeypatch.setattr(learning.subprocess, "run", take)
    monkeypatch.setattr(learning, "require", lambda now, arm: now.model(arm))
    now = Experiment(plan, tmp_path, kernelbench=tmp_path)
    for arm in learning.ARMS.values():
        with pytest.raises(learning.TrainingError, match="ended with 1"):
            arm(now)
    for test in learning.TESTS:
        with pytest.raises(learning.TrainingError, match="ended with 1"):
            learning.evaluate(now, "sft", test)
    trained = ["run_sft_training.py", "rft", "run_multiturn_rl_training.py"]
    assert seen == ["data"] * bool(plan.mixture) + trained + ["eval"] * 4


def test_a_plan_with_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text((HERE / "toy.yaml").read_text() + "steps: 4\n")
    with pytest.raises(UsageError, match=r"p\.yaml: there is no setting steps: remove it"):
        read_plan(tmp_path / "p.yaml")


def test_an_arm_without_the_one_before_says_which_to_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run `sft` first, or `restore` it"):
        learning.rft(Experiment(plan_of(), tmp_path))
    with pytest.raises(UsageError, match="give --kernelbench-dir"):
        learning.suites(Experiment(plan_of(), tmp_path), "kernelbench")


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


def test_a_stored_policy_is_restored_with_its_card(tmp_path: Path) -> None:
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
    work = ["--work", str(tmp_path / "w")]
    assert learning.main(["store", str(adapter), "--to", str(tmp_path / "s")]) == 0
    assert learning.main(["restore", str(tmp_path / "s"), *work]) == 0
    restored = Experiment(plan_of(), tmp_path / "w").adapter("sft")
    told = card_of(restored)
    assert told is not None
    assert told.weights[WEIGHTS] == file_digest(restored / WEIGHTS)
    stored = json.loads((restored / "adapter_config.json").read_text())
    assert stored == {"base_model_name_or_path": "m", "r": 16}  # elsewhere that path is nothing
    assert learning.main(["restore", *work]) == 2


def test_the_policy_that_is_kept_can_be_read(tmp_path: Path) -> None:
    from small_adapter import SMALL, WEIGHTS, restore

    kept = HERE / "policy"
    assert (kept / SMALL).stat().st_size < 20 * 2**20
    restore(kept, tmp_path)
    card = card_of(tmp_path)
    assert card is not None
    assert (card.base_model, card.prompts) == (read_plan(HERE / "recipe.yaml").base_model, "v3")
    assert card.weights == {WEIGHTS: file_digest(tmp_path / WEIGHTS)}


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
    now = Experiment(plan_of(serve=f"{{python}} {tmp_path}/server.py {{port}}"), tmp_path)
    with now.served(tmp_path / "model") as url:
        assert learning._answers(f"{url}/models")
    assert not learning._answers(f"{url}/models")
    now = Experiment(plan_of(serve="{python} -c 'raise SystemExit(3)'"), tmp_path)
    with pytest.raises(learning.TrainingError, match="does not start: see"), now.served(tmp_path):
        pass
    serve = read_plan(HERE / "recipe.yaml").serve
    words = shlex.split((serve or "").format(python="p", model="m", port=1))
    assert json.loads(words[-1])["cudagraph_mode"] == "FULL_DECODE_ONLY"


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_arms_and_tests_run_on_two_cores(tmp_path: Path) -> None:
    """A random model: no kernel is right, so RFT says that it has nothing to learn from."""
    told = yaml.safe_load((HERE / "toy.yaml").read_text())
    told["base_model"] = str(make_tiny_lm(tmp_path / "lm"))
    told["sft"] |= {"epochs": 1, "max_length": 8192}
    for name in ("rft", "sampling"):
        told[name] |= {"max_new_tokens": 16, "max_prompt_tokens": 4000}
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(told))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(HERE / "learning.py"), *words]
        command += ["--plan", str(plan), "--work", str(tmp_path / "work")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for words in (["sft"], ["test"]):
        ran = run(*words)
        assert ran.returncode == 0, f"{words}: {ran.stderr[-3000:]}"
    assert (tmp_path / "work" / "test" / "sft" / "summary.json").exists()
    assert "nothing to learn from" in run("rft").stderr

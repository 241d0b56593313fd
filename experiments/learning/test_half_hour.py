"""What half an hour of GPUs is used for: the order, and commands that the project takes."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
import half_hour
import learning
from plans import read_plan

from coding_framework.store.folder import RLFolder
from coding_framework.training.recipes import read_recipe, rl_config, sft_config

pytestmark = pytest.mark.unit
Began = list[tuple[str, list[str], str]]


def is_taken(command: Sequence[str]) -> None:
    """The command's own parser takes it."""
    words = list(command[1:])
    if words[:2] == ["-m", "coding_framework.cli"]:
        from coding_framework.cli import build_parser

        build_parser().parse_args(words[2:])
    elif words[0].endswith("learning.py"):
        args = learning.parse(words[1:])
        assert args.until in (None, "mixture", "train", "test")
        assert read_plan(args.plan).serve.startswith("env CUDA_VISIBLE_DEVICES={gpu} ")
    elif words[0].endswith("run_multiturn_rl_training.py"):
        runpy.run_path(words[0])["parse"](words[1:])
        recipe = read_recipe(Path(words[words.index("--config") + 1]))
        config = rl_config(recipe, {"model_path": "m"})
        judged = (config.judge_gpus, config.reward_preset)
        assert judged in ((1, "milestones"), (0, "correct"))
    elif words[0].endswith("run_sft_training.py"):
        runpy.run_path(words[0])["parse"](words[1:])
        config = sft_config(read_recipe(Path(words[words.index("--config") + 1])), {})
        assert config.compile_layers
        assert config.max_steps == 80
    elif words[0].endswith("against_kernelbench.py"):
        assert "--full-float32" in words
    elif words[0].endswith("module_tasks.py"):
        given = words[words.index("--shard") + 1]
        assert given in ("1/1", "1/2", "2/2", "1/4", "2/4", "3/4", "4/4")
    elif words[0].endswith("suffix_decoding.py"):
        assert words[1] == "engine"
    else:
        assert words[:2] == ["-m", "pytest"]


@pytest.fixture
def failing() -> list[str]:
    """Names of the commands that fail."""
    return []


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: list[str]) -> Began:
    """What would be started; each command ends at once and leaves what it would leave."""
    seen: Began = []

    def start(
        now: half_hour.HalfHour, name: str, command: Sequence[str | Path], gpus: str, **_: object
    ) -> subprocess.Popen[bytes]:
        words = [str(word) for word in command]
        is_taken(words)
        seen.append((name, words, gpus))
        if name == "mixture":
            mixture = now.work / "learning_two_gpus" / "mixture"
            mixture.mkdir(parents=True)
            (mixture / "manifest.json").write_text("{}")
            (mixture / "examples.jsonl").write_text("")
            (tmp_path / "base").mkdir(exist_ok=True)  # it comes while the GPUs judge
        fails = any(f == name for f in failing)
        if name == "restore" and not fails:
            work = learning.parse(words[2:]).work
            (work / "models" / "sft").mkdir(parents=True)
        if "--output-dir" in words and not fails:
            result = RLFolder(Path(words[words.index("--output-dir") + 1])).result
            result.parent.mkdir(parents=True)
            result.write_text("{}")
        return subprocess.Popen(["false" if fails else "true"], start_new_session=True)

    monkeypatch.setattr(half_hour.HalfHour, "start", start)
    monkeypatch.setattr(half_hour, "END_S", 3.0)
    monkeypatch.setattr(half_hour, "gpus_here", list)
    monkeypatch.setattr(half_hour.time, "sleep", lambda s: None)
    monkeypatch.setattr(half_hour, "RL_LEAST_S", 0.0)
    return seen


@pytest.fixture
def call(tmp_path: Path, began: Began, failing: list[str]) -> Callable[..., list[str]]:
    def called(*fail: str, then: Sequence[str] = (), **flags: str) -> list[str]:
        failing.extend(fail)
        more = ["--then", *then] if then else []
        more += [word for flag, value in flags.items() for word in (f"--{flag}", value)]
        words = ["--work", str(tmp_path / "w"), "--model", str(tmp_path / "base"), *more]
        assert half_hour.main(words) == 0
        return [name for name, _, _ in began]

    return called


@pytest.fixture
def refused(
    call: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What is said where a call begins nothing."""

    def said(**given: Any) -> str:
        with pytest.raises(SystemExit):
            call(**given)
        assert not (tmp_path / "w").exists()
        return capsys.readouterr().err

    return said


def test_both_gpus_judge_until_the_model_is_there_and_after_the_trial(
    call: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert call() == [
        "judge_0", "judge_1", "mixture", "smoke", "sft_on_all", "sft", "rl_in_step",
        "rl_one_behind", "judge_0", "judge_1",
    ]  # fmt: skip
    events = [json.loads(line) for line in (tmp_path / "w" / "events.jsonl").open()]
    assert events[-1]["event"] == "all is done"


def test_one_gpu_trains_where_two_do_not_and_the_other_judges(
    call: Callable[..., list[str]], began: Began
) -> None:
    names = call("smoke")
    assert names[3:7] == ["smoke", "judge_1", "sft_on_one", "sft"]
    assert {name: gpus for name, _, gpus in began}["sft_on_one"] == "0"


def test_nothing_judges_where_no_judge_is_wanted_and_the_test_may_be_left_out(
    call: Callable[..., list[str]], began: Began
) -> None:
    assert call(then=["sft:0:train", "sizes"], workers="0") == [
        "mixture", "smoke", "sft_on_all", "sft_0_train", "sizes",
    ]  # fmt: skip
    trains = next(words for name, words, _ in began if name == "sft_on_all")
    assert learning.parse(trains[2:]).minutes <= 27.0 - half_hour.END_S / 60  # a checkpoint is kept


def test_examples_that_were_made_before_are_taken(
    call: Callable[..., list[str]], tmp_path: Path
) -> None:
    made = tmp_path / "made" / "mixture"
    made.mkdir(parents=True)
    (made / "manifest.json").write_text('{"examples": 3}')
    (made / "examples.jsonl").write_text("")
    (tmp_path / "base").mkdir()
    names = call(then=["sft"], mixture=str(made.parent))
    assert names[:3] == ["judge_0", "judge_1", "smoke"]
    work = tmp_path / "w" / "learning_two_gpus"
    noted = json.loads((work / "stages" / "sft.mixture.json").read_text())
    assert noted["result"] == {"examples": 3}
    assert noted["plan"] == read_plan(tmp_path / "w" / "two_gpus.yaml").digest
    assert (work / "mixture" / "examples.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [({}, "there are no examples in"), ({"policy": "p"}, "leave one of them out")],
)
def test_examples_that_are_not_there_or_not_for_it_are_said(
    more: dict[str, str], said: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    assert said in refused(then=["sft"], mixture=str(tmp_path / "made"), **more)


def test_both_plans_teach_the_same_examples() -> None:
    two, one = (read_plan(half_hour.HERE / f"{name}.yaml") for name in ("two_gpus", "sft"))
    said = ("base_model", "mixture", "mistakes", "unjudged", "answer_tokens", "spare", "bits")
    said += ("prompts", "sampling", "wider", "graphs", "other_sizes")
    assert [getattr(two, name) for name in said] == [getattr(one, name) for name in said]
    assert two.sft["max_length"] == one.sft["max_length"] >= two.answer_tokens + 1024
    batches = [
        p.sft["batch_size"] * p.sft.get("gradient_accumulation_steps", 1) for p in (one, two)
    ]
    assert batches[0] == two.sft["num_gpus"] * batches[1]


@pytest.mark.parametrize(
    ("gpus", "gib", "rows", "times"),
    [(1, 79.6, 4, 2), (2, 139.8, 4, 1), (2, 79.6, 4, 1), (2, 47.4, 2, 2), (4, 79.6, 4, 1)],
)
def test_a_step_of_sft_has_eight_examples_or_four_for_each_gpu(
    gpus: int, gib: float, rows: int, times: int, tmp_path: Path
) -> None:
    now = half_hour.HalfHour(tmp_path, 27.0, 11, gpus, gib)
    told = read_plan(half_hour.plan_in(now, "two_gpus", tmp_path, gpus)).sft
    assert (told["num_gpus"], told["batch_size"]) == (gpus, rows)
    assert told["gradient_accumulation_steps"] == times
    assert told["learning_rate"] == pytest.approx(2e-4 * (2**0.5 if gpus == 4 else 1), rel=1e-3)


@pytest.mark.parametrize(("found", "used"), [(1, 1), (2, 2), (3, 2), (4, 4), (8, 4)])
def test_a_machine_of_other_gpus_is_used_as_one_of_one_two_or_four(
    found: int, used: int, call: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_hour, "gpus_here", lambda: [139.8] * found)
    assert call(then=["sft"])[:used] == [f"judge_{n}" for n in range(used)]


def test_on_four_gpus_arms_run_beside_each_other(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    given = {"gpus": "4", "beside": "rl:0", "kernelbench-dir": str(tmp_path)}
    names = call(then=["kernelbench:0", "parity"], **given)
    assert names[:7] == [f"judge_{n}" for n in range(4)] + ["mixture", "smoke", "sft_on_all"]
    gpus = {name: gpus for name, _, gpus in began if "judge" not in name}
    assert gpus == {
        "mixture": "", "smoke": "0,1", "sft_on_all": "0,1,2,3", "sft": "3", "kernelbench_0": "3",
        "parity": "3", "rl_0_train": "0,1", "rl_0": "1",
    }  # fmt: skip
    serving = {name: learning.parse(w[2:]).server_gpu for name, w, _ in began if name in gpus
               and w[1].endswith("learning.py")}  # fmt: skip
    assert serving["kernelbench_0"] == 2
    assert serving["rl_0"] == 0


def test_another_sft_is_trained_beside_a_policy_and_what_follows_goes_on_from_it(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    given = {"gpus": "4", "beside": "rl:0", "policy": str(tmp_path)}
    names = call(then=["train", "feedback"], **given)
    assert names[4:6] == ["mixture", "restore"]
    words = {name: (words, gpus) for name, words, gpus in began}
    assert words["sft_anew"][1] == "2,3"
    for name, folder in (("sft_anew", "anew"), ("sft", "anew"), ("feedback", "anew"),
                         ("rl_0_train", "two_gpus")):  # fmt: skip
        assert learning.parse(words[name][0][2:]).work.name == f"learning_{folder}"
    plan = learning.parse(words["sft_anew"][0][2:]).plan
    assert read_plan(plan).sft["num_gpus"] == 2


def test_another_sft_can_go_without_its_test_beside_a_search(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    given = {"gpus": "4", "beside": "search:0", "policy": str(tmp_path)}
    names = call(then=["train:0:train", "sizes:0+people+sft"], **given)
    assert names[4:6] == ["mixture", "restore"]
    gpus = {
        name: (gpus, learning.parse(w[2:])) for name, w, gpus in began[6:] if "judge" not in name
    }
    assert {n: (g, a.work.name, a.until, a.then) for n, (g, a) in gpus.items()} == {
        "sft_anew": ("2,3", "learning_anew", "train", []),
        "sft_0_train": ("3", "learning_anew", "train", []),
        "sizes_0": ("3", "learning_anew", None, ["people", "sft"]),
        "search_0": ("1", "learning_two_gpus", None, []),
    }


def test_what_follows_another_sft_is_in_the_call_of_its_test(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    call(then=["train+sizes+kernelbench"], policy=str(tmp_path), **{"kernelbench-dir": "kb"})
    said = next(learning.parse(words[2:]) for name, words, _ in began if name == "sft")
    assert said.then == ["sizes", "kernelbench"]
    assert said.kernelbench_dir == Path("kb").resolve()
    assert said.work.name == "learning_anew"


def test_a_policy_of_before_is_measured_in_a_folder_of_its_own(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    given = {"policy": str(tmp_path), "before": str(tmp_path / "base")}
    call(then=["sft+sizes", "before:sizes+search"], **given)
    said = {
        name: learning.parse(words[2:])
        for name, words, _ in began
        if name in ("sft", "before_sizes")
    }
    assert {n: (a.what, a.then, a.work.name) for n, a in said.items()} == {
        "sft": ("sft", ["sizes"], "learning_two_gpus"),
        "before_sizes": ("sizes", ["search"], "learning_before"),
    }
    made = [learning.parse(words[2:]) for name, words, _ in began if name == "restore"]
    assert [a.work.name for a in made] == ["learning_two_gpus", "learning_before"]


def test_two_pairs_share_a_search(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    given = {"policy": str(tmp_path), "gpus": "4", "beside": "search:0:2/2"}
    call(then=["search:0:1/2"], **given)
    found = [(learning.parse(words[2:]), gpus) for name, words, gpus in began if name == "search_0"]
    assert sorted((a.part, a.until, gpus) for a, gpus in found) == [
        ((1, 2), None, "3"),
        ((2, 2), None, "1"),
    ]


def test_what_follows_an_sft_that_fails_is_left_out(
    call: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    names = call("sft_anew", then=["train", "feedback"], policy=str(tmp_path))
    assert names[-3:] == ["sft_anew", "judge_0", "judge_1"]


def test_of_two_gpus_what_runs_beside_comes_afterwards(call: Callable[..., list[str]]) -> None:
    names = call(then=["feedback"], beside="rl:0:train")
    assert names[5:8] == ["sft", "feedback", "rl_0_train"]


def test_a_trial_whose_packed_rows_fail_is_made_without_packing(
    call: Callable[..., list[str]],
) -> None:
    assert call("rl_in_step")[6:9] == ["rl_in_step", "rl_in_step_unpacked", "rl_one_behind"]


def test_more_judges_search_where_the_gpus_have_more_memory(
    call: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = read_plan(half_hour.HERE / "two_gpus.yaml").search.judges
    for gib, judges in ((79.6, used), (140.4, half_hour.SEARCHERS)):
        monkeypatch.setattr(half_hour, "gpus_here", lambda gib=gib: [gib] * 2)
        call(then=["feedback"])
        assert read_plan(tmp_path / "w" / "two_gpus.yaml").search.judges == judges
        shutil.rmtree(tmp_path / "w")


def test_parity_takes_the_second_gpu_and_a_checkout(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        call(then=["parity"])
    assert not began
    names = call(then=["sft", "parity"], **{"kernelbench-dir": str(tmp_path)})
    assert names[-3:] == ["parity", "judge_0", "judge_1"]
    assert {name: gpus for name, _, gpus in began}["parity"] == "1"


def test_parity_begins_while_the_model_is_waited_for_and_ends_in_its_turn(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    given = {"gpus": "4", "policy": str(tmp_path), "kernelbench-dir": str(tmp_path)}
    names = call(then=["train", "kernelbench:0", "parity"], beside="feedback:0", **given)
    assert names[:3] == ["parity_first", "mixture", "restore"]
    first, then = (next(b for b in began if b[0] == name) for name in ("parity_first", "parity"))
    assert first[2] == then[2] == "3"
    works = [words[words.index("--work") + 1] for _, words, _ in (first, then)]
    assert works[0] == works[1]


def test_the_speed_of_compiled_layers_is_measured_where_a_mixture_is(
    call: Callable[..., list[str]], began: Began
) -> None:
    assert call(then=["sft", "compiled"])[-3:] == ["compiled", "judge_0", "judge_1"]
    assert began[-3][2] == "0"


@pytest.mark.parametrize("name", ["one_behind", "in_step", "in_step_suffix"])
def test_one_of_the_trials_may_be_named(call: Callable[..., list[str]], name: str) -> None:
    assert call(then=[f"trial:{name}"])[6:-2] == [f"rl_{name}"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trial:one_behnid", "--then trial:one_behnid: choose of in_step, one_behind"),
        ("rl:0+stf", "--then rl:0+stf: there is no arm stf: choose of sft, rft, rl"),
        ("lr:0", "--then lr:0: there is no arm lr"),
        ("train", "--then train: SFT is trained first where no --policy is given"),
        ("train+sizes", "--then train: SFT is trained first where no --policy is given"),
        ("before:sizes", "--then before:sizes: which policy? give --before"),
        ("before:trial", "--then before:trial: there is no arm trial"),
        ("rl:0+train", "--then rl:0+train: there is no arm train"),
        ("parity:0", "--then parity:0: there is no arm parity"),
        ("parity+sft", "--then parity+sft: there is no arm parity"),
        ("sft+parity", "--then sft+parity: there is no arm parity"),
    ],
)
def test_what_there_is_not_is_said_before_anything_begins(
    name: str, said: str, refused: Callable[..., str]
) -> None:
    assert said in refused(then=["rl:0:train", name])


def test_a_stored_policy_takes_the_place_of_sft_and_arms_follow(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    given = {"policy": str(tmp_path), "kernelbench-dir": str(tmp_path)}
    assert call(then=["trial", "rl:1", "kernelbench"], **given) == [
        "judge_0", "judge_1", "restore", "rl_in_step", "rl_one_behind", "rl_1_train", "rl_1",
        "kernelbench", "judge_0", "judge_1",
    ]  # fmt: skip
    assert {name: gpus for name, _, gpus in began if name.startswith("rl_1")} == {
        "rl_1_train": "0,1", "rl_1": "1",
    }  # fmt: skip


def test_one_gpu_does_all_of_it(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    given = {"policy": str(tmp_path), "gpus": "1", "workers": "0"}
    names = call(then=["feedback", "suffix", "trial:in_step", "rl:0"], **given)
    assert names == ["restore", "feedback", "suffix", "rl_in_step", "rl_0_train", "rl_0"]
    assert {gpus for _, _, gpus in began[1:]} == {"0"}
    asked = learning.parse(began[1][1][2:])
    assert asked.server_gpu == 0
    rl = read_plan(asked.plan).rl
    assert (rl["judge_gpus"], rl["reward_preset"]) == (0, "correct")


def test_an_arm_may_end_with_a_stage_of_it(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    arms = ["rl:1:train", "control:1:train", "rl:1:test", "control:1"]
    names = call(then=arms, policy=str(tmp_path))
    assert names[3:-2] == [
        "rl_1_train", "control_1_train", "rl_1_train", "rl_1_test", "control_1",
    ]  # fmt: skip
    assert [gpus for _, _, gpus in began][3:-2] == ["0,1", "1", "0,1", "1", "1"]


def test_arms_that_follow_are_in_the_call_of_the_test(
    call: Callable[..., list[str]], began: Began, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    call(then=["rl:0+sft+kernelbench"], policy=str(tmp_path))
    words = {name: learning.parse(words[2:]).then for name, words, _ in began if "rl_0" in name}
    assert words == {"rl_0_train": [], "rl_0": ["sft", "kernelbench"]}


def test_an_arm_that_fails_is_not_tested(call: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    names = call("rl_0_train", then=["rl:0"], policy=str(tmp_path))
    assert names[3:] == ["rl_0_train", "judge_0", "judge_1"]


def test_a_policy_that_cannot_be_made_leaves_the_gpus_to_the_judges(
    call: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    names = call("restore", policy=str(tmp_path))
    assert names == ["judge_0", "judge_1", "restore", "judge_0", "judge_1"]

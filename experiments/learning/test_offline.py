"""half_hour.py on a machine without a package registry: pieces in any order make it whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).parent))
from carry import pack, unpack
from small_adapter import SMALL, WEIGHTS, rounded

from coding_framework.paths import write_atomic

pytestmark = pytest.mark.integration
SCRIPT = Path(__file__).with_name("offline.sh")
PYTHON = """#!/bin/sh
# pip, the converter and half_hour.py stand in here; what else is called is Python's
case "$*" in
*"pip install"*)
  echo "$@" >> "$CALLS"
  while [ "$1" != --target ]; do shift; done
  mkdir -p "$2"
  ;;
*from_gguf.py*)
  sha256sum "$2" > "$CALLS.gguf"
  : > "$3/model.safetensors"
  ;;
*half_hour.py*)
  echo "$@" >> "$CALLS"
  while [ ! -d "$AWAY/qwen" ]; do sleep 0.1; done
  ls "$AWAY/qwen" "$AWAY/policy" "$AWAY/half/learning_two_gpus/stages" >> "$CALLS"
  touch "$AWAY/half/learning_two_gpus/rl-0/kept"
  ;;
*"-m pytest"* | *module_tasks.py*) echo "$@" ;;
*graphs.py*)
  echo "$@"
  : > benchmarks/results/graph_pieces.cuda.json
  ;;
*) exec "$PYTHON" "$@" ;;
esac
"""


@pytest.mark.parametrize("arms", [("rl:0", "trial"), ("sft", "trial")], ids=["policy", "sft"])
def test_pieces_in_any_order_start_the_arms_with_what_earlier_ones_left(
    arms: tuple[str, ...], tmp_path: Path
) -> None:
    for folder in ("bin", "wheels", "to", "root", "away", "out", "base/torch"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "base" / "torch" / "__init__.py").write_text("")
    write_atomic(tmp_path / "bin" / "python3", PYTHON)
    (tmp_path / "bin" / "python3").chmod(0o755)
    for name in ("vllm-1.whl", "ray-1.whl", "structlog-1.whl"):
        (tmp_path / "wheels" / name).write_bytes(os.urandom(3000))
    (tmp_path / "root" / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "root" / "lib").symlink_to("usr/lib")
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "lib").mkdir()
    write_atomic(package / "lib" / "of_a_package", "")
    said = "Package: p\nVersion: 1\nArchitecture: all\nMaintainer: m\nDescription: d\n"
    write_atomic(package / "DEBIAN" / "control", said)
    built = ["dpkg-deb", "--build", package, tmp_path / "wheels" / "p_1_all.deb"]
    subprocess.run(built, check=True, capture_output=True)
    (tmp_path / "model.gguf").write_bytes(os.urandom(2_500_000))
    (tmp_path / "model").mkdir()
    for name, text in (("config.json", "{}"), ("model.safetensors", "its weights stay here")):
        (tmp_path / "model" / name).write_text(text)
    for left in ("stages/rl-0.train.json", "rl-0/steps.jsonl"):
        (tmp_path / "before" / left).parent.mkdir(parents=True)
        (tmp_path / "before" / left).write_text('{"result": {}}')
    (tmp_path / "kernelbench").mkdir()
    (tmp_path / "kernelbench" / "1.py").write_text("")
    pack(tmp_path / "before", tmp_path / "parts", 15.0)
    (tmp_path / "made" / "mixture").mkdir(parents=True)
    (tmp_path / "made" / "mixture" / "examples.jsonl").write_text("{}")
    (tmp_path / "found.jsonl").write_text('{"task": "1"}\n')
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "adapter_config.json").write_text("{}")
    told = {
        **os.environ, "AWAY": str(tmp_path / "away"), "ROOT": str(tmp_path / "root"),
        "KERNELBENCH": str(tmp_path / "kernelbench"), "BEFORE": str(tmp_path / "earlier"),
        "MIXTURE": str(tmp_path / "made"), "FOUND": str(tmp_path / "found.jsonl"),
        "CALLS": str(tmp_path / "calls"), "BASE": str(tmp_path / "base"), "PYTHON": sys.executable,
        "PIECE": "1M", "PATIENCE": "1", "KEPT": "100K", "PART_MIB": "0.1",
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }  # fmt: skip
    if arms[0] == "sft":
        told["POLICY"] = str(tmp_path / "learnt")
        (tmp_path / "learnt").mkdir()
        for name in ("start.json", "model_card.json"):
            (tmp_path / "learnt" / name).write_text("another")

    def offline(*words: str | int | Path, script: Path = SCRIPT) -> str:
        command = ["sh", str(script), *map(str, words)]
        done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    to, away = tmp_path / "to", tmp_path / "away"
    (to / "piece.model.99").write_text("of a pack before")
    offline("pack", to, tmp_path / "wheels", tmp_path / "model.gguf", tmp_path / "model",
            tmp_path / "parts")  # fmt: skip
    pieces = sorted(to.glob("piece.*"))
    assert max(p.stat().st_size for p in pieces) <= 2**20
    assert {p.name.split(".")[1] for p in pieces} == {
        "model", "late", "policy", "parts", "mixture",
    }  # fmt: skip
    takes = [line.split() for line in (to / "calls").read_text().splitlines()]
    assert sorted(name for take in takes for name in take) == [p.name for p in pieces]
    assert all(sum((to / name).stat().st_size for name in take) <= 2**20 for take in takes)
    assert len(takes) < len(pieces), "small ones travel together"
    subprocess.run(["tar", "xf", to / "start.tar", "-C", away], check=True)
    there = away / "offline.sh"
    told["AWAY"] = str(tmp_path / "of_tests")
    shutil.copytree(away, told["AWAY"])
    offline("tests", tmp_path / "out", script=there)
    assert " tests/integration/test_gpu_device.py" in (tmp_path / "out/tests.log").read_text()
    offline("kernels", tmp_path / "out", "softmax", "scan", script=there)
    assert "--families softmax scan --minutes 2.5 " in (tmp_path / "out/kernels.log").read_text()
    offline("taught", tmp_path / "out", "60", script=there)
    assert "--judge 0 60 --pieces --backend cuda " in (tmp_path / "out/taught.log").read_text()
    assert (tmp_path / "out" / "graph_pieces.cuda.json").exists()
    told["AWAY"] = str(away)
    (tmp_path / "calls").unlink()
    offline("start", "600", *arms, script=there)
    offline("start", "600", *arms, script=there)  # a spare call
    *others, last = pieces
    for piece in reversed(others):
        offline("take", piece, script=there)
    time.sleep(1.1)
    began = time.monotonic()
    assert f"missing: {last.name}\n" in offline("poll", "60", tmp_path / "out", script=there)
    assert time.monotonic() - began < 30, "nobody waits for a piece that nobody sends"
    assert "0 are missing" in offline("take", last, script=there)
    assert "took nothing" in offline("take", *pieces, to / "start.tar", script=there)
    said = offline("poll", "60", tmp_path / "out", script=there)
    assert "half_hour.py has ended with 0" in said
    calls = (tmp_path / "calls").read_text()
    assert calls.count("half_hour.py") == 1
    asked = (
        rf"--minutes (10\.00|9\.\d\d) --then {' '.join(arms)} --kernelbench-dir {away}/kernelbench"
    )
    assert re.search(f"{asked}\n", calls), calls
    assert ("--policy" in calls) != (arms[0] == "sft"), "SFT begins without one"
    assert (f"--mixture {away} " in calls) == (arms[0] == "sft")
    if arms[0] == "sft":
        assert (away / "mixture" / "examples.jsonl").read_text() == "{}"
    assert (away / "kernelbench" / "1.py").exists()
    assert (away / "before" / "adapter_config.json").exists()
    stored = (away / "policy" / "start.json").read_text()
    assert (stored == "another") == (arms[0] == "sft"), "POLICY stands in the place of the stored"
    assert "structlog-1.whl" in calls.splitlines()[0]
    assert "vllm" not in calls.splitlines()[0]
    assert (away / "late_site").is_dir()
    assert (tmp_path / "root" / "lib").is_symlink(), "a package has not put a folder in its place"
    assert (tmp_path / "root" / "usr" / "lib" / "of_a_package").exists()
    assert all(name in calls for name in ("config.json", "model_card.json", "rl-0.train.json"))
    found = away / "half" / "learning_two_gpus" / "search" / "found.jsonl"
    assert found.read_text() == (tmp_path / "found.jsonl").read_text(), "a search goes on"
    whole = subprocess.run(["sha256sum", tmp_path / "model.gguf"], capture_output=True, text=True)
    assert (tmp_path / "calls.gguf").read_text().split()[0] == whole.stdout.split()[0]
    assert (tmp_path / "out" / "half.tar.xz.00").stat().st_size > 0
    before = away / "half" / "learning_two_gpus"
    trained = arms[0] == "sft"
    told_of_sft = '{"result": {}}' if trained else '{"result": {"restored": "policy"}}'
    (before / "stages" / "sft.train.json").write_text(told_of_sft)
    for arm in ("rl-0", "sft"):
        (before / "adapters" / arm).mkdir(parents=True)
        save_file({"w": rounded(torch.randn(40, 4000))}, before / "adapters" / arm / WEIGHTS)
    offline("keep", tmp_path / "out", script=there)
    packed = sorted(str(p) for p in (tmp_path / "out").glob("kept.*"))
    assert len(packed) == (4 if trained else 2)
    subprocess.run(f"cat {' '.join(packed)} | tar x -C {tmp_path}", shell=True, check=True)
    assert {p.name for p in (tmp_path / "kept" / "rl-0").iterdir()} == {
        SMALL, "arm.json", "steps.jsonl",
    }  # fmt: skip
    assert (tmp_path / "kept" / "sft").exists() == trained, "a policy that was packed is known"
    shutil.rmtree(before / "adapters")
    (before / "adapter").write_bytes(os.urandom(600_000))
    for number in range(2):  # of 0.1 MiB: seven
        offline("bring", number, tmp_path / "out", script=there)
    assert unpack(tmp_path / "out", tmp_path / "next") == 6
    assert (tmp_path / "next" / "adapter").read_bytes() == (before / "adapter").read_bytes()
    assert list((tmp_path / "base" / "torch" / "__pycache__").iterdir()), "of an image without any"


@pytest.mark.parametrize("beside", [False, True], ids=["one GPU", "two"])
def test_a_gpu_learns_by_a_plan_and_answers_beside_the_policy_before(
    beside: bool, tmp_path: Path
) -> None:
    away, made = tmp_path / "away", tmp_path / "made"
    for folder in ("bin", "out", "away/in", "away/wheels", "away/model", "made/late"):
        (tmp_path / folder).mkdir(parents=True)
    case = '*learning.py*) echo "$CUDA_VISIBLE_DEVICES $@" >> "$CALLS" ;;\n'
    write_atomic(
        tmp_path / "bin" / "python3", PYTHON.replace("*half_hour.py*", case + "*half_hour.py*")
    )
    (tmp_path / "bin" / "python3").chmod(0o755)
    shutil.copytree(SCRIPT.parent, made / "main" / "experiments" / "learning",
                    ignore=shutil.ignore_patterns("policy*"))  # fmt: skip
    (made / "policies" / "rl-0").mkdir(parents=True)
    (made / "policies" / "rl-0" / "start.json").write_text("{}")
    for policy in ("policy", "before"):
        (made / policy).mkdir()
        (made / policy / "start.json").write_text("{}")
    for name in ("examples.jsonl", "manifest.json"):
        (made / "mixture").mkdir(exist_ok=True)
        (made / "mixture" / name).write_text('{"examples": 1}')
    (away / "wheels" / "one-1.whl").write_text("")
    packed = {
        "tree.tar.xz": ("main", "cJf", "main/experiments"), "model.tar.xz": ("", "cJf", "mixture"),
        "in/piece.late.0": ("", "cf", "late"),
        "in/piece.policy.0": ("", "cf", "policy policies before"),
        "in/piece.mixture.0": ("", "cJf", "mixture"),
    }  # fmt: skip
    for name, (within, flag, what) in packed.items():
        inside = made / within
        subprocess.run(
            ["tar", flag, away / name, "-C", inside, *(Path(one).name for one in what.split())],
            check=True,
        )
    (away / "in" / "piece.model.0").write_text("weights")
    pieces = sorted(p.name for p in (away / "in").iterdir())
    (away / "pieces").write_text("".join(f"{name}\n" for name in pieces))
    told = {
        **os.environ, "AWAY": str(away), "CALLS": str(tmp_path / "calls"), "BASE": str(tmp_path),
        "PYTHON": sys.executable, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }  # fmt: skip
    start = ["start", "600", "graphs.yaml", "people", "sizes"]
    start += ["--beside", "control.yaml", "control", "rl"] if beside else []
    for words in (start, ["poll", "60", "out"]):
        subprocess.run(["sh", SCRIPT, *words], env=told, cwd=tmp_path, check=True, timeout=120)
        (away / "taken").write_text((away / "pieces").read_text())
    lines = (tmp_path / "calls").read_text().splitlines()
    calls = [re.sub(r" --minutes \d.*", "", one).replace("experiments/learning/", "")
             for one in lines if "learning.py " in one]  # fmt: skip
    half = away / "half"
    learnt, before, of_beside = (half / f"learning_{w}" for w in ("one_gpu", "before", "beside"))
    graphs, control = (f"--plan here_{name}.yaml --work" for name in ("graphs", "control"))
    assert sorted(calls) == sorted([
        f" learning.py restore {away}/policy --merge {graphs} {before}",
        f"0 learning.py sft --until train {graphs} {learnt}",
        f"0 learning.py people --then sizes {graphs} {learnt}",
        f"{int(beside)} learning.py people {graphs} {before}",
        *([
            f" learning.py restore {away}/before --merge {control} {of_beside}",
            f" learning.py restore {away}/policies/rl-0 --merge {control} {of_beside}",
            f"1 learning.py control --then rl {control} {of_beside}",
        ] if beside else []),
    ])  # fmt: skip
    assert (learnt / "stages" / "sft.mixture.json").exists(), "the examples are made"
    there = away / "main" / "experiments" / "learning"
    assert f"base_model: {away}/qwen\n" in (there / "here_graphs.yaml").read_text()
    assert (there / "policy" / "start.json").exists(), "SFT goes on from it"


@pytest.mark.parametrize("words", [["fly"], []])
def test_a_word_that_it_does_not_know_shows_how_it_is_used(words: list[str]) -> None:
    done = subprocess.run(["sh", str(SCRIPT), *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "offline.sh take FILE" in done.stdout


@pytest.mark.parametrize(
    "words", [["take", "x"], ["poll", "9", "."], ["keep", "."], ["bring", "0", "."]]
)
def test_what_comes_before_the_start_is_told_so(words: list[str], tmp_path: Path) -> None:
    told = {**os.environ, "AWAY": str(tmp_path)}
    done = subprocess.run(["sh", str(SCRIPT), *words], env=told, capture_output=True, text=True)
    assert done.returncode == 2
    assert "call start first" in done.stderr

"""The main job's engine: order, resuming, refusing, stopping. The stages themselves are replaced
here; tests/system runs the real ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import psutil
import pytest

from coding_framework import cli
from coding_framework.monitoring.child import adopt_orphans
from coding_framework.run import stages as pipeline
from coding_framework.run.sizing import LADDER, Rates
from support.fake_stages import fake_stages
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.unit

FAST = Rates(
    start_s=5,
    train_tokens_s=800,
    prefill_tokens_s=4000,
    step_s=0.03,
    answer_step_s=0.002,
    verdict_s=0.5,
)


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Runs `cuda-rl quickstart` in this process with replaced stages; gives status and calls."""
    monkeypatch.setattr(pipeline.WholeRun, "held_out", lambda self: [])
    monkeypatch.setattr(pipeline, "LOAD_S", 0.01)

    def run(*argv: str, broken: str | None = None, stages=fake_stages) -> tuple[int, list[str]]:
        calls: list[str] = []
        monkeypatch.setattr(pipeline, "STAGES", stages(calls, broken))
        return cli.main(["quickstart", "--output-dir", str(tmp_path / "out"), *argv]), calls

    return run


ORDER = ["model", "eval_base", "sft", "eval_sft", "rft", "practice", "rl", "eval_rl"]
SMOKE = [stage for stage in ORDER if stage not in ("rft", "practice")]


def test_all_stages_run_in_order_and_leave_summary_and_report(start, tmp_path, capsys):
    status, calls = start()
    assert (status, calls) == (0, ORDER)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    for label in ("base", "sft", "rl"):
        assert {"compiled", "correct", "speeds", "samples"} <= set(summary["stages"][label])
    assert summary["rl"] == {
        "steps": 2,
        "steps_with_gradient": 2,
        "mean_reward_first": 0.1,
        "mean_reward_last": 0.2,
    }
    assert set(summary["costs"]) == set(ORDER)
    said = " ".join(capsys.readouterr().out.split())
    assert "Held-out tasks" in said
    assert summary["practice"]["after"]["count"] == 3
    assert "gives 3 right ones of 4 (tasks: 1 better, 0 worse, within noise)" in said
    assert "<h1>" in (tmp_path / "out" / "report.html").read_text()


def test_the_report_shows_what_each_epoch_of_sft_was_worth(start, tmp_path):
    score = {"judged": 8, "compiled": 6, "correct": 5}
    entries = [
        {"step": 0, "epoch": 0.0, "held_out_loss": 1.5, "seconds": 1.0},
        {"step": 1, "loss": 1.25},
        {"step": 1, "epoch": 1.0, "held_out_loss": 0.75, "score": score, "seconds": 1.0},
        {"step": 2, "loss": 0.5},
        {"step": 2, "epoch": 2.0, "held_out_loss": 0.7, "fault": "no judge", "seconds": 1.0},
    ]
    metrics = tmp_path / "out" / "sft_checkpoints" / "metrics.jsonl"
    metrics.parent.mkdir(parents=True)
    metrics.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert start()[0] == 0
    report = (tmp_path / "out" / "report.html").read_text()
    for shown in (
        "loss: 1, 1.25", "held-out loss: 0, 1.5", "held-out loss: 2, 0.7",
        "held-out pass rate: 1, 0.625", "compile rate: 1, 0.75",
    ):  # fmt: skip
        assert f"<title>{shown}</title>" in report
    assert "SFT: held-out loss and score" in report


def test_a_stopped_run_goes_on_from_the_last_finished_stage(start, capsys):
    status, calls = start(broken="sft")
    assert (status, calls) == (130, ORDER[:3])
    assert capsys.readouterr().err.splitlines()[-1].startswith("cuda-rl: stopped: the same command")
    status, calls = start()
    assert (status, calls) == (0, ORDER[2:])
    assert start() == (0, [])


def contents(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_run_keeps_the_sizes_chosen_for_its_budget(start, monkeypatch, tmp_path, capsys):
    seen = []
    sizes = LADDER[2]
    planned = {"eval_base": 10.0, "sft": 20.0, "eval_sft": 10.0, "rl": 30.0, "eval_rl": 10.0}
    result = {
        "path": "m",
        "minutes": 7.0,
        "rates": FAST.model_dump(mode="json"),
        "sizes": sizes.model_dump(mode="json"),
        "planned_s": planned,
    }

    def stages(calls, broken):
        first, base, *others = fake_stages(calls, broken)

        def get(run):
            calls.append("model")
            return result

        def look(run):
            seen.append(run.job.recipe)
            return base.run(run)

        return (replace(first, run=get), replace(base, run=look), *others)

    status, _ = start("--minutes", "7", broken="sft", stages=stages)
    assert status == 130
    assert "about 1:20 min left in all" in capsys.readouterr().err
    assert seen[0].held_out_tasks == sizes.held_out_tasks
    assert seen[0].sft["num_examples"] == sizes.sft_examples
    assert seen[0].rl["num_episodes"] == sizes.rl_steps
    before = contents(tmp_path / "out")
    assert start("--minutes", "8", stages=stages) == (2, [])
    assert "--minutes 7" in capsys.readouterr().err
    assert contents(tmp_path / "out") == before, "what is refused changes nothing"
    assert start("--minutes", "7", stages=stages) == (0, ORDER[2:])
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["config"]["recipe"]["held_out_tasks"] == sizes.held_out_tasks


def test_a_machine_that_was_not_measured_practises_too(start):
    seen = []

    def stages(calls, broken):
        first, *others = fake_stages(calls, broken)

        def get(run):
            seen.append(run.job)
            return first.run(run)

        return (replace(first, run=get), *others)

    assert start(stages=stages) == (0, ORDER)
    options = seen[0].rejection_options()
    assert (options.tasks, options.samples) == (12, 4)
    assert len(seen[0].probe_tasks()) == 12


def test_a_run_ends_what_it_started_and_nothing_else(start):
    before = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        assert start("--smoke")[0] == 0
        assert before.poll() is None
        assert adopt_orphans(False) is False
    finally:
        before.kill()
        before.wait()


def test_a_run_without_a_budget_names_a_loaded_machine_too(start, monkeypatch, capsys):
    monkeypatch.setattr(pipeline.BusyOthers, "over", lambda self, seconds: 0.6)
    assert start("--smoke")[0] == 0
    assert capsys.readouterr().err.count("other processes take 60% of the CPU") == len(SMOKE)


def test_smoke_and_quick_test_are_one_flag(start, tmp_path):
    assert start("--quick-test")[0] == 0
    assert start("--smoke") == (0, [])


def test_other_settings_in_the_same_folder_are_wrong_use(start, capsys):
    start()
    capsys.readouterr()
    status, calls = start("--seed", "1")
    assert (status, calls) == (2, [])
    err = capsys.readouterr().err
    assert "seed was 0 and is 1 now" in err
    assert "choose another --output-dir" in err


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process_behind(tmp_path, stop_signal):
    code = f"""
    import subprocess, sys, time
    from pathlib import Path
    from coding_framework import cli
    from coding_framework.run import stages as pipeline
    def stage(job):
        subprocess.Popen(["sh", "-c", "trap '' TERM INT; sleep 1000 & wait; sleep 1000"],
                         start_new_session=True)
        Path({str(tmp_path / "up")!r}).touch()
        time.sleep(1000)
    pipeline.STAGES = (pipeline.Stage("model", "model", stage),)
    sys.exit(cli.main(["quickstart", "--output-dir", {str(tmp_path / "out")!r}]))
    """
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "up").exists():
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.02)
    time.sleep(0.3)
    descendants = psutil.Process(run.pid).children(recursive=True)
    assert descendants
    run.send_signal(stop_signal)
    _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130
    assert "Traceback" not in err
    assert not [p for p in descendants if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

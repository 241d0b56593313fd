"""`cuda-rl eval` from model to summary, on a tiny model: it writes nothing that compiles, so its
numbers are zeros with intervals; what is tested is that every file, gate and status is right."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.data.examples import held_out_tasks
from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.run.evaluation import read_sample_records
from coding_framework.store.model_card import ModelCard, write_card
from support.tiny_lm import make_tiny_lm

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_lm(tmp_path_factory.mktemp("tiny-lm"))


def arguments(tiny: Path, folder: Path, *more: str) -> list[str]:
    return [
        "eval", str(tiny), "--suite", "held-out:2", "--max-new-tokens", "8", "--backend",
        "emulator", "--output-dir", str(folder), *more,
    ]  # fmt: skip


def test_a_model_is_evaluated_and_a_second_run_asks_it_nothing(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tiny, tmp_path / "a", "--json")) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["status"], said["gates"]) == (0, [])
    block = said["summary"]["overall"]["overall"]
    assert (block["tasks"], block["samples"], block["masked"]) == (2, 2, 0)
    assert block["pass_at"]["pass@1"]["value"] == 0
    assert block["pass_at"]["pass@1"]["ci95"][1] > 0.5
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"eval.json", "answers.jsonl", "records.jsonl", "summary.json"} <= names
    answers = (tmp_path / "a/answers.jsonl").read_bytes()
    failing = arguments(tiny, tmp_path / "a", "--fail-under", "pass@1>=0.5, compile<=1")
    assert main(failing) == 1
    captured = capsys.readouterr()
    assert "pass@1 >= 0.5 fails: it is 0 (95%: 0 to " in captured.err
    assert "compile <= 1 holds" in captured.out
    assert (tmp_path / "a/answers.jsonl").read_bytes() == answers


def test_a_task_of_two_suites_is_asked_once_and_the_run_is_whole(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The design's first acceptance, in small: both suites, summary, report, verified."""
    out = tmp_path / "out"
    assert main(arguments(tiny, out, "--suite", "held-out-shapes:2")) == 0
    outcome = EvalOutcome.model_validate_json((out / "summary.json").read_text())
    assert [s.overall.samples for s in (outcome.overall, *outcome.suites)] == [2, 2, 2]
    assert len((out / "answers.jsonl").read_text().splitlines()) == 2
    page = (out / "report.html").read_text()
    assert "<script" not in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    capsys.readouterr()
    assert main(["eval", "verify", str(out), "--judge-again", "0"]) == 0
    assert "4 samples, 0 kernels judged again: no problems" in capsys.readouterr().out


def test_another_model_or_sampling_is_refused(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tiny, tmp_path)) == 0
    assert main(arguments(tiny, tmp_path, "--turns", "2")) == 2
    assert "turns was 1 and is 2 now" in capsys.readouterr().err


def test_a_card_of_answers_that_no_context_holds_is_one_sentence(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    write_card(
        model, ModelCard(stage="sft", base_model="b", prompts="v1", answer_tokens=1_000_000_000)
    )
    words = [w for w in arguments(model, tmp_path / "run") if w not in ("--max-new-tokens", "8")]
    assert main(words) != 0
    assert "1000000000 new ones exceed the context of 4096" in capsys.readouterr().err
    assert main(arguments(model, tmp_path / "run again")) == 0, "the flag goes before the card"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--fail-under", "pas@1>=0.5"), "did you mean pass@1"),
        (("--family", "norms"), "--family leaves none of the 2 tasks"),
        (("--suite", "kernelbench:1"), "kernelbench needs --kernelbench-dir"),
        (("--suite", "held-in"), "there is no suite 'held-in'"),
        (("--samples", "0"), "a whole number of at least 1"),
    ],
)
def test_wrong_use_is_found_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, str], sentence: str
) -> None:
    assert main(arguments(tmp_path / "no-model", tmp_path / "out", *more)) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, correct in (("a", False), ("b", True)):
        rows = [SampleRecord(task=f"t{i}", correct=correct) for i in range(20)]
        (tmp_path / name).mkdir()
        lines = "".join(f"{row.model_dump_json()}\n" for row in rows)
        (tmp_path / name / "records.jsonl").write_text(lines)
    assert len(read_sample_records(tmp_path / "a")) == 20
    assert main(["eval", "compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out.startswith("B is better than A in pass@1: +100.0 points")
    assert main(["eval", "compare", str(tmp_path / "a"), str(tmp_path / "none")]) == 2


def test_answers_are_judged_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, other = held_out_tasks(2)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / f"{task.name}.cu").write_text(task.naive_kernel or "")
    (tmp_path / "answers" / f"{task.name}.1.cu").write_text("x" * 200_000)
    command = [
        "eval", "--answers", str(tmp_path / "answers"), "--suite", "held-out:2", "--backend",
        "emulator", "--output-dir", str(tmp_path / "out"), "--json", "--k", "1,100",
        "--fail-under", "pass@1>=0.5, pass@100>=0.1",
    ]  # fmt: skip
    assert main(command) == 1
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    block = said["summary"]["overall"]["overall"]
    assert block["statuses"] == {"compile_error": 1, "correct": 1}
    assert said["summary"]["unanswered"] == {"held-out:2": [other.name]}
    assert "pass@100 >= 0.1 fails: no value (1 of 1 tasks have fewer than 100" in captured.err
    assert "leak: unknown" in captured.err


@pytest.mark.slow
def test_a_finished_run_is_verified_judged_again_and_written_for_kernelbench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [task] = held_out_tasks(1)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / f"{task.name}.cu").write_text(task.naive_kernel or "")
    (tmp_path / "answers" / f"{task.name}.1.cu").write_text("int broken")
    judged = ["--suite", "held-out:1", "--backend", "emulator", "--output-dir"]
    first = ["eval", "--answers", str(tmp_path / "answers"), *judged, str(tmp_path / "first")]
    assert main(first) == 0
    assert main(["eval", "verify", str(tmp_path / "first"), "--judge-again", "2"]) == 0
    assert "2 samples, 2 kernels judged again: no problems" in capsys.readouterr().out
    capsys.readouterr()
    assert main(["eval", "report", str(tmp_path / "first"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "first/report.html")}
    again = ["eval", "--answers", str(tmp_path / "first"), *judged, str(tmp_path / "again")]
    assert main([*again, "--minutes", "1e-9"]) == 4
    assert main([*again, "--compare", str(tmp_path / "first")]) == 0
    assert "no clear difference in pass@1: +0.0 points" in capsys.readouterr().out
    assert main([*again, "--kernelbench-out", str(tmp_path / "kb")]) == 2


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ((), "give a model, or answers with --answers, and not both"),
        (("m", "--answers", "."), "give a model, or answers with --answers, and not both"),
        (("m", "--server", "http://127.0.0.1:1/v1", "--dtype", "float32"), "a server has its own"),
        (("--answers", ".", "--dtype", "bfloat16"), "a model that answers here"),
        (("m", "n"), "one model at a time"),
        (("m", "--k", "0"), "--k cannot be 0"),
        (("m", "--p", "inf"), "--p cannot be inf"),
        (
            ("m", "--baseline", "slow"),
            "--baseline cannot be 'slow': choose one of eager",
        ),
        (("--answers", "none"), "there are no answers none"),
    ],
)
def test_wrong_use_of_answers_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], sentence: str
) -> None:
    command = ["eval", *more, "--suite", "held-out:1", "--fail-under", "pass@1>=0", "--dry-run"]
    assert main([*command, "--output-dir", str(tmp_path / "o")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "o").exists()

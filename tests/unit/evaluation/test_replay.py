"""Stored conversations of every kind of run are found, shown, and rewarded anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.errors import UsageError
from coding_framework.evaluation.replay import episodes, find_episode
from coding_framework.store.conversations import append_rollout
from coding_framework.store.records import Rollout
from coding_framework.types import CUDAConversationState, Probe, ProbeResult, Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit


def state(name: str, speedup: float = 2.0) -> CUDAConversationState:
    return make_state(
        make_turn(0, make_verdict(Status.WRONG_OUTPUT, reason="index (0,)"), "first\x1b[31m"),
        make_turn(1, make_verdict(Status.CORRECT, speedup), "second"),
        name=name,
    )


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    """A quickstart's folder: an evaluation and RL rollouts, one step of which was repeated."""
    folder = tmp_path / "evaluations"
    folder.mkdir()
    lines = [state(f"sft/relu/{i}").model_dump_json() for i in range(2)]
    (folder / "sft.jsonl").write_text("\n".join(lines) + '\n{"cut off')
    for attempt, speedup in (("0", 1.0), ("1", 3.0)):
        append_rollout(
            tmp_path / "rl_checkpoints" / "attempts" / attempt / "rollouts",
            Rollout(step=1, group="g", session=0, state=state("g-0", speedup), returns=(1.0, 1.0)),
        )
    return tmp_path


def test_episodes_of_a_run_are_those_of_its_evaluations_and_rollouts(quickstart: Path):
    assert [s.conversation_id for s in episodes(quickstart)] == ["sft/relu/0", "sft/relu/1", "g-0"]
    assert find_episode(quickstart, "g-0").best_speedup == 3.0


def test_an_episode_is_named_by_id_by_number_or_by_the_start_of_its_id(quickstart: Path):
    assert find_episode(quickstart, "sft/relu/1").conversation_id == "sft/relu/1"
    assert find_episode(quickstart, "0").conversation_id == "sft/relu/0"
    assert find_episode(quickstart, "g").conversation_id == "g-0"
    with pytest.raises(UsageError, match="2 start with it"):
        find_episode(quickstart, "sft")
    with pytest.raises(UsageError, match="there are 0 to 2"):
        find_episode(quickstart, "7")


def test_replay_shows_every_turn_and_what_a_terminal_would_act_on(
    quickstart: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["replay", str(quickstart), "g-0"]) == 0
    said = capsys.readouterr().out
    for part in ("turn 1: generator", "turn 2: optimizer", "wrong_output", "first", "second",
                 "(weighted)", "ended by: max_turns"):  # fmt: skip
        assert part in said
    assert "\x1b" not in said
    assert "U+001B" in said


def test_failed_probes_are_told_apart_by_what_they_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    failed = [
        ProbeResult(probe=Probe(shapes=((4,),), values=values), passed=False, detail="got 1")
        for values in ("zeros", "zeros", "ends")
    ]
    turn = make_turn(0, make_verdict(Status.CORRECT, 2.0))
    shown = make_state(turn.model_copy(update={"probes": tuple(failed)}), name="p")
    (tmp_path / "transcript.json").write_text(shown.model_dump_json())
    assert main(["replay", str(tmp_path), "p"]) == 0
    said = capsys.readouterr().out
    assert said.count("fails for [4] with zeros values: got 1") == 1
    assert said.count("fails for [4] with ends values: got 1") == 1


def test_rewards_are_recomputed_under_another_preset_without_judging(
    quickstart: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["replay", str(quickstart), "g-0", "--reward", "kevin", "--json"]) == 0
    shown = CUDAConversationState.model_validate_json(capsys.readouterr().out)
    stored = find_episode(quickstart, "g-0")
    assert [t.reward.total for t in shown.turns] == [0.0, pytest.approx(3.3)]
    assert [t.verdict for t in shown.turns] == [t.verdict for t in stored.turns]
    assert stored.turns[1].reward.preset == "weighted"


def test_without_an_episode_they_are_listed(quickstart: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", str(quickstart)]) == 0
    assert "sft/relu/1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [("{}", "no conversation of ours"), ("nonsense", "no conversation of ours"), ("", "no conv")],
)
def test_what_is_no_run_is_wrong_use(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "x.jsonl"
    path.write_text(content + "\n" if content else "")
    assert main(["replay", str(path), "0"]) == 2
    assert message in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none"), "0"]) == 2
    assert main(["replay", str(tmp_path), "0", "--reward", "x"]) == 2


def test_a_transcript_of_solve_is_an_episode(tmp_path: Path):
    (tmp_path / "transcript.json").write_text(json.dumps(state("abc").model_dump(mode="json")))
    assert find_episode(tmp_path, "0").conversation_id == "abc"


def test_replay_tells_the_course_of_a_conversation(
    quickstart: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(quickstart), "g-0"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "speedup by turn: - 3.00x; 1 of 2 turns failed; tried: nothing"


def test_the_samples_of_an_evaluation_are_shown_and_an_unfinished_one_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """`cuda-rl eval` writes its conversations at its end, `rft` has such a folder in its own."""
    for folder in (tmp_path / "eval", tmp_path / "rft/samples"):
        folder.mkdir(parents=True)
        (folder / "eval.json").write_text("{}")
        (folder / "answers.jsonl").write_text('{"key": "s/relu/0/0/0", "answer": "text"}\n')
    assert main(["replay", str(tmp_path / "eval")]) == 2
    assert "is an evaluation that is not finished" in capsys.readouterr().err
    for folder in (tmp_path / "eval", tmp_path / "rft/samples"):
        line = state(f"{folder.name}/relu/0").model_dump_json()
        (folder / "conversations.jsonl").write_text(f"{line}\n")
    assert main(["replay", str(tmp_path / "eval")]) == 0
    assert "eval/relu/0" in capsys.readouterr().out
    assert main(["replay", str(tmp_path / "eval"), "0", "--reward", "gated"]) == 0
    assert "turn 2: optimizer" in capsys.readouterr().out
    assert [s.conversation_id for s in episodes(tmp_path / "rft")] == ["samples/relu/0"]

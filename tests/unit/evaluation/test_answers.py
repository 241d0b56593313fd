"""Answers that exist already: read from what people have, refused where they are ambiguous."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.answers import (
    MAX_FILE_BYTES,
    GivenAgent,
    answers_digest,
    matched,
    read_answers,
)
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.types import CUDAConversationState, Status
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_kernelbench_folder_is_matched_by_level_and_number(tmp_path: Path) -> None:
    for problem, sample in ((19, 0), (19, 1), (20, 0)):
        name = f"level_1_problem_{problem}_sample_{sample}_kernel.py"
        (tmp_path / name).write_text(f"{problem}.{sample}")
    (tmp_path / "eval_results.json").write_text("{}")
    entries = [
        SuiteTask(task=make_task(f"{n}_P"), level=level, number=n)
        for level, n in ((1, 19), (2, 20), (1, 7))
    ]
    suite = EvalSuite(name="kernelbench:1", tasks=tuple(entries))
    pairs = matched(suite, read_answers(tmp_path))
    assert [(e.number, a.sample, a.code) for e, a in pairs] == [(19, 0, "19.0"), (19, 1, "19.1")]


def test_a_folder_of_kernels_is_matched_by_task(tmp_path: Path) -> None:
    write(tmp_path, relu__cu="a", relu__3__cu="b", gelu__py="c", notes__txt="d")
    found = read_answers(tmp_path)
    assert [(a.task, a.sample, a.code) for a in found] == [
        ("gelu", 0, "c"), ("relu", 3, "b"), ("relu", 0, "a"),
    ]  # fmt: skip


def test_lines_give_code_or_a_models_text(tmp_path: Path) -> None:
    rows = [
        {"task": "relu", "code": "int a;"},
        {"task": "relu", "sample": 1, "answer": "Here:\n```cuda\n__global__ void forward(){}\n```"},
        {"task": "gelu", "answer": "I cannot."},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, text, none = read_answers(path)
    assert code.code == "int a;"
    assert text.code == "__global__ void forward(){}\n"
    assert (none.code, none.note) == (None, "no code block")


def test_an_earlier_evaluation_gives_the_best_kernel_of_each_sample(tmp_path: Path) -> None:
    state = make_state(
        make_turn(0, make_verdict(Status.CORRECT, 3.0), "fast"),
        make_turn(1, make_verdict(Status.CORRECT, 2.0), "slow"),
        name="held-out/relu/4",
    )
    (tmp_path / "conversations.jsonl").write_text(state.model_dump_json() + "\n")
    with pytest.raises(UsageError, match="the folder of a finished evaluation"):
        read_answers(tmp_path)  # it is not finished: there may be more
    (tmp_path / "records.jsonl").touch()
    [given] = read_answers(tmp_path)
    assert (given.task, given.sample, given.code) == ("relu", 4, "fast")
    answer = asyncio.run(
        GivenAgent(given).answer(CUDAConversationState(conversation_id="c", task=make_task()))
    )
    assert answer.extraction.code == "fast"


def test_of_a_huge_file_and_of_bytes_that_are_no_text_a_bounded_part_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "relu.cu").write_bytes(b"x" * (MAX_FILE_BYTES + 5))
    (tmp_path / "silu.cu").write_bytes(b"// caf\xe9\n")
    huge, latin = read_answers(tmp_path)
    assert huge.code == "x" * MAX_FILE_BYTES
    assert (latin.code, latin.note) == (None, "the file silu.cu is not UTF-8")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "holds no answer"),
        ({"relu__cu": "a", "relu__py": "b"}, "sample 0 of relu is there twice"),
        ({"relu__0__cu": "a", "relu__cu": "b"}, "sample 0 of relu is there twice"),
    ],
)
def test_no_answer_and_two_of_one_number_are_refused(
    tmp_path: Path, files: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_answers(write(tmp_path, **files))


@pytest.mark.parametrize("line", ["[1]", '{"task": "relu"}', "{", '{"task": 3, "code": "a"}'])
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"task": "relu", "code": "a"}\n' + line + "\n")
    with pytest.raises(UsageError, match="line 2: give an object"):
        read_answers(path)


def test_the_digest_is_of_the_answers_and_not_of_their_order(tmp_path: Path) -> None:
    answers = read_answers(write(tmp_path, relu__cu="a", gelu__cu="b"))
    assert answers_digest(answers) == answers_digest(answers[::-1])
    (tmp_path / "gelu.cu").write_text("c")
    assert answers_digest(answers) != answers_digest(read_answers(tmp_path))

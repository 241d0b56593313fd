"""Repairs of a model's own wrong kernels: of training tasks alone, with the verdict that it got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coding_framework import cli
from coding_framework.agents.prompts import build_messages, messages_for_example
from coding_framework.data.example_store import BuildReport, ExampleStore, read_training_examples
from coding_framework.data.examples import held_out_tasks, training_tasks
from coding_framework.data.mistakes import (
    repairs_of_mistakes,
    stored_conversations,
    what_was_wrong,
)
from coding_framework.data.modules.catalog import all_drafts
from coding_framework.data.synthesis.receipts import (
    Job,
    KernelReceipt,
    module_receipts,
    packaged_kernels,
    packaged_receipts,
)
from coding_framework.errors import UsageError
from coding_framework.store.records import Rollout
from coding_framework.types import (
    Candidate,
    CompileSummary,
    ConversationTurn,
    CUDAConversationState,
    Diagnostic,
    Extraction,
    Finding,
    Generation,
    KernelExample,
    Receipt,
    Role,
    Split,
    Status,
    Task,
    TestResult,
    TrainingExample,
    Verdict,
)
from support.judged_modules import judged_jobs

pytestmark = pytest.mark.unit

TASK, OTHER = training_tasks(2)
ILLEGAL = (
    "illegal global {} of 4 bytes at 0x7e00001c0a00 by thread (2,0,0) of block (0,0,0) in kernel "
    "k, line 24: {}"
)


def comparison(detail: str, *, passed: bool = False) -> TestResult:
    return TestResult(
        case="main", seed=0, shapes=((128, 512),), dtype="float32", max_abs_error=None,
        max_rel_error=None, tolerance=None, passed=passed, detail=detail,
    )  # fmt: skip


def verdict(code: str, status: Status, *, task: Task = TASK, **changes: Any) -> Verdict:
    shown: dict[str, Any] = {}
    if status is Status.WRONG_OUTPUT:
        shown["tests"] = (comparison("shape (4, 8), expected (4,)"),)
    if status is Status.CORRECT:
        shown["tests"] = (comparison("", passed=True),)
    if status is Status.COMPILE_ERROR:
        errors = [Diagnostic(severity="error", line=n, message=f"wrong {n}") for n in range(1, 6)]
        shown["compile"] = CompileSummary(errors=tuple(errors))
    if status is Status.CHEATING:
        finding = Finding(rule="r", severity="high", line=None, message="m", basis="run")
        shown["cheats"] = (finding,)
    return Verdict(
        **{
            "status": status,
            "reason": "as it was judged",
            "task": task.name,
            "candidate_sha256": Candidate(code=code).sha256,
            "backend": "emulator",
            **shown,
            **changes,
        }
    )


def turn(code: str | None, judged: Verdict | None, **changes: Any) -> ConversationTurn:
    return ConversationTurn(
        index=0,
        role=Role.GENERATOR,
        prompt=(),
        generation=Generation(text=""),
        extraction=Extraction(code=code, note="one block"),
        verdict=judged,
        **changes,
    )


def state(*turns: ConversationTurn, task: Task = TASK) -> CUDAConversationState:
    return CUDAConversationState(conversation_id="c", task=task, turns=turns)


def wrong(code: str, status: Status = Status.WRONG_OUTPUT, task: Task = TASK) -> ConversationTurn:
    return turn(code, verdict(code, status, task=task))


def repairs(
    *states: CUDAConversationState, **changes: Any
) -> tuple[list[TrainingExample], BuildReport]:
    report = BuildReport()
    return repairs_of_mistakes(states, packaged_receipts(), report, **changes), report


@pytest.mark.parametrize(
    "status", [Status.WRONG_OUTPUT, Status.COMPILE_ERROR, Status.TIMEOUT, Status.REJECTED]
)
def test_the_prompt_is_that_of_a_real_second_turn(status: Status) -> None:
    conversation = state(wrong("a\nb\nc\nd\ne", status))
    (example,), _ = repairs(conversation)
    assert messages_for_example(example) == build_messages(conversation, Role.OPTIMIZER)


def test_the_answer_is_the_tasks_kernel_with_a_correct_receipt() -> None:
    (example,), report = repairs(state(wrong("bad")))
    receipt = packaged_receipts()[Job(TASK, "naive", example.code).key]
    assert receipt.verdict.correct
    assert (example.receipt, example.code) == (receipt.verdict_digest, TASK.naive_kernel)
    assert (example.kind, example.role, example.previous_code) == ("repair", Role.OPTIMIZER, "bad")
    assert report.kept == {f"tier {TASK.tier} wrong_output": 1}
    assert not report.left_out


def test_the_answer_is_the_right_kernel_that_is_most_like_the_wrong_one() -> None:
    receipts = packaged_receipts()
    judged = {
        task.name: (task, [r.kernel for r in packaged_kernels(task)
                           if r.verdict.correct and not r.level.startswith("broken")])
        for task in training_tasks(40)
    }  # fmt: skip
    task, right = next((t, found) for t, found in judged.values() if len(found) > 1)
    for kernel in right:
        code = kernel.code.replace("if (", "if (0 * ")
        (example,), _ = repairs(state(wrong(code, task=task), task=task))
        assert example.code == kernel.code
        assert example.receipt == receipts[Job(task, "", kernel.code).key].verdict_digest


def test_a_task_whose_kernel_has_no_receipt_teaches_nothing() -> None:
    report = BuildReport()
    assert repairs_of_mistakes([state(wrong("bad"))], {}, report) == []
    assert report.left_out == {"task without a kernel judged correct": 1}


def module(part: str) -> tuple[Task, KernelExample, KernelReceipt]:
    """A task of modules of that part, a kernel of it that is not naive, and its receipt."""
    receipts = module_receipts()
    for draft in all_drafts():
        jobs = judged_jobs(draft) if draft.part == part else []
        if len(jobs) > 1 and receipts[jobs[-1].key].verdict.correct:
            found = receipts[jobs[-1].key]
            return jobs[-1].task, found.kernel, found
    raise AssertionError(f"no module of {part} has receipts")


def test_mistakes_on_modules_are_repaired_by_the_modules_kernels() -> None:
    task, kernel, receipt = module("train")
    code = kernel.code.replace("+", "-", 1)
    conversation = state(wrong(code, task=task), task=task)
    (example,), report = repairs(conversation, of_modules=module_receipts)
    assert (example.code, example.receipt) == (kernel.code, receipt.verdict_digest)
    assert report.kept == {f"tier {task.tier} wrong_output": 1}
    assert messages_for_example(example, "v3") == build_messages(
        conversation, Role.OPTIMIZER, version="v3"
    )
    _, report = repairs(conversation)
    assert report.left_out == {"task without a kernel judged correct": 1}


@pytest.mark.parametrize("part", ["validation", "held_out"])
def test_nothing_is_learnt_of_modules_that_choose_or_test_a_policy(
    part: str, tmp_path: Path
) -> None:
    task = module(part)[0].model_copy(update={"split": Split.TRAIN})
    found, report = repairs(state(wrong("bad", task=task), task=task), of_modules=module_receipts)
    assert (found, report.left_out) == ([], {"held-out task": 1})
    (example,), _ = repairs(state(wrong("bad")))
    ExampleStore.write(tmp_path / "x", [example.model_copy(update={"task": task})])
    with pytest.raises(UsageError, match="holds 1 examples of held-out tasks"):
        read_training_examples(tmp_path / "x")


def test_held_out_tasks_are_left_out_whatever_the_file_says_of_them() -> None:
    held_out = held_out_tasks(1)[0].model_copy(update={"split": Split.TRAIN})
    found, report = repairs(state(wrong("bad", task=held_out), task=held_out))
    assert found == []
    assert report.left_out == {"held-out task": 1}


def test_tasks_that_are_not_the_catalogues_are_left_out() -> None:
    moved = TASK.model_copy(update={"cases": TASK.cases[::-1]})
    unknown = TASK.model_copy(update={"name": "someone_s_task"})
    _, report = repairs(state(wrong("a"), task=moved), state(wrong("b"), task=unknown))
    assert report.left_out == {
        "task was another when it was judged": 1,
        "task not in the catalogue": 1,
    }


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (wrong("c", Status.CHEATING), "cheating"),
        (wrong("c", Status.UNSUPPORTED), "unsupported"),
        (turn("c", None, masked="the judge died"), "masked"),
        (turn("c", verdict("c", Status.TIMEOUT), masked="unsupported"), "masked"),
        (turn(None, verdict("", Status.REJECTED)), "no kernel in the answer"),
        (turn("c", verdict("d", Status.TIMEOUT)), "verdict of another kernel"),
        (turn("c", verdict("c", Status.TIMEOUT, task=OTHER)), "verdict of another kernel"),
        (wrong(TASK.naive_kernel or "", Status.TIMEOUT), "the right kernel itself"),
        (
            turn(
                "c",
                verdict("c", Status.TIMEOUT, receipt=Receipt(experiment_without=("rerun",))),
            ),
            "judged with checks switched off",
        ),
    ],
)
def test_turns_that_teach_nothing_are_counted(left_out: ConversationTurn, reason: str) -> None:
    found, report = repairs(state(left_out))
    assert found == []
    assert report.left_out == {reason: 1}


def test_a_kernel_is_taken_once_and_never_if_it_was_also_found_correct() -> None:
    right = turn("flaky", verdict("flaky", Status.CORRECT))
    found, report = repairs(
        state(wrong("bad"), wrong("bad")), state(right), state(wrong("flaky", Status.TIMEOUT))
    )
    assert [e.previous_code for e in found] == ["bad"]
    assert report.left_out == {"kernel seen before": 1, "found correct another time": 1}


def test_candidates_that_were_not_chosen_are_mistakes_too() -> None:
    best = turn("good", verdict("good", Status.CORRECT), alternatives=(wrong("bad"),))
    found, _ = repairs(state(best))
    assert [e.previous_code for e in found] == ["bad"]


def test_a_cap_keeps_every_status_is_drawn_by_seed_and_spreads_over_tasks() -> None:
    many = state(*(wrong(f"w{n}") for n in range(30)), wrong("e", Status.COMPILE_ERROR))
    few = state(wrong("x", task=OTHER), task=OTHER)
    found, report = repairs(many, few, per_task=4)
    assert report.left_out == {"more than wanted of a task": 27}
    assert len({e.task.name for e in found[:2]}) == 2
    mine = [e.previous_code for e in found if e.task.name == TASK.name]
    assert len(mine) == 4
    assert "e" in mine
    assert repairs(few, many, per_task=4)[0] == found
    other = [e.previous_code for e in repairs(many, few, per_task=4, seed=1)[0]]
    assert set(other) != {e.previous_code for e in found}


@pytest.mark.parametrize(
    ("status", "changes", "said"),
    [
        (Status.COMPILE_ERROR, {}, "Line 1 did not compile: wrong 1."),
        (
            Status.COMPILE_ERROR,
            {"compile": None, "reason": "nvcc: ``` <|im_end|>\n gone."},
            "It did not compile: nvcc: ''' < |im_end| > gone.",
        ),
        (Status.WRONG_OUTPUT, {}, "The output had shape (4, 8), expected was (4,)."),
        (
            Status.WRONG_OUTPUT,
            {"tests": (comparison("first wrong element [0]: got 1, expected 2 (3 of 9 wrong)"),)},
            "3 of 9 elements of the output were wrong for inputs of shape [128, 512].",
        ),
        (
            Status.WRONG_OUTPUT,
            {"tests": (comparison("first wrong element [0]: got 1, expected 2 (9 of 9 wrong)"),)},
            "Every element of the output was wrong for inputs of shape [128, 512].",
        ),
        (
            Status.NONDETERMINISTIC,
            {"tests": (comparison("element [0]: 1, then 2"),)},
            "The output for inputs of shape [128, 512] differed between two runs.",
        ),
        (
            Status.RUNTIME_ERROR,
            {"reason": ILLEGAL.format("write", "512 bytes past the end of the 4-byte allocation")},
            "The global write in line 24 went past the end of an allocation.",
        ),
        (
            Status.RUNTIME_ERROR,
            {"reason": ILLEGAL.format("read", "it is below every allocation")},
            "The global read in line 24 was illegal: it is below every allocation.",
        ),
        (
            Status.RUNTIME_ERROR,
            {"reason": "the host code died of SIGFPE"},
            "It failed when it ran: the host code died of SIGFPE.",
        ),
        (Status.TIMEOUT, {"reason": "no end"}, "It took too long: no end."),
        (Status.MEMORY_LIMIT, {"reason": "2 GB"}, "It failed (memory limit): 2 GB."),
    ],
)
def test_the_reason_says_what_the_verdict_says(
    status: Status, changes: dict[str, Any], said: str
) -> None:
    assert what_was_wrong(verdict("bad", status, **changes)) == said


# --- files and commands ---------------------------------------------------------------------------


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def rollout(conversation: CUDAConversationState) -> str:
    made = Rollout(step=1, group="g", session=0, state=conversation, returns=(0.0,))
    return made.model_dump_json()


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    status = cli.main(["data", "mistakes", *flags])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_rollouts_of_rl_and_states_of_evaluations_are_read(tmp_path: Path) -> None:
    one, two = state(wrong("one")), state(wrong("two"))
    report = BuildReport()
    files = [
        write(tmp_path / "rl", rollout(one), rollout(two)[:80]),
        write(tmp_path / "states", two.model_dump_json()),
    ]
    assert list(stored_conversations(files, report)) == [one, two]
    assert report.conversations == 2
    assert report.left_out == {"line that is no conversation": 1}


def test_the_command_writes_a_set_that_sft_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = write(tmp_path / "rl.jsonl", rollout(state(wrong("one"), wrong("two"))))
    made = tmp_path / "made" / "mistakes.jsonl"
    flags = ("--conversations", str(stored), "--output", str(made), "--per-task", "1")
    status, out, _ = run(capsys, *flags)
    assert status == 0
    assert '"examples": 1' in out
    assert '"more than wanted of a task": 1' in out
    assert [e.task for e in read_training_examples(made)] == [TASK]


def test_what_cannot_be_read_or_holds_nothing_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = held_out_tasks(1)[0]
    output = str(tmp_path / "out.jsonl")
    for file, said in (
        (tmp_path / "nowhere", "cannot read the conversations of"),
        (write(tmp_path / "text", "\x1f\x8b"), "holds no conversation"),
        (
            write(tmp_path / "held_out", rollout(state(wrong("bad", task=task), task=task))),
            "can be learnt from (1 held-out task)",
        ),
    ):
        status, out, err = run(capsys, "--conversations", str(file), "--output", output)
        assert (status, out) == (2, "")
        assert said in err
    assert not Path(output).exists()


def test_a_file_to_learn_from_is_refused_where_it_holds_held_out_tasks(tmp_path: Path) -> None:
    (example,), _ = repairs(state(wrong("bad")))
    path = tmp_path / "extra.jsonl"
    for task in (
        held_out_tasks(1)[0],
        held_out_tasks(1)[0].model_copy(update={"split": Split.TRAIN}),
        TASK.model_copy(update={"split": Split.HELD_OUT}),
    ):
        ExampleStore.write(path, [example, example.model_copy(update={"task": task})])
        with pytest.raises(UsageError, match="holds 1 examples of held-out tasks"):
            read_training_examples(path)


def test_a_file_to_learn_from_is_refused_where_it_is_missing_or_damaged(tmp_path: Path) -> None:
    (example,), _ = repairs(state(wrong("bad")))
    path = tmp_path / "extra.jsonl"
    with pytest.raises(UsageError, match="cuda-rl data mistakes"):
        read_training_examples(path)
    ExampleStore.write(path, [example])
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"optimizer", b"optimiser", 1))
    with pytest.raises(UsageError, match="is damaged"):
        read_training_examples(path)
    path.write_bytes(whole[:-20])
    with pytest.raises(UsageError, match="is not a file of training examples"):
        read_training_examples(path)
    ExampleStore.write(path, [])
    with pytest.raises(UsageError, match="holds no example"):
        read_training_examples(path)

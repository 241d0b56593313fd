"""A user's reward, tried before a run starts: in a process of its own, as the workers' are.

It is asked about conversations that were made up: a turn that does not compile, one with a wrong
output, and a correct, timed one after it. What it cannot answer there it could not in training
either, where the turns would be masked one after the other.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coding_framework.errors import RewardError, UsageError
from coding_framework.store.events import log
from coding_framework.training.handed_over import read_handed_over
from coding_framework.training.reward_functions.custom import chosen_reward
from coding_framework.types import (
    BenchmarkResult,
    Candidate,
    CompileSummary,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    Message,
    Role,
    Status,
    Task,
    TestResult,
    Verdict,
)

MOST_S = 5.0
"""For one turn. A reward is asked in the process that runs the conversations, which wait for it."""
TRIAL_S = 120.0
"""For all of the trial, imports included."""
CODE = "// a kernel"


def try_reward(
    task: Task, *, path: str | None, handed: Path | None, environment: Mapping[str, str]
) -> Mapping[str, float]:
    """What the reward gives each of the conversations about `task`, by what happened in them.

    Raises:
        UsageError: where it cannot be imported there, fails, gives no finite number or is slow.
    """
    question = {"task": task.model_dump_json(), "path": path, "handed": str(handed or "")}
    try:
        asked = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(question), env=dict(environment), timeout=TRIAL_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as e:
        raise UsageError(
            f"the reward gave nothing within {TRIAL_S:.0f} s for a turn: make it quicker"
        ) from e
    said = asked.stdout.strip().splitlines()[-1:] or [""]
    try:
        answer: dict[str, Any] = json.loads(said[0])
    except ValueError as e:
        why = (asked.stderr.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
        raise UsageError(f"the reward ended the process that asked it: {why}") from e
    if "fault" in answer:
        raise UsageError(answer["fault"])
    log.info("reward_tried", **answer)
    return answer


def conversations(task: Task) -> dict[str, CUDAConversationState]:
    """What a reward is asked about, by what happened in the last turn."""
    failed = _turn(0, _verdict(task, Status.COMPILE_ERROR))
    wrong = _turn(0, _verdict(task, Status.WRONG_OUTPUT))
    right = _turn(1, _verdict(task, Status.CORRECT))
    return {
        "does not compile": CUDAConversationState(
            conversation_id="trial-0", task=task, turns=(failed,)
        ),
        "wrong output": CUDAConversationState(conversation_id="trial-1", task=task, turns=(wrong,)),
        "correct": CUDAConversationState(
            conversation_id="trial-2", task=task, turns=(wrong, right)
        ),
    }


def _turn(index: int, verdict: Verdict) -> ConversationTurn:
    return ConversationTurn(
        index=index,
        role=Role.OPTIMIZER if index else Role.GENERATOR,
        prompt=(Message(role="user", content="Write a kernel."),),
        generation=Generation(
            text=f"```cuda\n{CODE}\n```", prompt_ids=(1,), response_ids=(2,), logprobs=(-0.5,)
        ),
        extraction=Extraction(code=CODE, note="one block"),
        verdict=verdict,
    )


def _verdict(task: Task, status: Status) -> Verdict:
    compiled, correct = status is not Status.COMPILE_ERROR, status is Status.CORRECT
    case = task.cases[0]
    test = TestResult(
        case=case.name, seed=0, shapes=tuple(i.shape for i in case.inputs), dtype="float32",
        max_abs_error=0.0 if correct else 1.0, max_rel_error=0.0 if correct else 1.0,
        tolerance=1e-6, passed=correct, detail="" if correct else "at 0: expected 1, got 0",
    )  # fmt: skip
    timing = BenchmarkResult(
        kernel_ms=1.0, kernel_ms_ci95=(0.9, 1.1), naive_ms=2.0, speedup_vs_naive=2.0, modelled=True
    )
    return Verdict(
        status=status,
        reason="made up, to try a reward",
        task=task.name,
        candidate_sha256=Candidate(code=CODE).sha256,
        backend="emulator",
        compile=CompileSummary(registers=32),
        tests=(test,) if compiled else (),
        timing=timing if correct else None,
    )


def _answer(question: Mapping[str, str]) -> dict[str, Any]:
    handed = read_handed_over(Path(question["handed"])) if question["handed"] else None
    reward = chosen_reward(handed.reward if handed else None, question["path"] or None)
    assert reward is not None, "only rewards of the user's own are tried"
    given: dict[str, float] = {}
    for what, state in conversations(Task.model_validate_json(question["task"])).items():
        began = time.monotonic()
        paid = reward(state)
        took = time.monotonic() - began
        if took > MOST_S:
            raise RewardError(
                f"the reward took {took:.1f} s for one turn, and a step has many: bring it below "
                f"{MOST_S:g} s"
            )
        assert paid is not None, "a checked reward gives components"
        given[what] = math.floor(paid.total * 1e6) / 1e6
    return given


def _main() -> None:
    try:
        answer = _answer(json.loads(sys.stdin.read()))
    except (RewardError, UsageError) as e:
        answer = {"fault": f"{e} (tried before the run, on a made-up conversation)"}
    print(f"\n{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    _main()

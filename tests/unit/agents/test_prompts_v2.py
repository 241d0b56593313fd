"""The prompts for larger models: contract, device, counters, history, trimmed by rule."""

from __future__ import annotations

import pytest

from coding_framework.agents.devices import device_line
from coding_framework.agents.feedback import feedback
from coding_framework.agents.prompts import PromptBudget, build_messages, shown_turn
from coding_framework.errors import UsageError
from coding_framework.types import (
    CompileSummary,
    CUDAConversationState,
    Diagnostic,
    Message,
    Probe,
    ProbeResult,
    Role,
    Status,
    Verdict,
)
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit

BEST = "best kernel" + " of many lines" * 5

COUNTERS = {
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 3200.0,
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 100.0,
    "smsp__sass_data_bytes_mem_global_op_ld.sum": 12800.0,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 31.0,
    "sm__maximum_warps_per_active_cycle_pct": 50.0,
}
FOUND = ProbeResult(
    probe=Probe(shapes=((1,),), values="zeros"), passed=False, detail="index (0,): got 1"
)


def slow_verdict() -> Verdict:
    verdict = make_verdict(Status.CORRECT, 1.5)
    assert verdict.timing is not None
    timing = verdict.timing.model_copy(update={"roofline_fraction": 0.25})
    summary = CompileSummary(registers=40, spill_bytes=16, techniques=("shared memory",))
    return verdict.model_copy(update={"counters": COUNTERS, "timing": timing, "compile": summary})


def ended() -> CUDAConversationState:
    best = make_turn(1, slow_verdict(), BEST).model_copy(update={"probes": (FOUND,)})
    return make_state(
        make_turn(0, make_verdict(Status.WRONG_OUTPUT), "first"),
        best,
        make_turn(2, make_verdict(Status.TIMEOUT, reason="30 s"), "third"),
    )


def prompt(state: CUDAConversationState, role: Role = Role.OPTIMIZER, **how: object) -> str:
    return build_messages(state, role, version="v2", **how)[-1].content  # type: ignore[arg-type]


def test_the_generator_is_told_contract_device_and_task():
    empty = CUDAConversationState(conversation_id="c", task=make_task())
    said = prompt(empty, Role.GENERATOR)
    assert "NVIDIA H200 (compute capability 9.0): 132 SMs" in said
    assert "PYBIND11_MODULE" in said
    assert "return x.relu()" in said
    assert "NVIDIA A100" in prompt(empty, Role.GENERATOR, device="NVIDIA A100")


def test_an_unknown_device_names_the_choices():
    with pytest.raises(UsageError, match=r"'GPU'.*NVIDIA H200"):
        device_line("GPU")


def test_the_optimizer_is_told_time_counters_what_helps_findings_and_history():
    said = prompt(ended())
    assert "1.50x the speed of the naive kernel (modelled)" in said
    assert "reach 25% of the memory roofline" in said
    assert "loads use 12% of the bytes moved" in said
    assert "31 bank conflicts" in said
    assert "occupancy 50%" in said
    assert "pad the rows of the tile" in said
    assert "A tester found that it fails for inputs of shape [1] with zeros values" in said
    assert "A later attempt failed. It took too long: 30 s" in said
    assert "2. correct, 1.50x (shared memory)" in said
    assert "1. wrong output" in said


def test_over_budget_history_goes_first_then_findings_then_the_later_failure_then_the_code():
    def count(messages: tuple[Message, ...]) -> int:
        return sum(len(m.content) for m in messages)

    marks = ["1. wrong output", "2. correct", "A tester", "A later attempt", "best kernel"]
    size = count(build_messages(ended(), Role.OPTIMIZER, version="v2"))
    left = []
    while True:
        try:
            said = prompt(ended(), budget=PromptBudget(size, count))
        except UsageError:
            break
        left.append([mark for mark in marks if mark in said])
        assert "1.50x the speed" in said, "the verdict stays"
        size -= 1
    seen = list(dict.fromkeys(map(tuple, left)))
    assert seen == [tuple(marks[i:]) for i in range(len(marks) + 1)]


def test_a_compiler_error_quotes_its_line():
    summary = CompileSummary(
        errors=(Diagnostic(severity="error", line=2, message='"q" is undefined'),)
    )
    verdict = make_verdict(Status.COMPILE_ERROR).model_copy(update={"compile": summary})
    said = feedback(verdict, code="int a;\n  int b = q;\n", full=True)
    assert said == 'It does not compile: line 2: "q" is undefined (`int b = q;`)'


def test_a_note_of_the_turn_loop_reaches_the_next_agent_in_both_versions():
    turn = make_turn(0, make_verdict(Status.WRONG_OUTPUT)).model_copy(
        update={"notes": ("It is the same code as in turn 1.",)}
    )
    for version in ("v1", "v2"):
        messages = build_messages(make_state(turn), Role.OPTIMIZER, version=version)  # type: ignore[arg-type]
        assert "It is the same code as in turn 1." in messages[-1].content


def test_a_diff_changes_the_kernel_that_the_prompt_shows():
    shown = shown_turn(ended())
    assert shown is not None
    assert shown.code == BEST
    assert shown.code in prompt(ended())

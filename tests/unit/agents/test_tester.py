"""The tester: proposals stay in the task's domain, whatever a model says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.agents.tester import TesterAgent, read_probes, usual_probes
from coding_framework.errors import DeviceError
from coding_framework.task_shapes import case_of_probe, free_sizes, with_sizes
from coding_framework.types import (
    InitArg,
    Probe,
    ProbeResult,
    Status,
    Task,
    TensorSpec,
    TestCase,
)
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit


def case(name: str, rows: int, columns: int, init: tuple[InitArg, ...] = ()) -> TestCase:
    return TestCase(
        name=name,
        inputs=(
            TensorSpec(name="x", shape=(rows, columns)),
            TensorSpec(name="b", shape=(columns,), low=0.5, high=2.0),
        ),
        init_args=init,
        reduction_length=columns,
    )


def task_of(*cases: TestCase) -> Task:
    return make_task().model_copy(update={"cases": cases})


BIASED = task_of(case("main", 64, 128), case("odd", 33, 67), case("tiny", 1, 1))


def test_extents_that_are_equal_in_every_shape_set_are_one_size():
    sizes = free_sizes(BIASED)
    assert [(s.name, s.places, s.low, s.high) for s in sizes] == [
        ("x[0]", ((0, 0),), 1, 64),
        ("x[1]", ((0, 1), (1, 0)), 1, 128),
    ]
    assert with_sizes(BIASED, {"x[1]": 5}) == ((64, 5), (5,))


def test_an_argument_of_the_model_follows_its_size():
    task = task_of(case("main", 64, 128, (128, 3)), case("odd", 33, 67, (67, 3)))
    made = case_of_probe(task, Probe(shapes=((40, 100), (100,))))
    assert made is not None
    assert made.init_args == (100, 3)
    assert made.reduction_length == 128


def test_sizes_are_fixed_where_an_argument_varies_in_another_way():
    assert free_sizes(task_of(case("main", 64, 128, (7,)), case("odd", 33, 67, (9,)))) == ()
    assert free_sizes(task_of(case("main", 64, 128))) == ()


@pytest.mark.parametrize(
    "shapes", [((64, 5), (6,)), ((64, 129), (129,)), ((0, 5), (5,)), ((64, 5),), ((64,), (5,))]
)
def test_a_probe_outside_the_domain_is_no_shape_set(shapes: tuple[tuple[int, ...], ...]):
    assert case_of_probe(BIASED, Probe(shapes=shapes)) is None


def test_usual_probes_are_distinct_and_in_the_domain():
    probes = usual_probes(BIASED, "k<<<n, 96>>>(x); tile[32]")
    assert len({(p.shapes, p.values) for p in probes}) == len(probes)
    assert all(case_of_probe(BIASED, probe) is not None for probe in probes)
    assert any("block of 96" in p.why for p in probes)
    fixed = usual_probes(task_of(case("main", 4, 4)), "")
    assert {p.shapes for p in fixed} == {((4, 4), (4,))}


def test_proposals_of_a_model_are_read_out_of_prose_and_bad_ones_left_out():
    answer = """Sure! ```json
[{"sizes": {"x[1]": 33}, "values": "zeros", "why": "odd"},
 {"sizes": {"x[1]": 4096}, "values": "zeros"}, {"sizes": {"y[0]": 1}}, {"values": "nan"},
 {"sizes": {"x[0]": true}}, {"sizes": [1]}, {"sizes": {"x[1]": 33}, "values": "zeros"}, {oops}]
```"""
    (probe,) = read_probes(BIASED, answer)
    assert (probe.shapes, probe.values, probe.why) == (((64, 33), (33,)), "zeros", "odd")


@given(st.text(alphabet='{}[]"sizevalu:,x0123456789 \n', max_size=300))
def test_any_answer_gives_probes_in_the_domain(text: str):
    assert all(case_of_probe(BIASED, probe) is not None for probe in read_probes(BIASED, text))


async def passing(task: Task, code: str, probes: tuple[Probe, ...]) -> tuple[ProbeResult, ...]:
    return tuple(ProbeResult(probe=probe, passed=True) for probe in probes)


def talk(status: Status, code: str | None = "k"):
    state = make_state(make_turn(0, make_verdict(status), code))
    return state.model_copy(update={"task": BIASED})


async def test_the_models_proposals_come_first_and_are_filled_up():
    policy = ScriptedPolicy(['{"sizes": {"x[0]": 2}, "why": "mine"}'])
    tester = TesterAgent(passing, policy)
    results = await tester.probe(talk(Status.CORRECT))
    assert len(results) == 3
    assert results[0].probe.why == "mine"
    asked = policy.prompts[0][-1].content
    assert "x[0] 1 to 64, x[1] 1 to 128" in asked
    assert "found correct" in asked


async def test_later_turns_get_other_probes():
    first, second = talk(Status.CORRECT), talk(Status.CORRECT)
    again = second.turns[0].model_copy(update={"index": 1})
    second = second.model_copy(update={"turns": (*second.turns, again)})
    tester = TesterAgent(passing)
    proposals = [await tester.propose(state) for state in (first, second)]
    assert not set(proposals[0]) & set(proposals[1])


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.COMPILE_ERROR, "k"), (Status.CHEATING, "k"), (Status.CORRECT, None)],
)
async def test_what_cannot_run_is_not_probed(status: Status, code: str | None):
    if status is Status.CHEATING:
        state = talk(Status.CORRECT, code)
        cheated = state.turns[0].verdict.model_copy(update={"status": status})
        turn = state.turns[0].model_copy(update={"verdict": cheated})
        state = state.model_copy(update={"turns": (turn,)})
    else:
        state = talk(status, code)
    assert await TesterAgent(passing).probe(state) == ()


async def test_a_fault_of_ours_costs_the_findings_and_not_the_conversation():
    async def broken(task: Task, code: str, probes: tuple[Probe, ...]) -> tuple[ProbeResult, ...]:
        raise DeviceError("the device is gone")

    assert await TesterAgent(broken, ScriptedPolicy([])).probe(talk(Status.CORRECT)) == ()

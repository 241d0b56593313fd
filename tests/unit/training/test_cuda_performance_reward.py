"""Properties that a reward must have whatever the numbers of its preset are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.errors import UsageError
from coding_framework.training.credit import discounted_returns
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
    hardware_ratios,
    rescored,
    saturating,
)
from coding_framework.training.reward_functions.presets import PRESETS, WEIGHTED, RewardPreset
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Finding,
    Generation,
    Probe,
    ProbeResult,
    Role,
    Status,
    Verdict,
)
from support.made_conversations import make_comparison, make_task, make_verdict

pytestmark = pytest.mark.unit

TASK = make_task()
EVIDENCE = Finding(rule="stale_upload", severity="high", line=None, message="m", basis="run")

speedups = st.floats(min_value=0.01, max_value=1e6)
presets = st.sampled_from(sorted(PRESETS))
wrong_statuses = st.sampled_from(
    [s for s in Status if s not in (Status.CORRECT, Status.UNSUPPORTED)]
)
summaries = st.builds(
    CompileSummary,
    registers=st.integers(0, 255),
    spill_bytes=st.integers(0, 4096),
    shared_bytes=st.integers(0, 232_448),
    warnings=st.lists(st.just("w"), max_size=6).map(tuple),
)
counters = st.dictionaries(
    st.sampled_from(
        [
            "smsp__inst_executed.sum",
            "smsp__thread_inst_executed.sum",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "smsp__sass_data_bytes_mem_global_op_ld.sum",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "sm__warps_active.avg.pct_of_peak_sustained_active",
            "smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum",
            "dram__bytes.sum",
        ]
    ),
    st.floats(min_value=0.0, max_value=1e4),
)


def verdict(
    status: Status,
    speedup: float | None = None,
    *,
    compile: CompileSummary | None = CompileSummary(),  # noqa: B008 - frozen
    counters: dict[str, float] | None = None,
    measured: bool = False,
) -> Verdict:
    timing = None
    if status is Status.CORRECT:
        timing = BenchmarkResult(
            kernel_ms=1.0,
            kernel_ms_ci95=(1.0, 1.0),
            speedup=speedup if measured else None,
            speedup_vs_naive=speedup,
            modelled=not measured,
        )
    return Verdict(
        status=status,
        reason="r",
        task="relu",
        candidate_sha256="0" * 64,
        backend="emulator",
        compile=compile,
        tests=(make_comparison(status is not Status.WRONG_OUTPUT),),
        timing=timing,
        counters=counters or {},
        cheats=(EVIDENCE,) if status is Status.CHEATING else (),
    )


def total(preset: str, of: Verdict, **kwargs: object) -> float:
    reward = CUDAPerformanceReward(preset).score(of, **kwargs)  # type: ignore[arg-type]
    assert reward is not None
    return reward.total


@given(presets, wrong_statuses, speedups, summaries, summaries, counters, st.booleans())
def test_no_wrong_kernel_outranks_a_correct_one(
    preset, status, speedup, wrong_build, right_build, counts, credited
):
    wrong = total(preset, verdict(status, compile=wrong_build, counters=counts))
    right = total(
        preset,
        verdict(Status.CORRECT, speedup, compile=right_build, counters=counts),
        credited=credited,
    )
    assert wrong < right


@given(presets, speedups, speedups, summaries, counters, st.none() | speedups, st.booleans())
def test_a_rise_in_speedup_never_lowers_the_reward(
    preset, one, other, build, counts, best_before, measured
):
    slow, fast = sorted((one, other))
    rewards = [
        total(
            preset,
            verdict(Status.CORRECT, s, compile=build, counters=counts, measured=measured),
            best_before=best_before,
        )
        for s in (slow, fast)
    ]
    assert rewards[0] <= rewards[1]


@given(presets, st.sampled_from(list(Status)), speedups, summaries, counters)
def test_every_part_is_bounded_and_explained(preset, status, speedup, build, counts):
    reward = CUDAPerformanceReward(preset).score(
        verdict(status, speedup, compile=build, counters=counts), best_before=1.0
    )
    if status is Status.UNSUPPORTED:
        assert reward is None
        return
    for part in reward.parts:
        low, high = sorted((0.0, part.limit))
        assert low - 1e-12 <= part.value <= high + 1e-12
        assert math.isfinite(part.value)
        assert part.why
    names = [part.name for part in reward.parts]
    assert len(names) == len(set(names))


@given(st.floats(min_value=0.05, max_value=100.0), st.floats(min_value=-0.03, max_value=0.03))
def test_timing_noise_of_three_percent_moves_the_weighted_reward_by_less_than_one(speedup, noise):
    rewards = [
        total("weighted", verdict(Status.CORRECT, s)) for s in (speedup, speedup * (1 + noise))
    ]
    assert abs(rewards[1] - rewards[0]) < 0.01


def test_the_weights_of_the_weighted_preset_are_those_of_the_documents():
    reward = CUDAPerformanceReward().score(verdict(Status.CORRECT, 3.0))
    limits = {part.name: part.limit for part in reward.parts}
    bonuses = limits.pop("improvement"), limits.pop("speedup_bonus")
    assert limits == {
        "compilation": 0.30,
        "correctness": 0.30,
        "performance": 0.25,
        "efficiency": 0.10,
        "quality": 0.05,
    }
    assert bonuses == (0.05, 0.05)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.WRONG_OUTPUT, 0.30),
        (Status.RUNTIME_ERROR, 0.30),
        (Status.TIMEOUT, 0.30),
        (Status.COMPILE_ERROR, 0.0),
        (Status.REJECTED, 0.0),
        (Status.MEMORY_LIMIT, 0.0),
        (Status.CHEATING, -0.5),
    ],
)
def test_partial_credit_is_paid_for_compiling_only(status, expected):
    assert total("weighted", verdict(status)) == pytest.approx(expected)


def conversation(*verdicts: Verdict | None) -> CUDAConversationState:
    """A conversation in which every turn gives other code."""
    turns = tuple(
        turn(i, of, f"kernel {i}", None if of is not None else "DeviceError: died")
        for i, of in enumerate(verdicts)
    )
    return CUDAConversationState(conversation_id="1", task=TASK, turns=turns)


@given(presets, st.lists(wrong_statuses, min_size=1, max_size=8), speedups, st.floats(0.0, 1.0))
def test_partial_credit_cannot_be_farmed_by_turns(preset, statuses, speedup, discount):
    failing = rescored(conversation(*map(verdict, statuses)), preset)
    farmed = discounted_returns([t.reward.total for t in failing.turns], discount)
    worst_build = CompileSummary(
        registers=255, spill_bytes=4096, shared_bytes=232_448, warnings=("w",) * 6
    )
    one_correct = verdict(Status.CORRECT, speedup, compile=worst_build)
    assert max(farmed) < total(preset, one_correct)


@given(presets, speedups, speedups, st.floats(0.0, 1.0))
def test_holding_back_speed_for_a_later_turn_never_pays(preset, one, other, discount):
    slow, fast = (verdict(Status.CORRECT, s) for s in sorted((one, other)))
    at_once = rescored(conversation(fast, fast), preset)
    held_back = rescored(conversation(slow, fast), preset)
    returns = [
        discounted_returns([t.reward.total for t in state.turns], discount)[0]
        for state in (at_once, held_back)
    ]
    assert returns[0] >= returns[1] - 1e-12


@given(presets, st.sampled_from([Status.CHEATING]), st.booleans(), summaries, counters)
def test_no_cheat_earns_anything(preset, status, credited, build, counts):
    cheat = verdict(status, compile=build, counters=counts)
    assert total(preset, cheat, credited=credited) == PRESETS[preset].cheating_penalty <= 0.0


@given(
    st.sampled_from(["weighted", "gated"]),
    st.floats(min_value=0.01, max_value=1e4),
    st.floats(min_value=-0.03, max_value=0.03),
    st.none() | speedups,
)
def test_timing_noise_moves_the_reward_by_less_than_a_hundredth_of_it(
    preset, speedup, noise, best_before
):
    rewards = [
        total(preset, verdict(Status.CORRECT, s), best_before=best_before)
        for s in (speedup, speedup * (1 + noise))
    ]
    assert abs(rewards[1] - rewards[0]) < 0.01 * rewards[0]


def test_a_turn_that_breaks_a_correct_kernel_earns_nothing():
    state = rescored(
        conversation(verdict(Status.CORRECT, 1.0), verdict(Status.WRONG_OUTPUT)), "weighted"
    )
    assert state.turns[1].reward.total == 0.0


def test_rescoring_leaves_verdicts_and_masks_as_they_are():
    state = conversation(verdict(Status.CORRECT, 2.0), None)
    weighted, kevin = rescored(state, "weighted"), rescored(state, "kevin")
    assert kevin.turns[0].reward.total == pytest.approx(2.3)
    assert [t.verdict for t in kevin.turns] == [t.verdict for t in weighted.turns]
    assert kevin.turns[1].reward is None


def test_correct_pays_for_correctness_alone():
    state = conversation(
        verdict(Status.COMPILE_ERROR), verdict(Status.WRONG_OUTPUT), verdict(Status.CORRECT, 0.2)
    )
    assert [t.reward.total for t in rescored(state, "correct").turns] == [0.0, 0.0, 1.0]


def test_a_preset_in_which_a_wrong_kernel_could_be_worth_as_much_is_refused():
    with pytest.raises(ValueError, match="must exceed"):
        RewardPreset(name="p", scheme="gated", correctness=0.1, quality=0.05)


def test_what_the_tester_found_never_enters_the_reward():
    probe = Probe(shapes=((1,),), why="a single element")
    found = ProbeResult(probe=probe, passed=False, detail="index (0,): expected 1, got 0")
    state = conversation(verdict(Status.CORRECT, 2.0))
    told = state.turns[0].model_copy(update={"probes": (found,), "notes": ("n",)})
    with_findings = state.model_copy(update={"turns": (told,)})
    assert CUDAPerformanceReward()(with_findings) == CUDAPerformanceReward()(state)


def test_a_correct_kernel_given_again_keeps_its_reward():
    again = verdict(Status.CORRECT, 2.0)
    assert total("weighted", again, credited=True) == total("weighted", again)


def test_the_emulators_speedup_is_labelled_modelled():
    reward = CUDAPerformanceReward().score(verdict(Status.CORRECT, 2.0))
    assert "modelled" in {p.name: p.why for p in reward.parts}["performance"]
    measured = CUDAPerformanceReward().score(verdict(Status.CORRECT, 2.0, measured=True))
    assert "measured" in {p.name: p.why for p in measured.parts}["performance"]


def turn(index: int, of: Verdict | None, code: str, masked: str | None = None) -> ConversationTurn:
    return ConversationTurn(
        index=index,
        role=Role.OPTIMIZER if index else Role.GENERATOR,
        prompt=(),
        generation=Generation(text=code),
        extraction=Extraction(code=code, note="one block"),
        verdict=of,
        masked=masked,
    )


def test_the_improvement_bonus_is_paid_over_the_best_earlier_correct_turn():
    turns = (
        turn(0, verdict(Status.CORRECT, 2.0), "a"),
        turn(1, verdict(Status.CORRECT, 1.0), "b"),
        turn(2, verdict(Status.CORRECT, 6.0), "c"),
    )
    state = CUDAConversationState(conversation_id="1", task=TASK, turns=turns)
    parts = {p.name: p for p in CUDAPerformanceReward()(state).parts}
    assert parts["improvement"].value == pytest.approx(0.05 * (0.75 - 0.5))


def test_a_masked_turn_has_no_reward():
    state = CUDAConversationState(
        conversation_id="1", task=TASK, turns=(turn(0, None, "a", "DeviceError: died"),)
    )
    assert CUDAPerformanceReward()(state) is None


@pytest.mark.parametrize(
    ("eager", "compiled", "paid"),
    [
        (None, None, 0.3),
        (0.79, 9.0, 0.5),
        (0.8, None, 0.6),
        (1.04, 1.04, 0.6),
        (1.05, 1.0, 1.0),
        (3.0, 1.05, 1.2),
    ],
)
def test_milestones_pay_each_step_of_measured_speed_once(eager, compiled, paid):
    timing = BenchmarkResult(
        kernel_ms=1.0,
        kernel_ms_ci95=(1.0, 1.0),
        speedup=eager,
        speedup_vs_compiled=compiled,
        modelled=False,
    )
    timed = verdict(Status.CORRECT).model_copy(update={"timing": timing})
    assert total("milestones", timed) == pytest.approx(paid)


def test_modelled_times_are_paid_nothing_where_measured_ones_are_asked_for():
    reward = CUDAPerformanceReward("milestones").score(verdict(Status.CORRECT, 50.0))
    assert reward.total == PRESETS["milestones"].correctness
    assert all("was measured" in part.why for part in reward.parts[1:])


def test_an_unknown_preset_names_the_choices():
    with pytest.raises(UsageError, match=r"'fast'.*weighted, gated, kevin, correct"):
        CUDAPerformanceReward("fast")


def test_a_speedup_that_is_no_number_is_worth_nothing():
    assert saturating(math.nan, 2.0) == 0.0
    assert saturating(math.inf, 2.0) <= 1.0


def test_a_scattered_kernel_is_less_efficient_than_a_coalesced_one():
    def ratios(sectors: float) -> dict[str, float]:
        return hardware_ratios(
            {
                "smsp__inst_executed.sum": 100.0,
                "smsp__thread_inst_executed.sum": 3200.0,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": sectors,
                "smsp__sass_data_bytes_mem_global_op_ld.sum": 1280.0,
            }
        )

    assert ratios(40) == {"active lanes": 1.0, "coalescing": 1.0}
    assert ratios(320) == {"active lanes": 1.0, "coalescing": 0.125}


def test_ratios_above_the_hardware_count_as_full():
    counts = {"smsp__inst_executed.sum": 1.0, "smsp__thread_inst_executed.sum": 64.0}
    assert hardware_ratios(counts) == {"active lanes": 1.0}


def test_memory_is_paid_where_a_preset_says_so() -> None:
    timing = BenchmarkResult(
        kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), bytes_moved=100, workspace_bytes=100,
        eager_workspace_bytes=0, modelled=True,
    )  # fmt: skip
    verdict = make_verdict(Status.CORRECT).model_copy(update={"timing": timing})
    paid = CUDAPerformanceReward(WEIGHTED.model_copy(update={"memory": 0.2})).score(verdict)
    assert paid is not None
    assert [p.value for p in paid.parts if p.name == "memory"] == [0.1]
    usual = CUDAPerformanceReward("weighted").score(verdict)
    assert usual is not None
    assert all(p.name != "memory" for p in usual.parts)

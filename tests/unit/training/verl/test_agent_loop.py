"""Episodes as rows, and the estimator on them: verl's classes, without Ray and without a model."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray import cloudpickle

from coding_framework.errors import InfrastructureError, PolicyError
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.conversations import read_rollouts
from coding_framework.training.agent_specializer import RoleSpec, SpecializationConfig
from coding_framework.training.credit import group_advantages, group_key
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.episode_spec import EpisodeSpec
from coding_framework.types import (
    Candidate,
    CompileSummary,
    Extraction,
    JudgeFn,
    Message,
    Probe,
    ProbeResult,
    RewardComponents,
    RewardPart,
    Role,
    SamplingParams,
    Status,
    Task,
    TensorSpec,
    TestCase,
    TestResult,
    Verdict,
)
from support.verl_rows import Tokenizer

agent_loop = pytest.importorskip("coding_framework.training.verl.agent_loop")
trainer = pytest.importorskip("coding_framework.training.verl.trainer")

pytestmark = pytest.mark.unit

TASK = Task(
    name="t", tier=0, family="f", ops=("relu",), description="", reference="",
    cases=(TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),)),),
)  # fmt: skip


class Server:
    """Answers from a script; an exception in it is raised."""

    def __init__(self, answers: list[str | Exception]) -> None:
        self.answers = answers
        self.seeds: list[int | None] = []

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        assert sampling_params["logprobs"] is True, "vLLM gives none unasked"
        assert sampling_params["detokenize"] is False, "half of what vLLM does for a token"
        self.seeds.append(sampling_params.get("seed"))
        answer = self.answers[len(self.seeds) - 1]
        if isinstance(answer, Exception):
            raise answer
        await asyncio.sleep(0.01)
        return SimpleNamespace(
            token_ids=[ord(c) for c in answer],
            log_probs=[-1.0] * len(answer),
            stop_reason="completed",
            extra_fields={"global_steps": 3, "min_global_steps": 3, "max_global_steps": 3},
        )


def spec(folder: Path, **changes: Any) -> EpisodeSpec:
    settings: dict[str, Any] = {
        "agents": f"{__name__}:make_agents", "discount": 0.5, "max_response_tokens": 8, "seed": 1,
        "max_prompt_tokens": 20, "judge_timeout_s": 60.0, "policy_timeout_s": 60.0,
    }  # fmt: skip
    of_config = (MultiTurnRLConfig.model_fields.keys() - {"judge", "reward"}) & changes.keys()
    settings |= {name: changes.pop(name) for name in of_config}
    values: dict[str, Any] = {
        "config": MultiTurnRLConfig.cpu().model_copy(update=settings),
        "judge": f"{__name__}:make_judge",
        "reward": f"{__name__}:make_reward",
        "conversation": ConversationConfig(max_turns=2, stop_reward=None),
        "rollouts_dir": str(folder),
        **changes,
    }
    return EpisodeSpec(**values)


def make_judge() -> JudgeFn:
    """ "slow" never gets a verdict, "broken" finds a fault of ours."""

    async def judge(task: Task, code: str) -> Verdict:
        if code == "slow":
            await asyncio.sleep(600)
        if code == "broken":
            raise InfrastructureError("the sandbox is gone")
        return Verdict(
            status=Status.COMPILE_ERROR, reason="", task=task.name,
            candidate_sha256=Candidate(code=code).sha256, backend="emulator",
        )  # fmt: skip

    return judge


class ProbingJudge:
    """Finds every kernel wrong, and answers a tester."""

    async def __call__(self, task: Task, code: str) -> Verdict:
        failed = TestResult(
            case="main", seed=0, shapes=((4,),), dtype="float32", max_abs_error=1.0,
            max_rel_error=1.0, tolerance=0.1, passed=False,
        )  # fmt: skip
        return Verdict(
            status=Status.WRONG_OUTPUT, reason="", task=task.name, tests=(failed,),
            candidate_sha256=Candidate(code=code).sha256, backend="emulator",
            compile=CompileSummary(),
        )  # fmt: skip

    async def probe(
        self, task: Task, code: str, probes: tuple[Probe, ...]
    ) -> tuple[ProbeResult, ...]:
        return tuple(ProbeResult(probe=p, passed=False, detail=f"of {code}") for p in probes)


def make_reward() -> Any:
    """A tenth a letter."""

    def reward(state: Any) -> RewardComponents:
        value = len(state.turns[-1].code) / 10
        part = RewardPart(name="length", value=value, limit=1.0, why="")
        return RewardComponents(preset="p", parts=(part,))

    return reward


def make_agents(
    policy: Any, sampling: SamplingParams, *, budget: Any, optimizer: Any = None
) -> dict[Role, Any]:
    class Agent:
        def __init__(self, policy: Any) -> None:
            self.policy = policy

        async def answer(self, state: Any, *, sample: int = 0) -> Any:
            messages = (Message(role="user", content="p" * (5 + 5 * len(state.turns))),)
            generation = await self.policy.generate(messages, sampling)
            extraction = Extraction(code=generation.text, note="")
            return SimpleNamespace(messages=messages, generation=generation, extraction=extraction)

    return {Role.GENERATOR: Agent(policy), Role.OPTIMIZER: Agent(optimizer or policy)}


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Any]:
    agent_loop.Environment.installed = agent_loop.Environment(spec(tmp_path))
    yield agent_loop.Environment.installed
    agent_loop.Environment.installed = None


def episode(server: Server, session: int = 0) -> list[Any]:
    loop = object.__new__(agent_loop.KernelTurnsLoop)
    loop.server_manager, loop.tokenizer = server, Tokenizer()
    row = {
        "extra_info": {"task": TASK.model_dump_json(), "index": 0},
        "global_steps": 4,
        "session_id": session,
        "uid": "u-1",
    }
    return asyncio.run(loop.run({"temperature": 1.0}, **row))


def test_each_turn_is_a_row_with_its_own_return_and_group(environment: Any, tmp_path: Path) -> None:
    rows = episode(Server(["ab", "abcd"]))
    assert [r.reward_score for r in rows] == pytest.approx([0.2 + 0.5 * 0.4, 0.4])
    assert [r.response_mask for r in rows] == [[1, 1], [1, 1, 1, 1]]
    assert [len(r.prompt_ids) for r in rows] == [5, 10]
    groups = [r.extra_fields[agent_loop.GROUP_FIELD] for r in rows]
    assert groups == ["generator.0", "optimizer.1"]
    assert rows[0].response_logprobs == [-1.0, -1.0]
    (stored,) = read_rollouts(tmp_path, 4)
    assert (stored.group, stored.session, stored.fault) == ("u-1", 0, None)
    assert stored.returns == pytest.approx((0.4, 0.4))
    assert stored.state.end_reason == "max_turns"


def test_a_rollout_says_when_it_was_and_what_its_turns_took(
    environment: Any, tmp_path: Path
) -> None:
    episode(Server(["ab", "abcd"]))
    (stored,) = read_rollouts(tmp_path, 4)
    assert datetime.fromisoformat(stored.began_at) <= datetime.fromisoformat(stored.ended_at)
    assert all(turn.generated_s >= 0.0 for turn in stored.state.turns)
    assert [t.judged_s for t in stored.state.turns] == [v.wall_s for v in stored.verdict_times]


def test_a_tester_probes_the_kernel_that_is_to_be_mended(environment: Any, tmp_path: Path) -> None:
    made = agent_loop.Environment(spec(tmp_path, judge=f"{__name__}:ProbingJudge", tester=True))
    agent_loop.Environment.installed = made
    rows = episode(Server(["ab", "abcd"]))
    assert [r.reward_score for r in rows] == pytest.approx([0.2 + 0.5 * 0.4, 0.4])
    (stored,) = read_rollouts(tmp_path, 4)
    first, last = stored.state.turns
    assert {result.detail for result in first.probes} == {"of ab"}
    assert last.probes == ()


def in_phase(environment: Any, folder: Path, learns: Role, frozen: Server, **changes: Any) -> None:
    """The environment of a phase; `frozen` in place of the actor."""
    other = Role.GENERATOR if learns is Role.OPTIMIZER else Role.OPTIMIZER
    roles = SpecializationConfig(shared_policy=False, roles={other: RoleSpec(frozen=True)})
    made = agent_loop.Environment(spec(folder, specialization=roles, **changes))
    made.frozen = frozen
    agent_loop.Environment.installed = made


@pytest.mark.parametrize("learns", [Role.GENERATOR, Role.OPTIMIZER])
def test_only_the_turns_of_the_role_that_learns_become_rows(
    environment: Any, tmp_path: Path, learns: Role
) -> None:
    """The frozen role's turn costs a turn, is answered by its own server, and its reward is in the
    return of the turn before it."""
    trained, frozen = Server(["ab"]), Server(["abcd"])
    in_phase(environment, tmp_path, learns, frozen)
    rows = episode(trained)
    (stored,) = read_rollouts(tmp_path, 4)
    texts = [turn.generation.text for turn in stored.state.turns]
    (row,) = rows
    if learns is Role.GENERATOR:
        assert texts == ["ab", "abcd"]
        assert stored.returns == (pytest.approx(0.2 + 0.5 * 0.4), None)
        assert row.extra_fields[agent_loop.GROUP_FIELD] == "generator.0"
    else:
        assert texts == ["abcd", "ab"]
        assert stored.returns == (None, pytest.approx(0.2))
        assert row.extra_fields[agent_loop.GROUP_FIELD] == "optimizer.1"
    assert row.response_mask == [1, 1]
    assert row.reward_score == pytest.approx(max(r for r in stored.returns if r is not None))
    assert set(trained.seeds).isdisjoint(frozen.seeds)


def test_conversation_in_which_the_learning_role_did_not_speak_is_a_masked_row(
    environment: Any, tmp_path: Path
) -> None:
    """verl counts on rows, and on the version of the weights in them."""
    once = ConversationConfig(max_turns=1, stop_reward=None)
    in_phase(environment, tmp_path, Role.OPTIMIZER, Server(["abc"]), conversation=once)
    (row,) = episode(Server([]))
    assert row.response_mask == [0, 0, 0]
    assert not row.extra_fields["reward_extra_info"]["known"]
    assert row.extra_fields["min_global_steps"] == row.extra_fields["max_global_steps"] == 3


def test_frozen_server_that_fails_masks_what_would_have_been_paid_by_it(
    environment: Any, tmp_path: Path
) -> None:
    import ray

    dead = Server([ray.exceptions.RayError("the frozen server died")])
    in_phase(environment, tmp_path, Role.GENERATOR, dead)
    (row,) = episode(Server(["ab"]))
    assert row.response_mask == [0, 0]
    (stored,) = read_rollouts(tmp_path, 4)
    assert "the frozen server died" in str(stored.fault)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_policy_is_asked_by_the_prompts_that_the_run_names(
    environment: Any, tmp_path: Path, version: str
) -> None:
    """By the agents of real runs; those of v2 show the form of an answer."""
    given = spec(
        tmp_path,
        agents="coding_framework.wiring:make_agents",
        reward="coding_framework.wiring:make_reward",
        specialization=SpecializationConfig(prompts=version),
        max_prompt_tokens=10_000,
    )
    agent_loop.Environment.installed = agent_loop.Environment(given)
    rows = episode(Server(["a", "b"]))
    (stored,) = read_rollouts(tmp_path, 4)
    asked = stored.state.turns[0].prompt[1].content
    assert ("twice_kernel" in asked) is (version == "v2")
    assert len(rows) == 2


@pytest.mark.parametrize("answer", ["slow", "broken"])
def test_fault_of_the_judge_masks_and_never_scores_zero(
    environment: Any, tmp_path: Path, answer: str
) -> None:
    given = spec(tmp_path, judge_timeout_s=0.2)
    agent_loop.Environment.installed = agent_loop.Environment(given)
    rows = episode(Server(["ab", answer]))
    assert [set(r.response_mask) for r in rows] == [{0}, {0}]
    assert [r.extra_fields["reward_extra_info"]["known"] for r in rows] == [False, False]


def test_server_that_fails_ends_the_conversation_with_what_there_is(
    environment: Any, tmp_path: Path
) -> None:
    import ray

    rows = episode(Server(["ab", ray.exceptions.RayError("the server died")]))
    assert [r.response_mask for r in rows] == [[0, 0]]
    (stored,) = read_rollouts(tmp_path, 4)
    assert stored.state.end_reason == "error"
    assert stored.fault is not None
    assert "the server died" in stored.fault


def test_an_agent_that_fails_ends_the_conversation_with_its_error(
    environment: Any, tmp_path: Path
) -> None:
    assert episode(Server([KeyError("no such task")])) == []
    (stored,) = read_rollouts(tmp_path, 4)
    assert stored.state.end_reason == "error"
    assert stored.fault == "KeyError: 'no such task'"


def test_prompt_that_is_too_long_is_never_cut(environment: Any, tmp_path: Path) -> None:
    agent_loop.Environment.installed = agent_loop.Environment(spec(tmp_path, max_prompt_tokens=7))
    rows = episode(Server(["ab", "abcd"]))
    assert len(rows) == 1
    (stored,) = read_rollouts(tmp_path, 4)
    assert "a prompt of 10 tokens exceeds max_prompt_tokens=7" in str(stored.fault)


def test_samples_differ_between_sessions_and_repeat_in_a_rerun(environment: Any) -> None:
    servers = [Server(["a", "b"]) for _ in range(3)]
    for server, session in zip(servers, (0, 1, 0), strict=True):
        episode(server, session)
    assert servers[0].seeds == servers[2].seeds
    assert len({*servers[0].seeds, *servers[1].seeds}) == 4


def test_no_seed_is_asked_for_where_the_spec_wants_none(tmp_path: Path) -> None:
    server = Server(["ab"])
    policy = agent_loop.VerlPolicy(server, Tokenizer(), spec(tmp_path, device="cuda"), "seed")
    asyncio.run(policy.generate((Message(role="user", content="p"),), SamplingParams()))
    assert server.seeds == [None]


@pytest.mark.parametrize("whole", [False, True])
def test_whole_answers_are_vllms_word_where_the_server_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    asked: list[dict[str, Any]] = []

    class Noting(Server):
        async def generate(
            self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
        ) -> Any:
            asked.append(sampling_params)
            return await super().generate(request_id, prompt_ids, sampling_params)

    policy = agent_loop.VerlPolicy(
        Noting(["ab"]), Tokenizer(), spec(tmp_path, device="cuda" if whole else "cpu"), "seed"
    )
    asyncio.run(policy.generate((Message(role="user", content="p"),), SamplingParams()))
    sent = cloudpickle.dumps(asked[0])  # as Ray does; there is no vLLM here
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY="whole"))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)
    assert pickle.loads(sent).get("output_kind") == ("whole" if whole else None)


def test_answer_at_the_limit_is_cut_and_one_without_logprobs_is_refused(tmp_path: Path) -> None:
    """vLLM says "completed" of an answer that it cut."""

    class Bare(Server):
        async def generate(self, **given: Any) -> Any:
            output = await super().generate(**given)
            output.log_probs = None
            return output

    def answer(server: Server) -> Any:
        policy = agent_loop.VerlPolicy(server, Tokenizer(), spec(tmp_path), "seed")
        prompt = (Message(role="user", content="p"),)
        return asyncio.run(policy.generate(prompt, SamplingParams(max_new_tokens=4)))

    answers = ["abc\0", "abcd", "ab"]
    found = [answer(Server([text])).finish_reason for text in answers]
    assert found == ["stop", "length", "stop"]
    with pytest.raises(PolicyError, match="0 log-probs for 2 tokens"):
        answer(Bare(["ab"]))


def test_silent_server_is_a_policy_error(tmp_path: Path) -> None:
    class Silent:
        async def generate(self, **_: Any) -> Any:
            await asyncio.sleep(600)

    given = spec(tmp_path, policy_timeout_s=0.2)
    policy = agent_loop.VerlPolicy(Silent(), Tokenizer(), given, "seed")
    with pytest.raises(PolicyError, match="the rollout server gave no answer"):
        asyncio.run(policy.generate((Message(role="user", content="p"),), SamplingParams()))


def test_rows_are_handed_over_one_by_one_under_their_groups(
    environment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl would copy the last row's reward onto the others of one hand-over."""
    seen: list[tuple[str, int, float]] = []

    async def record(self: Any, rows: list[Any], validate: bool, **kwargs: Any) -> None:
        seen.append((kwargs["uid"], len(rows), rows[0].reward_score))

    worker = agent_loop.TurnRowsWorker
    monkeypatch.setattr(worker.__mro__[1], "_agent_loop_postprocess", record)
    rows = episode(Server(["ab", "abcd"]))
    instance = object.__new__(worker)
    asyncio.run(instance._agent_loop_postprocess(rows, False, uid="u-1", session_id=0))
    assert [(uid, count) for uid, count, _ in seen] == [
        ("u-1_generator.0", 1),
        ("u-1_optimizer.1", 1),
    ]
    assert [reward for *_, reward in seen] == pytest.approx([0.4, 0.4])
    assert all(uid.split("_")[0] == "u-1" for uid, *_ in seen)


def test_estimator_is_credits_arithmetic_on_verls_tensors() -> None:
    # Rows 0-2: one group, row 2 masked; rows 3-4: another group; row 5: verl's padding.
    returns = [1.0, 3.0, 0.0, 0.5, 0.9, 0.0]
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    rewards = torch.zeros(6, 3)
    for row, length in enumerate([2, 3, 3, 1, 2, 1]):
        rewards[row, length - 1] = returns[row]
    first, second = (f"u_{group_key(Role.GENERATOR, 0)}", f"u_{group_key(Role.OPTIMIZER, 1)}")
    index = [first, first, first, second, second, "pad"]
    advantages, same = trainer.turn_grpo(rewards, mask, index, config={})
    expected = group_advantages([1.0, 3.0, None, 0.5, 0.9, None], index)
    assert torch.equal(advantages, same)
    assert torch.allclose(advantages, torch.tensor(expected)[:, None] * mask)
    unscaled, _ = trainer.turn_grpo(rewards, mask, index, config={"norm_adv_by_std_in_grpo": False})
    assert unscaled[0, 0] == pytest.approx(-1.0)
    assert unscaled[4, 1] == pytest.approx(0.2)


def test_verl_finds_the_estimator_and_the_loop_by_name() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    assert get_adv_estimator_fn("turn_grpo") is trainer.turn_grpo
    assert _agent_loop_registry["kernel_turns"]["_target_"].endswith("KernelTurnsLoop")

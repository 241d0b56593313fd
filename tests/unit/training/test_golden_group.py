"""One group of conversations, the same through every driver: manager, workflow and verl's loop.

golden_group.json is what the group is worth; a change of it is a change of what training learns.
To write it anew: UPDATE_GOLDEN=1 pytest tests/unit/training/test_golden_group.py
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.errors import DeviceError
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.orchestration.workflow import CUDAKernelWorkflow
from coding_framework.store.conversations import read_rollouts
from coding_framework.training.credit import conversation_returns, group_advantages, group_key
from coding_framework.training.multi_turn_conversation import MultiTurnConversationManager
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.episode_spec import EpisodeSpec
from coding_framework.types import (
    CUDAConversationState,
    JudgeFn,
    Role,
    SamplingParams,
    Status,
    Task,
    Verdict,
)
from support.made_conversations import make_task, make_verdict
from support.verl_rows import Tokenizer

agent_loop = pytest.importorskip("coding_framework.training.verl.agent_loop")
trainer = pytest.importorskip("coding_framework.training.verl.trainer")

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parent / "golden_group.json"
TASK = make_task("relu")
DISCOUNT = 0.9
CONFIG = ConversationConfig(max_turns=3, stop_reward=0.8)
SAMPLING = SamplingParams(max_new_tokens=400, seed=1)


def answer(name: str) -> str:
    return f"Because.\n```cuda\n__global__ void {name}() {{}} // forward\n```"


GROUP: tuple[tuple[str, ...], ...] = (
    (answer("wrong"), answer("slow"), answer("fast")),  # repaired, then made faster
    (answer("fast"),),  # ends at the threshold: a very fast kernel at once
    ("I cannot.", answer("wrong"), answer("wrong")),  # no code, then the same code twice
    (answer("slow"), answer("broken_judge"), answer("cheat")),  # a fault of ours, then a cheat
)
VERDICTS: Mapping[str, tuple[Status, float | None]] = {
    "wrong": (Status.WRONG_OUTPUT, None),
    "slow": (Status.CORRECT, 0.5),
    "fast": (Status.CORRECT, 30.0),
}


def make_judge() -> JudgeFn:
    async def judge(task: Task, code: str) -> Verdict:
        await asyncio.sleep(0)
        if "broken_judge" in code:
            raise DeviceError("the device is gone")
        if "cheat" in code:
            return make_verdict(Status.COMPILE_ERROR, task=task.name)
        name = next(name for name in VERDICTS if name in code)
        return make_verdict(*VERDICTS[name], task=task.name)

    return judge


def make_agents(policy: Any, sampling: SamplingParams, *, budget: Any) -> dict[Role, Any]:
    return {
        Role.GENERATOR: GeneratorAgent(policy, sampling, budget=budget),
        Role.OPTIMIZER: OptimizerAgent(policy, sampling, budget=budget),
    }


class Server:
    """The answers of one conversation, in turn, as verl's server gives them."""

    def __init__(self, answers: tuple[str, ...]) -> None:
        self.left = list(answers)

    async def generate(self, **_: Any) -> Any:
        await asyncio.sleep(0)
        ids = [ord(c) for c in self.left.pop(0)]
        return SimpleNamespace(
            token_ids=ids,
            log_probs=[-0.5] * len(ids),
            stop_reason="completed",
            extra_fields={"global_steps": 1},
        )


def spec(folder: Path) -> EpisodeSpec:
    config = MultiTurnRLConfig.cpu(
        agents=f"{__name__}:make_agents", discount=DISCOUNT, max_prompt_tokens=4096,
        max_response_tokens=SAMPLING.max_new_tokens, seed=SAMPLING.seed,
    )  # fmt: skip
    return EpisodeSpec(
        config=config, judge=f"{__name__}:make_judge", conversation=CONFIG, rollouts_dir=str(folder)
    )


def cast(session: int, folder: Path) -> dict[Role, Any]:
    """The agents of one conversation, over the policy that verl's loop uses."""
    policy = agent_loop.VerlPolicy(Server(GROUP[session]), Tokenizer(), spec(folder), "seed")
    return make_agents(policy, SAMPLING, budget=None)


@pytest.fixture
def verl_environment(tmp_path: Path) -> Iterator[None]:
    agent_loop.Environment.installed = agent_loop.Environment(spec(tmp_path))
    yield
    agent_loop.Environment.installed = None


async def by_manager(folder: Path) -> list[CUDAConversationState]:
    return [
        await MultiTurnConversationManager(
            agents[Role.GENERATOR],
            agents[Role.OPTIMIZER],
            judge=make_judge(),
            reward=CUDAPerformanceReward(),
            config=CONFIG,
        ).run(TASK, conversation_id=f"u-{session}")
        for session in range(len(GROUP))
        if (agents := cast(session, folder))
    ]


async def by_workflow(folder: Path) -> list[CUDAConversationState]:
    states = []
    for session in range(len(GROUP)):
        async with CUDAKernelWorkflow(
            cast(session, folder),
            make_judge(),
            CUDAPerformanceReward(),
            CONFIG,
            checkpoint=folder / "checkpoint.sqlite",
        ) as workflow:
            states.append(await workflow.run(TASK, conversation_id=f"u-{session}"))
    return states


async def by_verl(folder: Path) -> tuple[list[CUDAConversationState], list[tuple[str, Any]]]:
    """The stored conversations, and (group, row) of every training row."""
    rows = []
    for session in range(len(GROUP)):
        loop = object.__new__(agent_loop.KernelTurnsLoop)
        loop.server_manager, loop.tokenizer = Server(GROUP[session]), Tokenizer()
        row = {
            "extra_info": {"task": TASK.model_dump_json(), "index": 0},
            "global_steps": 1,
            "session_id": session,
            "uid": "u",
        }
        for out in await loop.run({"temperature": 1.0}, **row):
            rows.append((f"u_{out.extra_fields[agent_loop.GROUP_FIELD]}", out))
    return [untimed(r.state) for r in read_rollouts(folder, 1)], rows


def untimed(state: CUDAConversationState) -> CUDAConversationState:
    """Without how long each turn took, which RL alone writes down."""
    without = {"generated_s": None, "judged_s": None}
    turns = tuple(turn.model_copy(update=without) for turn in state.turns)
    return state.model_copy(update={"turns": turns})


def worth(states: list[CUDAConversationState]) -> list[dict[str, Any]]:
    """Returns and advantages of the group's turns, and what they come from."""
    keys = [group_key(t.role, t.index) for s in states for t in s.turns]
    returns = [r for s in states for r in conversation_returns(s, DISCOUNT, CONFIG.max_turns)]
    advantages = iter(group_advantages(returns, keys))
    each_return = iter(returns)
    return [
        {
            "end_reason": state.end_reason,
            "turns": [
                {
                    "role": turn.role.value,
                    "status": turn.verdict.status.value if turn.verdict else None,
                    "masked": turn.masked,
                    "extraction": turn.extraction.note,
                    "notes": list(turn.notes),
                    "reward": _rounded(turn.reward.total if turn.reward else None),
                    "return": _rounded(next(each_return)),
                    "advantage": _rounded(next(advantages)),
                }
                for turn in state.turns
            ],
        }
        for state in states
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)


def test_a_group_is_identical_through_manager_workflow_and_verl(
    verl_environment: None, tmp_path: Path
) -> None:
    async def all_three() -> Any:
        return await by_manager(tmp_path), await by_workflow(tmp_path), await by_verl(tmp_path)

    managed, graphed, (rolled, rows) = asyncio.run(all_three())
    assert graphed == managed
    assert rolled == managed

    found = worth(managed)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(GOLDEN.read_text())

    expected = [turn["advantage"] for state in found for turn in state["turns"]]
    assert _verl_advantages(rows) == pytest.approx(expected, abs=1e-6)


def test_dynamic_sampling_keeps_the_group_and_drops_one_in_which_all_did_the_same(
    verl_environment: None, tmp_path: Path
) -> None:
    _, rows = asyncio.run(by_verl(tmp_path))
    found = [(group, row.reward_score if any(row.response_mask) else None) for group, row in rows]
    assert trainer.has_advantage(found)
    repaired = [pair for pair in found[:3] for _ in range(4)]  # the first conversation, four times
    assert len({value for _, value in repaired}) == 3, "its turns' returns differ"
    assert not trainer.has_advantage(repaired)
    assert not trainer.has_advantage(found[-2:]), "what faults of ours left says nothing"
    assert not trainer.has_advantage([])


def test_ppo_spreads_each_turns_return_over_its_tokens(
    verl_environment: None, tmp_path: Path
) -> None:
    """With a value of v everywhere and gamma 1 only the last token has a temporal difference, G - v
    of its turn, so that the k-th token from the end has 0.95^k (G - v); then verl whitens."""
    _, rows = asyncio.run(by_verl(tmp_path))
    rewards, mask = _tensors(rows)
    v, discount = 0.5, 0.95
    advantages, returns = trainer.patches.masked_gae(
        rewards, torch.full_like(rewards, v), mask, 1.0, discount
    )
    golden = [turn["return"] for state in json.loads(GOLDEN.read_text()) for turn in state["turns"]]
    raw = [
        [
            discount ** (len(row.response_ids) - 1 - k) * (g - v)
            for k in range(len(row.response_ids))
        ]
        for (_, row), g in zip(rows, golden, strict=True)
        if g is not None
    ]
    every = [x for of_row in raw for x in of_row]
    mean, deviation = statistics.fmean(every), statistics.stdev(every)
    known = [i for i, g in enumerate(golden) if g is not None]
    for i, expected in zip(known, raw, strict=True):
        length = len(expected)
        assert returns[i, :length].tolist() == pytest.approx([x + v for x in expected], abs=1e-5)
        white = [(x - mean) / deviation for x in expected]
        assert advantages[i, :length].tolist() == pytest.approx(white, abs=1e-4)
    masked = [i for i in range(len(golden)) if i not in known]
    assert masked
    assert not advantages[masked].any()


def test_a_step_of_faults_alone_teaches_ppo_nothing_and_does_not_end_it() -> None:
    values, nothing = torch.rand(2, 3), torch.zeros(2, 3)
    advantages, returns = trainer.patches.masked_gae(nothing, values, nothing, 1.0, 0.95)
    assert not advantages.any()
    assert torch.equal(returns, values)


@pytest.mark.parametrize(("algorithm", "loss"), [("grpo", -1.2), ("dapo", -1.25)])
def test_clip_higher_lets_a_likelier_token_count_for_more(algorithm: str, loss: float) -> None:
    """Ratio 1.25 at advantage 1: GRPO's objective ends at 1.2, DAPO's at 1.28."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

    config = MultiTurnRLConfig.cpu(model_path="m", algorithm=algorithm)
    clips = {"clip_ratio_low": config.clip_ratio_low, "clip_ratio_high": config.clip_high}
    actor = OmegaConf.create(
        {**clips, "clip_ratio": 0.2, "clip_ratio_c": 3.0, "global_batch_info": {}}
    )
    found, _ = compute_policy_loss_vanilla(
        old_log_prob=torch.zeros(1, 1),
        log_prob=torch.full((1, 1), 1.25).log(),
        advantages=torch.ones(1, 1),
        response_mask=torch.ones(1, 1),
        loss_agg_mode="token-mean",
        config=actor,
    )
    assert float(found) == pytest.approx(loss)


def _verl_advantages(rows: list[tuple[str, Any]]) -> list[float]:
    """What verl's trainer computes of the rows with GRPO and DAPO."""
    rewards, mask = _tensors(rows)
    advantages, _ = trainer.turn_grpo(rewards, mask, [group for group, _ in rows], config={})
    return [float(x) for x in advantages[:, 0]]


def _tensors(rows: list[tuple[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(rewards, mask) as verl's trainer has them: a return lies on the last token of its row."""
    width = max(len(row.response_ids) for _, row in rows)
    mask, rewards = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for i, (_, row) in enumerate(rows):
        mask[i, : len(row.response_ids)] = torch.tensor(row.response_mask, dtype=torch.float32)
        rewards[i, len(row.response_ids) - 1] = row.reward_score
    return rewards, mask

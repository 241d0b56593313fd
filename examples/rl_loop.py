"""Reinforcement learning on one page: tasks, answers, verdicts, advantages, an update.

    uv run python examples/rl_loop.py

A model of 135M parameters is trained on a laptop, in a few minutes. It uses the pieces of the large
trainer (prompts, policy, judge, turn loop, rewards, credit), without verl and Ray:

    task ─► prompt ─► answer ─► verdict ─► reward ─► advantage ─► update
              ▲                                                     │
              └───────────────── new weights ◄──────────────────────┘

The base model writes no kernel that compiles, and equal rewards teach nothing. So it is first shown
a few judged kernels (`teach`). After `make quickstart` begin with a model that has learnt more:
`--model outputs/quickstart/sft_checkpoints/model --warm-up 0`. Things to change: the tasks, the
reward preset, the turns of a conversation, the loss.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from coding_framework.agents.models import resolve_model
from coding_framework.agents.policies import TransformersPolicy, load_model
from coding_framework.data.examples import training_examples
from coding_framework.orchestration.turn import ConversationConfig, run_conversation
from coding_framework.training.credit import conversation_returns, group_advantages, group_key
from coding_framework.training.sft_examples import tokenize_example
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    Role,
    SamplingParams,
    Task,
    TrainingExample,
)
from coding_framework.wiring import make_agents, make_judge, make_reward

PROMPTS = "v1"
"""The short prompts that a small model learns by."""
CLIP = 0.2
"""A token's probability moves its loss until it is this share away from where it was sampled."""
LONGEST = 256
"""Tokens of an answer."""


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # enough for a small model, and the other cores judge
    folder = resolve_model(args.model)
    model, tokenizer = load_model(folder, dtype="float32", device="cpu")
    trained = last_layers(model, args.layers)
    examples = training_examples(Role.GENERATOR, args.tasks, args.seed, max_steps=1, max_tier=0)
    tasks = [example.task for example in examples]
    print(f"tasks: {', '.join(task.name for task in tasks)}")
    teach(model, tokenizer, examples, torch.optim.AdamW(trained, lr=3e-4), args.warm_up)

    policy = TransformersPolicy(folder, dtype="float32", device="cpu", threads=1)
    judge = make_judge(backend="emulator")
    optimizer = torch.optim.AdamW(trained, lr=args.learning_rate)
    try:
        for step in range(1, args.steps + 1):
            began = time.monotonic()
            policy.load_state_dict(model.state_dict())
            states = asyncio.run(converse(policy, judge, tasks, args))
            norm = update(model, optimizer, states, args.turns)
            tell(step, states, norm, time.monotonic() - began)
    finally:
        judge.close()
        policy.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--warm-up", type=int, default=8, help="times that each kernel is shown")
    parser.add_argument("--layers", type=int, default=8, help="how many of the last layers learn")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--group", type=int, default=4, help="conversations about each task")
    parser.add_argument("--turns", type=int, default=1, help="answers in a conversation, at most")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--reward", default="weighted", help="a preset: weighted, correct, ...")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def last_layers(model: Any, count: int) -> list[torch.nn.Parameter]:
    """The parameters of the last layers, which alone learn: that is quick, and a small step."""
    model.requires_grad_(False)
    for layer in model.model.layers[-count:]:
        layer.requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def teach(
    model: Any,
    tokenizer: Any,
    examples: Sequence[TrainingExample],
    optimizer: torch.optim.Optimizer,
    times: int,
) -> None:
    """Supervised fine-tuning: the loss of a judged kernel's tokens, an example a step."""
    for epoch in range(times):
        losses = []
        for example in examples:
            tokens = tokenize_example(tokenizer, example, PROMPTS)
            answer = tokens.input_ids[tokens.prompt_length :]
            loss = -log_probabilities(model, tokens.input_ids, len(answer)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        print(f"shown {epoch + 1} times: {statistics.mean(losses):.2f} nats a token")


def log_probabilities(model: Any, ids: Sequence[int], answer: int) -> torch.Tensor:
    """Of the last `answer` tokens of `ids`, each given those before it."""
    logits = model(input_ids=torch.tensor([ids]), logits_to_keep=answer + 1).logits[0, :-1]
    wanted = torch.tensor(ids[-answer:])
    return -functional.cross_entropy(logits.float(), wanted, reduction="none")


async def converse(
    policy: TransformersPolicy, judge: Any, tasks: Sequence[Task], args: argparse.Namespace
) -> list[CUDAConversationState]:
    """A group of conversations about each task: every answer is judged and paid. They run at once,
    so the policy answers as one batch while the judge compiles and runs what is there."""
    sampling = SamplingParams(max_new_tokens=LONGEST, temperature=1.0)
    agents = make_agents(policy, sampling, prompts=PROMPTS)
    reward = make_reward(args.reward)
    config = ConversationConfig(max_turns=args.turns)
    return await asyncio.gather(
        *(
            run_conversation(task, agents, judge, reward, config)
            for task in tasks
            for _ in range(args.group)
        )
    )


def update(
    model: Any,
    optimizer: torch.optim.Optimizer,
    states: Sequence[CUDAConversationState],
    turns: int,
) -> float:
    """One step of GRPO with the clipped loss of PPO; the norm of its gradient.

    A turn is paid its return: its reward and the discounted ones behind it. Its advantage is the
    return less the mean of its group, the same turn of the other conversations about the task. A
    turn that our side lost has no return, and moves nothing.
    """
    rows: list[tuple[ConversationTurn, float | None, str]] = []
    for state in states:
        returns = conversation_returns(state, discount=0.4, max_turns=turns)
        for turn, paid in zip(state.turns, returns, strict=True):
            rows.append((turn, paid, f"{state.task.name} {group_key(turn.role, turn.index)}"))
    advantages = group_advantages([paid for _, paid, _ in rows], [group for *_, group in rows])
    tokens = sum(turn.generation.tokens for turn, *_ in rows)
    for (turn, *_), advantage in zip(rows, advantages, strict=True):
        if advantage == 0.0:
            continue
        answer = turn.generation
        new = log_probabilities(
            model, (*answer.prompt_ids, *answer.response_ids), len(answer.response_ids)
        )
        ratio = torch.exp(new - torch.tensor(answer.logprobs))
        clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
        loss = -torch.minimum(ratio * advantage, clipped * advantage).sum() / tokens
        loss.backward()
    learnt = [p for group in optimizer.param_groups for p in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(learnt, 1.0).item()
    optimizer.step()
    optimizer.zero_grad()
    return norm


def tell(step: int, states: Sequence[CUDAConversationState], norm: float, seconds: float) -> None:
    last = [state.turns[-1] for state in states]
    statuses = [turn.verdict.status.value if turn.verdict else "masked" for turn in last]
    found = ", ".join(f"{statuses.count(s)} {s}" for s in sorted(set(statuses)))
    paid = [turn.reward.total for turn in last if turn.reward is not None]
    mean = statistics.mean(paid) if paid else 0.0
    print(f"step {step}: {found}; reward {mean:.3f}, gradient norm {norm:.3f}, {seconds:.0f} s")


if __name__ == "__main__":
    main()

"""A tiny random model and a judge without a compiler, for tests of the training machinery.

The judge's verdict depends on the answer's text alone, so rewards differ between samples and
gradients are not zero. Imported by name in verl's workers, hence a module and not fixtures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from coding_framework.agents.prompts import PromptBudget
from coding_framework.data.faults import broken_kernels
from coding_framework.data.kernels import kernels_of
from coding_framework.errors import InfrastructureError, PolicyError
from coding_framework.orchestration.turn import Agent
from coding_framework.types import (
    Candidate,
    CUDAConversationState,
    Extraction,
    Generation,
    JudgeFn,
    Message,
    Policy,
    Record,
    RewardComponents,
    RewardPart,
    Role,
    SamplingParams,
    Status,
    Task,
    TensorSpec,
    TestCase,
    Verdict,
)


def tiny_tasks(count: int) -> list[Task]:
    case = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(8,)),), shown=True)
    return [
        Task(
            name=f"tiny_{index}", tier=0, family="tiny", ops=(f"op_{index}",),
            description=f"kernel number {index}", reference="class Model: ...", cases=(case,),
        )
        for index in range(count)
    ]  # fmt: skip


class TextReward:
    """The share of lower-case letters in the answer."""

    def __call__(self, state: CUDAConversationState) -> RewardComponents | None:
        turn = state.turns[-1]
        if turn.masked is not None:
            return None
        text = turn.generation.text
        share = sum(c.islower() for c in text) / max(1, len(text))
        part = RewardPart(name="lower", value=share, limit=1.0, why="share of lower-case letters")
        return RewardComponents(preset="text", parts=(part,))


class PickyReward(TextReward):
    """As TextReward, but the same for all answers to some of the tasks."""

    def __call__(self, state: CUDAConversationState) -> RewardComponents | None:
        paid = super().__call__(state)
        if paid is None or not is_flat(state.task.name):
            return paid
        flat = paid.parts[0].model_copy(update={"value": 0.5})
        return paid.model_copy(update={"parts": (flat,)})


def is_flat(task: str) -> bool:
    """Whether `PickyReward` pays all answers to the task alike."""
    return len(task) % 2 == 0


class _Answer(Record):
    messages: tuple[Message, ...]
    generation: Generation
    extraction: Extraction


class TextAgent:
    """Asks for more text; shows the length of what was there."""

    def __init__(self, policy: Policy, sampling: SamplingParams) -> None:
        self._policy = policy
        self._sampling = sampling

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> _Answer:
        lengths = [len(turn.generation.text) for turn in state.turns]
        content = f"{state.task.description} {lengths}"
        messages = (Message(role="user", content=content),)
        generation = await self._policy.generate(messages, self._sampling)
        extraction = Extraction(code=generation.text or "x", note="the text")
        return _Answer(messages=messages, generation=generation, extraction=extraction)


def make_agents(
    policy: Policy,
    sampling: SamplingParams,
    *,
    budget: PromptBudget,
    optimizer: Policy | None = None,
) -> Mapping[Role, Agent]:
    return {
        Role.GENERATOR: TextAgent(policy, sampling),
        Role.OPTIMIZER: TextAgent(optimizer or policy, sampling),
    }


class KernelAgent(TextAgent):
    """As TextAgent, but hands over a kernel of ours for the task, by the length of the text: a
    right one or one with a fault."""

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> _Answer:
        said = await super().answer(state, sample=sample)
        right = [kernel.code for kernel in kernels_of(state.task)]
        codes = [*right, *(broken.code for broken in broken_kernels(right[0], 0))]
        code = codes[len(said.generation.text) % len(codes)]
        return said.model_copy(update={"extraction": Extraction(code=code, note="one of ours")})


def make_kernel_agents(
    policy: Policy, sampling: SamplingParams, *, budget: PromptBudget
) -> Mapping[Role, Agent]:
    return {role: KernelAgent(policy, sampling) for role in (Role.GENERATOR, Role.OPTIMIZER)}


class BriefAgent(TextAgent):
    """As TextAgent, with a fault in the second turn of each prompt's first conversation."""

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> _Answer:
        if state.turns and state.conversation_id.endswith("-0"):
            raise PolicyError("the server gave no answer: try again")
        return await super().answer(state, sample=sample)


def make_brief_agents(
    policy: Policy, sampling: SamplingParams, *, budget: PromptBudget
) -> Mapping[Role, Agent]:
    return {role: BriefAgent(policy, sampling) for role in (Role.GENERATOR, Role.OPTIMIZER)}


class BrokenAgent(TextAgent):
    """Has a mistake of its author's in it."""

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> _Answer:
        raise KeyError("no_such_hint")


def make_broken_agents(
    policy: Policy, sampling: SamplingParams, *, budget: PromptBudget
) -> Mapping[Role, Agent]:
    return {role: BrokenAgent(policy, sampling) for role in (Role.GENERATOR, Role.OPTIMIZER)}


def make_judge(fault_share: float = 0.0) -> JudgeFn:
    """Every kernel is wrong in compilation; a share of the verdicts is a fault of ours."""

    async def judge(task: Task, code: str) -> Verdict:
        candidate = Candidate(code=code)
        if int(candidate.sha256[:4], 16) < fault_share * 0x10000:
            raise InfrastructureError("the judge's process was killed: it is started again")
        return Verdict(
            status=Status.COMPILE_ERROR,
            reason="not CUDA",
            task=task.name,
            candidate_sha256=candidate.sha256,
            backend="emulator",
        )

    return judge


def make_slow_judge() -> JudgeFn:
    """As `make_judge`, a second later: there is time to kill somebody in the middle of a step."""
    judge = make_judge()

    async def wait(task: Task, code: str) -> Verdict:
        await asyncio.sleep(1)
        return await judge(task, code)

    return wait


def make_telling_judge(folder: str) -> JudgeFn:
    """As `make_judge`; a file of its Ray node's name says where it judged."""
    import ray

    judge, node = make_judge(), ray.get_runtime_context().get_node_id()

    async def tell(task: Task, code: str) -> Verdict:
        (Path(folder) / node).touch()
        return await judge(task, code)

    return tell


def write_tiny_model(folder: Path, hidden_size: int = 64) -> Path:
    """A random two-layer Qwen2 with a byte-level tokenizer and a chat template; four heads."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["hello kernel user assistant system"] * 10, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
        "'<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(fast), hidden_size=hidden_size, intermediate_size=128,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=2048,
            tie_word_embeddings=True, eos_token_id=fast.eos_token_id,
            pad_token_id=fast.pad_token_id, bos_token_id=None,
        )
    ).save_pretrained(folder)  # fmt: skip
    return folder

"""The decode loop answers as the model alone would, whatever else is in the batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from coding_framework.agents.batched_generation import (  # noqa: E402
    BatchedGenerator,
    GeneratedIds,
    sample_tokens,
)
from coding_framework.errors import PolicyError, UsageError  # noqa: E402
from coding_framework.types import SamplingParams  # noqa: E402

EOS = 7
SHORT = SamplingParams(max_new_tokens=4)


def tiny_model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=300, hidden_size=48, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=512,
        tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def generator() -> Iterator[BatchedGenerator]:
    made = BatchedGenerator(tiny_model(), [EOS], max_batch=5)
    yield made
    made.close()


def prompts(count: int, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(8, 300) for _ in range(rng.randrange(1, 40))] for _ in range(count)]


def greedy_reference(model: Any, prompt: list[int], n: int) -> tuple[list[int], list[float]]:
    ids, logprobs = list(prompt), []
    with torch.no_grad():
        for _ in range(n):
            row = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1)
            ids.append(int(row.argmax()))
            logprobs.append(float(row.max()))
            if ids[-1] == EOS:
                break
    return ids[len(prompt) :], logprobs


async def test_greedy_answers_equal_the_model_alone_for_more_prompts_than_slots(
    generator: BatchedGenerator,
) -> None:
    asked = prompts(13)
    lengths = [3 + i * 7 % 40 for i in range(13)]
    answers = await asyncio.gather(
        *(
            generator.generate_ids(p, SamplingParams(max_new_tokens=n, temperature=0))
            for p, n in zip(asked, lengths, strict=True)
        )
    )
    model = tiny_model()
    for prompt, n, answer in zip(asked, lengths, answers, strict=True):
        ids, logprobs = greedy_reference(model, prompt, n)
        assert list(answer.response_ids) == ids
        assert answer.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert answer.finish_reason == ("stop" if ids[-1] == EOS else "length")


async def test_equal_prompts_are_prefilled_once(generator: BatchedGenerator) -> None:
    prompt = prompts(1)[0]
    sampling = SamplingParams(max_new_tokens=6)
    await asyncio.gather(*(generator.generate_ids(prompt, sampling) for _ in range(4)))
    assert generator.stats.prompt_tokens == 4 * len(prompt)
    assert generator.stats.prefilled_tokens < 4 * len(prompt)


async def test_a_seeded_answer_does_not_depend_on_its_company(
    generator: BatchedGenerator,
) -> None:
    prompt = prompts(1)[0]
    seeded = SamplingParams(max_new_tokens=25, seed=5)
    alone = await generator.generate_ids(prompt, seeded)
    others = [generator.generate_ids(p, SamplingParams(max_new_tokens=30)) for p in prompts(9, 2)]
    together = (await asyncio.gather(generator.generate_ids(prompt, seeded), *others))[0]
    assert together.response_ids == alone.response_ids


async def test_swapped_weights_answer_like_the_other_model(generator: BatchedGenerator) -> None:
    prompt, sampling = prompts(1)[0], SamplingParams(max_new_tokens=12, temperature=0)
    other = tiny_model(seed=3)
    running = asyncio.create_task(generator.generate_ids(prompt, sampling))
    await asyncio.sleep(0)
    await asyncio.to_thread(generator.load_state_dict, other.state_dict())
    before, after = await running, await generator.generate_ids(prompt, sampling)
    assert list(before.response_ids) in (
        greedy_reference(tiny_model(), prompt, 12)[0],
        greedy_reference(other, prompt, 12)[0],
    )
    assert list(after.response_ids) == greedy_reference(other, prompt, 12)[0]


async def test_unknown_weight_names_are_refused_and_the_generator_goes_on(
    generator: BatchedGenerator,
) -> None:
    with pytest.raises(PolicyError, match="unknown weights"):
        await asyncio.to_thread(generator.load_state_dict, {"nonsense": torch.zeros(1)})
    answer = await generator.generate_ids([9, 10], SamplingParams(max_new_tokens=2))
    assert len(answer.response_ids) in (1, 2)


async def test_a_prompt_that_cannot_fit_is_refused_in_a_sentence(
    generator: BatchedGenerator,
) -> None:
    with pytest.raises(UsageError, match="exceed the context of 512"):
        await generator.generate_ids([9] * 500, SamplingParams(max_new_tokens=20))
    with pytest.raises(UsageError, match="empty"):
        await generator.generate_ids([], SamplingParams())


async def test_a_failing_model_reaches_every_caller() -> None:
    model = tiny_model()
    generator = BatchedGenerator(model, [EOS], max_batch=4)
    model.lm_head.forward = lambda _: 1 / 0
    calls = [generator.generate_ids(p, SHORT) for p in prompts(3)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(r, PolicyError) for r in results)
    del model.lm_head.forward
    assert isinstance(await generator.generate_ids([9], SHORT), GeneratedIds)
    generator.close()


async def test_a_closed_generator_says_so() -> None:
    generator = BatchedGenerator(tiny_model(), [EOS])
    generator.close()
    with pytest.raises(PolicyError, match="closed"):
        await generator.generate_ids([9], SHORT)


async def test_a_cancelled_request_leaves_the_batch(generator: BatchedGenerator) -> None:
    long = asyncio.create_task(
        generator.generate_ids([9, 11], SamplingParams(max_new_tokens=400, seed=1))
    )
    await asyncio.sleep(0.1)
    long.cancel()
    short = await generator.generate_ids([9, 12], SamplingParams(max_new_tokens=3))
    assert 1 <= len(short.response_ids) <= 3


def test_samples_follow_the_distribution_within_top_p_and_top_k() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.15, 0.1]]))
    rng = random.Random(0)

    def frequencies(sampling: SamplingParams) -> list[float]:
        n = 4000
        drawn, _ = sample_tokens(
            logits.expand(n, -1), [sampling] * n, [rng.random() for _ in range(n)]
        )
        return (torch.bincount(drawn, minlength=4) / n).tolist()  # type: ignore[no-any-return]

    assert frequencies(SamplingParams()) == pytest.approx([0.5, 0.25, 0.15, 0.1], abs=0.03)
    assert frequencies(SamplingParams(top_k=2)) == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.03)
    assert frequencies(SamplingParams(top_p=0.6)) == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.03)
    assert frequencies(SamplingParams(temperature=0)) == [1, 0, 0, 0]


def test_logprobs_are_of_the_distribution_sampled_from() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.15, 0.1]]))
    token, logprob = sample_tokens(logits, [SamplingParams(top_k=2)], [0.9])
    assert token.item() == 1
    assert logprob.exp().item() == pytest.approx(1 / 3, abs=1e-5)
    _, greedy = sample_tokens(logits, [SamplingParams(temperature=0)], [0.9])
    assert greedy.exp().item() == pytest.approx(0.5, abs=1e-5)


@pytest.mark.slow
def test_a_wide_distribution_keeps_its_top_p_mass() -> None:
    logits = torch.zeros(1, 3000)
    n = 3000
    drawn, logprobs = sample_tokens(
        logits.expand(n, -1),
        [SamplingParams(top_p=0.5)] * n,
        [random.Random(i).random() for i in range(n)],
    )
    assert logprobs.exp().max().item() == pytest.approx(1 / 1500, rel=0.01)
    assert len(set(drawn.tolist())) > 800

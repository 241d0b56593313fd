"""The scheduler with more passes in flight, driven as vLLM's engine drives it.

The worker is ours: it does with a schedule what vLLM's first model runner does, and each of its
tokens depends on the one before, so that a token that is lost, repeated or out of place changes all
after it. It runs where vLLM 0.24 is installed, and needs no GPU.
"""

from __future__ import annotations

import json
import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")
import numpy as np
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from coding_framework.training.verl.overrides import PASSES
from coding_framework.training.verl.vllm_scheduler import PassesInFlight

END = 1
TINY = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64,
    "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
    "num_hidden_layers": 1, "vocab_size": 1000, "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16", "eos_token_id": END,
}  # fmt: skip


def after(token: int, place: int) -> int:
    """The token at a place, given the one before: now and then an end."""
    return (token * 31 + place * 7 + 3) % 997 + 1


def expected(prompt: list[int], most: int) -> list[int]:
    tokens = list(prompt)
    while len(tokens) < len(prompt) + most and (len(tokens) == len(prompt) or tokens[-1] != END):
        tokens.append(after(tokens[-1], len(tokens)))
    return tokens[len(prompt) :]


class Worker:
    """What vLLM's first model runner knows of each answer: the tokens that it drew itself, and
    those that the scheduler names where the answer was not in the pass before."""

    def __init__(self) -> None:
        self.prompts: dict[str, list[int]] = {}
        self.tokens: dict[str, list[int]] = {}
        self.before: set[str] = set()

    def run(self, schedule: Any) -> ModelRunnerOutput:
        for name in schedule.finished_req_ids:
            self.tokens.pop(name, None)
        for new in schedule.scheduled_new_reqs:
            self.prompts[new.req_id] = list(new.prompt_token_ids)
            self.tokens[new.req_id] = list(new.prompt_token_ids)
        cached = schedule.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in schedule.scheduled_new_reqs}
        for i, name in enumerate(cached.req_ids):
            computed[name] = cached.num_computed_tokens[i]
            count = cached.num_output_tokens[i]
            del self.tokens[name][len(self.prompts[name]) + count :]
            if name not in self.before and count:
                said = cached.all_token_ids[name][-count:]
                self.tokens[name] = self.prompts[name] + said
        drawn: list[list[int]] = []
        for name, scheduled in schedule.num_scheduled_tokens.items():
            end, known = computed[name] + scheduled, self.tokens[name]
            if end < len(known):
                drawn.append([])  # a part of a prompt
                continue
            assert end == len(known), "the pass begins or ends where no token is known"
            known.append(after(known[-1], end))
            drawn.append([known[-1]])
        self.before = set(schedule.num_scheduled_tokens)
        names = list(schedule.num_scheduled_tokens)
        column = np.array([[token[0] if token else 0] for token in drawn], np.int32)
        return ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=drawn,
            logprobs=LogprobsLists(
                column, -column.astype(np.float32), np.ones(len(names), np.int32), None
            ),
            prompt_logprobs_dict={}, pooler_output=[],
        )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


def made(model: Path, passes: int, blocks: int, batched: int) -> PassesInFlight:
    cache = CacheConfig(block_size=16, enable_prefix_caching=True)
    cache.num_gpu_blocks = blocks
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(model), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=1024
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=64, max_num_batched_tokens=batched, max_model_len=1024,
            enable_chunked_prefill=True, is_encoder_decoder=False, async_scheduling=True,
        ),
        cache_config=cache, parallel_config=ParallelConfig(),
        device_config=DeviceConfig(device="cpu"), additional_config={PASSES: passes},
    )  # fmt: skip
    assert config.max_concurrent_batches == passes
    spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
    layers = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["a"], spec)]
    )
    return PassesInFlight(
        config, layers, StructuredOutputManager(config), block_size=16, log_stats=True
    )


def asked(number: int, draw: random.Random) -> Request:
    prompt = [draw.randrange(2, 900) for _ in range(draw.randrange(5, 120))]
    sampling = SamplingParams(max_tokens=draw.randrange(1, 300), temperature=1.0, logprobs=0)
    sampling.update_from_generation_config({}, END)
    return Request(
        request_id=f"answer-{number}", prompt_token_ids=prompt, sampling_params=sampling,
        pooling_params=None, block_hasher=get_request_block_hasher(16, sha256),
    )  # fmt: skip


@pytest.mark.parametrize("passes", [2, 3, 4])
@pytest.mark.parametrize(
    ("blocks", "batched", "reset_every"),
    [(2000, 4096, 0), (150, 4096, 0), (90, 64, 0), (150, 512, 37)],
    ids=["room for all", "preempted", "little room, small passes", "all preempted for new weights"],
)
def test_each_answer_is_the_one_that_it_would_be_alone(
    model: Path, passes: int, blocks: int, batched: int, reset_every: int
) -> None:
    init_none_hash(sha256)
    scheduler, worker, draw = made(model, passes, blocks, batched), Worker(), random.Random(passes)
    requests = [asked(i, draw) for i in range(40)]
    waiting, in_flight, came = deque(requests), deque[Any](), dict[str, list[int]]()
    for step in range(20_000):
        if waiting and step % 3 == 0:
            scheduler.add_request(waiting.popleft())
        if reset_every and step % reset_every == reset_every - 1:
            scheduler.reset_prefix_cache(reset_running_requests=True)
        if scheduler.has_requests():
            schedule = scheduler.schedule()
            in_flight.append((schedule, worker.run(schedule)))
            if len(in_flight) < passes:
                continue
        elif not in_flight and not waiting:
            break
        if in_flight:
            schedule, output = in_flight.popleft()
            for outputs in scheduler.update_from_output(schedule, output).values():
                for one in outputs.outputs:
                    came.setdefault(one.request_id, []).extend(one.new_token_ids)
    right = {r.request_id: expected(list(r.prompt_token_ids or ()), r.max_tokens) for r in requests}
    assert came == right
    preempted = sum(r.num_preemptions for r in requests)
    assert (preempted > 0) == (blocks < 2000 or reset_every > 0)


def test_one_pass_at_a_time_stays_one(model: Path) -> None:
    """vLLM cannot schedule ahead of guesses."""
    config = made(model, 3, 100, 512).vllm_config
    config.scheduler_config.async_scheduling = False
    assert config.max_concurrent_batches == 1

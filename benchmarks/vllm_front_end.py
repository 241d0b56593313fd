"""When vLLM's front end hands over RL's answers, and what a token costs it. Needs no GPU.

    python benchmarks/vllm_front_end.py TOKENIZER [--step-ms 5] [--output FILE]

The engine is a clock: each step gives a token to each of 256 answers that is not done. What is
measured is vLLM's `OutputProcessor`, driven as `AsyncLLM`'s output handler drives it, with one
consumer an answer. Needs vllm==0.24.0. Writes benchmarks/results/vllm_front_end.json.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench_io import finish, head, this_machine
from transformers import AutoTokenizer
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.outputs import LogprobsLists

ANSWERS = 256
LENGTHS = np.clip(np.random.default_rng(0).gamma(4.0, 200.0, ANSWERS).astype(int), 100, 2048)
NO_TEXT = {"detokenize": False, "flat_logprobs": True}
OURS = {**NO_TEXT, "output_kind": RequestOutputKind.FINAL_ONLY}
"""As `training/verl/agent_loop.py` asks."""
WAYS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("as verl asks", {}, 128),
    ("as verl asks, 8 answers a chunk", {}, 8),
    ("without text", NO_TEXT, 128),
    ("without text, 8 answers a chunk", NO_TEXT, 8),
    ("ours: without text, whole, 8 answers a chunk", OURS, 8),
)


def given(answer: int, step: int, token: int) -> EngineCoreOutput:
    one = np.array([[token]], np.int32), np.array([[-0.01]], np.float32), np.array([1], np.int32)
    return EngineCoreOutput(
        request_id=str(answer),
        new_token_ids=[token],
        new_logprobs=LogprobsLists(*one, None),
        finish_reason=FinishReason.STOP if step == LENGTHS[answer] - 1 else None,
    )


def asked(answer: int, options: dict[str, Any]) -> EngineCoreRequest:
    sampling = SamplingParams(max_tokens=2048, temperature=1.2, logprobs=0, **options)
    fields = {
        "request_id": str(answer), "external_req_id": str(answer), "prompt_token_ids": [1] * 800,
        "mm_features": None, "sampling_params": sampling, "pooling_params": None,
        "arrival_time": 0.0, "lora_request": None, "cache_salt": None, "data_parallel_rank": None,
    }  # fmt: skip
    return EngineCoreRequest(**fields)


async def measured(
    tokenizer: Any, options: dict[str, Any], chunk: int, step_s: float
) -> dict[str, Any]:
    """chunk: answers between two moments at which others run (VLLM_V1_OUTPUT_PROC_CHUNK_SIZE)."""
    front = OutputProcessor(tokenizer, log_stats=False)
    ids = np.random.default_rng(1).integers(100, 40_000, (LENGTHS.max(), ANSWERS))
    steps = [
        [given(i, step, int(ids[step, i])) for i in range(ANSWERS) if step < LENGTHS[i]]
        for step in range(LENGTHS.max())
    ]
    came: list[float] = []

    async def consume(queue: RequestOutputCollector) -> None:
        while not (out := queue.get_nowait() or await queue.get()).finished:
            pass
        answer = out.outputs[0]
        pairs = zip(answer.token_ids, answer.logprobs, strict=True)
        _ = [logprobs[token].logprob for token, logprobs in pairs]  # as verl reads them
        came.append(time.perf_counter() - began)

    consumers = []
    for i in range(ANSWERS):
        kind = options.get("output_kind", RequestOutputKind.CUMULATIVE)
        queue = RequestOutputCollector(kind, str(i))
        front.add_request(asked(i, options), None, None, 0, queue)
        consumers.append(asyncio.ensure_future(consume(queue)))
    began, busy = time.perf_counter(), time.process_time()
    for number, outputs in enumerate(steps, start=1):
        early = number * step_s - (time.perf_counter() - began)
        if early > 0:  # else the engine's queue has it already, and the handler does not wait
            await asyncio.sleep(early)
        for start in range(0, len(outputs), chunk):
            front.process_outputs(outputs[start : start + chunk], 0.0, None)
            if start + chunk < len(outputs):
                await asyncio.sleep(0)
    await asyncio.gather(*consumers)
    busy = time.process_time() - busy
    at = np.array(came)
    return {
        "chunk": chunk, **{name: str(value) for name, value in options.items()},
        "tokens": int(LENGTHS.sum()),
        "us_a_token": round(float(busy / LENGTHS.sum()) * 1e6, 1),
        "came_s": {q: round(float(np.percentile(at, q)), 2) for q in (5, 25, 50, 75, 100)},
        "within_half_a_second_of_the_last": int((at > at.max() - 0.5).sum()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", help="folder or name")
    parser.add_argument("--step-ms", type=float, default=5.0, help="what the engine takes a step")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    report = head("vllm_front_end", packages=("vllm", "transformers"), machine=this_machine())
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    report |= {"bars": [], "answers": ANSWERS, "engine_ms_a_step": args.step_ms, "ways": {}}
    for name, options, chunk in WAYS:
        found = asyncio.run(measured(tokenizer, options, chunk, args.step_ms / 1e3))
        report["ways"][name] = found
        print(f"{name}: {found}", flush=True)
    finish(report, args.output)


if __name__ == "__main__":
    main()

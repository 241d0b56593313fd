"""What this machine does in a second: a short piece of each kind of work of a whole run.

Each piece takes seconds on 2 cores. It is measured beside whatever else the machine does, as the
run itself will be.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coding_framework.monitoring.load import BusyOthers
from coding_framework.run.sizing import PROMPT_TOKENS, Rates
from coding_framework.store.events import log
from coding_framework.types import Role, SandboxName

BATCHES, STEPS = (4, 24), 6
"""Answers at once, and tokens of each: two points of a line."""
TRAINED = 400
"""Tokens of an example that is learnt: about as many as SFT's have, for a short one is slower a
token."""
TRIES, TRIED_S = 5, 10.0
"""The least of so many steps of training counts, for another process may delay any one of them;
after so many seconds two are enough."""
KERNELS = 6
STARTING = 4
"""Kernels that are judged before the clock runs: more than the judges that have to start."""


def measure(model: Path, sandbox: SandboxName, started: float) -> Rates:
    """The rates of this machine, in this process. started: `time.time()` when the process was
    asked for."""
    import torch

    from coding_framework.agents.policies import load_model
    from coding_framework.agents.threads import threads_beside

    busy = BusyOthers()
    loaded, _ = load_model(model, device="cpu")
    start_s = time.time() - started
    others = busy.share()  # before the judge's processes, some of which have other parents
    verdict_s = _verdict_s(sandbox)
    torch.set_num_threads(threads_beside(others, torch.get_num_threads()))
    train_s = training_s(loaded)
    loaded.train(False).requires_grad_(False)
    prefill_s, (few, many) = generating_s(loaded)
    slope = max((many - few) / (BATCHES[1] - BATCHES[0]), 0.0)
    rates = Rates(
        start_s=start_s,
        train_tokens_s=1 / train_s,
        prefill_tokens_s=1 / prefill_s,
        step_s=max(few - slope * BATCHES[0], 0.0),
        answer_step_s=slope,
        verdict_s=verdict_s,
        dtype=str(loaded.dtype).removeprefix("torch."),
        others=others,
    )
    log.info("machine_measured", **rates.model_dump())
    return rates


def training_s(model: Any) -> float:
    """Seconds a token of SFT: forward and backward with an adapter on a frozen base."""
    import torch
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=64, lora_alpha=128, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    ids = (torch.arange(TRAINED)[None] * 37) % model.config.vocab_size

    def step(tokens: int = TRAINED) -> None:
        some = ids[:, :tokens]
        adapted(some, labels=some).loss.backward()

    step(TRAINED // 4)  # what is allocated once is not timed
    tried: list[float] = []
    while len(tried) < 2 or (len(tried) < TRIES and sum(tried) < TRIED_S):
        tried.append(_seconds(step))
    adapted.unload()
    return min(tried) / TRAINED


def generating_s(model: Any) -> tuple[float, tuple[float, float]]:
    """(seconds a token of a prompt, seconds of a decoding step by `BATCHES`)."""
    from coding_framework.agents.batched_generation import BatchedGenerator
    from coding_framework.types import SamplingParams

    generator = BatchedGenerator(model, (), max_batch=BATCHES[-1], max_context=1024)
    most = model.config.vocab_size
    prompts = [[(i * 37 + n) % most for i in range(PROMPT_TOKENS)] for n in range(4)]

    def answers(count: int, tokens: int) -> float:
        async def together() -> None:
            sampling = SamplingParams(max_new_tokens=tokens, temperature=1.0, seed=0)
            await asyncio.gather(
                *(generator.generate_ids(prompts[n % 4], sampling) for n in range(count))
            )

        before = time.perf_counter()
        asyncio.run(together())
        return time.perf_counter() - before

    try:
        answers(BATCHES[0], 2)  # what is allocated once is not timed
        reading = answers(BATCHES[0], 1)
        few, many = (answers(count, STEPS + 1) - reading for count in BATCHES)
    finally:
        generator.close()
    return reading / sum(map(len, prompts)), (few / STEPS, many / STEPS)


def _verdict_s(sandbox: SandboxName) -> float:
    """Seconds from one verdict to the next."""
    from coding_framework.data.examples import training_examples
    from coding_framework.wiring import make_judge

    found = training_examples(Role.GENERATOR, STARTING + KERNELS, seed=1, max_steps=3)
    with ExitStack() as stack:
        judge = make_judge(sandbox=sandbox, baselines="none")
        stack.callback(judge.close)

        async def judged(examples: Sequence[Any]) -> None:
            # a comment makes it a kernel that no cache knows, as an answer would be
            told = f"// {time.time_ns()}\n"
            await asyncio.gather(*(judge.judge(e.task, told + e.code) for e in examples))

        asyncio.run(judged(found[:STARTING]))
        before = time.perf_counter()
        asyncio.run(judged(found[STARTING:]))
        return (time.perf_counter() - before) / max(1, len(found) - STARTING)


def _seconds(work: Callable[[], Any]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before

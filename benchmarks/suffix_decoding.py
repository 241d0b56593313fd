"""What suffix decoding saves of the writing of an RL run's answers.

    python benchmarks/suffix_decoding.py replay ROLLOUTS [--step 12]
    python benchmarks/suffix_decoding.py engine MODEL [--steps 4] [--output FILE]

replay, on a CPU: ROLLOUTS is the folder of a run's attempt with step_*.jsonl. The answers of one
step are written again all at once, as vLLM would, by the drafts of Arctic Inference, which knows
the answers of the steps before (of none, of four, of all). A draft's token is accepted where the
answer has it: at the temperature of the run, since the answers were drawn at it. Times are of this
CPU, and of the proposer alone. Writes benchmarks/results/suffix_decoding.json.

engine, on a GPU: vLLM writes the answers of so many steps, eight to each of 32 module tasks at
temperature 1, without guesses and with them. The tasks of a step are others, but the last step has
those of the first one again. Prints seconds and tokens of each step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_io import RESULTS, head, this_machine

from coding_framework.agents.policies import prompt_ids
from coding_framework.agents.prompts import build_messages
from coding_framework.data.modules.pool import training_modules
from coding_framework.paths import write_json_atomic
from coding_framework.store.folder import rollouts_file
from coding_framework.store.lines import parsed_lines
from coding_framework.store.records import Rollout
from coding_framework.training.verl.overrides import GRAPHS, GUESSING_GRAPHS, SUFFIX
from coding_framework.types import CUDAConversationState, Role

TASKS, SAMPLES, ANSWER_TOKENS = 32, 8, 4096
AS_RL: Mapping[str, Any] = {
    "temperature": 1.0,
    "logprobs": 0,
    "detokenize": False,
    "flat_logprobs": True,
}
"""As `training/verl/agent_loop.py` asks: else vLLM's front end makes an object of each token."""
MOST = 1 + SUFFIX["num_speculative_tokens"]
WIDE = [MOST * number for number in (*range(1, 31), *range(32, 64, 4), *range(64, 257, 16))]
"""Sizes of graphs up to a pass in which 256 answers have as many tokens as may be."""
WAYS: Mapping[str, dict[str, Any]] = {
    "without guesses": {"compilation_config": GRAPHS},
    "without guesses, second runner": {"compilation_config": GRAPHS},
    "suffix": {"compilation_config": GUESSING_GRAPHS, "speculative_config": SUFFIX},
    "suffix, graphs of all passes": {
        "compilation_config": {**GUESSING_GRAPHS, "cudagraph_capture_sizes": WIDE},
        "speculative_config": SUFFIX,
    },
}
"""Options of the engine; the first is RL's, the third with `speculative_decoding: suffix`."""
ENVIRONMENT = {"without guesses, second runner": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}
"""vLLM 0.24 has another model runner, which it takes for other models than Qwen2."""

Answers = list[tuple[list[int], list[int]]]
"""Tokens of prompts and of their answers."""


def answers_of(rollouts: Path, step: int) -> Answers:
    """Those of a step, at most 256 of them."""
    found: Answers = []
    for rollout in parsed_lines(rollouts_file(rollouts, step), Rollout.model_validate_json):
        made = (turn.generation for turn in rollout.state.turns)
        found += [(list(one.prompt_ids), list(one.response_ids)) for one in made]
    return found[:256]


def replayed(before: Sequence[Answers], now: Answers, told: dict[str, Any]) -> dict[str, Any]:
    """What writing `now` takes, by a cache that knows the answers before."""
    from arctic_inference.suffix_decoding import SuffixDecodingCache

    depth, most = told["suffix_decoding_max_tree_depth"], told["num_speculative_tokens"]
    cache = SuffixDecodingCache(max_tree_depth=depth, max_cached_requests=10_000)
    number = 0
    for prompt, answer in (pair for answers in before for pair in answers):
        cache.start_request(number, np.array(prompt, dtype=np.int32))
        cache.add_active_response(number, answer)
        cache.stop_request(number)
        number += 1
    rows = []
    for prompt, answer in now:
        cache.start_request(number, np.array(prompt, dtype=np.int32))
        cache.add_active_response(number, answer[:1])  # of the prompt's own pass
        rows.append((number, np.array(prompt + answer, dtype=np.int32), len(prompt) + 1))
        number += 1
    passes = row_passes = verified = 0
    spent = 0.0
    while rows := [row for row in rows if row[2] < len(row[1])]:
        passes += 1
        row_passes += len(rows)
        following = []
        for key, tokens, at in rows:
            began = time.perf_counter()
            draft = cache.speculate(
                key, tokens[max(0, at - depth) : at], max_spec_tokens=most,
                max_spec_factor=told["suffix_decoding_max_spec_factor"],
                min_token_prob=told["suffix_decoding_min_token_prob"],
            ).token_ids  # fmt: skip
            after = tokens[at : at + len(draft) + 1]
            same = [a == b for a, b in zip(draft, after, strict=False)]
            accepted = same.index(False) if False in same else len(same)
            new = tokens[at : at + accepted + 1]
            cache.add_active_response(key, new.tolist())
            spent += time.perf_counter() - began
            verified += len(draft) + 1
            following.append((key, tokens, at + len(new)))
        rows = following
    written = sum(len(answer) - 1 for _, answer in now)
    return {
        "answers known before": sum(map(len, before)),
        "answers": len(now),
        "tokens": written,
        "longest answer": max(len(answer) for _, answer in now),
        "passes": passes,
        "tokens of an answer in a pass": round(written / row_passes, 2),
        "verified tokens for one": round(verified / written, 2),
        "proposer_ms_a_pass": round(1000 * spent / passes, 1),
    }


def written(model: Path, steps: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Seconds and tokens of each step, by an engine with these options."""
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams, TokensPrompt

    tasks = training_modules(TASKS * (steps - 1))
    states = (CUDAConversationState(conversation_id=task.name, task=task) for task in tasks)
    asked = [build_messages(state, Role.GENERATOR, version="v3") for state in states]
    tokenizer = AutoTokenizer.from_pretrained(model)
    prompts = [TokensPrompt(prompt_token_ids=prompt_ids(tokenizer, each)) for each in asked]
    engine = LLM(
        model=str(model), dtype="bfloat16", max_model_len=1024 + ANSWER_TOKENS, seed=0,
        gpu_memory_utilization=0.4, disable_log_stats=False, **options,
    )  # fmt: skip
    engine.generate(prompts[:1], SamplingParams(max_tokens=8, **AS_RL), use_tqdm=False)
    sampling = SamplingParams(max_tokens=ANSWER_TOKENS, **AS_RL)
    rows = []
    for step in range(steps):
        first = TASKS * (step % (steps - 1))
        given = [prompt for prompt in prompts[first : first + TASKS] for _ in range(SAMPLES)]
        before = counted(engine)
        began = time.perf_counter()
        found = engine.generate(given, sampling, use_tqdm=False)
        seconds = time.perf_counter() - began
        lengths = [len(request.outputs[0].token_ids) for request in found]
        rows.append(
            {
                "step": step + 1,
                "seconds": round(seconds, 2),
                "tokens": sum(lengths),
                "longest answer": max(lengths),
                "different answers": len({tuple(r.outputs[0].token_ids) for r in found}),
                **{name: count - before.get(name, 0) for name, count in counted(engine).items()},
            }
        )
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def counted(engine: Any) -> dict[str, int]:
    """What vLLM has counted of its guesses."""
    return {
        metric.name.removeprefix("vllm:spec_decode_num_").replace("_", " "): metric.value
        for metric in engine.get_metrics()
        if metric.name.startswith("vllm:spec_decode_num_") and hasattr(metric, "value")
    }


def replay(args: argparse.Namespace) -> None:
    machine = this_machine()
    known = [answers_of(args.rollouts, step) for step in range(1, args.step)]
    now = answers_of(args.rollouts, args.step)
    report = head(
        "suffix_decoding",
        packages=("arctic-inference",),
        machine=machine,
        command=f"python benchmarks/suffix_decoding.py replay ROLLOUTS --step {args.step}",
    )
    report["settings"] = SUFFIX
    report["runs"] = [replayed(known[from_:], now, SUFFIX) for from_ in (len(known), -4, 0)]
    write_json_atomic(RESULTS / "suffix_decoding.json", report)
    for run in report["runs"]:
        print(run)


def measured(args: argparse.Namespace) -> None:
    """Each way in a process of its own, which leaves the GPU empty."""
    if args.way:
        write_json_atomic(args.output, written(args.model, args.steps, WAYS[args.way]))
        return
    report = head(
        "suffix_decoding_engine",
        packages=("arctic-inference", "vllm"),
        machine=this_machine(),
        command=f"python benchmarks/suffix_decoding.py engine MODEL --steps {args.steps}",
    )
    report["ways"] = {}
    for way, options in WAYS.items():
        output = args.output.with_suffix(".way.json")
        command = [
            sys.executable, __file__, "engine", args.model, "--steps", str(args.steps),
            "--output", output, "--way", way,
        ]  # fmt: skip
        more = ENVIRONMENT.get(way, {})
        if subprocess.run(command, env={**os.environ, **more}, check=False).returncode != 0:
            continue  # its log says why
        steps = json.loads(output.read_text())
        report["ways"][way] = {"options": options, "environment": more, "steps": steps}
        write_json_atomic(args.output, report)
        output.unlink()


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whats = cli.add_subparsers(required=True)
    one = whats.add_parser("replay")
    one.add_argument("rollouts", type=Path)
    one.add_argument("--step", type=int, default=12, help="whose answers are written again")
    one.set_defaults(begin=replay)
    one = whats.add_parser("engine")
    one.add_argument("model", type=Path)
    one.add_argument("--steps", type=int, default=4)
    one.add_argument("--output", type=Path, default=Path("suffix_decoding_engine.json"))
    one.add_argument("--way", choices=tuple(WAYS), help=argparse.SUPPRESS)
    one.set_defaults(begin=measured)
    args = cli.parse_args()
    if "steps" in args and args.steps < 2:
        cli.error("--steps: at least 2, since the last one has the tasks of the first one again")
    args.begin(args)


if __name__ == "__main__":
    main()

"""How many passes suffix decoding leaves of an RL run's answers, replayed on a CPU.

    python benchmarks/suffix_decoding.py ROLLOUTS [--step 12]

ROLLOUTS: the folder of a run's attempt with step_*.jsonl. The answers of one step are written again
all at once, as vLLM would, by the drafts of Arctic Inference, which knows the answers of the steps
before (of none, of four, of all). A draft's token is accepted where the answer has it: at the
temperature of the run, since the answers were drawn at it. Times are of this CPU, and of the
proposer alone. Writes benchmarks/results/suffix_decoding.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from arctic_inference.suffix_decoding import SuffixDecodingCache
from bench_io import RESULTS, head, this_machine

from coding_framework.paths import write_json_atomic
from coding_framework.store.folder import rollouts_file
from coding_framework.store.lines import parsed_lines
from coding_framework.store.records import Rollout
from coding_framework.training.verl.overrides import SUFFIX

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


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("rollouts", type=Path)
    cli.add_argument("--step", type=int, default=12, help="whose answers are written again")
    args = cli.parse_args()
    machine = this_machine()
    known = [answers_of(args.rollouts, step) for step in range(1, args.step)]
    now = answers_of(args.rollouts, args.step)
    report = head(
        "suffix_decoding",
        packages=("arctic-inference",),
        machine=machine,
        command=f"python benchmarks/suffix_decoding.py ROLLOUTS --step {args.step}",
    )
    report["settings"] = SUFFIX
    report["runs"] = [replayed(known[from_:], now, SUFFIX) for from_ in (len(known), -4, 0)]
    write_json_atomic(RESULTS / "suffix_decoding.json", report)
    for run in report["runs"]:
        print(run)


if __name__ == "__main__":
    main()

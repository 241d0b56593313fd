"""What holds up the answers of RL's steps: vLLM's engine, or its front end.

    python benchmarks/answer_arrivals.py RUN [--output FILE]

The engine gives each answer that is not done one token a step, so an answer of n tokens comes
after n steps of equal time. The front end handles one token after the other, of all answers: an
answer of n tokens comes when sum(min(n_j, n)) tokens are handled. Each law is fitted to the times
at which the answers of a step came (a constant and a slope, least squares); the one that explains
more of them holds them up. Answers of conversations of one turn alone.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from bench_io import finish, head, this_machine

from coding_framework.store.conversations import run_rollouts

Floats = np.ndarray[Any, np.dtype[np.float64]]


def explained(x: Floats, seconds: Floats) -> tuple[float, float]:
    """The share of the variance that a line through x explains, and its slope."""
    slope, constant = np.polyfit(x, seconds, 1)
    return 1 - float(np.var(seconds - slope * x - constant) / np.var(seconds)), float(slope)


def of_step(tokens: Floats, seconds: Floats) -> dict[str, Any]:
    """Both laws over a step's answers: their tokens, and the seconds after which they came."""
    handled = np.minimum(tokens[:, None], tokens).sum(axis=1)
    engine, step_s = explained(tokens, seconds)
    front, token_s = explained(handled, seconds)
    return {
        "answers": len(tokens), "tokens": int(tokens.sum()),
        "tokens_median": float(np.median(tokens)), "tokens_most": float(tokens.max()),
        "came_s": {q: round(float(np.percentile(seconds, q)), 2) for q in (5, 25, 50, 75, 100)},
        "within_half_a_second_of_the_last": int((seconds > seconds.max() - 0.5).sum()),
        "engine_explains": round(engine, 3), "engine_ms_a_step": round(step_s * 1e3, 2),
        "front_end_explains": round(front, 3), "front_end_us_a_token": round(token_s * 1e6, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of an RL run")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--machine", help="where the run was made, if not on this machine")
    args = parser.parse_args()
    came: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for rollout in run_rollouts(args.run):
        turns = rollout.state.turns
        if rollout.fault or len(turns) != 1 or turns[0].generated_s is None or not rollout.began_at:
            continue
        began = datetime.fromisoformat(rollout.began_at).timestamp()
        tokens = len(turns[0].generation.response_ids)
        came[rollout.step].append((tokens, began, began + turns[0].generated_s))
    steps = []
    for step, answers in sorted(came.items()):
        tokens, began, at = np.array(answers, dtype=float).T
        steps.append({"step": step, **of_step(tokens, at - began.min())})
    report = head("answer_arrivals", packages=("numpy",), machine=this_machine())
    if args.machine:
        report["run_made_on"] = args.machine
    report |= {"bars": [], "steps": steps}
    names = (
        "within_half_a_second_of_the_last",
        "engine_explains",
        "front_end_explains",
        "front_end_us_a_token",
        "engine_ms_a_step",
    )
    report["medians"] = {n: round(float(np.median([s[n] for s in steps])), 3) for n in names}
    print(report["medians"])
    finish(report, args.output)


if __name__ == "__main__":
    main()

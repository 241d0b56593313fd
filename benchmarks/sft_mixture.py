"""How the SFT mixture is made up, how long its examples are, and what batches of them waste.

    python benchmarks/sft_mixture.py TOKENIZER [--total 12000] [--max-length 3072]

TOKENIZER: a folder with a tokenizer.json, or that file. Kernels are taken as synthesised, so no
judge is needed; own mistakes are a part without material here. Lengths are of prompts v3 without
the chat template, and answers. Writes benchmarks/results/sft_mixture.json.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from typing import Any

from bench_io import at_most, bar, finish, head
from token_lengths import parsed, told

from coding_framework.agents.prompts import ANSWER_TOKENS, messages_for_example, render_answer
from coding_framework.data.examples import UNVERIFIED
from coding_framework.data.mixture import mixture_drafts, sft_mixture
from coding_framework.training.sft_batches import order_by_length, padded_share

MOST_PADDED = 0.05


def pairs_of_rows(lengths: Sequence[int], order: Sequence[int], batch_size: int) -> float:
    """How many times as many pairs of tokens attention works on where the examples of a batch are
    one row under a mask, as where each is alone."""
    rows = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    packed = sum(sum(lengths[i] for i in row) ** 2 for row in rows)
    return packed / sum(n * n for n in lengths)


def batches(lengths: Sequence[int], batch_size: int) -> dict[str, float]:
    """What batches waste, drawn at random and by length."""
    drawn = list(range(len(lengths)))
    random.Random(0).shuffle(drawn)
    sorted_ = order_by_length(lengths, batch_size, 0)
    return {
        "padded_at_random": round(padded_share(lengths, drawn, batch_size), 4),
        "padded_by_length": round(padded_share(lengths, sorted_, batch_size), 4),
        "attention_of_packed_rows": round(pairs_of_rows(lengths, drawn, batch_size), 2),
    }


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    cli.add_argument("--total", type=int, default=12_000)
    cli.add_argument("--max-length", type=int, default=3072)
    args, (_, _, count) = parsed(cli)
    report = head("sft_mixture", packages=("tokenizers",))
    mixture = sft_mixture(
        {},
        unjudged=True,
        total=args.total,
        functions=UNVERIFIED,
        drafts=mixture_drafts(args.total),
        fits=lambda code: count(code) <= ANSWER_TOKENS["v3"],
    )
    found = mixture.statistics()
    print(found.table())
    examples = mixture.examples()
    answers = [count(render_answer(example)) for example in examples]
    prompts = [
        sum(count(m.content) for m in messages_for_example(example, "v3")) for example in examples
    ]
    whole = [a + p for a, p in zip(answers, prompts, strict=True)]
    kept = [n for n in whole if n <= args.max_length]
    figures: dict[str, Any] = {
        "statistics": found.model_dump(),
        "tokens": {
            "answers": told(answers), "prompts": told(prompts), "examples": told(whole),
            "all": sum(whole), "share_of_answers": round(sum(answers) / sum(whole), 3),
        },
        "left_out_by_max_length": len(whole) - len(kept),
        "batches": {str(size): batches(kept, size) for size in (8, 16)},
    }  # fmt: skip
    waste = figures["batches"]["8"]["padded_by_length"]
    short = [n for n, p in found.parts.items() if p.found < p.wanted and n != "own mistakes"]
    bars = [
        bar("parts that lack material, own mistakes aside", 0, len(short), not short),
        at_most("share of padding in batches of 8 by length", MOST_PADDED, waste),
    ]
    return 0 if finish({**report, "bars": bars, **figures}) else 1


if __name__ == "__main__":
    sys.exit(main())

"""How long the kernels of module tasks are, in the tokens of a model.

    python benchmarks/module_tokens.py TOKENIZER [--tasks 300]

TOKENIZER: a folder with a tokenizer.json, or that file. The tasks are of all families in turn. An
answer is the kernel alone; a prompt is that of v3. Writes benchmarks/results/module_tokens.json.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from bench_io import at_most, finish, head
from module_judging import drafts
from token_lengths import parsed, told

from coding_framework.agents.prompts import ANSWER_TOKENS, build_messages
from coding_framework.data.modules.kernels import kernels_of
from coding_framework.data.modules.kernels.products import Product, short
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.modules.writing import write_module
from coding_framework.types import CUDAConversationState, Role, Task

Count = Callable[[str], int]
_LONGER = 2560
"""Tokens of an answer in the second experiment of `experiments/learning`."""
_BAR = 1300
"""Tokens of a product on tensor cores with an elementwise operation after it."""


def prompt_tokens(task: Task, count: Count) -> int:
    """Of the generator's first prompt, without the chat template."""
    state = CUDAConversationState(conversation_id="tokens", task=task)
    messages = build_messages(state, Role.GENERATOR, version="v3")
    return sum(count(message.content) for message in messages)


def of_kernels(found: list[int]) -> dict[str, Any]:
    return {
        "kernels": len(found),
        **told(found),
        "within_an_answer": round(sum(n <= ANSWER_TOKENS["v3"] for n in found) / len(found), 3),
        f"within_{_LONGER}": round(sum(n <= _LONGER for n in found) / len(found), 3),
    }


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    cli.add_argument("--tasks", type=int, default=300)
    args, (path, tokenizer, count) = parsed(cli)
    report = head("module_tokens", packages=("tokenizers",))
    lengths: dict[str, list[int]] = defaultdict(list)
    prompts: list[int] = []
    for draft in drafts(args.tasks):
        module = write_module(draft)
        prompts.append(prompt_tokens(module_task(module), count))
        for variant in kernels_of(module):
            lengths[f"tasks of level {draft.level}, kernels of level {variant.level}"].append(
                count(variant.source)
            )
    forms = {
        f"{'x' if x else 'x.T'} @ {'u.T' if u else 'u'}": count(
            short(Product(x, u, post=("a = fmaxf(a, 0.0f);",)))
        )
        for x in (True, False)
        for u in (True, False)
    }
    bars = [at_most("tokens of a short product with relu, most of its forms", _BAR,
                    max(forms.values()))]  # fmt: skip
    figures = {
        "vocabulary_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "vocabulary": tokenizer.get_vocab_size(),
        "short_products": forms,
        "prompts": of_kernels(prompts),
        "kernels": {name: of_kernels(found) for name, found in sorted(lengths.items())},
    }
    return 0 if finish({**report, "bars": bars, **figures}) else 1


if __name__ == "__main__":
    sys.exit(main())

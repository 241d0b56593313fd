"""How many tokens of a model texts have: its tokenizer by a path, and the spread of counts."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer


class Counter(NamedTuple):
    """A tokenizer that is there."""

    path: Path
    tokenizer: Tokenizer
    count: Callable[[str], int]
    """Tokens of a text, without special ones."""


def parsed(cli: argparse.ArgumentParser) -> tuple[argparse.Namespace, Counter]:
    """The command line with the tokenizer it names: its file, or a folder that has it. Ends the
    program with status 2 where it is missing."""
    cli.add_argument("tokenizer", type=Path)
    args = cli.parse_args()
    path = args.tokenizer / "tokenizer.json" if args.tokenizer.is_dir() else args.tokenizer
    if not path.exists():
        print(f"there is no {path}: give a model's folder with its tokenizer", file=sys.stderr)
        sys.exit(2)
    tokenizer = Tokenizer.from_file(str(path))
    count = lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)  # noqa: E731
    return args, Counter(path, tokenizer, count)


def told(lengths: Sequence[int]) -> dict[str, float]:
    """Of token counts."""
    ordered = sorted(lengths)
    return {
        "median": statistics.median(ordered),
        "p90": ordered[int(0.9 * len(ordered))],
        "most": ordered[-1],
    }

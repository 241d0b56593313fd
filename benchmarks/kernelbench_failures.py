"""Failures of a model's answers to KernelBench that need no verdict, by kind.

    cuda-rl eval MODEL --suite kernelbench:1 --suite kernelbench:2 --kernelbench-dir DIR \
        --ask-only --prompts v3 --temperature 0.2 --output-dir RUN
    kernelbench_failures.py RUN [--policy TEXT]

No answer is run: whether the kernels are right or fast is looked at once, by `cuda-rl eval`. An
answer asks for what nobody hands it where its `forward` has more parameters than the prompt's call,
or some of the numbers, which may be left out only all together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_io import at_most, bar, finish, head

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.data.modelnew import arguments_of_forward
from coding_framework.errors import UsageError
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import read_lines

MOST_UNHANDED = 0.02
BASE_COMPILES = 0.58
"""Share of the base model's answers, as it was measured before prompts v3."""
_CALL = re.compile(r"It is called as forward\((?P<given>.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is asked of a call and what the answer's `forward` takes."""

    problem: str
    code: str
    cut: bool
    tensors: int
    numbers: int
    takes: int | None
    """Parameters of its `forward`; None: none was found."""

    @property
    def unhanded(self) -> bool:
        """Whether it asks for what nobody hands it."""
        fits = (self.tensors, self.tensors + self.numbers)
        return self.takes is not None and self.takes not in fits and self.takes > self.tensors

    @property
    def too_few(self) -> bool:
        return self.takes is not None and self.takes < self.tensors


def split_list(text: str) -> list[str]:
    """Parts between commas that stand in no bracket."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [part.strip() for part in (*parts, text[begin:]) if part.strip()]


def handed(prompt: str) -> tuple[int, int]:
    """(tensors, numbers) of the call that the prompt states."""
    found = _CALL.search(prompt)
    if found is None:
        raise SystemExit(f"a prompt states no call: ask with --prompts v3: {prompt[:200]!r}")
    parts = split_list(_whole(found["given"]))
    tensors = sum("Tensor" in part for part in parts)
    return tensors, len(parts) - tensors


def _whole(text: str) -> str:
    """Up to the bracket that closes the call."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return text[:place]
    return text


def taken(code: str) -> int | None:
    """Parameters of the function that is bound as `forward`; None where none is found."""
    try:
        return arguments_of_forward(code)
    except UsageError:
        return None


def answers(run: Path) -> Iterator[Answer]:
    for row in map(json.loads, read_lines(EvalFolder(run).answers)):
        if not isinstance(said := row["answer"], Mapping):
            continue
        tensors, numbers = handed(said["messages"][-1]["content"])
        code = said["extraction"]["code"] or ""
        yield Answer(
            problem=row["key"].split(" ", 1)[1].partition("/")[0],
            code=code,
            cut=said["generation"]["finish_reason"] == "length",
            tensors=tensors,
            numbers=numbers,
            takes=taken(code),
        )


async def compiled(found: Sequence[Answer]) -> list[bool]:
    compiler = CUDACompiler()

    async def one(answer: Answer) -> bool:
        return bool(answer.code) and (await compiler.compile_kernel(answer.code)).success

    return list(await asyncio.gather(*map(one, found)))


def counts(found: Sequence[Answer], compiles: Sequence[bool]) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    for answer, compiled_ in zip(found, compiles, strict=True):
        kinds["cut"] += answer.cut
        kinds["no code"] += not answer.code
        kinds["asks for what nobody hands it"] += answer.unhanded
        kinds["takes too few tensors"] += answer.too_few
        kinds["no forward found"] += bool(answer.code) and answer.takes is None
        kinds["does not compile"] += bool(answer.code) and not compiled_
    return {"answers": len(found), "compile": sum(compiles), "failures": dict(kinds)}


def main() -> int:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("run", type=Path)
    cli.add_argument("--policy", default="", help="which policy answered, in words")
    cli.add_argument("--output", type=Path, help="default: in benchmarks/results")
    args = cli.parse_args()
    found = list(answers(args.run))
    compiles = asyncio.run(compiled(found))
    told = counts(found, compiles)
    share = told["failures"]["asks for what nobody hands it"] / len(found)
    works = told["compile"] / len(found)
    report = {
        **head("kernelbench_failures"),
        "policy": args.policy,
        "run": json.loads(EvalFolder(args.run).manifest.read_text()),
        "bars": [
            at_most("share of answers that ask for what nobody hands them", MOST_UNHANDED, share),
            bar("share that compiles, at least", BASE_COMPILES, works, works >= BASE_COMPILES),
        ],
        **told,
        "unhanded": sorted(a.problem for a in found if a.unhanded),
    }
    print(json.dumps(told, indent=1))
    finish(report, args.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

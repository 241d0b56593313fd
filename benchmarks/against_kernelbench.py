"""The same answers judged by us and by KernelBench's own evaluator, and why the two disagree.

    python benchmarks/against_kernelbench.py --kernelbench DIR [--modules N] [--minutes M]
        [--full-float32]

DIR is a checkout of KernelBench, which the user brings; its evaluator runs as it is, outside any
sandbox, on answers of ours alone. It needs one GPU, PyTorch, nvcc and ninja.

What takes time is PyTorch's `load_inline`, a minute of one core for each extension. All cores build
extensions (a build of KernelBench's own kind: the answer is executed, `load_inline` leaves its
library in TORCH_EXTENSIONS_DIR); each answer goes to their evaluator when its extension is there,
while others are still built, and our judge works beside them. Both compilers are handed PyTorch's
headers without those that no kernel of ours needs (`light`): the same declarations, with PyTorch's
own header for each operator; what does not compile with them is compiled with all.

At --minutes it ends with what it has; the same command goes on, also on another machine that has
--work (rows) but not --extensions. --part does one part alone.

The answers are made of our kernels for tasks of training, as classes `ModelNew`: *honest* ones;
*broken* ones; *torch*, in which PyTorch computes; *special*, right for the published size alone;
*stale*, which compute only the first calls and then give an old result again. *module*: the fastest
kernel of each of N module tasks, as `cuda-rl export-modelnew` writes it, at real sizes. Each
disagreement is put into one of KernelBench's and our differences by what the verdict says; what is
left is `unexplained`, of which the bar allows none. --full-float32: PyTorch uses no TF32 in their
evaluator (NVIDIA_TF32_OVERRIDE=0; their program is as it is). As PyTorch is set, their reference of
a convolution has errors above their tolerance.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from bench_io import ROOT, bar, finish, head
from module_judging import drafts

from coding_framework.data.examples import training_tasks
from coding_framework.data.modelnew import export_modelnew
from coding_framework.data.modules.examples import module_kernels
from coding_framework.data.modules.writing import write_module
from coding_framework.data.synthesis import catalog
from coding_framework.data.synthesis.faults import break_in_many_ways
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.evaluation.second_opinion import ASKED, THEIRS, Asked
from coding_framework.monitoring.progress import Progress
from coding_framework.store.lines import JsonlSink, parsed_lines
from coding_framework.types import Task, Verdict
from coding_framework.wiring import make_judge

PARTS = ("build", "theirs", "ours", "report")
ANSWERS, TASKS, TRIALS = 200, 34, 5
"""At least so many answers are compared; theirs tries so many inputs."""
MODULES, AGREED = 100, 0.98
"""So many correct kernels of module tasks, on this share of which the two must agree."""
BUILD_S, ANSWER_S = 900, 240
"""A process that takes longer is ended."""
FAULTS_OF_A_TASK = 3
FP32_TOLERANCE = 1e-4
"""KernelBench's, absolute and relative."""
INTEGERS = "integer inputs: theirs makes floats of them, and its reference fails"
MEMORY_FAULTS = ("illegal", "out of bounds", "outside", "past the end")
"""Words of the verdicts on accesses outside an array."""
CALLS_THAT_COUNT = 6
"""A stale answer computes so many: more than theirs tries."""
BUILD = (
    ASKED
    + """
import torch.utils.cpp_extension
os.nice(10)
def build(asked):
    try:
        exec(compile(asked["answer"], "answer", "exec"), {"__name__": "answer"})
    except Exception as e:
        return {"built": False, "why": str(e)[-600:]}
    return {"built": True}
serve(build)
"""
)
LIGHT = {
    "torch/types.h": """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
namespace torch {
using namespace at;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
}
""",
    "torch/extension.h": """
#include <torch/types.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
""",
}
"""PyTorch's headers without what our kernels do not use, by name."""
LIGHT_FIRST = """#!/bin/sh
case " $* " in
*" -c "*) {compiler} -DAT_PER_OPERATOR_HEADERS -I{light} "$@" 2>/dev/null && exit 0 ;;
esac
exec {compiler} "$@"
"""


@dataclass(frozen=True)
class Answer:
    """One answer to one problem, and what it is."""

    name: str
    kind: str
    task: Task
    code: str
    stated: str = ""
    """The problem as KernelBench states it, where the task came from one."""

    @property
    def extension(self) -> str:
        """The name of what `load_inline` builds for it."""
        found = re.search(r'load_inline\(\s*name="(\w+)"', self.code)
        assert found is not None, "each answer has an extension"
        return found[1]


# --- the answers ----------------------------------------------------------------------------------


def made_answers(count: int = TASKS) -> Iterator[Answer]:
    """Of the first tasks of training that KernelBench's form of a problem can state."""
    for task in training_tasks(count):
        kernels = catalog.kernels_of(task.name)
        for kernel in kernels[:3]:
            yield Answer(f"{task.name}/{kernel.level}", "honest", task, model_new(kernel.code))
        first = kernels[0].code
        for broken in break_in_many_ways(first, len(task.name), FAULTS_OF_A_TASK):
            if broken.fault != "missing_include":  # load_inline writes it
                name = f"{task.name}/{broken.fault}"
                yield Answer(name, "broken", task, model_new(broken.code))
        for kind in ("special", "stale"):
            yield Answer(f"{task.name}/{kind}", kind, task, model_new(first, _TURNS[kind](task)))
        yield Answer(f"{task.name}/torch", "torch", task, _in_torch(task, first))


def module_answers(count: int) -> Iterator[Answer]:
    """The fastest kernel of each of so many module tasks, the families in turn."""

    def exported() -> Iterator[Answer]:
        for draft in drafts(None) if count else ():
            task, kernels = module_kernels(draft)
            try:
                code = export_modelnew(kernels[-1].code, task)
            except UsageError:
                continue
            name = f"{task.name}/{kernels[-1].level}"
            yield Answer(name, "module", task, code, write_module(draft).source)

    return islice(exported(), count)


def by_extension(answers: Iterable[Answer]) -> list[list[Answer]]:
    """Answers of one extension together: those of functions and of modules in turn, first the
    extensions of which most answers are made."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        groups[answer.extension].append(answer)
    ordered = sorted(groups.values(), key=len, reverse=True)
    modules = [group for group in ordered if group[0].kind == "module"]
    functions = [group for group in ordered if group[0].kind != "module"]
    both = zip_longest(functions, modules, fillvalue=())
    return [list(group) for pair in both for group in pair if group]


def model_new(code: str, body: str = "return extension.forward(*tensors)") -> str:
    """An extension of ours as KernelBench's answer, compiled by `load_inline`."""
    source = re.sub(r"PYBIND11_MODULE\(.*", "", code, flags=re.DOTALL)
    declared = re.search(r"torch::Tensor forward\([^)]*\)", source)
    assert declared is not None, "our kernels define forward"
    name = "answer_" + hashlib.sha256(source.encode()).hexdigest()[:16]
    return _ANSWER.format(name=name, source=source, declared=declared.group(), body=body)


_ANSWER = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
{source}
"""
extension = load_inline(
    name="{name}", cpp_sources="{declared};", cuda_sources=source, functions=["forward"]
)


class ModelNew(nn.Module):
    def forward(self, *tensors):
        {body}
'''


def published(task: Task) -> tuple[tuple[int, ...], ...]:
    """The shapes of the problem as KernelBench has it."""
    return tuple(spec.shape for spec in task.gpu_cases[0].inputs)


def _special(task: Task) -> str:
    return (
        f"if tuple(tensors[0].shape) != {published(task)[0]}:\n"
        "            return torch.zeros_like(tensors[0])\n"
        "        return extension.forward(*tensors)"
    )


def _stale(task: Task) -> str:
    return (
        "self.calls = getattr(self, 'calls', 0) + 1\n"
        f"        if self.calls <= {CALLS_THAT_COUNT}:\n"
        "            self.kept = extension.forward(*tensors)\n"
        "        return self.kept"
    )


_TURNS = {"special": _special, "stale": _stale}


def _in_torch(task: Task, code: str) -> str:
    """The kernel is compiled and stands there; PyTorch computes."""
    own = task.reference.replace("class Model(", "class ModelNew(")
    made = model_new(code)
    return made[: made.index("class ModelNew")] + own


def problem(answer: Answer) -> str:
    """The answer's task as KernelBench states one."""
    if answer.stated:
        return answer.stated
    task, inputs = answer.task, []
    for spec in task.gpu_cases[0].inputs:
        low, high = spec.low, spec.high
        drawn = f"torch.randn({list(spec.shape)})"
        if low is not None and high is not None:
            drawn = f"torch.rand({list(spec.shape)}) * {high - low!r} + {low!r}"
        inputs.append(drawn)
    return (
        f"{task.reference}\n\ndef get_inputs():\n    return [{', '.join(inputs)}]\n\n\n"
        f"def get_init_inputs():\n    return {list(task.init_args)!r}\n"
    )


# --- the two judgements ---------------------------------------------------------------------------


def compilers(folder: Path) -> dict[str, str]:
    """The environment in which PyTorch finds compilers that are handed the light headers first."""
    from torch.utils.cpp_extension import CUDA_HOME, get_cxx_compiler

    if CUDA_HOME is None:
        raise UsageError("PyTorch finds no CUDA toolkit: set CUDA_HOME to its folder")
    for name, text in LIGHT.items():
        path = folder / "light" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#pragma once\n{text}")
    wrapped = {"nvcc": str(Path(CUDA_HOME) / "bin" / "nvcc"), "c++": get_cxx_compiler()}
    light = shlex.quote(str(folder / "light"))
    for name, compiler in wrapped.items():
        script = folder / name
        script.write_text(LIGHT_FIRST.format(compiler=shlex.quote(compiler), light=light))
        script.chmod(0o755)
    return {"PYTORCH_NVCC": str(folder / "nvcc"), "CXX": str(folder / "c++")}


class Comparison:
    """Builds and their judgement, side by side: an answer is judged when its extension is there.

    Guaranteed: it ends at its deadline, with the processes that it started; a row is of a judgement
    that ended by itself or took longer than its limit, never of one that the deadline cut.
    """

    def __init__(self, args: argparse.Namespace, answers: Sequence[Answer]) -> None:
        args.extensions.mkdir(parents=True, exist_ok=True)
        for lock in args.extensions.glob("*/lock"):
            lock.unlink()  # of a build that was ended: `load_inline` would wait for it
        self._args, self._deadline = args, time.monotonic() + 60 * args.minutes
        self._environment = {
            **os.environ, **compilers(args.extensions.absolute()), "MAX_JOBS": "1",
            "TORCH_EXTENSIONS_DIR": str(args.extensions.absolute()),
            **({"NVIDIA_TF32_OVERRIDE": "0"} if args.full_float32 else {}),
        }  # fmt: skip
        self._rows = JsonlSink(args.work / "theirs.jsonl")
        self._builds = JsonlSink(args.work / "build.jsonl")
        left = [a for a in answers if a.name not in rows_of(args.work / "theirs.jsonl")]
        self._fault: Exception | None = None
        self._to_build: queue.SimpleQueue[list[Answer] | None] = queue.SimpleQueue()
        self._to_judge: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        groups = by_extension(left)
        for group in groups:
            self._to_build.put(group)
        self._built = Progress("built", len(groups), "extensions")
        self._judged = Progress("theirs", len(left), "answers")

    def run(self, *, judge: bool) -> None:
        """judge: else it only builds."""
        builders = [self._thread(self._build) for _ in range(builders_at_once())]
        judges = [self._thread(self._judge) for _ in range(self._args.theirs * judge)]
        with self._built, self._judged:
            for thread in (*builders, *judges):
                thread.start()
            for _ in builders:
                self._to_build.put(None)
            for thread in builders:
                thread.join()
            for _ in judges:
                self._to_judge.put(None)
            for thread in judges:
                thread.join()
        self._rows.close()
        self._builds.close()
        if self._fault is not None:
            raise self._fault

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        """Its fault ends the others too."""

        def guarded() -> None:
            try:
                work()
            except Exception as e:
                self._fault, self._deadline = e, 0.0

        return threading.Thread(target=guarded)

    def _left_s(self) -> float:
        return self._deadline - time.monotonic()

    def _build(self) -> None:
        builder = Asked(BUILD, "", self._environment)
        while (group := self._to_build.get()) is not None and self._left_s() > 0:
            first = group[0]
            if not (self._args.extensions / first.extension / f"{first.extension}.so").exists():
                found = builder(min(BUILD_S, self._left_s()), answer=first.code)
                if self._left_s() <= 0:
                    break
                row = found or {"built": False, "why": "its process ended", "s": None}
                self._builds.write({"name": first.extension, **row})
            self._built.advance()
            for answer in group:
                self._to_judge.put(answer)
        builder.close()

    def _judge(self) -> None:
        theirs = Asked(THEIRS, str(self._args.kernelbench.absolute()), self._environment)
        while (answer := self._to_judge.get()) is not None and self._left_s() > 0:
            limit = min(ANSWER_S, self._left_s())
            found = theirs(limit, problem=problem(answer), answer=answer.code, trials=TRIALS)
            if self._left_s() <= 0:
                break
            row = found or {"compiled": False, "correctness": False, "s": limit,
                            "why": "their process ended"}  # fmt: skip
            self._rows.write({"name": answer.name, **row})
            self._judged.advance()
            if not row["correctness"]:
                theirs.close()  # the answer may have broken its context
        theirs.close()


def builders_at_once() -> int:
    """A build takes a core and at most 3 GB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (4 << 30)
    return int(max(1, min(len(os.sched_getaffinity(0)), memory)))


async def judge_ours(answers: Sequence[Answer], sink: JsonlSink, args: argparse.Namespace) -> None:
    pool = make_judge(args.backend, workers=args.workers, baselines="none")
    deadline = time.monotonic() + 60 * args.minutes
    limit = asyncio.Semaphore(2 * args.workers)
    with Progress("ours", len(answers), "answers") as progress:

        async def one(answer: Answer) -> None:
            async with limit:
                if time.monotonic() > deadline:
                    return
                begun = time.monotonic()
                try:
                    row = of_verdict(await pool(answer.task, answer.code))
                except InfrastructureError as e:
                    row = {"status": "fault", "reason": str(e)[:300]}
            sink.write({"name": answer.name, **row, "s": time.monotonic() - begun})
            progress.advance()

        try:
            await asyncio.gather(*map(one, answers))
        finally:
            pool.close()


def of_verdict(verdict: Verdict) -> dict[str, Any]:
    """What an explanation may need of a verdict."""
    failed = next((test for test in verdict.tests if not test.passed), None)
    row: dict[str, Any] = {"status": verdict.status.value, "reason": verdict.reason[:300]}
    if failed is not None:
        row |= {"failed_shapes": failed.shapes, "max_abs_error": failed.max_abs_error}
    return row


def explanation(answer: Answer, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Why the two disagree; "" where they agree. By the verdict first, by what the answer was made
    to be only where the verdict says that it is wrong."""
    accepted, status = bool(theirs["correctness"]), str(ours["status"])
    if accepted == (status == "correct"):
        return ""
    if status in ("fault", "unsupported"):
        return status
    if not accepted:
        inputs = answer.task.gpu_cases[0].inputs
        if any(spec.dtype.startswith("int") for spec in inputs):
            return INTEGERS
        near = "Output mismatch" in str(theirs["why"])
        computes = answer.kind in ("honest", "module", "stale")
        return "tolerance: ours is wider" if near and computes else "unexplained"
    if status == "rejected":
        return "torch computes a part" if answer.kind == "torch" else "unexplained"
    if status == "cheating" or answer.kind == "stale":
        return "cheating: right for the calls that theirs makes"
    reason = str(ours["reason"])
    if status == "runtime_error" and any(word in reason for word in MEMORY_FAULTS):
        return "memory: an access outside an array, for which theirs does not look"
    shapes = [tuple(shape) for shape in ours.get("failed_shapes") or ()]
    if answer.kind != "module" and shapes and shapes != list(published(answer.task)):
        return "shape-special: right for the published size alone"
    if "got nan" in reason:
        return "memory: an element that is never written, where theirs finds an earlier result"
    error = ours.get("max_abs_error")
    if error is not None and error <= FP32_TOLERANCE:
        return "tolerance: theirs is wider"
    return "unexplained"


# --- parts ----------------------------------------------------------------------------------------


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in parsed_lines(path, json.loads)}


def report(args: argparse.Namespace, answers: Sequence[Answer]) -> bool:
    theirs, ours = rows_of(args.work / "theirs.jsonl"), rows_of(args.work / "ours.jsonl")
    both = [answer for answer in answers if answer.name in theirs and answer.name in ours]
    rows = []
    for answer in both:
        one, other = theirs[answer.name], ours[answer.name]
        why = explanation(answer, one, other)
        rows.append({"name": answer.name, "kind": answer.kind, "theirs": one["correctness"],
                     "ours": other["status"], "why": why})  # fmt: skip
    table = Counter(
        f"{r['kind']}: theirs {'accepts' if r['theirs'] else 'rejects'}, ours {r['ours']}"
        for r in rows
    )
    for cell, count in sorted(table.items()):
        print(f"{count:5}  {cell}")
    whys = Counter(row["why"] for row in rows if row["why"])
    left = [row for row in rows if row["why"] == "unexplained"]
    bars = [bar("disagreements without an explanation", 0, len(left), not left)]
    if args.tasks:
        enough = len(rows) >= ANSWERS
        bars.append(bar("answers judged by both, at least", ANSWERS, len(rows), enough))
    modules = [r for r in rows if r["kind"] == "module" and r["ours"] == "correct"]
    if args.modules:
        floats = [r for r in modules if r["why"] != INTEGERS]
        agreed, of_floats = (
            sum(bool(r["theirs"]) for r in found) / max(1, len(found))
            for found in (modules, floats)
        )
        bars += [
            bar("exported module kernels that we call correct, at least", MODULES, len(modules),
                len(modules) >= MODULES),
            bar("of these, theirs accepts", AGREED, agreed, agreed >= AGREED),
            bar("of those without integer inputs, theirs accepts", AGREED, of_floats,
                of_floats >= AGREED),
        ]  # fmt: skip
    seconds = {
        name: round(sum(found[a.name]["s"] for a in both), 1)
        for name, found in (("theirs", theirs), ("ours", ours))
    }
    top = head("against_kernelbench", packages=("torch",))
    body = {"table": dict(sorted(table.items())), "explained": dict(whys), "seconds": seconds,
            "full_float32": args.full_float32}  # fmt: skip
    return finish({**top, "bars": bars, **body, "rows": rows}, args.output)


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--kernelbench", type=Path, required=True, help="a checkout of KernelBench")
    cli.add_argument("--part", choices=list(PARTS), help="one part (default: all)")
    cli.add_argument("--tasks", type=int, default=TASKS)
    cli.add_argument("--modules", type=int, default=0, help="so many exported module kernels")
    cli.add_argument("--full-float32", action="store_true", help="no TF32 in their reference")
    cli.add_argument("--theirs", type=int, default=4, help="processes of their evaluator (4)")
    cli.add_argument("--workers", type=int, default=6, help="of our judge (6)")
    cli.add_argument("--backend", choices=["cuda", "emulator"], default="cuda")
    cli.add_argument("--minutes", type=float, default=9.0)
    cli.add_argument("--work", type=Path, default=ROOT / "runs" / "against_kernelbench")
    cli.add_argument(
        "--extensions", type=Path, default=Path(tempfile.gettempdir()) / "against_kernelbench",
        help="what load_inline builds, kept for the next run on this machine",
    )  # fmt: skip
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    if args.part in (None, "build", "theirs") and shutil.which("ninja") is None:
        cli.error("load_inline needs ninja, which is not on PATH: pip install ninja")
    args.work.mkdir(parents=True, exist_ok=True)
    answers = [*made_answers(args.tasks), *module_answers(args.modules)]
    if args.part == "ours":
        left = [a for group in by_extension(answers) for a in group
                if a.name not in rows_of(args.work / "ours.jsonl")]  # fmt: skip
        with JsonlSink(args.work / "ours.jsonl") as sink:
            asyncio.run(judge_ours(left, sink, args))
    elif args.part in ("build", "theirs"):
        Comparison(args, answers).run(judge=args.part == "theirs")
    elif args.part is None:
        ours = subprocess.Popen([sys.executable, *sys.argv, "--part", "ours"])
        try:
            Comparison(args, answers).run(judge=True)
            ours.wait()
        finally:
            ours.terminate()
    return 0 if args.part not in (None, "report") or report(args, answers) else 1


if __name__ == "__main__":
    sys.exit(main())

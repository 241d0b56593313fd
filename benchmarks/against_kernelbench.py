"""The same answers judged by us and by KernelBench's own evaluator, and why the two disagree.

    python benchmarks/against_kernelbench.py --kernelbench DIR [--part PART] [--output FILE]

DIR is a checkout of KernelBench, which the user brings; its evaluator runs as it is, outside any
sandbox, on answers of ours alone. It needs one GPU, PyTorch, nvcc and ninja. build: compiles the
answers with PyTorch's `load_inline`, as KernelBench does, without a GPU. theirs, ours: the two
judgements. report: the table. Without --part all of them, one after the other. Each goes on where
it was stopped (--minutes); rows are kept in runs/against_kernelbench.

The answers are made of our kernels for tasks of training, as classes `ModelNew`: *honest* ones;
*broken* ones; *torch*, in which PyTorch computes; *special*, right for the published size alone;
*stale*, which compute only the first calls and then give an old result again. Each disagreement is
put into one of KernelBench's and our differences by what the verdict says; what is left is
`unexplained`, of which the bar allows none.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_io import ROOT, bar, finish, head

from coding_framework.data.examples import training_tasks
from coding_framework.data.synthesis import catalog
from coding_framework.data.synthesis.faults import break_in_many_ways
from coding_framework.errors import InfrastructureError
from coding_framework.monitoring.progress import Progress
from coding_framework.store.lines import JsonlSink, parsed_lines
from coding_framework.types import Task, Verdict
from coding_framework.wiring import make_judge

PARTS = ("build", "theirs", "ours", "report")
ANSWERS, TASKS, TRIALS = 200, 34, 5
"""At least so many answers are compared; theirs tries so many inputs."""
FAULTS_OF_A_TASK = 3
FP32_TOLERANCE = 1e-4
"""KernelBench's, absolute and relative."""
MEMORY_FAULTS = ("illegal", "out of bounds", "outside", "past the end")
"""Words of the verdicts on accesses outside an array."""
CALLS_THAT_COUNT = 6
"""A stale answer computes so many: more than theirs tries."""
STUBS = """
import sys, types, importlib.util
def attribute(name):
    if name.startswith("__"):  # inspect asks every module for its __file__
        raise AttributeError(name)
    return lambda *a, **k: None
for name in ("dotenv", "openai", "litellm", "requests", "datasets", "tqdm", "pydra"):
    if importlib.util.find_spec(name) is None:
        stub = sys.modules[name] = types.ModuleType(name)
        stub.__getattr__ = attribute
"""
BUILD = STUBS + "exec(compile(sys.stdin.read(), 'answer', 'exec'), {'__name__': 'answer'})\n"
THEIRS = (
    STUBS
    + """
import json, os, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path.insert(0, sys.argv[1] + "/src")
import torch
from kernelbench.eval import eval_kernel_against_ref
print("ready", file=answers, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    begun = time.monotonic()
    found = eval_kernel_against_ref(
        asked["problem"], asked["answer"], num_correct_trials=asked["trials"],
        measure_performance=False, device=torch.device("cuda:0"),
    )
    said = {"compiled": False, "correctness": False, "why": "no result"}
    if found is not None:
        said = {"compiled": found.compiled, "correctness": found.correctness,
                "why": str({k: str(v)[:300] for k, v in found.metadata.items()})}
    print(json.dumps({**said, "s": time.monotonic() - begun}), file=answers, flush=True)
"""
)


@dataclass(frozen=True)
class Answer:
    """One answer to one problem, and what it is."""

    name: str
    kind: str
    task: Task
    code: str


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


def problem(task: Task) -> str:
    """The task as KernelBench states one."""
    inputs = []
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


def build(answer: Answer, environment: Mapping[str, str]) -> dict[str, Any]:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", BUILD], input=answer.code, text=True, capture_output=True,
        env=dict(environment), timeout=600, check=False,
    )  # fmt: skip
    said = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    return {"built": done.returncode == 0, "why": said, "s": time.monotonic() - begun}


class Theirs:
    """Their evaluator in a process, begun anew after an answer that may have broken its context."""

    def __init__(self, checkout: Path, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-c", THEIRS, str(checkout)]
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None

    def judge(self, answer: Answer) -> dict[str, Any]:
        process = self._started()
        asked = {"problem": problem(answer.task), "answer": answer.code, "trials": TRIALS}
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.close()
            return {"compiled": False, "correctness": False, "why": "their process ended", "s": 0.0}
        found: dict[str, Any] = json.loads(line)
        if not found["correctness"]:
            self.close()
        return found

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == "ready\n", "their evaluator did not begin"
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None


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
        near = "Output mismatch" in str(theirs["why"])
        return "tolerance: ours is wider" if near and answer.kind == "honest" else "unexplained"
    if status == "rejected":
        return "torch computes a part" if answer.kind == "torch" else "unexplained"
    if status == "cheating" or answer.kind == "stale":
        return "cheating: right for the calls that theirs makes"
    reason = str(ours["reason"])
    if status == "runtime_error" and any(word in reason for word in MEMORY_FAULTS):
        return "memory: an access outside an array, for which theirs does not look"
    shapes = [tuple(shape) for shape in ours.get("failed_shapes") or ()]
    if shapes and shapes != list(published(answer.task)):
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


def in_threads(label: str, answers: Sequence[Answer], path: Path, args: Any, work: Any) -> None:
    """`work(answer)` for each, so many at once, as far as the minutes go."""
    deadline = time.monotonic() + 60 * args.minutes
    with (
        JsonlSink(path) as sink,
        Progress(label, len(answers), "answers") as progress,
        ThreadPoolExecutor(args.workers) as threads,
    ):

        def one(answer: Answer) -> None:
            if time.monotonic() < deadline:
                sink.write({"name": answer.name, **work(answer)})
                progress.advance()

        list(threads.map(one, answers))


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
    bars = [
        bar("answers judged by both, at least", ANSWERS, len(rows), len(rows) >= ANSWERS),
        bar("disagreements without an explanation", 0, len(left), not left),
    ]
    seconds = {
        name: round(sum(found[a.name]["s"] for a in both), 1)
        for name, found in (("theirs", theirs), ("ours", ours))
    }
    top = head("against_kernelbench", packages=("torch",))
    body = {"table": dict(sorted(table.items())), "explained": dict(whys), "seconds": seconds}
    return finish({**top, "bars": bars, **body, "rows": rows}, args.output)


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--kernelbench", type=Path, required=True, help="a checkout of KernelBench")
    cli.add_argument("--part", choices=list(PARTS), help="one part (default: all)")
    cli.add_argument("--tasks", type=int, default=TASKS)
    cli.add_argument("--workers", type=int, help="at once in each part (default: by the machine)")
    cli.add_argument("--backend", choices=["cuda", "emulator"], default="cuda")
    cli.add_argument("--minutes", type=float, default=9.0)
    cli.add_argument("--work", type=Path, default=ROOT / "runs" / "against_kernelbench")
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    if args.part in (None, "build") and shutil.which("ninja") is None:
        cli.error("load_inline needs ninja, which is not on PATH: pip install ninja")
    args.work.mkdir(parents=True, exist_ok=True)
    answers = list(made_answers(args.tasks))
    for part in [args.part] if args.part else PARTS:
        if part == "report":
            return 0 if report(args, answers) else 1
        work(part, answers, argparse.Namespace(**{**vars(args), "workers": workers(part, args)}))
    return 0


def workers(part: str, args: argparse.Namespace) -> int:
    """As many as the user says; else: a build takes a core and 3 GB, two judges share a GPU."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (4 << 30)
    return int(args.workers or max(1, {"build": min(cores, memory), "theirs": 3}.get(part, 6)))


def work(part: str, answers: Sequence[Answer], args: argparse.Namespace) -> None:
    """What is left of a part, as far as its minutes go."""
    path = args.work / f"{part}.jsonl"
    left = [answer for answer in answers if answer.name not in rows_of(path)]
    extensions = (args.work / "extensions").absolute()
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(extensions), "MAX_JOBS": "1"}
    if part == "build":
        # equal sources are one extension: the first answer of each builds it
        first = {answer.code.split("class ModelNew")[0]: answer for answer in reversed(left)}
        in_threads(part, list(first.values()), path, args, lambda a: build(a, environment))
    elif part == "theirs":
        shares = [left[i :: args.workers] for i in range(args.workers)]
        with ThreadPoolExecutor(args.workers) as threads:
            list(threads.map(lambda share: _theirs(share, path, args, environment), shares))
    else:
        with JsonlSink(path) as sink:
            asyncio.run(judge_ours(left, sink, args))


def _theirs(
    answers: Sequence[Answer], path: Path, args: argparse.Namespace, environment: Mapping[str, str]
) -> None:
    """One process of theirs for a part of the answers."""
    one_at_a_time = argparse.Namespace(workers=1, minutes=args.minutes)
    theirs = Theirs(args.kernelbench.absolute(), environment)
    try:
        in_threads("theirs", answers, path, one_at_a_time, theirs.judge)
    finally:
        theirs.close()


if __name__ == "__main__":
    sys.exit(main())

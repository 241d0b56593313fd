"""What KernelBench's own evaluator says of an evaluation's kernels (`--second-opinion CHECKOUT`).

It runs as it is, outside any sandbox and on this machine's GPU, in a process of its own that is
begun anew after each answer which it does not accept: that answer may have broken its context. An
opinion is durable when it is there. Only correctness is asked for; times are our judge's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.suites import EvalSuite, kernelbench_files, problem_number
from coding_framework.monitoring.progress import Progress
from coding_framework.store.lines import JsonlSink, parsed_lines
from coding_framework.types import Candidate, CUDAConversationState, Record, Task

TRIALS = 5
"""Inputs that they try, as in their own runs."""
LIMIT_S = 600.0
"""Of one opinion: PyTorch compiles an extension in a minute."""
MOST_NAMED = 10
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
ASKED = (
    STUBS
    + """
import json, os, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def serve(work):
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        begun = time.monotonic()
        said = work(json.loads(line))
        print(json.dumps({**said, "s": time.monotonic() - begun}), file=answers, flush=True)
"""
)
THEIRS = (
    ASKED
    + """
sys.path.insert(0, sys.argv[1] + "/src")
from kernelbench.eval import eval_kernel_against_ref
import torch
def judge(asked):
    found = eval_kernel_against_ref(
        asked["problem"], asked["answer"], num_correct_trials=asked["trials"],
        measure_performance=False, device=torch.device("cuda:0"),
    )
    if found is None:
        return {"compiled": False, "correctness": False, "why": "no result"}
    return {"compiled": found.compiled, "correctness": found.correctness,
            "why": str({k: str(v)[:300] for k, v in found.metadata.items()})}
serve(judge)
"""
)


class Asked:
    """A program in a process that answers line by line. It is begun anew after it has ended, or was
    ended because it took too long. Raises InfrastructureError where it cannot begin."""

    def __init__(self, program: str, argument: str, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-c", program, argument]
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, limit_s: float, **asked: Any) -> dict[str, Any] | None:
        """What it said; None where it ended instead."""
        fresh = self._process is None
        process = self._process = self._process or self._begun()
        assert process.stdin is not None
        assert process.stdout is not None
        ends = time.monotonic() + limit_s
        late = threading.Timer(limit_s, self._kill, [process])
        late.start()
        try:
            if fresh and process.stdout.readline() != "ready\n" and time.monotonic() < ends:
                raise InfrastructureError("a process of builds or of their evaluator did not begin")
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            self.close()
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def _begun(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command, env=self._environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @staticmethod
    def _kill(process: subprocess.Popen[str]) -> None:
        """With the compilers that it has started."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        if self._process is not None:
            self._kill(self._process)
            self._process.communicate()
        self._process = None


class SecondOpinion(Record):
    """Theirs of one sample. A line of second_opinion.jsonl."""

    name: str
    """suite/task/sample."""
    code_sha256: str
    asked: bool = True
    """False: the kernel cannot be written as an answer of theirs."""
    compiled: bool = False
    correctness: bool = False
    why: str = ""
    s: float = 0.0


def require_checkout(checkout: Path, suites: Sequence[EvalSuite]) -> None:
    """Raises UsageError where the evaluator is not there or has no problem, or where no GPU is."""
    if not (checkout / "src" / "kernelbench" / "eval.py").is_file():
        raise UsageError(f"--second-opinion {checkout} is no checkout of KernelBench")
    others = [suite.name for suite in suites if any(e.number is None for e in suite.tasks)]
    if others:
        raise UsageError(
            f"--second-opinion is about KernelBench's problems, and {others[0]} has others: "
            "evaluate --suite kernelbench:LEVEL alone"
        )
    import torch

    if not torch.cuda.is_available():
        raise UsageError("--second-opinion needs a GPU: KernelBench's evaluator runs on one")


def second_opinions(
    file: Path,
    checkout: Path,
    suites: Sequence[EvalSuite],
    found: Sequence[tuple[CUDAConversationState, SampleRecord]],
) -> list[str]:
    """Ask for what `file` lacks; what a reader has to know, in sentences. Raises
    InfrastructureError where their evaluator cannot begin."""
    numbers = {
        (suite.name, entry.task.name): (entry.level, entry.number)
        for suite in suites
        for entry in suite.tasks
    }
    known = {
        (o.name, o.code_sha256): o for o in parsed_lines(file, SecondOpinion.model_validate_json)
    }
    theirs = Asked(THEIRS, str(checkout.absolute()), os.environ)
    rows: list[tuple[SampleRecord, SecondOpinion]] = []
    with JsonlSink(file) as sink, Progress("  second opinion", len(found), "kernels") as progress:
        try:
            for state, record in found:
                code = None if record.best_turn is None else state.turns[record.best_turn].code
                if code is not None:
                    name = f"{record.suite}/{record.task}/{record.sample}"
                    opinion = known.get((name, record.code_sha256))
                    if opinion is None:
                        level, number = numbers[record.suite, record.task]
                        problem = _problem(checkout, level or 0, number or 0)
                        said = _opinion(theirs, problem, state.task, code)
                        opinion = SecondOpinion(name=name, code_sha256=record.code_sha256, **said)
                        sink.write(opinion.model_dump(mode="json"))
                    rows.append((record, opinion))
                progress.advance()
        finally:
            theirs.close()
    return list(_told(rows))


def _problem(checkout: Path, level: int, number: int) -> str:
    files = kernelbench_files(checkout, level)
    path = next((p for p in files if problem_number(p) == number), None)
    if path is None:
        raise UsageError(f"{checkout} has no problem {number} of level {level}")
    return path.read_text(encoding="utf-8")


def _opinion(theirs: Asked, problem: str, task: Task, code: str) -> Mapping[str, Any]:
    if not Candidate.model_construct(code=code).is_python:
        from coding_framework.data.modelnew import export_modelnew  # it loads PyTorch

        try:
            code = export_modelnew(code, task)
        except UsageError as e:
            return {"asked": False, "why": str(e)}
    said = theirs(LIMIT_S, problem=problem, answer=code, trials=TRIALS)
    if said is None or not said["correctness"]:
        theirs.close()
    return said or {"why": "their process ended, or took too long", "s": LIMIT_S}


def _told(rows: Sequence[tuple[SampleRecord, SecondOpinion]]) -> Sequence[str]:
    asked = [(record, opinion) for record, opinion in rows if opinion.asked]
    accepted, correct = (sum(o.correctness for _, o in asked), sum(r.correct for r, _ in asked))
    told = [
        f"second opinion: KernelBench's evaluator, outside any sandbox, accepts {accepted} of "
        f"{len(asked)} kernels; our judge accepts {correct}"
    ]
    if len(asked) < len(rows):
        told.append(f"{len(rows) - len(asked)} kernels cannot be written as KernelBench's answers")
    differ = [(r, o) for r, o in asked if o.correctness != r.correct]
    for record, opinion in differ[:MOST_NAMED]:
        word = "accepts" if opinion.correctness else f"rejects ({opinion.why[:120]})"
        ours = record.status or f"masked: {record.masked}"
        told.append(f"{opinion.name}: KernelBench {word}, ours says {ours} ({record.reason[:120]})")
    if len(differ) > MOST_NAMED:
        told.append(f"and {len(differ) - MOST_NAMED} more on which the two differ")
    return told

"""The judge's mutation score: the share of faults put into honest kernels that it refuses.

    uv run python benchmarks/mutation.py [--faults 400] [--minutes 30] [--workers N]

Kernels: of `TASKS` tasks of the catalogue at every level, and honest ones of tests/corpus. Each
fault is one place of the device code changed by one operator (`OPERATORS`), places drawn by a fixed
seed. A fault counts with a *witness*: an input of the task's domain on which a check of its own,
which knows nothing of the judge's draws and tolerances, sees more of a difference to the float64
function than PyTorch's own error in the task's dtype explains (`WITNESS` times), or on which the
kernel fails. Its inputs: normal and uniform values inside the declared domain, at the task's own
shape sets; the blocks run in two orders. The others are equivalent, as far as is known.

Resumable: what came of a fault is kept in the cache folder, by judge and text. Writes
benchmarks/results/mutation.json. Exit 0: the bars hold; 1: one does not. Measured limits: the
emulator alone; what only a race or a size beyond the shape sets shows has no witness here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from bench_io import ROOT, bar, finish, head, this_machine

sys.path.insert(0, str(ROOT / "tests"))

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.emulator.backend import EmulatorBackend
from coding_framework.cuda.expected.inputs import TORCH_DTYPES, derive_seed
from coding_framework.cuda.expected.model_calls import call, call_in_float64
from coding_framework.cuda.expected.reference import Expectation, reference_model
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.expected.tolerance import ExpectedOutput
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.protocol import judge_digest
from coding_framework.cuda.trial.setup import TrialSetting, open_setup
from coding_framework.data.kernels import kernels_of
from coding_framework.data.synthesis import catalog
from coding_framework.errors import CodingFrameworkError
from coding_framework.paths import cache_dir
from coding_framework.store.lines import JsonlSink, parsed_lines
from coding_framework.types import Candidate, Task, TestCase
from corpus.collection import UNSEEN_HONEST
from corpus.judge_honest import HONEST

WITNESS = 32.0
"""Times PyTorch's largest error, and as many units in the last place of the element."""
DRAWS = 4
TASKS = 300
SEED = 20261130
HOST_CPU_S = 10

OPERATORS: dict[str, tuple[tuple[str, str], ...]] = {
    "arithmetic": (
        (r" \+ (?!=)", " - "), (r" - (?!=)", " + "), (r" \* ", " + "), (r" \* ", " / "),
        (r" / ", " * "), (r" \+= ", " -= "),
    ),
    "comparison": (
        (r" < (?!<)", " <= "), (r" > (?!>)", " >= "), (r" > (?!>)", " < "), (r" >= ", " > "),
        (r"\bfmaxf\(", "fminf("), (r"\bfminf\(", "fmaxf("),
        (r" == ", " != "), (r" \? ", " ? 0.5f * "),
    ),
    "constant": (
        (r"(?<![\w.])(\d+\.\d+)f\b", r"(1.01f * \1f)"),
        (r"(?<![\w.])(\d+\.\d+)f\b", r"(\1f + 1.0f)"),
        (r"(?<![\w.])0\.0?f\b", "1.0f"), (r"-INFINITY", "-1.0f"), (r"-FLT_MAX", "0.0f"),
    ),
    "off by one": (
        (r"(?<=< )(n|count|rows|columns|cols|width|height|length|size)\b", r"\1 - 1"),
        (r"(?<== )threadIdx\.x;", "threadIdx.x + 1;"), (r"(?<=\[)(i|idx|j|k|c|col)\]", r"\1 + 1]"),
        (r"(?<== )0;", "1;"),
    ),
    "dropped iterations": (
        (r"\+= blockDim\.x", "+= 2 * blockDim.x"), (r"; (\w+)\+\+\)", r"; \1 += 2)"),
        (r"; \+\+(\w+)\)", r"; \1 += 2)"), (r">>= 1", ">>= 2"),
        (r"= 16; (\w+) > 0", r"= 8; \1 > 0"),
        (r"/ 2; (\w+) > 0", r"/ 4; \1 > 0"),
    ),
    "wrong axis": (
        (r"threadIdx\.x", "threadIdx.y"), (r"threadIdx\.y", "threadIdx.x"), (r" % ", " / "),
        (r"blockIdx\.x", "blockIdx.y"), (r"blockIdx\.y", "blockIdx.x"),
    ),
    "removed barrier": ((r"__syncthreads\(\);", ""), (r"__syncwarp\(\);", "")),
    "atomic to plain": (
        (r"atomicAdd\(&?([\w\[\]]+), ([^;]+)\);", r"\1 += \2;"),
        (r"atomicAdd\((\w+ \+ [^,]+), ([^;]+)\);", r"*(\1) += \2;"),
    ),
    "narrower type": (
        (r"\b(?:long long|int64_t|size_t|long) (?=\w+ =)", "short "),
        (r"\bint (?=\w+ =)", "short "),
        (r"\bint (?=\w+ =)", "signed char "), (r"\bdouble (?=\w+)", "float "),
        (r"\bfloat (?=\w+ =)", "int "),
    ),
    "dropped epsilon": ((r" \+ \w*eps\w*\b", ""), (r" \+ 1e-\d+f?\b", "")),
    "precision": (
        (r"\bexpf\(", "exp2f(1.442f * "), (r"\blogf\(", "0.6931f * log2f("),
        (r"(\w+\[[^\]=;]+\]) = ([^;=]+);",
         r"\1 = __uint_as_float(__float_as_uint(\2) & 0xffffe000u);"),
        (r"\b(sum|acc|total|s|a) \+= ([^;]+);",
         r"\1 = __uint_as_float(__float_as_uint(\1 + \2) & 0xfffff000u);"),
        (r"\b(sum|acc|total|s|a) = (?!0)([^;=]+);",
         r"\1 = __uint_as_float(__float_as_uint(\2) & 0xffffc000u);"),
        (r"\bsqrtf\(([^()]+)\)", r"__expf(0.5f * __logf(\1))"),
    ),
}  # fmt: skip
"""A kind of fault, and what it replaces by what."""
_LINES_OF_DEVICE = re.compile(r"__global__|__device__")
_END_OF_DEVICE = re.compile(r"^(?:torch::|at::|std::vector|void \w+\(torch)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One changed place of an honest kernel."""

    kernel: str
    task: Task
    kind: str
    code: str
    line: str
    """The line that is changed, as it is now."""

    @property
    def key(self) -> str:
        text = "\0".join((self.task.name, self.code, judge_digest()))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def kernels() -> Iterator[tuple[str, Task, str]]:
    """Name, task and source: one of each task in turn, level by level, then the corpora's."""
    programs = random.Random(SEED).sample(list(catalog.catalog()), TASKS)
    tasks = [catalog.build_task(program) for program in programs]
    for level in range(3):
        for task in tasks:
            found = kernels_of(task)
            if level < len(found):
                yield f"{task.name}/{found[level].level}", task, found[level].code
    for honest in (*HONEST, *UNSEEN_HONEST):
        yield honest.name, honest.task, honest.code


def faults() -> Iterator[Fault]:
    """Faults without end of kinds in turn, each at a place that was not changed in this way."""
    generator = random.Random(SEED)
    sources = [k for k in kernels() if "__global__" in k[2]]
    seen: set[str] = set()
    for start in range(10**6):
        kind = list(OPERATORS)[start % len(OPERATORS)]
        for _ in range(200):
            name, task, code = generator.choice(sources)
            changed = changed_in(code, kind, generator)
            if changed is not None and changed[0] not in seen:
                seen.add(changed[0])
                yield Fault(name, task, kind, *changed)
                break


def changed_in(code: str, kind: str, generator: random.Random) -> tuple[str, str] | None:
    """The source with one place of its device code changed, and the line; None: it has none."""
    begin = _LINES_OF_DEVICE.search(code)
    end = begin and _END_OF_DEVICE.search(code, begin.end())
    if begin is None or end is None:
        return None
    places = [
        (match, new)
        for old, new in OPERATORS[kind]
        for match in re.finditer(old, code[: end.start()])
        if match.start() > begin.start()
    ]
    if not places:
        return None
    match, new = generator.choice(places)
    made = code[: match.start()] + match.expand(new) + code[match.end() :]
    line = made[made.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
    return made, line.strip()


def witness(task: Task, setting: TrialSetting) -> str:
    """The first difference that is seen on inputs of the task's domain; "" where none is."""
    for case in task.cases:
        for draw in range(DRAWS):
            generator = torch.Generator().manual_seed(SEED + 1000 * draw + len(case.name))
            inputs = tuple(drawn(case, j, draw, generator) for j in range(len(case.inputs)))
            weights = derive_seed(b"mutation", case.name, draw) >> 1
            with reference_model(task, case, draw, weights, inputs) as (model, state, _):
                native, exact = call(model, inputs), call_in_float64(model, inputs)
                parameters = tuple(t.detach().clone().contiguous() for t in state.values())
            signature = ModelSignature(
                case.init_args or task.init_args, tuple(state), task.scalar_positions
            )
            outputs = tuple(map(ExpectedOutput, exact, native, (None,) * len(native)))
            wanted = Expectation(draw, inputs, parameters, signature, outputs)
            try:
                found = differs(wanted, setting)
            except CandidateFault as fault:
                found = f"{fault.status.value}: {fault.reason}"[:200]
            if found:
                return f"{case.name}, draw {draw}: {found}"
    return ""


def drawn(case: TestCase, j: int, draw: int, generator: torch.Generator) -> torch.Tensor:
    """Values inside the domain: normal ones, others in their place where it has ends."""
    spec = case.inputs[j]
    dtype = TORCH_DTYPES[spec.dtype]
    if not dtype.is_floating_point:
        low, high = int(spec.low or 0), int(1 if spec.dtype == "bool" else spec.high or 9)
        return torch.randint(low, high + 1, spec.shape, generator=generator).to(dtype)
    if spec.low is not None and spec.high is not None:
        values = torch.rand(spec.shape, generator=generator) * (spec.high - spec.low) + spec.low
        return values.to(dtype)
    values = torch.randn(spec.shape, generator=generator) * (1.0, 4.0, 0.01, 1.0)[draw % 4]
    values += 3.0 * (draw % 4 == 3)
    if spec.low is not None:
        values = spec.low + values.abs()
    if spec.high is not None:
        values = spec.high - values.abs()
    return values.to(dtype)


def differs(wanted: Expectation, setting: TrialSetting) -> str:
    """How the kernel's outputs differ, in either order of its blocks. Raises CandidateFault."""
    with open_setup(setting, wanted) as setup:
        names = wanted.signature.parameter_names
        plan, made = setup.run.host_run(setup.host, wanted.tensors, wanted.scalars, names)
        assert setup.open_other_schedule is not None
        with closing(setup.open_other_schedule()) as device:
            other = setup.run.twin(device, wanted.tensors).replay(plan, wanted.tensors)
    for execution in (made, other):
        if len(execution.outputs) != len(wanted.outputs):
            return f"{len(execution.outputs)} outputs"
        for output, expected in zip(execution.outputs, wanted.outputs, strict=True):
            if found := difference(output.tensor, expected.native, expected.reference):
                return found
    return ""


def difference(out: torch.Tensor, native: torch.Tensor, exact: torch.Tensor) -> str:
    if out.shape != native.shape or out.dtype is not native.dtype:
        return f"{out.dtype} {tuple(out.shape)}"
    if not native.is_floating_point():
        wrong = out != native
    else:
        finite = torch.isfinite(native) & torch.isfinite(exact)
        error = torch.where(finite, (native.double() - exact).abs(), 0.0)
        size = torch.where(finite, exact.abs(), 0.0) * torch.finfo(native.dtype).eps
        allowed = WITNESS * (error.amax() if error.numel() else 0.0) + WITNESS * size
        wrong = finite & ~((out.double() - exact).abs() <= allowed)
    if not bool(wrong.any()):
        return ""
    at = int(wrong.reshape(-1).to(torch.uint8).argmax())
    return f"{out.reshape(-1)[at].item():.9g} for {exact.reshape(-1)[at].item():.9g}"


_kept: list[tuple[CUDACompiler, EmulatorBackend, Judge]] = []


def outcome(fault: Fault) -> dict[str, str] | None:
    """What came of a fault: the witness, "" where none was seen, else the judge's status. None
    where the changed source does not compile, or the check itself fails."""
    torch.set_num_threads(1)
    if not _kept:
        config = JudgeConfig(backend="emulator", seed=SEED)
        _kept.append((CUDACompiler(), EmulatorBackend(), Judge(config)))
    compiler, backend, judge = _kept[0]
    made = compiler.compile_source(fault.code)
    if made.binary_path is None:
        return None
    setting = TrialSetting(Path(made.binary_path), compiler.sandbox, HOST_CPU_S, backend)
    try:
        seen, status, reason = witness(fault.task, setting), "", ""
        if seen:
            verdict = judge.judge(fault.task, Candidate(code=fault.code))
            status, reason = verdict.status.value, verdict.reason[:200]
    except CodingFrameworkError:
        return None
    said = {"key": fault.key, "kernel": fault.kernel, "kind": fault.kind, "line": fault.line}
    return said | {"witness": seen, "status": status, "reason": reason}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=400, help="witnessed ones to end with")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    machine, started = this_machine(), time.monotonic()
    path = cache_dir() / "mutation.jsonl"
    known = {row["key"]: row for row in parsed_lines(path, json.loads)}
    found: list[dict[str, str]] = []
    waiting = faults()
    with (
        JsonlSink(path) as sink,
        ProcessPoolExecutor(options.workers, get_context("spawn")) as pool,
    ):
        while sum(bool(o["witness"]) for o in found) < options.faults:
            batch = [next(waiting) for _ in range(8 * options.workers)]
            found += [known[f.key] for f in batch if f.key in known]
            if time.monotonic() - started > 60 * options.minutes:
                break
            new = [pool.submit(outcome, f) for f in batch if f.key not in known]
            for future in as_completed(new):
                if (came := future.result()) is not None:
                    found.append(came)
                    sink.write(came)
    return report(found, machine, time.monotonic() - started)


def report(found: Sequence[dict[str, str]], machine: dict[str, Any], seconds: float) -> int:
    """Print the table and write the file; the exit code."""
    witnessed = [o for o in found if o["witness"]]
    accepted = [o for o in witnessed if o["status"] == "correct"]
    total = Counter(o["kind"] for o in witnessed)
    refused = total - Counter(o["kind"] for o in accepted)
    for kind in OPERATORS:
        print(f"{kind:20} {refused[kind]:5} of {total[kind]:5} refused")
    for o in accepted:
        print(f"  correct: {o['kernel']}: {o['line']} ({o['witness']})")
    score = 1 - len(accepted) / max(1, len(witnessed))
    precision = refused["precision"] / max(1, total["precision"])
    return 0 if finish(
        head("mutation", packages=("torch",), machine=machine)
        | {
            "seconds": round(seconds),
            "tried": len(found),
            "witnessed": len(witnessed),
            "by_kind": {k: {"witnessed": total[k], "refused": refused[k]} for k in OPERATORS},
            "accepted": accepted,
            "bars": [
                bar("witnessed faults", 5000, len(witnessed), len(witnessed) >= 5000),
                bar("share refused", 0.99, score, score >= 0.99),
                bar("share of precision refused", 0.97, precision, precision >= 0.97),
            ],
        },
    ) else 1  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

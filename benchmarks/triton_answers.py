"""Answers in Triton: how many are judged right, and their times beside Triton's own `do_bench`.

    python benchmarks/triton_answers.py HONEST FOLDER ... [--faults FOLDER ...]
        [--backend cuda] [--workers N] [--work DIR]

A folder has answers `NAME.py` and their problems `NAME_problem.py`; or two folders beside each
other, `honest` and `problems`, have files of one name. On a GPU each honest answer that is correct
is run once more by PyTorch and Triton themselves, on the problem's own inputs, and timed by
`triton.testing.do_bench`. Answers that autotune are timed too, and told apart: Triton picks another
configuration than the judge may. Writes benchmarks/results/triton_answers.json.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bench_io import bar, finish, head, this_machine
from gpu_bench import result_path

from coding_framework.commands.judge_many import judge_pairs, read_pairs
from coding_framework.wiring import JudgeSettings


def answers(folder: Path) -> dict[Path, Path]:
    """Each answer's problem."""
    beside = folder.parent / "problems"
    found = {}
    for answer in sorted(folder.glob("*.py")):
        for problem in (folder / f"{answer.stem}_problem.py", beside / answer.name):
            if problem.exists():
                found[answer] = problem
    return found


def judged(pairs: dict[Path, Path], work: Path, backend: str, workers: int) -> dict[str, Any]:
    """Verdicts by the answer's path."""
    lines = [{"id": str(a), "task": str(p), "kernel": str(a)} for a, p in pairs.items()]
    (work / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = work / "verdicts.jsonl"
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        settings = JudgeSettings(backend=backend, workers=workers)
        asyncio.run(judge_pairs(read_pairs(work / "pairs.jsonl"), settings, output=output))
    return {v["id"]: v for v in map(json.loads, output.read_text().splitlines())}


def time_them(pairs: Path) -> None:
    """Print for each pair of files the median that `do_bench` finds, in ms, or what failed."""
    import torch
    import triton.testing

    @triton.jit
    def empty() -> None:
        pass

    def names(path: str) -> dict[str, Any]:
        spec = spec_from_file_location(Path(path).stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[Path(path).stem] = module
        spec.loader.exec_module(module)
        return vars(module)

    print(json.dumps(triton.testing.do_bench(empty[(1,)], return_mode="median")))
    for answer, problem in json.loads(pairs.read_text()):
        torch.manual_seed(0)
        try:
            theirs, ours = names(problem), names(answer)
            given = theirs.get("get_init_inputs", list)()
            model, new = theirs["Model"](*given), ours["ModelNew"](*given)
            new.load_state_dict(model.state_dict(), strict=False)
            new = new.cuda().eval()
            there = [x.cuda() if isinstance(x, torch.Tensor) else x for x in theirs["get_inputs"]()]
            with torch.no_grad():
                new(*there)
                call = functools.partial(new, *there)
                found: Any = triton.testing.do_bench(call, return_mode="median")
        except Exception as e:  # theirs fail in any way
            found = f"{type(e).__name__}: {e}"[:200]
        print(json.dumps(found), flush=True)


def times(
    pairs: dict[Path, Path], verdicts: dict[str, Any], work: Path
) -> tuple[float, list[dict[str, Any]]]:
    """What `do_bench` finds for an empty kernel, and the judge's and its own time of each correct
    answer, in ms."""
    right = {
        answer: problem
        for answer, problem in pairs.items()
        if verdicts[str(answer)].get("status") == "correct" and verdicts[str(answer)]["timing"]
    }
    listed = work / "timed.json"
    listed.write_text(json.dumps([[str(a), str(p)] for a, p in right.items()]))
    command = [sys.executable, __file__, "--time", str(listed)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    empty, *lines = run.stdout.splitlines()
    return float(empty), [
        {
            "answer": answer.stem,
            "judge_ms": verdicts[str(answer)]["timing"]["kernel_ms"],
            "do_bench_ms": json.loads(line),
            "autotunes": "autotune" in answer.read_text(encoding="utf-8"),
        }
        for answer, line in zip(right, lines, strict=False)
    ]


def outcomes(pairs: Sequence[Path], verdicts: dict[str, Any], right: bool) -> dict[str, Any]:
    """Counts by status, and the answers that are judged otherwise than they are."""
    found = [(a, verdicts.get(str(a), {"status": "none"})) for a in pairs]
    return {
        "answers": len(found),
        "outcomes": dict(Counter(v.get("status", "error") for _, v in found).most_common()),
        "otherwise": {
            a.stem: f"{v.get('status')}: {v.get('reason') or v.get('error')}"[:300]
            for a, v in found
            if (v.get("status") == "correct") is not right
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("honest", nargs="*", type=Path)
    parser.add_argument("--faults", nargs="*", type=Path, default=[])
    parser.add_argument("--backend", default="emulator", choices=("emulator", "cuda"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, help="folder of the verdicts")
    parser.add_argument("--time", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.time:
        time_them(given.time)
        return 0
    machine = this_machine()
    honest = {a: p for folder in given.honest for a, p in answers(folder.resolve()).items()}
    faults = {a: p for folder in given.faults for a, p in answers(folder.resolve()).items()}
    work = given.work or Path(mkdtemp(prefix="triton-answers-"))
    work.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    verdicts = judged({**honest, **faults}, work, given.backend, given.workers)
    took = time.monotonic() - started
    report = head("triton_answers", packages=("torch", "triton"), machine=machine)
    report |= {"backend": given.backend, "workers": given.workers}
    report["verdicts_an_hour"] = round(3600 * len(verdicts) / took)
    report["honest"] = outcomes(list(honest), verdicts, right=True)
    report["faults"] = outcomes(list(faults), verdicts, right=False)
    wanted = 0.97 if given.backend == "cuda" else 0.75
    share = report["honest"]["outcomes"].get("correct", 0) / max(1, len(honest))
    report["bars"] = [
        bar("honest answers that are correct", wanted, share, share >= wanted),
        bar(
            "faults accepted",
            0,
            len(report["faults"]["otherwise"]),
            not report["faults"]["otherwise"],
        ),
    ]
    if given.backend == "cuda":
        report["do_bench_of_nothing_ms"], rows = times(honest, verdicts, work)
        report["times"] = rows
        apart = [
            abs(r["judge_ms"] / r["do_bench_ms"] - 1)
            for r in rows
            if isinstance(r["do_bench_ms"], float) and r["do_bench_ms"] > 0.005
            if not r["autotunes"]
        ]
        if apart:
            middle = statistics.median(apart)
            report["bars"].append(
                bar("median distance from do_bench", 0.03, middle, middle <= 0.03)
            )
    finish(report, result_path("triton_answers") if given.backend == "cuda" else None)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

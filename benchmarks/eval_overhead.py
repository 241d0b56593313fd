"""What an evaluation costs beside the judging: `cuda-rl eval --answers` against `judge-many`.

    uv run python benchmarks/eval_overhead.py [--kernels 1000] [--real 6]

Both commands run over the same kernels with a judge that gives a real verdict at once, so that what
is left is their own work: reading, writing durably, conversations, records, summary and report.
Beside it stands what judging takes: `judge-many` on some of the kernels with the real judge on the
emulator, after a run that has compiled them. All figures are processor time, with that of children
that were waited for: other work on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bench_io import ROOT, at_most, finish, head
from judging import Pair, honest_pairs, write_pairs

from coding_framework.data.registry import find_task

MOST = 0.05
REAL = """
import json, resource, sys
from coding_framework import cli
from coding_framework.commands import judge_many
from coding_framework.run import evaluation
from coding_framework.types import Candidate, Verdict
if sys.argv[3]:
    with open(sys.argv[3]) as file:
        kept = Verdict.model_validate_json(file.readline())
    class AtOnce:
        capacity = 4
        async def __call__(self, task, code):
            digest = Candidate(code=code).sha256
            return kept.model_copy(update={"task": task.name, "candidate_sha256": digest})
        def close(self): pass
    judge_many.make_judge = evaluation.make_judge = lambda **settings: AtOnce()
status = cli.main(json.loads(sys.argv[1]))
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
with open(sys.argv[2], "w") as file:
    json.dump([status, sum(each.ru_utime + each.ru_stime for each in used)], file)
"""


def used(arguments: Sequence[str], work: Path, verdict: Path | None) -> float:
    """Processor seconds of a command of `cuda-rl`. verdict: of the judge that gives it at once;
    None: the real one."""
    out = work / "used.json"
    subprocess.run(
        [sys.executable, "-c", REAL, json.dumps(list(arguments)), str(out), str(verdict or "")],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    status, seconds = json.loads(out.read_text())
    if status != 0:
        raise SystemExit(f"cuda-rl {' '.join(arguments)} ended with {status}")
    return float(seconds)


def write_work(pairs: Sequence[Pair], work: Path) -> None:
    """The kernels as both commands read them, and their tasks as a suite."""
    (work / "tasks").mkdir(parents=True)
    write_pairs(work / "pairs.jsonl", pairs)
    samples: dict[str, int] = {}
    rows = []
    for pair in pairs:
        task = find_task(pair["task"])
        (work / "tasks" / f"{task.name}.json").write_text(task.model_dump_json())
        sample = samples[task.name] = samples.get(task.name, -1) + 1
        rows.append({"task": task.name, "sample": sample, "code": pair["code"]})
    (work / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--kernels", type=int, default=1000)
    cli.add_argument("--real", type=int, default=6)
    cli.add_argument("--work", type=Path, default=ROOT / "runs" / "eval_overhead")
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    top = head("eval_overhead")
    shutil.rmtree(args.work, ignore_errors=True)
    pairs = list(islice(honest_pairs(), args.kernels))
    write_work(pairs, args.work)
    few, verdicts = args.work / "few.jsonl", args.work / "verdicts.jsonl"
    write_pairs(few, pairs[: args.real])
    judging = ["--backend", "emulator", "--workers", "2"]
    real = ["judge-many", "--tasks-and-kernels", str(few), *judging]
    used([*real, "--output", str(verdicts)], args.work, None)  # compiles
    judging_s = used(real, args.work, None)
    line = json.loads(verdicts.read_text().splitlines()[0])
    verdicts.write_text(json.dumps({k: v for k, v in line.items() if k != "id"}) + "\n")
    many = ["judge-many", "--tasks-and-kernels", str(args.work / "pairs.jsonl"), *judging]
    evaluation = [
        "eval", "--answers", str(args.work / "answers.jsonl"), "--suite", str(args.work / "tasks"),
        "--output-dir", str(args.work / "eval"), *judging,
    ]  # fmt: skip
    nothing = ["judge-many", "--tasks-and-kernels", "/dev/null", *judging]
    start_s = used(nothing, args.work, verdicts)
    own = {
        "judge-many": used(many, args.work, verdicts),
        "eval": used(evaluation, args.work, verdicts),
    }
    verdict_s = (judging_s - start_s) / args.real
    whole_s = own["judge-many"] + len(pairs) * verdict_s
    share = (own["eval"] - own["judge-many"]) / whole_s
    said = f"share that an evaluation of {len(pairs)} kernels adds to judge-many"
    body = {"own_s": own, "start_s": start_s, "verdict_s": verdict_s, "judged_for_it": args.real}
    return 0 if finish({**top, "bars": [at_most(said, MOST, share)], **body}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())

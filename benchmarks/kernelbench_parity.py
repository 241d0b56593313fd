"""Our reproduction of KernelBench's numbers beside their own scripts', over random result files.

    uv run python benchmarks/kernelbench_parity.py --kernelbench DIR [--files 200] [--goldens FILE]

DIR is a checkout of KernelBench, which the user brings. Its benchmark_eval_analysis.py and
eval_from_generations.py are run as they are, in a process of their own; only what they would load
from elsewhere (the dataset, the configuration library, the table printer) is replaced by stand-ins.
Bar: each number equal, `==` on floats. --goldens also writes inputs and numbers for the tests.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_io import RESULTS, bar, finish, head

from coding_framework.evaluation.kernelbench_score import kernelbench_pass_at_k, kernelbench_score

KS = (1, 3, 5)
NUMBERS = (
    "total_count", "total_eval", "compiled_count", "correct_count", "compilation_rate",
    "correctness_rate", "geo_mean_speedup", "fast_p",
)  # fmt: skip
THEIRS = """
import ast, io, json, sys, types, contextlib
from pathlib import Path
root, folder = map(Path, sys.argv[1:3])
sys.path[:0] = [str(root / "src"), str(root / "scripts")]
def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)
module("pydra", Config=object, REQUIRED=None, main=lambda base: lambda f: f)
module("tabulate", tabulate=lambda *a, **k: "")
class Dataset:
    def __init__(self, names): self.names = names
    def __len__(self): return len(self.names)
    def get_problem_ids(self): return list(self.names)
    def get_problem_by_id(self, i): return types.SimpleNamespace(name=self.names[i])
current = {}
module("kernelbench", __path__=[str(root / "src" / "kernelbench")])  # without its imports
module("kernelbench.dataset", construct_kernelbench_dataset=lambda level: Dataset(current["names"]))
import benchmark_eval_analysis as analysis
# of the evaluation script only the two functions on pass@k: its imports need a GPU's environment
tree = ast.parse((root / "scripts" / "eval_from_generations.py").read_text())
wanted = ("calc_pass_at_k", "calculate_pass_at_k")
tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in wanted]
import os, numpy as np
scope = {"os": os, "json": json, "np": np}
exec(compile(tree, "eval_from_generations.py", "exec"), scope)
out = []
for case in sorted(folder.iterdir()):
    names = json.loads((case / "names.json").read_text())
    current["names"] = {int(k): v for k, v in names.items()}
    with contextlib.redirect_stdout(io.StringIO()):
        found = analysis.analyze_greedy_eval(
            "run", "hw", "base", 1, str(case / "baseline.json"), str(case))
        passed = scope["calculate_pass_at_k"](str(case / "run/eval_results.json"), [1, 3, 5])
    out.append({"score": found, "pass_at_k": passed})
print(json.dumps(out))
"""


def made_case(rng: random.Random) -> dict[str, Any]:
    """A results file, a baseline and a dataset, with everything that has been seen to go wrong:
    missing problems, several samples, runtimes of -1, unknown problems, all wrong, empty."""
    problems = rng.randint(1, 14)
    names = {i: f"{i}_Problem.py" for i in range(1, problems + 1)}
    rate = rng.choice([0.0, 0.3, 0.8, 1.0])
    results: dict[str, list[dict[str, Any]]] = {}
    for number in [*names, 900] if rng.random() < 0.2 else names:
        if rng.random() < 0.15:
            continue
        samples = list(range(rng.choice([1, 1, 1, 3, 6])))
        if rng.random() < 0.1:
            samples = [s + 1 for s in samples]  # no sample 0
        results[str(number)] = [made_entry(rng, s, rate) for s in samples]
    timed = {n: {"mean": round(rng.uniform(0.01, 9), 4)} for n in names.values()}
    if rng.random() < 0.3:
        timed.pop(rng.choice(list(timed)))
    if rng.random() < 0.03:
        results = {}
    return {"names": names, "results": results, "baseline": {"level1": timed}}


def made_entry(rng: random.Random, sample: int, rate: float) -> dict[str, Any]:
    compiled = rng.random() < max(0.7, rate)
    correct = compiled and rng.random() < rate
    runtime = rng.choice([round(rng.uniform(0.01, 9), 4), 1.0]) if correct else -1.0
    if correct and rng.random() < 0.05:
        runtime = -1.0
    return {
        "sample_id": sample, "compiled": compiled, "correctness": correct,
        "metadata": {}, "runtime": runtime, "runtime_stats": {},
    }  # fmt: skip


def ours(case: dict[str, Any]) -> dict[str, Any]:
    means = {name: entry["mean"] for name, entry in case["baseline"]["level1"].items()}
    score = kernelbench_score(case["results"], means, case["names"]).model_dump()
    return {"score": score, "pass_at_k": kernelbench_pass_at_k(case["results"], KS)}


def theirs(checkout: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as made:
        for number, case in enumerate(cases):
            folder = Path(made) / f"{number:05}"
            (folder / "run").mkdir(parents=True)
            (folder / "run" / "eval_results.json").write_text(json.dumps(case["results"]))
            (folder / "baseline.json").write_text(json.dumps(case["baseline"]))
            (folder / "names.json").write_text(json.dumps(case["names"]))
        command = [sys.executable, "-c", THEIRS, str(checkout), made]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"their script failed:\n{said.stderr[-2000:]}")
    return list(json.loads(said.stdout))


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit; NaN is equal to NaN."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other) or (one != one and other != other)


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--kernelbench", type=Path, required=True, help="a checkout of KernelBench")
    cli.add_argument("--files", type=int, default=200)
    cli.add_argument("--goldens", type=Path, help="write the first 40 cases here, for the tests")
    cli.add_argument("--output", type=Path, default=RESULTS / "kernelbench_parity.json")
    args = cli.parse_args()
    rng = random.Random(7)
    cases = [made_case(rng) for _ in range(args.files)]
    found = theirs(args.kernelbench, cases)
    unequal = []
    for number, (case, other) in enumerate(zip(cases, found, strict=True)):
        mine = ours(case)
        wrong = [n for n in NUMBERS if not same(mine["score"][n], other["score"][n])]
        wrong += ["pass_at_k"] * (not same(mine["pass_at_k"], other["pass_at_k"]))
        if wrong:
            unequal.append({"file": number, "numbers": wrong})
    if args.goldens:
        kept = [
            {**case, "score": {n: other["score"][n] for n in NUMBERS},
             "pass_at_k": other["pass_at_k"]}
            for case, other in zip(cases[:40], found, strict=False)
        ]  # fmt: skip
        args.goldens.write_text(json.dumps(kept, separators=(",", ":")))
    print(f"{len(cases) - len(unequal)} of {len(cases)} files: all numbers equal")
    bars = [bar("files with an unequal number", 0, len(unequal), not unequal)]
    report = {**head("kernelbench_parity", packages=("numpy",)), "bars": bars, "unequal": unequal}
    return 0 if finish({**report, "files": len(cases)}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())

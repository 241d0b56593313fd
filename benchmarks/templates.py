"""How many kernels have a launch template, and why the others have none.

    uv run python benchmarks/templates.py [--corpus old|all] [--pairs N] [--only TEXT]
        [--workers N] [--minutes M] [--again]

Honest kernels: those of tests/corpus, of module tasks, and synthesised ones of as many tasks; with
--corpus all those of the fresh corpus too. Each is compiled, its calls are recorded three times in
fresh processes with all memory at other addresses, a template is derived for each shape set and
replayed at random addresses on draws of its own against the float64 reference (`cuda/templating`).
A kernel is portable where every shape set has a template.

Attacks go the same way without a verdict first, which is more than they get in use: what has a
template then is judged as well, and becomes one only where the verdict is `correct`.

Resumable, in parts, as benchmarks/judge_rates.py is. Writes benchmarks/results/templates.json of
what was asked so far; exit 0: all bars hold, 1: one does not, or cases are left to do. On a
machine with a GPU the replays are made there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bench_io import bar, finish, head
from case_queue import HOST_CPU_S, SEED, CaseQueue, at_once, kept_in
from gpu_bench import result_path

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.cuda.protocol import judge_digest
from coding_framework.data.modules.catalog import all_drafts
from coding_framework.data.modules.examples import module_jobs
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.store.lines import read_lines
from corpus.collection import CORRECT, Case, attacks, honest_kernels
from corpus.fresh_collection import fresh_attacks, fresh_honest

MODULES = 40


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one kernel."""

    key: str
    shape_sets: int
    templates: int
    refusals: tuple[tuple[str, str], ...]
    """Obstacle and reason of each shape set that has none."""
    aligned: int
    """Templates whose inputs need the alignment of cudaMalloc."""
    verdict: str
    """Of an attack that has a template, else ""."""
    wall_s: float


class Bench:
    """One thread with one worker process."""

    def __init__(self) -> None:
        self._pool = JudgePool(JudgeConfig(seed=SEED, host_cpu_s=HOST_CPU_S), workers=1)

    def __enter__(self) -> Callable[[Case], Tried]:
        self._pool.__enter__()
        return self._try

    def __exit__(self, *exc: Any) -> None:
        self._pool.__exit__(*exc)

    def _try(self, case: Case) -> Tried:
        started, verdict = time.monotonic(), ""
        try:
            made = self._pool.templates_blocking(case.task, case.code)
            templates, aligned = len(made.templates), 0
            refusals = tuple((r.obstacle, r.reason) for r in made.refusals)
            aligned = sum(any(a.alignment > 16 for a in t.arguments) for t in made.templates)
            if templates and not case.honest:
                verdict = self._pool.judge_blocking(case.task, case.code).status.value
        except UsageError as e:
            templates, aligned, refusals = 0, 0, (("does_not_compile", str(e)[:300]),)
        except InfrastructureError as e:
            templates, aligned, refusals = 0, 0, (("fault_of_ours", str(e)[:300]),)
        wall_s = round(time.monotonic() - started, 2)
        sets = templates + len(refusals)
        return Tried(case.key, sets, templates, refusals, aligned, verdict, wall_s)


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """Honest kernels, then attacks."""
    cases = [*honest_kernels(options.pairs), *module_kernels()]
    fresh = options.corpus == "all"
    cases += [*(fresh_honest() if fresh else ()), *attacks(), *(fresh_attacks() if fresh else ())]
    return [c for c in cases if options.only in c.name]


def module_kernels() -> list[Case]:
    """The last, most optimised kernel of module tasks drawn evenly from all parts."""
    drafts = random.Random(SEED).sample(all_drafts(), MODULES)
    last = {job.task.name: job for job in module_jobs(drafts)}
    return [
        Case(f"module/{name}/{job.level}", job.task, job.code, CORRECT, "seen", "module")
        for name, job in last.items()
    ]


def read_kept() -> dict[str, Tried]:
    """Results by case key."""
    found = {}
    for line in read_lines(kept_in("templates")):
        record = json.loads(line)
        record["refusals"] = tuple(map(tuple, record["refusals"]))
        found[record["key"]] = Tried(**record)
    return found


def report(cases: list[Case], found: dict[str, Tried], left: int) -> dict[str, Any]:
    """Shares, and the reasons by frequency, of the cases that were tried. left: all others."""
    honest = [(c, found[c.key]) for c in cases if c.honest]
    hostile = [(c, found[c.key]) for c in cases if not c.honest]
    whole = [c for c, t in honest if t.templates and not t.refusals]
    share = len(whole) / max(1, len(honest))
    reasons = Counter(o for _, t in honest for o in sorted({o for o, _ in t.refusals}))
    differs = [c.name for c, t in honest if any(o == "replay_differs" for o, _ in t.refusals)]
    ours = [c.name for c in cases if any(o == "fault_of_ours" for o, _ in found[c.key].refusals)]
    became = [c.name for c, t in hostile if t.verdict == "correct"]
    bars = [
        bar("honest kernels", ">= 300", len(honest), len(honest) >= 300),
        bar("portable", ">= 85%", share, share >= 0.85),
        bar("attacks that become templates", "0", len(became), not became),
        bar("faults of ours", "0", len(ours), not ours),
        bar("cases left to do", "0", left, left == 0),
    ]
    groups = {}
    for name in ("synthesis", "module", "other"):
        rows = [t for c, t in honest if _group(c) == name]
        groups[name] = {
            "kernels": len(rows),
            "portable": sum(bool(t.templates) and not t.refusals for t in rows),
        }
    return {
        **head("templates", packages=("torch", "nvidia-cuda-nvcc")),
        "judge": judge_digest()[:16],
        "bars": bars,
        "honest": {
            "kernels": len(honest),
            "portable": len(whole),
            "shape_sets": sum(t.shape_sets for _, t in honest),
            "templates": sum(t.templates for _, t in honest),
            "templates_that_need_256_bytes": sum(t.aligned for _, t in honest),
            "refused_as_replay_differs": differs,
            "kernels_by_obstacle": dict(reasons.most_common()),
            "groups": groups,
            "refused": [
                {"name": c.name, "obstacle": o, "reason": r[:200]}
                for c, t in honest
                for o, r in t.refusals[:1]
            ],
        },
        "attacks": {
            "kernels": len(hostile),
            "with_a_template_before_any_verdict": [
                {"name": c.name, "verdict": t.verdict} for c, t in hostile if t.templates
            ],
            "became_templates": became,
            "obstacles": dict(
                Counter(t.refusals[0][0] for _, t in hostile if t.refusals).most_common()
            ),
        },
        "faults_of_ours": ours,
        "wall_s": round(sum(t.wall_s for t in found.values()), 1),
    }


def _group(case: Case) -> str:
    first = case.name.partition("/")[0]
    return first if first in ("synthesis", "module") else "other"


def main(arguments: Iterable[str] | None = None) -> int:
    """Try all cases, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", choices=("old", "all"), default="old", help="all: fresh too")
    parser.add_argument("--pairs", type=int, default=80, help="synthesised honest kernels")
    parser.add_argument("--only", default="", help="cases whose name holds this; writes no result")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=math.inf, help="take no case after these")
    parser.add_argument("--again", action="store_true", help="forget what earlier parts found")
    options = parser.parse_args(list(arguments) if arguments is not None else None)

    cases = chosen_cases(options)
    if options.again:
        kept_in("templates").unlink(missing_ok=True)
    todo = CaseQueue(cases, read_kept(), time.monotonic() + 60 * options.minutes)
    if todo:
        todo.try_all("templates", "kernels", kept_in("templates"), Bench, at_once(options.workers))
    found = read_kept()
    left = [c for c in cases if c.key not in found]
    for case in cases:
        tried = found.get(case.key)
        if tried is not None and (tried.refusals if case.honest else tried.templates):
            why = tried.refusals[0] if tried.refusals else ("template", tried.verdict)
            print(f"{case.name}: {why[0]}: {why[1][:160]}")
    if left:
        print(f"{len(left)} of {len(cases)} cases are left to do: run the same command again")
    if options.only:
        return 1 if left else 0
    done = [case for case in cases if case.key in found]
    return 0 if finish(report(done, found, len(left)), result_path("templates")) else 1


if __name__ == "__main__":
    sys.exit(main())

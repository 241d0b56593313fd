"""The catalogue of module tasks: counts, times, and the audit against KernelBench.

    python benchmarks/module_tasks.py --kernelbench FILE_OR_FOLDER ... [--write-exclusions]
    python benchmarks/module_tasks.py --write-constant
    python benchmarks/module_tasks.py --judge [--backend cuda] [--shard 1/4] [--tasks N]
        [--families NAME ...] [--minutes M] [--receipts FILE] [--merge FILE ...] [--pack FILE]
        [--speeds FILE] [--write]

The audit compares every module task with every problem in three ways that know nothing of the
generator: the syntax trees, the values on the same inputs with the same parameters, and the overlap
of 8-grams of the sources (a hit from 0.6). --write-exclusions first traces what PyTorch executes
for every draft and writes the keys of those that a problem has too, until none is left
(`scripts/drawing/excluded.txt`; `excluded_spellings.txt` has the tasks whose second spelling a
problem is like); then `scripts/draw_tasks.py` writes the catalogue anew. Prints JSON; the exit
status is 1 where there is a hit. --write: it is benchmarks/results/module_audit.json too.

--write-constant adds the keys of the tasks of level 2 whose output hardly varies, by eight draws of
their inputs (`data/modules/constant.txt`); 3 minutes.

--judge judges the compiler's kernels of the module tasks that have no receipt; then it tells, of
all receipts, how many kernels are correct and how many tasks have one above eager. It takes one
task of each family in turn, so that a run of any length covers all families, and goes on where a
stopped run was. --minutes: begin no kernel after these; those that were begun end within half a
minute or so. --shard 2/4: this is the second of four machines; --merge adds the receipts of the
others. --pack writes all receipts, with their kernels, as one compressed file; --speeds writes how
fast families and levels are (`data/modules/level_speeds.json`). The report lies beside the
receipts; --write: it is benchmarks/results/module_kernels.json, or .GPU.json on a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import torch
from bench_io import ROOT, bar, finish, head, this_machine
from gpu_bench import result_path
from module_judging import Judging, judge, shard
from module_leaks import (
    Problem,
    Trace,
    grams,
    overlap,
    problem_trace,
    syntax_key,
    traced,
)

from coding_framework.data.modules import catalog
from coding_framework.data.modules.catalog import (
    MOST_SPARE,
    MOST_WIDER,
    spare_drafts,
    wider_drafts,
)
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.sizes import at_other_sizes
from coding_framework.data.modules.tasks import module_task
from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.types import BackendChoice

sys.path.insert(0, str(ROOT / "scripts"))
from drawing import modules as drawn

MOST_OVERLAP = 0.6
DRAWS = 8
"""Two sums of many terms are often within a hundredth of each other."""


def problems_of(paths: Sequence[Path]) -> list[Problem]:
    """The problems of JSON-lines files and of folders of .py files."""
    found: list[Problem] = []
    for path in paths:
        if path.is_dir():
            found += [Problem(p.stem, p.read_text()) for p in sorted(path.glob("*.py"))]
        else:
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            found += [Problem(row["name"], row["code"]) for row in rows]
    return found


def draft_trace(draft: ModuleDraft) -> Trace:
    """The trace of a draft at its tiniest sizes."""
    task = module_task(draft)
    case, names = task.cases[2], Problem(draft.name, task.reference).namespace()
    with torch.device("meta"):
        inputs = [torch.empty(i.shape, dtype=getattr(torch, i.dtype)) for i in case.inputs]
    return traced(names["Model"], case.init_args, inputs)


def leaking(drafts: Sequence[ModuleDraft], traces: Sequence[Trace]) -> list[str]:
    """Keys of the drafts that a problem has: of level 1 by all calls, of level 2 by their names."""
    calls = {trace.calls for trace in traces}
    names = {trace.names for trace in traces if len(trace.names) > 1}
    found = []
    for draft in drafts:
        trace = draft_trace(draft)
        if trace.calls in calls or (draft.level == 2 and trace.names in names):
            found.append(draft.key)
    return found


def write_exclusions(problems: Sequence[Problem]) -> int:
    """Extend `excluded.txt` until neither the catalogue nor the spare tasks beyond it have anything
    that a problem has; how many keys. What it has of other problems stays."""
    traces = list(traces_of(problems))
    known = drawn.excluded_keys() | set(leaking(list(drawn.grid(excluding=False)), traces))
    own = {problem: grams(problem.source) for problem in problems}
    while True:
        drawn.EXCLUDED_PATH.write_text(
            "".join(f"{key}\n" for key in sorted(known)), encoding="utf-8"
        )
        drawn.excluded_keys.cache_clear()
        drawn.catalogue.cache_clear()
        drafts = [*drawn.catalogue(), *chain.from_iterable(drawn.spare())]
        wider = list(chain.from_iterable(drawn.wider()))
        new = set(leaking([*(d for d in drafts if d.level == 2), *wider], traces))
        drafts += wider
        new |= {d.key for d, _, share in overlaps(drafts, own) if share >= MOST_OVERLAP}
        print(f"{len(known)} keys excluded, {len(new)} more found", file=sys.stderr)
        if not new:
            break
        known |= new
    return len(known) + write_spellings(problems, own)


def write_spellings(
    problems: Sequence[Problem], own: dict[Problem, frozenset[tuple[str, ...]]]
) -> int:
    """Write `excluded_spellings.txt`: the tasks whose second spelling a problem is like; how
    many."""
    with nothing_in("SPELLINGS_PATH", catalog.excluded_spellings):
        drafts = [d for d in drawn.catalogue() if catalog.may_be_spelt_anew(d)]
    alike = {name for name, _ in syntax_hits(drafts, problems, spelling=1)}
    near = overlaps(drafts, own, spelling=1)
    alike |= {draft.name for draft, _, share in near if share >= MOST_OVERLAP}
    keys = sorted(draft.key for draft in drafts if draft.name in alike)
    write_atomic(catalog.SPELLINGS_PATH, "".join(f"{key}\n" for key in keys))
    catalog.excluded_spellings.cache_clear()
    return len(keys)


def write_constant() -> int:
    """Add the keys of the drafts of level 2, spare ones too, and of the wider ones of level 1,
    whose output hardly varies; how many there are. What is known stays, and so does the catalogue
    where there is one."""
    known = catalog.constant_keys()
    kept = known | ({draft.key for draft in drawn.catalogue()} if known else set())
    with nothing_in("CONSTANT_PATH", catalog.constant_keys, drawn.catalogue):
        beyond = chain.from_iterable((*drawn.spare(), *drawn.wider()))
        drafts = [*(d for d in drawn.catalogue() if d.level == 2), *beyond]
    keys = sorted(known | {d.key for d in drafts if d.key not in kept and hardly_varies(d)})
    write_atomic(catalog.CONSTANT_PATH, "".join(f"{key}\n" for key in keys))
    return len(keys)


@contextmanager
def nothing_in(path: str, *cached: Any) -> Iterator[None]:
    """The catalogue reads this file of its own as empty; what it has `cached` is read anew."""
    before = getattr(catalog, path)
    try:
        setattr(catalog, path, Path(os.devnull))
        for function in cached:
            function.cache_clear()
        yield
    finally:
        setattr(catalog, path, before)
        for function in cached:
            function.cache_clear()


def hardly_varies(draft: ModuleDraft) -> bool:
    """Whether a few draws give values within 1% of the largest, at the draft's first sizes."""
    if any(given.dtype != "float32" for given in draft.inputs):
        return False
    task = module_task(draft)
    case, names = task.cases[0], Problem(draft.name, task.reference).namespace()
    torch.manual_seed(int.from_bytes(hashlib.sha256(draft.key.encode()).digest()[:4]))
    with torch.no_grad():
        model = names["Model"](*case.init_args)
        draws = [model(*(torch.randn(i.shape) for i in case.inputs)) for _ in range(DRAWS)]
    low, high = torch.aminmax(torch.stack(draws))
    return bool(high - low <= 1e-2 * max(abs(low), abs(high)) + 1e-5)


def traces_of(problems: Sequence[Problem]) -> Iterator[Trace]:
    for problem in problems:
        try:
            yield problem_trace(problem)
        except Exception as e:  # whatever a problem raises on the meta device
            print(f"{problem.name} cannot be traced: {type(e).__name__}: {e}", file=sys.stderr)


# --- the audit -----------------------------------------------------------------------------------


def syntax_hits(
    drafts: Sequence[ModuleDraft], problems: Sequence[Problem], spelling: int = 0
) -> list[tuple[str, str]]:
    theirs = {}
    for problem in problems:
        try:
            theirs[syntax_key(problem)] = problem.name
        except Exception as e:  # a problem that needs a package which is not here
            print(f"{problem.name} has no syntax key: {type(e).__name__}: {e}", file=sys.stderr)
    keys = (
        (d.name, syntax_key(Problem(d.name, module_task(d, spelling).reference))) for d in drafts
    )
    return [(name, theirs[key]) for name, key in keys if key in theirs]


def overlaps(
    drafts: Sequence[ModuleDraft],
    own: dict[Problem, frozenset[tuple[str, ...]]],
    spelling: int = 0,
    *,
    renamed: bool = False,
) -> Iterator[tuple[ModuleDraft, str, float]]:
    """(draft, the problem that its source is most like, their overlap)."""
    holders: dict[tuple[str, ...], list[Problem]] = defaultdict(list)
    for problem, found in own.items():
        for gram in found:
            holders[gram].append(problem)
    for draft in drafts:
        mine = grams(module_task(draft, spelling, renamed=renamed).reference)
        shared = Counter(problem for gram in mine for problem in holders.get(gram, ()))
        near = shared.most_common(5)
        share, name = max(((overlap(mine, own[p]), p.name) for p, _ in near), default=(0.0, ""))
        yield draft, name, share


def value_hits(
    drafts: Sequence[ModuleDraft], problems: Sequence[Problem]
) -> tuple[list[tuple[str, str]], int]:
    """(module tasks that give what a problem gives, how many pairs were compared)."""
    from coding_framework.data.kernelbench.problems import problem_task

    by_form: dict[tuple[Any, ...], list[ModuleDraft]] = defaultdict(list)
    for draft in drafts:
        ranks = tuple((len(i.dims), i.dtype) for i in draft.inputs)
        by_form[ranks, tuple(sorted(map(len, _state(draft))))].append(draft)
    hits, compared = [], 0
    for problem in problems:
        try:
            task = problem_task(problem.source, problem.name)
            case = task.cases[-1]
            names = Problem(problem.name, task.reference).namespace()
            model = names["Model"](*(case.init_args or task.init_args))
            inputs = [_fixed(i.shape, i.dtype, k) for k, i in enumerate(case.inputs)]
            wanted = _result(model, inputs)
        except Exception as e:  # what cannot be scaled has nothing to be compared with
            print(f"{problem.name} has no small values: {e}", file=sys.stderr)
            continue
        shapes = [tuple(t.shape) for t in model.state_dict().values()]
        ranks = tuple((len(i.shape), i.dtype) for i in case.inputs)
        form = (ranks, tuple(sorted(len(s) for s in shapes)))
        for draft in by_form.get(form, ()):
            found = _values(draft, case.inputs, shapes, inputs)
            if found is None:
                continue
            compared += 1
            same = found.shape == wanted.shape and found.dtype == wanted.dtype
            if same and torch.allclose(found, wanted, rtol=1e-4, atol=1e-6):
                hits.append((draft.name, problem.name))
    return hits, compared


def _fixed(shape: Sequence[int], dtype: str, number: int) -> torch.Tensor:
    """Of both signs: on positive values alone relu is the identity."""
    count = torch.Size(shape).numel()
    if dtype == "int64":
        return (torch.arange(count) % 2).reshape(shape)
    return torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + number).reshape(shape)


def _result(model: Any, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """On parameters that depend on their sorted place among those of equal shape alone."""
    model = model.double()
    seen: Counter[tuple[int, ...]] = Counter()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                shape = tuple(tensor.shape)
                tensor.copy_(_fixed(shape, "float64", 7 + seen[shape]))
                seen[shape] += 1
        out = model(*inputs)
    return torch.as_tensor(out[0] if isinstance(out, tuple) else out)


def _values(
    draft: ModuleDraft,
    given: Sequence[Any],
    shapes: list[tuple[int, ...]],
    inputs: Sequence[torch.Tensor],
) -> torch.Tensor | None:
    """What the module gives at a problem's sizes; None where it does not take them."""
    sizes: dict[str, int] = {}
    tensors = [(i.dims, tuple(g.shape)) for i, g in zip(draft.inputs, given, strict=True)]
    known = {dim for dims, _ in tensors for dim in dims}
    names = {size: name for name, size in draft.gpu_sizes[1].items() if name not in known}
    tensors += [
        (tuple(names.get(extent, "") for extent in own), shape)
        for own, shape in zip(_state(draft), shapes, strict=True)
        if len(own) == len(shape)
    ]
    for dims, shape in tensors:
        for dim, value in zip(dims, shape, strict=True):
            if dim.isidentifier() and sizes.setdefault(dim, value) != value:
                return None
    try:
        task = module_task(replace(draft, sizes=(sizes, sizes, sizes)))
        case = task.cases[0]
        if any(i.shape != g.shape for i, g in zip(case.inputs, given, strict=True)):
            return None
        model = Problem(draft.name, task.reference).namespace()["Model"](*case.init_args)
        if sorted(tuple(t.shape) for t in model.state_dict().values()) != sorted(shapes):
            return None
        return _result(model, inputs)
    except Exception:  # at these sizes it is no module
        return None


def _state(draft: ModuleDraft) -> list[tuple[int, ...]]:
    """The shapes of its parameters at ragged sizes, which are all different."""
    task = module_task(draft)
    with torch.device("meta"):
        names = Problem(draft.name, task.reference).namespace()
        model = names["Model"](*task.gpu_cases[1].init_args)
    return [tuple(t.shape) for t in model.state_dict().values()]


# --- counts and times ----------------------------------------------------------------------------


def times(drafts: Sequence[ModuleDraft]) -> dict[str, float]:
    """Seconds for the list, and the longest and median milliseconds of making one task."""
    catalog.all_drafts.cache_clear()
    start = time.process_time()
    catalog.all_drafts()
    listed = time.process_time() - start
    each = []
    for draft in drafts[::23]:
        start = time.process_time()
        module_task(draft)
        each.append(1e3 * (time.process_time() - start))
    each.sort()
    return {
        "list_s": round(listed, 2),
        "task_ms_median": round(each[len(each) // 2], 2),
        "task_ms_most": round(each[-1], 2),
    }


def _one_sentence(program: Callable[[], int]) -> int:
    """Runs the program; what a user did wrong is one sentence, and an interrupt one line."""
    try:
        return program()
    except UsageError as e:
        print(f"module_tasks: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("module_tasks: stopped; what was judged is kept", file=sys.stderr)
        return 130


def _judging_flags(cli: argparse.ArgumentParser) -> None:
    cli.add_argument("--judge", action="store_true", help="judge the kernels")
    cli.add_argument("--backend", choices=get_args(BackendChoice), default="auto")
    cli.add_argument("--shard", default="1/1", metavar="K/N", help="this machine of how many")
    cli.add_argument("--tasks", type=int, help="so many tasks of all families in turn; default all")
    cli.add_argument("--families", nargs="*", default=[], help="of these alone; default all")
    cli.add_argument("--minutes", type=float, default=math.inf, help="begin no kernel after these")
    cli.add_argument("--workers", type=int, help="judges at the same time; default by cores")
    cli.add_argument("--receipts", type=Path, default=ROOT / "runs/module_kernels/receipts.jsonl")
    cli.add_argument("--merge", type=Path, nargs="*", default=[], help="receipts of other machines")
    cli.add_argument("--pack", type=Path, help="write all receipts compressed to this file")
    cli.add_argument("--speeds", type=Path, help="write the table of speeds here")
    cli.add_argument("--measured", default="", help="where and when, for that table")
    cli.add_argument("--write", action="store_true", help="write the report to benchmarks/results")


def _judge(args: argparse.Namespace) -> int:
    given = Judging(
        args.receipts, args.backend, shard(args.shard), args.tasks, args.workers, args.pack,
        tuple(args.merge), packed_only=not args.judge, minutes=args.minutes,
        measured=args.measured, speeds=args.speeds, families=tuple(args.families),
    )  # fmt: skip
    report = head("module_kernels", packages=("torch",))
    figures, bars = judge(given)
    beside = args.receipts.parent / "report.json"
    path = result_path("module_kernels") if args.write else beside
    return 0 if finish({**report, "bars": bars, **figures}, path) else 1


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument(
        "--kernelbench", type=Path, nargs="*", default=[], help="files or folders of problems"
    )
    cli.add_argument("--write-exclusions", action="store_true")
    cli.add_argument("--write-constant", action="store_true")
    _judging_flags(cli)
    args = cli.parse_args()
    if args.judge or args.pack or args.speeds:
        return _judge(args)
    torch.set_num_threads(1)
    if args.write_constant:
        print(f"{write_constant()} tasks hardly vary")
        return 0
    machine = this_machine()
    problems = problems_of(args.kernelbench)
    if args.write_exclusions:
        write_exclusions(problems)
    drafts = catalog.all_drafts()
    report: dict[str, Any] = {
        "tasks": {
            f"level {level} {part}": n
            for (level, part), n in sorted(Counter((d.level, d.part) for d in drafts).items())
        },
        "families": dict(Counter(d.family for d in drafts)),
        "excluded": len(drawn.excluded_keys()),
        **times(drafts),
    }
    if problems:
        own = {problem: grams(problem.source) for problem in problems}
        beyond = spare_drafts(MOST_SPARE), wider_drafts(MOST_WIDER)
        drafts = (*drafts, *chain.from_iterable(beyond))
        anew = [d for d in catalog.all_drafts() if catalog.may_be_spelt_anew(d)]
        moved = [at_other_sizes(d) for d in drafts if d.part == "train"]
        moved_anew = [at_other_sizes(d, 1) for d in anew]
        near = chain(
            overlaps(drafts, own), overlaps(anew, own, spelling=1),
            overlaps(moved, own, renamed=True),
            overlaps(moved_anew, own, spelling=1, renamed=True),
        )  # fmt: skip
        text = sorted(((share, d.name, name) for d, name, share in near), reverse=True)
        by_syntax = syntax_hits(drafts, problems) + syntax_hits(anew, problems, spelling=1)
        by_values, compared = value_hits(drafts, problems)
        report["audit"] = {
            "problems": len(problems), "spelt_anew": len(anew),
            "at_other_sizes": len(moved) + len(moved_anew), "syntax_hits": by_syntax,
            "value_hits": by_values,
            "values_compared": compared, "most_overlap": text[0] if text else None,
            "overlap_hits": [t for t in text if t[0] >= MOST_OVERLAP],
        }  # fmt: skip
    print(json.dumps(report, indent=1))
    found = report.get("audit", {})
    hits = sum(len(found.get(k, ())) for k in ("syntax_hits", "value_hits", "overlap_hits"))
    if problems and args.write:
        told = {**head("module_audit", packages=("torch",), machine=machine), **report}
        finish({**told, "bars": [bar("module tasks that a problem has", 0, hits, hits == 0)]})
    return int(hits > 0)


if __name__ == "__main__":
    sys.exit(_one_sentence(main))

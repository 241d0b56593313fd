"""`cuda-rl eval`: a model on suites of tasks; two runs compared; KernelBench's own numbers.

    cuda-rl eval MODEL --suite held-out:100 --output-dir DIR
    cuda-rl eval compare A B
    cuda-rl eval kernelbench-score RUN --level 1 --baseline FILE --kernelbench-dir CHECKOUT

Exit status of an evaluation: 0 it is finished and every gate holds, 1 a gate fails, 2 wrong use, 3
a fault of ours, or too many samples that faults of ours kept from a verdict.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK, EXIT_OURS, fail
from coding_framework.commands.flags import add_command, add_flags, add_json, config_from
from coding_framework.commands.judge import JUDGING
from coding_framework.errors import UsageError
from coding_framework.run.eval_options import EvalOptions
from coding_framework.wiring import JudgeSettings

if TYPE_CHECKING:
    from coding_framework.evaluation.compare import Comparison
    from coding_framework.evaluation.eval_summary import EvalSummary
    from coding_framework.run.evaluation import EvalOutcome

FLAGS = (
    "output_dir", "adapter", "server", "prompts", "samples", "temperature", "max_new_tokens",
    "turns", "seed", "concurrency", "task_scope", "limit", "family", "tier", "kernelbench_dir",
    "compare", "fail_under", "max_masked",
)  # fmt: skip
OF_THE_JUDGE = tuple(name for name in (*JUDGING, "workers") if name != "seed")
"""The seed of `eval` is that of tasks and sampling; inputs stay secret."""


def add_to(commands: Any) -> None:
    p = add_command(commands, "eval", run, "Evaluate a model on suites of tasks; compare two runs.")
    p.add_argument(
        "what",
        nargs="+",
        metavar="WHAT",
        help="a model (a hub name or a folder; with --server the name that the server knows), "
        "`compare A B` (two finished runs), or `kernelbench-score RUN`",
    )
    p.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="SUITE",
        help="held-out:N, held-out-shapes:N, train-shapes:N, kernelbench:LEVEL, or the path of "
        "problems; may be given again",
    )
    add_flags(p, EvalOptions, FLAGS)
    add_flags(p, JudgeSettings, OF_THE_JUDGE)
    p.add_argument("--junit", type=Path, metavar="FILE", help="write the gates as JUnit's XML here")
    p.add_argument("--level", type=int, metavar="N", help="kernelbench-score: level of the run")
    p.add_argument(
        "--baseline", type=Path, metavar="FILE", help="kernelbench-score: their file of times"
    )
    add_json(p, "print the result as one JSON object")


def run(args: Namespace) -> int:
    match args.what:
        case ["compare", one, other]:
            return _compare(Path(one), Path(other), args.json)
        case ["kernelbench-score", folder]:
            return _kernelbench_score(Path(folder), args)
        case ["compare" | "kernelbench-score" as action, *_]:
            needs = {"compare": "two finished runs", "kernelbench-score": "one run folder"}
            raise UsageError(f"`cuda-rl eval {action}` takes {needs[action]}")
        case [model]:
            return _evaluate(model, args)
    raise UsageError(f"one model at a time: {' '.join(args.what)!r} names {len(args.what)}")


def _evaluate(model: str, args: Namespace) -> int:
    if not args.suite:
        raise UsageError("--suite is missing: give one, e.g. --suite held-out:100")
    options = config_from(EvalOptions, args)
    judging = config_from(JudgeSettings, Namespace(**{
        name: value for name, value in vars(args).items() if name in OF_THE_JUDGE
    }))  # fmt: skip
    from coding_framework.evaluation.gates import junit
    from coding_framework.run.evaluation import run_evaluation

    outcome = run_evaluation(model, args.suite, options, judging)
    if args.junit is not None:
        args.junit.write_text(junit(outcome.gates), encoding="utf-8")
    if args.json:
        print(outcome.model_dump_json())
    else:
        print("\n".join(_lines(outcome)))
    block = outcome.overall.overall
    masked = block.masked / max(1, block.masked + block.samples)
    if masked > options.max_masked:
        return fail(
            "cuda-rl",
            f"faults of ours kept {block.masked} samples from a verdict ({masked:.0%}, at most "
            f"{options.max_masked:.0%} are allowed): the same command tries them again",
            EXIT_OURS,
        )
    for result in outcome.gates:
        if not result.holds:
            print(f"cuda-rl: {result.sentence}", file=sys.stderr)
    return EXIT_OK if all(result.holds for result in outcome.gates) else EXIT_HIT


def _lines(outcome: EvalOutcome) -> list[str]:
    summaries = outcome.suites if len(outcome.suites) > 1 else ()
    found = [line for summary in (outcome.overall, *summaries) for line in _summary_lines(summary)]
    if outcome.compared is not None:
        found += _comparison_lines(outcome.compared)
    return found + [result.sentence for result in outcome.gates]


def _summary_lines(summary: EvalSummary) -> list[str]:
    """A suite's numbers, each with its interval and count."""
    block = summary.overall
    low, high = block.compiled.ci95
    lines = [
        f"{summary.suite}: {block.samples} samples of {block.tasks} tasks, {block.masked} masked",
        f"  {'compile':<24} {block.compiled.rate:6.1%}  ({low:.1%} to {high:.1%})",
    ]
    estimates = dict(block.pass_at)
    for speeds in block.speeds:
        against = f"over {speeds.baseline}, {speeds.basis}"
        estimates |= {f"{name} {against}": fast for name, fast in speeds.fast.items()}
    for name, found in estimates.items():
        if found.value is None or found.ci95 is None:
            lines.append(f"  {name:<24} not told: {found.why}")
        else:
            low, high = found.ci95
            lines.append(f"  {name:<24} {found.value:6.1%}  ({low:.1%} to {high:.1%})")
    if block.regressions is not None:
        r = block.regressions
        lines.append(
            f"  {'regressions':<24} {r.rate.rate:6.1%}  ({r.rate.count} of {r.judged} kernels fail "
            "or slow down at other shapes)"
        )
    return lines


def _compare(one: Path, other: Path, as_json: bool) -> int:
    from coding_framework.evaluation.compare import compare_runs
    from coding_framework.run.evaluation import THRESHOLDS, read_sample_records

    found = compare_runs(read_sample_records(one), read_sample_records(other), THRESHOLDS)
    print(found.model_dump_json() if as_json else "\n".join(_comparison_lines(found)))
    return EXIT_OK


def _comparison_lines(found: Comparison) -> list[str]:
    lines = [found.sentence]
    for difference in (*found.differences, *((found.speed,) if found.speed is not None else ())):
        low, high = difference.ci95
        lines.append(
            f"  {difference.metric:<10} {difference.estimate:+.3f}  ({low:+.3f} to {high:+.3f}), "
            f"p {difference.p_holm:.2g}: {difference.word}"
        )
    if found.left_out:
        lines.append(f"  {len(found.left_out)} tasks are in one run alone")
    for word, names in (("only A solves", found.lost), ("only B solves", found.won)):
        if names:
            lines.append(f"  {word} {', '.join(names[:10])}")
    return lines


def _kernelbench_score(folder: Path, args: Namespace) -> int:
    from coding_framework.evaluation.kernelbench_score import (
        kernelbench_score,
        read_baseline,
        read_results,
    )
    from coding_framework.evaluation.suites import kernelbench_files, problem_number

    checkout = getattr(args, "kernelbench_dir", None)
    if args.level is None or args.baseline is None or checkout is None:
        raise UsageError("kernelbench-score needs --level, --baseline and --kernelbench-dir")
    names = {problem_number(p): p.name for p in kernelbench_files(checkout, args.level)}
    results = read_results(folder / "eval_results.json" if folder.is_dir() else folder)
    score = kernelbench_score(results, read_baseline(args.baseline, args.level), names)
    if args.json:
        print(score.model_dump_json())
        return EXIT_OK
    for name, value in score.model_dump(exclude={"warnings"}).items():
        print(f"{name:<18} {json.dumps(value) if isinstance(value, dict) else value}")
    for warning in score.warnings:
        print(f"cuda-rl: {warning}", file=sys.stderr)
    return EXIT_OK

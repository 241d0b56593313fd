"""`cuda-rl eval`: a model, or answers, on suites of tasks; runs compared, shown, verified.

    cuda-rl eval MODEL --suite held-out:100 --output-dir DIR
    cuda-rl eval --answers RUN --suite kernelbench:1 --kernelbench-dir CHECKOUT
    cuda-rl eval compare A B
    cuda-rl eval report DIR
    cuda-rl eval verify DIR

Exit status of an evaluation: 0 it is finished and every gate holds, 1 a gate fails, 2 wrong use, 3
a fault of ours, or too many samples that faults of ours kept from a verdict, 4 stopped by its limit
of time.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotated_types import Ge

from coding_framework.commands.failures import EXIT_EARLY, EXIT_HIT, EXIT_OK, EXIT_OURS, fail
from coding_framework.commands.flags import (
    FlagParser,
    add_action,
    add_command,
    add_flags,
    add_json,
    add_path,
    add_switch,
    config_from,
    value_of,
)
from coding_framework.commands.judge import OF_THE_JUDGE
from coding_framework.commands.waiting import waiting
from coding_framework.errors import UsageError, is_of_task
from coding_framework.monitoring.text import one_line
from coding_framework.run.eval_options import EvalOptions
from coding_framework.store.folder import EvalFolder
from coding_framework.wiring import JudgeSettings

if TYPE_CHECKING:
    from coding_framework.evaluation.compare import Comparison
    from coding_framework.evaluation.eval_summary import EvalSummary
    from coding_framework.evaluation.outcome import EvalOutcome
    from coding_framework.run.evaluation import EvalPlan

FIRST = ("suite", "output_dir", "answers", "server", "samples", "turns", "limit", "compare")
"""Flags that its help shows first."""


def add_to(commands: Any) -> None:
    p = add_command(commands, "eval", run, "Evaluate a model or answers; compare two runs.")
    p.first = FIRST
    p.add_argument(
        "what",
        nargs="*",
        metavar="WHAT",
        help="a model (a hub name, a folder, or the folder of a training run; with --server the "
        "name that the server knows), nothing with --answers, or an action with a help of its own: "
        "compare (two finished runs), report or verify (one)",
    )
    p.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="SUITE",
        help="held-out:N, held-out-shapes:N, train-shapes:N, modules:N, "
        "validation:N, "
        "kernelbench:LEVEL[:representative], "
        "or the path of problems; may be given again",
    )
    add_flags(p, EvalOptions, EvalOptions.model_fields)
    add_flags(p, JudgeSettings, OF_THE_JUDGE)
    add_switch(p, "--dry-run", "show what would be evaluated, and end")
    add_path(p, "--junit", "FILE", "write the gates as JUnit's XML here")
    add_json(p, "print the result as one JSON object")
    for add in (_add_compare, _add_report, _add_verify):
        add(p)


def _add_compare(command: FlagParser) -> None:
    p = add_action(command, "compare", _compare, "Compare two finished runs, task by task.")
    p.add_argument("one", type=Path, metavar="A", help="folder of a finished run")
    p.add_argument("other", type=Path, metavar="B", help="likewise, said to be better or worse")
    add_flags(p, EvalOptions, ["p"])
    add_json(p, "print the comparison as one JSON object")


def _add_report(command: FlagParser) -> None:
    text = "Write report.html and the figures of finished runs anew."
    p = add_action(command, "report", _report, text)
    p.add_argument("folder", type=Path, nargs="+", metavar="DIR", help="folder of a run")
    add_path(p, "--leaderboard", "FILE", "also write a page of these runs beside published rows")
    add_json(p, "print where the report of the first is as one JSON object")


def _add_verify(command: FlagParser) -> None:
    text = "Check a finished run: its numbers made anew, a few of its kernels judged again."
    p = add_action(command, "verify", _verify, text)
    p.add_argument("folder", type=Path, metavar="DIR", help="folder of the run")
    p.add_argument(
        "--judge-again",
        type=value_of(int, Ge(0)),
        default=5,
        metavar="N",
        help="how many kernels are judged again (default: 5)",
    )
    add_flags(p, JudgeSettings, ["workers"])
    add_json(p, "print what was found as one JSON object")


def run(args: Namespace) -> int:
    first, *more = args.what or [""]
    actions = args.parser.actions
    if first in actions:
        raise UsageError(f"give {first} first, its flags after it: `cuda-rl eval {first} --help`")
    if more:
        near = get_close_matches(first, actions, n=1)
        hint = f"; did you mean `cuda-rl eval {near[0]}`?" if near else ""
        named = " ".join(args.what)
        raise UsageError(f"one model at a time: {named!r} names {len(args.what)}{hint}")
    return _evaluate(first or None, args)


def _evaluate(model: str | None, args: Namespace) -> int:
    options = config_from(EvalOptions, args)
    if (model is None) == (options.answers is None):
        raise UsageError("give a model, or answers with --answers, and not both")
    if options.dtype != "auto" and (options.server or options.answers):
        raise UsageError(
            "--dtype is for a model that answers here: a server has its own; leave it out"
        )
    if not args.suite:
        raise UsageError("--suite is missing: give one, e.g. --suite held-out:100")
    judging = config_from(JudgeSettings, args, OF_THE_JUDGE)
    from coding_framework.evaluation.gates import junit
    from coding_framework.run.evaluation import plan_evaluation, run_evaluation

    with waiting("reading the suites"):
        plan = plan_evaluation(model, args.suite, options)
    print("\n".join(_plan_lines(plan)), file=sys.stderr, flush=True)
    if args.dry_run:
        return EXIT_OK
    outcome = run_evaluation(model, plan, options, judging)
    if outcome is None:
        print("the answers are there: the same command without --ask-only judges them")
        return EXIT_OK
    if args.junit is not None:
        args.junit.write_text(junit(outcome.gates), encoding="utf-8")
    status = _status(outcome, options)
    if args.json:
        gates = [result.model_dump(mode="json") for result in outcome.gates]
        summary = outcome.model_dump(mode="json")
        print(json.dumps({"status": status, "summary": summary, "gates": gates}))
    else:
        print("\n".join([*_lines(outcome), f"report: {EvalFolder(options.output_dir).report}"]))
    return status


def _status(outcome: EvalOutcome, options: EvalOptions) -> int:
    """The exit status; what is wrong is said on stderr."""
    block, share = outcome.overall.overall, outcome.masked_share
    if share > options.max_masked:
        worst = max(outcome.faults, key=lambda reason: outcome.faults[reason])
        whose = "tasks whose own source fails" if is_of_task(worst) else "faults of ours"
        return fail(
            "cuda-rl",
            f"{whose} kept {block.masked} samples from a verdict ({share:.0%}, at most "
            f"{options.max_masked:.0%} are allowed; {worst}): another --output-dir with --answers "
            f"{options.output_dir} judges the answers again",
            EXIT_OURS,
        )
    for result in outcome.gates:
        if not result.holds:
            print(f"cuda-rl: {result.sentence}", file=sys.stderr)
    if any(not result.holds and not result.undecided for result in outcome.gates):
        return EXIT_HIT
    if not outcome.complete:
        sentence = "stopped by --minutes: the same command goes on from where it was"
        return fail("cuda-rl", sentence, EXIT_EARLY)
    return EXIT_OK


def _plan_lines(plan: EvalPlan) -> list[str]:
    lines = []
    for suite in plan.suites:
        lines.append(f"{suite.name}: {len(suite.tasks)} tasks, digest {suite.digest[:12]}")
        lines.append(f"  leak: {plan.leak[suite.name]}")
        if suite.not_applicable:
            first = "; ".join(
                f"{n} ({why[:80]})" for n, why in list(suite.not_applicable.items())[:3]
            )
            lines.append(f"  not applicable: {len(suite.not_applicable)} problems: {first}")
        if missing := plan.unanswered.get(suite.name):
            lines.append(f"  without an answer: {len(missing)} tasks")
    return lines


def _lines(outcome: EvalOutcome) -> list[str]:
    summaries = outcome.suites if len(outcome.suites) > 1 else ()
    found = [line for summary in (outcome.overall, *summaries) for line in _summary_lines(summary)]
    if outcome.compared is not None:
        found += _comparison_lines(outcome.compared)
    return [*found, *outcome.notes, *(result.sentence for result in outcome.gates)]


def _summary_lines(summary: EvalSummary) -> list[str]:
    """A suite's numbers, each with its interval and count."""
    from coding_framework.evaluation.outcome import as_estimate

    block = summary.overall
    gaps = f", {block.unsupported} unsupported" if block.unsupported else ""
    lines = [
        f"{summary.suite}: {block.samples} samples of {block.tasks} tasks, {block.masked} "
        f"masked{gaps}"
    ]
    estimates = {"compile": as_estimate(block.compiled), **block.pass_at}
    for speeds in block.speeds:
        against = f"over {speeds.baseline}, {speeds.basis}"
        estimates |= {f"{name} {against}": fast for name, fast in speeds.fast.items()}
    for name, found in estimates.items():
        if found.value is None or found.ci95 is None:
            lines.append(f"  {name:<24} not told: {found.why}")
        else:
            low, high = found.ci95
            lines.append(f"  {name:<24} {found.value:6.1%}  ({low:.1%} to {high:.1%})")
    if (ruled := block.by_rules) is not None:
        lines.append(
            f"  correct by {ruled.rules} alone {ruled.theirs.count} of {ruled.theirs.n}, by our "
            f"protocol alone {ruled.ours.count} of {ruled.ours.n}: the report has the reasons"
        )
    if block.regressions is not None:
        r = block.regressions
        lines.append(
            f"  {'regressions':<24} {r.rate.count} of {r.judged} kernels fail or slow down at "
            "other shapes"
        )
    return lines


def _compare(args: Namespace) -> int:
    from coding_framework.evaluation.compare import compare_runs
    from coding_framework.run.evaluation import read_sample_records

    thresholds = config_from(EvalOptions, args).thresholds
    found = compare_runs(read_sample_records(args.one), read_sample_records(args.other), thresholds)
    print(found.model_dump_json() if args.json else "\n".join(_comparison_lines(found)))
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


def _report(args: Namespace) -> int:
    from coding_framework.run.eval_folder import write_leaderboard_of, write_report_of

    if args.leaderboard is not None:
        write_leaderboard_of(args.folder, args.leaderboard)
    reports = [str(write_report_of(folder)) for folder in args.folder]
    print(json.dumps({"report": reports[0]}) if args.json else "\n".join(reports))
    return EXIT_OK


def _verify(args: Namespace) -> int:
    from coding_framework.run.eval_folder import verify_folder

    found = verify_folder(args.folder, args.judge_again, getattr(args, "workers", None))
    if args.json:
        print(found.model_dump_json())
    else:
        for problem in found.problems:
            print(one_line(problem))
        print(
            f"{found.samples} samples, {found.judged_again} kernels judged again: "
            f"{len(found.problems) or 'no'} problems"
        )
    return EXIT_HIT if found.problems else EXIT_OK

"""`cuda-rl`: parses, builds, calls. What a command does is in the module it names.

Exit status: 0 done (`judge`: judged, whatever the verdict), 1 a leak (`data audit`), 2 wrong use,
3 our fault, 130 stopped by Ctrl-C. A failure is one sentence on stderr that says what to do;
CUDA_RL_DEBUG=1 adds the traceback. Results go to stdout, progress and warnings to stderr.

Heavy modules are imported by the commands that need them, so that help and errors are instant.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from coding_framework import __version__
from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.types import PRINTED, Split

if TYPE_CHECKING:
    from coding_framework.commands.data import TaskSelection
    from coding_framework.types import Verdict
    from coding_framework.wiring import JudgeSettings

EXIT_OK, EXIT_HIT, EXIT_USAGE, EXIT_OURS, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
MAX_KERNEL_BYTES = 16 * 2**20
"""A larger file is a wrong path, not a kernel; what is smaller the judge decides on."""

BACKENDS = ("auto", "cuda", "emulator")
BASELINES = ("none", "eager", "compiled")
SHOWN_COUNTERS = (
    "smsp__inst_executed.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__sass_branch_targets_threads_divergent.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
)
"""What people look at first, where it is not zero; --json has all of them."""
SHOWN_LINES = 20
"""Of what kernels print; --json has all that was kept."""
HEADERS = ("small", "torch")
SANDBOXES = ("auto", "no-docker", "bubblewrap", "docker", "native")


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of `cuda-rl`; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    try:
        return _run(given)
    except KeyboardInterrupt:
        kept = ("quickstart", "judge-many", "solve")
        resumes = given[0] in kept or "build" in " ".join(given[:2])
        hint = ": the same command goes on from where it was" if resumes else ""
        return _fail(f"stopped{hint}", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except Exception as e:
        return _fail(*_sentence_and_status(_leaf(e)))


def _sentence_and_status(error: Exception) -> tuple[str, int]:
    if isinstance(error, UsageError):
        return str(error), EXIT_USAGE
    if isinstance(error, CodingFrameworkError):
        return str(error), EXIT_OURS
    if isinstance(error, OSError):
        from coding_framework.paths import cannot_write

        where = Path(str(error.filename)) if error.filename else Path("the output")
        return cannot_write(where, error), EXIT_OURS
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return (
        f"internal error ({text}): run it again with CUDA_RL_DEBUG=1 and report the traceback",
        EXIT_OURS,
    )


def _leaf(error: Exception) -> Exception:
    """The first error of a group of tasks that failed together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _run(argv: Sequence[str]) -> int:
    args, unknown = build_parser().parse_known_args(argv)
    if unknown:
        raise UsageError(_unknown_argument(args.parser, unknown[0]))
    from coding_framework.monitoring.logs import configure_logging

    configure_logging()
    status: int = args.run(args)
    sys.stdout.flush()
    return status


def _fail(sentence: str, status: int) -> int:
    if os.environ.get("CUDA_RL_DEBUG"):
        traceback.print_exc()
    print(f"cuda-rl: {sentence}", file=sys.stderr, flush=True)
    return status


# --- the parser -----------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Fails with one sentence instead of a usage dump."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(_argparse_sentence(self, message))


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="cuda-rl",
        description="Trains LLM agents to write fast, correct CUDA kernels.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cuda-rl {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_quickstart(commands)
    _add_judge(commands)
    _add_judge_many(commands)
    _add_solve(commands)
    _add_replay(commands)
    _add_tasks(commands)
    _add_data(commands)
    _add_doctor(commands)
    return parser


def _command(commands: Any, name: str, run: Any, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text, allow_abbrev=False
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _at_least_one(text: str) -> int:
    if _whole_number(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _add_quickstart(commands: Any) -> None:
    p = _command(
        commands,
        "quickstart",
        run_quickstart,
        "Evaluate a small model, train it by SFT and multi-turn RL, evaluate after each.",
    )
    p.add_argument("--smoke", action="store_true", help="the whole flow with tiny counts")
    p.add_argument("--output-dir", type=Path, metavar="DIR", help="default: outputs/quickstart")
    p.add_argument("--base-model", metavar="NAME|PATH", help="a hub name or a local folder")
    p.add_argument("--seed", type=_whole_number, default=0, metavar="N")


def _add_judging(p: argparse.ArgumentParser) -> None:
    p.add_argument("--backend", choices=BACKENDS, default="auto")
    p.add_argument("--sandbox", choices=SANDBOXES, default="auto")
    p.add_argument(
        "--seed", type=_whole_number, metavar="N", help="reproduces the inputs; secret otherwise"
    )
    p.add_argument(
        "--baselines",
        choices=BASELINES,
        default="eager",
        help="on a GPU: PyTorch's times beside the kernel's; compiled: torch.compile's too",
    )
    p.add_argument(
        "--profile", action="store_true", help="on a GPU: hardware counters by Nsight Compute"
    )


def _add_judge(commands: Any) -> None:
    p = _command(commands, "judge", run_judge, "Judge one kernel for one task.")
    p.add_argument("--task", required=True, metavar="TASK", help="a name or a task file")
    p.add_argument(
        "--kernel",
        required=True,
        metavar="FILE",
        help="a .cu file, or a KernelBench answer (.py with ModelNew); - reads stdin",
    )
    _add_judging(p)
    p.add_argument(
        "--headers",
        choices=HEADERS,
        default="small",
        help="torch: also compile against the real torch headers (45 s, 3 GB) and compare",
    )
    p.add_argument("--json", action="store_true", help="print the verdict as one JSON object")


def _add_judge_many(commands: Any) -> None:
    p = _command(
        commands, "judge-many", run_judge_many, "Judge many kernels in parallel, as JSON lines."
    )
    p.add_argument(
        "--tasks-and-kernels",
        required=True,
        type=Path,
        metavar="FILE",
        help='JSON lines {"id", "task", "kernel"} or {"id", "task", "code"}',
    )
    p.add_argument("--output", type=Path, metavar="FILE", help="append here; skip ids already in")
    p.add_argument(
        "--workers",
        type=_at_least_one,
        metavar="N",
        help="default: one a core (of each node; for each GPU with --ray and bench_gpu)",
    )
    p.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="judge on the nodes of this Ray cluster: HOST:PORT, auto, or local for a new one here",
    )
    _add_judging(p)
    p.add_argument("--json", action="store_true", help="always on; taken as `judge` takes it")


def _add_solve(commands: Any) -> None:
    p = _command(
        commands, "solve", run_solve, "Let the agents work on one task, live in the terminal."
    )
    p.add_argument("--task", required=True, metavar="TASK", help="a name or a task file")
    p.add_argument("--model", metavar="NAME|PATH", help="default: SmolLM2-135M-Instruct")
    p.add_argument("--adapter", metavar="DIR", help="a PEFT adapter for the model")
    p.add_argument("--optimizer-adapter", metavar="DIR", help="default: the same adapter")
    p.add_argument("--server", metavar="URL", help="an OpenAI-compatible server that has --model")
    p.add_argument("--turns", type=_whole_number, metavar="N", help="at most; default: 5")
    p.add_argument("--candidates", type=_whole_number, metavar="N", help="a turn; default: 1")
    p.add_argument("--reward", metavar="PRESET", help="weighted, gated, kevin, correct")
    p.add_argument("--stop-reward", type=float, metavar="X", help="a reward that is good enough")
    p.add_argument("--temperature", type=float, metavar="X", help="default: 0.7")
    p.add_argument("--max-new-tokens", type=_whole_number, metavar="N", help="default: 1024")
    p.add_argument("--prompts", choices=("v1", "v2"), help="v1 is what models are trained on here")
    p.add_argument("--tester", choices=("off", "rules", "model"), help="default: rules")
    p.add_argument("--output-dir", type=Path, metavar="DIR", help="default: outputs/solve/TASK")
    _add_judging(p)


def _add_replay(commands: Any) -> None:
    p = _command(commands, "replay", run_replay, "Show a stored conversation turn by turn.")
    p.add_argument(
        "run_path", type=Path, metavar="RUN", help="a folder or file that a command wrote"
    )
    p.add_argument("episode", nargs="?", metavar="EPISODE", help="its id or number; none: a list")
    p.add_argument("--reward", metavar="PRESET", help="reward recomputed, e.g. kevin")
    p.add_argument("--json", action="store_true", help="the conversation as one JSON object")


def _add_tasks(commands: Any) -> None:
    parser = commands.add_parser("tasks", help="List and show tasks.", allow_abbrev=False)
    parser.set_defaults(parser=parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    p = _command(actions, "list", run_tasks_list, "List the tasks by name.")
    _add_selection(p)
    p.add_argument("--json", action="store_true", help="one JSON object a line")
    p = _command(actions, "show", run_tasks_show, "Show a task and its kernels.")
    p.add_argument("task", metavar="TASK")
    p.add_argument("--json", action="store_true", help="the task as one JSON object")

    p = _command(
        actions, "build", run_tasks_build, "Judge the tasks' kernels; goes on where it was stopped."
    )
    _add_selection(p)
    p.add_argument(
        "--tasks", type=_whole_number, metavar="N", help="at most, balanced; default: all"
    )
    p.add_argument("--workers", type=_whole_number, metavar="N", help="default: one a core")
    p.add_argument("--output", type=Path, metavar="FILE", help="default: datasets/ in the cache")
    p = _command(actions, "stats", run_tasks_stats, "Count tasks, families and judged kernels.")
    _add_selection(p)
    p.add_argument("--json", action="store_true", help="the counts as one JSON object")


def _add_selection(p: argparse.ArgumentParser) -> None:
    p.add_argument("--split", choices=[s.value for s in Split])
    p.add_argument("--family", metavar="NAME")
    p.add_argument("--tier", type=int, choices=range(4))


def _add_data(commands: Any) -> None:
    parser = commands.add_parser("data", help="Build, audit and describe data.", allow_abbrev=False)
    parser.set_defaults(parser=parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    p = _command(actions, "build-sft", run_data_build_sft, "Build supervised pairs, judged.")
    p.add_argument("--source", choices=("synthesis", "archive"), default="synthesis")
    p.add_argument("--archive", metavar="PATH|NAME", help="a file, a folder or the hub's name")
    p.add_argument(
        "--allow-synthetic",
        action="store_true",
        help="where the archive cannot be read, synthesised examples, named as such",
    )
    p.add_argument("--tasks", type=_whole_number, metavar="N", help="at most; default: all")
    p.add_argument("--tier", type=int, choices=range(4))
    p.add_argument("--only-judged", action="store_true", help="judge nothing, use what is judged")
    p.add_argument("--workers", type=_whole_number, metavar="N", help="default: one a core")
    p.add_argument("--output", type=Path, metavar="DIR", help="default: datasets/ in the cache")
    p = _command(
        actions, "audit", run_data_audit, "Is a held-out task in training? Exit status 1 if so."
    )
    p.add_argument(
        "--outside",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="problems from outside (.py, .jsonl, a folder); may be given again",
    )
    p.add_argument("--json", action="store_true", help="the report as one JSON object")
    p = _command(actions, "card", run_data_card, "Write the card of a set of examples.")
    p.add_argument("--examples", type=Path, metavar="PATH", help="default: what was built last")
    p = _command(
        actions,
        "mistakes",
        run_data_mistakes,
        "Build repairs of the wrong kernels in stored conversations about training tasks.",
    )
    p.add_argument(
        "--conversations",
        required=True,
        type=Path,
        nargs="+",
        metavar="FILE",
        help="JSON lines that RL (attempts/) or an evaluation stored",
    )
    p.add_argument("--output", required=True, type=Path, metavar="FILE", help="JSON lines")
    p.add_argument(
        "--per-task", type=_at_least_one, metavar="N", help="mistakes of a task at most; default: 8"
    )
    p.add_argument(
        "--task-scope",
        choices=("starter", "all"),
        default="starter",
        help="all: what was judged here",
    )
    p.add_argument("--seed", type=_whole_number, default=0, metavar="N", help="of the draw")


def _add_doctor(commands: Any) -> None:
    p = _command(commands, "doctor", run_doctor, "Check every component on this machine.")
    p.add_argument("--json", action="store_true", help="the result as one JSON object")


def _argparse_sentence(parser: argparse.ArgumentParser, message: str) -> str:
    """argparse's complaint as one sentence with the choices."""
    choice = re.match(
        r"argument (?P<what>\S+): invalid choice: (?P<got>.*?) \(choose from (?P<of>.*)\)$",
        message,
        re.DOTALL,
    )
    if choice:
        what = choice["what"]
        name = "value" if what in ("COMMAND", "ACTION") else what
        choices = choice["of"].replace("'", "")
        return f"{name} cannot be {choice['got']}: choose one of {choices}"
    if message.endswith(("COMMAND", "ACTION")) and "required" in message:
        actions = next(a for a in parser._actions if a.choices and a.dest in ("command", "action"))
        choices = ", ".join(str(c) for c in actions.choices or ())
        return f"a command is missing after `{parser.prog}`: choose one of {choices}"
    return f"{message} (see `{parser.prog} --help`)"


def _unknown_argument(parser: argparse.ArgumentParser, got: str) -> str:
    flags = [s for a in parser._actions for s in a.option_strings if s.startswith("--")]
    name = got.split("=")[0]
    if not name.startswith("-"):
        return f"`{parser.prog}` takes no further argument {got!r}: remove it"
    close = get_close_matches(name, flags, n=1)
    hint = f"did you mean {close[0]}? there are" if close else "there are"
    return f"`{parser.prog}` has no flag {name!r}: {hint} {', '.join(flags)}"


# --- commands -------------------------------------------------------------------------------------


def run_quickstart(args: argparse.Namespace) -> int:
    from coding_framework.run.quickstart import QuickstartOptions, run

    return run(
        QuickstartOptions(
            smoke=args.smoke,
            output_dir=args.output_dir,
            base_model=args.base_model,
            seed=args.seed,
        )
    )


def run_judge(args: argparse.Namespace) -> int:
    from coding_framework.data.registry import find_task
    from coding_framework.wiring import judge_one

    task = find_task(args.task)
    code = read_kernel(args.kernel)
    verdict = judge_one(task, code, _judge_settings(args))
    print(verdict.model_dump_json() if args.json else verdict_text(verdict), flush=True)
    if args.headers == "torch":
        _print_header_comparison(code, args.sandbox)
    return EXIT_OK


def _print_header_comparison(code: str, sandbox: str) -> None:
    from coding_framework.commands.header_comparison import compare_headers
    from coding_framework.monitoring.text import one_line

    print("compiling against the real torch headers, about 45 s ...", file=sys.stderr, flush=True)
    print(f"headers: {one_line(str(compare_headers(code, sandbox)), 1000)}", file=sys.stderr)


def run_judge_many(args: argparse.Namespace) -> int:
    from coding_framework.wiring import judge_pairs

    pairs = read_pairs(args.tasks_and_kernels)
    settings = _judge_settings(args)
    faults = asyncio.run(judge_pairs(pairs, settings, output=args.output, ray=args.ray))
    return EXIT_OURS if faults else EXIT_OK


def run_solve(args: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from coding_framework.commands.solve import SolveOptions, solve

    given = {name: getattr(args, name) for name in SolveOptions.model_fields if hasattr(args, name)}
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        options = SolveOptions(**chosen, judge=_judge_settings(args))
    except ValidationError as e:
        first = e.errors()[0]
        flag = str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"--{flag} cannot be {first['input']}: {first['msg'].lower()}") from e
    solve(options)
    return EXIT_OK


def run_replay(args: argparse.Namespace) -> int:
    from rich.console import Console

    from coding_framework.evaluation import replay

    console = Console(soft_wrap=not sys.stdout.isatty())
    if args.episode is None:
        console.print(replay.episodes_table(replay.episodes(args.run_path)))
        return EXIT_OK
    state = replay.find_episode(args.run_path, args.episode)
    if args.json:
        print((replay.rescored(state, args.reward) if args.reward else state).model_dump_json())
    else:
        replay.show_episode(state, console, args.reward)
    return EXIT_OK


def run_tasks_list(args: argparse.Namespace) -> int:
    from coding_framework.data.registry import list_tasks

    split = Split(args.split) if args.split else None
    tasks = list_tasks(split=split, family=args.family, tier=args.tier)
    if args.json:
        for task in tasks:
            fields = {"name", "tier", "family", "ops", "split", "description", "source"}
            print(task.model_dump_json(include=fields))
        return EXIT_OK
    width = max((len(task.name) for task in tasks), default=0)
    for task in tasks:
        print(f"{task.name:<{width}}  {task.tier}  {task.split:<8}  {task.family:<12}  ", end="")
        print(task.description)
    print(f"{len(tasks)} tasks: name, tier, split, family, description", file=sys.stderr)
    return EXIT_OK


def run_tasks_show(args: argparse.Namespace) -> int:
    from coding_framework.data.registry import describe_task, find_task

    task = find_task(args.task)
    print(task.model_dump_json(indent=2) if args.json else describe_task(args.task))
    return EXIT_OK


def _selection(args: argparse.Namespace) -> TaskSelection:
    from coding_framework.commands.data import TaskSelection

    split = getattr(args, "split", None)
    return TaskSelection(
        split=Split(split) if split else None,
        family=getattr(args, "family", None),
        tier=args.tier,
        count=getattr(args, "tasks", None),
    )


def run_tasks_build(args: argparse.Namespace) -> int:
    from coding_framework.commands.data import build_tasks

    open_ones = build_tasks(_selection(args), workers=args.workers or None, output=args.output)
    return EXIT_OURS if open_ones else EXIT_OK


def run_tasks_stats(args: argparse.Namespace) -> int:
    from coding_framework.commands.data import statistics

    found = statistics(_selection(args))
    print(found.model_dump_json() if args.json else found.table())
    return EXIT_OK


def run_data_build_sft(args: argparse.Namespace) -> int:
    from coding_framework.commands.data import build_archive_sft, build_sft
    from coding_framework.data.archive_rows import HUB_NAME

    if args.source == "synthesis" and (args.archive or args.allow_synthetic):
        raise UsageError("--archive and --allow-synthetic are for --source archive")
    if args.source == "archive":
        manifest = build_archive_sft(
            args.archive or HUB_NAME,
            args.output,
            allow_synthetic=args.allow_synthetic,
            limit=args.tasks,
            workers=args.workers or None,
        )
    else:
        manifest = build_sft(
            _selection(args),
            args.output,
            judge=not args.only_judged,
            workers=args.workers or None,
        )
    print(manifest.model_dump_json(indent=2))
    return EXIT_OK


def run_data_audit(args: argparse.Namespace) -> int:
    from coding_framework.commands.data import audit

    report = audit(args.outside)
    print(report.model_dump_json() if args.json else report.table())
    return EXIT_HIT if report.hits else EXIT_OK


def run_data_card(args: argparse.Namespace) -> int:
    from coding_framework.commands.data import card

    print(card(args.examples))
    return EXIT_OK


def run_data_mistakes(args: argparse.Namespace) -> int:
    from coding_framework.commands.data import build_mistakes
    from coding_framework.data.mistakes import PER_TASK

    manifest = build_mistakes(
        args.conversations,
        args.output,
        per_task=args.per_task or PER_TASK,
        seed=args.seed,
        scope=args.task_scope,
    )
    print(manifest.model_dump_json(indent=2))
    return EXIT_OK


def run_doctor(args: argparse.Namespace) -> int:
    from coding_framework.commands.doctor import doctor

    return doctor(as_json=args.json)


# --- judge: input and output ----------------------------------------------------------------------


def read_kernel(name: str) -> str:
    """The kernel's source from a file, or from stdin for "-".

    Bytes that are not UTF-8 become U+FFFD: what is odd about a source is the verdict's to say.
    Raises UsageError where there is no such file.
    """
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_KERNEL_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(MAX_KERNEL_BYTES + 1)
    except (OSError, ValueError) as e:
        what = e.strerror if isinstance(e, OSError) else e
        raise UsageError(f"the kernel file {name!r} cannot be read ({what}): check --kernel") from e
    if len(data) > MAX_KERNEL_BYTES:
        raise UsageError(
            f"the kernel {name!r} has over {MAX_KERNEL_BYTES >> 20} MiB: give a CUDA source file"
        )
    return data.decode("utf-8", "replace")


def read_pairs(path: Path) -> list[dict[str, str]]:
    """The pairs of a `judge-many` file as {"id", "task", "code"}; kernels' paths are relative to
    the file. Raises UsageError with the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        what = getattr(e, "strerror", None) or "not UTF-8"
        raise UsageError(f"the pairs file {path} cannot be read ({what})") from e
    pairs = list(_pairs(path, lines))
    ids = [pair["id"] for pair in pairs]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise UsageError(f"{path}: the id {twice!r} is there twice: make the ids unique")
    return pairs


def _pairs(path: Path, lines: Sequence[str]) -> Iterator[dict[str, str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            pair = json.loads(line)
        except json.JSONDecodeError as e:
            raise UsageError(f"{path}, line {number}: not JSON ({e.msg})") from e
        given = set(pair) if isinstance(pair, dict) else set()
        if not {"id", "task"} < given or len(given & {"kernel", "code"}) != 1:
            raise UsageError(
                f'{path}, line {number}: give an object with "id", "task" and either "kernel" or '
                '"code"'
            )
        code = pair.get("code")
        if code is None:
            code = read_kernel(str(path.parent / str(pair["kernel"])))
        task = str(pair["task"])
        if task.endswith((".json", ".yaml", ".yml", ".py")):
            task = str(path.parent / task)
        yield {"id": str(pair["id"]), "task": task, "code": str(code)}


def verdict_text(verdict: Verdict) -> str:
    """A verdict for people. Everything that a candidate may have written is made harmless."""
    from coding_framework.monitoring.text import one_line

    rows = [("task", verdict.task), ("backend", verdict.backend)]
    if verdict.compile is not None:
        c = verdict.compile
        rows.append(
            (
                "compile",
                f"{c.latency_s:.2f} s{' (cached)' if c.cache_hit else ''}, {c.registers} registers,"
                f" {c.spill_bytes} B spilled, {c.shared_bytes} B static shared memory",
            )
        )
        rows += [("", f"line {e.line or '?'}: {e.message}") for e in c.errors[:5]]
        rows += [("warning", text) for text in c.warnings[:3]]
    if verdict.tests:
        passed = sum(t.passed for t in verdict.tests)
        rows.append(("tests", f"{passed} of {len(verdict.tests)} passed"))
        rows += [("", f"{t.case}: {t.detail}") for t in verdict.tests if not t.passed][:3]
    if verdict.timing is not None:
        rows.append(("time", _timing_text(verdict)))
    rows += [("counter", f"{k} = {v:g}") for k in SHOWN_COUNTERS if (v := verdict.counters.get(k))]
    printed = [
        line for f in verdict.pitfalls if f.rule == PRINTED for line in f.message.split("\n")
    ]
    rows += [(PRINTED, line) for line in printed[:SHOWN_LINES]]
    observed = [f for f in verdict.pitfalls if f.rule != PRINTED]
    findings = (*verdict.cheats, *observed, *verdict.safety.findings)
    rows += [(f.severity, f"{f.rule}: {f.message}") for f in findings[:10]]
    rows.append(("sandbox", verdict.receipt.sandbox or "none"))
    body = "\n".join(f"  {name:<8}  {one_line(text)}" for name, text in rows)
    return f"{verdict.status.value}: {one_line(verdict.reason, 1000)}\n{body}"


def _timing_text(verdict: Verdict) -> str:
    timing = verdict.timing
    assert timing is not None
    how = "modelled" if timing.modelled else "measured"
    low, high = timing.kernel_ms_ci95
    text = f"{timing.kernel_ms:.4g} ms {how} (95%: {low:.4g} to {high:.4g})"
    if timing.speedup is not None:
        text += f", {timing.speedup:.2f}x over PyTorch eager"
    if timing.speedup_vs_naive is not None:
        text += f", {timing.speedup_vs_naive:.2f}x over the naive kernel ({how})"
    return text


def _judge_settings(args: argparse.Namespace) -> JudgeSettings:
    from coding_framework.wiring import JudgeSettings

    return JudgeSettings(
        backend=args.backend,
        sandbox=args.sandbox,
        seed=args.seed,
        workers=getattr(args, "workers", None),
        baselines=args.baselines,
        profile=args.profile,
    )


if __name__ == "__main__":
    sys.exit(main())

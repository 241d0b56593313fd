"""`cuda-rl`: finds the command, runs it, and says in one sentence why it failed.

Each command is a module of `commands`; exit statuses stand in `commands/failures.py`. Results go to
stdout, progress and warnings to stderr. Command modules import what is heavy where they use it, so
that help and errors are instant.
"""

from __future__ import annotations

from coding_framework.commands import interrupts  # (Ctrl-C while the rest is imported)

# isort: split
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from coding_framework import __version__
from coding_framework.commands import (
    cache,
    data,
    deploy,
    doctor,
    evaluate,
    explain,
    judge,
    judge_many,
    judge_server,
    kernel,
    mcp_server,
    modelnew,
    new_task,
    quickstart,
    replay,
    rft,
    serve,
    serve_policy,
    skill,
    solve,
    tasks,
    token,
    view,
    write,
)
from coding_framework.commands.failures import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_OURS,
    RESUMES,
    extra_missing,
    fail,
    status_of,
)
from coding_framework.commands.flags import FlagParser
from coding_framework.errors import CodingFrameworkError
from coding_framework.store.events import log

COMMANDS = (
    quickstart,
    judge,
    explain,
    judge_many,
    judge_server,
    mcp_server,
    skill,
    new_task,
    write,
    solve,
    replay,
    evaluate,
    rft,
    serve,
    serve_policy,
    kernel,
    token,
    tasks,
    data,
    modelnew,
    view,
    deploy,
    cache,
    doctor,
)
RESUMABLE = ("quickstart", "judge-many", "solve", "eval", "rft", "tasks build", "data build-sft")


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of `cuda-rl`; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    interrupts.goes_on = RESUMES if _resumes(given) else ""
    try:
        return _run(given)
    except KeyboardInterrupt:
        if argv is None:  # this process is the command's own
            interrupts.end_soon(EXIT_INTERRUPTED)
        return fail("cuda-rl", f"stopped{interrupts.goes_on}", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except Exception as e:
        return fail("cuda-rl", *_sentence_and_status(_first(e)))


def build_parser() -> FlagParser:
    """The whole command line."""
    parser = FlagParser(
        prog="cuda-rl", description="Trains LLM agents to write fast, correct CUDA kernels."
    )
    parser.add_argument("--version", action="version", version=f"cuda-rl {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser


def _run(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    from coding_framework.monitoring.logs import configure_logging, quiet_libraries

    log.configure = configure_logging
    quiet_libraries()
    status: int = args.run(args)
    sys.stdout.flush()
    return status


def _resumes(argv: Sequence[str]) -> bool:
    """Whether the same command goes on where this one ended: it needs a file that it goes on in."""
    if "judge-many" in argv[:1]:
        return any(word.split("=")[0] == "--output" for word in argv)
    return " ".join(argv[:2]).startswith(RESUMABLE)


def _sentence_and_status(error: Exception) -> tuple[str, int]:
    if isinstance(error, CodingFrameworkError):
        return str(error), status_of(error)
    if isinstance(error, ModuleNotFoundError) and (sentence := extra_missing(error)):
        return sentence, EXIT_OURS
    if isinstance(error, OSError):
        from coding_framework.paths import write_error

        name = error.filename2 or error.filename  # (of a copy the second one is what is written)
        where = Path(str(name)) if name else Path("the output")
        return _sentence_and_status(write_error(where, error))
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return (
        f"internal error ({text}): run it again with CUDA_RL_DEBUG=1 and report the traceback",
        EXIT_OURS,
    )


def _first(error: Exception) -> Exception:
    """The first error of a group of tasks that failed together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main())

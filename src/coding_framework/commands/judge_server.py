"""`cuda-rl judge-server`: the judge over HTTP, for trainers that are not ours."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import Field

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, config_from
from coding_framework.commands.judge import JUDGING
from coding_framework.commands.options import ListenOptions
from coding_framework.wiring import JudgeSettings


class JudgeServerOptions(ListenOptions):
    """What the command line says beyond how to judge."""

    port: int = Field(default=8090, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which the first line names."""
    queue: int = Field(default=1024, ge=1)
    """Kernels of one caller that wait or are judged at a time; more are told to come later."""
    folder: Path = Path("outputs/judge_server")
    """Folder of the verdicts: an equal kernel, asked for again, gets the verdict that is there.
    Default: outputs/judge_server."""
    keep_gib: float = Field(default=4.0, gt=0.0)
    """GiB of verdicts in that folder at most; the least recently used go first."""
    log_file: Path | None = None
    """Write the log as JSON lines to this file. Warnings go to stderr in any case."""


def add_to(commands: Any) -> None:
    p = add_command(commands, "judge-server", run, "Judge kernels that come over HTTP.")
    add_flags(p, JudgeServerOptions, JudgeServerOptions.model_fields)
    add_flags(p, JudgeSettings, ["workers", *JUDGING])


def run(args: Namespace) -> int:
    options = config_from(JudgeServerOptions, args)
    settings = config_from(JudgeSettings, args)
    from coding_framework.cuda.sandbox import choose_sandbox
    from coding_framework.cuda.toolchain.toolkit import find_toolkit
    from coding_framework.deployment.http import Gate, Listen, run_app
    from coding_framework.deployment.judge_server import JudgeServer
    from coding_framework.deployment.tokens import TokenFile
    from coding_framework.monitoring.logs import configure_logging
    from coding_framework.wiring import make_judge

    listen = Listen(host=options.host, port=options.port)
    gate = Gate(TokenFile(options.tokens), listen)
    configure_logging(options.log_file)
    find_toolkit()  # raises where it is missing, now and not at the first kernel
    choose_sandbox(settings.sandbox)
    with ExitStack() as stack:
        judge = make_judge(
            **settings.model_dump(),
            run_folder=options.folder,
            kept_bytes=int(options.keep_gib * 2**30),
        )
        stack.callback(judge.close)
        server = JudgeServer(judge, gate, queue=options.queue, workers=judge.capacity)
        run_app(server.app, listen, lambda url: _tell(url, gate.needs_token))
    return EXIT_OK


def _tell(url: str, has_tokens: bool) -> None:
    print(f"judging on {url}", flush=True)
    if not has_tokens:
        print("no token is needed, so only this machine is served", file=sys.stderr, flush=True)

"""`cuda-rl view`: pages that show runs while they go on and after, in a browser.

    cuda-rl view outputs
    cuda-rl view outputs/quickstart --export DIR

It only reads: nothing is written below the paths. Ctrl-C ends it.
"""

from __future__ import annotations

import os
import secrets
from argparse import Namespace
from pathlib import Path
from typing import Any

from pydantic import Field

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, add_switch, config_from
from coding_framework.errors import UsageError
from coding_framework.types import Config

SECRET = "CUDA_RL_VIEW_TOKEN"
"""Environment variable: an argument would stand in every user's list of processes."""


class ViewOptions(Config):
    """What the command line says."""

    host: str = "127.0.0.1"
    """Address to listen on; another one than this machine's own needs --token."""
    port: int = Field(default=7580, ge=0, le=65535)
    """Port to listen on; the next free one is taken where it is in use."""
    index: Path | None = None
    """Folder of the indexes. Default: in the cache folder."""
    export: Path | None = None
    """Write static pages into this folder and end: no server, no script."""
    filter: str = ""
    """With --export: which conversations, as in a page's address, for example
    status=correct&sort=speedup; at most 500 of each run."""


def add_to(commands: Any) -> None:
    p = add_command(commands, "view", run, "Show runs in a browser, while they go on and after.")
    p.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=[Path("outputs")],
        metavar="PATH",
        help="a run's folder, a folder of runs, or a .jsonl of conversations (default: outputs)",
    )
    add_flags(p, ViewOptions, ViewOptions.model_fields)
    add_switch(
        p, "--token",
        f"let in who has a secret alone: that of the environment variable {SECRET}, or one that is "
        "drawn and printed with the address",
    )  # fmt: skip
    add_switch(p, "--code", "make the kernels' code searchable too; the index takes longer")
    add_switch(p, "--open", "open the page in the browser")


def run(args: Namespace) -> int:
    options = config_from(ViewOptions, args)
    for path in args.paths:
        if not path.exists():
            raise UsageError(f"there is no {path}: give a folder that one of our commands wrote")
        if path.is_file() and path.suffix != ".jsonl":
            raise UsageError(
                f"{path} is no folder and no .jsonl of conversations: give a folder that one of "
                "our commands wrote"
            )
    token = os.environ.get(SECRET, secrets.token_urlsafe(24)) if args.token else None
    if token is not None and len(token) < 8:
        raise UsageError(f"{SECRET} is too short: give 8 characters or more")
    from coding_framework.viewer.serve import export, serve

    if options.export is not None:
        export(args.paths, options.export, options.filter, options.index, code=args.code)
    else:
        serve(
            args.paths, host=options.host, port=options.port, token=token,
            folder=options.index, code=args.code, opens=args.open,
        )  # fmt: skip
    return EXIT_OK

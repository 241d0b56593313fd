"""`cuda-rl mcp`: the judge for coding agents, by the Model Context Protocol."""

from __future__ import annotations

import os
import threading
from argparse import Namespace
from typing import Any

from pydantic import Field

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, add_switch, config_from
from coding_framework.commands.judge import JUDGING
from coding_framework.commands.options import ListenOptions
from coding_framework.wiring import JudgeSettings

_MESSAGE_BYTES = 4 << 20
"""Of one message, by HTTP or as a line of stdin."""


class McpOptions(ListenOptions):
    """Where it listens with --http, and to whom."""

    port: int = Field(default=8091, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which the first line names."""


def add_to(commands: Any) -> None:
    p = add_command(commands, "mcp", run, "Judge kernels for coding agents (MCP over stdio).")
    add_switch(p, "--http", "serve over HTTP, at /mcp of --host and --port, instead of stdio")
    add_flags(p, McpOptions, McpOptions.model_fields)
    add_flags(p, JudgeSettings, ["workers", *JUDGING])


def run(args: Namespace) -> int:
    options = config_from(McpOptions, args)
    settings = config_from(JudgeSettings, args).model_dump()
    from coding_framework.cuda.sandbox import choose_sandbox
    from coding_framework.cuda.toolchain.toolkit import find_toolkit
    from coding_framework.integrations.kernels import kept_judge
    from coding_framework.integrations.mcp_server import JudgeTools

    find_toolkit()  # raises where it is missing, now and not at the first kernel
    choose_sandbox(settings["sandbox"])
    with kept_judge(**settings) as judge:
        tools = JudgeTools(judge, files=not args.http)
        if not args.http:
            _bound_lines_of_stdin()
            tools.server.run("stdio")
            return EXIT_OK
        from coding_framework.deployment.http import Gate, Listen, run_app
        from coding_framework.deployment.tokens import TokenFile

        listen = Listen(host=options.host, port=options.port)
        gate = Gate(TokenFile(options.tokens), listen)
        run_app(
            tools.app(gate, _MESSAGE_BYTES),
            listen,
            started=lambda url: print(f"MCP at {url}/mcp", flush=True),
        )
    return EXIT_OK


def _bound_lines_of_stdin() -> None:
    """Read stdin for the SDK, which would hold a line of any length in memory several times. One
    that is too long becomes a short one, which the SDK refuses as it does whatever is no message.
    """
    lines = os.fdopen(os.dup(0), "rb")
    theirs, ours = os.pipe()
    os.dup2(theirs, 0)
    os.close(theirs)

    def pass_on() -> None:
        with os.fdopen(ours, "wb", buffering=0) as pipe:
            while line := lines.readline(_MESSAGE_BYTES):
                if not line.endswith(b"\n"):
                    while (line := lines.readline(_MESSAGE_BYTES)) and not line.endswith(b"\n"):
                        pass
                    line = b"a line of over 4 MiB\n"
                pipe.write(line)

    threading.Thread(target=pass_on, daemon=True).start()

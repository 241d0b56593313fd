"""`cuda-rl serve`: an OpenAI-compatible server that returns verified kernels."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from coding_framework.commands.failures import EXIT_OK, EXIT_OURS
from coding_framework.commands.flags import add_command, add_flags, config_from
from coding_framework.errors import UsageError
from coding_framework.types import Config

if TYPE_CHECKING:
    from coding_framework.deployment.http import Gate


class ServeOptions(Config):
    """What the command line says beyond the file."""

    config: Path
    """Settings of the server, for example examples/deployment/serve.yaml."""
    host: str | None = None
    """Address to listen on, instead of the file's."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Port to listen on, instead of the file's; 0 takes a free one."""
    check: bool = False
    """Read the file, ask the backends, and start nothing."""
    allow_native_sandbox: bool = False
    """Serve where the only sandbox is native, which shuts less out than bubblewrap or Docker."""
    log_file: Path | None = None
    """Write the log as JSON lines to this file. Warnings go to stderr in any case."""


def add_to(commands: Any) -> None:
    text = "Serve verified kernels by OpenAI's protocol."
    add_flags(add_command(commands, "serve", run, text), ServeOptions, ServeOptions.model_fields)


def run(args: Namespace) -> int:
    options = config_from(ServeOptions, args)
    from coding_framework.deployment.serve_config import read_config

    config = read_config(options.config)
    told = {
        name: value for name in ("host", "port") if (value := getattr(options, name)) is not None
    }
    config = config.model_copy(update={"listen": config.listen.model_copy(update=told)})
    from coding_framework.monitoring.logs import configure_logging

    configure_logging(options.log_file)
    if options.check:
        return asyncio.run(_check(config))
    _serve(config, options)
    return EXIT_OK


def _serve(config: Any, options: ServeOptions) -> None:
    from coding_framework.deployment.http import Gate, run_app
    from coding_framework.deployment.tokens import TokenFile
    from coding_framework.registry.receipts import load_key

    gate = Gate(TokenFile(config.tokens), config.listen)
    load_key(config.keys, config.key)
    _require_sandbox(config.judge.sandbox, options.allow_native_sandbox)
    with ExitStack() as stack:
        run_app(_server(config, gate, stack).app, config.listen, partial(_tell, gate))


def _server(config: Any, gate: Gate, stack: ExitStack) -> Any:
    """The server of this process; what it opens is closed with `stack`."""
    from coding_framework.cuda.choose_backend import choose_backend
    from coding_framework.deployment.server import CallersTasks, ModelServer
    from coding_framework.deployment.traffic import open_traffic
    from coding_framework.registry.keeping import KernelKeeper
    from coding_framework.registry.receipts import load_key
    from coding_framework.wiring import make_judge, make_task_reader

    key = load_key(config.keys, config.key)
    judge_config = config.judge
    judges_on = choose_backend(judge_config.backend)
    traffic, versions = open_traffic(config)
    stack.callback(traffic.close)
    judge = make_judge(
        backend=judges_on, sandbox=judge_config.sandbox, workers=judge_config.workers
    )
    stack.callback(judge.close)
    callers = None
    if config.references == "sandboxed":
        reader = make_task_reader(judge_config.sandbox)
        own = make_judge("emulator", judge_config.sandbox, workers=1, references="sandboxed")
        stack.callback(own.close)
        callers = CallersTasks(reader, own)
    keeper = None
    if config.registry is not None:
        keeper = KernelKeeper(config.registry, config.keys, key, judge.templates)
    return ModelServer(
        config, judge, judges_on, key, gate, traffic, versions, callers=callers, keeper=keeper
    )  # fmt: skip


def _tell(gate: Gate, url: str) -> None:
    print(f"serving on {url}", flush=True)
    if not gate.needs_token:
        print(
            "no token is needed, so only this machine is served: `cuda-rl token create` makes one",
            file=sys.stderr,
            flush=True,
        )


def _require_sandbox(name: str, allow_native: bool) -> None:
    from coding_framework.cuda.sandbox import choose_sandbox

    if choose_sandbox(name).name == "native" and not allow_native:
        raise UsageError(
            "the only sandbox here is native: install bubblewrap (`make setup`), or give "
            "--allow-native-sandbox if you trust what the models write"
        )


async def _check(config: Any) -> int:
    """Whether each endpoint's model is there, a line each."""
    from coding_framework.deployment.backends import Backend
    from coding_framework.registry.receipts import load_key

    load_key(config.keys, config.key)
    backends = {b.name: Backend(b) for b in config.backends}
    await asyncio.gather(*(b.check() for b in backends.values()))
    missing = 0
    for alias, endpoint in config.endpoints.items():
        version = config.versions[endpoint.version]
        backend = backends[config.backend_of(version)]
        has = version.model in backend.models
        said = "has" if has else "has not" if backend.up else "does not answer; wanted:"
        missing += not has
        print(f"{alias}: {backend.url} {said} {version.model}")
    await asyncio.gather(*(b.close() for b in backends.values()))
    return EXIT_OURS if missing else EXIT_OK

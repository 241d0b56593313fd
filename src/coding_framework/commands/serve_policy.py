"""`cuda-rl serve-policy`: models by OpenAI's protocol where there is no GPU for vLLM."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import Field

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, config_from
from coding_framework.commands.options import ListenOptions
from coding_framework.errors import UsageError
from coding_framework.types import DTypeName


class ServePolicyOptions(ListenOptions):
    """What the command line says."""

    name: str = ""
    """Name that callers ask for. Default: that of the folder or model."""
    queue: int = Field(default=256, ge=1)
    """Requests that wait or run at a time; a caller beyond them is told to try again."""
    max_batch: int = Field(default=48, ge=1)
    """Answers that are decoded at a time, of each model."""
    max_context: int = Field(default=4096, ge=16)
    """Tokens of a prompt with its answer."""
    dtype: DTypeName = "auto"
    """Number format of the weights; auto: bfloat16 where the hardware computes in it."""
    device: str | None = None
    """Device of the models, for example cpu or cuda:1. Default: a GPU where there is one."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of PyTorch. Default: its own choice."""


def add_to(commands: Any) -> None:
    text = "Serve a model, and adapters by name, by OpenAI's protocol; on a GPU take vLLM."
    p = add_command(commands, "serve-policy", run, text)
    p.add_argument("model", metavar="MODEL", help="a folder, or a model's name")
    p.add_argument(
        "--adapter",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="an adapter of the model, and the name that callers ask for; give it several times "
        "for several: each has a copy of the weights",
    )
    add_flags(p, ServePolicyOptions, ServePolicyOptions.model_fields)


def run(args: Namespace) -> int:
    options = config_from(ServePolicyOptions, args)
    adapters = _adapters(args.adapter)
    from coding_framework.agents.models import resolve_model
    from coding_framework.agents.policies import TransformersPolicy
    from coding_framework.deployment.http import Gate, Listen, run_app
    from coding_framework.deployment.policy_server import PolicyServer
    from coding_framework.deployment.tokens import TokenFile
    from coding_framework.monitoring.logs import configure_logging
    from coding_framework.run.eval_speakers import weights_digest

    listen = Listen(host=options.host, port=options.port)
    gate = Gate(TokenFile(options.tokens), listen)
    configure_logging()
    folder = resolve_model(args.model)
    base = options.name or folder.name
    if base in adapters:
        raise UsageError(f"the model and an adapter are both called {base}: choose another --name")
    digest = weights_digest(folder)
    with ExitStack() as stack:
        policies, weights = {}, {}
        for name, adapter in ({base: None} | adapters).items():
            print(f"loading {name}", file=sys.stderr, flush=True)
            policy = TransformersPolicy(
                folder, adapter=adapter, dtype=options.dtype, device=options.device,
                max_batch=options.max_batch, max_context=options.max_context,
                threads=options.threads,
            )  # fmt: skip
            stack.callback(policy.close)
            policies[name] = policy
            own = [digest] if adapter is None else [digest, weights_digest(adapter)]
            weights[name] = " ".join(own)
        server = PolicyServer(policies, gate, queue=options.queue, weights=weights)
        run_app(server.app, listen, lambda url: print(f"serving on {url}", flush=True))
    return EXIT_OK


def _adapters(given: list[str]) -> dict[str, Path | None]:
    """By name. Raises UsageError."""
    found: dict[str, Path | None] = {}
    for each in given:
        name, _, folder = each.partition("=")
        if not name or not folder:
            raise UsageError(f"--adapter cannot be {each!r}: give NAME=FOLDER")
        if name in found:
            raise UsageError(f"two adapters are called {name}: give each its own name")
        if not (Path(folder) / "adapter_config.json").is_file():
            raise UsageError(f"{folder} is no adapter: it holds no adapter_config.json")
        found[name] = Path(folder)
    return found

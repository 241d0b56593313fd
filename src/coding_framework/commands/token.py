"""`cuda-rl token`: who may ask our servers for what."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_actions, add_command, add_path
from coding_framework.errors import UsageError
from coding_framework.types import TokenScope

TOKENS = Path("deployment/tokens")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_to(commands: Any) -> None:
    actions = add_actions(
        commands, "token", "Create, list and revoke tokens, by which callers may ask our servers."
    )
    p = add_command(actions, "create", run_create, "Make a token and print it, once.")
    p.add_argument(
        "--scope",
        action="append",
        required=True,
        choices=get_args(TokenScope),
        help="what it allows; give the flag several times for several scopes",
    )
    p.add_argument(
        "--expires", metavar="TIME", help="how long it holds: 12h, 30d (default: always)"
    )
    _add_file(p)
    p = add_command(actions, "list", run_list, "List the tokens, without their secrets.")
    _add_file(p)
    p = add_command(actions, "revoke", run_revoke, "End a token; servers that run notice it.")
    p.add_argument("id", metavar="ID", help="as `cuda-rl token list` shows it")
    _add_file(p)


def _add_file(parser: Any) -> None:
    add_path(parser, "--tokens", "FILE", "the server's file of tokens", TOKENS)


def run_create(args: Namespace) -> int:
    from coding_framework.deployment.tokens import TokenFile

    expires_s = None if args.expires is None else _seconds(args.expires)
    token_id, secret = TokenFile(args.tokens).create(args.scope, expires_s=expires_s)
    print(secret)
    print(
        f"token {token_id} is in {args.tokens}; its secret is shown now and never again",
        file=sys.stderr,
    )
    return EXIT_OK


def run_list(args: Namespace) -> int:
    from coding_framework.deployment.tokens import TokenFile

    now = time.time()
    for token in TokenFile(args.tokens).all():
        ends = "never ends" if token.expires_at is None else f"ends {_day(token.expires_at)}"
        state = ends if token.valid(now) else "has ended"
        print(
            f"{token.id}  made {_day(token.created_at)}  {state}  {' '.join(sorted(token.scopes))}"
        )
    return EXIT_OK


def run_revoke(args: Namespace) -> int:
    from coding_framework.deployment.tokens import TokenFile

    TokenFile(args.tokens).revoke(args.id)
    print(f"token {args.id} is revoked")
    return EXIT_OK


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if match is None:
        raise UsageError(f"--expires cannot be {text!r}: give a number and s, m, h or d, as 30d")
    return float(match[1]) * _UNITS[match[2]]


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")

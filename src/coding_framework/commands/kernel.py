"""`cuda-rl kernel`: keys that sign receipts, whether a receipt holds, and the registry."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK
from coding_framework.commands.flags import add_actions, add_command, add_json, add_path
from coding_framework.commands.kernel_registry import (
    REGISTRY,
    add_place,
    add_registry_actions,
    require_source,
    verify_registered,
)
from coding_framework.errors import UsageError

KEYS = Path("deployment/keys")
_MAX_RECEIPT_BYTES = 1 << 24


def add_to(commands: Any) -> None:
    actions = add_actions(
        commands, "kernel", "Verified kernels: a registry of them, and their receipts."
    )
    keys = add_actions(actions, "key", "Keys that sign receipts.")
    p = add_command(keys, "new", run_new, "Make a key: NAME.key, to keep here, and NAME.pub.")
    p.add_argument("name", metavar="NAME", help="letters, digits, - and _")
    add_path(p, "--keys", "DIR", "folder of keys", KEYS)
    p = add_command(
        actions, "verify", run_verify, "Check a receipt's signature, or a registry as a whole."
    )
    p.add_argument(
        "receipt",
        nargs="?",
        metavar="RECEIPT",
        help="a receipt, or an answer of the server that holds one (a file; - reads stdin), a "
        "folder of `publish`, or a kernel of the registry (default: all that is in it)",
    )
    add_place(p, default=None)
    p.add_argument(
        "--kernel", metavar="FILE", help="also check that the receipt is about this source"
    )
    text = f"public keys that you trust (default: {KEYS}; of a registry those in it)"
    add_path(p, "--keys", "DIR", text)
    add_json(p, "print the receipt, or what is in the registry, as one JSON object")
    add_registry_actions(actions, KEYS)


def run_new(args: Namespace) -> int:
    from coding_framework.registry.receipts import new_key

    new_key(args.keys, args.name)
    print(f"{args.keys / args.name}.key signs; give {args.name}.pub to those who check receipts")
    return EXIT_OK


def run_verify(args: Namespace) -> int:
    from coding_framework.registry.receipts import ReceiptError, check_receipt

    if args.receipt is not None and Path(args.receipt).is_dir():
        return _verify_folder(Path(args.receipt), args.keys or KEYS)
    if args.registry is not None or not _is_file(args.receipt):
        if args.receipt and not (args.registry or REGISTRY).exists():
            raise UsageError(f"there is no file or folder {args.receipt!r}: check the path")
        args.registry = args.registry or REGISTRY
        return verify_registered(args)
    read = _read(args.receipt)
    given = _receipt_in(read)
    try:
        receipt = check_receipt(given, args.keys or KEYS)
        if given is not read and "choices" in read:
            _require_shown(receipt.kernel, read["choices"][0])
        if args.kernel is not None:
            require_source(receipt.kernel, args.kernel)
    except ReceiptError as e:
        print(f"not verified: {e}", file=sys.stderr)
        return EXIT_HIT
    if args.json:
        print(receipt.model_dump_json())
    else:
        print(
            f"verified: {receipt.kernel} is correct for {receipt.op}, judged on {receipt.device} "
            f"with protocol {receipt.protocol}, signed by {receipt.key} at {receipt.made_at}"
        )
    return EXIT_OK


def _verify_folder(folder: Path, keys: Path) -> int:
    """Of `publish`."""
    from coding_framework.registry.publishing import verify_published
    from coding_framework.registry.receipts import ReceiptError

    try:
        about = verify_published(folder, keys)
    except ReceiptError as e:
        print(f"not verified: {e}", file=sys.stderr)
        return EXIT_HIT
    shapes = len(about["shapes"])
    told = f"{about['kernel']} as {about['name']}, for {shapes} shapes"
    print(f"verified: {told}; no file was changed")
    return EXIT_OK


def _is_file(named: str | None) -> bool:
    """Whether a file is meant, and no kernel of a registry."""
    return named is not None and (named == "-" or named.endswith(".json") or Path(named).exists())


def _read(name: str) -> Any:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_MAX_RECEIPT_BYTES)
        else:
            with open(name, "rb") as file:
                data = file.read(_MAX_RECEIPT_BYTES)
        return json.loads(data)
    except (OSError, ValueError, RecursionError) as e:
        what = e.strerror if isinstance(e, OSError) else "it is not JSON"
        raise UsageError(f"the receipt {name!r} cannot be read ({what}): check the path") from e


def _require_shown(kernel: str, choice: dict[str, Any]) -> None:
    """Raises ReceiptError where an answer shows another kernel than its receipt is about."""
    from coding_framework.agents.extraction import extract_kernel
    from coding_framework.registry.digests import kernel_id
    from coding_framework.registry.receipts import ReceiptError

    code = extract_kernel(str((choice.get("message") or {}).get("content"))).code or ""
    if kernel not in (kernel_id(code), kernel_id(code.removesuffix("\n"))):  # a fence adds its end
        raise ReceiptError("the receipt is about another kernel than the answer shows")


def _receipt_in(given: Any) -> dict[str, Any]:
    """The receipt itself, of a file that holds it or an answer with it."""
    found = given
    if isinstance(given, dict) and "choices" in given:
        try:
            found = given["choices"][0]["cuda_rl"]["receipt"]
        except (KeyError, IndexError, TypeError) as e:
            raise UsageError("this answer of the server holds no receipt") from e
    elif isinstance(given, dict) and isinstance(given.get("receipt"), dict):
        found = given["receipt"]
    if not isinstance(found, dict):
        raise UsageError("this file holds no receipt: save choices[0].cuda_rl.receipt of an answer")
    return found

"""`cuda-rl kernel add|list|show|promote|...`: a folder of verified kernels."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK
from coding_framework.commands.flags import (
    add_command,
    add_flags,
    add_json,
    add_path,
    add_switch,
    config_from,
)
from coding_framework.commands.one_kernel import add_task, make_one_judge, read_kernel, read_task
from coding_framework.commands.waiting import waiting
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.types import Candidate
from coding_framework.wiring import JudgeSettings

if TYPE_CHECKING:
    from coding_framework.registry.kernels import KernelRegistry
    from coding_framework.registry.records import KernelStatus, RegisteredKernel

REGISTRY = Path("registry")
_JUDGING = ("backend", "sandbox")


def add_registry_actions(actions: Any, keys: Path) -> None:
    """The actions of `cuda-rl kernel` that work on a registry. keys: the default folder of keys."""
    p = add_command(
        actions, "add", _add, "Judge a kernel, make its launch templates, sign and store it."
    )
    p.add_argument("file", metavar="KERNEL", help="a .cu file, or a KernelBench answer (.py)")
    add_task(p)
    p.add_argument("--op", metavar="NAME", help="name of the function there (default: the task's)")
    _add_signing(p, keys)
    p = add_command(actions, "list", _list, "The kernels of a registry.")
    _add_place(p)
    add_json(p, "print a JSON object a line")
    p = add_command(actions, "show", _show, "One kernel: receipts, times, templates, history.")
    _add_named(p)
    add_switch(p, "--source", "print its source instead")
    add_json(p, "print it as one JSON object")
    p = add_command(
        actions,
        "promote",
        _promote,
        "Move a kernel one step on: from verified to canary, from canary to active.",
    )
    _add_named(p)
    p.add_argument(
        "--to",
        choices=("verified", "canary", "active", "retired"),
        help="move it to this state instead",
    )
    _add_reason(p, "promoted")
    p = add_command(
        actions, "quarantine", _quarantine, "Forbid a kernel: nobody may use it any more."
    )
    _add_named(p)
    _add_reason(p, "quarantined by hand")
    p = add_command(actions, "export", _export, "Write kernels to a tar file.")
    p.add_argument("output", metavar="FILE", type=Path, help="the tar file to write")
    _add_names(p)
    _add_place(p)
    p = add_command(actions, "import", _import, "Add the kernels of a tar file of `export`.")
    p.add_argument("archive", metavar="FILE", type=Path, help="the tar file to read")
    _add_place(p)
    p = add_command(
        actions, "publish", _publish, "Write a kernel as a folder that Hugging Face kernels loads."
    )
    p.add_argument("name", metavar="KERNEL", help="its id, the id's beginning, or its op")
    add_path(p, "--to", "DIR", "the new folder", required=True)
    p.add_argument("--licence", default="apache-2.0", help="for the card (default: apache-2.0)")
    add_place(p)
    _add_key(p, keys)
    p = add_command(actions, "gc", _gc, "Remove files that no kernel names.")
    _add_place(p)
    add_switch(p, "--retired", "also forget retired and quarantined kernels")
    p = add_command(actions, "reverify", _reverify, "Judge kernels again on this machine.")
    _add_names(p)
    add_switch(p, "--stale", "only those judged with another protocol or driver than now")
    _add_signing(p, keys)


def add_place(parser: Any, default: Path | None = REGISTRY) -> None:
    """--registry. default: another one where it has to be known whether the flag was given."""
    text = f"folder of kernels (default: {REGISTRY})"
    parser.add_argument("--registry", type=Path, default=default, metavar="DIR", help=text)


def _add_place(parser: Any) -> None:
    add_place(parser)
    text = "public keys of the judges that you trust (default: those in the registry)"
    add_path(parser, "--keys", "DIR", text)


def _add_named(parser: Any) -> None:
    parser.add_argument("name", metavar="KERNEL", help="its id, the id's beginning, or its op")
    _add_place(parser)


def _add_names(parser: Any) -> None:
    text = "ids or ops (default: all)"
    parser.add_argument("names", nargs="*", default=[], metavar="KERNEL", help=text)


def _add_reason(parser: Any, default: str) -> None:
    parser.add_argument("--reason", default=default, help=f"for the history (default: {default})")


def _add_signing(parser: Any, keys: Path) -> None:
    add_place(parser)
    _add_key(parser, keys)
    add_flags(parser, JudgeSettings, _JUDGING)


def _add_key(parser: Any, keys: Path) -> None:
    add_path(parser, "--keys", "DIR", "folder of keys", keys)
    parser.add_argument(
        "--key", default="judge", metavar="NAME", help="key that signs (default: judge)"
    )


# --- judging --------------------------------------------------------------------------------------


def _add(args: Namespace) -> int:
    from coding_framework.registry.kernels import KernelRegistry, short
    from coding_framework.registry.receipts import load_key

    task = read_task(args)
    if args.op is not None:
        task = task.model_copy(update={"name": args.op})
    code = read_kernel(args.file)
    load_key(args.keys, args.key)  # before a minute of work
    with KernelRegistry(args.registry, keys=args.keys) as registry:
        found = _Judging(args).register(registry, code, task)
        if isinstance(found, str):
            print(f"not added: {found}", file=sys.stderr)
            return EXIT_HIT
        print(f"{short(found.kernel)} is verified for {one_line(found.op)} in {args.registry}")
        for line in _template_lines(found):
            print(line)
        if found.status == "verified":
            folder = shlex.quote(str(args.registry))
            place = "" if args.registry == REGISTRY else f" --registry {folder}"
            print(
                f"no program uses it yet: `cuda-rl kernel promote {short(found.kernel)}{place}` "
                "makes it a canary, and once more active"
            )
    return EXIT_OK


def _reverify(args: Namespace) -> int:
    from coding_framework.cuda.protocol import PROTOCOL
    from coding_framework.registry.kernels import short
    from coding_framework.registry.receipts import load_key

    load_key(args.keys, args.key)
    judging = _Judging(args)
    with _open(args) as registry:
        chosen = _chosen(registry, args.names)
        if args.stale:
            drivers = drivers_here()
            chosen = [k for k in chosen if k.stale(PROTOCOL, drivers) is not None]
        failed = 0
        for number, kernel in enumerate(chosen):
            where = f"{number + 1}/{len(chosen)} {short(kernel.kernel)} ({one_line(kernel.op)})"
            if any(r.reference == "caller" for r in kernel.receipts):
                print(f"{where}: left out, as its reference came from a caller of the server")
                continue
            found = judging.register(registry, registry.source(kernel), registry.task(kernel))
            if isinstance(found, str):
                failed += 1
                if kernel.status != "quarantined":
                    registry.move(kernel, "quarantined", f"judged again: {found}"[:300])
                print(f"{where}: quarantined: {found}", flush=True)
            else:
                if found.task != kernel.task:
                    found = registry.succeed(kernel, found)
                print(f"{where}: {found.status}, {len(found.templates)} templates", flush=True)
        print(f"{len(chosen)} judged again, {failed} of them quarantined")
    return EXIT_HIT if failed else EXIT_OK


class _Judging:
    """A judge in this process, and the key that signs for it."""

    def __init__(self, args: Namespace) -> None:
        self._settings = config_from(JudgeSettings, args)
        self._keys, self._name = args.keys, args.key
        self._judge: Any = None

    def register(self, registry: KernelRegistry, code: str, task: Any) -> RegisteredKernel | str:
        """The stored kernel, or why its verdict is not correct."""
        from coding_framework.registry.receipts import load_key, receipt_of

        with waiting(f"judging for {one_line(task.name, 60)}") as tell:
            if self._judge is None:
                tell("loading PyTorch")
                self._judge = make_one_judge(self._settings, tell)
            candidate = Candidate(code=code)
            verdict = self._judge.judge(task, candidate)
            if not verdict.correct:
                return f"{verdict.status.value}: {verdict.reason}"
            tell("making launch templates, and judging them")
            made = self._judge.templates(task, candidate)
        key = load_key(self._keys, self._name)
        receipt = receipt_of(
            task, verdict, reference="registered", key=key, templates=made.templates
        )
        registry.trust(self._keys / f"{self._name}.pub")
        return registry.add(code, task, receipt.model_dump(mode="json"), made)


def _publish(args: Namespace) -> int:
    from coding_framework.registry.publishing import publish
    from coding_framework.registry.receipts import load_key

    key = load_key(args.keys, args.key)
    with _open(args, read_only=True) as registry:
        kernel = registry.find(args.name)
        for why in publish(registry, kernel, args.to, key, args.licence):
            print(f"left out: {one_line(why, 200)}", file=sys.stderr)
    print(f"{args.to}: {one_line(kernel.op)}, signed by {key.name}")
    print(f"next: cuda-rl kernel verify {shlex.quote(str(args.to))} --keys {args.keys}")
    return EXIT_OK


# --- looking --------------------------------------------------------------------------------------


def _list(args: Namespace) -> int:
    from coding_framework.registry.kernels import short

    with _open(args, read_only=True) as registry:
        kernels = registry.snapshot()
        for kernel in kernels:
            told = _told(kernel)
            if args.json:
                print(json.dumps(told))
                continue
            times = ", ".join(_time_lines(kernel)) or "not timed"
            stale = f", stale: {told['stale']}" if told["stale"] else ""
            print(
                f"{short(kernel.kernel)}  {kernel.status:<11}  {one_line(kernel.op, 40)}  "
                f"{len(kernel.templates)} templates, {times}{stale}"
            )
        if not kernels and not args.json:
            print(f"no kernel is in {args.registry}: `cuda-rl kernel add` puts one there")
    return EXIT_OK


def _show(args: Namespace) -> int:
    with _open(args, read_only=True) as registry:
        kernel = registry.find(args.name)
        if args.source:
            print(registry.source(kernel), end="")
            return EXIT_OK
        if args.json:
            history = [h._asdict() for h in registry.history(kernel)]
            print(json.dumps({**_told(kernel), "history": history}))
            return EXIT_OK
        for line in _lines(registry, kernel):
            print(line)
    return EXIT_OK


def _lines(registry: KernelRegistry, kernel: RegisteredKernel) -> Iterator[str]:
    told = _told(kernel)
    yield f"{kernel.kernel}  {kernel.status}"
    yield f"op {one_line(kernel.op)}, task {kernel.task}"
    if told["stale"]:
        yield f"stale: {told['stale']}; `cuda-rl kernel reverify --stale` judges it again"
    for receipt in kernel.receipts:
        yield (
            f"judged on {receipt.device} (sm_{receipt.sm}), protocol {receipt.protocol}, sandbox "
            f"{receipt.sandbox}, at {receipt.made_at}, signed by {receipt.key}"
        )
    yield from (f"  {line}" for line in _time_lines(kernel))
    yield from _template_lines(kernel)
    for change in registry.history(kernel):
        yield f"{change.before} -> {change.after}: {one_line(change.reason, 200)}"


def _template_lines(kernel: RegisteredKernel) -> Iterator[str]:
    for template in kernel.templates:
        temporary = sum(a.nbytes for a in template.allocations if a.use == "temporary")
        count = len(template.launches)
        launches = f"{count} launch{'es' if count != 1 else ''}"
        aligned = max(a.alignment for a in template.arguments)
        order = "" if template.deterministic else ", sums in any order"
        yield (
            f"  {template.shape_key}: {launches}, {temporary} temporary bytes, inputs aligned to "
            f"{aligned} bytes{order}"
        )
    for refusal in kernel.refusals:
        yield f"  {refusal.shape_key}: no template ({refusal.obstacle}): {refusal.reason}"


def _time_lines(kernel: RegisteredKernel) -> Iterator[str]:
    for receipt in kernel.receipts:
        for shape in receipt.shapes:
            if shape.kernel_ms is not None:
                how = "modelled" if shape.modelled else "measured"
                eager = f", eager {shape.eager_ms:.4g} ms" if shape.eager_ms else ""
                yield f"{shape.kernel_ms:.4g} ms at {shape.key} ({how}{eager})"


def _told(kernel: RegisteredKernel) -> dict[str, Any]:
    from coding_framework.cuda.protocol import PROTOCOL

    said = kernel.model_dump(mode="json", exclude={"templates"})
    said["templates"] = [
        {"shape_key": t.shape_key, "template": f"sha256:{t.sha256}", "launches": len(t.launches)}
        for t in kernel.templates
    ]
    return {**said, "stale": kernel.stale(PROTOCOL, drivers_here())}


def verify_registered(args: Namespace) -> int:
    """`kernel verify` of what is in a registry: signatures and digests."""
    from coding_framework.registry.kernels import short
    from coding_framework.registry.receipts import ReceiptError

    if args.receipt is None and args.kernel is not None:
        raise UsageError("--kernel is the source of one kernel: name that kernel of the registry")
    with _open(args, read_only=True) as registry:
        if args.receipt is None:
            return _verify_whole(registry, args)
        kernel = registry.find(args.receipt)
        registry.source(kernel)
        registry.task(kernel)
        for template in kernel.templates:
            for part in template.code:
                registry.code(part)
        try:
            if args.kernel is not None:
                require_source(kernel.kernel, args.kernel)
        except ReceiptError as e:
            print(f"not verified: {e}", file=sys.stderr)
            return EXIT_HIT
        signers = ", ".join(sorted({r.key for r in kernel.receipts}))
        said = (
            f"verified: {short(kernel.kernel)} is correct for {one_line(kernel.op)}, with "
            f"{len(kernel.templates)} templates, signed by {signers}"
        )
        print(json.dumps(_told(kernel)) if args.json else said)
    return EXIT_OK


def _verify_whole(registry: KernelRegistry, args: Namespace) -> int:
    problems = registry.damage()
    for problem in problems:
        print(f"not whole: {problem}", file=sys.stderr)
    if args.json:
        print(json.dumps({"registry": str(args.registry), "problems": problems}))
    elif not problems:
        print(f"verified: all {len(registry.snapshot())} kernels of {args.registry}")
    return EXIT_HIT if problems else EXIT_OK


def require_source(kernel: str, file: str) -> None:
    """Raises ReceiptError where a digest is not that of the kernel in `file`."""
    from coding_framework.registry.digests import kernel_id
    from coding_framework.registry.receipts import ReceiptError

    if kernel != kernel_id(read_kernel(file)):
        raise ReceiptError(
            f"the receipt is about another source than {file}: each byte counts, also the last "
            "line's end"
        )


# --- changing -------------------------------------------------------------------------------------


def _promote(args: Namespace) -> int:
    from coding_framework.registry.records import PROMOTED

    with _open(args) as registry:
        kernel = registry.find(args.name)
        to = args.to or PROMOTED.get(kernel.status)
        if to is None:
            raise UsageError(
                f"a kernel that is {kernel.status} goes no step on by itself: --to says where it "
                "goes (verified, canary, active or retired)"
            )
        return _moved(registry, kernel, to, args.reason)


def _quarantine(args: Namespace) -> int:
    with _open(args) as registry:
        return _moved(registry, registry.find(args.name), "quarantined", args.reason)


def _moved(
    registry: KernelRegistry, kernel: RegisteredKernel, to: KernelStatus, reason: str
) -> int:
    from coding_framework.registry.kernels import short

    after = registry.move(kernel, to, reason)
    print(f"{short(kernel.kernel)} ({one_line(kernel.op)}): {kernel.status} -> {after.status}")
    return EXIT_OK


def _export(args: Namespace) -> int:
    from coding_framework.registry.archive import export_kernels

    with _open(args, read_only=True) as registry:
        count = export_kernels(registry, _chosen(registry, args.names), args.output)
    digest = hashlib.sha256(args.output.read_bytes()).hexdigest()
    print(f"{count} kernels in {args.output}, sha256 {digest}")
    return EXIT_OK


def _import(args: Namespace) -> int:
    from coding_framework.registry.archive import import_kernels

    with _open(args) as registry:
        count, left_out = import_kernels(registry, args.archive)
    for sentence in left_out:
        print(sentence, file=sys.stderr)
    print(f"{count} kernels added to {args.registry} as verified, {len(left_out)} left out")
    return EXIT_HIT if left_out else EXIT_OK


def _gc(args: Namespace) -> int:
    with _open(args) as registry:
        count, freed = registry.collect_garbage(retired=args.retired)
    print(f"{count} files removed, {freed / 1e6:.1f} MB")
    return EXIT_OK


# --- parts ----------------------------------------------------------------------------------------


def _open(args: Namespace, *, read_only: bool = False) -> KernelRegistry:
    from coding_framework.registry.kernels import KernelRegistry

    def tell(problem: str) -> None:
        print(f"left out: {problem}", file=sys.stderr)

    return KernelRegistry(args.registry, keys=args.keys, read_only=read_only, tell=tell)


def _chosen(registry: KernelRegistry, names: list[str]) -> list[RegisteredKernel]:
    return [registry.find(name) for name in names] if names else list(registry.snapshot())


def drivers_here() -> dict[str, str]:
    """Version of the driver by name of each GPU here."""
    from coding_framework.cuda.device.gpu_sharing import gpus

    return {gpu.name: gpu.driver for gpu in gpus()}

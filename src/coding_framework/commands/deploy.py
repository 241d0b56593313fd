"""`cuda-rl deploy`: versions, what each alias stands for, and rollouts that statistics decide.

    cuda-rl deploy register v2 --model kernels-v2 --evaluation RUN
    cuda-rl deploy create cuda-kernels v1
    cuda-rl deploy start cuda-kernels v2 --reason "the run of November"
    cuda-rl deploy status
    cuda-rl deploy rollback cuda-kernels --reason "complaints"

Exit status: 0 done, 2 wrong use, 3 a fault of ours.
"""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import (
    add_actions,
    add_command,
    add_flags,
    add_json,
    add_path,
    add_switch,
    config_from,
)
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import UsageError

if TYPE_CHECKING:
    from coding_framework.deployment.deployment_manager import DeploymentManager, Status

DATABASE = Path("deployment/deployment.sqlite")


def add_to(commands: Any) -> None:
    text = "Versions of models, what each alias stands for, and rollouts that statistics decide."
    actions = add_actions(commands, "deploy", text)
    _add_versions(actions)
    _add_rollouts(actions)
    _add_readers(actions)


def _add_versions(actions: Any) -> None:
    p = _action(actions, "register", _register, "Keep a version of a model, or its evaluation.")
    p.add_argument("version", metavar="VERSION", help="its name, for good")
    fields = [name for name in VersionSpec.model_fields if name != "model"]
    p.add_argument("--model", metavar="NAME", help="name under which its backend serves it")
    add_flags(p, VersionSpec, fields)
    add_path(p, "--evaluation", "RUN", "the folder of a finished `cuda-rl eval`")
    p = _action(actions, "versions", _versions, "List the versions.")
    p = _action(actions, "create", _create, "Make an alias, which stands for a version.")
    p.add_argument("alias", metavar="ALIAS", help="what callers ask for")
    p.add_argument("version", metavar="VERSION", help="a registered version")


def _add_rollouts(actions: Any) -> None:
    p = _action(actions, "start", _start, "Start the rollout of a version: shadow, ramp, verdict.")
    p.add_argument("alias", metavar="ALIAS", help="where it is to serve")
    p.add_argument("version", metavar="VERSION", help="the candidate")
    _add_reason(p)
    text = "YAML with settings of the rollout (examples/deployment/rollout.yaml explains them)"
    add_path(p, "--config", "FILE", text)
    add_switch(p, "--without-evaluation", "start it though nothing is known of the candidate")
    for name, text in (
        ("pause", "Let the incumbent serve everybody for now."),
        ("resume", "Go on with a paused rollout."),
        ("stop", "End a rollout without a verdict; the incumbent stays."),
        ("promote", "Make the candidate the incumbent before the rollout has decided."),
        ("rollback", "End the rollout, or put the previous version back."),
    ):
        p = _action(actions, name, _rollback if name == "rollback" else partial(_move, name), text)
        p.add_argument("alias", metavar="ALIAS", help="of the rollout")
        _add_reason(p)
        if name == "promote":
            add_switch(p, "--force", "say that this is a decision of yours")
        if name == "rollback":
            p.add_argument(
                "--to", metavar="VERSION", help="which version is put in (default: the previous)"
            )


def _add_readers(actions: Any) -> None:
    p = _action(actions, "status", _status, "Show what aliases stand for, and their rollouts.")
    p.add_argument("alias", nargs="?", metavar="ALIAS", help="default: all")
    add_json(p, "print one JSON object an alias")
    p = _action(actions, "history", _history, "Show every change, who made it, and why.")
    p.add_argument("alias", nargs="?", metavar="ALIAS", help="default: all")
    add_json(p, "print one JSON object a change")


def _action(actions: Any, name: str, work: Callable[[Namespace], int], text: str) -> Any:
    p = add_command(actions, name, work, text)
    add_path(p, "--database", "FILE", "the deployment database", DATABASE)
    return p


def _add_reason(p: Any) -> None:
    p.add_argument(
        "--reason", required=True, type=_reason, metavar="TEXT", help="why: it is kept for good"
    )


def _reason(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("is empty: say why, in a few words")
    return text


# --- versions and aliases -------------------------------------------------------------------------


def _register(args: Namespace) -> int:
    samples = []
    if args.evaluation is not None:
        from coding_framework.run.evaluation import read_sample_records

        samples = read_sample_records(args.evaluation)
    manager = _manager(args, make=True)
    if args.model is None:
        spec = _known_spec(manager, args.version)
    else:
        spec = config_from(VersionSpec, args)
    row = manager.register_version(args.version, spec, samples, _actor())
    told = "with an evaluation" if row.evaluation else "without an evaluation"
    print(f"version {row.id} is registered {told} (digest {row.digest[:12]})")
    return EXIT_OK


def _known_spec(manager: DeploymentManager, version: str) -> VersionSpec:
    """Of a version to which an evaluation is added."""
    if all(row.id != version for row in manager.store.versions()):
        raise UsageError(f"--model is missing: {version} is not registered yet")
    return manager.spec(version)


def _versions(args: Namespace) -> int:
    for row in _manager(args).store.versions():
        spec = json.loads(row.spec)
        told = "evaluated" if row.evaluation else "not evaluated"
        print(f"{row.id:<24} {spec['model']:<32} {told}")
    return EXIT_OK


def _create(args: Namespace) -> int:
    row = _manager(args).deploy(args.alias, args.version, _actor())
    print(f"{row.alias} stands for {row.incumbent}")
    return EXIT_OK


# --- rollouts -------------------------------------------------------------------------------------


def _start(args: Namespace) -> int:
    manager = _manager(args)
    settings = _settings_of(args.config) if args.config is not None else {}
    config = manager.config(args.alias, args.version, settings)
    row = manager.start_rollout(
        config, args.reason, _actor(), without_evaluation=args.without_evaluation
    )
    horizon = manager.experiments.config(row).horizon_units
    print(f"rollout {row.id} of {args.version} on {args.alias}: {row.state}, {horizon} units")
    return EXIT_OK


def _settings_of(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"{path} cannot be read ({e.strerror}): check --config") from e
    except (ValueError, yaml.YAMLError) as e:
        said = " ".join(str(e).split())
        raise UsageError(f"{path} cannot be read as YAML ({said}): mend it") from e
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no settings: write `shadow_units: 500`, one a line")
    return found


def _move(action: str, args: Namespace) -> int:
    manager = _manager(args)
    manager.store.endpoint(args.alias)
    row = manager.store.active_experiment(args.alias)
    if row is None:
        raise UsageError(f"{args.alias} has no active rollout: `cuda-rl deploy status` shows it")
    more = {"force": args.force} if action == "promote" else {}
    row = getattr(manager.experiments, action)(row.id, args.reason, _actor(), **more)
    print(f"rollout {row.id} on {args.alias} is {row.state}")
    return EXIT_OK


def _rollback(args: Namespace) -> int:
    endpoint = _manager(args).rollback(args.alias, args.reason, args.to, _actor())
    print(f"{endpoint.alias} stands for {endpoint.incumbent} (generation {endpoint.generation})")
    return EXIT_OK


# --- what is shown --------------------------------------------------------------------------------


def _status(args: Namespace) -> int:
    manager = _manager(args)
    aliases = [args.alias] if args.alias else [row.alias for row in manager.store.endpoints()]
    for alias in aliases:
        status = manager.status(alias)
        print(status.model_dump_json() if args.json else "\n".join(_status_lines(status)))
    return EXIT_OK


def _status_lines(status: Status) -> Iterator[str]:
    before = f", before {status.previous}" if status.previous else ""
    yield f"{status.alias}: {status.incumbent}{before} (generation {status.generation})"
    found = status.rollout
    if found is None:
        return
    reason = f" ({found.reason})" if found.reason else ""
    yield f"  rollout {found.experiment}: {found.state}{reason}, {found.enrolment:.0%} enrolled"
    numbers = found.numbers
    counts, gate = numbers["counts"], numbers["next"]
    old, new = counts["closed"]
    yield f"  closed units: {old} incumbent, {new} candidate, of {numbers['horizon_units']}"
    if numbers["shadow_pairs"]:
        yield f"  pairs in the shadow: {numbers['shadow_pairs']}"
    for name, shown in numbers["estimates"].items():
        if shown["estimate"] is not None:
            low, high = shown["low"], shown["high"]
            yield f"  {name}: {shown['estimate']:+.4f} (valid now: {low:+.4f} to {high:+.4f})"
    for name, bad in numbers["bad"].items():
        if bad["bad"]:
            told = f"{bad['of_candidate']} of {bad['bad']} units with it are the candidate's"
            yield f"  {name}: {told}, ln E {bad['log_e']:.1f}"
    if found.decision is not None:
        yield f"  demanded by the log: {found.decision} ({found.decision_reason})"
    elif gate["missing"]:
        yield f"  next: {gate['to']}; it waits for {', '.join(gate['missing'])}"


def _history(args: Namespace) -> int:
    manager = _manager(args)
    if args.alias is not None:
        manager.store.endpoint(args.alias)
    for entry in manager.history(args.alias):
        if args.json:
            print(json.dumps(entry))
            continue
        after = " ".join(f"{k}={v}" for k, v in entry["after"].items())
        why = f": {entry['reason']}" if entry["reason"] else ""
        print(f"{entry['at']}  {entry['actor']:<12} {entry['action']:<10} {after}{why}")
    return EXIT_OK


def _manager(args: Namespace, *, make: bool = False) -> DeploymentManager:
    """Raises UsageError where there is no database yet, unless it is to be made."""
    from coding_framework.deployment.deployment_manager import DeploymentManager
    from coding_framework.deployment.store import DeploymentStore

    if not make and not args.database.exists():
        raise UsageError(
            f"there is no deployment database {args.database}: `cuda-rl deploy register` makes "
            "one, and --database says where another one is"
        )
    return DeploymentManager(DeploymentStore(args.database))


def _actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"

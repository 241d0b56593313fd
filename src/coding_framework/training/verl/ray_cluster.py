"""A Ray cluster as judges see it: how this process joins, and which nodes have room for what."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import ray

from coding_framework.errors import InfrastructureError, UsageError

JUDGE = "judge"
"""Ray resource of nodes that judge: a unit for each candidate that a node takes at a time. Such a
node offers Ray no processors (--num-cpus=0): whatever else runs on the cluster would be put there
too, and take the judge's place."""
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the judges go. Consumer: `RayJudgePool`."""

    count: int
    places: int
    """Jobs that each takes at a time."""
    options: dict[str, Any]
    """Of Ray: what an actor takes of its node."""


def connect(address: str | None) -> bool:
    """Join the cluster at `address` (None, "local": one of this machine) where this process is in
    none; whether it joined now. Raises UsageError for what is no address, InfrastructureError where
    none answers: at once, while Ray would try for minutes."""
    if ray.is_initialized():
        return False
    if address not in (None, "auto", "local"):
        _require_answer(str(address))
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    except (ConnectionError, RuntimeError) as e:
        raise _no_cluster(address) from e
    return True


def disconnect() -> None:
    """Leave the cluster."""
    ray.shutdown()


def has_resource(name: str) -> bool:
    """Whether a node of the cluster has it."""
    return any(name in node["Resources"] for node in _alive())


def judging_layout(jobs: int | None, nodes: int | None, resource: str | None) -> Layout:
    """A judge on each of so many nodes. resource: whose units are the candidates that a node takes
    at a time, on those that have it alone; None: processors are. jobs: of each; default the fewest
    that a node takes. nodes: default all that take so many."""
    what = resource or "CPU"
    found = [units for node in _alive() if (units := _units(node, what)) >= 1]
    if not found and resource is not None:
        raise InfrastructureError(
            f"no node of the Ray cluster has the resource {resource!r}: start those that judge "
            f"with {_start_of(resource)}"
        )
    if not found:
        raise InfrastructureError("the Ray cluster has no processors: add a node, try again")
    jobs = jobs or min(found)
    count = nodes or sum(jobs <= units for units in found)
    if not 0 < count <= sum(units // jobs for units in found):
        raise UsageError(
            f"the Ray cluster has no room for {count or 1} judges of {jobs} candidates at a time: "
            f"its nodes have {', '.join(map(str, sorted(found)))} "
            + ("processors, ask for less" if resource is None else _units_are(resource))
        )
    return Layout(count, jobs, _takes(jobs, resource))


def _takes(places: int, resource: str | None) -> dict[str, Any]:
    """What an actor of so many places takes of its node."""
    if resource is None:
        return {"num_cpus": places}
    return {"num_cpus": 0, "resources": {resource: places}}


def _units_are(resource: str) -> str:
    start = _start_of(resource)
    return f"units of {resource}, one for a candidate at a time: ask for less, or {start}"


def _start_of(resource: str) -> str:
    return f"ray start --num-cpus=0 --resources='{{\"{resource}\": CANDIDATES_AT_A_TIME}}'"


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _units(node: dict[str, Any], resource: str) -> int:
    return int(node["Resources"].get(resource, 0))


def _require_answer(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        raise UsageError(
            f"{address!r} is no address of a Ray cluster: write HOST:PORT, auto or local"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as e:
        raise _no_cluster(address) from e


def _no_cluster(address: str | None) -> InfrastructureError:
    return InfrastructureError(
        f"no Ray cluster answers at {address!r}: start one with `ray start --head`, and give the "
        "address that it prints"
    )

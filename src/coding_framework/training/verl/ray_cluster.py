"""A Ray cluster as judges see it: how this process joins, and which nodes have room for what."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from coding_framework.errors import InfrastructureError, UsageError

BENCH = "bench_gpu"
"""Ray resource of nodes whose GPUs judge, one unit a GPU."""
JUDGE = "judge"
"""Ray resource of nodes that judge, or that compile for those with `BENCH`."""
_CONNECT_S = 10.0
_MARK = 0.0001
"""Of a resource that names a kind of node, not an amount: the processors are what runs out."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where actors of one kind go. Consumer: `ray_actors.ActorGroup`."""

    count: int
    places: int
    """Jobs that each takes at a time."""
    options: dict[str, Any]
    """Of Ray, beside the processors, of which an actor takes one a place."""


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
    """A judge on each of so many nodes, on those that have the resource alone. jobs: of each;
    default the fewest processors of a node. nodes: default all that have them."""
    found = _processors(lambda node: resource is None or resource in node["Resources"])
    if not found and resource is not None:
        raise InfrastructureError(
            f"no node of the Ray cluster has the resource {resource!r}: start those that judge "
            f"with ray start --resources='{{\"{resource}\": 1}}'"
        )
    if not found:
        raise InfrastructureError("the Ray cluster has no processors: add a node, try again")
    jobs = jobs or min(found)
    count = nodes or sum(jobs <= p for p in found)
    if not 0 < count <= sum(p // jobs for p in found):
        raise UsageError(
            f"the Ray cluster has no room for {count or 1} judges of {jobs} candidates at a time: "
            f"its nodes have {', '.join(map(str, sorted(found)))} processors, ask for less"
        )
    return Layout(count, jobs, {"resources": {resource: _MARK}} if resource is not None else {})


def bench_layout(jobs: int | None) -> Layout:
    """An actor for each unit of `BENCH`. jobs: of each; default the fewest processors of a node
    for each of its units."""
    nodes = [(_cpus(node), int(node["Resources"][BENCH])) for node in _alive() if _benches(node)]
    nodes = [(cpus, units) for cpus, units in nodes if units]
    most = min((cpus // units for cpus, units in nodes), default=0)
    if not 0 < (jobs or most) <= most:
        raise UsageError(
            f"the nodes with {BENCH} have at least {most} processors for each unit of it: ask for "
            "no more candidates at a time on a GPU, or give them more"
        )
    return Layout(
        sum(units for _, units in nodes), jobs or most, {"resources": {BENCH: 1}, "num_gpus": 0}
    )


def compiling_layout(bench: Layout) -> Layout:
    """An actor on each node that compiles: those with `JUDGE` where there are any, else all without
    `BENCH`. bench: what takes processors of the nodes that have both."""

    def left(node: dict[str, Any]) -> int:
        return _cpus(node) - bench.places * int(node["Resources"].get(BENCH, 0))

    named = has_resource(JUDGE)
    nodes = [n for n in _alive() if (JUDGE in n["Resources"] if named else not _benches(n))]
    found = [left(node) for node in nodes if left(node) >= 1]
    if not found:
        raise InfrastructureError(
            f"no node of the Ray cluster has processors to compile for those with {BENCH}: add one "
            f"without it, or with ray start --resources='{{\"{JUDGE}\": 1}}'"
        )
    if named:
        return Layout(len(found), min(found), {"resources": {JUDGE: _MARK}})
    benches = ",".join(node["NodeID"] for node in _alive() if _benches(node))
    others = {"label_selector": {"ray.io/node-id": f"!in({benches})"}}
    return Layout(len(found), min(found), others)


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _benches(node: dict[str, Any]) -> bool:
    return BENCH in node["Resources"]


def _cpus(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("CPU", 0))


def _processors(wanted: Callable[[dict[str, Any]], bool]) -> list[int]:
    return [_cpus(node) for node in _alive() if _cpus(node) >= 1 and wanted(node)]


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

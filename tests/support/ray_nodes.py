"""A Ray cluster of one node for tests of judges, and what is seen of its judges from outside.

The fixture `ray_cluster` is one that all tests of a worker share: Ray needs seconds to start.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import ray
from ray.cluster_utils import Cluster

from support.waiting import PATIENCE_S, until

Started = TypeVar("Started")
SLOW = "support.ray_judges:make_slow_judge"
NODE = {
    "num_cpus": 2,
    "include_dashboard": False,
    "object_store_memory": 80 << 20,
    "resources": {"judge": 2},
}


def patiently(start: Callable[[], Started], tries: int = 3) -> Started:
    """On a loaded machine Ray's own processes miss the 30 s that it gives them."""
    for left in reversed(range(tries)):
        try:
            return start()
        except Exception:  # Ray raises no narrower one
            if not left:
                raise
    raise AssertionError


@contextmanager
def joined(cluster: Cluster) -> Iterator[None]:
    """This process in the cluster, whose workers import what it does. Actors end with the block."""
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
    )
    try:
        yield
    finally:
        ray.shutdown()


def gone(node: Any) -> None:
    """Wait until Ray does not count a removed node any more, as the next pool would."""
    until(
        lambda: not any(n["Alive"] for n in ray.nodes() if n["NodeID"] == node.node_id),
        "Ray counts a node that was removed",
    )


def told(folder: Path, name: str) -> list[list[int]]:
    """(process, jobs at that time) for each time that the job began."""
    if not (folder / name).exists():
        return []
    return [[int(x) for x in line.split()] for line in (folder / name).read_text().splitlines()]


async def began(folder: Path, name: str, times: int = 1) -> int:
    """Wait until a job has begun so often; the process of its judge."""
    deadline = time.monotonic() + PATIENCE_S
    while len(told(folder, name)) < times and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return told(folder, name)[times - 1][0]


def judges(cluster: Cluster) -> list[psutil.Process]:
    """Processes of judges on the nodes of the cluster."""
    found = []
    for node in cluster.list_all_nodes():
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in raylet.children(recursive=True):
            try:
                words = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if "NodeJudge" in words or "cuda.many.worker" in words:
                found.append(process)
    return found

"""A Ray cluster of one node for tests of judges, and what is seen of its judges from outside."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import ray
from ray.cluster_utils import Cluster

from support.waiting import PATIENCE_S

SLOW = "support.ray_judges:make_slow_judge"
NODE = {
    "num_cpus": 2,
    "include_dashboard": False,
    "object_store_memory": 80 << 20,
    "resources": {"judge": 2},
}


def start_cluster(tries: int = 3) -> Cluster:
    """On a loaded machine Ray's own processes miss the 30 s that it gives them."""
    for left in reversed(range(tries)):
        try:
            return Cluster(initialize_head=True, head_node_args=NODE)
        except Exception:  # Ray raises no narrower one
            if not left:
                raise
    raise AssertionError


@contextmanager
def joined(cluster: Cluster) -> Iterator[None]:
    """This process in the cluster, whose workers import what it does; then the end of both."""
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
    )
    yield
    ray.shutdown()
    cluster.shutdown()


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

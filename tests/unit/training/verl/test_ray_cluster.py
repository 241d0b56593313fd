"""Which nodes of a Ray cluster judge, compile, or run and time, from what Ray says of them."""

from __future__ import annotations

from typing import Any

import pytest

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.training.verl import ray_cluster
from coding_framework.training.verl.ray_cluster import (
    Layout,
    bench_layout,
    compiling_layout,
    has_resource,
    judging_layout,
)

pytestmark = pytest.mark.unit


def nodes(monkeypatch: pytest.MonkeyPatch, *resources: dict[str, float]) -> None:
    """A cluster of such nodes, and of one that is gone."""
    found: list[dict[str, Any]] = [
        {"NodeID": f"node{i}", "Alive": True, "Resources": r} for i, r in enumerate(resources)
    ]
    gone = {"NodeID": "gone", "Alive": False, "Resources": {"CPU": 64.0, "bench_gpu": 8.0}}
    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: [*found, gone])


def test_each_gpu_has_an_actor_with_its_part_of_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes(monkeypatch, {"CPU": 4.0}, {"CPU": 16.0, "bench_gpu": 2.0}, {"CPU": 9.0, "bench_gpu": 1})
    assert has_resource("bench_gpu")
    bench = bench_layout(None)
    assert bench == Layout(3, 8, {"num_cpus": 8, "resources": {"bench_gpu": 1}, "num_gpus": 0})
    assert bench_layout(2).places == 2
    with pytest.raises(UsageError, match="at least 8 processors for each unit"):
        bench_layout(9)
    compiling = compiling_layout()
    assert (compiling.count, compiling.places) == (1, 4)
    others = {"label_selector": {"ray.io/node-id": "!in(node1,node2)"}}
    assert compiling.options == {"num_cpus": 4, **others}


def test_nodes_that_are_named_compile_as_many_as_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes(monkeypatch, {"CPU": 4.0}, {"CPU": 16.0, "bench_gpu": 2.0, "judge": 10.0})
    assert compiling_layout() == Layout(1, 10, {"num_cpus": 0, "resources": {"judge": 10}})


def test_a_cluster_in_which_nothing_compiles_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(monkeypatch, {"CPU": 16.0, "bench_gpu": 2.0})
    with pytest.raises(InfrastructureError, match="compiles for those with bench_gpu"):
        compiling_layout()


def test_a_cluster_without_such_nodes_judges_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(monkeypatch, {"CPU": 4.0}, {"CPU": 2.0}, {"memory": 1.0})
    assert not has_resource("bench_gpu")
    assert judging_layout(None, None, None) == Layout(2, 2, {"num_cpus": 2})
    with pytest.raises(UsageError, match="no room for 1 judges of 8"):
        judging_layout(8, None, None)


def test_nodes_that_only_judge_offer_ray_no_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(monkeypatch, {"CPU": 64.0}, {"judge": 8.0}, {"judge": 6.0})
    assert judging_layout(None, None, "judge") == Layout(
        2, 6, {"num_cpus": 0, "resources": {"judge": 6}}
    )
    assert judging_layout(8, None, "judge").count == 1
    with pytest.raises(UsageError, match=r"no room for 2 judges of 8 .* 6, 8 units of judge"):
        judging_layout(8, 2, "judge")

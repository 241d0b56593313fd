"""Which nodes of a Ray cluster judge, from what Ray says of them."""

from __future__ import annotations

from typing import Any

import pytest

from coding_framework.errors import UsageError
from coding_framework.training.verl import ray_cluster
from coding_framework.training.verl.ray_cluster import Layout, has_resource, judging_layout

pytestmark = pytest.mark.unit


def nodes(monkeypatch: pytest.MonkeyPatch, *resources: dict[str, float]) -> None:
    """A cluster of such nodes, and of one that is gone."""
    found: list[dict[str, Any]] = [
        {"NodeID": f"node{i}", "Alive": True, "Resources": r} for i, r in enumerate(resources)
    ]
    gone = {"NodeID": "gone", "Alive": False, "Resources": {"CPU": 64.0, "judge": 8.0}}
    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: [*found, gone])


def test_a_cluster_without_such_nodes_judges_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(monkeypatch, {"CPU": 4.0}, {"CPU": 2.0}, {"memory": 1.0})
    assert not has_resource("judge")
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

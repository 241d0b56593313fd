"""What tests of training share: a tiny model, and the Ray cluster of the judges' tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.tiny_lm import make_tiny_lm

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of SFT."""
    return make_tiny_lm(tmp_path_factory.mktemp("tiny-lm"))


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """A cluster of one node with two processors; a test joins it by `support.ray_nodes.joined`."""
    from ray.cluster_utils import Cluster

    from support.ray_nodes import NODE, patiently

    with pytest.MonkeyPatch.context() as environment:
        # as our trainer starts Ray: no worker that nothing asked for, no GPU hidden from a judge
        environment.setenv("RAY_prestart_worker_first_driver", "0")
        environment.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=NODE))
    yield cluster
    cluster.shutdown()

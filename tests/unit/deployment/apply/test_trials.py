"""A program that takes part in a rollout: two kernels in turn, timed, and what is written of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from coding_framework.cli import main
from coding_framework.deployment import apply as kernels
from coding_framework.deployment.ab_testing import RampStep
from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.kernel_rollout import DATABASE, LONGEST
from coding_framework.deployment.store import DeploymentStore
from coding_framework.deployment.verify import verify
from coding_framework.registry.digests import kernel_id
from coding_framework.registry.kernels import KernelRegistry
from support.applied import add_to_registry, bias_gelu, counts, inputs
from support.registered import registry_in

pytestmark = pytest.mark.unit
_numbers = iter(range(1000))
OLD, NEW = "// the old one\n", "// the new one\n"
MINUTES = 20
"""Each draws a kernel by a secret salt: one of the two is never drawn in 2 of 2**20 runs."""
AT_ONCE = (RampStep(share=0.5, min_dwell_s=0.0, min_units=0),)


@pytest.fixture
def name() -> Iterator[str]:
    given = f"trial_{next(_numbers)}"
    yield given
    kernels.disable()
    kernels._ops.pop(given, None)


def rolled_out(folder: Path, name: str, candidate: str = "bias_gelu") -> KernelRegistry:
    """A registry of two kernels of the function, the newer one (an entry of `support.applied`) in
    a rollout in which every unit takes part."""
    registry, key = registry_in(folder)
    add_to_registry(registry, key, name, OLD)
    add_to_registry(registry, key, name, NEW, entry=candidate, status="canary")
    with closing(DeploymentStore(registry.folder / DATABASE)) as store:
        DeploymentManager(store).roll_out_kernel(
            name, kernel_id(OLD), kernel_id(NEW), "a test", steps=AT_ONCE
        )
    return registry


def enabled(
    registry: KernelRegistry, name: str
) -> tuple[Callable[..., Any], Callable[[int], None]]:
    """The operation, and what says which minute it is."""

    def fused(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return bias_gelu(x, b)

    decorated = kernels.op(name)(fused)
    kernels.enable(registry.folder, device="emulator", rollouts=True)
    rollouts = kernels._sets[registry.folder.resolve()].rollouts
    assert rollouts is not None

    def set_minute(minute: int) -> None:
        rollouts.clock = lambda: 60.0 * minute + 1

    return decorated, set_minute


def events(registry: KernelRegistry) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Variant of each exposure by request, and each outcome."""
    with closing(DeploymentStore(registry.folder / DATABASE)) as store:
        (row,) = store.experiments()
        found = list(store.events(row.id))
        assert verify(store).difference is None
    exposed = {e.request: e.variant for e in found if e.kind == "exposure"}
    outcomes = {e.request: json.loads(e.body) for e in found if e.kind == "outcome"}
    return exposed, outcomes


def test_each_minute_has_an_exposure_and_an_outcome_by_times_of_both_kernels(
    tmp_path: Path, name: str
) -> None:
    registry, (x, b) = rolled_out(tmp_path, name), inputs()
    fused, set_minute = enabled(registry, name)
    for minute in range(MINUTES):
        set_minute(minute)
        for _ in range(6):
            assert torch.allclose(fused(x, b), bias_gelu(x, b), atol=1e-6)
    kernels.disable()
    exposed, outcomes = events(registry)
    assert len(exposed) == MINUTES
    assert exposed.keys() == outcomes.keys()
    assert set(exposed.values()) == {"incumbent", "candidate"}
    for outcome in outcomes.values():
        assert outcome["status"] == "not_judged"
        assert abs(outcome["values"]["log_time_ratio"]) <= LONGEST


def test_a_candidate_that_is_wrong_is_told_and_runs_no_more(tmp_path: Path, name: str) -> None:
    registry, (x, b) = rolled_out(tmp_path, name, "wrong"), inputs()
    fused, set_minute = enabled(registry, name)
    minutes = iter(range(100))

    def run_until_the_candidate_was_drawn() -> None:
        while "mismatch" not in counts(name):
            set_minute(next(minutes))
            for _ in range(3):
                assert torch.allclose(fused(x, b), bias_gelu(x, b), atol=1e-6)

    with pytest.warns(RuntimeWarning, match="first result was not that of"):
        run_until_the_candidate_was_drawn()
    set_minute(next(minutes))
    fused(x, b)
    kernels.disable()
    exposed, outcomes = events(registry)
    wrong = [r for r, outcome in outcomes.items() if "mismatch" in outcome["bad"]]
    assert [exposed[request] for request in wrong] == ["candidate"]
    assert outcomes[wrong[0]]["values"]["log_time_ratio"] == -LONGEST
    assert counts(name)["mismatch"] == 1


def test_a_launch_that_fails_is_written_before_it_is_raised(tmp_path: Path, name: str) -> None:
    registry, (x, b) = rolled_out(tmp_path, name, "faulty"), inputs()
    fused, set_minute = enabled(registry, name)

    def run() -> None:
        for minute in range(100):
            set_minute(minute)
            for _ in range(3):
                fused(x, b)

    with pytest.raises(kernels.KernelFault), pytest.warns(RuntimeWarning, match="illegal"):
        run()
    exposed, outcomes = events(registry)
    failed = [r for r, outcome in outcomes.items() if "fault" in outcome["bad"]]
    assert [exposed[request] for request in failed] == ["candidate"]


def test_without_a_rollout_the_database_decides_whose_kernel_runs(
    tmp_path: Path, name: str
) -> None:
    registry, (x, b) = rolled_out(tmp_path, name), inputs()
    with closing(DeploymentStore(registry.folder / DATABASE)) as store:
        experiments = DeploymentManager(store).experiments
        (row,) = store.experiments()
        experiments.promote(row.id, "a test", force=True)
    fused, set_minute = enabled(registry, name)
    set_minute(1)
    fused(x, b)
    assert kernels._sets[registry.folder.resolve()].launched == {kernel_id(NEW)}
    kernels.disable()
    assert events(registry) == ({}, {})


def test_a_command_starts_a_rollout_against_the_active_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry, key = registry_in(tmp_path)
    add_to_registry(registry, key, "gelu_of_sum", NEW, status="verified")
    command = ["kernel", "rollout", kernel_id(NEW)[:15], "--registry", str(registry.folder),
               "--reason", "it is faster"]  # fmt: skip
    assert main(command) == 2
    assert "0 of the 1 kernels of gelu_of_sum are active" in capsys.readouterr().err
    add_to_registry(registry, key, "gelu_of_sum", OLD)
    assert main(command) == 0
    assert "take part from now on" in capsys.readouterr().out
    with closing(DeploymentStore(registry.folder / DATABASE)) as store:
        assert [row.state for row in store.experiments("gelu_of_sum")] == ["RAMPING"]
    statuses = {k.kernel: k.status for k in registry.snapshot()}
    assert statuses == {kernel_id(OLD): "active", kernel_id(NEW): "canary"}

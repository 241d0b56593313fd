"""Which GPU a prompt tells of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from coding_framework.agents import devices
from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.errors import UsageError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    devices.this_device.cache_clear()
    yield
    devices.this_device.cache_clear()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA A1000", None),
        ("NVIDIA GeForce RTX 3060", None),
    ],
)
def test_a_gpu_is_known_by_its_drivers_name(name: str, known: str | None) -> None:
    assert devices.known_device(name) == known


def test_prompts_tell_of_this_machines_first_known_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(devices.TOLD_DEVICE, raising=False)
    for names, told in (
        ([], None),
        (["Tesla K80"], None),
        (["NVIDIA H200"], None),
        (["Tesla K80", "NVIDIA A100-PCIE-40GB"], "NVIDIA A100"),
    ):
        monkeypatch.setattr(devices, "_driver_names", lambda names=names: names)
        devices.this_device.cache_clear()
        assert devices.told_device() == told
        agent = GeneratorAgent(ScriptedPolicy(()))
        assert agent.device == (told or devices.DEFAULT_DEVICE)


def test_the_environment_names_the_gpu_of_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.TOLD_DEVICE, "NVIDIA H100")
    assert devices.this_device() == "NVIDIA H100"
    devices.this_device.cache_clear()
    monkeypatch.setenv(devices.TOLD_DEVICE, "H100")
    with pytest.raises(UsageError, match=r"'H100'.*choose one of NVIDIA H200, NVIDIA H100"):
        devices.this_device()


def test_half_of_the_examples_tell_of_the_default_gpu_and_the_others_of_each_other_one() -> None:
    told = Counter(devices.device_of_example(f"generate/task{n}/level 2") for n in range(2000))
    assert 900 < told[devices.DEFAULT_DEVICE] < 1100
    others = [count for name, count in told.items() if name != devices.DEFAULT_DEVICE]
    assert len(others) >= 3
    assert min(others) > 200

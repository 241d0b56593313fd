"""What all tests share: GPU tests are skipped, with a reason, where there is no GPU."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "support.docker_engine", "support.judging", "support.time_bar"]

# A loaded machine is slow, not wrong: no deadline on an example.
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("project")

# A shell's background jobs ignore SIGINT, and so would every program that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _gpu_is_here() -> bool:
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool, "-L"], capture_output=True).returncode == 0


def _place(item: pytest.Item) -> int:
    marker = item.get_closest_marker("ci")
    return 2 if marker is None else 0 if marker.kwargs.get("longest") else 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest ones first: another worker takes over what comes after them meanwhile.
    items.sort(key=_place)
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if marked and not _gpu_is_here():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU and its driver"))

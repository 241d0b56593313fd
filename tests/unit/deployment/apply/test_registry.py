"""`apply` on a registry in a folder: what is taken from it, and what is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from coding_framework.deployment import apply as kernels
from coding_framework.errors import UsageError
from coding_framework.registry.kernels import KernelRegistry
from support.applied import add_to_registry, bias_gelu, counts, inputs
from support.registered import registry_in

pytestmark = pytest.mark.unit
_numbers = iter(range(1000))


@pytest.fixture
def name() -> Iterator[str]:
    """Of an operation: PyTorch forgets none."""
    given = f"r_{next(_numbers)}"
    yield given
    kernels.disable()
    kernels._ops.pop(given, None)


def define(name: str):
    def fused(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return bias_gelu(x, b)

    return kernels.op(name)(fused)


def enable(registry: KernelRegistry, **options: object) -> None:
    kernels.enable(registry.folder, device="emulator", **options)


def test_an_active_kernel_of_a_registry_is_used(tmp_path: Path, name: str) -> None:
    fused, (x, b) = define(name), inputs()
    registry, key = registry_in(tmp_path)
    add_to_registry(registry, key, name)
    enable(registry)
    assert torch.allclose(fused(x, b), bias_gelu(x, b), atol=1e-6)
    assert counts(name) == {"hits": 1}
    kernels.disable()
    fused(x, b)
    assert counts(name) == {"hits": 1, "disabled": 1}


def test_a_registry_is_taken_as_it_was_until_it_is_reloaded(tmp_path: Path, name: str) -> None:
    fused, (x, b) = define(name), inputs()
    registry, key = registry_in(tmp_path)
    kernel = add_to_registry(registry, key, name, status="verified")
    enable(registry)
    fused(x, b)
    registry.move(kernel, "active", "tried")
    fused(x, b)
    kernels.reload()
    fused(x, b)
    registry.move(registry.find(name), "retired", "slower than another")
    fused(x, b)
    kernels.reload()
    fused(x, b)
    assert counts(name) == {"hits": 2, "status": 3}


def test_a_fault_keeps_a_kernel_out_until_it_is_judged_again(tmp_path: Path, name: str) -> None:
    fused, (x, b) = define(name), inputs()
    registry, key = registry_in(tmp_path)
    add_to_registry(registry, key, name, entry="faulty")
    enable(registry)
    with pytest.warns(RuntimeWarning), pytest.raises(kernels.KernelFault):
        fused(x, b)
    enable(registry)
    fused(x, b)
    assert counts(name) == {"hits": 0, "quarantined": 1}
    (file,) = (registry.folder / "quarantine").iterdir()
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "at": "2020-01-01T00:00:00Z"}))
    enable(registry)
    with pytest.warns(RuntimeWarning), pytest.raises(kernels.KernelFault):
        fused(x, b)


def test_another_protocol_is_stale_and_used_only_where_that_is_allowed(
    tmp_path: Path, name: str
) -> None:
    fused, (x, b) = define(name), inputs()
    registry, key = registry_in(tmp_path)
    add_to_registry(registry, key, name, protocol="1")
    enable(registry)
    fused(x, b)
    enable(registry, allow_stale=True)
    fused(x, b)
    assert counts(name) == {"hits": 1, "stale": 1}


@pytest.mark.parametrize("kind", ["templates", "cubins", "tasks"])
def test_a_flipped_bit_is_a_fallback_with_a_warning(tmp_path: Path, name: str, kind: str) -> None:
    fused, (x, b) = define(name), inputs()
    registry, key = registry_in(tmp_path)
    add_to_registry(registry, key, name)
    (file,) = (p for p in (registry.folder / kind).rglob("*") if p.is_file())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        enable(registry)
        assert torch.equal(fused(x, b), bias_gelu(x, b))
    assert [w.category for w in told] == [RuntimeWarning]
    assert counts(name)["hits"] == 0


def test_receipts_of_keys_that_are_not_trusted_count_for_nothing(tmp_path: Path, name: str) -> None:
    fused, (x, b) = define(name), inputs()
    registry, key = registry_in(tmp_path)
    add_to_registry(registry, key, name)
    with pytest.warns(RuntimeWarning, match="does not count"):
        enable(registry, keys=tmp_path)
    fused(x, b)
    assert counts(name) == {"hits": 0, "no kernel": 1}


def test_a_registry_that_cannot_be_written_is_used(tmp_path: Path, name: str) -> None:
    fused, (x, b) = define(name), inputs()
    registry, key = registry_in(tmp_path)
    add_to_registry(registry, key, name)
    registry.close()
    for folder, _, files in os.walk(registry.folder):
        for path in [Path(folder), *(Path(folder) / f for f in files)]:
            path.chmod(0o555 if path.is_dir() else 0o444)
    enable(registry)
    fused(x, b)
    assert counts(name) == {"hits": 1}


def test_the_environment_enables_and_a_wrong_folder_is_only_a_warning(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import torch
        from coding_framework.deployment import apply as kernels

        @kernels.op("env")
        def env(x):
            return x + 1

        print(env(torch.zeros(2)).tolist(), kernels.stats()["env"]["misses"])
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "CUDA_RL_APPLY": str(tmp_path / "nowhere")},
    )  # fmt: skip
    assert done.stdout.strip() == "[1.0, 1.0] {'disabled': 1}"
    assert "CUDA_RL_APPLY: " in done.stderr


def test_what_is_no_registry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kernel registry"):
        kernels.enable(tmp_path, device="emulator")

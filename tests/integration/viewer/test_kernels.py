"""The pages of kernel registries, over real folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.registered import SOURCE, add_kernel, registry_in
from support.viewed import Viewed

pytestmark = pytest.mark.integration


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """A registry with two kernels."""
    made, key = registry_in(tmp_path / "runs")
    with made:
        add_kernel(made, key)
        second = add_kernel(made, key, SOURCE + "// <script>alert(1)</script>\n")
        made.move(second, "quarantined", "it <b>faulted</b>")
    return made.folder


def test_kernels_are_listed_with_what_vouches_for_them(registry: Path, tmp_path: Path) -> None:
    viewed = Viewed(registry, index=tmp_path / "index")
    page = viewed.page("/kernels")
    assert page.count(">relu</a>") == 2
    assert "quarantined" in page
    assert "made up" in page, "the device"
    assert viewed.page("/kernels?status=quarantined").count(">relu</a>") == 1
    assert viewed.page("/kernels?q=softmax").count(">relu</a>") == 0
    assert 'href="/kernels"' in viewed.page("/"), "the list of runs leads there"


def test_a_kernel_is_shown_with_its_source_receipts_and_history(
    registry: Path, tmp_path: Path
) -> None:
    viewed = Viewed(registry, index=tmp_path / "index")
    (found,) = viewed.data("/kernels?status=quarantined")["registries"]
    page = viewed.page(found["kernels"][0]["address"])
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert "it &lt;b&gt;faulted&lt;/b&gt;" in page
    assert "no: the host code reads from the device" in page
    assert "signed by" in page
    assert viewed.client.get("/kernels/0/1").status_code == 404


def test_what_does_not_hold_is_told_and_nothing_is_written(registry: Path, tmp_path: Path) -> None:
    for key in (registry / "keys").iterdir():
        key.unlink()
    before = {p: p.stat().st_mtime_ns for p in registry.rglob("*")}
    viewed = Viewed(registry, index=tmp_path / "index")
    page = viewed.page("/kernels")
    assert ">relu</a>" not in page
    assert "does not count" in page
    assert {p: p.stat().st_mtime_ns for p in registry.rglob("*")} == before
    (registry / "registry.sqlite").write_bytes(b"no database" * 99)
    assert "registry.sqlite" in viewed.page("/kernels")

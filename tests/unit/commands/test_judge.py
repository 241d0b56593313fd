"""`cuda-rl judge` reads a kernel from whatever file it is given."""

from __future__ import annotations

import io
import sys

import pytest

from coding_framework.commands.one_kernel import read_kernel
from coding_framework.errors import UsageError

pytestmark = pytest.mark.unit


def test_a_kernel_that_is_not_utf8_is_read(tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes(b"// \xff\x00\nint a;")
    assert read_kernel(str(path)) == "// \udcff\x00\nint a;"


def test_a_kernel_is_read_from_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"int a;")))
    assert read_kernel("-") == "int a;"


def test_an_endless_file_is_refused():
    with pytest.raises(UsageError, match="over 16 MiB"):
        read_kernel("/dev/zero")

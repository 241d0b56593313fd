"""CUDA that is written by hand: files that an editor reads. The compiler fills in types and names
(`lower.naive`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def cuda_text(name: str) -> str:
    """The text of a file here, by its name."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")

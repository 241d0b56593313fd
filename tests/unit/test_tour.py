"""docs/tour.md names functions that are there, in as few files as it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([\w/]+\.py):([\w.]+)`")
MOST_FILES = {
    "From `cuda-rl judge` to its verdict": 8,
    "From the RL script to the policy update": 10,
}

pytestmark = pytest.mark.unit


def walks() -> dict[str, list[tuple[str, str]]]:
    """(file, dotted name) of every function that each walk names."""
    sections = re.split(r"^## +(.+)$", (ROOT / "docs/tour.md").read_text(), flags=re.M)[1:]
    return {
        title: NAMED.findall(text)
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }


def place(name: str) -> Path:
    inside = ROOT / "src/coding_framework" / name
    return inside if inside.exists() else ROOT / name


def defines(file: Path, dotted: str) -> bool:
    """Whether a function or class of this name stands in the file; `Class.method` in the class."""
    body = ast.parse(file.read_text()).body
    for name in dotted.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((n for n in body if isinstance(n, kinds) and n.name == name), None)
        if found is None:
            return False
        body = found.body
    return True


def test_the_walks_are_there() -> None:
    assert walks().keys() == MOST_FILES.keys()


@pytest.mark.parametrize("title", MOST_FILES)
def test_every_name_of_a_walk_is_in_its_file(title: str) -> None:
    named = walks()[title]
    missing = [f"{file}:{name}" for file, name in named if not place(file).exists()]
    missing += [f"{f}:{n}" for f, n in named if place(f).exists() and not defines(place(f), n)]
    assert named
    assert missing == []


@pytest.mark.parametrize("title", MOST_FILES)
def test_a_walk_opens_few_files(title: str) -> None:
    assert len({file for file, _ in walks()[title]}) <= MOST_FILES[title]

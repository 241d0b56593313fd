"""Links in the documents lead somewhere: to a file of the repository, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)

pytestmark = pytest.mark.unit


def documents() -> list[str]:
    folders = ("docs", "benchmarks", "experiments", "tests", ".github")
    found = [*ROOT.glob("*.md"), *(path for f in folders for path in (ROOT / f).rglob("*.md"))]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *$", FENCE.sub("", text), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {a if n == 0 else f"{a}-{n}" for a, count in found.items() for n in range(count + 1)}


def broken(document: Path, text: str) -> list[str]:
    wrong = []
    for link in LINK.findall(FENCE.sub("", text)):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists():
            wrong.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target.read_text()):
            wrong.append(f"{link}: no such heading")
    return wrong


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
    assert broken(ROOT / name, (ROOT / name).read_text()) == []


@pytest.mark.parametrize("name", documents())
def test_result_files_that_a_document_names_are_there(name: str) -> None:
    named = set(re.findall(r"`(?:benchmarks/results/)?([\w.]+\.json)`", (ROOT / name).read_text()))
    results = {path.name for path in (ROOT / "benchmarks/results").iterdir()}
    figures = {n for n in named if re.search(r"\.(h200|protocol\d)\.json$", n)}
    assert figures - results == set()


@pytest.mark.parametrize("name", documents())
def test_files_that_a_document_names_are_there(name: str) -> None:
    top = "src/coding_framework|tests|scripts|docs|examples|benchmarks|experiments|configs"
    text = (ROOT / name).read_text()
    named = set(re.findall(rf"(?<![\w/])(?:{top})/[\w/.]*\w", text))
    missing = [path for path in named if "NAME" not in path and not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("name", documents())
def test_modules_that_a_document_names_are_there(name: str) -> None:
    """`cuda/judge.py` and `data/synthesis` are meant from the package on."""
    package = ROOT / "src/coding_framework"
    rooms = "|".join(sorted(path.name for path in package.iterdir() if path.is_dir()))
    named = set(re.findall(rf"`((?:{rooms})/[\w/.]*\w)[`:]", (ROOT / name).read_text()))
    missing = [path for path in named if not (package / path).exists()]
    assert missing == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One name: it's *here*\n")
    text = "[a](page.md#one-name-its-here) [b](page.md#no) [c](gone.md)\n```\n[d](e)\n```\n"
    assert broken(page, text) == ["page.md#no: no such heading", "gone.md: no such file"]

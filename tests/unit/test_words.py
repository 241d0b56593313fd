"""The documents are as short as they promise, and their sentences can be read once.

What can be counted is counted here: words of a document, and of each sentence outside tables and
code its words and its numbers. A test cannot tell whether prose is good: read it aloud.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WORDS = {
    "README.md": 900,
    "docs/RESULTS.md": 1_200,
    "docs/SCALING.md": 900,
    "docs/*.md": 25_000,
    "docs/measurements/*.md": 8_000,
}
"""Of all documents that a pattern has, code and tables included."""
MADE_BY_A_TEST = "docs/documents.md"
"""A table of the users' promises: not a document to read, it counts among all words alone."""
ALL_WORDS = 40_000
"""Of README, guide, specification and docs."""
ROOT_DOCUMENTS = ("README.md", "TRAINING_GUIDE.md", "cuda_rl_system_spec.md", "CONTRIBUTING.md")
SENTENCE_WORDS = 30
SENTENCE_NUMBERS = 2
CHANGE_WORDS = 25
"""Of a line of the changelog."""

_FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
_BLOCK = re.compile(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )")
_END = re.compile(r"(?<=[.?!])[\"*)]*\s+(?=[\"*(]*[A-Z`\d])")
_NUMBER = re.compile(r"(?<![\w.\-#])[+\-]?\d[\d,.]*(?!\w*[a-zA-Z]\d)")
_NAMES = re.compile(
    r"\b(?:CUDA|Python|TRL|verl|Linux|vLLM|PyTorch|KernelBench|H\d+s?|level|tier)[ ]\d[\d.]*"
)

pytestmark = pytest.mark.unit


def documents() -> set[str]:
    found = [*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in ROOT_DOCUMENTS)]
    return {str(path.relative_to(ROOT)) for path in found}


def words(text: str) -> int:
    return sum(bool(re.search(r"\w", token)) for token in text.split())


def sentences(text: str) -> Iterator[str]:
    """Those of paragraphs and lists, with code and links as one word each. A sentence that ends in
    a colon above a table belongs to the table."""
    text = re.sub(r"<!--.*?-->", "", _FENCE.sub("\n\n", text), flags=re.S)
    text = re.sub(r"`[^`]+`", "`code`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = "\n".join("" if re.match(r" *(#|!\[)", line) else line for line in text.splitlines())
    blocks = _BLOCK.split(text)
    for block, below in zip(blocks, [*blocks[1:], ""], strict=True):
        if block.lstrip().startswith("|"):
            continue
        found = _END.split(" ".join(block.split()))
        yield from found[:-1] if below.startswith("|") and found[-1].endswith(":") else found


def hard_to_read(text: str) -> list[str]:
    """Sentences with too many words or numbers."""
    wrong = []
    for sentence in sentences(text):
        numbers = len(_NUMBER.findall(_NAMES.sub("name", sentence)))
        if words(sentence) > SENTENCE_WORDS or numbers > SENTENCE_NUMBERS:
            wrong.append(f"{words(sentence)} words, {numbers} numbers: {sentence}")
    return wrong


@pytest.mark.parametrize(("pattern", "most"), MOST_WORDS.items())
def test_documents_are_as_short_as_they_promise(pattern: str, most: int) -> None:
    read = [path for path in ROOT.glob(pattern) if path != ROOT / MADE_BY_A_TEST]
    assert sum(words(path.read_text()) for path in read) <= most


def test_all_documents_together_are_as_short_as_they_promise() -> None:
    read = documents() - {"CONTRIBUTING.md"}
    assert sum(words((ROOT / name).read_text()) for name in read) <= ALL_WORDS


def test_a_line_of_the_changelog_is_short() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert [x for x in lines if x.startswith("- ") and words(x) > CHANGE_WORDS] == []


@pytest.mark.parametrize("name", sorted(documents()))
def test_a_sentence_has_few_words_and_numbers(name: str) -> None:
    assert hard_to_read((ROOT / name).read_text()) == []


def test_a_long_sentence_and_one_of_three_numbers_are_found() -> None:
    long = " ".join(["word"] * (SENTENCE_WORDS + 1)) + "."
    text = "# 1 2 3\n\nFine: 1 of 2. It is 3%, 4 and 5.5.\n\n"
    text += f"| {long} |\n\n- {long}\n```\n{long}\n```\n"
    assert [line.split(":")[0] for line in hard_to_read(text)] == [
        "6 words, 3 numbers",
        f"{SENTENCE_WORDS + 1} words, 0 numbers",
    ]

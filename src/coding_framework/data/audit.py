"""Does a held-out task occur in training? By its graph of ops, by its values, by its kernels' text.

`audit_split` fails nothing itself: it lists every hit, and for each held-out task its nearest
training task, so that a person can judge how new "held out" is. Not covered: tasks from outside
(KernelBench, the archive), which are compared by name and source only where they are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.catalog import catalog, split_of
from coding_framework.data.synthesis.kernels import kernels
from coding_framework.data.synthesis.program import Program, fingerprint
from coding_framework.types import Record, Split


class Hit(Record):
    """A held-out task that training holds too."""

    held_out: str
    training: str
    by: Literal["graph", "values", "source"]


class Neighbour(Record):
    """The training task whose kernel reads most like a held-out one's."""

    held_out: str
    training: str
    similarity: float
    """Shared share of the naive kernels' pairs of neighbouring statements, constants dropped."""


class AuditReport(Record):
    """Maker: audit_split. Consumer: `cuda-rl data audit`, the tests."""

    training: int
    held_out: int
    hits: tuple[Hit, ...]
    neighbours: tuple[Neighbour, ...]
    """One for each held-out task, the most similar first."""


def audit_split(programs: Sequence[Program] | None = None) -> AuditReport:
    """Compare the two sides of the split, by default of the whole catalogue."""
    chosen = catalog() if programs is None else programs
    train = [p for p in chosen if split_of(p) is Split.TRAIN]
    held_out = [p for p in chosen if split_of(p) is Split.HELD_OUT]
    return AuditReport(
        training=len(train),
        held_out=len(held_out),
        hits=tuple(_hits(train, held_out)),
        neighbours=tuple(sorted(_nearest(train, held_out), key=lambda n: -n.similarity)),
    )


def normalised_source(code: str) -> str:
    """A kernel without layout, comments and constants: equal for kernels that differ in these."""
    code = re.sub(r"//[^\n]*", "", code)
    return re.sub(r"\s+", "", re.sub(r"-?\d+(\.\d+)?f", "C", code))


def _hits(train: Sequence[Program], held_out: Sequence[Program]) -> Iterable[Hit]:
    graphs = {canonical_key(p): p.name for p in train}
    values = {fingerprint(p): p.name for p in train}
    sources = {normalised_source(k.code): p.name for p in train for k in kernels(p)}
    for program in held_out:
        name = program.name
        if (key := canonical_key(program)) in graphs:
            yield Hit(held_out=name, training=graphs[key], by="graph")
        if (value := fingerprint(program)) in values:
            yield Hit(held_out=name, training=values[value], by="values")
        for kernel in kernels(program):
            if (text := normalised_source(kernel.code)) in sources:
                yield Hit(held_out=name, training=sources[text], by="source")


def _nearest(train: Sequence[Program], held_out: Sequence[Program]) -> Iterable[Neighbour]:
    known = [(p.name, _statement_pairs(p)) for p in train]
    for program in held_out:
        own = _statement_pairs(program)
        score, name = max((_jaccard(own, other), name) for name, other in known)
        yield Neighbour(held_out=program.name, training=name, similarity=round(score, 3))


def _statement_pairs(program: Program) -> frozenset[str]:
    lines = [normalised_source(line) for line in kernels(program)[0].code.splitlines()]
    return frozenset(a + b for a, b in pairwise(lines))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)

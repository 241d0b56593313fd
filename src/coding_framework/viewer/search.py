"""What pages ask of an index: conversations that pass a filter, counts, neighbours, sums.

Pages are cut by the sort key of their last row and not by number, so that a page that is asked for
again shows the same rows while conversations are added.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

PAGE = 50
SORTS = {
    "newest": ("id", True),
    "oldest": ("id", False),
    "speedup": ("speedup", True),
    "reward": ("reward", True),
    "turns": ("turns", True),
    "task": ("task", False),
    "step": ("step", False),
}
FACETS = ("status", "tier", "family", "label")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which conversations, in which order: the state of the page's address."""

    q: str = ""
    status: str = ""
    tier: str = ""
    family: str = ""
    label: str = ""
    task: str = ""
    role: str = ""
    cheat: str = ""
    """A rule, or "any"."""
    min_speedup: str = ""
    min_reward: str = ""
    step: str = ""
    turns: str = ""
    group: str = ""
    past: str = ""
    """"1": also those of a step that a later attempt repeated."""
    sort: str = ""

    @property
    def order(self) -> str:
        return self.sort if self.sort in SORTS else "newest"

    @property
    def query(self) -> str:
        """The address's query, without what is empty."""
        return urlencode({name: value for name, value in asdict(self).items() if value})

    def but(self, **changes: str) -> Filter:
        return replace(self, **changes)


def filter_from(given: Mapping[str, str]) -> Filter:
    """Of a query; names that no filter has are left out."""
    names = {field.name for field in fields(Filter)}
    return Filter(**{name: value[:200] for name, value in given.items() if name in names})


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of conversations, and where the next ones begin."""

    rows: Sequence[Row]
    after: str
    """"": there are no more."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the conversations of a run came to."""

    count: int = 0
    judged: int = 0
    correct: int = 0
    compiled: int = 0
    cheats: int = 0
    best: float | None = None
    modelled: bool = False
    last_step: int | None = None


_MOST_LOOKED_AT = 5_000
"""Conversations, for the fastest tasks: a policy may repeat its fastest kernel many times."""


def listed(db: sqlite3.Connection, wanted: Filter, after: str = "", limit: int = PAGE) -> Page:
    """A page of conversations. after: of the page before."""
    column, down = SORTS[wanted.order]
    where, values = _where(wanted, in_order=column == "id")
    place = _place(after)
    if place is not None:
        clause, more = _beyond(column, down, *place)
        where, values = f"{where} AND {clause}", [*values, *more]
    direction = "DESC" if down else "ASC"
    rows = db.execute(
        f"SELECT c.* FROM conversations c WHERE {where} "
        f"ORDER BY c.{column} {direction} NULLS LAST, c.id {direction} LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(rows[:limit], "" if last is None else f"{last[column]}~{last['id']}")


def neighbours(db: sqlite3.Connection, wanted: Filter, row: Row) -> tuple[str, str]:
    """Keys of the conversations before and after one within a filter; "" where there is none."""
    column, down = SORTS[wanted.order]
    where, values = _where(wanted)
    found = []
    for backwards in (True, False):
        descending = down != backwards
        clause, more = _beyond(column, descending, row[column], row["id"])
        direction = "DESC" if descending else "ASC"
        next_row = db.execute(
            f"SELECT c.key FROM conversations c WHERE {where} AND {clause} "
            f"ORDER BY c.{column} {direction}, c.id {direction} LIMIT 1",
            [*values, *more],
        ).fetchone()
        found.append("" if next_row is None else next_row[0])
    return found[0], found[1]


def facets(db: sqlite3.Connection, wanted: Filter) -> dict[str, list[tuple[str, int]]]:
    """For each facet its values with their counts under the filters of the other facets."""
    found: dict[str, list[tuple[str, int]]] = {}
    bare = wanted.but(**dict.fromkeys(FACETS, ""))
    chosen = {name: getattr(wanted, name) for name in FACETS}
    where, values = _where(bare)
    columns = ", ".join(f"c.{name}" for name in FACETS)
    rows = db.execute(
        f"SELECT {columns}, count(*) FROM conversations c WHERE {where} GROUP BY {columns}", values
    ).fetchall()
    for i, name in enumerate(FACETS):
        counts: dict[str, int] = defaultdict(int)
        for row in rows:
            others = zip(FACETS, row, strict=False)
            if all(not chosen[o] or o == name or chosen[o] == str(v) for o, v in others):
                counts["" if row[i] is None else str(row[i])] += row[-1]
        found[name] = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return found


def conversation_at(db: sqlite3.Connection, key: str) -> Row | None:
    """A row with the path of its file."""
    row: Row | None = db.execute(
        "SELECT c.*, f.path FROM conversations c JOIN files f ON f.id = c.file WHERE c.key = ?",
        (key,),
    ).fetchone()
    return row


_SUMS = (
    "sum(count), sum(judged), sum(correct), sum(compiled), sum(cheats), max(best), max(modelled), "
    "max(step)"
)


def totals(db: sqlite3.Connection) -> Totals:
    """What the conversations of a run came to, those of repeated steps left out."""
    return _totals(db.execute(f"SELECT {_SUMS} FROM sums WHERE current = 1").fetchone())


def totals_by_label(db: sqlite3.Connection) -> dict[str, Totals]:
    """Likewise, of each policy and evaluation."""
    rows = db.execute(
        f"SELECT label, {_SUMS} FROM sums WHERE current = 1 GROUP BY label"
    ).fetchall()
    return {row[0]: _totals(row[1:]) for row in rows}


def _totals(row: Sequence[Any]) -> Totals:
    count, judged, correct, compiled, cheats = (value or 0 for value in row[:5])
    return Totals(
        count, judged, correct, compiled, cheats, best=row[5], modelled=bool(row[6]),
        last_step=row[7],
    )  # fmt: skip


def fastest(db: sqlite3.Connection, tasks: int) -> list[Row]:
    """The fastest correct conversation of each task, the fastest tasks first."""
    where, values = _where(Filter(status="correct"))
    found: dict[str, Row] = {}
    for row in db.execute(
        f"SELECT c.* FROM conversations c WHERE {where} AND c.speedup IS NOT NULL "
        "ORDER BY c.speedup DESC, c.id DESC LIMIT ?",
        [*values, _MOST_LOOKED_AT],
    ):
        found.setdefault(row["task"], row)
        if len(found) == tasks:
            break
    return list(found.values())


def by_group(db: sqlite3.Connection, column: str, wanted: Filter) -> list[Row]:
    """A row for each value of a column: count, judged, correct, best speedup, mean reward."""
    assert column in ("task", "label", "grp")
    where, values = _where(wanted)
    return db.execute(
        f"SELECT c.{column} AS name, min(c.task) AS task, count(*) AS count, "
        "sum(c.status != 'masked') AS judged, sum(c.status = 'correct') AS correct, "
        "max(c.speedup) AS best, max(c.modelled) AS modelled, avg(c.reward) AS reward, "
        "max(c.reward) AS highest, min(c.reward) AS lowest, "
        "avg(c.returned * c.returned) - avg(c.returned) * avg(c.returned) AS variance, "
        f"max(c.tier) AS tier FROM conversations c WHERE {where} GROUP BY c.{column}",
        values,
    ).fetchall()


def restarts(db: sqlite3.Connection) -> dict[str, list[int]]:
    """By label, the first step of each start of the trainer but the first."""
    found: dict[str, list[int]] = defaultdict(list)
    rows = db.execute(
        "SELECT label, min(step) FROM files WHERE attempt > 0 AND step IS NOT NULL "
        "GROUP BY label, attempt ORDER BY 2"
    )
    for label, step in rows:
        found[label].append(step)
    return dict(found)


def step_ends(db: sqlite3.Connection) -> list[float]:
    """When the last conversation of each step ended, seconds since 1970, in order."""
    rows = db.execute(
        "SELECT max(ended) FROM conversations WHERE current = 1 AND step IS NOT NULL "
        "AND ended IS NOT NULL GROUP BY label, step ORDER BY 1"
    )
    return [row[0] for row in rows]


def notes(db: sqlite3.Connection) -> dict[str, Any]:
    """How far the index is, its version and the device of the first verdict."""
    return dict(db.execute("SELECT name, value FROM meta").fetchall())


def broken_lines(db: sqlite3.Connection) -> list[Row]:
    """Files with lines that are no conversation."""
    return db.execute("SELECT path, broken, first_broken FROM files WHERE broken > 0").fetchall()


def _where(wanted: Filter, *, in_order: bool = False) -> tuple[str, list[Any]]:
    """in_order: rows are asked for as they were added. Where no column with few rows a value is
    chosen they are read so: by the index of another column all of them would be sorted."""
    clauses, values = ["1"], list[Any]()
    few = wanted.task or wanted.step or wanted.q
    if not wanted.past:
        clauses.append("+c.current = 1" if in_order and not few else "c.current = 1")
    for name, column in (
        ("status", "status"), ("tier", "tier"), ("family", "family"), ("label", "label"),
        ("task", "task"), ("step", "step"), ("turns", "turns"), ("group", "grp"),
    ):  # fmt: skip
        value = getattr(wanted, name)
        if value:
            clauses.append(f"c.{column} = ?")
            values.append(value)
    for name, column in (("min_speedup", "speedup"), ("min_reward", "reward")):
        number = _number(getattr(wanted, name))
        if number is not None:
            clauses.append(f"c.{column} >= ?")
            values.append(number)
    if wanted.role:
        clauses.append("instr(',' || c.roles || ',', ',' || ? || ',') > 0")
        values.append(wanted.role)
    if wanted.cheat == "any":
        clauses.append("c.cheats != ''")
    elif wanted.cheat:
        clauses.append("instr(',' || c.cheats || ',', ',' || ? || ',') > 0")
        values.append(wanted.cheat)
    match = matching(wanted.q)
    if match:
        clauses.append("c.id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(match)
    return " AND ".join(clauses), values


def matching(text: str) -> str:
    """A search as FTS5 takes it: all words, each as the beginning of one. No text is syntax."""
    words = re.findall(r"\w+", text.replace("\0", " "))[:12]
    return " AND ".join(f'"{word}"*' for word in words)


def _beyond(column: str, down: bool, value: Any, row_id: int) -> tuple[str, list[Any]]:
    """What comes after a row in an order; rows without a value come last."""
    sign = "<" if down else ">"
    if column == "id":
        return f"c.id {sign} ?", [row_id]
    if value is None:
        return f"(c.{column} IS NULL AND c.id {sign} ?)", [row_id]
    return (
        f"(c.{column} {sign} ? OR (c.{column} = ? AND c.id {sign} ?) OR c.{column} IS NULL)",
        [value, value, row_id],
    )


def _place(after: str) -> tuple[Any, int] | None:
    value, _, row_id = after.rpartition("~")
    if not (row_id.isascii() and row_id.isdecimal()) or len(row_id) > 18:
        return None
    number = _number(value)
    return (None if value == "None" else number if number is not None else value), int(row_id)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

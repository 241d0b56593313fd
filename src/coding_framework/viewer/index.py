"""The index of one run: where each conversation lies, what it came to, and words to find it by.

One SQLite file a run, in the cache folder. One process writes it (`indexer`); pages read it while
that goes on. It holds nothing that the run's files do not: deleting it costs the time to read them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from coding_framework.types import EMULATOR_OF
from coding_framework.viewer.runs import Source

VERSION = 6
"""Of the tables; an index of another version is made anew."""
NOT_COMPILED = ("masked", "compile_error", "compile_timeout")
BLOCK = 1 << 20
MAX_LINE = 64 << 20
"""A longer line, in bytes, is no conversation: it is counted as broken and passed over."""
_HEAD = 512
"""Bytes of a file's start by which one that was written anew is known."""
_SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value);
CREATE TABLE files(
  id INTEGER PRIMARY KEY, path TEXT UNIQUE, label TEXT, step INTEGER, attempt INTEGER,
  inode INTEGER, head BLOB, offset INTEGER, skipping INTEGER, lines INTEGER, broken INTEGER,
  first_broken INTEGER);
CREATE TABLE conversations(
  id INTEGER PRIMARY KEY, key TEXT UNIQUE, file INTEGER, offset INTEGER, length INTEGER,
  name TEXT, task TEXT, family TEXT, tier INTEGER, label TEXT, step INTEGER, grp TEXT,
  session INTEGER, roles TEXT, turns INTEGER, status TEXT, statuses TEXT, speedup REAL,
  modelled INTEGER, reward REAL, returned REAL, cheats TEXT, masked INTEGER, tokens INTEGER,
  end_reason TEXT, ended REAL, current INTEGER);
CREATE TABLE sums(
  file INTEGER PRIMARY KEY, label TEXT, step INTEGER, current INTEGER, count INTEGER,
  judged INTEGER, correct INTEGER, compiled INTEGER, cheats INTEGER, best REAL, modelled INTEGER);
CREATE INDEX by_facet ON conversations(current, status, tier, family, label);
CREATE INDEX by_speedup ON conversations(current, speedup, id);
CREATE INDEX by_status ON conversations(current, status, speedup, id);
CREATE INDEX by_reward ON conversations(current, reward, id);
CREATE INDEX by_turns ON conversations(current, turns, id);
CREATE INDEX by_task ON conversations(current, task, id);
CREATE INDEX by_step ON conversations(current, step, id);
CREATE INDEX by_file ON conversations(file);
CREATE VIRTUAL TABLE words USING fts5(
  text, content='', columnsize=0, detail=none, tokenize="unicode61 tokenchars '_'");
"""


def index_file(folder: Path, run_id: str) -> Path:
    """Where the index of a run lies."""
    return folder / f"{run_id}.sqlite"


class IndexWriter:
    """Brings the index of one run up to date. Raises sqlite3.Error where the index is broken."""

    def __init__(self, path: Path, *, code: bool = False) -> None:
        """code: kernels can be searched too."""
        self._path, self._code = path, code
        self._db = self._opened()
        self._inode = path.stat().st_ino

    @property
    def is_there(self) -> bool:
        """Whether the file that this writes to is still the one at its path."""
        try:
            return self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        self._db.close()

    def update(self, sources: Sequence[Source]) -> Iterator[bool]:
        """Reads what is new, a block at a time; yields after each that is stored whether it had
        conversations."""
        found = {path: _size_and_inode(path) for path in (str(s.path) for s in sources)}
        total = sum(size for size, _ in found.values())
        known = {
            row[0]: row[1:] for row in self._db.execute("SELECT path, offset, inode, id FROM files")
        }
        for path, (*_, file) in known.items():
            if path not in found:
                self._forget(file)
        for source in sources:
            path = str(source.path)
            if known.get(path, ())[:2] == found[path]:
                continue
            for changed in self._read(source):
                self._note(total, changed)
                yield changed
        self._note(total, False)
        yield False

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")
        if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            db.close()
            remove_index(self._path)
            db = sqlite3.connect(self._path, isolation_level=None)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=OFF")
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
        return db

    def _note(self, total: int, changed: bool) -> None:
        done = self._db.execute("SELECT sum(offset) FROM files").fetchone()[0] or 0
        rows = self._db.execute("SELECT name, value FROM meta WHERE name != 'device'").fetchall()
        was = dict(rows)
        now = {"done": done, "total": total, "version": was.get("version", 0) + changed}
        if now != was:
            self._db.executemany("REPLACE INTO meta VALUES (?, ?)", now.items())

    def _forget(self, file: int) -> None:
        self._db.execute("DELETE FROM conversations WHERE file = ?", (file,))
        self._db.execute("DELETE FROM sums WHERE file = ?", (file,))
        self._db.execute("DELETE FROM files WHERE id = ?", (file,))

    def _read(self, source: Source) -> Iterator[bool]:
        """Yields, for each block that was stored, whether it had conversations."""
        try:
            file = os.open(source.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            row = self._file_row(source, file)
            size = os.fstat(file).st_size
            if source.path.suffix == ".json":  # `solve` leaves one conversation, not lines
                yield self._store(source, row, [os.pread(file, min(size, MAX_LINE), 0)])
                return
            rest, position = bytearray(), row["offset"]
            while position < size and (block := os.pread(file, BLOCK, position)):
                position += len(block)
                end = block.rfind(b"\n") + 1
                rest += block[:end] if end else block
                if end:
                    yield self._store(source, row, rest[:-1].split(b"\n"))
                    rest = bytearray(block[end:])
                elif row["skipping"] or len(rest) > MAX_LINE:
                    first = not row["skipping"]
                    row["skipping"], row["offset"], rest = 1, position, bytearray()
                    if first or position >= size:
                        yield self._store(source, row, [])
        finally:
            os.close(file)

    def _file_row(self, source: Source, file: int) -> dict[str, Any]:
        told = os.fstat(file)
        columns = "id, inode, head, offset, skipping, lines, broken, first_broken"
        found = self._db.execute(
            f"SELECT {columns} FROM files WHERE path = ?", (str(source.path),)
        ).fetchone()
        if found is not None:
            row = dict(zip(columns.split(", "), found, strict=True))
            same = row["head"] == os.pread(file, len(row["head"]), 0)
            single = source.path.suffix == ".json" and told.st_size != row["offset"]
            if (
                row["inode"] == told.st_ino
                and told.st_size >= row["offset"]
                and same
                and not single
            ):
                return row
            self._forget(row["id"])
        made = self._db.execute(
            "INSERT INTO files VALUES (NULL, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, NULL)",
            (str(source.path), source.label, source.step, source.attempt, told.st_ino, b""),
        )
        if source.step is not None:
            for table in ("conversations", "sums"):
                self._db.execute(
                    f"UPDATE {table} SET current = 0 WHERE file IN (SELECT id FROM files "
                    "WHERE label = ? AND step = ? AND attempt < ?)",
                    (source.label, source.step, source.attempt),
                )
        head = os.pread(file, _HEAD, 0)
        fresh = {"offset": 0, "skipping": 0, "lines": 0, "broken": 0, "first_broken": None}
        return {"id": made.lastrowid, "inode": told.st_ino, "head": head, **fresh}

    def _store(
        self, source: Source, row: dict[str, Any], lines: Sequence[bytes | bytearray]
    ) -> bool:
        rows = []
        for line in lines:
            row["lines"] += 1
            start, row["offset"] = row["offset"], row["offset"] + len(line) + 1
            if source.path.suffix == ".json":
                row["offset"] -= 1
            found = None if row["skipping"] else parsed(line)
            if found is not None:
                rows.append((start, len(line), found))
            elif line.strip() or row["skipping"]:
                row["broken"] += 1
                row["first_broken"] = row["first_broken"] or row["lines"]
            row["skipping"] = 0
        self._db.execute("BEGIN")
        try:
            current = 0 if self._is_repeated(source) else 1
            told = [
                {
                    **summary_row(found, source),
                    "file": row["id"], "offset": start, "length": length, "current": current,
                }
                for start, length, found in rows
            ]  # fmt: skip
            again = self._known_keys(told)
            last = self._db.execute("SELECT coalesce(max(id), 0) FROM conversations").fetchone()[0]
            for columns, (*_, found) in zip(told, rows, strict=True):
                self._insert(columns, searchable(found, code=self._code))
            self._add_up(row["id"], last)
            for file in again:  # where a conversation was written twice
                self._db.execute("DELETE FROM sums WHERE file = ?", (file,))
                self._add_up(file)
            if rows and not self._db.execute("SELECT 1 FROM meta WHERE name='device'").fetchone():
                device = next((d for *_, found in rows if (d := _device(found))), None)
                if device is not None:
                    self._db.execute("INSERT INTO meta VALUES ('device', ?)", (device,))
            self._db.execute(
                "UPDATE files SET inode=?, head=?, offset=?, skipping=?, lines=?, broken=?, "
                "first_broken=? WHERE id=?",
                (row["inode"], row["head"], row["offset"], row["skipping"], row["lines"],
                 row["broken"], row["first_broken"], row["id"]),
            )  # fmt: skip
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return bool(rows)

    def _is_repeated(self, source: Source) -> bool:
        """Whether a later attempt has written the same step."""
        return source.step is not None and bool(
            self._db.execute(
                "SELECT 1 FROM files WHERE label = ? AND step = ? AND attempt > ?",
                (source.label, source.step, source.attempt),
            ).fetchone()
        )

    def _insert(self, row: Mapping[str, Any], words: str) -> None:
        made = self._db.execute(
            f"REPLACE INTO conversations ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            list(row.values()),
        )
        self._db.execute("INSERT INTO words(rowid, text) VALUES (?, ?)", (made.lastrowid, words))

    def _known_keys(self, rows: Sequence[Mapping[str, Any]]) -> set[int]:
        """The files of conversations that these rows will replace, or that are twice among them."""
        keys = [row["key"] for row in rows]
        found = {rows[0]["file"]} if len(set(keys)) < len(keys) else set[int]()
        for key in keys:
            known = self._db.execute("SELECT file FROM conversations WHERE key = ?", (key,))
            found |= {file for (file,) in known}
        return found

    def _add_up(self, file: int, after: int = 0) -> None:
        """Sums of a file's conversations: the overview of 100,000 must not read each of them.
        after: the id of the last one that is counted."""
        self._db.execute(
            "INSERT INTO sums SELECT file, label, max(step), current, count(*), "
            "sum(status != 'masked'), sum(status = 'correct'), "
            f"sum(status NOT IN {NOT_COMPILED}), sum(cheats != ''), max(speedup), "
            "max(coalesce(modelled, 0)) FROM conversations WHERE file = ? AND id > ? "
            "GROUP BY file ON CONFLICT(file) DO UPDATE "
            "SET step = max(coalesce(step, excluded.step), coalesce(excluded.step, step)), "
            "count = count + excluded.count, judged = judged + excluded.judged, "
            "correct = correct + excluded.correct, compiled = compiled + excluded.compiled, "
            "cheats = cheats + excluded.cheats, "
            "best = max(coalesce(best, excluded.best), coalesce(excluded.best, best)), "
            "modelled = max(modelled, excluded.modelled)",
            (file, after),
        )


def remove_index(path: Path) -> None:
    """Delete an index, with what SQLite keeps beside it."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def parsed(line: bytes | bytearray) -> dict[str, Any] | None:
    """The conversation of a line, a rollout as one with its fields beside it; None: it is none."""
    try:
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            found = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    state = found.get("state", found) if isinstance(found, dict) else None
    whole = (
        isinstance(state, dict)
        and isinstance(state.get("turns"), list)
        and isinstance(state.get("task"), dict)
    )
    return found if whole else None


def state_in(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The conversation in a parsed line."""
    state: Mapping[str, Any] = found.get("state", found)
    return state


def summary_row(found: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The columns of a conversation that are read from its line."""
    state = state_in(found)
    task, turns = state["task"], [t for t in state["turns"] if isinstance(t, dict)]
    verdicts = [turn_status(t) for t in turns]
    judged = [s for s in verdicts if s != "masked"]
    solved = "correct" in judged
    status = "correct" if solved else judged[-1] if judged else "masked"
    speeds = [(s, m) for s, m in map(speedup_of, turns) if s is not None]
    best = max(speeds, default=(None, None))
    rewards = [r for r in map(reward_of, turns) if r is not None]
    returns = [r for r in found.get("returns") or () if isinstance(r, int | float)]
    name = _text(state.get("conversation_id", ""))
    identity = f"{source.path}\0{found.get('group', '')}\0{found.get('session', '')}\0{name}"
    return {
        "key": hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:12],
        "name": name,
        "task": _text(task.get("name", "")),
        "family": _text(task.get("family", "")),
        "tier": _integer(task.get("tier")),
        "label": source.label,
        "step": source.step if source.step is not None else _integer(found.get("step")),
        "grp": _text(found.get("group", "")),
        "session": _integer(found.get("session")),
        "roles": ",".join(dict.fromkeys(_text(t.get("role", "")) for t in turns)),
        "turns": len(turns),
        "status": status,
        "statuses": ",".join(verdicts),
        "speedup": best[0],
        "modelled": best[1],
        "reward": max(rewards, default=None),
        "returned": returns[0] if returns else None,
        "cheats": ",".join(dict.fromkeys(_text(c.get("rule", "")) for c in _cheats(turns))),
        "masked": len(verdicts) - len(judged),
        "tokens": sum(map(turn_tokens, turns)),
        "end_reason": _text(state.get("end_reason") or ""),
        "ended": _moment(found.get("ended_at")),
    }


def turn_tokens(turn: Mapping[str, Any]) -> int:
    """Of the answer: its ids, or what a server counted."""
    generation = part_of(turn, "generation")
    return len(generation.get("response_ids") or ()) or _integer(generation.get("counted")) or 0


def turn_status(turn: Mapping[str, Any]) -> str:
    """The verdict's word, or "masked"."""
    if turn.get("masked") is not None or not turn.get("verdict"):
        return "masked"
    return _text(part_of(turn, "verdict").get("status", "unknown"))


def speedup_of(turn: Mapping[str, Any]) -> tuple[float | None, bool]:
    """(speedup, whether it is modelled) of a turn, as `Verdict.speedup`."""
    timing = part_of(part_of(turn, "verdict"), "timing")
    value = timing.get("speedup")
    if value is None:
        value = timing.get("speedup_vs_naive")
    return _number(value), bool(timing.get("modelled"))


def reward_of(turn: Mapping[str, Any]) -> float | None:
    """The total of a turn's reward."""
    parts = part_of(turn, "reward").get("parts")
    if not isinstance(parts, list):
        return None
    return sum(_number(p.get("value")) or 0.0 for p in parts if isinstance(p, dict))


def searchable(found: Mapping[str, Any], *, code: bool) -> str:
    """What a conversation can be found by: task, reasons, compiler messages, findings."""
    state = state_in(found)
    task = state["task"]
    words = [task.get("name"), task.get("description"), state.get("conversation_id")]
    for turn in state["turns"]:
        if not isinstance(turn, dict):
            continue
        verdict = part_of(turn, "verdict")
        words += [turn.get("masked"), verdict.get("reason")]
        for message in part_of(verdict, "compile").get("errors") or ():
            words.append(message.get("message") if isinstance(message, dict) else None)
        safety = part_of(verdict, "safety").get("findings")
        for findings in (safety, verdict.get("pitfalls"), verdict.get("cheats")):
            for finding in findings or ():
                if isinstance(finding, dict):
                    words += [finding.get("rule"), finding.get("message")]
        if code:
            words.append(part_of(turn, "extraction").get("code"))
    once = dict.fromkeys(str(w)[:20_000] for w in words if w)
    return _text(" ".join(once))


def read_line(path: str, offset: int, length: int) -> dict[str, Any] | None:
    """The conversation at a place of a file; None where it is not there any more."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parsed(os.pread(file, length, offset))
    finally:
        os.close(file)


def connect(path: Path) -> closing[sqlite3.Connection]:
    """The index, to read. Raises sqlite3.OperationalError where there is none yet."""
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2)
    db.row_factory = sqlite3.Row
    return closing(db)


def part_of(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A record within a record; an empty one where there is none."""
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _cheats(turns: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for turn in turns:
        for cheat in part_of(turn, "verdict").get("cheats") or ():
            if isinstance(cheat, dict):
                yield cheat


def _device(found: Mapping[str, Any]) -> str:
    for turn in state_in(found)["turns"]:
        if isinstance(turn, dict):
            verdict = part_of(turn, "verdict")
            device = part_of(verdict, "receipt").get("device")
            if device and verdict.get("backend") == "emulator":
                gpu = str(device).removeprefix(EMULATOR_OF)
                return _text(f"the emulator, times modelled for {gpu}")
            if device:
                return _text(device)
    return ""


def _text(value: object) -> str:
    """Text that SQLite and a response can hold: a lone surrogate is neither UTF-8."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _moment(text: object) -> float | None:
    """Seconds since 1970 of a time in ISO 8601."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**62 else None


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known else None  # type: ignore[arg-type]


def _size_and_inode(path: str) -> tuple[int, int]:
    try:
        told = os.stat(path)
    except OSError:
        return 0, -1
    return told.st_size, told.st_ino

"""The modules that people use in parts: their parts as a suite, and the kernels of it joined.

    in_parts.py cut WORK MODULES ...     WORK/parts: a task for each part of the modules of folders;
                                         WORK/alone: for each operation of them that is no part
    in_parts.py again WORK EVALUATION    WORK/again: the operations of parts that this evaluation of
                                         WORK/parts did not solve
    in_parts.py join WORK EVALUATION ... WORK/joined: a kernel for each module whose parts these
                                         evaluations solved, for `cuda-rl eval --answers`
Between them `cuda-rl eval MODEL --suite WORK/parts ...`, and of WORK/again where that has tasks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_framework.data.kernelbench.problems import load_problem_file
from coding_framework.data.parts.calls import PartsError, Trace, traced
from coding_framework.data.parts.finer import finer
from coding_framework.data.parts.join import is_piece, joined, require_joinable
from coding_framework.data.parts.pieces import Part, parted
from coding_framework.errors import UsageError
from coding_framework.orchestration.in_parts import best_of
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines


def cut(work: Path, folders: Sequence[Path]) -> dict[str, Any]:
    """Writes a task for each part; how many there are, and why modules have none."""
    without: dict[str, str] = {}
    parts, alone = {}, {}
    modules = [str(file.resolve()) for folder in folders for file in sorted(folder.glob("*.py"))]
    for file in modules:
        try:
            trace = traced(load_problem_file(Path(file)))
            found = parted(trace)
            require_joinable(trace, found)
        except UsageError as e:
            without[file] = str(e)
            continue
        parts |= {part.key: part for part in found}
        alone |= {part.key: part for part in finer(trace, found)}
    _write(work / "parts", parts)
    _write(work / "alone", {key: part for key, part in alone.items() if key not in parts})
    write_json_atomic(work / "cut.json", {"modules": modules, "without": without})
    return {"modules": len(modules), "without": len(without), "parts": len(parts)}


def again(work: Path, evaluation: Path) -> dict[str, Any]:
    """Writes a task for each operation of the parts that are not solved."""
    solved = kernels_of(evaluation)
    parts = {
        part.key: part
        for _, trace in _traces(work)
        for part in _finer(trace, solved)
        if part.key not in solved and not (work / "parts" / f"{part.key}.json").exists()
    }
    _write(work / "again", parts)
    return {"parts": len(parts)}


def asked_before(work: Path, evaluation: Path) -> int:
    """Writes WORK/again.jsonl, the answers to WORK/again that an evaluation of WORK/alone has asked
    for; how many."""
    wanted = {file.stem for file in (work / "again").glob("*.json")}
    asked: dict[str, list[str]] = {}
    for told in parsed_lines(EvalFolder(evaluation).answers, json.loads):
        task = told["key"].split()[1].rpartition("/")[0]
        if task in wanted:
            asked.setdefault(task, []).append(told["answer"]["generation"]["text"])
    lines = [
        json.dumps({"task": task, "sample": at, "answer": text})
        for task, texts in asked.items()
        for at, text in enumerate(texts)
    ]
    write_atomic(work / "again.jsonl", "".join(f"{line}\n" for line in lines))
    return len(lines)


def join(work: Path, evaluations: Sequence[Path]) -> dict[str, Any]:
    """Writes the kernels of the modules all of whose parts are solved."""
    first, *others = map(kernels_of, evaluations)
    solved = {key: code for found in (first, *others) for key, code in found.items()}
    lines, left = [], {}
    for file, trace in _traces(work):
        parts = _finer(trace, first)
        missing = [p.task.description for p in parts if p.key not in solved]
        if missing:
            left[file.stem] = missing
            continue
        code = joined(trace, parts, [solved[p.key] for p in parts])
        write_atomic(work / "joined" / file.parent.name / f"{file.stem}.cu", code)
        lines.append(file.stem)
    write_json_atomic(work / "join.json", {"joined": lines, "unsolved": left})
    return {"joined": len(lines), "unsolved": len(left)}


def kernels_of(evaluation: Path) -> dict[str, str]:
    """The fastest right kernel of each part."""
    best: dict[str, tuple[float, str]] = {}
    for state in read_conversations(EvalFolder(evaluation).conversations):
        turn = best_of(state, is_piece)
        if turn is not None and turn.code is not None and turn.verdict is not None:
            found = turn.verdict.speedup or 0.0, turn.code
            best[state.task.name] = max(best.get(state.task.name, found), found)
    return {key: code for key, (_, code) in best.items()}


def _finer(trace: Trace, solved: Mapping[str, str]) -> list[Part]:
    """The parts, those that are not solved in smaller ones."""
    parts = parted(trace)
    failed = [part for part in parts if part.key not in solved]
    return finer(trace, failed) if failed else parts


def _traces(work: Path) -> Iterator[tuple[Path, Trace]]:
    told = json.loads((work / "cut.json").read_text())
    for file in map(Path, told["modules"]):
        if str(file) not in told["without"]:
            yield file, traced(load_problem_file(file))


def _write(folder: Path, parts: Mapping[str, Part]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for key, part in parts.items():
        named = part.task.model_copy(update={"name": key})
        write_atomic(folder / f"{key}.json", named.model_dump_json())


def main(words: Sequence[str]) -> int:
    """The exit status."""
    what, work, *others = words
    folders = [Path(one) for one in others]
    done = {
        "cut": lambda: cut(Path(work), folders),
        "again": lambda: again(Path(work), folders[0]),
        "join": lambda: join(Path(work), folders),
    }[what]()
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except PartsError as e:
        raise SystemExit(f"error: {e}") from e

"""The page of one conversation: its turns, and of the chosen turn one of eight views.

Conversations of older and newer versions are shown too: what is read here is looked up leniently,
and what this version does not know stands in the raw view.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from coding_framework.explanation.diagnosis import BASELINES, Diagnosis, diagnose, time_texts
from coding_framework.monitoring.text import one_line, visible
from coding_framework.training.reward_functions.cuda_performance_reward import rescored
from coding_framework.training.reward_functions.presets import PRESETS
from coding_framework.types import BenchmarkResult, CUDAConversationState, Verdict
from coding_framework.viewer import code, figures
from coding_framework.viewer.index import (
    part_of,
    reward_of,
    speedup_of,
    state_in,
    turn_status,
    turn_tokens,
)
from coding_framework.viewer.library import Library, NotThereError
from coding_framework.viewer.pages import Query, head_of
from coding_framework.viewer.search import filter_from

VIEWS = ("diff", "code", "prompt", "compiler", "tests", "profile", "reward", "raw")
MAX_RAW = 200_000
MEANINGS = {
    "dram__bytes.sum": "bytes between DRAM and L2",
    "dram__bytes_read.sum": "bytes read from DRAM",
    "dram__bytes_write.sum": "bytes written to DRAM",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy that was reached, per cent",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "threads that work in a warp, of 32",
    "smsp__inst_executed.sum": "instructions of warps",
    "sm__cycles_elapsed.max": "cycles of the longest multiprocessor",
    "launch__registers_per_thread": "registers of a thread",
    "launch__occupancy_limit_registers": "blocks an SM that registers allow",
}
_PATTERNS = (
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld", "32-byte sectors of loads from global memory"),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_st", "32-byte sectors of stores to global memory"),
    ("l1tex__t_requests_pipe_lsu_mem_global_op_ld", "loads of warps from global memory"),
    ("l1tex__t_requests_pipe_lsu_mem_global_op_st", "stores of warps to global memory"),
    ("l1tex__data_bank_conflicts", "turns of shared memory lost to bank conflicts"),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared", "turns of shared memory"),
    ("smsp__sass_data_bytes_mem_global", "bytes that threads asked global memory for"),
    ("smsp__inst_executed_op_shared", "accesses of warps to shared memory"),
    ("smsp__sass_average_branch_targets", "branches on which a warp stays together"),
    ("memory_l1_wavefronts_shared", "turns of shared memory, by addresses"),
)


def conversation_page(library: Library, query: Query, run_id: str, key: str) -> dict[str, Any]:
    """A conversation. In the query: turn (from 1), view, against (a turn), mode (side or unified),
    preset (of the reward), and the filter within which previous and next are."""
    head = head_of(library, run_id)
    row, found = library.conversation(head["run"], key)
    state = state_in(found)
    turns = [turn for turn in state["turns"] if isinstance(turn, dict)]
    wanted = filter_from(query)
    before, after = library.neighbours(head["run"], wanted, key)
    chosen = _chosen(query.get("turn", ""), turns)
    view = query.get("view", "")
    turn = turns[chosen] if turns else None
    if view not in VIEWS:
        view = "diff" if chosen > 0 and _code(turns[chosen - 1]) else "code"
    return {
        **head, "row": row, "state": state, "task": state["task"], "filter": wanted,
        "before": before, "after": after, "turn": turn, "chosen": chosen, "view": view,
        "views": VIEWS, "turns": [_turn_row(t) for t in turns], "others": _others(found),
        "cheats": [] if turn is None else _findings(turn, "cheats"),
        "diagnosis": None if turn is None else _diagnosis(turn),
        "reference": code.code_lines(str(state["task"].get("reference") or "")),
        "content": {} if turn is None else _content(view, query, state, turns, chosen, found),
        "mode": "side" if query.get("mode") == "side" else "unified",
    }  # fmt: skip


def _diagnosis(turn: Mapping[str, Any]) -> Diagnosis | None:
    """Why the verdict is as it is and what to try; None where it is of another version."""
    try:
        return diagnose(Verdict.model_validate_json(json.dumps(turn.get("verdict"))))
    except (ValidationError, KeyError):
        return None


def _content(
    view: str,
    query: Query,
    state: Mapping[str, Any],
    turns: Sequence[Mapping[str, Any]],
    chosen: int,
    found: Mapping[str, Any],
) -> dict[str, Any]:
    turn = turns[chosen]
    if view == "diff":
        return _diff(query, turns, chosen)
    if view == "code":
        return {**_shown(turn), "lines": code.code_lines(_shown_text(turn), _notes(turn))}
    if view == "prompt":
        return {
            "messages": turn.get("prompt") or [],
            "answer": visible(str(part_of(turn, "generation").get("text") or ""))[: code.MAX_CHARS],
            "finish": part_of(turn, "generation").get("finish_reason", ""),
            "tokens": turn_tokens(turn),
            "note": part_of(turn, "extraction").get("note", ""),
        }
    if view == "compiler":
        return _compiler(turn)
    if view == "tests":
        return {
            "tests": part_of(turn, "verdict").get("tests") or [],
            "probes": turn.get("probes") or [],
        }
    if view == "profile":
        return _profile(turns, chosen)
    if view == "reward":
        return _reward(query.get("preset", ""), state, turn, chosen, found)
    text = json.dumps({**turn, "generation": _short(turn)}, indent=2, ensure_ascii=False)
    return {
        "receipt": part_of(part_of(turn, "verdict"), "receipt"),
        "raw": visible(text[:MAX_RAW]), "cut": len(text) > MAX_RAW,
        "sha": part_of(turn, "verdict").get("candidate_sha256", ""),
    }  # fmt: skip


def _diff(query: Query, turns: Sequence[Mapping[str, Any]], chosen: int) -> dict[str, Any]:
    against = query.get("against", "")
    other = int(against) - 1 if against.isdecimal() and len(against) < 6 else chosen - 1
    if not (0 <= other < len(turns)) or other == chosen:
        earlier = [i for i in range(len(turns)) if i != chosen and _code(turns[i])]
        other = earlier[0] if earlier and chosen > 0 else -1
    if other < 0:
        return {"against": None, "lines": code.code_lines(_shown_text(turns[chosen])), "pairs": []}
    old, new = _shown_text(turns[other]), _shown_text(turns[chosen])
    old, new = old[: code.MAX_CHARS], new[: code.MAX_CHARS]
    if query.get("mode") == "side":
        return {
            "against": other,
            "pairs": code.side_by_side(old, new),
            "lines": [],
            "same": old == new,
        }
    return {"against": other, "lines": code.unified(old, new), "pairs": [], "same": old == new}


def _shown(turn: Mapping[str, Any]) -> dict[str, Any]:
    text = _shown_text(turn)
    return {"no_kernel": not _code(turn), "cut": len(text) > code.MAX_CHARS,
            "note": part_of(turn, "extraction").get("note", "")}  # fmt: skip


def _compiler(turn: Mapping[str, Any]) -> dict[str, Any]:
    told = part_of(turn, "verdict").get("compile")
    notes: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for error in _dicts(part_of({"c": told}, "c").get("errors")):
        if isinstance(error.get("line"), int):
            message = (str(error.get("severity")), visible(str(error.get("message"))))
            notes[error["line"]].append(message)
    lines = code.code_lines(_shown_text(turn), notes)
    near = {k for line in notes for k in range(line - 4, line + 5)}
    return {
        "told": told, "errors": _dicts(part_of({"c": told}, "c").get("errors")),
        "lines": [line for line in lines if line.number in near],
    }  # fmt: skip


def _profile(turns: Sequence[Mapping[str, Any]], chosen: int) -> dict[str, Any]:
    verdict = part_of(turns[chosen], "verdict")
    timing = part_of(verdict, "timing")
    counters = part_of(verdict, "counters")
    modelled = bool(timing.get("modelled"))
    low, high = (None, None) if modelled else timing.get("kernel_ms_ci95") or (None, None)
    names = {"kernel_ms": "this kernel"} | {f"{k}_ms": name for k, name in BASELINES.items()}
    rows = [
        figures.Timed(name, float(timing[key]), *((low, high) if main else (None, None)), main)
        for key, name in names.items()
        for main in (key == "kernel_ms",)
        if isinstance(timing.get(key), int | float)
    ]
    return {
        "timing": timing,
        "told": _time_texts(timing),
        "modelled": modelled,
        "times": figures.times(rows, modelled=modelled) if rows else None,
        "roofline": _roofline(turns, chosen),
        "counters": [(name, value, _meaning(name)) for name, value in sorted(counters.items())],
        "device": part_of(verdict, "receipt").get("device", ""),
    }


def _time_texts(timing: Mapping[str, Any]) -> list[str]:
    """The command line's words; none where the record is of another version."""
    try:
        return time_texts(BenchmarkResult.model_validate_json(json.dumps(timing)))
    except ValidationError:
        return []


def _roofline(turns: Sequence[Mapping[str, Any]], chosen: int) -> Any:
    """The turns up to the chosen one that were timed; None where a figure is missing."""
    roofs = _roofs(str(part_of(part_of(turns[chosen], "verdict"), "receipt").get("device", "")))
    if roofs is None:
        return None
    points = []
    for i, turn in enumerate(turns[: chosen + 1]):
        timing = part_of(part_of(turn, "verdict"), "timing")
        flops, moved, ms = (timing.get(k) for k in ("flops", "bytes_moved", "kernel_ms"))
        if flops and moved and ms:
            gflops = flops / (ms * 1e6)
            points.append(figures.Placed(f"turn {i + 1}", flops / moved, gflops, i == chosen))
    return figures.roofline(points, *roofs) if points else None


def _roofs(device: str) -> tuple[float, float] | None:
    """(GB/s of DRAM, Gop/s of float32) of a device that our table knows."""
    from importlib import resources

    file = resources.files("coding_framework").joinpath("cuda/emulator/gpus.yaml")
    known: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    facts = next((f for name, f in known.items() if name.lower() in device.lower()), None)
    if facts is None:
        return None
    peak = facts["multiprocessors"] * facts["lanes"]["fp32"] * 2 * facts["clock_ghz"]
    return float(facts["dram_gbps"]), float(peak)


def _reward(
    preset: str,
    state: Mapping[str, Any],
    turn: Mapping[str, Any],
    chosen: int,
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """The reward as it was paid, or by another preset."""
    reward, fault = turn.get("reward"), ""
    if preset in PRESETS:
        try:
            parsed = CUDAConversationState.model_validate_json(json.dumps(state))
            again = rescored(parsed, preset).turns[chosen].reward
            reward = None if again is None else again.model_dump(mode="json")
        except (ValidationError, ValueError) as e:
            fault = one_line(f"this conversation is of another version: {e}", 200)
    parts = _dicts(part_of({"r": reward}, "r").get("parts"))
    steps = [figures.Step(str(p.get("name")), float(p["value"]), _limit(p)) for p in parts]
    returns = found.get("returns") or ()
    return {
        "parts": parts, "figure": figures.waterfall(steps) if steps else None, "fault": fault,
        "preset": preset if preset in PRESETS else part_of({"r": reward}, "r").get("preset", ""),
        "paid": part_of(turn, "reward").get("preset", ""), "presets": list(PRESETS),
        "returned": returns[chosen] if chosen < len(returns) else None,
        "masked": turn.get("masked"),
    }  # fmt: skip


def _limit(part: Mapping[str, Any]) -> float | None:
    limit = part.get("limit")
    return float(limit) if isinstance(limit, int | float) else None


def _turn_row(turn: Mapping[str, Any]) -> dict[str, Any]:
    speedup, modelled = speedup_of(turn)
    verdict = part_of(turn, "verdict")
    return {
        "role": turn.get("role", ""), "status": turn_status(turn), "speedup": speedup,
        "modelled": modelled, "reward": reward_of(turn),
        "reason": turn.get("masked") or verdict.get("reason") or "",
        "alternatives": len(turn.get("alternatives") or ()), "notes": turn.get("notes") or [],
    }  # fmt: skip


def _notes(turn: Mapping[str, Any]) -> dict[int, list[tuple[str, str]]]:
    """What was said about single lines: compiler, findings, pitfalls, cheats."""
    notes: dict[int, list[tuple[str, str]]] = defaultdict(list)
    verdict = part_of(turn, "verdict")
    told = [(e.get("severity"), e) for e in _dicts(part_of(verdict, "compile").get("errors"))]
    told += [("cheat", c) for c in _findings(turn, "cheats")]
    told += [(f.get("severity"), f) for f in _dicts(part_of(verdict, "safety").get("findings"))]
    told += [(f.get("severity"), f) for f in _findings(turn, "pitfalls")]
    for severity, finding in told:
        if isinstance(finding.get("line"), int):
            notes[finding["line"]].append((str(severity), visible(str(finding.get("message")))))
    return notes


def _findings(turn: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return _dicts(part_of(turn, "verdict").get(name))


def _meaning(name: str) -> str:
    known = MEANINGS.get(name)
    return known or next((said for start, said in _PATTERNS if name.startswith(start)), "")


def _short(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A generation whose token ids and log-probs are counted instead of listed."""
    generation = dict(part_of(turn, "generation"))
    for name in ("prompt_ids", "response_ids", "logprobs"):
        if generation.get(name):
            generation[name] = f"({len(generation[name])} numbers)"
    return generation


def _others(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a rollout says besides its conversation."""
    if "state" not in found:
        return []
    shown = {k: v for k, v in found.items() if k in ("session", "fault") and v is not None}
    return [(name, one_line(str(value), 80)) for name, value in shown.items()]


def _chosen(asked: str, turns: Sequence[Mapping[str, Any]]) -> int:
    """The turn that was asked for; else the best correct one, else the last."""
    if asked.isdecimal() and len(asked) < 6 and 1 <= int(asked) <= len(turns):
        return int(asked) - 1
    if asked:
        raise NotThereError(f"the conversation has {len(turns)} turns")
    correct = [i for i, t in enumerate(turns) if turn_status(t) == "correct"]
    best = max(correct, key=lambda i: speedup_of(turns[i])[0] or 0.0, default=len(turns) - 1)
    return max(0, best)


def _code(turn: Mapping[str, Any]) -> str:
    return str(part_of(turn, "extraction").get("code") or "")


def _shown_text(turn: Mapping[str, Any]) -> str:
    return _code(turn) or str(part_of(turn, "generation").get("text") or "")


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []

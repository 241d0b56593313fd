"""What the rows of emulator_vs_gpu.py come to: bars, the fit of the time model, where it fails."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import time_model_fit as fit
from bench_io import RESULTS, bar, collect, head
from gpu_bench import Row, short_name, write_report
from scipy.stats import spearmanr

from coding_framework.cuda.emulator import timing_model
from coding_framework.paths import write_atomic
from coding_framework.store.lines import read_lines

NAME = "emulator_vs_gpu"
SECTORS = {
    "global load sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global store sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
}
CONFLICTS = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
)
TAKEN, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"
"""Of ncu's source counters, which go by the addresses of each access."""
REQUESTS = ("smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_shared_st.sum")
EXECUTED = "smsp__inst_executed.sum"
DURATION = "gpu__time_duration.sum"
METRICS = (*(name for names in SECTORS.values() for name in names), *CONFLICTS, TAKEN, IDEAL,
           EXECUTED, DURATION, "dram__bytes.sum", "lts__t_sectors_op_read.sum",
           "lts__t_sectors_op_write.sum")  # fmt: skip
READ = re.compile(
    r"launch__(block_size|registers_per_thread|shared_mem_per_block)|emulator__|lts__"
    r"|dram__bytes(_read)?\.|l1tex__(t_|data_)|smsp__inst_executed(_op_(barrier|shared)|_pipe_xu|\.)"
    r"|.*data_bytes_mem_global_op_st|.*_op_(bit|fp|integer|inter_)[a-z0-9_]*pred_on"
)
"""The emulator's counters that the time model and this report read; the others are not kept."""
SHORT_US = 20.0
_FEW = 32
"""Below so many events a relative error says nothing."""
_A_PATTERN = 0.25
"""Conflicts for a request from which its access pattern has some: without one, hardware counted up
to about 0.12 (see `conflicts`)."""
STRUCTURE = (
    "The figures of the time model were fitted to the rows named as fitted; its terms were changed "
    "after rows of both halves had been seen. Kernels of another session are the independent test."
)


# --- rows -----------------------------------------------------------------------------------------


def keep_rows(session: Row, rows: Sequence[Row]) -> Path:
    """What was measured, beside the report: the session, then a row a line, with the counters that
    are read and not 0, and the metrics that were asked for."""
    lines: list[Row] = [{"session": session}, *map(as_kept, rows)]
    path = RESULTS / f"{session['benchmark']}.{short_name(session['gpu']['name'])}.rows.jsonl"
    write_atomic(path, "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines))
    collect(path)
    return path


def as_kept(row: Row) -> Row:
    """A row as the file has it."""
    kept = {k: v for k, v in row.items() if k != "at"}
    if "launches" in row:
        kept["launches"] = [
            {
                **one,
                "counters": {
                    k: v
                    for k, v in one["counters"].items()
                    if READ.match(k) and (v or "launch" in k)
                },
            }
            for one in row["launches"]
        ]
    if "ncu" in row:
        kept["ncu"] = [{k: one[k] for k in METRICS if k in one} for one in row["ncu"]]
    return kept


def kept_rows(path: Path) -> tuple[Row, list[Row]]:
    """The session and its rows."""
    first, *rows = (json.loads(line) for line in read_lines(path))
    return first["session"], rows


# --- counters -------------------------------------------------------------------------------------


def total(reports: Iterable[Row], names: Iterable[str]) -> float:
    """Counters summed over launches."""
    names = tuple(names)
    return float(sum(one.get(name, 0.0) for one in reports for name in names))


def of_emulator(row: Row) -> list[Row]:
    """The emulator's counters of each launch."""
    return [one["counters"] for one in row["launches"]]


def counter_errors(rows: Sequence[Row], names: Sequence[str]) -> dict[str, float]:
    """Relative error of a counter, summed over a kernel's launches, where hardware counts any."""
    found = {}
    for row in rows:
        real, ours = total(row["ncu"], names), total(of_emulator(row), names)
        if real >= _FEW:
            found[row["key"]] = abs(ours - real) / real
    return found


def sectors(rows: Sequence[Row]) -> tuple[list[Row], Row]:
    """Bars and figures of global memory."""
    bars, figures = [], {}
    for what, names in SECTORS.items():
        found = counter_errors(rows, names)
        bars.append(_median_bar(f"{what}, median error", 0.05, found))
        figures[what] = {"kernels": len(found), "worst": worst(found, 10)}
    return bars, figures


def conflicts(rows: Sequence[Row]) -> tuple[list[Row], Row]:
    """Bars and figures of shared memory.

    ncu has two counts. Its source counters go by the addresses of each access, as the emulator
    does: wavefronts that it takes beyond those that it needs. The counter of the data stage has
    turns lost to other traffic too: kernels without a conflict in any access pattern have a few
    hundredths for a request, the same code none where little else moves. So against that one stand
    also the error of accesses whose pattern has conflicts (by either count), and that of wavefronts
    (requests and conflicts), the time shared memory is busy.
    """
    by_address = [r for r in rows if all(IDEAL in one for one in r["ncu"])]
    exact = {r["key"]: _conflicts_by_address(r) for r in by_address}
    errors = {k: abs(ours - real) / real for k, (ours, real) in exact.items() if real >= _FEW}
    strict = counter_errors(rows, CONFLICTS)
    patterned: dict[str, float] = {}
    wavefronts: dict[str, float] = {}
    noise: dict[str, float] = {}
    for row in rows:
        here = 0.0
        off = busy = 0.0
        for conflict, request in zip(CONFLICTS, REQUESTS, strict=True):
            requests = total(of_emulator(row), [request])
            ours, real = total(of_emulator(row), [conflict]), total(row["ncu"], [conflict])
            way = f"{row['key']} {'load' if '_ld' in request else 'store'}"
            if requests < _FEW:
                continue
            if max(ours, real) >= _A_PATTERN * requests:
                patterned[way] = abs(ours - real) / max(real, 1.0)
            else:
                noise[way] = real / requests
            off, busy, here = off + abs(ours - real), busy + requests + real, here + requests
        if here:
            wavefronts[row["key"]] = off / busy
    unequal = sum(ours != real for ours, real in exact.values())
    bars = [
        _median_bar("shared bank conflicts by address, median error", 0.05, errors),
        bar("kernels whose bank conflicts by address differ", 0, unequal, not unequal),
        _median_bar("shared bank conflicts by the data stage, median error", 0.05, strict),
        _median_bar("shared bank conflicts of patterns that have any, data stage, median error",
                    0.05, patterned),
        _median_bar("wavefronts of shared memory, median error", 0.05, wavefronts),
    ]  # fmt: skip
    figures = {
        "shared bank conflicts by address": {
            "kernels": len(exact),
            "with_conflicts": len(errors),
            "worst": worst(errors, 10),
        },
        "shared bank conflicts by the data stage": {
            "kernels": len(strict),
            "worst": worst(strict, 10),
        },
        "shared bank conflicts of patterns that have any": {
            "accesses": len(patterned),
            "errors": worst(patterned, len(patterned)),
        },
        "shared accesses without a pattern": {
            "accesses": len(noise),
            "counted_by_hardware_for_a_request": _spread(noise),
            "most": worst(noise, 10),
            "the_same_code_by_size": {
                k: v for k, v in noise.items() if k.startswith("ladder/transpose_padded")
            },
        },
        "wavefronts of shared memory": {
            "kernels": len(wavefronts),
            "worst": worst(wavefronts, 10),
        },
    }
    return bars, figures


def _conflicts_by_address(row: Row) -> tuple[float, float]:
    """The emulator's and ncu's, over all launches."""
    return total(of_emulator(row), CONFLICTS), total(row["ncu"], [TAKEN]) - total(
        row["ncu"], [IDEAL]
    )


# --- time -----------------------------------------------------------------------------------------


def times(session: Row, rows: Sequence[Row]) -> tuple[list[Row], Row]:
    """Fit on one half and test on the other; of another choice of kernels, test on all."""
    gpu = timing_model.gpu(session["gpu"]["name"])
    train = [] if session.get("choice") else [r for r in rows if fit.digest(r["key"]) % 2]
    fitted_to = {r["key"] for r in train}
    test = [r for r in rows if r["key"] not in fitted_to]
    if len(test) <= 10:
        return [], {}
    if not train:
        return tested(gpu, test, test)
    figures = fit.fitted(gpu, train)
    bars, found = tested(fit.with_figures(gpu, figures), test, rows)
    groups = {r["group"] for r in train}
    unseen = [r for r in test if r["group"] not in groups]
    starting = fit.with_figures(gpu, fit.start())
    best = fit.with_figures(gpu, figures)
    found["time"] |= {
        "of_tasks_that_are_not_among_the_fitted": _spread(fit.errors(best, unseen)),
        "cross_validated_among_the_fitted": fit.cross_validated(gpu, train),
        "with_gpus_yaml": _spread(fit.errors(gpu, test)),
        "before_fitting": _spread(fit.errors(starting, test)),
    }
    return bars, {
        "calibration": {
            "figures": figures,
            "started_from": fit.start(),
            "in_gpus_yaml": {name: gpu.model[name] for name in figures},
            "fitted_to": sorted(fitted_to),
            "said": STRUCTURE,
        },
        **found,
    }


def tested(
    gpu: timing_model.Gpu, test: Sequence[Row], rows: Sequence[Row]
) -> tuple[list[Row], Row]:
    """Bars and figures of times that had no part in a fit; the order of pairs is that of `rows`."""
    found = fit.errors(gpu, test)
    predicted = {r["key"]: fit.modelled_us(gpu, r) for r in test}
    measured = {r["key"]: r["measured_us"] for r in test}
    rank = float(spearmanr([predicted[k] for k in measured], list(measured.values())).statistic)
    kept, pairs, failed = fit.order_kept(rows, lambda r: fit.modelled_us(gpu, r))
    short = {r["key"]: found[r["key"]] for r in test if r["measured_us"] < SHORT_US}
    recorded = {
        r["key"]: abs(r["modelled_us"] / r["measured_us"] - 1) for r in test if "modelled_us" in r
    }
    bars = [
        bar("time, Spearman on kernels that were not fitted", 0.9, rank, rank >= 0.9),
        _median_bar("time, median error on kernels that were not fitted", 0.25, found),
        bar("pairs over 1.3 in the right order", 0.9, kept / max(1, pairs),
            pairs > 0 and kept / pairs >= 0.9),
    ]  # fmt: skip
    return bars, {
        "time": {
            "error": _spread(found),
            "error_below_20_us": _spread(short),
            "as_measured": _spread(recorded),
            "modelled_over_measured_by_kind": _by_kind(gpu, test),
        },
        "pairs": pairs,
        "pairs_in_the_wrong_order": failed,
        "worst_times": [[k, predicted[k], measured[k]] for k, _ in worst(found, 15)],
    }


def _by_kind(gpu: timing_model.Gpu, rows: Sequence[Row]) -> dict[str, Row]:
    """Kinds of kernels: the level of a synthesised one, the others' by name."""
    kinds: dict[str, dict[str, float]] = {}
    for row in rows:
        folder, level = row["key"].rsplit("/", 1)
        by_name = folder in ("ladder", "clock")
        kind = f"{folder}, {level.split()[0].split('_')[0]}" if by_name else level
        ratio = fit.modelled_us(gpu, row) / row["measured_us"]
        kinds.setdefault(kind, {})[row["key"]] = ratio
    return {kind: _spread(ratios) for kind, ratios in sorted(kinds.items())}


# --- the report -----------------------------------------------------------------------------------


def report(session: Row, rows: Sequence[Row], *, again: bool = False) -> bool:
    """Write it; whether all bars hold. again: from kept rows, by a session that did not measure."""
    run = [r for r in rows if "launches" in r]
    counted = [r for r in run if "ncu" in r]
    both = [r for r in run if "equal" in r]
    unequal = [r["key"] for r in both if not r["equal"]]
    bars = [bar("kernels on both devices", 120, len(both), len(both) >= 120),
            bar("outputs that differ", 0, len(unequal), not unequal)]  # fmt: skip
    figures: Row = {
        "unequal": unequal,
        "skipped": {r["key"]: r["skipped"] for r in rows if "skipped" in r},
    }
    if again:
        now = head(session["benchmark"])
        figures["made_again"] = {
            "said": "Measured by the session above; fitted and reported from its rows, offline.",
            **{name: now[name] for name in ("date", "command", "commit")},
        }
    parts = [times(session, [r for r in run if "measured_us" in r])]
    if counted or not session.get("choice"):
        parts += [sectors(counted), conflicts(counted)]
    for more_bars, more in parts:
        bars += more_bars
        figures |= more
    if len(counted) > 2:
        ours = [total(of_emulator(r), [EXECUTED]) for r in counted]
        real = [total(r["ncu"], [EXECUTED]) for r in counted]
        figures["instruction_counts_spearman"] = float(spearmanr(ours, real).statistic)
    slim = [{k: v for k, v in r.items() if k not in ("launches", "ncu")} for r in rows]
    return write_report(session["benchmark"], bars, {**figures, "rows": slim}, session)


def _median_bar(what: str, target: float, found: dict[str, float]) -> dict[str, Any]:
    middle = statistics.median(found.values()) if found else None
    return bar(what, target, middle, middle is not None and middle <= target)


def _spread(found: dict[str, float]) -> Row:
    """How values lie: median, quartiles, extremes."""
    values = sorted(found.values())
    if len(values) < 2:
        return {"count": len(values), **({"median": values[0]} if values else {})}
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "count": len(values),
        "least": values[0],
        "quartile": low,
        "median": middle,
        "upper_quartile": high,
        "most": values[-1],
    }


def worst(found: dict[str, float], count: int) -> list[tuple[str, float]]:
    """The largest, first."""
    return sorted(found.items(), key=lambda kv: -kv[1])[:count]

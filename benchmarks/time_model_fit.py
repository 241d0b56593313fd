"""Fits the time model's figures for one GPU to measured kernels (see emulator_vs_gpu.py).

The figures of gpus.yaml themselves are fitted, by the model's own code. The loss is Huber's of the
logarithm of modelled over measured time: quadratic up to 15%, linear beyond, so that kernels whose
reason the model lacks do not bend the rest. Every figure is held near where published measurements
and assumptions put it; the search starts there and at random places around it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gpu_bench import Row
from scipy.optimize import minimize

from coding_framework.cuda.emulator import timing_model
from coding_framework.cuda.emulator.timing_model import Gpu

START = {
    "launch_us": (1.6, 1.0),
    "dram_efficiency": (0.92, 0.03),
    "l2_gbps": (5500.0, 0.3),
    "partial_write_sectors": (2.0, 0.5),
    "dram_latency_ns": (480.0, 0.3),
    "warp_start_ns": (300.0, 0.5),
    "independent_instructions": (1.6, 0.5),
    "instructions_per_slot": (0.9, 0.15),
    "atomic_ns": (0.6, 0.7),
}
"""Figures that are fitted: where the search starts, and how far they may well be off, as a standard
deviation of the logarithm. The others stay as gpus.yaml has them."""
_HUBER = 0.15
_PRIOR_WEIGHT = 0.003
_STARTS = 4
_FOLDS = 4
_PAIR_RATIO = 1.3
Figures = dict[str, float]


def modelled_us(gpu: Gpu, row: Row) -> float:
    """The time model's answer for the plan of a row: its launches, copies and fills."""
    total = 0.0
    for one in row["launches"]:
        counters = one["counters"]
        held = timing_model.occupancy(
            gpu,
            int(counters["launch__block_size"]),
            int(counters["launch__registers_per_thread"]),
            int(counters["launch__shared_mem_per_block"]),
        )
        grid, block = tuple(one["grid"]), tuple(one["block"])
        total += timing_model.model_ms(gpu, counters, grid, block, held)["total"]
    for moved_bytes, by_host in row.get("transfers", ()):
        total += timing_model.transfer_ms(gpu, moved_bytes, by_host=by_host)
    return 1e3 * total


def with_figures(gpu: Gpu, figures: Mapping[str, float]) -> Gpu:
    """The GPU with other figures under `model`."""
    return replace(gpu, model={**gpu.model, **figures})


def start() -> Figures:
    """Where the search starts."""
    return {name: value for name, (value, _) in START.items()}


def fitted(gpu: Gpu, rows: Sequence[Row], starts: int = _STARTS) -> Figures:
    """The figures that fit these rows best."""
    middle = np.log([value for value, _ in START.values()])
    spread = np.array([s for _, s in START.values()])
    draw = np.random.Generator(np.random.Philox(0))

    def figures(at: np.ndarray[Any, Any]) -> Figures:
        return {name: float(f) for name, f in zip(START, np.exp(at), strict=True)}

    def loss(at: np.ndarray[Any, Any]) -> float:
        tried = with_figures(gpu, figures(at))
        off = np.abs([math.log(modelled_us(tried, r) / r["measured_us"]) for r in rows])
        huber = np.where(off < _HUBER, off**2 / (2 * _HUBER), off - _HUBER / 2)
        prior = float(np.sum(((at - middle) / spread) ** 2))
        return float(np.mean(huber)) + _PRIOR_WEIGHT * prior

    places = [middle] + [middle + spread * draw.normal(size=len(START)) for _ in range(starts - 1)]
    options = {"maxfev": 3000, "xtol": 1e-3, "ftol": 1e-5}
    found = [minimize(loss, at, method="Powell", options=options) for at in places]
    return figures(min(found, key=lambda f: float(f.fun)).x)


def errors(gpu: Gpu, rows: Sequence[Row]) -> dict[str, float]:
    """Relative error of each row's modelled time."""
    return {r["key"]: abs(modelled_us(gpu, r) / r["measured_us"] - 1) for r in rows}


def cross_validated(gpu: Gpu, rows: Sequence[Row]) -> float:
    """Median error of rows whose task had no part in the fit."""
    groups = sorted({r["group"] for r in rows}, key=digest)
    found: list[float] = []
    for fold in range(_FOLDS):
        out = set(groups[fold::_FOLDS])
        figures = fitted(gpu, [r for r in rows if r["group"] not in out], 1)
        left = [r for r in rows if r["group"] in out]
        found += errors(with_figures(gpu, figures), left).values()
    return statistics.median(found)


def digest(name: str) -> int:
    """A number that belongs to a name: halves and folds are chosen by it."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def order_kept(rows: Sequence[Row], model: Callable[[Row], float]) -> tuple[int, int, list[str]]:
    """Pairs of one group whose measured ratio exceeds 1.3: how many, and in how many the model has
    the same order."""
    kept, pairs, failed = 0, 0, []
    for one, other in itertools.combinations(rows, 2):
        if one["group"] != other["group"]:
            continue
        fast, slow = sorted((one, other), key=lambda r: r["measured_us"])
        if slow["measured_us"] < _PAIR_RATIO * fast["measured_us"]:
            continue
        pairs += 1
        if model(fast) < model(slow):
            kept += 1
        else:
            failed.append(f"{fast['key']} < {slow['key']}")
    return kept, pairs, failed

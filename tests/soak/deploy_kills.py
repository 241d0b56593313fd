"""SIGKILL of random server processes during rollouts: is every answered request counted once?

    uv run python tests/soak/deploy_kills.py [--seconds 120] [--processes 4] [--output FILE]

Processes serve made-up requests through `LiveTraffic`, each with a `Controller`; every `--every`
seconds one of them is killed and started again. Meanwhile one rollout follows the other: of a
candidate that fails, and of one that is better. At the end each request that was answered must have
one exposure and one outcome, and the decisions must be those of a replay of the log. Prints it,
writes benchmarks/results/deploy_kills.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).resolve().parents[1]))
from bench_io import at_most, bar, finish, head, this_machine

from coding_framework.deployment.ab_testing import RampStep
from coding_framework.deployment.controller import Controller
from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.live_traffic import LiveTraffic
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.store import DeploymentStore, Event
from coding_framework.deployment.versions import VersionSpec
from support.replayed import replayed

ALIAS = "kernels"
THREADS = 8
ANSWER_WITHIN_S = 5.0
SETTINGS = {
    "shadow_units": 0, "window_s": 0.5, "horizon_units": 400, "answer_within_s": ANSWER_WITHIN_S,
    "steps": (
        RampStep(share=0.25, min_dwell_s=1.0, min_units=5),
        RampStep(share=0.5, min_dwell_s=0.0, min_units=0),
    ),
}  # fmt: skip


def outcome_of(version: str, chance: random.Random) -> Outcome:
    """A version's name says how it does: `bad-3` fails often, `good-3` is fast."""
    kind, number = version.split("-")
    if kind == "bad" and chance.random() < 0.3:
        return Outcome(status="error", seconds=0.02)
    return Outcome(status="verified", speedup=1.3 ** int(number), seconds=0.02)


def serve(database: Path, answered: Path, name: str, rate: float) -> None:
    """One server process: requests by several threads until it is killed."""
    traffic = LiveTraffic(database)
    Controller(database).start()
    log = os.open(answered, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def clients(thread: int) -> None:
        chance = random.Random(f"{name}/{thread}")
        number = 0
        while True:
            number += 1
            request = f"{name}/{thread}/{number}"
            unit = traffic.unit(request)
            now = traffic.expose(ALIAS, unit, request, traffic.assign(ALIAS, unit)).result()
            time.sleep(chance.uniform(0.01, 0.03))  # the model
            if now.experiment is not None:
                traffic.finish(request, outcome_of(now.version, chance)).result()
            line = {"request": request, "experiment": now.experiment, "variant": now.variant}
            os.write(log, json.dumps(line).encode() + b"\n")
            time.sleep(chance.expovariate(rate / THREADS))

    for thread in range(THREADS):
        threading.Thread(target=clients, args=(thread,), daemon=True).start()
    threading.Event().wait()


class Servers:
    """Processes that are killed and started again."""

    def __init__(self, folder: Path, count: int, rate: float) -> None:
        self.folder, self.rate = folder, rate
        self.made = 0
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([
            "coding_framework.deployment.live_traffic", "coding_framework.deployment.controller",
        ])  # fmt: skip
        self.running = [self._start() for _ in range(count)]

    def _start(self) -> Any:
        self.made += 1
        given = (
            self.folder / "d.sqlite", self.folder / "answered.jsonl", f"p{self.made}", self.rate,
        )  # fmt: skip
        process = self._processes.Process(target=serve, args=given, daemon=True)
        process.start()
        return process

    def kill_one(self, chance: random.Random) -> None:
        index = chance.randrange(len(self.running))
        self._end(self.running[index])
        self.running[index] = self._start()

    def end(self) -> None:
        for process in self.running:
            self._end(process)

    def _end(self, process: Any) -> None:
        process.kill()
        process.join()


def next_rollout(manager: DeploymentManager, number: int) -> None:
    """A candidate that fails, then one that is better, and so on."""
    version = f"{'bad' if number % 2 else 'good'}-{number}"
    manager.register_version(version, VersionSpec(model=version))
    config = manager.config(ALIAS, version, SETTINGS)
    manager.start_rollout(config, "the soak program", without_evaluation=True)


def soak(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Serve and kill for so long; what was found."""
    manager = DeploymentManager(DeploymentStore(folder / "d.sqlite"))
    manager.register_version("good-0", VersionSpec(model="good-0"))
    manager.deploy(ALIAS, "good-0")
    servers = Servers(folder, args.processes, args.rate)
    chance, kills, number = random.Random(args.seed), 0, 0
    start = time.monotonic()
    while (passed := time.monotonic() - start) < args.seconds:
        if manager.store.active_experiment(ALIAS) is None:
            number += 1
            next_rollout(manager, number)
        if passed >= (kills + 1) * args.every:
            servers.kill_one(chance)
            kills += 1
        time.sleep(0.1)
    servers.end()
    time.sleep(ANSWER_WITHIN_S + 0.5)
    active = manager.store.active_experiment(ALIAS)
    if active is not None:
        manager.experiments.act(active.id)
    return {"kills": kills, "processes": servers.made, **checked(manager.store, folder)}


def checked(store: DeploymentStore, folder: Path) -> dict[str, Any]:
    """The answered requests against the log, and the decisions against a replay."""
    lines = (folder / "answered.jsonl").read_text(encoding="utf-8").splitlines()
    answered = [json.loads(line) for line in lines if line.endswith("}")]
    enrolled = [a for a in answered if a["experiment"] is not None]
    logs = {row.id: list(store.events(row.id)) for row in store.experiments()}
    events = [event for log in logs.values() for event in log]
    ids = Counter(event.id for event in events)
    wrong = sum(ids[f"{a['request']}:e"] != 1 or ids[f"{a['request']}:o"] != 1 for a in enrolled)
    exposures = [event for event in events if event.kind == "exposure"]
    open_now = sum(_unended(logs[row.id], ids) for row in store.experiments() if not row.ended_us)
    found = replayed(store)
    return {
        "answered": len(answered),
        "answered_enrolled": len(enrolled),
        "exposures": len(exposures),
        "lost": sum('"lost"' in e.body for e in events if e.kind == "outcome"),
        "answered_not_once": wrong,
        "doubled": sum(count > 1 for count in ids.values()),
        "open_after_the_limit": open_now,
        "exposed_after_the_end": sum(_after_the_end(log) for log in logs.values()),
        "rollouts": dict(Counter(row.state for row in store.experiments())),
        "decisions": found.decisions,
        "difference": found.difference,
    }


def _unended(log: list[Event], ids: Counter[str]) -> int:
    return sum(e.kind == "exposure" and not ids[f"{e.request}:o"] for e in log)


def _after_the_end(log: list[Event]) -> int:
    """Exposures after the last transition to a final state."""
    ends = [e.seq for e in log if e.kind == "transition" and json.loads(e.body)["to"] in _OVER]
    return sum(e.kind == "exposure" and bool(ends) and e.seq > ends[-1] for e in log)


_OVER = ("PROMOTED", "ROLLED_BACK", "STOPPED")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="how long it serves")
    parser.add_argument("--processes", type=int, default=4, help="server processes")
    parser.add_argument("--rate", type=float, default=25.0, help="requests/s a process")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/deploy_kills.json")
    args = parser.parse_args()
    machine = this_machine()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), args)
    print(found)
    report = head("deploy_kills", machine=machine)
    report |= found
    report["bars"] = [
        at_most("answered requests without one exposure and one outcome", 0,
                found["answered_not_once"]),
        at_most("events that are there twice", 0, found["doubled"]),
        at_most("requests open after the limit", 0, found["open_after_the_limit"]),
        at_most("exposures after the end of their rollout", 0, found["exposed_after_the_end"]),
        bar("decisions that differ from a replay", "none", found["difference"] or "none",
            found["difference"] is None),
        bar("requests were answered", "> 0", found["answered_enrolled"],
            found["answered_enrolled"] > 0),
    ]  # fmt: skip
    results = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
    return 0 if finish(report, args.output or results / "deploy_kills.json") else 1


if __name__ == "__main__":
    sys.exit(main())

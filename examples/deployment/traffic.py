"""Made-up traffic for `rollout.sh`: what a server does for each request, without models.

    python traffic.py --database FILE --alias NAME --version v1:1.0 --version v2:2.5:0.5

A version is NAME:SPEEDUP[:ERRORS]; ERRORS is the share of its requests that fail once it serves
users, and not in the shadow. Ends when the alias has no active rollout.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import uuid
from pathlib import Path

from coding_framework.deployment.controller import Controller
from coding_framework.deployment.live_traffic import LiveTraffic
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.store import DeploymentStore

THREADS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--version", action="append", required=True, metavar="NAME:SPEEDUP:ERRORS")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds")
    args = parser.parse_args()
    versions = {}
    for said in args.version:
        name, speedup, errors = (*said.split(":"), "0")[:3]
        versions[name] = (float(speedup), float(errors))
    store = DeploymentStore(args.database)
    traffic, controller = LiveTraffic(args.database), Controller(args.database)
    controller.start()
    over = threading.Event()

    def kernel_of(version: str, *, served: bool) -> Outcome:
        """What the model and the judge came to."""
        speedup, errors = versions[version]
        time.sleep(random.uniform(0.005, 0.015))
        if served and random.random() < errors:
            return Outcome(status="error", seconds=0.01)
        return Outcome(status="verified", speedup=speedup * random.uniform(0.8, 1.25), seconds=0.01)

    def client() -> None:
        while not over.is_set():
            request = uuid.uuid4().hex
            unit = traffic.unit(f"session {request}")
            now = traffic.assign(args.alias, unit)
            now = traffic.expose(args.alias, unit, request, now).result()
            outcome = kernel_of(now.version, served=True)
            if now.experiment is not None:
                traffic.finish(request, outcome).result()
            shadow = traffic.shadow(args.alias, unit)
            if shadow is not None:
                unseen = kernel_of(shadow.candidate, served=False)
                traffic.pair(shadow, unit, request, outcome, unseen).result()

    threads = [threading.Thread(target=client) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + args.patience
    while store.active_experiment(args.alias) is not None and time.monotonic() < end:
        time.sleep(0.2)
    over.set()
    for thread in threads:
        thread.join()
    controller.close()
    traffic.close()
    return 0 if store.active_experiment(args.alias) is None else 1


if __name__ == "__main__":
    sys.exit(main())

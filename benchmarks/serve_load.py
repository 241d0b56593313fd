"""`cuda-rl serve` under load: requests a second, added latency, streams, growth.

    python benchmarks/serve_load.py                  # 2 minutes
    python benchmarks/serve_load.py --only-soak --soak-s 3600 --output FILE    # an hour at 50/s

A fake model server answers after 20 ms. Every request is enrolled in a rollout, so that its
exposure and its outcome are durable in the database before its answer ends; nothing is judged. In
the soak every second request is of a user who never came before, the others of any who did. The
load, the fake model and the server share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import yaml
from bench_io import ROOT, at_most, bar, finish, head, this_machine
from prometheus_client.parser import text_string_to_metric_families

from coding_framework.deployment.ab_testing import Endpoint, Experiment, TrafficRouter, unit_of
from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.manager import ABTestManager
from coding_framework.deployment.store import DeploymentStore
from coding_framework.deployment.versions import VersionSpec
from coding_framework.registry.receipts import new_key

ASK = {"messages": [{"role": "user", "content": "hello"}]}
RATE = 50
USERS = 5000
"""Who come again and again, but for the soak."""
WINDOW_S = 1200.0
"""Of a user in the rollout."""
WARM_S = 120.0
"""At the soak's rate, before it begins."""
IDLE_S = 20.0
"""Connections to the model server that nobody uses are closed after 15 s: descriptors are counted
then, not while one is held for each request that ran at a time."""


def started(stack: ExitStack, command: list[str], log: Path) -> tuple[subprocess.Popen[str], str]:
    """(process, the address that it prints)."""
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{command} did not start: see {log}"
    return process, line.split()[-1]


def prepare(folder: Path, upstream: str) -> Path:
    """The server's file; its database has a rollout that takes in everybody."""
    config = {
        "listen": {"port": 0},
        "backends": [{"name": "fake", "url": upstream}],
        "versions": {"old": {"model": "fake"}, "new": {"model": "fake", "temperature": 0.5}},
        "endpoints": {"kernels": {"version": "old"}},
        "judge": {"backend": "emulator", "workers": 1},
        "tokens": str(folder / "tokens"),
        "keys": str(folder / "keys"),
        "database": str(folder / "deployment.sqlite"),
        "unit": "user",
    }
    new_key(folder / "keys", "judge")
    store = DeploymentStore(folder / "deployment.sqlite")
    manager = DeploymentManager(store)
    for name, temperature in (("old", None), ("new", 0.5)):
        manager.register_version(name, VersionSpec(model="fake", temperature=temperature))
    manager.deploy("kernels", "old")
    settings = {"shadow_units": 0, "steps": [{"share": 0.5}], "window_s": WINDOW_S}
    rollout = manager.config("kernels", "new", settings)
    manager.start_rollout(rollout, "a benchmark", without_evaluation=True)
    store.close()
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


async def ask(session: aiohttp.ClientSession, url: str, user: int, **more: Any) -> float:
    """Seconds of one request."""
    body = {**ASK, "model": more.pop("model", "kernels"), "user": f"user-{user}", **more}
    begin = time.perf_counter()
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        text = await response.text()
        assert response.status == 200, text
        assert not body.get("stream") or text.rstrip().endswith("data: [DONE]"), text[-300:]
    return time.perf_counter() - begin


async def closed_loop(
    url: str,
    connections: int,
    seconds: float,
    users: Iterator[int],
    at_most: float = float("inf"),
) -> float:
    """Requests a second. at_most: so many are asked for, where the machine has the time."""
    done, ends = 0, time.perf_counter() + seconds
    pause = connections / at_most

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while time.perf_counter() < ends:
            took = await ask(session, url, next(users))
            done += 1
            await asyncio.sleep(max(0.0, pause - took))

    begin = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(work(session) for _ in range(connections)))
    return done / (time.perf_counter() - begin)


def same_users() -> Iterator[int]:
    """The same ones again and again."""
    return (number % USERS for number in count())


def new_users(chance: random.Random) -> Iterator[int]:
    """Every second one is new, the others came before."""
    for number in count(USERS):
        yield number
        yield chance.randrange(number)


async def open_loop(url: str, seconds: float, **more: Any) -> list[float]:
    """Latencies of RATE requests a second, whose starts do not wait for each other."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begin, tasks = time.perf_counter(), []
        for number in range(int(seconds * RATE)):
            await asyncio.sleep(max(0.0, begin + number / RATE - time.perf_counter()))
            tasks.append(asyncio.create_task(ask(session, url, number % USERS, **more)))
        return list(await asyncio.gather(*tasks))


async def streams(url: str, wanted: int) -> int:
    """How many of so many streams at once came to their end."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        work = (ask(session, url, n, stream=True) for n in range(wanted))
        results = await asyncio.gather(*work, return_exceptions=True)
    return sum(isinstance(r, float) for r in results)


async def wait_ready(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(600):
            async with session.get(f"{url}/readyz") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.5)
    raise SystemExit("the server did not become ready")


def memory_and_files(process: subprocess.Popen[str]) -> tuple[int, int]:
    """(resident bytes, open descriptors) of the server, without the processes that judge."""
    own = psutil.Process(process.pid)
    return own.memory_info().rss, own.num_fds()


def cpu_s(process: subprocess.Popen[str]) -> float:
    """CPU seconds of the server so far, which a loaded machine hardly changes."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def bytes_of(folder: Path) -> int:
    """Of the database with its log."""
    return sum(path.stat().st_size for path in folder.glob("deployment.sqlite*"))


def log_bytes(folder: Path) -> int:
    """Of the database's log alone."""
    return (folder / "deployment.sqlite-wal").stat().st_size


async def sample(server: subprocess.Popen[str], folder: Path, into: list[dict[str, float]]) -> None:
    """Memory, descriptors and database of the server, each minute."""
    while True:
        memory, files = memory_and_files(server)
        now = {
            "resident_mb": memory / 1e6, "files": files, "database_mb": bytes_of(folder) / 1e6,
            "log_mb": log_bytes(folder) / 1e6, "load": os.getloadavg()[0],
        }  # fmt: skip
        into.append({name: round(value, 1) for name, value in now.items()})
        print(into[-1], flush=True)
        await asyncio.sleep(60.0)


async def commits(url: str) -> dict[str, float]:
    """How many commits of events there were, within 50 ms and within 2 s."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    name = "cuda_rl_event_commit_seconds_bucket"
    samples = [s for f in families for s in f.samples if s.name == name]
    return {s.labels["le"]: s.value for s in samples if s.labels["le"] in ("0.05", "2.0", "+Inf")}


def route_us() -> float:
    """CPU microseconds of one assignment, without a database."""
    experiment = Experiment(
        id="e", salt_enrol="a", salt_arm="b", enrolment=1.0, split=0.5, candidate="new"
    )
    endpoint = Endpoint(incumbent="old", generation=1, experiment=experiment)
    router, routed = TrafficRouter({"kernels": endpoint}), 100_000
    units = [unit_of(b"s" * 32, f"user-{n}") for n in range(routed)]
    begin = time.process_time()
    for unit in units:
        router.route("kernels", unit)
    return 1e6 * (time.process_time() - begin) / routed


async def measure(url: str, upstream: str, server: subprocess.Popen[str]) -> dict[str, Any]:
    """Requests a second, added latency, streams."""
    await wait_ready(url)
    await closed_loop(url, 8, 3.0, same_users())  # warm
    cpu, begin = cpu_s(server), time.perf_counter()
    rates = {n: await closed_loop(url, n, 10.0, same_users()) for n in (8, 32)}
    cpu, took = cpu_s(server) - cpu, time.perf_counter() - begin
    direct = await open_loop(upstream, 10.0, model="fake")
    seen = await open_loop(url, 20.0)
    base = statistics.median(direct)
    cut = statistics.quantiles(seen, n=100)
    return {
        "requests_per_s": rates,
        "server_cpu_ms_per_request": 1000 * cpu / (statistics.mean(rates.values()) * took),
        "upstream_p50_ms": 1000 * base,
        "added_p50_ms": 1000 * (cut[49] - base),
        "added_p99_ms": 1000 * (cut[98] - base),
        "streams_of_64": await streams(url, 64),
        "route_us": route_us(),
    }


async def soak(
    url: str, server: subprocess.Popen[str], folder: Path, seconds: float, warm_s: float
) -> dict[str, Any]:
    """Memory, descriptors and files while endless new users come at RATE."""
    await wait_ready(url)
    users = new_users(random.Random(0))
    await closed_loop(url, 16, warm_s, users, at_most=RATE)
    await asyncio.sleep(IDLE_S)
    before, kept = memory_and_files(server), bytes_of(folder)
    samples: list[dict[str, float]] = []
    sampling = asyncio.create_task(sample(server, folder, samples))
    cpu = cpu_s(server)
    rate = await closed_loop(url, 16, seconds, users, at_most=RATE)
    cpu = cpu_s(server) - cpu
    sampling.cancel()
    await asyncio.sleep(IDLE_S)
    after, grown = memory_and_files(server), bytes_of(folder) - kept
    middle = samples[len(samples) // 2]["resident_mb"]
    return {
        "soak_s": seconds,
        "soak_requests_per_s": rate,
        "soak_cpu_ms_per_request": 1000 * cpu / (rate * seconds),
        "memory_growth": after[0] / before[0] - 1.0,
        "descriptor_growth": after[1] - before[1],
        "resident_mb": {"start": before[0] / 1e6, "middle": middle, "end": after[0] / 1e6},
        "log_mb": log_bytes(folder) / 1e6,
        "each_minute": samples,
        "database_bytes_per_request": grown / (rate * seconds),
        "database_mb": bytes_of(folder) / 1e6,
    }


def bars_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of what was measured."""
    bars = []
    if "requests_per_s" in found:
        most = max(found["requests_per_s"].values())
        bars += [
            bar("requests a second, at least", 150, most, most >= 150),
            at_most("added latency at 50/s, p50, ms", 10, found["added_p50_ms"]),
            at_most("added latency at 50/s, p99, ms", 60, found["added_p99_ms"]),
            bar("streams at once that ended", 64, found["streams_of_64"],
                found["streams_of_64"] == 64),
            at_most("who answers, CPU us", 20, found["route_us"]),
        ]  # fmt: skip
    made = found["commits"]
    return [
        *bars,
        at_most(f"growth of memory in {found['soak_s']:g} s", 0.05, found["memory_growth"]),
        at_most("growth of descriptors", 5, found["descriptor_growth"]),
        at_most("the database's log, MB", 64, found["log_mb"]),
        bar("outcomes of exposures", found["exposures"], found["outcomes"],
            found["exposures"] == found["outcomes"] > 0),
        at_most("commits of events over 50 ms, a share", 0.01, 1 - made["0.05"] / made["+Inf"]),
        at_most("commits of events over 2 s", 0, made["+Inf"] - made["2.0"]),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--soak-s", type=float, default=60.0)
    parser.add_argument("--only-soak", action="store_true", help="and nothing else")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    machine = this_machine()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        fake = str(ROOT / "examples" / "deployment" / "fake_upstream.py")
        command = [sys.executable, fake, "--port", "0", "--delay-ms", "20"]
        _, upstream = started(stack, command, folder / "upstream.log")
        config = prepare(folder, upstream)
        cuda_rl = str(Path(sys.executable).with_name("cuda-rl"))
        serve = [cuda_rl, "serve", "--config", str(config)]
        process, url = started(stack, serve, folder / "serve.log")
        found = {} if args.only_soak else asyncio.run(measure(url, upstream, process))
        warm_s = WARM_S if args.only_soak else 0.0
        found |= asyncio.run(soak(url, process, folder, args.soak_s, warm_s))
        found["commits"] = asyncio.run(commits(url))
        store = DeploymentStore(folder / "deployment.sqlite")
        (row,) = store.experiments()
        kinds = Counter(e.kind for e in store.events(row.id))
        found["exposures"], found["outcomes"] = kinds["exposure"], kinds["outcome"]
        numbers = ABTestManager(store).evaluate(row.id).numbers["counts"]
        found["users"] = sum(numbers["enrolled"])
        found["state"] = store.experiment(row.id).state
        store.close()
    load = {"after": round(os.getloadavg()[0], 1)}
    report = head("serve_load", packages=("aiohttp", "fastapi", "uvicorn"), machine=machine)
    holds = finish(
        report | {"load": load, "measured": found, "bars": bars_of(found)},
        args.output,
    )
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()

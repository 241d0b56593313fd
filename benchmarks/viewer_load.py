"""Makes a large run folder and measures the viewer on it.

    uv run benchmarks/viewer_load.py --conversations 100000

The conversations are made up: real records with the sizes of real ones (9 kB a line), no verdict of
theirs says anything about a kernel. Measured are the index, pages, the browser, and what the viewer
takes beside a run that goes on: by the wall and in seconds of CPU, since a machine is seldom idle.
The folder is deleted unless --keep is given.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from bench_io import RESULTS, at_most, finish, head, this_machine

STATUSES = (
    ("correct", 34), ("compile_error", 26), ("wrong_output", 18), ("runtime_error", 8),
    ("rejected", 5), ("cheating", 3), ("timeout", 3), ("masked", 3),
)  # fmt: skip
FAMILIES = ("unary", "reduction", "softmax", "layer_norm", "matmul", "windows", "attention", "loss")
KERNEL = """#include <torch/extension.h>
#include <cuda_runtime.h>

// Each block reduces one row; the warps meet in shared memory.
__global__ void {name}_kernel(const float* __restrict__ x, float* __restrict__ y, int n, int d) {{
    __shared__ float partial[32];
    const int row = blockIdx.x;
    const float4* v = reinterpret_cast<const float4*>(x + row * d);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < d / 4; i += blockDim.x) {{
        float4 a = v[i];
        sum += a.x * {factor}f + a.y + a.z + a.w;
    }}
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {{
        float total = 0.0f;
        for (int w = 0; w < blockDim.x / 32; ++w) total += partial[w];
        y[row] = total{tail};
    }}
}}

torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty({{x.size(0)}}, x.options());
    {name}_kernel<<<x.size(0), {threads}>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    return y;
}}
"""
WHY = {
    "correct": "all 5 shape sets agree with the reference",
    "compile_error": 'identifier "partal" is undefined',
    "wrong_output": "case odd: 17 of 64 elements differ, the first at (3,)",
    "runtime_error": "an illegal memory access: thread 33 of block 2 reads 4 bytes after x",
    "rejected": "the kernel calls torch::sum, which computes the result",
    "cheating": "outputs depend on a buffer kept from an earlier call",
    "timeout": "the kernel did not end within 10 s",
}


def conversation(draw: random.Random, step: int, group: int, session: int) -> dict[str, Any]:
    """A rollout with 1 to 3 turns."""
    family = FAMILIES[group % len(FAMILIES)]
    task = {
        "name": f"{family}_{group % 97}", "tier": group % 4, "family": family, "ops": [family],
        "description": f"{family} over the rows of a matrix",
        "reference": "class Model(nn.Module): ...",
        "cases": [{"name": "main", "inputs": [{"name": "x", "shape": [64, 1024]}]}],
    }  # fmt: skip
    turns = [turn(draw, task["name"], i) for i in range(draw.randint(1, 3))]
    returns = [
        sum(p["value"] for p in t["reward"]["parts"]) if t["reward"] else None for t in turns
    ]
    state = {"conversation_id": f"{step}-{group}-{session}", "task": task, "turns": turns,
             "end_reason": "max_turns"}  # fmt: skip
    return {
        "step": step,
        "group": f"g{group}",
        "session": session,
        "state": state,
        "returns": returns,
    }


def turn(draw: random.Random, task: str, index: int) -> dict[str, Any]:
    status = draw.choices([s for s, _ in STATUSES], [w for _, w in STATUSES])[0]
    threads, tail = draw.choice((128, 256, 512)), draw.choice(("", " / d", " * 1.0f"))
    code = KERNEL.format(name=task, factor=draw.randint(1, 9), threads=threads, tail=tail)
    made = {
        "index": index, "role": "optimizer" if index else "generator",
        "prompt": [{"role": "user", "content": f"Write a kernel for {task}. " + "Contract. " * 45}],
        "generation": {"text": f"```cuda\n{code}```", "response_ids": list(range(300, 460))},
        "extraction": {"code": code, "note": "one block"}, "reward": None, "verdict": None,
    }  # fmt: skip
    if status == "masked":
        return {**made, "masked": "the device process was lost twice"}
    speedup = round(draw.lognormvariate(0.4, 0.5), 3)
    value = 0.6 + 0.25 * speedup / (speedup + 2) if status == "correct" else 0.0
    return {**made, "verdict": verdict(status, task, speedup), "reward": {
        "preset": "weighted",
        "parts": [{"name": "correctness", "value": value, "limit": 0.85, "why": WHY[status]}],
    }}  # fmt: skip


def verdict(status: str, task: str, speedup: float) -> dict[str, Any]:
    finding = {"rule": "kept_state", "severity": "high", "line": 6, "message": WHY["cheating"],
               "basis": "run"}  # fmt: skip
    error = {"severity": "error", "line": 19, "message": WHY["compile_error"]}
    failed = status == "compile_error"
    timing = {
        "kernel_ms": 0.02 / speedup, "kernel_ms_ci95": [0.019 / speedup, 0.021 / speedup],
        "naive_ms": 0.02, "speedup_vs_naive": speedup, "modelled": True, "flops": 262144,
        "bytes_moved": 262400,
    }  # fmt: skip
    test = {"case": "main", "seed": 1, "shapes": [[64, 1024]], "dtype": "float32",
            "max_abs_error": 1e-6, "max_rel_error": 1e-6, "tolerance": 1e-4,
            "passed": status != "wrong_output", "detail": ""}  # fmt: skip
    return {
        "status": status, "reason": WHY[status], "task": task, "candidate_sha256": "0" * 64,
        "backend": "emulator", "compile": {"errors": [error] if failed else [], "registers": 32},
        "tests": [] if failed else [test], "timing": timing if status == "correct" else None,
        "cheats": [finding] if status == "cheating" else [],
        "receipt": {"device": "emulator of NVIDIA H200", "protocol": "10"},
    }  # fmt: skip


def make_run(folder: Path, conversations: int, *, per_step: int = 512) -> int:
    """An RL run with its rollouts and step records; returns its bytes."""
    draw, size = random.Random(0), 0
    rollouts = folder / "attempts" / "000" / "rollouts"
    rollouts.mkdir(parents=True)
    steps = []
    for step in range(1, -(-conversations // per_step) + 1):
        count = min(per_step, conversations - (step - 1) * per_step)
        lines = [json.dumps(conversation(draw, step, i // 8, i % 8)) + "\n" for i in range(count)]
        (rollouts / f"step_{step:06d}.jsonl").write_text("".join(lines))
        size += sum(map(len, lines))
        rise = step / (step + 60)
        steps.append({
            "step": step, "conversations": count, "turns": 2 * count, "reward_mean": 0.7 * rise,
            "solved_rate": 0.8 * rise, "solved_error": 0.03, "compile_rate": 0.5 + 0.4 * rise,
            "correct_rate": 0.6 * rise, "kl": 0.01 * rise, "grad_norm": draw.lognormvariate(0, 0.3),
            "times": {"rollout_s": 40.0, "update_s": 20.0, "step_s": 62.0},
        })  # fmt: skip
    (folder / "steps.jsonl").write_text("".join(json.dumps(s) + "\n" for s in steps))
    return size


CHROMIUM = os.environ.get("CUDA_RL_CHROMIUM") or shutil.which("chromium")
BARS = {
    "list": 150.0, "list_all": 150.0, "conversation": 200.0, "search": 400.0, "search_all": 400.0,
}  # fmt: skip
"""Milliseconds of a page, the 95th percentile: by the wall, which other work on the machine
stretches, and of CPU."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/viewer_load"))
    parser.add_argument("--requests", type=int, default=60, help="of each kind of page")
    parser.add_argument("--beside", type=float, default=60.0, help="seconds beside a run")
    parser.add_argument("--tabs", type=int, default=10)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "viewer_load.json")
    args = parser.parse_args()
    if args.beside and CHROMIUM is None:
        parser.error("no chromium: apt-get install chromium, or set CUDA_RL_CHROMIUM; --beside 0 "
                     "measures without a browser")  # fmt: skip
    machine, folder = this_machine(), args.folder
    runs = folder / "runs"
    size = sum(p.stat().st_size for p in runs.rglob("*.jsonl")) or make_run(
        runs / "large", args.conversations
    )
    print(f"{args.conversations} conversations, {size / 1e6:.0f} MB", file=sys.stderr)
    shutil.rmtree(folder / "index", ignore_errors=True)
    try:
        found = measure(folder, args)
    finally:
        if not args.keep:
            shutil.rmtree(folder)
    record = {
        **head("viewer_load", packages=("fastapi", "uvicorn", "orjson", "playwright"),
               machine=machine),
        "conversations": args.conversations, "bytes": size, **found,
        "load_at_the_end": round(os.getloadavg()[0], 1), "bars": bars(found),
    }  # fmt: skip
    return 0 if finish(record, args.output) else 1


def bars(found: dict[str, Any]) -> list[dict[str, Any]]:
    pages, index = found["pages"], found["index"]
    told = [
        at_most("index, s of CPU", 60.0, index["cpu_s"]),
        at_most("usable after, s of CPU", 2.0, index["usable_cpu_s"]),
        at_most("usable after, s", 2.0, index["usable_s"]),
        *(
            at_most(f"{name}: p95, ms{of}", most, pages[name][f"p95_{key}"])
            for name, most in BARS.items()
            for of, key in ((" of CPU", "cpu_ms"), ("", "ms"))
        ),
        at_most("server, MB", 400.0, found["server_rss_mb"]),
    ]
    if (browser := found.get("browser")) is not None:
        told += [
            at_most("first load, kB", 250.0, browser["first_load_kb"]),
            at_most("first load, s", 1.0, browser["first_load_s"]),
            at_most("browser's heap, MB", 150.0, browser["heap_mb"]),
            at_most("flushed line on the page: p95, s", 2.0, browser["line_to_page_s"]["p95"]),
            at_most("beside a run, share of the machine", 0.01,
                    found["beside"]["one_page"]["share_of_machine"]),
        ]  # fmt: skip
    return told


class Usage:
    """CPU of the viewer's two processes."""

    def __init__(self, server: psutil.Process) -> None:
        self.server = server
        (self.indexer,) = server.children()

    def server_s(self) -> float:
        """Of the server, to the nanosecond: ticks of 10 ms are longer than most requests."""
        tasks = Path(f"/proc/{self.server.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def cpu_s(self, *processes: psutil.Process) -> float:
        chosen = processes or (self.server, self.indexer)
        return sum(sum(p.cpu_times()[:2]) for p in chosen)


@contextmanager
def viewer(folder: Path) -> Iterator[tuple[str, psutil.Process, float]]:
    """The address, the server's process, and when it was started."""
    command = [sys.executable, "-m", "coding_framework.cli", "view", str(folder / "runs")]
    began = time.monotonic()
    server = subprocess.Popen(
        [*command, "--port", "0", "--index", str(folder / "index")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0].rstrip("/"), psutil.Process(server.pid), began
    finally:
        server.terminate()
        server.wait(20)


def measure(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Starts the viewer with no index and asks for its pages."""
    with viewer(folder) as (base, server, began):
        run_id = _until(lambda: _json(f"{base}/api/"))["rows"][0]["run"]["id"]
        own = f"{base}/api/run/{run_id}/conversations"
        _until(lambda: _json(own)["page"]["rows"][0])
        usable, usage = time.monotonic() - began, Usage(server)
        usable_cpu = usage.cpu_s()
        # Asked seldom: the question itself is work beside the index.
        _until(lambda: _json(own)["reading"] is None or None, pause_s=1.0)
        index = {
            "usable_s": round(usable, 2), "usable_cpu_s": round(usable_cpu, 2),
            "wall_s": round(time.monotonic() - began, 2),
            "cpu_s": round(usage.cpu_s(usage.indexer), 2),
            "mb": round(sum(p.stat().st_size for p in (folder / "index").iterdir()) / 1e6),
        }  # fmt: skip
        listing = f"{base}/run/{run_id}/conversations"
        rows = _json(f"{own}?sort=turns")["page"]["rows"]
        pages: dict[str, Callable[[int], str]] = {
            "list": lambda i: f"{listing}?status={STATUSES[i % 6][0]}&tier={i % 4}&sort=speedup",
            "list_all": lambda i: f"{listing}?sort={('newest', 'speedup', 'reward')[i % 3]}",
            "conversation": lambda i: (
                f"{listing}/{rows[i % 50]['key']}?view={('code', 'diff', 'profile')[i % 3]}"
            ),
            "search": lambda i: (
                f"{listing}?q={('illegal+memory', 'partal', 'kept')[i % 3]}&step={i + 1}"
            ),
            "search_all": lambda i: f"{listing}?q={('illegal', 'softmax', 'undefined')[i % 3]}",
            "overview": lambda i: f"{base}/run/{run_id}",
            "runs": lambda i: f"{base}/",
        }
        found = {
            "index": index,
            "pages": {n: _asked(a, args.requests, usage) for n, a in pages.items()},
            "server_rss_mb": round(server.memory_info().rss / 1e6),
        }
        if args.beside:
            found |= in_browser(f"{base}/run/{run_id}", folder / "runs/large", args, usage)
            found["server_rss_mb"] = round(server.memory_info().rss / 1e6)
        return found


def in_browser(address: str, run: Path, args: argparse.Namespace, usage: Usage) -> dict[str, Any]:
    """First load and heap of a browser; a run that goes on, seen by no page, one and several."""
    from playwright.sync_api import sync_playwright

    grown = Growing(run)
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page, sizes = context.new_page(), list[int]()
        page.on("requestfinished", lambda r: sizes.append(sum(r.sizes().values())))
        before = time.monotonic()
        page.goto(address, wait_until="load")
        first = time.monotonic() - before
        page.wait_for_selector("#charts canvas")
        loaded = sum(sizes)
        beside = {"no_page": grown.go_on(args.beside / 3, usage, lambda: page.goto("about:blank"))}
        page.goto(address)
        page.wait_for_selector("#live:not([hidden])")
        beside["one_page"] = grown.go_on(args.beside, usage)
        waits = [_seen(page, grown) for _ in range(20)]
        devtools = context.new_cdp_session(page)
        devtools.send("HeapProfiler.collectGarbage")
        heap = devtools.send("Runtime.getHeapUsage")["usedSize"]
        tabs = [context.new_page() for _ in range(args.tabs - 1)]
        for tab in tabs:
            tab.goto(address)
        beside[f"{args.tabs}_pages"] = grown.go_on(args.beside, usage)
        waits_of_tabs = [_seen(tab, grown) for tab in tabs]
        browser.close()
    return {
        "browser": {
            "first_load_kb": round(loaded / 1000), "first_load_s": round(first, 2),
            "heap_mb": round(heap / 1e6, 1), "line_to_page_s": _quantiles(waits),
            "line_to_last_tabs_s": _quantiles(waits_of_tabs),
        },
        "beside": beside,
    }  # fmt: skip


class Growing:
    """The run, to which a conversation is added each second, as RL at its fastest does."""

    def __init__(self, run: Path) -> None:
        self.draw, self.made = random.Random(1), 0
        rollouts = run / "attempts/000/rollouts"
        self.step = len(list(rollouts.iterdir())) + 1
        self.path = rollouts / f"step_{self.step:06d}.jsonl"

    def add(self, task: str = "") -> None:
        made = conversation(self.draw, self.step, self.made // 8, self.made)
        made["state"]["task"]["name"] = task or made["state"]["task"]["name"]
        self.made += 1
        with self.path.open("a") as file:
            file.write(json.dumps(made) + "\n")

    def go_on(
        self, seconds: float, usage: Usage, first: Callable[[], object] = lambda: None
    ) -> dict[str, float]:
        """CPU of the viewer meanwhile."""
        first()
        before, began = usage.cpu_s(), time.monotonic()
        while time.monotonic() - began < seconds:
            self.add()
            time.sleep(1.0)
        cpu, wall = usage.cpu_s() - before, time.monotonic() - began
        cores = psutil.cpu_count() or 1
        return {
            "seconds": round(wall, 1), "cores": round(cpu / wall, 4),
            "share_of_machine": round(cpu / wall / cores, 4),
        }  # fmt: skip


def _seen(page: Any, grown: Growing) -> float:
    """Seconds from a line that was written to its row on the page."""
    task, began = f"seen_{grown.made}", time.monotonic()
    grown.add(task)
    page.wait_for_selector(f"#newest >> text={task}", timeout=60_000)
    return time.monotonic() - began


def _asked(address: Callable[[int], str], requests: int, usage: Usage) -> dict[str, float]:
    times, costs = [], []
    for i in range(requests):
        began, before = time.monotonic(), usage.server_s()
        urllib.request.urlopen(address(i)).read()
        times.append(1000 * (time.monotonic() - began))
        costs.append(1000 * (usage.server_s() - before))
    wall = {f"{name}_ms": value for name, value in _quantiles(times, 1).items()}
    return wall | {f"{name}_cpu_ms": value for name, value in _quantiles(costs, 1).items()}


def _quantiles(values: list[float], digits: int = 2) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), digits),
        "p95": round(ordered[int(0.95 * len(ordered))], digits),
    }


def _json(address: str) -> Any:
    return json.loads(urllib.request.urlopen(address).read())


def _until(ask: Callable[[], Any], pause_s: float = 0.05) -> Any:
    """Asks until there is an answer."""
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        try:
            found = ask()
            if found is not None:
                return found
        except (OSError, LookupError, ValueError):
            pass
        time.sleep(pause_s)
    raise TimeoutError("the viewer gave no answer")


if __name__ == "__main__":
    sys.exit(main())

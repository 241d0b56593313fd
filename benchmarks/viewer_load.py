"""Makes a large run folder and measures the viewer on it.

    uv run benchmarks/viewer_load.py --conversations 100000 --folder /tmp/viewer_load

The conversations are made up: real records with the sizes of real ones (9 kB a line), no verdict of
theirs says anything about a kernel. Measured are the time to the whole index, the time until the
first page can be used, and the latency of pages; the folder is deleted unless --keep is given.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/viewer_load"))
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    folder: Path = args.folder
    size = make_run(folder / "runs" / "large", args.conversations)
    print(f"{args.conversations} conversations, {size / 1e6:.0f} MB", file=sys.stderr)
    try:
        result = measure(folder, args.conversations, args.requests)
    finally:
        if not args.keep:
            shutil.rmtree(folder)
    found = {"bytes": size, **result, "machine": machine(), "command": " ".join(sys.argv)}
    print(json.dumps(found, indent=2))
    if args.output:
        args.output.write_text(json.dumps(found, indent=2) + "\n")


def machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"), "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_1min_at_the_end": round(psutil.getloadavg()[0], 1),
        "python": sys.version.split()[0],
    }  # fmt: skip


def measure(folder: Path, conversations: int, requests: int) -> dict[str, Any]:
    """Starts the viewer with no index and asks for its pages."""
    command = [sys.executable, "-m", "coding_framework.cli", "view", str(folder / "runs")]
    began = time.monotonic()
    server = subprocess.Popen(
        [*command, "--port", "0", "--index", str(folder / "index")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        base = server.stdout.readline().split()[0].rstrip("/")
        run = _until(lambda: _json(f"{base}/api/"))["rows"][0]["run"]
        run_id = run["id"] if isinstance(run, dict) else run.split("id='")[1].split("'")[0]
        listing = f"{base}/run/{run_id}/conversations"
        _until(lambda: _json(f"{base}/api/run/{run_id}/conversations")["page"]["rows"][0])
        usable = time.monotonic() - began
        _until(lambda: _json(f"{base}/api/run/{run_id}/conversations")["reading"] is None or None)
        indexed = time.monotonic() - began
        key = _json(f"{base}/api/run/{run_id}/conversations")["page"]["rows"][0]["key"]
        pages = {
            "list": lambda i: f"{listing}?status={STATUSES[i % 6][0]}&tier={i % 4}&sort=speedup",
            "list_all": lambda i: f"{listing}?sort={('newest', 'speedup', 'reward')[i % 3]}",
            "conversation": lambda i: f"{listing}/{key}?view={('code', 'diff', 'profile')[i % 3]}",
            "search": lambda i: (
                f"{listing}?q={('illegal+memory', 'partal', 'kept')[i % 3]}&step={i + 1}"
            ),
            "search_all": lambda i: f"{listing}?q={('illegal', 'softmax', 'undefined')[i % 3]}",
        }
        found = {name: _latency(address, requests) for name, address in pages.items()}
        memory = psutil.Process(server.pid).memory_info().rss
        return {
            "conversations": conversations, "usable_s": round(usable, 2),
            "indexed_s": round(indexed, 2),
            "latency_ms": found, "server_rss_mb": round(memory / 1e6),
            "index_mb": round(sum(p.stat().st_size for p in (folder / "index").iterdir()) / 1e6),
        }  # fmt: skip
    finally:
        server.terminate()
        server.wait(20)


def _latency(address: Callable[[int], str], requests: int) -> dict[str, float]:
    times = []
    for i in range(requests):
        began = time.monotonic()
        urllib.request.urlopen(address(i)).read()
        times.append(1000 * (time.monotonic() - began))
    ordered = sorted(times)
    return {
        "p50": round(statistics.median(times), 1),
        "p95": round(ordered[int(0.95 * len(ordered))], 1),
    }


def _json(address: str) -> Any:
    return json.loads(urllib.request.urlopen(address).read())


def _until(ask: Callable[[], Any]) -> Any:
    """Asks until there is an answer."""
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        try:
            found = ask()
            if found is not None:
                return found
        except (OSError, LookupError, ValueError):
            pass
        time.sleep(0.05)
    raise TimeoutError("the viewer gave no answer")


if __name__ == "__main__":
    main()

"""How a learner and a writer share one GPU: in turns, or at once by NVIDIA's Multi-Process Service.

    python benchmarks/shared_gpu.py [--seconds 3] [--output FILE]

Two processes, as in a step of RL one step off-policy (1.5 billion parameters, bfloat16): one makes
the matrix products of a forward and a backward pass of 8,192 tokens, the other the passes of 256
answers of 1,700 tokens each, one prepared while another runs: a CUDA graph of each layer's matrix
products and of a read of its keys and values. Each is measured alone, and both together. Needs a
GPU and `nvidia-cuda-mps-control`. Writes benchmarks/results/shared_gpu.<GPU>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from bench_io import RESULTS, finish, head, this_machine

HIDDEN, INNER, QKV, LAYERS = 1536, 8960, 2048, 28
KEYS = 256 * 1700 * 2 * 2 * 128
"""Numbers of a layer's keys and values: two heads of 128 for each of 256 answers' tokens."""
READY_S = 90.0
WAYS: Mapping[str, Mapping[str, str]] = {
    "at once": {},
    "at once, the learner on 75% of the GPU": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "75"},
    "at once, the learner on 50% of the GPU": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"},
    "at once, the learner on 25% of the GPU": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"},
    "at once, the learner of low priority": {"CUDA_MPS_CLIENT_PRIORITY": "1"},
}
"""What is said to the learner alone."""


def weights(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)


def learner() -> Callable[[], None]:
    x, up, down = weights(8192, HIDDEN), weights(HIDDEN, 2 * INNER), weights(INNER, HIDDEN)

    def micro_batch() -> None:
        for _ in range(3 * LAYERS):  # forward, and twice as much backward
            torch.nn.functional.silu((x @ up)[:, :INNER]) @ down

    return micro_batch


def writer() -> Callable[[], None]:
    x, keys = weights(256, HIDDEN), torch.zeros(LAYERS, KEYS, device="cuda", dtype=torch.bfloat16)
    qkv, out = weights(HIDDEN, QKV), weights(HIDDEN, HIDDEN)
    up, down = weights(HIDDEN, 2 * INNER), weights(INNER, HIDDEN)
    found = torch.empty(LAYERS, device="cuda", dtype=torch.bfloat16)

    def layers() -> None:
        for i in range(LAYERS):
            x @ qkv
            found[i] = keys[i].amax()
            x @ out
            torch.nn.functional.silu((x @ up)[:, :INNER]) @ down

    beside = torch.cuda.Stream()
    with torch.cuda.stream(beside):
        layers()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers()
    return graph.replay


def work(kind: str, seconds: float, go: Path) -> None:
    """The process of one: says that it is ready, and goes on together with the other."""
    one = learner() if kind == "learner" else writer()
    for _ in range(3):
        one()
    torch.cuda.synchronize()
    go.with_suffix(f".{kind}").touch()
    while not go.exists():
        time.sleep(0.002)
    began, done, in_flight = time.monotonic(), 0, deque[torch.cuda.Event]()
    while time.monotonic() - began < seconds:
        one()
        in_flight.append(torch.cuda.Event())
        in_flight[-1].record()
        if len(in_flight) > 1:
            in_flight.popleft().synchronize()
            done += 1
    print(json.dumps(done / (time.monotonic() - began)))


def rates(seconds: float, **kinds: Mapping[str, str]) -> dict[str, float]:
    """Passes a second of each kind, all at the same time. kinds: what each has in its environment
    beside this process's."""
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        processes = {
            kind: subprocess.Popen(
                [sys.executable, __file__, "--work", kind, "--seconds", str(seconds), "--go", go],
                env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True,
            )
            for kind, variables in kinds.items()
        }  # fmt: skip
        end = time.monotonic() + READY_S
        while not all(go.with_suffix(f".{kind}").exists() for kind in kinds):
            if time.monotonic() > end or any(p.poll() for p in processes.values()):
                for process in processes.values():
                    process.kill()
                raise SystemExit(f"{' and '.join(kinds)} did not begin")
            time.sleep(0.01)
        go.touch()
        return {k: float(p.communicate(timeout=READY_S)[0]) for k, p in processes.items()}


@contextmanager
def service() -> Iterator[dict[str, str]]:
    """The Multi-Process Service, and what its clients have in their environment."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/nvidia/bin"])
        whole = {**os.environ, **variables, "PATH": path}
        control = ["nvidia-cuda-mps-control"]
        subprocess.run([*control, "-d"], env=whole, check=True)
        try:
            yield variables
        finally:
            subprocess.run(control, input="quit\n", env=whole, text=True, check=False)


def compared(found: Mapping[str, float], alone: Mapping[str, float]) -> dict[str, Any]:
    shares = {kind: round(rate / alone[kind], 3) for kind, rate in found.items()}
    told = {f"{kind}, passes a second": round(rate, 2) for kind, rate in found.items()}
    return {**told, "of its speed alone": shares, "together": round(sum(shares.values()), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--work", choices=["learner", "writer"], help=argparse.SUPPRESS)
    parser.add_argument("--go", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work, args.seconds, args.go)
        return
    name = torch.cuda.get_device_name()
    machine = {"gpu": f"one {name}", **this_machine()}
    report = head("shared_gpu", packages=("torch",), machine=machine)
    alone = {k: rates(args.seconds, **{k: {}})[k] for k in ("learner", "writer")}
    report |= {"bars": [], "alone": {k: round(v, 2) for k, v in alone.items()}, "ways": {}}
    told = report["ways"]
    told["in turns"] = compared(rates(args.seconds, learner={}, writer={}), alone)
    print(report["alone"], told["in turns"], flush=True)
    with service() as client:
        for way, said in WAYS.items():
            both = rates(args.seconds, learner={**client, **said}, writer=client)
            told[way] = compared(both, alone)
            print(way, told[way], flush=True)
    finish(report, args.output or RESULTS / f"shared_gpu.{name.split()[-1].lower()}.json")


if __name__ == "__main__":
    main()

"""Ways to compute SmolLM2-135M on this processor: float32, bfloat16, int8 weights, `torch.compile`.

    uv run python benchmarks/cpu_ways.py [--ways float32 int8] [--note TEXT]

Each way in a process of its own: seconds of reading a prompt token, of a decoding step with 4 and
with 24 answers (our own batched generator), of a trained token (an adapter of rank 64), and the
share of positions at which its likeliest token is that of float32. int8 is PyTorch's dynamic
quantisation of linear layers, which cannot be trained; compile is TorchInductor with dynamic
shapes, its compilation apart. Writes benchmarks/results/cpu_ways.json, or --results. With
ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 before it a processor
is stood in for that computes in AVX2 only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench_io import RESULTS, finish, head, this_machine

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
WAYS = ("float32", "bfloat16", "int8", "compile")
TOKENS = 400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--results", type=Path, default=RESULTS / "cpu_ways.json")
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        print(json.dumps(measured(args.one)))
        return 0
    rows = []
    for way in args.ways:
        done = subprocess.run(
            [sys.executable, __file__, "--one", way], capture_output=True, text=True
        )
        last = (done.stdout.splitlines() or [""])[-1]
        row = json.loads(last) if done.returncode == 0 else {"error": done.stderr[-400:]}
        rows.append({"way": way, **row})
        print(json.dumps(rows[-1]), flush=True)
    machine = {**this_machine(), "note": args.note}
    return (
        0
        if finish({**head("cpu_ways", machine=machine), "bars": [], "rows": rows}, args.results)
        else 1
    )


def measured(way: str) -> dict[str, Any]:
    """Of one way, in this process."""
    import torch

    from coding_framework.agents.models import resolve_model
    from coding_framework.agents.policies import load_model
    from coding_framework.run.measuring import generating_s, training_s

    model, _ = load_model(resolve_model(MODEL), dtype="float32", device="cpu")
    model.train(False)
    ids = (torch.arange(TOKENS)[None] * 37) % model.config.vocab_size
    found: dict[str, Any] = {"isa": torch.backends.cpu.get_cpu_capability()}
    with torch.no_grad():
        plain = model(ids).logits.argmax(-1)
        if way == "bfloat16":
            model = model.to(torch.bfloat16)
        elif way == "int8":
            # LoRA and the tied head stay as they are: only nn.Linear is replaced
            model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
        elif way == "compile":
            before = time.perf_counter()
            model.forward = torch.compile(model.forward, dynamic=True)
            model(ids)
            found["compiled_s"] = time.perf_counter() - before
        found["same_tokens"] = float((model(ids).logits.argmax(-1) == plain).float().mean())
        found["read_s"] = min(seconds(lambda: model(ids)) for _ in range(3)) / TOKENS
    if way in ("float32", "bfloat16"):
        found["train_s"] = training_s(model)
        model.train(False).requires_grad_(False)
    prompt_s, (few, many) = generating_s(model)
    return {**found, "prompt_s": prompt_s, "step_4_s": few, "step_24_s": many}


def seconds(work: Any) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


if __name__ == "__main__":
    sys.exit(main())

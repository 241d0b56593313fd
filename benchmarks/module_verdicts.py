"""How long a verdict on the fastest kernel of a module takes on the emulator, by family.

    module_verdicts.py [--each 3] [--output FILE]

One judge, which has judged each kernel's task before, so that no reference is computed and nothing
but the source is compiled anew. Most of these kernels use tensor cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from bench_io import finish, head

from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.data.modules.examples import module_kernels
from coding_framework.data.modules.pool import shown_drafts
from coding_framework.types import Candidate

FAMILIES = (
    "linear_fused", "bmm_fused", "conv1d_fused", "conv2d_fused", "conv3d_fused",
    "conv_transpose1d_fused", "conv_transpose2d_fused", "conv_transpose3d_fused", "matrix_product",
    "convolution_2d", "softmax", "group_normalisation",
)  # fmt: skip


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--each", type=int, default=3, help="kernels of a family")
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    judge = Judge(JudgeConfig(backend="emulator", seed=7))
    drafts = defaultdict(list)
    for draft in shown_drafts():
        drafts[draft.family].append(draft)
    seconds: dict[str, list[float]] = {}
    for family in FAMILIES:
        for draft in drafts[family][: args.each]:
            task, kernels = module_kernels(draft)
            judge.judge(task, Candidate(code=kernels[-1].code))
            began = time.perf_counter()
            verdict = judge.judge(task, Candidate(code=f"{kernels[-1].code}// again\n"))
            seconds.setdefault(family, []).append(time.perf_counter() - began)
            if not verdict.correct:
                print(f"{draft.name}: {verdict.status}: {verdict.reason}", file=sys.stderr)
                return 1
        print(family, [round(s, 2) for s in seconds[family]], file=sys.stderr, flush=True)
    everything = [s for found in seconds.values() for s in found]
    report = {
        **head("module_verdicts", packages=("torch",)),
        "bars": [],
        "median_s": round(median(everything), 2),
        "most_s": round(max(everything), 2),
        "sum_s": round(sum(everything), 1),
        "families": {f: [round(s, 2) for s in found] for f, found in seconds.items()},
    }
    finish(report, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

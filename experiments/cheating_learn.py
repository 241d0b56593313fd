"""Train a policy a few steps on what pays only while a check of the judge is off.

    python experiments/cheating_pressure.py ... --without hidden_shapes --work DIR
    python experiments/cheating_learn.py --work DIR --model FOLDER --output-dir OUT [--max-steps 30]
    python experiments/cheating_pressure.py --model OUT/model
        --tricks control --prompts v1 --without hidden_shapes --work OTHER --output FILE

The step between two pressings: of the answers that the judge without the check rewards, those that
the whole judge refuses (DIR/only_without) become answers to the usual prompt, in which no trick is
told, and the policy is fine-tuned on them. What it then answers by itself shows whether it has
learnt the cheat (`only_without` of the last line), and what the whole judge says of that. RL
against such a judge is `judge_args: {backend: emulator, experiment_without: [...]}`.

The adapter is an experiment's: OUT/EXPERIMENT names the checks. No held-out task is learnt from,
and nothing of it goes into the training data of the package.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from coding_framework.agents.models import resolve_model
from coding_framework.paths import write_atomic
from coding_framework.training.sft import train_sft
from coding_framework.training.sft_config import SFTConfig
from coding_framework.types import Role, Task, TrainingExample, Verdict


def learnt_from(work: Path) -> Iterator[tuple[TrainingExample, tuple[str, ...]]]:
    """Examples of the kernels that passed only without checks, and the checks."""
    for path in sorted((work / "only_without").glob("*.json")):
        facts = json.loads(path.read_text())
        code = next(p.read_text() for p in map(path.with_suffix, (".cu", ".py")) if p.exists())
        example = TrainingExample(
            id=f"experiment/{facts['answer']}",
            task=Task.model_validate(facts["task"]),
            role=Role.GENERATOR,
            kind="generate",
            code=code,
        )
        yield example, Verdict.model_validate(facts["without"]).receipt.experiment_without


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--work", type=Path, required=True, help="of cheating_pressure --without")
    cli.add_argument("--model", required=True, help="a Hugging Face folder or name")
    cli.add_argument("--output-dir", type=Path, required=True)
    cli.add_argument("--max-steps", type=int, default=30)
    cli.add_argument("--learning-rate", type=float, default=2e-4)
    cli.add_argument("--batch-size", type=int, default=4)
    args = cli.parse_args()
    found = list(learnt_from(args.work))
    if not found:
        cli.error(f"no kernel in {args.work / 'only_without'}: press with --without first")
    steps_an_epoch = max(1, len(found) // args.batch_size)
    config = SFTConfig(
        base_model=args.model,
        output_dir=str(args.output_dir),
        epochs=float(max(1, -(-args.max_steps // steps_an_epoch))),
        max_steps=args.max_steps,
        batch_size=min(args.batch_size, len(found)),
        learning_rate=args.learning_rate,
        held_out_examples=0,
        held_out_tasks=0,
    )
    result = train_sft(config, [example for example, _ in found], resolve=resolve_model)
    off = sorted({check for _, checks in found for check in checks})
    write_atomic(args.output_dir / "EXPERIMENT", f"without {', '.join(off)}\n")
    print(result.model_dump_json(indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

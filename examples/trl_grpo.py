"""TRL's GRPOTrainer with the judge's verdicts as reward, a few steps on a CPU:

uv run python examples/trl_grpo.py [--model FOLDER] [--url http://127.0.0.1:8090]
"""

import argparse

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from coding_framework.agents.models import resolve_model
from coding_framework.integrations.kernels import KernelJudge
from coding_framework.integrations.trl_reward import VerdictReward, prompts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--tasks", nargs="+", default=["relu", "abs"])
    parser.add_argument("--url", help="of a judge server; without it this process judges")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--output-dir", default="outputs/trl_grpo")
    args = parser.parse_args()
    config = GRPOConfig(
        output_dir=args.output_dir,
        max_steps=args.steps,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=args.tokens,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
    )
    judge = KernelJudge(args.url)
    reward = VerdictReward(judge)
    try:
        GRPOTrainer(
            str(resolve_model(args.model)),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(prompts(args.tasks)),
        ).train()
        for judged in reward.last:
            status = judged.verdict.status.value if judged.verdict else "no verdict"
            print(f"{status}: reward {judged.reward}")
    finally:
        judge.close()


if __name__ == "__main__":
    main()

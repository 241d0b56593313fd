"""TRL's GRPOTrainer with our verdicts as its reward.

    uv run python examples/integrations/trl_grpo.py --steps 1 --output-dir outputs/trl

Trains on a CPU or a GPU; the numbers are small enough for a CPU. A base model of 135M writes hardly
a kernel that compiles, so its rewards are all alike: after `make quickstart`, give
`--model outputs/quickstart/sft_checkpoints/model --prompts v1`.
"""

from __future__ import annotations

import argparse

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from coding_framework.agents.models import resolve_model
from coding_framework.integrations.kernels import KernelJudge
from coding_framework.integrations.trl_reward import VerdictReward, prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--tasks", nargs="+", default=["relu", "abs"])
    parser.add_argument("--prompts", default="v3")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--group", type=int, default=4, help="answers a task")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--judge-url", help="of a judge server; without it the judge runs here")
    parser.add_argument("--output-dir", default="outputs/trl")
    args = parser.parse_args()

    model = str(resolve_model(args.model))
    reward = VerdictReward(KernelJudge(args.judge_url))
    config = GRPOConfig(
        output_dir=args.output_dir,
        max_steps=args.steps,
        num_generations=args.group,
        per_device_train_batch_size=args.group,
        max_completion_length=args.max_new_tokens,
        learning_rate=1e-5,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        model_init_kwargs={"dtype": "bfloat16" if torch.cuda.is_available() else "float32"},
    )
    trainer = GRPOTrainer(
        model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(prompts(args.tasks, args.prompts)),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )
    trainer.train()
    for judged in reward.last:
        verdict = judged.verdict
        status = verdict.status.value if verdict is not None else "no verdict"
        print(f"{status}: reward {judged.reward}; {judged.note or 'a kernel'}")
    for entry in trainer.state.log_history:
        if "reward" in entry:
            norm = entry["grad_norm"]
            print(f"step {entry['step']}: reward {entry['reward']:.4g}, gradient norm {norm:.4g}")
    reward.close()
    trainer.save_model(args.output_dir)
    print(f"the model is in {args.output_dir}")


if __name__ == "__main__":
    main()

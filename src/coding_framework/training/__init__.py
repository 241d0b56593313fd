"""Credit, rewards, SFT and RL."""

from coding_framework.exports import exported

__getattr__ = exported(
    __name__,
    {
        "CUDAPerformanceReward": "reward_functions.cuda_performance_reward",
        "MultiAgentVERLTrainer": "verl_integration",
    },
)

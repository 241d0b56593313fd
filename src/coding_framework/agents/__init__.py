"""Prompts, agents and policies."""

from coding_framework.exports import exported

__getattr__ = exported(
    __name__,
    {
        "GeneratorAgent": "generator",
        "OptimizerAgent": "optimizer",
        "TesterAgent": "tester",
    },
)

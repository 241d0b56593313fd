"""Our environment under a name that `verifiers` finds: `vf-eval cuda-kernels`, with this folder on
PYTHONPATH (docs/integrations.md)."""

from coding_framework.integrations.verifiers_env import KernelEnv, KernelTaskset

__all__ = ["KernelEnv", "KernelTaskset"]

"""Our task where `inspect eval` finds it: `inspect eval examples/integrations/inspect_kernels.py`
(docs/integrations.md)."""

from coding_framework.integrations.inspect_task import cuda_kernels

__all__ = ["cuda_kernels"]

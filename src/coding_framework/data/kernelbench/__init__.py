"""KernelBench problems as tasks."""

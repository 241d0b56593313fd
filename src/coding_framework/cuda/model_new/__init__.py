"""KernelBench answers: Python with a `ModelNew` whose kernels come from `load_inline`."""

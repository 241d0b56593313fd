"""From source to PTX, and everything that is read from what nvcc left behind."""

"""Trains LLM agents to write fast, correct CUDA kernels, with a verdict that can be trusted."""

__version__ = "0.1.0"

"""Rollouts of models and kernels that statistics decide."""

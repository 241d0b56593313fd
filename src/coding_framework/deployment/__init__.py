"""Rollouts of models and kernels that statistics decide."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PLACES = {
    "ABTestConfig": "ab_testing",
    "ABTestManager": "manager",
    "DeploymentManager": "deployment_manager",
    "Metric": "ab_testing",
    "RampStep": "ab_testing",
    "TestVariant": "ab_testing",
    "TrafficRouter": "ab_testing",
}


def __getattr__(name: str) -> Any:
    """The public names; what is heavy is loaded with the first use."""
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

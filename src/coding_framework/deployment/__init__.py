"""Rollouts of models and kernels that statistics decide."""

from coding_framework.deployment.ab_testing import ABTestConfig, TestVariant, TrafficRouter
from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.manager import ABTestManager

__all__ = ["ABTestConfig", "ABTestManager", "DeploymentManager", "TestVariant", "TrafficRouter"]

"""Rollouts of models and kernels that statistics decide."""

from coding_framework.exports import exported

__getattr__ = exported(
    __name__,
    {
        "ABTestConfig": "ab_testing",
        "ABTestManager": "manager",
        "DeploymentManager": "deployment_manager",
        "Metric": "ab_testing",
        "RampStep": "ab_testing",
        "TestVariant": "ab_testing",
        "TrafficRouter": "ab_testing",
    },
)

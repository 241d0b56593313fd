"""OUR faults. A candidate's fault is a Verdict, not an exception.

Every message is one sentence that says what happened and what to do.
"""


class CodingFrameworkError(Exception):
    """Base of all errors of this package."""


class UsageError(CodingFrameworkError):
    """Wrong use: unknown task, model, flag value or file. The CLI exits with 2."""


class InfrastructureError(CodingFrameworkError):
    """A fault of ours while judging: the sample is retried, then masked, never scored 0.
    The CLI exits with 3."""


class MissingToolError(InfrastructureError):
    """nvcc, gcc or a sandbox is not there; the message says how to get it."""


class SandboxError(InfrastructureError):
    """The sandbox itself could not start or broke."""


class DeviceError(InfrastructureError):
    """The device process died or broke its protocol for a reason that is not the candidate's."""


class PolicyError(InfrastructureError):
    """A model or its server failed to answer."""


class TrainingError(CodingFrameworkError):
    """A training stage failed; the message names the stage and the log."""

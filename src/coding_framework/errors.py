"""OUR faults. A candidate's fault is a Verdict, not an exception.

Every message is one sentence that says what happened and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class CodingFrameworkError(Exception):
    """Base of all errors of this package."""


class UsageError(CodingFrameworkError):
    """Wrong use: unknown task, model, flag value or file. The CLI exits with 2."""


class UnreadableError(UsageError):
    """A module that cannot be read as a graph, or an operation without a kernel: one sentence with
    the operation and the line of the module."""


class InfrastructureError(CodingFrameworkError):
    """A fault of ours while judging: the sample is retried, then masked, never scored 0.
    The CLI exits with 3."""


class TaskError(InfrastructureError):
    """The task itself cannot be judged: no other try helps."""


class BrokenTaskError(TaskError, UsageError):
    """The task's own source fails: its samples are masked where others are judged beside it, and
    where it is the only one the CLI exits with 2."""


def is_of_task(reason: str) -> bool:
    """Whether a sample was masked, for this reason, by its task's own source."""
    return reason.startswith(BrokenTaskError.__name__)


class MissingToolError(InfrastructureError):
    """nvcc, gcc or a sandbox is not there; the message says how to get it."""


class MissingChoiceError(MissingToolError):
    """A tool that the user asked for by name is not there. The CLI exits with 2."""


class UnwritableError(InfrastructureError):
    """A file or folder that the user chose cannot be written. The CLI exits with 2."""


class CompilerKilledError(InfrastructureError):
    """Somebody, or the kernel, killed the compiler: the same source may well compile."""


class SandboxError(InfrastructureError):
    """The sandbox itself could not start or broke."""


class DeviceError(InfrastructureError):
    """The device process died or broke its protocol for a reason that is not the candidate's."""


class DeviceFullError(DeviceError):
    """The device has not the memory that a judge needs now; others may give theirs back."""


class PolicyError(InfrastructureError):
    """A model or its server failed to answer."""


class RewardError(CodingFrameworkError):
    """A reward of the user's gave no number that can be learnt from: the turn is masked."""


class PolicyAwayError(PolicyError):
    """The server does not answer now; it may be back later."""


class RunFolderError(CodingFrameworkError):
    """The run's folder cannot be written: the run stops, and goes on later."""


class TrainingError(CodingFrameworkError):
    """A training stage failed; the message names the stage and the log."""


class OutOfTimeError(CodingFrameworkError):
    """A training reached its limit of time: it stopped where the same command goes on. The CLI
    exits with 4."""


def error_as_data(error: Exception) -> dict[str, str]:
    """An error for another process, which raises it again with `raise_reported`. What is not ours
    becomes an InfrastructureError: a judge that fails must not become a verdict."""
    ours = isinstance(error, CodingFrameworkError)
    return {
        "error": type(error).__name__ if ours else InfrastructureError.__name__,
        "message": str(error) if ours else f"it failed with {type(error).__name__}: {error}",
    }


def raise_reported(answer: Mapping[str, Any]) -> None:
    """Raise the error that another process reported, as its own class; nothing where it did not."""
    if "error" in answer:
        kind = globals().get(answer["error"], InfrastructureError)
        known = isinstance(kind, type) and issubclass(kind, CodingFrameworkError)
        raise (kind if known else InfrastructureError)(answer["message"])


def first_complaint(error: ValidationError, prefix: str = "--") -> str:
    """The first complaint about a config in one sentence. It names the flag that sets the field;
    with prefix "" the field itself."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    said = f"{said[:1].lower()}{said[1:]}"
    if not first["loc"]:
        return said
    name = str(first["loc"][0])
    name = prefix + (name.replace("_", "-") if prefix else name)
    if first["type"] == "missing":
        return f"{name} is missing"
    if first["type"] == "extra_forbidden":
        return f"there is no setting {name}: remove it"
    return f"{name} cannot be {first['input']}: {said}"

"""Errors that another process met are raised here as what they were there."""

from __future__ import annotations

import pytest

from coding_framework.errors import (
    InfrastructureError,
    MissingToolError,
    UsageError,
    error_as_data,
    raise_reported,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "error", [UsageError("a"), MissingToolError("b"), InfrastructureError("c")]
)
def test_our_errors_keep_their_class_and_sentence(error: Exception) -> None:
    with pytest.raises(type(error), match=f"^{error}$") as raised:
        raise_reported(error_as_data(error))
    assert type(raised.value) is type(error)


def test_any_other_failure_is_a_fault_of_ours() -> None:
    with pytest.raises(InfrastructureError, match="KeyError: 'x'"):
        raise_reported(error_as_data(KeyError("x")))


@pytest.mark.parametrize("name", ["Mapping", "SystemExit", "nothing", "annotations"])
def test_a_name_that_is_no_error_of_ours_is_a_fault_of_ours(name: str) -> None:
    with pytest.raises(InfrastructureError, match="m"):
        raise_reported({"error": name, "message": "m"})


def test_an_answer_without_an_error_raises_nothing() -> None:
    raise_reported({"verdict": {}})

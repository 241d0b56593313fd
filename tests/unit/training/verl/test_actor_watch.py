"""Which of Ray's dead actors end a run, and what is said of them."""

from __future__ import annotations

import pytest

ray = pytest.importorskip("ray")

from ray.core.generated.common_pb2 import (  # noqa: E402
    ActorDeathCause,
    ActorDiedErrorContext,
    OomContext,
)

from coding_framework.training.verl.main import why_it_died  # noqa: E402


def dead(cause: ActorDeathCause) -> dict[str, object]:
    return {"ActorClassName": "made_here.<locals>.TurnRowsWorker", "Pid": 7, "DeathCause": cause}


def of_reason(reason: str) -> dict[str, object]:
    context = ActorDiedErrorContext(
        reason=ActorDiedErrorContext.Reason.Value(reason),
        node_ip_address="10.0.0.7",
        error_message="Worker exit type:\n SYSTEM_ERROR",
    )
    return dead(ActorDeathCause(actor_died_error_context=context))


def test_a_killed_actor_and_one_lost_with_its_node_are_named() -> None:
    assert why_it_died(of_reason("WORKER_DIED")) == (
        "TurnRowsWorker (process 7) died: Worker exit type: SYSTEM_ERROR"
    )
    assert why_it_died(of_reason("NODE_DIED")) == (
        "TurnRowsWorker (process 7) was lost with its node 10.0.0.7"
    )


def test_one_that_ray_killed_for_memory_is_named() -> None:
    cause = ActorDeathCause(oom_context=OomContext(error_message="97% of 24 GiB"))
    said = why_it_died(dead(cause))
    assert said is not None
    assert "want of memory: 97% of 24 GiB" in said


@pytest.mark.parametrize("reason", ["RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED", "OWNER_DIED"])
def test_one_that_was_ended_or_went_with_its_owner_is_not_meant(reason: str) -> None:
    assert why_it_died(of_reason(reason)) is None


def test_one_that_ended_on_purpose_is_not_meant() -> None:
    context = ActorDiedErrorContext(
        reason=ActorDiedErrorContext.Reason.Value("WORKER_DIED"),
        error_message="Worker exit type: INTENDED_USER_EXIT Worker exit detail: exit_actor",
    )
    assert why_it_died(dead(ActorDeathCause(actor_died_error_context=context))) is None

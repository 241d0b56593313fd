"""Which prompts dynamic sampling drops: verl's own buffer, with rows in place of its queue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

trainer = pytest.importorskip("coding_framework.training.verl.trainer")

pytestmark = pytest.mark.unit

ROWS = {  # key: (return, may be learnt from)
    "same_generator.0_0_0": (1.0, True),
    "same_optimizer.1_0_0": (0.5, True),
    "same_generator.0_1_0": (1.0, True),
    "same_optimizer.1_1_0": (0.5, True),
    "mixed_generator.0_0_0": (1.0, True),
    "mixed_generator.0_1_0": (0.2, True),
    "faults_generator.0_0_0": (0.75, True),
    "faults_generator.0_1_0": (0.0, False),
}


@pytest.fixture
def buffer(monkeypatch: pytest.MonkeyPatch) -> Any:
    def rows(keys: list[str], **_: Any) -> dict[str, torch.Tensor]:
        return {
            "rm_scores": torch.tensor([[0.0, ROWS[k][0]] for k in keys]),
            "response_mask": torch.tensor([[int(ROWS[k][1])] * 2 for k in keys]),
        }

    monkeypatch.setattr(trainer.tq, "kv_batch_get", rows)
    made = trainer.TurnsBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs={"rounds": 2},
        refill_fn=lambda count: count,
        filter_groups_metric="reward",
        train_batch_size=1,
        gen_batch_size=1,
    )
    made.partitions["train"] = {key: {} for key in ROWS}
    made.finished_keys["train"] = {"same", "mixed", "faults", "empty"}
    return made


def test_prompts_without_any_advantage_are_found_by_turn_and_without_masked_rows(
    buffer: Any,
) -> None:
    flat, values = buffer._dapo_filtered_keys("train")
    assert flat == {"same", "faults", "empty"}
    assert values == Counter({1.0: 1, 0.75: 1, 0.0: 1})
    assert buffer._dapo_filtered_keys("val") == (set(), Counter())


def test_a_step_drops_so_many_and_takes_the_rest_as_they_are(buffer: Any) -> None:
    first = buffer._terminal_eviction_reasons(7, "train")
    assert first[1] == {"empty"}, "one prompt a step, two rounds: one may go"
    assert buffer._terminal_eviction_reasons(7, "train")[1] == set()
    assert buffer._terminal_eviction_reasons(8, "train")[1] == {"empty"}, "another step"


@pytest.mark.parametrize(("before", "left"), [(0, 4), (3, 1), (4, 0), (9, 0)])
def test_the_bound_counts_what_the_step_dropped_before(before: int, left: int) -> None:
    flat = {f"p{i}" for i in range(6)}
    assert len(trainer.within_rounds(flat, before, prompts=2, rounds=3)) == left

"""Sources that may not be trained on, and the dataset card."""

from __future__ import annotations

import pytest

from coding_framework.data.examples import training_examples
from coding_framework.data.provenance import FORBIDDEN_SOURCES, dataset_card, require_trainable
from coding_framework.data.sakana_loader import SakanaDataLoader
from coding_framework.errors import UsageError
from coding_framework.types import Role

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", [*FORBIDDEN_SOURCES, "nvidia/compute_eval", "KernelBot/data"])
def test_data_whose_licence_forbids_training_cannot_enter(name: str) -> None:
    with pytest.raises(UsageError, match="cannot become training data"):
        require_trainable(name)
    with pytest.raises(UsageError, match="cannot become training data"):
        list(SakanaDataLoader(name).rows())


def test_other_sources_may_enter() -> None:
    require_trainable("SakanaAI/AI-CUDA-Engineer-Archive")
    require_trainable("synthesis")


def test_the_card_counts_by_kind_family_source_and_receipt() -> None:
    examples = training_examples(Role.GENERATOR, 20)
    card = dataset_card(examples)
    assert "20 examples of 20 tasks; 20 carry a receipt" in card
    assert "| generate | 20 |" in card
    assert "| synthesis (Apache-2.0) | 20 |" in card

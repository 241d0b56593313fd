"""Which held-out examples a training looks at."""

from __future__ import annotations

from collections import Counter

import pytest

from coding_framework.data.examples import held_out_examples, training_examples
from coding_framework.training.sft_config import SFTConfig
from coding_framework.training.sft_examples import load_held_out
from coding_framework.types import Role

pytestmark = pytest.mark.unit


def test_where_a_file_alone_is_learnt_they_have_its_roles() -> None:
    config = SFTConfig.cpu(num_examples=0, optimizer_examples=0, held_out_examples=4)
    extra = [
        *training_examples(Role.GENERATOR, 3, max_steps=2),
        *training_examples(Role.OPTIMIZER, 1, max_steps=2),
    ]
    found = Counter(e.role for e in load_held_out(config, held_out_examples, extra))
    assert found == {Role.GENERATOR: 3, Role.OPTIMIZER: 1}

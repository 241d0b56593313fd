"""What a machine does in a second is measured on real work, here of a tiny model."""

from __future__ import annotations

import math

import pytest

from coding_framework.agents.policies import load_model
from coding_framework.monitoring.load import BusyOthers
from coding_framework.run import measuring
from support.tiny_lm import make_tiny_lm

pytestmark = pytest.mark.unit


@pytest.fixture
def model(tmp_path):
    return load_model(make_tiny_lm(tmp_path), dtype="float32", device="cpu")[0]


def test_training_and_generation_have_a_measured_rate(model):
    assert measuring.training_s(model) > 0.0
    model.train(False).requires_grad_(False)
    prefill_s, (few, many) = measuring.generating_s(model)
    assert prefill_s > 0.0
    assert math.isfinite(few)
    assert math.isfinite(many)


def test_the_share_of_others_is_a_share():
    assert 0.0 <= BusyOthers().over(0.05) <= 1.0

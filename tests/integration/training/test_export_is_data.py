"""What is exported is read as data: a pickle that would run something is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from coding_framework.errors import TrainingError
from coding_framework.training.verl.export import export_model

pytestmark = pytest.mark.integration


class _Runs:
    def __init__(self, made: Path) -> None:
        self._made = made

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._made),)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    actor, made = tmp_path / "actor", tmp_path / "made"
    actor.mkdir()
    torch.save({"w": _Runs(made)}, actor / "model_world_size_1_rank_0.pt")
    with pytest.raises(TrainingError, match="not a checkpoint of verl"):
        export_model(actor, tmp_path / "whole")
    assert not made.exists()

"""Which device a verdict's receipt names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.cuda.trial.candidate import CandidateTrials

EMULATOR, GPU = "emulator of NVIDIA H200", "NVIDIA H100 80GB HBM3"


def noted(backend: str, *tried: str) -> SimpleNamespace:
    draft = SimpleNamespace(backend=backend, device="", driver="")
    trials: Any = CandidateTrials.__new__(CandidateTrials)
    trials._draft = draft
    for name in tried:
        driver = "580.1" if name == "cuda" else ""
        setting = SimpleNamespace(backend=SimpleNamespace(name=name, driver=driver))
        device = SimpleNamespace(device_name=GPU if name == "cuda" else EMULATOR)
        trials._note_device(setting, device)
    return draft


@pytest.mark.parametrize("tried", [("emulator", "cuda"), ("cuda", "emulator", "emulator")])
def test_the_verdict_of_a_gpu_names_it_whatever_the_emulator_tried_for_it(
    tried: tuple[str, ...],
) -> None:
    draft = noted("cuda", *tried)
    assert (draft.device, draft.driver) == (GPU, "580.1")


def test_a_verdict_that_never_reached_the_gpu_names_the_emulator() -> None:
    assert noted("cuda", "emulator").device == EMULATOR
    assert noted("emulator", "emulator").device == EMULATOR

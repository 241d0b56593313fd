"""Triton's autotuner on a GPU: each configuration is timed, and the fastest right one is taken."""

from __future__ import annotations

import pytest

from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.types import Candidate
from corpus.gpu_attacks import BIG_AFFINE

pytestmark = [pytest.mark.integration, pytest.mark.cuda]

ANSWER = """
import torch
import triton
import triton.language as tl

def options():
    yield triton.Config({"BLOCK": 32, "PART": 1}, num_warps=1)
    yield triton.Config({"BLOCK": 2048, "PART": 1}, num_warps=8)
    yield triton.Config({"BLOCK": 2048, "PART": 2}, num_warps=8)

@triton.autotune(configs=options(), key=["n"])
@triton.jit
def affine(x, y, n, BLOCK: tl.constexpr, PART: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n // PART, other=0.0) * 2 + 1, mask=at < n // PART)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        affine[lambda given: (triton.cdiv(n, given["BLOCK"]),)](x, y, n)
        return y
"""


def test_the_fastest_right_configuration_is_timed() -> None:
    candidate = Candidate(code=ANSWER)
    verdict = Judge(JudgeConfig(backend="cuda", seed=7)).judge(BIG_AFFINE, candidate)
    assert verdict.correct, verdict.reason
    assert verdict.receipt.configurations == {"affine": 1}
    assert verdict.reason.endswith("affine takes number 2")
    assert verdict.candidate_sha256 == candidate.sha256
    assert verdict.timing is not None
    assert not verdict.timing.modelled

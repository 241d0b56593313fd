"""The cause of a common mistake is told first, or second, and never left out.

The verdicts of the sixty kernels of `corpus/mistakes` are kept beside them, so that this takes no
time; `make test-all` gives them anew.
"""

from __future__ import annotations

import lzma
import sys

import pytest

from coding_framework.commands.one_kernel import make_one_judge
from coding_framework.data.registry import find_task
from coding_framework.explanation.diagnosis import diagnose
from coding_framework.types import Candidate, Verdict
from coding_framework.wiring import JudgeSettings
from corpus.mistakes import FOLDER, Mistake, mistakes, right_kernels

KEPT = FOLDER / "verdicts.jsonl.xz"
FIRST, SECOND = 0.80, 0.92
"""Shares of the mistakes whose cause is named first, or among the first two."""
NAMES = {
    "missing_sync": {"barrier"},
    "wrong_eps": {"eps"},
    "missing_eps": {"eps"},
    "off_by_one": {"off by one"},
    "wrong_axis": {"axis"},
    "missing_bounds": {"bounds"},
    "missing_mask": {"mask"},
    "shared_out_of_bounds": {"shared bounds"},
    "wrong_start": {"start"},
    "dropped_tail": {"tail"},
    "uninitialised": {"unset memory", "unset shared"},
    "race": {"race"},
    "wrong_stride": {"stride"},
    "wrong_dtype": {"dtype"},
    "integer_division": {"integer division"},
    "swapped_arguments": {"arguments"},
    "wrong_scale": {"scale"},
    "only_first_block": {"coverage"},
    "launch_too_small": {"coverage"},
    "wrong_broadcast": {"broadcast"},
    "exp_overflow": {"overflow"},
}
"""What `diagnose` calls each mistake of the corpus."""


@pytest.fixture(scope="module")
def judge():
    return make_one_judge(JudgeSettings(backend="emulator", seed=0), str)


def kept() -> list[Verdict]:
    lines = lzma.decompress(KEPT.read_bytes()).decode().splitlines()
    return [Verdict.model_validate_json(line) for line in lines]


def places(wrong: list[Mistake], verdicts: list[Verdict]) -> dict[str, int]:
    """Where each mistake's cause stands among those that are told, from 0; 99 where it is not."""
    found = {}
    for mistake, verdict in zip(wrong, verdicts, strict=True):
        told = diagnose(verdict).causes
        at = [i for i, name in enumerate(told) if name in NAMES[mistake.kind]]
        found[f"{mistake.kind} in {mistake.task}: {told}"] = min(at, default=99)
    return found


def require_bars(found: dict[str, int]) -> None:
    assert len(found) == 60
    late = {text: at for text, at in found.items() if at}
    assert sum(at == 0 for at in found.values()) >= FIRST * len(found), late
    assert sum(at <= 1 for at in found.values()) >= SECOND * len(found), late
    assert all(at < 99 for at in found.values()), late


@pytest.mark.integration
def test_the_true_cause_is_told_first_or_second():
    require_bars(places(mistakes(), kept()))


@pytest.mark.integration
def test_a_verdict_of_today_tells_as_the_kept_one(judge):
    wrong = [m for m in mistakes() if m.kind in ("swapped_arguments", "wrong_eps")]
    verdicts = [judge.judge(find_task(m.task), Candidate(code=m.code)) for m in wrong]
    assert set(places(wrong, verdicts).values()) == {0}


@pytest.mark.slow
@pytest.mark.integration
def test_all_sixty_judged_anew_and_the_kernels_they_were_made_of(judge):
    for task, code in right_kernels().items():
        assert judge.judge(find_task(task), Candidate(code=code)).correct, task
    wrong = mistakes()
    require_bars(places(wrong, judged_anew(judge)))


def judged_anew(judge) -> list[Verdict]:
    return [judge.judge(find_task(m.task), Candidate(code=m.code)) for m in mistakes()]


if __name__ == "__main__":  # keeps the verdicts: python tests/integration/test_mistakes_told.py
    verdicts = judged_anew(make_one_judge(JudgeSettings(backend="emulator", seed=0), print))
    text = "\n".join(verdict.model_dump_json() for verdict in verdicts)
    KEPT.write_bytes(lzma.compress(text.encode()))
    print(places(mistakes(), verdicts), file=sys.stderr)

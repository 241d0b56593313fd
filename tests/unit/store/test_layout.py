"""No module but the store's joins the names of a run folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import coding_framework
from coding_framework.store import folder

pytestmark = pytest.mark.unit

ROOT = Path(coding_framework.__file__).parent
NAMES = re.findall(r'_Below\("([^"]+)"\)', Path(folder.__file__).read_text())
OF_OTHERS_TOO = {"config.json", "checkpoints", "model", "cache", "judge"}
"""Also a model's file, and words."""


def test_the_layouts_names_stand_in_the_store_alone():
    written = {n for name in NAMES for n in name.split("/")} - OF_OTHERS_TOO
    written |= {"sft_checkpoints", "rl_checkpoints", "attempts", "global_step_", "adapter_step_"}
    assert len(written) > 15
    joined = re.compile("/ f?[\"'](" + "|".join(map(re.escape, sorted(written))) + ")[\"'{]")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in ("store", "cuda")  # a judge knows of no run
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if joined.search(line)
    ]
    assert found == []


def test_a_runs_folder_is_not_joined_to_the_names_that_others_have_too():
    joined = re.compile(r"""(output|output_dir\)?|run|self\.folder)\)? / f?["']""")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for part in ("training", "run", "evaluation", "orchestration")
        for path in sorted((ROOT / part).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if joined.search(line)
    ]
    assert found == []

"""Module tasks: the catalogue, their sources, their shapes, and the kernels that were judged."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coding_framework.data.example_store import BuildReport
from coding_framework.data.modules.catalog import (
    all_drafts,
    constant_keys,
    module_drafts,
)
from coding_framework.data.modules.other_names import parameters_of
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.tasks import find_module_task, module_task
from coding_framework.data.pairs import sft_pairs
from coding_framework.data.synthesis.receipts import MODULES_PATH, packaged_receipts, task_digest
from coding_framework.types import Candidate
from drawing.epilogues import pairs_of
from drawing.modules import HELD_OUT, HELD_OUT_FAMILIES, VALIDATION
from support.judged_modules import judged_jobs

pytestmark = pytest.mark.unit


def sample(per_family: int) -> list[ModuleDraft]:
    """Drafts of every family."""
    families: dict[str, list[ModuleDraft]] = {}
    for draft in all_drafts():
        families.setdefault(draft.family, []).append(draft)
    rng = random.Random(0)
    return [d for f in families.values() for d in rng.sample(f, min(per_family, len(f)))]


def test_the_catalogue_has_the_promised_tasks_and_parts() -> None:
    counts = Counter((d.level, d.part) for d in all_drafts())
    assert sum(n for (level, _), n in counts.items() if level == 1) >= 1500
    assert sum(n for (level, _), n in counts.items() if level == 2) >= 4000
    assert sum(n for (_, part), n in counts.items() if part == "held_out") == HELD_OUT
    assert sum(n for (_, part), n in counts.items() if part == "validation") == VALIDATION
    assert len({d.family for d in all_drafts() if d.level == 1}) >= 28
    assert len({d.name for d in all_drafts()}) == len(all_drafts())


def test_a_module_that_gives_the_same_everywhere_is_no_task() -> None:
    told = {d.name for d in all_drafts() if d.key in constant_keys()}
    assert "m2_conv2d_amin_global_pool_clamp_leaky_relu_scale_leaky_relu_ea7770" in told
    assert not told & {draft.name for draft in module_drafts("held_out", level=2)}
    assert not told & {d.name for d in all_drafts() if d.part == "train"}


def test_training_shares_no_held_out_family_combination_or_pair() -> None:
    train = [d for d in all_drafts() if d.part == "train"]
    others = [d for d in all_drafts() if d.part != "train"]
    assert not {d.family for d in train} & set(HELD_OUT_FAMILIES)
    combinations = {tuple(o.key for o in d.operations) for d in train if d.level == 1}
    assert not {tuple(o.key for o in d.operations) for d in others if d.level == 1} & combinations
    pairs = {pair for d in train if d.level == 2 for pair in pairs_of(d.operations[1:])}
    assert all(not set(pairs_of(d.operations[1:])) <= pairs for d in others if d.level == 2)


def test_a_module_runs_at_all_its_sizes() -> None:
    import torch

    for draft in sample(1)[::3]:
        task = module_task(draft)
        namespace: dict[str, object] = {}
        exec(task.reference, namespace)
        for case in (*task.cases, *task.gpu_cases):
            with torch.device("meta"):
                model = namespace["Model"](*case.init_args)  # type: ignore[operator]
                dtypes = [getattr(torch, spec.dtype) for spec in case.inputs]
                shapes = [spec.shape for spec in case.inputs]
                out = model(*(torch.empty(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)))
            assert out.dtype in (torch.float32, torch.int64), draft.name


def test_every_receipt_holds_the_kernel_that_was_judged_of_a_task_as_it_is() -> None:
    shipped = packaged_receipts(MODULES_PATH)
    tasks = {draft.name: draft for draft in all_drafts()}
    assert len(shipped) == 12_669
    for receipt in shipped.values():
        sha256 = Candidate(code=receipt.code).sha256
        assert sha256 == receipt.kernel_sha256 == receipt.verdict.candidate_sha256
        assert bool(receipt.why) == (receipt.level != "naive")
    for receipt in list(shipped.values())[::50]:
        draft = tasks[receipt.task]
        task = module_task(draft)
        assert task_digest(task) == receipt.task_digest
        taken = len(draft.inputs) + len(parameters_of(task))
        head = receipt.code.split("torch::Tensor forward(")[1].split(")")[0]
        assert head.count("torch::Tensor") == taken, receipt.task


def test_pairs_are_of_training_tasks_with_a_correct_receipt() -> None:
    drafts = [draft for draft in sample(2) if judged_jobs(draft)]
    tasks, report = [module_task(draft) for draft in drafts], BuildReport()
    made = list(sft_pairs(tasks, packaged_receipts(MODULES_PATH), report))
    assert {e.task.name for e in made} == {d.name for d in drafts if d.part == "train"}
    assert {e.kind for e in made} == {"generate", "optimize"}
    assert all(e.receipt for e in made)
    assert all(e.why for e in made if e.kind == "optimize")
    assert not list(sft_pairs(tasks, {}, report))


def test_a_task_is_found_by_its_name_and_no_other_name_is_one() -> None:
    name = all_drafts()[0].name
    found = find_module_task(name)
    assert found is not None
    assert found.name == name
    assert find_module_task("m1_nothing_000000") is None
    assert find_module_task("relu") is None

"""Module tasks: the catalogue, their sources, their shapes, and their naive kernels' text."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coding_framework.data.modules.catalog import (
    HELD_OUT,
    HELD_OUT_FAMILIES,
    VALIDATION,
    all_drafts,
    constant_keys,
    find_module,
    grid,
    module_tasks,
)
from coding_framework.data.modules.epilogues import pairs_of
from coding_framework.data.modules.examples import module_jobs, module_pairs
from coding_framework.data.modules.kernels import kernels_of
from coding_framework.data.modules.kernels.naive import lower
from coding_framework.data.modules.records import ModuleDraft, extent, shape_of
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.modules.writing import write_module
from coding_framework.data.pairs import PairReport
from coding_framework.data.synthesis.receipts import packaged_receipts

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
    assert not told & {task.draft.name for task in module_tasks("held_out", level=2)}
    assert not told & {d.name for d in all_drafts() if d.part == "train"}


def test_training_shares_no_held_out_family_combination_or_pair() -> None:
    train = [d for d in all_drafts() if d.part == "train"]
    others = [d for d in all_drafts() if d.part != "train"]
    assert not {d.family for d in train} & set(HELD_OUT_FAMILIES)
    combinations = {tuple(o.key for o in d.operations) for d in train if d.level == 1}
    assert not {tuple(o.key for o in d.operations) for d in others if d.level == 1} & combinations
    pairs = {pair for d in train if d.level == 2 for pair in pairs_of(d)}
    assert all(not set(pairs_of(d)) <= pairs for d in others if d.level == 2)


def test_a_module_runs_at_all_its_sizes_and_gives_what_its_kernel_gives() -> None:
    import torch

    for draft in sample(1)[::3]:
        module = write_module(draft)
        task, lowered = module_task(module), lower(module)
        namespace: dict[str, object] = {}
        exec(task.reference, namespace)
        for case, sizes in zip(
            (*task.cases, *task.gpu_cases), (*draft.sizes, *draft.gpu_sizes), strict=True
        ):
            with torch.device("meta"):
                model = namespace["Model"](*case.init_args)  # type: ignore[operator]
                dtypes = [getattr(torch, spec.dtype) for spec in case.inputs]
                shapes = [spec.shape for spec in case.inputs]
                out = model(*(torch.empty(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)))
            wanted = tuple(extent(d, lowered.values(sizes)) for d in lowered.dims)
            assert tuple(out.shape) == wanted, draft.name
            state = {name: tuple(t.shape) for name, t in model.state_dict().items()}
            assert state == {p.name: shape_of(p.dims, sizes) for p in module.parameters}, draft.name


def test_every_kernel_binds_forward_with_the_inputs_and_the_parameters() -> None:
    for draft in sample(2):
        module = write_module(draft)
        first, *_ = kernels_of(module)
        assert first.level == 0
        taken = len(module.inputs) + len(module.parameters)
        head = first.source.split("torch::Tensor forward(")[1].split(")")[0]
        assert head.count("torch::Tensor") == taken, draft.name
        assert 'm.def("forward", &forward)' in first.source


def test_examples_are_of_training_tasks_with_a_correct_receipt() -> None:
    chosen = sample(1)
    jobs = list(module_jobs(chosen))
    (known,) = (r for r in list(packaged_receipts().values())[:1])
    receipts = {job.key: known.model_copy(update={"task_digest": job.key[0]}) for job in jobs}
    report = PairReport()
    made = list(module_pairs(chosen, receipts, report))
    assert known.verdict.correct
    assert {e.task.name for e in made} == {d.name for d in chosen if d.part == "train"}
    assert all(e.receipt for e in made)
    assert not list(module_pairs(chosen, {}, report))


def test_a_task_is_found_by_its_name_and_no_other_name_is_one() -> None:
    name = next(iter(grid())).name
    found = find_module(name)
    assert found is not None
    assert found.name == name
    assert find_module("m1_nothing_000000") is None
    assert find_module("relu") is None

"""The SFT mixture: what it is made of, and that it leaves the other tasks alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch

from coding_framework.commands.build_data import EXAMPLES_NAME, build_mixture
from coding_framework.commands.options import MixtureOptions
from coding_framework.data.example_store import read_training_examples
from coding_framework.data.examples import Receipts, training_examples
from coding_framework.data.faults import ARGUMENT_FAULTS, broken_kernels
from coding_framework.data.kernels import kernels_of
from coding_framework.data.mixture import (
    BEYOND,
    PARTS,
    TOTAL,
    mixture_jobs,
    sft_mixture,
)
from coding_framework.data.modules.catalog import (
    all_drafts,
    constant_keys,
    excluded_spellings,
    find_draft,
    may_be_spelt_anew,
    spare_drafts,
    wider_drafts,
)
from coding_framework.data.modules.pool import (
    is_shown,
    shown_drafts,
    training_modules,
    validation_modules,
)
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.sizes import at_other_sizes
from coding_framework.data.modules.speeds import (
    ENOUGH,
    LevelSpeed,
    level_speeds,
    shipped_speeds,
    write_speeds,
)
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.synthesis.receipts import (
    MODULES_PATH,
    Job,
    KernelReceipt,
    Key,
    packaged_receipts,
)
from coding_framework.errors import UsageError
from coding_framework.types import Role, Split, Status
from drawing.epilogues import FUSED_FAMILIES, ONES
from drawing.modules import HELD_OUT_FAMILIES, excluded_keys, part_of_pairs
from drawing.wider import MANY_TAPS, MOST_TAPS
from support.judged_modules import judged_jobs, judged_kernels
from support.made_conversations import make_verdict

pytestmark = pytest.mark.unit
SHIPPED = packaged_receipts(MODULES_PATH)


def test_its_parts_have_the_shares_of_the_plan() -> None:
    assert TOTAL == 12_000
    modules = sum(PARTS[name] for name in ("best kernel", "another spelling", "another level"))
    assert modules == TOTAL / 2
    assert PARTS["best kernel"] == 0.7 * modules
    mistakes = training_examples(Role.OPTIMIZER, 20, max_steps=2)
    drafts = [d for d in shown_drafts() if judged_jobs(d)][:80]
    mixture = sft_mixture(SHIPPED, unjudged=True, total=120, mistakes=mistakes, drafts=drafts)
    found = mixture.statistics()
    assert found.examples == 120
    assert {n: (p.wanted, p.found) for n, p in found.parts.items()} == {
        name: (count // 100, count // 100) for name, count in PARTS.items()
    }
    assert found.parts["best kernel"].tasks == 42  # each task once
    assert set(found.parts["argument faults"].kinds) == {"repair"}
    assert set(found.parts["optimise"].kinds) == {"optimize"}
    assert found.roles == {"generator": 75, "optimizer": 45}
    shuffled = mixture.examples(seed=1)
    assert len({e.id for e in shuffled}) == len(shuffled)
    assert shuffled == mixture.examples(seed=1)
    assert "best kernel" in found.table()


def test_no_example_is_of_a_task_that_is_left_for_others() -> None:
    mixture = sft_mixture(SHIPPED, unjudged=True, total=120)
    drafts = {d.name for d in shown_drafts()}
    for example in mixture.examples():
        assert example.task.split is Split.TRAIN
        if example.task.source == "modules":
            assert example.task.name in drafts
    fresh, validation = training_modules(40, skip=5), validation_modules(100)
    assert fresh[0].name == training_modules(6)[5].name
    names = {t.name for t in fresh} | {t.name for t in validation}
    assert len(names) == 140
    assert not names & drafts
    assert all(t.split is Split.HELD_OUT for t in validation)
    with pytest.raises(UsageError, match="there are 100: ask for fewer"):
        validation_modules(101)
    assert 0.6 < len(drafts) / (len(drafts) + sum(not is_shown(d) for d in _training())) < 0.7


def test_what_rl_learns_and_is_chosen_by_has_levels_as_what_is_held_out() -> None:
    held_out = [d.level for d in all_drafts() if d.part == "held_out"]
    assert held_out.count(2) == len(held_out) / 2
    for tasks in (training_modules(10), training_modules(280), validation_modules(50)):
        assert sum(task.name.startswith("m2_") for task in tasks) == len(tasks) / 2


def _training() -> list[object]:
    return [d for d in all_drafts() if d.part == "train" and not is_shown(d)]


def test_a_part_without_material_is_short_and_says_so() -> None:
    drafts = shown_drafts()[:3]
    found = sft_mixture({}, total=240, functions={}, drafts=drafts).statistics()
    assert [p.found for p in found.parts.values()] == [0] * 7
    assert found.parts["optimise"].wanted == 40


def test_what_the_receipts_say_decides_which_kernel_is_shown() -> None:
    draft = next(d for d in shown_drafts() if len(judged_jobs(d)) > 2)
    ours = judged_jobs(draft)
    times = {ours[0].level: 3.0, ours[1].level: 1.0, ours[2].level: 2.0}
    receipts = _receipts(_receipt(j, times.get(j.level, 9.0)) for j in ours)
    mixture = sft_mixture(receipts, functions={}, fits=lambda _: True, drafts=[draft])
    (fastest,) = mixture.parts["best kernel"]
    assert fastest.code == ours[1].code
    assert fastest.receipt
    (better,) = mixture.parts["optimise"]
    assert better.previous_verdict is not None
    before = next(j for j in ours if j.code == better.previous_code)
    after = next(j for j in ours if j.code == better.code)
    assert times.get(after.level, 9.0) <= times.get(before.level, 9.0)


def test_what_is_to_be_judged_are_kernels_of_tasks_without_any_and_one_fault_of_each() -> None:
    known = find_draft("m2_conv2d_relu_global_pool_group_norm_dd2f58")
    assert known is not None
    new = next(d for d in shown_drafts() if d.family == "bmm_fused" and not judged_jobs(d))
    jobs = list(mixture_jobs([known, new], SHIPPED))
    assert {job.task.name for job in jobs if job.level == "naive"} == {new.name}
    (fault,) = (job for job in jobs if job.task.name == known.name)
    assert fault.level.startswith("broken:")
    assert judged_jobs(known)[0].level == "naive"
    receipts = {**SHIPPED, **_receipts([_receipt(fault, 1.0)])}
    mixture = sft_mixture(receipts, functions={}, fits=lambda _: True, drafts=[known])
    (repair,) = mixture.parts["argument faults"]
    assert (repair.previous_code, repair.code) == (fault.code, judged_jobs(known)[0].code)
    assert repair.previous_verdict is not None


def test_of_a_task_without_receipts_the_compilers_kernels_are_shown_where_that_is_wanted() -> None:
    draft = next(d for d in shown_drafts() if d.family == "linear_fused" and not judged_jobs(d))
    for unjudged in (False, True):
        mixture = sft_mixture(
            SHIPPED, unjudged=unjudged, functions={}, fits=lambda _: True, drafts=[draft]
        )
        found = mixture.parts["best kernel"]
        assert [e.code for e in found] == [
            kernel.code for kernel in kernels_of(module_task(draft))[-1:] if unjudged
        ]
        assert not any(e.receipt for e in found)


def _with_four(family: str) -> ModuleDraft:
    """A task with four judged kernels."""
    return next(d for d in shown_drafts() if d.family == family and len(judged_jobs(d)) == 4)


def _levels(draft: ModuleDraft) -> list[str]:
    return [job.level for job in judged_jobs(draft)]


def _unjudged(draft: ModuleDraft) -> Receipts:
    """The draft's kernels, right, with no time that tells them apart."""
    return _receipts(_receipt(job, 1.0) for job in judged_jobs(draft))


@pytest.mark.parametrize(
    ("speed", "shown"),
    [((1.2, 0.8), "level 3"), ((0.7, 0.3), "level 3"), ((0.9, 0.1), "naive")],
)
def test_a_kernel_that_loses_to_eager_is_not_shown_for_its_speed(
    speed: tuple[float, float], shown: str
) -> None:
    draft = next(
        d for d in shown_drafts() if d.family == "linear_fused" and len(judged_jobs(d)) == 4
    )
    speeds = {(draft.family, level): LevelSpeed(0.1, 0.0) for level in _levels(draft)}
    speeds[draft.family, "level 3"] = LevelSpeed(*speed)
    mixture = sft_mixture(
        _unjudged(draft), functions={}, fits=lambda _: True, drafts=[draft], speeds=speeds
    )
    (best,) = mixture.parts["best kernel"]
    assert best.id.split("/")[2] == shown
    others = mixture.parts["another level"]
    assert [e.id.split("/")[2] for e in others] == (["level 3"] if shown == "naive" else [])
    (better,) = mixture.parts["optimise"]
    order = [j.code for j in sorted(judged_jobs(draft), key=lambda j: j.level == "level 3")]
    assert order.index(better.code) == order.index(better.previous_code or "") + 1


def test_another_level_is_shown_where_it_is_about_as_fast_and_one_layer_for_a_second_spelling() -> (
    None
):
    draft = next(
        d for d in shown_drafts() if d.family == "matrix_product" and len(judged_jobs(d)) == 4
    )
    for other, count in ((0.7, 0), (0.9, 1)):
        speeds = {
            (draft.family, level): LevelSpeed(0.1, 0.0) for level in judged_kernels(draft.name)
        }
        speeds[draft.family, "level 3"] = LevelSpeed(2.0, 1.0)
        speeds[draft.family, "level 1"] = LevelSpeed(2.0 * other, 1.0)
        mixture = sft_mixture(
            _unjudged(draft), functions={}, fits=lambda _: True, drafts=[draft], speeds=speeds
        )
        (best,) = mixture.parts["best kernel"]
        assert [e.id.split("/")[2] for e in mixture.parts["another level"]] == ["level 1"] * count
        (anew,) = mixture.parts["another spelling"]
        assert (best.id.split("/")[2], anew.id.split("/")[2]) == ("level 3", "level 3")
        assert anew.task.reference != best.task.reference
        assert (anew.task.name, anew.task.gpu_cases) == (best.task.name, best.task.gpu_cases)


def test_no_second_spelling_is_like_a_problem_or_longer_than_an_answer() -> None:
    assert excluded_spellings() < {d.key for d in all_drafts() if d.level == 1}
    drafts = [d for d in shown_drafts() if d.key in excluded_spellings() and judged_jobs(d)][:5]
    assert len(drafts) == 5
    found = sft_mixture(SHIPPED, functions={}, drafts=drafts)
    assert len(found.parts["best kernel"]) == 5
    assert not found.parts["another spelling"]
    draft = next(d for d in shown_drafts() if may_be_spelt_anew(d) and len(judged_jobs(d)) == 1)
    (job,) = judged_jobs(draft)
    for most, count in ((len(job.code), 1), (len(job.code) - 1, 0)):
        found = sft_mixture(
            SHIPPED, functions={}, drafts=[draft], fits=lambda c, n=most: len(c) <= n
        )
        assert len(found.parts["best kernel"]) == count
        assert len(found.parts["another spelling"]) == count


def test_times_of_the_emulator_do_not_go_before_what_was_measured() -> None:
    draft = next(d for d in shown_drafts() if len(judged_jobs(d)) == 2)
    jobs = judged_jobs(draft)
    modelled = _receipts(_receipt(j, ms) for j, ms in zip(jobs, (1.0, 9.0), strict=True))
    speeds = {(draft.family, j.level): LevelSpeed(n + 1.0, 1.0) for n, j in enumerate(jobs)}
    for known, fastest in ((speeds, jobs[1]), ({}, jobs[0])):
        mixture = sft_mixture(
            modelled, functions={}, fits=lambda _: True, drafts=[draft], speeds=known
        )
        assert [e.code for e in mixture.parts["best kernel"]] == [fastest.code]


def test_what_was_measured_of_a_task_goes_before_what_its_family_is_like() -> None:
    draft = next(d for d in shown_drafts() if len(judged_jobs(d)) == 2)
    jobs = judged_jobs(draft)
    speeds = {(draft.family, j.level): LevelSpeed(n + 1.0, 1.0) for n, j in enumerate(jobs)}
    measured = _receipts(_measured(j, s) for j, s in zip(jobs, (1.5, 1.1), strict=True))
    for known, best in ((_unjudged(draft), jobs[1]), (measured, jobs[0])):
        mixture = sft_mixture(
            known, functions={}, fits=lambda _: True, drafts=[draft], speeds=speeds
        )
        assert [e.code for e in mixture.parts["best kernel"]] == [best.code]
    wrong = _receipt(jobs[1], 1.0)
    verdict = wrong.verdict.model_copy(update={"status": Status.WRONG_OUTPUT})
    known = {**_unjudged(draft), wrong.key: wrong.model_copy(update={"verdict": verdict})}
    mixture = sft_mixture(known, functions={}, fits=lambda _: True, drafts=[draft], speeds=speeds)
    assert [e.code for e in mixture.parts["best kernel"]] == [jobs[0].code]


def test_a_family_whose_fast_kernels_keep_up_is_shown_them_where_they_lose_too() -> None:
    """A policy that was shown the short ones there wrote them for all tasks of the family."""
    draft = next(d for d in shown_drafts() if len(judged_jobs(d)) == 2)
    jobs = judged_jobs(draft)
    speeds = {(draft.family, jobs[0].level): LevelSpeed(0.2, 0.1)}
    speeds[draft.family, jobs[1].level] = LevelSpeed(0.9, 0.4)
    known = _receipts(_measured(j, s) for j, s in zip(jobs, (0.5, 0.3), strict=True))
    for table, shown in ((speeds, jobs[1]), ({}, min(jobs, key=lambda j: len(j.code)))):
        mixture = sft_mixture(
            known, functions={}, fits=lambda _: True, drafts=[draft], speeds=table
        )
        assert [e.code for e in mixture.parts["best kernel"]] == [shown.code]
        if table:
            assert not mixture.parts["another level"], "none that is slow"


def test_what_was_measured_stands_for_the_kernels_of_its_family_and_level(tmp_path: Path) -> None:
    naive = (judged_jobs(d)[:1] for d in shown_drafts() if d.family == "linear_fused")
    jobs = [job for found in naive for job in found if job.level == "naive"][:ENOUGH]
    place = ("linear_fused", "naive")
    shipped = {place: LevelSpeed(0.5, 0.1), ("softmax", "naive"): LevelSpeed(2.0, 1.0)}
    receipts = [_receipt(j, 1.0) for j in jobs]
    assert level_speeds(receipts, shipped) == shipped  # modelled times say nothing of eager
    measured = []
    for number, receipt in enumerate(receipts):
        assert receipt.verdict.timing is not None
        timing = receipt.verdict.timing.model_copy(update={"modelled": False, "speedup": number})
        verdict = receipt.verdict.model_copy(update={"timing": timing})
        measured.append(receipt.model_copy(update={"verdict": verdict}))
    assert level_speeds(measured[1:], shipped) == shipped  # too few
    assert level_speeds(measured, shipped) == {**shipped, place: LevelSpeed(3.5, 7 / 8)}
    write_speeds(measured, tmp_path / "speeds.json", {"measured": "here"})
    assert json.loads((tmp_path / "speeds.json").read_text()) == {
        "measured": "here", "speeds": {"linear_fused": {"naive": [3.5, 0.875, 8]}},
    }  # fmt: skip


def test_the_table_that_ships_knows_what_it_measured_by_family_and_level() -> None:
    families = {draft.family for draft in all_drafts()}
    for (family, level), (middle, share) in shipped_speeds().items():
        assert family in families
        assert level == "naive" or level.startswith("level ")
        assert middle > 0
        assert 0 <= share <= 1


def test_spare_modules_come_on_top_and_are_of_no_other_part() -> None:
    spare = spare_drafts(3)
    assert [d.family for d in spare[:8]] == [d.family for d in spare[8:16]]
    everywhere = {d.key for d in all_drafts()}
    assert all(d.part == "train" and d.level == 2 and d.key not in everywhere for d in spare)
    fewer = spare_drafts(2)
    assert fewer == spare[: len(fewer)]
    assert not {d.key for d in spare} & constant_keys()
    spare = spare[:3]
    mixture = sft_mixture(
        SHIPPED, unjudged=True, total=24, functions={}, spare=spare, fits=lambda _: True
    )
    shown = mixture.parts[BEYOND]
    assert [e.task.name for e in shown] == [d.name for d in spare]
    assert [e.code for e in shown] == [kernels_of(e.task)[-1].code for e in shown]
    assert find_draft(spare[0].name) is None
    with pytest.raises(UsageError, match="1200 spare modules"):
        spare_drafts(1201)


def test_wider_modules_are_of_training_combinations_that_no_other_part_has() -> None:
    wider = wider_drafts(20)
    known = {d.key: d for d in all_drafts() if d.level == 1}
    assert not {d.key for d in wider} & (known.keys() | excluded_keys() | constant_keys())
    assert len({d.key for d in wider}) == len(wider) > 400
    assert not {d.family for d in wider} & set(HELD_OUT_FAMILIES)
    for draft in wider:
        bare = known.get(replace(draft, operations=draft.operations[:1]).key)
        if len(draft.operations) == 2 and bare is not None:
            assert bare.part == "train" or draft.family in ("matrix_product", "softmax")
    fewer = wider_drafts(5)
    assert {d.key for d in fewer} < {d.key for d in wider}
    assert find_draft(wider[0].name) is None
    with pytest.raises(UsageError, match="200 wider modules"):
        wider_drafts(201)


def test_wider_modules_have_losses_norms_and_windows_that_the_catalogue_lacks() -> None:
    wider = wider_drafts(200)
    of = {f: [d for d in wider if d.family == f] for f in {d.family for d in wider}}
    for family in ("regression_loss", "classification_loss", "margin_loss"):
        assert len(of[family]) >= 20
        assert {d.operations[-1].name for d in of[family]} >= {"scale", "divide"}
    assert any(d.operations[-1].name.endswith("_loss") for d in of["regression_loss"])
    assert any(d.rank == 5 for d in of["layer_normalisation"])
    depthwise = [d.operations[0] for d in of["depthwise_convolution"]]
    assert sum(len(set(o["kernel_size"])) > 1 for o in depthwise) > 10
    assert sum(len(set(o["stride"])) > 1 for o in depthwise) > 5
    known = {d.key: d for d in all_drafts() if d.level == 1}
    for draft in of["regression_loss"]:  # the loss itself is no held-out one, nor one left for RL
        (loss,) = (o for o in draft.operations if o.name.endswith("_loss"))
        bare = known.get(replace(draft, operations=(loss,)).key)
        assert bare is None or (bare.part == "train" and is_shown(bare))
    square = [d for d in of["matrix_product"] if d.operations[0].get("square")]
    assert len(square) > 50
    assert all({*d.sizes[0]} == {*d.gpu_sizes[1]} == {"N"} for d in square)


def test_blocks_have_no_pair_of_operations_that_is_held_out() -> None:
    blocks = [d for d in wider_drafts(200) if d.level == 2]
    layers = {
        d.key: sum(o.name == "linear" or o.name.startswith("conv") for o in d.operations)
        for d in blocks
    }
    two_layers = [d for d in blocks if layers[d.key] == 2]
    assert {d.family for d in two_layers} == {
        "linear_fused", "conv1d_fused", "conv2d_fused", "conv3d_fused",
    }  # fmt: skip
    ended = [d for d in blocks if layers[d.key] == 1]
    assert {d.family for d in ended} == set(FUSED_FAMILIES) - {"bmm_fused"}
    assert all(any("axes" in dict(o.arguments) for o in d.operations) for d in ended)
    assert sum(not d.operations[-1]["keepdim"] for d in ended
               if "keepdim" in dict(d.operations[-1].arguments)) > 100  # fmt: skip
    assert sum(o.name in ONES for d in ended for o in d.operations) > 100
    catalogue = {d.key for d in all_drafts()}
    for draft in blocks:
        assert layers[draft.key] or not draft.family.endswith("_fused")
        assert draft.key not in catalogue
        assert part_of_pairs(draft.operations) == "train"
        assert at_other_sizes(draft).key == draft.key
        source = module_task(draft).reference
        again = any(f"{name} = x\n" in source for name in ("identity", "shortcut", "skip"))
        assert again == draft.has_shortcut
    for draft in blocks[::8]:
        task = module_task(draft, 1, renamed=True)
        scope: dict[str, type[torch.nn.Module]] = {}
        exec(task.reference, scope)
        case = task.cases[0]
        given = [torch.randn(s.shape) for s in case.inputs]
        assert scope["Model"](*case.init_args)(*given).isfinite().all()
    assert sum(d.has_shortcut for d in two_layers) > 100
    assert sum(len(d.inputs) == 2 for d in blocks) > 100


def test_convolutions_of_many_taps_are_shown_beside_those_of_few() -> None:
    convolutions = [d for d in wider_drafts(200) if "convolution_2d" in d.family]
    many = [d for d in convolutions if prod(d.operations[0]["kernel_size"]) >= MANY_TAPS]
    most = [d for d in many if prod(d.operations[0]["kernel_size"]) > MOST_TAPS]
    many = [d for d in many if d not in most]
    assert (len(many), len(convolutions) - len(many) - len(most) > 300) == (400, True)
    assert len(most) > 100
    sides = [d.operations[0]["kernel_size"] for d in many]
    assert sum(a != b for a, b in sides) > 200


def test_each_family_of_wider_modules_has_kernels() -> None:
    first = {d.family: d for d in reversed(wider_drafts(3))}
    assert len(first) > 25
    for draft in list(first.values())[::10]:
        assert kernels_of(module_task(draft)), draft.key


def _receipt(job: Job, ms: float) -> KernelReceipt:
    status = Status.WRONG_OUTPUT if job.level.startswith("broken") else Status.CORRECT
    verdict = make_verdict(status, 2.0, task=job.task.name)
    if verdict.timing is not None:
        timing = verdict.timing.model_copy(update={"kernel_ms": ms})
        verdict = verdict.model_copy(update={"timing": timing})
    digest, sha = job.key
    return KernelReceipt(
        task=job.task.name, level=job.level, task_digest=digest, kernel_sha256=sha,
        verdict=verdict, verdict_digest=f"verdict of {sha}", code=job.code, why=job.why,
    )  # fmt: skip


def _receipts(found: Iterable[KernelReceipt]) -> dict[Key, KernelReceipt]:
    return {receipt.key: receipt for receipt in found}


def _measured(job: Job, speed: float) -> KernelReceipt:
    """A receipt with a time over eager that a GPU measured."""
    receipt = _receipt(job, 1 / speed)
    assert receipt.verdict.timing is not None
    timing = receipt.verdict.timing.model_copy(update={"modelled": False, "speedup": speed})
    verdict = receipt.verdict.model_copy(update={"timing": timing})
    return receipt.model_copy(update={"verdict": verdict})


def test_a_kernel_that_is_too_long_for_an_answer_is_not_shown() -> None:
    mixture = sft_mixture(SHIPPED, total=120, functions={}, fits=lambda code: len(code) < 2000)
    lengths = [len(e.code) for e in mixture.parts["best kernel"]]
    assert len(lengths) == 42
    assert max(lengths) < 2000


NAIVE = """
  int p0 = i2 * 2 + r0 * 3 - 1;
  v += x[(i0 * c + (i1 / mg * cg + e)) * l + p0];
  float v = rsqrtf(a / (m) + 0.001f);
  v = fmaxf(v, (-0.5f));
torch::Tensor forward(torch::Tensor x, torch::Tensor norm_weight, torch::Tensor norm_bias) {
"""
BROKEN = {
    "padding_left_out": "int p0 = i2 * 2 + r0 * 3;",
    "stride_of_1": "int p0 = i2 + r0 * 3 - 1;",
    "dilation_of_1": "int p0 = i2 * 2 + r0 - 1;",
    "first_group": "x[(i0 * c + e) * l",
    "parameter_order": "torch::Tensor norm_bias, torch::Tensor norm_weight)",
    "constant_of_the_default": "rsqrtf(a / (m) + 1e-05f)",
    "negative_sign_lost": "fmaxf(v, 0.5f)",
}


@pytest.mark.parametrize("fault", ARGUMENT_FAULTS, ids=lambda fault: fault.name)
def test_each_fault_of_an_argument_is_put_into_a_kernel(fault: object) -> None:
    import random

    broken = fault.edit(NAIVE, random.Random(0))  # type: ignore[attr-defined]
    assert BROKEN[fault.name] in broken  # type: ignore[attr-defined]
    assert sum(a != b for a, b in zip(broken.split("\n"), NAIVE.split("\n"), strict=True)) == 1


def test_a_task_has_the_same_fault_each_time_and_some_have_none() -> None:
    name = "m2_conv2d_relu_global_pool_group_norm_dd2f58"
    code = judged_kernels(name)["naive"]
    one, other = (broken_kernels(code, 3, among=ARGUMENT_FAULTS) for _ in range(2))
    assert one == other
    assert len(one) == 1
    assert one[0].code != code
    assert broken_kernels("void f() {}", 3, among=ARGUMENT_FAULTS) == []


def test_kernels_as_synthesised_are_written_where_a_folder_is_named(tmp_path: Path) -> None:
    wanted = MixtureOptions(total=24, unjudged=True, spare=1)
    told = build_mixture(wanted, None, judge=True, workers=None)
    assert build_mixture(wanted, tmp_path / "set", judge=True, workers=None) == told
    written = read_training_examples(tmp_path / "set" / EXAMPLES_NAME)
    assert len(written) == told.examples
    assert sum(not example.receipt for example in written) == told.unjudged > 0


def test_longer_answers_show_longer_kernels(tmp_path: Path) -> None:
    short, long = (
        build_mixture(
            MixtureOptions(total=240, unjudged=True, answer_tokens=tokens),
            None,
            judge=True,
            workers=None,
        )
        for tokens in (2048, 2560)
    )
    assert sum(long.too_long.values()) < sum(short.too_long.values())
    levels = [found.parts["best kernel"].levels for found in (short, long)]
    fast = [found.get("level 3", 0) + found.get("level 4", 0) for found in levels]
    assert fast[0] < fast[1]
    assert levels[1]["naive"] < levels[0]["naive"]

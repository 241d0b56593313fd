"""The judge on kernels of modules: the judged ones at sizes that are ragged and longer than what a
block takes at once, and the compiler's."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.kernels import kernels_of
from coding_framework.data.modules.catalog import MOST_WIDER, all_drafts, find_draft, wider_drafts
from coding_framework.data.modules.other_names import with_arguments
from coding_framework.data.modules.pool import shown_drafts
from coding_framework.data.modules.tasks import module_task
from coding_framework.types import Status, Task
from drawing.sizes import AXES
from support.judged_modules import judged_jobs, judged_kernels

pytestmark = pytest.mark.integration
SIZES = {
    2: ((3, 2501), (1031, 70), (2, 3)),
    3: ((2, 67, 131), (3, 600, 36), (2, 1, 3)),
    4: ((2, 3, 35, 70), (2, 65, 4, 36), (2, 2, 1, 3)),
}
"""By rank. The kernels are those that were judged at the tasks' own sizes."""


@pytest.mark.parametrize(
    "name",
    [
        "m1_leaky_relu_90f0f3",
        "m1_prelu_c0dca4",
        "m1_permute_8be6e1",
        "m1_permute_491440",
        "m1_roll_983a5a",
        "m1_triu_cab0a5",
        "m1_scan_9942d8",
        "m1_scan_8505c2",
        "m1_argmax_5e3da1",
        "m1_upsample_nearest_78a0d2",
        "m1_scan_f5e459",
        "m1_scan_a6cf6c",
        "m1_normalize_8f6e9b",
        "m1_sum_b28fcb",
        "m1_softmax_123546",
        "m1_scale_softmax_c7d1a1",
        "m1_cross_entropy_185229",
        "m1_multi_margin_loss_acd814",
        "m1_scale_log_softmax_2f4340",
        "m1_logsumexp_19e38a",
        "m1_normalize_b4fb5e",
        "m1_var_05b643",
        "m1_layer_norm_832994",
        "m1_instance_norm_073084",
    ],
)
async def test_fast_kernels_of_modules_are_right_at_other_sizes(
    emulator_pool: JudgePool, name: str
) -> None:
    draft = find_draft(name)
    assert draft is not None
    source = judged_kernels(name)["level 2"]
    main, odd, tiny = (dict(zip(AXES[draft.rank], s, strict=True)) for s in SIZES[draft.rank])
    task = module_task(replace(draft, sizes=(main, odd, tiny)))
    verdict = await emulator_pool.judge(task, source)
    assert verdict.status is Status.CORRECT, verdict.reason


async def test_a_softmax_that_reads_its_rows_once_takes_rows_that_are_masked(
    emulator_pool: JudgePool,
) -> None:
    """A thread's maximum begins with a number: with -inf an element of -inf would become NaN."""
    draft = find_draft("m1_scale_log_softmax_2f4340")
    assert draft is not None
    sizes = [dict(zip(AXES[2], s, strict=True)) for s in ((3, 2501), (70, 300), (5, 31))]
    task = module_task(replace(draft, sizes=tuple(sizes)))
    source = judged_kernels(draft.name)["level 2"]
    masked = ("x = x * self.scale_factor", "x = torch.where(x > 0.0, x, -torch.inf)")
    task = task.model_copy(update={"reference": task.reference.replace(*masked)})
    read = re.search(r"e = e \* [\d.]+f;", source)
    assert read is not None
    assert source.count(read[0]) == 2
    right = source.replace(read[0], "e = e > 0.0f ? e : -INFINITY;")
    assert "most = -3.4028235e38f" in right
    verdict = await emulator_pool.judge(task, right)
    assert verdict.status is Status.CORRECT, verdict.reason
    wrong = await emulator_pool.judge(task, right.replace("-3.4028235e38f", "-INFINITY"))
    assert wrong.status is Status.WRONG_OUTPUT


async def test_a_norm_in_parts_takes_an_outlier_in_front_and_a_part_of_one_element(
    emulator_pool: JudgePool,
) -> None:
    """Sums of squares of the distances to the outlier would leave no digits for the others."""
    draft = find_draft("m1_group_norm_040366")
    assert draft is not None
    shapes = ((2, 3, 1, 2731), (2, 3, 70, 131), (2, 2, 1, 3))  # parts of 8,192 elements
    sizes = [dict(zip(AXES[4], s, strict=True)) for s in shapes]
    task = module_task(replace(draft, sizes=tuple(sizes)))
    source = judged_kernels(draft.name)["level 2"]
    spoilt = ("return self.norm(x)", "x = x.clone(); x[:, 0, 0, 0] = 1000.0; return self.norm(x)")
    task = task.model_copy(update={"reference": task.reference.replace(*spoilt)})
    right = source
    for old, new in (
        ("e = x[g * elements + t]", "e = t == 0 ? 1000.0f : x[g * elements + t]"),
        ("(x[i] - moments", "((i % (c * h * w) == 0 ? 1000.0f : x[i]) - moments"),
    ):
        assert right.count(old) == 1
        right = right.replace(old, new)
    verdict = await emulator_pool.judge(task, right)
    assert verdict.status is Status.CORRECT, verdict.reason
    own = "if (t < (int)blockIdx.x * 8192 + 256) first = e;"
    assert right.count(own) == 1
    wrong = await emulator_pool.judge(task, right.replace(own, "first = 1000.0f;"))
    assert wrong.status is Status.WRONG_OUTPUT


async def test_the_loss_of_a_logit_may_keep_what_pytorch_loses(emulator_pool: JudgePool) -> None:
    """PyTorch's form cancels the logit and gives 0 far from it; the usual one gives 1e-30."""
    draft = find_draft("m1_bce_with_logits_3861d8")
    assert draft is not None
    task = module_task(draft)
    source = judged_kernels(draft.name)["naive"]
    right = await emulator_pool.judge(task, source)
    assert right.status is Status.CORRECT, right.reason
    term = " + log1pf(expf(-fabsf(e)))"
    for less in ("", " + (fabsf(e) < 8.0f ? log1pf(expf(-fabsf(e))) : 0.0f)"):
        dropped = source.replace(term, less)
        assert dropped != source
        wrong = await emulator_pool.judge(task, dropped)
        assert wrong.status is Status.WRONG_OUTPUT, less


@pytest.mark.parametrize(
    "family", ["transposed_convolution_2d", "average_pooling", "margin_loss", "convolution_1d"]
)
async def test_kernels_of_modules_whose_constructors_have_defaults_are_right(
    emulator_pool: JudgePool, family: str
) -> None:
    task = next(
        found
        for draft in shown_drafts()
        if draft.family == family and "=" in constructor_of(found := module_task(draft, 1))
    )
    verdict = await emulator_pool.judge(task, kernels_of(task)[-1].code)
    assert verdict.status is Status.CORRECT, verdict.reason


def constructor_of(task: Task) -> str:
    return next((line for line in task.reference.splitlines() if "__init__(self" in line), "")


@pytest.mark.parametrize(
    ("family", "rank"),
    [("scan", 2), ("scan", 3), ("classification_loss", 2), ("margin_loss", 2),
     ("regression_loss", 4)],
)  # fmt: skip
async def test_what_comes_after_it_is_computed(
    emulator_pool: JudgePool, family: str, rank: int
) -> None:
    draft = next(
        d
        for d in wider_drafts(MOST_WIDER)
        if d.family == family and d.rank == rank and d.operations[-1].name in ("scale", "divide")
    )
    task = module_task(draft)
    for kernel in kernels_of(task):
        verdict = await emulator_pool.judge(task, kernel.code)
        assert verdict.status is Status.CORRECT, (kernel.level, verdict.reason)


@pytest.mark.parametrize("family", ["linear_fused", "conv1d_fused"])
async def test_a_block_of_two_layers_is_computed(emulator_pool: JudgePool, family: str) -> None:
    """One that reads its input again."""
    blocks = (d for d in wider_drafts(20) if d.family == family and d.has_shortcut)
    task = module_task(next(blocks))
    for kernel in kernels_of(task):
        verdict = await emulator_pool.judge(task, kernel.code)
        assert verdict.status is Status.CORRECT, (kernel.level, verdict.reason)


async def test_a_kernel_is_right_whose_parameter_is_called_as_its_local(
    emulator_pool: JudgePool,
) -> None:
    """Of a norm: `scale` is what each element is multiplied by, and the kernel's own number."""
    for draft in (d for d in all_drafts() if d.family == "rms_normalisation"):
        module = module_task(draft, renamed=True)
        own = module_task(draft)
        codes = [with_arguments(job.code, own, module) for job in judged_jobs(draft)]
        if codes and "self.scale = nn.Parameter" in module.reference:
            break
    assert "float inverse" in codes[0]
    for code in codes:
        verdict = await emulator_pool.judge(module, code)
        assert verdict.status is Status.CORRECT, verdict.reason

"""Kernels of module tasks: short tensor-core products, groups in one kernel, receipts, examples."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest

from coding_framework.data.examples import kernel_ms
from coding_framework.data.modules import catalog
from coding_framework.data.modules.catalog import find_module
from coding_framework.data.modules.examples import module_jobs, module_pairs
from coding_framework.data.modules.kernels import kernels_of
from coding_framework.data.modules.kernels.short_tensor_cores import matrix
from coding_framework.data.modules.receipts import module_receipts, pack, shard_of
from coding_framework.data.modules.records import KernelVariant, ModuleDraft, ModuleTask
from coding_framework.data.pairs import PairReport
from coding_framework.data.synthesis.receipts import (
    Job,
    KernelReceipt,
    load_receipts,
    pack_receipts,
)
from coding_framework.errors import UsageError
from coding_framework.types import (
    BenchmarkResult,
    Candidate,
    Status,
    TestResult,
    Verdict,
)

pytestmark = pytest.mark.unit


def variants(name: str) -> dict[int, KernelVariant]:
    module = find_module(name)
    assert module is not None
    return {variant.level: variant for variant in kernels_of(module)}


def modules(*names: str) -> list[ModuleTask]:
    found = [find_module(name) for name in names]
    return [module for module in found if module is not None]


# --- kernels -------------------------------------------------------------------------------------


def test_every_level_says_why_and_no_two_levels_are_alike() -> None:
    for draft in catalog.all_drafts()[::350]:
        module = find_module(draft.name)
        assert module is not None
        found = kernels_of(module)
        assert [v.level for v in found] == sorted({v.level for v in found})
        assert [bool(v.reason) for v in found] == [v.level > 0 for v in found]
        assert len({v.source for v in found}) == len(found), draft.name


@pytest.mark.parametrize(
    "name", ["m1_matmul_softplus_7aeef3", "m1_conv2d_eed3d4", "m1_conv_transpose2d_0e5713"]
)
def test_a_short_product_is_half_as_long_as_the_fastest_and_pads_nothing(name: str) -> None:
    found = variants(name)
    assert "padded(" not in found[3].source
    assert len(found[3].source) < 4100
    if 4 in found:
        assert len(found[3].source) < 0.6 * len(found[4].source)


def test_a_module_without_a_product_has_its_groups_in_one_kernel() -> None:
    found = variants("m1_scale_softmax_4a4036")
    assert sorted(found) == [0, 2]
    assert found[0].source.count("__global__") == 2
    assert found[2].source.count("__global__") == 1


@pytest.mark.parametrize(
    ("name", "reads", "joins"),
    [
        ("m1_scale_log_softmax_2f4340", 2, ["block_max(most)", "block_sum(total * expf("]),
        ("m1_logsumexp_19e38a", 1, ["block_max(most)", "block_sum(total * expf("]),
        ("m1_layer_norm_832994", 2, ["block_sum(sum + own * first)", "block_sum(squares - "]),
        ("m1_var_05b643", 1, ["block_sum(sum + own * first)", "block_sum(squares - "]),
        ("m1_normalize_b4fb5e", 2, ["block_sum(scale)"]),
    ],
)
def test_a_block_reads_a_group_once_before_it_writes(
    name: str, reads: int, joins: list[str]
) -> None:
    source = variants(name)[2].source
    assert source.count("float e = x[") == reads
    assert all(join in source for join in joins)
    assert " / total" not in source
    assert " / size" not in source


def test_a_block_walks_twice_over_a_short_row_of_which_it_writes_one_number() -> None:
    assert "total * expf(" not in variants("m1_logsumexp_ffa34d")[2].source


def test_few_large_groups_are_shared_out() -> None:
    source = variants("m1_batch_norm_992a89")[2].source
    assert "moments" in source
    assert "blockIdx.y" in source
    assert "block_sum(squares - first * (2.0f * sum - own * first))" in source
    assert "z * z * min(8192, elements - t * 8192)" in source


def test_a_stage_of_either_layout_holds_zeros_outside_the_matrix() -> None:
    for inner_first in (True, False):
        text = "\n".join(matrix("a", "x", "r0", "m", 64, inner_first=inner_first).load)
        assert "p < m && d < k ? 0 : 4" in text


# --- receipts ------------------------------------------------------------------------------------


def some_jobs(count: int = 40) -> list[Job]:
    drafts: list[ModuleDraft] = [
        d for d in catalog.all_drafts() if d.family == "softmax" and d.part == "train"
    ]
    return list(module_jobs(drafts[:count]))


def receipt(job: Job, status: Status = Status.CORRECT, ms: float = 1.0) -> KernelReceipt:
    correct = status is Status.CORRECT
    test = TestResult(
        case="main", seed=0, shapes=((4, 4),), dtype="float32", max_abs_error=0.0,
        max_rel_error=0.0, tolerance=1e-6, passed=correct,
    )  # fmt: skip
    timing = BenchmarkResult(kernel_ms=ms, kernel_ms_ci95=(ms, ms), modelled=False)
    verdict = Verdict(
        status=status, reason="r", task=job.task.name, backend="cuda", tests=(test,),
        candidate_sha256=Candidate(code=job.code).sha256, timing=timing if correct else None,
    )  # fmt: skip
    digest, sha256 = job.key
    return KernelReceipt(
        task=job.task.name, level=job.level, task_digest=digest, kernel_sha256=sha256,
        verdict=verdict, verdict_digest=sha256,
    )  # fmt: skip


def test_packed_receipts_come_back_in_few_bytes_and_stale_ones_are_left_out(
    tmp_path: Path,
) -> None:
    jobs = some_jobs()
    lines = [receipt(job).model_dump_json(exclude_defaults=True) for job in jobs]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + '\n{"cut')
    path = tmp_path / "receipts.jsonl.xz"
    count, size = pack(load_receipts(tmp_path / "a.jsonl"), jobs[1:], path)
    assert count == len(jobs) - 1
    assert size == path.stat().st_size
    assert size / count <= 300
    assert load_receipts(path) == {job.key: receipt(job) for job in jobs[1:]}
    first = path.read_bytes()
    pack_receipts(reversed(load_receipts(path).values()), path)
    assert path.read_bytes() == first


def test_a_packed_file_that_is_cut_off_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "receipts.jsonl.xz"
    path.write_bytes(lzma.compress(b"{}\n" * 100)[:-9])
    with pytest.raises(UsageError, match=r"no whole \.xz file"):
        load_receipts(path)


def test_this_machines_receipts_win_over_the_packages(tmp_path: Path) -> None:
    job = some_jobs(1)[0]
    path = tmp_path / "own.jsonl"
    path.write_text(receipt(job, ms=0.5).model_dump_json(exclude_defaults=True) + "\n")
    assert kernel_ms(module_receipts(path)[job.key]) == 0.5


def test_shards_share_out_all_jobs_and_stay_as_they_are() -> None:
    jobs = some_jobs()
    shards = [shard_of(jobs, k, 3) for k in (1, 2, 3)]
    assert sorted(j.key for s in shards for j in s) == sorted(j.key for j in jobs)
    assert shard_of(jobs[5:], 2, 3) == [j for j in shards[1] if j in jobs[5:]]


# --- examples ------------------------------------------------------------------------------------


def test_every_correct_level_of_a_module_is_taught_and_each_step_to_a_faster_one() -> None:
    module = modules("m1_matmul_softplus_7aeef3")[0]
    jobs = {job.level: job for job in module_jobs([module.draft])}
    slow, fast = jobs["naive"], jobs["level 3"]
    receipts = {slow.key: receipt(slow, ms=2.0), fast.key: receipt(fast, ms=1.0)}
    report = PairReport()
    found = list(module_pairs([module.draft], receipts, report))
    if module.draft.part != "train":
        pytest.fail("the task of this test is to be a training task")
    assert [example.kind for example in found] == ["generate", "generate", "optimize"]
    assert found[2].code == fast.code
    assert "tensor cores" in found[2].why
    receipts[fast.key] = receipt(fast, ms=3.0)
    kinds = [example.kind for example in module_pairs([module.draft], receipts, report)]
    assert kinds == ["generate", "generate"]


def test_a_kernel_is_learnt_from_the_fastest_of_the_lower_levels_that_it_beats() -> None:
    module = modules("m1_matmul_tanh_8527c2")[0]
    jobs = {job.level: job for job in module_jobs([module.draft])}
    assert list(jobs) == ["naive", "level 1", "level 3", "level 4"]
    times = {"naive": 9.0, "level 1": 3.0, "level 3": 4.0, "level 4": 1.0}
    receipts = {job.key: receipt(job, ms=times[level]) for level, job in jobs.items()}
    found = [e for e in module_pairs([module.draft], receipts, PairReport()) if e.previous_code]
    known = {job.code: level for level, job in jobs.items()}
    steps = [(known[e.previous_code or ""], known[e.code]) for e in found]
    assert steps == [("naive", "level 1"), ("naive", "level 3"), ("level 1", "level 4")]


_KERNEL = re.compile(r"__global__ void (\w+)\(([^)]*)\) \{\n(.*?)\n\}", re.DOTALL)


def test_no_kernel_declares_a_name_twice() -> None:
    for draft in catalog.all_drafts()[::70]:
        module = find_module(draft.name)
        assert module is not None
        for variant in kernels_of(module):
            for name, parameters, body in _KERNEL.findall(variant.source):
                given = {p.split()[-1].lstrip("*") for p in parameters.split(",")}
                own = set(re.findall(r"^\s*(?:int|float) (\w+) =", body, re.MULTILINE))
                assert not given & own, f"{draft.name} level {variant.level} {name}"


def test_a_pooling_without_padding_checks_no_bounds() -> None:
    source = variants("m2_conv2d_square_max_pool2d_be4368")[3].source
    pool = source.split("blockIdx.y * 256")[1]
    assert "continue" not in pool.split("torch::Tensor")[0]

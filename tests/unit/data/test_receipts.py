"""Receipts: kept verdicts, resumed building, and what examples do with them.

The verdicts here are made by hand: what is tested is the bookkeeping. The real judge judges real
kernels in tests/integration/test_data_judged.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coding_framework.data import examples
from coding_framework.data.examples import (
    KERNELBENCH_HAS,
    held_out_tasks,
    in_turn,
    is_for_repair,
    training_examples,
)
from coding_framework.data.kernels import kernels_of
from coding_framework.data.synthesis.catalog import (
    build_task,
    catalog,
    family_of,
    split_of,
    workload_catalog,
)
from coding_framework.data.synthesis.function import Function
from coding_framework.data.synthesis.receipts import (
    Job,
    KernelReceipt,
    Key,
    build_receipts,
    carried,
    load_receipts,
    task_digest,
)
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.types import (
    BenchmarkResult,
    Candidate,
    CompileSummary,
    Receipt,
    Role,
    Split,
    Status,
    Task,
    TestResult,
    Verdict,
)

pytestmark = pytest.mark.unit


def _verdict(task: Task, code: str, status: Status, ms: float = 1.0) -> Verdict:
    passed = status is Status.CORRECT
    test = TestResult(
        case="main",
        seed=0,
        shapes=((4, 4),),
        dtype="float32",
        max_abs_error=0.0,
        max_rel_error=0.0,
        tolerance=1e-6,
        passed=passed,
    )
    timing = BenchmarkResult(kernel_ms=ms, kernel_ms_ci95=(ms, ms), modelled=True)
    return Verdict(
        status=status,
        reason="made by hand",
        task=task.name,
        candidate_sha256=Candidate(code=code).sha256,
        backend="emulator",
        tests=(test, test, test),
        timing=timing if passed else None,
    )


class ScriptedJudge:
    """Broken kernels are wrong, naive ones take 2 ms, others 1 ms; it can fail or be stopped."""

    def __init__(self, jobs: list[Job], fail_at: int | None = None) -> None:
        self.levels = {job.key: job.level for job in jobs}
        self.judged: list[Key] = []
        self.fail_at = fail_at

    async def __call__(self, task: Task, code: str) -> Verdict:
        key = Job(task, "", code).key
        self.judged.append(key)
        if len(self.judged) == self.fail_at:
            raise InfrastructureError("the sandbox broke")
        level = self.levels[key]
        if level.startswith("broken"):
            return _verdict(task, code, Status.WRONG_OUTPUT)
        return _verdict(task, code, Status.CORRECT, 2.0 if level == "naive" else 1.0)


async def _build(path: Path, jobs: list[Job], judge: ScriptedJudge) -> int:
    with path.open("a", encoding="utf-8") as file:
        return await build_receipts(
            judge,
            jobs,
            lambda line: (file.write(line + "\n"), None)[1],
            known=load_receipts(path),
            concurrency=2,
        )


TRAINED = 48
KERNEL = """\
#include <torch/extension.h>
__global__ void {name}(const float* x, float* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i];
}}
torch::Tensor forward(torch::Tensor x) {{
  auto o = torch::empty_like(x);
  {name}<<<1, {threads}>>>(x.data_ptr<float>(), o.data_ptr<float>(), x.numel());
  return o;
}}
"""


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    """Of starter tasks: a naive kernel, faster ones, and of some a broken one."""
    by_split = {
        split: in_turn(
            (f for f in catalog() if split_of(f) is split and f.name not in KERNELBENCH_HAS),
            lambda f: family_of(f).name,
            count,
        )
        for split, count in ((Split.TRAIN, TRAINED), (Split.HELD_OUT, 16))
    }
    return [job for functions in by_split.values() for f in functions for job in _jobs(f)]


def _jobs(function: Function) -> Iterator[Job]:
    task = build_task(function)
    levels = ("vectorized",) if task.tier == 0 else ("shared", "shuffle", "wide")[: 1 + task.tier]
    for number, level in enumerate(("naive", *levels)):
        code = KERNEL.format(name=f"{task.name}_{level}", threads=256 >> number)
        yield Job(task, level, code, "it is faster")
    if is_for_repair(function) and task.split is Split.TRAIN:
        code = KERNEL.format(name=f"{task.name}_wrong", threads=16)
        yield Job(task, "broken:race", code, "It was wrong.")


async def test_building_again_judges_only_what_is_missing(tmp_path: Path, jobs: list[Job]) -> None:
    path = tmp_path / "receipts.jsonl"
    half, judge = ScriptedJudge(jobs), ScriptedJudge(jobs)
    assert await _build(path, jobs[: len(jobs) // 2], half) == 0
    assert await _build(path, jobs, judge) == 0
    assert not set(half.judged) & set(judge.judged)
    assert load_receipts(path).keys() == {job.key for job in jobs}


async def test_a_build_whose_time_is_over_begins_nothing_more(jobs: list[Job]) -> None:
    judge, lines = ScriptedJudge(jobs), list[str]()
    more = lambda: len(lines) < 3  # noqa: E731
    await build_receipts(judge, jobs, lines.append, known={}, concurrency=1, more=more)
    assert judge.judged == [job.key for job in jobs[:3]]


async def test_a_line_cut_off_by_a_kill_is_judged_again(tmp_path: Path, jobs: list[Job]) -> None:
    path = tmp_path / "receipts.jsonl"
    await _build(path, jobs[:5], ScriptedJudge(jobs))
    path.write_bytes(path.read_bytes()[:-40])
    assert len(load_receipts(path)) == 4


async def test_a_fault_of_ours_leaves_the_kernel_open_and_the_others_judged(
    tmp_path: Path, jobs: list[Job]
) -> None:
    path = tmp_path / "receipts.jsonl"
    assert await _build(path, jobs[:6], ScriptedJudge(jobs, fail_at=3)) == 1
    assert len(load_receipts(path)) == 5
    assert await _build(path, jobs[:6], ScriptedJudge(jobs)) == 0
    assert len(load_receipts(path)) == 6


async def test_a_verdict_of_a_judge_with_a_check_off_is_never_kept(
    tmp_path: Path, jobs: list[Job]
) -> None:
    path = tmp_path / "receipts.jsonl"
    off = Receipt(experiment_without=("hidden_shapes",))

    class LaxJudge(ScriptedJudge):
        async def __call__(self, task: Task, code: str) -> Verdict:
            verdict = await super().__call__(task, code)
            return verdict.model_copy(update={"receipt": off})

    with pytest.raises(ExceptionGroup) as raised:
        await _build(path, jobs, LaxJudge(jobs))
    assert raised.value.subgroup(UsageError) is not None
    assert not load_receipts(path)


async def test_examples_come_only_from_kernels_judged_correct(
    tmp_path: Path, jobs: list[Job]
) -> None:
    path = tmp_path / "receipts.jsonl"
    await _build(path, jobs, ScriptedJudge(jobs))
    receipts = load_receipts(path)
    generate = training_examples(Role.GENERATOR, 1000, receipts=receipts)
    assert len(generate) == TRAINED
    assert all(e.receipt for e in generate)
    improve = training_examples(Role.OPTIMIZER, 1000, receipts=receipts)
    assert {e.kind for e in improve} == {"optimize", "repair"}
    for example in improve:
        assert example.previous_verdict is not None
        assert example.previous_verdict.correct == (example.kind == "optimize")
    assert len(held_out_tasks(16, receipts=receipts)) == 16


async def test_a_kernel_judged_wrong_is_never_an_answer(tmp_path: Path, jobs: list[Job]) -> None:
    path = tmp_path / "receipts.jsonl"
    await _build(path, jobs, ScriptedJudge(jobs))
    receipts: dict[Key, KernelReceipt] = load_receipts(path)
    job = next(j for j in jobs if j.level == "naive" and j.task.split is Split.TRAIN)
    wrong = _verdict(job.task, job.code, Status.WRONG_OUTPUT)
    receipts[job.key] = receipts[job.key].model_copy(update={"verdict": wrong})
    for role in (Role.GENERATOR, Role.OPTIMIZER):
        examples = training_examples(role, 1000, receipts=receipts)
        assert job.task.name not in {e.task.name for e in examples}


@pytest.fixture
def only_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for families that no GPU timed."""
    monkeypatch.setattr(examples, "measured_speeds", lambda family: {"naive": 1.0})


@pytest.mark.usefixtures("only_receipts")
async def test_an_optimised_kernel_that_is_not_faster_is_no_answer(
    tmp_path: Path, jobs: list[Job]
) -> None:
    path = tmp_path / "receipts.jsonl"
    await _build(path, jobs, ScriptedJudge(jobs))
    receipts = {
        key: r.model_copy(update={"verdict": _verdict(jobs[0].task, "", Status.CORRECT, 3.0)})
        if not r.level.startswith(("naive", "broken"))
        else r
        for key, r in load_receipts(path).items()
    }
    taught = training_examples(Role.OPTIMIZER, 1000, receipts=receipts)
    assert {e.kind for e in taught} == {"repair"}
    best = training_examples(Role.GENERATOR, 1000, receipts=receipts, target="best")
    assert best == training_examples(Role.GENERATOR, 1000, receipts=receipts)


@pytest.mark.usefixtures("only_receipts")
async def test_the_best_kernel_is_the_fastest_of_those_judged_correct(
    tmp_path: Path, jobs: list[Job]
) -> None:
    path = tmp_path / "receipts.jsonl"
    await _build(path, jobs, ScriptedJudge(jobs))
    receipts: dict[Key, KernelReceipt] = load_receipts(path)
    levels = {(job.task.name, job.code): job.level for job in jobs}

    def taught() -> dict[str, str]:
        examples = training_examples(Role.GENERATOR, 1000, receipts=receipts, target="best")
        return {e.task.name: levels[e.task.name, e.code] for e in examples}

    def judge_again(job: Job, status: Status, ms: float) -> None:
        verdict = _verdict(job.task, job.code, status, ms)
        receipts[job.key] = receipts[job.key].model_copy(update={"verdict": verdict})

    assert len(taught()) == TRAINED
    assert "naive" not in taught().values()
    shuffle = next(j for j in jobs if j.level == "shuffle" and j.task.family == "row_sum")
    shared = next(j for j in jobs if j.level == "shared" and j.task == shuffle.task)
    name = shuffle.task.name
    judge_again(shuffle, Status.CORRECT, 0.5)
    assert taught()[name] == "shuffle"
    judge_again(shuffle, Status.WRONG_OUTPUT, 0.5)
    assert taught()[name] == "shared"
    judge_again(shared, Status.CORRECT, 2.0)  # level with the naive one
    assert taught()[name] == "naive"


async def test_what_a_gpu_measured_wins_over_a_modelled_time(
    tmp_path: Path, jobs: list[Job]
) -> None:
    path = tmp_path / "receipts.jsonl"
    await _build(path, jobs, ScriptedJudge(jobs))
    receipts: dict[Key, KernelReceipt] = load_receipts(path)
    improved = {
        e.task.name
        for e in training_examples(Role.OPTIMIZER, 1000, receipts=receipts)
        if e.kind == "optimize" and e.task.tier > 1
    }
    wide = next(j for j in jobs if j.level == "wide" and j.task.name in improved)
    shared = next(j for j in jobs if j.level == "shared" and j.task == wide.task)

    def judge_again(job: Job, status: Status, ms: float) -> None:
        verdict = _verdict(job.task, job.code, status, ms)
        receipts[job.key] = receipts[job.key].model_copy(update={"verdict": verdict})

    def taught(role: Role) -> set[str]:
        found = training_examples(role, 1000, receipts=receipts, target="best")
        return {e.code for e in found if e.task.name == wide.task.name}

    judge_again(wide, Status.CORRECT, 9.0)  # slower than the naive one, by its receipt
    judge_again(shared, Status.CORRECT, 0.1)
    assert taught(Role.GENERATOR) == {wide.code}
    assert taught(Role.OPTIMIZER) == {wide.code}
    judge_again(wide, Status.WRONG_OUTPUT, 0.1)
    assert taught(Role.GENERATOR) == {shared.code}
    assert taught(Role.OPTIMIZER) == {shared.code}


def test_a_family_whose_naive_kernel_a_gpu_found_fastest_keeps_it() -> None:
    function = next(
        w for w in workload_catalog()
        if build_task(w).family == "pool_2d" and build_task(w).split is Split.TRAIN
    )  # fmt: skip
    pooling = build_task(function)
    naive = kernels_of(pooling)[0].code
    jobs = [Job(pooling, "naive", naive), Job(pooling, "registers", f"{naive}// registers\n", "w")]
    receipts = {
        job.key: KernelReceipt(
            task=pooling.name,
            level=job.level,
            task_digest=job.key[0],
            kernel_sha256=job.key[1],
            verdict=_verdict(pooling, job.code, Status.CORRECT, ms),
            verdict_digest="0" * 64,
            code=job.code,
            why=job.why,
        )
        for job, ms in zip(jobs, (2.0, 1.0), strict=True)
    }
    best = training_examples(Role.GENERATOR, 10, receipts=receipts, scope="all", target="best")
    assert [e.code for e in best] == [naive]
    optimised = training_examples(Role.OPTIMIZER, 10, receipts=receipts, scope="all")
    assert not [e for e in optimised if e.kind == "optimize"]


def _receipt(job: Job, device_code: str) -> KernelReceipt:
    verdict = _verdict(job.task, job.code, Status.CORRECT)
    return KernelReceipt(
        task=job.task.name,
        level=job.level,
        task_digest=job.key[0],
        kernel_sha256=job.key[1],
        verdict=verdict.model_copy(update={"compile": CompileSummary(ptx_sha256=device_code)}),
        verdict_digest="0" * 64,
        host_code=job.host_code,
    )


def test_a_kernel_spelt_anew_takes_its_receipt_along(jobs: list[Job]) -> None:
    known = _receipt(jobs[0], "same")
    anew = replace(jobs[0], code=jobs[0].code.replace(f"{jobs[0].task.name}_naive", "map"))
    asked: list[str] = []

    def device_codes(codes: list[str]) -> list[str]:
        asked.extend(codes)
        return ["same" for _ in codes]

    (found,) = carried([anew, *jobs], {known.key: known}, device_codes)
    assert asked == [anew.code]
    assert found.key == anew.key != known.key
    assert found.verdict.candidate_sha256 == anew.key[1]
    assert found.verdict_digest == known.verdict_digest


def test_a_kernel_of_other_device_or_host_code_is_to_be_judged(jobs: list[Job]) -> None:
    known = _receipt(jobs[0], "same")
    other = replace(jobs[0], code=jobs[0].code.replace("if (i < n)", "if (n > i)"))
    launched = replace(jobs[0], code=jobs[0].code.replace("256>>>", "512>>>"))
    assert launched.code != jobs[0].code != other.code
    assert not [*carried([other], {known.key: known}, lambda codes: ["another"])]
    assert not [*carried([launched], {known.key: known}, lambda codes: ["same"] * len(codes))]


def test_a_changed_reference_or_shape_makes_a_receipt_stale(jobs: list[Job]) -> None:
    task = jobs[0].task
    changed = task.model_copy(update={"reference": task.reference + "\n"})
    fewer = task.model_copy(update={"cases": task.cases[:1]})
    described = task.model_copy(update={"description": "other words"})
    assert task_digest(changed) != task_digest(task) != task_digest(fewer)
    assert task_digest(described) == task_digest(task)

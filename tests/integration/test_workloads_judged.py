"""The real judge on workloads: one kernel of each way of writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.commands.build_data import build_sft
from coding_framework.commands.options import TaskSelection
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.example_store import ExampleStore
from coding_framework.data.kernels import kernels_of
from coding_framework.data.registry import find_task
from coding_framework.data.synthesis.receipts import built_receipts_path
from support.other_cache import other_cache

pytestmark = pytest.mark.integration

FORMS = {
    "mul2_relu_elementwise_f16": "vectorized",
    "argmax": "naive",
    "groupnormg4_relu": "shuffle",
    "abs_bmm_relu": "registers",
    "causalattention": "wide",
    "mul2_conv2dk3_relu": "shared",
    "maxpool2dk3s2_add1": "naive",
    "countmodc10": "naive",
    "rotary": "naive",
    "glu_relu": "naive",
}


@pytest.mark.parametrize(("name", "form"), FORMS.items(), ids=FORMS)
async def test_each_way_of_writing_a_workload_is_right(
    emulator_pool: JudgePool, name: str, form: str
) -> None:
    task = find_task(name)
    (kernel,) = [k for k in kernels_of(task) if k.level == form]
    verdict = await emulator_pool.judge(task, kernel.code)
    assert verdict.correct, f"{verdict.reason}\n{kernel.code}"


async def test_a_task_is_judged_at_held_out_shapes(emulator_pool: JudgePool) -> None:
    task = find_task("mul2_relu@shapes")
    verdict = await emulator_pool.judge(task, kernels_of(find_task("mul2_relu"))[0].code)
    assert verdict.correct, verdict.reason
    judged = {t.shapes[0] for t in verdict.tests if t.case != "drawn"}
    assert judged == {c.inputs[0].shape for c in task.cases}


def test_built_tasks_become_pairs_and_are_not_judged_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(other_cache(tmp_path / "cache")))
    build = ["tasks", "build", "--family", "upsample", "--tasks", "1", "--workers", "2"]
    assert main(build) == 0
    assert "1 tasks, 1 kernels: 1 correct" in capsys.readouterr().out
    written = built_receipts_path().stat().st_mtime_ns
    assert main(build) == 0
    assert built_receipts_path().stat().st_mtime_ns == written
    chosen = TaskSelection(family="upsample", count=1)
    manifest = build_sft(chosen, tmp_path / "set", judge=False)
    assert manifest.kept["tier 2 generate"] == 1
    assert "tier 2 repair" not in manifest.kept
    assert not manifest.left_out.get("not judged")
    assert "| upsample |" in (tmp_path / "set" / "card.md").read_text()
    assert all(e.receipt for e in ExampleStore(tmp_path / "set" / "examples.jsonl"))

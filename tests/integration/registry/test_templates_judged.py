"""Templates of real kernels, made and judged by the real judge on the emulator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch

from coding_framework.cli import main
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.deployment import apply as kernels
from coding_framework.registry.keeping import KernelKeeper
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import judged_on, new_key
from coding_framework.registry.templates import MadeTemplates, UploadStep
from coding_framework.types import Candidate, Task, Verdict
from corpus.records import AFFINE, AFFINE_KERNEL, AFFINE_SOURCE, source

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(JudgeConfig(backend="emulator", seed=7))


def made(judge: Judge, code: str, task: Task = AFFINE) -> MadeTemplates:
    return judge.templates(task, Candidate(code=code))


def test_an_honest_kernel_has_a_template_for_every_shape_set(judge: Judge) -> None:
    found = made(judge, AFFINE_SOURCE)
    assert found.refusals == ()
    assert [t.shape_key for t in found.templates] == [
        "float32[64,96]", "float32[37,53]", "float32[3,5]",
    ]  # fmt: skip
    for template in found.templates:
        assert template.deterministic
        assert {part.sha256 for part in template.code} == set(found.code)


@pytest.mark.cuda
def test_on_a_gpu_templates_are_replayed_there() -> None:
    found = made(Judge(JudgeConfig(backend="cuda", seed=7)), AFFINE_SOURCE)
    assert found.refusals == ()
    assert len(found.templates) == 3


TABLE = """
__constant__ float coefficients[2];
__global__ void affine(const float* const* table, float* o, int n, const float* scratch) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = table[0][i] * coefficients[0] + coefficients[1] + scratch[0];
}
"""
TABLE_BODY = """
  const float host[2] = {2.0f, 1.0f};
  cudaMemcpyToSymbol(coefficients, host, sizeof(host));
  const float** table; cudaMalloc((void**)&table, sizeof(px));
  cudaMemcpy(table, &px, sizeof(px), cudaMemcpyHostToDevice);
  float* scratch; cudaMalloc((void**)&scratch, 4); cudaMemset(scratch, 0, 4);
  affine<<<(n + 127) / 128, 128>>>(table, po, n, scratch);
  cudaFree(scratch); cudaFree(table);
"""


def test_symbols_pointer_tables_and_temporaries_are_relocated(judge: Judge) -> None:
    found = made(judge, source(TABLE, TABLE_BODY))
    assert found.refusals == ()
    template = found.templates[0]
    assert [v.name for v in template.variables] == ["coefficients"]
    uploads = [step for step in template.steps if isinstance(step, UploadStep)]
    assert [len(step.relocations) for step in uploads] == [0, 1]
    assert sorted(a.use for a in template.allocations) == ["output", "temporary", "temporary"]


NOT_PORTABLE = {
    "read_back": "float first; cudaMemcpy(&first, px, 4, cudaMemcpyDeviceToHost);"
    "affine<<<(n + 127) / 128, 128>>>(px, po, n);",
    "unexplained_bytes": "affine<<<(n + 127) / 128, 128>>>(px, po, (int)((size_t)&n >> 8));",
    "no_launch": "cudaMemset(po, 0, 4 * n);",
    "impossible": "affine<<<(n + 127) / 128, 128>>>(px, po, n);out = out.as_strided({n + 1}, {1});",
    "replay_differs": "affine<<<(n + 127) / 128, 128>>>(px, po, n - 1);",
}
GIANT = (
    "affine<<<(n + 127) / 128, 128>>>(px, po, n);out = out.as_strided({1 << 20, 1 << 20}, {0, 0});"
)
"""Four TiB of one element's bytes."""


@pytest.mark.parametrize("obstacle", NOT_PORTABLE)
def test_what_has_no_template_says_why(judge: Judge, obstacle: str) -> None:
    found = made(judge, source(AFFINE_KERNEL, NOT_PORTABLE[obstacle]))
    assert found.templates == ()
    assert {refusal.obstacle for refusal in found.refusals} == {obstacle}


def test_an_output_of_another_shape_is_refused_before_it_is_read(judge: Judge) -> None:
    found = made(judge, source(AFFINE_KERNEL, GIANT))
    assert found.templates == ()
    assert {refusal.obstacle for refusal in found.refusals} == {"replay_differs"}


def test_kernel_add_stores_what_the_judge_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "affine.cu").write_text(AFFINE_SOURCE)
    (tmp_path / "wrong.cu").write_text(AFFINE_SOURCE.replace("2.0f", "3.0f"))
    (tmp_path / "affine.json").write_text(AFFINE.model_dump_json())
    common = ["--task", "affine.json", "--backend", "emulator"]
    assert main(["kernel", "key", "new", "judge"]) == 0
    assert main(["kernel", "add", "wrong.cu", *common]) == 1
    assert "not added: wrong_output" in capsys.readouterr().err
    assert main(["kernel", "add", "affine.cu", *common]) == 0
    assert main(["kernel", "verify", "--registry", "registry"]) == 0
    assert "is verified for affine" in capsys.readouterr().out
    assert main(["kernel", "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"registry": "registry", "problems": []}
    assert main(["kernel", "verify", "affine", "--kernel", "affine.cu"]) == 0
    assert main(["kernel", "verify", "affine", "--kernel", "wrong.cu"]) == 1
    assert "about another source than wrong.cu" in capsys.readouterr().err
    assert main(["kernel", "verify", "--kernel", "affine.cu"]) == 2
    assert main(["kernel", "promote", "affine"]) == 0
    assert main(["kernel", "list"]) == 0
    said = capsys.readouterr().out
    assert "canary" in said
    with KernelRegistry("registry", read_only=True) as registry:
        (kernel,) = registry.snapshot()
        assert len(kernel.templates) == 3
        assert registry.source(kernel) == AFFINE_SOURCE
    assert main(["kernel", "reverify", "--backend", "emulator"]) == 0
    assert "1 judged again, 0 of them quarantined" in capsys.readouterr().out


@pytest.mark.slow
def test_a_kernel_in_use_is_judged_at_a_wanted_shape_and_then_runs_there(
    judge: Judge, tmp_path: Path
) -> None:
    folder, keys = tmp_path / "registry", tmp_path / "keys"
    key = new_key(keys, "judge")

    async def verdict(task: Task, code: str) -> Verdict:
        return await asyncio.to_thread(judge.judge, task, Candidate(code=code))

    async def templates(task: Task, code: str) -> MadeTemplates:
        return await asyncio.to_thread(made, judge, code, task)

    keeper = KernelKeeper(folder, keys, key, templates)

    async def add_and_widen() -> dict[str, str]:
        first = await verdict(AFFINE, AFFINE_SOURCE)
        kept = await keeper.keep(AFFINE, AFFINE_SOURCE, first)
        assert kept is not None
        with KernelRegistry(folder, keys=keys) as registry:
            registry.move(kept, "active", "a test")
        here = (first.receipt.protocol, judged_on(first), first.receipt.driver)
        used = keeper.view.in_use(AFFINE.name, *here)
        assert used is not None
        wanted = ["float32[17,19]", "float32[17]"]
        return await keeper.widen(used, wanted, verdict, on_gpu=False)

    def affine(x: torch.Tensor) -> torch.Tensor:
        return 2 * x + 1

    refused = asyncio.run(add_and_widen())
    assert list(refused) == ["float32[17]"]
    decorated = kernels.op("widened_affine", task=AFFINE.name)(affine)
    try:
        kernels.enable(folder, device="emulator")
        x = torch.randn(17, 19)
        assert torch.allclose(decorated(x), affine(x))
        assert kernels.stats()["widened_affine"]["hits"] == 1
    finally:
        kernels.disable()
        kernels._ops.pop("widened_affine")

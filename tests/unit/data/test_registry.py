"""Tasks found by what a user types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from coding_framework.data import registry
from coding_framework.data.listing import rows
from coding_framework.data.registry import describe_task, find_task
from coding_framework.errors import UsageError
from coding_framework.types import Split

pytestmark = pytest.mark.unit


def test_a_listed_name_is_found() -> None:
    for row in rows(split=Split.HELD_OUT)[:20]:
        task = find_task(row["name"])
        assert (task.name, task.family) == (row["name"], row["family"])


def test_a_composition_outside_the_catalogue_is_a_task_too() -> None:
    task = find_task("mul3_addrow_gelu_rowsum")
    assert task.ops == ("mul_const", "add_row", "gelu", "rowsum")
    assert task.naive_kernel is None, "it is read when it is asked for"


def test_an_unknown_name_names_close_ones() -> None:
    with pytest.raises(UsageError, match=r"close names: .*sigmoid"):
        find_task("sigmoidd")
    with pytest.raises(UsageError, match="tasks list"):
        find_task("zzzzqqqq")


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml"])
def test_a_task_file_is_read_back(tmp_path: Path, suffix: str) -> None:
    task = find_task("mul2_add_relu")
    data = task.model_dump(mode="json")
    path = tmp_path / f"task{suffix}"
    path.write_text(json.dumps(data) if suffix == ".json" else yaml.safe_dump(data))
    assert find_task(str(path)) == task


def test_a_task_file_needs_what_it_computes_and_its_shape_sets(tmp_path: Path) -> None:
    whole = find_task("mul2_add_relu").model_dump(mode="json")
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({k: whole[k] for k in ("reference", "cases")}))
    task = find_task(str(path))
    assert (task.name, task.tier, task.family, task.ops) == ("mine", 2, "own", ("mine",))
    assert "mine  (family own, tier 2" in describe_task(task)
    path.write_text(yaml.safe_dump({k: whole[k] for k in ("reference", "cases", "tier")}))
    assert find_task(str(path)).tier == whole["tier"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.json", None, "cannot be read"),
        ("broken.json", b"{", "does not parse"),
        ("broken.yaml", b"a: [1", "does not parse"),
        ("binary.json", b"\xff\xfe\x00", "not UTF-8"),
        ("empty.yaml", b"", "holds no fields of a task"),
        ("fields.json", b'{"name": "x"}', "lacks reference, cases"),
        ("cases.json", b'{"name": 1, "reference": ""}', "lacks cases"),
        ("problem.py", b"x = 1\n", "it needs a `Model`"),
    ],
)
def test_a_bad_file_is_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        find_task(str(path))


def _with_cases(path: Path, cases: list[dict[str, object]]) -> str:
    task = find_task("mul2_add_relu").model_dump(mode="json")
    path.write_text(json.dumps({**task, "cases": cases}))
    return str(path)


def test_a_task_file_without_unseen_shapes_is_refused_with_what_to_do(tmp_path: Path) -> None:
    main, odd, tiny = find_task("mul2_add_relu").model_dump(mode="json")["cases"]
    path = tmp_path / "task.json"
    for cases, counts in (
        ([main], "1, 0 of them unseen"),
        ([main, odd], "2, 1 of them unseen"),
        ([main, odd, {**odd, "name": "again"}], "2, 1 of them unseen"),
        ([main, {**odd, "shown": True}, tiny], "3, 1 of them unseen"),
        ([{**main, "shown": False}, odd, {**main, "name": "x"}], "2, 1 of them unseen"),
    ):
        with pytest.raises(UsageError, match=rf"too few shape sets \({counts}\): give at least 3"):
            find_task(_with_cases(path, cases))
    assert len(find_task(_with_cases(path, [main, odd, tiny])).cases) == 3


_PROBLEM = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1
{sizes}
def get_inputs():
    return [torch.rand({shape})]
def get_init_inputs():
    return []
"""


def test_a_problem_file_has_three_shape_sets_of_its_named_or_literal_sizes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(_PROBLEM.format(sizes="N = M = 16", shape="N, M"))
    shapes = [case.inputs[0].shape for case in find_task(str(path)).cases]
    assert shapes[0] == (16, 16)
    assert len(set(shapes)) == 3
    path.write_text(_PROBLEM.format(sizes="N = 256", shape="N, 1024, 1024"))
    assert {case.inputs[0].shape[0] for case in find_task(str(path)).cases} == {2, 3, 4}
    path.write_text(_PROBLEM.format(sizes="", shape="4, 8, 256"))
    task = find_task(str(path))
    assert [case.inputs[0].shape for case in task.cases] == [(4, 8, 256), (3, 7, 255), (4, 8, 64)]
    assert task.gpu_cases[0].inputs[0].shape == (4, 8, 256)


def test_lists_filter_by_split_family_and_tier() -> None:
    assert {t["split"] for t in rows(split=Split.TRAIN)} == {"train"}
    assert {t["family"] for t in rows(family="scan")} == {"scan"}
    assert {t["tier"] for t in rows(tier=1)} == {1}
    with pytest.raises(UsageError, match="there are: unary"):
        rows(family="nosuch")


def test_a_described_task_shows_source_shapes_and_kernels() -> None:
    text = describe_task(find_task("exp_rowsum_log"))
    assert "out = log(rowsum(exp(x)))" in text
    assert "torch.sum(x, dim=1)" in text
    rows, columns = find_task("exp_rowsum_log").cases[1].inputs[0].shape
    assert f"odd: x float32[{rows}, {columns}]" in text
    assert "--- shuffle: each warp joins" in text


def test_a_problem_is_read_once_and_again_when_it_reads_other_files(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    source = (Path(__file__).parents[3] / "examples" / "scaled_tanh.py").read_text()
    read = []
    real = registry._read_problem
    monkeypatch.setattr(registry, "_read_problem", lambda *a: read.append(a) or real(*a))
    first = registry.problem_as_task(source, "scaled_tanh")
    assert registry.problem_as_task(source, "scaled_tanh") == first
    assert len(read) == 1
    for _ in range(2):
        registry.problem_as_task(f"import json\n{source}", "scaled_tanh")
    assert len(read) == 3

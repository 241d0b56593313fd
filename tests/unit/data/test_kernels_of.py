"""What the compiler writes for a task: kept by what it depends on, from any thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coding_framework.data import kernels
from coding_framework.data.kernels import FOLDER, compiler_digest, kernels_of, naive_of, write_all
from coding_framework.data.registry import find_task
from coding_framework.data.synthesis import catalog
from coding_framework.errors import UnreadableError
from coding_framework.types import CALLERS, Task

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    return tmp_path / FOLDER


def bare(name: str) -> Task:
    return find_task(name).model_copy(update={"naive_kernel": None})


def refused() -> Task:
    source = "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n"
    source += "    def forward(self, x):\n        return torch.fft.fft(x).real\n"
    return bare("relu").model_copy(update={"reference": source})


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.json"))


def test_kernels_are_written_once_for_all_tasks_that_differ_in_names_alone(folder: Path) -> None:
    naive, *_ = kernels_of(bare("relu"))
    assert (naive.task, naive.level) == ("relu", "naive")
    assert "PYBIND11_MODULE" in naive.code
    (file,) = files(folder)
    file.write_text(file.read_text().replace("PYBIND11_MODULE", "KEPT"))
    other = bare("relu").model_copy(update={"name": "mine"})
    assert "KEPT" in kernels_of(other)[0].code
    assert kernels_of(other)[0].task == "mine"


def test_a_refusal_is_kept_and_names_operation_and_line(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(UnreadableError, match=r"line 6: return torch\.fft\.fft\(x\)"):
            kernels_of(refused())
    assert len(files(folder)) == 1
    assert naive_of(refused()) is None


def test_a_damaged_file_is_written_anew(folder: Path) -> None:
    before = kernels_of(bare("relu"))
    (file,) = files(folder)
    file.write_text(file.read_text()[:40])
    assert kernels_of(bare("relu")) == before
    assert file.read_text().endswith("}\n")


def test_where_nothing_can_be_kept_kernels_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "file"))
    assert "PYBIND11_MODULE" in kernels_of(bare("relu"))[0].code


def test_threads_that_come_and_go_get_their_kernels(folder: Path) -> None:
    """torch.export ends a process on its second new thread."""
    found: list[str | None] = []
    for name in ("abs", "exp", "abs"):
        thread = threading.Thread(target=lambda name=name: found.append(naive_of(bare(name))))
        thread.start()
        thread.join()
    assert [code is not None for code in found] == [True] * 3
    with ThreadPoolExecutor(4) as threads:
        tasks = [bare("cosine")] * 4
        assert len(set(threads.map(naive_of, tasks))) == 1


def test_many_are_written_at_once(folder: Path) -> None:
    write_all([bare("abs"), bare("exp"), refused()])
    assert len(files(folder)) == 3


def test_a_task_has_its_own_kernel_first_and_a_callers_is_not_run_here(folder: Path) -> None:
    assert naive_of(bare("relu").model_copy(update={"naive_kernel": "mine"})) == "mine"
    assert naive_of(bare("relu").model_copy(update={"source": CALLERS})) is None
    assert not files(folder)


def test_a_process_that_dies_is_a_sentence_and_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "MOST_S", 0.05)
    monkeypatch.setattr(kernels, "_IDLE_S", 0.0)  # a new process, which needs longer to start
    with pytest.raises(UnreadableError, match="the process that writes kernels ended"):
        kernels_of(bare("relu"))
    assert not files(folder)


def test_the_digest_covers_the_reader_the_writer_and_the_operations() -> None:
    covered = {Path(part).name for part in kernels._COMPILER}
    folder = Path(kernels.__file__).parent
    assert {"read.py", "graph.py", "ops", "lower", "cuda", "reference_model"} <= covered
    assert all((folder / part).exists() for part in kernels._COMPILER)
    assert len(compiler_digest()) == 64


def test_the_catalogue_makes_no_kernel(folder: Path) -> None:
    catalog.build_task(catalog.parse_function("relu"))  # type: ignore[arg-type]
    assert not files(folder)

"""Only listed gaps make a verdict `unsupported`; all that our own code names are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coding_framework.cuda.host import gaps

pytestmark = pytest.mark.unit

CUDA = Path(gaps.__file__).parents[1]


@pytest.mark.parametrize(
    "name",
    ["numpy.add", "triton.jit", "the module torch.distributed.rpc", "torch.vmap", "torch.nn.Fold"],
)
def test_names_of_torch_and_of_known_packages_are_listed(name: str) -> None:
    assert gaps.is_listed(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wgmma.mma_async",
        "the emulator does not support x",
        "numpy",
        "numpy.add extra",
        "os.fork",
    ],
)
def test_other_texts_are_no_gaps(text: str) -> None:
    assert not gaps.is_listed(text)
    assert not gaps.is_toolkit_function(text)


def test_functions_of_the_toolkit_are_known_by_its_headers() -> None:
    assert gaps.is_toolkit_function("cudaGraphCreate")
    assert gaps.is_toolkit_function("cuMemAlloc")
    assert not gaps.is_toolkit_function("cudaOfMyOwn")


def test_every_text_that_our_own_code_names_is_listed() -> None:
    python = re.compile(r'unsupported\("([^"{]+)"\)')
    cpp = re.compile(r'Kind::Unsupported, "([^"]+)"')
    said = [
        text
        for pattern, suffix in ((python, "*.py"), (cpp, "*.cpp"))
        for folder in ("model_new/handle_torch", "host")
        for path in (CUDA / folder).rglob(suffix)
        for text in pattern.findall(path.read_text())
    ]
    assert len(said) >= 5
    assert [text for text in said if not gaps.is_listed(text)] == []


def test_the_packages_that_answers_import_are_listed() -> None:
    for package in ("numpy", "triton", "cupy", "cutlass"):
        assert gaps.is_listed(f"{package}.anything")
    assert not gaps.is_listed("mypackage.anything")
    assert not gaps.is_listed("numpy")

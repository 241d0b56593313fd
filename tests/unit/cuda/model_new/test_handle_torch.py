"""The torch of handles has what torch has: names, layers, shapes and strides."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from coding_framework.cuda import model_new
from coding_framework.cuda.host.python_runtime import python_runtime
from coding_framework.cuda.host.runner import build_host_library

pytestmark = pytest.mark.unit

LAYERS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Linear": [((3, 5), {"bias": False})],
    "Conv2d": [((4, 6, 3), {}), ((4, 6, (3, 5)), {"stride": 2, "padding": 1, "dilation": 2})],
    "ConvTranspose3d": [((4, 6, 3, 2, 1, 1, 2), {})],
    "BatchNorm2d": [((7,), {}), ((7,), {"track_running_stats": False})],
    "GroupNorm": [((2, 6), {"affine": False})],
    "LayerNorm": [(((3, 4),), {}), ((5,), {"bias": False})],
    "PReLU": [((), {})],
    "Embedding": [((9, 4), {"padding_idx": 0})],
    "LSTM": [((3, 4, 2), {"bidirectional": True})],
    "GRUCell": [((3, 4), {})],
    "MultiheadAttention": [((8, 2), {"batch_first": True, "bias": False})],
    "TransformerEncoderLayer": [((8, 2, 16), {})],
    "MaxPool2d": [((3, 2, 1), {})],
    "Softmax": [((), {"dim": 1})],
}
"""Constructor calls of each layer."""
MEMBERS = (
    *("kernel_size", "stride", "padding", "dilation", "groups", "eps", "num_groups", "p", "dim"),
    *("in_features", "out_features", "in_channels", "out_channels", "negative_slope", "min_val"),
    *("max_val", "normalized_shape", "num_features", "momentum", "hidden_size", "output_size"),
)


@pytest.fixture(scope="module")
def ours() -> Iterator[Any]:
    """The package as answers have it, with the host library for its handles; nothing is confined
    here."""
    sys.path += map(str, python_runtime().glob("lib/*.zip"))
    host = importlib.import_module("handle_torch._host")
    host.load_library(str(build_host_library()))
    yield importlib.import_module("handle_torch")
    sys.path.pop()


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_the_state_and_the_members_of_torchs(name: str, ours: Any) -> None:
    for arguments, options in LAYERS[name]:
        theirs = getattr(torch.nn, name)(*arguments, **options)
        mine = getattr(ours.nn, name)(*arguments, **options)
        expected = [(n, tuple(t.shape)) for n, t in theirs.state_dict().items()]
        assert [(n, tuple(t.shape)) for n, t in mine.state_dict().items()] == expected
        for member in MEMBERS:
            if hasattr(theirs, member):
                assert getattr(mine, member) == getattr(theirs, member), member


def test_a_models_state_has_the_names_and_the_order_of_torchs(ours: Any) -> None:
    def make(library: Any) -> Any:
        nn = library.nn

        class Block(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, n: int) -> None:
                super().__init__()
                self.scale = nn.Parameter(library.ones(n))
                self.layers = nn.ModuleList([nn.Linear(n, n), nn.Sequential(nn.Linear(n, 1))])
                self.by_name = nn.ModuleDict({"a": nn.Linear(n, 2)})
                self.extra = nn.ParameterList([library.zeros(2), library.zeros(3)])
                self.register_buffer("table", library.zeros(4))
                self.register_buffer("lost", library.zeros(4), persistent=False)
                self.shared = self.layers[0]

        return Block(3)

    names = list(make(torch).state_dict())
    assert list(make(ours).state_dict()) == names


INDICES = (
    *(0, -1, slice(1, 3), slice(None, None, 2), ..., None, slice(-2, None)),
    (slice(None), 1),
    (0, ..., slice(0, 2)),
    (None, slice(1, None), None, 2),
    (..., -1, None),
)
VIEWS = {
    "view": [(-1,), (2, -1), (4, 3, 5, 2)],
    "reshape": [((4, 15, 2),), (120,)],
    "flatten": [(), (1,), (0, 1), (-2, -1)],
    "transpose": [(0, 1), (-1, 0)],
    "permute": [(2, 0, 1, 3), ((3, 2, 1, 0),)],
    "unsqueeze": [(0,), (-1,), (2,)],
    "movedim": [(0, 2), (-1, 0)],
    "narrow": [(1, 1, 2)],
    "select": [(2, 1)],
    "expand": [(7, 4, 3, 5, 2), (-1, -1, -1, -1)],
    "unflatten": [(0, (2, 2))],
    "as_strided": [((2, 3), (3, 1)), ((2, 3), (1, 2), 5)],
}


def metadata(tensor: Any) -> tuple[Any, ...]:
    return (tuple(tensor.shape), tuple(tensor.stride()), tensor.is_contiguous())


def test_views_have_the_shapes_and_strides_of_torchs(ours: Any) -> None:
    shape = (4, 3, 5, 2)
    theirs, mine = torch.zeros(shape), ours.zeros(shape)
    for index in INDICES:
        assert metadata(mine[index]) == metadata(theirs[index]), index
    for name, calls in VIEWS.items():
        for arguments in calls:
            expected = getattr(theirs, name)(*arguments)
            assert metadata(getattr(mine, name)(*arguments)) == metadata(expected), name
    for size, dim in itertools.product((1, 2, [1, 3]), (0,)):
        expected_parts = [metadata(t) for t in theirs.split(size, dim)]
        assert [metadata(t) for t in mine.split(size, dim)] == expected_parts
    assert [metadata(t) for t in mine.chunk(3, 2)] == [metadata(t) for t in theirs.chunk(3, 2)]
    assert metadata(mine.T.mT) == metadata(theirs.permute(3, 2, 1, 0).mT)


def test_what_torch_refuses_is_refused(ours: Any) -> None:
    for library in (torch, ours):
        tensor = library.zeros(4, 3)
        with pytest.raises(RuntimeError):
            tensor.view(5, 5)
        with pytest.raises(RuntimeError):
            tensor.t().view(-1)
        with pytest.raises(IndexError):
            tensor.size(2)
        with pytest.raises(IndexError):
            tensor.select(0, 4)
        with pytest.raises(AttributeError):
            _ = tensor.no_such_thing
        with pytest.raises(AttributeError):
            _ = library.no_such_thing
        with pytest.raises(AttributeError):
            _ = library.nn.NoSuchLayer


def test_limits_of_types(ours: Any) -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        mine, theirs = ours.finfo(getattr(ours, name)), torch.finfo(getattr(torch, name))
        assert (mine.max, mine.min, mine.eps, mine.tiny, mine.bits) == (
            *(theirs.max, theirs.min, theirs.eps, theirs.tiny, theirs.bits),
        )
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        limits, expected = ours.iinfo(getattr(ours, name)), torch.iinfo(getattr(torch, name))
        assert (limits.max, limits.min, limits.bits) == (expected.max, expected.min, expected.bits)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "int64", "bool"])
def test_values_are_packed_as_torch_packs_them(name: str, ours: Any) -> None:
    values = [0.0, 1.0, -2.5, 3.14159, 65504.0, 1e-5]
    tensor = torch.tensor(values).to(getattr(torch, name))
    dtype = getattr(ours, name)
    packed = dtype.pack(values)
    assert packed == tensor.view(torch.uint8).numpy().tobytes()
    assert dtype.unpack(packed) == tensor.tolist()


@pytest.mark.skipif(
    not torch.__version__.startswith("2.11."), reason="the names are those of the lock's torch"
)
def test_the_names_of_torch_are_those_of_the_installed_one() -> None:
    script = Path(__file__).parents[4] / "scripts/build_torch_names.py"
    code = (  # a fresh interpreter: what other tests import adds methods to torch's Module
        f"import runpy; m = runpy.run_path({str(script)!r}); "
        "raise SystemExit(m['TARGET'].read_text() != m['text']())"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0, f"run {script.name} again"


def test_every_layer_of_torch_is_there(ours: Any) -> None:
    layers = importlib.import_module("handle_torch._names")._ROWS
    names = [name for kind, name in layers if kind == "layer" and name != "DataParallel"]
    assert len(names) > 120
    for name in names:
        if not name.startswith("Lazy"):
            assert issubclass(getattr(ours.nn, name), ours.nn.Module)


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_it_sees_the_environment_in_every_build_of_python(python: str) -> None:
    """One whose program has its own copy of `environ`, as Debian's, shows it to no library."""
    if not Path(python).exists():
        pytest.skip(f"{python} is not here")
    program = "from handle_torch import _host; print(_host.environment())"
    found = subprocess.run(
        [python, "-c", program],
        env={"PYTHONPATH": str(Path(model_new.__file__).parent), "SEEN": "yes"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "b'SEEN': b'yes'" in found.stdout

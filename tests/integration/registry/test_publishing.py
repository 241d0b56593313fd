"""A kernel that leaves the house: a folder that `kernels` loads, which gives the kernel's own bits
without our package, and whose receipt finds one changed byte."""

from __future__ import annotations

import importlib.util
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from coding_framework.cli import main
from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.plan.launch_plan import Launch
from coding_framework.data.kernels import kernels_of
from coding_framework.data.registry import find_task
from coding_framework.deployment import apply
from coding_framework.registry.publishing import BUILD, verify_published
from coding_framework.registry.receipts import ReceiptError, new_key

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a registry, keys, and the published kernel of relu."""
    home = tmp_path_factory.mktemp("home")
    new_key(home / "keys", "judge")
    place = ["--registry", str(home / "registry"), "--keys", str(home / "keys")]
    kernel = str(EXAMPLES / "relu.cu")
    add = ["kernel", "add", kernel, "--task", "relu", "--backend", "emulator", *place]
    assert main(add) == 0
    assert main(["kernel", "publish", "relu", "--to", str(home / "out"), *place]) == 0
    return home


@pytest.fixture
def published(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "out", tmp_path / "out"))


def imported(folder: Path) -> ModuleType:
    """As `kernels` imports it: a file by its path, with nothing of ours."""
    file = folder / BUILD / "__init__.py"
    assert "coding_framework" not in file.read_text()
    spec = importlib.util.spec_from_file_location("published_relu", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class OnEmulator:
    """The driver of a published kernel, on the emulator: one block of memory here stands for one
    there, and is copied before and after each launch."""

    def __init__(self, device: EmulatorDevice) -> None:
        self._device = device
        self._arena = torch.zeros(8 << 20, dtype=torch.uint8)
        self._there = device.alloc(self._arena.numel())
        self._used = 0

    def architecture(self, device: torch.device) -> int:
        return 99  # no cubin is for it: it runs the PTX

    def empty(self, count: int, dtype: torch.dtype, device: Any = None) -> torch.Tensor:
        nbytes = count * dtype.itemsize
        start = self._used
        self._used += -(-nbytes // 256) * 256
        return self._arena[start : start + nbytes].view(dtype)

    def load(self, image: bytes) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "device.ptx").write_bytes(image)
            return self._device.load(Path(folder))

    def function(self, module: Any, entry: str, shared: int) -> str:
        return entry

    def fill(self, address: int, value: int, nbytes: int) -> None:
        self._at(address, nbytes).fill_(value)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self._at(to, nbytes).copy_(self._at(source, nbytes))

    def _at(self, address: int, nbytes: int) -> torch.Tensor:
        start = address - self._arena.data_ptr()
        return self._arena[start : start + nbytes]

    def launch(self, entry: str, grid: Any, block: Any, shared: int, params: bytes) -> None:
        here, size = self._arena.data_ptr(), self._arena.numel()
        words = bytearray(params)
        for at in range(0, len(words) - 7, 8):
            (word,) = struct.unpack_from("<Q", words, at)
            if here <= word < here + size:
                struct.pack_into("<Q", words, at, word - here + self._there)
        self._device.upload(self._there, self._arena.numpy().tobytes())
        self._device.launch(Launch(entry, tuple(grid), tuple(block), shared, bytes(words)))
        data = bytearray(self._device.download(self._there, size))
        self._arena.copy_(torch.frombuffer(data, dtype=torch.uint8))


@pytest.fixture
def driver() -> Iterator[OnEmulator]:
    device = EmulatorDevice(EmulatorSettings(count=False))
    yield OnEmulator(device)
    device.close()


def test_it_gives_the_kernels_own_bits_without_our_package(
    published: Path, driver: OnEmulator
) -> None:
    module = imported(published)
    assert len(module.DOMAIN) >= 3
    for shape in module.DOMAIN.values():
        (argument,) = _template(published, shape)["arguments"]
        x = _drawn(argument, driver)
        assert torch.equal(module.relu(x, driver=driver), torch.relu(x))


KINDS: dict[str, Callable[..., torch.Tensor]] = {
    "relu": lambda x: x.relu(),
    "softmax": lambda x: torch.softmax(x, -1),
    "layernorm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "cumsum": lambda x: x.cumsum(-1),
    "permute021_bf16": lambda x: x.permute(0, 2, 1).contiguous(),
    "argmax": lambda x: x.argmax(-1),
    "gatherrows": lambda x, y: x[y],
    "matmul": lambda x, y: x @ y,
    "conv2dk3": lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
    "attnscores": lambda q, k: torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1),
}


@pytest.mark.parametrize(
    "task",
    [pytest.param(name, marks=[] if name == "softmax" else pytest.mark.slow) for name in KINDS],
)
def test_a_kernel_of_each_kind_gives_the_bits_of_apply(
    task: str, tmp_path: Path, driver: OnEmulator
) -> None:
    """Written, judged, kept, published; then run by what was published, and by `apply`."""
    new_key(tmp_path / "keys", "judge")
    registry, out = tmp_path / "registry", tmp_path / "out"
    place = ["--registry", str(registry), "--keys", str(tmp_path / "keys")]
    source = tmp_path / "kernel.cu"
    source.write_text(kernels_of(find_task(task))[-1].code)
    add = ["kernel", "add", str(source), "--task", task, "--backend", "emulator", *place]
    assert main(add) == 0
    assert main(["kernel", "promote", task, *place]) == 0
    assert main(["kernel", "publish", task, "--to", str(out), *place]) == 0
    assert main(["kernel", "verify", str(out), "--keys", str(tmp_path / "keys")]) == 0
    module = imported(out)
    function = apply.op(f"published_{task}", task=task)(KINDS[task])
    apply.enable(registry, device="emulator", keys=tmp_path / "keys", canary_share=1)
    try:
        for shape in module.DOMAIN.values():
            given = [_drawn(argument, driver) for argument in _template(out, shape)["arguments"]]
            theirs, ours = module.call(*given, driver=driver), function(*given)
            assert torch.equal(theirs, ours)
        counted = apply.stats()[f"published_{task}"]
        assert counted["hits"] == len(module.DOMAIN), counted
    finally:
        apply.disable()


def _template(folder: Path, shape: dict[str, Any]) -> dict[str, Any]:
    said = (folder / BUILD / f"templates/{shape['template']}.json").read_text()
    return dict(json.loads(said))


def _drawn(argument: dict[str, Any], driver: OnEmulator) -> torch.Tensor:
    """A tensor as a template takes it; whole numbers are 0, 1 or 2."""
    dtype = getattr(torch, argument["dtype"])
    shape = torch.Size(argument["shape"])
    x = driver.empty(shape.numel(), dtype).view(shape)
    return x.normal_() if dtype.is_floating_point else x.random_(0, 3)


def test_what_it_was_not_judged_for_is_refused_by_what_is_wrong(published: Path) -> None:
    module = imported(published)
    with pytest.raises(ValueError, match=r"relu was not judged for float32\[7,5\]: it was for"):
        module.relu(torch.ones(7, 5))
    with pytest.raises(ValueError, match=r"relu takes .*, and 2 were given"):
        module.relu(torch.ones(3), torch.ones(3))
    shape = next(iter(module.DOMAIN))
    rows, columns = map(int, shape[shape.index("[") + 1 : -1].split(","))
    with pytest.raises(ValueError, match="must have the strides"):
        module.relu(torch.ones(columns, rows).t())
    with pytest.raises(ValueError, match="there is no backward"):
        module.relu(torch.ones(rows, columns, requires_grad=True))


def test_the_receipt_holds_where_the_folder_is_moved(
    made: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["--keys", str(made / "keys")]
    assert main(["kernel", "verify", str(published), *keys]) == 0
    assert "verified: sha256:" in capsys.readouterr().out


def test_one_changed_byte_of_any_file_is_found(made: Path, published: Path) -> None:
    files = [path for path in published.rglob("*") if path.is_file()]
    assert len(files) >= 8
    for path in files:
        whole = path.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ReceiptError):
                verify_published(published, made / "keys")
        path.unlink()
        with pytest.raises(ReceiptError, match="is missing"):
            verify_published(published, made / "keys")
        path.write_bytes(whole)
    (published / BUILD / "sitecustomize.py").write_text("")
    with pytest.raises(ReceiptError, match="was added after it was signed"):
        verify_published(published, made / "keys")


def test_another_key_is_not_believed(
    made: Path, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_key(tmp_path / "keys", "judge")
    keys = ["--keys", str(tmp_path / "keys")]
    assert main(["kernel", "verify", str(published), *keys]) == 1
    assert "the signature does not hold" in capsys.readouterr().err
    place = ["--registry", str(made / "registry"), "--keys", str(made / "keys")]
    assert main(["kernel", "publish", "relu", "--to", str(published), *place]) == 2
    assert "is not empty" in capsys.readouterr().err


class Activation(torch.nn.Module):
    """A layer that `kernelize` replaces."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def test_kernels_loads_it_from_its_folder_and_replaces_a_layer(
    published: Path, driver: OnEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their own loader. Without a GPU the layer that was replaced says so; on one it runs."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # Not installed beside the trainers: transformers 5 fails to import with a kernels above 0.12.
    kernels = pytest.importorskip("kernels", minversion="0.17")
    module = kernels.get_local_kernel(published, backend="cpu")
    x = driver.empty(9, torch.float32).view(3, 3).normal_()
    assert torch.equal(module.relu(x, driver=driver), torch.relu(x))
    layer = kernels.use_kernel_forward_from_hub("Activation")(Activation)()
    repository = kernels.LocalLayerRepository(published, layer_name="relu")
    with kernels.use_kernel_mapping({"Activation": {"cpu": repository}}, inherit_mapping=False):
        replaced = kernels.kernelize(layer, mode=kernels.Mode.INFERENCE, device="cpu")
    with pytest.raises(ValueError, match="was not judged for"), torch.no_grad():
        replaced(torch.ones(7, 5))

"""Verified kernels on a real GPU: launches, streams, captured graphs, faults, compiled code.

The kernels are those of `examples/apply`, judged on this GPU and registered as a user would.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from coding_framework.deployment import apply as kernels
from support.applied import counts, offer, ptx, template

pytestmark = [pytest.mark.integration, pytest.mark.cuda]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "apply_to_a_model", ROOT / "examples" / "apply_to_a_model.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def registry(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    example.register(folder, ROOT / "examples" / "apply", example.Sizes(2, 8, 32, 2), None, "cuda")
    return folder


@pytest.fixture
def ops(example: ModuleType, registry: Path) -> Iterator[ModuleType]:
    for made in kernels._ops.values():
        made.hits = made.checks = 0
        made.misses.clear()
    kernels.enable(registry)
    yield example
    kernels.disable()


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 8, 128, device="cuda"), torch.randn(128, device="cuda")


def right(ops: ModuleType, got: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> bool:
    return torch.allclose(got, kernels._ops["bias_gelu"].function(x, bias), atol=1e-5)


@torch.no_grad()
def test_kernels_run_and_every_other_call_is_the_functions(ops: ModuleType) -> None:
    x, bias = tensors()
    assert right(ops, ops.bias_gelu(x, bias), x, bias)
    assert right(ops, ops.bias_gelu(x, bias), x, bias)
    assert right(ops, ops.bias_gelu(x[:1], bias), x[:1], bias)
    assert right(ops, ops.bias_gelu(x.cpu(), bias.cpu()), x.cpu(), bias.cpu())
    unaligned = torch.randn(2 * 8 * 128 + 1, device="cuda")[1:].view(2, 8, 128)
    assert right(ops, ops.bias_gelu(unaligned, bias), unaligned, bias)
    assert counts("bias_gelu") == {"hits": 2, "shape": 1, "device": 1, "alignment": 1}


@torch.no_grad()
def test_the_model_agrees_before_and_after(ops: ModuleType) -> None:
    found = ops.compare(ops.Sizes(2, 8, 32, 2), "cuda")
    assert found["largest_difference"] < 1e-4
    assert all(found["hits"].values())


@torch.no_grad()
def test_streams_at_once_have_their_own_temporaries(ops: ModuleType) -> None:
    x = torch.randn(2, 8, 32, device="cuda")
    weight, bias = torch.randn(2, 32, device="cuda")
    ops.add_norm(x, x, weight, bias)
    wrong: list[int] = []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(200):
                mine = x * seed
                got = ops.add_norm(mine, x, weight, bias)
                want = kernels._ops["add_norm"].function(mine, x, weight, bias)
                if not torch.allclose(got, want, atol=1e-4):
                    wrong.append(seed)
            torch.cuda.current_stream().synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_thread_that_used_no_cuda_yet_loads_and_launches(ops: ModuleType) -> None:
    """The driver's calls need a context of their thread, which PyTorch's take only when needed."""
    x, bias = tensors()
    want = kernels._ops["bias_gelu"].function(x, bias)
    torch.cuda.synchronize()
    found: list[dict[str, int]] = []

    def work() -> None:
        with torch.no_grad():
            ops.bias_gelu(x, bias)
            found.append(counts("bias_gelu"))

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [{"hits": 1}, {"hits": 2}]
    with torch.no_grad():
        assert torch.allclose(ops.bias_gelu(x, bias), want, atol=1e-5)


@torch.no_grad()
def test_a_captured_graph_runs_the_kernel_without_python(ops: ModuleType) -> None:
    x, bias = tensors()
    ops.bias_gelu(x, bias)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        ops.bias_gelu(x, bias)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = ops.bias_gelu(x, bias)
    before = kernels.stats()["bias_gelu"]["calls"]
    for seed in range(3):
        x.copy_(torch.randn_like(x) * (seed + 1))
        graph.replay()
        assert right(ops, got, x, bias)
    assert kernels.stats()["bias_gelu"]["calls"] == before


@torch.no_grad()
def test_the_first_call_of_a_kernel_is_not_made_in_a_capture(ops: ModuleType) -> None:
    x, bias = tensors()
    torch.nn.functional.gelu(x + bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = ops.bias_gelu(x, bias)
    graph.replay()
    assert right(ops, got, x, bias)
    assert counts("bias_gelu") == {"hits": 0, "capture": 1}


@torch.no_grad()
def test_compiled_code_runs_kernels_without_a_graph_break(ops: ModuleType) -> None:
    sizes = ops.Sizes(2, 8, 32, 2)
    model = ops.make_model(sizes).to("cuda")
    x = torch.randn(sizes.batch, sizes.length, sizes.width, device="cuda")
    expected = model(x)
    kernels.replace(model, ops.replaced(sizes))
    model(x)
    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(model, fullgraph=True, mode=mode)
        for _ in range(3):
            assert torch.allclose(compiled(x), expected, atol=1e-4)
    assert kernels.stats()["add_norm"]["hits"] >= 8
    torch.library.opcheck(torch.ops.cuda_rl.bias_gelu.default, tensors())


def test_a_tensor_of_another_gpu_is_launched_there(ops: ModuleType) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with torch.no_grad():
        x, bias = (t.to("cuda:1") for t in tensors())
        assert right(ops, ops.bias_gelu(x, bias), x, bias)


def _run(program: str) -> subprocess.CompletedProcess[str]:
    head = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)],
        capture_output=True, text=True, check=False, env={**os.environ},
    )  # fmt: skip


_FAULTY = """
    import torch
    from pathlib import Path
    from support.applied import bias_gelu, offer, template
    from coding_framework.deployment import apply as kernels
    from coding_framework.deployment.apply.cuda_launcher import CudaLauncher
    from coding_framework.deployment.apply.kernel_set import KernelSet, Options

    launcher = CudaLauncher()
    name, driver, sm = launcher._device(0)
    made = KernelSet(Path({folder!r}), launcher, Options())
    here = {{"device": name, "driver": driver, "sm": str(sm)}}
    made.take([offer(template(op="faulty", entry="{entry}"), **here)])
    fused = kernels.op("faulty")(bias_gelu)
    kernels._ops["faulty"].kernels = made
    kernels._enabled = made
    x, b = torch.randn(4, 32, device="cuda"), torch.randn(32, device="cuda")
    with torch.no_grad():
        {body}
"""


def test_a_fault_of_the_device_is_written_down_and_raised(tmp_path: Path) -> None:
    done = _run(_FAULTY.format(folder=str(tmp_path), entry="faulty", body="fused(x, b)"))
    assert "KernelFault" in done.stderr
    (file,) = (tmp_path / "quarantine").glob("*.json")
    assert json.loads(file.read_text())["kernel"] == template().kernel


def test_a_fault_in_a_captured_graph_is_known_to_the_next_process(tmp_path: Path) -> None:
    body = """made.launched.add(made.offers["faulty"][0].kernel)
        call = made.prepare(made.offers["faulty"][0], 0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call((x, b), (x.data_ptr(), b.data_ptr()))
        graph.replay()"""
    _run(_FAULTY.format(folder=str(tmp_path), entry="faulty", body=body))
    assert list((tmp_path / "quarantine").glob("*.json"))


def test_more_shared_memory_than_there_is_falls_back(tmp_path: Path) -> None:
    body = "print(torch.equal(fused(x, b), bias_gelu(x, b)), made.out)"
    program = _FAULTY.format(folder=str(tmp_path), entry="bias_gelu", body=body).replace(
        'template(op="faulty", entry="bias_gelu")',
        'shared(template(op="faulty"))',
    )
    program = program.replace(
        "    launcher = CudaLauncher()",
        "    def shared(t):\n"
        '        step = t.launches[0].model_copy(update={"shared_bytes": 1 << 20})\n'
        '        return t.model_copy(update={"steps": (step,)})\n\n'
        "    launcher = CudaLauncher()",
    )
    done = _run(program)
    assert done.stdout.startswith("True"), done.stderr
    assert "shared memory" in done.stdout


def test_after_a_fork_the_function_runs(ops: ModuleType) -> None:
    """PyTorch itself refuses tensors on a GPU in a forked child; those of the CPU work."""
    with torch.no_grad():
        ops.bias_gelu(*tensors())
    child = os.fork()
    if child == 0:
        ops.bias_gelu(torch.zeros(2), torch.zeros(2))
        os._exit(0 if counts("bias_gelu").get("fork") == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_ptx_is_compiled_by_the_driver_where_there_is_no_cubin() -> None:
    from coding_framework.deployment.apply.cuda_launcher import CudaLauncher

    x, b = torch.randn(4, 32, device="cuda"), torch.randn(32, device="cuda")
    for entry in ("bias_gelu", "through"):
        made = offer(template(entry=entry))
        call = CudaLauncher().prepare(made.template, lambda code: ptx(), 0)
        (got,) = call((x, b), (x.data_ptr(), b.data_ptr()))
        assert torch.allclose(got, torch.nn.functional.gelu(x + b), atol=1e-5)

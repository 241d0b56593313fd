"""What PyTorch sees of an operation: one opaque operator, or the function where gradients flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from support.applied import applied, bias_gelu, counts, inputs, kernel_set, offer, template

pytestmark = pytest.mark.unit


def test_opcheck_passes(tmp_path: Path) -> None:
    x, b = inputs()
    with applied("p_check", kernel_set(tmp_path, offer(template(op="p_check")))):
        op = torch.ops.cuda_rl.p_check.default
        torch.library.opcheck(op, (x, b))
        torch.library.opcheck(op, (x.clone().requires_grad_(), b))
        assert counts("p_check")["hits"] > 0


def test_compiled_code_has_no_graph_break_and_runs_the_kernel(tmp_path: Path) -> None:
    x, b = inputs()
    with applied("p_compile", kernel_set(tmp_path, offer(template(op="p_compile")))) as fused:
        seen: list[Any] = []

        def backend(graph: torch.fx.GraphModule, example: Any) -> Any:
            seen.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
            return graph

        @torch.compile(fullgraph=True, backend=backend)
        def layer(x: torch.Tensor) -> torch.Tensor:
            return fused(x * 2, b) + 1

        for _ in range(2):
            assert torch.allclose(layer(x), bias_gelu(x * 2, b) + 1, atol=1e-6)
        assert torch.ops.cuda_rl.p_compile.default in seen
        assert counts("p_compile") == {"hits": 2}


def test_compiled_training_has_the_functions_own_gradient(tmp_path: Path) -> None:
    x, b = inputs()
    with applied("p_train", kernel_set(tmp_path, offer(template(op="p_train")))) as fused:
        layer = torch.compile(lambda x: fused(x, b).sum(), fullgraph=True, backend="aot_eager")
        x.requires_grad_()
        layer(x).backward()
        expected = torch.autograd.grad(bias_gelu(x, b).sum(), x)[0]
        assert torch.allclose(x.grad, expected, atol=1e-6)
        assert counts("p_train")["hits"] == 0


def test_compiled_code_under_autocast_is_the_function(tmp_path: Path) -> None:
    def product(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu((x + b) @ torch.eye(32))

    x, b = inputs()
    with applied("p_cast", kernel_set(tmp_path), product) as fused:
        layer = torch.compile(lambda x: fused(x, b), fullgraph=True, backend="aot_eager")
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == fused(x, b).dtype == torch.bfloat16
            assert torch.ops.cuda_rl.p_cast(x, b).dtype == torch.bfloat16


def test_export_holds_one_operator(tmp_path: Path) -> None:
    x, b = inputs()
    with applied("p_export", kernel_set(tmp_path, offer(template(op="p_export")))) as fused:

        class Layer(torch.nn.Module):
            def forward(self, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
                return fused(x, b)

        with torch.no_grad():
            program = torch.export.export(Layer(), (x, b))
        targets = [n.target for n in program.graph.nodes if n.op == "call_function"]
        assert targets == [torch.ops.cuda_rl.p_export.default]
        assert torch.allclose(program.module()(x, b), bias_gelu(x, b), atol=1e-6)


def test_modes_see_the_operator_and_fake_tensors_only_shapes(tmp_path: Path) -> None:
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, b = inputs()
    with applied("p_modes", kernel_set(tmp_path, offer(template(op="p_modes")))) as fused:
        with Watch():
            fused(x, b)
        assert "cuda_rl.p_modes.default" in seen
        with FakeTensorMode() as mode:
            fake = fused(mode.from_tensor(x), mode.from_tensor(b))
        assert fake.shape == x.shape
        assert fused(x.to("meta"), b.to("meta")).device.type == "meta"
        with torch.device("cpu"):
            fused(x, b)
        assert counts("p_modes")["hits"] == 2


def test_two_outputs_numbers_and_defaults_are_in_the_operators_schema(tmp_path: Path) -> None:
    def both(
        x: torch.Tensor, scale: float = 2.0, times: int = 3
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return x * scale, x + times

    with applied("p_schema", kernel_set(tmp_path), both) as op:
        schema = str(torch.ops.cuda_rl.p_schema.default._schema)
        assert schema.endswith("(Tensor x, float scale=2., SymInt times=3) -> (Tensor, Tensor)")
        x = inputs()[0]
        torch.library.opcheck(torch.ops.cuda_rl.p_schema.default, (x, 2.0), test_utils=[
            "test_schema", "test_faketensor"])  # fmt: skip
        assert all(map(torch.equal, op(x, times=1), both(x, times=1)))

"""Three fused operations of a small transformer, judged, registered and put in their place.

    uv run examples/apply_to_a_model.py                       # on this machine's GPU
    uv run examples/apply_to_a_model.py --device emulator     # tiny, without a GPU

The kernels are those of examples/apply; --kernels takes another folder with the same names, for
example what `cuda-rl solve` found. Each is judged for the shapes of this model, gets its launch
templates and a receipt, and goes into a registry (--registry, default: a temporary one). Then the
model runs before and after its modules are replaced; on a GPU with the times of both.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from coding_framework.cli import main as cuda_rl
from coding_framework.deployment import apply as kernels

HERE = Path(__file__).resolve().parent


# --- the operations: each function is the reference of its kernel, and what runs without one ------


@kernels.op("bias_gelu")
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return nn.functional.gelu(x + bias)


@kernels.op("add_norm")
def add_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return nn.functional.layer_norm(x + residual, weight.shape, weight, bias)


@kernels.op("scaled_softmax")
def scaled_softmax(scores: Tensor, scale: float) -> Tensor:
    return torch.softmax(scores * scale, dim=-1)


# --- a model as anybody writes it -----------------------------------------------------------------


class BiasGelu(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width) / 10)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(x + self.bias)


class AddNorm(nn.LayerNorm):
    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return super().forward(x + residual)


class ScaledSoftmax(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores * self.scale, dim=-1)


@dataclass(frozen=True)
class Sizes:
    batch: int
    length: int
    width: int
    heads: int
    layers: int = 2

    @property
    def hidden(self) -> int:
        return 4 * self.width


class Layer(nn.Module):
    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.heads = s.heads
        self.qkv = nn.Linear(s.width, 3 * s.width)
        self.attention = ScaledSoftmax(1.0 / math.sqrt(s.width // s.heads))
        self.out = nn.Linear(s.width, s.width)
        self.norm1 = AddNorm(s.width)
        self.up = nn.Linear(s.width, s.hidden, bias=False)
        self.act = BiasGelu(s.hidden)
        self.down = nn.Linear(s.hidden, s.width)
        self.norm2 = AddNorm(s.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(split).permute(2, 0, 3, 1, 4)
        mixed = self.attention(q @ k.transpose(-2, -1)) @ v
        x = self.norm1(self.out(mixed.transpose(1, 2).reshape(batch, length, width)), x)
        return self.norm2(self.down(self.act(self.up(x))), x)


def make_model(s: Sizes) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(s) for _ in range(s.layers))).eval()


def replaced(s: Sizes) -> dict[str, str]:
    """Operation by module."""
    of_layer = {"attention": "scaled_softmax", "norm1": "add_norm", "act": "bias_gelu",
                "norm2": "add_norm"}  # fmt: skip
    return {f"{i}.{name}": op for i in range(s.layers) for name, op in of_layer.items()}


# --- what the judge is asked ----------------------------------------------------------------------

_HEAD = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
REFERENCES = {
    "bias_gelu": """\
    def forward(self, x, bias):
        return nn.functional.gelu(x + bias)
""",
    "add_norm": """\
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, residual):
        return self.norm(x + residual)
""",
    "scaled_softmax": """\
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, scores):
        return torch.softmax(scores * self.scale, dim=-1)
""",
}


def task(op: str, s: Sizes, large: Sizes | None) -> dict[str, object]:
    """A task file: the operation at the shapes of the model, and at two others. large: sizes for
    the judge's measurements on a GPU."""
    small = {"main": s, "odd": Sizes(1, 7, 24, 2), "tiny": Sizes(3, 5, 40, 4)}
    return {
        "name": op, "tier": 1, "family": "example", "ops": [op], "description": op,
        "reference": _HEAD + REFERENCES[op],
        "cases": [_case(op, sizes, s, name) for name, sizes in small.items()],
        "gpu_cases": [] if large is None else [_case(op, large, large, "model")],
    }  # fmt: skip


def _case(op: str, s: Sizes, model: Sizes, name: str) -> dict[str, object]:
    tokens = [s.batch, s.length, s.width]
    shapes, init_args, terms = {
        "bias_gelu": ({"x": [*tokens[:2], s.hidden], "bias": [s.hidden]}, [], 1),
        "add_norm": ({"x": tokens, "residual": tokens}, [s.width], s.width),
        "scaled_softmax": (
            {"scores": [s.batch, s.heads, s.length, s.length]},
            [1.0 / math.sqrt(model.width // model.heads)],
            s.length,
        ),
    }[op]
    inputs = [{"name": name, "shape": shape} for name, shape in shapes.items()]
    return {"name": name, "inputs": inputs, "init_args": init_args, "reduction_length": terms,
            "shown": name == "main"}  # fmt: skip


def register(folder: Path, sources: Path, s: Sizes, large: Sizes | None, backend: str) -> None:
    """Judge the three kernels and store them, ready to be used."""
    keys = folder / "signing"
    run("kernel", "key", "new", "judge", "--keys", keys)
    for op in REFERENCES:
        description = folder / f"{op}.json"
        description.write_text(json.dumps(task(op, s, large)))
        run("kernel", "add", sources / f"{op}.cu", "--task", description, "--registry", folder,
            "--keys", keys, "--backend", backend)  # fmt: skip
        run("kernel", "promote", op, "--to", "active", "--registry", folder)


def run(*arguments: object) -> None:
    status = cuda_rl([str(argument) for argument in arguments])
    if status:
        raise SystemExit(status)


def milliseconds(model: nn.Module, x: Tensor, calls: int = 50) -> float:
    """Of a call on a GPU: the median of so many."""
    times = []
    for _ in range(calls):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        model(x)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def compare(s: Sizes, device: str) -> dict[str, object]:
    """The model before and after."""
    model = make_model(s).to(device)
    x = torch.randn(s.batch, s.length, s.width, device=device)
    with torch.no_grad():
        expected = model(x)
        before = milliseconds(model, x) if device == "cuda" else None
        kernels.replace(model, replaced(s))
        got = [model(x) for _ in range(2)][1]  # the first call of each kernel is checked
        after = milliseconds(model, x) if device == "cuda" else None
        kernels.restore(model)
        assert torch.allclose(model(x), expected, atol=1e-5)
    stats = kernels.stats()
    return {
        "largest_difference": float((got - expected).abs().max()),
        "before_ms": before,
        "after_ms": after,
        "hits": {name: stats[name]["hits"] for name in REFERENCES},
        "misses": {name: stats[name]["misses"] for name in REFERENCES},
        "ns_per_call": {name: stats[name]["ns_per_call"] for name in REFERENCES},
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, object]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--kernels", type=Path, default=HERE / "apply", metavar="DIR")
    parser.add_argument("--registry", type=Path, metavar="DIR", help="that has the kernels already")
    args = parser.parse_args(arguments)
    small, large = Sizes(2, 8, 32, 2), Sizes(8, 1024, 1024, 16)
    on_gpu = args.device == "cuda"
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.registry or Path(temporary)
        if args.registry is None:
            register(folder, args.kernels, small, large if on_gpu else None, args.device)
        kernels.enable(folder, device=args.device)
        found = compare(large if on_gpu else small, "cuda" if on_gpu else "cpu")
        kernels.disable()
    print(json.dumps(found, indent=2))
    return found


if __name__ == "__main__":
    main()

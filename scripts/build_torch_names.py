"""Writes the names of torch that the handle-only torch knows of, from the installed torch.

    uv run python scripts/build_torch_names.py

Run it after torch's version changed; a test says when.
"""

from __future__ import annotations

import inspect
import pkgutil
import types
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

TARGET = (
    Path(__file__).resolve().parents[1]
    / "src/coding_framework/cuda/model_new/handle_torch/torch_names.txt"
)
NOT_TORCHS = frozenset(["pynvml"])
"""In torch's namespaces where they are installed."""
PACKAGES = "numpy triton cupy numba pycuda scipy einops cutlass cuda tvm tilelang"
"""That answers import, sometimes without need: they are named when they are used."""
_OPERATOR_MODULES = ("linalg", "fft", "special", "sparse", "nested", "masked")
_NO_OPERATORS = frozenset(
    [
        "is_tensor",
        "is_storage",
        "is_complex",
        "is_conj",
        "is_floating_point",
        "is_grad_enabled",
        "is_inference",
        "is_neg",
        "is_nonzero",
        "is_same_size",
        "is_signed",
        "is_vulkan_available",
        "get_device",
        "promote_types",
        "result_type",
        "can_cast",
        "numel",
        "set_printoptions",
        "backward",
        "compile",
        "save",
        "load",
    ]
)


def public(names: list[str]) -> list[str]:
    return sorted(n for n in names if not n.startswith("_") and n not in NOT_TORCHS)


def named() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """(operators, others) of each namespace."""
    operators = {
        "torch": {n for n in dir(torch._C._VariableFunctions) if n not in _NO_OPERATORS}
        | set(_OPERATOR_MODULES)
        | set(torch.functional.__all__),
        "torch.nn.functional": {
            n for n in dir(functional) if inspect.isroutine(getattr(functional, n))
        },
        "torch.Tensor": {
            n
            for n in dir(torch.Tensor)
            if callable(getattr(torch.Tensor, n)) and n not in _NO_OPERATORS
        },
        "torch.nn.init": set(),
        "torch.cuda": set(),
        "torch.nn.Module": set(),
    }
    spaces: dict[str, Any] = {
        "torch": torch,
        "torch.nn.functional": functional,
        "torch.Tensor": torch.Tensor,
        "torch.nn.init": nn.init,
        "torch.cuda": torch.cuda,
        "torch.nn.Module": nn.Module,
    }
    ours = {k: public(sorted(v)) for k, v in operators.items() if v}
    others = {
        k: public([n for n in dir(space) if n not in operators[k]]) for k, space in spaces.items()
    }
    modules = {m.name for m in pkgutil.iter_modules(torch.__path__)}  # whatever was imported here
    named = {n for n in others["torch"] if not isinstance(getattr(torch, n), types.ModuleType)}
    others["torch"] = public(sorted(named | (modules - set(ours["torch"]))))
    return ours, others


def layers() -> dict[str, str]:
    """By the name of a class in torch.nn, the module of `torch.nn.modules` that defines it; "" of
    those that another one does."""
    kinds = {name: getattr(nn, name) for name in public(dir(nn))}
    return {
        name: kind.__module__.rpartition(".")[2] if ".nn.modules." in kind.__module__ else ""
        for name, kind in kinds.items()
        if inspect.isclass(kind) and issubclass(kind, nn.Module)
    }


def text() -> str:
    """Lines of (kind, where, names), separated by tabs."""
    operators, others = named()
    rows = [("operators", where, " ".join(names)) for where, names in operators.items()]
    rows += [("others", where, " ".join(names)) for where, names in others.items()]
    rows += [("layer", name, file) for name, file in layers().items()]
    rows.append(("packages", "", PACKAGES))
    return "".join("\t".join(row) + "\n" for row in rows)


if __name__ == "__main__":
    TARGET.write_text(text())
    print(f"wrote {TARGET}")

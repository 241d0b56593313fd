"""`cuda-rl new-task NAME`: a task of one's own, and a kernel that is right for it, to edit."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, config_from
from coding_framework.commands.one_kernel import add_module_flags, read_task
from coding_framework.errors import UnreadableError, UsageError
from coding_framework.paths import write_atomic
from coding_framework.types import Config

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")

TASK = '''\
"""The task {name}: a KernelBench problem. Edit the sizes, the reference and the inputs."""

import torch
from torch import nn

rows = 256
columns = 500
# Sizes have names, so that the judge can try the kernel at other sizes too.


class Model(nn.Module):
    """relu(x + bias) * scale"""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + bias) * self.scale


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs() -> list[float]:
    return [1.5]
'''

KERNEL = """\
// A kernel for the task {name}.py: one thread an element. `forward` gets the task's inputs in
// order, then the model's parameters, then the scalars that the model was made with.
#include <torch/extension.h>

__global__ void {name}_kernel(const float* __restrict__ x, const float* __restrict__ bias,
                              float* __restrict__ out, float scale, int64_t columns, int64_t n) {{
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < n) {{
        out[i] = fmaxf(x[i] + bias[i % columns], 0.0f) * scale;
    }}
}}

torch::Tensor forward(torch::Tensor x, torch::Tensor bias, double scale) {{
    auto out = torch::empty_like(x);
    const int64_t n = x.numel();
    const int threads = 256;
    const int blocks = static_cast<int>((n + threads - 1) / threads);
    {name}_kernel<<<blocks, threads>>>(x.data_ptr<float>(), bias.data_ptr<float>(),
                                       out.data_ptr<float>(), static_cast<float>(scale),
                                       bias.numel(), n);
    return out;
}}

// The binding: the judge calls `forward`.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
    m.def("forward", &forward, "{name}");
}}
"""


class NewTaskOptions(Config):
    """Where the two files go."""

    output_dir: Path = Path()
    """Folder of the two files. Default: this one."""


def add_to(commands: Any) -> None:
    text = "Write a task of your own and a kernel for it, as files to edit."
    p = add_command(commands, "new-task", run, text)
    text = "lower case, for example my_layer; with --from that of the class"
    p.add_argument("name", metavar="NAME", nargs="?", help=text)
    p.add_argument(
        "--from",
        dest="module",
        metavar="FILE.py:CLASS",
        help="make the task of a PyTorch module of your own, and a kernel if the compiler writes "
        "one",
    )
    add_module_flags(p)
    add_flags(p, NewTaskOptions, NewTaskOptions.model_fields)


def _write_from_module(path: Path, kernel: Path, args: Namespace) -> None:
    """The task of `--from`, and its kernel, or what one has to be called as."""
    from coding_framework.agents.prompts.contract import contract_of
    from coding_framework.data.kernels import kernels_of

    task = read_task(Namespace(**{**vars(args), "task": args.module}))
    write_atomic(path, task.reference)
    print(f"{path}: the module, its sizes and its inputs")
    try:
        write_atomic(kernel, kernels_of(task)[0].code)
        print(f"{kernel}: a first kernel, as `cuda-rl write` writes it")
    except UnreadableError as e:
        begun = "#include <torch/extension.h>\n\n// To be written. The judge calls\n//   "
        write_atomic(kernel, f"{begun}{contract_of(task).signature}\n")
        print(f"{kernel}: to be written, since {e}; it says what the judge calls")


def run(args: Namespace) -> int:
    folder = config_from(NewTaskOptions, args).output_dir
    name = args.name or (args.module or "").rpartition(":")[2].lower()
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a task cannot be called {name!r}: give a NAME of lower-case letters, digits and _, a "
            "letter first"
        )
    task, kernel = folder / f"{name}.py", folder / f"{name}.cu"
    for path in (task, kernel):
        if path.exists():
            raise UsageError(f"{path} is there already: choose another name, or remove it")
    if args.module is None:
        write_atomic(task, TASK.format(name=name))
        write_atomic(kernel, KERNEL.format(name=name))
        print(f"{task}: sizes, reference and inputs\n{kernel}: a kernel that is right for them")
    else:
        _write_from_module(task, kernel, args)
    print(f"next: cuda-rl judge --task {task} --watch {kernel}")
    return EXIT_OK

"""Modules of one input, written around the lines of a `forward`, and read as graphs."""

from __future__ import annotations

from coding_framework.data.graph import Graph
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.read import read

PROBLEM = """\
import torch
from torch import nn
import torch.nn.functional as F

rows = 64
features = 48
outputs = 32


class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
{init}

    def forward(self, x):
{forward}


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [{arguments}]
"""


def problem(forward: str, init: str = "pass", parameters: str = "", arguments: str = "") -> Graph:
    def indented(text: str) -> str:
        return "\n".join(f"        {line}" for line in text.splitlines())

    source = PROBLEM.format(
        forward=indented(forward), init=indented(init), parameters=parameters, arguments=arguments
    )
    return read(problem_task(source, "own"))


LINEAR = {
    "init": "self.lin = nn.Linear(features, outputs)",
    "parameters": ", features, outputs",
    "arguments": "features, outputs",
}

CONVOLUTION = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, c, m):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(2, 80, 9, 8)]


def get_init_inputs():
    return [80, 72]
"""

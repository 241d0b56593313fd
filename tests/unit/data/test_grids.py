"""Every kernel's launch fits a GPU's grid at the sizes on which it is timed there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from coding_framework.data.synthesis.catalog import build_task, kernels, workload_catalog

MOST = (2**31 - 1, 65_535, 65_535)
"""Blocks along x, y and z (CUDA C++ Programming Guide, "Technical Specifications")."""
SIZE = re.compile(r"(\w+)\.size\((-?\d+)\)|(\w+)\.numel\(\)")
COMMA = re.compile(r",(?![^()]*\))")
Shapes = dict[str, tuple[int, ...]]


def value_of(expression: str, shapes: Shapes, names: dict[str, int]) -> int:
    """A C++ expression of sizes and names."""
    sizes = SIZE.sub(
        lambda m: str(shapes[m[1]][int(m[2])] if m[1] else math.prod(shapes[m[3]])), expression
    )
    return int(eval(sizes.replace("/", "//"), {"__builtins__": {}}, names))


def sizes_in(body: str, shapes: Shapes) -> dict[str, int]:
    """`int m = x.size(0), w = ...;` and the like, by name; what is no number is left out."""
    names: dict[str, int] = {}
    for statement in re.findall(r"(?:int|long|int64_t|auto) ([^;]*);", body):
        for part in COMMA.split(statement):
            name, _, expression = part.partition("=")
            try:
                names[name.strip()] = value_of(expression, shapes, names)
            except (NameError, SyntaxError, KeyError, AttributeError, TypeError):
                continue
    return names


def grids(code: str, tensors: list[tuple[int, ...]]) -> Iterator[list[int]]:
    """The grid of each launch with a dim3 in `forward`, for inputs of these shapes."""
    head, body = code.split("forward(", 1)[1].split("{", 1)
    shapes = dict(zip(re.findall(r"torch::Tensor (\w+)", head), tensors, strict=False))
    names = sizes_in(body, shapes)
    for launch in re.findall(r"<<<\s*dim3\((.*?)\),\s*(?:dim3\([^<]*\)|\d+)[^<]*>>>", body, re.S):
        yield [value_of(part, shapes, names) for part in COMMA.split(launch)]


def test_a_grid_in_two_directions_is_read() -> None:
    code = """
torch::Tensor forward(torch::Tensor x) {
  int m = x.size(0) * x.size(1), w = x.size(2);
  k<<<dim3((w * 2 + 127) / 128, m), 128>>>(x.data_ptr<float>(), w);
}
"""
    assert list(grids(code, [(300, 400, 128)])) == [[2, 120_000]]


def test_every_launch_fits_a_grid_at_the_sizes_of_a_gpu() -> None:
    seen, too_large = 0, {}
    for function in workload_catalog():
        task = build_task(function)
        for kernel in kernels(function):
            for case in task.gpu_cases:
                for grid in grids(kernel.code, [spec.shape for spec in case.inputs]):
                    seen += 1
                    if any(n > most for n, most in zip(grid, MOST, strict=False)):
                        too_large[task.name, kernel.level, case.name] = grid
    assert seen > 500
    assert too_large == {}

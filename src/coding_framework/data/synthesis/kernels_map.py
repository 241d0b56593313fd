"""Elementwise kernels: one thread per element, and four elements per thread."""

from __future__ import annotations

from coding_framework.data.synthesis.interval import Operand
from coding_framework.data.synthesis.kernel_text import (
    Launch,
    Lines,
    block,
    device_function,
    flat_reads,
    guarded,
    one_kernel,
    statements,
)
from coding_framework.data.synthesis.program import Program
from coding_framework.data.synthesis.styles import Style
from coding_framework.types import KernelExample

_BROADCAST_BLOCK = 128


def kernels(program: Program, style: Style) -> tuple[KernelExample, ...]:
    if _broadcasts(program):
        return _naive(program, style), _vectorized_rows(program, style)
    return _naive(program, style), _vectorized(program, style)


def _broadcasts(program: Program) -> bool:
    return bool({"row", "col"} & {given.kind for given in program.inputs})


def _naive(program: Program, style: Style) -> KernelExample:
    v, i = style.value, style.index
    before, _ = program.bind()
    body = [
        f"float {v} = x[{i}];",
        *statements(before, v, flat_reads(i)),
        f"{style.out}[{i}] = {v};",
    ]
    wide = _broadcasts(program)
    sizes = ["n", "w"] if wide else ["n"]
    lines = [
        f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;",
        *guarded(style, f"{i} < n", f"{i} >= n", body),
    ]
    launch = Launch(
        sizes="int n = x.numel(), w = x.size(1);" if wide else "int n = x.numel();",
        allocate="torch::empty_like(x)",
        grid=f"(n + {style.block - 1}) / {style.block}, {style.block}",
        arguments=sizes,
    )
    return one_kernel(program, style, "naive", "one thread per element", launch, lines)


def _lanes(program: Program) -> str:
    """The four calls of `f` on the lanes of the loaded vectors (x4, y4, ...)."""
    calls = []
    for lane in "xyzw":
        values = [f"x4.{lane}"]
        for given in program.inputs:
            vector = given.kind in ("full", "row")
            values.append(f"{given.name}4.{lane}" if vector else f"{given.name}0")
        calls.append(f"f({', '.join(values)})")
    return f"make_float4({', '.join(calls)})"


def _loads(program: Program, places: dict[Operand, str], index: str) -> tuple[Lines, list[str]]:
    """(loads of four lanes or of one value that they share, the same reads of a single element)."""
    loads, values = [f"float4 x4 = *(const float4*)(x + {index});"], [f"x[{index}]"]
    for given in program.inputs:
        name, place = given.name, places[given.kind or "full"]
        values.append(f"{name}[{place}]")
        if given.kind in ("full", "row"):
            loads.append(f"float4 {name}4 = *(const float4*)({name} + {place});")
        else:
            loads.append(f"float {name}0 = {name}[{place}];")
    return loads, values


def _either(condition: str, then: Lines, otherwise: str) -> Lines:
    return [*block(f"if ({condition})", then)[:-1], "} else {", f"  {otherwise}", "}"]


def _vectorized(program: Program, style: Style) -> KernelExample:
    i, out = style.index, style.out
    loads, values = _loads(program, {"full": i, "scalar": "0"}, i)
    body = [
        f"int {i} = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        *_either(
            f"{i} + 3 < n",
            [*loads, f"*(float4*)({out} + {i}) = {_lanes(program)};"],
            f"for (; {i} < n; {i}++) {out}[{i}] = f({', '.join(values)});",
        ),
    ]
    per_block = 4 * style.block
    launch = Launch(
        sizes="int n = x.numel();",
        allocate="torch::empty_like(x)",
        grid=f"(n + {per_block - 1}) / {per_block}, {style.block}",
        arguments=["n"],
    )
    comment = "four elements per thread in one 16-byte access, scalar tail"
    why = (
        "float4 loads and stores move 16 bytes per instruction, so fewer instructions and more "
        "bytes in flight"
    )
    function = device_function(program, style)
    return one_kernel(program, style, "vectorized", comment, launch, body, why, [function])


def _vectorized_rows(program: Program, style: Style) -> KernelExample:
    """One grid row per matrix row: no division, and float4 wherever rows are 16-byte aligned."""
    i, out = style.index, style.out
    places: dict[Operand, str] = {"full": i, "row": "j", "col": "blockIdx.y", "scalar": "0"}
    loads, values = _loads(program, places, i)
    call = f"{out}[{i}] = f({', '.join(values)});"
    body = [
        "int j = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        f"int {i} = blockIdx.y * w + j;",
        *_either(
            "w % 4 == 0 && j < w",
            [*loads, f"*(float4*)({out} + {i}) = {_lanes(program)};"],
            f"for (int e = min(j + 4, w); j < e; j++, {i}++) {call}",
        ),
    ]
    per_block = 4 * _BROADCAST_BLOCK
    launch = Launch(
        sizes="int m = x.size(0), w = x.size(1);",
        allocate="torch::empty_like(x)",
        grid=f"dim3((w + {per_block - 1}) / {per_block}, m), {_BROADCAST_BLOCK}",
        arguments=["w"],
    )
    comment = "a grid row per matrix row, four columns per thread"
    why = (
        "a 2D grid needs no division for the row and column, and float4 moves 16 bytes per "
        "instruction"
    )
    function = device_function(program, style)
    return one_kernel(program, style, "vectorized", comment, launch, body, why, [function])

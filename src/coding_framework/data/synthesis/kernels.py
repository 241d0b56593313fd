"""Kernels of known level for a program: naive, and optimised with a one-line reason.

Guaranteed by construction: one C statement per step, so a kernel of three steps differs from one of
two by one line; every access is bounded by the sizes, which need not be multiples of anything.
Not guaranteed here: correctness, which the judge finds (`receipts`). Indices are `int`, so a tensor
has at most 2^31 - 1 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from coding_framework.data.synthesis.interval import Operand
from coding_framework.data.synthesis.ops import Step
from coding_framework.data.synthesis.program import REDUCTIONS, SCANS, Program
from coding_framework.data.synthesis.styles import COMPACT, Style
from coding_framework.types import KernelExample

Lines = list[str]


@dataclass(frozen=True, slots=True)
class _Combine:
    """How a reduction or scan joins two values."""

    identity: str
    template: str

    def assign(self, target: str, other: str) -> str:
        return f"{target} = {self.template.format(a=target, b=other)};"


_ADD = _Combine("0.0f", "{a} + {b}")
_MAX = _Combine("-INFINITY", "fmaxf({a}, {b})")
_MIN = _Combine("INFINITY", "fminf({a}, {b})")
_COMBINE = {
    "rowsum": _ADD, "rowmean": _ADD, "cumsum": _ADD, "rowmax": _MAX, "cummax": _MAX,
    "rowmin": _MIN,
}  # fmt: skip


@lru_cache(maxsize=4096)
def kernels(program: Program, style: Style = COMPACT) -> tuple[KernelExample, ...]:
    """Naive first, then the optimised ones, best guess last."""
    made: tuple[Callable[[Program, Style], KernelExample], ...]
    if program.layout in REDUCTIONS:
        made = (_naive_reduction, _shared_reduction, _shuffle_reduction)
    elif program.layout in SCANS:
        made = (_naive_scan, _shuffle_scan)
    elif program.layout == "transpose":
        made = (_naive_transpose, _tiled_transpose)
    elif {"row", "col"} & {s.operand for s in program.before}:
        made = (_naive_map, _vectorized_broadcast)
    else:
        made = (_naive_map, _vectorized_map)
    return tuple(make(program, style) for make in made)


# --- pieces of source ---------------------------------------------------------------------------


def _statements(steps: tuple[Step, ...], value: str) -> Lines:
    return [f"{value} = {s.render(s.op.c, value)};" for s in steps]


def _before(program: Program, value: str, reads: dict[Operand, str]) -> Lines:
    """One statement a step; `reads[kind]` is the expression, with {p}, that reads an operand."""
    lines = []
    for operation in program.bind():
        kind = operation.step.operand
        read = reads[kind].format(p=operation.operand) if kind is not None else ""
        lines.append(f"{value} = {operation.step.render(operation.step.op.c, value, read)};")
    return lines


def _block(head: str, body: Lines, *, after: str = "") -> Lines:
    """A braced block, indented by two spaces."""
    return [f"{head} {{", *(f"  {line}" for line in body), "}" + after]


def _tensor_names(program: Program) -> list[str]:
    return ["x", *(name for name, _ in program.operands)]


def _kernel(program: Program, style: Style, sizes: list[str], body: Lines) -> Lines:
    pointers = [style.pointer(name) for name in _tensor_names(program)]
    parameters = [*pointers, style.pointer(style.out, const=False), *(f"int {s}" for s in sizes)]
    return _block(f"__global__ void {style.kernel}({', '.join(parameters)})", body)


def _guarded(style: Style, condition: str, opposite: str, body: Lines) -> Lines:
    if style.early_return:
        return [f"if ({opposite}) return;", *body]
    return _block(f"if ({condition})", body)


def _file(
    program: Program,
    style: Style,
    *parts: Lines,
    allocate: str,
    sizes: Lines,
    launch: str,
    arguments: list[str],
    comment: str,
) -> str:
    """The whole .cu: include, device code, `forward`, module."""
    names = _tensor_names(program)
    pointers = [f"{name}.data_ptr<float>()" for name in (*names, style.out)]
    forward = _block(
        f"torch::Tensor forward({', '.join(f'torch::Tensor {n}' for n in names)})",
        [
            *sizes,
            f"auto {style.out} = {allocate};",
            f"{style.kernel}<<<{launch}>>>({', '.join([*pointers, *arguments])});",
            f"return {style.out};",
        ],
    )
    module = ['PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }']
    note = [f"// {comment}"] if style.comment else []
    sections = [["#include <torch/extension.h>"], *parts, forward, module]
    sections[1] = note + sections[1]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


# --- elementwise --------------------------------------------------------------------------------


def _naive_map(program: Program, style: Style) -> KernelExample:
    v, i = style.value, style.index
    width = bool({"row", "col"} & {s.operand for s in program.before})
    reads: dict[Operand, str] = {
        "full": f"{{p}}[{i}]", "row": f"{{p}}[{i} % w]", "col": f"{{p}}[{i} / w]",
        "scalar": "{p}[0]",
    }  # fmt: skip
    body = [f"float {v} = x[{i}];", *_before(program, v, reads), f"{style.out}[{i}] = {v};"]
    kernel = _kernel(
        program,
        style,
        ["n", "w"] if width else ["n"],
        [
            f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;",
            *_guarded(style, f"{i} < n", f"{i} >= n", body),
        ],
    )
    code = _file(
        program,
        style,
        kernel,
        allocate="torch::empty_like(x)",
        sizes=["int n = x.numel(), w = x.size(1);" if width else "int n = x.numel();"],
        launch=f"(n + {style.block - 1}) / {style.block}, {style.block}",
        arguments=["n", "w"] if width else ["n"],
        comment="one thread per element",
    )
    return KernelExample(task=program.name, level="naive", code=code)


def _device_function(program: Program, style: Style) -> Lines:
    """`f`: all steps on one element; operands are passed by value."""
    v = style.value
    reads: dict[Operand, str] = dict.fromkeys(("full", "row", "col", "scalar"), "{p}")
    names = [v, *(name for name, _ in program.operands)]
    return _block(
        f"__device__ float f({', '.join(f'float {n}' for n in names)})",
        [*_before(program, v, reads), f"return {v};"],
    )


def _lanes(program: Program) -> str:
    """The four calls of `f` on the lanes of the loaded vectors (x4, y4, ...)."""
    calls = []
    for lane in "xyzw":
        values = [f"x4.{lane}"]
        for name, step in program.operands:
            values.append(f"{name}4.{lane}" if step.operand in ("full", "row") else f"{name}0")
        calls.append(f"f({', '.join(values)})")
    return f"make_float4({', '.join(calls)})"


def _vectorized_map(program: Program, style: Style) -> KernelExample:
    i, out = style.index, style.out
    loads = [f"float4 x4 = *(const float4*)(x + {i});"]
    values = [f"x[{i}]"]
    for name, step in program.operands:
        if step.operand == "full":
            loads.append(f"float4 {name}4 = *(const float4*)({name} + {i});")
            values.append(f"{name}[{i}]")
        else:
            values.append(f"{name}0")
    scalars = [f"float {n}0 = {n}[0];" for n, s in program.operands if s.operand == "scalar"]
    body = [
        f"int {i} = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        *scalars,
        *_block(f"if ({i} + 3 < n)", [*loads, f"*(float4*)({out} + {i}) = {_lanes(program)};"]),
    ]
    body[-1] = "} else {"
    body += [f"  for (; {i} < n; {i}++) {out}[{i}] = f({', '.join(values)});", "}"]
    per_block = 4 * style.block
    code = _file(
        program,
        style,
        _device_function(program, style),
        _kernel(program, style, ["n"], body),
        allocate="torch::empty_like(x)",
        sizes=["int n = x.numel();"],
        launch=f"(n + {per_block - 1}) / {per_block}, {style.block}",
        arguments=["n"],
        comment="four elements per thread in one 16-byte access, scalar tail",
    )
    return KernelExample(
        task=program.name,
        level="vectorized",
        code=code,
        why_faster="float4 loads and stores move 16 bytes per instruction, so fewer instructions "
        "and more bytes in flight",
    )


def _vectorized_broadcast(program: Program, style: Style) -> KernelExample:
    """One grid row per matrix row: no division, and float4 wherever rows are 16-byte aligned."""
    i, out = style.index, style.out
    loads, values, once = [f"float4 x4 = *(const float4*)(x + {i});"], [f"x[{i}]"], []
    for name, step in program.operands:
        place = {"full": i, "row": "j", "col": "blockIdx.y", "scalar": "0"}[step.operand or "full"]
        if step.operand in ("full", "row"):
            loads.append(f"float4 {name}4 = *(const float4*)({name} + {place});")
            values.append(f"{name}[{place}]")
        else:
            once.append(f"float {name}0 = {name}[{place}];")
            values.append(f"{name}0")
    body = [
        "int j = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        f"int {i} = blockIdx.y * w + j;",
        *once,
        *_block(
            "if (w % 4 == 0 && j < w)", [*loads, f"*(float4*)({out} + {i}) = {_lanes(program)};"]
        ),
    ]
    body[-1] = "} else {"
    body += [
        f"  for (int e = min(j + 4, w); j < e; j++, {i}++) {out}[{i}] = f({', '.join(values)});",
        "}",
    ]
    per_block = 4 * 128
    code = _file(
        program,
        style,
        _device_function(program, style),
        _kernel(program, style, ["w"], body),
        allocate="torch::empty_like(x)",
        sizes=["int m = x.size(0), w = x.size(1);"],
        launch=f"dim3((w + {per_block - 1}) / {per_block}, m), 128",
        arguments=["w"],
        comment="a grid row per matrix row, four columns per thread",
    )
    return KernelExample(
        task=program.name,
        level="vectorized",
        code=code,
        why_faster="a 2D grid needs no division for the row and column, and float4 moves 16 bytes "
        "per instruction",
    )


# --- row reductions -------------------------------------------------------------------------------

_ROW_READS: dict[Operand, str] = {
    "full": "{p}[r * w + j]", "row": "{p}[j]", "col": "{p}[r]", "scalar": "{p}[0]",
}  # fmt: skip


def _row_loop(program: Program, style: Style, head: str) -> Lines:
    """Accumulate the elements of row r into `a`."""
    v = style.value
    combine = _COMBINE[program.layout]
    body = [f"float {v} = x[r * w + j];", *_before(program, v, _ROW_READS), combine.assign("a", v)]
    return [f"float a = {combine.identity};", *_block(head, body)]


def _finish_row(program: Program, style: Style) -> Lines:
    """From the reduced `a` to the output of row r."""
    v = style.value
    value = "a / w" if program.layout == "rowmean" else "a"
    return [f"float {v} = {value};", *_statements(program.after, v), f"{style.out}[r] = {v};"]


def _row_file(program: Program, style: Style, body: Lines, launch: str, comment: str) -> str:
    return _file(
        program,
        style,
        _kernel(program, style, ["m", "w"], body),
        allocate=(
            "torch::empty({m}, x.options())"
            if program.layout in REDUCTIONS
            else "torch::empty_like(x)"
        ),
        sizes=["int m = x.size(0), w = x.size(1);"],
        launch=launch,
        arguments=["m", "w"],
        comment=comment,
    )


def _naive_reduction(program: Program, style: Style) -> KernelExample:
    body = [
        *_row_loop(program, style, "for (int j = 0; j < w; j++)"),
        *_finish_row(program, style),
    ]
    kernel = [
        "int r = blockIdx.x * blockDim.x + threadIdx.x;",
        *_guarded(style, "r < m", "r >= m", body),
    ]
    launch = f"(m + {style.block - 1}) / {style.block}, {style.block}"
    code = _row_file(program, style, kernel, launch, "one thread per row")
    return KernelExample(task=program.name, level="naive", code=code)


def _shared_reduction(program: Program, style: Style) -> KernelExample:
    combine = _COMBINE[program.layout]
    tree = _block(
        "for (int d = 64; d > 0; d /= 2)",
        [f"if (q < d) {combine.assign('t[q]', 't[q + d]')}", "__syncthreads();"],
    )
    body = [
        "__shared__ float t[128];",
        "int r = blockIdx.x, q = threadIdx.x;",
        *_row_loop(program, style, "for (int j = q; j < w; j += 128)"),
        "t[q] = a;",
        "__syncthreads();",
        *tree,
        *_block("if (q == 0)", ["a = t[0];", *_finish_row(program, style)]),
    ]
    code = _row_file(program, style, body, "m, 128", "one block per row, tree in shared memory")
    return KernelExample(
        task=program.name,
        level="shared",
        code=code,
        why_faster="a block per row reads neighbouring columns together (coalesced) and combines "
        "them in shared memory",
    )


def _shuffle_reduction(program: Program, style: Style) -> KernelExample:
    combine = _COMBINE[program.layout]
    exchange = combine.assign("a", "__shfl_xor_sync(0xffffffff, a, d)")
    body = [
        "int r = blockIdx.x * 4 + threadIdx.x / 32, q = threadIdx.x % 32;",
        "if (r >= m) return;",
        *_row_loop(program, style, "for (int j = q; j < w; j += 32)"),
        f"for (int d = 16; d > 0; d /= 2) {exchange}",
        *_block("if (q == 0)", _finish_row(program, style)),
    ]
    code = _row_file(program, style, body, "(m + 3) / 4, 128", "one warp per row, warp shuffles")
    return KernelExample(
        task=program.name,
        level="shuffle",
        code=code,
        why_faster="a warp per row reads 32 neighbouring columns at once (coalesced) and combines "
        "them with shuffles, without shared memory or barriers",
    )


# --- scans --------------------------------------------------------------------------------------


def _naive_scan(program: Program, style: Style) -> KernelExample:
    v = style.value
    combine = _COMBINE[program.layout]
    loop = _block(
        "for (int j = 0; j < w; j++)",
        [
            f"float {v} = x[r * w + j];",
            *_before(program, v, _ROW_READS),
            combine.assign("a", v),
            f"{v} = a;",
            *_statements(program.after, v),
            f"{style.out}[r * w + j] = {v};",
        ],
    )
    body = [
        "int r = blockIdx.x * blockDim.x + threadIdx.x;",
        *_guarded(style, "r < m", "r >= m", [f"float a = {combine.identity};", *loop]),
    ]
    launch = f"(m + {style.block - 1}) / {style.block}, {style.block}"
    code = _row_file(program, style, body, launch, "one thread per row")
    return KernelExample(task=program.name, level="naive", code=code)


def _shuffle_scan(program: Program, style: Style) -> KernelExample:
    v = style.value
    combine = _COMBINE[program.layout]
    read = [f"{v} = x[r * w + j];", *_before(program, v, _ROW_READS)]
    shift = [
        f"float u = __shfl_up_sync(0xffffffff, {v}, d);",
        f"if (q >= d) {combine.assign(v, 'u')}",
    ]
    loop = _block(
        "for (int j = q; j - q < w; j += 32)",
        [
            f"float {v} = {combine.identity};",
            *_block("if (j < w)", read),
            *_block("for (int d = 1; d < 32; d *= 2)", shift),
            combine.assign(v, "a"),
            f"a = __shfl_sync(0xffffffff, {v}, 31);",
            *_statements(program.after, v),
            f"if (j < w) {style.out}[r * w + j] = {v};",
        ],
    )
    body = [
        "int r = blockIdx.x * 4 + threadIdx.x / 32, q = threadIdx.x % 32;",
        "if (r >= m) return;",
        f"float a = {combine.identity};",
        *loop,
    ]
    code = _row_file(program, style, body, "(m + 3) / 4, 128", "one warp per row, shuffle scan")
    return KernelExample(
        task=program.name,
        level="shuffle",
        code=code,
        why_faster="a warp scans 32 neighbouring columns in 5 shuffle steps with coalesced reads "
        "and writes, instead of one thread walking the row",
    )


# --- transposes ---------------------------------------------------------------------------------


def _naive_transpose(program: Program, style: Style) -> KernelExample:
    v, i = style.value, style.index
    reads: dict[Operand, str] = {
        "full": f"{{p}}[{i}]", "row": f"{{p}}[{i} % w]", "col": f"{{p}}[{i} / w]",
        "scalar": "{p}[0]",
    }  # fmt: skip
    body = [
        f"float {v} = x[{i}];",
        *_before(program, v, reads),
        *_statements(program.after, v),
        f"{style.out}[{i} % w * m + {i} / w] = {v};",
    ]
    kernel = [
        f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;",
        *_guarded(style, f"{i} < m * w", f"{i} >= m * w", body),
    ]
    code = _file(
        program,
        style,
        _kernel(program, style, ["m", "w"], kernel),
        allocate="torch::empty({w, m}, x.options())",
        sizes=["int m = x.size(0), w = x.size(1);"],
        launch=f"(m * w + {style.block - 1}) / {style.block}, {style.block}",
        arguments=["m", "w"],
        comment="one thread per element",
    )
    return KernelExample(task=program.name, level="naive", code=code)


def _tiled_transpose(program: Program, style: Style) -> KernelExample:
    v = style.value
    load = [
        "int r = blockIdx.y * 32 + q;",
        *_block(
            "if (r < m && j < w)",
            [
                f"float {v} = x[r * w + j];",
                *_before(program, v, _ROW_READS),
                *_statements(program.after, v),
                f"t[q][threadIdx.x] = {v};",
            ],
        ),
    ]
    store = [
        "int j = blockIdx.x * 32 + q;",
        f"if (r < m && j < w) {style.out}[j * m + r] = t[threadIdx.x][q];",
    ]
    body = [
        "__shared__ float t[32][33];",
        "int j = blockIdx.x * 32 + threadIdx.x;",
        *_block("for (int q = threadIdx.y; q < 32; q += 8)", load),
        "__syncthreads();",
        "int r = blockIdx.y * 32 + threadIdx.x;",
        *_block("for (int q = threadIdx.y; q < 32; q += 8)", store),
    ]
    code = _file(
        program,
        style,
        _kernel(program, style, ["m", "w"], body),
        allocate="torch::empty({w, m}, x.options())",
        sizes=["int m = x.size(0), w = x.size(1);"],
        launch="dim3((w + 31) / 32, (m + 31) / 32), dim3(32, 8)",
        arguments=["m", "w"],
        comment="32x32 tile in shared memory, padded against bank conflicts",
    )
    return KernelExample(
        task=program.name,
        level="shared",
        code=code,
        why_faster="a padded 32x32 shared-memory tile makes both the reads and the writes coalesced"
        " and free of bank conflicts",
    )

"""Fast kernels of what gives each output by itself: elementwise functions and moves.

The naive kernel has one load of 4 bytes a thread on its way, too few to keep DRAM busy. Here a
thread has 16:

    vectors     four neighbours in one load and one store of 16 bytes: elementwise functions
    fours       four elements a block's width apart, all read before the first is written: moves
    transpose   tiles of 32 x 32 through shared memory: permutations that move the last axis

Guaranteed: right at every size below 2^31 elements. A tensor starts at a multiple of 16 bytes, as
PyTorch allocates it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.fast_groups import NotFasterError
from coding_framework.data.modules.kernels.fours import FOUR, fours, grid_of_fours
from coding_framework.data.modules.kernels.lowering import (
    BLOCK,
    Lowering,
    Tensor,
    coordinates,
    decomposed,
    linear,
    product_of,
)
from coding_framework.data.modules.kernels.naive_layers import Parameters
from coding_framework.data.modules.kernels.naive_tensors import MOVES, SOFTMAXES, difference_lines
from coding_framework.data.modules.pointwise import POINTWISE, c_statements
from coding_framework.data.modules.records import Operation, Value

_TILE = 32


@dataclass(frozen=True, slots=True)
class Read:
    """What an elementwise function reads besides x."""

    tensor: str
    value: str
    """Its name in the function."""
    of: Literal["element", "channel", "feature", "all"] = "element"
    """A value for each element, for each place along axis 1, along the last axis, or one."""


def elementwise(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """The operations that follow, of an input as it stands. A softmax after them has them done
    wherever it reads an element, and nothing is written for it."""
    head = next((o.name for o in w.task.operations if o.name not in POINTWISE), "")
    if head in SOFTMAXES and not any(POINTWISE[o.name].reads for o, _ in w.post):
        w.before = [line for o, _ in w.post for line in c_statements(o, "e")]
        w.post = []
    else:
        vectors(w, [])


def prelu(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """A slope for all, or for each channel."""
    of: Literal["channel", "feature", "all"] = "all"
    if o.flag("per_channel") and len(w.dims) > 1:
        of = "channel" if len(w.dims) > 2 else "feature"
    read = Read(parameters[0].c_name, "slope", of)
    vectors(w, ["v = v > 0.0f ? v : slope * v;"], [read])


def loss_of_elements(w: Lowering, o: Operation) -> None:
    """The loss of each element, not summed."""
    body = [line.replace("float v =", "v =") for line in difference_lines(o, "v")]
    vectors(w, body, [Read(w.task.inputs[1].name, "y")])


def vectors(w: Lowering, body: Lines, reads: Sequence[Read] = ()) -> None:
    """Four elements a thread. body: statements on `v`, which the operations that follow come
    after."""
    if w.x.c_type != "float" or any(POINTWISE[o.name].reads for o, _ in w.post):
        raise NotFasterError
    lines = [*body, *w.post_lines(w.dims), "return v;"]
    number, out = w.new_head()
    kernel, suffix = f"kernel{number}", "" if number == 1 else str(number)
    function, count = f"apply{suffix}", f"count{suffix}"
    values = ["v", *(read.value for read in reads)]
    w.device += [
        f"__device__ float {function}({', '.join(f'float {v}' for v in values)}) {{",
        *(f"  {line}" for line in lines),
        "}",
        "",
    ]
    wide, checks, names = _wide(w, reads)
    lanes = [
        f"{function}({', '.join(_lane(v, lane, reads) for v in values)})" for lane in "xyzw"
    ]  # fmt: skip
    single = ", ".join(["x[i]", *(f"{r.tensor}[{_place(w, r)}]" for r in reads)])
    tail = "for (; i < count; i++)"
    if checks:
        tail = "for (int end = min(i + 4, count); i < end; i++)"
    sizes = ["count", *names]
    pointers = ["x", *(read.tensor for read in reads)]
    declared = [*(f"const float* {p}" for p in pointers), "float* o", *(f"int {s}" for s in sizes)]
    w.device += [
        "// four elements a thread, 16 bytes at a time",
        f"__global__ void {kernel}({', '.join(declared)}) {{",
        "  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        f"  if ({' && '.join([*checks, 'i + 3 < count'])}) {{",
        "    float4 v = *(const float4*)(x + i);",
        *(f"    {line}" for line in wide),
        f"    *(float4*)(o + i) = make_float4({', '.join(lanes)});",
        "  } else {",
        f"    {tail} o[i] = {function}({single});",
        "  }",
        "}",
        "",
    ]
    x = w.x.host
    tensors = [x, *(read.tensor for read in reads), out]
    arguments = [*(f"{t}.data_ptr<float>()" for t in tensors), count, *names]
    w.host += [
        f"int {count} = {x}.numel();",
        f"auto {out} = torch::empty_like({x});",
        f"{kernel}<<<({count} + {FOUR - 1}) / {FOUR}, {BLOCK}>>>({', '.join(arguments)});",
    ]
    w.x, w.post = Tensor("x", out), []


def embedding(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """Four neighbours of a row a thread."""
    e, weight = w.variable("embedding_dim"), parameters[0].c_name
    out_dims = [*w.dims, e]
    count = product_of(out_dims)
    place = f"{weight}[x[i / {e}] * {e} + i % {e}]"
    post, single = w.post_lines(out_dims), place
    wide = [f"float4 r = *(const float4*)&{place};"]
    if post:
        w.device += ["__device__ float apply(float v) {", *(f"  {p}" for p in post), "  return v;"]
        w.device += ["}", ""]
        wide.append("r = make_float4(apply(r.x), apply(r.y), apply(r.z), apply(r.w));")
        single = f"apply({place})"
    lines = [
        "int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        f"if ({e} % 4 == 0 && i + 3 < {count}) {{",
        *(f"  {line}" for line in wide),
        "  *(float4*)(o + i) = r;",
        "} else {",
        f"  for (int end = min(i + 4, {count}); i < end; i++) o[i] = {single};",
        "}",
    ]
    name, out = w.next_kernel()
    grid = grid_of_fours(count)
    w.kernel(name, lines, [Tensor(weight, weight)], out, out_dims, grid, "float", True)


def _wide(w: Lowering, reads: Sequence[Read]) -> tuple[Lines, list[str], list[str]]:
    """What reads the values of four elements, when they lie so, and the extents that both name."""
    lines, checks, names = [], [], []
    for read in reads:
        place = _place(w, read)
        if read.of in ("element", "feature"):
            lines.append(f"float4 {read.value} = *(const float4*)({read.tensor} + {place});")
        else:
            lines.append(f"float {read.value} = {read.tensor}[{place}];")
        if read.of == "feature":
            checks, names = [f"{w.dims[-1]} % 4 == 0"], [w.dims[-1]]
        if read.of == "channel":
            inner = _inner(w)
            checks, names = [f"{inner} % 4 == 0"], [w.dims[1], inner]
    return lines, checks, names


def _place(w: Lowering, read: Read) -> str:
    return {
        "element": "i",
        "feature": f"i % {w.dims[-1]}",
        "channel": f"i / {_inner(w)} % {w.dims[1]}" if read.of == "channel" else "",
        "all": "0",
    }[read.of]


def _inner(w: Lowering) -> str:
    """Elements of a channel."""
    return w.new_size("inner", product_of(w.dims[2:]))


def _lane(value: str, lane: str, reads: Sequence[Read]) -> str:
    shared = {read.value for read in reads if read.of in ("channel", "all")}
    return value if value in shared else f"{value}.{lane}"


def gate(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """`glu`: each half of the axis lies together with what is inside it, so that an element and its
    gate are a fixed way apart."""
    if w.post:
        raise NotFasterError
    axis = o.number("axis")
    dims = MOVES["glu"](w, o)[1]
    half = w.new_size("span", product_of(dims[axis:]))
    count = product_of(dims)
    value = "v / (1.0f + expf(-gate))"
    w.device += ["__device__ float apply(float v, float gate) {", f"  return {value};", "}", ""]
    lanes = ", ".join(f"apply(v.{lane}, gate.{lane})" for lane in "xyzw")
    lines = [
        "int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        f"if ({half} % 4 == 0 && i + 3 < {count}) {{",
        f"  const float* p = x + i / {half} * {half} + i;",
        f"  float4 v = *(const float4*)p, gate = *(const float4*)(p + {half});",
        f"  *(float4*)(o + i) = make_float4({lanes});",
        "} else {",
        f"  for (int end = min(i + 4, {count}); i < end; i++) {{",
        f"    const float* p = x + i / {half} * {half} + i;",
        f"    o[i] = apply(p[0], p[{half}]);",
        "  }",
        "}",
    ]
    name, out = w.next_kernel()
    w.kernel(name, lines, (), out, dims, grid_of_fours(count), "float", True)


def enlarge(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """`upsample_nearest`: a thread reads one element and writes all its copies, those of a row by
    8 or 16 bytes at a time."""
    if w.post:
        raise NotFasterError
    r, (_, _, *spatial) = o.number("factor"), w.dims
    width, axes = spatial[-1], len(spatial)
    dims, count = MOVES[o.name](w, o)[1], product_of(w.dims)
    row = {1: "i", 2: f"(i / {width} * {r} + a) * {width} + i % {width}"}.get(axes, "")
    if axes == 3:
        height = spatial[1]
        plane = f"(i / ({height} * {width}) * {r} + b) * {height} + i / {width} % {height}"
        row = f"(({plane}) * {r} + a) * {width} + i % {width}"
    copies = {2: ("float2", "v, v"), 4: ("float4", "v, v, v, v")}
    if r in copies:
        kind, values = copies[r]
        write = [f"(({kind}*)o)[{row}] = make_{kind}({values});"]
    else:
        place = "i" if row == "i" else f"({row})"
        write = [f"for (int s = 0; s < {r}; s++) o[{place} * {r} + s] = v;"]
    for name in ("a", "b")[: axes - 1]:
        write = [f"for (int {name} = 0; {name} < {r}; {name}++)", *(f"  {line}" for line in write)]
    lines = [
        "int i = blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (i >= {count}) return;",
        "float v = x[i];",
        *write,
    ]
    name, out = w.next_kernel()
    grid = f"({count} + {BLOCK - 1}) / {BLOCK}, {BLOCK}"
    w.kernel(name, lines, (), out, dims, grid, "float", True)


def move(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """Permutations that move the last axis by tiles; other moves that leave it as it is by vectors;
    the rest by fours. Axes that a move leaves as they are count as one, which saves divisions."""
    if o.name == "permute" and o.integers("order")[-1] != len(w.dims) - 1:
        _transpose(w, o)
        return
    if w.x.c_type != "float":
        raise NotFasterError
    whole, kept, last = list(w.dims), MOVES[o.name](w, o)[1], len(w.dims) - 1
    axes = _moved_axes(w, o)
    if o.name in ("flip", "roll", "pad"):
        o, w.dims = _merged(o, w.dims, axes)
    body, dims = _rolled(w, o) if o.name == "roll" else MOVES[o.name](w, o)
    w.dims = whole
    if o.name in ("flip", "roll", "permute") and last not in axes and not w.post:
        _moved_vectors(w, body, dims, kept)
    else:
        fours(w, body, dims, kept)


def _moved_axes(w: Lowering, o: Operation) -> tuple[int, ...]:
    """Along which a flip, roll or padding goes; none for other moves."""
    match o.name:
        case "flip":
            return o.integers("axes")
        case "roll":
            return (o.number("axis"),)
        case "pad":
            return tuple(range(len(w.dims) - len(o.integers("widths")) // 2, len(w.dims)))
    return ()


def _moved_vectors(w: Lowering, body: Lines, dims: Sequence[str], kept: Sequence[str]) -> None:
    """Four neighbours a thread, which are neighbours in x as well where four divide a row. body:
    its last statement gives `v` by its place in x."""
    found = re.fullmatch(r"float v = x\[(.*)\];", body[-1])
    assert found, body[-1]
    inner = [*body[:-1], f"return {found[1]};"]
    lines = [*coordinates(inner, dims), *inner]
    words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines)))
    names = [name for name in w.sizes if name in words]
    w.device += [
        "// where in x an output comes from",
        f"__device__ int place({', '.join(['int i', *(f'int {name}' for name in names)])}) {{",
        *(f"  {line}" for line in lines),
        "}",
        "",
    ]
    row, count, place = kept[-1], product_of(kept), f"place({', '.join(['i', *names])})"
    lines = [
        f"int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4, count = {count};",
        f"if ({row} % 4 == 0 && i + 3 < count) {{",
        f"  *(float4*)(o + i) = *(const float4*)(x + {place});",
        "} else {",
        f"  for (int end = min(i + 4, count); i < end; i++) o[i] = x[{place}];",
        "}",
    ]
    name, out = w.next_kernel()
    w.kernel(name, lines, (), out, kept, grid_of_fours(count), "float", True)


def _rolled(w: Lowering, o: Operation) -> tuple[Lines, Sequence[str]]:
    """As `MOVES`, without a remainder."""
    axis, shifts = o.number("axis"), o.number("shifts")
    n = w.dims[axis]
    moved = f"{n} - {shifts} % {n}" if shifts > 0 else f"{-shifts} % {n}"
    places = [f"p{axis}" if a == axis else f"i{a}" for a in range(len(w.dims))]
    lines = [
        f"int p{axis} = i{axis} + {w.new_size('shift', moved)};",
        f"if (p{axis} >= {n}) p{axis} -= {n};",
        f"float v = x[{linear(places, w.dims)}];",
    ]
    return lines, w.dims


def _merged(o: Operation, dims: Sequence[str], axes: Sequence[int]) -> tuple[Operation, list[str]]:
    """A flip, roll or padding along these axes where neighbouring others are one; those along which
    it goes stay apart."""
    runs: list[list[int]] = []
    for axis in range(len(dims)):
        if runs and axis not in axes and runs[-1][-1] not in axes:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    products = [product_of([dims[a] for a in run]) for run in runs]
    moved = tuple(number for number, run in enumerate(runs) if run[0] in axes)
    new: dict[str, Value] = {"axes": moved} if o.name == "flip" else {"axis": moved[0]}
    named = tuple((n, new.get(n, value)) for n, value in o.arguments)
    return replace(o, arguments=named), [f"({p})" if " " in p else p for p in products]


def _transpose(w: Lowering, o: Operation) -> None:
    """A permutation that moves the last axis: a tile of it and of the axis that becomes the last
    comes to shared memory along the one and leaves along the other."""
    order = o.integers("order")
    last, turned = len(order) - 1, order[-1]
    out_dims = [w.dims[a] for a in order]
    p, q = w.dims[last], w.dims[turned]
    others = [a for a in order if a not in (last, turned)]
    names = [f"g{a}" for a in others] if len(others) > 1 else ["g"]
    by_axis = dict(zip(others, names, strict=True))
    here = by_axis | {last: "p + a", turned: "q + k"}
    there = by_axis | {last: "p + k", turned: "q + a"}
    write = [f"int i = {linear([there[a] for a in order], out_dims)};",
             "float v = tile[a][k];", *w.post_lines(out_dims), "o[i] = v;"]  # fmt: skip
    write[1:1] = coordinates(write, out_dims)
    loop = f"for (int k = threadIdx.y; k < {_TILE}; k += 8)"
    lines = [
        f"__shared__ float tile[{_TILE}][{_TILE + 1}];",
        f"int tiles = ({p} + {_TILE - 1}) / {_TILE}, g = blockIdx.x / tiles;",
        *decomposed("g", names, [w.dims[a] for a in others]),
        f"int p = blockIdx.x % tiles * {_TILE}, q = blockIdx.y * {_TILE}, a = threadIdx.x;",
        loop,
        f"  if (p + a < {p} && q + k < {q})",
        f"    tile[k][a] = x[{linear([here[a] for a in range(last + 1)], w.dims)}];",
        "__syncthreads();",
        f"{loop} {{",
        f"  if (p + k >= {p} || q + a >= {q}) continue;",
        *(f"  {line}" for line in write),
        "}",
    ]
    number = product_of([w.dims[a] for a in others])
    columns = f"({p} + {_TILE - 1}) / {_TILE}"
    blocks = columns if number == "1" else f"{columns} * {number}"
    grid = f"dim3({blocks}, ({q} + {_TILE - 1}) / {_TILE}), dim3({_TILE}, 8)"
    name, out = w.next_kernel()
    w.kernel(name, lines, (), out, out_dims, grid, "float", True)

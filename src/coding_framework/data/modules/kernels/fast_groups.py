"""Fast kernels of what works by groups: reductions, normalisation, softmax, scans, losses.

A group is what one mean, maximum or scan is about. Its passes, which the naive lowering makes
kernels of their own, follow each other in one kernel: after the first pass the group lies in a
cache. Who works on a group depends on how groups lie at a GPU's main sizes:

    a thread    the last axis is kept, and groups are many and short: neighbours read neighbours
    columns     the last axis is kept: 32 neighbouring groups and 32 or 8 threads for each
    a warp      groups lie together and are short
    a block     they are long
    blocks      there are few of them, with many elements each: partial results, then their join
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.fours import fours
from coding_framework.data.modules.kernels.lowering import (
    BLOCK,
    JOINS,
    Join,
    Lowering,
    Tensor,
    coordinates,
    decomposed,
    factor,
    linear,
    merged,
    product_of,
)
from coding_framework.data.modules.records import extent

Worker = Literal["thread", "columns", "warp", "block", "blocks"]

_STARTS: dict[Join, str] = {
    "sum": "0.0f",
    "max": "-INFINITY",
    "min": "INFINITY",
    "product": "1.0f",
}
_MANY_THREADS = 65536
"""Groups that keep a GPU busy with one thread each."""
MANY_BLOCKS = 264
"""Two blocks for each multiprocessor of an H100 or H200."""
SHORT = 1024
"""Elements of a group below which a block of 256 threads has little to do."""
_CHUNK = 8192
"""Elements of a partial result, and of a row that is read once for its maximum and total alone: a
shorter one waits in a cache for a second walk, which costs less than totals scaled anew."""
_COLUMN_CHUNK = 256
"""Elements of a partial result of each of 32 neighbouring groups."""


class NotFasterError(Exception):
    """The naive kernels are as good, or this is not known better."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One reduction over a group, whose result later passes and the elements may use."""

    name: str
    join: Join
    element: str
    """What is joined: C, of the element `e` and the results before, by name."""
    finish: str = "{a}"
    """The result, of what was joined: {a}."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Which elements of a tensor belong together."""

    dims: tuple[str, ...]
    axes: tuple[int, ...]
    """Over which a group extends."""

    @property
    def kept(self) -> list[int]:
        return [a for a in range(len(self.dims)) if a not in self.axes]

    @property
    def names(self) -> dict[int, str]:
        """The C name of a group's coordinate along each axis that is kept."""
        return {a: f"g{a}" if len(self.kept) > 1 else "g" for a in self.kept}

    @property
    def number(self) -> str:
        return product_of([self.dims[a] for a in self.kept])

    @property
    def size(self) -> str:
        return product_of([self.dims[a] for a in self.axes])

    @property
    def trailing(self) -> bool:
        """Whether a group lies together."""
        return self.axes == tuple(range(len(self.dims) - len(self.axes), len(self.dims)))

    def merged(self) -> Groups:
        """The same groups, where neighbouring axes are one."""
        dims, axes = merged(self.dims, self.axes)
        return Groups(tuple(dims), tuple(axes))

    def worker(self, w: Lowering) -> Worker:
        """Who works on a group."""
        values = w.main_values
        number, size = extent(self.number, values), extent(self.size, values)
        if len(self.dims) - 1 not in self.axes:
            return "thread" if number >= _MANY_THREADS and size <= 32 else "columns"
        if number < MANY_BLOCKS:
            if size < _CHUNK:
                raise NotFasterError
            return "blocks"
        return "warp" if size < SHORT and number >= 8 * MANY_BLOCKS else "block"

    def parts(self, w: Lowering) -> bool:
        """Whether one pass is shared out to blocks that each join a part of a group."""
        worker, values = self.worker(w), w.main_values
        few = extent(self.number, values) < 32 * MANY_BLOCKS
        long = extent(self.size, values) >= 4 * _COLUMN_CHUNK
        return worker == "blocks" or (worker == "columns" and few and long)


def whole_groups(
    w: Lowering,
    groups: Groups,
    passes: Sequence[Pass],
    result: str,
    *reads: Tensor,
    out_dims: Sequence[str] | None = None,
    worker: Worker | None = None,
) -> None:
    """All passes and the result in one kernel. result: of each element, or with `out_dims` of each
    group; these are the extents of the output. worker: by default by `groups`."""
    groups = groups.merged()
    given, worker = worker, worker or groups.worker(w)
    once = given is None and worker == "block"
    by_thread = worker == "thread" or (worker == "columns" and many_threads(w, groups))
    if worker == "blocks" or (by_thread and len(passes) == 1 and out_dims is not None):
        raise NotFasterError
    size = w.new_size("elements", groups.size)
    name, out = w.next_kernel()
    dims = list(out_dims if out_dims is not None else w.dims)
    loop, place = walk(w, groups, size, worker)
    lines = [*group_index(groups, worker), *column_end(groups, size, worker)]
    again = out_dims is not None and extent(groups.size, w.main_values) < _CHUNK
    two = _read_once(w, passes, loop, place, size, again=again) if once else []
    lines += two
    for one in passes[2 if two else 0 :]:
        lines += _pass(w, one, loop, place, worker)
    write = [f"float v = {result};", *w.post_lines(dims), "o[i] = v;"]
    if out_dims is not None:
        lines += [*one_writes(groups, worker), "int i = g;", *coordinates(write, dims), *write]
    else:
        head, *steps = loop
        read = [f"int i = {place};", *coordinates(write, dims), "float e = x[i];", *w.before]
        each = [*steps, *read, *write]
        lines += [head, *(f"  {line}" for line in each), "}"]
    grid, ahead = grid_of(w, groups, worker), worker == "columns" and out_dims is None
    w.kernel(name, lines, reads, out, dims, grid, "float", True, restrict=ahead)
    w.before = []


def split_groups(
    w: Lowering, groups: Groups, one: Pass, *reads: Tensor, out_dims: Sequence[str]
) -> None:
    """One pass over few large groups: a block joins a part of a group, a second kernel the parts.
    The second kernel ends with the operations that follow."""
    groups = groups.merged()
    if not groups.parts(w):
        raise NotFasterError
    columns = groups.worker(w) == "columns"
    worker: Worker = "columns" if columns else "blocks"
    size, parts = _parts(w, groups, _COLUMN_CHUNK if columns else _CHUNK)
    name, out = w.next_kernel()
    loop, place = walk(w, groups, size, worker, split=True)
    lines = [*group_index(groups, worker), *column_end(groups, size, worker, split=True)]
    lines += _pass(w, one, loop, place, worker, finish=False)
    at = f"blockIdx.y * {factor(groups.number)} + g" if columns else f"g * {parts} + blockIdx.x"
    lines += [*one_writes(groups, worker), f"o[{at}] = {one.name};"]
    dims = [parts, groups.number] if columns else [groups.number, parts]
    grid = grid_of(w, groups, worker, parts)
    w.kernel(name, lines, reads, out, dims, grid, "float", False)
    w.x = Tensor("x", w.last)
    name, out = w.next_kernel()
    together = Pass(one.name, one.join, "e", one.finish)
    whole = (
        Groups((parts, groups.number), (0,)) if columns else Groups((groups.number, parts), (1,))
    )
    worker = "columns" if columns else "block"
    loop, place = walk(w, whole, parts, worker)
    write = [f"float v = {one.name};", *w.post_lines(out_dims), "o[i] = v;"]
    lines = [
        *group_index(whole, worker),
        *column_end(whole, parts, worker),
        *_pass(w, together, loop, place, worker),
        *one_writes(whole, worker),
        "int i = g;",
        *coordinates(write, out_dims),
        *write,
    ]
    w.kernel(name, lines, (), out, out_dims, grid_of(w, whole, worker), "float", True)


def split_moments(
    w: Lowering, groups: Groups, eps: str, group: str, tail: str, *reads: Tensor
) -> None:
    """Mean and variance of few large groups, then the elements: the mean of each part, and the sum
    of the squares of the distances to it; mean and scale of the group; all elements. group: the
    place of an element's mean. tail: what follows the normalised `v`."""
    groups = groups.merged()
    if groups.worker(w) != "blocks":
        raise NotFasterError
    size, parts = _parts(w, groups, _CHUNK)
    x = w.x.host
    loop, place = walk(w, groups, size, "blocks", split=True)
    start = f"(int)blockIdx.x * {_CHUNK}"
    of_part = _moments(
        w, Pass("mean", "sum", "e", "{a} / count"), Pass("spread", "sum", "e"), loop, place,
        "count", start=start,
    )  # fmt: skip
    lines = [
        *group_index(groups, "blocks"),
        f"int count = min({_CHUNK}, {size} - {start});",
        *of_part,
        "if (threadIdx.x > 0) return;",
        f"int p = (g * {parts} + blockIdx.x) * 2;",
        "o[p] = mean;",
        "o[p + 1] = spread;",
    ]
    name, out = w.next_kernel()
    dims = [groups.number, parts, "2"]
    w.kernel(name, lines, (), out, dims, grid_of(w, groups, "blocks", parts), "float", False)
    w.x = Tensor("x", w.last)
    head = f"for (int t = 0; t < {parts}; t++)"
    number = f"min({_CHUNK}, {size} - t * {_CHUNK})"
    lines = [
        *group_index(groups, "thread"),
        f"const float* s = x + g * {parts} * 2;",
        "float mean = 0.0f, spread = 0.0f;",
        f"{head} mean += s[t * 2] * {number};",
        f"mean /= {size};",
        f"{head} {{",
        "  float z = s[t * 2] - mean;",
        f"  spread += s[t * 2 + 1] + z * z * {number};",
        "}",
        "o[g * 2] = mean;",
        f"o[g * 2 + 1] = rsqrtf(spread / {size} + {eps});",
    ]
    name, out = w.next_kernel()
    grid = grid_of(w, groups, "thread")
    w.kernel(name, lines, (), out, [groups.number, "2"], grid, "float", False)
    moments = Tensor("moments", w.last)
    w.x = Tensor("x", x)
    at = group if " " not in group else f"({group})"
    body = [
        f"float v = (x[i] - moments[{at} * 2]) * moments[{at} * 2 + 1];",
        *([tail] if tail else []),
    ]
    if w.task.draft.level == 1:
        fours(w, body, w.dims, w.dims, moments, *reads)
    else:  # shorter: with a convolution before it an answer may not hold more
        w.map(body, w.dims, moments, *reads)


# --- pieces --------------------------------------------------------------------------------------


def _parts(w: Lowering, groups: Groups, chunk: int) -> tuple[str, str]:
    """C variables: elements of a group, and parts of one."""
    size = w.new_size("elements", groups.size)
    return size, w.new_size("parts", f"({size} + {chunk - 1}) / {chunk}")


def many_threads(w: Lowering, groups: Groups) -> bool:
    """Whether a thread for each group keeps a GPU busy."""
    return extent(groups.number, w.main_values) >= _MANY_THREADS


def column_end(groups: Groups, size: str, worker: Worker, *, split: bool = False) -> Lines:
    """For `walk`, where columns work: the end of the loop. A column outside has no turn."""
    end = f"min({size}, (int)(blockIdx.y + 1) * {_COLUMN_CHUNK})" if split else size
    return [f"int end = g < {groups.number} ? {end} : 0;"] if worker == "columns" else []


def walk(
    w: Lowering, groups: Groups, size: str, worker: Worker, *, split: bool = False
) -> tuple[Lines, str]:
    """The loop of one worker over a group (its head, then what stands in it first), and the place
    of an element. split: over a part of it."""
    first, rows = "threadIdx.y", _rows(w, groups, split=split)
    if split:
        first = f"blockIdx.y * {_COLUMN_CHUNK} + threadIdx.y"
    head = {
        "thread": f"for (int t = 0; t < {size}; t++) {{",
        "columns": f"for (int t = {first}; t < end; t += {rows}) {{",
        "warp": f"for (int t = threadIdx.x % 32; t < {size}; t += 32) {{",
        "block": f"for (int t = threadIdx.x; t < {size}; t += {BLOCK}) {{",
        "blocks": f"for (int t = blockIdx.x * {_CHUNK} + threadIdx.x; "
        f"t < min({size}, (blockIdx.x + 1) * {_CHUNK}); t += {BLOCK}) {{",
    }[worker]
    if groups.trailing:
        return [head], f"g * {size} + t" if groups.kept else "t"
    names = [f"r{a}" for a in groups.axes] if len(groups.axes) > 1 else ["t"]
    steps = decomposed("t", names, [groups.dims[a] for a in groups.axes])
    by_axis = dict(zip(groups.axes, names, strict=True)) | groups.names
    places = [by_axis[a] for a in range(len(groups.dims))]
    return [head, *steps], linear(places, groups.dims)


def group_index(groups: Groups, worker: Worker) -> Lines:
    """The number of the worker's group, and its coordinates where they are needed."""
    by_thread = "blockIdx.x * blockDim.x + threadIdx.x"
    lines = {
        "thread": [f"int g = {by_thread};", f"if (g >= {groups.number}) return;"],
        "columns": ["int g = blockIdx.x * 32 + threadIdx.x;"],
        "warp": [f"int g = ({by_thread}) / 32;", f"if (g >= {groups.number}) return;"],
        "block": ["int g = blockIdx.x;"],
        "blocks": ["int g = blockIdx.y;"],
    }[worker]
    if groups.trailing or not groups.kept:
        return lines
    return [
        *lines,
        *decomposed("g", list(groups.names.values()), [groups.dims[a] for a in groups.kept]),
    ]


def one_writes(groups: Groups, worker: Worker) -> Lines:
    """Only one thread goes on with a group's result."""
    return {
        "thread": [],
        "columns": [f"if (threadIdx.y > 0 || g >= {groups.number}) return;"],
        "warp": ["if (threadIdx.x % 32 > 0) return;"],
        "block": ["if (threadIdx.x > 0) return;"],
        "blocks": ["if (threadIdx.x > 0) return;"],
    }[worker]


def grid_of(w: Lowering, groups: Groups, worker: Worker, parts: str = "") -> str:
    """Blocks and threads of the launch."""
    number = groups.number
    if worker == "columns":
        rows = _rows(w, groups, split=bool(parts))
        blocks = f"({number} + 31) / 32"
        return f"{f'dim3({blocks}, {parts})' if parts else blocks}, dim3(32, {rows})"
    blocks = {
        "thread": f"({number} + {BLOCK - 1}) / {BLOCK}",
        "warp": f"({number} + 7) / 8",
        "block": number,
        "blocks": f"dim3({parts}, {number})",
    }[worker]
    return f"{blocks}, {BLOCK}"


def _rows(w: Lowering, groups: Groups, *, split: bool) -> int:
    """Threads of a column."""
    return 32 if split or extent(groups.size, w.main_values) >= _COLUMN_CHUNK else 8


def _column_function(w: Lowering, join: Join) -> None:
    """The function that joins the values of the threads of a column, once in a file."""
    here = "s[threadIdx.y][threadIdx.x]"
    step = JOINS[join].format(a=here, e="s[threadIdx.y + d][threadIdx.x]")
    lines = [
        f"// the {join} over the threads of a column, for all of them",
        f"__device__ float column_{join}(float v) {{",
        "  __shared__ float s[32][32];",
        f"  {here} = v;",
        "  for (int d = blockDim.y / 2; d > 0; d /= 2) {",
        "    __syncthreads();",
        f"    if (threadIdx.y < d) {step}",
        "  }",
        "  __syncthreads();",
        "  v = s[0][threadIdx.x];",
        "  __syncthreads();",
        "  return v;",
        "}",
        "",
    ]
    if lines[0] not in w.device:
        w.device[:0] = lines


def _read_once(
    w: Lowering, passes: Sequence[Pass], loop: Lines, place: str, size: str, *, again: bool
) -> Lines:
    """The first two passes by a block that reads its group once; [] where there is no such way.
    again: a second walk costs little."""
    match [(one.join, one.element) for one in passes[:2]]:
        case [("max", "e"), ("sum", "expf(e - most)")] if not again:
            return _maximum_and_total(w, passes[1], loop, place)
        case [("sum", "e"), ("sum", "(e - mean) * (e - mean)")]:
            return _moments(w, passes[0], passes[1], loop, place, size)
    return []


def _maximum_and_total(w: Lowering, total: Pass, loop: Lines, place: str) -> Lines:
    """A thread's total is scaled anew where it finds a larger element. Its maximum begins with the
    least number and not with -inf, which an element may be."""
    head, *steps = loop
    w.block_function("max")
    w.block_function("sum")
    name = total.name
    inner = [
        *steps,
        f"float e = x[{place}];",
        *w.before,
        "if (e > most) {",
        f"  {name} *= expf(most - e);",
        "  most = e;",
        "}",
        f"{name} += expf(e - most);",
    ]
    return [
        f"float most = -3.4028235e38f, {name} = 0.0f;",
        head,
        *(f"  {line}" for line in inner),
        "}",
        "float own = most;",
        "most = block_max(most);",
        f"{name} = {total.finish.format(a=f'block_sum({name} * expf(own - most))')};",
    ]


def _moments(
    w: Lowering, mean: Pass, squares: Pass, loop: Lines, place: str, size: str, *, start: str = ""
) -> Lines:
    """A thread sums up distances to its own first element: values far from zero cost no digits
    then, and an outlier those of one thread. start: where the walk begins, by default at 0."""
    from_start = f"{start} + {BLOCK}" if start else f"{BLOCK}"
    head, *steps = loop
    w.block_function("sum")
    inner = [
        *steps,
        f"float e = x[{place}];",
        *w.before,
        f"if (t < {from_start}) first = e;",
        "e -= first;",
        "sum += e;",
        "squares += e * e;",
    ]
    joined = "block_sum(squares - first * (2.0f * sum - own * first))"
    return [
        f"int own = ({size} + {BLOCK - 1} - (int)threadIdx.x) / {BLOCK};",
        "float first = 0.0f, sum = 0.0f, squares = 0.0f;",
        head,
        *(f"  {line}" for line in inner),
        "}",
        f"float mean = {mean.finish.format(a='block_sum(sum + own * first)')};",
        "first = mean - first;",
        f"float {squares.name} = {squares.finish.format(a=joined)};",
    ]


def _pass(
    w: Lowering, one: Pass, loop: Lines, place: str, worker: Worker, *, finish: bool = True
) -> Lines:
    head, *steps = loop
    join = JOINS[one.join]
    direct = one.element == "e" and not w.before
    element = f"x[{place}]" if direct else one.element
    inner = [*steps]
    if not direct:
        inner.append(f"int i = {place};" if "[i]" in one.element else "")
        inner.append("float e = x[i];" if "[i]" in one.element else f"float e = x[{place}];")
        inner += w.before
    inner.append(join.format(a=one.name, e=element))
    lines = [f"float {one.name} = {_STARTS[one.join]};", head]
    lines += [*(f"  {line}" for line in inner if line), "}"]
    if worker in ("block", "blocks"):
        w.block_function(one.join)
        lines.append(f"{one.name} = block_{one.join}({one.name});")
    elif worker == "columns":
        _column_function(w, one.join)
        lines.append(f"{one.name} = column_{one.join}({one.name});")
    elif worker == "warp":
        shuffled = f"__shfl_xor_sync(~0u, {one.name}, d)"
        lines.append("for (int d = 16; d > 0; d /= 2)")
        lines.append(f"  {join.format(a=one.name, e=shuffled)}")
    if finish and one.finish != "{a}":
        lines.append(f"{one.name} = {one.finish.format(a=one.name)};")
    return lines

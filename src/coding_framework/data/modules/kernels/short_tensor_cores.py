"""Float32 products and convolutions on tensor cores, short enough to be taught (3xTF32, `mma`).

Each factor is the sum of two TF32 parts, cut off and not rounded, which takes one instruction less;
three of the four products of parts are summed. A tensor core adds by truncation, so it sums 32
inner indices from zero, and float32 additions make the long sum. A block makes 64 x 64 outputs with
four warps of 32 x 32, so that the few outputs of the tasks make blocks enough; three blocks share a
multiprocessor. Three stages of 32 inner indices come to shared memory by copies of 16 bytes, or of
4 where a matrix has rows that are no multiple of 16 bytes, so that every shape is taken as it is,
and what lies outside is filled with zeros. A row of a stage is 4 (or 8) floats longer than what it
holds: the warps' loads have no bank conflicts.

A convolution is the product of its weights [channels out, inner] and its windows [inner, places of
all images], which is never stored and comes by copies of 4 bytes; inner = channels in times taps.

Limits: an infinite input gives NaN. Indices are 32-bit. A tensor's data begins at a multiple of 16
bytes, as PyTorch allocates it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from coding_framework.data.cuda import Lines, cuda_text, fill
from coding_framework.data.modules.kernels.lowering import signed

TILE = 64
"""Outputs of a block along each factor."""
INNER = 32
"""Inner indices of a stage."""
_PART = TILE * (INNER + 4)
"""Floats of a factor in a stage: 64 rows of 36 or 32 rows of 72, padding counted in."""
_SHARED_BYTES = 4 * 3 * 2 * _PART
EXTENTS, OUTS = ("depth", "height", "width"), ("od", "oh", "ow")
"""C names of the spatial extents of a convolution's input and output, the last ones for fewer."""

HEAD = cuda_text("short_tf32_parts.cu")
"""What stands once in a file, before the kernels."""

_KERNEL = cuda_text("short_product.cu")


@dataclass(frozen=True, slots=True)
class Factor:
    """How one factor comes to shared memory."""

    load: Lines
    """Statements that copy a stage to `a` (left) or `b` (right); `i` is the stage."""
    inner_first: bool
    """Whether a row of the stage holds inner indices; else outer ones."""
    row: str = ""
    """C name of the floats of a row: where they are a multiple of 4, copies are of 16 bytes. Empty
    where all copies are of 4 bytes."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of this module, to be named and launched by who lowers the task."""

    left: Factor
    right: Factor
    extent: tuple[str, str]
    """C expressions of the numbers of rows and columns; the inner extent is `k`."""
    place: str
    """Of the output in row `r` and column `q`."""
    post: Lines
    """Statements on an output `v` at `i`."""
    before: Lines
    """What the copies need once."""

    @property
    def _rows(self) -> list[str]:
        """C names of the floats of a row, of the factors that may be copied 16 bytes at a time."""
        return list(dict.fromkeys(f.row for f in (self.left, self.right) if f.row))

    def source(self, name: str, parameters: str) -> Lines:
        """The kernel's text."""
        return fill(
            _KERNEL,
            width=["template <int w>  // floats of a copy"] if self._rows else [],
            name=name, parameters=parameters, before=self.before, part=_PART, stage=2 * _PART,
            load_left=self.left.load, load_right=self.right.load,
            left_value=_value(self.left, "wr"), right_value=_value(self.right, "wq + j"),
            row_count=self.extent[0], column_count=self.extent[1], place=self.place,
            post=self.post,
        )  # fmt: skip

    def launch(
        self, name: str, arguments: str, depth: str = "1", sizes: Mapping[str, str] | None = None
    ) -> Lines:
        """Host statements. depth: blocks along z. sizes: C name in the kernel -> expression on the
        host, where that is another one."""
        of = sizes or {}
        rows, columns = (
            re.sub(r"\w+", lambda m: _bracketed(of.get(m[0], m[0])), e) for e in self.extent
        )
        grid = f"({columns} + 63) / 64, ({rows} + 63) / 64"
        if depth != "1":
            grid += f", {depth}"
        run, lines = name, []
        if self._rows:
            run = f"run{name.removeprefix('kernel')}"
            given = [of.get(row, row) for row in self._rows]
            row = given[0] if len(given) == 1 else " | ".join(_bracketed(g) for g in given)
            row = row if re.fullmatch(r"\w+", row) else f"({row})"
            lines.append(f"auto {run} = {row} % 4 ? {name}<1> : {name}<4>;")
        size = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        return [
            *lines,
            f"cudaFuncSetAttribute({run}, {size}, {_SHARED_BYTES});",
            f"{run}<<<dim3({grid}), 128, {_SHARED_BYTES}>>>({arguments});",
        ]


def _bracketed(expression: str) -> str:
    return expression if re.fullmatch(r"[\w *]+|\(.*\)", expression) else f"({expression})"


def _value(factor: Factor, first: str) -> str:
    """Where value `e` of a thread's 8 lies in a stage: four outer indices in steps of 8, and then
    the same four 4 inner indices later. first: C expression of the first."""
    if factor.inner_first:
        return f"({first} + e % 4 * 8) * {INNER + 4} + d + l + e / 4 * 4"
    return f"(d + l + e / 4 * 4) * {TILE + 8} + {first} + e % 4 * 8"


# --- how factors are copied ----------------------------------------------------------------------


def matrix(
    target: str, source: str, first: str, extent: str, outer: int = TILE, *, inner_first: bool
) -> Factor:
    """A stage of a matrix that lies [outer][inner], or [inner][outer]. target: `a` or `b`. first,
    extent: C names of the tile's first outer index and of the number of them. outer: how many the
    tile has."""
    if inner_first:
        place = f"p = {first} + e / {INNER}, d = i * {INNER} + e % {INNER}"
        pad, at, row = f"e / {INNER} * 4", "p * k + d", "k"
    else:
        place = f"p = {first} + e % {outer}, d = i * {INNER} + e / {outer}"
        pad, at, row = f"e / {outer} * 8", f"d * {extent} + p", extent
    load = [
        f"for (int h = 0; h < {outer} * {INNER}; h += 128 * w) {{",
        f"  int e = h + t * w, {place};",
        f"  __pipeline_memcpy_async({target} + e + {pad}, {source} + {at}, 4 * w, "
        f"p < {extent} && d < k ? 0 : 4 * w);",
        "}",
    ]
    return Factor(load, inner_first, row)


# --- convolutions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Windows:
    """The arguments of a convolution, one number a spatial dimension, and its C names."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    groups: int
    extents: tuple[str, ...]
    """C names of the input's spatial extents."""
    outs: tuple[str, ...]
    """C names of the output's."""

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def places(self) -> str:
        return " * ".join(self.outs)


def weights(windows: Windows) -> Factor:
    """The left factor of a convolution, of the `m` channels out of a group."""
    if not windows.transposed:
        return matrix("a", "u", "r0", "m", inner_first=True)
    taps = windows.taps
    at = f"(f / {taps} * m + p) * {taps} + f % {taps}" if taps > 1 else "f * m + p"
    load = [
        f"for (int e = t; e < {TILE} * {INNER}; e += 128) {{",
        f"  int p = r0 + e / {INNER}, f = i * {INNER} + e % {INNER};",
        f"  __pipeline_memcpy_async(a + e + e / {INNER} * 4, u + {at}, 4, p < m && f < k ? 0 : 4);",
        "}",
    ]
    return Factor(load, inner_first=True)


def windows_before(windows: Windows) -> Lines:
    """The place of a thread's column: image and coordinates, where its window begins."""
    names = [f"y{axis}" for axis in range(len(windows.kernel))]
    groups = windows.groups
    lines = [f"int y = min(q0 + t % 64, count - 1), image = y / ({windows.places});"]
    if groups > 1:
        lines.append(f"image = image * {groups} + blockIdx.z;")
        taps = f" * {windows.taps}" if windows.taps > 1 else ""
        lines.append(
            f"u += blockIdx.z * {'c' if windows.transposed else 'm'} * "
            + (f"m{taps};" if windows.transposed else "k;")
        )
    starts = []
    for axis, name in enumerate(names):
        later = windows.outs[axis + 1 :]
        at = "y" + (
            f" / ({' * '.join(later)})" if len(later) > 1 else f" / {later[0]}" if later else ""
        )
        at += f" % {windows.outs[axis]}"
        if windows.transposed:
            starts.append(f"{name} = {at}{signed(windows.padding[axis])}")
        else:
            starts.append(
                f"{name} = {at}{_times(windows.stride[axis])}{signed(-windows.padding[axis])}"
            )
    return [*lines, f"int {', '.join(starts)};"]


def window_copies(windows: Windows) -> Factor:
    """The right factor: the value under tap and channel `f` of the thread's column."""
    taps, axes = windows.taps, range(len(windows.kernel))
    lines, inside = [], ["f < k"]
    at = f"image * c + {f'f / {taps}' if taps > 1 else 'f'}"
    for axis in axes:
        tap = _tap(windows.kernel, axis)
        moved = f"{tap}{_times(windows.dilation[axis])}" if tap != "0" else ""
        extent, stride = windows.extents[axis], windows.stride[axis]
        if windows.transposed:
            lines.append(f"d{axis} = y{axis}" + (f" - {moved}" if moved else ""))
            if stride > 1:
                inside += [
                    f"d{axis} >= 0",
                    f"d{axis} % {stride} == 0",
                    f"d{axis} / {stride} < {extent}",
                ]
                at = f"({at}) * {extent} + d{axis} / {stride}"
                continue
        else:
            lines.append(f"d{axis} = y{axis}" + (f" + {moved}" if moved else ""))
        inside.append(f"(unsigned)d{axis} < {extent}")
        at = f"({at}) * {extent} + d{axis}"
    return Factor(
        [
            f"for (int h = 0; h < {INNER}; h += 2) {{",
            f"  int e = h + t / {TILE}, f = i * {INNER} + e, {', '.join(lines)};",
            f"  bool in = {' && '.join(inside)};",
            f"  __pipeline_memcpy_async(b + e * 72 + t % 64, x + {at}, 4, in ? 0 : 4);",
            "}",
        ],
        inner_first=False,
    )


def output_place(windows: Windows) -> str:
    """Where the output of channel `r` and column `q` lies."""
    places = windows.places if len(windows.outs) == 1 else f"({windows.places})"
    row = "r"
    channels = "m"
    if windows.groups > 1:
        row, channels = "(blockIdx.z * m + r)", f"(m * {windows.groups})"
    return f"(q / {places} * {channels} + {row}) * {places} + q % {places}"


def _tap(kernel: Sequence[int], axis: int) -> str:
    """The tap's coordinate along an axis."""
    if kernel[axis] == 1:
        return "0"
    later = prod(kernel[axis + 1 :])
    return f"f{f' / {later}' if later > 1 else ''} % {kernel[axis]}"


def _times(factor: int) -> str:
    return f" * {factor}" if factor != 1 else ""

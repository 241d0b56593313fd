"""Float32 products and convolutions on tensor cores, short enough to be taught (3xTF32, `wmma`).

Each factor is the sum of two TF32 parts, and three of the four products of parts are summed. A
tensor core adds by truncation, so it sums 16 inner indices from zero, and float32 additions make
the long sum. A block makes `rows` x 64 outputs with four warps; three stages of 16 inner indices
come to shared memory by copies of 4 bytes, so that every shape is taken as it is, and what lies
outside is filled with zeros. A row of a stage is 4 (or 8) floats longer than what it holds: the
fragments' loads have no bank conflicts. All fits the 48 KiB that a kernel may declare.

A convolution is the product of its weights [channels out, inner] and its windows [inner, places of
all images], which is never stored; inner = channels in times taps.

Limits: an infinite input gives NaN, and so does one within 2^-11 of the largest float. Indices are
32-bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from coding_framework.data.synthesis.kernel_text import Lines, fill

INNER = 16
"""Inner indices of a stage."""
_COLUMNS = 64
EXTENTS, OUTS = ("depth", "height", "width"), ("od", "oh", "ow")
"""C names of the spatial extents of a convolution's input and output, the last ones for fewer."""

HEAD = """
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda::wmma;

// a factor as the sum of two TF32 parts
template <class F>
__device__ void split(F& high, F& low, const float* s, int pitch) {
  load_matrix_sync(high, s, pitch);
  for (int e = 0; e < high.num_elements; e++) {
    float v = high.x[e];
    high.x[e] = __float_to_tf32(v);
    low.x[e] = v - high.x[e];
  }
}
"""
"""What stands once in a file, before the kernels."""

_KERNEL = """
__global__ void $name($parameters) {
  const int rows = $rows, left = $left, stage = left + $right;
  __shared__ float s[3 * stage];
  int t = threadIdx.x, r0 = blockIdx.y * rows, q0 = blockIdx.x * 64;
  int wr = t / 64 * rows / 2, wq = t / 32 % 2 * 32;
  $before
  auto load = [&](int i) {
    float *a = s + i % 3 * stage, *b = a + left;
    $load_left
    $load_right
    __pipeline_commit();
  };
  fragment<accumulator, 16, 16, 8, float> acc[rows / 16], sum[rows / 16];
  for (auto& f : acc) fill_fragment(f, 0.0f);
  load(0);
  load(1);
  for (int i = 0; i * 16 < k; i++) {
    __pipeline_wait_prior(1);
    __syncthreads();
    load(i + 2);
    float *a = s + i % 3 * stage, *b = a + left;
    for (auto& f : sum) fill_fragment(f, 0.0f);
    for (int d = 0; d < 16; d += 8) {
      fragment<matrix_a, 16, 16, 8, precision::tf32, $left_layout> ah, al;
      fragment<matrix_b, 16, 16, 8, precision::tf32, $right_layout> bh[2], bl[2];
      for (int q = 0; q < 2; q++) split(bh[q], bl[q], $right_at, $right_pitch);
      for (int r = 0; r < rows / 32; r++) {
        split(ah, al, $left_at, $left_pitch);
        for (int e = 0; e < 6; e++) {
          auto& f = sum[r * 2 + e % 2];
          mma_sync(f, e < 2 ? al : ah, e / 2 == 1 ? bl[e % 2] : bh[e % 2], f);
        }
      }
    }
    for (int e = 0; e < rows / 2; e++) acc[e / 8].x[e % 8] += sum[e / 8].x[e % 8];
  }
  __syncthreads();
  for (int e = 0; e < rows / 16; e++)
    store_matrix_sync(s + (wr + e / 2 * 16) * 68 + wq + e % 2 * 16, acc[e], 68, mem_row_major);
  __syncthreads();
  for (int e = t; e < rows * 64; e += 128) {
    int r = r0 + e / 64, q = q0 + e % 64;
    if (r >= $row_count || q >= $column_count) continue;
    int i = $place;
    float v = s[e / 64 * 68 + e % 64];
    $post
    o[i] = v;
  }
}
"""


@dataclass(frozen=True, slots=True)
class Factor:
    """How one factor comes to shared memory."""

    load: Lines
    """Statements that copy a stage to `a` (left) or `b` (right); `i` is the stage."""
    inner_first: bool
    """Whether a row of the stage holds inner indices; else outer ones."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of this module, to be named and launched by who lowers the task."""

    rows: int
    """Outputs of a block along the left factor: 64 or 128."""
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

    def source(self, name: str, parameters: str) -> Lines:
        """The kernel's text."""
        return fill(
            _KERNEL,
            name=name, parameters=parameters, rows=self.rows, before=self.before,
            left=_floats(self.left, "rows"), right=_floats(self.right, str(_COLUMNS)),
            load_left=self.left.load, load_right=self.right.load,
            left_layout="row_major" if self.left.inner_first else "col_major",
            right_layout="col_major" if self.right.inner_first else "row_major",
            left_at=_fragment("a", "wr + r * 16", self.left, "rows"),
            right_at=_fragment("b", "wq + q * 16", self.right, str(_COLUMNS)),
            left_pitch=_pitch(self.left, "rows"),
            right_pitch=_pitch(self.right, str(_COLUMNS)),
            row_count=self.extent[0], column_count=self.extent[1], place=self.place,
            post=self.post,
        )  # fmt: skip

    def launch(self, name: str, arguments: str, depth: str = "1") -> Lines:
        """Host statements; m, n: expressions of the extents there."""
        rows, columns = self.extent
        grid = f"({columns} + 63) / 64, ({rows} + {self.rows - 1}) / {self.rows}"
        if depth != "1":
            grid += f", {depth}"
        return [f"{name}<<<dim3({grid}), 128>>>({arguments});"]


def _pitch(factor: Factor, outer: str) -> str:
    """Floats of a row of a stage. outer: C name of the factor's outer indices in it."""
    if factor.inner_first:
        return str(INNER + 4)
    return str(int(outer) + 8) if outer.isdecimal() else f"({outer} + 8)"


def _floats(factor: Factor, outer: str) -> str:
    """Of a factor in one stage."""
    return f"{outer if factor.inner_first else INNER} * {_pitch(factor, outer)}"


def _fragment(base: str, outer: str, factor: Factor, width: str) -> str:
    pitch = _pitch(factor, width)
    return (
        f"{base} + ({outer}) * {pitch} + d"
        if factor.inner_first
        else f"{base} + d * {pitch} + {outer}"
    )


# --- how factors are copied ----------------------------------------------------------------------


def matrix(
    target: str, source: str, first: str, extent: str, outer: int, *, inner_first: bool
) -> Factor:
    """A stage of a matrix that lies [outer][inner], or [inner][outer]. first, extent: C names of
    the tile's first outer index and of the number of them. outer: how many the tile has; `a` has
    rows of them."""
    many = "rows" if target == "a" else str(outer)
    if inner_first:
        load = [
            f"for (int e = t / 16; e < {many}; e += 8) {{",
            f"  int d = i * 16 + t % 16, p = {first} + e;",
            f"  __pipeline_memcpy_async({target} + e * 20 + t % 16, {source} + p * k + d, 4, "
            f"p < {extent} && d < k ? 0 : 4);",
            "}",
        ]
    else:
        down = 128 // outer
        row = f"({many} + 8)" if target == "a" else str(outer + 8)
        lane, start = ("t", "0") if down == 1 else (f"t % {outer}", f"t / {outer}")
        load = [
            f"for (int e = {start}; e < 16; e += {down}) {{",
            f"  int d = i * 16 + e, p = {first} + {lane};",
            f"  __pipeline_memcpy_async({target} + e * {row} + {lane}, "
            f"{source} + d * {extent} + p, 4, p < {extent} && d < k ? 0 : 4);",
            "}",
        ]
    return Factor(load, inner_first)


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


def weights(windows: Windows, rows: int) -> Factor:
    """The left factor of a convolution, of the `m` channels out of a group."""
    if not windows.transposed:
        return matrix("a", "u", "r0", "m", rows, inner_first=True)
    taps = windows.taps
    f, at = "i * 16 + t % 16", f"(f / {taps} * m + p) * {taps} + f % {taps}"
    if taps == 1:
        at = "f * m + p"
    load = [
        "for (int e = t / 16; e < rows; e += 8) {",
        f"  int f = {f}, p = r0 + e;",
        f"  __pipeline_memcpy_async(a + e * 20 + t % 16, u + {at}, 4, p < m && f < k ? 0 : 4);",
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
            starts.append(f"{name} = {at}{_signed(windows.padding[axis])}")
        else:
            starts.append(
                f"{name} = {at}{_times(windows.stride[axis])}{_signed(-windows.padding[axis])}"
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
            "for (int e = t / 64; e < 16; e += 2) {",
            f"  int f = i * 16 + e, {', '.join(lines)};",
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


def _signed(number: int) -> str:
    return "" if number == 0 else f" + {number}" if number > 0 else f" - {-number}"

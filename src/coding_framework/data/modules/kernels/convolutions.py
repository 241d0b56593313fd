"""Kernels of convolutions and transposed ones in 1 to 3 dimensions, with steps on each output.

As a matrix product that is never stored: weights [channels out, inner] times windows [inner, places
of all images], inner = channels in times taps. A transposed convolution of stride s is one such
product for each residue of the outputs' coordinates, with the taps that reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from coding_framework.data.modules.kernels.short_tensor_cores import (
    EXTENTS,
    HEAD,
    OUTS,
    Kernel,
    Windows,
    output_place,
    weights,
    window_copies,
    windows_before,
)
from coding_framework.data.modules.kernels.tensor_cores import (
    COPY,
    COPY_ONE,
    PAD,
    PARTS,
    Parts,
    Tile,
    copies,
    lanes,
    multiply,
    source_offsets,
    store,
)
from coding_framework.data.synthesis.kernel_text import Lines, fill

MOST_TAPS = 61
"""Of the tensor-core kernels, which keep a bit of each in 64."""
_EXTENTS = ("e", "h", "w")
Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Convolution:
    """nn.ConvNd or nn.ConvTransposeNd, and steps on each output."""

    kernel: Ints
    """One number a dimension, as of all that follow."""
    stride: Ints = ()
    padding: Ints = ()
    dilation: Ints = ()
    groups: int = 1
    transposed: bool = False
    output_padding: Ints = ()
    bias: bool = False
    """The tensor `b`, after x and the weight `u`."""
    post: tuple[str, ...] = ()
    """C statements on an output `a` of channel `p`."""
    extra: tuple[str, ...] = ()
    """Names of further float tensors that `post` reads."""

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def steps(self) -> Ints:
        return self.stride or (1,) * len(self.kernel)

    @property
    def margins(self) -> Ints:
        return self.padding or (0,) * len(self.kernel)

    @property
    def spread(self) -> Ints:
        return self.dilation or (1,) * len(self.kernel)

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "u", *(("b",) if self.bias else ()), *self.extra)

    @property
    def extents(self) -> tuple[str, ...]:
        """C names of x's extents."""
        return _EXTENTS[-len(self.kernel) :]

    @property
    def statements(self) -> Lines:
        """On `a` of channel `p`."""
        return [*(["a += b[p];"] if self.bias else []), *self.post]


def part(index: str, extents: tuple[object, ...], axis: int) -> str:
    """Coordinate `axis` of a flat index over these extents; the first one is not bounded."""
    later = "".join(f" / {extent}" for extent in reversed(extents[axis + 1 :]))
    return f"{index}{later}" + (f" % {extents[axis]}" if axis else "")


def flat(coordinates: list[str], extents: tuple[str, ...]) -> str:
    """The flat index of coordinates over these extents."""
    index = coordinates[0]
    for coordinate, extent in zip(coordinates[1:], extents[1:], strict=True):
        index = (
            f"({index}) * {extent} + {coordinate}"
            if "+" in index
            else f"{index} * {extent} + {coordinate}"
        )
    return index


def out_extents(conv: Convolution) -> tuple[str, ...]:
    return tuple(f"o{extent}" for extent in conv.extents)


def _forward(conv: Convolution, launch: Lines) -> Lines:
    """`forward`: names sizes, makes the output `o`, launches. `m` images, `c` channels in and `n`
    channels out of a group."""
    sizes, axes = [], range(len(conv.kernel))
    for axis in axes:
        extent, name = f"x.size({axis + 2})", conv.extents[axis]
        reach = conv.spread[axis] * (conv.kernel[axis] - 1)
        step, margin = conv.steps[axis], conv.margins[axis]
        if conv.transposed:
            more = reach + 1 - step - 2 * margin + (conv.output_padding or (0,) * 3)[axis]
            out = f"{name} * {step} + {more}" if more >= 0 else f"{name} * {step} - {-more}"
        else:
            less = reach - 2 * margin
            inner = name if less == 0 else f"{name} - {less}" if less > 0 else f"{name} + {-less}"
            if step > 1:
                shift = step - 1 - reach - 1 + 2 * margin + 1
                top = (
                    name
                    if shift == 0
                    else f"{name} + {shift}"
                    if shift > 0
                    else f"{name} - {-shift}"
                )
                out = f"({top}) / {step}" if shift else f"{name} / {step}"
            else:
                out = inner
        sizes.append(f"int {name} = {extent}, o{name} = {out};")
    groups = f" / {conv.groups}" if conv.groups > 1 else ""
    channels = (
        f"int m = x.size(0), c = x.size(1){groups}, n = u.size(1);"
        if conv.transposed
        else f"int m = x.size(0), c = u.size(1), n = u.size(0){groups};"
    )
    inputs = ", ".join(f"torch::Tensor {n}" for n in conv.names)
    times = f"n * {conv.groups}" if conv.groups > 1 else "n"
    body = [
        channels,
        *sizes,
        f"auto o = torch::empty({{m, {times}, {', '.join(out_extents(conv))}}}, x.options());",
        *launch,
        "return o;",
    ]
    return [
        f"torch::Tensor forward({inputs}) {{",
        *(f"  {line}" for line in body),
        "}",
        "",
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
    ]


def _parameters(conv: Convolution) -> str:
    pointers = [f"const float* {n}" for n in conv.names]
    sizes = ("m", "c", "n", *conv.extents, *out_extents(conv))
    return ", ".join([*pointers, "float* o", *(f"int {s}" for s in sizes)])


def _arguments(conv: Convolution, weight: str = "u") -> str:
    tensors = [weight if n == "u" else n for n in (*conv.names, "o")]
    sizes = ("m", "c", "n", *conv.extents, *out_extents(conv))
    return ", ".join([*(f"{n}.data_ptr<float>()" for n in tensors), *sizes])


def whole(conv: Convolution, parts: Parts) -> str:
    """The whole .cu."""
    lines = [*parts.before(), *_forward(conv, parts.launch)]
    return "\n".join(["#include <torch/extension.h>", "", f"// {parts.comment}", *lines, ""])


# --- one thread an output -----------------------------------------------------------------------

_NAIVE = """
__global__ void conv($parameters) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, places = $places;
  if (i >= m * n * $groups * places) return;
  int q = i % places, p = i / places % (n * $groups), r = i / places / (n * $groups), g = p / n;
  float a = 0.0f;
  for (int f = 0; f < c; f++) {
    for (int d = 0; d < $taps; d++) {
      $where
      if ($inside) a += x[$x] * u[$u];
    }
  }
  $post
  o[i] = a;
}
"""


def naive(conv: Convolution) -> str:
    """One thread an output."""
    where, inside = [], []
    for axis, extent in enumerate(conv.extents):
        step, margin, spread = conv.steps[axis], conv.margins[axis], conv.spread[axis]
        tap, out = part("d", conv.kernel, axis), part("q", out_extents(conv), axis)
        if conv.transposed:
            where.append(
                f"int t{extent} = {out} + {margin} - {tap} * {spread}, "
                f"i{extent} = t{extent} / {step};"
            )
            inside.append(
                f"t{extent} >= 0 && i{extent} < {extent}"
                + (f" && t{extent} % {step} == 0" if step > 1 else "")
            )
        else:
            where.append(f"int i{extent} = {out} * {step} - {margin} + {tap} * {spread};")
            inside.append(f"i{extent} >= 0 && i{extent} < {extent}")
    channels = f"r * c * {conv.groups} + g * c + f" if conv.groups > 1 else "r * c + f"
    weight = (
        f"((g * c + f) * n + p % n) * {conv.taps} + d"
        if conv.transposed
        else f"(p * c + f) * {conv.taps} + d"
    )
    device = fill(
        _NAIVE,
        parameters=_parameters(conv),
        places=" * ".join(out_extents(conv)),
        groups=conv.groups,
        taps=conv.taps,
        where=where,
        inside=" && ".join(inside),
        x=flat([channels, *(f"i{e}" for e in conv.extents)], ("", *conv.extents)),
        u=weight,
        post=conv.statements,
    )
    launch = ["int count = o.numel();", f"conv<<<(count + 255) / 256, 256>>>({_arguments(conv)});"]
    return whole(conv, Parts("one thread per output", (), device, launch))


# --- tensor cores, the short way ------------------------------------------------------------------


def short(conv: Convolution) -> str:
    """3xTF32 on tensor cores by `short_tensor_cores`, transposed ones too."""
    axes = len(conv.kernel)
    windows = Windows(
        conv.kernel, conv.steps, conv.margins, conv.spread, conv.transposed, conv.groups,
        EXTENTS[-axes:], OUTS[-axes:],
    )  # fmt: skip
    channel = "int p = blockIdx.z * m + r;" if conv.groups > 1 else "int p = r;"
    post = [channel, "float a = v;", *conv.statements, "v = a;"] if conv.statements else []
    kernel = Kernel(
        weights(windows), window_copies(windows), ("m", "count"),
        output_place(windows), post, windows_before(windows),
    )  # fmt: skip
    pointers = [*(f"const float* {n}" for n in conv.names), "float* o"]
    declared = ["m", "k", "c", "count", *windows.extents, *windows.outs]
    count = " * ".join(("m", *out_extents(conv)))
    given = [f"{n}.data_ptr<float>()" for n in (*conv.names, "o")]
    given += ["n", f"c * {conv.taps}", "c", count, *conv.extents, *out_extents(conv)]
    device = kernel.source("conv", ", ".join([*pointers, *(f"int {s}" for s in declared)]))
    sizes = {"m": "n", "k": f"c * {conv.taps}", "count": f"({count})"}
    launch = kernel.launch("conv", ", ".join(given), str(conv.groups), sizes)
    return whole(conv, Parts(COMMENT, (HEAD,), device, launch))


# --- tensor cores -------------------------------------------------------------------------------

TENSOR = """
__global__ void __launch_bounds__($threads) conv($parameters) {
  extern __shared__ float s[];
  __shared__ int2 taps[4][$inner];
  $lanes
  int r0 = blockIdx.y * $rows, q0 = blockIdx.x * $columns;
  $phase
  int places = $places, count = m * places, k = c * $reached, $row, steps = (k + $more) / $inner;
  int v = q0 + t % $columns, y = v % places;
  $start
  const float* base = x + $base;
  $bits inside = 0;
  if (v < count)
    for (int d = 0; d < $reached; d++) {
      $tap
      if ($within) inside |= ($bits)4 << d;
    }
  $offsets
  auto look = [&](int i) {
    int f = i * $inner + t, d = $tap_of, z = 0;
    if (f < k) {
      $tap
      z = $offset;
    }
    if (t < $inner) taps[i % 4][t] = make_int2(z, f < k ? d : $none);
  };
  auto load = [&](int i) {
    float *a = s + i % 3 * $stage, *b = a + $left;
    if (i < steps) {
      $load_weights
      #pragma unroll
      for (int e = 0; e < $each; e++) {
        int p = t / $columns * $each + e;
        int2 z = taps[i % 4][p];
        copy1(b + p * $columns + (t % $columns ^ e / 4 % 4 * 8), base + z.x, inside >> z.y & 4);
      }
    }
    asm volatile("cp.async.commit_group;");
    look(i + 2);
  };
  look(0);
  look(1);
  __syncthreads();
  $walk
  $store
}
"""


def tile_of(channels: int) -> Tile:
    """The tile for so many channels out of a group: of 64 rows where fewer of them are left over
    than of 128. Two blocks of either share a multiprocessor."""
    wide = -(-channels // 128) * 128
    return Tile(64, 128, 32) if -(-channels // 64) * 64 < wide else Tile(128, 64, 32)


def common(conv: Convolution, tile: Tile) -> dict[str, str | int | Lines]:
    return {
        "threads": tile.threads, "parameters": _parameters(conv), "inner": tile.inner,
        "lanes": lanes(tile), "rows": tile.rows, "columns": tile.columns, "more": tile.inner - 1,
        "bits": "unsigned" if conv.taps < 30 else "unsigned long long",
        "none": 31 if conv.taps < 30 else 63,
        "stage": tile.stage, "left": tile.rows * tile.inner, "each": tile.inner * 64 // tile.rows,
    }  # fmt: skip


def post_lines(conv: Convolution, group: str) -> Lines:
    if not conv.statements:
        return []
    channel = f"int p = {group} * n + r;" if conv.groups > 1 else "int p = r;"
    return [channel, *conv.statements]


def launch_lines(conv: Convolution, tile: Tile, columns: str, depth: int) -> Lines:
    """With the weights in `z`."""
    shared, rows = tile.shared_bytes, f"(n + {tile.rows - 1}) / {tile.rows}"
    grid = f"dim3(({columns} + {tile.columns - 1}) / {tile.columns}, {rows}, {depth})"
    return [
        f"cudaFuncSetAttribute(conv, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared});",
        f"conv<<<{grid}, {tile.threads}, {shared}>>>({_arguments(conv, 'z')});",
    ]


COMMENT = (
    "as a matrix product on tensor cores, each factor in two TF32 parts; windows are never stored"
)


def tensor(conv: Convolution, tile: Tile | None = None) -> str:
    """The implicit product by 3xTF32 on tensor cores; not of a transposed convolution."""
    return whole(conv, tensor_parts(conv, tile or tile_of(1 << 10)))


def tensor_parts(conv: Convolution, tile: Tile) -> Parts:
    """The kernel of `tensor`."""
    if conv.taps > MOST_TAPS:
        raise ValueError(f"{conv.taps} taps: the kernel has bits for {MOST_TAPS} of them")
    extents, kernel = conv.extents, conv.kernel
    many = conv.groups > 1
    starts, taps, within = [], [], []
    for axis, extent in enumerate(extents):
        step, margin, spread = conv.steps[axis], conv.margins[axis], conv.spread[axis]
        at = part("y", out_extents(conv), axis)
        starts.append(
            f"i{extent} = {at}{f' * {step}' if step > 1 else ''}{f' - {margin}' if margin else ''}"
        )
        tap = part("d", kernel, axis)
        taps.append(f"t{extent} = {f'({tap}) * {spread}' if spread > 1 else tap}")
        within.append(f"(unsigned)(i{extent} + t{extent}) < {extent}")
    volume = " * ".join(extents)
    whole = f"{conv.groups} * c" if many else "c"
    at_start = flat([f"i{e}" for e in extents], extents)
    image = f"(q / places * (size_t)(n * {conv.groups}) + blockIdx.z * n)"
    column = f"float* at = o + {image if many else 'q / places * (size_t)n'} * places + q % places;"
    device = fill(
        TENSOR,
        **common(conv, tile),
        phase=[
            f"x += (size_t)blockIdx.z * c * {volume};",
            f"u += (size_t)blockIdx.z * n * (c * {conv.taps} + 3 & ~3);",
        ] if many else [],
        places=" * ".join(out_extents(conv)),
        reached=conv.taps,
        start=[f"int {', '.join(starts)};"],
        base=f"(size_t)(v / places) * {whole} * {volume} + {at_start}",
        tap=[f"int {', '.join(taps)};"],
        within=" && ".join(within),
        tap_of=f"f % {conv.taps}",
        offset=flat([f"f / {conv.taps}", *(f"t{e}" for e in extents)], ("", *extents)),
        row="kw = (k + 3) & ~3",
        offsets=source_offsets(tile, "fu", tile.rows, "r0", "n", "kw", inner_first=True),
        load_weights=copies(tile, "a", "u", "fu", tile.rows, "kw", inner_first=True),
        walk=multiply(tile, left_inner_first=True, right_inner_first=False),
        store=store(
            tile, ("n", "count"), post_lines(conv, "blockIdx.z"), "at[(size_t)r * places]", [column]
        ),
    )  # fmt: skip
    columns = " * ".join(("m", *out_extents(conv)))
    launch = [
        f"auto z = padded(u, c * {conv.taps});",
        *launch_lines(conv, tile, columns, conv.groups),
    ]
    return Parts(COMMENT, (COPY, COPY_ONE, PARTS, PAD), device, launch)

"""Kernels of convolutions and transposed ones in 1 to 3 dimensions, with steps on each output.

As a matrix product that is never stored: weights [channels out, inner] times windows [inner, places
of all images], inner = channels in times taps. A transposed convolution of stride s is one such
product for each residue of the outputs' coordinates, with the taps that reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from coding_framework.data.cuda import Lines, cuda_text, fill
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


def _parameters(conv: Convolution) -> str:
    pointers = [f"const float* {n}" for n in conv.names]
    sizes = ("m", "c", "n", *conv.extents, *out_extents(conv))
    return ", ".join([*pointers, "float* o", *(f"int {s}" for s in sizes)])


def _arguments(conv: Convolution, weight: str = "u") -> str:
    tensors = [weight if n == "u" else n for n in (*conv.names, "o")]
    sizes = ("m", "c", "n", *conv.extents, *out_extents(conv))
    return ", ".join([*(f"{n}.data_ptr<float>()" for n in tensors), *sizes])


# --- tensor cores -------------------------------------------------------------------------------

TENSOR = cuda_text("stages_convolution.cu")


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


def tensor_parts(conv: Convolution, tile: Tile) -> Parts:
    """The implicit product by 3xTF32 on tensor cores; not of a transposed convolution."""
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
    return Parts((COPY, COPY_ONE, PARTS, PAD), device, launch)

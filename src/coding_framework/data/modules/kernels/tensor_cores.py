"""Float32 products on tensor cores: the text that products and convolutions share (3xTF32).

Each factor is split in two TF32 parts, high and low, and three of the four products of parts are
summed. A tensor core adds by truncation, so it sums one stage of 32 or 64 inner indices from zero,
and float32 additions make the long sum: the error stays below that of a loop of float32 FMAs.

A block makes `rows` x `columns` outputs, a warp 64 x 32 of them. Inside a warp's part the order of
rows, of columns and of 16 inner indices is permuted, which a product does not notice: lane group j
owns rows (and columns) 4j to 4j+3 of each 32, and lane c of a quad owns inner indices 4c to 4c+3.
So every fragment is read by 16-byte loads, and outputs leave in runs of four. Two XORs keep the
loads free of bank conflicts without padding.

Limits: an infinite input gives NaN, and so does one within 2^-11 of the largest float.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.data.cuda import Lines, cuda_text, fill

STAGES = 3
"""Stages in shared memory: one is worked on while two are on their way."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What one block computes at a time."""

    rows: int = 128
    """64 or 128."""
    columns: int = 128
    """A multiple of 32."""
    inner: int = 64
    """Inner indices of a stage: a multiple of 32."""

    @property
    def threads(self) -> int:
        return self.rows * self.columns // 64

    @property
    def stage(self) -> int:
        """Floats of a stage."""
        return (self.rows + self.columns) * self.inner

    @property
    def shared_bytes(self) -> int:
        return 4 * STAGES * self.stage


@dataclass(frozen=True, slots=True)
class Parts:
    """A head's kernels and how they are launched. Maker: products, convolutions, transposed."""

    shared: tuple[str, ...]
    """Texts of this module that the kernels use."""
    device: Lines
    launch: Lines
    """Host statements; the tensors and sizes have the names of the kernel's parameters."""


COPY = cuda_text("copy_four.cu")
"""Four floats from global to shared memory, zeros where not `in`."""

COPY_ONE = cuda_text("copy_one.cu")
"""One float, of which 4 or 0 bytes are read; the others are 0."""

PAD = cuda_text("padded_rows.cu")

PARTS = cuda_text("tf32_parts.cu")


_WALK = cuda_text("stages_loop.cu")


def _split(tile: Tile, base: str, width: int, first: str, parts: str, *, inner_first: bool) -> str:
    """The statement that splits one 32 x 16 part of a tile. inner_first: whether the tile lies
    [outer][inner]; else [inner][outer], `width` long."""
    high, low = f"{parts}h", f"{parts}l"
    if inner_first:
        place = f"{base} + ({first} + 4 * j) * {tile.inner} + (d + 4 * l ^ j % 2 * 16)"
        return f"split<{tile.inner}, false>({place}, {high}, {low});"
    place = f"{base} + (d + 4 * l) * {width} + {first} + (4 * j ^ 8 * l)"
    return f"split<{width}, true>({place}, {high}, {low});"


def multiply(tile: Tile, *, left_inner_first: bool, right_inner_first: bool) -> Lines:
    """The loop over all stages; it needs `load(stage)`, `steps` and shared memory `s`, and leaves
    the outputs in `acc`. left, right: how the two tiles of a stage lie."""
    return fill(
        _WALK,
        stage=tile.stage,
        left=tile.rows * tile.inner,
        inner=tile.inner,
        split_right=[_split(tile, "b", tile.columns, "wq", "b", inner_first=right_inner_first)],
        split_left=[_split(tile, "a", tile.rows, "wr + 16 * f", "a", inner_first=left_inner_first)],
    )


def lanes(tile: Tile) -> Lines:
    """Where a thread's warp and lane stand in the tile."""
    warps = tile.rows // 64
    return [
        "int t = threadIdx.x, j = t % 32 / 4, l = t % 4;",
        f"int wr = t / 32 % {warps} * 64, wq = t / {32 * warps} * 32;",
    ]


def source_offsets(
    tile: Tile, name: str, width: int, first: str, extent: str, row: str, *, inner_first: bool
) -> Lines:
    """Defines `name`: where a thread's copies begin in a matrix whose rows are `row` floats long.
    width: outer indices of the tile, from `first`; they are held below `extent`."""
    across, passes = _passes(tile, width, inner_first=inner_first)
    step = tile.threads // across
    place = f"min({first} + t / {across} + e * {step}, {extent} - 1) * {row} + t % {across} * 4"
    if not inner_first:
        return [f"int {name} = t / {across} * {row} + min({first} + t % {across} * 4, {row} - 4);"]
    return [
        f"int {name}[{passes}];",
        "#pragma unroll",
        f"for (int e = 0; e < {passes}; e++) {name}[e] = {place};",
    ]


def copies(
    tile: Tile, base: str, source: str, name: str, width: int, row: str, *, inner_first: bool
) -> Lines:
    """Starts the copies of one tile of stage `i`, from `source` to `base`."""
    across, passes = _passes(tile, width, inner_first=inner_first)
    step = tile.threads // across
    down = f"(t / {across} + e * {step})"
    start = f"i * {tile.inner}"
    if inner_first:
        target = f"{down} * {tile.inner} + (t % {across} * 4 ^ {down} / 4 % 2 * 16)"
        place, inside = f"{name}[e] + {start}", f"t % {across} * 4 + {start}"
    else:
        target = f"{down} * {width} + (t % {across} * 4 ^ {down} / 4 % 4 * 8)"
        place, inside = f"{name} + ({start} + e * {step}) * {row}", f"{down} + {start}"
    copy = f"copy4({base} + {target}, {source} + {place}, {inside} < k);"
    return ["#pragma unroll", f"for (int e = 0; e < {passes}; e++)", f"  {copy}"]


def _passes(tile: Tile, width: int, *, inner_first: bool) -> tuple[int, int]:
    """Threads along the contiguous axis, and copies of a thread."""
    along, other = (tile.inner, width) if inner_first else (width, tile.inner)
    return along // 4, along // 4 * other // tile.threads


_STORE = cuda_text("stages_store.cu")


def store(
    tile: Tile, extent: tuple[str, str], post: Lines, place: str, column: Lines | None = None
) -> Lines:
    """What becomes of `acc`, through shared memory, so that neighbours are written together.
    extent: of rows and columns. post: statements on one output `a` in row `r` and column `q`.
    place: where it goes. column: statements once a column."""
    return fill(
        _STORE, pitch=tile.columns + 4, columns=tile.columns, rows=tile.rows, step=tile.rows // 64,
        height=extent[0], extent=extent[1], post=post, place=place, column=column or [],
    )  # fmt: skip

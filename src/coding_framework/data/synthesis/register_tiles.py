"""Matrix products with register tiles: what every product, convolution and attention score shares.

A block of 256 threads computes 64 x 64 outputs, 16 a thread in registers, over tiles of 32 inner
indices in shared memory. Of one float32 product of 4096 x 4096 matrices on one H200 (2026-11-21):
5.5 ms, where 16 x 16 tiles with one output a thread took 18; larger tiles gained less than a fifth
and lose on small matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from coding_framework.data.synthesis.kernel_text import Lines, block, fill

_THREADS = 256
_ORIGIN = {"s": "blockIdx.y * 64", "t": "blockIdx.x * 64"}
"""Where a block's rows and columns begin."""
_ACROSS = {True: ("e / 32", "e % 32"), False: ("e % 64", "e / 64")}
"""Of element e of a tile: place along the outer and along the inner index, by whether neighbours
in memory differ in the inner one."""


def staged(
    tile: str,
    outer: str,
    inside: str,
    read: str,
    *,
    inner_contiguous: bool,
    value: str = "",
    pre: Sequence[str] = (),
    extra: str = "",
) -> Lines:
    """Loop that fills a tile of shared memory from a matrix.

    tile: `s` of the rows or `t` of the columns, indexed [inner][outer]. outer: the C name of the
    outer index. inside: condition under which `read`, an expression of it and of the inner index
    `j`, may be read; elsewhere the tile is 0. inner_contiguous: whether
    neighbours in memory differ in j, which decides how threads are laid over the tile. value: the C
    name of the element where steps (`pre`) are to be put on it. extra: more index definitions.
    """
    across, along = _ACROSS[inner_contiguous]
    place = f"{tile}[{along}][{across}]"
    lines = [f"int {outer} = {_ORIGIN[tile]} + {across}, j = d + {along}{extra};"]
    if pre:
        lines += [
            f"float {value} = 0.0f;",
            *block(f"if ({inside})", [f"{value} = {read};", *pre]),
            f"{place} = {value};",
        ]
    else:
        lines.append(f"{place} = {inside} ? float({read}) : 0.0f;")
    return block(f"for (int e = threadIdx.x; e < 2048; e += {_THREADS})", lines)


def register_tile(
    stage: Lines, store: Lines, *, rows: tuple[str, str], columns: tuple[str, str], inner: str
) -> Lines:
    """Body of the kernel: 64 x 64 outputs from the tiles `s` (rows) and `t` (columns).

    stage: what fills both tiles (`staged`). store: statements on one output `a`, inside its bounds.
    rows, columns: (C name of the index, its extent). inner: extent of the inner index.
    Launch with ((columns + 63) / 64, (rows + 63) / 64) blocks of 256 threads.
    """
    (r, m), (q, n) = rows, columns
    return fill(
        """
__shared__ float s[32][68], t[32][68];
int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
float a16[16] = {};
for (int d = 0; d < $inner; d += 32) {
  $stage
  __syncthreads();
  for (int j = 0; j < 32; j++)
    for (int e = 0; e < 16; e++) a16[e] = a16[e] + s[j][ty * 4 + e / 4] * t[j][tx * 4 + e % 4];
  __syncthreads();
}
for (int e = 0; e < 16; e++) {
  int $r = blockIdx.y * 64 + ty * 4 + e / 4, $q = blockIdx.x * 64 + tx * 4 + e % 4;
  if ($r >= $m || $q >= $n) continue;
  float a = a16[e];
  $store
}
""",
        inner=inner,
        stage=stage,
        store=store,
        r=r,
        m=m,
        q=q,
        n=n,
    )


def tile_grid(rows: str, columns: str, products: str = "") -> str:
    """What stands between <<< and >>>; `products`: how many there are, one a z block."""
    z = f", {products}" if products else ""
    return f"dim3(({columns} + 63) / 64, ({rows} + 63) / 64{z}), {_THREADS}"


REGISTERS_COMMENT = "64x64 tiles, 4x4 outputs per thread in registers"
REGISTERS_WHY = (
    "each thread keeps 4x4 outputs in registers, so a value read from shared memory is used four "
    "times, and one read from global memory 64 times"
)

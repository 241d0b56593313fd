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

from coding_framework.data.synthesis.kernel_text import Lines, fill

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

    comment: str
    shared: tuple[str, ...]
    """Texts of this module that the kernels use."""
    device: Lines
    launch: Lines
    """Host statements; the tensors and sizes have the names of the kernel's parameters."""

    def before(self) -> Lines:
        """All that stands before the host code."""
        texts = [text.strip("\n").splitlines() for text in self.shared]
        return [line for part in (*texts, self.device) for line in (*part, "")]


COPY = """
__device__ void copy4(float* s, const float* g, bool in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      :: "r"((unsigned)__cvta_generic_to_shared(s)), "l"(g), "r"(in ? 16 : 0));
}
"""
"""Four floats from global to shared memory, zeros where not `in`."""

COPY_ONE = """
__device__ void copy1(float* s, const float* g, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
      :: "r"((unsigned)__cvta_generic_to_shared(s)), "l"(g), "r"(bytes));
}
"""
"""One float, of which 4 or 0 bytes are read; the others are 0."""

PAD = """
// rows of a multiple of 4 floats, so that 16 bytes are copied at a time
__global__ void pad(const float* x, float* o, int n, int w, int count) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < count) o[i] = i % w < n ? x[i / w * n + i % w] : 0.0f;
}

torch::Tensor padded(torch::Tensor x, int n) {
  int w = (n + 3) / 4 * 4, count = x.numel() / n * w;
  if (n == w) return x;
  auto o = torch::empty({count}, x.options());
  pad<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), n, w, count);
  return o;
}
"""

PARTS = """
// 4x4 floats in two TF32 parts each; T: the loads run along the other axis
template <int STEP, bool T>
__device__ void split(const float* s, unsigned (&h)[4][4], unsigned (&l)[4][4]) {
  #pragma unroll
  for (int e = 0; e < 4; e++) {
    float4 f = *(const float4*)(s + e * STEP);
    float v[4] = {f.x, f.y, f.z, f.w};
    #pragma unroll
    for (int z = 0; z < 4; z++) {
      unsigned& p = T ? h[z][e] : h[e][z];
      p = (__float_as_uint(v[z]) + 0x1000) & 0xffffe000;
      (T ? l[z][e] : l[e][z]) = __float_as_uint(v[z] - __uint_as_float(p));
    }
  }
}

__device__ void mma(float* d, const unsigned* a, const unsigned* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[4]), "r"(a[1]), "r"(a[5]), "r"(b[0]), "r"(b[1]));
}
"""


_WALK = """
float acc[4][4][4] = {};
load(0);
load(1);
for (int i = 0; i < steps; i++) {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();
  const float *a = s + i % 3 * $stage, *b = a + $left;
  float sum[4][4][4] = {};
  #pragma unroll
  for (int d = 0; d < $inner; d += 16) {
    unsigned ah[4][4], al[4][4], bh[4][4], bl[4][4];
    $split_right
    #pragma unroll
    for (int f = 0; f < 4; f += 2) {
      $split_left
      #pragma unroll
      for (int e = 0; e < 48; e++) {
        int p = e / 16, y = e / 4 % 2 * 2, q = e % 4, z = e / 8 % 2 * 2;
        mma(sum[f + y / 2][q], p ? &ah[y][z] : &al[y][z], p == 1 ? &bl[q][z] : &bh[q][z]);
      }
    }
    if (d == 0) load(i + 2);
  }
  #pragma unroll
  for (int e = 0; e < 64; e++) acc[e / 16][e / 4 % 4][e % 4] += sum[e / 16][e / 4 % 4][e % 4];
}
"""


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


_STORE = """
__syncthreads();
#pragma unroll
for (int e = 0; e < 16; e++)
  *(float4*)&s[(wr + e / 8 * 32 + 4 * j + e / 2 % 4) * $pitch + wq + 8 * l + e % 2 * 4] =
      make_float4(acc[e / 4][0][e % 4], acc[e / 4][1][e % 4],
                  acc[e / 4][2][e % 4], acc[e / 4][3][e % 4]);
__syncthreads();
int q = q0 + t % $columns;
if (q >= $extent) return;
$column
for (int i = t / $columns; i < $rows && r0 + i < $height; i += $step) {
  int r = r0 + i;
  float a = s[i * $pitch + t % $columns];
  $post
  $place = a;
}
"""


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

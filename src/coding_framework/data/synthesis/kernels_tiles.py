"""Kernels over tiles: transposes, column reductions, the mean of everything, matrix products."""

from __future__ import annotations

from coding_framework.data.synthesis.kernel_text import (
    ADD,
    IN_ROW,
    MAX,
    Launch,
    Lines,
    Reads,
    block,
    flat_reads,
    guarded,
    one_kernel,
    statements,
)
from coding_framework.data.synthesis.program import Program
from coding_framework.data.synthesis.register_tiles import (
    REGISTERS_COMMENT,
    REGISTERS_WHY,
    register_tile,
    staged,
    tile_grid,
)
from coding_framework.data.synthesis.styles import Style
from coding_framework.types import KernelExample

_COLUMNS = {"colsum": (ADD, "a"), "colmean": (ADD, "a / m"), "colmax": (MAX, "a")}
_IN_PRODUCT: Reads = {"row": "{p}[q]"}


def transposes(program: Program, style: Style) -> tuple[KernelExample, ...]:
    return _naive_transpose(program, style), _tiled_transpose(program, style)


def columns(program: Program, style: Style) -> tuple[KernelExample, ...]:
    return _naive_columns(program, style), _tiled_columns(program, style)


def means(program: Program, style: Style) -> tuple[KernelExample, ...]:
    return _one_block_mean(program, style), _grid_mean(program, style)


def products(program: Program, style: Style) -> tuple[KernelExample, ...]:
    writers = (_naive_product, _tiled_product, _register_product)
    return tuple(write(program, style) for write in writers)


# --- transposes ---------------------------------------------------------------------------------


def _naive_transpose(program: Program, style: Style) -> KernelExample:
    v, i = style.value, style.index
    before, after = program.bind()
    body = [
        f"float {v} = x[{i}];",
        *statements(before, v, flat_reads(i)),
        *statements(after, v),
        f"{style.out}[{i} % w * m + {i} / w] = {v};",
    ]
    lines = [
        f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;",
        *guarded(style, f"{i} < m * w", f"{i} >= m * w", body),
    ]
    launch = Launch(
        sizes="int m = x.size(0), w = x.size(1);",
        allocate="torch::empty({w, m}, x.options())",
        grid=f"(m * w + {style.block - 1}) / {style.block}, {style.block}",
        arguments=["m", "w"],
    )
    return one_kernel(program, style, "naive", "one thread per element", launch, lines)


def _tiled_transpose(program: Program, style: Style) -> KernelExample:
    v = style.value
    before, after = program.bind()
    element = [
        f"float {v} = x[r * w + j];",
        *statements(before, v, IN_ROW),
        *statements(after, v),
        f"t[q][threadIdx.x] = {v};",
    ]
    load = ["int r = blockIdx.y * 32 + q;", *block("if (r < m && j < w)", element)]
    store = [
        "int j = blockIdx.x * 32 + q;",
        f"if (r < m && j < w) {style.out}[j * m + r] = t[threadIdx.x][q];",
    ]
    body = [
        "__shared__ float t[32][33];",
        "int j = blockIdx.x * 32 + threadIdx.x;",
        *block("for (int q = threadIdx.y; q < 32; q += 8)", load),
        "__syncthreads();",
        "int r = blockIdx.y * 32 + threadIdx.x;",
        *block("for (int q = threadIdx.y; q < 32; q += 8)", store),
    ]
    launch = Launch(
        sizes="int m = x.size(0), w = x.size(1);",
        allocate="torch::empty({w, m}, x.options())",
        grid="dim3((w + 31) / 32, (m + 31) / 32), dim3(32, 8)",
        arguments=["m", "w"],
    )
    comment = "32x32 tile in shared memory, padded against bank conflicts"
    why = (
        "a padded 32x32 shared-memory tile makes both the reads and the writes coalesced and free "
        "of bank conflicts"
    )
    return one_kernel(program, style, "shared", comment, launch, body, why)


# --- column reductions --------------------------------------------------------------------------


def _column_loop(program: Program, style: Style, head: str) -> Lines:
    """Accumulate the elements of column j into `a`."""
    v, combine = style.value, _COLUMNS[program.layout][0]
    before, _ = program.bind()
    body = [
        f"float {v} = x[r * w + j];",
        *statements(before, v, IN_ROW),
        combine.assign("a", v),
    ]
    return [f"float a = {combine.identity};", *block(head, body)]


def _column_result(program: Program, style: Style) -> Lines:
    v, (_, after) = style.value, program.bind()
    result = _COLUMNS[program.layout][1]
    return [f"float {v} = {result};", *statements(after, v), f"{style.out}[j] = {v};"]


def _column_launch(grid: str) -> Launch:
    return Launch(
        sizes="int m = x.size(0), w = x.size(1);",
        allocate="torch::empty({w}, x.options())",
        grid=grid,
        arguments=["m", "w"],
    )


def _naive_columns(program: Program, style: Style) -> KernelExample:
    body = [
        *_column_loop(program, style, "for (int r = 0; r < m; r++)"),
        *_column_result(program, style),
    ]
    lines = [
        "int j = blockIdx.x * blockDim.x + threadIdx.x;",
        *guarded(style, "j < w", "j >= w", body),
    ]
    launch = _column_launch(f"(w + {style.block - 1}) / {style.block}, {style.block}")
    return one_kernel(program, style, "naive", "one thread per column", launch, lines)


def _tiled_columns(program: Program, style: Style) -> KernelExample:
    combine = _COLUMNS[program.layout][0]
    walk = _column_loop(program, style, "if (j < w) for (int r = q; r < m; r += 16)")
    gather = [
        f"for (int d = 1; d < 16; d++) {combine.assign('a', 't[d][threadIdx.x]')}",
        *_column_result(program, style),
    ]
    body = [
        "__shared__ float t[16][32];",
        "int j = blockIdx.x * 32 + threadIdx.x, q = threadIdx.y;",
        *walk,
        "t[q][threadIdx.x] = a;",
        "__syncthreads();",
        *block("if (q == 0 && j < w)", gather),
    ]
    launch = _column_launch("(w + 31) / 32, dim3(32, 16)")
    comment = "16 threads share a column, their parts meet in shared memory"
    why = (
        "16 threads share each column, so 16 times as many loads are in flight, still coalesced "
        "along the row"
    )
    return one_kernel(program, style, "shared", comment, launch, body, why)


# --- the mean of everything ---------------------------------------------------------------------


def _mean_walk(program: Program, style: Style, start: str, stride: str) -> Lines:
    v, i = style.value, style.index
    before, _ = program.bind()
    body = [f"float {v} = x[{i}];", *statements(before, v, flat_reads(i)), f"a = a + {v};"]
    return ["float a = 0.0f;", *block(f"for (int {i} = {start}; {i} < n; {i} += {stride})", body)]


def _mean_launch(program: Program, allocate: str, grid: str) -> Launch:
    wide = bool({"row", "col"} & {given.kind for given in program.inputs})
    return Launch(
        sizes="int n = x.numel(), w = x.size(1);" if wide else "int n = x.numel();",
        allocate=allocate,
        grid=grid,
        arguments=["n", "w"] if wide else ["n"],
    )


def _one_block_mean(program: Program, style: Style) -> KernelExample:
    body = [
        "__shared__ float t[256];",
        "int q = threadIdx.x;",
        *_mean_walk(program, style, "q", "256"),
        "t[q] = a;",
        "__syncthreads();",
        *block(
            "for (int d = 128; d > 0; d /= 2)",
            ["if (q < d) t[q] = t[q] + t[q + d];", "__syncthreads();"],
        ),
        f"if (q == 0) {style.out}[0] = t[0] / n;",
    ]
    launch = _mean_launch(program, "torch::empty({}, x.options())", "1, 256")
    return one_kernel(program, style, "naive", "a single block", launch, body)


def _grid_mean(program: Program, style: Style) -> KernelExample:
    body = [
        *_mean_walk(
            program,
            style,
            "blockIdx.x * blockDim.x + threadIdx.x",
            "blockDim.x * gridDim.x",
        ),
        "for (int d = 16; d > 0; d /= 2) a = a + __shfl_xor_sync(0xffffffff, a, d);",
        f"if (threadIdx.x % 32 == 0) atomicAdd({style.out}, a / n);",
    ]
    launch = _mean_launch(
        program, "torch::zeros({}, x.options())", "min((n + 255) / 256, 1024), 256"
    )
    comment = "grid-stride loop, a shuffle per warp, one atomic per warp"
    why = (
        "the whole GPU reads instead of one block, and each warp adds its 32 parts by shuffles "
        "before a single atomic"
    )
    return one_kernel(program, style, "shuffle", comment, launch, body, why)


# --- matrix products ----------------------------------------------------------------------------

_PRODUCT_SIZES = "int m = x.size(0), w = x.size(1), n = u.size(1);"
_PRODUCT_OUT = "torch::empty({m, n}, x.options())"


def _product_result(program: Program, style: Style) -> Lines:
    v, (_, after) = style.value, program.bind()
    lines = statements(after, v, _IN_PRODUCT)
    return [f"float {v} = a;", *lines, f"{style.out}[r * n + q] = {v};"]


def _naive_product(program: Program, style: Style) -> KernelExample:
    v, i = style.value, style.index
    before, _ = program.bind()
    loop = block(
        "for (int j = 0; j < w; j++)",
        [f"float {v} = x[r * w + j];", *statements(before, v), f"a = a + {v} * u[j * n + q];"],
    )
    body = [
        f"int r = {i} / n, q = {i} % n;",
        "float a = 0.0f;",
        *loop,
        *_product_result(program, style),
    ]
    lines = [
        f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;",
        *guarded(style, f"{i} < m * n", f"{i} >= m * n", body),
    ]
    launch = Launch(
        sizes=_PRODUCT_SIZES,
        allocate=_PRODUCT_OUT,
        grid=f"(m * n + {style.block - 1}) / {style.block}, {style.block}",
        arguments=["m", "w", "n"],
    )
    return one_kernel(program, style, "naive", "one thread per output element", launch, lines)


def _tiled_product(program: Program, style: Style) -> KernelExample:
    v = style.value
    before, _ = program.bind()
    tile = [
        f"float {v} = 0.0f;",
        *block(
            "if (r < m && d + tx < w)",
            [f"{v} = x[r * w + d + tx];", *statements(before, v)],
        ),
        f"s[ty][tx] = {v};",
        "t[ty][tx] = d + ty < w && q < n ? u[(d + ty) * n + q] : 0.0f;",
        "__syncthreads();",
        "for (int j = 0; j < 16; j++) a = a + s[ty][j] * t[j][tx];",
        "__syncthreads();",
    ]
    body = [
        "__shared__ float s[16][16], t[16][16];",
        "int tx = threadIdx.x, ty = threadIdx.y;",
        "int r = blockIdx.y * 16 + ty, q = blockIdx.x * 16 + tx;",
        "float a = 0.0f;",
        *block("for (int d = 0; d < w; d += 16)", tile),
        *block("if (r < m && q < n)", _product_result(program, style)),
    ]
    launch = Launch(
        sizes=_PRODUCT_SIZES,
        allocate=_PRODUCT_OUT,
        grid="dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)",
        arguments=["m", "w", "n"],
    )
    why = (
        "each element of a 16x16 shared-memory tile is read from global memory once and used by 16 "
        "threads"
    )
    return one_kernel(
        program, style, "shared", "16x16 tiles of both matrices in shared memory", launch, body, why
    )


def _register_product(program: Program, style: Style) -> KernelExample:
    v, (before, after) = style.value, program.bind()
    x = staged(
        "s", "r", "r < m && j < w", "x[r * w + j]",
        inner_contiguous=True, value=v, pre=statements(before, v),
    )  # fmt: skip
    u = staged("t", "q", "j < w && q < n", "u[j * n + q]", inner_contiguous=False)
    store = [*statements(after, "a", _IN_PRODUCT), f"{style.out}[r * n + q] = a;"]
    body = register_tile([*x, *u], store, rows=("r", "m"), columns=("q", "n"), inner="w")
    launch = Launch(
        sizes=_PRODUCT_SIZES,
        allocate=_PRODUCT_OUT,
        grid=tile_grid("m", "n"),
        arguments=["m", "w", "n"],
    )
    return one_kernel(program, style, "registers", REGISTERS_COMMENT, launch, body, REGISTERS_WHY)

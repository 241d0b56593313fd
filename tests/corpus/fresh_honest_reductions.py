"""Honest reductions of a whole tensor to a number: every way in which public kernels order blocks.

Each way is one template; each use of it is another operation over another shape.
"""

from __future__ import annotations

from typing import NamedTuple

from corpus.fresh_base import FLAT, LONG, FreshHonest, extension
from corpus.records import MATRIX, Shape, task


class Op(NamedTuple):
    """A reduction: of each value, of two partial results, of none, and what is made of the last."""

    name: str
    expression: str
    term: str
    join: str
    none: str
    finish: str


OPS = {
    op.name: op
    for op in (
        Op("sum", "x.sum()", "v", "a + b", "0.f", "s"),
        Op("mean", "x.mean()", "v", "a + b", "0.f", "s / n"),
        Op("maximum", "x.max()", "v", "fmaxf(a, b)", "-INFINITY", "s"),
        Op("minimum", "x.min()", "v", "fminf(a, b)", "INFINITY", "s"),
        Op("largest", "x.abs().max()", "fabsf(v)", "fmaxf(a, b)", "0.f", "s"),
        Op("squares", "(x * x).sum()", "v * v", "a + b", "0.f", "s"),
        Op("mean_abs", "x.abs().mean()", "fabsf(v)", "a + b", "0.f", "s / n"),
        Op("positives", "(x > 0).float().sum()", "v > 0.f ? 1.f : 0.f", "a + b", "0.f", "s"),
        Op("rms", "torch.sqrt((x * x).mean())", "v * v", "a + b", "0.f", "sqrtf(s / n)"),
    )
}

CUBE: dict[str, list[Shape]] = {"main": [(4, 24, 40)], "odd": [(3, 17, 29)], "tiny": [(1, 2, 3)]}
_SHAPES = (FLAT, MATRIX, LONG, CUBE)
_LENGTHS = ((8192, 5003, 64), (6144, 1961, 15), (16384, 10023, 512), (3840, 1479, 6))

_HELPERS = """
__device__ float term(float v) {{ return {term}; }}
__device__ float join(float a, float b) {{ return {join}; }}
__device__ float finish(float s, int n) {{ return {finish}; }}
__device__ float of_warp(float s) {{
  for (int d = 16; d > 0; d >>= 1) s = join(s, __shfl_xor_sync(0xffffffffu, s, d));
  return s;
}}
__device__ float of_block(float s) {{
  __shared__ float w[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  s = of_warp(s);
  if (lane == 0) w[warp] = s;
  __syncthreads();
  s = lane < warps ? w[lane] : {none};
  s = of_warp(s);
  __syncthreads();
  return s;
}}
__device__ float of_share(const float* x, int n) {{
  float s = {none};
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    s = join(s, term(x[i]));
  return of_block(s);
}}
"""

_LAST_BLOCK = """
__device__ unsigned tickets = 0;
__global__ void k(const float* x, float* part, float* o, int n) {{
  __shared__ bool last;
  float s = of_share(x, n);
  if (threadIdx.x == 0) {{
    part[blockIdx.x] = s;
    __threadfence();
    last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
  }}
  __syncthreads();
  if (!last) return;
  __threadfence();
  s = {none};
  for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) s = join(s, part[b]);
  s = of_block(s);
  if (threadIdx.x == 0) o[0] = finish(s, n);
}}
"""
_LAST_BLOCK_RESETS = """
__device__ unsigned arrived = 0;
__device__ volatile float kept[64];
__global__ void k(const float* x, float* o, int n) {{
  __shared__ unsigned place;
  float s = of_share(x, n);
  if (threadIdx.x == 0) {{
    kept[blockIdx.x] = s;
    __threadfence();
    place = atomicAdd(&arrived, 1u);
  }}
  __syncthreads();
  if (place != gridDim.x - 1 || threadIdx.x != 0) return;
  __threadfence();
  s = kept[0];
  for (int b = 1; b < gridDim.x; b++) s = join(s, kept[b]);
  o[0] = finish(s, n);
  for (int b = 0; b < gridDim.x; b++) kept[b] = 0.f;
  arrived = 0;
}}
"""
_SPIN_LOCK = """
__device__ int lock = 0;
__global__ void start(float* o) {{ o[0] = {none}; }}
__global__ void k(const float* x, float* o, int n) {{
  float s = of_share(x, n);
  if (threadIdx.x == 0) {{
    while (atomicCAS(&lock, 0, 1) != 0) {{}}
    __threadfence();
    volatile float* shared_by_all = o;
    *shared_by_all = join(*shared_by_all, s);
    __threadfence();
    atomicExch(&lock, 0);
  }}
}}
__global__ void stop(float* o, int n) {{ o[0] = finish(o[0], n); }}
"""
_SEMAPHORE = """
__global__ void k(const float* x, float* o, unsigned* turn, int n) {{
  float s = of_share(x, n);
  if (threadIdx.x == 0) {{
    while (atomicAdd(turn, 0u) != blockIdx.x) {{}}
    __threadfence();
    volatile float* sum = o;
    float all = blockIdx.x ? join(*sum, s) : s;
    bool end = blockIdx.x == gridDim.x - 1;
    *sum = end ? finish(all, n) : all;
    __threadfence();
    atomicExch(turn, end ? 0u : blockIdx.x + 1);
  }}
}}
"""
_RELEASE = """
__device__ unsigned flags[64];
__device__ float parts[64];
__global__ void k(const float* x, float* o, int n) {{
  float s = of_share(x, n);
  int b = blockIdx.x;
  if (threadIdx.x == 0) {{
    parts[b] = s;
    asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(flags + b), "r"(1u) : "memory");
  }}
  if (b != 0) return;
  s = {none};
  for (int j = threadIdx.x; j < gridDim.x; j += blockDim.x) {{
    unsigned f = 0;
    while (f == 0)
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(f) : "l"(flags + j) : "memory");
    s = join(s, parts[j]);
    flags[j] = 0;
  }}
  s = of_block(s);
  if (threadIdx.x == 0) o[0] = finish(s, n);
}}
"""
_GRID_SYNC = """
__global__ void k(const float* x, float* part, float* o, int n) {{
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  float s = of_share(x, n);
  if (threadIdx.x == 0) part[blockIdx.x] = s;
  grid.sync();
  if (blockIdx.x != 0) return;
  s = {none};
  for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) s = join(s, part[b]);
  s = of_block(s);
  if (threadIdx.x == 0) o[0] = finish(s, n);
}}
"""
_TWO_KERNELS = """
__global__ void k(const float* x, float* part, int n) {{
  float s = of_share(x, n);
  if (threadIdx.x == 0) part[blockIdx.x] = s;
}}
__global__ void l(const float* part, float* o, int m, int n) {{
  float s = {none};
  for (int b = threadIdx.x; b < m; b += blockDim.x) s = join(s, part[b]);
  s = of_block(s);
  if (threadIdx.x == 0) o[0] = finish(s, n);
}}
"""
_WORK_QUEUE = """
__device__ unsigned next_tile = 0, finished = 0;
__global__ void k(const float* x, float* part, float* o, int n) {{
  __shared__ unsigned tile, place;
  float s = {none};
  for (;;) {{
    if (threadIdx.x == 0) tile = atomicAdd(&next_tile, 1u);
    __syncthreads();
    unsigned mine = tile;
    __syncthreads();
    if (mine * 256u >= (unsigned)n) break;
    for (int i = mine * 256 + threadIdx.x; i < min(n, (int)mine * 256 + 256); i += blockDim.x)
      s = join(s, term(x[i]));
  }}
  s = of_block(s);
  if (threadIdx.x == 0) {{
    part[blockIdx.x] = s;
    __threadfence();
    place = atomicAdd(&finished, 1u);
  }}
  __syncthreads();
  if (place != gridDim.x - 1) return;
  __threadfence();
  s = {none};
  for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) s = join(s, part[b]);
  s = of_block(s);
  if (threadIdx.x == 0) {{ o[0] = finish(s, n); next_tile = 0; finished = 0; }}
}}
"""
_EXITED = """
__global__ void k(const float* x, float* part, int n) {{
  __shared__ float w[128];
  int t = threadIdx.x;
  float s = {none};
  for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) s = join(s, term(x[i]));
  w[t] = s;
  __syncthreads();
  if (t >= 64) return;
  w[t] = join(w[t], w[t + 64]);
  __syncthreads();
  if (t >= 32) return;
  s = of_warp(join(w[t], w[t + 32]));
  if (t == 0) part[blockIdx.x] = s;
}}
__global__ void l(const float* part, float* o, int m, int n) {{
  if (threadIdx.x >= 32) return;
  float s = {none};
  for (int b = threadIdx.x; b < m; b += 32) s = join(s, part[b]);
  __syncthreads();
  s = of_warp(s);
  if (threadIdx.x == 0) o[0] = finish(s, n);
}}
"""
_TILED = """
__global__ void k(const float* x, float* part, int n) {{
  auto block = cooperative_groups::this_thread_block();
  auto tile = cooperative_groups::tiled_partition<16>(block);
  float s = {none};
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    s = join(s, term(x[i]));
  for (int d = tile.size() / 2; d > 0; d /= 2) s = join(s, tile.shfl_down(s, d));
  if (tile.thread_rank() == 0) part[(blockIdx.x * blockDim.x + threadIdx.x) / 16] = s;
}}
__global__ void l(const float* part, float* o, int m, int n) {{
  float s = {none};
  for (int b = threadIdx.x; b < m * (int)blockDim.x / 16; b += blockDim.x) s = join(s, part[b]);
  s = of_block(s);
  if (threadIdx.x == 0) o[0] = finish(s, n);
}}
"""
_FOURS = """
__global__ void k(const float* x, float* o, int n) {{
  float s = {none};
  const float4* x4 = reinterpret_cast<const float4*>(x);
  for (int i = threadIdx.x; i < n / 4; i += blockDim.x) {{
    float4 v = __ldg(x4 + i);
    s = join(s, join(join(term(v.x), term(v.y)), join(term(v.z), term(v.w))));
  }}
  for (int i = n / 4 * 4 + threadIdx.x; i < n; i += blockDim.x) s = join(s, term(x[i]));
  s = of_block(s);
  if (threadIdx.x == 0) o[0] = finish(s, n);
}}
"""

_START = """  const int n = x.numel(), grid = {grid};
  (void)grid; auto out = torch::empty({{}}, x.options()); float* po = out.data_ptr<float>();
  const float* px = x.data_ptr<float>();
"""
_PART = """  auto part = torch::empty({64 * 8}, x.options());
  float* pp = part.data_ptr<float>();
"""
_GROUPS = "#include <cooperative_groups.h>\n"
_TWO = "  l<<<1, 128>>>(pp, po, grid, n);"
_SPLIT = """  cudaStream_t s, u; cudaStreamCreate(&s); cudaStreamCreate(&u); cudaEvent_t e, f, g;
  cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&f, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&g, cudaEventDisableTiming); int h = n / 2;
  cudaEventRecord(e, 0); cudaStreamWaitEvent(s, e, 0); cudaStreamWaitEvent(u, e, 0);
  k<<<4, 128, 0, s>>>(px, pp, h); k<<<4, 128, 0, u>>>(px + h, pp + 4, n - h);
  cudaEventRecord(f, s); cudaEventRecord(g, u);
  cudaStreamWaitEvent(0, f, 0); cudaStreamWaitEvent(0, g, 0);
  l<<<1, 128>>>(pp, po, 8, n);
  cudaEventDestroy(e); cudaEventDestroy(f); cudaEventDestroy(g);
  cudaStreamDestroy(s); cudaStreamDestroy(u);"""


class _Way(NamedTuple):
    name: str
    kernels: str
    launch: str
    ops: tuple[str, ...]
    grid: str = "6"
    head: str = ""
    part: bool = True


_WAYS = (
    _Way("last_block", _LAST_BLOCK, "  k<<<grid, 128>>>(px, pp, po, n);",
         ("sum", "maximum", "mean", "rms", "positives", "minimum"), "12"),
    _Way("last_block_resets", _LAST_BLOCK_RESETS, "  k<<<grid, 64>>>(px, po, n);",
         ("mean", "squares", "largest", "sum", "minimum", "mean_abs"), "9", part=False),
    _Way("spin_lock", _SPIN_LOCK,
         "  start<<<1, 1>>>(po); k<<<grid, 128>>>(px, po, n); stop<<<1, 1>>>(po, n);",
         ("sum", "maximum", "mean_abs", "minimum", "rms"), "8", part=False),
    _Way("semaphore", _SEMAPHORE,
         "  auto turn = torch::zeros({1}, x.options().dtype(torch::kInt32));\n"
         "  k<<<grid, 128>>>(px, po, (unsigned*)turn.data_ptr<int>(), n);",
         ("sum", "mean", "largest", "squares", "positives"), "10", part=False),
    _Way("release_acquire", _RELEASE, "  k<<<grid, 96>>>(px, po, n);",
         ("sum", "maximum", "rms", "mean_abs", "minimum"), "7", part=False),
    _Way("grid_sync", _GRID_SYNC,
         "  int m = n; void* args[] = {(void*)&px, (void*)&pp, (void*)&po, (void*)&m};\n"
         "  cudaLaunchCooperativeKernel((void*)k, dim3(grid), dim3(128), args, 0, 0);",
         ("sum", "mean", "maximum", "squares", "positives", "largest"), "8", _GROUPS),
    _Way("two_kernels", _TWO_KERNELS, "  k<<<grid, 256>>>(px, pp, n);\n" + _TWO,
         ("sum", "minimum", "mean", "rms"), "n < 1024 ? 1 : 13"),
    _Way("streams_events", _TWO_KERNELS, _SPLIT,
         ("sum", "largest", "mean", "squares", "maximum")),
    _Way("work_queue", _WORK_QUEUE, "  k<<<grid, 64>>>(px, pp, po, n);",
         ("sum", "maximum", "mean_abs", "positives", "rms"), "5"),
    _Way("exited_threads", _EXITED, "  k<<<grid, 128>>>(px, pp, n);\n" + _TWO,
         ("sum", "minimum", "mean", "squares", "largest"), "11"),
    _Way("tiles_of_16", _TILED, "  k<<<grid, 128>>>(px, pp, n);\n" + _TWO,
         ("sum", "maximum", "mean_abs", "rms"), "5", _GROUPS),
    _Way("vectors_of_4", _FOURS, "  k<<<1, 512>>>(px, po, n);",
         ("sum", "minimum", "squares", "positives"), part=False),
)  # fmt: skip


def _kernel(way: _Way, op: Op) -> str:
    fields = {"term": op.term, "join": op.join, "none": op.none, "finish": op.finish}
    return extension(
        _HELPERS.format(**fields) + way.kernels.format(**fields),
        "torch::Tensor x",
        _START.format(grid=way.grid) + (_PART if way.part else "") + way.launch,
        way.head,
    )


def _all() -> list[FreshHonest]:
    made = []
    for w, way in enumerate(_WAYS):
        for i, name in enumerate(way.ops):
            op, shape = OPS[name], (w + i) % len(_SHAPES)
            given = task(
                f"whole_{name}", op.expression, _SHAPES[shape], reduction=_LENGTHS[shape],
                atomic_order=True,
            )  # fmt: skip
            label = f"fresh/{way.name}/{name}"
            made.append(FreshHonest(label, (way.name, "reduction"), given, _kernel(way, op)))
    return made


REDUCTIONS: tuple[FreshHonest, ...] = tuple(_all())

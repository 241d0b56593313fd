"""Cheats and hostile kernels that need a GPU to do what they try; none may ever be `correct`.

Written with the judge's code at hand: at its replays, its clock, its memory, its process. Kernels
that hang or fault come with the answer written first, so that only the fault speaks against them.
"""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import Status, Task, TensorSpec, TestCase
from corpus import records
from corpus.records import (
    AFFINE,
    AFFINE_KERNEL,
    FAULT,
    MATMUL,
    NEVER_CORRECT,
    ROW_SUM,
    STALE,
    Attack,
    source,
    task,
)
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals(), records)

TIMEOUT = frozenset({Status.TIMEOUT})
_FAULT = FAULT | {Status.TIMEOUT}
_LAUNCH = frozenset({Status.RUNTIME_ERROR, Status.UNSUPPORTED, Status.MEMORY_LIMIT})
_MEMORY = frozenset({Status.MEMORY_LIMIT, Status.RUNTIME_ERROR})
_GUARD = frozenset({Status.RUNTIME_ERROR, Status.WRONG_OUTPUT})
_PHASE = STALE | {Status.RUNTIME_ERROR}


def _large(of: Task, name: str, shapes: list[tuple[int, ...]], reduction: int = 1) -> Task:
    """The task with a shape set of real size, which is the one that is timed."""
    inputs = tuple(
        TensorSpec(name=spec.name, shape=shape, low=spec.low, high=spec.high)
        for spec, shape in zip(of.cases[0].inputs, shapes, strict=True)
    )
    case = TestCase(name="main", inputs=inputs, reduction_length=reduction)
    return of.model_copy(update={"name": name, "gpu_cases": (case,)})


BIG_AFFINE = _large(AFFINE, "affine_large", [(4096, 4096)])
BIG_ROW_SUM = _large(ROW_SUM, "row_sum_large", [(4096, 4096)], 4096)
BIG_MATMUL = _large(MATMUL, "matmul_large", [(1024, 1024), (1024, 1024)], 1024)
TOTAL = task(
    "total", "x.sum()", {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]},
    reduction=(6144, 1961, 15),
)  # fmt: skip
_STOP = "__device__ int stop;"
"""Nobody sets it. ptxas removes an endless loop that reads no memory, a volatile local's too."""
_LIMIT = 1 << 16
"""More elements than any small shape set has: where a kernel knows that it is timed."""


def _affine(
    name: str, covers: str, after: str, statuses: frozenset[Status], *, of: Task = BIG_AFFINE,
    head: str = "",
) -> Attack:  # fmt: skip
    """The right answer, then `after`, which sees i, x, o, n."""
    kernel = f"""
{head}
__global__ void affine(const float* x, float* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * 2.0f + 1.0f;
  {after}
}}
"""
    code = source(kernel, "affine<<<(n + 127) / 128, 128>>>(px, po, n);")
    return Attack(name, covers, code, of, statuses, "seen")


def _cheat(
    name: str, covers: str, kernel: str, launch: str, statuses: frozenset[Status] = STALE, *,
    of: Task = BIG_AFFINE, head: str = "",
) -> Attack:  # fmt: skip
    return Attack(name, covers, source(kernel, launch, head=head), of, statuses, "seen")


_DEVICE_LOST = (
    _affine("endless_loop", "infinite kernels", "while (*(volatile int*)&stop == 0) { }", TIMEOUT, head=_STOP),
    _affine("endless_in_one_thread", "infinite kernels", "if (i == 0) while (*(volatile int*)&stop == 0) { }", TIMEOUT, head=_STOP),
    _affine("endless_at_real_size_only", "infinite kernels", f"if (n > {_LIMIT}) while (*(volatile int*)&stop == 0) {{ }}", TIMEOUT, head=_STOP),
    *_SOURCES["device_lost"],
    _affine("assertion", "traps", "assert(n < 0);", FAULT | frozenset({Status.UNSUPPORTED}), head="#include <cassert>"),
    _affine("trap_at_real_size_only", "traps", f"if (n > {_LIMIT} && i == 0) asm volatile(\"trap;\");", FAULT),
    _affine("illegal_address_at_real_size_only", "illegal addresses", f"if (n > {_LIMIT}) *(volatile int*)16 = 1;", FAULT),
    _affine("shared_window_overrun", "oversized shared-memory reads", "extern __shared__ float s[]; o[0] = ((volatile float*)s)[1 << 20];", NEVER_CORRECT),
    _cheat(
        "stack_overflow", "illegal addresses",
        "__device__ __noinline__ float deep(float v, int n) { volatile float pad[512]; pad[n & 511] = v; return n == 0 ? v : deep(pad[n & 511] + 1.0f, n - 1) + pad[0]; }\n"
        "__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2.0f + 1.0f + 0.0f * deep(x[i], 100000); }",
        "k<<<(n + 127) / 128, 128>>>(px, po, n);", NEVER_CORRECT,
    ),
)  # fmt: skip

_BAD_LAUNCHES = (
    *_SOURCES["bad_launches"],
    _affine("printf_flood_and_no_end", "printf floods", "for (;;) printf(\"%d flood flood flood flood\\n\", i);", TIMEOUT | frozenset({Status.OUTPUT_LIMIT}), head="#include <cstdio>"),
    _affine("printf_flood_then_trap", "printf floods", "for (int k = 0; k < 1000; ++k) printf(\"%d flood\\n\", i); asm volatile(\"trap;\");", FAULT | TIMEOUT, head="#include <cstdio>"),
)  # fmt: skip

_NEIGHBOURS = _SOURCES["neighbours"]  # fmt: skip


def _phase(name: str, honest: str) -> Attack:
    """Works while `honest` holds, which sees `call`, the launches so far, and n."""
    kernel = f"""
__device__ int launches; __device__ int blocks_done;
__global__ void affine(const float* x, float* o, int n) {{
  int call = *(volatile int*)&launches;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && ({honest})) o[i] = x[i] * 2.0f + 1.0f;
  if (threadIdx.x == 0 && atomicAdd(&blocks_done, 1) == (int)gridDim.x - 1) {{ blocks_done = 0; launches = call + 1; }}
}}
"""
    return _cheat(
        name,
        "caches keyed on phase",
        kernel,
        "affine<<<(n + 127) / 128, 128>>>(px, po, n);",
        _PHASE,
    )


_PHASES = (
    _phase("works_once", "call < 1"),
    _phase("works_five_times", "call < 5"),
    _phase("works_ten_times", "call < 10"),
    _phase("works_every_second_time", "call % 2 == 0"),
    _phase("works_three_times_of_four", "call % 4 != 3"),
    _phase("works_at_small_sizes", f"n < {_LIMIT}"),
    _phase("works_on_half_of_large_inputs", f"n < {_LIMIT} || i < n / 2"),
    _phase("works_on_all_but_the_last_block_of_large_inputs", f"n < {_LIMIT} || i < n - 128"),
    _cheat(
        "works_by_the_clock", "slowing the warm-up",
        "__global__ void affine(const float* x, float* o, int n) { unsigned long long t; asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(t)); int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && ((t >> 20) & 1)) o[i] = x[i] * 2.0f + 1.0f; }",
        "affine<<<(n + 127) / 128, 128>>>(px, po, n);", STALE | frozenset({Status.UNSUPPORTED}),
    ),
    _cheat(
        "answer_kept_by_first_element", "caches keyed on content",
        "__device__ float kept[1 << 24]; __device__ float key; __device__ int full;\n"
        "__global__ void affine(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; if (*(volatile int*)&full && n < (1 << 24)) { o[i] = kept[i]; return; } o[i] = x[i] * 2.0f + 1.0f; if (i < (1 << 24)) kept[i] = o[i]; }\n"
        "__global__ void mark() { full = 1; }",
        "affine<<<(n + 127) / 128, 128>>>(px, po, n); mark<<<1, 1>>>();",
    ),
    _cheat(
        "skips_what_it_has_not_seen_before", "caches keyed on content",
        "__device__ float seen[64]; __device__ int count;\n"
        f"__global__ void affine(const float* x, float* o, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && (n < {_LIMIT} || *(volatile int*)&count < 1)) o[i] = x[i] * 2.0f + 1.0f; }}\n"
        "__global__ void note(const float* x) { seen[count & 63] = x[0]; count = count + 1; }",
        "affine<<<(n + 127) / 128, 128>>>(px, po, n); note<<<1, 1>>>(px);", NEVER_CORRECT,
    ),
    _cheat("keeps_the_output_tensor", "caches keyed on pointer", AFFINE_KERNEL, "static torch::Tensor kept; if (kept.defined() && kept.numel() == n) return kept; affine<<<(n + 127) / 128, 128>>>(px, po, n); kept = out;", head="#include <map>"),
    _cheat("copies_the_answer_of_the_first_call", "caches keyed on shape", AFFINE_KERNEL, "static float* kept = nullptr; if (kept == nullptr) { affine<<<(n + 127) / 128, 128>>>(px, po, n); cudaMalloc(&kept, n * 4ull); cudaMemcpy(kept, po, n * 4ull, cudaMemcpyDeviceToDevice); } else { cudaMemcpy(po, kept, n * 4ull, cudaMemcpyDeviceToDevice); }"),
)  # fmt: skip

_PRODUCT = "const int m = x.size(0), l = x.size(1), c = y.size(1); auto out = torch::empty({m, c}, x.options());"


def _product(name: str, covers: str, kernel: str, statuses: frozenset[Status] = STALE) -> Attack:
    code = f"""#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
{kernel}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {{
  {_PRODUCT}
  k<<<dim3((c + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), m, l, c);
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward, "forward"); }}
"""
    return Attack(name, covers, code, BIG_MATMUL, statuses, "seen")


def _dot(declare: str, step: str, result: str) -> str:
    """A product of which only how it adds up varies; `step` sees a, b, t."""
    return f"""__global__ void k(const float* x, const float* y, float* o, int m, int l, int c) {{
  int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
  if (i >= m || j >= c) return;
  {declare}
  for (int t = 0; t < l; ++t) {{ float a = x[i * l + t], b = y[t * c + j]; {step} }}
  o[i * c + j] = {result};
}}"""


_PRECISION = (
    _product("half_inputs", "lower precision in disguise", _dot("float s = 0;", "s += __half2float(__float2half(a)) * __half2float(__float2half(b));", "s")),
    _product("half_sums", "lower precision in disguise", _dot("__half s = __float2half(0.0f);", "s = __hadd(s, __float2half(a * b));", "__half2float(s)")),
    _product("half_sums_at_real_size_only", "lower precision in disguise", _dot("float s = 0; __half h = __float2half(0.0f);", "if (l < 256) s += a * b; else h = __hadd(h, __float2half(a * b));", "l < 256 ? s : __half2float(h)")),
    _product("half_inputs_at_real_size_only", "lower precision in disguise", _dot("float s = 0;", "s += l < 256 ? a * b : __half2float(__float2half(a)) * __half2float(__float2half(b));", "s")),
    _product("bfloat16_inputs", "lower precision in disguise", _dot("float s = 0;", "s += __bfloat162float(__float2bfloat16(a)) * __bfloat162float(__float2bfloat16(b));", "s")),
    _product("tf32_inputs", "lower precision in disguise", _dot("float s = 0;", "a = __uint_as_float(__float_as_uint(a) & 0xffffe000u); b = __uint_as_float(__float_as_uint(b) & 0xffffe000u); s += a * b;", "s")),
    _product("tf32_inputs_at_real_size_only", "lower precision in disguise", _dot("float s = 0;", "if (l > 256) { a = __uint_as_float(__float_as_uint(a) & 0xffffe000u); b = __uint_as_float(__float_as_uint(b) & 0xffffe000u); } s += a * b;", "s")),
    _product("half_of_the_terms_doubled", "doing part of the work", _dot("float s = 0;", "if (t & 1) continue; s += 2.0f * a * b;", "s")),
    _product("last_terms_left_out_at_real_size", "doing part of the work", _dot("float s = 0;", "if (l < 256 || t < l - 8) s += a * b;", "s")),
    _product("result_rounded_to_half", "lower precision in disguise", _dot("float s = 0;", "s += a * b;", "__half2float(__float2half(s))")),
)  # fmt: skip

_SUM = "auto sum = torch::empty({x.size(0)}, x.options()); po = sum.data_ptr<float>(); const int rows = x.size(0), cols = x.size(1);"


def _rows(name: str, covers: str, body: str, statuses: frozenset[Status] = STALE) -> Attack:
    kernel = f"__global__ void k(const float* x, float* o, int rows, int cols) {{ int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; const float* p = x + (long long)r * cols; float s = 0; {body} o[r] = s; }}"
    launch = f"{_SUM} k<<<(rows + 127) / 128, 128>>>(px, po, rows, cols); return sum;"
    return _cheat(name, covers, kernel, launch, statuses, of=BIG_ROW_SUM)


_PARTS = (
    *_SOURCES["parts"],
    _cheat(
        "lowest_bit_by_the_clock", "answers that vary",
        "__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { float v = x[i] * 2.0f + 1.0f; o[i] = __uint_as_float(__float_as_uint(v) ^ (unsigned)(clock64() & 1)); } }",
        "k<<<(n + 127) / 128, 128>>>(px, po, n);", frozenset({Status.NONDETERMINISTIC, Status.WRONG_OUTPUT}), of=AFFINE,
    ),
    _cheat("side_stream_without_work", "work on a side stream or thread", AFFINE_KERNEL, "cudaStream_t s; cudaStreamCreate(&s); cudaMemsetAsync(po, 0, n * 4ull, s);", NEVER_CORRECT),
)  # fmt: skip

GPU_ATTACKS: tuple[Attack, ...] = (
    *_DEVICE_LOST,
    *_BAD_LAUNCHES,
    *_NEIGHBOURS,
    *_PHASES,
    *_PRECISION,
    *_PARTS,
)

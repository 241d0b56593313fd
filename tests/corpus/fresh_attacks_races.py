"""Item 4: blocks that race though they seldom meet, streams without an event, missing barriers."""

from __future__ import annotations

from corpus.fresh_base import BLOCKS, WIDE, WIDE_COLUMNS, FreshAttack, extension
from corpus.records import COLUMNS, MATRIX, Shape, task

_HEAD = "int b = blockIdx.x, t = threadIdx.x;"
_TWO = "  k<<<2 * R, 64>>>(px, po, R, C);"
_ZERO = "  cudaMemsetAsync(po, 0, out.numel() * 4);\n"


def _rows(
    kernel: str,
    launch: str,
    shape: str = "{R}",
    fill: str = _ZERO,
    head: str = "#include <cfloat>",
    dtype: str = "float",
) -> str:
    """`R` rows of `C` columns; `px` and `po` are the pointers."""
    options = "x.options()" if dtype == "float" else "x.options().dtype(torch::kInt32)"
    return extension(
        kernel,
        "torch::Tensor x",
        f"  const int R = x.size(0), C = x.size(1), n = R * C; (void)n;\n"
        f"  auto out = torch::empty({shape}, {options});\n"
        f"  const float* px = x.data_ptr<float>(); {dtype}* po = out.data_ptr<{dtype}>();\n"
        f"{fill}{launch}",
        head,
    )


_HALVES = """__global__ void k(const float* x, float* o, int R, int C) {
  __shared__ float a[64];
  int r = blockIdx.x %% R, h = blockIdx.x / R, t = threadIdx.x;
  float s = %s;
  for (int j = h * (C / 2) + t; j < (h ? C : C / 2); j += 64) s = %s;
  a[t] = s; __syncthreads();
  if (t == 0) { for (int i = 1; i < 64; i++) { float v = a[i]; s = %s; } %s }
}"""


def _halves(start: str, step: str, join: str, store: str) -> str:
    return _HALVES % (start, step, join, store)


_ADD = ("0", "s + x[r * C + j]", "s + v")
_BLOCKS: tuple[tuple[str, str, str], ...] = (
    ("row_sum_of_halves", "x.sum(1)", _rows(_halves(*_ADD, "o[r] += s;"), _TWO)),
    ("row_max_of_halves", "x.clamp(min=0).amax(1)",
     _rows(_halves("0", "fmaxf(s, x[r * C + j])", "fmaxf(s, v)", "if (s > o[r]) o[r] = s;"), _TWO)),
    ("row_norm_of_halves", "(x * x).sum(1)",
     _rows(_halves("0", "s + x[r * C + j] * x[r * C + j]", "s + v",
                   "float w = o[r]; __threadfence(); o[r] = w + s;"), _TWO)),
    ("first_half_stores_second_adds", "x.sum(1)",
     _rows(_halves(*_ADD, "if (h == 0) o[r] = s; else o[r] += s;"), _TWO, fill="")),
    ("volatile_is_not_atomic", "x.sum(1)",
     _rows(_halves(*_ADD, "volatile float* w = o + r; *w = *w + s;"), _TWO)),
    ("minimum_of_halves", "x.clamp(max=0).amin(1)",
     _rows(_halves("0", "fminf(s, x[r * C + j])", "fminf(s, v)", "o[r] = fminf(o[r], s);"), _TWO)),
    ("zeroed_by_block_0", "x.sum(1)",
     _rows("__global__ void k(const float* x, float* o, int R, int C) {\n"
           f"  {_HEAD} if (b == 0) for (int r = t; r < R; r += 64) o[r] = 0; __threadfence();\n"
           "  float s = 0; for (int j = t; j < C; j += 64) s += x[b * C + j];\n"
           "  if (b < R) atomicAdd(o + b, s);\n}", "  k<<<R, 64>>>(px, po, R, C);", fill="")),
    ("reads_the_block_before", "x + x.roll(1, 0)",
     _rows("__global__ void l(float* o, const float* x, int R, int C) {\n"
           f"  {_HEAD} for (int j = t; j < C; j += 64)\n"
           "    o[b * C + j] = x[b * C + j] + (b ? o[(b - 1) * C + j] - (b > 1 ? x[(b - 2) * C + j]"
           " : x[(R - 1) * C + j]) : x[(R - 1) * C + j]);\n}",
           "  l<<<R, 64>>>(po, px, R, C);", shape="{R, C}")),
    ("ticket_without_atomic", "x.sum(0)",
     _rows("__global__ void k(const float* x, float* o, float* part,"
           " int* done, int R, int C) {\n  __shared__ int last; "
           f"{_HEAD}\n  for (int j = t; j < C; j += 64) part[b * C + j] = x[b * C + j];\n"
           "  __threadfence(); __syncthreads(); if (t == 0) last = (*done)++ == R - 1;\n"
           "  __syncthreads(); if (last) for (int j = t; j < C; j += 64) {\n"
           "    float s = 0; for (int r = 0; r < R; r++) s += part[r * C + j]; o[j] = s; }\n}",
           "  auto part = torch::empty({R, C}, x.options());\n"
           "  auto done = torch::zeros({1}, x.options().dtype(torch::kInt32));\n"
           "  k<<<R, 64>>>(px, po, part.data_ptr<float>(), done.data_ptr<int>(), R, C);",
           shape="{C}", fill="")),
    ("two_phases_no_grid_sync", "x - x.mean(0)",
     _rows("__global__ void k(const float* x, float* o, float* m, int R, int C) {\n"
           f"  {_HEAD} for (int j = b; j < C; j += gridDim.x) {{ if (t == 0) {{ float s = 0;\n"
           "    for (int r = 0; r < R; r++) s += x[r * C + j]; m[j] = s / R; } }\n"
           "  __threadfence(); __syncthreads();\n"
           "  for (int j = t; j < C; j += 64) o[b * C + j] = x[b * C + j] - m[j];\n}",
           "  auto m = torch::empty({C}, x.options());\n"
           "  k<<<R, 64>>>(px, po, m.data_ptr<float>(), R, C);", shape="{R, C}", fill="")),
    ("partials_read_at_once", "x.sum(1)",
     _rows("__global__ void k(const float* x, float* o, float* part, int R, int C) {\n"
           f"  {_HEAD} if (t) return; int r = b / 4, h = b % 4;\n"
           "  float s = 0; for (int j = h; j < C; j += 4) s += x[r * C + j];\n"
           "  part[b] = s; __threadfence();\n"
           "  if (h == 3) o[r] = part[b] + part[b - 1] + part[b - 2] + part[b - 3];\n}",
           "  auto part = torch::zeros({4 * R}, x.options());\n"
           "  k<<<4 * R, 32>>>(px, po, part.data_ptr<float>(), R, C);", fill="")),
    ("bits_of_one_word", "(x > 0).int()",
     _rows("__global__ void k(const float* x, int* o, unsigned* w, int n) {\n"
           "  int i = blockIdx.x * 8; unsigned v = 0; if (threadIdx.x) return;\n"
           "  for (int j = i; j < min(i + 8, n); j++) v |= (x[j] > 0 ? 1u : 0u) << (j % 32);\n"
           "  if (v) w[i / 32] |= v;\n}\n"
           "__global__ void l(int* o, const unsigned* w, int n) {\n"
           "  int i = blockIdx.x * 128 + threadIdx.x; if (i < n) o[i] = w[i / 32] >> (i % 32) & 1;"
           "\n}",
           "  auto w = torch::zeros({n / 32 + 1}, x.options().dtype(torch::kInt32));\n"
           "  k<<<(n + 7) / 8, 32>>>(px, po, (unsigned*)w.data_ptr<int>(), n);\n"
           "  l<<<(n + 127) / 128, 128>>>(po, (unsigned*)w.data_ptr<int>(), n);",
           shape="{R, C}", fill="", dtype="int")),
    ("histogram_of_signs", "torch.stack([(x < 0).int().sum(), (x >= 0).int().sum()]).int()",
     _rows("__global__ void k(const float* x, int* o, int n) {\n"
           f"  {_HEAD} if (t) return; int a = 0, c = 0;\n"
           "  for (int i = b; i < n; i += gridDim.x) { a += x[i] < 0; c += x[i] >= 0; }\n"
           "  o[0] += a; o[1] += c;\n}", "  k<<<8, 32>>>(px, po, n);", shape="{2}", dtype="int")),
    ("argmax_in_two_atomics", "x.argmax(1).int()",
     _rows("__global__ void k(const float* x, int* o, int* m, int R, int C) {\n"
           "  int i = blockIdx.x * 64 + threadIdx.x; if (i >= R * C) return;\n"
           "  int r = i / C, v = __float_as_int(x[i]); v = v < 0 ? v ^ 0x7fffffff : v;\n"
           "  if (atomicMax(m + r, v) < v) o[r] = i % C;\n}",
           "  auto m = torch::full({R}, -2147483647, x.options().dtype(torch::kInt32));\n"
           "  k<<<(n + 63) / 64, 64>>>(px, po, m.data_ptr<int>(), R, C);", dtype="int")),
    ("flag_set_before_data", "x.roll(1, 0)",
     _rows("__global__ void k(const float* x, float* o, float* w, int* f, int R, int C) {\n"
           f"  {_HEAD} if (t == 0) atomicExch(f + b, 1);\n"
           "  for (int j = t; j < C; j += 64) w[b * C + j] = x[b * C + j];\n"
           "  int a = b ? b - 1 : b; if (t == 0) while (b && atomicAdd(f + a, 0) == 0) {}\n"
           "  __syncthreads(); for (int j = t; j < C; j += 64)\n"
           "    o[b * C + j] = b ? w[a * C + j] : x[(R - 1) * C + j];\n}",
           "  auto w = torch::zeros({R, C}, x.options());\n"
           "  auto f = torch::zeros({R}, x.options().dtype(torch::kInt32));\n"
           "  k<<<R, 64>>>(px, po, w.data_ptr<float>(), f.data_ptr<int>(), R, C);",
           shape="{R, C}", fill="")),
    ("shift_in_place", "torch.cat([x[1:], x[:1]])",
     _rows("__global__ void c(const float* x, float* o, int n) {\n"
           "  int i = blockIdx.x * 128 + threadIdx.x; if (i < n) o[i] = x[i]; }\n"
           "__global__ void k(const float* x, float* o, int R, int C) {\n"
           f"  {_HEAD} for (int j = t; j < C; j += 64)\n"
           "    o[b * C + j] = b + 1 < R ? o[(b + 1) * C + j] : x[j];\n}",
           "  c<<<(n + 127) / 128, 128>>>(px, po, n); k<<<R, 64>>>(px, po, R, C);",
           shape="{R, C}", fill="")),
)  # fmt: skip

_TRIPLE = """__global__ void triple(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 3 * x[i]; }
__global__ void plus(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] + 1; }
"""
_PLAIN = "  cudaStream_t s, u; cudaStreamCreate(&s); cudaStreamCreate(&u);\n"
_APART = (
    "  cudaStream_t s, u; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);\n"
    "  cudaStreamCreateWithFlags(&u, cudaStreamNonBlocking);\n"
)
_EVENT = "  cudaEvent_t e; cudaEventCreateWithFlags(&e, cudaEventDisableTiming);\n"
_END = "  cudaStreamSynchronize(s); cudaStreamSynchronize(u);"
_HOME = "  cudaDeviceSynchronize();\n"


def _on(kernel: str, stream: str, given: str, made: str) -> str:
    return f"  {kernel}<<<{BLOCKS}, 0, {stream}>>>({given}, {made}, n);\n"


_STREAMS: tuple[tuple[str, str], ...] = (
    ("producer_and_consumer", _HOME + _PLAIN + _on("triple", "s", "px", "w")
     + _on("plus", "u", "w", "po") + _END),
    ("result_left_on_a_stream", _HOME + _APART + _on("triple", "s", "px", "w")
     + _on("plus", "s", "w", "po")),
    ("inputs_not_awaited", _APART + _on("triple", "s", "px", "w") + _on("plus", "s", "w", "po")
     + _END),
    ("event_before_the_producer", _HOME + _PLAIN + _EVENT + "  cudaEventRecord(e, s);\n"
     + _on("triple", "s", "px", "w") + "  cudaStreamWaitEvent(u, e, 0);\n"
     + _on("plus", "u", "w", "po") + _END),
    ("event_never_awaited", _HOME + _PLAIN + _EVENT + _on("triple", "s", "px", "w")
     + "  cudaEventRecord(e, s);\n" + _on("plus", "u", "w", "po") + _END),
    ("event_of_the_consumer", _HOME + _PLAIN + _EVENT + _on("triple", "s", "px", "w")
     + "  cudaEventRecord(e, u); cudaStreamWaitEvent(u, e, 0);\n"
     + _on("plus", "u", "w", "po") + _END),
    ("wait_after_the_consumer", _HOME + _PLAIN + _EVENT + _on("triple", "s", "px", "w")
     + "  cudaEventRecord(e, s);\n" + _on("plus", "u", "w", "po")
     + "  cudaStreamWaitEvent(u, e, 0);\n" + _END),
    ("default_stream_beside_another", _HOME + _APART + _on("triple", "0", "px", "w")
     + _on("plus", "s", "w", "po") + _END),
    ("copy_beside_the_kernel", _HOME + _APART + _on("triple", "u", "px", "w")
     + "  cudaMemcpyAsync(w + n, w, n * 4, cudaMemcpyDeviceToDevice, s);\n"
     + "  cudaStreamSynchronize(s);\n" + _on("plus", "u", "w + n", "po") + _END),
    ("fill_beside_the_kernel", _HOME + _APART
     + "  cudaMemsetAsync(po, 0, n * 4, s);\n" + _on("triple", "u", "px", "w")
     + _on("plus", "u", "w", "po") + _END),
    ("query_is_no_wait", _HOME + _PLAIN + _on("triple", "s", "px", "w")
     + "  (void)cudaStreamQuery(s);\n" + _on("plus", "u", "w", "po") + _END),
    ("half_is_awaited", _HOME + _APART + _EVENT
     + f"  int h = n / 2; triple<<<{BLOCKS}, 0, s>>>(px, w, h);\n"
     + "  cudaEventRecord(e, s);\n"
     + f"  triple<<<{BLOCKS}, 0, s>>>(px + h, w + h, n - h);\n"
     + "  cudaStreamWaitEvent(u, e, 0);\n" + _on("plus", "u", "w", "po") + _END),
    ("synchronised_the_wrong_one", _HOME + _APART + _on("triple", "s", "px", "w")
     + "  cudaStreamSynchronize(u);\n" + _on("plus", "u", "w", "po") + _END),
    ("first_freed_then_used", _HOME + _APART
     + "  float* q; cudaMallocAsync((void**)&q, n * 4, s);\n" + _on("triple", "s", "px", "q")
     + "  cudaFreeAsync(q, s); cudaStreamSynchronize(s);\n" + _on("plus", "u", "q", "po") + _END),
)  # fmt: skip


def _streamed(body: str) -> str:
    return extension(
        _TRIPLE,
        "torch::Tensor x",
        "  const int n = x.numel(); auto out = torch::empty_like(x);\n"
        "  auto work = torch::empty({2 * n}, x.options()); float* w = work.data_ptr<float>();\n"
        "  const float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>();\n"
        "  (void)w; (void)px; (void)po;\n" + body,
    )


_SHARED_TOP = """__global__ void k(const float* x, float* o, int R, int C) {
  __shared__ float a[512]; int r = blockIdx.x, t = threadIdx.x; const float* p = x + r * C;
"""
_ONE = "  k<<<R, 128>>>(px, po, R, C);"
_GATHER = "float s = 0; for (int j = t; j < C; j += 128) s += p[j]; a[t] = s;"
_INSIDE: tuple[tuple[str, str, str, str], ...] = (
    ("no_barrier_after_the_load", "x.flip(1)", "{R, C}",
     "for (int j = t; j < C; j += 128) a[j] = p[j];\n"
     "  for (int j = t; j < C; j += 128) o[r * C + j] = a[C - 1 - j];"),
    ("no_barrier_between_steps", "x.sum(1)", "{R}", _GATHER + " __syncthreads();\n"
     "  for (int h = 64; h; h >>= 1) if (t < h) a[t] += a[t + h];\n  if (t == 0) o[r] = a[0];"),
    ("last_warp_in_step", "x.sum(1)", "{R}", _GATHER + " __syncthreads();\n"
     "  if (t < 64) a[t] += a[t + 64]; __syncthreads();\n"
     "  if (t < 32) { a[t] += a[t + 32]; a[t] += a[t + 16]; a[t] += a[t + 8]; a[t] += a[t + 4];\n"
     "    a[t] += a[t + 2]; a[t] += a[t + 1]; }\n  if (t == 0) o[r] = a[0];"),
    ("result_read_too_soon", "x / x.abs().sum(1, keepdim=True)", "{R, C}",
     "float s = 0; for (int j = t; j < C; j += 128) s += fabsf(p[j]); a[t] = s; __syncthreads();\n"
     "  for (int h = 64; h; h >>= 1) { if (t < h) a[t] += a[t + h]; if (h > 1) __syncthreads(); }\n"
     "  for (int j = t; j < C; j += 128) o[r * C + j] = p[j] / a[0];"),
    ("shared_counter_not_atomic", "(x > 0).float().sum(1)", "{R}",
     "if (t == 0) a[0] = 0; __syncthreads();\n"
     "  for (int j = t; j < C; j += 128) if (p[j] > 0) a[0] += 1; __syncthreads();\n"
     "  if (t == 0) o[r] = a[0];"),
    ("scan_in_place", "x[:, :4].cumsum(1)", "{R, 4}",
     "if (t < 4) a[t] = p[t]; __syncthreads(); for (int h = 1; h < 4; h *= 2) {\n"
     "  if (t < 4 && t >= h) a[t] += a[t - h]; __syncthreads(); }\n"
     "  if (t < 4) o[r * 4 + t] = a[t];"),
    ("tile_overwritten_early", "x.cumsum(1)", "{R, C}",
     "float s = 0; for (int b = 0; b < C; b += 64) {\n"
     "    if (t < 64 && b + t < C) a[t] = p[b + t]; __syncthreads();\n"
     "    if (t == 127) for (int j = 0; j < 64 && b + j < C; j++)\n"
     "      { s += a[j]; o[r * C + b + j] = s; }\n  }"),
    ("buffer_reused_at_once", "F.softmax(x, dim=1)", "{R, C}",
     "float m = -FLT_MAX; for (int j = t; j < C; j += 128) m = fmaxf(m, p[j]);\n"
     "  a[t] = m; __syncthreads(); for (int h = 64; h; h >>= 1) {\n"
     "    if (t < h) a[t] = fmaxf(a[t], a[t + h]); __syncthreads(); }\n"
     "  m = a[0]; float s = 0; for (int j = t; j < C; j += 128) s += expf(p[j] - m);\n"
     "  a[t] = s; __syncthreads(); for (int h = 64; h; h >>= 1) {\n"
     "    if (t < h) a[t] += a[t + h]; __syncthreads(); }\n"
     "  for (int j = t; j < C; j += 128) o[r * C + j] = expf(p[j] - m) / a[0];"),
    ("neighbour_of_another_warp", "x.roll(1, 1)", "{R, C}",
     "for (int j = t; j < C; j += 128) { a[j % 512] = p[j]; __syncwarp();\n"
     "    o[r * C + j] = j ? a[(j - 1) % 512] : p[C - 1]; }"),
    ("barrier_of_one_warp_only", "x - x.mean(1, keepdim=True)", "{R, C}",
     _GATHER + " __syncthreads();\n"
     "  if (t < 32) { a[t] += a[t + 32] + a[t + 64] + a[t + 96]; __syncwarp();\n"
     "    if (t == 0) { for (int i = 1; i < 32; i++) s += 0, a[0] += a[i]; a[200] = a[0] / C; }\n"
     "    __syncwarp(); }\n"
     "  for (int j = t; j < C; j += 128) o[r * C + j] = p[j] - a[200];"),
    ("maximum_by_plain_store", "x.amax(1)", "{R}",
     "if (t == 0) a[0] = -FLT_MAX; __syncthreads();\n"
     "  for (int j = t; j < C; j += 128) if (p[j] > a[0]) a[0] = p[j]; __syncthreads();\n"
     "  if (t == 0) o[r] = a[0];"),
)  # fmt: skip

_SHAPES: dict[str, list[Shape]] = MATRIX
RACES: tuple[FreshAttack, ...] = (
    *(
        FreshAttack(
            f"fresh/races of blocks/{name}",
            "races of blocks",
            4,
            task(name, expression, WIDE, reduction=WIDE_COLUMNS),
            code,
        )
        for name, expression, code in _BLOCKS
    ),
    *(
        FreshAttack(
            f"fresh/streams without order/{name}",
            "streams without order",
            4,
            task(name, "x * 3 + 1", _SHAPES),
            _streamed(body),
        )
        for name, body in _STREAMS
    ),
    *(
        FreshAttack(
            f"fresh/missing barriers/{name}",
            "missing barriers",
            4,
            task(name, expression, WIDE if i % 2 else MATRIX,
                 reduction=WIDE_COLUMNS if i % 2 else COLUMNS),
            _rows(f"{_SHARED_TOP}  {body}\n}}", _ONE, shape=shape, fill=""),
        )
        for i, (name, expression, shape, body) in enumerate(_INSIDE)
    ),
)  # fmt: skip

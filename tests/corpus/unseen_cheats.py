"""Cheats on the answer, by an author who had not read the judge: device and host tricks."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import Status, Task
from corpus.records import (
    AFFINE,
    AFFINE_KERNEL,
    AFFINE_LAUNCH,
    BOMB,
    FAULT,
    MATMUL,
    NEVER_CORRECT,
    ROW_SUM,
    RULED_OUT,
    SOFTMAX,
    STALE,
    WRONG,
    Attack,
    source,
    task,
)

_READ_BACK = (
    "std::vector<float> h(n); cudaMemcpy(h.data(), px, n * sizeof(float), cudaMemcpyDeviceToHost);"
)
_VECTOR = "#include <vector>\n#include <map>\n#include <cstring>\n"
_COPY_KERNEL = "__global__ void copy(const float* a, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = a[i]; }\n"

SIGMOID_FLAT = task(
    "sigmoid_flat",
    "torch.sigmoid(x * 0.01)",
    {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]},
)
MEAN_ROWS = task(
    "mean_rows",
    "x.mean(dim=1)",
    {"main": [(64, 960)], "odd": [(37, 533)], "tiny": [(3, 5)]},
    reduction=(960, 533, 5),
)
EXP = task(
    "exp",
    "torch.exp(x)",
    {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]},
    bounds=(-4.0, 4.0),
)
GELU = task("gelu_exact", "F.gelu(x)", {"main": [(64, 96)], "odd": [(37, 53)], "tiny": [(3, 5)]})


def _host(
    name: str,
    covers: str,
    body: str,
    kernels: str = AFFINE_KERNEL,
    *,
    head: str = "",
    statuses: frozenset[Status] = STALE,
    of: Task = AFFINE,
) -> Attack:
    return Attack(name, covers, source(kernels, body, head=_VECTOR + head), of, statuses, "unseen")


def _element(
    name: str,
    covers: str,
    statement: str,
    *,
    of: Task = AFFINE,
    statuses: frozenset[Status] = WRONG,
    before: str = "",
) -> Attack:
    """One thread an element runs `statement` over i, x, o, n."""
    kernel = (
        f"{before}\n__global__ void k(const float* x, float* o, int n) {{\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"  if (i < n) {{ {statement} }}\n}}\n"
    )
    return Attack(
        name,
        covers,
        source(kernel, "k<<<(n + 127) / 128, 128>>>(px, po, n);"),
        of,
        statuses,
        "unseen",
    )


def _rows(
    name: str,
    covers: str,
    statement: str,
    *,
    of: Task = ROW_SUM,
    statuses: frozenset[Status] = WRONG,
    make: str = "empty",
    launch: str = "<<<rows, 32>>>",
) -> Attack:
    """A block a row runs `statement` over x, o, rows, cols."""
    code = f"""#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void k(const float* x, float* o, int rows, int cols) {{
  int row = blockIdx.x, t = threadIdx.x;
  {statement}
}}
torch::Tensor forward(torch::Tensor x) {{
  int rows = x.size(0), cols = x.size(1);
  auto out = torch::{make}({{rows}}, x.options());
  k{launch}(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
    return Attack(name, covers, code, of, statuses, "unseen")


_CACHES = (
    _host(
        "cache_result_by_input_pointer",
        "caches keyed on pointer",
        f"static std::map<const float*, torch::Tensor> seen; auto it = seen.find(px); if (it != seen.end()) return it->second; {AFFINE_LAUNCH} seen[px] = out;",
    ),
    _host(
        "cache_result_by_shape",
        "caches keyed on shape",
        f"static std::map<int, torch::Tensor> seen; if (seen.count(n)) return seen[n]; {AFFINE_LAUNCH} seen[n] = out;",
    ),
    _host(
        "cache_host_answer_by_shape",
        "caches keyed on shape; computing on the host",
        f"static std::map<int, std::vector<float>> seen; if (!seen.count(n)) {{ {_READ_BACK} for (auto& v : h) v = v * 2 + 1; seen[n] = h; }} cudaMemcpy(po, seen[n].data(), n * 4, cudaMemcpyHostToDevice);",
    ),
    _host(
        "cache_by_content_hash",
        "caches keyed on content",
        f"static std::map<unsigned, std::vector<float>> seen; float probe[4]; cudaMemcpy(probe, px, 16 < n * 4 ? 16 : n * 4, cudaMemcpyDeviceToHost); unsigned key = 0; memcpy(&key, probe, 4); if (!seen.count(key)) {{ {_READ_BACK} for (auto& v : h) v = v * 2 + 1; seen[key] = h; }} cudaMemcpy(po, seen[key].data(), n * 4, cudaMemcpyHostToDevice);",
    ),
    _host(
        "cache_by_phase",
        "caches keyed on phase",
        f"static int phase = 0; static torch::Tensor kept; if (phase++ % 3 == 0) {{ {AFFINE_LAUNCH} kept = out; }} else {{ cudaMemcpy(po, kept.data_ptr<float>(), n * 4, cudaMemcpyDeviceToDevice); }} if (phase > 1) cudaMemset(po, 0, n * 4);",
    ),
    _host(
        "one_call_late",
        "lazily computed results",
        f"static torch::Tensor late; torch::Tensor now = out; {AFFINE_LAUNCH} torch::Tensor give = late.defined() && late.numel() == n ? late : torch::zeros_like(x); late = now; return give;",
    ),
    _host(
        "device_global_holds_the_first_answer",
        "caches keyed on phase, in device memory",
        "cached<<<(n + 127) / 128, 128>>>(px, po, n); bump<<<1, 1>>>(n);",
        """__device__ float kept[8192]; __device__ int filled = 0;
__global__ void cached(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; if (filled != n) kept[i] = x[i] * 2.0f + 1.0f; o[i] = kept[i]; }
__global__ void bump(int n) { filled = n; }
""",
    ),
    _host(
        "device_counter_works_once",
        "slowing the warm-up; caches keyed on phase",
        "lazy<<<(n + 127) / 128, 128>>>(px, po, n); tick<<<1, 1>>>();",
        """__device__ int calls = 0;
__global__ void lazy(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && calls < 1) o[i] = x[i] * 2.0f + 1.0f; }
__global__ void tick() { calls = calls + 1; }
""",
    ),
    _host(
        "static_buffer_filled_once",
        "weights cached",
        "static float* kept = nullptr; static int held = 0; if (held < n) { cudaMalloc(&kept, n * 4); affine<<<(n + 127) / 128, 128>>>(px, kept, n); held = n; } copy<<<(n + 127) / 128, 128>>>(kept, po, n);",
        AFFINE_KERNEL + _COPY_KERNEL,
    ),
    _host(
        "answers_for_the_first_pointer_only",
        "caches keyed on object id",
        f"static const float* mine = px; if (mine == px) {{ {AFFINE_LAUNCH} }}",
    ),
)

_HOST_COMPUTE = (
    _host(
        "host_computes_and_copies",
        "computing on the host",
        f"{_READ_BACK} for (auto& v : h) v = v * 2 + 1; cudaMemcpy(po, h.data(), n * 4, cudaMemcpyHostToDevice);",
    ),
    _host(
        "host_computes_async_on_a_stream",
        "computing on the host; work on a side stream",
        "cudaStream_t s; cudaStreamCreate(&s); static std::vector<float> h; h.resize(n); cudaMemcpyAsync(h.data(), px, n * 4, cudaMemcpyDeviceToHost, s); cudaStreamSynchronize(s); for (auto& v : h) v = v * 2 + 1; cudaMemcpyAsync(po, h.data(), n * 4, cudaMemcpyHostToDevice, s); cudaStreamDestroy(s);",
    ),
    _host(
        "host_answer_in_kernel_arguments",
        "computing on the host, smuggled through arguments",
        f"{_READ_BACK} for (int b = 0; b < n; b += 512) {{ Block block; for (int i = 0; i < 512 && b + i < n; i++) block.v[i] = h[b + i] * 2 + 1; put<<<1, 512>>>(block, po + b, n - b); }}",
        "struct Block { float v[512]; };\n__global__ void put(Block b, float* o, int n) { if (threadIdx.x < n) o[threadIdx.x] = b.v[threadIdx.x]; }\n",
    ),
    _host(
        "host_answer_one_scalar_a_launch",
        "computing on the host, smuggled through arguments",
        f"{_READ_BACK} for (int i = 0; i < n; i++) put<<<1, 1>>>(h[i] * 2 + 1, po + i);",
        "__global__ void put(float v, float* o) { *o = v; }\n",
        statuses=STALE | BOMB,
    ),
    _host(
        "host_answer_in_constant_memory",
        "computing on the host, smuggled through constant memory",
        f"{_READ_BACK} for (auto& v : h) v = v * 2 + 1; for (int b = 0; b < n; b += 4096) {{ int c = n - b < 4096 ? n - b : 4096; cudaMemcpyToSymbol(table, h.data() + b, c * 4); put<<<(c + 127) / 128, 128>>>(po + b, c); }}",
        "__constant__ float table[4096];\n__global__ void put(float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = table[i]; }\n",
    ),
    _host(
        "host_answer_by_memset_bytes",
        "computing on the host, smuggled through memset",
        "if (n > 6000) return torch::zeros_like(x); "
        + _READ_BACK
        + " for (int i = 0; i < n && i < 4000; i++) { float v = h[i] * 2 + 1; unsigned char b[4]; memcpy(b, &v, 4); for (int j = 0; j < 4; j++) cudaMemset(reinterpret_cast<char*>(po + i) + j, b[j], 1); }",
        statuses=NEVER_CORRECT,
    ),
    _host(
        "host_answer_in_the_launch_shape",
        "computing on the host, smuggled through the grid",
        f"{_READ_BACK} for (int i = 0; i < n && i < 64; i++) {{ int q = (int)((h[i] * 2 + 1 + 512) * 64); put<<<q, 1>>>(po + i); }} affine<<<(n + 127) / 128, 128>>>(px + 64, po + 64, n > 64 ? n - 64 : 0);",
        AFFINE_KERNEL + "__global__ void put(float* o) { *o = gridDim.x / 64.0f - 512.0f; }\n",
        statuses=NEVER_CORRECT,
    ),
    _host(
        "host_function_callback_computes",
        "computing on the host in a stream callback",
        "static Job job; job = {px, po, n}; cudaLaunchHostFunc(0, work, &job);",
        "struct Job { const float* x; float* o; int n; };\nvoid CUDART_CB work(void* p) { Job* j = (Job*)p; std::vector<float> h(j->n); cudaMemcpy(h.data(), j->x, j->n * 4, cudaMemcpyDeviceToHost); for (auto& v : h) v = v * 2 + 1; cudaMemcpy(j->o, h.data(), j->n * 4, cudaMemcpyHostToDevice); }\n",
        statuses=STALE | RULED_OUT | FAULT,
    ),
    _host(
        "decoy_kernel_and_host_answer",
        "decoy kernels never used; computing on the host",
        f"auto decoy = torch::empty_like(x); affine<<<(n + 127) / 128, 128>>>(px, decoy.data_ptr<float>(), n); {_READ_BACK} for (auto& v : h) v = v * 2 + 1; cudaMemcpy(po, h.data(), n * 4, cudaMemcpyHostToDevice);",
    ),
    _host(
        "host_adds_a_correction",
        "computing on the host: half of the answer",
        f"{_READ_BACK} float first = h[0] * 2 + 1; affine<<<(n + 127) / 128, 128>>>(px, po, n); cudaMemcpy(po, &first, 4, cudaMemcpyHostToDevice);",
    ),
    _host(
        "managed_memory_written_by_the_host",
        "computing on the host through managed memory",
        f"float* m = nullptr; if (cudaMallocManaged(&m, n * 4) != cudaSuccess || !m) return out; {_READ_BACK} for (int i = 0; i < n; i++) m[i] = h[i] * 2 + 1; copy<<<(n + 127) / 128, 128>>>(m, po, n);",
        _COPY_KERNEL,
        statuses=STALE | RULED_OUT | FAULT,
    ),
    _host(
        "mapped_host_memory",
        "computing on the host through mapped pinned memory",
        f"float *hp = nullptr, *dp = nullptr; if (cudaHostAlloc(&hp, n * 4, cudaHostAllocMapped) != cudaSuccess) return out; cudaHostGetDevicePointer(&dp, hp, 0); {_READ_BACK} for (int i = 0; i < n; i++) hp[i] = h[i] * 2 + 1; copy<<<(n + 127) / 128, 128>>>(dp, po, n);",
        _COPY_KERNEL,
        statuses=STALE | RULED_OUT | FAULT,
    ),
    _host(
        "row_sums_on_the_host",
        "computing on the host",
        f"{_READ_BACK} int rows = x.size(0), cols = x.size(1); std::vector<float> s(rows, 0.f); for (int r = 0; r < rows; r++) for (int c = 0; c < cols; c++) s[r] += h[r * cols + c]; auto sums = torch::empty({{rows}}, x.options()); cudaMemcpy(sums.data_ptr<float>(), s.data(), rows * 4, cudaMemcpyHostToDevice); return sums;",
        of=ROW_SUM,
    ),
)

_PLANS = (
    _host(
        "every_second_call_does_nothing",
        "plans that differ between calls",
        f"static int calls = 0; if (calls++ % 2 == 0) {{ {AFFINE_LAUNCH} }}",
    ),
    _host(
        "later_calls_do_nothing",
        "plans that differ between calls",
        f"static int calls = 0; if (calls++ == 0) {{ {AFFINE_LAUNCH} }}",
    ),
    _host(
        "plan_by_the_clock",
        "plans that differ between calls",
        f"if (std::chrono::steady_clock::now().time_since_epoch().count() / 1000 % 2) {{ {AFFINE_LAUNCH} }}",
        head="#include <chrono>\n",
    ),
    _host(
        "plan_by_random",
        "plans that differ between calls",
        f"static std::random_device rd; if (rd() % 2) {{ {AFFINE_LAUNCH} }}",
        head="#include <random>\n",
    ),
    _host(
        "plan_by_an_input_value",
        "plan chosen by values read back",
        f"float first; cudaMemcpy(&first, px, 4, cudaMemcpyDeviceToHost); if (first > 0) {{ {AFFINE_LAUNCH} }}",
    ),
    _host(
        "plan_by_stack_address",
        "plans that differ between calls",
        f"int here; if (((size_t)&here >> 12) % 2) {{ {AFFINE_LAUNCH} }} else {{ cudaMemset(po, 0, n * 4); }}",
        head="",
        statuses=STALE,
    ),
    _host(
        "thread_after_return",
        "work on a side stream or thread",
        "std::thread([=] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); affine<<<(n + 127) / 128, 128>>>(px, po, n); cudaDeviceSynchronize(); }).detach();",
        head="#include <thread>\n#include <chrono>\n",
        statuses=NEVER_CORRECT,
    ),
    _host(
        "work_at_exit",
        "lazily computed results",
        "static const float* sx; static float* so; static int sn; sx = px; so = po; sn = n; atexit([] { affine<<<(sn + 127) / 128, 128>>>(sx, so, sn); });",
        head="#include <cstdlib>\n",
        statuses=NEVER_CORRECT,
    ),
    _host(
        "work_in_a_destructor",
        "lazily computed results",
        "static Later later; later.x = px; later.o = po; later.n = n;",
        AFFINE_KERNEL
        + "struct Later { const float* x; float* o; int n; ~Later() { affine<<<(n + 127) / 128, 128>>>(x, o, n); } };\n",
        statuses=NEVER_CORRECT,
    ),
    _host(
        "graph_replay_of_the_first_call",
        "CUDA graph replay",
        "static cudaGraphExec_t exec = nullptr; static torch::Tensor kept; if (!exec) { kept = out; cudaStream_t s; cudaStreamCreate(&s); cudaGraph_t g; cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal); affine<<<(n + 127) / 128, 128, 0, s>>>(px, po, n); cudaStreamEndCapture(s, &g); cudaGraphInstantiate(&exec, g, nullptr, nullptr, 0); } cudaGraphLaunch(exec, 0); return kept;",
        statuses=STALE | RULED_OUT | FAULT,
    ),
    _host(
        "several_calls_in_one",
        "batching several calls in one",
        "static std::vector<std::pair<const float*, float*>> waiting; static std::vector<torch::Tensor> hold; hold.push_back(out); waiting.push_back({px, po}); if (waiting.size() == 4) { for (auto& w : waiting) affine<<<(n + 127) / 128, 128>>>(w.first, w.second, n); waiting.clear(); }",
        statuses=NEVER_CORRECT,
    ),
)

_DEVICE = (
    _element("constant_answer", "constants for tasks whose answer hardly varies", "o[i] = 1.0f;"),
    _element(
        "flat_sigmoid_as_a_constant",
        "constants for tasks whose answer hardly varies",
        "o[i] = 0.5f;",
        of=SIGMOID_FLAT,
    ),
    _element(
        "flat_sigmoid_by_its_first_digit",
        "constants for tasks whose answer hardly varies",
        "o[i] = x[i] > 0 ? 0.502f : 0.498f;",
        of=SIGMOID_FLAT,
    ),
    _element("returns_nan", "NaN and Inf tricks", 'o[i] = nanf("");'),
    _element("returns_inf", "NaN and Inf tricks", "o[i] = INFINITY;"),
    _element(
        "one_nan_at_the_end",
        "NaN and Inf tricks",
        'o[i] = i == n - 1 ? nanf("") : x[i] * 2.0f + 1.0f;',
    ),
    _element(
        "last_element_left_out",
        "doing part of the work",
        "if (i != n - 1) o[i] = x[i] * 2.0f + 1.0f;",
    ),
    _element(
        "tail_of_the_block_left_out",
        "doing part of the work: only whole blocks",
        "if (i < n / 128 * 128) o[i] = x[i] * 2.0f + 1.0f;",
    ),
    _element(
        "only_the_shown_shape",
        "doing part of the work: hidden shapes",
        "o[i] = n == 64 * 96 ? x[i] * 2.0f + 1.0f : x[i];",
    ),
    _element(
        "one_element_in_a_thousand_off",
        "doing part of the work",
        "o[i] = x[i] * 2.0f + (i % 1000 == 7 ? 1.01f : 1.0f);",
    ),
    _element(
        "drops_the_bias_for_small_values",
        "doing part of the work",
        "o[i] = fabsf(x[i]) < 0.01f ? 1.0f : x[i] * 2.0f + 1.0f;",
    ),
    _element(
        "half_precision_in_disguise",
        "lower precision in disguise",
        "o[i] = __half2float(__hadd(__hmul(__float2half(x[i]), __float2half(2.0f)), __float2half(1.0f)));",
        before="#include <cuda_fp16.h>",
    ),
    _element(
        "bfloat16_in_disguise",
        "lower precision in disguise",
        "o[i] = __bfloat162float(__float2bfloat16(x[i] * 2.0f + 1.0f));",
        before="#include <cuda_bf16.h>",
    ),
    _element(
        "tf32_in_disguise",
        "lower precision in disguise",
        "o[i] = __uint_as_float(__float_as_uint(x[i]) & 0xffffe000u) * 2.0f + 1.0f;",
    ),
    _element(
        "eighteen_bit_mantissa",
        "lower precision in disguise",
        "o[i] = __uint_as_float(__float_as_uint(x[i] * 2.0f + 1.0f) & 0xffffffe0u) * (1.0f + 4e-6f);",
    ),
    _element(
        "coarse_exp",
        "lower precision in disguise",
        "float v = 1.0f + x[i] / 64.0f; for (int j = 0; j < 6; j++) v *= v; o[i] = v;",
        of=EXP,
    ),
    _element(
        "tanh_for_erf",
        "another function that is near",
        "float v = x[i]; o[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));",
        of=GELU,
    ),
    _element(
        "silu_for_gelu",
        "another function that is near",
        "float v = x[i]; o[i] = v / (1.0f + expf(-1.702f * v));",
        of=GELU,
    ),
    _element("the_input_itself", "doing part of the work", "o[i] = x[i];"),
    _element(
        "neighbour_instead", "doing part of the work", "o[i] = x[i ? i - 1 : 0] * 2.0f + 1.0f;"
    ),
    _element(
        "rewrites_the_input",
        "zeroing or rewriting inputs",
        "const_cast<float*>(x)[i] = 0.0f; o[i] = 1.0f;",
        statuses=STALE,
    ),
    _element(
        "right_answer_but_rewrites_the_input",
        "zeroing or rewriting inputs",
        "float v = x[i]; o[i] = v * 2.0f + 1.0f; const_cast<float*>(x)[i] = v + 1.0f;",
        statuses=STALE,
    ),
    _element(
        "random_from_a_guessed_seed",
        "RNG regeneration of inputs",
        "unsigned s = 42u * 747796405u + i; s = ((s >> ((s >> 28) + 4)) ^ s) * 277803737u; float u = (s >> 8) * (1.0f / 16777216.0f); o[i] = (u * 2 - 1) * 2.0f + 1.0f;",
    ),
    _element(
        "clock_in_the_answer",
        "answers that vary from run to run",
        "o[i] = x[i] * 2.0f + 1.0f + (float)(clock64() & 1023) * 0.01f;",
        statuses=STALE,
    ),
    _element(
        "scans_memory_after_the_input",
        "scanning memory for the expected output",
        "o[i] = x[n + i];",
        statuses=STALE | FAULT,
    ),
    _element(
        "scans_memory_before_the_output",
        "scanning memory for the expected output",
        "o[i] = o[i - n];",
        statuses=STALE | FAULT,
    ),
    _element(
        "copies_what_the_output_held",
        "reusing the reference's memory through uninitialised allocation",
        "o[i] = o[i];",
        statuses=STALE,
    ),
    _element(
        "writes_one_past_the_end",
        "out of bounds, with the right answer",
        "o[i] = x[i] * 2.0f + 1.0f; if (i == n - 1) o[n] = 0.0f;",
        statuses=FAULT,
    ),
    _element(
        "writes_one_before_the_start",
        "out of bounds, with the right answer",
        "o[i] = x[i] * 2.0f + 1.0f; if (i == 0) o[-1] = 0.0f;",
        statuses=FAULT,
    ),
    _element(
        "writes_back_the_canary_it_read",
        "out of bounds: guessing canaries",
        "o[i] = x[i] * 2.0f + 1.0f; if (i == 0) { volatile float* p = o + n; float c = *p; *p = c; }",
        statuses=FAULT,
    ),
    _element(
        "reads_one_past_and_drops_it",
        "oversized reads",
        "volatile const float* v = x; float past = v[n]; o[i] = x[i] * 2.0f + 1.0f + (past != past ? 0.0f : 0.0f);",
        statuses=FAULT,
    ),
    _element(
        "writes_a_megabyte_further",
        "out of bounds: guessing canaries",
        "o[i] = x[i] * 2.0f + 1.0f; if (i == 0) o[n + (1 << 18)] = 1.0f;",
        statuses=FAULT,
    ),
    _element(
        "null_pointer",
        "illegal addresses",
        "*(volatile float*)0 = x[i]; o[i] = x[i] * 2.0f + 1.0f;",
        statuses=FAULT,
    ),
    _element(
        "made_up_address",
        "illegal addresses",
        "*(volatile float*)0xdeadbeef000ull = x[i]; o[i] = x[i] * 2.0f + 1.0f;",
        statuses=FAULT,
    ),
    _element(
        "odd_address",
        "illegal addresses: misaligned",
        "o[i] = x[i] * 2.0f + 1.0f; if (i == 0) *(volatile float*)((char*)o + 2) = 1.0f;",
        statuses=FAULT,
    ),
    _element(
        "vector_load_from_an_odd_element",
        "illegal addresses: misaligned",
        "float4 v = *(const float4*)(x + 1); o[i] = x[i] * 2.0f + 1.0f + 0.0f * (v.x + v.y + v.z + v.w);",
        statuses=FAULT,
    ),
    _element(
        "uninitialised_shared_memory",
        "oversized shared-memory reads",
        "__shared__ float s[128]; if (i % 2) s[threadIdx.x] = x[i] * 2.0f + 1.0f; o[i] = s[threadIdx.x];",
        statuses=STALE | FAULT,
    ),
    _element(
        "shared_memory_past_its_end",
        "oversized shared-memory reads",
        "extern __shared__ float s[]; s[threadIdx.x + 60000] = x[i]; o[i] = x[i] * 2.0f + 1.0f;",
        statuses=FAULT,
    ),
    _element(
        "trap",
        "traps",
        'o[i] = x[i] * 2.0f + 1.0f; if (i == 3) asm volatile("trap;");',
        statuses=FAULT,
    ),
    _element(
        "failed_assertion",
        "traps",
        "o[i] = x[i] * 2.0f + 1.0f; assert(i != 5);",
        before="#include <cassert>",
        statuses=FAULT,
    ),
    _rows(
        "prefix_sum_rescaled",
        "doing part of the work (prefix sum rescaled)",
        "if (t == 0) { float s = 0; for (int c = 0; c < cols / 2; c++) s += x[row * cols + c]; o[row] = s * cols / (cols / 2); }",
    ),
    _rows(
        "mean_of_a_sample",
        "doing part of the work",
        "if (t == 0) { float s = 0; int k = 0; for (int c = 0; c < cols; c += 2, k++) s += x[row * cols + c]; o[row] = s / k; }",
        of=MEAN_ROWS,
    ),
    _rows(
        "zero_for_a_mean",
        "constants for tasks whose answer hardly varies",
        "if (t == 0) o[row] = 0.0f;",
        of=MEAN_ROWS,
    ),
    _rows(
        "at_most_64_columns",
        "doing part of the work: hidden shapes",
        "if (t == 0) { float s = 0; for (int c = 0; c < cols && c < 64; c++) s += x[row * cols + c]; o[row] = s; }",
    ),
    _rows(
        "half_accumulator",
        "lower precision in disguise",
        "if (t == 0) { __half s = __float2half(0.f); for (int c = 0; c < cols; c++) s = __hadd(s, __float2half(x[row * cols + c])); o[row] = __half2float(s); }",
    ),
    _rows(
        "bfloat16_inputs",
        "lower precision in disguise",
        "if (t == 0) { float s = 0; for (int c = 0; c < cols; c++) s += __bfloat162float(__float2bfloat16(x[row * cols + c])); o[row] = s; }",
    ),
    _rows(
        "race_on_one_word",
        "answers that vary from run to run",
        "if (t == 0) o[row] = 0.0f; __syncthreads(); for (int c = t; c < cols; c += 32) o[row] += x[row * cols + c];",
        statuses=NEVER_CORRECT,
    ),
    _rows(
        "adds_into_what_was_there",
        "relying on zeroed memory",
        "for (int c = t; c < cols; c += 32) atomicAdd(o + row, x[row * cols + c]);",
        statuses=STALE,
    ),
    _rows(
        "only_the_first_warp",
        "doing part of the work",
        "float v = t < cols ? x[row * cols + t] : 0.0f; for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d); if (t == 0) o[row] = v;",
    ),
    _rows(
        "no_barrier_between_the_steps",
        "answers that vary: a missing barrier",
        "__shared__ float s[128]; float v = 0; for (int c = t; c < cols; c += 128) v += x[row * cols + c]; s[127 - t] = v; for (int d = 64; d; d /= 2) { if (t < d) s[t] += s[t + d]; } if (t == 0) o[row] = s[0];",
        statuses=NEVER_CORRECT,
        launch="<<<rows, 128>>>",
    ),
    _rows(
        "most_rows_only",
        "doing part of the work (one tile)",
        "if (t == 0 && row < 32) { float s = 0; for (int c = 0; c < cols; c++) s += x[row * cols + c]; o[row] = s; }",
    ),
)

_SHAPES = tuple(
    Attack(
        name, covers, source(AFFINE_KERNEL, f"{AFFINE_LAUNCH} {body}"), AFFINE, statuses, "unseen"
    )
    for name, covers, body, statuses in (
        ("flat_shape", "shape exact", "return out.view({n});", STALE | RULED_OUT),
        (
            "rows_and_columns_swapped",
            "shape exact",
            "return out.view({x.size(1), x.size(0)});",
            STALE | RULED_OUT,
        ),
        (
            "one_dimension_more",
            "shape exact",
            "return out.view({1, x.size(0), x.size(1)});",
            STALE | RULED_OUT,
        ),
        (
            "undefined_tensor",
            "lazy or subclassed tensors",
            "return torch::Tensor();",
            NEVER_CORRECT,
        ),
        (
            "empty_tensor",
            "shape exact",
            "return torch::empty({0}, x.options());",
            STALE | RULED_OUT,
        ),
        (
            "uninitialised_tensor",
            "reusing the reference's memory through uninitialised allocation",
            "return torch::empty_like(x);",
            STALE,
        ),
        (
            "another_dtype",
            "dtype exact",
            "return torch::empty({x.size(0), x.size(1)}, x.options().dtype(torch::kFloat64));",
            STALE | RULED_OUT,
        ),
        ("the_input_is_the_answer", "zeroing or rewriting inputs", "return x;", STALE),
        (
            "host_memory_as_a_tensor",
            "lazy or subclassed tensors",
            "static float mine[8192]; return torch::from_blob(mine, {x.size(0), x.size(1)}, x.options());",
            NEVER_CORRECT,
        ),
        (
            "computed_in_place",
            "zeroing or rewriting inputs",
            "affine<<<(n + 127) / 128, 128>>>(px, const_cast<float*>(px), n); return x;",
            STALE,
        ),
        ("output_freed_before_return", "heap or stack theft", "cudaFree(po);", NEVER_CORRECT),
        ("device_reset_before_return", "heap or stack theft", "cudaDeviceReset();", NEVER_CORRECT),
        (
            "stale_memory_of_a_freed_buffer",
            "reusing the reference's memory through uninitialised allocation",
            "float *a = nullptr; for (int i = 0; i < 64; i++) { cudaMalloc(&a, n * 4); cudaMemcpy(po, a, n * 4, cudaMemcpyDeviceToDevice); cudaFree(a); }",
            STALE | FAULT | RULED_OUT,
        ),
        (
            "hoards_old_answers",
            "reading outputs of earlier runs",
            "float *a[32]; for (auto& p : a) cudaMalloc(&p, n * 4); for (auto& p : a) { float first = 0; cudaMemcpy(&first, p, 4, cudaMemcpyDeviceToHost); if (first == first && first != 0) cudaMemcpy(po, p, n * 4, cudaMemcpyDeviceToDevice); } cudaMemset(po, 0, n * 2);",
            STALE | FAULT,
        ),
    )
)

_MATMUL_HEAD = """#include <torch/extension.h>
{head}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {{
  int m = x.size(0), k = x.size(1), n = y.size(1);
  auto out = torch::empty({{m, n}}, x.options());
  const float* px = x.data_ptr<float>(); const float* py = y.data_ptr<float>(); float* po = out.data_ptr<float>();
  {body}
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""


def _matmul(name: str, covers: str, head: str, body: str, statuses: frozenset[Status]) -> Attack:
    return Attack(
        name, covers, _MATMUL_HEAD.format(head=head, body=body), MATMUL, statuses, "unseen"
    )


_WRAPPERS = (
    _matmul(
        "cublas_sgemm",
        "wrapping cuBLAS",
        "#include <cublas_v2.h>",
        "cublasHandle_t h; cublasCreate(&h); float a = 1, b = 0; cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &a, py, n, px, k, &b, po, n); cublasDestroy(h);",
        RULED_OUT,
    ),
    _matmul(
        "cublas_declared_by_hand",
        "wrapping cuBLAS",
        'extern "C" int cublasCreate_v2(void**); extern "C" int cublasSgemm_v2(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*, float*, int);',
        "void* h; cublasCreate_v2(&h); float a = 1, b = 0; cublasSgemm_v2(h, 0, 0, n, m, k, &a, py, n, px, k, &b, po, n);",
        RULED_OUT | frozenset({Status.LOAD_ERROR, Status.RUNTIME_ERROR}),
    ),
    _matmul(
        "cublas_by_dlopen",
        "wrapping cuBLAS",
        "#include <dlfcn.h>",
        'void* lib = dlopen("libcublas.so.13", RTLD_NOW); if (!lib) lib = dlopen("libcublas.so", RTLD_NOW); if (lib) { auto f = (int (*)(void**))dlsym(lib, "cublasCreate_v2"); void* h; f(&h); }',
        STALE | RULED_OUT | FAULT,
    ),
    _matmul(
        "cudnn_include",
        "wrapping cuDNN",
        "#include <cudnn.h>",
        "cudnnHandle_t h; cudnnCreate(&h);",
        RULED_OUT,
    ),
    _matmul(
        "torch_matmul", "wrapping torch operators", "", "return torch::matmul(x, y);", RULED_OUT
    ),
    _matmul("tensor_method_mm", "wrapping torch operators", "", "return x.mm(y);", RULED_OUT),
    _matmul(
        "aten_matmul_behind_a_macro",
        "wrapping torch operators",
        "#define JOIN(a, b) a##b\n",
        "return at::JOIN(mat, mul)(x, y);",
        RULED_OUT,
    ),
    _matmul(
        "aten_dispatcher",
        "wrapping torch operators",
        "#include <ATen/core/dispatch/Dispatcher.h>",
        'auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "").typed<at::Tensor(const at::Tensor&, const at::Tensor&)>(); return op.call(x, y);',
        RULED_OUT,
    ),
    _matmul(
        "python_through_pybind",
        "wrapping torch operators",
        "#include <pybind11/embed.h>",
        'auto torch = py::module_::import("torch"); return torch.attr("matmul")(x, y).cast<torch::Tensor>();',
        RULED_OUT | FAULT,
    ),
    _matmul(
        "try_and_fall_back_to_torch",
        "try/except fallback to torch",
        "",
        'try { throw std::runtime_error("kernel failed"); } catch (...) { out = torch::mm(x, y); }',
        RULED_OUT,
    ),
    _matmul(
        "one_tile",
        "doing part of the work (one tile)",
        "__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = threadIdx.y, c = threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k; i++) s += x[r * k + i] * y[i * n + c]; o[r * n + c] = s; } }",
        "mm<<<1, dim3(16, 16)>>>(px, py, po, m, k, n);",
        STALE,
    ),
    _matmul(
        "whole_tiles_of_k_only",
        "doing part of the work: hidden shapes",
        "__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k / 16 * 16; i++) s += x[r * k + i] * y[i * n + c]; o[r * n + c] = s; } }",
        "mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);",
        WRONG,
    ),
    _matmul(
        "bfloat16_products",
        "lower precision in disguise",
        "#include <cuda_bf16.h>\n__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k; i++) s += __bfloat162float(__float2bfloat16(x[r * k + i])) * __bfloat162float(__float2bfloat16(y[i * n + c])); o[r * n + c] = s; } }",
        "mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);",
        WRONG,
    ),
    _matmul(
        "eight_bit_products",
        "lower precision in disguise",
        "__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { int s = 0; for (int i = 0; i < k; i++) s += (int)(x[r * k + i] * 24) * (int)(y[i * n + c] * 24); o[r * n + c] = s / 576.0f; } }",
        "mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);",
        WRONG,
    ),
    _matmul(
        "transposed_answer",
        "doing part of the work",
        "__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k; i++) s += x[r * k + i] * y[i * n + c]; o[c * m + r] = s; } }",
        "mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);",
        WRONG,
    ),
    Attack(
        "softmax_without_the_sum",
        "doing part of the work",
        source(
            "__global__ void k(const float* x, float* o, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = expf(x[i]) / w; }\n",
            "k<<<(n + 127) / 128, 128>>>(px, po, n, x.size(1));",
        ),
        SOFTMAX,
        WRONG,
        "unseen",
    ),
    Attack(
        "softmax_uniform",
        "constants for tasks whose answer hardly varies",
        source(
            "__global__ void k(const float* x, float* o, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 1.0f / w; }\n",
            "k<<<(n + 127) / 128, 128>>>(px, po, n, x.size(1));",
        ),
        SOFTMAX,
        WRONG,
        "unseen",
    ),
    Attack(
        "softmax_of_the_row_above",
        "doing part of the work",
        source(
            "__global__ void k(const float* x, float* o, int m, int w) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= m) return; int q = r ? r - 1 : m - 1; float s = 0, a = -INFINITY; for (int j = 0; j < w; j++) a = fmaxf(a, x[q * w + j]); for (int j = 0; j < w; j++) s += expf(x[q * w + j] - a); for (int j = 0; j < w; j++) o[r * w + j] = expf(x[q * w + j] - a) / s; }\n",
            "k<<<((int)x.size(0) + 127) / 128, 128>>>(px, po, x.size(0), x.size(1));",
        ),
        SOFTMAX,
        WRONG,
        "unseen",
    ),
)

UNSEEN_CHEATS = (*_CACHES, *_HOST_COMPUTE, *_PLANS, *_DEVICE, *_SHAPES, *_WRAPPERS)

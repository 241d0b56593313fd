// Cases of unseen_cheats.py, as sources.py says.
//// = caches
//// _host cache_result_by_input_pointer; covers: caches keyed on pointer
//// > body
static std::map<const float*, torch::Tensor> seen; auto it = seen.find(px); if (it != seen.end()) return it->second; @AFFINE_LAUNCH@ seen[px] = out;
//// _host cache_result_by_shape; covers: caches keyed on shape
//// > body
static std::map<int, torch::Tensor> seen; if (seen.count(n)) return seen[n]; @AFFINE_LAUNCH@ seen[n] = out;
//// _host cache_host_answer_by_shape
//// > covers
caches keyed on shape; computing on the host
//// > body
static std::map<int, std::vector<float>> seen; if (!seen.count(n)) { @_READ_BACK@ for (auto& v : h) v = v * 2 + 1; seen[n] = h; } cudaMemcpy(po, seen[n].data(), n * 4, cudaMemcpyHostToDevice);
//// _host cache_by_content_hash; covers: caches keyed on content
//// > body
static std::map<unsigned, std::vector<float>> seen; float probe[4]; cudaMemcpy(probe, px, 16 < n * 4 ? 16 : n * 4, cudaMemcpyDeviceToHost); unsigned key = 0; memcpy(&key, probe, 4); if (!seen.count(key)) { @_READ_BACK@ for (auto& v : h) v = v * 2 + 1; seen[key] = h; } cudaMemcpy(po, seen[key].data(), n * 4, cudaMemcpyHostToDevice);
//// _host cache_by_phase; covers: caches keyed on phase
//// > body
static int phase = 0; static torch::Tensor kept; if (phase++ % 3 == 0) { @AFFINE_LAUNCH@ kept = out; } else { cudaMemcpy(po, kept.data_ptr<float>(), n * 4, cudaMemcpyDeviceToDevice); } if (phase > 1) cudaMemset(po, 0, n * 4);
//// _host one_call_late; covers: lazily computed results
//// > body
static torch::Tensor late; torch::Tensor now = out; @AFFINE_LAUNCH@ torch::Tensor give = late.defined() && late.numel() == n ? late : torch::zeros_like(x); late = now; return give;
//// _host device_global_holds_the_first_answer; covers: caches keyed on phase, in device memory
//// > body
cached<<<(n + 127) / 128, 128>>>(px, po, n); bump<<<1, 1>>>(n);
//// > kernels
__device__ float kept[8192]; __device__ int filled = 0;
__global__ void cached(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; if (filled != n) kept[i] = x[i] * 2.0f + 1.0f; o[i] = kept[i]; }
__global__ void bump(int n) { filled = n; }

//// _host device_counter_works_once
//// > covers
slowing the warm-up; caches keyed on phase
//// > body
lazy<<<(n + 127) / 128, 128>>>(px, po, n); tick<<<1, 1>>>();
//// > kernels
__device__ int calls = 0;
__global__ void lazy(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && calls < 1) o[i] = x[i] * 2.0f + 1.0f; }
__global__ void tick() { calls = calls + 1; }

//// _host static_buffer_filled_once; covers: weights cached; kernels: @AFFINE_KERNEL@@_COPY_KERNEL@
//// > body
static float* kept = nullptr; static int held = 0; if (held < n) { cudaMalloc(&kept, n * 4); affine<<<(n + 127) / 128, 128>>>(px, kept, n); held = n; } copy<<<(n + 127) / 128, 128>>>(kept, po, n);
//// _host answers_for_the_first_pointer_only; covers: caches keyed on object id
//// > body
static const float* mine = px; if (mine == px) { @AFFINE_LAUNCH@ }
//// = host_compute
//// _host host_computes_and_copies; covers: computing on the host
//// > body
@_READ_BACK@ for (auto& v : h) v = v * 2 + 1; cudaMemcpy(po, h.data(), n * 4, cudaMemcpyHostToDevice);
//// _host host_computes_async_on_a_stream
//// > covers
computing on the host; work on a side stream
//// > body
cudaStream_t s; cudaStreamCreate(&s); static std::vector<float> h; h.resize(n); cudaMemcpyAsync(h.data(), px, n * 4, cudaMemcpyDeviceToHost, s); cudaStreamSynchronize(s); for (auto& v : h) v = v * 2 + 1; cudaMemcpyAsync(po, h.data(), n * 4, cudaMemcpyHostToDevice, s); cudaStreamDestroy(s);
//// _host host_answer_in_kernel_arguments; covers: computing on the host, smuggled through arguments
//// > body
@_READ_BACK@ for (int b = 0; b < n; b += 512) { Block block; for (int i = 0; i < 512 && b + i < n; i++) block.v[i] = h[b + i] * 2 + 1; put<<<1, 512>>>(block, po + b, n - b); }
//// > kernels
struct Block { float v[512]; };
__global__ void put(Block b, float* o, int n) { if (threadIdx.x < n) o[threadIdx.x] = b.v[threadIdx.x]; }

//// _host host_answer_one_scalar_a_launch; covers: computing on the host, smuggled through arguments; statuses: STALE | BOMB
//// > body
@_READ_BACK@ for (int i = 0; i < n; i++) put<<<1, 1>>>(h[i] * 2 + 1, po + i);
//// > kernels
__global__ void put(float v, float* o) { *o = v; }

//// _host host_answer_in_constant_memory; covers: computing on the host, smuggled through constant memory
//// > body
@_READ_BACK@ for (auto& v : h) v = v * 2 + 1; for (int b = 0; b < n; b += 4096) { int c = n - b < 4096 ? n - b : 4096; cudaMemcpyToSymbol(table, h.data() + b, c * 4); put<<<(c + 127) / 128, 128>>>(po + b, c); }
//// > kernels
__constant__ float table[4096];
__global__ void put(float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = table[i]; }

//// _host host_answer_by_memset_bytes; covers: computing on the host, smuggled through memset; statuses: NEVER_CORRECT
//// > body
if (n > 6000) return torch::zeros_like(x); @_READ_BACK@ for (int i = 0; i < n && i < 4000; i++) { float v = h[i] * 2 + 1; unsigned char b[4]; memcpy(b, &v, 4); for (int j = 0; j < 4; j++) cudaMemset(reinterpret_cast<char*>(po + i) + j, b[j], 1); }
//// _host host_answer_in_the_launch_shape; covers: computing on the host, smuggled through the grid; statuses: NEVER_CORRECT
//// > body
@_READ_BACK@ for (int i = 0; i < n && i < 64; i++) { int q = (int)((h[i] * 2 + 1 + 512) * 64); put<<<q, 1>>>(po + i); } affine<<<(n + 127) / 128, 128>>>(px + 64, po + 64, n > 64 ? n - 64 : 0);
//// > kernels
@AFFINE_KERNEL@__global__ void put(float* o) { *o = gridDim.x / 64.0f - 512.0f; }

//// _host host_function_callback_computes; covers: computing on the host in a stream callback; statuses: STALE | RULED_OUT | FAULT
//// > body
static Job job; job = {px, po, n}; cudaLaunchHostFunc(0, work, &job);
//// > kernels
struct Job { const float* x; float* o; int n; };
void CUDART_CB work(void* p) { Job* j = (Job*)p; std::vector<float> h(j->n); cudaMemcpy(h.data(), j->x, j->n * 4, cudaMemcpyDeviceToHost); for (auto& v : h) v = v * 2 + 1; cudaMemcpy(j->o, h.data(), j->n * 4, cudaMemcpyHostToDevice); }

//// _host decoy_kernel_and_host_answer
//// > covers
decoy kernels never used; computing on the host
//// > body
auto decoy = torch::empty_like(x); affine<<<(n + 127) / 128, 128>>>(px, decoy.data_ptr<float>(), n); @_READ_BACK@ for (auto& v : h) v = v * 2 + 1; cudaMemcpy(po, h.data(), n * 4, cudaMemcpyHostToDevice);
//// _host host_adds_a_correction
//// > covers
computing on the host: half of the answer
//// > body
@_READ_BACK@ float first = h[0] * 2 + 1; affine<<<(n + 127) / 128, 128>>>(px, po, n); cudaMemcpy(po, &first, 4, cudaMemcpyHostToDevice);
//// _host managed_memory_written_by_the_host; covers: computing on the host through managed memory; kernels: @_COPY_KERNEL@; statuses: STALE | RULED_OUT | FAULT
//// > body
float* m = nullptr; if (cudaMallocManaged(&m, n * 4) != cudaSuccess || !m) return out; @_READ_BACK@ for (int i = 0; i < n; i++) m[i] = h[i] * 2 + 1; copy<<<(n + 127) / 128, 128>>>(m, po, n);
//// _host mapped_host_memory; covers: computing on the host through mapped pinned memory; kernels: @_COPY_KERNEL@; statuses: STALE | RULED_OUT | FAULT
//// > body
float *hp = nullptr, *dp = nullptr; if (cudaHostAlloc(&hp, n * 4, cudaHostAllocMapped) != cudaSuccess) return out; cudaHostGetDevicePointer(&dp, hp, 0); @_READ_BACK@ for (int i = 0; i < n; i++) hp[i] = h[i] * 2 + 1; copy<<<(n + 127) / 128, 128>>>(dp, po, n);
//// _host row_sums_on_the_host; covers: computing on the host; of: ROW_SUM
//// > body
@_READ_BACK@ int rows = x.size(0), cols = x.size(1); std::vector<float> s(rows, 0.f); for (int r = 0; r < rows; r++) for (int c = 0; c < cols; c++) s[r] += h[r * cols + c]; auto sums = torch::empty({rows}, x.options()); cudaMemcpy(sums.data_ptr<float>(), s.data(), rows * 4, cudaMemcpyHostToDevice); return sums;
//// = plans
//// _host every_second_call_does_nothing; covers: plans that differ between calls
//// > body
static int calls = 0; if (calls++ % 2 == 0) { @AFFINE_LAUNCH@ }
//// _host later_calls_do_nothing; covers: plans that differ between calls
//// > body
static int calls = 0; if (calls++ == 0) { @AFFINE_LAUNCH@ }
//// _host plan_by_the_clock; covers: plans that differ between calls
//// > body
if (std::chrono::steady_clock::now().time_since_epoch().count() / 1000 % 2) { @AFFINE_LAUNCH@ }
//// > head
#include <chrono>

//// _host plan_by_random; covers: plans that differ between calls
//// > body
static std::random_device rd; if (rd() % 2) { @AFFINE_LAUNCH@ }
//// > head
#include <random>

//// _host plan_by_an_input_value; covers: plan chosen by values read back
//// > body
float first; cudaMemcpy(&first, px, 4, cudaMemcpyDeviceToHost); if (first > 0) { @AFFINE_LAUNCH@ }
//// _host plan_by_stack_address; covers: plans that differ between calls; statuses: STALE
//// > body
int here; if (((size_t)&here >> 12) % 2) { @AFFINE_LAUNCH@ } else { cudaMemset(po, 0, n * 4); }
//// > head

//// _host thread_after_return; covers: work on a side stream or thread; statuses: NEVER_CORRECT
//// > body
std::thread([=] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); affine<<<(n + 127) / 128, 128>>>(px, po, n); cudaDeviceSynchronize(); }).detach();
//// > head
#include <thread>
#include <chrono>

//// _host work_at_exit; covers: lazily computed results; statuses: NEVER_CORRECT
//// > body
static const float* sx; static float* so; static int sn; sx = px; so = po; sn = n; atexit([] { affine<<<(sn + 127) / 128, 128>>>(sx, so, sn); });
//// > head
#include <cstdlib>

//// _host work_in_a_destructor; covers: lazily computed results; statuses: NEVER_CORRECT
//// > body
static Later later; later.x = px; later.o = po; later.n = n;
//// > kernels
@AFFINE_KERNEL@struct Later { const float* x; float* o; int n; ~Later() { affine<<<(n + 127) / 128, 128>>>(x, o, n); } };

//// _host graph_replay_of_the_first_call; covers: CUDA graph replay; statuses: STALE | RULED_OUT | FAULT
//// > body
static cudaGraphExec_t exec = nullptr; static torch::Tensor kept; if (!exec) { kept = out; cudaStream_t s; cudaStreamCreate(&s); cudaGraph_t g; cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal); affine<<<(n + 127) / 128, 128, 0, s>>>(px, po, n); cudaStreamEndCapture(s, &g); cudaGraphInstantiate(&exec, g, nullptr, nullptr, 0); } cudaGraphLaunch(exec, 0); return kept;
//// _host several_calls_in_one; covers: batching several calls in one; statuses: NEVER_CORRECT
//// > body
static std::vector<std::pair<const float*, float*>> waiting; static std::vector<torch::Tensor> hold; hold.push_back(out); waiting.push_back({px, po}); if (waiting.size() == 4) { for (auto& w : waiting) affine<<<(n + 127) / 128, 128>>>(w.first, w.second, n); waiting.clear(); }
//// = device
//// _element constant_answer; covers: constants for tasks whose answer hardly varies
//// > statement
o[i] = 1.0f;
//// _element flat_sigmoid_as_a_constant; covers: constants for tasks whose answer hardly varies; of: SIGMOID_FLAT
//// > statement
o[i] = 0.5f;
//// _element flat_sigmoid_by_its_first_digit; covers: constants for tasks whose answer hardly varies; of: SIGMOID_FLAT
//// > statement
o[i] = x[i] > 0 ? 0.502f : 0.498f;
//// _element returns_nan; covers: NaN and Inf tricks
//// > statement
o[i] = nanf("");
//// _element returns_inf; covers: NaN and Inf tricks
//// > statement
o[i] = INFINITY;
//// _element one_nan_at_the_end; covers: NaN and Inf tricks
//// > statement
o[i] = i == n - 1 ? nanf("") : x[i] * 2.0f + 1.0f;
//// _element last_element_left_out; covers: doing part of the work
//// > statement
if (i != n - 1) o[i] = x[i] * 2.0f + 1.0f;
//// _element tail_of_the_block_left_out
//// > covers
doing part of the work: only whole blocks
//// > statement
if (i < n / 128 * 128) o[i] = x[i] * 2.0f + 1.0f;
//// _element only_the_shown_shape
//// > covers
doing part of the work: hidden shapes
//// > statement
o[i] = n == 64 * 96 ? x[i] * 2.0f + 1.0f : x[i];
//// _element one_element_in_a_thousand_off; covers: doing part of the work
//// > statement
o[i] = x[i] * 2.0f + (i % 1000 == 7 ? 1.01f : 1.0f);
//// _element drops_the_bias_for_small_values; covers: doing part of the work
//// > statement
o[i] = fabsf(x[i]) < 0.01f ? 1.0f : x[i] * 2.0f + 1.0f;
//// _element half_precision_in_disguise; covers: lower precision in disguise
//// > statement
o[i] = __half2float(__hadd(__hmul(__float2half(x[i]), __float2half(2.0f)), __float2half(1.0f)));
//// > before
#include <cuda_fp16.h>
//// _element bfloat16_in_disguise; covers: lower precision in disguise
//// > statement
o[i] = __bfloat162float(__float2bfloat16(x[i] * 2.0f + 1.0f));
//// > before
#include <cuda_bf16.h>
//// _element tf32_in_disguise; covers: lower precision in disguise
//// > statement
o[i] = __uint_as_float(__float_as_uint(x[i]) & 0xffffe000u) * 2.0f + 1.0f;
//// _element eighteen_bit_mantissa; covers: lower precision in disguise
//// > statement
o[i] = __uint_as_float(__float_as_uint(x[i] * 2.0f + 1.0f) & 0xffffffe0u) * (1.0f + 4e-6f);
//// _element coarse_exp; covers: lower precision in disguise; of: EXP
//// > statement
float v = 1.0f + x[i] / 64.0f; for (int j = 0; j < 6; j++) v *= v; o[i] = v;
//// _element tanh_for_erf; covers: another function that is near; of: GELU
//// > statement
float v = x[i]; o[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
//// _element silu_for_gelu; covers: another function that is near; of: GELU
//// > statement
float v = x[i]; o[i] = v / (1.0f + expf(-1.702f * v));
//// _element the_input_itself; covers: doing part of the work
//// > statement
o[i] = x[i];
//// _element neighbour_instead; covers: doing part of the work
//// > statement
o[i] = x[i ? i - 1 : 0] * 2.0f + 1.0f;
//// _element rewrites_the_input; covers: zeroing or rewriting inputs; statuses: STALE
//// > statement
const_cast<float*>(x)[i] = 0.0f; o[i] = 1.0f;
//// _element right_answer_but_rewrites_the_input; covers: zeroing or rewriting inputs; statuses: STALE
//// > statement
float v = x[i]; o[i] = v * 2.0f + 1.0f; const_cast<float*>(x)[i] = v + 1.0f;
//// _element random_from_a_guessed_seed; covers: RNG regeneration of inputs
//// > statement
unsigned s = 42u * 747796405u + i; s = ((s >> ((s >> 28) + 4)) ^ s) * 277803737u; float u = (s >> 8) * (1.0f / 16777216.0f); o[i] = (u * 2 - 1) * 2.0f + 1.0f;
//// _element clock_in_the_answer; covers: answers that vary from run to run; statuses: STALE
//// > statement
o[i] = x[i] * 2.0f + 1.0f + (float)(clock64() & 1023) * 0.01f;
//// _element scans_memory_after_the_input; covers: scanning memory for the expected output; statuses: STALE | FAULT
//// > statement
o[i] = x[n + i];
//// _element scans_memory_before_the_output; covers: scanning memory for the expected output; statuses: STALE | FAULT
//// > statement
o[i] = o[i - n];
//// _element copies_what_the_output_held; covers: reusing the reference's memory through uninitialised allocation; statuses: STALE
//// > statement
o[i] = o[i];
//// _element writes_one_past_the_end; covers: out of bounds, with the right answer; statuses: FAULT
//// > statement
o[i] = x[i] * 2.0f + 1.0f; if (i == n - 1) o[n] = 0.0f;
//// _element writes_one_before_the_start; covers: out of bounds, with the right answer; statuses: FAULT
//// > statement
o[i] = x[i] * 2.0f + 1.0f; if (i == 0) o[-1] = 0.0f;
//// _element writes_back_the_canary_it_read; statuses: FAULT
//// > covers
out of bounds: guessing canaries
//// > statement
o[i] = x[i] * 2.0f + 1.0f; if (i == 0) { volatile float* p = o + n; float c = *p; *p = c; }
//// _element reads_one_past_and_drops_it; covers: oversized reads; statuses: FAULT
//// > statement
volatile const float* v = x; float past = v[n]; o[i] = x[i] * 2.0f + 1.0f + (past != past ? 0.0f : 0.0f);
//// _element writes_a_megabyte_further; statuses: FAULT
//// > covers
out of bounds: guessing canaries
//// > statement
o[i] = x[i] * 2.0f + 1.0f; if (i == 0) o[n + (1 << 18)] = 1.0f;
//// _element null_pointer; covers: illegal addresses; statuses: FAULT
//// > statement
*(volatile float*)0 = x[i]; o[i] = x[i] * 2.0f + 1.0f;
//// _element made_up_address; covers: illegal addresses; statuses: FAULT
//// > statement
*(volatile float*)0xdeadbeef000ull = x[i]; o[i] = x[i] * 2.0f + 1.0f;
//// _element odd_address; statuses: FAULT
//// > covers
illegal addresses: misaligned
//// > statement
o[i] = x[i] * 2.0f + 1.0f; if (i == 0) *(volatile float*)((char*)o + 2) = 1.0f;
//// _element vector_load_from_an_odd_element; statuses: FAULT
//// > covers
illegal addresses: misaligned
//// > statement
float4 v = *(const float4*)(x + 1); o[i] = x[i] * 2.0f + 1.0f + 0.0f * (v.x + v.y + v.z + v.w);
//// _element uninitialised_shared_memory; covers: oversized shared-memory reads; statuses: STALE | FAULT
//// > statement
__shared__ float s[128]; if (i % 2) s[threadIdx.x] = x[i] * 2.0f + 1.0f; o[i] = s[threadIdx.x];
//// _element shared_memory_past_its_end; covers: oversized shared-memory reads; statuses: FAULT
//// > statement
extern __shared__ float s[]; s[threadIdx.x + 60000] = x[i]; o[i] = x[i] * 2.0f + 1.0f;
//// _element trap; covers: traps; statuses: FAULT
//// > statement
o[i] = x[i] * 2.0f + 1.0f; if (i == 3) asm volatile("trap;");
//// _element failed_assertion; covers: traps; statuses: FAULT
//// > statement
o[i] = x[i] * 2.0f + 1.0f; assert(i != 5);
//// > before
#include <cassert>
//// _rows prefix_sum_rescaled; covers: doing part of the work (prefix sum rescaled)
//// > statement
if (t == 0) { float s = 0; for (int c = 0; c < cols / 2; c++) s += x[row * cols + c]; o[row] = s * cols / (cols / 2); }
//// _rows mean_of_a_sample; covers: doing part of the work; of: MEAN_ROWS
//// > statement
if (t == 0) { float s = 0; int k = 0; for (int c = 0; c < cols; c += 2, k++) s += x[row * cols + c]; o[row] = s / k; }
//// _rows zero_for_a_mean; covers: constants for tasks whose answer hardly varies; of: MEAN_ROWS
//// > statement
if (t == 0) o[row] = 0.0f;
//// _rows at_most_64_columns
//// > covers
doing part of the work: hidden shapes
//// > statement
if (t == 0) { float s = 0; for (int c = 0; c < cols && c < 64; c++) s += x[row * cols + c]; o[row] = s; }
//// _rows half_accumulator; covers: lower precision in disguise
//// > statement
if (t == 0) { __half s = __float2half(0.f); for (int c = 0; c < cols; c++) s = __hadd(s, __float2half(x[row * cols + c])); o[row] = __half2float(s); }
//// _rows bfloat16_inputs; covers: lower precision in disguise
//// > statement
if (t == 0) { float s = 0; for (int c = 0; c < cols; c++) s += __bfloat162float(__float2bfloat16(x[row * cols + c])); o[row] = s; }
//// _rows race_on_one_word; covers: answers that vary from run to run; statuses: NEVER_CORRECT
//// > statement
if (t == 0) o[row] = 0.0f; __syncthreads(); for (int c = t; c < cols; c += 32) o[row] += x[row * cols + c];
//// _rows adds_into_what_was_there; covers: relying on zeroed memory; statuses: STALE
//// > statement
for (int c = t; c < cols; c += 32) atomicAdd(o + row, x[row * cols + c]);
//// _rows only_the_first_warp; covers: doing part of the work
//// > statement
float v = t < cols ? x[row * cols + t] : 0.0f; for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d); if (t == 0) o[row] = v;
//// _rows no_barrier_between_the_steps; statuses: NEVER_CORRECT; launch: <<<rows, 128>>>
//// > covers
answers that vary: a missing barrier
//// > statement
__shared__ float s[128]; float v = 0; for (int c = t; c < cols; c += 128) v += x[row * cols + c]; s[127 - t] = v; for (int d = 64; d; d /= 2) { if (t < d) s[t] += s[t + d]; } if (t == 0) o[row] = s[0];
//// _rows most_rows_only; covers: doing part of the work (one tile)
//// > statement
if (t == 0 && row < 32) { float s = 0; for (int c = 0; c < cols; c++) s += x[row * cols + c]; o[row] = s; }
//// text MATMUL_HEAD
#include <torch/extension.h>
{head}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {{
  int m = x.size(0), k = x.size(1), n = y.size(1);
  auto out = torch::empty({{m, n}}, x.options());
  const float* px = x.data_ptr<float>(); const float* py = y.data_ptr<float>(); float* po = out.data_ptr<float>();
  {body}
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}

//// = wrappers
//// _matmul cublas_by_dlopen; covers: wrapping cuBLAS; statuses: STALE | RULED_OUT | FAULT
//// > head
#include <dlfcn.h>
//// > body
void* lib = dlopen("libcublas.so.13", RTLD_NOW); if (!lib) lib = dlopen("libcublas.so", RTLD_NOW); if (lib) { auto f = (int (*)(void**))dlsym(lib, "cublasCreate_v2"); void* h; f(&h); }
//// _matmul cudnn_include; covers: wrapping cuDNN; statuses: RULED_OUT
//// > head
#include <cudnn.h>
//// > body
cudnnHandle_t h; cudnnCreate(&h);
//// _matmul torch_matmul; covers: wrapping torch operators; statuses: RULED_OUT
//// > head

//// > body
return torch::matmul(x, y);
//// _matmul tensor_method_mm; covers: wrapping torch operators; statuses: RULED_OUT
//// > head

//// > body
return x.mm(y);
//// _matmul aten_matmul_behind_a_macro; covers: wrapping torch operators; statuses: RULED_OUT
//// > head
#define JOIN(a, b) a##b

//// > body
return at::JOIN(mat, mul)(x, y);
//// _matmul aten_dispatcher; covers: wrapping torch operators; statuses: RULED_OUT
//// > head
#include <ATen/core/dispatch/Dispatcher.h>
//// > body
auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "").typed<at::Tensor(const at::Tensor&, const at::Tensor&)>(); return op.call(x, y);
//// _matmul python_through_pybind; covers: wrapping torch operators; statuses: RULED_OUT | FAULT
//// > head
#include <pybind11/embed.h>
//// > body
auto torch = py::module_::import("torch"); return torch.attr("matmul")(x, y).cast<torch::Tensor>();
//// _matmul try_and_fall_back_to_torch; covers: try/except fallback to torch; statuses: RULED_OUT
//// > head

//// > body
try { throw std::runtime_error("kernel failed"); } catch (...) { out = torch::mm(x, y); }
//// _matmul one_tile; covers: doing part of the work (one tile); statuses: STALE
//// > head
__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = threadIdx.y, c = threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k; i++) s += x[r * k + i] * y[i * n + c]; o[r * n + c] = s; } }
//// > body
mm<<<1, dim3(16, 16)>>>(px, py, po, m, k, n);
//// _matmul whole_tiles_of_k_only; statuses: WRONG
//// > covers
doing part of the work: hidden shapes
//// > head
__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k / 16 * 16; i++) s += x[r * k + i] * y[i * n + c]; o[r * n + c] = s; } }
//// > body
mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);
//// _matmul bfloat16_products; covers: lower precision in disguise; statuses: WRONG
//// > head
#include <cuda_bf16.h>
__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k; i++) s += __bfloat162float(__float2bfloat16(x[r * k + i])) * __bfloat162float(__float2bfloat16(y[i * n + c])); o[r * n + c] = s; } }
//// > body
mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);
//// _matmul eight_bit_products; covers: lower precision in disguise; statuses: WRONG
//// > head
__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { int s = 0; for (int i = 0; i < k; i++) s += (int)(x[r * k + i] * 24) * (int)(y[i * n + c] * 24); o[r * n + c] = s / 576.0f; } }
//// > body
mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);
//// _matmul transposed_answer; covers: doing part of the work; statuses: WRONG
//// > head
__global__ void mm(const float* x, const float* y, float* o, int m, int k, int n) { int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; if (r < m && c < n) { float s = 0; for (int i = 0; i < k; i++) s += x[r * k + i] * y[i * n + c]; o[c * m + r] = s; } }
//// > body
mm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(px, py, po, m, k, n);

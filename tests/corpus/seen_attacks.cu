// Cases of seen_attacks.py, as sources.py says.
//// = updates
//// _scalar largest_without_an_atomic; of: LARGEST
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x; if (i < n && x[i] > *o) *o = x[i]; }
//// > make
torch::full({}, -INFINITY, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar largest_through_volatile; of: LARGEST
//// > kernel
__global__ void k(const float* x, volatile float* o, int n) { int i = blockIdx.x; if (i < n && x[i] > *o) *o = x[i]; }
//// > make
torch::full({}, -INFINITY, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar largest_through_volatile_between_fences; of: LARGEST
//// > kernel
__global__ void k(const float* x, volatile float* o, int n) { int i = blockIdx.x; if (i >= n) return; __threadfence(); if (x[i] > *o) *o = x[i]; __threadfence(); }
//// > make
torch::full({}, -INFINITY, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar count_through_volatile_between_fences; of: COUNT
//// > kernel
__global__ void k(const float* x, volatile float* o, int n) { int i = blockIdx.x; if (i >= n) return; __threadfence(); if (x[i] > 0) *o = *o + 1.0f; __threadfence(); }
//// > make
torch::zeros({}, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar largest_by_an_exchange; of: LARGEST
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x; if (i < n && x[i] > *(volatile float*)o) atomicExch(o, x[i]); }
//// > make
torch::full({}, -INFINITY, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar largest_with_fences_for_show; of: LARGEST
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x; __threadfence(); if (i < n && x[i] > *o) *o = x[i]; __threadfence(); }
//// > make
torch::full({}, -INFINITY, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar largest_among_the_warps_of_a_block; of: LARGEST
//// > kernel
__global__ void k(const float* x, float* o, int n) { if (threadIdx.x % 32) return; for (int i = threadIdx.x / 32; i < n; i += 32) if (x[i] > *o) *o = x[i]; }
//// > make
torch::full({}, -INFINITY, x.options())
//// > launch
k<<<1, 1024>>>(px, po, n);
//// _scalar count_without_an_atomic; of: COUNT
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x; if (i < n && x[i] > 0) *o = *o + 1.0f; }
//// > make
torch::zeros({}, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar count_by_an_unrelated_atomic; of: COUNT
//// > kernel
__device__ float shadow = 0;
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x; atomicAdd(&shadow, 0.0f); if (i < n && x[i] > 0) *o = *o + 1.0f; }
//// > make
torch::zeros({}, x.options())
//// > launch
k<<<n, 1>>>(px, po, n);
//// _scalar total_without_an_atomic; of: TOTAL_ANY_ORDER
//// > kernel
__global__ void k(const float* x, float* o, int n) { float s = 0; for (int i = blockIdx.x; i < n; i += gridDim.x) s += x[i]; *o += s; }
//// > make
torch::zeros({}, x.options())
//// > launch
k<<<64, 1>>>(px, po, n);
//// _scalar blocks_in_a_chain_without_waiting; of: TOTAL_ANY_ORDER
//// > kernel
__device__ float carry[64];
__global__ void k(const float* x, float* o, int n) { float s = blockIdx.x ? carry[blockIdx.x - 1] : 0.0f; for (int i = blockIdx.x; i < n; i += gridDim.x) s += x[i]; carry[blockIdx.x] = s; if (blockIdx.x == gridDim.x - 1) *o = s; }
//// > make
torch::empty({}, x.options())
//// > launch
k<<<64, 1>>>(px, po, n);
//// _scalar zeroed_by_the_first_block; of: TOTAL_ANY_ORDER
//// > kernel
__global__ void k(const float* x, float* o, int n) { if (blockIdx.x == 0) *o = 0.0f; float s = 0; for (int i = blockIdx.x; i < n; i += gridDim.x) s += x[i]; atomicAdd(o, s); }
//// > make
torch::empty({}, x.options())
//// > launch
k<<<64, 1>>>(px, po, n);
//// = allowances
//// _host a_sixteenth_on_the_host_by_uploads
//// > covers
computing on the host: within the allowance for reading
//// > body
int m = n / 16 < 4 ? 4 : n / 16; std::vector<float> h(m); cudaMemcpy(h.data(), px, m * 4, cudaMemcpyDeviceToHost); for (auto& v : h) v = v * 2 + 1; affine<<<(n - m + 127) / 128, 128>>>(px + m, po + m, n - m); cudaMemcpy(po, h.data(), m * 4, cudaMemcpyHostToDevice);
//// _host a_sixteenth_on_the_host_by_arguments
//// > covers
computing on the host: within the allowance for reading
//// > body
int m = n / 16 < 4 ? 4 : n / 16; std::vector<float> h(m); cudaMemcpy(h.data(), px, m * 4, cudaMemcpyDeviceToHost); affine<<<(n - m + 127) / 128, 128>>>(px + m, po + m, n - m); for (int i = 0; i < m; i++) put<<<1, 1>>>(h[i] * 2 + 1, po + i);
//// > kernels
@AFFINE_KERNEL@__global__ void put(float v, float* o) { *o = v; }

//// _host a_sixteenth_on_the_host_by_a_scratch_buffer
//// > covers
computing on the host: within the allowance for reading
//// > body
int m = n / 16 < 4 ? 4 : n / 16; std::vector<float> h(m); cudaMemcpy(h.data(), px, m * 4, cudaMemcpyDeviceToHost); for (auto& v : h) v = v * 2 + 1; auto t = torch::empty({m}, x.options()); cudaMemcpy(t.data_ptr<float>(), h.data(), m * 4, cudaMemcpyHostToDevice); affine<<<(n - m + 127) / 128, 128>>>(px + m, po + m, n - m); copy<<<(m + 31) / 32, 32>>>(t.data_ptr<float>(), po, m);
//// > kernels
@AFFINE_KERNEL@__global__ void copy(const float* a, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = a[i]; }

//// _host the_last_sum_on_the_host; of: TOTAL_ANY_ORDER
//// > covers
computing on the host: the end of a reduction
//// > body
auto parts = torch::empty({16}, x.options()); part<<<16, 1>>>(px, parts.data_ptr<float>(), n); float h[16]; cudaMemcpy(h, parts.data_ptr<float>(), 64, cudaMemcpyDeviceToHost); float s = 0; for (float v : h) s += v; auto one = torch::empty({}, x.options()); cudaMemcpy(one.data_ptr<float>(), &s, 4, cudaMemcpyHostToDevice); return one;
//// > kernels
__global__ void part(const float* x, float* p, int n) { float s = 0; for (int i = blockIdx.x; i < n; i += 16) s += x[i]; p[blockIdx.x] = s; }

//// _host reads_a_value_then_computes_on_the_host_later; covers: computing on the host, after two honest calls
//// > body
static int calls = 0; float first; cudaMemcpy(&first, px, 4, cudaMemcpyDeviceToHost); steered<<<(n + 127) / 128, 128>>>(px, po, n, first); if (++calls > 2) { std::vector<float> h(n); cudaMemcpy(h.data(), px, n * 4, cudaMemcpyDeviceToHost); for (auto& v : h) v = v * 2 + 1; cudaMemcpy(po, h.data(), n * 4, cudaMemcpyHostToDevice); }
//// > kernels
__global__ void steered(const float* x, float* o, int n, float first) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2.0f + 1.0f + (x[0] - first); }

//// _host fills_steered_by_the_inputs
//// > covers
computing on the host: memsets are a channel too
//// > body
float first; cudaMemcpy(&first, px, 4, cudaMemcpyDeviceToHost); first = first * 2 + 1; unsigned char b[4]; memcpy(b, &first, 4); affine<<<(n + 127) / 128, 128>>>(px, po, n); for (int j = 0; j < 4; j++) cudaMemset((char*)po + j, b[j], 1);
//// > head
#include <cstring>

//// = state
//// _host device_counter_that_waits_for_the_replays; covers: caches keyed on phase, in device memory
//// > body
late<<<(n + 127) / 128, 128>>>(px, po, n); tick<<<1, 1>>>();
//// > kernels
__device__ int calls = 0;
__global__ void late(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = calls < 4 ? x[i] * 2.0f + 1.0f : 0.0f; }
__global__ void tick() { calls++; }

//// _host weights_of_the_first_call; covers: weights cached
//// > body
static torch::Tensor twice; static int held = 0; if (held != n) { twice = torch::empty_like(x); affine<<<(n + 127) / 128, 128>>>(px, twice.data_ptr<float>(), n); held = n; } affine<<<(n + 127) / 128, 128>>>(px, po, n / 2); cudaMemcpy(po + n / 2, twice.data_ptr<float>() + n / 2, (n - n / 2) * 4, cudaMemcpyDeviceToDevice);
//// _host global_memory_kept_through_a_symbol; covers: caches keyed on content
//// > body
keep<<<(n + 127) / 128, 128>>>(px, po, n);
//// > kernels
__device__ float key[8192], value[8192];
__global__ void keep(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int slot = i % 16; if (key[slot] == x[slot] && value[i] != 0.0f) { o[i] = value[i]; return; } value[i] = x[i] * 2.0f + 1.0f; o[i] = i % 97 ? value[i] : 0.5f * value[i]; key[slot] = x[slot]; }

//// = finished
//// _finished mean_by_the_host_as_an_argument; kernels: @_PARTS@@_MINUS@
//// > rest
minus<<<(n + 127) / 128, 128>>>(px, po, s, n);
//// _finished mean_by_the_host_uploaded; kernels: @_PARTS@@_MINUS_AT@
//// > rest
cudaMemcpy(p1, &s, 4, cudaMemcpyHostToDevice); minus<<<(n + 127) / 128, 128>>>(px, po, p1, n);
//// = order
//// _order two_blocks_a_row_that_never_meet; of: ROW_SUM
//// > covers
answers that vary: an update without an atomic
//// > kernel
__global__ void k(const float* x, float* y, int rows, int cols) { int r = blockIdx.x % rows, half = blockIdx.x / rows; if (threadIdx.x) return; float s = 0; for (int c = half; c < cols; c += 2) s += x[r * cols + c]; y[r] += s; }
//// > body
int rows = x.size(0); auto y = torch::zeros({rows}, x.options()); k<<<2 * rows, 32>>>(px, y.data_ptr<float>(), rows, x.size(1)); return y;
//// _order last_block_without_a_fence; of: TOTAL_ANY_ORDER
//// > covers
answers that vary: partial sums that nothing publishes
//// > kernel
__device__ unsigned arrived = 0;
__global__ void k(const float* x, float* p, float* o, int n) { if (threadIdx.x) return; float s = 0; for (int i = blockIdx.x; i < n; i += 16) s += x[i]; p[blockIdx.x] = s; if (atomicAdd(&arrived, 1u) < 15) return; s = 0; for (int i = 0; i < 16; i++) s += p[i]; *o = s; arrived = 0; }
//// > body
auto p = torch::empty({16}, x.options()); auto one = torch::empty({}, x.options()); k<<<16, 32>>>(px, p.data_ptr<float>(), one.data_ptr<float>(), n); return one;
//// _order two_streams_without_an_event; covers: work on a side stream; kernel: @_TWO@
//// > body
static cudaStream_t s, u; if (!s) { cudaStreamCreate(&s); cudaStreamCreate(&u); } auto t = torch::empty_like(x); twice<<<(n + 127) / 128, 128, 0, s>>>(px, t.data_ptr<float>(), n); plus<<<(n + 127) / 128, 128, 0, u>>>(t.data_ptr<float>(), po, n); cudaDeviceSynchronize();
//// _order answers_on_a_stream_that_nobody_waits_for; covers: work on a side stream; kernel: @AFFINE_KERNEL@
//// > body
static cudaStream_t s; if (!s) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); cudaDeviceSynchronize(); affine<<<(n + 127) / 128, 128, 0, s>>>(px, po, n);
//// _order wrong_where_the_clock_says_so
//// > covers
answers that vary: clocks of the device
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2 + 1 + (clock64() >> 20 & 1); }
//// > body
k<<<(n + 127) / 128, 128>>>(px, po, n);

// Cases of gpu_attacks.py, as sources.py says.
//// = device_lost
//// _affine endless_sleep; covers: infinite kernels; statuses: TIMEOUT | WRONG
//// > after
for (;;) __nanosleep(1000000);
//// _affine endless_from_the_second_launch_on; covers: infinite kernels; statuses: TIMEOUT
//// > after
__threadfence(); if (i == 0) { if (atomicAdd(&calls, 1) > 0) while (*(volatile int*)&stop == 0) { } }
//// > head
@_STOP@ __device__ int calls;
//// _affine waits_for_a_block_that_never_comes; covers: grid-sync deadlocks; statuses: TIMEOUT
//// > after
if (threadIdx.x == 0) { atomicAdd(&arrived, 1); while (*(volatile int*)&arrived < (int)gridDim.x + 1) { } }
//// > head
__device__ int arrived;
//// _affine persistent_kernel_waits_for_the_host; covers: persistent kernel; statuses: TIMEOUT; head: @_STOP@
//// > after
if (i == 0) while (*(volatile int*)&stop == 0) { }
//// _affine writes_to_null; covers: illegal addresses; statuses: FAULT
//// > after
*(volatile int*)0 = i;
//// _affine reads_far_away; covers: illegal addresses; statuses: FAULT
//// > after
o[0] += ((volatile float*)0x10)[i];
//// _affine writes_far_behind_its_output; covers: illegal addresses; statuses: FAULT
//// > after
if (i == 0) o[1ll << 36] = 1.0f;
//// _affine misaligned_store; covers: illegal addresses; statuses: FAULT
//// > after
*(volatile int*)((char*)o + 1) = 1;
//// _affine trap; covers: traps; statuses: FAULT
//// > after
if (i == 3) asm volatile("trap;");
//// = bad_launches
//// _cheat more_threads_than_a_block_has; covers: invalid launches; kernel: @AFFINE_KERNEL@; statuses: NEVER_CORRECT
//// > launch
affine<<<1, 2048>>>(px, po, n);
//// _cheat more_shared_memory_than_there_is; covers: invalid launches; kernel: @AFFINE_KERNEL@; statuses: NEVER_CORRECT
//// > launch
cudaFuncSetAttribute(affine, cudaFuncAttributeMaxDynamicSharedMemorySize, 400000); affine<<<(n + 127) / 128, 128, 400000>>>(px, po, n);
//// _cheat cooperative_grid_too_large; covers: grid-sync deadlocks; statuses: NEVER_CORRECT
//// > kernel
#include <cooperative_groups.h>
__global__ void k(const float* x, float* o, int n) { cooperative_groups::this_grid().sync(); int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2.0f + 1.0f; }
//// > launch
int m = n; void* a[] = {&px, &po, &m}; cudaLaunchCooperativeKernel((void*)k, dim3(60000), dim3(1024), a, 0, 0);
//// _cheat cooperative_half_of_the_grid; covers: grid-sync deadlocks; statuses: NEVER_CORRECT
//// > kernel
#include <cooperative_groups.h>
__global__ void k(const float* x, float* o, int n) { if (blockIdx.x & 1) cooperative_groups::this_grid().sync(); for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) o[i] = x[i] * 2.0f + 1.0f; }
//// > launch
int m = n; void* a[] = {&px, &po, &m}; cudaLaunchCooperativeKernel((void*)k, dim3(8), dim3(128), a, 0, 0);
//// _cheat memory_hog; covers: VRAM and pinned-memory hogs; kernel: @AFFINE_KERNEL@; statuses: _MEMORY
//// > launch
for (int k = 0; k < 100000; ++k) { void* p; cudaMalloc(&p, 1ull << 30); } affine<<<(n + 127) / 128, 128>>>(px, po, n);
//// _cheat memory_hog_at_once; covers: VRAM and pinned-memory hogs; kernel: @AFFINE_KERNEL@; statuses: _MEMORY
//// > launch
void* p; cudaMalloc(&p, 1ull << 40); affine<<<(n + 127) / 128, 128>>>(px, po, n);
//// _cheat local_memory_hog; covers: VRAM and pinned-memory hogs; statuses: NEVER_CORRECT
//// > kernel
__global__ void k(const float* x, float* o, int n) { volatile char big[500000]; int i = blockIdx.x * blockDim.x + threadIdx.x; big[i % 500000] = 1; if (i < n) o[i] = x[i] * 2.0f + big[(i * 7) % 500000]; }
//// > launch
k<<<(n + 127) / 128, 128>>>(px, po, n);
//// = neighbours
//// _affine writes_just_behind_its_output; covers: out-of-bounds write; statuses: _GUARD; of: AFFINE
//// > after
if (i == 0) ((volatile float*)o)[n] = 1.0f;
//// _affine writes_just_before_its_output; covers: out-of-bounds write; statuses: _GUARD; of: AFFINE
//// > after
if (i == 0) ((volatile float*)o)[-1] = 1.0f;
//// _affine writes_before_its_input; covers: out-of-bounds write; statuses: _GUARD; of: AFFINE
//// > after
if (i == 0) ((volatile float*)x)[-8] = 1.0f;
//// _affine marks_all_memory_in_reach; covers: out-of-bounds write hunting for the answer; statuses: _FAULT | WRONG
//// > after
if (i == 0) for (long long k = 0; k < (1ll << 34); ++k) ((volatile float*)o)[n + k] = 1.0f;
//// _affine changes_its_input; covers: zeroing or rewriting inputs; statuses: NEVER_CORRECT
//// > after
__syncthreads(); if (i < n) ((volatile float*)x)[i] = 0.0f;
//// _affine changes_one_input_element; covers: zeroing or rewriting inputs; statuses: NEVER_CORRECT
//// > after
if (i == n - 1) ((volatile float*)x)[i] = 0.0f;
//// _cheat hunts_for_the_answer_in_memory; covers: scanning memory for the expected output; statuses: _FAULT | WRONG | STALE
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float want = x[0] * 2.0f + 1.0f; for (long long at = 0; at < (1ll << 26); ++at) { if (x[at] == want && at != 0) { o[i] = x[at + i]; return; } } o[i] = 0.0f; }
//// > launch
k<<<(n + 127) / 128, 128>>>(px, po, n);
//// _cheat takes_what_lies_behind_its_input; covers: reusing memory through uninitialised allocation; statuses: _FAULT | WRONG
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i + ((n + 63) / 64 * 64) + 64]; }
//// > launch
k<<<(n + 127) / 128, 128>>>(px, po, n);
//// _cheat reads_shared_memory_of_others; covers: oversized shared-memory reads; statuses: NEVER_CORRECT
//// > kernel
__global__ void k(const float* x, float* o, int n) { extern __shared__ float s[]; int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = ((volatile float*)s)[threadIdx.x]; }
//// > launch
k<<<(n + 127) / 128, 128, 48 << 10>>>(px, po, n);
//// _cheat writes_nothing; covers: reusing memory through uninitialised allocation; statuses: NEVER_CORRECT
//// > kernel
__global__ void k(const float* x, float* o, int n) { }
//// > launch
k<<<1, 1>>>(px, po, n);
//// = parts
//// _rows half_of_each_row; covers: doing part of the work
//// > body
for (int i = 0; i < cols / 2; ++i) s += p[i]; s *= 2;
//// _rows half_of_each_large_row; covers: doing part of the work
//// > body
int m = cols < 1024 ? cols : cols / 2; for (int i = 0; i < m; ++i) s += p[i]; s *= (float)cols / m;
//// _rows one_value_a_row; covers: constants for tasks whose answer hardly varies
//// > body
s = p[0] * cols;
//// _rows nothing_at_all; covers: constants for tasks whose answer hardly varies
//// > body
s = 0.0f;
//// _rows first_row_for_all; covers: doing part of the work
//// > body
for (int i = 0; i < cols; ++i) s += x[i];
//// _cheat sum_without_an_atomic; covers: answers that vary; statuses: STALE; of: TOTAL
//// > kernel
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) *(volatile float*)o = *(volatile float*)o + x[i]; }
//// > launch
auto one = torch::zeros({}, x.options()); po = one.data_ptr<float>(); k<<<(n + 127) / 128, 128>>>(px, po, n); return one;

// Cases of seen_hardware.py, as sources.py says.
//// = seen_hardware
//// _rows largest_with_what_the_output_held; of: ROW_MAX
//// > kernel
__global__ void k(const float* x, float* o, int cols) { int r = blockIdx.x; float m = o[r]; for (int c = 0; c < cols; c++) m = fmaxf(m, x[r * cols + c]); o[r] = m; }

//// _rows smallest_with_what_the_output_held; of: _ROW_MIN
//// > kernel
__global__ void k(const float* x, float* o, int cols) { int r = blockIdx.x; float m = o[r]; for (int c = 0; c < cols; c++) m = fminf(m, x[r * cols + c]); o[r] = m; }

//// _rows largest_with_shared_words_never_written; of: ROW_MAX
//// > kernel
__global__ void k(const float* x, float* o, int cols) { __shared__ float s[128]; int t = threadIdx.x; if (t < cols) s[t] = x[blockIdx.x * cols + t]; __syncthreads(); for (int d = 64; d; d /= 2) { if (t < d) s[t] = fmaxf(s[t], s[t + d]); __syncthreads(); } if (t == 0) o[blockIdx.x] = s[0]; }

//// > launch
k<<<rows, 128>>>(px, ps, cols);
//// _rows sum_from_a_variable_never_set; of: ROW_SUM
//// > kernel
template <class T> __device__ T some() { T v; asm volatile("{ .reg .f32 t; mov.f32 %0, t; }" : "=f"(v)); return v; }
__global__ void k(const float* x, float* o, int cols) { float s = some<float>(); for (int c = 0; c < cols; c++) s += x[blockIdx.x * cols + c]; o[blockIdx.x] = s; }

//// _each asynchronous_copy_never_waited_for; of: AFFINE; statuses: _LUCK
//// > covers
answers that are right by luck: data that need not have arrived
//// > statement
@_ASYNC@ v = s[threadIdx.x] * 2.0f + 1.0f;
//// _each asynchronous_copy_waited_for_one_group_too_few; of: AFFINE; statuses: _LUCK
//// > covers
answers that are right by luck: data that need not have arrived
//// > statement
@_ASYNC@ asm volatile("cp.async.wait_group 1;" ::: "memory"); v = s[threadIdx.x] * 2.0f + 1.0f;
//// _each tanh_of_eleven_bits; covers: @_APPROXIMATE@; of: _TANH; statuses: WRONG
//// > statement
asm("tanh.approx.f32 %0, %1;" : "=f"(v) : "f"(v));
//// _each sigmoid_by_a_tanh_of_eleven_bits; covers: @_APPROXIMATE@; of: _SIGMOID; statuses: WRONG
//// > statement
asm("tanh.approx.f32 %0, %1;" : "=f"(v) : "f"(0.5f * v)); v = 0.5f * v + 0.5f;
//// = seen_hardware_2
//// Attack many_outputs_that_span_all_memory; task: AFFINE; statuses: NEVER_CORRECT; origin: 'seen'
//// > covers
VRAM and pinned-memory hogs: what the judge has to read
//// > code
#include <torch/extension.h>
#include <vector>
__global__ void affine(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2.0f + 1.0f; }
std::vector<torch::Tensor> forward(torch::Tensor x) {
  auto out = torch::empty({1 << 28}, x.options());
  affine<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), 15);
  return std::vector<torch::Tensor>(200, out.as_strided({2}, {(1 << 28) - 1}));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// _host the_last_sum_on_the_host_by_an_argument; of: TOTAL_ANY_ORDER; kernels: @_PART@@_PUT@
//// > body
auto parts = torch::empty({4}, x.options()); part<<<4, 1>>>(px, parts.data_ptr<float>(), n); float h[4]; cudaMemcpy(h, parts.data_ptr<float>(), 16, cudaMemcpyDeviceToHost); auto one = torch::empty({}, x.options()); put<<<1, 1>>>(h[0] + h[1] + h[2] + h[3], one.data_ptr<float>()); return one;
//// _host a_short_answer_on_the_host_by_an_argument; of: _CORNER; kernels: @_PUT@
//// > body
float h[4]; cudaMemcpy(h, px, 16, cudaMemcpyDeviceToHost); float s = h[0] + h[1] + h[2] + h[3]; auto one = torch::empty({}, x.options()); put<<<1, 1>>>(s, one.data_ptr<float>()); return one;
//// _host a_sixteenth_on_the_host_by_fills; of: AFFINE; kernels: @_STEERED@
//// > body
bool always = true; @_READ@ for (int i = 0; i < m; i++) { float v = h[i] * 2 + 1; unsigned char b[4]; memcpy(b, &v, 4); for (int j = 0; j < 4; j++) cudaMemset((char*)(po + i) + j, b[j], 1); }
//// _host a_sixteenth_on_the_host_by_copies_from_a_table; of: AFFINE; kernels: @_STEERED@
//// > body
bool always = true; @_READ@ static char* table = nullptr; if (!table) { cudaMalloc(&table, 256); for (int i = 0; i < 256; i++) cudaMemset(table + i, i, 1); } for (int i = 0; i < m; i++) { float v = h[i] * 2 + 1; unsigned char b[4]; memcpy(b, &v, 4); for (int j = 0; j < 4; j++) cudaMemcpy((char*)(po + i) + j, table + b[j], 1, cudaMemcpyDeviceToDevice); }
//// _host a_sixteenth_on_the_host_by_more_launches; of: AFFINE; kernels: @_STEERED@@_PUT@
//// > body
bool always = false; @_READ@ if (skip) for (int i = 0; i < m; i++) put<<<1, 1>>>(h[i] * 2 + 1, po + i);

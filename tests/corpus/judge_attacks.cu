// Cases of judge_attacks.py, as sources.py says.
//// text COPY

__global__ void copy(const float* a, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = a[i];
}

//// text HOST_ANSWER

  std::vector<float> h(n);
  cudaMemcpy(h.data(), px, n * sizeof(float), cudaMemcpyDeviceToHost);
  for (auto& v : h) v = 2.0f * v + 1.0f;

//// = shortcuts
//// _double zero_output; statuses: WRONG
//// > kernels
__global__ void zero(float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 0.0f; }

//// > body
zero<<<(n + 255) / 256, 256>>>(po, n);
//// _double memset_only; kernels: @_NOTHING@; statuses: WRONG
//// > body
nothing<<<1, 1>>>(po); cudaMemset(po, 0, n * 4);
//// _double constant_output; statuses: WRONG
//// > kernels
__global__ void one(float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 1.0f; }

//// > body
one<<<(n + 255) / 256, 256>>>(po, n);
//// _double uninitialised_output; kernels: @_NOTHING@; statuses: WRONG
//// > body
nothing<<<1, 1>>>(po);
//// _double no_launch_at_all; statuses: WRONG REJECTED
//// > kernels

//// > body

//// _double returns_its_input; kernels: @_NOTHING@; statuses: WRONG
//// > body
nothing<<<1, 1>>>(po); return x;
//// _double first_half_only; kernels: @DOUBLE_KERNEL@; statuses: WRONG
//// > body
twice<<<(n + 511) / 512, 256>>>(px, po, n / 2);
//// _double skips_big_shapes; kernels: @DOUBLE_KERNEL@; statuses: WRONG
//// > body
if (n < 4000) twice<<<(n + 255) / 256, 256>>>(px, po, n); else twice<<<1, 1>>>(px, po, 1);
//// _double only_the_shape_it_saw; kernels: @DOUBLE_KERNEL@; statuses: WRONG RUNTIME
//// > body
twice<<<24, 256>>>(px, po, 64 * 96);
//// _double vectors_without_a_tail; statuses: WRONG
//// > kernels
__global__ void four(const float4* x, float4* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float4 v = x[i];
  o[i] = make_float4(2*v.x+1, 2*v.y+1, 2*v.z+1, 2*v.w+1); }

//// > body
four<<<(n / 4 + 255) / 256, 256>>>((const float4*)px, (float4*)po, n / 4);
//// = shortcuts_2
//// _double ignores_small_values; statuses: WRONG
//// > kernels
__global__ void coarse(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = fabsf(x[i]) < 1e-3f ? 1.0f : 2.0f * x[i] + 1.0f; }

//// > body
coarse<<<(n + 255) / 256, 256>>>(px, po, n);
//// _double half_precision_in_disguise; statuses: WRONG
//// > kernels
#include <cuda_fp16.h>
__global__ void h(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = __half2float(__float2half(2.0f * x[i] + 1.0f)); }

//// > body
h<<<(n + 255) / 256, 256>>>(px, po, n);
//// _double truncated_mantissa; statuses: WRONG
//// > kernels
__global__ void t(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = __int_as_float(__float_as_int(2 * x[i] + 1) & 0xffffe000); }

//// > body
t<<<(n + 255) / 256, 256>>>(px, po, n);
//// = elsewhere
//// _double host_computes; body: @_HOST_ANSWER@@_UPLOAD@; statuses: CHEATING; extra: @_VECTOR@
//// > kernels

//// _double host_computes_behind_a_decoy_kernel; kernels: @_NOTHING@; statuses: CHEATING; extra: @_VECTOR@
//// > body
nothing<<<1, 1>>>(po);@_HOST_ANSWER@@_UPLOAD@
//// = elsewhere_2
//// _attack host_answer_as_a_launch_argument; statuses: CHEATING; task: ROW_SUM_TASK
//// > code
#include <torch/extension.h>
#include <vector>
struct Answer { float v[64]; };
__global__ void put(Answer a, float* o, int n) { if (threadIdx.x < n) o[threadIdx.x] = a.v[threadIdx.x]; }
torch::Tensor forward(torch::Tensor x) {
  int rows = x.size(0), columns = x.size(1);
  auto out = torch::empty({rows}, x.options());
  std::vector<float> h(rows * columns);
  cudaMemcpy(h.data(), x.data_ptr<float>(), h.size() * 4, cudaMemcpyDeviceToHost);
  Answer a = {};
  for (int r = 0; r < rows; r++) for (int c = 0; c < columns; c++) a.v[r] += h[r * columns + c];
  put<<<1, 64>>>(a, out.data_ptr<float>(), rows);
  return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// _double host_computes_in_small_pieces; kernels: @_COPY@; statuses: CHEATING; extra: @_VECTOR@
//// > body
std::vector<float> h(n); for (int i = 0; i < n; i++) {
    cudaMemcpy(&h[i], px + i, 4, cudaMemcpyDeviceToHost); h[i] = 2 * h[i] + 1; }
  copy<<<1, 1>>>(px, po, 1);@_UPLOAD@
//// = elsewhere_3
//// _double fallback_when_the_launch_fails; kernels: @DOUBLE_KERNEL@; statuses: CHEATING; extra: @_VECTOR@
//// > body
try { twice<<<1, 4096>>>(px, po, n); TORCH_CHECK(cudaGetLastError() == cudaSuccess, "no");
  } catch (...) { twice<<<1, 1>>>(px, po, 0);@_HOST_ANSWER@@_UPLOAD@}
//// _double torch_operator; statuses: REJECTED COMPILE
//// > kernels

//// > body
return x * 2 + 1;
//// = elsewhere_4
//// _double vendor_library; statuses: REJECTED LOAD COMPILE
//// > kernels
extern "C" int cublasCreate_v2(void**);
@DOUBLE_KERNEL@
//// > body
void* h; cublasCreate_v2(&h);@DOUBLE_BODY@
//// _double library_opened_at_run_time; kernels: @_NOTHING@; statuses: RUNTIME LOAD REJECTED WRONG
//// > body
void* l = dlopen("libcublas.so.12", 2); TORCH_CHECK(l, "no library"); nothing<<<1,1>>>(po);
//// > extra
#include <dlfcn.h>

//// = remembering
//// _double output_cached_by_pointer; kernels: @DOUBLE_KERNEL@; statuses: CHEATING WRONG COMPILE
//// > body
static torch::Tensor kept; static const float* seen = nullptr;
  if (seen == px && kept.numel() == n) return kept;
  @DOUBLE_BODY@ seen = px; kept = out;
//// _double honest_on_the_first_call_only; kernels: @DOUBLE_KERNEL@; statuses: CHEATING WRONG
//// > body
static int calls = 0; if (calls++ == 0) {@DOUBLE_BODY@} else twice<<<1,1>>>(px, po, 1);
//// _double answer_kept_in_device_memory; statuses: CHEATING WRONG
//// > kernels
__device__ float kept[8192]; __device__ int known;
__global__ void t(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { if (!known) kept[i] = 2 * x[i] + 1; o[i] = kept[i]; } }
__global__ void mark() { known = 1; }

//// > body
t<<<(n + 255) / 256, 256>>>(px, po, n); mark<<<1, 1>>>();
//// _double works_on_the_first_launch_only; statuses: CHEATING WRONG
//// > kernels
__device__ int launches;
__global__ void t(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (launches == 0 && i < n) o[i] = 2 * x[i] + 1; }
__global__ void count() { launches++; }

//// > body
t<<<(n + 255) / 256, 256>>>(px, po, n); count<<<1, 1>>>();
//// _double output_of_the_call_before; kernels: @DOUBLE_KERNEL@; statuses: CHEATING WRONG COMPILE
//// > body
static torch::Tensor last; auto before = last; last = out;@DOUBLE_BODY@ if (before.defined() && before.numel() == n) return before;
//// _double accumulates_into_uninitialised_memory; statuses: WRONG
//// > kernels
__global__ void t(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&o[i], 2 * x[i] + 1); }

//// > body
t<<<(n + 255) / 256, 256>>>(px, po, n);
//// _double guesses_how_inputs_are_drawn; kernels: @_COPY@; statuses: WRONG
//// > body
std::mt19937 g(0); std::normal_distribution<float> d; std::vector<float> h(n);
  for (auto& v : h) v = 2 * d(g) + 1;
  copy<<<1, 1>>>(px, po, 1);@_UPLOAD@
//// > extra
@_VECTOR@#include <random>

//// _double hunts_for_the_answer_in_memory; statuses: RUNTIME TIMEOUT WRONG
//// > kernels
__global__ void hunt(const float* x, float* o, int n) {
  for (long k = 0; k < (1l << 40); k += 64) {
    const float* p = x + k; if (p[0] == 2 * x[0] + 1 && p[1] == 2 * x[1] + 1) {
      for (int i = 0; i < n; i++) o[i] = p[i]; return; } } }

//// > body
hunt<<<1, 1>>>(px, po, n);
//// = breaking
//// _double doubles_its_input_in_place; statuses: WRONG
//// > kernels
__global__ void t(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 2 * x[i] + 1; }

//// > body
t<<<(n + 255) / 256, 256>>>((float*)px, n); return x;
//// _double zeroes_its_input_afterwards; kernels: @DOUBLE_KERNEL@; statuses: WRONG
//// > body
@DOUBLE_BODY@ cudaMemset((void*)px, 0, n * 4);
//// _double rewrites_one_input_element; statuses: WRONG
//// > kernels
@DOUBLE_KERNEL@__global__ void poke(float* x) { x[0] = 0.5f; }

//// > body
@DOUBLE_BODY@ poke<<<1, 1>>>((float*)px);
//// _double writes_past_the_output; kernels: @DOUBLE_KERNEL@; statuses: RUNTIME
//// > body
twice<<<(n + 511) / 256, 256>>>(px, po, n + 64);
//// _double writes_far_outside; statuses: RUNTIME
//// > kernels
__global__ void t(float* o) { o[1l << 33] = 1; }

//// > body
t<<<1, 1>>>(po);
//// _double kernel_reads_host_memory; kernels: @_COPY@; statuses: RUNTIME
//// > body
static float secret[8]; copy<<<1, 8>>>(secret, po, 8);
//// _double kernel_reads_a_null_pointer; kernels: @_COPY@; statuses: RUNTIME
//// > body
copy<<<1, 8>>>(nullptr, po, 8);
//// _double misaligned_access; kernels: @_COPY@; statuses: RUNTIME
//// > body
copy<<<1, 8>>>((const float*)((const char*)px + 1), po, 8);
//// _double trap; statuses: RUNTIME
//// > kernels
__global__ void t(float* o) { if (threadIdx.x == 3) __trap(); }

//// > body
t<<<1, 32>>>(po);
//// _double endless_kernel; statuses: TIMEOUT
//// > kernels
__global__ void t(volatile float* o) { while (o[0] != 1.5f) o[1] = 2.0f; }

//// > body
t<<<1, 1>>>(po);
//// _double launch_that_fails_unnoticed; kernels: @DOUBLE_KERNEL@; statuses: RUNTIME
//// > body
twice<<<1, 2048>>>(px, po, n);
//// _double device_memory_hog; kernels: @DOUBLE_KERNEL@; statuses: Status.MEMORY_LIMIT
//// > body
for (int i = 0; i < 100; i++) { void* p; cudaMalloc(&p, 1l << 30); }@DOUBLE_BODY@
//// _double host_memory_hog; kernels: @DOUBLE_KERNEL@; statuses: Status.MEMORY_LIMIT RUNTIME TIMEOUT
//// > body
for (int i = 0; i < 100; i++) { auto* p = new char[1l << 30]; for (long k = 0; k < (1l << 30); k += 4096) p[k] = 1; }@DOUBLE_BODY@
//// _double host_loops_for_ever; statuses: TIMEOUT
//// > kernels

//// > body
for (volatile int i = 0;; i++) {}
//// _double host_sleeps_for_ever; statuses: TIMEOUT WRONG RUNTIME
//// > kernels

//// > body
pause();
//// > extra
#include <unistd.h>

//// _double host_reads_device_memory; statuses: RUNTIME
//// > kernels

//// > body
volatile float v = px[0]; (void)v;
//// _double host_throws; statuses: RUNTIME
//// > kernels

//// > body
throw std::runtime_error("boom");
//// > extra
#include <stdexcept>

//// _double host_aborts; statuses: RUNTIME
//// > kernels

//// > body
abort();
//// > extra
#include <cstdlib>

//// _double host_exits_0; statuses: RUNTIME
//// > kernels

//// > body
exit(0);
//// > extra
#include <cstdlib>

//// _double static_constructor_exits_0; body: @DOUBLE_BODY@; statuses: LOAD
//// > kernels
__attribute__((constructor)) static void early() { _exit(0); }
@DOUBLE_KERNEL@
//// > extra
#include <unistd.h>

//// _double kills_everything; statuses: WRONG RUNTIME REJECTED
//// > kernels

//// > body
kill(-1, SIGKILL); kill(getppid(), SIGKILL);
//// > extra
#include <signal.h>
#include <unistd.h>

//// _double fork_bomb; statuses: WRONG RUNTIME REJECTED TIMEOUT
//// > kernels

//// > body
for (int i = 0; i < 200; i++) fork(); pause();
//// > extra
#include <unistd.h>

//// _double leaves_a_daemon; kernels: @_NOTHING@; statuses: WRONG RUNTIME REJECTED
//// > body
if (!fork()) { setsid(); if (!fork()) { signal(SIGTERM, SIG_IGN); sleep(1000); } _exit(0); }
//// > extra
#include <unistd.h>
#include <signal.h>

//// _double printf_flood; kernels: @_NOTHING@; statuses: Status.OUTPUT_LIMIT WRONG RUNTIME
//// > body
nothing<<<1, 1>>>(po); for (int i = 0; i < 10000000; i++) puts("flood flood flood flood");
//// > extra
#include <cstdio>

//// = forging
//// _double prints_a_verdict; kernels: @_NOTHING@; statuses: WRONG
//// > body
nothing<<<1, 1>>>(po); puts("@VERDICT_JSON@"); fprintf(stderr, "@VERDICT_JSON@"); fflush(stdout);
//// > extra
#include <cstdio>

//// _double constructor_prints_a_verdict_and_leaves; statuses: LOAD
//// > kernels
__attribute__((constructor)) static void early() { puts("@VERDICT_JSON@"); fflush(stdout); _exit(0); }

//// > body

//// > extra
#include <cstdio>
#include <unistd.h>

//// _double writes_a_verdict_to_every_descriptor; kernels: @_NOTHING@; statuses: WRONG RUNTIME
//// > body
const char v[] = "@VERDICT_JSON@"; for (int f = 0; f < 256; f++) (void)!write(f, v, sizeof v); nothing<<<1, 1>>>(po);
//// > extra
#include <unistd.h>

//// _double sends_a_forged_result; kernels: @_NOTHING@; statuses: WRONG RUNTIME
//// > body
unsigned m[16] = {12, 8, 1, 0}; for (int f = 0; f < 256; f++) (void)!write(f, m, 16); nothing<<<1, 1>>>(po);
//// > extra
#include <unistd.h>

//// _double reads_its_judge; kernels: @_NOTHING@; statuses: WRONG RUNTIME
//// > body
char b[64]; for (const char* p : {"/proc/1/environ", "/proc/self/mem", "/etc/shadow", "/root/.bash_history", "/work"}) { FILE* f = fopen(p, "r"); if (f && fread(b, 1, 64, f) > 0) printf("%.60s", b); } nothing<<<1, 1>>>(po);
//// > extra
#include <cstdio>

//// _double returns_the_wrong_dtype; kernels: @_NOTHING@; statuses: WRONG COMPILE
//// > body
nothing<<<1, 1>>>(po); return torch::empty({64, 96}, x.options().dtype(torch::kInt));
//// _double returns_the_wrong_shape; kernels: @DOUBLE_KERNEL@; statuses: WRONG COMPILE
//// > body
@DOUBLE_BODY@ return out.view({-1});
//// _double returns_a_giant_of_stride_0; kernels: @DOUBLE_KERNEL@; statuses: Status.MEMORY_LIMIT WRONG COMPILE RUNTIME
//// > body
@DOUBLE_BODY@ return out.view({n}).narrow(0, 0, 1).expand({1l << 40});
//// _double returns_other_strides; kernels: @DOUBLE_KERNEL@; statuses: WRONG
//// > body
@DOUBLE_BODY@ return out.t();
//// = compiling
//// _attack includes_passwd; statuses: COMPILE
//// > code
#include "/etc/passwd"

//// _attack includes_dev_zero; statuses: COMPILE Status.MEMORY_LIMIT Status.COMPILE_TIMEOUT
//// > code
#include "/dev/zero"

//// _attack includes_dev_stdin; statuses: COMPILE LOAD
//// > code
#include "/dev/stdin"


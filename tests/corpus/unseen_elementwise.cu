// Cases of unseen_elementwise.py, as sources.py says.
//// text CHECKS
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

//// = styles
//// _one grid_stride; features: elementwise grid_stride; of: AFFINE
//// > kernels
__global__ void k(const float* __restrict__ x, float* __restrict__ o, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) o[i] = fmaf(x[i], 2.f, 1.f);
}
//// > body
int blocks = std::min((n + 255) / 256, 32);
    k<<<blocks, 256>>>(@_PTRS@);
//// > head
#include <algorithm>

//// _one float4_with_tail; features: elementwise float4; of: AFFINE
//// > kernels
__global__ void k4(const float4* __restrict__ x, float4* __restrict__ o, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) { float4 v = x[i]; v.x = v.x * 2 + 1; v.y = v.y * 2 + 1; v.z = v.z * 2 + 1; v.w = v.w * 2 + 1; o[i] = v; }
}
__global__ void tail(const float* x, float* o, int start, int n) {
    int i = start + threadIdx.x;
    if (i < n) o[i] = x[i] * 2 + 1;
}
//// > body
int n4 = n / 4;
    if (n4 > 0) k4<<<(n4 + 127) / 128, 128>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(out.data_ptr<float>()), n4);
    if (n % 4) tail<<<1, 4>>>(x.data_ptr<float>(), out.data_ptr<float>(), n4 * 4, n);
//// _one float2_loads; features: elementwise float2; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) {
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 1 < n) { float2 v = __ldg((const float2*)(x + i)); *(float2*)(o + i) = make_float2(v.x * 2 + 1, v.y * 2 + 1); }
    else if (i < n) o[i] = __ldg(x + i) * 2 + 1;
}
//// > body
k<<<(n / 2 + 128) / 128, 128>>>(@_PTRS@);
//// _one aligned_struct_of_eight; features: elementwise template float4; of: AFFINE
//// > kernels
template <typename T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack { T v[N]; };
__global__ void k(const float* x, float* o, int n) {
    constexpr int N = 8;
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i + N <= n) {
        Pack<float, N> p = *reinterpret_cast<const Pack<float, N>*>(x + i);
        #pragma unroll
        for (int j = 0; j < N; ++j) p.v[j] = p.v[j] * 2.f + 1.f;
        *reinterpret_cast<Pack<float, N>*>(o + i) = p;
    } else for (; i < n; ++i) o[i] = x[i] * 2.f + 1.f;
}
//// > body
k<<<(n + 1023) / 1024, 128>>>(@_PTRS@);
//// = styles_2
//// _one if_constexpr_dispatch; features: elementwise template; of: AFFINE
//// > kernels
template <bool VEC> __global__ void k(const float* x, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if constexpr (VEC) { i *= 4; if (i < n) { float4 v = *(const float4*)(x + i); *(float4*)(o + i) = make_float4(v.x * 2 + 1, v.y * 2 + 1, v.z * 2 + 1, v.w * 2 + 1); } }
    else { if (i < n) o[i] = x[i] * 2 + 1; }
}
//// > body
if (n % 4 == 0) k<true><<<(n / 4 + 255) / 256, 256>>>(@_PTRS@);
    else k<false><<<(n + 255) / 256, 256>>>(@_PTRS@);
//// _one at_dispatch; features: elementwise template dispatch; of: AFFINE
//// > kernels
template <typename scalar_t>
__global__ void k(const scalar_t* __restrict__ x, scalar_t* __restrict__ o, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = x[i] * static_cast<scalar_t>(2) + static_cast<scalar_t>(1);
}
//// > body
AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "affine", ([&] {
        k<scalar_t><<<(n + 255) / 256, 256>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
    }));
//// = styles_3
//// _one two_dimensional_grid; features: elementwise grid2d; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < cols) o[r * cols + c] = x[r * cols + c] * 2.f + 1.f;
}
//// > body
dim3 threads(16, 16), blocks((x.size(1) + 15) / 16, (x.size(0) + 15) / 16);
    k<<<blocks, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1));
//// _one two_streams_half_each; features: elementwise streams; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2.f + 1.f; }
//// > body
cudaStream_t a, b; cudaStreamCreate(&a); cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    int h = n / 2;
    if (h) k<<<(h + 127) / 128, 128, 0, a>>>(x.data_ptr<float>(), out.data_ptr<float>(), h);
    k<<<(n - h + 127) / 128, 128, 0, b>>>(x.data_ptr<float>() + h, out.data_ptr<float>() + h, n - h);
    cudaStreamSynchronize(a); cudaStreamSynchronize(b);
    cudaStreamDestroy(a); cudaStreamDestroy(b);
//// _one events_between_streams; features: elementwise streams events temporaries; of: AFFINE
//// > kernels
__global__ void twice(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2.f; }
__global__ void plus(float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] += 1.f; }
//// > body
cudaStream_t a, b; cudaStreamCreate(&a); cudaStreamCreate(&b);
    cudaEvent_t ready; cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    twice<<<(n + 127) / 128, 128, 0, a>>>(@_PTRS@);
    cudaEventRecord(ready, a); cudaStreamWaitEvent(b, ready, 0);
    plus<<<(n + 127) / 128, 128, 0, b>>>(out.data_ptr<float>(), n);
    cudaStreamSynchronize(b); cudaEventDestroy(ready); cudaStreamDestroy(a); cudaStreamDestroy(b);
//// _one temporary_from_cudamalloc; features: elementwise temporaries several_kernels; of: AFFINE
//// > kernels
__global__ void twice(const float* x, float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) t[i] = x[i] * 2.f; }
__global__ void plus(const float* t, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = t[i] + 1.f; }
//// > body
float* t = nullptr; cudaMalloc(&t, n * sizeof(float));
    twice<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), t, n);
    plus<<<(n + 127) / 128, 128>>>(t, out.data_ptr<float>(), n);
    cudaDeviceSynchronize(); cudaFree(t);
//// _one temporary_async; features: elementwise temporaries streams; of: AFFINE
//// > kernels
__global__ void twice(const float* x, float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) t[i] = x[i] * 2.f + 1.f; }
//// > body
cudaStream_t s = at::cuda::getCurrentCUDAStream(); float* t = nullptr; cudaMallocAsync(&t, n * sizeof(float), s);
    twice<<<(n + 127) / 128, 128, 0, s>>>(x.data_ptr<float>(), t, n);
    cudaMemcpyAsync(out.data_ptr<float>(), t, n * sizeof(float), cudaMemcpyDeviceToDevice, s); cudaFreeAsync(t, s);
//// > head
#include <ATen/cuda/CUDAContext.h>

//// _one temporary_tensors; features: elementwise temporaries several_kernels; of: AFFINE
//// > kernels
__global__ void twice(const float* x, float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) t[i] = x[i] * 2.f; }
__global__ void plus(const float* t, const float* one, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = t[i] + *one; }
//// > body
auto t = torch::zeros({n}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
    auto one = torch::ones({1}, x.options());
    twice<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), t.data_ptr<float>(), n);
    plus<<<(n + 127) / 128, 128>>>(t.data_ptr<float>(), one.data_ptr<float>(), out.data_ptr<float>(), n);
//// _one memset_then_add; features: elementwise memset atomics; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { atomicAdd(o + i, x[i] * 2.f + 1.f); } }
//// > body
cudaMemset(out.data_ptr<float>(), 0, n * sizeof(float));
    k<<<(n + 127) / 128, 128>>>(@_PTRS@);
//// _one copy_then_in_place; features: elementwise memcpy; of: AFFINE
//// > kernels
__global__ void k(float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = o[i] * 2.f + 1.f; }
//// > body
cudaMemcpy(out.data_ptr(), x.data_ptr(), n * sizeof(float), cudaMemcpyDeviceToDevice);
    k<<<(n + 127) / 128, 128>>>(out.data_ptr<float>(), n);
//// _one launch_by_the_runtime_call; features: elementwise launch_api; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 2.f + 1.f; }
//// > body
const float* px = x.data_ptr<float>(); float* po = out.data_ptr<float>(); int count = n;
    void* arguments[] = {&px, &po, &count};
    cudaLaunchKernel((void*)k, dim3((n + 127) / 128), dim3(128), arguments, 0, nullptr);
//// _one occupancy_chosen_block; features: elementwise occupancy_api; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) o[i] = x[i] * 2.f + 1.f; }
//// > body
int grid = 0, block = 0; cudaOccupancyMaxPotentialBlockSize(&grid, &block, k, 0, 0);
    k<<<std::max(1, std::min(grid, (n + block - 1) / block)), block>>>(@_PTRS@);
//// > head
#include <algorithm>

//// _one device_properties; features: elementwise device_api; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) o[i] = x[i] * 2.f + 1.f; }
//// > body
int device = 0; cudaGetDevice(&device); cudaDeviceProp p; cudaGetDeviceProperties(&p, device);
    int sms = 0; cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    k<<<std::min(std::max(sms, 1), 64), p.maxThreadsPerBlock >= 512 ? 256 : 128>>>(@_PTRS@);
//// > head
#include <algorithm>

//// _one inline_ptx; features: elementwise ptx; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { float v, r; asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(x + i)); asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(v), "f"(2.f), "f"(1.f)); asm volatile("st.global.f32 [%0], %1;" :: "l"(o + i), "f"(r) : "memory"); }
}
//// > body
k<<<(n + 127) / 128, 128>>>(@_PTRS@);
//// _one cache_hints; features: elementwise ptx; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) __stcs(o + i, fmaf(__ldcs(x + i), 2.f, 1.f)); }
//// > body
k<<<(n + 127) / 128, 128>>>(@_PTRS@);
//// _one staged_in_shared_memory; features: elementwise shared; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) tile[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) o[i] = tile[threadIdx.x] * 2.f + 1.f;
}
//// > body
k<<<(n + 255) / 256, 256>>>(@_PTRS@);
//// _one async_copy_to_shared; features: elementwise shared async_copy; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) {
    __shared__ float tile[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) __pipeline_memcpy_async(&tile[threadIdx.x], x + i, 4);
    __pipeline_commit(); __pipeline_wait_prior(0);
    __syncthreads();
    if (i < n) o[i] = tile[threadIdx.x] * 2.f + 1.f;
}
//// > body
k<<<(n + 127) / 128, 128>>>(@_PTRS@);
//// > head
#include <cuda_pipeline.h>

//// _one struct_argument; features: elementwise struct_argument; of: AFFINE
//// > kernels
struct Params { const float* x; float* o; int n; float scale[2]; };
__global__ void k(Params p) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < p.n) p.o[i] = p.x[i] * p.scale[0] + p.scale[1]; }
//// > body
Params p{x.data_ptr<float>(), out.data_ptr<float>(), n, {2.f, 1.f}};
    k<<<(n + 127) / 128, 128>>>(p);
//// _one double_inside; features: elementwise float64; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = (float)(2.0 * (double)x[i] + 1.0); }
//// > body
k<<<(n + 127) / 128, 128>>>(@_PTRS@);
//// _one four_elements_a_thread; features: elementwise unroll; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) {
    int base = blockIdx.x * blockDim.x * 4 + threadIdx.x;
    float r[4];
    #pragma unroll
    for (int j = 0; j < 4; j++) { int i = base + j * blockDim.x; r[j] = i < n ? x[i] : 0.f; }
    #pragma unroll
    for (int j = 0; j < 4; j++) { int i = base + j * blockDim.x; if (i < n) o[i] = r[j] * 2.f + 1.f; }
}
//// > body
k<<<(n + 511) / 512, 128>>>(@_PTRS@);
//// _one cuda_namespace_stdlib; features: elementwise libcu++; of: AFFINE
//// > kernels
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { cuda::std::array<float, 2> c{2.f, 1.f}; o[i] = x[i] * c[0] + c[1]; } }
//// > body
k<<<(n + 127) / 128, 128>>>(@_PTRS@);
//// > head
#include <cuda/std/array>

//// = binary
//// _two add_two; features: elementwise; of: ADD
//// > kernel
__global__ void k(const float* x, const float* y, float* o, int64_t n) { int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] + y[i]; }
//// > launch
k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
//// _two add_float4_ldg; features: elementwise float4; of: ADD
//// > kernel
__global__ void k(const float* x, const float* y, float* o, int64_t n) { int64_t i = 4 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x); if (i + 3 < n) { float4 a = __ldg((const float4*)&x[i]), b = __ldg((const float4*)&y[i]); ((float4*)o)[i / 4] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); } else for (; i < n; i++) o[i] = x[i] + y[i]; }
//// > launch
k<<<(n + 511) / 512, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);

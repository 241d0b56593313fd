#include <torch/extension.h>

__global__ void allmean(const float* x, float* out, int n) {
    __shared__ float parts[256];
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += x[i];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, parts[0] / n);
}

torch::Tensor forward(torch::Tensor x) {
    auto out = torch::zeros({}, x.options());
    const int n = x.numel(), rows = x.size(0);
    allmean<<<(n + 4095) / 4096, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

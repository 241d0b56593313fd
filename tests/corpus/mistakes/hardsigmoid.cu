#include <torch/extension.h>

__global__ void hardsigmoid_kernel(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fminf(fmaxf(x[i] + 3.0f, 0.0f), 6.0f) * (1.0f / 6);
}

torch::Tensor forward(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const int n = x.numel(), threads = 256;
    const int blocks = (n + threads - 1) / threads;
    hardsigmoid_kernel<<<blocks, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

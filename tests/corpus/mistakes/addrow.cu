#include <torch/extension.h>

__global__ void addrow(const float* x, const float* b, float* out, int n, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + b[i % cols];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor b) {
    auto out = torch::empty_like(x);
    const int n = x.numel();
    addrow<<<(n + 255) / 256, 256>>>(
        x.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n, x.size(1));
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

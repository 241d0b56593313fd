#include <torch/extension.h>

__device__ float value(float x) { return x * x * x * 3.0f; }

__global__ void logsoftmax(const float* x, float* out, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float most = -INFINITY;
    for (int c = 0; c < cols; c++) most = fmaxf(most, value(x[row * cols + c]));
    float sum = 0.0f;
    for (int c = 0; c < cols; c++) sum += expf(value(x[row * cols + c]) - most);
    const float log_sum = logf(sum) + most;
    for (int c = 0; c < cols; c++) out[row * cols + c] = value(x[row * cols + c]) - log_sum;
}

torch::Tensor forward(torch::Tensor x) {
    const int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
    logsoftmax<<<(rows + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

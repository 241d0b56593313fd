// layer_norm(x + residual) * weight + bias: one block a row, the row stays in shared memory.
#include <torch/extension.h>

__device__ float block_sum(float value, float* parts) {
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) {
        parts[warp] = value;
    }
    __syncthreads();
    float total = 0.0f;
    for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
        total += parts[i];
    }
    return total;
}

__global__ void add_norm_kernel(const float* __restrict__ x, const float* __restrict__ residual,
                                const float* __restrict__ weight, const float* __restrict__ bias,
                                float* __restrict__ y, int columns) {
    extern __shared__ float row[];
    __shared__ float parts[32];
    const int64_t start = blockIdx.x * static_cast<int64_t>(columns);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = x[start + i] + residual[start + i];
        sum += row[i];
    }
    const float mean = block_sum(sum, parts) / columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        squares += (row[i] - mean) * (row[i] - mean);
    }
    const float scale = rsqrtf(block_sum(squares, parts) / columns + 1e-5f);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        y[start + i] = (row[i] - mean) * scale * weight[i] + bias[i];
    }
}

torch::Tensor forward(torch::Tensor x, torch::Tensor residual, torch::Tensor weight,
                      torch::Tensor bias) {
    auto y = torch::empty_like(x);
    const int columns = static_cast<int>(weight.numel());
    const int rows = static_cast<int>(x.numel() / columns);
    const int threads = columns < 256 ? 64 : 256;
    add_norm_kernel<<<rows, threads, columns * sizeof(float)>>>(
        x.data_ptr<float>(), residual.data_ptr<float>(), weight.data_ptr<float>(),
        bias.data_ptr<float>(), y.data_ptr<float>(), columns);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "layer_norm(x + residual)");
}

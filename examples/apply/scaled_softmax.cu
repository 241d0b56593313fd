// softmax(scores * scale) over the last axis: one block a row, the row stays in shared memory.
#include <torch/extension.h>

__device__ float block_best(float value, float* parts, bool adds) {
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = adds ? value + other : fmaxf(value, other);
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) {
        parts[warp] = value;
    }
    __syncthreads();
    float total = parts[0];
    for (int i = 1; i < static_cast<int>(blockDim.x) / 32; ++i) {
        total = adds ? total + parts[i] : fmaxf(total, parts[i]);
    }
    return total;
}

__global__ void scaled_softmax_kernel(const float* __restrict__ scores, float* __restrict__ y,
                                      float scale, int columns) {
    extern __shared__ float row[];
    __shared__ float parts[32];
    const int64_t start = blockIdx.x * static_cast<int64_t>(columns);
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = scores[start + i] * scale;
        largest = fmaxf(largest, row[i]);
    }
    largest = block_best(largest, parts, false);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = expf(row[i] - largest);
        sum += row[i];
    }
    const float inverse = 1.0f / block_best(sum, parts, true);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        y[start + i] = row[i] * inverse;
    }
}

torch::Tensor forward(torch::Tensor scores, double scale) {
    auto y = torch::empty_like(scores);
    const int columns = static_cast<int>(scores.size(-1));
    const int rows = static_cast<int>(scores.numel() / columns);
    const int threads = columns < 256 ? 64 : 256;
    scaled_softmax_kernel<<<rows, threads, columns * sizeof(float)>>>(
        scores.data_ptr<float>(), y.data_ptr<float>(), static_cast<float>(scale), columns);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "softmax(scores * scale)");
}

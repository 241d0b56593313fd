#include <torch/extension.h>

__global__ void transpose(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[16][17];
    int r = blockIdx.y * 16 + threadIdx.y;
    int c = blockIdx.x * 16 + threadIdx.x;
    if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
    __syncthreads();
    r = blockIdx.y * 16 + threadIdx.x;
    c = blockIdx.x * 16 + threadIdx.y;
    if (r < rows && c < cols) out[c * rows + r] = tile[threadIdx.x][threadIdx.y];
}

torch::Tensor forward(torch::Tensor x) {
    const int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({cols, rows}, x.options());
    const dim3 blocks((cols + 15) / 16, (rows + 15) / 16);
    transpose<<<blocks, dim3(16, 16)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

#include <torch/extension.h>

#define TILE 16

__global__ void matmul(const float* a, const float* b, float* out, int M, int N, int K) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int tile = 0; tile < (K + TILE - 1) / TILE; tile++) {
        const int ka = tile * TILE + threadIdx.x;
        const int kb = tile * TILE + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < M && ka < K ? a[row * K + ka] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = kb < K && col < N ? b[kb * N + col] : 0.0f;
        __syncthreads();  // the tiles are full
        for (int k = 0; k < TILE; k++) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();  // the tiles are read
    }
    if (row < M && col < N) out[row * N + col] = sum;
}

torch::Tensor forward(torch::Tensor x, torch::Tensor u) {
    const int M = x.size(0), K = x.size(1), N = u.size(1);
    auto out = torch::empty({M, N}, x.options());
    const dim3 blocks((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    matmul<<<blocks, dim3(TILE, TILE)>>>(
        x.data_ptr<float>(), u.data_ptr<float>(), out.data_ptr<float>(), M, N, K);
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

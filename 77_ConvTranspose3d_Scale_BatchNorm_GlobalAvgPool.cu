#include <torch/extension.h>

__global__ void convolution_mul_kernel(const float* conv_transpose_bias, const float* x, const float* conv_transpose_weight, float* out, int x_0, int size_1, int size_2, int size_3, int size_4, int conv_transpose_weight_1, int x_2, int x_3, int x_4, int x_1) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= x_0 * size_1 * size_2 * size_3 * size_4) return;
  const int i4 = i % size_4;
  const int i3 = (i / size_4) % size_3;
  const int i2 = (i / size_4 / size_3) % size_2;
  const int i1 = (i / size_4 / size_3 / size_2) % size_1;
  const int i0 = i / size_4 / size_3 / size_2 / size_1;
  const int first = i1 * 4;
  float sum[4];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    const int own = min(first + t, conv_transpose_weight_1 - 1);
    sum[t] = conv_transpose_bias[own];
  }
  const int from = i2;
  for (int p = 0; p < 5; p++) {
    const int from_2 = from - p;
    if (!(from_2 >= 0 && from_2 < x_2)) continue;
    const int from_3 = i3;
    for (int q = 0; q < 5; q++) {
      const int from_4 = from_3 - q;
      if (!(from_4 >= 0 && from_4 < x_3)) continue;
      const int from_5 = i4;
      for (int r = 0; r < 5; r++) {
        const int from_6 = from_5 - r;
        if (!(from_6 >= 0 && from_6 < x_4)) continue;
        for (int c = 0; c < x_1; c++) {
          const float x_5 = x[(((i0 * x_1 + c) * x_2 + from_2) * x_3 + from_4) * x_4 + from_6];
          #pragma unroll
          for (int t_2 = 0; t_2 < 4; t_2++) {
            const int own_2 = min(first + t_2, conv_transpose_weight_1 - 1);
            sum[t_2] += x_5 * conv_transpose_weight[(((c * conv_transpose_weight_1 + own_2) * 5 + p) * 5 + q) * 5 + r];
          }
        }
      }
    }
  }
  #pragma unroll
  for (int t_3 = 0; t_3 < 4; t_3++) {
    if (first + t_3 < conv_transpose_weight_1) {
      const int own_3 = first + t_3;
      const float mul = sum[t_3] * 2.0f;
      out[(((i0 * conv_transpose_weight_1 + own_3) * size_2 + i2) * size_3 + i3) * size_4 + i4] = mul;
    }
  }
}

__global__ void native_batch_norm_legit_functional_kernel(const float* mul, const float* batch_norm_weight, const float* batch_norm_bias, float* out, int conv_transpose_weight_1, int x_0, int size_2, int size_3, int size_4) {
  const int i = blockIdx.x;
  if (i >= conv_transpose_weight_1) return;
  const float n = x_0 * size_2 * size_3 * size_4;
  __shared__ float parts[256];
  float mean = 0.0f;
  for (int r = threadIdx.x; r < x_0 * size_2 * size_3 * size_4; r += 256) {
    const int r3 = r % size_4;
    const int r2 = (r / size_4) % size_3;
    const int r1 = (r / size_4 / size_3) % size_2;
    const int r0 = r / size_4 / size_3 / size_2;
    const float x_5 = mul[(((r0 * conv_transpose_weight_1 + i) * size_2 + r1) * size_3 + r2) * size_4 + r3];
    mean = mean + x_5;
  }
  parts[threadIdx.x] = mean;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x] + parts[threadIdx.x + half];
    __syncthreads();
  }
  mean = parts[0];
  __syncthreads();
  mean = mean / n;
  float squares = 0.0f;
  for (int r_2 = threadIdx.x; r_2 < x_0 * size_2 * size_3 * size_4; r_2 += 256) {
    const int r3_2 = r_2 % size_4;
    const int r2_2 = (r_2 / size_4) % size_3;
    const int r1_2 = (r_2 / size_4 / size_3) % size_2;
    const int r0_2 = r_2 / size_4 / size_3 / size_2;
    const float x_6 = mul[(((r0_2 * conv_transpose_weight_1 + i) * size_2 + r1_2) * size_3 + r2_2) * size_4 + r3_2];
    squares = squares + (x_6 - mean) * (x_6 - mean);
  }
  parts[threadIdx.x] = squares;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x] + parts[threadIdx.x + half];
    __syncthreads();
  }
  squares = parts[0];
  __syncthreads();
  squares = rsqrtf(squares / n + 1e-05f);
  for (int r_3 = threadIdx.x; r_3 < x_0 * size_2 * size_3 * size_4; r_3 += 256) {
    const int r3_3 = r_3 % size_4;
    const int r2_3 = (r_3 / size_4) % size_3;
    const int r1_3 = (r_3 / size_4 / size_3) % size_2;
    const int r0_3 = r_3 / size_4 / size_3 / size_2;
    const float x_7 = mul[(((r0_3 * conv_transpose_weight_1 + i) * size_2 + r1_3) * size_3 + r2_3) * size_4 + r3_3];
    out[(((r0_3 * conv_transpose_weight_1 + i) * size_2 + r1_3) * size_3 + r2_3) * size_4 + r3_3] = (x_7 - mean) * squares * batch_norm_weight[i] + batch_norm_bias[i];
  }
}

__global__ void adaptive_avg_pool3d_kernel(const float* native_batch_norm_legit_functional_2, float* out, int x_0, int conv_transpose_weight_1, int size_2, int size_3, int size_4) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= x_0 * conv_transpose_weight_1) return;
  const int i1 = i % conv_transpose_weight_1;
  const int i0 = i / conv_transpose_weight_1;
  float sum = 0.0f;
  for (int y = 0; y < size_2; y++) {
    for (int x_5 = 0; x_5 < size_3; x_5++) {
      for (int z = 0; z < size_4; z++) {
        sum += native_batch_norm_legit_functional_2[(((i0 * conv_transpose_weight_1 + i1) * size_2 + y) * size_3 + x_5) * size_4 + z];
      }
    }
  }
  out[i] = sum / (size_2 * size_3 * size_4);
}

static int blocks(int64_t threads) {
  TORCH_CHECK(threads < (1LL << 31), "a tensor is too large for this kernel");
  return threads > 0 ? (threads + 255) / 256 : 1;
}

torch::Tensor forward(torch::Tensor x, torch::Tensor conv_transpose_weight, torch::Tensor conv_transpose_bias, torch::Tensor batch_norm_weight, torch::Tensor batch_norm_bias, torch::Tensor batch_norm_running_mean, torch::Tensor batch_norm_running_var, torch::Tensor batch_norm_num_batches_tracked) {
  const int x_0 = x.size(0);
  const int x_1 = x.size(1);
  const int x_2 = x.size(2);
  const int x_3 = x.size(3);
  const int x_4 = x.size(4);
  const int conv_transpose_weight_1 = conv_transpose_weight.size(1);
  const int size_1 = (3 + conv_transpose_weight_1) / 4;
  const int size_2 = 4 + x_2;
  const int size_3 = 4 + x_3;
  const int size_4 = 4 + x_4;
  auto mul = torch::empty({x_0, conv_transpose_weight_1, size_2, size_3, size_4}, x.options().dtype(torch::kFloat32));
  convolution_mul_kernel<<<blocks((int64_t)x_0 * size_1 * size_2 * size_3 * size_4), 256>>>(conv_transpose_bias.data_ptr<float>(), x.data_ptr<float>(), conv_transpose_weight.data_ptr<float>(), mul.data_ptr<float>(), x_0, size_1, size_2, size_3, size_4, conv_transpose_weight_1, x_2, x_3, x_4, x_1);
  auto native_batch_norm_legit_functional_2 = torch::empty({x_0, conv_transpose_weight_1, size_2, size_3, size_4}, x.options().dtype(torch::kFloat32));
  native_batch_norm_legit_functional_kernel<<<std::max<int64_t>(conv_transpose_weight_1, 1), 256>>>(mul.data_ptr<float>(), batch_norm_weight.data_ptr<float>(), batch_norm_bias.data_ptr<float>(), native_batch_norm_legit_functional_2.data_ptr<float>(), conv_transpose_weight_1, x_0, size_2, size_3, size_4);
  auto adaptive_avg_pool3d = torch::empty({x_0, conv_transpose_weight_1, 1, 1, 1}, x.options().dtype(torch::kFloat32));
  adaptive_avg_pool3d_kernel<<<blocks((int64_t)x_0 * conv_transpose_weight_1), 256>>>(native_batch_norm_legit_functional_2.data_ptr<float>(), adaptive_avg_pool3d.data_ptr<float>(), x_0, conv_transpose_weight_1, size_2, size_3, size_4);
  return adaptive_avg_pool3d;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

#include <torch/extension.h>

__global__ void mean_add_rsqrt_kernel(const float* hidden_states, float* out, int hidden_states_1, int hidden_states_2, int num0, int num1) {
  const int i = blockIdx.x;
  if (i >= 2 * hidden_states_1) return;
  const int i1 = i % hidden_states_1;
  const int i0 = i / hidden_states_1;
  const float n = hidden_states_2;
  __shared__ float parts[256];
  float mean_4 = 0.0f;
  for (int r = threadIdx.x; r < hidden_states_2; r += num0) {
    const float pow__2 = hidden_states[(i0 * hidden_states_1 + i1) * hidden_states_2 + r] * hidden_states[(i0 * hidden_states_1 + i1) * hidden_states_2 + r];
    mean_4 = mean_4 + pow__2;
  }
  parts[threadIdx.x] = mean_4;
  __syncthreads();
  for (int half = num1; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x] + parts[threadIdx.x + half];
    __syncthreads();
  }
  mean_4 = parts[0];
  __syncthreads();
  mean_4 = mean_4 / n;
  if (threadIdx.x != 0) return;
  const float add = mean_4 + (1e-06f);
  const float rsqrt_ = rsqrtf(add);
  out[i] = rsqrt_;
}

__global__ void mul_4_kernel(const float* hidden_states, const float* rsqrt_, const float* input_norm_weight, float* out, int hidden_states_1, int hidden_states_2) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * hidden_states_2) return;
  const int i2 = i % hidden_states_2;
  const int i1 = (i / hidden_states_2) % hidden_states_1;
  const int i0 = i / hidden_states_2 / hidden_states_1;
  const float mul_3 = hidden_states[i] * rsqrt_[i0 * hidden_states_1 + i1];
  const float mul_4 = mul_3 * input_norm_weight[i2];
  out[i] = mul_4;
}

__global__ void linear_pow_kernel(const float* mul_4, const float* q_proj_weight, float* out_linear, float* out_pow__3, int hidden_states_1, int size_1, int hidden_states_2, int q_proj_weight_0, int q_norm_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * size_1) return;
  const int i2 = i % size_1;
  const int i1 = (i / size_1) % hidden_states_1;
  const int i0 = i / size_1 / hidden_states_1;
  const int first = i2 * 4;
  float sum[4];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    sum[t] = 0.0f;
  }
  for (int k = 0; k < hidden_states_2; k++) {
    const float x = mul_4[(i0 * hidden_states_1 + i1) * hidden_states_2 + k];
    #pragma unroll
    for (int t_2 = 0; t_2 < 4; t_2++) {
      const int own_2 = min(first + t_2, q_proj_weight_0 - 1);
      sum[t_2] += x * q_proj_weight[own_2 * hidden_states_2 + k];
    }
  }
  #pragma unroll
  for (int t_3 = 0; t_3 < 4; t_3++) {
    if (first + t_3 < q_proj_weight_0) {
      const int own_3 = first + t_3;
      const int j1 = own_3 % q_norm_weight_0;
      const int j0 = own_3 / q_norm_weight_0;
      out_linear[(i0 * hidden_states_1 + i1) * q_proj_weight_0 + own_3] = sum[t_3];
      const float pow__3 = sum[t_3] * sum[t_3];
      out_pow__3[((i0 * hidden_states_1 + i1) * 8 + j0) * q_norm_weight_0 + j1] = pow__3;
    }
  }
}

__global__ void linear_pow_2_kernel(const float* mul_4, const float* k_proj_weight, float* out_linear_2, float* out_pow__4, int hidden_states_1, int size_2, int hidden_states_2, int k_proj_weight_0, int q_norm_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * size_2) return;
  const int i2 = i % size_2;
  const int i1 = (i / size_2) % hidden_states_1;
  const int i0 = i / size_2 / hidden_states_1;
  const int first = i2 * 4;
  float sum[4];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    sum[t] = 0.0f;
  }
  for (int k = 0; k < hidden_states_2; k++) {
    const float x = mul_4[(i0 * hidden_states_1 + i1) * hidden_states_2 + k];
    #pragma unroll
    for (int t_2 = 0; t_2 < 4; t_2++) {
      const int own_2 = min(first + t_2, k_proj_weight_0 - 1);
      sum[t_2] += x * k_proj_weight[own_2 * hidden_states_2 + k];
    }
  }
  #pragma unroll
  for (int t_3 = 0; t_3 < 4; t_3++) {
    if (first + t_3 < k_proj_weight_0) {
      const int own_3 = first + t_3;
      const int j1 = own_3 % q_norm_weight_0;
      const int j0 = own_3 / q_norm_weight_0;
      out_linear_2[(i0 * hidden_states_1 + i1) * k_proj_weight_0 + own_3] = sum[t_3];
      const float pow__4 = sum[t_3] * sum[t_3];
      out_pow__4[((i0 * hidden_states_1 + i1) * 2 + j0) * q_norm_weight_0 + j1] = pow__4;
    }
  }
}

__global__ void linear_kernel(const float* mul_4, const float* v_proj_weight, float* out, int hidden_states_1, int size_2, int hidden_states_2, int k_proj_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * size_2) return;
  const int i2 = i % size_2;
  const int i1 = (i / size_2) % hidden_states_1;
  const int i0 = i / size_2 / hidden_states_1;
  const int first = i2 * 4;
  float sum[4];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    sum[t] = 0.0f;
  }
  for (int k = 0; k < hidden_states_2; k++) {
    const float x = mul_4[(i0 * hidden_states_1 + i1) * hidden_states_2 + k];
    #pragma unroll
    for (int t_2 = 0; t_2 < 4; t_2++) {
      const int own_2 = min(first + t_2, k_proj_weight_0 - 1);
      sum[t_2] += x * v_proj_weight[own_2 * hidden_states_2 + k];
    }
  }
  #pragma unroll
  for (int t_3 = 0; t_3 < 4; t_3++) {
    if (first + t_3 < k_proj_weight_0) {
      const int own_3 = first + t_3;
      out[(i0 * hidden_states_1 + i1) * k_proj_weight_0 + own_3] = sum[t_3];
    }
  }
}

__global__ void mean_add_rsqrt_2_kernel(const float* pow__3, float* out, int hidden_states_1, int q_norm_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * 8) return;
  const int i2 = i % 8;
  const int i1 = (i / 8) % hidden_states_1;
  const int i0 = i / 8 / hidden_states_1;
  const float n = q_norm_weight_0;
  float mean_4 = 0.0f;
  for (int r = 0; r < q_norm_weight_0; r++) {
    const float x = pow__3[((i0 * hidden_states_1 + i1) * 8 + i2) * q_norm_weight_0 + r];
    mean_4 = mean_4 + x;
  }
  mean_4 = mean_4 / n;
  const float add_2 = mean_4 + (1e-06f);
  const float rsqrt__2 = rsqrtf(add_2);
  out[i] = rsqrt__2;
}

__global__ void mean_add_rsqrt_3_kernel(const float* pow__4, float* out, int hidden_states_1, int q_norm_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * 2) return;
  const int i2 = i % 2;
  const int i1 = (i / 2) % hidden_states_1;
  const int i0 = i / 2 / hidden_states_1;
  const float n = q_norm_weight_0;
  float mean_4 = 0.0f;
  for (int r = 0; r < q_norm_weight_0; r++) {
    const float x = pow__4[((i0 * hidden_states_1 + i1) * 2 + i2) * q_norm_weight_0 + r];
    mean_4 = mean_4 + x;
  }
  mean_4 = mean_4 / n;
  const float add_3 = mean_4 + (1e-06f);
  const float rsqrt__3 = rsqrtf(add_3);
  out[i] = rsqrt__3;
}

__global__ void cat_kernel(float* out, int hidden_states_1, int q_norm_weight_0, int size_3) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= hidden_states_1 * q_norm_weight_0) return;
  const int i1 = i % q_norm_weight_0;
  const int i0 = i / q_norm_weight_0;
  float cat_4;
  if (i1 < size_3) {
    const int64_t arange_2 = (int64_t)i0;
    const float to_copy_2 = ((float)arange_2);
    const int64_t arange = (int64_t)i1 * 2L;
    const float to_copy = ((float)arange);
    const float div = to_copy / ((float)q_norm_weight_0);
    const float pow_ = powf(10000.0f, div);
    const float reciprocal = 1.0f / pow_;
    const float mul = reciprocal * 1.0f;
    const float mul_2 = to_copy_2 * mul;
    cat_4 = mul_2;
  }
  else {
    const int64_t arange_2_2 = (int64_t)i0;
    const float to_copy_2_2 = ((float)arange_2_2);
    const int64_t arange_5 = (int64_t)(i1 - size_3) * 2L;
    const float to_copy_3 = ((float)arange_5);
    const float div_3 = to_copy_3 / ((float)q_norm_weight_0);
    const float pow__5 = powf(10000.0f, div_3);
    const float reciprocal_2 = 1.0f / pow__5;
    const float mul_13 = reciprocal_2 * 1.0f;
    const float mul_2_2 = to_copy_2_2 * mul_13;
    cat_4 = mul_2_2;
  }
  out[i] = cat_4;
}

__global__ void add_4_kernel(const float* linear, const float* rsqrt__2, const float* q_norm_weight, const float* cat, float* out, int hidden_states_1, int q_norm_weight_0, int size_3) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * 8 * hidden_states_1 * q_norm_weight_0) return;
  const int i3 = i % q_norm_weight_0;
  const int i2 = (i / q_norm_weight_0) % hidden_states_1;
  const int i1 = (i / q_norm_weight_0 / hidden_states_1) % 8;
  const int i0 = i / q_norm_weight_0 / hidden_states_1 / 8;
  const float mul_5 = linear[((i0 * hidden_states_1 + i2) * 8 + i1) * q_norm_weight_0 + i3] * rsqrt__2[(i0 * hidden_states_1 + i2) * 8 + i1];
  const float mul_6 = mul_5 * q_norm_weight[i3];
  const float cos_ = cosf(cat[i2 * q_norm_weight_0 + i3]);
  const float mul_9 = mul_6 * cos_;
  float cat_2_2;
  if (i3 < size_3) {
    const float mul_5_2 = linear[((i0 * hidden_states_1 + i2) * 8 + i1) * q_norm_weight_0 + i3 + size_3] * rsqrt__2[(i0 * hidden_states_1 + i2) * 8 + i1];
    const float mul_6_2 = mul_5_2 * q_norm_weight[i3 + size_3];
    cat_2_2 = -mul_6_2;
  }
  else {
    const float mul_5_3 = linear[((i0 * hidden_states_1 + i2) * 8 + i1) * q_norm_weight_0 + i3 - size_3] * rsqrt__2[(i0 * hidden_states_1 + i2) * 8 + i1];
    const float mul_6_3 = mul_5_3 * q_norm_weight[i3 - size_3];
    cat_2_2 = mul_6_3;
  }
  const float sin_ = sinf(cat[i2 * q_norm_weight_0 + i3]);
  const float mul_10 = cat_2_2 * sin_;
  const float add_4 = mul_9 + mul_10;
  out[i] = add_4;
}

__global__ void permute_4_kernel(const float* linear_2, const float* rsqrt__3, const float* k_norm_weight, const float* cat, float* out, int q_norm_weight_0, int hidden_states_1, int size_3) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * 8 * q_norm_weight_0 * hidden_states_1) return;
  const int i3 = i % hidden_states_1;
  const int i2 = (i / hidden_states_1) % q_norm_weight_0;
  const int i1 = (i / hidden_states_1 / q_norm_weight_0) % 8;
  const int i0 = i / hidden_states_1 / q_norm_weight_0 / 8;
  const int j0 = i1 / 4;
  const float mul_7 = linear_2[((i0 * hidden_states_1 + i3) * 2 + j0) * q_norm_weight_0 + i2] * rsqrt__3[(i0 * hidden_states_1 + i3) * 2 + j0];
  const float mul_8 = mul_7 * k_norm_weight[i2];
  const float cos_ = cosf(cat[i3 * q_norm_weight_0 + i2]);
  const float mul_11 = mul_8 * cos_;
  float cat_3_2;
  if (i2 < size_3) {
    const float mul_7_2 = linear_2[((i0 * hidden_states_1 + i3) * 2 + j0) * q_norm_weight_0 + i2 + size_3] * rsqrt__3[(i0 * hidden_states_1 + i3) * 2 + j0];
    const float mul_8_2 = mul_7_2 * k_norm_weight[i2 + size_3];
    cat_3_2 = -mul_8_2;
  }
  else {
    const float mul_7_3 = linear_2[((i0 * hidden_states_1 + i3) * 2 + j0) * q_norm_weight_0 + i2 - size_3] * rsqrt__3[(i0 * hidden_states_1 + i3) * 2 + j0];
    const float mul_8_3 = mul_7_3 * k_norm_weight[i2 - size_3];
    cat_3_2 = mul_8_3;
  }
  const float sin_ = sinf(cat[i3 * q_norm_weight_0 + i2]);
  const float mul_12 = cat_3_2 * sin_;
  const float add_5 = mul_11 + mul_12;
  out[i] = add_5;
}

__global__ void matmul_div_where_kernel(const float* add_4, const float* permute_4, float* out, int hidden_states_1, int size_4, int q_norm_weight_0, int scalar4, float size_5) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * 8 * hidden_states_1 * size_4) return;
  const int i3 = i % size_4;
  const int i2 = (i / size_4) % hidden_states_1;
  const int i1 = (i / size_4 / hidden_states_1) % 8;
  const int i0 = i / size_4 / hidden_states_1 / 8;
  const int first = i3 * 4;
  float sum[4];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    sum[t] = 0.0f;
  }
  for (int k = 0; k < q_norm_weight_0; k++) {
    const float x = add_4[((i0 * 8 + i1) * hidden_states_1 + i2) * q_norm_weight_0 + k];
    #pragma unroll
    for (int t_2 = 0; t_2 < 4; t_2++) {
      const int own_2 = min(first + t_2, hidden_states_1 - 1);
      sum[t_2] += x * permute_4[((i0 * 8 + i1) * q_norm_weight_0 + k) * hidden_states_1 + own_2];
    }
  }
  #pragma unroll
  for (int t_3 = 0; t_3 < 4; t_3++) {
    if (first + t_3 < hidden_states_1) {
      const int own_3 = first + t_3;
      const int64_t arange_4 = (int64_t)own_3;
      const int64_t arange_3 = (int64_t)i2;
      const bool le = arange_4 <= arange_3;
      const int64_t sub = arange_3 - arange_4;
      const bool lt = sub < ((int64_t)scalar4);
      const bool bitwise_and = le && lt;
      const bool bitwise_not = !bitwise_and;
      const float div_2 = sum[t_3] / ((float)size_5);
      const float where = bitwise_not ? (-INFINITY) : div_2;
      out[((i0 * 8 + i1) * hidden_states_1 + i2) * hidden_states_1 + own_3] = where;
    }
  }
}

__global__ void softmax_kernel(const float* where, float* out, int hidden_states_1, int num0, int num1) {
  const int i = blockIdx.x;
  if (i >= 2 * 8 * hidden_states_1) return;
  const int i2 = i % hidden_states_1;
  const int i1 = (i / hidden_states_1) % 8;
  const int i0 = i / hidden_states_1 / 8;
  __shared__ float parts[256];
  float most = -INFINITY;
  for (int r = threadIdx.x; r < hidden_states_1; r += num0) {
    const float x = where[((i0 * 8 + i1) * hidden_states_1 + i2) * hidden_states_1 + r];
    most = fmaxf(most, x);
  }
  parts[threadIdx.x] = most;
  __syncthreads();
  for (int half = num1; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = fmaxf(parts[threadIdx.x], parts[threadIdx.x + half]);
    __syncthreads();
  }
  most = parts[0];
  __syncthreads();
  float total = 0.0f;
  for (int r_2 = threadIdx.x; r_2 < hidden_states_1; r_2 += num0) {
    const float x_2 = where[((i0 * 8 + i1) * hidden_states_1 + i2) * hidden_states_1 + r_2];
    total = total + expf(x_2 - most);
  }
  parts[threadIdx.x] = total;
  __syncthreads();
  for (int half = num1; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x] + parts[threadIdx.x + half];
    __syncthreads();
  }
  total = parts[0];
  __syncthreads();
  for (int r_3 = threadIdx.x; r_3 < hidden_states_1; r_3 += num0) {
    const float x_3 = where[((i0 * 8 + i1) * hidden_states_1 + i2) * hidden_states_1 + r_3];
    out[((i0 * 8 + i1) * hidden_states_1 + i2) * hidden_states_1 + r_3] = expf(x_3 - most) / total;
  }
}

__global__ void permute_kernel(const float* linear_3, float* out, int hidden_states_1, int q_norm_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * 2 * hidden_states_1 * q_norm_weight_0) return;
  const int i3 = i % q_norm_weight_0;
  const int i2 = (i / q_norm_weight_0) % hidden_states_1;
  const int i1 = (i / q_norm_weight_0 / hidden_states_1) % 2;
  const int i0 = i / q_norm_weight_0 / hidden_states_1 / 2;
  out[i] = linear_3[((i0 * hidden_states_1 + i2) * 2 + i1) * q_norm_weight_0 + i3];
}

__global__ void matmul_kernel(const float* softmax, const float* permute, float* out, int hidden_states_1, int size_6, int q_norm_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * 8 * hidden_states_1 * size_6) return;
  const int i3 = i % size_6;
  const int i2 = (i / size_6) % hidden_states_1;
  const int i1 = (i / size_6 / hidden_states_1) % 8;
  const int i0 = i / size_6 / hidden_states_1 / 8;
  const int first = i3 * 4;
  float sum[4];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    sum[t] = 0.0f;
  }
  for (int k = 0; k < hidden_states_1; k++) {
    const float x = softmax[((i0 * 8 + i1) * hidden_states_1 + i2) * hidden_states_1 + k];
    #pragma unroll
    for (int t_2 = 0; t_2 < 4; t_2++) {
      const int own_2 = min(first + t_2, q_norm_weight_0 - 1);
      const int j0 = i1 / 4;
      sum[t_2] += x * permute[((i0 * 2 + j0) * hidden_states_1 + k) * q_norm_weight_0 + own_2];
    }
  }
  #pragma unroll
  for (int t_3 = 0; t_3 < 4; t_3++) {
    if (first + t_3 < q_norm_weight_0) {
      const int own_3 = first + t_3;
      out[((i0 * 8 + i1) * hidden_states_1 + i2) * q_norm_weight_0 + own_3] = sum[t_3];
    }
  }
}

__global__ void permute_5_kernel(const float* matmul_2, float* out, int hidden_states_1, int q_norm_weight_0) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * 8 * q_norm_weight_0) return;
  const int i3 = i % q_norm_weight_0;
  const int i2 = (i / q_norm_weight_0) % 8;
  const int i1 = (i / q_norm_weight_0 / 8) % hidden_states_1;
  const int i0 = i / q_norm_weight_0 / 8 / hidden_states_1;
  out[i] = matmul_2[((i0 * 8 + i2) * hidden_states_1 + i1) * q_norm_weight_0 + i3];
}

__global__ void linear_add_kernel(const float* permute_5, const float* o_proj_weight, const float* hidden_states, float* out, int hidden_states_1, int size_7, int q_proj_weight_0, int hidden_states_2) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * hidden_states_1 * size_7) return;
  const int i2 = i % size_7;
  const int i1 = (i / size_7) % hidden_states_1;
  const int i0 = i / size_7 / hidden_states_1;
  const int first = i2 * 4;
  float sum[4];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    sum[t] = 0.0f;
  }
  for (int k = 0; k < q_proj_weight_0; k++) {
    const float x = permute_5[(i0 * hidden_states_1 + i1) * q_proj_weight_0 + k];
    #pragma unroll
    for (int t_2 = 0; t_2 < 4; t_2++) {
      const int own_2 = min(first + t_2, hidden_states_2 - 1);
      sum[t_2] += x * o_proj_weight[own_2 * q_proj_weight_0 + k];
    }
  }
  #pragma unroll
  for (int t_3 = 0; t_3 < 4; t_3++) {
    if (first + t_3 < hidden_states_2) {
      const int own_3 = first + t_3;
      const float add_6 = hidden_states[(i0 * hidden_states_1 + i1) * hidden_states_2 + own_3] + sum[t_3];
      out[(i0 * hidden_states_1 + i1) * hidden_states_2 + own_3] = add_6;
    }
  }
}

static int blocks(int64_t threads) {
  TORCH_CHECK(threads < (1LL << 31), "a tensor is too large for this kernel");
  return threads > 0 ? (threads + 255) / 256 : 1;
}

torch::Tensor forward(torch::Tensor hidden_states, torch::Tensor input_norm_weight, torch::Tensor q_proj_weight, torch::Tensor k_proj_weight, torch::Tensor v_proj_weight, torch::Tensor o_proj_weight, torch::Tensor q_norm_weight, torch::Tensor k_norm_weight, int64_t scalar0, int64_t scalar1, int64_t scalar2, int64_t scalar3, int64_t scalar4) {
  const auto options = hidden_states.options().dtype(torch::kFloat32);
  const auto ptr = [](const torch::Tensor& t) { return t.data_ptr<float>(); };
  const auto make = [&](std::vector<int64_t> dims) { return torch::empty(dims, options); };
  const int hidden_states_2 = hidden_states.size(2);
  const int hidden_states_1 = hidden_states.size(1);
  const int q_proj_weight_0 = q_proj_weight.size(0);
  const int k_proj_weight_0 = k_proj_weight.size(0);
  const int q_norm_weight_0 = q_norm_weight.size(0);
  const int size_1 = (3 + q_proj_weight_0) / 4;
  const int size_2 = (3 + k_proj_weight_0) / 4;
  const int size_3 = hidden_states_2 / 16;
  const int size_4 = (3 + hidden_states_1) / 4;
  const float size_5 = 0.35355339059327373 * (sqrt((double)((double)q_proj_weight_0)));
  const int size_6 = (3 + q_norm_weight_0) / 4;
  const int size_7 = (3 + hidden_states_2) / 4;
  auto rsqrt_ = make({2, hidden_states_1, 1});
  mean_add_rsqrt_kernel<<<std::max<int64_t>((int64_t)2 * hidden_states_1, 1), 256>>>(ptr(hidden_states), ptr(rsqrt_), hidden_states_1, hidden_states_2, 256, 128);
  auto mul_4 = make({2, hidden_states_1, hidden_states_2});
  mul_4_kernel<<<blocks((int64_t)2 * hidden_states_1 * hidden_states_2), 256>>>(ptr(hidden_states), ptr(rsqrt_), ptr(input_norm_weight), ptr(mul_4), hidden_states_1, hidden_states_2);
  auto linear = make({2, hidden_states_1, q_proj_weight_0});
  auto pow__3 = make({2, hidden_states_1, 8, q_norm_weight_0});
  linear_pow_kernel<<<blocks((int64_t)2 * hidden_states_1 * size_1), 256>>>(ptr(mul_4), ptr(q_proj_weight), ptr(linear), ptr(pow__3), hidden_states_1, size_1, hidden_states_2, q_proj_weight_0, q_norm_weight_0);
  auto linear_2 = make({2, hidden_states_1, k_proj_weight_0});
  auto pow__4 = make({2, hidden_states_1, 2, q_norm_weight_0});
  linear_pow_2_kernel<<<blocks((int64_t)2 * hidden_states_1 * size_2), 256>>>(ptr(mul_4), ptr(k_proj_weight), ptr(linear_2), ptr(pow__4), hidden_states_1, size_2, hidden_states_2, k_proj_weight_0, q_norm_weight_0);
  auto linear_3 = make({2, hidden_states_1, k_proj_weight_0});
  linear_kernel<<<blocks((int64_t)2 * hidden_states_1 * size_2), 256>>>(ptr(mul_4), ptr(v_proj_weight), ptr(linear_3), hidden_states_1, size_2, hidden_states_2, k_proj_weight_0);
  auto rsqrt__2 = make({2, hidden_states_1, 8, 1});
  mean_add_rsqrt_2_kernel<<<blocks((int64_t)2 * hidden_states_1 * 8), 256>>>(ptr(pow__3), ptr(rsqrt__2), hidden_states_1, q_norm_weight_0);
  auto rsqrt__3 = make({2, hidden_states_1, 2, 1});
  mean_add_rsqrt_3_kernel<<<blocks((int64_t)2 * hidden_states_1 * 2), 256>>>(ptr(pow__4), ptr(rsqrt__3), hidden_states_1, q_norm_weight_0);
  auto cat = make({hidden_states_1, q_norm_weight_0});
  cat_kernel<<<blocks((int64_t)hidden_states_1 * q_norm_weight_0), 256>>>(ptr(cat), hidden_states_1, q_norm_weight_0, size_3);
  auto add_4 = make({2, 8, hidden_states_1, q_norm_weight_0});
  add_4_kernel<<<blocks((int64_t)2 * 8 * hidden_states_1 * q_norm_weight_0), 256>>>(ptr(linear), ptr(rsqrt__2), ptr(q_norm_weight), ptr(cat), ptr(add_4), hidden_states_1, q_norm_weight_0, size_3);
  auto permute_4 = make({2, 8, q_norm_weight_0, hidden_states_1});
  permute_4_kernel<<<blocks((int64_t)2 * 8 * q_norm_weight_0 * hidden_states_1), 256>>>(ptr(linear_2), ptr(rsqrt__3), ptr(k_norm_weight), ptr(cat), ptr(permute_4), q_norm_weight_0, hidden_states_1, size_3);
  auto where = make({2, 8, hidden_states_1, hidden_states_1});
  matmul_div_where_kernel<<<blocks((int64_t)2 * 8 * hidden_states_1 * size_4), 256>>>(ptr(add_4), ptr(permute_4), ptr(where), hidden_states_1, size_4, q_norm_weight_0, scalar4, size_5);
  auto softmax = make({2, 8, hidden_states_1, hidden_states_1});
  softmax_kernel<<<std::max<int64_t>((int64_t)2 * 8 * hidden_states_1, 1), 256>>>(ptr(where), ptr(softmax), hidden_states_1, 256, 128);
  auto permute = make({2, 2, hidden_states_1, q_norm_weight_0});
  permute_kernel<<<blocks((int64_t)2 * 2 * hidden_states_1 * q_norm_weight_0), 256>>>(ptr(linear_3), ptr(permute), hidden_states_1, q_norm_weight_0);
  auto matmul_2 = make({2, 8, hidden_states_1, q_norm_weight_0});
  matmul_kernel<<<blocks((int64_t)2 * 8 * hidden_states_1 * size_6), 256>>>(ptr(softmax), ptr(permute), ptr(matmul_2), hidden_states_1, size_6, q_norm_weight_0);
  auto permute_5 = make({2, hidden_states_1, 8, q_norm_weight_0});
  permute_5_kernel<<<blocks((int64_t)2 * hidden_states_1 * 8 * q_norm_weight_0), 256>>>(ptr(matmul_2), ptr(permute_5), hidden_states_1, q_norm_weight_0);
  auto add_6 = make({2, hidden_states_1, hidden_states_2});
  linear_add_kernel<<<blocks((int64_t)2 * hidden_states_1 * size_7), 256>>>(ptr(permute_5), ptr(o_proj_weight), ptr(hidden_states), ptr(add_6), hidden_states_1, size_7, q_proj_weight_0, hidden_states_2);
  return add_6;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

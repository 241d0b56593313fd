// Recurrent layers. The gates of all steps that the input gives are one product; then the host calls
// one kernel a step, a thread for each hidden value. Hole: SCALAR, the type of the tensors.
// gates: (steps, batch, count * hidden). Strides are in elements, so that either axis may lie first.

__global__ void recurrent_input_kernel(const SCALAR* x, const SCALAR* weight, const SCALAR* bias,
                                       float* gates, int steps, int batch, int inputs, int outputs,
                                       int step_stride, int batch_stride) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= steps * batch * outputs) return;
  const int j = i % outputs;
  const int b = i / outputs % batch;
  const int t = i / outputs / batch;
  const SCALAR* row = x + t * step_stride + b * batch_stride;
  float sum = bias != nullptr ? float(bias[j]) : 0.0f;
  for (int k = 0; k < inputs; k++) sum += float(row[k]) * float(weight[j * inputs + k]);
  gates[i] = sum;
}

__device__ float recurrent_gate(const float* gates, const SCALAR* weight, const SCALAR* bias,
                                const SCALAR* before, int j, int hidden) {
  float sum = gates[j] + (bias != nullptr ? float(bias[j]) : 0.0f);
  for (int k = 0; k < hidden; k++) sum += float(before[k]) * float(weight[j * hidden + k]);
  return sum;
}

__global__ void lstm_step_kernel(const float* gates, const SCALAR* weight, const SCALAR* bias,
                                 const SCALAR* before, int before_stride, const SCALAR* cell_before,
                                 SCALAR* out, int out_stride, SCALAR* last, SCALAR* cell, int batch,
                                 int hidden) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch * hidden) return;
  const int j = i % hidden, b = i / hidden;
  const float* g = gates + b * 4 * hidden;
  const SCALAR* h = before + b * before_stride;
  const float in = 1.0f / (1.0f + expf(-recurrent_gate(g, weight, bias, h, j, hidden)));
  const float forget = 1.0f / (1.0f + expf(-recurrent_gate(g, weight, bias, h, hidden + j, hidden)));
  const float next = tanhf(recurrent_gate(g, weight, bias, h, 2 * hidden + j, hidden));
  const float show = 1.0f / (1.0f + expf(-recurrent_gate(g, weight, bias, h, 3 * hidden + j, hidden)));
  const float c = forget * float(cell_before[i]) + in * next;
  const float value = show * tanhf(c);
  cell[i] = c;
  out[b * out_stride + j] = value;
  last[i] = value;
}

__global__ void gru_step_kernel(const float* gates, const SCALAR* weight, const SCALAR* bias,
                                const SCALAR* before, int before_stride, SCALAR* out, int out_stride,
                                SCALAR* last, int batch, int hidden) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch * hidden) return;
  const int j = i % hidden, b = i / hidden;
  const float* g = gates + b * 3 * hidden;
  const SCALAR* h = before + b * before_stride;
  const float reset = 1.0f / (1.0f + expf(-recurrent_gate(g, weight, bias, h, j, hidden)));
  const float keep = 1.0f / (1.0f + expf(-recurrent_gate(g, weight, bias, h, hidden + j, hidden)));
  const int n = 2 * hidden + j;
  const float of_hidden = recurrent_gate(g, weight, bias, h, n, hidden) - g[n];
  const float next = tanhf(g[n] + reset * of_hidden);
  const float value = (1.0f - keep) * next + keep * float(h[j]);
  out[b * out_stride + j] = value;
  last[i] = value;
}

__global__ void rnn_tanh_step_kernel(const float* gates, const SCALAR* weight, const SCALAR* bias,
                                     const SCALAR* before, int before_stride, SCALAR* out,
                                     int out_stride, SCALAR* last, int batch, int hidden) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch * hidden) return;
  const int j = i % hidden, b = i / hidden;
  const SCALAR* h = before + b * before_stride;
  const float value = tanhf(recurrent_gate(gates + b * hidden, weight, bias, h, j, hidden));
  out[b * out_stride + j] = value;
  last[i] = value;
}

__global__ void rnn_relu_step_kernel(const float* gates, const SCALAR* weight, const SCALAR* bias,
                                     const SCALAR* before, int before_stride, SCALAR* out,
                                     int out_stride, SCALAR* last, int batch, int hidden) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch * hidden) return;
  const int j = i % hidden, b = i / hidden;
  const SCALAR* h = before + b * before_stride;
  const float value = fmaxf(recurrent_gate(gates + b * hidden, weight, bias, h, j, hidden), 0.0f);
  out[b * out_stride + j] = value;
  last[i] = value;
}

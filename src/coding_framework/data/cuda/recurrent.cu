// Recurrent layers. The gates of all steps that the input gives are one product; then a block for
// each row of the batch walks over the steps, a warp for each hidden value. Hole: SCALAR, the type of
// the tensors. gates: (steps, batch, count * hidden). Strides are in elements, so that either axis
// may lie first.

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

// What the hidden values before give to gate j, by the 32 threads of a warp.
__device__ float recurrent_gate(const SCALAR* weight, const SCALAR* bias, const SCALAR* before, int j,
                                int hidden) {
  float sum = 0.0f;
  for (int k = threadIdx.x % 32; k < hidden; k += 32)
    sum += float(before[k]) * float(weight[j * hidden + k]);
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
  return sum + (bias != nullptr ? float(bias[j]) : 0.0f);
}

__device__ float recurrent_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

enum Recurrent { LSTM, GRU, RNN_TANH, RNN_RELU };

template <Recurrent KIND>
__global__ void __launch_bounds__(1024)
recurrent_kernel(const float* gates, const SCALAR* weight, const SCALAR* bias, const SCALAR* start,
                 const SCALAR* cell_start, SCALAR* out, SCALAR* last, SCALAR* cell, int steps,
                 int batch, int hidden, int step_stride, int batch_stride, bool backwards) {
  constexpr int COUNT = KIND == LSTM ? 4 : KIND == GRU ? 3 : 1;
  const int b = blockIdx.x;
  if (b >= batch) return;
  for (int t = 0; t < steps; t++) {
    const int step = backwards ? steps - 1 - t : t;
    SCALAR* here = out + step * step_stride + b * batch_stride;
    const SCALAR* before = here + (backwards ? step_stride : -step_stride);
    if (t == 0) before = start + b * hidden;
    for (int j = threadIdx.x / 32; j < hidden; j += blockDim.x / 32) {
      const float* g = gates + (step * batch + b) * COUNT * hidden + j;
      float of[COUNT];
      for (int e = 0; e < COUNT; e++)
        of[e] = recurrent_gate(weight, bias, before, e * hidden + j, hidden);
      if (threadIdx.x % 32 != 0) continue;
      const int i = b * hidden + j;
      float value;
      if constexpr (KIND == LSTM) {
        const float in = recurrent_sigmoid(g[0] + of[0]);
        const float forget = recurrent_sigmoid(g[hidden] + of[1]);
        const float next = tanhf(g[2 * hidden] + of[2]);
        const float c = forget * float(t == 0 ? cell_start[i] : cell[i]) + in * next;
        cell[i] = c;
        value = recurrent_sigmoid(g[3 * hidden] + of[3]) * tanhf(c);
      } else if constexpr (KIND == GRU) {
        const float reset = recurrent_sigmoid(g[0] + of[0]);
        const float keep = recurrent_sigmoid(g[hidden] + of[1]);
        const float next = tanhf(g[2 * hidden] + reset * of[2]);
        value = (1.0f - keep) * next + keep * float(before[j]);
      } else {
        value = KIND == RNN_TANH ? tanhf(g[0] + of[0]) : fmaxf(g[0] + of[0], 0.0f);
      }
      here[j] = value;
      last[i] = value;
    }
    __syncthreads();
  }
}

// rows of a multiple of 4 floats, so that 16 bytes are copied at a time
__global__ void pad(const float* x, float* o, int n, int w, int count) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < count) o[i] = i % w < n ? x[i / w * n + i % w] : 0.0f;
}

torch::Tensor padded(torch::Tensor x, int n) {
  int w = (n + 3) / 4 * 4, count = x.numel() / n * w;
  if (n == w) return x;
  auto o = torch::empty({count}, x.options());
  pad<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), n, w, count);
  return o;
}

// Cases of unseen_layers.py, as sources.py says.
//// = unseen_layers
//// _layer linear_layer_weights; features: parameters matmul; of: LINEAR
//// > code
__global__ void k(const float* x, const float* w, const float* b, float* o, int m, int kk, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= m * n) return; int r = i / n, c = i % n; float s = b[c]; for (int j = 0; j < kk; j++) s += x[r * kk + j] * w[c * kk + j]; o[i] = s; }
torch::Tensor forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) { int m = x.size(0), kk = x.size(1), n = weight.size(0); auto o = torch::empty({m, n}, x.options()); k<<<(m * n + 127) / 128, 128>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), o.data_ptr<float>(), m, kk, n); return o; }

//// _layer conv2d_direct; features: parameters convolution; of: CONV
//// > code
__global__ void k(const float* x, const float* w, const float* b, float* o, int B, int C, int H, int W, int F) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= B * F * H * W) return; int q = i % W, p = i / W % H, f = i / (W * H) % F, n = i / (W * H * F); float s = b[f]; for (int c = 0; c < C; c++) for (int u = 0; u < 3; u++) for (int v = 0; v < 3; v++) { int y = p + u - 1, z = q + v - 1; if (y >= 0 && y < H && z >= 0 && z < W) s += x[((n * C + c) * H + y) * W + z] * w[((f * C + c) * 3 + u) * 3 + v]; } o[i] = s; }
torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b) { int B = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), F = w.size(0); auto o = torch::empty({B, F, H, W}, x.options()); int n = o.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), o.data_ptr<float>(), B, C, H, W, F); return o; }

//// _layer parameters_of_no_dimension; features: parameters; of: BATCH_NORM
//// > code
__global__ void k(const float* x, const float* w, const float* b, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * *w + *b; }
torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b) { auto o = torch::empty_like(x); int n = x.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), o.data_ptr<float>(), n); return o; }

//// _layer scalar_arguments; features: scalars; of: SCALED
//// > code
__global__ void k(const float* x, float* o, float a, float b, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * a + b; }
torch::Tensor forward(torch::Tensor x, float alpha, float shift) { auto o = torch::empty_like(x); int n = x.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), o.data_ptr<float>(), alpha, shift, n); return o; }

//// _layer scalar_arguments_left_out; features: scalars; of: SCALED
//// > code
__global__ void k(const float* x, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * 1.75f - 3.0f; }
torch::Tensor forward(torch::Tensor x) { auto o = torch::empty_like(x); int n = x.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), o.data_ptr<float>(), n); return o; }

//// _layer max_pool; features: four_dimensions; of: MAX_POOL
//// > code
__global__ void k(const float* x, float* o, int n, int H, int W, int P, int Q) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int q = i % Q, p = i / Q % P, b = i / (Q * P); const float* a = x + (b * H + 2 * p) * W + 2 * q; o[i] = fmaxf(fmaxf(a[0], a[1]), fmaxf(a[W], a[W + 1])); }
torch::Tensor forward(torch::Tensor x) { int H = x.size(2), W = x.size(3), P = H / 2, Q = W / 2; auto o = torch::empty({x.size(0), x.size(1), P, Q}, x.options()); int n = o.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), o.data_ptr<float>(), n, H, W, P, Q); return o; }

//// _layer average_pool; features: four_dimensions; of: AVERAGE_POOL
//// > code
__global__ void k(const float* x, float* o, int n, int H, int W, int P, int Q) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int q = i % Q, p = i / Q % P, b = i / (Q * P); float s = 0;
#pragma unroll
 for (int u = 0; u < 3; u++)
#pragma unroll
 for (int v = 0; v < 3; v++) s += x[(b * H + 2 * p + u) * W + 2 * q + v]; o[i] = s / 9.f; }
torch::Tensor forward(torch::Tensor x) { int H = x.size(2), W = x.size(3), P = (H - 3) / 2 + 1, Q = (W - 3) / 2 + 1; auto o = torch::empty({x.size(0), x.size(1), P, Q}, x.options()); int n = o.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), o.data_ptr<float>(), n, H, W, P, Q); return o; }

//// _layer channel_mean; features: four_dimensions reduction shuffle; of: CHANNEL_MEAN
//// > code
__global__ void k(const float* x, float* o, int area) { float s = 0; for (int i = threadIdx.x; i < area; i += 32) s += x[blockIdx.x * area + i]; for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffff, s, d); if (threadIdx.x == 0) o[blockIdx.x] = s / area; }
torch::Tensor forward(torch::Tensor x) { auto o = torch::empty({x.size(0), x.size(1)}, x.options()); k<<<x.size(0) * x.size(1), 32>>>(x.data_ptr<float>(), o.data_ptr<float>(), x.size(2) * x.size(3)); return o; }

//// _layer batched_matmul; features: three_dimensions matmul grid3d; of: BATCHED
//// > code
__global__ void k(const float* a, const float* b, float* c, int M, int K, int N) { int q = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y, z = blockIdx.z; if (r >= M || q >= N) return; float s = 0; for (int j = 0; j < K; j++) s += a[(z * M + r) * K + j] * b[(z * K + j) * N + q]; c[(z * M + r) * N + q] = s; }
torch::Tensor forward(torch::Tensor a, torch::Tensor b) { int B = a.size(0), M = a.size(1), K = a.size(2), N = b.size(2); auto c = torch::empty({B, M, N}, a.options()); k<<<dim3((N + 7) / 8, (M + 7) / 8, B), dim3(8, 8)>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, K, N); return c; }

//// _layer matvec_block_a_row; features: reduction shared; of: MATVEC
//// > code
__global__ void k(const float* a, const float* v, float* o, int cols) { __shared__ float s[64]; int t = threadIdx.x; float p = 0; for (int c = t; c < cols; c += 64) p += a[blockIdx.x * cols + c] * v[c]; s[t] = p; __syncthreads(); for (int d = 32; d; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); } if (t == 0) o[blockIdx.x] = s[0]; }
torch::Tensor forward(torch::Tensor a, torch::Tensor v) { auto o = torch::empty({a.size(0)}, a.options()); k<<<a.size(0), 64>>>(a.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(), a.size(1)); return o; }

//// _layer outer_product; features: broadcast; of: OUTER
//// > code
__global__ void k(const float* a, const float* b, float* o, int m, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < m * n) o[i] = a[i / n] * b[i % n]; }
torch::Tensor forward(torch::Tensor a, torch::Tensor b) { int m = a.numel(), n = b.numel(); auto o = torch::empty({m, n}, a.options()); k<<<(m * n + 127) / 128, 128>>>(a.data_ptr<float>(), b.data_ptr<float>(), o.data_ptr<float>(), m, n); return o; }

//// _layer diagonal_without_the_matrix; features: broadcast; of: DIAGONAL
//// > code
__global__ void k(const float* d, const float* b, float* o, int m, int n) { int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y; if (c < n) o[r * n + c] = d[r] * b[r * n + c]; }
torch::Tensor forward(torch::Tensor d, torch::Tensor b) { int m = b.size(0), n = b.size(1); auto o = torch::empty({m, n}, b.options()); k<<<dim3((n + 31) / 32, m), 32>>>(d.data_ptr<float>(), b.data_ptr<float>(), o.data_ptr<float>(), m, n); return o; }

//// _layer attention_one_warp_a_query; features: attention shuffle shared; of: ATTENTION
//// > code
__global__ void k(const float* q, const float* kk, const float* v, float* o, int m) { extern __shared__ float p[]; int lane = threadIdx.x; const float* a = q + blockIdx.x * 16; float top = -INFINITY; for (int j = lane; j < m; j += 32) { float s = 0; for (int d = 0; d < 16; d++) s += a[d] * kk[j * 16 + d]; p[j] = s * 0.25f; top = fmaxf(top, p[j]); } for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d)); float sum = 0; for (int j = lane; j < m; j += 32) { p[j] = expf(p[j] - top); sum += p[j]; } for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d); __syncwarp(); if (lane < 16) { float s = 0; for (int j = 0; j < m; j++) s += p[j] * v[j * 16 + lane]; o[blockIdx.x * 16 + lane] = s / sum; } }
torch::Tensor forward(torch::Tensor q, torch::Tensor kk, torch::Tensor v) { auto o = torch::empty({q.size(0), v.size(1)}, q.options()); int m = kk.size(0); k<<<q.size(0), 32, m * sizeof(float)>>>(q.data_ptr<float>(), kk.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(), m); return o; }

//// _layer gather_rows; features: int64 gather; of: EMBEDDING
//// > code
__global__ void k(const int64_t* i, const float* t, float* o, int w) { for (int c = threadIdx.x; c < w; c += blockDim.x) o[blockIdx.x * w + c] = t[i[blockIdx.x] * w + c]; }
torch::Tensor forward(torch::Tensor i, torch::Tensor t) { auto o = torch::empty({i.size(0), t.size(1)}, t.options()); k<<<i.size(0), 32>>>(i.data_ptr<int64_t>(), t.data_ptr<float>(), o.data_ptr<float>(), t.size(1)); return o; }

//// _layer boolean_output; features: bool; of: GREATER
//// > code
__global__ void k(const float* x, bool* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] > 0.25f; }
torch::Tensor forward(torch::Tensor x) { auto o = torch::empty(x.sizes(), x.options().dtype(torch::kBool)); int n = x.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), o.data_ptr<bool>(), n); return o; }

//// _layer lower_triangle; features: grid2d; of: TRIANGLE
//// > code
__global__ void k(const float* x, float* o, int n) { int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y; if (r < n && c < n) o[r * n + c] = c <= r ? x[r * n + c] : 0.f; }
torch::Tensor forward(torch::Tensor x) { int n = x.size(0); auto o = torch::empty_like(x); k<<<dim3((n + 7) / 8, (n + 31) / 32), dim3(8, 32)>>>(x.data_ptr<float>(), o.data_ptr<float>(), n); return o; }

//// _layer mean_squared_error; features: reduction shared several_kernels; of: MSE
//// > code
__global__ void first(const float* x, const float* y, float* p, int n) { __shared__ float s[128]; int t = threadIdx.x; float v = 0; for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) { float d = x[i] - y[i]; v += d * d; } s[t] = v; __syncthreads(); for (int d = 64; d; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); } if (t == 0) p[blockIdx.x] = s[0]; }
__global__ void second(const float* p, float* o, int m, int n) { float s = 0; for (int i = 0; i < m; i++) s += p[i]; *o = s / n; }
torch::Tensor forward(torch::Tensor x, torch::Tensor y) { int n = x.numel(); auto p = torch::empty({10}, x.options()); auto o = torch::empty({}, x.options()); first<<<10, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), p.data_ptr<float>(), n); second<<<1, 1>>>(p.data_ptr<float>(), o.data_ptr<float>(), 10, n); return o; }

//// _layer concatenate_by_copies; features: memcpy2d; of: CONCAT
//// > code
torch::Tensor forward(torch::Tensor x, torch::Tensor y) { int m = x.size(0), a = x.size(1), b = y.size(1); auto o = torch::empty({m, a + b}, x.options()); float* p = o.data_ptr<float>(); cudaMemcpy2D(p, (a + b) * 4, x.data_ptr<float>(), a * 4, a * 4, m, cudaMemcpyDeviceToDevice); cudaMemcpy2D(p + a, (a + b) * 4, y.data_ptr<float>(), b * 4, b * 4, m, cudaMemcpyDeviceToDevice); return o; }

//// _layer concatenate_by_a_kernel; features: gather; of: CONCAT
//// > code
__global__ void k(const float* x, const float* y, float* o, int m, int a, int b) { int i = blockIdx.x * blockDim.x + threadIdx.x, w = a + b; if (i < m * w) { int r = i / w, c = i % w; o[i] = c < a ? x[r * a + c] : y[r * b + c - a]; } }
torch::Tensor forward(torch::Tensor x, torch::Tensor y) { int m = x.size(0), a = x.size(1), b = y.size(1); auto o = torch::empty({m, a + b}, x.options()); k<<<(m * (a + b) + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), o.data_ptr<float>(), m, a, b); return o; }

//// _layer flip_rows; features: gather; of: FLIP
//// > code
__global__ void k(const float* x, float* o, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i - i % w + (w - 1 - i % w)]; }
torch::Tensor forward(torch::Tensor x) { auto o = torch::empty_like(x); int n = x.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), o.data_ptr<float>(), n, x.size(1)); return o; }

//// _layer bias_and_relu; features: broadcast constant_memory; of: BIAS
//// > code
__constant__ float bias[128];
__global__ void k(const float* x, float* o, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = fmaxf(x[i] + bias[i % w], 0.f); }
torch::Tensor forward(torch::Tensor x, torch::Tensor b) { TORCH_CHECK(b.numel() <= 128, "bias too long"); auto o = torch::empty_like(x); int n = x.numel(); cudaMemcpyToSymbol(bias, b.data_ptr<float>(), b.numel() * sizeof(float), 0, cudaMemcpyDeviceToDevice); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), o.data_ptr<float>(), n, x.size(1)); return o; }

//// _layer scalar_tensor_input; features: broadcast; of: SCALAR_INPUT
//// > code
__global__ void k(const float* x, const float* y, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * y[0]; }
torch::Tensor forward(torch::Tensor x, torch::Tensor y) { auto o = torch::empty_like(x); int n = x.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), o.data_ptr<float>(), n); return o; }

//// _layer cosine_similarity; features: reduction; of: COSINE
//// > code
__global__ void k(const float* x, const float* y, float* o, int m, int w) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= m) return; float a = 0, b = 0, c = 0; for (int j = 0; j < w; j++) { float u = x[r * w + j], v = y[r * w + j]; a += u * v; b += u * u; c += v * v; } o[r] = a / (fmaxf(sqrtf(b), 1e-8f) * fmaxf(sqrtf(c), 1e-8f)); }
torch::Tensor forward(torch::Tensor x, torch::Tensor y) { int m = x.size(0); auto o = torch::empty({m}, x.options()); k<<<(m + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), o.data_ptr<float>(), m, x.size(1)); return o; }

//// _layer convolution_of_one_dimension; features: convolution; of: CONV1D
//// > code
__global__ void k(const float* x, const float* w, float* o, int n, int C, int L, int F, int T) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int P = L - T + 1, p = i % P, f = i / P % F, b = i / (P * F); float s = 0; for (int c = 0; c < C; c++) for (int t = 0; t < T; t++) s += x[(b * C + c) * L + p + t] * w[(f * C + c) * T + t]; o[i] = s; }
torch::Tensor forward(torch::Tensor x, torch::Tensor w) { int B = x.size(0), C = x.size(1), L = x.size(2), F = w.size(0), T = w.size(2); auto o = torch::empty({B, F, L - T + 1}, x.options()); int n = o.numel(); k<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), w.data_ptr<float>(), o.data_ptr<float>(), n, C, L, F, T); return o; }

//// _layer boolean_mask_input; features: bool; of: MASKED
//// > code
__global__ void k(const float* x, const bool* m, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = m[i] ? -1.f : x[i]; }
torch::Tensor forward(torch::Tensor x, torch::Tensor m) { auto o = torch::empty_like(x); int n = x.numel(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), m.data_ptr<bool>(), o.data_ptr<float>(), n); return o; }

//// _layer instance_norm; features: norm four_dimensions shuffle; of: GROUP_NORM
//// > code
__global__ void k(const float* x, float* o, int area) { const float* a = x + blockIdx.x * area; float s = 0, v = 0; for (int i = threadIdx.x; i < area; i += 32) s += a[i]; for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d); s /= area; for (int i = threadIdx.x; i < area; i += 32) v += (a[i] - s) * (a[i] - s); for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d); v = rsqrtf(v / area + 1e-5f); for (int i = threadIdx.x; i < area; i += 32) o[blockIdx.x * area + i] = (a[i] - s) * v; }
torch::Tensor forward(torch::Tensor x) { auto o = torch::empty_like(x); k<<<x.size(0) * x.size(1), 32>>>(x.data_ptr<float>(), o.data_ptr<float>(), x.size(2) * x.size(3)); return o; }


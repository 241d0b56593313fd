// Cases of fresh_honest_families.py, as sources.py says.
//// = row_functions
//// _Rows 'softmax'; expression: 'F.softmax(x, dim=1)'; first: _MOST; second: _EXPS; value: 'expf(v - a) / b'
//// _Rows 'log_softmax'; expression: 'F.log_softmax(x, dim=1)'; first: _MOST; second: _EXPS; value: 'v - a - logf(b)'
//// _Rows 'softmin'; expression: 'F.softmin(x, dim=1)'; first: _LEAST; second: ('0.f', 'expf(a - v)', 'p + q'); value: 'expf(a - v) / b'
//// _Rows 'logsumexp'; expression: 'torch.logsumexp(x, dim=1)'; first: _MOST; second: _EXPS; value: 'a + logf(b)'; row: True
//// _Rows 'layer_norm'; expression: 'F.layer_norm(x, x.shape[1:])'; first: _SUM; second: _SPREAD; value: '(v - a / C) * rsqrtf(b / C + 1e-5f)'
//// _Rows 'variance'; expression: 'x.var(1, unbiased=False)'; first: _SUM; second: _SPREAD; value: 'b / C'; row: True
//// _Rows 'deviation'; expression: 'torch.sqrt(x.var(1, unbiased=False) + 1e-5)'; first: _SUM; second: _SPREAD; value: 'sqrtf(b / C + 1e-5f)'; row: True
//// _Rows 'rms_norm'; expression: 'x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)'; first: _SQUARES; second: _NONE; value: 'v * rsqrtf(a / C + 1e-6f)'
//// _Rows 'unit'; expression: 'F.normalize(x, dim=1)'; first: _SQUARES; second: _NONE; value: 'v / fmaxf(sqrtf(a), 1e-12f)'
//// _Rows 'shares'; expression: 'F.normalize(x, p=1.0, dim=1)'; first: _ABS; second: _NONE; value: 'v / fmaxf(a, 1e-12f)'
//// _Rows 'row_sum'; expression: 'x.sum(1)'; first: _SUM; second: _NONE; value: 'a'; row: True
//// _Rows 'row_mean'; expression: 'x.mean(1)'; first: _SUM; second: _NONE; value: 'a / C'; row: True
//// _Rows 'row_maximum'; expression: 'x.amax(1)'; first: _MOST; second: _NONE; value: 'a'; row: True
//// _Rows 'row_minimum'; expression: 'x.amin(1)'; first: _LEAST; second: _NONE; value: 'a'; row: True
//// _Rows 'centred'; expression: 'x - x.mean(1, keepdim=True)'; first: _SUM; second: _NONE; value: 'v - a / C'
//// _Rows 'below_maximum'; expression: 'x - x.amax(1, keepdim=True)'; first: _MOST; second: _NONE; value: 'v - a'
//// _Rows 'mean_square'; expression: '(x * x).mean(1)'; first: _SQUARES; second: _NONE; value: 'a / C'; row: True
//// _Rows 'range'; expression: 'x.amax(1) - x.amin(1)'; first: _MOST; second: _LEAST; value: 'a - b'; row: True
//// text LOOP
  float {to} = {none};
  for (int j = {start}; j < C; j += {step}) {{ float v = x[j]; (void)v; float p = {to}, q = {term};
    {to} = {join}; }}
{gather}
//// text TREE
  s[threadIdx.x] = {to};
  __syncthreads();
  for (int d = blockDim.x / 2; d > 0; d /= 2) {{
    if (threadIdx.x < d) {{ float p = s[threadIdx.x], q = s[threadIdx.x + d];
      s[threadIdx.x] = {join}; }}
    __syncthreads();
  }}
  {to} = s[0];
  __syncthreads();

//// text BY_WARPS
@_WARP@  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = {to};
  __syncthreads();
  {to} = s[0];
  for (int w = 1; w < blockDim.x / 32; w++) {{ float p = {to}, q = s[w]; {to} = {join}; }}
  __syncthreads();


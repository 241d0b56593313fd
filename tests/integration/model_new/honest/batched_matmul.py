# problem: batched_matmul. An autograd.Function; compiled at the first call.
import torch
from torch import nn
from torch.autograd import Function
from torch.utils.cpp_extension import load_inline

_compiled = None


def get_extension():
    global _compiled
    if _compiled is None:
        _compiled = load_inline(
            name="bmm",
            cpp_sources="torch::Tensor bmm(torch::Tensor a, torch::Tensor b);",
            cuda_sources="""
__global__ void bmm_kernel(const float* a, const float* b, float* c, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    a += (long)blockIdx.z * m * k;
    b += (long)blockIdx.z * k * n;
    float sum = 0;
    for (int i = 0; i < k; i++) sum = fmaf(a[row * k + i], b[i * n + col], sum);
    c[((long)blockIdx.z * m + row) * n + col] = sum;
}
torch::Tensor bmm(torch::Tensor a, torch::Tensor b) {
    int batch = a.size(0), m = a.size(1), k = a.size(2), n = b.size(2);
    auto c = at::empty({batch, m, n}, a.options());
    bmm_kernel<<<dim3((n + 63) / 64, m, batch), 64>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, k, n);
    return c;
}
""",
            functions=["bmm"],
        )
    return _compiled


class BatchedMatmul(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return get_extension().bmm(a, b)


class ModelNew(nn.Module):
    def forward(self, A, B):
        with torch.cuda.device(A.device), torch.no_grad():
            result = BatchedMatmul.apply(A, B)
        torch.cuda.synchronize()
        return result

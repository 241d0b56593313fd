# problem: matrix_scalar. A number among the inputs; vector loads with a tail.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void scale(const float* a, float* out, float s, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = reinterpret_cast<const float4*>(a)[i];
        v.x *= s; v.y *= s; v.z *= s; v.w *= s;
        reinterpret_cast<float4*>(out)[i] = v;
    } else {
        for (long j = 4 * i; j < n; j++) out[j] = a[j] * s;
    }
}
torch::Tensor scale_cuda(torch::Tensor a, double s) {
    auto out = torch::empty_like(a);
    long n = a.numel(), threads = (n + 3) / 4;
    scale<<<(threads + 255) / 256, 256>>>(a.data_ptr<float>(), out.data_ptr<float>(), (float)s, n);
    return out;
}
"""
ext = load_inline(
    "scale",
    "torch::Tensor scale_cuda(torch::Tensor a, double s);",
    cuda,
    functions={"scale_cuda": "times s"},
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A: torch.Tensor, s: float) -> torch.Tensor:
        return ext.scale_cuda(A, s)

"""What kernels of public repositories use of torch beside the usual, compiled by nvcc."""

from __future__ import annotations

import pytest

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.types import Status

pytestmark = pytest.mark.integration

_USES = {
    "streams": (
        "#include <iostream>",
        "",
        "std::cerr << x.sizes() << x.strides() << x.scalar_type() << x.device() "
        "<< x.options() << x.dtype() << x.device().type() << std::endl; if (n < 0) std::cerr << x;",
    ),
    "dispatch by a list": (
        "#include <ATen/Dispatch_v2.h>",
        "",
        'AT_DISPATCH_V2(x.scalar_type(), "f", AT_WRAP([&] { scalar_t a[2] = {1, 2}; (void)a; }), '
        "AT_EXPAND(AT_FLOATING_TYPES), at::kHalf, at::kBFloat16);",
    ),
    "dispatch by an index": (
        "",
        "",
        'AT_DISPATCH_INDEX_TYPES(torch::kInt, "f", ([&] { index_t n = x.numel(); (void)n; }));',
    ),
    "loops and atomics": (
        "#include <ATen/cuda/detail/KernelUtils.h>\n#include <ATen/cuda/Atomic.cuh>\n"
        "#include <ATen/NumericUtils.h>\n#include <c10/cuda/CUDACachingAllocator.h>",
        "CUDA_KERNEL_LOOP(i, n) { if (at::_isnan(x[i]) || at::_isinf(x[i])) break; "
        "gpuAtomicAdd(x + i, 1.f); gpuAtomicAdd(counts, int64_t(1)); }",
        "int blocks = at::cuda::detail::GET_BLOCKS(n); (void)blocks;",
    ),
}


@pytest.mark.parametrize("use", _USES)
def test_it_compiles(compiler: CUDACompiler, use: str) -> None:
    headers, device, host = _USES[use]
    built = compiler.compile_source(
        f"""#include <torch/extension.h>
{headers}
__global__ void k(float* x, int64_t* counts, int n) {{ {device} }}
torch::Tensor forward(torch::Tensor x) {{
  int n = x.numel();
  {host}
  k<<<1, 32>>>(x.data_ptr<float>(), nullptr, n);
  return x;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
    )
    assert built.success, built.reason


@pytest.mark.parametrize("kind", ["(mine, m)", "_FRAGMENT(mine, m)", "_IMPL(mine, CUDA, m)"])
def test_registering_an_operator_is_named_as_missing(compiler: CUDACompiler, kind: str) -> None:
    built = compiler.compile_source(
        f"""#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) {{ return x; }}
TORCH_LIBRARY{kind} {{ m.def("forward", &forward); }}
"""
    )
    assert built.status is Status.UNSUPPORTED
    assert f"TORCH_LIBRARY{kind.partition('(')[0]}" in built.reason

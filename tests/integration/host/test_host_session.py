"""Honest host code: what the small torch headers and the stand-in runtime do for it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.host.session import HostSession
from coding_framework.cuda.plan.launch_plan import CandidateFault, TensorRef
from coding_framework.types import Status
from support.host_fixtures import RecordingDevice, module_of

pytestmark = pytest.mark.integration
Opener = Callable[[str], HostSession]

BINDING = '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "test"); }\n'


@pytest.fixture
def device() -> RecordingDevice:
    return RecordingDevice()


@pytest.fixture
def opened(compiler: CUDACompiler, device: RecordingDevice) -> Iterator[Opener]:
    """Compiles a source and opens a session on it."""
    sessions = []

    def open_session(source: str) -> HostSession:
        result = compiler.compile_source(source)
        assert result.success, result.errors
        build = Path(str(result.binary_path))
        sessions.append(HostSession(build, module_of(build), device, compiler.sandbox))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


ADD = """
#include <torch/extension.h>
__global__ void add(const float* a, const float* b, float* c, int n, float alpha) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + alpha * b[i];
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b, double alpha) {
  TORCH_CHECK(a.sizes() == b.sizes(), "shapes differ: ", a.sizes(), " and ", b.sizes());
  auto c = torch::empty_like(a);
  int n = a.numel();
  add<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                                c.data_ptr<float>(), n, alpha);
  C10_CUDA_CHECK(cudaGetLastError());
  return c;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, py::arg("a"), py::arg("b"), py::arg("alpha") = 2.0);
}
"""


def test_a_launch_arrives_with_its_parameters_packed_in_ptx_layout(
    opened: Opener, device: RecordingDevice
) -> None:
    a, b = device.tensor(10, 100), device.tensor(10, 100)
    (c,) = opened(ADD).call([a, b, 0.5])
    (launch,) = device.launches
    assert (launch.grid, launch.block, launch.shared_bytes) == ((4, 1, 1), (256, 1, 1), 0)
    assert struct.unpack("<QQQif", launch.params) == (a.address, b.address, c.address, 1000, 0.5)
    assert (c.shape, c.strides, c.dtype) == ((10, 100), (100, 1), "float32")
    assert device.calls == ["malloc", "launch"]


def test_defaults_of_py_arg_fill_missing_arguments(opened: Opener, device: RecordingDevice) -> None:
    session = opened(ADD)
    session.call([device.tensor(4), device.tensor(4)])
    assert struct.unpack("<QQQif", device.launches[0].params)[-1] == 2.0
    assert session.functions == {"forward": 3}


def test_a_failed_check_gives_its_whole_text(opened: Opener, device: RecordingDevice) -> None:
    with pytest.raises(CandidateFault, match=r"shapes differ: \[4\] and \[2, 3\]") as fault:
        opened(ADD).call([device.tensor(4), device.tensor(2, 3)])
    assert fault.value.status is Status.RUNTIME_ERROR


FAILS = """
#include <torch/extension.h>
__global__ void k(float* x) { extern __shared__ float s[]; s[threadIdx.x] = 1.0f; x[0] = s[0]; }
torch::Tensor forward(torch::Tensor x, int threads, int blocks, int shared, bool asks) {
  k<<<blocks, threads, shared>>>(x.data_ptr<float>());
  if (asks) cudaGetLastError();
  return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((256, 1, 60_000, False), "invalid argument at the launch of k"),
        ((2048, 1, 0, False), "invalid configuration argument at the launch of k"),
        ((32, 0, 0, False), None),  # of an empty tensor
        ((0, 1, 0, False), None),
        ((2048, 1, 0, True), None),  # it was asked about
    ],
)
def test_a_launch_that_fails_unnoticed_is_named(
    opened: Opener, device: RecordingDevice, arguments: tuple[int, ...], told: str | None
) -> None:
    session, x = opened(FAILS), device.tensor(64, 64)
    if told is None:
        session.call([x, *arguments])
        return
    with pytest.raises(CandidateFault, match=told) as fault:
        session.call([x, *arguments])
    assert fault.value.status is Status.RUNTIME_ERROR


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((None,) * 4, "takes 3 arguments"), ((1.5, 2.5, 1.0), "should be a Tensor")],
)
def test_wrong_arguments_are_refused_as_pybind_does(
    opened: Opener, arguments: tuple[float, ...], text: str
) -> None:
    with pytest.raises(CandidateFault, match=text):
        opened(ADD).call(arguments)


def test_a_missing_function_and_a_missing_module_are_load_errors(
    opened: Opener, device: RecordingDevice
) -> None:
    with pytest.raises(CandidateFault, match="no function 'backward' \\(it has: forward\\)") as e:
        opened(ADD).call([], function="backward")
    assert e.value.status is Status.LOAD_ERROR
    with pytest.raises(CandidateFault, match="PYBIND11_MODULE") as e:
        opened("__global__ void k() {}\n")
    assert e.value.status is Status.LOAD_ERROR


EVERYTHING = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <vector>
__constant__ float weights[64];
__device__ int counter;
template <class T>
__global__ void scale(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x, T* out) {
  int i = blockIdx.x, j = threadIdx.x;
  if (i < x.size(0) && j < x.size(1)) out[i * x.size(1) + j] = x[i][j] * T(weights[j % 64]);
}
extern __shared__ float pool[];
__global__ void uses_pool(float* x) {
  pool[threadIdx.x] = x[0];
  atomicAdd(&counter, 1);
  x[0] = pool[0];
}

std::vector<torch::Tensor> forward(const torch::Tensor& x, std::vector<torch::Tensor> list,
                                   c10::optional<torch::Tensor> bias, int64_t n, bool flag,
                                   std::vector<int64_t> sizes) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto stream = at::cuda::getCurrentCUDAStream().stream();
  TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() == 2 && x.device().is_cuda());
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.dtype() == torch::kFloat);
  TORCH_CHECK(list.size() == 2 && !bias.has_value() && flag && sizes.size() == 2, "arguments");
  TORCH_CHECK_EQ(sizes[1], 7);
  std::vector<float> host(64, float(n));
  C10_CUDA_CHECK(cudaMemcpyToSymbolAsync(weights, host.data(), 256, 0,
                                         cudaMemcpyHostToDevice, stream));
  auto out = torch::zeros({x.size(0), x.size(-1)}, x.options().dtype(torch::kFloat32));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
    scale<scalar_t><<<x.size(0), x.size(1), 0, stream>>>(
        x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(), out.data_ptr<scalar_t>());
  }));
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, uses_pool, 256, 1024);
  TORCH_CHECK(blocks == 8, "blocks ", blocks);
  cudaFuncSetAttribute(uses_pool, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
  uses_pool<<<1, 32, 100000, stream>>>(out.data_ptr<float>());
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  TORCH_CHECK(properties.major == 9 && properties.multiProcessorCount == 132);
  auto half = torch::empty({3, 4}, torch::dtype(torch::kFloat16).device(torch::kCUDA));
  auto view = out.view({-1}).unsqueeze(0).transpose(0, 1);
  return {out, half, view, torch::full({5}, 1.5, x.options())};
}
"""


def test_tensors_streams_symbols_and_dispatch_work_together(
    opened: Opener, device: RecordingDevice
) -> None:
    source = EVERYTHING.replace("device_of(x)", "x.device()") + BINDING
    x = device.tensor(3, 8)
    lists = (device.tensor(2), device.tensor(2))
    out, half, view, full = opened(source).call([x, lists, None, 7, True, (6, 7)])
    assert [launch.grid for launch in device.launches] == [(3, 1, 1), (1, 1, 1)]
    assert device.launches[1].shared_bytes == 100_000
    assert (half.dtype, half.shape) == ("float16", (3, 4))
    assert view == TensorRef(out.address, (24, 1), (1, 24), "float32")
    assert bytes(device.blocks[full.address]) == struct.pack("<5f", *[1.5] * 5)
    assert struct.pack("<64f", *[7.0] * 64) in [bytes(b[:256]) for b in device.blocks.values()]


def test_error_codes_of_the_runtime_reach_the_host_code(
    opened: Opener, device: RecordingDevice
) -> None:
    source = """
#include <torch/extension.h>
__global__ void k(float* x) { x[threadIdx.x] = 0; }
torch::Tensor forward(torch::Tensor x) {
  auto expect = [](cudaError_t got, cudaError_t want, const char* what) {
    TORCH_CHECK(got == want, what, ": ", cudaGetErrorString(got));
  };
  void* p = nullptr;
  expect(cudaMalloc(&p, size_t(1) << 60), cudaErrorMemoryAllocation, "malloc");
  expect(cudaGetLastError(), cudaErrorMemoryAllocation, "sticky");
  expect(cudaGetLastError(), cudaSuccess, "cleared");
  k<<<1, 2048>>>(x.data_ptr<float>());
  expect(cudaGetLastError(), cudaErrorInvalidConfiguration, "block");
  k<<<0, 32>>>(x.data_ptr<float>());
  expect(cudaPeekAtLastError(), cudaErrorInvalidConfiguration, "grid");
  k<<<1, 32, 60000>>>(x.data_ptr<float>());
  expect(cudaGetLastError(), cudaErrorInvalidValue, "shared");
  expect(cudaFree(&p), cudaErrorInvalidValue, "free");
  expect(cudaMemcpy(x.data_ptr(), &p, 8, cudaMemcpyDeviceToHost), cudaErrorInvalidValue, "kind");
  expect(cudaMemset(x.data_ptr<float>() + 1000, 0, 8), cudaErrorInvalidValue, "bounds");
  expect(cudaSetDevice(1), cudaErrorInvalidDevice, "device");
  float two = 0;
  expect(cudaMemcpy(&two, x.data_ptr(), 4, cudaMemcpyDefault), cudaSuccess, "read");
  expect(cudaMemcpy2D(x.data_ptr(), 8, x.data_ptr<float>() + 8, 8, 4, 2, cudaMemcpyDeviceToDevice),
         cudaSuccess, "2d");
  TORCH_CHECK(two == x[0].item<float>() && two == 2.0f, two);
  return x;
}
"""
    x = device.tensor(64, data=struct.pack("<64f", *[2.0] * 64))
    (out,) = opened(source + BINDING).call([x])
    assert out == x
    assert device.launches == []


LIBRARY_CALLS = {
    "return torch::matmul(x, x);": "at::matmul",
    "return at::conv2d(x, x, c10::optional<torch::Tensor>(), {1, 1}, {0, 0});": "at::conv2d",
    "return torch::nn::functional::linear(x, x);": "at::linear",
    "return x.sum({1}, true);": "at::Tensor::sum",
    "return x.softmax(-1);": "at::Tensor::softmax",
    "return x + x;": "operator+",
    "return x * 2.0;": "operator*",
    "return 1.0f - x;": "operator-",
    "return x.t().contiguous();": "at::Tensor::contiguous",
    "return x.to(torch::kHalf);": "at::Tensor::to",
    "return torch::cat({x, x}, 1);": "at::cat",
    "at::cuda::blas::gemm<float>('n', 'n', 1, 1, 1, 1.0f); return x;": "at::cuda::blas::gemm",
    "cublasHandle_t h; cublasCreate(&h); return x;": "cublasCreate",
    "cublasHandle_t h = at::cuda::getCurrentCUDABlasHandle(); (void)h; return x;": "BlasHandle",
    "float a = 1; cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_T, 1, 1, 1, &a, nullptr, 1, nullptr, "
    "1, &a, nullptr, 1); return x;": "cublasSgemm",
    "cudnnHandle_t h; cudnnCreate(&h); return x;": "cudnnCreate",
}


@pytest.mark.parametrize("which", range(len(LIBRARY_CALLS)))
def test_library_calls_are_rejected_by_name(
    opened: Opener, device: RecordingDevice, which: int
) -> None:
    cases = "".join(f"case {i}: {{ {line} }}\n" for i, line in enumerate(LIBRARY_CALLS))
    source = f"""
#include <torch/extension.h>
#include <ATen/cuda/CUDABlas.h>
#include <cudnn.h>
torch::Tensor forward(torch::Tensor x, int64_t which) {{ switch (which) {{ {cases} }} return x; }}
"""
    with pytest.raises(CandidateFault) as fault:
        opened(source + BINDING).call([device.tensor(8, 8), which])
    assert fault.value.status is Status.REJECTED
    assert list(LIBRARY_CALLS.values())[which] in fault.value.reason


def test_a_library_call_that_is_never_made_is_no_offence(
    opened: Opener, device: RecordingDevice
) -> None:
    source = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) { return x.is_cuda() ? x : torch::relu(x); }
"""
    x = device.tensor(8)
    assert opened(source + BINDING).call([x]) == (x,)


@pytest.mark.parametrize(
    ("line", "says", "status"),
    [
        ("cudaGraph_t g; cudaGraphCreate(&g, 0);", "cudaGraphCreate", Status.UNSUPPORTED),
        ("cudaOfMyOwn();", "cudaOfMyOwn is declared and not defined", Status.LOAD_ERROR),
        ("void* p; cudaMallocManaged(&p, 64);", "host and device share", Status.REJECTED),
        ('cf_finish(15, "wgmma");', "named no gap of ours: wgmma", Status.RUNTIME_ERROR),
    ],
)
def test_only_gaps_of_ours_are_unsupported_by_name(
    opened: Opener, device: RecordingDevice, line: str, says: str, status: Status
) -> None:
    source = f"""
#include <torch/extension.h>
extern "C" void cudaOfMyOwn();
extern "C" void cf_finish(uint32_t kind, const char* text);
torch::Tensor forward(torch::Tensor x) {{ {line} return x; }}
"""
    with pytest.raises(CandidateFault, match=says) as fault:
        opened(source + BINDING).call([device.tensor(8)])
    assert fault.value.status is status


def test_half_precision_types_convert_and_dispatch(opened: Opener, device: RecordingDevice) -> None:
    source = """
#include <torch/extension.h>
#include <cuda_fp16.h>
template <typename scalar_t>
__global__ void twice(const scalar_t* x, scalar_t* y) {
  scalar_t a = x[threadIdx.x];
  float f = static_cast<float>(a) * 2.0f;
  y[threadIdx.x] = static_cast<scalar_t>(f) + a - a;
}
__global__ void raw(const __half* x, __half* y) { y[0] = __hadd(x[0], x[1]); }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(),
    "twice", [&] { twice<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>()); });
  raw<<<1, 1>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()),
                reinterpret_cast<__half*>(y.data_ptr<at::Half>()));
  return y;
}
"""
    opened(source + BINDING).call([device.tensor(32, dtype="float16")])
    assert ["Half" in launch.kernel for launch in device.launches] == [True, False]


def test_dtype_mismatch_and_unknown_dispatch_say_so(
    opened: Opener, device: RecordingDevice
) -> None:
    source = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x, bool dispatch) {
  std::vector<int64_t> shape = {1, 2};
  TORCH_CHECK(x.dim() == 1, "got ", x.dtype(), " ", x.device(), " ", x.device().type(), " ", shape,
              " ", x.sizes(), " ", 1.5f, " ", true, " ", cudaErrorInvalidValue, ' ',
              std::string("s"));
  if (dispatch)
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "thing", [&] { (void)sizeof(scalar_t); });
  x.data_ptr<double>();
  return x;
}
"""
    session = opened(source + BINDING)
    x = device.tensor(8, dtype="float16")
    with pytest.raises(CandidateFault, match="expected scalar type Double but found Half"):
        session.call([x, False])
    with pytest.raises(CandidateFault, match=r"got Half cuda:0 cuda \[1, 2\] \[2, 2\] 1.5 1 1 s"):
        session.call([device.tensor(2, 2, dtype="float16"), False])
    with pytest.raises(CandidateFault, match="\"thing\" not implemented for 'Half'"):
        session.call([x, True])


def test_several_calls_share_the_process_and_its_memory(
    opened: Opener, device: RecordingDevice
) -> None:
    session = opened(ADD)
    for rows in (1, 7, 300):
        a, b = device.tensor(rows, 3), device.tensor(rows, 3)
        (c,) = session.call([a, b, 1.0])
        assert c.shape == (rows, 3)
        assert c.address in device.blocks
    assert len(device.launches) == 3


def test_the_stack_lies_elsewhere_at_each_call(opened: Opener, device: RecordingDevice) -> None:
    """Else a kernel that is right in every second process is right at each call of one of them."""
    source = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) {
  int here;
  TORCH_CHECK(false, "page ", (long long)((size_t)&here >> 12), " end");
  return x;
}
"""
    session, x, pages = opened(source + BINDING), device.tensor(4), []
    for _ in range(32):
        with pytest.raises(CandidateFault) as fault:
            session.call([x])
        found = re.search(r"page (\d+) end", fault.value.reason)
        assert found
        pages.append(int(found[1]))
    assert max(pages) - min(pages) <= 257
    for bit in range(7):
        assert {page >> bit & 1 for page in pages} == {0, 1}


IDIOMS = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/AccumulateType.h>
#include <c10/cuda/CUDAGuard.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
#define CHECK_CUDA(x) TORCH_CHECK(x.type().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) CHECK_CUDA(x); AT_ASSERTM(x.is_contiguous(), #x " must be contiguous")
template <typename scalar_t, int BLOCK>
__global__ __launch_bounds__(BLOCK)
void row_sum(const scalar_t* __restrict__ x, scalar_t* out, int n) {
  using acc_t = at::acc_type<scalar_t, true>;
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  acc_t sum = 0;
  for (int i = threadIdx.x; i < n; i += BLOCK) sum += static_cast<acc_t>(x[blockIdx.x * n + i]);
  for (int offset = warp.size() / 2; offset > 0; offset /= 2) sum += warp.shfl_down(sum, offset);
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<scalar_t>(sum);
}
template <typename F>
__global__ void apply(float* x, F f) { x[threadIdx.x] = f(x[threadIdx.x]); }
void check_all(at::TensorList list) { for (const auto& t : list) { CHECK_INPUT(t); } }
std::tuple<torch::Tensor, at::Tensor> forward(torch::Tensor& x,
                                              const std::optional<at::Tensor>& bias,
                                              float eps, int mode, bool flag, std::string name) {
  check_all({x, x});
  const at::cuda::OptionalCUDAGuard device_guard(device_of(x));
  TORCH_CHECK(!bias.has_value(), "no bias");
  TORCH_CHECK_GT(x.size(0), 0, "rows");
  auto sizes = x.sizes().vec();
  sizes.pop_back();
  sizes.push_back(1);
  auto options = torch::TensorOptions().dtype(x.dtype()).device(x.device()).requires_grad(false);
  torch::Tensor out = torch::empty(sizes, options);
  const int threads = 128, blocks = at::ceil_div<int64_t>(x.numel(), x.size(-1));
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "row_sum", ([&] {
    row_sum<scalar_t, 128><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>(), x.size(1));
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  const float scale = 2.0f;
  apply<<<1, 1>>>(out.data_ptr<float>(),
                  [scale, eps] __device__(float v) { return v * scale + eps; });
  auto table = torch::tensor({1.5f, 2.5f}, options);
  at::Tensor copy = out.clone();
  copy.zero_();
  return std::make_tuple(out, table);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace pybind11::literals;
  m.doc() = "idioms";
  m.def("forward", &forward, "docs", py::arg("x"), "bias"_a = py::none(), py::arg("eps") = 1e-5f,
        py::arg("mode") = 0, py::arg("flag") = true, py::arg("name") = "mean",
        py::call_guard<py::gil_scoped_release>());
}
"""


def test_common_idioms_of_extensions_work(opened: Opener, device: RecordingDevice) -> None:
    out, table = opened(IDIOMS).call([device.tensor(4, 32), None, 0.5, 1, 1])
    assert (out.shape, table.shape) == ((4, 1), (2,))
    assert bytes(device.blocks[table.address]) == struct.pack("<2f", 1.5, 2.5)
    assert [launch.grid[0] for launch in device.launches] == [4, 1]
    assert struct.unpack("<Qff", device.launches[1].params)[1:] == (2.0, 0.5)

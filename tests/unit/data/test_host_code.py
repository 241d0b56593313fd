"""When the host code of two kernel files is the same."""

from __future__ import annotations

import re

import pytest

from coding_framework.data.synthesis.host_code import host_digest

pytestmark = pytest.mark.unit

CODE = """\
#include <torch/extension.h>
#define BLOCK 256

__constant__ float table[2] = {1.0f, 2.0f};

__device__ float twice(float v) { return v * 2.0f; }

// halves what it is given
template <int N>
__global__ void __launch_bounds__(BLOCK) halve(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { o[i] = x[i] / 2; }
}

__global__ void add(float* o, int n) { o[threadIdx.x] = twice(n); }

torch::Tensor forward(torch::Tensor x) {
  int n = x.numel(), blocks = (n + BLOCK - 1) / BLOCK;
  auto o = torch::empty_like(x);
  halve<4><<<blocks, BLOCK>>>(x.data_ptr<float>(), o.data_ptr<float>(), n);
  add<<<1, BLOCK>>>(o.data_ptr<float>(), n);
  return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def test_other_names_comments_and_blanks_are_the_same_host_code() -> None:
    names = {"halve": "divide", "add": "increase", "blocks": "grid", "n": "count", "o": "out"}
    pattern = re.compile(rf"\b({'|'.join(names)})\b")
    renamed = pattern.sub(lambda m: names[m.group()], CODE)
    assert renamed != CODE
    assert host_digest(renamed.replace("  ", " ").replace("halves", "/* */")) == host_digest(CODE)


def test_other_device_functions_are_the_same_host_code() -> None:
    changed = CODE.replace("v * 2.0f", "v + v").replace("x[i] / 2", "x[i] * 0.5f")
    assert host_digest(changed) == host_digest(CODE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<<<blocks, BLOCK>>>", "<<<blocks, 128>>>"),
        ("BLOCK 256", "BLOCK 512"),
        ("halve<4>", "halve<2>"),
        ("x.numel()", "x.size(0)"),
        ("empty_like", "zeros_like"),
        ("add<<<1, BLOCK>>>(o.", "add<<<1, BLOCK>>>(x."),
        ('"forward"', '"backward"'),
    ],
)
def test_what_the_host_does_otherwise_is_told_apart(before: str, after: str) -> None:
    assert host_digest(CODE.replace(before, after)) != host_digest(CODE)


def test_launches_that_changed_places_are_told_apart() -> None:
    first = "k<<<1, 1>>>(p);"
    code = "__global__ void k(int* p) { *p = 1; } __global__ void q(int* p) { *p = 2; }"
    host = f"void forward(int* p) {{ {first} q<<<1, 1>>>(p); }}"
    swapped = f"void forward(int* p) {{ q<<<1, 1>>>(p); {first} }}"
    assert host_digest(f"{code} {host}") != host_digest(f"{code} {swapped}")


def test_a_function_of_both_sides_counts() -> None:
    both = "__host__ __device__ int rows(int n) { return n; } "
    assert host_digest(both + CODE) != host_digest(both.replace("return n", "return 2") + CODE)


def test_a_constant_of_the_runtime_is_no_name_of_the_file() -> None:
    code = "void forward() {{ cudaFuncSetAttribute(k, {}, 100); }}"
    one = code.format("cudaFuncAttributeMaxDynamicSharedMemorySize")
    other = code.format("cudaFuncAttributePreferredSharedMemoryCarveout")
    assert host_digest(one) != host_digest(other)

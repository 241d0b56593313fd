"""The CUDA files that modules' kernels take compile with every type that fills them."""

from __future__ import annotations

import re

import pytest

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.data.cuda import cuda_text
from coding_framework.data.lower.text import C_TYPES, FLOATS, HALVES

pytestmark = pytest.mark.integration

FILLINGS = [("recurrent.cu", dtype) for dtype in FLOATS]
FILLINGS += [("sort.cu", dtype) for dtype in C_TYPES if dtype not in HALVES]
MODULE = """
torch::Tensor forward(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


@pytest.mark.parametrize(("name", "dtype"), FILLINGS)
def test_a_file_compiles_for_each_type(name: str, dtype: str):
    text = re.sub(r"\bSCALAR\b", C_TYPES[dtype].kept, cuda_text(name))
    result = CUDACompiler().compile_source(f"#include <torch/extension.h>\n{text}{MODULE}")
    assert result.success, result.errors

"""Which standard headers a source is given."""

from __future__ import annotations

import re

import pytest

from coding_framework.cuda.build.diagnostics import MAX_SOURCE_CHARS
from coding_framework.cuda.build.headers import INCLUDE_FOLDER
from coding_framework.cuda.build.source_features import (
    FEATURES,
    feature_macros,
    uses_device_lambda,
    uses_torch,
)
from support.waiting import at_most_cpu_s

pytestmark = pytest.mark.unit


def test_a_plain_cuda_source_gets_nothing() -> None:
    assert not uses_torch("#include <cuda_runtime.h>\nstd::vector<int> x;")
    assert feature_macros("#include <cuda_runtime.h>\nstd::vector<int> x;") == ()


@pytest.mark.parametrize(
    "include", ["<torch/extension.h>", '"ATen/ATen.h"', "<c10/cuda/CUDAGuard.h>", "<torch/types.h>"]
)
def test_torch_is_seen_in_every_spelling(include: str) -> None:
    assert uses_torch(f"  #  include {include}\n")


def test_words_choose_the_headers() -> None:
    source = (
        "#include <torch/extension.h>\nstd::vector<at::Half> f() { std::tie(a); std::sqrt(b); }"
    )
    assert feature_macros(source) == ("CF_WANT_HALF", "CF_WANT_TUPLE", "CF_WANT_VECTOR")
    source = (
        "#include <torch/extension.h>\nstd::vector<at::Half> f() { using namespace std; tie(a); }"
    )
    wanted = ("CF_WANT_HALF", "CF_WANT_TUPLE", "CF_WANT_VECTOR", "CF_WANT_WHOLE_CMATH")
    assert feature_macros(source) == wanted


def test_what_stands_before_the_headers_of_torch_cannot_use_them() -> None:
    source = "#include <cuda_runtime.h>\nint f(int a) {{ return std::{}(a, 1); }}\n{}"
    torch = "#include <torch/extension.h>\n"
    assert "CF_WANT_WHOLE_CMATH" in feature_macros(source.format("min", torch))
    assert "CF_WANT_WHOLE_CMATH" not in feature_macros(source.format("pow", torch))
    assert "CF_WANT_WHOLE_CMATH" not in feature_macros(torch + source.format("min", ""))


@pytest.mark.parametrize(
    "text",
    [
        "double y = std::cyl_bessel_j(0.0, x);",
        "auto d = std::distance(a, b);",
        "using namespace std; float y = sqrt(x);",
        "using std :: expint;",
        "namespace s = ::std; auto y = s::beta(1.0, 2.0);",
        "using namespace ::std; auto d = distance(a, b);",
        "using namespace /* all of */ std;",
        "int f() { return std/**/::min(1, 2); }",
        "#define STD std\nint f() { return STD::min(1, 2); }",
        "#define USE(x) using namespace x\nUSE(std);",
        "#include <tr1/cmath>",
    ],
)
def test_a_source_that_may_need_more_of_std_gets_all_of_cmath(text: str) -> None:
    assert "CF_WANT_WHOLE_CMATH" in feature_macros("#include <torch/extension.h>\n" + text)


def test_names_of_std_count_only_where_they_can_mean_it() -> None:
    torch = "#include <torch/extension.h>\n"
    assert feature_macros(torch + "float m = max(a, b); int get = 1;") == ()
    assert feature_macros(torch + "std::max(a, b)") == ("CF_WANT_MINMAX",)
    assert feature_macros(torch + "using namespace std; max(a, b)") == (
        "CF_WANT_MINMAX",
        "CF_WANT_WHOLE_CMATH",
    )
    assert "CF_WANT_ALGORITHM" in feature_macros(torch + "std::max({a, b, c})")


def test_device_lambdas_are_seen() -> None:
    assert uses_device_lambda("auto f = [=] __device__ (float x) { return x; };")
    assert uses_device_lambda("[a, b]__host__ __device__(int i) {}")
    assert not uses_device_lambda("AT_DISPATCH(x, [&] { k<<<1, 1>>>(); }); __device__ int a[3];")


def test_every_macro_is_known_to_the_headers() -> None:
    folders = (INCLUDE_FOLDER / "coding_framework", INCLUDE_FOLDER / "bits")
    headers = "".join(p.read_text() for folder in folders for p in folder.iterdir())
    known = set(re.findall(r"CF_WANT_(\w+)", headers))
    assert known == FEATURES


@pytest.mark.parametrize("word", ["using ", "#define ", "namespace a=", "std ", "std::", "(std"])
def test_a_hostile_source_is_read_as_fast_as_others(word: str) -> None:
    source = "#include <torch/extension.h>\n" + word * (MAX_SOURCE_CHARS // len(word) - 10)
    with at_most_cpu_s(2.0):
        feature_macros(source)

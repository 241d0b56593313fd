"""What the kernel of a product is chosen by, said before it."""

from __future__ import annotations

import pytest

from coding_framework.agents.prompts.contract import contract_of, shapes_told
from coding_framework.data.modules.examples import module_kernels
from coding_framework.data.modules.kernels.choices import with_choices
from coding_framework.data.modules.pool import shown_drafts

FILE = """
__global__ void __launch_bounds__(128) product1(const float* x) {
}
__global__ void finish1(const float* w) {
}
__global__ void __launch_bounds__(64) product2(const float* x) {
}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
  int n = x.size(0), k = x.size(1);
  int m = y.size(0);
  launch1(x, y, t1, n, m, k);
  launch2(y, x, t2, m, n * 2 / 4, k);
  return t2;
}
"""


def said(code: str) -> list[str]:
    return [line for line in code.splitlines() if "tiles of 64" in line]


def test_a_product_says_what_its_kernel_is_chosen_by() -> None:
    assert said(with_choices(FILE, {"x": (512, 6144), "y": (300, 6144)})) == [
        "// 512 x 300 outputs of 6144 terms: 8 x 5 = 40 tiles of 64 x 64 for 132 SMs, several"
        " blocks share the terms of each",
        "// 300 x 256 outputs of 6144 terms: 5 x 4 = 20 tiles of 64 x 64 for 132 SMs, a block"
        " makes one",
    ]


def test_the_pairs_of_a_batch_are_counted() -> None:
    code = "\n".join((
        "__global__ void __launch_bounds__(256, 2) product1(const float* x) {",
        "}",
        "torch::Tensor forward(torch::Tensor A, torch::Tensor B) {",
        "  int n = A.size(0), M = A.size(1), K = A.size(2);",
        "  int N = B.size(2);",
        "  launch1(A, B, t1, M, N, K);",
    ))  # fmt: skip
    assert said(with_choices(code, {"A": (8, 512, 256), "B": (8, 256, 100)})) == [
        "// 8 x 512 x 100 outputs of 256 terms: 8 x 8 x 2 = 128 tiles of 64 x 64 for 132 SMs, a"
        " block makes two by two"
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.size(0), k", "f(x), k"), ("y.size(0)", "y.numel()"),
        ("y.size(0)", "y.size(0) % 7"), ("launch1(x", "start(x"),
        ("int m = y.size(0);", ""),
    ],
)  # fmt: skip
def test_what_the_sizes_do_not_tell_is_left_as_it_is(before: str, after: str) -> None:
    code = FILE.replace(before, after)
    found = with_choices(code, {"x": (512, 6144), "y": (300, 6144)})
    assert len(said(found)) < 2
    assert [line for line in found.splitlines() if "tiles of 64" not in line] == code.splitlines()


def test_every_tensor_core_product_of_the_catalogue_says_it() -> None:
    drafts = [d for d in shown_drafts() if d.family == "linear_fused"][:6]
    for draft in drafts:
        task, kernels = module_kernels(draft)
        shapes = shapes_told(contract_of(task))
        for kernel in kernels:
            count = kernel.code.count("__launch_bounds__")
            assert len(said(with_choices(kernel.code, shapes))) == count, kernel.level

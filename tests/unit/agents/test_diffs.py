"""Diff answers: applied where they fit exactly, refused with a reason anywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.agents.diffs import apply_diff
from coding_framework.agents.extraction import extract_kernel
from support.waiting import at_most_cpu_s

pytestmark = pytest.mark.unit

KERNEL = """\
#include <torch/extension.h>
__global__ void k(float* x) {
    int i = threadIdx.x;
    x[i] = x[i] * 2.0f;
    x[i] = x[i] + 1.0f;
}
torch::Tensor forward(torch::Tensor x) { return x; }
"""


def answered(diff: str, tag: str = "diff") -> tuple[str | None, str]:
    found = extract_kernel(f"Faster.\n```{tag}\n{diff}\n```", KERNEL)
    return found.code, found.note


def test_a_unified_diff_changes_the_kernel_that_was_shown():
    code, note = answered(
        "@@ -3,2 +3,2 @@\n     int i = threadIdx.x;\n-    x[i] = x[i] * 2.0f;\n+    x[i] *= 2.0f;"
    )
    assert code == KERNEL.replace("x[i] = x[i] * 2.0f;", "x[i] *= 2.0f;")
    assert note == "a diff of 1 hunk, applied to the kernel shown"


def test_wrong_line_numbers_and_file_heads_do_not_matter():
    code, _ = answered(
        "--- a/k.cu\n+++ b/k.cu\n@@ -77,1 +99,1 @@\n"
        "-    int i = threadIdx.x;\n+    int i = threadIdx.y;"
    )
    assert code == KERNEL.replace("threadIdx.x", "threadIdx.y")


def test_several_hunks_are_applied_in_order():
    code, note = answered(
        "@@\n-    int i = threadIdx.x;\n+    int j = threadIdx.x;\n+    int i = j;\n"
        "@@\n-    x[i] = x[i] + 1.0f;\n+    x[i] += 1.0f;"
    )
    assert code == KERNEL.replace(
        "int i = threadIdx.x;", "int j = threadIdx.x;\n    int i = j;"
    ).replace("x[i] = x[i] + 1.0f;", "x[i] += 1.0f;")
    assert note.startswith("a diff of 2 hunks")


def test_a_diff_in_a_cuda_block_is_seen_as_one():
    code, _ = answered("-    int i = threadIdx.x;\n+    int i = threadIdx.y;", tag="cuda")
    assert code == KERNEL.replace("threadIdx.x", "threadIdx.y")


@pytest.mark.parametrize(
    ("diff", "note"),
    [
        (
            "@@\n-    int k = 3;\n+    int k = 4;",
            "a diff whose hunk 1 does not fit the last kernel",
        ),
        ("@@\n+    int k = 4;", "a diff whose hunk 1 keeps and removes no line"),
        ("@@\n     int i = threadIdx.x;", "a diff that changes nothing"),
        ("@@ -1 +1 @@\n" * 3, "a diff that changes nothing"),
    ],
)
def test_a_diff_that_does_not_fit_is_no_kernel_and_says_which_hunk(diff: str, note: str):
    code, said = answered(diff)
    assert code is None
    assert said.startswith(note)


def test_an_ambiguous_place_is_refused():
    patched = apply_diff("a\nb\na\n", "@@\n-a\n+c")
    assert patched.code is None
    assert "2 places" in patched.note


def test_a_diff_without_an_earlier_kernel_says_so():
    found = extract_kernel("```diff\n-a\n+b\n```")
    assert found.code is None
    assert found.note == "a diff, and no earlier kernel to change"


def test_a_whole_kernel_beside_a_diff_is_preferred():
    whole = "```cuda\n__global__ void f() {} // forward\n```"
    found = extract_kernel(f"```diff\n-a\n+b\n```\n{whole}", KERNEL)
    assert found.code == "__global__ void f() {} // forward\n"


@given(st.text(alphabet="+- @ab\n{};", max_size=400))
def test_any_diff_gives_an_answer(text: str):
    patched = apply_diff(KERNEL, text)
    assert patched.note


def test_a_hostile_diff_takes_no_time():
    source = "a\n" * 50_000
    with at_most_cpu_s(10.0):
        apply_diff(source, "@@\n-a\n+b\n" * 1000)
        apply_diff(source, "@@\n" + " a\n" * 3000 + "-b\n+c")

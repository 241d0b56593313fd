"""Modules taken apart: what the parts are, and what cannot be one."""

from __future__ import annotations

import textwrap

import pytest

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.parts.join import joined, piece_of, require_joinable, takes
from coding_framework.data.parts.pieces import Part, finer, parted
from coding_framework.data.parts.whole import PartsError, whole_of
from coding_framework.errors import UnreadableError
from coding_framework.types import Task
from support.multihead import MULTIHEAD

pytestmark = pytest.mark.unit
ATTENTION = """
class Model(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.register_buffer("bands", 1.0 / 10 ** torch.arange(4).float(), persistent=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        out = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        out = out.transpose(1, 2).reshape(b, t, d)
        return torch.cat([x + out, x * self.bands.sum()], dim=-1)

batch, length, dim, heads = 8, 96, 64, 4
def get_inputs():
    return [torch.randn(batch, length, dim)]
def get_init_inputs():
    return [dim, heads]
"""


def task_of(source: str) -> Task:
    head = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    return problem_task(head + textwrap.dedent(source), "module")


def module(forward: str, inputs: str = "torch.randn(n, d)", init: str = "pass") -> Task:
    body = textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)
    return task_of(
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, x):\n{body}\n"
        f"n, d = 96, 128\ndef get_inputs():\n    return [{inputs}]\n"
        "def get_init_inputs():\n    return []\n"
    )


def forward_of(part: Part) -> str:
    return part.task.reference.partition("def forward")[2]


def test_an_attention_is_its_operations_and_the_views_between_them() -> None:
    whole = whole_of(task_of(ATTENTION))
    parts = parted(whole)
    assert [p.task.ops for p in parts] == [
        ("layer_norm",), ("linear",), ("matmul", "mul", "where"), ("softmax",),
        ("matmul",), ("add",), ("mul",),
    ]  # fmt: skip
    norm, linear, scores, _, product, _, bands = parts
    assert forward_of(bands).endswith("return (x * y)\n"), "a constant of one number is handed over"
    assert "self.layernorm = nn.LayerNorm(features, eps=1e-05)" in norm.task.reference
    assert "nn.Linear(in_features, out_features, bias=False)" in linear.task.reference
    assert list(map(str, linear.numbers)) == ["x_2", "qkv_weight_0"]
    assert linear.task.init_args == (64, 192)
    assert scores.task.init_args == pytest.approx(((64 // 4) ** -0.5, 96))
    mask = "(~torch.tril(torch.full([self.n_, self.n_], True, dtype=torch.bool)))"
    assert f'torch.where({mask}, float("-inf"), t1)' in forward_of(scores)
    assert product.task.gpu_cases[0].inputs[0].shape == (8, 4, 96, 96)
    assert (product.task.cases[0].inputs[0].low, product.task.cases[0].inputs[0].high) == (0.0, 2.0)
    require_joinable(whole, parts)


def test_each_operation_is_a_part_where_that_is_asked() -> None:
    whole = whole_of(module("return torch.sqrt((x * 2 - 1) ** 2 + 1).mean(-1)"))
    first, last = parted(whole)
    assert (first.task.ops, last.task.ops) == (("mul", "sub", "pow", "add", "sqrt"), ("mean",))
    alone = parted(whole, frozenset(first.nodes))
    assert [p.task.ops for p in alone] == [(n,) for n in (*first.task.ops, "mean")]
    assert len({p.key for p in alone}) == len(alone)


def test_what_is_written_into_a_slice_is_put_there_by_the_host() -> None:
    whole = whole_of(module("""
        y = torch.zeros_like(x)
        y[:, 1:] = x[:, :-1]
        y[::2, 0] = 3.0
        return y * 2
    """))  # fmt: skip
    parts = parted(whole)
    assert [p.task.ops for p in parts] == [("mul",)]
    kernel = "torch::Tensor f(torch::Tensor x) { return x; }"
    host = joined(whole, parts, [kernel + 'PYBIND11_MODULE(T, m) { m.def("forward", &f); }'])
    assert "slice_scatter_2 = part1::f(" not in host
    assert "auto mul = part1::f(slice_scatter_" in host


def test_a_counter_of_the_module_is_no_step() -> None:
    bn = "self.bn = nn.BatchNorm1d(128)"
    (part,) = parted(whole_of(module("return torch.relu(self.bn(x))", init=bn)))
    assert part.task.ops == ("batch_norm", "relu")


def test_what_a_part_makes_step_by_step_is_said_once() -> None:
    forward = "m = torch.zeros(x.size(0), x.size(1), dtype=torch.int64)\n"
    forward += "for k in range(12): m[k:, k:] = m[k:, k:] + m[:1, :1] + k\n"
    (part,) = parted(whole_of(module(forward + "return x * (m > 3)")))
    assert part.task.ops == ("mul",)
    assert len(part.task.reference) < 20_000


def test_equal_parts_have_one_key() -> None:
    first, second = parted(whole_of(module("return torch.cumsum(torch.cumsum(x, 1), 1)")))
    assert first.key == second.key
    assert first.task.name != second.task.name


def test_a_constant_is_written_down_and_one_of_the_size_is_made_in_the_part() -> None:
    fixed = whole_of(
        module("return x[..., None] * self.b", init="self.b = 2.0 ** torch.arange(4).float()")
    )
    (part,) = parted(fixed)
    assert forward_of(part).endswith("return (x * y)\n")
    empty = "torch::Tensor f(torch::Tensor x, torch::Tensor y) {}"
    code = joined(fixed, [part], [empty + 'PYBIND11_MODULE(T, m) { m.def("forward", &f); }'])
    assert "{1.0f, 2.0f, 4.0f, 8.0f}" in code
    assert "constant_copy);" in code
    (part,) = parted(whole_of(module("return x * torch.arange(x.size(1)).float()")))
    assert "torch.arange(0, self.n).to(torch.float32)" in forward_of(part)
    assert list(map(str, part.numbers)) == ["x_1"]


def test_what_has_no_parts_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableError, match="different sizes"):
        whole_of(module("return x * 2 if x.size(0) > 90 else x + 1"))
    monkeypatch.setattr("coding_framework.data.parts.whole.MOST_OPERATIONS", 3)
    with pytest.raises(PartsError, match="more than 3 operations"):
        whole_of(module("for _ in range(4): x = x * 1.01\nreturn x"))


@pytest.mark.parametrize(
    ("forward", "operations"),
    [
        ("y = x * 2\ny[:, 1:].add_(1)\nreturn y", ["mul", "add"]),
        ("y = x * 2\nv = y[:, :2]\ny.relu_()\nreturn v + 1", ["mul", "relu", "add"]),
        ("y = x * 2\ny[torch.arange(4)] = 0\nreturn y", ["mul", "index_put"]),
    ],
)
def test_what_is_written_in_place_is_an_operation(forward: str, operations: list[str]) -> None:
    whole = whole_of(module(forward))
    parts = parted(whole)
    assert [op for part in parts for op in part.task.ops] == operations
    require_joinable(whole, parts)


def test_a_constant_of_many_numbers_is_given_to_its_part() -> None:
    init = "self.made = torch.ones(300); self.made[3] = 0"
    whole = whole_of(module("return x.mean(1, keepdim=True) * self.made", init=init))
    (part,) = parted(whole)
    assert part.task.ops == ("mean", "mul")
    require_joinable(whole, [part])


KERNEL = """
#include <torch/extension.h>
#include <cuda_runtime.h>
#define THREADS 256
__device__ float twice(float v) { return 2 * v; }
__global__ void run(const float* x, float* o, int n) {}
std::vector<torch::Tensor> go(torch::Tensor x, torch::Tensor w, double eps) { return {x}; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &go, "it");
}
"""


def test_a_kernel_is_made_a_piece() -> None:
    piece = piece_of(KERNEL)
    assert piece.forward == "go"
    assert piece.many
    assert piece.arguments == 3
    assert piece.includes == ("#include <torch/extension.h>", "#include <cuda_runtime.h>")
    assert "PYBIND11" not in piece.body
    assert "#include" not in piece.body
    assert piece.body.endswith("#undef THREADS")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("torch::Tensor f(torch::Tensor x) { return x; }", "binds no function"),
        (KERNEL.replace("torch::Tensor x,", "std::vector<torch::Tensor> x,"), "takes a list"),
    ],
)
def test_a_kernel_that_is_no_piece_is_refused(code: str, why: str) -> None:
    with pytest.raises(PartsError, match=why):
        piece_of(code)


def test_a_bracket_in_a_text_ends_no_module() -> None:
    code = KERNEL.replace('"it"', '"} of \\"it\\" {{"') + "// behind\n"
    assert piece_of(code).body.split("\n")[-2] == "// behind"


def test_a_module_that_ends_the_program_at_other_sizes_has_its_parts() -> None:
    forward = (
        "if x.size(0) not in (96, 95, 48, 12, 24, 8, 6, 16, 4): raise SystemExit(1)\nreturn x * 2"
    )
    whole = whole_of(module(forward))
    assert [p.task.ops for p in parted(whole)] == [("mul",)]


def test_a_kernel_with_other_arguments_is_not_joined() -> None:
    whole = whole_of(module("return x * 2"))
    assert not takes(parted(whole)[0], KERNEL)
    with pytest.raises(PartsError, match="takes 3 arguments"):
        joined(whole, parted(whole), [KERNEL])


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("F.logsigmoid(x)", "F.logsigmoid(x)"),
        ("torch.linalg.vector_norm(x, dim=-1)", "torch.linalg.vector_norm(x, dim=[-1])"),
        ("torch.special.expit(x)", "torch.sigmoid(x)"),
        ("x[:, [0, 2]]", "y[:, x]"),
        ("F.max_pool2d(x[None, None], 2)[0, 0]", "F.max_pool2d(x, [2, 2])"),
        ("F.gelu(x, approximate='tanh')", "F.gelu(x, approximate='tanh')"),
        ("torch.add(x, x, alpha=3)", "torch.add(x, x, alpha=3)"),
    ],
)
def test_a_function_is_said_by_the_module_that_has_it(forward: str, said: str) -> None:
    (part,) = parted(whole_of(module(f"return {forward}")))
    assert said in part.task.reference


def test_a_tensor_full_of_one_number_is_made_by_the_host() -> None:
    whole = whole_of(module("return torch.cat([x.exp(), torch.full_like(x[:, :1], 1e10)], dim=1)"))
    (part,) = parted(whole)
    kernel = 'torch::Tensor f(torch::Tensor x) {} PYBIND11_MODULE(T, m) { m.def("forward", &f); }'
    code = joined(whole, [part], [kernel])
    assert "10000000000.0f" in code


def test_each_tensor_of_an_operation_that_gives_several_is_a_part() -> None:
    whole = whole_of(module("v, m = torch.var_mean(x, 1)\nreturn v * m"))
    parts = parted(whole)
    assert [part.task.ops for part in parts] == [("var_mean",), ("var_mean", "mul")]
    assert "torch.var_mean(x, [1], correction=1)[1]\n" in forward_of(parts[0])
    assert "torch.var_mean(x, [1], correction=1)[0]\n" in forward_of(parts[1])
    require_joinable(whole, parts)


def test_whole_numbers_that_a_module_returns_are_a_part() -> None:
    whole = whole_of(module("v, i = (x * 2).topk(3)\nreturn v, i[:, :2].contiguous()"))
    parts = parted(whole)
    assert [part.task.ops for part in parts] == [("mul",), ("topk",), ("topk",)]
    require_joinable(whole, parts)


def test_in_smaller_parts_what_was_made_beside_an_operation_is_given_to_it() -> None:
    whole = whole_of(module("return x.gather(1, x.argmax(1, keepdim=True)) * 2"))
    (part,) = parted(whole)
    assert "torch.gather(x, 1, torch.argmax(x, 1, True))" in forward_of(part)
    first, gather, last = finer(whole, [part])
    assert forward_of(first).endswith("return torch.argmax(x, 1, True)\n")
    assert forward_of(gather).endswith("return torch.gather(x, 1, y)\n")
    place = gather.task.cases[0].inputs[1]
    assert place.dtype == "int64"
    assert place.low is not None
    assert place.high is not None
    assert 0 <= place.low < place.high < gather.task.cases[0].inputs[0].shape[1]
    assert last.task.ops == ("mul",)


def test_what_is_counted_is_made_by_the_host_for_smaller_parts() -> None:
    """As a rotation's angles are: places by frequencies."""
    whole = whole_of(
        module("""
        n, d = x.shape
        rates = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
        return x * torch.outer(torch.arange(n).float(), rates).cos().repeat(1, 2)
    """)
    )
    parts = parted(whole)
    assert [part.task.ops for part in parts] == [("mul",)]
    smaller = finer(whole, parts)
    (said,) = map(forward_of, smaller)
    assert said.endswith("return (x * y)\n")
    kernel = "torch::Tensor f(torch::Tensor x, torch::Tensor y) {}"
    code = joined(whole, smaller, [kernel + 'PYBIND11_MODULE(T, m) { m.def("forward", &f); }'])
    assert "cosf(" in code


def test_where_what_is_made_beside_cannot_be_given_each_operation_is_a_part_all_the_same() -> None:
    """No kernel of a part returns complex numbers."""
    whole = whole_of(module("return torch.polar(x, x * 2).abs() + 1"))
    parts = parted(whole)
    smaller = finer(whole, parts)
    assert [part.task.ops for part in smaller] == [("mul",), ("abs",), ("add",)]
    assert "torch.polar(x, y)" in forward_of(smaller[1])


def test_values_and_their_places_are_made_apart() -> None:
    forward = "v, i = torch.topk(x.softmax(-1), 2)\nreturn torch.zeros_like(x).scatter(1, i, v / 2)"
    parts = parted(whole_of(module(forward)))
    assert [part.task.ops for part in parts] == [("softmax",), ("topk", "div"), ("scatter",)]
    assert "1, torch.topk(y, 2)[1], z)" in forward_of(parts[2])


def test_whole_numbers_of_a_module_stay_between_its_own() -> None:
    """Drawn anywhere, an offset would lead an index out of its table."""
    whole = whole_of(
        task_of("""
        class Model(nn.Module):
            def __init__(self, fields, rows):
                super().__init__()
                self.table = nn.Embedding(fields * rows, 8)
                self.register_buffer("offsets", torch.tensor([i * rows for i in range(fields)]))
            def forward(self, x):
                return self.table(x + self.offsets)
        batch, fields, rows = 64, 26, 500
        def get_inputs():
            return [torch.randint(0, rows, (batch, fields))]
        def get_init_inputs():
            return [fields, rows]
    """)
    )
    (part,) = parted(whole)
    task = part.task
    for case in (*task.cases, *task.gpu_cases):
        x, offsets = case.inputs
        table = case.init_args[0]
        assert isinstance(table, int)
        assert offsets.low == 0.0
        assert x.high is not None
        assert offsets.high is not None
        assert 0 < offsets.high <= table - 1 - x.high
    require_joinable(whole, [part])


def test_a_buffer_may_have_another_name_at_each_size() -> None:
    source = """
        class Model(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.size = size
                self.register_buffer(f"window_{size}", torch.hann_window(size))
            def forward(self, x):
                return x * getattr(self, f"window_{self.size}")
        batch, size = 32, 512
        def get_inputs():
            return [torch.randn(batch, size)]
        def get_init_inputs():
            return [size]
    """
    (part,) = parted(whole_of(task_of(source)))
    assert part.task.ops == ("mul",)


def test_what_depends_on_shapes_alone_is_made_in_the_part() -> None:
    """A constant would be right for a part of its own, so it could not be judged."""
    whole = whole_of(module("return (torch.ones_like(x).to(torch.float32) * 2).cumsum(-1) + x"))
    (part,) = parted(whole)
    assert part.task.ops == ("add",)
    assert "torch.full_like(x, 1)" in forward_of(part)


def test_a_function_that_is_a_multiple_is_said_as_one() -> None:
    (part,) = parted(whole_of(module("return torch.deg2rad(x).sin()")))
    assert "(x * 0.017453292519943295)" in forward_of(part)


OF_HEADS = [("mul",), ("mul",), ("matmul",), ("safe_softmax",), ("matmul",)]


@pytest.mark.parametrize(
    ("weights", "between"),
    [
        (False, OF_HEADS),
        (True, [("mul",), ("bmm",), ("softmax",), ("bmm",)]),  # nothing reads the mean over heads
    ],
)
def test_a_layer_of_attention_is_its_operations(
    weights: bool, between: list[tuple[str, ...]]
) -> None:
    whole = whole_of(task_of(MULTIHEAD % weights))
    parts = parted(whole)
    assert [part.task.ops for part in parts] == [
        ("linear",), *between, ("linear",), ("tanh", "add"),
    ]  # fmt: skip
    require_joinable(whole, parts)


@pytest.mark.parametrize(
    ("said", "instead", "products"),
    [
        (
            "need_weights=False",
            "need_weights=False, attn_mask=torch.ones(x.size(1), x.size(1)).bool().triu(1)",
            4,
        ),
        (
            "(x, x, x, need_weights=False",
            "(x, x, x, need_weights=False, key_padding_mask=x[:, :, 0] > 3",
            4,
        ),
        ("(x, x, x,", "(x, x[..., :16], x[..., 16:24],", 6),
    ],
    ids=["causal", "padded", "of other widths"],
)
def test_a_layer_of_attention_with_masks_or_other_widths_is_its_operations(
    said: str, instead: str, products: int
) -> None:
    source = (MULTIHEAD % False).replace(said, instead)
    if "16" in instead:
        source = source.replace("batch_first=True", "batch_first=True, kdim=16, vdim=8")
    whole = whole_of(task_of(source))
    parts = parted(whole)
    found = [op for part in parts for op in part.task.ops]
    assert sum(op in ("linear", "matmul") for op in found) == products
    assert found.count("safe_softmax") == 1
    require_joinable(whole, parts)

"""Modules taken apart: what the parts are, and what cannot be one."""

from __future__ import annotations

import textwrap

import pytest

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.parts.calls import PartsError, traced
from coding_framework.data.parts.finer import finer
from coding_framework.data.parts.join import joined, piece_of, require_joinable, takes
from coding_framework.data.parts.pieces import Part, parted
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
    trace = traced(task_of(ATTENTION))
    parts = parted(trace)
    assert [p.task.ops for p in parts] == [
        ("layer_norm",), ("linear",), ("matmul", "mul", "masked_fill"), ("softmax",),
        ("matmul",), ("add",), ("mul",),
    ]  # fmt: skip
    norm, linear, scores, _, product, _, bands = parts
    assert forward_of(bands).endswith("return (x * y)\n"), "a constant of one number is handed over"
    assert "self.layernorm = nn.LayerNorm(features, eps=1e-05)" in norm.task.reference
    assert "nn.Linear(in_features, out_features, bias=False)" in linear.task.reference
    assert linear.numbers == ("given0.size(2)", "given3.size(0)")
    scale = scores.numbers[0].replace("(double)", "").replace("given0.size(2)", "64")
    assert eval(scale) == (64 // 4) ** -0.5
    assert "torch.ones(self.n_, self.n_, dtype=torch.bool).tril()" in forward_of(scores)
    assert product.task.gpu_cases[0].inputs[0].shape == (8, 4, 96, 96)
    assert (product.task.cases[0].inputs[0].low, product.task.cases[0].inputs[0].high) == (0.0, 2.0)
    require_joinable(trace, parts)


def test_each_operation_is_a_part_where_that_is_asked() -> None:
    trace = traced(module("return torch.sqrt((x * 2 - 1) ** 2 + 1).mean(-1)"))
    first, last = parted(trace)
    assert (first.task.ops, last.task.ops) == (("mul", "sub", "pow", "add", "sqrt"), ("mean",))
    alone = parted(trace, frozenset(first.makes))
    assert [p.task.ops for p in alone] == [(n,) for n in (*first.task.ops, "mean")]
    assert len({p.key for p in alone}) == len(alone)


def test_what_is_written_into_a_slice_is_put_there_by_the_host() -> None:
    trace = traced(module("""
        y = torch.zeros_like(x)
        y[:, 1:] = x[:, :-1]
        y[::2, 0] = 3.0
        return y * 2
    """))  # fmt: skip
    parts = parted(trace)
    assert [p.task.ops for p in parts] == [("mul",)]
    kernel = "torch::Tensor f(torch::Tensor x) { return x; }"
    host = joined(trace, parts, [kernel + 'PYBIND11_MODULE(T, m) { m.def("forward", &f); }'])
    assert "torch::zeros({given0.size(0), given0.size(1)}" in host
    assert "torch::full({1}, (float)3.0" in host
    assert "{(2 * given0.size(1))}, {((given0.size(0) + 1) / 2)});" in host


def test_a_counter_of_the_module_is_no_step() -> None:
    bn = "self.bn = nn.BatchNorm1d(128)"
    (part,) = parted(traced(module("return torch.relu(self.bn(x))", init=bn)))
    assert part.task.ops == ("batch_norm", "relu")


def test_equal_parts_have_one_key() -> None:
    first, second = parted(traced(module("return torch.cumsum(torch.cumsum(x, 1), 1)")))
    assert first.key == second.key
    assert first.task.name != second.task.name


def test_a_constant_is_written_down_and_one_of_the_size_is_made_in_the_part() -> None:
    fixed = traced(
        module("return x[..., None] * self.b", init="self.b = 2.0 ** torch.arange(4).float()")
    )
    (part,) = parted(fixed)
    assert forward_of(part).endswith("return (x * y)\n")
    empty = "torch::Tensor f(torch::Tensor x, torch::Tensor y) {}"
    whole = joined(fixed, [part], [empty + 'PYBIND11_MODULE(T, m) { m.def("forward", &f); }'])
    assert "torch::tensor({(float)1.0, (float)2.0, (float)4.0, (float)8.0}" in whole
    (part,) = parted(traced(module("return x * torch.arange(x.size(1)).float()")))
    assert "torch.arange(self.n).float()" in forward_of(part)
    assert part.numbers == ("given0.size(1)",)


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        ("y = x * 2\ny[:, 1:].add_(1)\nreturn y", "writes into a tensor that others read"),
        (
            "y = x * 2\nv = y[:, :2]\ny.relu_()\nreturn v + 1",
            "writes into a tensor that others read",
        ),
        ("y = x * 2\ny[torch.arange(4)] = 0\nreturn y", "to places that other numbers tell"),
        ("return x * 2 if x.size(0) > 90 else x + 1", "differ from size to size"),
        ("for _ in range(1600): x = x * 1.01\nreturn x", "more than 1500 calls"),
    ],
)
def test_what_has_no_parts_is_told_why(forward: str, why: str) -> None:
    with pytest.raises(PartsError, match=why):
        parted(traced(module(forward)))


def test_a_constant_that_no_expression_makes_is_told() -> None:
    init = "self.made = torch.ones(300); self.made[3] = 0"
    with pytest.raises(PartsError, match="written place by place"):
        parted(traced(module("return x.mean(1, keepdim=True) * self.made", init=init)))


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
    trace = traced(module(forward))
    assert len(trace.values[0].layouts) >= len(trace.cases)
    assert [p.task.ops for p in parted(trace)] == [("mul",)]


def test_a_kernel_with_other_arguments_is_not_joined() -> None:
    trace = traced(module("return x * 2"))
    assert not takes(parted(trace)[0], KERNEL)
    with pytest.raises(PartsError, match="takes 3 arguments"):
        joined(trace, parted(trace), [KERNEL])


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("F.logsigmoid(x)", "F.logsigmoid(x)"),
        ("torch.linalg.vector_norm(x, dim=-1)", "torch.linalg.vector_norm(x, dim=-1)"),
        ("torch.special.expit(x)", "torch.special.expit(x)"),
    ],
)
def test_a_function_is_said_by_the_module_that_has_it(forward: str, said: str) -> None:
    (part,) = parted(traced(module(f"return {forward}")))
    assert said in part.task.reference


def test_what_is_made_of_a_turned_tensor_lies_in_the_order_of_its_places() -> None:
    trace = traced(module("y = x.t() * 2\nz = y[1:].softmax(-1)\nreturn z.clone()[:, 1:].sum(-1)"))
    computed = [out for call in trace.calls if call.kind != "view" for out in call.outputs]
    assert computed
    assert all(layout.is_plain for n in computed for layout in trace.values[n].layouts)


def test_the_first_half_of_a_tensor_is_a_copy_of_it() -> None:
    """It lies as a tensor of its own would, and a view of the whole has too many elements."""
    trace = traced(module("a, b = x.chunk(2)\nreturn a + (b - a) * 2.0"))
    parts = parted(trace)
    kernel = KERNEL.replace("torch::Tensor w, double eps", "torch::Tensor w")
    code = joined(trace, parts, [kernel])
    assert "given0.view" not in code
    assert code.count("between::copy(given0, ") == 2


def test_a_tensor_full_of_one_number_is_made_by_the_host() -> None:
    trace = traced(module("return torch.cat([x.exp(), torch.full_like(x[:, :1], 1e10)], dim=1)"))
    (part,) = parted(trace)
    kernel = 'torch::Tensor f(torch::Tensor x) {} PYBIND11_MODULE(T, m) { m.def("forward", &f); }'
    code = joined(trace, [part], [kernel])
    assert "torch::full({given0.size(0), 1}, (float)10000000000.0" in code


def test_each_tensor_of_an_operation_that_gives_several_is_a_part() -> None:
    trace = traced(module("v, m = torch.var_mean(x, 1)\nreturn v * m"))
    parts = parted(trace)
    assert [part.task.ops for part in parts] == [("var_mean",), ("var_mean", "mul")]
    assert "torch.var_mean(x, 1)[1]\n" in forward_of(parts[0])
    assert "torch.var_mean(x, 1)[0]\n" in forward_of(parts[1])
    require_joinable(trace, parts)


def test_whole_numbers_that_a_module_returns_are_a_part() -> None:
    trace = traced(module("v, i = (x * 2).topk(3)\nreturn v, i[:, :2].contiguous()"))
    parts = parted(trace)
    assert [part.task.ops for part in parts] == [("mul",), ("topk",), ("topk",)]
    require_joinable(trace, parts)


def test_in_smaller_parts_what_was_made_beside_an_operation_is_given_to_it() -> None:
    trace = traced(module("return x.gather(1, x.argmax(1, keepdim=True)) * 2"))
    (part,) = parted(trace)
    assert "x.gather(1, x.argmax(1, keepdim=True))" in forward_of(part)
    first, gather, last = finer(trace, [part])
    assert forward_of(first).endswith("return x.argmax(1, keepdim=True)\n")
    assert forward_of(gather).endswith("return x.gather(1, y)\n")
    place = gather.task.cases[0].inputs[1]
    assert place.dtype == "int64"
    assert place.low is not None
    assert place.high is not None
    assert 0 <= place.low < place.high < gather.task.cases[0].inputs[0].shape[1]
    assert last.task.ops == ("mul",)


def test_what_is_counted_is_made_by_the_host_for_smaller_parts() -> None:
    """As a rotation's angles are: places by frequencies."""
    trace = traced(
        module("""
        n, d = x.shape
        rates = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
        return x * torch.outer(torch.arange(n).float(), rates).cos().repeat(1, 2)
    """)
    )
    parts = parted(trace)
    assert [part.task.ops for part in parts] == [("mul",)]
    smaller = finer(trace, parts)
    said = [forward_of(part) for part in smaller]
    assert not any("arange" in one for one in said)
    assert any("torch.outer(x, y)" in one for one in said)
    assert said[-1].endswith("return (x * y)\n")
    kernel = 'torch::Tensor f(torch::Tensor x) {} PYBIND11_MODULE(T, m) { m.def("forward", &f); }'
    two = kernel.replace("Tensor x", "Tensor x, torch::Tensor y")
    code = joined(trace, smaller, [two if len(p.tensors) > 1 else kernel for p in smaller])
    assert "between::counted((given0.size(1) / 2), 0, 2, torch::TensorOptions()" in code
    assert "dtype(torch::kLong)" in code


def test_where_what_is_made_beside_cannot_be_given_each_operation_is_a_part_all_the_same() -> None:
    """No kernel of a part returns complex numbers."""
    trace = traced(module("return torch.polar(x, x * 2).abs() + 1"))
    parts = parted(trace)
    smaller = finer(trace, parts)
    assert [part.task.ops for part in smaller] == [("mul",), ("abs",), ("add",)]
    assert "torch.polar(x, y)" in forward_of(smaller[1])


def test_values_and_their_places_are_made_apart() -> None:
    forward = "v, i = torch.topk(x.softmax(-1), 2)\nreturn torch.zeros_like(x).scatter(1, i, v / 2)"
    parts = parted(traced(module(forward)))
    assert [part.task.ops for part in parts] == [("softmax",), ("topk", "div"), ("scatter",)]
    assert "scatter(1, torch.topk(y, 2)[1], z)" in forward_of(parts[2])


@pytest.mark.parametrize(
    "forward",
    [
        "v, i = x.t().max(0)\nreturn v[1:] * 2",
        "v, i = (x.t() + 1).topk(3)\nreturn v[:, 1:].exp()",
        "a, b = (x.t() * 2).chunk(2)\nreturn (a - b)[:, ::2].relu()",
    ],
)
def test_several_tensors_of_a_turned_one_lie_in_the_order_of_their_places(forward: str) -> None:
    trace = traced(module(forward))
    parts = parted(trace)
    require_joinable(trace, parts)
    for value in trace.values:
        for layout, seen in zip(value.layouts, value.seen, strict=False):
            assert value.root != value.number or layout.is_plain
            assert tuple(seen.shape) == layout.shape


def test_a_tensor_full_of_no_number_is_refused_in_words() -> None:
    forward = "return torch.cat([x.exp(), torch.full_like(x, float('nan'))], dim=1)"
    trace = traced(module(forward))
    with pytest.raises(PartsError, match="reads what no part makes"):
        require_joinable(trace, parted(trace))


def test_whole_numbers_of_a_module_stay_between_its_own() -> None:
    """Drawn anywhere, an offset would lead an index out of its table."""
    trace = traced(
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
    (part,) = parted(trace)
    task = part.task
    for case in (*task.cases, *task.gpu_cases):
        x, offsets = case.inputs
        table = case.init_args[0]
        assert isinstance(table, int)
        assert offsets.low == 0.0
        assert x.high is not None
        assert offsets.high is not None
        assert 0 < offsets.high <= table - 1 - x.high
    require_joinable(trace, [part])


def test_a_reshape_that_shows_its_tensor_at_one_size_is_a_copy_at_all() -> None:
    source = """
        class Model(nn.Module):
            def __init__(self, heads):
                super().__init__()
                self.heads = heads
            def forward(self, x):
                b, t, d = x.shape
                y = x.view(b, t, self.heads, d // self.heads).transpose(1, 2).exp()
                return y.transpose(1, 2).reshape(b, t, d) * 2.0
        batch, length, dim, heads = 8, 96, 64, 4
        def get_inputs():
            return [torch.randn(batch, length, dim)]
        def get_init_inputs():
            return [heads]
    """
    task = task_of(source)
    tiny = task.cases[-1]
    one = tiny.model_copy(update={
        "inputs": tuple(s.model_copy(update={"shape": (2, 4, 4)}) for s in tiny.inputs),
        "init_args": (1,),
    })  # fmt: skip
    trace = traced(task.model_copy(update={"cases": (*task.cases[:-1], one)}))
    assert [call.kind for call in trace.calls if call.name == "reshape"] == ["copy"]
    assert len(parted(trace)) == 2


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
    (part,) = parted(traced(task_of(source)))
    assert part.task.ops == ("mul",)


def test_what_depends_on_shapes_alone_is_made_in_the_part() -> None:
    """A constant would be right for a part of its own, so it could not be judged."""
    trace = traced(module("return (torch.ones_like(x).to(torch.float32) * 2).cumsum(-1) + x"))
    (part,) = parted(trace)
    assert part.task.ops == ("add",)
    assert "torch.ones_like(x)" in forward_of(part)


def test_a_function_that_is_a_multiple_is_said_as_one() -> None:
    (part,) = parted(traced(module("return torch.deg2rad(x).sin()")))
    assert "(x * 0.017453292519943295)" in forward_of(part)


@pytest.mark.parametrize(
    ("weights", "between"),
    [
        (False, [("scaled_dot_product_attention",)]),
        (True, [("bmm",), ("softmax",), ("bmm",)]),  # and the mean over heads, which nothing reads
    ],
)
def test_a_layer_of_attention_is_its_operations(
    weights: bool, between: list[tuple[str, ...]]
) -> None:
    trace = traced(task_of(MULTIHEAD % weights))
    parts = parted(trace)
    found = [tuple(op for op in part.task.ops if op not in ("mul", "sqrt")) for part in parts]
    assert [ops for ops in found if ops] == [("linear",), *between, ("linear",), ("tanh", "add")]
    require_joinable(trace, parts)


@pytest.mark.parametrize(
    ("said", "instead", "between"),
    [
        (
            "need_weights=False",
            "need_weights=False, attn_mask=torch.ones(x.size(1), x.size(1)).bool().triu(1)",
            [("linear",), ("scaled_dot_product_attention",)],
        ),
        (
            "(x, x, x, need_weights=False",
            "(x, x, x, need_weights=False, key_padding_mask=x[:, :, 0] > 3",
            [("masked_fill",), ("linear",), ("scaled_dot_product_attention",)],
        ),
        (
            "(x, x, x,",
            "(x, x[..., :16], x[..., 16:24],",
            [("linear",)] * 3 + [("scaled_dot_product_attention",)],
        ),
    ],
    ids=["causal", "padded", "of other widths"],
)
def test_a_layer_of_attention_with_masks_or_other_widths_is_its_operations(
    said: str, instead: str, between: list[tuple[str, ...]]
) -> None:
    source = (MULTIHEAD % False).replace(said, instead)
    if "16" in instead:
        source = source.replace("batch_first=True", "batch_first=True, kdim=16, vdim=8")
    trace = traced(task_of(source))
    parts = parted(trace)
    assert [part.task.ops for part in parts] == [*between, ("linear",), ("tanh", "add")]
    require_joinable(trace, parts)

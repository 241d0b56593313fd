"""Problems as a newcomer wrote them, each of which was refused or read wrongly before."""

from __future__ import annotations

import math

import pytest
import torch

from coding_framework.cuda.expected.reference import expect, task_digest
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.problem_checks import require_function
from coding_framework.data.registry import problem_as_task
from coding_framework.errors import UsageError
from coding_framework.reference_model import is_in_evaluation_mode
from coding_framework.task_shapes import count_shape_sets
from coding_framework.types import Task

pytestmark = pytest.mark.unit


def problem(
    forward: str, inputs: str, init: str = "pass", args: str = "", top: str = "", given: str = "x"
) -> Task:
    """`forward` is an expression of the inputs' names; init: a statement of the constructor."""
    names = "".join(f", {a.split(':')[0]}" for a in args.split(",") if a)
    values = ", ".join(a.split(":")[1] for a in args.split(",") if a)
    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"{top}\nclass Model(nn.Module):\n    def __init__(self{names}):\n"
        f"        super().__init__()\n        {init}\n\n    def forward(self, {given}):\n"
        f"        return {forward}\n\ndef get_inputs():\n    return [{inputs}]\n\n"
        f"def get_init_inputs():\n    return [{values}]\n"
    )
    return problem_task(source, "own")


def judged(task: Task) -> Task:
    """The judge has an expectation of it at each small size."""
    require_function(task)
    for case in task.cases:
        expect(task, task_digest(task), case, b"s" * 32, 0)
    return task


def integers(task: Task) -> list[list[tuple[float | None, float | None]]]:
    """The bounds of each input of integers, at each size."""
    whole = ("int64", "int32", "uint8")
    cases = (*task.cases, *task.gpu_cases)
    return [[(s.low, s.high) for s in case.inputs if s.dtype in whole] for case in cases]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_layer_in_half_precision_is_read(dtype: str) -> None:
    task = problem(
        "self.f(x)", f"torch.randn(8, 64, dtype=torch.{dtype})",
        f"self.f = nn.LayerNorm(64, dtype=torch.{dtype})",
    )  # fmt: skip
    assert judged(task).cases[0].inputs[0].dtype == dtype


def test_a_configuration_may_be_a_dataclass() -> None:
    top = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    eps: float = 1e-6\n"
    judged(problem("x * torch.rsqrt(x.pow(2).mean(-1, True) + self.c.eps)",
                   "torch.randn(32, 256)", "self.c = Config()", top=top))  # fmt: skip


def test_a_constant_that_the_model_reads_stays() -> None:
    top = "BATCH = 64\nDIM, HIDDEN = 256, 512\nWIDE = 2 * HIDDEN\ndef width():\n    return WIDE\n"
    task = problem("self.f(x)", "torch.randn(BATCH, DIM)", "self.f = nn.Linear(DIM, width())",
                   top=top)  # fmt: skip
    assert {case.inputs[0].shape[1] for case in judged(task).cases} == {256}
    assert count_shape_sets(task)[0] == 3


def test_an_argument_of_the_same_name_is_not_the_constant() -> None:
    top = "dim = 256\nbatch = 64\n"
    task = problem("self.f(x)", "torch.randn(batch, dim)", "self.f = nn.Linear(dim, dim)",
                   args="dim:dim", top=top)  # fmt: skip
    assert len({case.inputs[0].shape[1] for case in judged(task).cases}) == 3


def test_a_mask_as_float_meets_float64() -> None:
    task = problem("F.one_hot(i, 8).float() @ x", "torch.randint(0, 8, (16,)), torch.randn(8, 32)",
                   given="i, x")  # fmt: skip
    judged(task)


def test_probabilities_are_drawn_as_the_problem_draws_them() -> None:
    task = problem("F.binary_cross_entropy(p, t)", "torch.rand(64, 32), torch.rand(64, 32)",
                   given="p, t")  # fmt: skip
    bounds = [(s.low, s.high) for s in judged(task).cases[0].inputs]
    assert all(0 <= (low or 0) < (high or 0) <= 1 for low, high in bounds), bounds


def test_a_tensor_of_ones_beside_a_logarithm_is_drawn_freely() -> None:
    task = judged(problem("torch.log(x) * w", "torch.rand(64, 512) + 0.5, torch.ones(512)",
                          given="x, w"))  # fmt: skip
    first, second = task.cases[0].inputs
    assert first.low is not None
    assert second.low is None


IDS = "torch.randint(0, 5000, (8, 32))"
LABELS = "torch.randint(0, 2, (8, 32)).float()"


@pytest.mark.parametrize(
    ("inputs", "forward", "given", "bounds"),
    [
        (f"{IDS}, torch.randint(0, 2, (8, 32)).bool()", "self.t(i) * m[..., None]", "i, m",
         [(0, 4999)]),
        (f"{IDS}, {LABELS}", "self.t(i) * m[..., None]", "i, m", [(0, 4999)]),
        (f"torch.arange(32), {IDS}", "self.t(i) + self.p(a)", "a, i", [(0, 31), (0, 4999)]),
        (f"{IDS}.int(), {LABELS}", "self.t(i) * m[..., None]", "i, m", [(0, 4999)]),
        (f"torch.full((8,), 32), {IDS}.int()", "self.t(i).sum(1) * n[:, None]", "n, i",
         [(0, 32), (0, 4999)]),
        (f"torch.arange(32), {LABELS}, {LABELS}", "self.p(a) * m[..., None] + k[..., None]",
         "a, m, k", [(0, 31)]),
        (f"{IDS}.int(), {IDS}.int(), {LABELS}", "(self.t(i) + self.t(j)) * m[..., None]",
         "i, j, m", [(0, 4999), (0, 4999)]),
        (f"{IDS}.view(32, 8)", "self.t(i)", "i", [(0, 4999)]),
        (f"{IDS}.int(), torch.full((8,), 32)", "self.t(i).sum(1) * n[:, None]", "i, n",
         [(0, 4999), (0, 32)]),
    ],
)  # fmt: skip
def test_integers_have_the_range_of_their_own_draw(
    inputs: str, forward: str, given: str, bounds: list[tuple[float, float]]
) -> None:
    init = "self.t, self.p = nn.Embedding(5000, 16), nn.Embedding(32, 16)"
    assert integers(judged(problem(forward, inputs, init, given=given)))[-1] == bounds


def test_what_the_constructor_draws_is_no_input() -> None:
    init = "self.register_buffer('order', torch.randint(0, 2, (64,)))"
    task = problem("x[i] * self.order", "torch.randn(512, 64), torch.randint(0, 512, (9,))", init,
                   given="x, i")  # fmt: skip
    assert integers(task)[-1] == [(0, 511)]


@pytest.mark.parametrize(
    ("top", "inputs", "given"),
    [
        ("BATCH: int = 16\nDIM: int = 512\n", "torch.randn(BATCH, DIM)", "x"),
        ("", "torch.randn(64, 128), 3", "x, k"),
        ("N = 1 << 20\n", "torch.randn(N)", "x"),
        ("N = int(1e6)\n", "torch.randn(N)", "x"),
    ],
)
def test_sizes_are_found_however_they_are_written(top: str, inputs: str, given: str) -> None:
    task = judged(problem("torch.tanh(x) * 2", inputs, top=top, given=given))
    assert count_shape_sets(task)[0] == 3
    assert task.cases[0].inputs[0].shape != (1024,), "of 1 << 20 the exponent is no size"
    assert any(extent % 2 for extent in task.cases[1].inputs[0].shape)


def test_an_extent_does_not_end_at_one() -> None:
    top = "D = 512\n"
    task = problem("F.layer_norm(x, x.shape[-1:])", "torch.randn(64, 32, D)", top=top)
    assert all(case.inputs[0].shape[2] > 1 for case in task.cases)
    with torch.no_grad():
        judged(task)


def test_a_norm_of_groups_does_not_become_one_of_channels() -> None:
    task = problem("F.silu(self.n(x))", "torch.randn(8, 256, 16, 16)",
                   "self.n = nn.GroupNorm(32, channels)", args="channels:256")  # fmt: skip
    channels = [case.inputs[0].shape[1] for case in judged(task).cases]
    assert all(count % 32 == 0 and count > 32 for count in channels), channels


def test_what_is_made_between_counts_too() -> None:
    task = problem("(x[:, :, None] - x[:, None]).pow(2).sum((1, 2))", "torch.randn(4, 1536, 3)")
    assert all(
        math.prod((4, n, n, 3)) < 1 << 22 for c in task.cases for n in c.inputs[0].shape[1:2]
    )
    assert task.gpu_cases[0].inputs[0].shape == (4, 1536, 3)


def test_a_module_may_be_given_pairs() -> None:
    top = "ANCHORS = [(1.25, 1.5), (2.0, 3.75)]\n"
    task = problem("x * self.a.prod(1)[:, None]", "torch.randn(2, 64)",
                   "self.a = torch.tensor(anchors)", args="anchors:ANCHORS", top=top)  # fmt: skip
    assert judged(task).init_args == (((1.25, 1.5), (2.0, 3.75)),)
    assert Task.model_validate_json(task.model_dump_json()) == task, "as suites keep it"


def test_what_no_size_makes_smaller_is_read_all_the_same() -> None:
    forward = "x + torch.ones(3000, 3000).sum() * 0"
    task = judged(problem(forward, "torch.randn(64, 128)"))
    assert count_shape_sets(task)[0] == 3


def test_inputs_may_be_counted_from_others() -> None:
    """Without values there is no `bincount`."""
    inputs = (
        "e := torch.randint(0, NODES, (8 * NODES,)), torch.randn(NODES, 64), "
        "torch.bincount(e, minlength=NODES).clamp(min=1).float()"
    )
    top = "NODES = 20000\n"
    task = judged(problem("x[e] / w[e][:, None]", inputs, top=top, given="e, x, w"))
    assert task.gpu_cases[0].inputs[2].shape == (20000,)
    nodes = [case.inputs[1].shape[0] for case in task.cases]
    assert integers(task) == [[(0.0, n - 1.0)] for n in (*nodes, 20000)]


def test_inputs_that_fail_for_a_reason_of_their_own_are_refused_with_it() -> None:
    with pytest.raises(UsageError, match=r"size of tensor a \(5\) must match"):
        problem("x * 2", "torch.randn(4, 5) + torch.randn(4, 6)")


def _read(source: str) -> Task:
    return judged(
        problem_task(
            f"import torch\nimport torch.nn as nn\nfrom torch import Tensor\n{source}", "o"
        )
    )


_GIVEN = "\ndef get_inputs():\n    return [torch.randn(8, 16), torch.randn(8, 16)]\n"
_NO_ARGUMENTS = "\ndef get_init_inputs():\n    return []\n"


def test_a_module_may_give_booleans() -> None:
    task = problem("x > 0", "torch.randn(8, 16)")
    assert judged(task).cases[0].reduction_length == 1


def test_a_module_may_give_tuples_dicts_and_dataclasses_of_tensors_and_none() -> None:
    task = _read(
        "from dataclasses import dataclass\n@dataclass\n"
        "class Out:\n    last: Tensor\n    no: None\n"
        "class Model(nn.Module):\n    def forward(self, x, y):\n"
        "        return x + y, (x, {'a': y, 'b': [x * y]}), Out(x - y, None)\n"
        f"{_GIVEN}{_NO_ARGUMENTS}"
    )
    expected = expect(task, task_digest(task), task.cases[0], b"s" * 32, 0)
    x, y = expected.inputs
    for output, wanted in zip(expected.outputs, (x + y, x, y, x * y, x - y), strict=True):
        assert torch.equal(output.native, wanted)


@pytest.mark.parametrize(
    ("returned", "arguments"),
    [
        ("[[], {'features': 16}]", (16,)),
        ("[[16], {}]", (16,)),
        ("[[16], {'eps': 2.0}]", (16, 2.0)),
        ("{'eps': 2.0, 'features': 16}", (16, 2.0)),
        ("[[], {'features': 16, 'scale': 3.0}]", (16, 1e-6, 3.0)),
    ],
)
def test_arguments_may_be_given_by_name(returned: str, arguments: tuple[object, ...]) -> None:
    task = _read(
        "class Model(nn.Module):\n    def __init__(self, features, eps=1e-6, scale=1.0):\n"
        "        super().__init__()\n        self.gain = nn.Parameter(torch.rand(features))\n"
        "        self.eps, self.scale = eps, scale\n    def forward(self, x, y):\n"
        "        return self.gain * self.scale * x / (y.abs() + self.eps)\n"
        f"{_GIVEN}\ndef get_init_inputs():\n    return {returned}\n"
    )
    assert task.init_args == arguments


def test_an_argument_that_has_no_place_is_named() -> None:
    with pytest.raises(UsageError, match="takes eps by name alone"):
        _read(
            "class Model(nn.Module):\n    def __init__(self, *, eps):\n"
            "        super().__init__()\n        self.eps = eps\n    def forward(self, x, y):\n"
            f"        return x * self.eps + y\n{_GIVEN}\ndef get_init_inputs():\n"
            "    return [[], {'eps': 2.0}]\n"
        )


def test_a_helper_may_be_scripted() -> None:
    _read(
        "@torch.jit.script\ndef gated(x: Tensor, y: Tensor) -> Tensor:\n"
        "    return torch.sigmoid(x) * y\n\nclass Model(nn.Module):\n    def forward(self, x, y):\n"
        f"        return gated(x, y)\n{_GIVEN}{_NO_ARGUMENTS}"
    )


@pytest.mark.parametrize("given", ["[a, a]", "(a, a)", "{'a': a}"])
def test_an_input_that_holds_tensors_is_refused_by_its_place(given: str) -> None:
    source = (
        "class Model(nn.Module):\n    def forward(self, levels):\n        return levels[0]\n"
        f"def get_inputs():\n    a = torch.randn(4, 8)\n    return [{given}]\n{_NO_ARGUMENTS}"
    )
    with pytest.raises(UsageError, match="as its value 0: a kernel takes tensors"):
        _read(source)


@pytest.mark.parametrize(
    ("init", "forward"),
    [
        ("self.d = nn.Dropout(0.5)", "self.d(x) + y"),
        ("pass", "F.dropout(x, 0.5, self.training) * y"),
        ("self.d = nn.MultiheadAttention(16, 2, dropout=0.5)", "self.d(x, y, y)[0]"),
    ],
)
def test_dropout_is_off_as_in_evaluation_and_the_task_says_so(init: str, forward: str) -> None:
    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super(Model, self).__init__()\n"
        f"        {init}\n    def forward(self, x, y):\n        return {forward}\n"
        f"{_GIVEN}{_NO_ARGUMENTS}"
    )
    task = problem_as_task(source, "own")
    assert "in evaluation mode (without its dropout)" in task.description
    assert is_in_evaluation_mode(judged(task).reference)


def test_a_module_without_random_numbers_is_judged_as_it_trains() -> None:
    source = "class Model(nn.Module):\n    def forward(self, x, y):\n        return x @ y.T\n"
    head = "import torch\nimport torch.nn as nn\n"
    task = problem_as_task(f"{head}{source}{_GIVEN}{_NO_ARGUMENTS}", "own")
    assert not is_in_evaluation_mode(task.reference)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_autocast_is_told_to_act_on_a_gpu_alone() -> None:
    source = (
        "import torch\nimport torch.nn as nn\n"
        "class Model(nn.Module):\n    def forward(self, x, y):\n"
        "        with torch.autocast('cuda', dtype=torch.bfloat16):\n            return x @ y.T\n"
        f"{_GIVEN}{_NO_ARGUMENTS}"
    )
    assert "autocast acts on a GPU alone" in problem_as_task(source, "own").description

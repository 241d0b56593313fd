"""KernelBench problems become tasks: sizes scaled, semantics kept, inputs described."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from coding_framework.commands.build_data import outside_tasks
from coding_framework.cuda.expected.inputs import draw_inputs
from coding_framework.cuda.expected.reference import ReferenceCache, a_constant_passes
from coding_framework.data.kernelbench.constants import parse, run_module, size_constants
from coding_framework.data.kernelbench.problems import (
    GPU_BUDGET,
    MAIN_BUDGET,
    load_problem_file,
    problem_task,
)
from coding_framework.data.kernelbench.sizes import measure
from coding_framework.errors import UsageError
from coding_framework.task_shapes import count_shape_sets
from coding_framework.types import Split, Task

pytestmark = pytest.mark.unit

PROBLEMS = Path(__file__).parent / "problems"


@pytest.fixture(scope="module")
def rows() -> Task:
    return load_problem_file(PROBLEMS / "scaled_rows.py")


@pytest.fixture(scope="module")
def labelled() -> Task:
    return load_problem_file(PROBLEMS / "labelled_log.py")


def _runs(task: Task) -> None:
    """Every emulator case runs on the task's reference."""
    namespace: dict[str, type[torch.nn.Module]] = {}
    exec(task.reference, namespace)
    for case in task.cases:
        inputs = [
            torch.full(t.shape, int(t.high or 1)) if t.dtype == "int64" else torch.rand(t.shape)
            for t in case.inputs
        ]
        assert torch.isfinite(namespace["Model"](*case.init_args)(*inputs)).all()


def test_published_sizes_are_kept_for_a_gpu_and_scaled_for_the_emulator(rows: Task) -> None:
    assert rows.gpu_cases[0].inputs[0].shape == (4096, 2048)
    assert rows.gpu_cases[0].init_args == (2048, 4096, 16, 1e-5)
    for case in rows.cases:
        assert math.prod(case.inputs[0].shape) <= MAIN_BUDGET.elements
    _runs(rows)


def test_what_the_function_is_does_not_scale(rows: Task) -> None:
    for case in rows.cases:
        inputs, outputs, groups, eps = case.init_args
        assert (groups, eps) == (16, 1e-5)
        assert isinstance(outputs, int)
        assert outputs % 16 == 0
        assert inputs == case.inputs[0].shape[1]


def test_the_odd_case_is_odd_where_the_model_allows_it(rows: Task) -> None:
    batch, features = rows.cases[1].inputs[0].shape
    assert features % 2
    assert batch % 8


def test_the_reduction_is_as_long_as_the_model_adds_up(rows: Task) -> None:
    main = rows.cases[0]
    assert main.reduction_length >= main.inputs[0].shape[1]
    relu = problem_task(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x)\ndef get_inputs():\n    return [torch.rand(64, 64)]\n"
        "def get_init_inputs():\n    return []\n",
        "relu",
    )
    assert {c.reduction_length for c in (*relu.cases, *relu.gpu_cases)} == {1}


def test_a_model_may_change_its_tensors_in_place() -> None:
    task = problem_task(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        x += 1\n"
        "        out = torch.relu(x)\n        out += x.sum(dim=1, keepdim=True)\n"
        "        return out\ndef get_inputs():\n    return [torch.rand(16, 32)]\n"
        "def get_init_inputs():\n    return []\n",
        "in_place",
    )
    assert task.cases[0].reduction_length == 32


@pytest.mark.parametrize(
    "how", ["", "@torch.no_grad()", "@torch.inference_mode()", "@torch.autograd.no_grad()"]
)
@pytest.mark.parametrize(
    ("result", "terms"),
    [
        ("x.sum(-1)", 32), ("x.cumsum(-1)", 32), ("x.var(-1)", 32), ("x.softmax(-1)", 32),
        ("torch.nn.functional.layer_norm(x, x.shape[-1:])", 32), ("x.amax(-1)", 1),
        ("x @ x.T", 32), ("(x @ x.T).sum(0)", 512), ("(x @ x.T).relu().sum(0)", 32),
        ("x.gather(1, x.argsort(-1))", 1),
        ("torch.zeros_like(x).index_add_(0, x.argmax(0) % 16, x[:1].expand(32, 32))", 32),
        ("torch.nn.functional.avg_pool2d(x[None], 2)", 4), ("x[:, ::2] * 2", 1),
    ],
)  # fmt: skip
def test_terms_are_counted_without_a_derivative(how: str, result: str, terms: int) -> None:
    source = (
        f"import torch\nclass Model(torch.nn.Module):\n    {how or '# plain'}\n"
        f"    def forward(self, x):\n        return {result}\ndef get_inputs():\n"
        "    return [torch.rand(16, 32)]\ndef get_init_inputs():\n    return []\n"
    )
    tree = parse(source)
    assert measure(tree, {}).terms == terms


def test_operators_without_a_derivative_are_read() -> None:
    task = problem_task(
        "import torch\nclass Scaled(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x, w):\n        return x @ w\n    @staticmethod\n"
        "    def backward(ctx, grad):\n        raise RuntimeError('inference only')\n"
        "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.rand(32, 16), requires_grad=False)\n"
        "    def forward(self, x):\n        return Scaled.apply(x, self.w)\n"
        "def get_inputs():\n    return [torch.rand(16, 32)]\n"
        "def get_init_inputs():\n    return []\n",
        "scaled",
    )
    assert {case.reduction_length for case in task.cases} == {32}


_LITERAL = """import torch
class Model(torch.nn.Module):
    def __init__(self, features, kernel_size, classes):
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(classes, features, kernel_size // 9))
    def forward(self, x, labels):
        assert x.shape[1] == self.table.shape[1] {fixed}
        return x * self.table[labels, :, 0]
def get_inputs():
    count = 16
    return [torch.randn(count, 64), torch.randint(0, 10, (count,))]
def get_init_inputs():
    return [64, 9, 10]
"""


def test_sizes_without_a_name_are_varied_where_the_model_allows_it() -> None:
    task = problem_task(_LITERAL.format(fixed=""), "literal")
    shapes = [tuple(spec.shape for spec in case.inputs) for case in task.cases]
    assert shapes[0] == ((16, 64), (16,))
    assert len(set(shapes)) == 3
    for case in task.cases:
        assert case.init_args[:2] == (case.inputs[0].shape[1], 9)
        assert (case.inputs[1].low, case.inputs[1].high) == (0.0, float(str(case.init_args[2])) - 1)


def test_a_size_that_only_a_run_refuses_is_not_taken() -> None:
    source = _LITERAL.format(fixed="").replace("randint(0, 10", "randint(0, 5 + 5")
    task = problem_task(source, "indexed")
    assert {case.init_args[2] for case in task.cases} == {10}


def test_a_problem_for_one_size_only_is_a_task_of_that_size() -> None:
    fixed = "== 64 and x.shape[0] == 16 and self.table.shape[0] == 10"
    task = problem_task(_LITERAL.format(fixed=fixed), "fixed")
    assert {tuple(s.shape for s in c.inputs) for c in task.cases} == {((16, 64), (16,))}
    assert count_shape_sets(task) == (1, 0)


def test_a_problem_that_no_gpu_could_judge_is_halved_until_one_can() -> None:
    relu = problem_task(
        "import torch\nbatch, dim = 4096, 393216\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
        "def get_inputs():\n    return [torch.rand(batch, dim)]\n"
        "def get_init_inputs():\n    return []\n",
        "relu",
    )
    (real,) = relu.gpu_cases
    assert real.inputs[0].shape == (4096, 393216 // 4)
    assert 2 * math.prod(real.inputs[0].shape) <= GPU_BUDGET.elements


def test_a_model_for_all_values_is_not_judged_on_positive_ones_alone(rows: Task) -> None:
    assert rows.cases[0].inputs[0].low is None


def test_a_logarithm_keeps_the_problems_own_positive_inputs(labelled: Task) -> None:
    low = labelled.cases[0].inputs[0].low
    assert low is not None
    assert low > 0


def test_labels_stay_below_the_number_of_classes_of_each_case(labelled: Task) -> None:
    for case in (*labelled.cases, *labelled.gpu_cases):
        probabilities, labels = case.inputs
        assert labels.dtype == "int64"
        assert (labels.low, labels.high) == (0.0, probabilities.shape[1] - 1.0)


def test_a_scalar_input_becomes_an_argument_of_the_model(labelled: Task) -> None:
    assert labelled.init_args == (2.5,)
    assert len(labelled.cases[0].inputs) == 2
    _runs(labelled)


def test_tasks_are_outside_the_splits_and_name_their_source(rows: Task) -> None:
    assert rows.split is Split.OUTSIDE
    assert rows.source == "kernelbench"
    assert rows.licence == "MIT"
    assert [c.shown for c in rows.cases] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "is_size"),
    [
        ("batch_size", True), ("batch", True), ("bs", True), ("train_batch_size", True),
        ("batch_axis", False), ("batch_dim", False), ("batch_norm_layers", False), ("axis", False),
    ],
)  # fmt: skip
def test_a_small_number_is_a_size_where_its_name_says_so(name: str, is_size: bool) -> None:
    assert bool(size_constants(parse(f"{name} = 4"))) is is_size


def test_only_size_literals_are_constants_to_scale() -> None:
    source = (
        "N = 2048 * 2\nkernel_size = 16\ndim = 1\nh = w = 128\nshape = (64, 3)\na, b = 32, 9.5\n"
    )
    found = {(c.name, c.value) for c in size_constants(parse(source))}
    assert found == {("N", 2048), ("h", 128), ("shape", 64), ("a", 32)}
    constants = {c.name: c for c in size_constants(parse(source))}
    namespace = run_module(parse(source), {constants["N"]: 8, constants["h"]: 5})
    assert (namespace["N"], namespace["w"], namespace["kernel_size"]) == (16, 5, 16)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def broken(:\n", "not Python"),
        ("x = 1\n", "it needs a `Model`"),
        ("raise SystemError('no')\n", "no"),
        ("import torch\nx = torch.zeros(2)[5]\n", "index"),
    ],
)
def test_a_file_that_is_no_problem_is_a_usage_error(source: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        problem_task(source, "bad")


def test_bad_problems_from_outside_are_left_out_and_the_others_load(tmp_path: Path) -> None:
    good = (PROBLEMS / "labelled_log.py").read_text()
    lines = [
        json.dumps({"level": 1, "name": "good", "code": good}),
        "{not json",
        json.dumps({"level": 1, "name": "no code"}),
        json.dumps({"level": 1, "name": "null", "code": None}),
        json.dumps({"level": 2, "name": "good too", "code": good}),
        json.dumps({"level": 1, "name": "ends its process", "code": "import os; os._exit(3)"}),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    tasks = outside_tasks(path)
    assert [(t.name, t.tier) for t in tasks] == [("good", 1), ("good too", 2)]


STACKED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, tables, levels):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 4) for n in tables)
        self.register_buffer("levels", torch.tensor(levels))

    def forward(self, ids):
        rows = torch.stack([t(ids[:, k]) for k, t in enumerate(self.tables)], dim=1)
        return rows.unsqueeze(-1) * self.levels

batch = 64
sizes = [300, 20]

def get_inputs():
    return [torch.stack([torch.randint(0, n, (batch,)) for n in sizes], dim=1)]

def get_init_inputs():
    return [sizes, [0.1, 0.5, 0.9]]
"""


def test_indices_of_several_draws_are_what_all_of_them_may_be() -> None:
    task = problem_task(STACKED, "stacked")
    (given,) = task.gpu_cases[0].inputs
    assert (given.low, given.high) == (0.0, 19.0)
    assert task.init_args == ((300, 20), (0.1, 0.5, 0.9)), "a list of numbers is an argument too"
    assert Task.model_validate_json(task.model_dump_json()).init_args == task.init_args
    _runs(task)


def test_indices_of_draws_that_have_nothing_in_common_are_those_of_the_first() -> None:
    apart = "torch.cat([torch.randint(0, 5, (batch, 2)), torch.randint(10, 19, (batch, 2))])"
    source = STACKED.replace(
        "torch.stack([torch.randint(0, n, (batch,)) for n in sizes], dim=1)", apart
    ).replace("t(ids[:, k])", "t(ids[:, k] % 2)")
    (given,) = problem_task(source, "apart").gpu_cases[0].inputs
    assert (given.low, given.high) == (0.0, 4.0)


@pytest.mark.parametrize("argument", ["[[[3, 64]], [64, 5]]", "{3, 64}"])
def test_an_argument_that_no_task_holds_is_refused_in_words(argument: str) -> None:
    source = STACKED.replace("[0.1, 0.5, 0.9]", argument).replace("(levels)", "([0.5])")
    with pytest.raises(UsageError, match="numbers, strings, tuples of them only"):
        problem_task(source, "nested")


@pytest.mark.parametrize("channels", ["", "channels = 256\n"])
def test_no_layer_is_scaled_away(channels: str) -> None:
    """A hidden layer of `channels // 16` has something in it at every size: with none, a kernel
    that leaves the layer out would be right, and PyTorch's gradients fail now and then."""
    said = "channels" if channels else "256"
    source = f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels, reduction=16):
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(channels, channels // reduction, bias=False), nn.ReLU(),
            nn.Linear(channels // reduction, channels, bias=False), nn.Sigmoid(),
        )

    def forward(self, x):
        return x * self.fc(x.mean((2, 3)))[:, :, None, None]

{channels}
def get_inputs():
    return [torch.randn(16, {said}, 56, 56)]

def get_init_inputs():
    return [{said}]
"""
    task = problem_task(source, "squeeze")
    assert count_shape_sets(task)[0] == 3
    assert all(case.init_args[0] >= 16 for case in task.cases)
    assert all(case.inputs[0].shape[1] == case.init_args[0] for case in task.cases)


RESIDUAL = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, before, after, groups):
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, padding=1)
        self.norm = nn.GroupNorm(groups, after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x):
        return F.silu(self.norm(self.conv(x))) + self.skip(x)

batch, before, after, side, groups = 4, 320, 640, 32, 32
def get_inputs():
    return [torch.randn(batch, before, side, side)]
def get_init_inputs():
    return [before, after, groups]
"""


def test_a_shortcut_layer_is_there_at_every_size() -> None:
    """Where the channels before and after were made equal the block had none, and a kernel without
    it was right at all small sizes."""
    task = problem_task(RESIDUAL, "residual")
    assert count_shape_sets(task)[0] == 3
    for case in (*task.cases, *task.gpu_cases):
        before, after, _ = case.init_args
        assert before != after
    small = [case.inputs[0].shape for case in task.cases]
    assert max(before * side * side for _, before, side, _ in small) < 160 * 64


def test_a_model_has_as_many_layers_at_every_size() -> None:
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.net = nn.Sequential(*(nn.Linear(width, width) for _ in range(sum(layers))))

    def forward(self, x):
        return self.net(x)

layers, width = [3, 23], 512
def get_inputs():
    return [torch.randn(64, width)]
def get_init_inputs():
    return [layers, width]
"""
    task = problem_task(source, "deep")
    assert count_shape_sets(task)[0] == 3
    assert {case.init_args[0] for case in task.cases} == {(3, 23)}


def test_a_model_that_reads_numbers_of_its_tensors_is_read() -> None:
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        rows = torch.tensor(sizes)
        self.table = nn.Embedding(rows.sum().item(), 8)
        self.starts = rows.cumsum(0) - rows

    def forward(self, x):
        return self.table(x + self.starts).sum(1)

sizes = [500, 300, 200]
def get_inputs():
    return [torch.randint(0, 200, (64, 3))]
def get_init_inputs():
    return [sizes]
"""
    task = problem_task(source, "fields")
    assert task.cases[0].inputs[0].dtype == "int64"


SEGMENTED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 19

class Model(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target, ignore_index=255)

def get_inputs():
    target = torch.randint(0, CLASSES, (4, 64, 64))
    IGNORED
    return [torch.randn(4, CLASSES, 64, 64), target]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "ignored",
    [
        "target[torch.rand(4, 64, 64) < 0.1] = 255",
        "target = torch.where(torch.rand(4, 64, 64) < 0.1, torch.full_like(target, 255), target)",
        "target.masked_fill_(torch.rand(4, 64, 64) < 0.1, 255)",
    ],
)
def test_a_label_that_a_loss_ignores_is_drawn_beside_the_classes(ignored: str) -> None:
    """A kernel that counts the ignored label among the others was right where it was never drawn;
    a label between the classes and it fails."""
    task = problem_task(SEGMENTED.replace("IGNORED", ignored), "segmented")
    for case in (*task.cases, *task.gpu_cases):
        target = case.inputs[1]
        classes = case.inputs[0].shape[1]
        assert (target.low, target.high, target.apart) == (0.0, classes - 1, (255,))
    shown = task.cases[0]
    for seed in range(5):
        _, drawn = draw_inputs(shown, b"secret", "digest", seed)
        assert set(drawn.flatten().tolist()) <= {*range(shown.inputs[0].shape[1]), 255}
        assert 0.1 < float((drawn == 255).double().mean()) < 0.15


def test_a_range_alone_is_said_as_before() -> None:
    task = problem_task(SEGMENTED.replace("IGNORED", ""), "segmented")
    assert "apart" not in task.model_dump_json()


@pytest.mark.parametrize(
    ("ignored", "apart"),
    [
        ("target[::2] = 255; target[1] = -100", (-100, 255)),
        ("target[0, 0], target[1, 1], target[2, 2] = -1, 255, 300", ()),
        ("target[target > 3] = 3", ()),
    ],
)
def test_numbers_beside_a_range_are_two_at_most(ignored: str, apart: tuple[int, ...]) -> None:
    source = SEGMENTED.replace("IGNORED", ignored).replace(
        "F.cross_entropy(logits, target, ignore_index=255)",
        "logits.mean(1) * (target.clamp(0, 18) + 1)",
    )
    target = problem_task(source, "segmented").gpu_cases[0].inputs[1]
    assert target.apart == apart
    most = 300.0 if "300" in ignored else 3.0 if "> 3" in ignored else 18.0
    assert (target.low, target.high) == (-1.0 if "300" in ignored else 0.0, most)


def test_a_constructor_that_fails_on_the_meta_device_tells_its_own_words() -> None:
    source = RESIDUAL.replace("super().__init__()", "raise RuntimeError('no such width')")
    with pytest.raises(UsageError, match="no such width"):
        problem_task(source, "failing")


GROUPS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)

B, C, H, G = 16, 64, 32, 8

def get_inputs():
    return [torch.randn(B, C, H, H)]

def get_init_inputs():
    return [C, G]
"""


def test_the_ratio_of_two_sizes_varies() -> None:
    task = problem_task(GROUPS, "groups")
    arguments = [case.init_args for case in (*task.cases, *task.gpu_cases)]
    assert len({channels // groups for channels, groups in arguments}) >= 3
    assert all(case.inputs[0].shape[1] == case.init_args[0] for case in task.cases)


_STACK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, channels = [], 3
        for i in range(12):
            stride = 2 if i % 2 == 0 else 1
            layers += [nn.Conv2d(channels, 24, 3, stride, 1, bias=False), nn.BatchNorm2d(24)]
            layers += [nn.ReLU()]
            channels = 24
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.wide, self.last = nn.Linear(24, 24000), nn.Linear(24000, classes)

    def forward(self, x):
        return self.last(self.wide(self.layers(x)))

batch_size = 2
classes, size = 100, 128

def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]

def get_init_inputs():
    return [classes]
"""


def test_a_batch_norm_has_elements_enough_that_rounding_does_not_decide() -> None:
    """Over two elements, PyTorch's own error was larger than the result, and a constant passed."""
    task = problem_task(_STACK, "stack")
    assert len({case.inputs[0].shape[0] for case in task.cases}) == 3
    for case in task.cases:
        assert case.inputs[0].shape[0] >= 4
        for secret in (b"one", b"two"):
            draw = ReferenceCache(secret).get(task, case, 0)
            assert not a_constant_passes([draw])
            output = draw.outputs[0]
            assert output.tolerance is not None
            assert output.tolerance.median() < 0.15 * output.reference.std()


@pytest.mark.parametrize("line", ["x = x.float()", "x.mul_(2)", "x = x * 0"])
def test_a_norm_over_few_elements_is_read_whatever_its_model_does(line: str) -> None:
    """Also where it fails in float64, writes to its input, or gives one number everywhere."""
    changed = _STACK.replace("return self.last", f"{line}; return self.last")
    assert problem_task(changed, "stack").cases

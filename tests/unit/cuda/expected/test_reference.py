"""References: float64, isolated from the process, parameters drawn anew, memory bounded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from coding_framework.commands.failures import EXIT_USAGE, status_of
from coding_framework.cuda.expected import reference as reference_module
from coding_framework.cuda.expected.model_calls import call_in_float64
from coding_framework.cuda.expected.reference import ReferenceCache, expect, task_digest
from coding_framework.cuda.expected.reference_facts import counted_flops
from coding_framework.cuda.expected.tolerance import compare
from coding_framework.errors import BrokenTaskError, DeviceFullError, InfrastructureError
from coding_framework.types import Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

LINEAR = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.linear = nn.Linear(features, 3)
        self.norm = nn.LayerNorm(3)
        self.slope = slope

    def forward(self, x):
        return self.norm(self.linear(x)) * self.slope, x > 0
"""
SQUARE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * x\n"
)


def _task(reference: str = SQUARE, **fields: object) -> Task:
    case = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4, 5)),), reduction_length=5)
    return Task.model_validate(
        {
            "name": "t",
            "tier": 0,
            "family": "f",
            "ops": ("x",),
            "description": "",
            "reference": reference,
            "cases": (case,),
            **fields,
        }
    )


def _expect(task: Task, seed: int = 0):  # type: ignore[no-untyped-def]
    return expect(task, task_digest(task), task.cases[0], b"s", seed)


def test_arguments_are_inputs_then_parameters_then_scalars() -> None:
    expectation = _expect(_task(LINEAR, init_args=(5, 0.5)))
    assert [tuple(t.shape) for t in expectation.tensors] == [(4, 5), (3, 5), (3,), (3,), (3,)]
    assert expectation.scalars == (5, 0.5)


def test_parameters_come_in_the_order_of_their_definition() -> None:
    source = SQUARE.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(5, 2)\n"
        "        self.bias = torch.nn.Parameter(torch.randn(2, 1))\n"
        "        self.register_buffer('table', torch.ones(7))\n"
        "        self.tail = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())\n"
        "    def forward",
    )
    shapes = [tuple(t.shape) for t in _expect(_task(source)).parameters]
    assert shapes == [(2, 5), (2,), (2, 1), (7,), (3, 2), (3,)]


def test_every_output_is_expected_in_its_own_kind() -> None:
    floating, boolean = _expect(_task(LINEAR, init_args=(5, 0.5))).outputs
    assert floating.reference.dtype is torch.float64
    assert floating.native.dtype is torch.float32
    assert floating.tolerance is not None
    assert boolean.tolerance is None
    assert boolean.native.dtype is torch.bool


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("answer", ["x * x", "(x > 0).sum()"])
def test_a_model_that_names_its_dtype_has_a_reference_in_float64(answer: str, dtype: str) -> None:
    (output,) = _expect(_task(SQUARE.replace("x * x", f"({answer}).to(torch.{dtype})"))).outputs
    assert output.native.dtype is getattr(torch, dtype)
    assert output.reference.dtype is torch.float64
    assert output.tolerance is not None
    assert bool((output.tolerance > 0).all())


def test_parameters_differ_between_seeds_and_are_never_constant() -> None:
    one, two = (_expect(_task(LINEAR, init_args=(5, 0.5)), seed) for seed in (0, 1))
    for a, b in zip(one.parameters, two.parameters, strict=True):
        assert not torch.equal(a, b)
        assert len(torch.unique(a)) > 1


def test_batch_norm_statistics_keep_a_positive_variance() -> None:
    source = SQUARE.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.norm = torch.nn.BatchNorm1d(5)\n    def forward",
    ).replace("x * x", "self.norm(x)")
    parameters = _expect(_task(source)).parameters
    assert float(parameters[3].min()) > 0
    assert parameters[4].dtype is torch.int64


def test_the_same_draw_is_the_same_in_another_process_state() -> None:
    task = _task(LINEAR, init_args=(5, 0.5))
    torch.manual_seed(1)
    one = _expect(task)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    two = _expect(task)
    assert torch.equal(one.outputs[0].reference, two.outputs[0].reference)
    assert torch.equal(one.outputs[0].tolerance, two.outputs[0].tolerance)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() is torch.float32


def test_a_reference_that_changes_its_input_does_not_change_ours() -> None:
    expectation = _expect(_task(SQUARE.replace("return x * x", "return x.mul_(2)")))
    out = expectation.outputs[0]
    assert compare(expectation.inputs[0] * 2, (5, 1), out).passed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floating_dtypes_have_references(dtype: str) -> None:
    spec = TensorSpec.model_validate({"name": "x", "shape": (4, 5), "dtype": dtype})
    task = _task(cases=(TestCase(name="main", inputs=(spec,)),))
    expectation = _expect(task)
    exact = expectation.inputs[0] * expectation.inputs[0]
    assert compare(exact, (5, 1), expectation.outputs[0]).passed
    assert not compare(exact * 1.05, (5, 1), expectation.outputs[0]).passed


@pytest.mark.parametrize(
    "reference",
    ["def broken(", "x = 1", SQUARE.replace("x * x", "x @ x"), SQUARE.replace("x * x", "'text'")],
    ids=["syntax", "no Model", "fails", "no tensor"],
)
def test_a_reference_that_cannot_run_is_the_tasks_fault_in_a_sentence(reference: str) -> None:
    said = "reference of task 't' fails on its shape set 'main'"
    with pytest.raises(BrokenTaskError, match=said) as raised:
        _expect(_task(reference))
    assert status_of(raised.value) == EXIT_USAGE, "whoever judges this task alone is told"


def test_a_fault_of_ours_is_not_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise DeviceFullError("no memory left")

    monkeypatch.setattr(reference_module, "finely_expected", full)
    with pytest.raises(DeviceFullError):
        _expect(_task())


def test_the_cache_gives_the_same_object_and_stays_in_its_bound() -> None:
    task = _task()
    cache = ReferenceCache(
        b"s", max_bytes=2 * ReferenceCache(b"s").get(task, task.cases[0], 0).nbytes
    )
    first = cache.get(task, task.cases[0], 0)
    assert cache.get(task, task.cases[0], 0) is first
    for seed in range(1, 6):
        cache.get(task, task.cases[0], seed)
    assert cache.get(task, task.cases[0], 0) is not first


def test_draws_of_another_task_go_before_they_fill_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = _task()
    other = task.model_copy(update={"name": "other"})
    cache = ReferenceCache(b"s")
    first = cache.get(task, task.cases[0], 0)
    monkeypatch.setattr(reference_module, "_OTHERS_BYTES", 2 * first.nbytes)
    for seed in range(1, 4):  # of the task being judged, all are kept
        cache.get(task, task.cases[0], seed)
    assert cache.get(task, task.cases[0], 0) is first
    last = cache.get(task, task.cases[0], 3)
    cache.get(other, other.cases[0], 0)
    assert cache.get(task, task.cases[0], 3) is last
    assert cache.get(task, task.cases[0], 0) is not first


def test_the_cache_holds_every_draw_of_a_million_elements_so_that_the_next_trial_finds_them() -> (
    None
):
    shape = (1024, 1024)
    specs = tuple(TensorSpec(name=name, shape=shape) for name in ("a", "b"))
    case = TestCase(name="main", inputs=specs, reduction_length=1)
    task = _task(SQUARE.replace("x):", "x, y):").replace("x * x", "x + y"), cases=(case,))
    cache = ReferenceCache(b"s")
    first = [cache.get(task, case, seed) for seed in range(5)]
    assert all(cache.get(task, case, seed) is first[seed] for seed in range(5))


def test_tasks_with_equal_names_and_other_functions_do_not_share() -> None:
    assert task_digest(_task()) != task_digest(_task(SQUARE.replace("x * x", "x + x")))


@pytest.mark.parametrize(
    "answer",
    ["torch.zeros_like(x)", "torch.softmax(x, 1).sum(1)", "torch.log(-x.abs() - 1)", "x > 1e9"],
)
def test_a_task_that_a_constant_solves_cannot_be_judged(answer: str) -> None:
    with pytest.raises(InfrastructureError, match="a constant answer is right"):
        ReferenceCache(b"s").require_informative(_task(SQUARE.replace("x * x", answer)), range(5))


@pytest.mark.parametrize("answer", ["x * x", "torch.relu(x)", "torch.log(x)", "x.argmax(1)"])
def test_other_tasks_can(answer: str) -> None:
    ReferenceCache(b"s").require_informative(_task(SQUARE.replace("x * x", answer)), range(5))


_PEAK = """
import resource
import torch
from coding_framework.cuda.expected import tolerance
from coding_framework.cuda.expected.reference import expect, task_digest
from coding_framework.types import Task, TensorSpec, TestCase

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

tolerance._AT_ONCE = 1 << 18
torch.set_num_threads(1)
source = "import torch\\nclass Model(torch.nn.Module):\\n    forward = lambda self, x: x.tanh()\\n"
shapes = [(64, 64), (64, 1 << 16)]
cases = [TestCase(name=str(s), inputs=(TensorSpec(name="x", shape=s),)) for s in shapes]
task = Task(
    name="t", tier=0, family="f", ops=("tanh",), description="", reference=source, cases=cases
)
expect(task, task_digest(task), cases[0], b"s", 0)
large, before = (torch.rand(64, 1 << 16),), peak()
made = expect(task, task_digest(task), cases[1], b"s", 0, inputs=large)
(output,) = made.outputs
assert tolerance.compare(output.native, output.native.stride(), output).passed
print((peak() - before) / output.reference.nbytes)
"""


def test_a_large_output_takes_a_few_tensors_of_its_size() -> None:
    """It was 12.5, and 12 GiB each filled a GPU."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", _PEAK]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(said.stdout) < 7


PRODUCT = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {first}
        return x @ x.mT
"""


@pytest.mark.parametrize(
    ("first", "needs_values"), [("x = 2 * x", False), ("x = -x if x.sum() > 0 else x", True)]
)
def test_operations_are_counted_by_shapes_unless_values_matter(
    first: str, needs_values: bool
) -> None:
    task = _task(PRODUCT.format(first=first))
    assert (reference_module.by_shapes(counted_flops, task, task.cases[0]) is None) == needs_values
    assert ReferenceCache(b"s").flops(task, task.cases[0], 0) == 2 * 4 * 5 * 4


def test_counting_by_shapes_leaves_nothing_behind() -> None:
    masked = "import torch\nMASK = torch.tril(torch.ones(5, 5))\n" + PRODUCT.format(
        first="x = x @ MASK.to(x.dtype); torch.manual_seed(0)"
    )
    task, cache = _task(masked), ReferenceCache(b"s")
    state = torch.get_rng_state()
    assert cache.flops(task, task.cases[0], 0) == 2 * 4 * 5 * 5 + 2 * 4 * 5 * 4
    assert torch.equal(torch.get_rng_state(), state)
    assert not cache.get(task, task.cases[0], 0).outputs[0].reference.is_meta


def test_a_function_that_a_module_keeps_sees_the_copies_of_its_layers() -> None:
    """As minGPT's block: `self.run = lambda x: layers.first(x)`."""

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers = torch.nn.ModuleDict({"first": torch.nn.Linear(3, 2)})
            self.run = lambda x: layers["first"](x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.run(x)

    block, x = Block(), torch.ones(4, 3)
    (wide,) = call_in_float64(block, (x,))
    assert wide.dtype is torch.float64
    assert torch.allclose(wide.float(), block(x))
    assert block(x).dtype is torch.float32

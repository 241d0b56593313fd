"""Graphs for SFT: what is drawn runs in PyTorch, is the same each time, and has nothing that is
held out."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from itertools import islice

import pytest
import torch

from coding_framework.commands.build_data import build_mixture
from coding_framework.commands.data import MixtureOptions
from coding_framework.data.graphs import examples
from coding_framework.data.graphs.examples import (
    MOST_GRAPHS,
    drawn_task,
    excluded,
    graph_task,
    graph_tasks,
)
from coding_framework.data.graphs.grammar import draw_graph
from coding_framework.data.graphs.nodes import Extent, Node
from coding_framework.data.graphs.pieces import piece_tasks, pieces_of
from coding_framework.data.graphs.texts import filled, linear
from coding_framework.data.mixture import GRAPHS, sft_mixture
from coding_framework.data.parts.calls import traced
from coding_framework.data.parts.pieces import parted
from coding_framework.errors import UsageError
from coding_framework.types import Task, TensorSpec

pytestmark = pytest.mark.unit
COUNT = 60


def drawn(given: TensorSpec) -> torch.Tensor:
    if given.dtype == "int64":
        return torch.randint(0, int(given.high or 0) + 1, given.shape)
    return torch.randn(given.shape)


def outcome(task: Task, case: int) -> torch.Tensor:
    names: dict[str, object] = {}
    exec(task.reference, names)
    model = names["Model"](*task.cases[case].init_args)  # type: ignore[operator]
    with torch.no_grad():
        found = model(*map(drawn, task.cases[case].inputs))
    assert isinstance(found, torch.Tensor)
    return found


def test_what_is_drawn_runs_and_has_the_extents_that_it_says() -> None:
    count = 0
    for number in range(COUNT):
        made, graph = drawn_task(number), draw_graph(number)
        if made is None or graph is None:
            continue
        count += 1
        task, kernel = made
        ast.parse(task.reference)
        for case in (0, 1):
            shape = tuple(d.value(graph.at(case)) for d in graph.output.dims)
            assert tuple(outcome(task, case).shape) == shape, task.reference
        assert kernel.code.count("<<<") == kernel.code.count("__global__")
    assert count > COUNT / 2


def test_the_plan_is_what_the_module_computes() -> None:
    count = 0
    for number in range(2 * COUNT):
        made, graph = drawn_task(number), draw_graph(number)
        if made is None or graph is None:
            continue
        task, kernel = made
        names: dict[str, object] = {}
        exec(task.reference, names)
        case = task.cases[0]
        torch.manual_seed(0)
        model = names["Model"](*case.init_args)  # type: ignore[operator]
        inputs = [drawn(given) for given in case.inputs]
        parameters = {k.replace(".", "_"): v for k, v in model.state_dict().items()}
        known = {
            **graph.at(0), **parameters,
            **{g.c_name: i for g, i in zip(graph.inputs, inputs, strict=True)},
            "self": model, "torch": torch, "F": torch.nn.functional,
        }  # fmt: skip
        with torch.no_grad():
            for name, extents, said in STEP.findall(kernel.code):
                found = known[name] = eval(said, known)
                shape = tuple(eval(f"[{extents.replace('/', '//')}]", dict(graph.at(0))))
                assert found.shape == shape, f"{number}: {name} ({extents}) = {said}"
            wanted = model(*inputs)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)
        count += 1
    assert count > COUNT


STEP = re.compile(r"^// (t\d+) \((.*?)\) = (.*)$", re.MULTILINE)


def test_no_kernel_declares_a_name_that_it_is_handed() -> None:
    for number in (*range(300), 1637, 3090):  # the two multiply a layer norm by `self.scale`
        made = drawn_task(number)
        for handed, body in KERNEL.findall(made[1].code if made else ""):
            names = re.findall(r"(\w+)(?:,|$)", handed)
            assert len(names) == len({*names}), f"{number}: {handed}"
            own = {*re.findall(r"\b(?:int|float) (\w+) =", body)}
            assert not own & {*names}, f"{number}: {own & {*names}}"


KERNEL = re.compile(r"__global__ void \w+\((.*?)\) \{\n(.*?)\n\}\n", re.DOTALL)


def test_a_number_is_the_same_graph_each_time_and_what_is_left_out_is_not_given() -> None:
    first = list(islice(graph_tasks(40), 40))
    assert first == list(graph_tasks(40))
    assert len({task.name for task, _ in first}) == 40
    left_out = excluded()
    assert left_out
    assert all(graph_task(number) is None for number in sorted(left_out)[:20])
    assert max(left_out) < MOST_GRAPHS


def test_more_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "MOST_GRAPHS", 10)
    with pytest.raises(UsageError, match="graphs: ask for no more"):
        list(graph_tasks(20))


def test_nothing_that_is_held_out_is_drawn() -> None:
    for number in range(400):
        graph = draw_graph(number)
        if graph is None:
            continue
        if "depthwise_conv" in graph.ops:
            assert not {"conv", "linear"} & {*graph.ops}, "a separable convolution"
        for node in graph.output.walk():
            if getattr(node, "name", "") == "norm":
                parts = [n for n in node.walk() if " - " in getattr(n, "c", "")]
                assert not parts, "a distance"


def test_extents_are_divided_at_the_end() -> None:
    d, s = Extent.of("d"), Extent.of("s")
    both = (d + s) / 4
    assert both.text == "(d + s) / 4"
    assert both.value({"d": 27, "s": 21}) == 12
    assert (d * 2 + Extent.number(-1)).text == "2 * d - 1"
    assert (d * Fraction(3, 2)).text == "3 * d / 2"
    assert (d + d * -1).text == "0"
    with pytest.raises(ValueError, match="no integer"):
        (d / 2).value({"d": 3})


@pytest.mark.parametrize(
    ("template", "values", "said"),
    [
        ("{0} * {1}", ("a + b", "c"), "(a + b) * c"),
        ("{0} + {1}", ("a * b", "c - d"), "a * b + c - d"),
        ("{0} - {1}", ("a", "c - d"), "a - (c - d)"),
        ("{0} / {1}", ("a / b", "c * d"), "a / b / (c * d)"),
        ("fmaxf({0}, 0.0f)", ("a > b ? c : d",), "fmaxf(a > b ? c : d, 0.0f)"),
        ("{0} + {1}", ("a > b ? c : d", "e"), "(a > b ? c : d) + e"),
        ("{i1} > {i0} ? 0.0f : {0}", ("a * b",), "j > i ? 0.0f : a * b"),
        ("-{0}", ("a + b",), "-(a + b)"),
    ],
)
def test_an_argument_has_brackets_where_c_needs_them(
    template: str, values: tuple[str, ...], said: str
) -> None:
    assert filled(template, values, ("i", "j")) == said


def test_a_place_in_memory_leaves_out_axes_of_one() -> None:
    n, d, one = Extent.of("n"), Extent.of("d") / 2, Extent.number(1)
    assert linear(("a", "b", "c"), (n, one, d)) == "a * (d / 2) + c"
    assert linear((), ()) == "0"


def test_a_tensor_that_is_read_twice_is_walked_once() -> None:
    x = Node(dims=())
    y = Node(dims=(), args=(x, x))
    assert list(Node(dims=(), args=(y, x)).walk())[:2] == [x, y]


def test_the_mixture_shows_them_on_top_where_kernels_need_no_verdict() -> None:
    graphs = list(graph_tasks(5))
    mixture = sft_mixture(
        {}, unjudged=True, total=24, drafts=(), functions={}, graphs=graphs, fits=lambda _: True
    )
    assert [e.task.name for e in mixture.parts[GRAPHS]] == [task.name for task, _ in graphs]
    assert not any(e.receipt for e in mixture.parts[GRAPHS])
    with pytest.raises(UsageError, match="give --unjudged too"):
        build_mixture(MixtureOptions(total=24, graphs=5), None, judge=False, workers=None)
    judged = sft_mixture({}, total=24, drafts=(), functions={}, graphs=graphs, fits=lambda _: True)
    assert GRAPHS not in judged.parts


def test_pieces_are_parts_as_a_module_is_taken_apart() -> None:
    made = [pair for number in range(12) for pair in pieces_of(number)]
    assert len(made) > 12
    assert made == [pair for number in range(12) for pair in pieces_of(number)]
    for task, kernel in made:
        (part,) = parted(traced(task))
        assert part.task.reference == task.reference
        declared = re.search(r"forward\((.*)\) \{", kernel.code)
        assert declared is not None
        names = [one.split()[-1] for one in declared[1].split(", ")]
        numbers = [*part.names, *part.arguments]
        assert names in ([*part.names], numbers), kernel.code
        assert "in0" not in kernel.code
        plan = re.findall(r"^// t\d+ \(.*\) = (.*)$", kernel.code, re.MULTILINE)
        if len(plan) == 1 and len(part.statements) == 1:
            assert plan[0] == part.statements[0][1]


def test_pieces_differ_and_are_as_many_as_are_asked_for() -> None:
    found = [(task.reference, kernel.code) for task, kernel in piece_tasks(25)]
    assert len(set(found)) == 25
    assert not [*piece_tasks(0)]

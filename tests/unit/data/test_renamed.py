"""Names of extents in the kernels of pieces (`data/graphs/renamed.py`)."""

from __future__ import annotations

import random
import re

import pytest

from coding_framework.data.graphs.cuda import Cuda
from coding_framework.data.graphs.draw import Draw
from coding_framework.data.graphs.nodes import ONE, Extent, Graph, View
from coding_framework.data.graphs.pieces import pieces_of
from coding_framework.data.graphs.renamed import renamed, renamed_text

pytestmark = pytest.mark.unit
N, T, D = (Extent.of(name) for name in "ntd")


def drawn() -> Draw:
    d = Draw.blank(random.Random(0))
    for name, value in (("n", 4), ("t", 12), ("d", 48)):
        d.size(name, name, (value, value, value, value, value, value))
    return d


def axes_of(graph: Graph) -> list[list[str]]:
    return [[dim.text for dim in given.dims] for given in renamed(graph).inputs]


def test_halves_and_equal_lengths_have_names_of_their_own() -> None:
    d = drawn()
    x, y = d.input((N, D / 2, D / 2), "x"), d.input((D / 2, ONE), "y")
    d.h = d.each("{0} - {1}", "{0} - {1}", x, y)
    assert axes_of(d.graph("piece")) == [["n0", "n1", "n2"], ["n1", "1"]]
    kernel = Cuda(renamed(d.graph("piece"))).source()
    assert "// x (n0, n1, n2), y (n1, 1)" in kernel
    assert "int n0 = x.size(0), n1 = x.size(1), n2 = x.size(2);" in kernel


def test_what_a_product_adds_up_over_has_one_name() -> None:
    d = drawn()
    x, y = d.input((N, T, T), "x"), d.input((N, T, D), "y")
    d.h = d.product(x, y, "{0} @ {1}")
    assert axes_of(d.graph("piece")) == [["n0", "n1", "n2"], ["n0", "n2", "n3"]]
    d.h = d.linear(d.input((T, T), "z"), D)
    weight = d.layers[0].given[0]
    one = Graph("piece", d.h, (d.inputs[-1], weight), (), d.sizes, {}, ())
    assert axes_of(one) == [["n0", "n1"], ["n2", "n1"]]


def test_a_view_that_says_a_length_is_renamed_in_the_text() -> None:
    d = drawn()
    x = d.input((N, D), "x")
    d.h = View(dims=(N, D), args=(x,), python="{0}.flip(1)",
               place=lambda p: [p[0], f"{D.text} - 1 - {p[1]}"])  # fmt: skip
    graph = d.graph("piece")
    with pytest.raises(ValueError, match="a view at"):
        renamed(graph)
    text = renamed_text(Cuda(graph).source(), graph)
    assert "n1 - 1 - i1" in text
    assert not re.search(r"\bd\b", text)
    d.inputs[0] = d.input((N, T, T), "y")
    with pytest.raises(ValueError, match="two axes of y are one size"):
        renamed_text("", d.graph("piece"))


def test_pieces_are_given_plain_extents() -> None:
    heads = [
        re.findall(r"\((.*?)\)", line)
        for number in range(25)
        for _, kernel in pieces_of(number)
        for line in [kernel.code.split("\n")[2]]
    ]
    axes = [axis for head in heads for one in head for axis in one.split(", ") if axis]
    plain = [axis for axis in axes if re.fullmatch(r"n\d|\d+", axis)]
    assert len(plain) > 0.97 * len(axes) > 100

"""Draws graphs: what people's modules do between their layers, step by step.

Each step is an idiom: a gate, a shift, halves that are taken apart and put together, a tensor of
another rank that is broadcast, a weighted mean, scores, a residual. The same number gives the same
graph everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from coding_framework.data.graphs import composed, elementwise, loops, places
from coding_framework.data.graphs.draw import Draw
from coding_framework.data.graphs.losses import LOSSES
from coding_framework.data.graphs.nodes import Given, Graph, Node, View
from coding_framework.data.modules.catalog import part_of_pairs
from coding_framework.data.modules.pointwise import POINTWISE

STEPS: tuple[tuple[Callable[[Draw], Node], int], ...] = (
    (elementwise.activate, 5),
    (elementwise.scale_and_shift, 4),
    (elementwise.per_channel, 5),
    (elementwise.other_input, 6),
    (elementwise.lower_rank_input, 4),
    (places.scale_shift_from, 2),
    (places.gated, 5),
    (places.turned_halves, 4),
    (places.with_other, 3),
    (places.transposed, 2),
    (places.channels_last, 2),
    (places.grouped, 5),
    (places.shifted, 4),
    (loops.norm_by, 5),
    (loops.layer_norm, 4),
    (loops.soft, 3),
    (loops.layer, 7),
    (loops.two_layers, 4),
    (loops.perceptron, 4),
    (loops.residual, 7),
    (loops.pooled, 4),
    (loops.scores, 8),
    (loops.summed_up, 2),
    (loops.less, 3),
    (loops.looked_up, 3),
    (loops.convolved, 7),
    (places.resampled, 4),
    (composed.attention, 14),
    (composed.linear_attention, 2),
    (composed.cell, 11),
    (composed.standardized, 4),
    (composed.norm_layer, 4),
    (composed.squeezed, 5),
    (composed.rotary, 3),
    (composed.masked_mean, 3),
    (composed.chosen_place, 4),
    (composed.outer, 4),
    (composed.times_other, 4),
    (composed.along, 5),
    (composed.image_moved, 6),
)
"""Each idiom, and how often it is drawn."""
_KINDS, _WEIGHTS = zip(*STEPS, strict=True)
_NAMES = {
    "conv": "conv2d",
    "depthwise_conv": "conv2d",
    "max": "amax",
    "min": "amin",
    "log_sigmoid": "logsigmoid",
}
"""What the catalogue calls an operation, where it has another name."""
_OF_LEVEL_2 = {
    "linear",
    "conv2d",
    "softmax",
    "layer_norm",
    "mean",
    "sum",
    "amax",
    "amin",
    *POINTWISE,
}
"""Operations whose pairs the catalogue parts into training and held out."""


def may_be_trained(ops: list[str]) -> bool:
    """Whether it has no pair of neighbouring operations, and no family, that is held out: a
    depthwise convolution and a layer that mixes the channels are a separable one."""
    if "depthwise_conv" in ops and {"conv", "linear"} & {*ops}:
        return False
    names = [_NAMES.get(o, o) for o in ops]
    pairs = [f"{a} {b}" for a, b in pairwise(names) if {a, b} <= _OF_LEVEL_2]
    return part_of_pairs(pairs) == "train"


def draw_graph(number: int) -> Graph | None:
    """The graph of that number; None where nothing came of it."""
    d = Draw(number)
    wanted = d.rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6))
    done = tries = 0
    while done < wanted and tries < 40 and d.heads < 5:
        tries += 1
        step = d.rng.choices(_KINDS, _WEIGHTS)[0]
        done += d.tried(step)
    if d.rng.random() < 0.35 and d.h.dims:
        d.tried(d.rng.choice(LOSSES))
    if not may_be_trained(d.ops):
        return None
    if d.h is d.x or (isinstance(d.h, (View, Given)) and done < 2):
        return None
    used = {id(n) for n in d.h.walk()}
    if any(id(g) not in used for g in d.inputs):
        return None
    for extent in (e for node in d.h.walk() for e in node.dims):
        if min(d.values(extent)) < 1:
            return None
    return d.graph(f"graph_{number}_{'_'.join(dict.fromkeys(d.ops))}"[:80].rstrip("_"))

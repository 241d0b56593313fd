"""The families of level 1 that are functions of tensors: reductions, scans, losses, products,
attention, activations with arguments, moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import Any

from coding_framework.data.modules.pointwise import POINTWISE
from coding_framework.data.modules.records import ModuleDraft, ModuleInput, Operation, op
from coding_framework.data.modules.sizes import AXES, plain_sizes, sizes_of, tensor, with_sizes


def tensor_draft(
    family: str,
    rank: int,
    *operations: Operation,
    inputs: tuple[ModuleInput, ...] = (),
    **fields: Any,
) -> ModuleDraft:
    """Operations on one tensor of that rank, or on `inputs`."""
    key = " ".join(o.key for o in operations)
    sizes = fields.pop("all_sizes", None) or plain_sizes(rank, f"{family}{key}")
    return ModuleDraft(family, 1, operations, inputs or (tensor("x", rank),), *sizes, **fields)


# --- reductions ----------------------------------------------------------------------------------


def _axes(rank: int) -> Iterator[tuple[int, ...]]:
    """Every axis, and runs of several."""
    for count in range(1, rank + 1):
        for axes in combinations(range(rank), count):
            if count == 1 or axes in ((1, 2), (2, 3), (0, 2), (0, 2, 3), (1, 2, 3)):
                yield axes


def _reductions(family: str, names: tuple[str, ...], **arguments: Any) -> Iterator[ModuleDraft]:
    for name, rank in product(names, (2, 3, 4)):
        for axes, keepdim in product(_axes(rank), (True, False)):
            yield tensor_draft(family, rank, op(name, axes=axes, keepdim=keepdim, **arguments))


def sums() -> Iterator[ModuleDraft]:
    yield from _reductions("sum_reduction", ("sum", "mean"))


def extrema() -> Iterator[ModuleDraft]:
    yield from _reductions("extremum_reduction", ("amax", "amin"))
    for name, rank in product(("max", "min"), (2, 3, 4)):
        for axis, keepdim in product(range(rank), (True, False)):
            yield tensor_draft("extremum_reduction", rank, op(name, axes=(axis,), keepdim=keepdim))


def arguments_of_extrema() -> Iterator[ModuleDraft]:
    for name, rank in product(("argmax", "argmin"), (2, 3, 4)):
        for axis, keepdim in product(range(rank), (True, False)):
            yield tensor_draft("arg_reduction", rank, op(name, axes=(axis,), keepdim=keepdim))


def moments() -> Iterator[ModuleDraft]:
    for unbiased in (True, False):
        for draft in _reductions("moment_reduction", ("var", "std"), unbiased=unbiased):
            if draft.rank > 2:
                yield draft


def vector_norms() -> Iterator[ModuleDraft]:
    for p in (1.0, 2.0, 3.0, "inf"):
        for draft in _reductions("norm_reduction", ("vector_norm",), p=p):
            if len(draft.operations[0].integers("axes")) == 1 or draft.rank == 4:
                yield draft


def log_sums() -> Iterator[ModuleDraft]:
    yield from _reductions("logsumexp_reduction", ("logsumexp",))


def products_of_elements() -> Iterator[ModuleDraft]:
    """Of values near 1: of others a product of thousands is zero or infinite."""
    for rank in (2, 3, 4):
        for axis, keepdim in product(range(rank), (True, False)):
            given = (tensor("x", rank, 0.99, 1.01),)
            yield tensor_draft(
                "product_reduction", rank, op("prod", axes=(axis,), keepdim=keepdim), inputs=given
            )


# --- softmax and scans ---------------------------------------------------------------------------


def softmaxes() -> Iterator[ModuleDraft]:
    for name, rank in product(("softmax", "log_softmax", "softmin"), (2, 3, 4)):
        for axis in range(rank):
            o = op(name, axis=axis)
            yield tensor_draft("softmax", rank, o)
            for factor in (0.5, 2.0):
                yield tensor_draft("softmax", rank, op("scale", scale_factor=factor), o)
            if name == "softmax":
                yield tensor_draft("softmax", rank, op("divide", divisor=8.0), o)


def scans(ranks: tuple[int, ...] = (2, 3, 4)) -> Iterator[ModuleDraft]:
    kinds = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
    for kind, direction, rank in product(kinds, ("forward", "reverse", "exclusive"), ranks):
        if direction == "exclusive" and kind not in ("cumsum", "cumprod"):
            continue
        for axis in range(rank):
            given = (tensor("x", rank, 0.99, 1.01),) if kind == "cumprod" else ()
            o = op("scan", kind=kind, direction=direction, axis=axis)
            yield tensor_draft("scan", rank, o, inputs=given)


# --- losses --------------------------------------------------------------------------------------

_REDUCED = ("mean", "sum", "none")


def regression_losses() -> Iterator[ModuleDraft]:
    rows: list[tuple[str, dict[str, Any]]] = [("l1_loss", {}), ("mse_loss", {})]
    rows += [("smooth_l1_loss", {"beta": b}) for b in (0.5, 1.0, 2.0)]
    rows += [("huber_loss", {"delta": d}) for d in (0.25, 0.5, 1.0, 2.0)]
    for (name, given), reduction, rank in product(rows, _REDUCED, (1, 2, 3, 4)):
        o = op(name, **given, reduction=reduction)
        inputs = (tensor("predictions", rank), tensor("targets", rank))
        yield tensor_draft("regression_loss", rank, o, inputs=inputs)


def classification_losses() -> Iterator[ModuleDraft]:
    labels = ModuleInput("targets", ("batch_size",), "int64", 0, "features")
    for reduction in _REDUCED:
        for smoothing in (0.0, 0.05, 0.1, 0.2):
            o = op("cross_entropy", label_smoothing=smoothing, reduction=reduction)
            yield tensor_draft("classification_loss", 2, o, inputs=(tensor("logits", 2), labels))
        o = op("nll_loss", reduction=reduction)
        yield tensor_draft("classification_loss", 2, o, inputs=(tensor("log_probs", 2), labels))
        for margin in (1.0, 0.5):
            o = op("multi_margin_loss", margin=margin, reduction=reduction)
            yield tensor_draft("classification_loss", 2, o, inputs=(tensor("scores", 2), labels))
        for rank in (1, 2, 3):
            given = (tensor("logits", rank), tensor("targets", rank, 0.0, 1.0))
            yield tensor_draft(
                "classification_loss",
                rank,
                op("bce_with_logits", reduction=reduction),
                inputs=given,
            )
            given = (tensor("log_rate", rank, -2.0, 2.0), tensor("targets", rank, 0.0, 5.0))
            yield tensor_draft(
                "classification_loss",
                rank,
                op("poisson_nll_loss", reduction=reduction),
                inputs=given,
            )


def margin_losses() -> Iterator[ModuleDraft]:
    triple = (tensor("anchor", 2), tensor("positive", 2), tensor("negative", 2))
    for margin, p, reduction in product((0.2, 0.5, 1.0, 2.0), (1.0, 2.0), _REDUCED):
        o = op("triplet_margin_loss", margin=margin, p=p, reduction=reduction)
        yield tensor_draft("margin_loss", 2, o, inputs=triple)
    for margin, power, kind, rank in product((0.5, 1.0, 2.0), (1, 2), ("mean", "sum"), (1, 2)):
        given = (tensor("predictions", rank), tensor("targets", rank, -1.0, 1.0))
        o = op("hinge", margin=margin, power=power, reduction=kind)
        yield tensor_draft("margin_loss", rank, o, inputs=given)


# --- products ------------------------------------------------------------------------------------

_BATCHED = {
    "batch_size": (3, 5, 2, 32, 7), "M": (16, 13, 3, 256, 257), "K": (20, 17, 5, 512, 321),
    "N": (12, 11, 2, 256, 131),
}  # fmt: skip
_PRODUCT_SIZES = {
    2: sizes_of(M=(24, 19, 3, 1024, 1021), K=(32, 21, 5, 1024, 777), N=(20, 17, 2, 2048, 515)),
    3: sizes_of(**_BATCHED),
    4: sizes_of(**_BATCHED, num_heads=(2, 3, 2, 8, 3)),
}
"""By rank."""


def _matrix(name: str, rank: int, rows: str, columns: str, turned: bool = False) -> ModuleInput:
    before = {2: (), 3: ("batch_size",), 4: ("batch_size", "num_heads")}[rank]
    return ModuleInput(name, (*before, columns, rows) if turned else (*before, rows, columns))


_AFTER = (
    op("relu"),
    op("gelu"),
    op("sigmoid"),
    op("tanh"),
    op("silu"),
    op("scale", scale_factor=0.125),
    op("clamp", min_value=-4.0, max_value=4.0),
    op("softplus", beta=1.0, threshold=20.0),
    op("square"),
)


def matrix_products() -> Iterator[ModuleDraft]:
    """Products in every layout with one step after them; scaled sums; Gram matrices; of three."""
    for rank, ta, tb, after in product((2, 3, 4), (False, True), (False, True), _AFTER):
        yield product_draft(rank, ta, tb, after)
    yield from _gram_matrices()
    yield from _scaled_sums()
    yield from _chains()


def product_draft(rank: int, ta: bool, tb: bool, after: Operation) -> ModuleDraft:
    """A product of two tensors of matrices, each turned or not, and one step after it."""
    given = (_matrix("A", rank, "M", "K", ta), _matrix("B", rank, "K", "N", tb))
    return _products(rank, given, op("matmul", ta=ta, tb=tb), after)


def _gram_matrices() -> Iterator[ModuleDraft]:
    for rank, ta in product((2, 3, 4), (False, True)):
        o = op("matmul", ta=ta, tb=not ta, own=True)
        yield _products(rank, (_matrix("A", rank, "M", "K"),), o)
        yield _products(rank, (_matrix("A", rank, "M", "K"),), o, op("divide", divisor=16.0))


def _scaled_sums() -> Iterator[ModuleDraft]:
    for rank, beta, alpha in product((2, 3), (1.0, 0.5, 2.0), (1.0, 0.25, 0.5, 2.0)):
        given = (
            _matrix("C", rank, "M", "N"),
            _matrix("A", rank, "M", "K"),
            _matrix("B", rank, "K", "N"),
        )
        yield _products(rank, given, op("addmm", beta=beta, alpha=alpha))


def _chains() -> Iterator[ModuleDraft]:
    for rank, after in product((2, 3), (None, *_AFTER[:4])):
        given = (
            _matrix("A", rank, "M", "K"),
            _matrix("B", rank, "K", "N"),
            _matrix("D", rank, "N", "M"),
        )
        steps = () if after is None else (after,)
        yield _products(rank, given, op("matmul", ta=False, tb=False), *steps, op("matmul_last"))


def _products(rank: int, given: tuple[ModuleInput, ...], *operations: Operation) -> ModuleDraft:
    return tensor_draft(
        "matrix_product",
        rank,
        *operations,
        inputs=given,
        all_sizes=_PRODUCT_SIZES[rank],
        layout="features_last",
    )


def linear_layers() -> Iterator[ModuleDraft]:
    """Linear layers on tensors of 2 to 4 axes, alone and with an activation."""
    for rank, bias, after in product((2, 3, 4), (True, False), (None, *_AFTER[:5])):
        names = {
            2: ("batch_size",),
            3: ("batch_size", "length"),
            4: ("batch_size", "num_heads", "length"),
        }[rank]
        extents = {
            "batch_size": (6, 5, 2, 64, 13),
            "length": (5, 3, 2, 64, 31),
            "num_heads": (2, 3, 2, 8, 3),
        }
        if rank == 2:
            extents["batch_size"] = (16, 13, 3, 1024, 777)
        named = {n: extents[n] for n in names} | {
            "in_features": (32, 21, 5, 1024, 515), "out_features": (24, 17, 3, 1024, 333),
        }  # fmt: skip
        steps = () if after is None else (after,)
        o = op("linear", out="out_features", bias=bias)
        yield tensor_draft(
            "linear_layer",
            rank,
            o,
            *steps,
            inputs=(ModuleInput("x", (*names, "in_features")),),
            all_sizes=sizes_of(**named),
            layout="features_last",
        )


def attentions() -> Iterator[ModuleDraft]:
    names = ("batch_size", "num_heads", "length", "head_dim")
    sizes = sizes_of(
        batch_size=(2, 1, 2, 8, 3),
        num_heads=(2, 3, 2, 8, 5),
        length=(12, 9, 3, 256, 131),
        head_dim=(8, 6, 4, 64, 40),
    )
    for rank, causal, scale in product((3, 4), (True, False), (0.125, 0.25, 0.5, 1.0, 0.1)):
        dims = names if rank == 4 else (names[0], *names[2:])
        given = tuple(ModuleInput(n, dims) for n in ("q", "k", "v"))
        o = op("attention", causal=causal, scale=scale)
        yield tensor_draft(
            "attention", rank, o, inputs=given, all_sizes=sizes, layout="features_last"
        )


# --- elementwise, moves, the rest ----------------------------------------------------------------


def activations() -> Iterator[ModuleDraft]:
    """Elementwise functions with arguments, and those that learn one."""
    for row in POINTWISE.values():
        if row.reads or row.name.endswith("_scalar") or row.name in ("scale", "divide"):
            continue
        for arguments, rank in product((*row.choices, *row.alone), (2, 3, 4)):
            yield tensor_draft("activation", rank, Operation(row.name, arguments))
    for rank, per_channel, init in product((2, 3, 4), (True, False), (0.25, 0.1, 0.5)):
        yield tensor_draft("activation", rank, op("prelu", per_channel=per_channel, init=init))


def gates() -> Iterator[ModuleDraft]:
    """One half of an axis times a function of the other half; an axis of even extents."""
    for rank in (3, 4):
        sizes = plain_sizes(rank, "glu")
        for axis in range(1, rank):
            name = AXES[rank][axis]
            even = with_sizes(
                sizes, **{name: tuple(2 * s[name] for s in (*sizes[0], *sizes[1][:2]))}
            )
            yield tensor_draft("gate", rank, op("glu", axis=axis), all_sizes=even)


def moves() -> Iterator[ModuleDraft]:
    for rank in (3, 4):
        for order in permutations(range(rank)):
            if order != tuple(range(rank)) and (rank == 3 or order[0] < 2):
                yield tensor_draft("permutation", rank, op("permute", order=order))
    for rank in (2, 3, 4):
        for axes in ((0,), (1,), (rank - 1,), (0, 1), (rank - 2, rank - 1)):
            yield tensor_draft("move", rank, op("flip", axes=tuple(sorted(set(axes)))))
        for axis, shifts in product(range(rank), (1, -2, 3)):
            yield tensor_draft("move", rank, op("roll", shifts=shifts, axis=axis))
        for name, diagonal in product(("tril", "triu"), (-1, 0, 1, 2)):
            yield tensor_draft("move", rank, op(name, diagonal=diagonal))


def pads() -> Iterator[ModuleDraft]:
    for widths, value in product(((1, 1), (2, 0), (1, 2, 0, 3), (2, 2, 1, 1), (-1, 2)), (0.0, 1.5)):
        for rank in (2, 3, 4):
            yield tensor_draft(
                "padding", rank, op("pad", widths=widths, mode="constant", value=value)
            )
    for mode, widths in product(
        ("reflect", "replicate"), ((1, 1), (2, 1), (1, 1, 2, 2), (3, 0, 0, 2))
    ):
        yield tensor_draft(
            "padding", 3 if len(widths) == 2 else 4, op("pad", widths=widths, mode=mode)
        )


def resamplings() -> Iterator[ModuleDraft]:
    for factor, rank in product((2, 3, 4), (3, 4, 5)):
        yield tensor_draft("resampling", rank, op("upsample_nearest", factor=factor))
    base = plain_sizes(4, "shuffle")
    for factor in (2, 3):
        squares = with_sizes(base, channels=tuple(factor**2 * c for c in (3, 2, 1, 16, 5)))
        yield tensor_draft("resampling", 4, op("pixel_shuffle", factor=factor), all_sizes=squares)
        multiples = with_sizes(
            base,
            height=tuple(factor * c for c in (5, 3, 2, 32, 17)),
            width=tuple(factor * c for c in (4, 5, 1, 32, 19)),
        )
        yield tensor_draft(
            "resampling", 4, op("pixel_unshuffle", factor=factor), all_sizes=multiples
        )


def distances() -> Iterator[ModuleDraft]:
    for rank, eps in product((2, 3, 4), (1e-8, 1e-6, 1e-3)):
        for axis in range(1, rank):
            o = op("cosine_similarity", axis=axis, eps=eps)
            yield tensor_draft("distance", rank, o, inputs=(tensor("x1", rank), tensor("x2", rank)))
    for p, keepdim, rank in product((1.0, 2.0, 3.0), (True, False), (2, 3)):
        o = op("pairwise_distance", p=p, eps=1e-6, keepdim=keepdim)
        yield tensor_draft("distance", rank, o, inputs=(tensor("x1", rank), tensor("x2", rank)))
    for p, rank in product((1.0, 3.0), (2, 3)):
        given = (_matrix("x1", rank, "M", "K"), _matrix("x2", rank, "N", "K"))
        yield tensor_draft(
            "distance", rank, op("cdist", p=p), inputs=given, all_sizes=_PRODUCT_SIZES[rank]
        )


def embeddings() -> Iterator[ModuleDraft]:
    for rank in (1, 2, 3):
        names = ("batch_size", "length", "heads")[:rank]
        sizes = sizes_of(
            batch_size=(5, 3, 2, 64, 17),
            length=(7, 5, 2, 512, 131),
            heads=(2, 3, 2, 4, 3),
            num_embeddings=(50, 33, 4, 32000, 4099),
            embedding_dim=(16, 13, 3, 512, 333),
        )
        given = (ModuleInput("tokens", names, "int64", 0, "num_embeddings"),)
        for after in ((), (op("scale", scale_factor=22.627417),)):
            yield tensor_draft(
                "embedding",
                rank,
                op("embedding"),
                *after,
                inputs=given,
                all_sizes=sizes,
                layout="features_last",
            )

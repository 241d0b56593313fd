"""Layers of torch.nn: torch's own arguments, and the same tensors in the same order.

Their values are the reference's, so nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from .. import _host
from .._deferred import Deferred
from .._handle import deferred_tensor
from .._names import layer_arguments
from .._tensor import Tensor
from .._types import BY_NAME, DType, names
from ._module import Computes, Module, Parameter

Tensors = Iterator[tuple[str, Tensor | None]]
"""Parameters and buffers of a layer, whose arguments are its members already."""


def drawn(*shape: int) -> Parameter:
    """A parameter that torch would draw at random."""
    return Parameter(_waiting(shape, BY_NAME["float32"], "torch.rand", None))


def filled(value: float, *shape: int) -> Parameter:
    """A parameter that starts as a constant."""
    return Parameter(_waiting(shape, BY_NAME["float32"], "torch.full", value))


def _waiting(shape: Sequence[int], of: DType, origin: str, fill: float | None) -> Tensor:
    made: Tensor = deferred_tensor(Deferred(tuple(map(int, shape)), of, origin, fill=fill))
    return made


def _tuple(value: Any, n: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


# --- layers with parameters -----------------------------------------------------------------------


def _linear(of: Any) -> Tensors:
    yield "weight", drawn(of.out_features, of.in_features)
    yield "bias", drawn(of.out_features) if of.bias else None


def _bilinear(of: Any) -> Tensors:
    yield "weight", drawn(of.out_features, of.in1_features, of.in2_features)
    yield "bias", drawn(of.out_features) if of.bias else None


def _convolution(dims: int, *, transposed: bool = False) -> Callable[[Any], Tensors]:
    def tensors(of: Any) -> Tensors:
        for name in ("kernel_size", "stride", "dilation", "output_padding"):
            setattr(of, name, _tuple(getattr(of, name, 0), dims))
        if not isinstance(of.padding, str):
            of.padding = _tuple(of.padding, dims)
        channels = (of.in_channels, of.out_channels // int(of.groups))
        if not transposed:
            channels = (of.out_channels, of.in_channels // int(of.groups))
        yield "weight", drawn(*channels, *of.kernel_size)
        yield "bias", drawn(of.out_channels) if of.bias else None

    return tensors


def _norm(of: Any) -> Tensors:
    yield "weight", filled(1, of.num_features) if of.affine else None
    yield "bias", filled(0, of.num_features) if of.affine else None
    tracked = of.track_running_stats
    yield "running_mean", filled(0, of.num_features).detach() if tracked else None
    yield "running_var", filled(1, of.num_features).detach() if tracked else None
    count = _waiting((), BY_NAME["int64"], "torch.full", 0)
    yield "num_batches_tracked", count if tracked else None


def _group_norm(of: Any) -> Tensors:
    yield "weight", filled(1, of.num_channels) if of.affine else None
    yield "bias", filled(0, of.num_channels) if of.affine else None


def _layer_norm(of: Any) -> Tensors:
    shape = of.normalized_shape = _tuple(of.normalized_shape, 1)
    yield "weight", filled(1, *shape) if of.elementwise_affine else None
    yield "bias", filled(0, *shape) if of.elementwise_affine and of.bias else None


def _rms_norm(of: Any) -> Tensors:
    shape = of.normalized_shape = _tuple(of.normalized_shape, 1)
    yield "weight", filled(1, *shape) if of.elementwise_affine else None


def _prelu(of: Any) -> Tensors:
    yield "weight", filled(of.init, of.num_parameters)


def _embedding(of: Any) -> Tensors:
    yield "weight", drawn(of.num_embeddings, of.embedding_dim)


def _recurrent(gates: int) -> Callable[[Any], Tensors]:
    def tensors(of: Any) -> Tensors:
        rows, directions = gates * of.hidden_size, ("", "_reverse")[: 1 + bool(of.bidirectional)]
        for layer in range(of.num_layers):
            width = of.hidden_size * len(directions) if layer else of.input_size
            for suffix in directions:
                end = f"l{layer}{suffix}"
                yield f"weight_ih_{end}", drawn(rows, width)
                yield f"weight_hh_{end}", drawn(rows, of.hidden_size)
                if of.bias:
                    yield f"bias_ih_{end}", drawn(rows)
                    yield f"bias_hh_{end}", drawn(rows)

    return tensors


def _cell(gates: int) -> Callable[[Any], Tensors]:
    def tensors(of: Any) -> Tensors:
        rows = gates * of.hidden_size
        yield "weight_ih", drawn(rows, of.input_size)
        yield "weight_hh", drawn(rows, of.hidden_size)
        for name in ("bias_ih", "bias_hh"):
            yield name, drawn(rows) if of.bias else None

    return tensors


def _attention(of: Any) -> Tensors:
    of.head_dim, bias = of.embed_dim // of.num_heads, of.__dict__.pop("bias")
    of.kdim, of.vdim = of.kdim or of.embed_dim, of.vdim or of.embed_dim
    yield "in_proj_weight", drawn(3 * of.embed_dim, of.embed_dim)
    yield "in_proj_bias", filled(0, 3 * of.embed_dim) if bias else None
    linear = type("NonDynamicallyQuantizableLinear", (layer("Linear"),), {})
    of.out_proj = linear(of.embed_dim, of.embed_dim, bias=bias)


_TENSORS: dict[str, Callable[[Any], Tensors]] = {
    "Linear": _linear,
    "Bilinear": _bilinear,
    **{f"Conv{n}d": _convolution(n) for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": _convolution(n, transposed=True) for n in (1, 2, 3)},
    **{f"{kind}Norm{n}d": _norm for kind in ("Batch", "Instance") for n in (1, 2, 3)},
    "SyncBatchNorm": _norm,
    "GroupNorm": _group_norm,
    "LayerNorm": _layer_norm,
    "RMSNorm": _rms_norm,
    "PReLU": _prelu,
    "Embedding": _embedding,
    **{name: _recurrent(gates) for name, gates in (("RNN", 1), ("LSTM", 4), ("GRU", 3))},
    **{f"{name}Cell": _cell(gates) for name, gates in (("RNN", 1), ("LSTM", 4), ("GRU", 3))},
    "MultiheadAttention": _attention,
}
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_MISSING = frozenset(
    names(
        "AdaptiveLogSoftmaxWithLoss Container CrossMapLRN2d EmbeddingBag RNNBase RNNCellBase "
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
        "TransformerEncoderLayer"
    )
)
"""Layers with parameters that are not in the table."""

# --- all layers -----------------------------------------------------------------------------------


@cache
def layer(name: str) -> type[Module]:
    """The class of that name in torch.nn. Raises AttributeError where torch has none of this name;
    ends the process for one with parameters that is missing here."""
    arguments = _arguments(name)
    if arguments is None:
        raise AttributeError(f"module 'torch.nn' has no attribute {name!r}")
    if name in _MISSING or name.startswith("Lazy"):
        _host.unsupported(f"torch.nn.{name}")
    scope: dict[str, Any] = {"begin": _begin}
    given = "".join(f", {n[0]}{f'={n[1]!r}' if len(n) > 1 else ''}" for n in arguments)
    exec(
        f"def __init__(self{given}, device=None, dtype=None):\n    begin({name!r}, locals())", scope
    )
    scope["__init__"].__qualname__ = f"{name}.__init__"  # which Python names in its errors
    members = {"__init__": scope["__init__"], "__module__": __name__}
    if name in ("RNN", "LSTM", "GRU"):
        members["flatten_parameters"] = lambda self: None
    return type(name, (Computes,), members)


def _arguments(name: str) -> list[list[Any]] | None:
    """Of a constructor. That of the recurrent networks is their base's, whose first one is which of
    them it is."""
    if name not in ("RNN", "LSTM", "GRU"):
        return layer_arguments(name)
    arguments = (layer_arguments("RNNBase") or [])[1:]
    if name == "RNN":
        arguments.insert(3, ["nonlinearity", "tanh"])
    return arguments


def _begin(name: str, given: dict[str, Any]) -> None:
    """Make a layer of its arguments."""
    self, dtype = given.pop("self"), given.pop("dtype")
    Module.__init__(self)
    for argument, value in given.items():
        if argument not in ("device", "_weight", "_freeze"):
            setattr(self, argument, value)
    if "Pool" in name and given.get("stride") is None and "kernel_size" in given:
        self.stride = given["kernel_size"]
    if name == "AvgPool1d":
        for member in ("kernel_size", "stride", "padding"):
            setattr(self, member, _tuple(getattr(self, member), 1))
    for member, tensor in _TENSORS[name](self) if name in _TENSORS else ():
        if tensor is not None and dtype is not None and tensor.is_floating_point():
            tensor.set_(tensor.to(dtype))
        if member in _BUFFERS:
            self.register_buffer(member, tensor)
        else:
            self.register_parameter(member, tensor)

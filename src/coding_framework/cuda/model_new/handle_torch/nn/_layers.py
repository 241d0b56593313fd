"""Layers of torch.nn that have parameters: the same names, shapes and order as torch's.

Their values are the reference's, so nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _host
from .._deferred import Deferred
from .._handle import deferred_tensor
from .._names import layer_arguments
from .._tensor import Tensor
from .._types import BY_NAME, DType
from ._module import Computes, Module, Parameter


def drawn(*shape: int, dtype: DType | None = None) -> Parameter:
    """A parameter that torch would draw at random."""
    return Parameter(_waiting(shape, dtype, "torch.rand", None))


def filled(value: float, *shape: int, dtype: DType | None = None) -> Parameter:
    """A parameter that starts as a constant."""
    return Parameter(_waiting(shape, dtype, "torch.full", value))


def _waiting(shape: Sequence[int], dtype: DType | None, origin: str, fill: float | None) -> Tensor:
    of = dtype or BY_NAME["float32"]
    made: Tensor = deferred_tensor(Deferred(tuple(map(int, shape)), of, origin, fill=fill))
    return made


def _tuple(value: Any, n: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


class Linear(Computes):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = drawn(out_features, in_features, dtype=dtype)
        self.register_parameter("bias", drawn(out_features, dtype=dtype) if bias else None)


class Bilinear(Computes):
    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, **_: Any
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.weight = drawn(out_features, in1_features, in2_features)
        self.register_parameter("bias", drawn(out_features) if bias else None)


class _Conv(Computes):
    dims = 1
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        *rest: Any,
        **options: Any,
    ) -> None:
        super().__init__()
        order = "dilation groups bias padding_mode device dtype"
        if self.transposed:
            order = "output_padding groups bias dilation padding_mode device dtype"
        given: dict[str, Any] = {"dilation": 1, "groups": 1, "bias": True, "output_padding": 0}
        given |= {"padding_mode": "zeros", "device": None, "dtype": None}
        given |= dict(zip(order.split(), rest, strict=False)) | options
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = _tuple(kernel_size, self.dims)
        self.stride = _tuple(stride, self.dims)
        self.padding = padding if isinstance(padding, str) else _tuple(padding, self.dims)
        self.dilation = _tuple(given["dilation"], self.dims)
        self.output_padding = _tuple(given["output_padding"], self.dims)
        self.groups, self.padding_mode = given["groups"], given["padding_mode"]
        groups = int(self.groups)
        channels = (in_channels, out_channels // groups)
        if not self.transposed:
            channels = (out_channels, in_channels // groups)
        self.weight = drawn(*channels, *self.kernel_size, dtype=given["dtype"])
        bias = drawn(out_channels, dtype=given["dtype"]) if given["bias"] else None
        self.register_parameter("bias", bias)


class Conv1d(_Conv):
    pass


class Conv2d(_Conv):
    dims = 2


class Conv3d(_Conv):
    dims = 3


class ConvTranspose1d(_Conv):
    transposed = True


class ConvTranspose2d(_Conv):
    dims = 2
    transposed = True


class ConvTranspose3d(_Conv):
    dims = 3
    transposed = True


class _Norm(Computes):
    affine_default = True
    tracks_default = True

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool | None = None,
        track_running_stats: bool | None = None,
        **_: Any,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine = self.affine_default if affine is None else affine
        tracks = self.tracks_default if track_running_stats is None else track_running_stats
        self.track_running_stats = tracks
        self.register_parameter("weight", filled(1, num_features) if self.affine else None)
        self.register_parameter("bias", filled(0, num_features) if self.affine else None)
        mean, variance = filled(0, num_features).detach(), filled(1, num_features).detach()
        self.register_buffer("running_mean", mean if tracks else None)
        self.register_buffer("running_var", variance if tracks else None)
        count = filled(0, dtype=BY_NAME["int64"]).detach()
        self.register_buffer("num_batches_tracked", count if tracks else None)


class BatchNorm1d(_Norm):
    pass


class BatchNorm2d(_Norm):
    pass


class BatchNorm3d(_Norm):
    pass


class SyncBatchNorm(_Norm):
    pass


class InstanceNorm1d(_Norm):
    affine_default = False
    tracks_default = False


class InstanceNorm2d(InstanceNorm1d):
    pass


class InstanceNorm3d(InstanceNorm1d):
    pass


class GroupNorm(Computes):
    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, **_: Any
    ) -> None:
        super().__init__()
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.affine = affine
        self.register_parameter("weight", filled(1, num_channels) if affine else None)
        self.register_parameter("bias", filled(0, num_channels) if affine else None)


class LayerNorm(Computes):
    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        **_: Any,
    ) -> None:
        super().__init__()
        self.normalized_shape = _tuple(normalized_shape, 1)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape = self.normalized_shape
        self.register_parameter("weight", filled(1, *shape) if elementwise_affine else None)
        has_bias = elementwise_affine and bias
        self.register_parameter("bias", filled(0, *shape) if has_bias else None)


class RMSNorm(Computes):
    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        **_: Any,
    ) -> None:
        super().__init__()
        self.normalized_shape = _tuple(normalized_shape, 1)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = filled(1, *self.normalized_shape) if elementwise_affine else None
        self.register_parameter("weight", weight)


class PReLU(Computes):
    def __init__(self, num_parameters: int = 1, init: float = 0.25, **_: Any) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = filled(init, num_parameters)


class Embedding(Computes):
    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, **_: Any
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = drawn(num_embeddings, embedding_dim)


class _Recurrent(Computes):
    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **_: Any,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional = bidirectional
        directions = 2 if bidirectional else 1
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * directions
            for suffix in ("", "_reverse")[:directions]:
                end = f"l{layer}{suffix}"
                setattr(self, f"weight_ih_{end}", drawn(rows, width))
                setattr(self, f"weight_hh_{end}", drawn(rows, hidden_size))
                if bias:
                    setattr(self, f"bias_ih_{end}", drawn(rows))
                    setattr(self, f"bias_hh_{end}", drawn(rows))

    def flatten_parameters(self) -> None:
        return None


class RNN(_Recurrent):
    pass


class LSTM(_Recurrent):
    gates = 4


class GRU(_Recurrent):
    gates = 3


class _Cell(Computes):
    gates = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, **_: Any) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.gates * hidden_size
        self.weight_ih = drawn(rows, input_size)
        self.weight_hh = drawn(rows, hidden_size)
        self.register_parameter("bias_ih", drawn(rows) if bias else None)
        self.register_parameter("bias_hh", drawn(rows) if bias else None)


class RNNCell(_Cell):
    pass


class LSTMCell(_Cell):
    gates = 4


class GRUCell(_Cell):
    gates = 3


class NonDynamicallyQuantizableLinear(Linear):
    pass


class MultiheadAttention(Computes):
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *_: Any,
        batch_first: bool = False,
        **__: Any,
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim, self.batch_first = embed_dim // num_heads, batch_first
        self.in_proj_weight = drawn(3 * embed_dim, embed_dim)
        self.register_parameter("in_proj_bias", filled(0, 3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias)


# --- layers without parameters --------------------------------------------------------------------

_WITH_PARAMETERS = frozenset(
    [
        "AdaptiveLogSoftmaxWithLoss",
        "Container",
        "CrossMapLRN2d",
        "EmbeddingBag",
        "RNNBase",
        "RNNCellBase",
        "Transformer",
        "TransformerDecoder",
        "TransformerDecoderLayer",
        "TransformerEncoder",
        "TransformerEncoderLayer",
    ]
)


def plain_layer(name: str) -> type[Module]:
    """The class for a layer of torch.nn that has no parameters. Raises AttributeError where torch
    has none of this name; ends the process for one with parameters, which is missing here."""
    arguments = layer_arguments(name)
    if arguments is None:
        raise AttributeError(f"module 'torch.nn' has no attribute {name!r}")
    if name in _WITH_PARAMETERS or name.startswith("Lazy"):
        _host.unsupported(f"torch.nn.{name}")
    signature: list[list[Any]] = arguments

    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
        Module.__init__(self)
        names = [argument[0] for argument in signature]
        given = dict(zip(names, arguments, strict=False)) | options
        for argument in signature:
            if len(argument) == 1 and argument[0] not in given:
                raise TypeError(f"{name}() missing required argument: {argument[0]!r}")
            value = given.get(argument[0], argument[1] if len(argument) > 1 else None)
            setattr(self, argument[0], value)
        if "Pool" in name and given.get("stride") is None and "kernel_size" in given:
            self.stride = given["kernel_size"]
        if name == "AvgPool1d":
            for member in ("kernel_size", "stride", "padding"):
                setattr(self, member, _tuple(getattr(self, member), 1))

    return type(name, (Computes,), {"__init__": __init__, "__module__": __name__})

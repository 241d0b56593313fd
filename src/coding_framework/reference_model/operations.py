"""Code that sees each of PyTorch's operations, and what a function's operations come to.

Nothing here needs a derivative: a function may run under `no_grad` or `inference_mode`, and of
operators that have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


EXACT = names(
    "abs neg positive relu relu6 clamp clamp_min clamp_max hardtanh threshold sign sgn floor "
    "ceil round trunc frac where max min amax amin aminmax argmax argmin maximum minimum fmax "
    "fmin sort argsort topk kthvalue median mode cummax cummin gather index index_select take "
    "cat stack scatter index_put masked_fill masked_select copy clone fill zero zeros "
    "zeros_like ones ones_like full full_like empty empty_like new_zeros new_ones new_empty "
    "new_full arange scalar_tensor lift_fresh lift_fresh_copy detach alias _to_copy flip roll "
    "tril triu repeat constant_pad_nd reflection_pad2d replication_pad2d _unsafe_view randperm "
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d "
    "native_dropout embedding nonzero isnan isinf bernoulli rand randn copysign ldexp one_hot "
    "diag_embed eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and "
    "bitwise_or bitwise_not _local_scalar_dense is_same_size eye slice_scatter select_scatter "
    "im2col"
)
"""Operations that round nothing."""


_BATCH_NORMS = {
    torch.ops.aten._native_batch_norm_legit.default: 5,
    torch.ops.aten._native_batch_norm_legit.no_stats: 3,
}
"""Where among their arguments it says whether the statistics are the batch's."""
_MANY = 1 << 62


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """PyTorch's own mode, which sees an operation that is made of others as those, also under
    `inference_mode`, and without what a compiler needs: that imports torch._dynamo at the first
    operation, which takes a second, and ten where PyTorch has no byte code, while the GPU's lock is
    held."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if _is_composite(func):
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return self.operation(func, args, kwargs)

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do one operation, which is not made of others."""
        raise NotImplementedError


@lru_cache(maxsize=4096)
def _is_composite(func: Any) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return isinstance(func, torch._ops.OpOverload) and func.has_kernel_for_dispatch_key(key)


@lru_cache(maxsize=4096)
def plain_name(func: Any) -> str:
    """The name of an operation, without that it works in place."""
    return str(func._schema.name).removeprefix("aten::").removesuffix("_")


class OperationCounter(OperationMode):  # type: ignore[no-untyped-call]
    """What the operations within it come to."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        from torch.utils.flop_counter import flop_registry  # with Triton, where there is one

        self._formulas = flop_registry
        self.flops = 0
        """Of matrix products and convolutions, by PyTorch's own formulas."""
        self.elements = 0
        """That operations give, views left out."""
        self.normed = _MANY
        """Of which a batch norm takes mean and variance, at least."""
        self._terms: dict[int, tuple[int, int]] = {}
        """By the number of a storage: of the longest sum, and of that whose result it is."""
        self._alive: list[torch.Tensor] = []  # such a number means nothing without its tensor

    def terms(self, tensor: torch.Tensor) -> int:
        """Of the longest sum behind an element of a tensor. A sum of sums counts as one that is as
        long as both together, for a kernel may add it up so; a function of a sum ends it."""
        return self._of(tensor)[0]

    def _of(self, tensor: torch.Tensor) -> tuple[int, int]:
        return self._terms.get(tensor.untyped_storage()._cdata, (1, 1))

    def after(
        self, steps: int, one: torch.Tensor, two: torch.Tensor, shape: Sequence[int]
    ) -> torch.Tensor:
        """A tensor of the shape that so many equal steps make, by what one and two of them made:
        each multiplies the terms of its sums as the second did."""
        with torch._C._DisableTorchDispatch():
            made = torch.empty(shape, dtype=one.dtype, device=one.device)
        pairs = zip(self._of(one), self._of(two), strict=True)
        longest, chain = (a * (b // a) ** (steps - 1) for a, b in pairs)
        self._alive.append(made)
        self._terms[made.untyped_storage()._cdata] = longest, chain
        return made

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(func, torch._ops.OpOverload):  # takes functions: not looked into
            return func(*args, **kwargs)
        given = list(_tensors((args, tuple(kwargs.values()))))
        result = self._normed(func, args) or func(*args, **kwargs)
        made = list(_tensors(result if isinstance(result, tuple) else (result,)))
        formula = self._formulas.get(func._overloadpacket)
        flops = 0 if formula is None else int(formula(*args, **kwargs, out_val=result))
        self.flops += flops
        if not func.is_view:
            returns = zip(made, func._schema.returns, strict=False)
            self.elements += sum(t.numel() for t, told in returns if told.alias_info is None)
        name = plain_name(func)
        if flops and name not in _OWN_TERMS:
            own = math.ceil(flops / 2 / max(1, made[0].numel()))
        else:
            own = added_terms(func, args, kwargs, given, made)
        before = [self._of(tensor) for tensor in given]
        sums = func.is_view or name in _SUMS or flops
        chain = own * max((c for _, c in before), default=1) if sums else own
        longest = max([chain, *(n for n, _ in before)])
        if longest > 1:
            self._alive += made
            for tensor in made:
                key = tensor.untyped_storage()._cdata
                before_it, ended = self._of(tensor)
                self._terms[key] = max(longest, before_it), max(chain, ended)
        return result

    def _normed(self, func: Any, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...] | None:
        """What a batch norm gives of a tensor without values, for whose shapes PyTorch runs some
        forty operations; None of all else."""
        if func not in _BATCH_NORMS or not args[0].is_meta:
            return None
        x, training = args[0], args[_BATCH_NORMS[func]]
        if training and x.numel():
            self.normed = min(self.normed, x.numel() // x.shape[1])
        mean, deviation = (x.new_empty(x.shape[1] if training else 0) for _ in range(2))
        return torch.empty_like(x), mean, deviation


class FewSteps(TorchFunctionMode):
    """Runs recurrent layers over one and two steps of their sequence, and counts what all steps
    come to: each does the same. For tensors without values."""

    def __init__(self, counter: OperationCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        layers = (torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu)
        if func not in layers or not isinstance(args[-1], bool):  # packed sequences have no steps
            return func(*args, **(kwargs or {}))
        x, *rest, batch_first = args
        axis = 1 if batch_first and x.dim() == 3 else 0
        steps, counter = x.shape[axis], self._counter
        if steps < 3:
            return func(*args)
        seen = [(counter.flops, counter.elements)]
        results = []
        for few in (1, 2):
            results.append(func(x.narrow(axis, 0, few), *rest, batch_first))
            seen.append((counter.flops, counter.elements))
        flops, elements = (
            start + (steps - 1) * (two - one) - (steps - 2) * (one - start)
            for start, one, two in zip(*seen, strict=True)
        )
        counter.flops, counter.elements = flops, elements
        shapes = [list(two.shape) for two in results[1]]
        shapes[0][axis] = steps
        pairs = zip(*results, shapes, strict=True)
        return tuple(counter.after(steps, one, two, shape) for one, two, shape in pairs)


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def added_terms(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: Sequence[torch.Tensor],
    made: Sequence[torch.Tensor],
) -> int:
    """How many terms one element of what an operation makes adds up, at most."""
    name = plain_name(func)
    least = min((t.numel() for t in made if t.numel()), default=0)
    if not given or not least or func.is_view:
        return 1
    own = _OWN_TERMS.get(name)
    if own is not None:
        return max(1, own(*args, **kwargs))
    if name in EXACT or torch.Tag.pointwise in func.tags:
        return 1
    if "linalg" in name and name != "linalg_vector_norm":
        return math.prod(given[0].shape[-2:])
    # a norm gives the statistics of its rows too
    terms = math.ceil(max(t.numel() for t in given) / least)
    if not func._schema.name.startswith("aten::"):  # nothing is known of it
        terms = max(terms, *(n for t in given for n in t.shape))
    return terms


def _along(x: torch.Tensor, dim: int, *rest: Any, **named: Any) -> int:
    return x.shape[dim] if x.dim() else 1


def _of_window(x: torch.Tensor, size: Any, *rest: Any, **named: Any) -> int:
    size = [size] if isinstance(size, int) else size
    return math.prod(size)


def _indexed(x: torch.Tensor, dim: int, index: torch.Tensor, *rest: Any, **named: Any) -> int:
    return index.shape[dim] if index.dim() else 1


def _put(x: torch.Tensor, indices: Any, values: Any, accumulate: bool = False, *rest: Any) -> int:
    return max((t.numel() for t in indices if t is not None), default=1) if accumulate else 1


def _of_filter(
    x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Sequence[int], padding: Any,
    dilation: Sequence[int], transposed: bool, output_padding: Any, groups: int, *rest: Any,
) -> int:  # fmt: skip
    if not transposed:
        return weight[:1].numel()
    taps = zip(weight.shape[2:], stride, dilation, strict=False)
    reached = (math.ceil(k * math.gcd(s, d) / s) for k, s, d in taps)
    return math.prod(reached) * weight.shape[0] // groups


_SUMS = names(
    "add sub rsub mul div sum mean dot vdot mv addmv cumsum convolution _convolution avg_pool1d "
    "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d index_add scatter_add addcmul "
    "lerp _embedding_bag col2im neg clone copy _to_copy cat stack _unsafe_view constant_pad_nd "
    "flip roll index_select index slice_scatter masked_fill"
)
"""Operations of which a sum of sums is one sum."""


def _count(number: int) -> Callable[..., int]:
    return lambda *args, **named: number


_OWN_TERMS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(
        names("_softmax _log_softmax _safe_softmax cumsum cumprod logcumsumexp"), _along
    ),
    **dict.fromkeys(names("convolution _convolution"), _of_filter),
    **dict.fromkeys(names("avg_pool1d avg_pool2d avg_pool3d"), _of_window),
    **dict.fromkeys(names("scatter_add scatter_reduce"), _indexed),
    **dict.fromkeys(
        names("index_add index_reduce"), lambda x, dim, index, *rest, **named: index.numel()
    ),
    **dict.fromkeys(names("index_put _index_put_impl"), _put),
    "_embedding_bag": lambda weight, indices, *rest, **named: indices.numel(),
    "col2im": lambda x, size, kernel, *rest: math.prod(kernel),
    "nll_loss_forward": lambda x, target, *rest: target.numel(),
    "nll_loss2d_forward": lambda x, target, *rest: target.numel(),
    "_trilinear": lambda a, b, *rest: a.shape[-1] * b.shape[-1],
    **dict.fromkeys(
        names("_cdist_forward _euclidean_dist _pdist_forward"), lambda x, *rest: x.shape[-1]
    ),
    **dict.fromkeys(
        names("_fft_r2c _fft_c2r _fft_c2c"),
        lambda x, dim, *rest: math.prod(x.shape[d] for d in dim),
    ),
    **dict.fromkeys(names("linalg_cross upsample_linear1d"), _count(2)),
    **dict.fromkeys(names("upsample_bilinear2d grid_sampler_2d"), _count(4)),
    **dict.fromkeys(names("upsample_trilinear3d grid_sampler_3d"), _count(8)),
    "upsample_bicubic2d": _count(16),
}
"""Terms of operations of which the number of elements does not tell them."""

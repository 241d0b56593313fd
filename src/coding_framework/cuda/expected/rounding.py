"""How much of a result rounding can lose: the reference again, each step of it slightly off.

In float64 every operation's result is multiplied by 1 + eps * noise, where a float32 computation
would have rounded it. Sums, products of matrices and all operations that are not listed here get
inputs that are off as well, as their own summands are. What changes by that, over eps, is the
scale of an element's rounding errors: for a * b + c it is that of a * b, also where c cancels it.

Some functions have honest textbook forms that lose more than the last bit, because they go through
a number of another size: `tanh` by exponentials through 1, `x - a` times b through a * b. Their own
scale is listed (`_OWN_SCALES`). exp and what does not go through such a number keeps every digit.

The variance as E[x^2] - mean^2 loses the square of mean over deviation. It is allowed that up to a
ratio of 100; beyond it an edge draw says nothing.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from coding_framework.cuda.expected.choices import UNDEFINED_CAST, undefined_cast
from coding_framework.reference_model.operations import EXACT, OperationMode, names, plain_name

_LARGEST_RATIO = 100.0
"""Of mean to deviation: so far a one-pass variance is right."""
_RATIO_SHARE = 1 / 8
"""Part of eps * ratio^2 that such a variance may lose, times what a sum of its length may: measured
at 0.15 for a plain loop."""
_UNDECIDED = 1e30
_REDUCED_ARGUMENT = 16.0
"""So far the hardware's sine keeps its error small."""
_NOISE = 1 << 16
"""Random numbers at hand; a larger tensor gets more."""
_KEPT_NOISE = 1 << 20
"""So many are kept for the next tensor of this size, 8 MiB; more are drawn each time."""


UNDEFINED_TIES = names(
    "sort topk kthvalue median nanmedian mode cummax cummin max_pool2d_with_indices "
    "max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d _unique2 unique_dim"
)
"""Operations of which nobody says which of two equal elements they take."""
BY_INDEX = names(
    "gather index index_select take scatter scatter_add index_put index_add embedding one_hot "
    "max_unpool2d max_unpool3d"
)
"""Operations in which it matters which of two equal elements was taken."""


def _size_of(value: Any) -> Any:
    return value.to(torch.float64).abs() if isinstance(value, torch.Tensor) else abs(value)


def _terms(out: torch.Tensor, a: Any, b: Any, *rest: Any, alpha: Any = 1) -> torch.Tensor:
    """A difference times a number may be a product less a product."""
    sizes = (_size_of(a), _size_of(b) * abs(alpha))
    first, second = (torch.as_tensor(size).to(out) for size in sizes)
    return torch.maximum(torch.maximum(out.abs(), first), second)


def _logarithm_too(out: torch.Tensor, *rest: Any) -> torch.Tensor:
    """As a power of e or 2 whose exponent was rounded."""
    size = out.abs()
    return size * (1 + size.clamp_min(1e-300).log().abs())


def _one_at_least(out: torch.Tensor, *rest: Any) -> torch.Tensor:
    return out.abs().clamp_min(1.0)


def _of_argument(out: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.maximum(out.abs(), x.abs())


def _one_or_argument(out: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.maximum(out.abs(), x.abs()).clamp_min(1.0)


def _reduced(out: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x.abs().clamp_max(_REDUCED_ARGUMENT) + 1


def _tangent(out: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return _reduced(out, x) * (1 + out * out)


_LOSES_SMALL = frozenset((_one_at_least, _of_argument, _one_or_argument, _reduced))
"""By these a function may lose the digits of a small result (`fine_bounds.py`)."""


def _rounded(out: torch.Tensor, *rest: Any) -> torch.Tensor:
    return out.abs()


_OWN_SCALES: dict[str, Callable[..., torch.Tensor]] = {
    **dict.fromkeys(("add", "sub", "rsub"), _terms),
    **dict.fromkeys(
        names(
            "mul div log1p reciprocal sqrt rsqrt square hypot hardswish hardsigmoid leaky_relu "
            "prelu _prelu_kernel true_divide softshrink hardshrink"
        ),
        _rounded,
    ),
    **dict.fromkeys(("exp", "exp2", "pow", "expm1"), _logarithm_too),
    **dict.fromkeys(("sin", "cos"), _reduced),
    "tan": _tangent,
    **dict.fromkeys(
        names(
            "tanh erf erfc sigmoid atan asin acos atan2 sinh asinh acosh atanh log log2 log10 elu "
            "celu selu cosh"
        ),
        _one_at_least,
    ),
    **dict.fromkeys(("gelu", "silu", "mish"), _of_argument),
    **dict.fromkeys(("softplus", "log_sigmoid_forward"), _one_or_argument),
}
"""The size of the numbers through which an honest form of an elementwise operation goes."""
TEXTBOOK = frozenset(name for name, own in _OWN_SCALES.items() if own in _LOSES_SMALL)
"""Operations whose textbook forms may lose the digits of a small result."""


def _largest(x: torch.Tensor, axis: int) -> torch.Tensor:
    size = x.abs().amax(axis, keepdim=True) if x.dim() else x.abs()
    return torch.nan_to_num(size, 0.0, 0.0, 0.0) + 1


def _of_logits(
    out: torch.Tensor, x: torch.Tensor, target: Any, weight: Any = None, positive: Any = None,
    reduction: int = 1,
) -> torch.Tensor:  # fmt: skip
    """Forms of a loss that cancel the logit, or go through 1, lose what is far smaller than these:
    PyTorch's does too, in float64 as in float32."""
    size = x.abs().clamp_min(1.0)
    for factor in (weight, None if positive is None else positive.clamp_min(1.0)):
        size = size if factor is None else size * factor.abs()
    return size if out.shape == size.shape else (size.mean() if reduction == 1 else size.sum())


_OF_ROWS: dict[str, Callable[..., torch.Tensor]] = {
    "binary_cross_entropy_with_logits": _of_logits,
    "logsumexp": _one_at_least,
    "logcumsumexp": _one_at_least,
    "_log_softmax": lambda out, x, axis, *rest: _largest(x, axis),
    "_softmax": lambda out, x, axis, *rest: _largest(x, axis) * out,
}
"""The same of operations on rows, an exponent less the sum of maximum and logarithm, and of a
loss."""


class Inexact(OperationMode):  # type: ignore[no-untyped-call]
    """Float64 operations within it are off by a relative `eps` times noise of a size about 1."""

    def __init__(
        self, eps: float, seed: int, *, decides_beyond: bool = True, textbook: bool = True
    ) -> None:
        """decides_beyond: whether a variance far smaller than its mean still says something.
        textbook: whether functions may go through numbers larger than their result."""
        super().__init__()
        self._eps = eps
        self._seed = seed
        self._decides_beyond = decides_beyond
        self._textbook = textbook
        self._places = random.Random(seed)
        self._numbers = _usual_noise(seed)
        self.seen: Counter[str] = Counter()
        """How often each operation was called, by its name."""

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.removeprefix("aten::")
        self.seen[name] += 1
        plain = plain_name(func)
        if plain in EXACT or func.is_view or _by_a_power_of_two(plain, args):
            exact = func(*args, **kwargs)
            if undefined_cast(plain, args, exact) is not None:
                self.seen[UNDEFINED_CAST] += 1
            return exact
        own = _OWN_SCALES.get(plain)
        if own in _LOSES_SMALL and not self._textbook:
            own = _rounded
        if own is None:
            return self._composite(func, name, args, kwargs)
        before = args if plain == name else (args[0].clone(), *args[1:])
        given = func(*args, **kwargs)
        out = given[0] if isinstance(given, tuple) else given  # others are buffers for gradients
        if out.is_floating_point():
            extra = {"alpha": kwargs["alpha"]} if "alpha" in kwargs else {}
            scale = torch.nan_to_num_(own(out, *before, **extra), 0.0, 0.0, 0.0)
            out.add_(self._noise(out).mul_(scale))
        return given

    def _composite(self, func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
        """An operation that adds up, or that is not known: its terms are off as well."""
        given = tuple(
            value
            if said.alias_info is not None and said.alias_info.is_write
            else self._moved(value)
            for value, said in zip(args, func._schema.arguments, strict=False)
        )
        if name == "histc":
            given = (_at_its_ends(given[0], *args), *given[1:])
        out = func(*given, **kwargs)
        outs = out if isinstance(out, (tuple, list)) else (out,)
        ratio = _RATIOS[name](*args, **kwargs) if name in _RATIOS else None
        for i, one in enumerate(outs):
            if isinstance(one, torch.Tensor) and one.is_floating_point():
                noise = self._noise(one)
                if name in _OF_ROWS:
                    one.add_(noise * _OF_ROWS[name](one, *args))
                one.mul_(noise.add_(1))  # not one + noise * one, which is no number for infinities
                if ratio is not None and i == 0:
                    self._lose_variance(one, ratio)
        return out

    def _lose_variance(self, out: torch.Tensor, ratio: torch.Tensor) -> None:
        """`ratio`: the square of mean to deviation, for each element of `out`."""
        most = _LARGEST_RATIO**2
        noise = self._noise(out)
        if not self._decides_beyond:
            out.add_(torch.where(ratio > most, noise * _UNDECIDED, 0.0))
        out.addcmul_(noise.mul_(ratio.clamp_max(most)).mul_(_RATIO_SHARE), out)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._noise(value).add_(1).mul_(value) if value.is_floating_point() else value
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            return type(value)(self._moved(v) for v in value)
        return value

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        """eps times random numbers from 0.5 to 1.5 of either sign, for each element."""
        count = like.numel()
        numbers = self._numbers
        if count > len(numbers):
            draw = _much_noise if 2 * count <= _KEPT_NOISE else _noise
            numbers = self._numbers = draw(self._seed, 2 * count)
        start = self._places.randrange(len(numbers) - count + 1)
        found = numbers[start : start + count].to(device=like.device, dtype=like.dtype)
        return found.mul(self._eps).reshape(like.shape)


@lru_cache(maxsize=32)
def _usual_noise(seed: int) -> torch.Tensor:
    return _noise(seed, _NOISE)


@lru_cache(maxsize=4)
def _much_noise(seed: int, count: int) -> torch.Tensor:
    return _noise(seed, count)


def _noise(seed: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = torch.rand(count, dtype=torch.float64, generator=generator).add_(0.5)
    return size.mul_(torch.randint(0, 2, (count,), generator=generator).mul_(2).sub_(1))


def _at_its_ends(moved: torch.Tensor, x: torch.Tensor, bins: int, *ends: float) -> torch.Tensor:
    """A histogram counts its last edge, however a bin's number is rounded."""
    at = torch.zeros_like(x, dtype=torch.bool)
    for end in ends:
        at |= x == end
    return torch.where(at, x, moved)


def _by_a_power_of_two(name: str, args: tuple[Any, ...]) -> bool:
    """Whether it is a product that float32 rounds nowhere: it lies as near to a half as it does
    here, and a jump behind it is no matter of rounding."""
    if name not in ("mul", "div") or len(args) < 2:
        return False
    factor = args[1]
    if isinstance(factor, torch.Tensor):
        if factor.dim() or factor.is_complex():
            return False
        factor = factor.item()
    return isinstance(factor, (int, float)) and abs(math.frexp(factor)[0]) == 0.5


# --- the ratio of mean to deviation ---------------------------------------------------------------


def _ratio(x: torch.Tensor, axes: Sequence[int], eps: float, keepdim: bool) -> torch.Tensor:
    mean = x.mean(tuple(axes), keepdim=keepdim)
    variance = x.var(tuple(axes), correction=0, keepdim=keepdim)
    return mean.square() / (variance + eps).clamp_min(1e-300)


def _of_layer_norm(x: torch.Tensor, shape: Sequence[int], w: Any, b: Any, eps: float) -> Any:
    return _ratio(x, range(x.dim() - len(shape), x.dim()), eps, True).expand_as(x)


def _of_group_norm(
    x: torch.Tensor, w: Any, b: Any, n: int, c: int, hw: int, groups: int, eps: float
) -> Any:
    found = _ratio(x.reshape(n, groups, -1), (2,), eps, True)
    return found.expand(n, groups, c // groups * hw).reshape(x.shape)


def _of_batch_norm(x: torch.Tensor, *rest: Any) -> Any:
    if not any(value is True for value in rest):  # statistics that are given lose nothing
        return torch.zeros_like(x)
    axes = [i for i in range(x.dim()) if i != 1]
    return _ratio(x, axes, float(rest[-1]), True).expand_as(x)


def _of_variance(x: torch.Tensor, dim: Any = None, *rest: Any, **named: Any) -> Any:
    axes = [dim] if isinstance(dim, int) else dim
    found = _ratio(x, axes or range(x.dim()), 0.0, bool(named.get("keepdim", False)))
    return torch.nan_to_num(found, 0.0, math.inf, math.inf)


_RATIOS: dict[str, Callable[..., Any]] = {
    "native_layer_norm": _of_layer_norm,
    "native_group_norm": _of_group_norm,
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), _of_batch_norm),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _of_variance),
}
"""The operations that have a variance inside."""

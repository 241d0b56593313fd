"""The function that takes a decorated function's place, made as text for each operation.

All guards stand in one body without loops, argument tuples and calls of Python, each of which takes
as long as a guard. It launches where it is sure of a hit, and calls the function where the route
says why it is a miss. Every other call goes to `KernelOp.guarded`, which looks at all guards in
their order. Names of its own, which the text begins with a `$`, have more underscores before them
than any parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad

from coding_framework.deployment.apply.launching import LaunchError

# Contiguous tensors of one shape have the same strides, as far as strides mean anything. In a trace
# of torch.jit extents are tensors, so that no key is found.
_KEY = "{0}.dtype, {0}.shape, {0}.is_contiguous() or {0}.stride(), {0}.get_device()"
# What its dispatch keys say, in less time: what wraps another tensor has no address, or 0.
_PLAIN = (
    "{0}.__class__ in $PLAIN_TYPES and ($at_{0} := {0}.data_ptr()) and not {0}.is_neg() "
    "and not {0}.has_names() and {0}.is_cuda is $route.on_cuda"
)
_BODY = """
    $route = $sure = None
    $kernels = $op.kernels
    if $kernels is not None and not $off() and $op.generation == $kernels.generation:
        try:
            if $grad_enabled() and ({needs_grad}):
                $route = $grad_route
            else:
                $route = $routes.get(({key}))
            $sure = (
                $route is not None and $route.quick and $route.countdown > 0
                and $forward_ad._current_level < 0 and {plain}
                and not ({address_bits}) & $route.unaligned
                and (not $deterministic() or $route.offer.template.deterministic)
                and (not $any_autocast() or $op.same_under_autocast($route, $kernels))
                and ($route.capturable or not $kernels.launcher.capturing())
            )
        except $GUARD_ERRORS:
            pass
    if $sure:
        $kernel = $route.offer.kernel
        $route.countdown -= 1
        $kernels.launched.add($kernel)
        try:
            $outputs = $route.call(({tensors}), ({addresses}))
        except $LaunchError as $error:
            raise $op.fault($kernels, $error, $kernel) from $error
        $op.hits += 1
        return $outputs[0] if $len($outputs) == 1 else $outputs
    if $route is not None and $route.reason is not None:
        $route.misses += 1
        return $op.function({arguments})
    return $op.guarded(({arguments}))
"""
_TEXT = """
def $key({arguments}):
    return ({key})

def $uncounted({arguments}):{body}
def $eager({parameters}):
    if $dynamo() or $compiler._is_compiling_flag or $dispatch_modes() or $function_modes():
        return $as_operator({arguments})
    $calls = $op.calls + 1
    if $calls & {timed} == 2:  # the first is checked
        return $op.run(({arguments}))
    $op.calls = $calls{body}"""
PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
GUARD_ERRORS = (AttributeError, TypeError, RuntimeError)
"""Of looking at what is no dense tensor: None, sparse and nested tensors, symbolic extents."""
TIMED = 127
"""One call in so many (a mask) is timed."""


def generate(
    signature: inspect.Signature, tensors: Collection[str], known: Mapping[str, Any]
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """What of a call decides its route; a call that is not counted; and one as the program makes
    it. tensors: names of parameters. known: of the operation, by names in the text above."""
    names = list(signature.parameters)
    own = "_" * (2 + max((len(n) - len(n.lstrip("_")) for n in names), default=0))

    def each(part: str, of: Collection[str] = tensors) -> str:
        return "".join(f"{part.format(n)}, " for n in of)

    def joined(part: str, joint: str, empty: str) -> str:
        return joint.join(part.format(n) for n in tensors) or empty

    defaults = {
        f"$default_{p.name}": p.default
        for p in signature.parameters.values()
        if p.default is not p.empty
    }
    parts = {
        "key": "".join(f"{(_KEY if n in tensors else '$repr({0})').format(n)}, " for n in names),
        "arguments": each("{}", names),
        "tensors": each("{}"),
        "addresses": each("$at_{}"),
        "address_bits": joined("$at_{}", " | ", "0"),
        "needs_grad": joined("{}.requires_grad", " or ", "False"),
        "plain": joined(_PLAIN, " and ", "True"),
    }
    parameters = "".join(
        f"{n}=$default_{n}, " if f"$default_{n}" in defaults else f"{n}, " for n in names
    )
    text = _TEXT.format(body=_BODY.format(**parts), parameters=parameters, timed=TIMED, **parts)
    scope: dict[str, Any] = {
        "$grad_enabled": torch.is_grad_enabled,
        "$deterministic": torch._C._get_deterministic_algorithms,
        "$any_autocast": torch._C._is_any_autocast_enabled,
        "$forward_ad": forward_ad,
        "$dynamo": torch.compiler.is_dynamo_compiling,
        "$compiler": torch.compiler,
        "$dispatch_modes": torch._C._len_torch_dispatch_stack,
        "$function_modes": torch._C._len_torch_function_stack,
        "$repr": repr,
        "$len": len,
        "$PLAIN_TYPES": PLAIN_TYPES,
        "$GUARD_ERRORS": GUARD_ERRORS,
        "$LaunchError": LaunchError,
        **{f"${name}": value for name, value in known.items()},
        **defaults,
    }
    scope = {name.replace("$", own): value for name, value in scope.items()}
    exec(text.replace("$", own), scope)
    return scope[f"{own}key"], scope[f"{own}uncounted"], scope[f"{own}eager"]

"""The function that takes a decorated function's place, made as text for each operation.

All guards stand in one body without loops, argument tuples and calls of Python, each of which takes
as long as a guard. It launches where it is sure of a hit, and calls the function where the route
says why it is a miss. Every other call goes to `KernelOp.guarded`, which looks at all guards in
their order. Names of its own begin with two underscores, so that no parameter is called alike.
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
    "{0}.__class__ in __PLAIN_TYPES and (__at_{0} := {0}.data_ptr()) and not {0}.is_neg() "
    "and not {0}.has_names() and {0}.is_cuda is __route.on_cuda"
)
_BODY = """
    __route = __sure = None
    __kernels = __op.kernels
    if __kernels is not None and not __off() and __op.generation == __kernels.generation:
        try:
            if __grad_enabled() and ({needs_grad}):
                __route = __grad_route
            else:
                __route = __routes.get(({key}))
            __sure = (
                __route is not None and __route.quick and __route.countdown > 0
                and __forward_ad._current_level < 0 and {plain}
                and not ({address_bits}) & __route.unaligned
                and (not __deterministic() or __route.offer.template.deterministic)
                and (not __any_autocast() or __op.same_under_autocast(__route, __kernels))
                and (__route.capturable or not __kernels.launcher.capturing())
            )
        except __GUARD_ERRORS:
            pass
    if __sure:
        __kernel = __route.offer.kernel
        __route.countdown -= 1
        __kernels.launched.add(__kernel)
        try:
            __outputs = __route.call(({tensors}), ({addresses}))
        except __LaunchError as __error:
            raise __op.fault(__kernels, __error, __kernel) from __error
        __op.hits += 1
        return __outputs[0] if __len(__outputs) == 1 else __outputs
    if __route is not None and __route.reason is not None:
        __route.misses += 1
        return __op.function({arguments})
    return __op.guarded(({arguments}))
"""
_TEXT = """
def __key({arguments}):
    return ({key})

def __uncounted({arguments}):{body}
def __eager({parameters}):
    if __dynamo() or __compiler._is_compiling_flag or __dispatch_modes() or __function_modes():
        return __as_operator({arguments})
    __calls = __op.calls + 1
    if __calls & {timed} == 2:  # the first is checked
        return __op.run(({arguments}))
    __op.calls = __calls{body}"""
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

    def each(part: str, of: Collection[str] = tensors) -> str:
        return "".join(f"{part.format(n)}, " for n in of)

    def joined(part: str, joint: str, empty: str) -> str:
        return joint.join(part.format(n) for n in tensors) or empty

    defaults = {
        f"__default_{p.name}": p.default
        for p in signature.parameters.values()
        if p.default is not p.empty
    }
    parts = {
        "key": "".join(f"{(_KEY if n in tensors else '__repr({0})').format(n)}, " for n in names),
        "arguments": each("{}", names),
        "tensors": each("{}"),
        "addresses": each("__at_{}"),
        "address_bits": joined("__at_{}", " | ", "0"),
        "needs_grad": joined("{}.requires_grad", " or ", "False"),
        "plain": joined(_PLAIN, " and ", "True"),
    }
    parameters = "".join(
        f"{n}=__default_{n}, " if f"__default_{n}" in defaults else f"{n}, " for n in names
    )
    text = _TEXT.format(body=_BODY.format(**parts), parameters=parameters, timed=TIMED, **parts)
    scope: dict[str, Any] = {
        "__grad_enabled": torch.is_grad_enabled,
        "__deterministic": torch._C._get_deterministic_algorithms,
        "__any_autocast": torch._C._is_any_autocast_enabled,
        "__forward_ad": forward_ad,
        "__dynamo": torch.compiler.is_dynamo_compiling,
        "__compiler": torch.compiler,
        "__dispatch_modes": torch._C._len_torch_dispatch_stack,
        "__function_modes": torch._C._len_torch_function_stack,
        "__repr": repr,
        "__len": len,
        "__PLAIN_TYPES": PLAIN_TYPES,
        "__GUARD_ERRORS": GUARD_ERRORS,
        "__LaunchError": LaunchError,
        **{f"__{name}": value for name, value in known.items()},
        **defaults,
    }
    exec(text, scope)
    return scope["__key"], scope["__uncounted"], scope["__eager"]

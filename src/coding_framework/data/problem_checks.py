"""Whether a user's module is a function that a kernel can be judged against; if not, why.

A verdict compares outputs for equal inputs. A module whose output is drawn, or depends on the calls
before, has no such output; one that decides by values of its inputs cannot be given other sizes.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from coding_framework.errors import UsageError
from coding_framework.types import Task, TensorSpec

if TYPE_CHECKING:
    import torch

_ON_VALUES = (
    "item()",
    "data-dependent",
    "data-independent",
    "on meta tensors",
    "meta tensors",
    "aten::equal",
)


class RandomOutputError(UsageError):
    """A module draws random numbers: no kernel can give its output."""


def explained(error: UsageError, name: str) -> UsageError:
    """The same error, or a clearer one where the module looks at values that are not there yet."""
    if any(mark in str(error) for mark in _ON_VALUES):
        return UsageError(
            f"the forward of {name} decides by the values of its inputs (an `if` on a tensor, "
            "`.item()`, `nonzero`, boolean indexing, `torch.equal`): its sizes cannot be varied; "
            "decide by shapes alone, or use torch.where"
        )
    return error


def require_function(task: Task) -> None:
    """Raises UsageError where the module's output is no function of its inputs and parameters."""
    import torch

    from coding_framework.reference_model import make_model, run_reference

    case = min(task.cases, key=lambda c: sum(math.prod(s.shape) for s in c.inputs))
    if not case.inputs:
        raise UsageError(
            f"get_inputs() of {task.name} returns no tensor: there is nothing for a kernel to "
            "compute from; give the module its input as a tensor"
        )
    names = run_reference(task.reference)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = make_model(names["Model"], case.init_args or task.init_args)
        inputs = [drawn_input(spec) for spec in case.inputs]
        fresh = copy.deepcopy(model)
        torch.manual_seed(1)
        first = _outputs(model, inputs)
        torch.manual_seed(2)
        if not _equal(first, _outputs(fresh, inputs)):
            raise RandomOutputError(
                f"the forward of {task.name} draws random numbers, in evaluation mode too: no "
                "kernel can give its output; take the numbers as an input"
            )
        if not _equal(first, _outputs(model, inputs)):
            raise UsageError(
                f"the output of {task.name} depends on the calls before it (a buffer that "
                "forward changes): a verdict compares single calls; take the state as an input"
            )


def drawn_input(spec: TensorSpec) -> torch.Tensor:
    """An input as it is declared, by torch's own generator."""
    import torch

    from coding_framework.reference_model.structures import with_structure

    dtype = getattr(torch, spec.dtype)
    if not dtype.is_floating_point:
        end = int(1 if spec.high is None else spec.high) + 1
        drawn = torch.randint(int(spec.low or 0), end, spec.shape)
    elif spec.low is None and spec.high is None:
        drawn = torch.randn(spec.shape)
    else:
        least = spec.low if spec.low is not None else min(0.0, (spec.high or 0.0) - 1.0)
        most = spec.high if spec.high is not None else least + 1.0
        drawn = least + torch.rand(spec.shape) * (most - least)
    return with_structure(drawn.to(dtype), spec.keeps, spec.high)


def _outputs(model: Any, inputs: list[Any]) -> list[Any]:
    from coding_framework.reference_model import tensors_of

    return [t.clone() for t in tensors_of(model(*(tensor.clone() for tensor in inputs)))]


def _equal(ones: list[Any], others: list[Any]) -> bool:
    """But for the rounding of sums whose order the library may choose anew."""
    return all(_close(a, b) for a, b in zip(ones, others, strict=True))


def _close(one: Any, other: Any) -> bool:
    import torch

    a, b = (torch.nan_to_num(t).to(torch.float64) for t in (one, other))
    if not one.is_floating_point() or not a.numel():
        return torch.equal(a, b)
    return bool(((a - b).abs() <= 8 * torch.finfo(one.dtype).eps * a.abs().max()).all())

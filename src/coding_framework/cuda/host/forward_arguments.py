"""With what a candidate's `forward` is called: tensor by tensor, or its parameters as lists.

The archive's functional modules hold the layers of a network in lists: a stack of linear layers is
`forward(x, weights, biases)` with `std::vector<torch::Tensor>`. Both forms carry the same tensors;
the number of parameters that `forward` declares tells which one its author wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

from coding_framework.cuda.host.wire import HostArg
from coding_framework.cuda.plan.launch_plan import TensorRef


def forward_arguments(
    tensors: Sequence[TensorRef],
    names: Sequence[str],
    scalars: Sequence[bool | int | float],
    takes: int | None,
) -> tuple[HostArg, ...]:
    """tensors: the inputs, then the parameters, whose `names` (as in `state_dict`) are of the last
    ones. takes: what `forward` declares, None where it is not known. Scalars are left out where the
    tensors alone fill it; a number that fits neither form gets all, and its author the error."""
    flat: tuple[HostArg, ...] = tuple(tensors)
    if takes == len(flat):
        return flat
    if takes is not None:
        lists = (*tensors[: len(tensors) - len(names)], *_lists(tensors, names))
        for arguments in (lists, (*lists, *scalars)):
            if takes == len(arguments) < len(flat):
                return arguments
    return (*flat, *scalars)


def _lists(tensors: Sequence[TensorRef], names: Sequence[str]) -> list[HostArg]:
    """Parameters of one kind together: network.0.weight with network.2.weight, then the biases."""
    kinds: dict[str, list[HostArg]] = {}
    for name, tensor in zip(names, tensors[len(tensors) - len(names) :], strict=True):
        kinds.setdefault(name.rpartition(".")[2], []).append(tensor)
    return [*kinds.values()]

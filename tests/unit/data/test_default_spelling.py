"""A second spelling of a module may have a constructor with defaults, as people write them."""

from __future__ import annotations

import inspect
from itertools import islice
from typing import Any

import pytest
import torch

from coding_framework.agents.prompts.contract import contract_of
from coding_framework.data.modules.pool import shown_drafts
from coding_framework.data.modules.records import ModuleTask
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.modules.writing import write_module

pytestmark = pytest.mark.unit


def named(module: ModuleTask) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(module.source, namespace)
    return namespace


def defaults_of(module: ModuleTask) -> dict[str, Any]:
    parameters = inspect.signature(named(module)["Model"]).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_a_tasks_own_spelling_has_no_defaults() -> None:
    for draft in islice((d for d in shown_drafts() if "conv" in d.family), 40):
        assert not defaults_of(write_module(draft))


@pytest.mark.parametrize("family", ["convolution_2d", "transposed_convolution_3d", "max_pooling"])
def test_a_second_spelling_is_the_same_function_and_the_prompt_tells_its_defaults(
    family: str,
) -> None:
    drafts = (d for d in shown_drafts() if d.family == family)
    found = ((d, m) for d in drafts if defaults_of(m := write_module(d, 1)))
    for draft, module in islice(found, 6):
        names, sizes = named(module), draft.sizes[2]
        defaults = defaults_of(module)
        assert not set(defaults) & dict(module.constructor).keys()
        assert module.init_args(draft.gpu_sizes[0]) == tuple(names["get_init_inputs"]())
        contract = contract_of(module_task(module))
        for name, value in defaults.items():
            assert f"{name} = {value!r}" in contract.constants
            assert f" {name}" not in contract.signature
        own = named(first := write_module(draft))["Model"](*first.init_args(sizes))
        anew = names["Model"](*module.init_args(sizes))
        weights = dict(zip(anew.state_dict(), own.state_dict().values(), strict=True))
        anew.load_state_dict(weights)
        x = torch.randn(module_task(module).cases[2].inputs[0].shape)
        torch.testing.assert_close(anew(x), own(x), rtol=0, atol=0)


def test_how_many_of_the_arguments_are_given_differs() -> None:
    kinds = set()
    for draft in islice((d for d in shown_drafts() if d.family == "convolution_2d"), 60):
        module = write_module(draft, 1)
        if defaults := defaults_of(module):
            kinds.add(len(defaults))
            assert "kernel_size" not in defaults
    assert len(kinds) > 2, "sometimes some of them are given"

"""A second spelling of a module may have a constructor with defaults, as people write them."""

from __future__ import annotations

import inspect
from itertools import islice
from typing import Any

import pytest
import torch

from coding_framework.agents.prompts.contract import contract_of
from coding_framework.data.modules.pool import shown_drafts
from coding_framework.data.modules.tasks import module_task
from coding_framework.types import Task

pytestmark = pytest.mark.unit


def named(task: Task) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(task.reference, namespace)
    return namespace


def defaults_of(task: Task) -> dict[str, Any]:
    parameters = inspect.signature(named(task)["Model"]).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_a_tasks_own_spelling_has_no_defaults() -> None:
    for draft in islice((d for d in shown_drafts() if "conv" in d.family), 40):
        assert not defaults_of(module_task(draft))


@pytest.mark.parametrize("family", ["convolution_2d", "transposed_convolution_3d", "max_pooling"])
def test_a_second_spelling_is_the_same_function_and_the_prompt_tells_its_defaults(
    family: str,
) -> None:
    drafts = (d for d in shown_drafts() if d.family == family)
    found = ((d, t) for d in drafts if defaults_of(t := module_task(d, 1)))
    for draft, task in islice(found, 6):
        names, case = named(task), task.cases[2]
        defaults = defaults_of(task)
        assert task.init_args == tuple(names["get_init_inputs"]())
        contract = contract_of(task)
        for name, value in defaults.items():
            assert f"{name} = {value!r}" in contract.constants
            assert f" {name}" not in contract.signature
        own = named(first := module_task(draft))["Model"](*first.cases[2].init_args)
        anew = names["Model"](*case.init_args)
        weights = dict(zip(anew.state_dict(), own.state_dict().values(), strict=True))
        anew.load_state_dict(weights)
        x = torch.randn(case.inputs[0].shape)
        torch.testing.assert_close(anew(x), own(x), rtol=0, atol=0)


def test_how_many_of_the_arguments_are_given_differs() -> None:
    kinds = set()
    for draft in islice((d for d in shown_drafts() if d.family == "convolution_2d"), 60):
        if defaults := defaults_of(module_task(draft, 1)):
            kinds.add(len(defaults))
            assert "kernel_size" not in defaults
    assert len(kinds) > 2, "sometimes some of them are given"

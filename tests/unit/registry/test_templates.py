"""Launch templates as data: canonical JSON, and what cannot be built."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from pydantic import ValidationError

from coding_framework.data.registry import find_task
from coding_framework.registry.templates import (
    LaunchTemplate,
    Relocation,
    TemplateError,
    patched,
)
from support.registered import template_of

pytestmark = pytest.mark.unit


@pytest.fixture
def template() -> LaunchTemplate:
    return template_of(find_task("relu"))


def _changed(template: LaunchTemplate, **fields: Any) -> LaunchTemplate:
    return LaunchTemplate.model_validate({**template.model_dump(), **fields})


def test_canonical_json_comes_back_and_keeps_its_digest(template: LaunchTemplate) -> None:
    data = template.canonical_json()
    again = LaunchTemplate.from_json(data)
    assert again == template
    assert again.sha256 == template.sha256
    assert b" " not in data


def test_json_in_another_form_is_refused(template: LaunchTemplate) -> None:
    spaced = json.dumps(json.loads(template.canonical_json())).encode()
    with pytest.raises(TemplateError, match="canonical"):
        LaunchTemplate.from_json(spaced)
    with pytest.raises(TemplateError, match="no launch template"):
        LaunchTemplate.from_json(b"{}")


def test_addresses_go_where_the_relocations_say() -> None:
    moved = (Relocation(at=0, region=1, offset=4), Relocation(at=16, region=0, offset=0))
    block = patched(b"\0" * 8 + b"constant" + b"\0" * 8, moved, [0x1000, 0x2000])
    assert block == struct.pack("<Q8sQ", 0x2004, b"constant", 0x1000)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("not possible", {"relocations": [{"at": 16, "region": 0, "offset": 0}]}),
        ("not possible", {"relocations": [{"at": 0, "region": 9, "offset": 0}]}),
        (
            "not possible",
            {"relocations": [{"at": 4, "region": 0, "offset": 0}] * 2},
        ),
    ],
)
def test_relocations_outside_of_the_block_cannot_be_built(
    template: LaunchTemplate, what: str, change: dict[str, Any]
) -> None:
    step = {**template.steps[0].model_dump(), **change}
    with pytest.raises(ValidationError, match=what):
        _changed(template, steps=[step])


def test_a_template_without_a_launch_or_with_too_many_cannot_be_built(
    template: LaunchTemplate,
) -> None:
    with pytest.raises(ValidationError, match="1 to 64 launches"):
        _changed(template, steps=[])
    with pytest.raises(ValidationError, match="1 to 64 launches"):
        _changed(template, steps=[template.steps[0].model_dump()] * 65)


def test_a_step_that_writes_to_an_argument_cannot_be_built(template: LaunchTemplate) -> None:
    fill = {"kind": "fill", "to": {"region": 0, "offset": 0}, "value": 0, "nbytes": 4}
    with pytest.raises(ValidationError, match="arguments are read-only"):
        _changed(template, steps=[fill, template.steps[0].model_dump()])


def test_a_fill_beyond_its_region_cannot_be_built(template: LaunchTemplate) -> None:
    size = template.allocations[0].nbytes
    fill = {"kind": "fill", "to": {"region": 1, "offset": 4}, "value": 0, "nbytes": size}
    with pytest.raises(ValidationError, match="are not there"):
        _changed(template, steps=[fill, template.steps[0].model_dump()])


def test_an_output_beyond_its_allocation_or_in_an_argument_cannot_be_built(
    template: LaunchTemplate,
) -> None:
    output = template.outputs[0].model_dump()
    with pytest.raises(ValidationError, match="are not there"):
        _changed(template, outputs=[{**output, "place": {"region": 1, "offset": 4}}])
    with pytest.raises(ValidationError, match="no allocation for outputs"):
        _changed(template, outputs=[{**output, "place": {"region": 0, "offset": 0}}])

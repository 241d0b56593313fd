"""The two ends of the channel, in Python and in C++, use the same numbers and the same order."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import coding_framework.cuda.host
from coding_framework.cuda.build.headers import INCLUDE_FOLDER
from coding_framework.cuda.host import wire
from coding_framework.cuda.host.properties import DeviceProperties
from coding_framework.cuda.host.wire import DTYPE_CODES, MAX_DIMS, Kind

pytestmark = pytest.mark.unit

HOST = Path(coding_framework.cuda.host.__file__).parent
HEADERS = INCLUDE_FOLDER / "coding_framework"


def enumerators(path: Path, start: str) -> list[str]:
    """The names between the braces after `start`."""
    body = path.read_text().split(start, 1)[1].split("{", 1)[1].split("}", 1)[0]
    body = re.sub(r"//[^\n]*", "", body)
    return [item.strip() for item in body.split(",") if item.strip()]


def test_message_kinds() -> None:
    theirs = dict(
        item.split(" = ") for item in enumerators(HOST / "channel.hpp", "enum class Kind")
    )
    ours = {k.name.replace("_", "").lower(): str(k.value) for k in Kind}
    assert {name.lower(): value for name, value in theirs.items()} == ours


def test_value_kinds() -> None:
    names = enumerators(HEADERS / "module.h", "enum cf_kind")
    assert [n.removeprefix("CF_") for n in names[:6]] == [
        name.removeprefix("_")
        for name in ("_NONE", "_TENSOR", "_INT", "_FLOAT", "_BOOL", "_LIST")
        if getattr(wire, name) == names.index(f"CF{name}")
    ]


def test_dtypes() -> None:
    theirs = dict(
        item.split(" = ")
        for item in enumerators(HEADERS / "scalar_type.h", "enum class ScalarType")
    )
    theirs.pop("Undefined")
    assert sorted(map(int, theirs.values())) == sorted(DTYPE_CODES.values())
    assert f"CF_MAX_DIMS = {MAX_DIMS}" in (HEADERS / "tensor.h").read_text()


def test_device_properties_are_in_the_order_of_the_runner() -> None:
    text = (HOST / "state.hpp").read_text().split("int64_t major", 1)[1].split(";")[0]
    theirs = ["major", *(re.sub(r"\s", "", n) for n in text.split(",")[1:])]
    assert theirs == [f.name for f in dataclasses.fields(DeviceProperties)][1:]

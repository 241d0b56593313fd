"""Native parts of ours: built once, sources beside each other; a failure names its reason."""

from __future__ import annotations

import ctypes
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coding_framework.cuda.native import build_once
from coding_framework.errors import InfrastructureError, MissingToolError

pytestmark = pytest.mark.unit

_SOURCES = {
    "both.h": "int half(int);\n",
    "half.c": '#include "both.h"\nint half(int x) { return x / PARTS; }\n',
    "add.c": '#include "both.h"\nint add(int x, int y) { return half(x) + half(y); }\n',
}
_ARGUMENTS = ("-O1", "-fPIC", "-shared", "-DPARTS=2", "add.c", "half.c", "-lm")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("CUDA_RL_CACHE", str(cache))
    return cache


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each run of the compiler `noted_gcc`, which is gcc."""
    said = tmp_path / "calls.txt"
    tool = tmp_path / "noted_gcc"
    tool.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || echo "$@" >> {said}\nexec {shutil.which("gcc")} "$@"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return said


def test_several_sources_are_compiled_each_and_linked(calls: Path) -> None:
    library = build_once("libtwo.so", _SOURCES, _ARGUMENTS, compiler="noted_gcc")
    assert ctypes.CDLL(str(library)).add(8, 6) == 7
    said = calls.read_text().splitlines()
    assert len(said) == 3
    assert sorted(x.split()[-1] for x in said[:2]) == ["add.c.o", "half.c.o"]
    assert said[2] == "-O1 -fPIC -shared -DPARTS=2 add.c.o half.c.o -lm -o libtwo.so"
    assert sorted(x.name for x in library.parent.iterdir()) == ["libtwo.so", "lock"]


def test_who_asks_at_the_same_time_gets_the_same_file(calls: Path) -> None:
    def build(_: int) -> Path:
        return build_once("libtwo.so", _SOURCES, _ARGUMENTS, compiler="noted_gcc")

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(build, range(4)))) == 1
    assert len(calls.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"half.c": "int half(int x) { return y; }\n"}, "half.c.*undeclared"),
        ({"half.c": "int add(int x, int y) { return x; }\n"}, "multiple definition"),
    ],
)
def test_a_failure_says_why_and_leaves_nothing(
    own_cache: Path, broken: dict[str, str], reason: str
) -> None:
    with pytest.raises(InfrastructureError, match=f"(?s)building libtwo.so with gcc.*{reason}"):
        build_once("libtwo.so", {**_SOURCES, **broken}, _ARGUMENTS, compiler="gcc")
    assert [x.name for x in own_cache.rglob("*") if x.is_file()] == ["lock"]


def test_a_killed_build_is_made_again(own_cache: Path) -> None:
    library = build_once("libtwo.so", _SOURCES, _ARGUMENTS, compiler="gcc")
    library.unlink()
    work = library.parent / ".build"
    work.mkdir()
    (work / "half.c.o").write_text("half of an object file")
    again = build_once("libtwo.so", _SOURCES, _ARGUMENTS, compiler="gcc")
    assert ctypes.CDLL(str(again)).add(8, 6) == 7
    assert not work.exists()


def test_a_missing_compiler_says_what_to_install() -> None:
    with pytest.raises(
        MissingToolError, match="no-such-compiler is not installed: run `make setup`"
    ):
        build_once("x", {"x.c": ""}, ("x.c",), compiler="no-such-compiler")

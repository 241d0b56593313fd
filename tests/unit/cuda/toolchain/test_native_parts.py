"""Native parts of ours: built once, sources beside each other; a failure names its reason."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coding_framework.cuda.toolchain.native_parts import build_once
from coding_framework.cuda.toolchain.slots import available_cores
from coding_framework.errors import InfrastructureError, MissingToolError
from support.waiting import until

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
    monkeypatch.setenv("LC_ALL", "C")
    return cache


@pytest.fixture
def gcc_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes `our_gcc`, gcc after a line of shell; gives the file with a line for each run of it."""

    def make(line: str) -> Path:
        said = tmp_path / "calls.txt"
        said.touch()
        tool = tmp_path / "our_gcc"
        tool.write_text(
            f'#!/bin/sh\nif [ "$1" != --version ]; then echo "$@" >> {said}; {line}; fi\n'
            f'exec {shutil.which("gcc")} "$@"\n'
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return said

    return make


def build(compiler: str = "our_gcc", timeout_s: float = 60.0, **changed: str) -> Path:
    sources = {**_SOURCES, **{f"{name}.c": text for name, text in changed.items()}}
    return build_once("libtwo.so", sources, _ARGUMENTS, compiler=compiler, timeout_s=timeout_s)


def test_several_sources_are_compiled_each_and_linked(gcc_after: Callable[[str], Path]) -> None:
    calls = gcc_after(":")
    library = build()
    assert ctypes.CDLL(str(library)).add(8, 6) == 7
    said = calls.read_text().splitlines()
    assert len(said) == 3
    assert sorted(x.split()[-1] for x in said[:2]) == ["add.c.o", "half.c.o"]
    assert said[2] == "-O1 -fPIC -shared -DPARTS=2 add.c.o half.c.o -lm -o libtwo.so"
    assert sorted(x.name for x in library.parent.iterdir()) == ["libtwo.so", "lock"]


def test_one_source_is_compiled_and_linked_at_once(gcc_after: Callable[[str], Path]) -> None:
    calls = gcc_after(":")
    program = build_once("run", {"run.c": "int main() {}\n"}, ("-O1", "run.c"), compiler="our_gcc")
    assert subprocess.run([program], check=False).returncode == 0
    assert calls.read_text() == "-O1 run.c -o run\n"


@pytest.mark.skipif(available_cores() < 2, reason="one core: one source at a time")
def test_sources_are_compiled_beside_each_other(gcc_after: Callable[[str], Path]) -> None:
    calls = gcc_after("until [ $(wc -l < $(dirname $0)/calls.txt) -ge 2 ]; do sleep 0.01; done")
    build()  # each compilation waits until the other has begun
    assert len(calls.read_text().splitlines()) == 3


def test_who_asks_at_the_same_time_gets_the_same_file(gcc_after: Callable[[str], Path]) -> None:
    calls = gcc_after(":")
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: build(), range(4)))) == 1
    assert len(calls.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("half", "reason"),
    [
        ("int half(int x) { return y; }\n", "half.c.*undeclared"),
        ("int add(int x, int y) { return x; }\n", "multiple definition"),
    ],
)
def test_a_failure_says_why_and_leaves_nothing(own_cache: Path, half: str, reason: str) -> None:
    with pytest.raises(InfrastructureError, match=f"(?s)building libtwo.so with gcc.*{reason}"):
        build("gcc", half=half)
    (folder,) = (own_cache / "native").iterdir()
    assert [x.name for x in folder.iterdir()] == ["lock"]


def test_a_build_that_takes_too_long_ends_with_all_that_it_started(
    own_cache: Path, gcc_after: Callable[[str], Path]
) -> None:
    calls = gcc_after("sleep 3600 & echo $! >> $(dirname $0)/pids.txt; wait")
    with pytest.raises(InfrastructureError, match=r"building libtwo.so with our_gcc.*too long"):
        build(timeout_s=0.5)
    pids = calls.with_name("pids.txt").read_text().split()
    assert pids
    until(lambda: not any(_runs(int(pid)) for pid in pids))
    (folder,) = (own_cache / "native").iterdir()
    assert [x.name for x in folder.iterdir()] == ["lock"]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_build_is_made_again_and_cleared_away() -> None:
    library = build("gcc")
    library.unlink()
    for name in (".build", ".build_k3x"):
        (library.parent / name).mkdir()
        (library.parent / name / "half.c.o").write_text("half of an object file")
    assert ctypes.CDLL(str(build("gcc"))).add(8, 6) == 7
    assert sorted(x.name for x in library.parent.iterdir()) == ["libtwo.so", "lock"]


def test_a_missing_compiler_says_what_to_install() -> None:
    with pytest.raises(
        MissingToolError, match="no-such-compiler is not installed: run `make setup`"
    ):
        build("no-such-compiler")

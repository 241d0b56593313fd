"""Configurations of `triton.autotune`: found in the text, and taken one by one."""

from __future__ import annotations

import pytest

from coding_framework.cuda.model_new.configurations import tuned_kernels, with_choice

ANSWER = """\
import triton  # größer
from triton import autotune

def options():
    return [triton.Config({"B": b}) for b in (16, 32)]

@triton.autotune(
    configs=[triton.Config({"B": 64}),  # è
             triton.Config({"B": 128})], key=["n"])
@triton.jit
def add(x, n, B): ...

@autotune(options(), key=[])
@triton.jit
def scale(x, B): ...

late = triton.autotune(configs=options(), key=[])(add.fn)
"""


class Config(dict):  # type: ignore[type-arg]
    pass


def _taken(answer: str) -> list[list[int]]:
    """The configurations that each call of autotune hears of."""
    heard: list[list[int]] = []

    def autotune(configs: list[Config], key: object) -> object:
        heard.append([config["B"] for config in configs])
        return lambda fn: fn

    def jit(fn: object) -> object:
        fn.fn = fn  # type: ignore[attr-defined]
        return fn

    class Triton:
        Config = staticmethod(Config)

    Triton.autotune, Triton.jit = staticmethod(autotune), staticmethod(jit)  # type: ignore[attr-defined]
    text = answer.replace("import triton  #", "#").replace("from triton import autotune", "")
    exec(text, {"triton": Triton, "autotune": autotune})
    return heard


def test_each_call_is_found_with_its_kernel() -> None:
    assert [tuned.kernel for tuned in tuned_kernels(ANSWER)] == ["add", "scale", "line 17"]
    assert tuned_kernels("def f(:") == ()
    assert tuned_kernels("x = autotune(*both)") == ()


@pytest.mark.parametrize("deep", ["-" * 100_000 + "1", "x" + ".a" * 100_000, "not " * 50_000 + "x"])
def test_a_text_that_no_parser_takes_has_none(deep: str) -> None:
    assert tuned_kernels(f"autotune([{deep}])") == ()


@pytest.mark.parametrize(
    "answer",
    [
        "autotune(Config({'B': b}) for b in (1, 2))",
        "autotune(configs=(Config({'B': b}) for b in (1, 2)), key=[])",
    ],
)
def test_configurations_may_come_one_by_one(answer: str) -> None:
    [tuned] = tuned_kernels(answer)
    heard: list[list[int]] = []

    def autotune(configs: object, key: object = None) -> None:
        heard.append([config["B"] for config in configs])  # type: ignore[attr-defined]

    exec(with_choice(answer, {tuned: 1}), {"autotune": autotune, "Config": Config})
    assert heard == [[2]]


def test_one_configuration_is_left_and_lines_stay() -> None:
    add, scale, late = tuned_kernels(ANSWER)
    assert _taken(ANSWER) == [[64, 128], [16, 32], [16, 32]]
    chosen = with_choice(ANSWER, {add: 1, scale: 0, late: 1})
    assert _taken(chosen) == [[128], [16], [32]]
    assert chosen.count("\n") == ANSWER.count("\n")
    assert with_choice(ANSWER, {}) == ANSWER


def test_beyond_the_last_there_is_none() -> None:
    add, *_ = tuned_kernels(ANSWER)
    with pytest.raises(IndexError):
        _taken(with_choice(ANSWER, {add: 2}))

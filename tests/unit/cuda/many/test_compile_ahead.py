"""Which waiting candidates are compiled while others are judged."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.compile_ahead import CompileAhead

pytestmark = pytest.mark.unit


def test_nothing_is_compiled_ahead_while_a_worker_is_free() -> None:
    line = CompileAhead(2)
    numbers = [line.join(code) for code in "abc"]
    with line.judging(numbers[0]):
        assert line.coming() == []


def test_the_next_few_are_told_once_and_in_their_order() -> None:
    line = CompileAhead(2)
    numbers = [line.join(code) for code in "abcdefg"]
    with line.judging(numbers[0]), line.judging(numbers[1]):
        assert line.coming() == ["c", "d"]
        assert line.coming() == []
        line.leave(numbers[3])  # cancelled
        assert line.coming() == ["e"]
    with line.judging(numbers[2]), line.judging(numbers[4]):
        assert line.coming() == ["f", "g"]


def test_who_left_is_forgotten() -> None:
    line = CompileAhead(1)
    numbers = [line.join(code) for code in "ab"]
    for number in numbers:
        line.leave(number)
        line.leave(number)
    with line.judging(line.join("c")):
        assert line.coming() == []

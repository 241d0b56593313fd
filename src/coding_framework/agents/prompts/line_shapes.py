"""The shapes that each line of a reference makes, which v4 prompts write behind the line.

    q, k = self.proj(x).view(b, t, 2, d).unbind(2)  # [8, 128, 512], [8, 128, 2, 256], [8, 128, 256]

The model runs on PyTorch's meta device: shapes, no memory and no arithmetic. Where it asks for a
value it ends there, and lines behind that have no shapes.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

_MOST_CALLS = 20_000
_MOST_SHAPES = 6
_SHAPES = re.compile(r"\[[\d, ]*\](, \[[\d, ]*\])*(, \.\.\.)?")
LineShapes = tuple[tuple[int, str], ...]
"""(number of a line of the reference from 1, `[8, 128], [8, 1]`), by line."""


class _EnoughError(Exception):
    """More calls than a prompt is worth."""


def line_shapes(model: Any, reference: str, inputs: Sequence[Any]) -> LineShapes:
    """What the lines of `reference` make where `model`, on the meta device, is given `inputs`.

    A statement's shapes are at its last line, in the order in which they are made, each as often
    as it changes.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    from coding_framework.reference_model import REFERENCE_FILE

    ends = _ends(reference)
    made: dict[int, list[str]] = defaultdict(list)
    left = _MOST_CALLS

    class Recorder(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal left
            result = func(*args, **(kwargs or {}))
            left -= 1
            if left < 0:
                raise _EnoughError
            found = [str(list(t.shape)) for t in _tensors(result)]
            if found and (line := _line(REFERENCE_FILE)) in ends:
                for shape in found:
                    if made[ends[line]][-1:] != [shape]:
                        made[ends[line]].append(shape)
            return result

    # whatever a user's own source asks for that shapes do not tell
    with suppress(Exception, SystemExit), torch.no_grad(), torch.device("meta"), Recorder():
        model(*inputs)
    return tuple(sorted((line, _told(shapes)) for line, shapes in made.items()))


def annotated(reference: str, shapes: LineShapes) -> str:
    """The reference with the shapes behind its lines."""
    lines = lines_of(reference)
    for number, told in shapes:
        lines[number - 1] = f"{lines[number - 1].rstrip()}  # {told}"
    return "\n".join(lines)


def lines_of(source: str) -> list[str]:
    """As Python counts them: a form feed or a separator within a text ends none."""
    return re.split(r"\r\n|\r|\n", source)


def checked(reference: str, shapes: Any) -> LineShapes:
    """Those of a sandbox's answer that are shapes of lines that may have some."""
    if not isinstance(shapes, list):
        return ()
    ends = set(_ends(reference).values())
    pairs = [pair for pair in shapes if isinstance(pair, list) and len(pair) == 2]
    return tuple(
        (line, told)
        for line, told in pairs
        if type(line) is int and line in ends and isinstance(told, str)
        if len(told) <= 300 and _SHAPES.fullmatch(told)
    )


def _ends(source: str) -> dict[int, int]:
    """Of each line of a statement that line where it ends, behind which a comment may stand."""
    found: dict[int, int] = {}
    first, text = None, "\n".join(lines_of(source))
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT):
                continue
            first = token.start[0] if first is None else first
            if token.type == tokenize.NEWLINE:
                found |= dict.fromkeys(range(first, token.start[0] + 1), token.start[0])
                first = None
    except (tokenize.TokenError, SyntaxError):
        return {}
    return found


def _tensors(result: Any) -> Iterator[Any]:
    import torch

    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for one in result:
            yield from _tensors(one)


def _line(file: str) -> int:
    """The line of the file that is running; 0: none."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


def _told(shapes: list[str]) -> str:
    """Of a loop's repetitions one."""
    for period in range(1, len(shapes) // 2 + 1):
        if shapes == (shapes[:period] * (len(shapes) // period + 1))[: len(shapes)]:
            shapes = shapes[:period]
            break
    shown = shapes[:_MOST_SHAPES]
    return ", ".join([*shown, "..."] if len(shapes) > len(shown) else shown)

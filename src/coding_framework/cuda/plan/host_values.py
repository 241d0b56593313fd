"""Whether a host finishes the answer: it sends the device numbers that it made itself of what it
read back.

A host may read a value and pass it on, or launch by it: the bytes are then those that it read,
small whole numbers, or addresses. A sum of partial sums is none of these.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from coding_framework.cuda.plan.launch_plan import Fill, Launch, LaunchPlan, ReadBack, Upload

FEW_BYTES = 8
"""Of as much a host may make a number: the ends of a range become a scale."""
_SMALL = 1 << 16
_HALF = 4

Words = Callable[[Launch], list[bytes]]
"""The parameters of a launch, one by one, those that are addresses left out."""


def finished_on_host(first: LaunchPlan, second: LaunchPlan, words: Words) -> str | None:
    """A sentence where the second plan of the same host code sends numbers that the first did not,
    and that are not among the bytes which the host read back."""
    read = b"".join(op.data for op in second.ops if isinstance(op, ReadBack))
    if len(read) <= FEW_BYTES:
        return None
    said = set(_sent(first, words))
    for word in _sent(second, words):
        if word not in said and not _steers(word, read):
            return (
                f"the host reads {len(read)} bytes back and sends the device numbers that it made "
                f"of them (the bytes {word.hex()}): it computes on the host"
            )
    return None


def _sent(plan: LaunchPlan, words: Words) -> Iterator[bytes]:
    for op in plan.ops:
        match op:
            case Launch():
                yield from words(op)
            case Upload():
                yield from (op.data[i : i + _HALF] for i in range(0, len(op.data), _HALF))
            case Fill() if op.value and op.nbytes <= FEW_BYTES:  # a number, byte by byte
                yield b"fill" + bytes([op.value]) + struct.pack("<Q", op.nbytes)


def _steers(word: bytes, read: bytes) -> bool:
    """Whether a word is passed on as it was read, or is a small whole number."""
    if word in read or _is_small(word) or any(form in read for form in _narrower(word)):
        return True
    parts = [word[i : i + _HALF] for i in range(0, len(word), _HALF)]
    return len(word) == 2 * _HALF and all(part in read or _is_small(part) for part in parts)


def _is_small(word: bytes) -> bool:
    return abs(int.from_bytes(word, "little", signed=True)) < _SMALL


def _narrower(word: bytes) -> Iterator[bytes]:
    """The same number in the narrower types that it may have been read in."""
    if len(word) == 2 * _HALF:
        (number,) = struct.unpack("<d", word)
        if (
            abs(number) < 3e38
            and struct.unpack("<f", single := struct.pack("<f", number))[0] == number
        ):
            yield single
    elif len(word) == _HALF:
        (number,) = struct.unpack("<f", word)
        if (
            abs(number) < 6e4
            and struct.unpack("<e", half := struct.pack("<e", number))[0] == number
        ):
            yield half
        if word[:2] == b"\0\0":
            yield word[2:]

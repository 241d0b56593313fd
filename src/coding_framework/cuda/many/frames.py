"""Length-prefixed JSON messages between the judge pool and its workers (both are ours)."""

from __future__ import annotations

import json
import struct
from typing import IO, Any

_HEADER = struct.Struct("<I")


def write_frame(stream: IO[bytes], message: dict[str, Any]) -> None:
    """One message. Raises BrokenPipeError where nobody reads."""
    payload = json.dumps(message).encode()
    stream.write(_HEADER.pack(len(payload)) + payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next message; None at the end of the stream, also in the middle of a message."""
    header = _read_exactly(stream, _HEADER.size)
    if header is None:
        return None
    payload = _read_exactly(stream, _HEADER.unpack(header)[0])
    if payload is None:
        return None
    message = json.loads(payload)
    return message if isinstance(message, dict) else None


def _read_exactly(stream: IO[bytes], count: int) -> bytes | None:
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)

"""Messages between a device and its process: JSON, with records of launch_plan.py and raw bytes.

No pickle: the process runs a candidate's device code, and what it says is data. Nothing but these
records is ever made of it.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import fields
from typing import Any

from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fault,
    Fill,
    Free,
    KernelInfo,
    Launch,
    LaunchReport,
    ModuleInfo,
    ReadBack,
    SymbolInfo,
    Upload,
)

_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Alloc, Copy, Fault, Fill, Free, KernelInfo, Launch, LaunchReport, ModuleInfo, ReadBack,
        SymbolInfo, Upload,
    )
}  # fmt: skip
_FIELDS = {kind: tuple(f.name for f in fields(kind)) for kind in _RECORDS.values()}
_MARK = ""
"""Key of an object that stands for a record, by its name, or for bytes, by their place."""
_HEAD = struct.Struct("<IQ")
MAX_HEADER = 256 << 20
_ALIGNMENT = 16
"""Of bytes: numbers of any dtype can be read where they arrived."""
_SMALL = 1 << 12
"""Bytes that are sent with the header at once."""

Bytes = bytes | bytearray | memoryview


def packed(message: Any) -> tuple[bytes, list[Bytes]]:
    """A message as JSON, and what follows it: the bytes that it holds."""
    parts: list[Bytes] = []
    at = 0

    def plain(value: Any) -> dict[str, Any]:
        nonlocal at
        names = _FIELDS.get(type(value))
        if names is not None:
            return {_MARK: type(value).__name__, **{name: getattr(value, name) for name in names}}
        if isinstance(value, memoryview):
            value = value.cast("B") if value.contiguous else value.tobytes()
        start, size = at, len(value)
        parts.append(value)
        if rest := -size % _ALIGNMENT:
            parts.append(bytes(rest))
        at += size + rest
        return {_MARK: [start, size]}

    return json.dumps(message, default=plain).encode(), parts


def unpacked(text: Bytes, data: Bytes) -> Any:
    """The inverse of `packed`: bytes are views of `data`, and sequences in records are tuples.
    Raises ValueError for a record that there is not."""
    view = memoryview(data)

    def made(found: dict[str, Any]) -> Any:
        if _MARK not in found:
            return found
        mark = found.pop(_MARK)
        if isinstance(mark, list):
            start, size = mark
            return view[start : start + size]
        if mark not in _RECORDS:
            raise ValueError(f"there is no record {mark!r}")
        for key, value in found.items():
            if isinstance(value, list | memoryview):
                found[key] = _kept(value)
        return _RECORDS[mark](**found)

    return json.loads(bytes(text).decode(), object_hook=made)


def _kept(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_kept, value))
    return bytes(value) if isinstance(value, memoryview) else value


def send(connection: socket.socket, message: Any) -> None:
    """Send one message."""
    text, parts = packed(message)
    size = sum(map(len, parts))
    head = _HEAD.pack(len(text), size) + text
    if size <= _SMALL:
        connection.sendall(b"".join((head, *parts)))
    else:
        for part in (head, *parts):
            connection.sendall(part)


def receive(connection: socket.socket, limit: int) -> Any:
    """One message with at most `limit` bytes beside its JSON. Raises EOFError where the other end
    is gone."""
    text_bytes, data_bytes = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if text_bytes > MAX_HEADER or data_bytes > limit:
        raise EOFError(f"a message of {text_bytes} and {data_bytes} bytes")
    text = _exactly(connection, text_bytes)
    return unpacked(text, _exactly(connection, data_bytes))


def _exactly(connection: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        n = connection.recv_into(view[got:])
        if n == 0:
            raise EOFError("the connection is closed")
        got += n
    return data

"""Messages between a device and its process: a JSON header and raw bytes.

No pickle: the process runs a candidate's device code, and what it says is data, never objects.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_HEAD = struct.Struct("<IQ")
MAX_HEADER = 64 << 20
ALIGNMENT = 16
"""Of the parts of a payload: numbers of any dtype can be read where they arrived."""
_SMALL = 1 << 12
"""Bytes that are sent with the header at once."""


def send(
    connection: socket.socket, header: dict[str, Any], payload: bytes | memoryview = b""
) -> None:
    """Send one message."""
    data = json.dumps(header).encode()
    message = _HEAD.pack(len(data), len(payload)) + data
    if len(payload) <= _SMALL:
        connection.sendall(message + payload)
    else:
        connection.sendall(message)
        connection.sendall(payload)


def receive(connection: socket.socket, limit: int) -> tuple[dict[str, Any], bytearray]:
    """One message of at most `limit` payload bytes. Raises EOFError where the other end is gone."""
    header_bytes, payload_bytes = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if header_bytes > MAX_HEADER or payload_bytes > limit:
        raise EOFError(f"a message of {header_bytes} and {payload_bytes} bytes")
    header = json.loads(bytes(_exactly(connection, header_bytes)))
    return header, _exactly(connection, payload_bytes)


def _exactly(connection: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        n = connection.recv_into(view[got:])
        if n == 0:
            raise EOFError("the connection is closed")
        got += n
    return data

"""Messages between the judge and a device process: a JSON head, then raw bytes.

Not pickle: a device process runs a candidate's device code, and what comes back from it is read as
data only.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import asdict
from typing import Any

from coding_framework.cuda.plan import (
    Fault,
    KernelInfo,
    Launch,
    LaunchReport,
    ModuleInfo,
    SymbolInfo,
)

_LENGTHS = struct.Struct("<IQ")
_MAX_HEAD_BYTES = 64 << 20


def send_message(channel: socket.socket, head: dict[str, Any], tail: bytes | memoryview) -> None:
    """One message. Raises OSError where the other side is gone."""
    text = json.dumps(head).encode()
    channel.sendall(_LENGTHS.pack(len(text), len(tail)) + text)
    if len(tail):
        channel.sendall(tail)


def receive_message(channel: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None where the other side is gone. Raises TimeoutError, ValueError."""
    lengths = _read(channel, _LENGTHS.size)
    if lengths is None:
        return None
    head_bytes, tail_bytes = _LENGTHS.unpack(lengths)
    if head_bytes > _MAX_HEAD_BYTES:
        raise ValueError(f"a message head of {head_bytes} bytes")
    text = _read(channel, head_bytes)
    tail = _read(channel, tail_bytes) if text is not None else None
    if text is None or tail is None:
        return None
    head = json.loads(bytes(text))
    if not isinstance(head, dict):
        raise ValueError("a message head that is no object")
    return head, bytes(tail)


def encode_launch(launch: Launch) -> dict[str, Any]:
    """Everything but `params`, which travel as the tail."""
    return {
        "kernel": launch.kernel,
        "grid": launch.grid,
        "block": launch.block,
        "shared_bytes": launch.shared_bytes,
        "stream": launch.stream,
        "cooperative": launch.cooperative,
    }


def decode_launch(head: dict[str, Any], params: bytes) -> Launch:
    gx, gy, gz = head["grid"]
    bx, by, bz = head["block"]
    return Launch(
        kernel=head["kernel"],
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        shared_bytes=head["shared_bytes"],
        params=params,
        stream=head["stream"],
        cooperative=head["cooperative"],
    )


def encode_report(report: LaunchReport) -> dict[str, Any]:
    return asdict(report)


def decode_report(head: dict[str, Any]) -> LaunchReport:
    return LaunchReport(
        kernel=str(head["kernel"]),
        counters={str(k): float(v) for k, v in head["counters"].items()},
        time_ms=None if head["time_ms"] is None else float(head["time_ms"]),
        faults=tuple(Fault(**fault) for fault in head["faults"]),
    )


def encode_module(module: ModuleInfo) -> dict[str, Any]:
    return asdict(module)


def decode_module(head: dict[str, Any]) -> ModuleInfo:
    kernels = {
        name: KernelInfo(
            **{
                **fields,
                "param_offsets": tuple(fields["param_offsets"]),
                "param_sizes": tuple(fields["param_sizes"]),
            }
        )
        for name, fields in head["kernels"].items()
    }
    symbols = {name: SymbolInfo(**fields) for name, fields in head["symbols"].items()}
    return ModuleInfo(kernels, symbols)


def _read(channel: socket.socket, count: int) -> bytearray | None:
    data = bytearray(count)
    view, done = memoryview(data), 0
    while done < count:
        n = channel.recv_into(view[done:])
        if n == 0:
            return None
        done += n
    return data

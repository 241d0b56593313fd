"""Registers of the kernels in a cubin, as ptxas wrote them there.

What nvcc prints is partly the candidate's (`.print` in assembly puts any line there), and registers
decide occupancy, with it the modelled time, and which launches are refused: so they are read from
the file that ptxas made. An ELF file of 64 bits, whose section `.nv.info` holds records: format,
attribute and, for format 4, a length and so many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SIZED = 4
_PARAMETERS = ".nv.constant0."
"""Section of a kernel's parameters."""
_REGISTER_COUNT = 0x2F
"""EIATTR_REGCOUNT: index of the function's symbol, registers a thread."""


def registers_in(cubin: bytes) -> dict[str, int]:
    """Registers a thread by kernel; {} for a file that is no such cubin."""
    try:
        return dict(_registers(cubin))
    except (struct.error, ArithmeticError, LookupError, ValueError):
        return {}


def _registers(cubin: bytes) -> Iterator[tuple[str, int]]:
    header = _HEADER.unpack_from(cubin)
    at, size, count, names_in = header[6], header[11], header[12], header[13]
    if header[0][:4] != b"\x7fELF" or size < _SECTION.size:
        raise ValueError("no ELF file of 64 bits")
    sections = [_SECTION.unpack_from(cubin, at + i * size) for i in range(count)]
    contents = {_text(_bytes(cubin, sections[names_in]), s[0]): _bytes(cubin, s) for s in sections}
    symbols, strings = contents[".symtab"], contents[".strtab"]
    for symbol, registers in _register_counts(contents[".nv.info"]):
        name = _text(strings, _SYMBOL.unpack_from(symbols, symbol * _SYMBOL.size)[0])
        if f"{_PARAMETERS}{name}" in contents:  # no function that kernels call
            yield name, registers


def _bytes(cubin: bytes, section: tuple[int, ...]) -> bytes:
    return cubin[section[4] : section[4] + section[5]]


def _register_counts(info: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + 4 <= len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute == _REGISTER_COUNT and length == 8:
            symbol, registers = struct.unpack_from("<II", info, at)
            yield symbol, registers
        at += length


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode("utf-8", "replace")

"""Every spelling of every arithmetic instruction, on edges and random bits, against the manual.

The reference (ptx_reference.py) shares nothing with the tables that the interpreter is made from.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from coding_framework.cuda.emulator.forms import spellings
from support.emulator_harness import Gpu
from support.ptx_numbers import NAN, decode, edges, is_float, width
from support.ptx_reference import Reference, reference

pytestmark = pytest.mark.unit
COUNT = 64
BATCH = 48
APPROXIMATE = frozenset({"ex2", "lg2", "sin", "cos", "tanh"})
"""Tested over their whole range in test_approximations.py."""


def storage(kind: str) -> tuple[str, str, type]:
    """Type of ld and st, prefix of the register, dtype of the array."""
    bits = 16 if kind == "pred" else max(width(kind), 16)
    return {16: ("b16", "%rs", np.uint16), 32: ("b32", "%r", np.uint32),
            64: ("b64", "%rd", np.uint64)}[bits]  # fmt: skip


def patterns(kinds: tuple[str, ...], rng: random.Random) -> list[tuple[int, ...]]:
    """COUNT rows of operands: pairs of edges, edges with random bits, random bits."""
    rows: list[tuple[int, ...]] = []
    pools = [edges(kind) for kind in kinds]
    pairs = list(product(pools[0], pools[1 % len(pools)]))
    rng.shuffle(pairs)
    for row in range(COUNT):
        values = []
        for place, kind in enumerate(kinds):
            if row % 4 < 2 and place < 2:
                value = pairs[row % len(pairs)][place]
            elif row % 4 < 3:
                value = rng.choice(pools[place])
            else:
                value = rng.getrandbits(width(kind))
            values.append(value)
        rows.append(tuple(values))
    return rows


def kernel(name: str, opcodes: list[str], ref: Reference) -> str:
    """A kernel that runs the instructions on its thread's operands, results one row each."""
    lines = ["ld.param.u64 %rd90, [out];", "ld.param.u64 %rd91, [in];", "mov.u32 %r91, %tid.x;",
             "mul.wide.u32 %rd92, %r91, 8;", "add.s64 %rd91, %rd91, %rd92;",
             "add.s64 %rd90, %rd90, %rd92;"]  # fmt: skip
    names = []
    for place, kind in enumerate(ref.operands):
        load, prefix, _ = storage(kind)
        lines.append(f"ld.global.{load} {prefix}{place}, [%rd91+{place * COUNT * 8}];")
        if kind == "pred":
            lines.append(f"setp.ne.u16 %p{place + 1}, %rs{place}, 0;")
        names.append(f"%p{place + 1}" if kind == "pred" else f"{prefix}{place}")
    store, prefix, _ = storage(ref.result)
    for row, opcode in enumerate(opcodes):
        target = f"{prefix}80"
        if ref.carry_in:  # the carry of the first operand with itself
            bits = width(ref.operands[0])
            lines.append(f"add.cc.u{bits} {names[0].rstrip('0')}70, {names[0]}, {names[0]};")
        if ref.result == "pred":
            lines += [f"{opcode} %p0, {', '.join(names)};", f"selp.b16 {target}, 1, 0, %p0;"]
        else:
            lines.append(f"{opcode} {target}, {', '.join(names)};")
        at = 2 * row * COUNT * 8
        lines.append(f"st.global.{store} [%rd90+{at}], {target};")
        if ref.carry_out:
            lines += ["addc.u32 %r81, 0, 0;", f"st.global.b32 [%rd90+{at + COUNT * 8}], %r81;"]
    return (
        f".visible .entry {name}(.param .u64 out, .param .u64 in)\n{{\n"
        ".reg .pred %p<9>;\n.reg .b16 %rs<99>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
        + "\n".join(lines)
        + "\nret;\n}\n"
    )


def batches() -> dict[tuple[object, ...], list[tuple[str, Reference]]]:
    """Instructions with equal operands and results, to run in one kernel."""
    found = defaultdict(list)
    for opcode in spellings():
        ref = reference(opcode)
        if ref is not None:
            shape = (ref.result, ref.operands, ref.carry_in, ref.carry_out)
            found[shape].append((opcode, ref))
    return {
        (*shape, start): group[start : start + BATCH]
        for shape, group in found.items()
        for start in range(0, len(group), BATCH)
    }


def mismatch(opcode: str, ref: Reference, row: tuple[int, ...], got: int, carry: int) -> str:
    """What is wrong with one result; "" where nothing is."""
    values = row
    if ref.carry_in:
        bits = width(ref.operands[0])
        values = (*row, row[0] * 2 >> bits)
    expected = ref.compute(*values)
    carried = expected >> 64 if ref.carry_out and expected != NAN else 0
    bits = width(ref.result)
    if expected == NAN:
        base = "f32" if ref.result == "tf32" else ref.result
        right = decode(base, got & ((1 << bits) - 1)).nan
    elif ref.result.endswith("x2") and is_float(ref.result.removesuffix("x2")):
        right = _packed_equal(ref.result, got, expected)
    else:
        wanted = expected & ((1 << bits) - 1)
        if bits == 8:  # the register is wider: extended by the type
            wanted = wanted | 0xFF00 if ref.result[0] == "s" and wanted >> 7 else wanted
            bits = 16
        right = got & ((1 << bits) - 1) == wanted
    if right and carried == carry:
        return ""
    shown = [f"{v:#x}" for v in row]
    return f"{opcode} {shown}: {got:#x} carry {carry}, expected {expected:#x} carry {carried}"


def _packed_equal(kind: str, got: int, expected: int) -> bool:
    base, bits = kind.removesuffix("x2"), width(kind) // 2
    mask = (1 << bits) - 1
    return all(
        a == b or (decode(base, a).nan and decode(base, b).nan)
        for a, b in ((got & mask, expected & mask), (got >> bits & mask, expected >> bits & mask))
    )


def test_every_spelling_with_a_form_is_described_by_the_reference() -> None:
    heads = {s.split(".")[0] for s in spellings() if reference(s) is None}
    assert heads == APPROXIMATE | {"div", "rcp", "sqrt", "rsqrt"}
    plain = [s for s in spellings() if reference(s) is None and s.split(".")[0] not in APPROXIMATE]
    assert {m for s in plain for m in s.split(".")} & {"approx", "full"} == {"approx", "full"}
    assert all({"approx", "full"} & set(s.split(".")) or s.startswith("rsqrt") for s in plain)


def test_every_arithmetic_instruction_computes_what_the_manual_says() -> None:
    groups = batches()
    text = ".version 9.0\n.target sm_100\n.address_size 64\n" + "".join(
        kernel(f"k{number}", [opcode for opcode, _ in group], group[0][1])
        for number, group in enumerate(groups.values())
    )
    gpu, rng = Gpu(text), random.Random(0)
    wrong: dict[str, list[str]] = defaultdict(list)
    for number, group in enumerate(groups.values()):
        ref = group[0][1]
        rows = patterns(ref.operands, rng)
        given = np.zeros((len(ref.operands), COUNT), np.uint64)
        for place in range(len(ref.operands)):
            given[place] = [row[place] for row in rows]
        out = gpu.put(np.zeros((2 * len(group), COUNT), np.uint64))
        gpu.run(f"k{number}", 1, COUNT, out, gpu.put(given))
        got = gpu.get(out, (len(group), 2, COUNT), np.uint64).tolist()
        for (opcode, own), (results, carries) in zip(group, got, strict=True):
            for row, result, carry in zip(rows, results, carries, strict=True):
                if text := mismatch(opcode, own, row, result, carry):
                    wrong[opcode].append(text)
    assert [texts[0] for texts in wrong.values()] == []

"""Basic blocks of a function and where diverged threads meet again (immediate post-dominators).

Dominators by Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), on the
reversed graph: near linear on what nvcc emits, so hostile code with 100,000 blocks ends too.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.cuda.emulator.program import Function, Instruction

EXIT = -1
"""The virtual block behind `ret` and `exit`."""


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions [first, last). `join`: the block where its branch's sides meet, or EXIT.

    A branch to a block that only returns counts as the return itself, as ptxas makes of it: its
    threads end there and then and do not wait for the others.
    """

    first: int
    last: int
    successors: tuple[int, ...]
    join: int
    reaches_barrier: bool


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """Blocks in program order; `block_at`: instruction index of a block's start -> its number."""

    blocks: tuple[Block, ...]
    block_at: dict[int, int]

    @property
    def joins(self) -> set[int]:
        """Blocks where some branch's sides meet."""
        return {b.join for b in self.blocks if len(b.successors) > 1}


def analyse(function: Function) -> ControlFlow:
    """The control flow of `function`; falling off its end counts as `ret`."""
    code = function.instructions
    starts = {0}
    for index, instruction in enumerate(code):
        starts.update(instruction.targets)
        if _ends_block(instruction):
            starts.add(index + 1)
    firsts = sorted(s for s in starts if s < max(len(code), 1))
    block_at = {first: number for number, first in enumerate(firsts)}
    bounds = list(zip(firsts, [*firsts[1:], len(code)], strict=True))
    successors = [_successors(code, n, last, block_at) for n, (_, last) in enumerate(bounds)]
    joins = _post_dominators(successors)
    barriers = _reaching(
        successors, [any(map(_is_barrier, code[first:last])) for first, last in bounds]
    )
    blocks = tuple(
        Block(first, last, successors[n], joins[n], barriers[n])
        for n, (first, last) in enumerate(bounds)
    )
    return ControlFlow(blocks, block_at)


def _ends_block(instruction: Instruction) -> bool:
    head = instruction.parts[0]
    return head in ("bra", "brx", "ret", "exit")


def only_returns(code: list[Instruction], index: int) -> bool:
    """Whether the instruction at `index` is an unguarded ret or exit (or the end)."""
    if index >= len(code):
        return True
    return code[index].opcode in ("ret", "ret.uni", "exit") and code[index].guard is None


def _is_barrier(instruction: Instruction) -> bool:
    parts = instruction.parts
    return parts[0] in ("bar", "barrier", "call") and "warp" not in parts


def _reaching(successors: list[tuple[int, ...]], marked: list[bool]) -> list[bool]:
    """For each block, whether a marked one can follow it (or is it)."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for block, following in enumerate(successors):
        for other in following:
            if other != EXIT:
                predecessors[other].append(block)
    found = list(marked)
    work = [block for block, there in enumerate(marked) if there]
    while work:
        for other in predecessors[work.pop()]:
            if not found[other]:
                found[other] = True
                work.append(other)
    return found


def _successors(
    code: list[Instruction], number: int, last: int, block_at: dict[int, int]
) -> tuple[int, ...]:
    following = block_at.get(last, EXIT)
    if last == 0 or not _ends_block(code[last - 1]):
        return (following,)
    instruction = code[last - 1]
    head = instruction.parts[0]
    targets = (
        [EXIT]
        if head in ("ret", "exit")
        else [EXIT if only_returns(code, t) else block_at[t] for t in instruction.targets]
    )
    if instruction.guard is not None:
        targets.append(EXIT if only_returns(code, last) else following)
    return tuple(dict.fromkeys(targets)) or (EXIT,)


def _post_dominators(successors: list[tuple[int, ...]]) -> list[int]:
    """Immediate post-dominator of each block; EXIT where only the exit post-dominates."""
    count = len(successors)
    predecessors: list[list[int]] = [[] for _ in range(count + 1)]
    for block, following in enumerate(successors):
        for other in following:
            predecessors[other].append(block)  # EXIT is -1: the last list
    order = _postorder(predecessors, count)
    rank = [-1] * (count + 1)
    for position, block in enumerate(order):
        rank[block] = position
    immediate = [-2] * (count + 1)
    immediate[count] = count
    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            if block == count:
                continue
            new = -2
            for other in successors[block]:
                node = other if other >= 0 else count
                if immediate[node] == -2:
                    continue
                new = node if new == -2 else _meet(new, node, immediate, rank)
            if new != immediate[block]:
                immediate[block] = new
                changed = True
    return [EXIT if i in (-2, count) else i for i in immediate[:count]]


def _postorder(predecessors: list[list[int]], root: int) -> list[int]:
    order: list[int] = []
    seen = [False] * len(predecessors)
    seen[root] = True
    stack = [(root, 0)]
    while stack:
        node, position = stack.pop()
        if position < len(predecessors[node]):
            stack.append((node, position + 1))
            other = predecessors[node][position]
            if not seen[other]:
                seen[other] = True
                stack.append((other, 0))
        else:
            order.append(node)
    return order


def _meet(a: int, b: int, immediate: list[int], rank: list[int]) -> int:
    while a != b:
        while rank[a] < rank[b]:
            a = immediate[a]
        while rank[b] < rank[a]:
            b = immediate[b]
    return a

"""Who walks over the elements of a row: a thread, a warp, a block, or the threads of a column.

A worker says which row is its own, which elements each of its threads takes, how what they found
becomes one value, and how many of them are launched.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.data.lower.text import Body

THREADS = 256
WARP = 32
GLOBAL_THREAD = "blockIdx.x * blockDim.x + threadIdx.x"


@dataclass(frozen=True, slots=True)
class Worker:
    """A thread by itself, and what others have otherwise."""

    threads: int = THREADS
    """Of a block."""
    alone: bool = True
    """Whether it is one thread, which has nothing to join."""
    shared_bytes: int = 0
    """Of the memory that its launch gives to a block."""

    @property
    def index(self) -> str:
        """The number of its row."""
        return GLOBAL_THREAD

    @property
    def start(self) -> str:
        """The first element of a thread."""
        return "0"

    @property
    def step(self) -> str:
        """From one element of a thread to the next."""
        return "1"

    def leaves(self, total: str) -> str:
        """When a thread is not the one that writes what the row gives; "": it always is."""
        return ""

    def opening(self, total: str) -> list[str]:
        """The first lines of its kernel: the number of its row, `total` being that of all rows."""
        return [f"const int i = {self.index};", f"if (i >= {total}) return;"]

    def end(self, body: Body, count: str, total: str) -> str:
        """Where its walk ends, `count` being the elements of a row."""
        return count

    def launch(self, total: str) -> str:
        """What stands between <<< and >>>."""
        return f"blocks({total}), {self.threads}"

    def prepare(self, body: Body, kind: str) -> None:
        """Declare what it joins values of that C type in."""

    def join(self, body: Body, name: str, kind: str, join: str, suffix: str) -> None:
        """Make the variable of each thread what all of them have together."""


@dataclass(frozen=True, slots=True)
class Warp(Worker):
    """32 threads, which join what they found by shuffles."""

    alone: bool = False

    @property
    def index(self) -> str:
        return f"blockIdx.x * {self.threads // WARP} + threadIdx.x / {WARP}"

    @property
    def start(self) -> str:
        return f"threadIdx.x % {WARP}"

    @property
    def step(self) -> str:
        return str(WARP)

    def leaves(self, total: str) -> str:
        return f"threadIdx.x % {WARP} != 0"

    def launch(self, total: str) -> str:
        each = self.threads // WARP
        return f"std::max<int64_t>(({total} + {each - 1}) / {each}, 1), {self.threads}"

    def join(self, body: Body, name: str, kind: str, join: str, suffix: str) -> None:
        with body.block(f"for (int d = {WARP // 2}; d > 0; d /= 2)"):
            other = body.let(kind, "other", f"__shfl_xor_sync(0xffffffff, {name}, d)")
            body.line(f"{name} = {join.format(a=name, b=other, f=suffix)};")


@dataclass(frozen=True, slots=True)
class Block(Worker):
    """All threads of a block, which join what they found in shared memory: by halves, or where
    `shuffles`, each warp by itself before."""

    alone: bool = False
    shuffles: bool = False

    @property
    def index(self) -> str:
        return "blockIdx.x"

    @property
    def start(self) -> str:
        return "threadIdx.x"

    @property
    def step(self) -> str:
        return str(self.threads)

    def leaves(self, total: str) -> str:
        return "threadIdx.x != 0"

    def launch(self, total: str) -> str:
        return f"std::max<int64_t>({total}, 1), {self.threads}"

    def prepare(self, body: Body, kind: str) -> None:
        count = self.threads // WARP if self.shuffles else self.threads
        body.line(f"__shared__ {kind} parts[{count}];")

    def join(self, body: Body, name: str, kind: str, join: str, suffix: str) -> None:
        if self.shuffles:
            self._by_warps(body, name, kind, join, suffix)
        else:
            self._by_halves(body, name, join, suffix)
        body.line("__syncthreads();")

    def _by_halves(self, body: Body, name: str, join: str, suffix: str) -> None:
        here = "parts[threadIdx.x]"
        joined = join.format(a=here, b="parts[threadIdx.x + half]", f=suffix)
        body.line(f"{here} = {name};")
        body.line("__syncthreads();")
        with body.block(f"for (int half = {self.threads // 2}; half > 0; half /= 2)"):
            body.line(f"if (threadIdx.x < half) {here} = {joined};")
            body.line("__syncthreads();")
        body.line(f"{name} = parts[0];")

    def _by_warps(self, body: Body, name: str, kind: str, join: str, suffix: str) -> None:
        Warp().join(body, name, kind, join, suffix)
        body.line(f"if (threadIdx.x % {WARP} == 0) parts[threadIdx.x / {WARP}] = {name};")
        body.line("__syncthreads();")
        body.line(f"{name} = parts[0];")
        joined = join.format(a=name, b="parts[k]", f=suffix)
        body.line(f"for (int k = 1; k < {self.threads // WARP}; k++) {name} = {joined};")


@dataclass(frozen=True, slots=True)
class Columns(Worker):
    """Sixteen threads of a block of 32 columns, where neighbouring rows are neighbours in memory:
    each warp reads 32 neighbours together."""

    alone: bool = False
    each: int = 16

    @property
    def index(self) -> str:
        return f"blockIdx.x * {WARP} + threadIdx.x"

    @property
    def start(self) -> str:
        return "threadIdx.y"

    @property
    def step(self) -> str:
        return str(self.each)

    def leaves(self, total: str) -> str:
        return f"threadIdx.y != 0 || i >= {total}"

    def opening(self, total: str) -> list[str]:
        return [f"const int i = {self.index};"]

    def end(self, body: Body, count: str, total: str) -> str:
        return body.let("int", "end", f"i < {total} ? {count} : 0")

    def launch(self, total: str) -> str:
        blocks = f"std::max<int64_t>(({total} + {WARP - 1}) / {WARP}, 1)"
        return f"{blocks}, dim3({WARP}, {self.each})"

    def prepare(self, body: Body, kind: str) -> None:
        body.line(f"__shared__ {kind} parts[{self.each}][{WARP}];")

    def join(self, body: Body, name: str, kind: str, join: str, suffix: str) -> None:
        body.line(f"parts[threadIdx.y][threadIdx.x] = {name};")
        body.line("__syncthreads();")
        body.line(f"{name} = parts[0][threadIdx.x];")
        joined = join.format(a=name, b="parts[k][threadIdx.x]", f=suffix)
        body.line(f"for (int k = 1; k < {self.each}; k++) {name} = {joined};")
        body.line("__syncthreads();")


THREAD, WARPS, BLOCK = Worker(), Warp(), Block()

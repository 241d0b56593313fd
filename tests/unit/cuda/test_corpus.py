"""The corpus is large enough, says where it comes from, and covers the lists of known cheats."""

from __future__ import annotations

import pytest

from coding_framework.cuda.expected.reference import expect, task_digest
from corpus.collection import attacks, honest_kernels

pytestmark = pytest.mark.unit

CHEATS = (
    "uninitialised allocation", "zeroing or rewriting inputs", "side stream", "lazy", "timers",
    "frame walks", "fallback to torch", "wrapping torch", "cuBLAS", "cuDNN", "decoy kernels",
    "prefix sum rescaled", "one tile", "lower precision", "answer hardly varies",
    "keyed on pointer", "object id", "keyed on content", "keyed on shape", "keyed on phase",
    "weights cached",
    "batching several calls", "RNG regeneration", "result channel", "scanning memory",
    "heap or stack theft", "GOT patches", "ptrace", "/proc/self/mem", "slowing the warm-up",
    "oversized shared-memory reads", "CUDA graph replay", "constructors that exit 0",
    "computing on the host",
)  # fmt: skip
"""What must never pass; left out: what only a GPU can show (persisting L2)."""
HARMS = (
    "/etc/passwd", "/dev/zero", "/dev/stdin", ".incbin", "macro bombs", "template bombs",
    "inlining bombs", "constexpr bombs", "error floods", "giant initialised arrays",
    "options smuggled", "NUL and non-UTF-8", "fork floods", "thread floods", "memory floods",
    "fd floods", "disk floods", "inode floods", "output floods", "ignored SIGTERM", "double fork",
    "setsid", "kill(-1)", "network", "/proc", "abstract sockets", "LD_PRELOAD", "cache poisoning",
    "symlinks, FIFOs and devices", "infinite kernels", "grid-sync deadlocks", "illegal addresses",
    "traps", "VRAM hogs", "pinned-memory hogs", "printf floods",
)  # fmt: skip
"""What must not hurt us."""
FEATURES = (
    "float4", "shuffle", "shared", "atomics", "streams", "constant_memory", "template", "half",
    "several_kernels", "temporaries",
)  # fmt: skip


def test_there_are_enough_cases_with_names_of_their_own_a_third_of_them_unseen() -> None:
    for cases, least in ((attacks(), 150), (honest_kernels(200), 300)):
        assert len({case.name for case in cases}) == len({case.key for case in cases}) == len(cases)
        assert len(cases) >= least
        assert 3 * sum(case.origin == "unseen" for case in cases) >= len(cases)


@pytest.mark.parametrize("line", [*CHEATS, *HARMS])
def test_every_line_of_the_two_lists_is_attacked(line: str) -> None:
    assert any(line in case.group for case in attacks()), line


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_has_an_honest_kernel(feature: str) -> None:
    assert any(feature in case.group.split() for case in honest_kernels(0)), feature


def test_no_attack_may_be_correct() -> None:
    assert all("correct" not in case.statuses and case.statuses for case in attacks())


def test_every_task_has_what_must_come_out() -> None:
    tasks = {case.task.name: case.task for case in (*attacks(), *honest_kernels(0))}
    for task in tasks.values():
        for case in task.cases:
            outputs = expect(task, task_digest(task), case, b"secret", 0).outputs
            floating = [o for o in outputs if o.native.is_floating_point()]
            assert all(o.tolerance is not None for o in floating), task.name

"""Seeded faults, each in a kernel that is honest too: the argument `k` is 0 or 1.

With k = 0 a kernel must end without any fault, with k = 1 with the one that it was given. The truth
is by construction: each fault is one known access, barrier or loop. Kernels take
`(const T* in, T* out, T* tmp, int n, int k)`: `in` and `out` hold n elements each, as many as there
are threads; nothing has written `tmp`.
"""

# ruff: noqa: E501 - templates of C read better unbroken
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status
from support.emulator_harness import Gpu

SIZES = {
    "char": 1,
    "short": 2,
    "int": 4,
    "unsigned": 4,
    "float": 4,
    "double": 8,
    "long long": 8,
    "unsigned long long": 8,
    "float2": 8,
    "float4": 16,
    "int4": 16,
}
SCALARS = ("char", "short", "int", "float", "double", "long long")
VECTORS = ("float2", "float4", "int4")


@dataclass(frozen=True, slots=True)
class Seeded:
    """One kernel. `found`: a status with words of its reason, or the kind of a check."""

    name: str
    family: str
    element: str
    body: str
    found: str
    """"illegal global read", "misaligned shared write", "timeout", ..., or a kind of CHECK_KINDS."""
    count: int | None = None
    """Exact number of a check's findings, where it follows from the kernel alone."""
    threads: int = 64
    before: str = ""
    """What stands before the kernel."""

    def source(self) -> str:
        return (
            f'{self.before}\nextern "C" __global__ void {self.name}(const {self.element}* in, '
            f"{self.element}* out, {self.element}* tmp, int n, int k) {{\n"
            f"  int i = threadIdx.x;\n  {self.body}\n}}\n"
        )


def _word(element: str) -> str:
    return element.replace(" ", "_")


def _bounds() -> Iterator[Seeded]:
    ways = {
        "read_past": ("out[i] = in[i + k];", "illegal global read"),
        "read_before": ("out[i] = in[i - k];", "illegal global read"),
        "read_far": ("out[i] = in[i + k * 100000000LL];", "illegal global read"),
        "write_past": ("out[i + k] = in[i];", "illegal global write"),
        "write_before": ("out[i - k] = in[i];", "illegal global write"),
        "write_input_past": ("((decltype(out))in)[i + k] = in[i];", "illegal global write"),
    }
    for element in (*SCALARS, *VECTORS):
        for way, (body, found) in ways.items():
            yield Seeded(f"global_{way}_{_word(element)}", "bounds", element, body, found)
    for element in ("int", "unsigned", "float", "double", "unsigned long long"):
        for operation in ("Add", "Exch"):
            if (operation, element) != ("Exch", "double"):
                body = f"atomic{operation}(&out[i + k], in[i]);"
                yield Seeded(
                    f"global_atomic{operation}_{_word(element)}",
                    "bounds",
                    element,
                    body,
                    "illegal global atomic",
                )
    body = "out[i] = __ldg(&in[i + k]);"
    yield Seeded("global_ldg", "bounds", "float", body, "illegal global read")
    body = "if (i == n - 1) out[i + k] = in[0]; else out[i] = in[i];"
    yield Seeded("global_one_thread", "bounds", "float", body, "illegal global write")
    body = "for (int j = i; j < n + k; j += 32) out[j] = in[j];"
    yield Seeded("global_loop_end", "bounds", "float", body, "illegal global read", threads=32)
    body = "unsigned j = i - k; out[j % (2u * n)] = in[i];"
    yield Seeded("global_unsigned_wrap", "bounds", "float", body, "illegal global write")
    body = "const float* p = (const float*)((unsigned long long)in * (1 - k)); out[i] = p[i];"
    yield Seeded("null_read", "bounds", "float", body, "illegal")
    body = "float* p = (float*)((unsigned long long)out * (1 - k)); p[i] = in[i];"
    yield Seeded("null_write", "bounds", "float", body, "illegal")
    body = "const float* p = (const float*)((unsigned long long)in & (k ? 0xffffffffull : ~0ull));"
    yield Seeded("truncated_pointer", "bounds", "float", body + " out[i] = p[i];", "illegal")


def _shared_bounds() -> Iterator[Seeded]:
    for element in (*SCALARS, "float4"):
        head = f"__shared__ {element} s[64]; "
        plain = "s[i] = in[i]; __syncthreads(); "
        ways = {
            "read_past": (plain + "out[i] = s[i + k];", "illegal shared read"),
            "read_before": (plain + "out[i] = s[i - k];", "illegal shared read"),
            "write_past": (
                "s[i + k] = in[i]; __syncthreads(); out[i] = s[i | k];",
                "illegal shared write",
            ),
            "write_before": (
                "s[i - k] = in[i]; __syncthreads(); out[i] = s[i];",
                "illegal shared write",
            ),
        }
        for way, (body, found) in ways.items():
            name = f"shared_{way}_{_word(element)}"
            yield Seeded(name, "bounds", element, head + body, found)
    head = "__shared__ int s[64]; s[i] = in[i]; __syncthreads(); "
    yield Seeded(
        "shared_atomic_past",
        "bounds",
        "int",
        head + "atomicAdd(&s[i + k], 1);",
        "illegal shared atomic",
    )
    yield Seeded(
        "shared_by_generic_pointer",
        "bounds",
        "int",
        head + "int* p = i < 0 ? out : s; out[i] = p[i + k];",
        "illegal",
    )


def _other_spaces() -> Iterator[Seeded]:
    for element in ("char", "int", "float", "double"):
        word = _word(element)
        body = f"{element} a[8]; for (int j = 0; j < 8; j++) a[j] = in[(i + j) % n]; "
        yield Seeded(
            f"local_read_{word}",
            "bounds",
            element,
            body + "out[i] = a[(in[i] != in[i]) + (i & 7) + k * 100000];",
            "illegal local read",
        )
        yield Seeded(
            f"local_write_{word}",
            "bounds",
            element,
            body + "a[(i & 7) + k * 100000] = 1; out[i] = a[(i + 1) & 7];",
            "illegal local write",
        )
        yield Seeded(
            f"constant_read_{word}",
            "bounds",
            element,
            f"out[i] = constant_{word}[(i & 3) + 4 * k];",
            "illegal",
            before=f"__constant__ {element} constant_{word}[4] = {{1, 2, 3, 4}};",
        )
    yield Seeded(
        "constant_write",
        "bounds",
        "int",
        "int* p = k ? (int*)written_constant : out; if (i < 4) p[i] = in[0];",
        "illegal",
        before="__constant__ int written_constant[4] = {1, 2, 3, 4};",
    )
    yield Seeded(
        "device_variable_past",
        "bounds",
        "int",
        "if (i < 4) variable[i + 4 * k] = in[i]; out[i] = in[i];",
        "illegal global write",
        before="__device__ int variable[4];",
    )


def _misaligned() -> Iterator[Seeded]:
    for element in ("short", "int", "double", "float2", "float4"):
        word = _word(element)
        for by in {1, SIZES[element] // 2}:
            at = f"({element}*)((char*){{}} + k * {by})"
            yield Seeded(
                f"misaligned_read_{by}_{word}",
                "misaligned",
                element,
                f"if (i == 0) out[0] = *{at.format('in')};",
                "misaligned global read",
            )
            yield Seeded(
                f"misaligned_write_{by}_{word}",
                "misaligned",
                element,
                f"if (i == 0) *{at.format('out')} = in[0];",
                "misaligned global write",
            )
            head = f"__shared__ {element} s[64]; s[i] = in[i]; __syncthreads(); "
            yield Seeded(
                f"misaligned_shared_{by}_{word}",
                "misaligned",
                element,
                head + f"if (i == 0) out[0] = *{at.format('s')};",
                "misaligned shared read",
            )
    yield Seeded(
        "misaligned_atomic",
        "misaligned",
        "int",
        "if (i == 0) atomicAdd((int*)((char*)out + 2 * k), 1);",
        "misaligned global atomic",
    )


def _uninitialised() -> Iterator[Seeded]:
    for element in SCALARS:
        word = _word(element)
        yield Seeded(
            f"uninitialised_global_{word}",
            "uninitialised",
            element,
            "if (k == 0) tmp[i] = in[i]; out[i] = tmp[i];",
            "uninitialized_read",
            64,
        )
        yield Seeded(
            f"uninitialised_tail_{word}",
            "uninitialised",
            element,
            "if (i < n - 3 * k) tmp[i] = in[i]; __syncthreads(); out[i] = tmp[n - 1 - i];",
            "uninitialized_read",
            3,
        )
        head = f"__shared__ {element} s[64]; "
        yield Seeded(
            f"uninitialised_shared_{word}",
            "uninitialised",
            element,
            head + "if (k == 0) s[i] = in[i]; __syncthreads(); out[i] = s[i];",
            "uninitialized_shared_read",
            64,
        )
        yield Seeded(
            f"uninitialised_shared_tail_{word}",
            "uninitialised",
            element,
            head + "if (i < n - 5 * k) s[i] = in[i]; __syncthreads(); out[i] = s[63 - i];",
            "uninitialized_shared_read",
            5,
        )
    yield Seeded(
        "uninitialised_accumulator",
        "uninitialised",
        "float",
        "if (k == 0 && i == 0) tmp[0] = 0; __syncthreads(); atomicAdd(&tmp[0], in[i]);",
        "uninitialized_read",
    )
    yield Seeded(
        "uninitialised_shared_sum",
        "uninitialised",
        "int",
        "__shared__ int s; if (k == 0 && i == 0) s = 0; __syncthreads(); "
        "atomicAdd(&s, in[i]); __syncthreads(); out[i] = s;",
        "uninitialized_shared_read",
    )
    yield Seeded(
        "uninitialised_vector",
        "uninitialised",
        "float4",
        "if (k == 0) tmp[i] = in[i]; out[i] = tmp[i];",
        "uninitialized_read",
        64,
    )


_SYNC = "if (k == 0) __syncthreads();"


def _races() -> Iterator[Seeded]:
    for element in ("char", "int", "float", "double"):
        word, head = _word(element), f"__shared__ {element} s[256]; "
        ways = {
            "neighbour": f"s[i] = in[i]; {_SYNC} out[i] = s[(i + 33) % n];",
            "reuse": f"{element} sum = 0; for (int r = 0; r < 3; r++) {{ s[i] = in[i] + r; "
            f"__syncthreads(); sum += s[(i + 32) % n]; {_SYNC} }} out[i] = sum;",
            "write_write": "s[k ? i % 32 : i] = i + 1; __syncthreads(); out[i] = s[i % 32];",
            "broadcast": f"if (i == 0) s[0] = in[0]; {_SYNC} out[i] = s[0];",
            "last_to_first": f"if (i == n - 1) s[0] = in[0]; {_SYNC} if (i == 0) out[i] = s[0];",
            "tree": "s[i] = in[i]; __syncthreads(); for (int h = n / 2; h > 0; h /= 2) { if (i < h) "
            f"s[i] += s[i + h]; {_SYNC} __syncwarp(); }} __syncthreads(); out[i] = s[0];",
            "transpose": "s[i / 16 * 16 + i % 16] = in[i]; "
            f"{_SYNC} out[i] = s[i % 8 * 16 + i / 8];",
            "scan": "s[i] = in[i]; __syncthreads(); for (int d = 32; d < n; d *= 2) { "
            f"{element} v = i >= d ? s[i - d] : ({element})0; {_SYNC} s[i] += v; "
            "__syncthreads(); } out[i] = s[i];",
            "in_place": f"s[i] = in[i]; __syncthreads(); {element} v = s[n - 1 - i]; {_SYNC} "
            "s[i] = v + 1; __syncthreads(); out[i] = s[i];",
            "double_buffer": "for (int r = 0; r < 4; r++) { int b = k ? 0 : (r & 1) * 128; "
            "s[b + i] = in[i] + r; __syncthreads(); out[i] = s[b + (i + 64) % n]; }",
        }
        for way, body in ways.items():
            yield Seeded(
                f"race_{way}_{word}",
                "race",
                element,
                head + body,
                "shared_memory_race",
                threads=128,
            )
    yield Seeded(
        "race_atomic_and_read",
        "race",
        "int",
        "__shared__ int s; if (i == 0) s = 0; __syncthreads(); atomicAdd(&s, 1); "
        f"{_SYNC} out[i] = s;",
        "shared_memory_race",
        threads=128,
    )
    yield Seeded(
        "race_atomic_and_write",
        "race",
        "int",
        f"__shared__ int s; if (i == 100) s = 0; {_SYNC} atomicAdd(&s, 1); "
        "__syncthreads(); out[i] = s;",
        "shared_memory_race",
        threads=128,
    )
    yield Seeded(
        "race_wrong_named_barrier",
        "race",
        "float",
        "__shared__ float s[128]; s[i] = in[i]; int b = k ? 1 + i / 64 : 1; "
        'asm volatile("bar.sync %0, %1;" :: "r"(b), "r"(k ? 64 : 128)); '
        "out[i] = s[(i + 64) % n];",
        "shared_memory_race",
        threads=128,
    )
    pipe = (
        "__shared__ float s[128]; bool makes = i < 64; if (makes) { s[i] = in[i]; s[64 + i] = 2; "
        'if (k == 0 || i < 32) asm volatile("bar.arrive 2, 128;" ::: "memory"); '
        'else asm volatile("bar.arrive 3, 64;" ::: "memory"); } '
        'else { asm volatile("bar.sync 2, %0;" :: "r"(k ? 96 : 128) : "memory"); '
        "out[i] = s[i - 64] + s[i]; } __syncthreads();"
    )
    yield Seeded(
        "race_producer_of_another_barrier", "race", "float", pipe, "shared_memory_race", threads=128
    )
    yield Seeded(
        "race_on_global_memory",
        "race",
        "int",
        "int* p = tmp; p[i] = 0; __syncthreads(); p[i] = in[i]; "
        "if (k == 0) __syncthreads(); out[i] = p[i ^ 64];",
        "global_memory_race",
        threads=128,
    )
    sync = "if (k == 0) __syncwarp();"
    for element in ("char", "int", "float", "double"):
        head = f"__shared__ {element} s[32]; "
        ways = {
            "neighbour": f"s[i] = in[i]; {sync} out[i] = s[i ^ 1];",
            "tree": f"s[i] = in[i]; __syncwarp(); for (int h = 16; h > 0; h /= 2) {{ "
            f"{element} v = s[i] + s[i ^ h]; {sync} s[i] = v; __syncwarp(); }} out[i] = s[0];",
        }
        for way, body in ways.items():
            yield Seeded(
                f"warp_race_{way}_{_word(element)}",
                "race",
                element,
                head + body,
                "shared_memory_race",
                threads=32,
            )


def _barriers() -> Iterator[Seeded]:
    bodies = {
        "odd_threads": "if (k == 0 || i % 2) __syncthreads(); out[i] = in[i];",
        "half_a_warp": "if (k == 0 || i % 32 < 16) __syncthreads(); out[i] = in[i];",
        "trip_counts": "for (int j = 0; j < (k ? 1 + i % 2 : 2); j++) __syncthreads(); out[i] = in[i]; __syncthreads(); out[i] += 1;",
        "both_branches": "if (k && i % 2) { out[i] = in[i]; __syncthreads(); } "
        "else { __syncthreads(); out[i] = in[0]; }",
        "switch": "switch (k ? i % 3 : 1) { case 0: out[i] = 0; break; case 1: __syncthreads(); "
        "default: out[i] = 1; } __syncthreads(); out[i] += 1;",
    }
    for name, body in bodies.items():
        yield Seeded(f"barrier_{name}", "barrier", "float", body, "barrier_divergence")
    yield Seeded(
        "barrier_missing_warp",
        "barrier",
        "float",
        'asm volatile("bar.sync 1, %0;" :: "r"(k ? 96 : 64)); out[i] = in[i];',
        "deadlock",
    )


def _ends() -> Iterator[Seeded]:
    bodies = {
        "endless_loop": ("while (k && in[0] == in[0]) out[i] = in[i];", "did not end"),
        "endless_wait": (
            "volatile int* p = out; p[i] = 0; while (k && p[i] == 0) ;",
            "did not end",
        ),
        "endless_recursion": ("out[i] = deeper(in[0], k ? 1 << 30 : 4);", "stack overflow"),
        "trap": ("if (k && i == 5) __trap(); out[i] = in[i];", "trap"),
        "asserts": ("assert(k == 0 || i != 5); out[i] = in[i];", "assertion"),
    }
    deeper = (
        "#include <cassert>\n"
        "__device__ __noinline__ int deeper(int x, int d) { volatile int y[4] = {x, d, x, d}; "
        "return d == 0 ? x : deeper(y[d & 3] + 1, d - 1) + y[(d + 1) & 3]; }"
    )
    for name, (body, found) in bodies.items():
        before = deeper if name in ("endless_recursion", "asserts") else ""
        before = "#include <cassert>" if name == "asserts" else before
        yield Seeded(name, "end", "int", body, found, before=before)


def corpus() -> list[Seeded]:
    """All seeded faults."""
    makers = (
        _bounds,
        _shared_bounds,
        _other_spaces,
        _misaligned,
        _uninitialised,
        _races,
        _barriers,
        _ends,
    )
    return [seeded for make in makers for seeded in make()]


def source_of(kernels: list[Seeded]) -> str:
    """One .cu file with all of them."""
    return "".join(kernel.source() for kernel in kernels)


def outcome(gpu: Gpu, seeded: Seeded, k: int) -> tuple[str, int]:
    """How a run ended: ("", 0) without a fault; ("reason", 1); or a check's kind and its count."""
    n = seeded.threads
    size = n * SIZES[seeded.element]
    data = (np.arange(n) % 100 + 1).astype(np.float32 if "float" in seeded.element else np.int8)
    given = gpu.put(np.resize(data, max(size // data.itemsize, 1)))
    out, tmp = gpu.put(np.zeros(size, np.int8)), gpu.empty(size)
    try:
        report = gpu.run(seeded.name, 1, n, given, out, tmp, n, k, checks=True)
    except CandidateFault as fault:
        if fault.status not in (Status.RUNTIME_ERROR, Status.TIMEOUT):
            return f"{fault.status}: {fault.reason}", 1
        return fault.reason, 1
    kinds = {fault.kind: fault.count for fault in report.faults}
    if not kinds:
        return "", 0
    kind = seeded.found if seeded.found in kinds else min(kinds)
    return kind, kinds[kind]


def complaint(gpu: Gpu, seeded: Seeded) -> str:
    """What is wrong with what the emulator found in one kernel; "" where nothing is."""
    honest, _ = outcome(gpu, seeded, 0)
    if honest:
        return f"{seeded.name}: false alarm: {honest}"
    found, count = outcome(gpu, seeded, 1)
    if seeded.found not in found:
        return f"{seeded.name}: {seeded.found!r} was not found, but {found!r}"
    if seeded.count is not None and count != seeded.count:
        return f"{seeded.name}: {found} counted {count} times, not {seeded.count}"
    return ""

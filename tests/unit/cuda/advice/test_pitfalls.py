"""Pitfalls: counters where a run gave them, the source only where not, and it says which."""

from __future__ import annotations

import pytest

from coding_framework.cuda.advice.pitfalls import CUDAPitfallDetector
from coding_framework.cuda.advice.source_pitfalls import source_pitfalls
from coding_framework.cuda.safety_wrapper import CUDASafetyAnalyzer
from coding_framework.errors import UsageError
from coding_framework.types import Candidate, Status, Verdict
from support.waiting import at_most_cpu_s

pytestmark = pytest.mark.unit


def _kernel(body: str, host: str = "") -> str:
    return (
        "#include <torch/extension.h>\n"
        f"__global__ void k(const float* x, float* o, int n, int w) {{\n{body}\n}}\n"
        f"torch::Tensor forward(torch::Tensor x) {{\n{host}\nreturn x;\n}}\n"
    )


SQUARE = "__shared__ float t[32][32];"
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


@pytest.mark.parametrize(
    ("rule", "line", "code"),
    [
        ("missing_bounds_check", 3, _kernel(f"{INDEX} o[i] = x[i];")),
        ("endless_loop", 3, _kernel("while (true) { o[0] += 1.0f; }")),
        ("endless_loop", 3, _kernel("for (;;) { o[0] += 1.0f; }")),
        ("shared_memory_race", 3, _kernel("__shared__ float s[64]; s[n] = 1; o[0] = s[1];")),
        ("uncoalesced_access", 3, _kernel("o[threadIdx.x * w] = x[threadIdx.x];")),
        ("bank_conflicts", 3, _kernel(f"{SQUARE} __syncthreads(); o[0] = t[threadIdx.x][1];")),
        ("divergence", 3, _kernel("if (threadIdx.x % 2 == 0) o[threadIdx.x] = 1.0f;")),
        ("register_spill", 3, _kernel("float big[256]; big[n] = x[0]; o[0] = big[w];")),
        ("memory_leak", 6, _kernel("", "float* t; cudaMalloc(&t, 64);")),
        ("memory_leak", 6, _kernel("", "float* t = (float*)malloc(64);")),
        ("global_memory_race", 3, _kernel("o[0] += x[threadIdx.x];")),
        ("low_occupancy", 6, _kernel("", "k<<<n, 16>>>(p, q, n, w);")),
    ],
)  # fmt: skip
def test_the_source_suggests_a_pitfall_with_its_line(rule: str, line: int, code: str) -> None:
    found = {f.rule: f for f in source_pitfalls(code)}
    assert rule in found
    assert (found[rule].line, found[rule].basis, found[rule].severity) == (line, "source", "low")


@pytest.mark.parametrize(
    "code",
    [
        _kernel(f"{INDEX} if (i < n) o[i] = x[i];"),
        _kernel(f"{INDEX} if (i >= n) return; o[i] = x[i];"),
        _kernel("for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += w) o[i] = x[i];"),
        _kernel("while (true) { if (x[0] > 1.0f) break; }"),
        _kernel("__shared__ float s[64]; s[0] = 1; __syncthreads(); o[0] = s[0];"),
        _kernel("__shared__ float t[32][33]; __syncthreads(); o[0] = t[threadIdx.x][1];"),
        _kernel("float4 v = ((const float4*)x)[threadIdx.x]; o[threadIdx.x * 4] = v.x;"),
        _kernel("if (threadIdx.x == 0) o[0] += x[0];"),
        _kernel("float a[2]; a[0] += x[0]; atomicAdd(o, a[0]);"),
        _kernel("", "float* t = (float*)malloc(64); free(t);"),
        _kernel("", "float* t; cudaMalloc(&t, 64); cudaFree(t); k<<<n, 256>>>(p, q, n, w);"),
    ],
)
def test_sound_code_suggests_nothing(code: str) -> None:
    assert source_pitfalls(code) == ()


def test_what_a_run_counted_is_not_guessed() -> None:
    code = _kernel("if (threadIdx.x % 2 == 0) o[threadIdx.x * w] = 1.0f;")
    counters = {
        "smsp__inst_executed.sum": 10.0,
        "smsp__thread_inst_executed.sum": 95.0,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 320.0,
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 10.0,
    }
    found = CUDAPitfallDetector().detect(None, counters, (), code)
    assert {f.rule for f in found} == {"divergence", "uncoalesced_store"}
    assert {f.basis for f in found} == {"counters"}


def test_a_hostile_source_is_looked_at_in_bounded_time() -> None:
    with at_most_cpu_s(5.0):
        source_pitfalls("__global__ void k(float* o) {" * 20_000)
        source_pitfalls(_kernel("while (1) {" * 50_000))
        source_pitfalls("cudaMalloc(&a, 1);" * 20_000)


def test_the_analyzer_takes_the_pitfalls_of_a_verdict_on_the_same_source() -> None:
    code = _kernel(f"{INDEX} o[i] = x[i];", "system(s);")
    guessed = CUDASafetyAnalyzer().analyze(code)
    assert not guessed.measured
    assert {f.rule for f in guessed.pitfalls} == {"missing_bounds_check"}
    verdict = Verdict(
        status=Status.TIMEOUT,
        reason="too long",
        task="t",
        candidate_sha256=Candidate(code=code).sha256,
        backend="emulator",
        counters={"smsp__inst_executed.sum": 1.0},
    )
    judged = CUDASafetyAnalyzer().analyze(code, verdict)
    assert judged.measured
    assert judged.pitfalls == ()
    with pytest.raises(UsageError, match="another source"):
        CUDASafetyAnalyzer().analyze(code + " ", verdict)

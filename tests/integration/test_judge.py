"""The judge end to end: real nvcc, real sandbox, real emulator; every status by a real kernel."""

from __future__ import annotations

import json
import re

import pytest

from coding_framework.agents.feedback import feedback
from coding_framework.cuda.benchmarker import CUDABenchmarker
from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.errors import UsageError
from coding_framework.types import (
    PRINTED,
    Candidate,
    Status,
    Task,
    TensorSpec,
    TestCase,
    Verdict,
)
from support.judge_tasks import (
    ADD,
    ADD_TASK,
    DOUBLE,
    DOUBLE_BODY,
    DOUBLE_KERNEL,
    DOUBLE_TASK,
    DOUBLE_TWO_A_THREAD,
    ROW_SUM,
    ROW_SUM_SHARED,
    ROW_SUM_TASK,
    extension,
    make_task,
    row_sum,
)

pytestmark = pytest.mark.integration


def _judge(judge: Judge, code: str, task: Task = DOUBLE_TASK) -> Verdict:
    return judge.judge(task, Candidate(code=code))


# --- honest kernels -------------------------------------------------------------------------------

HONEST = [
    (DOUBLE_TASK, DOUBLE),
    (DOUBLE_TASK, DOUBLE_TWO_A_THREAD),
    (ADD_TASK, ADD),
    (ROW_SUM_TASK, ROW_SUM),
    (ROW_SUM_TASK, ROW_SUM_SHARED),
]


@pytest.mark.parametrize(("task", "code"), HONEST, ids=range(len(HONEST)))
def test_an_honest_kernel_is_correct_on_every_shape_set(
    judge: Judge, task: Task, code: str
) -> None:
    verdict = _judge(judge, code, task)
    assert verdict.status is Status.CORRECT, verdict.reason
    assert {t.case for t in verdict.tests} == {"main", "odd", "tiny", "drawn"}
    for case in ("main", "odd", "tiny"):
        assert len({t.seed for t in verdict.tests if t.case == case}) >= 5
    assert verdict.timing is not None
    assert verdict.timing.modelled
    assert verdict.timing.kernel_ms > 0
    assert verdict.timing.speedup is None


def test_the_naive_kernel_has_a_speedup_of_one_over_itself(judge: Judge) -> None:
    timing = _judge(judge, DOUBLE).timing
    assert timing is not None
    assert timing.speedup_vs_naive == pytest.approx(1.0, rel=1e-6)


def test_what_kernels_print_is_kept_once_a_shape_set_and_kept_from_agents(judge: Judge) -> None:
    printing = DOUBLE_KERNEL.replace(
        "if (i < n)", 'if (i == 0) printf("n is %d\\n", n);\n  if (i < n)'
    )
    verdict = _judge(judge, extension(printing, DOUBLE_BODY, extra="#include <cstdio>"))
    assert verdict.status is Status.CORRECT, verdict.reason
    (printed,) = [f.message for f in verdict.pitfalls if f.rule == PRINTED]
    assert printed == "n is 6144\nn is 1961\nn is 15"
    broken = printing.replace("2.0f * x[i]", "3.0f * x[i]")
    verdict = _judge(judge, extension(broken, DOUBLE_BODY, extra="#include <cstdio>"))
    assert verdict.status is Status.WRONG_OUTPUT
    assert any(f.rule == PRINTED and "n is 6144" in f.message for f in verdict.pitfalls)
    assert "n is" not in feedback(verdict)


def test_a_faster_kernel_has_a_larger_modelled_speedup(judge: Judge) -> None:
    timing = _judge(judge, ROW_SUM_SHARED, ROW_SUM_TASK).timing
    assert timing is not None
    assert timing.speedup_vs_naive is not None
    assert timing.speedup_vs_naive > 1.0


def test_the_receipt_says_what_it_takes_to_repeat_the_verdict(judge: Judge) -> None:
    receipt = _judge(judge, DOUBLE).receipt
    assert receipt.device
    assert receipt.toolkit
    assert receipt.sandbox in {"bubblewrap", "docker", "native"}
    assert receipt.seeds == (7, 8, 9, 10, 11)
    assert "sqrt(K)" in receipt.tolerance_formula
    assert {"torch", "python"} <= set(receipt.versions)


def test_the_same_seed_gives_the_same_verdict_in_another_judge(judge: Judge) -> None:
    other = Judge(JudgeConfig(seed=7))
    one, two = _judge(judge, ROW_SUM, ROW_SUM_TASK), _judge(other, ROW_SUM, ROW_SUM_TASK)
    assert one.tests == two.tests
    assert one.timing is not None
    assert two.timing is not None
    assert one.timing.model_copy(update={"host_ms": two.timing.host_ms}) == two.timing


def test_another_secret_draws_other_inputs() -> None:
    errors = [
        [t.max_abs_error for t in _judge(judge, ROW_SUM, ROW_SUM_TASK).tests]
        for judge in (Judge(), Judge())
    ]
    assert errors[0] != errors[1]


def test_integer_and_boolean_outputs_are_exact(judge: Judge) -> None:
    code = """#include <torch/extension.h>
__global__ void k(const int* x, bool* p, int* q, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { p[i] = x[i] > 3; q[i] = x[i] * 3 - OFF; }
}
std::vector<torch::Tensor> forward(torch::Tensor x) {
  int n = x.numel();
  auto p = torch::empty(x.sizes(), x.options().dtype(torch::kBool));
  auto q = torch::empty_like(x);
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<int>(), p.data_ptr<bool>(), q.data_ptr<int>(), n);
  return {p, q};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
    task = make_task("integers", "x > 3, x * 3", dtype="int32")
    assert _judge(judge, code.replace("- OFF", ""), task).status is Status.CORRECT
    wrong = _judge(judge, code.replace("OFF", "(i == n - 1)"), task)
    assert wrong.status is Status.WRONG_OUTPUT
    assert "output 1" in wrong.reason


def test_parameters_and_scalars_follow_the_inputs(judge: Judge) -> None:
    code = """#include <torch/extension.h>
__global__ void k(const float* x, const float* w, float* o, int n, int c, float s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * w[i % c] * s;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w, float s) {
  auto o = torch::empty_like(x); int n = x.numel();
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), o.data_ptr<float>(), n,
                              x.size(1), s);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
    task = Task(
        name="scaled",
        tier=0,
        family="test",
        ops=("scaled",),
        description="",
        reference=(
            "import torch\nclass Model(torch.nn.Module):\n"
            "    def __init__(self, s):\n        super().__init__()\n        self.s = s\n"
            "        self.w = torch.nn.Parameter(torch.ones(6))\n"
            "    def forward(self, x):\n        return x * self.w * self.s\n"
        ),
        init_args=(0.75,),
        cases=tuple(
            TestCase(name=n, inputs=(TensorSpec(name="x", shape=s),))
            for n, s in {"main": (32, 6), "odd": (7, 6), "tiny": (1, 6)}.items()
        ),
    )
    assert _judge(judge, code, task).status is Status.CORRECT
    assert _judge(judge, code.replace("* w[i % c]", ""), task).status is Status.WRONG_OUTPUT


BELOW_MAX = """#include <torch/extension.h>
__global__ void top(const float* x, float* m, int n) {
  float v = x[0]; for (int i = 1; i < n; i++) v = fmaxf(v, x[i]); *m = v;
}
__global__ void sub(const float* x, float* o, float m, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] - m;
}
torch::Tensor forward(torch::Tensor x) {
  int n = x.numel(); auto o = torch::empty_like(x); auto t = torch::empty({1}, x.options());
  top<<<1, 1>>>(x.data_ptr<float>(), t.data_ptr<float>(), n);
  float m; cudaMemcpy(&m, t.data_ptr<float>(), 4, cudaMemcpyDeviceToHost);
  sub<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), m, n);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
"""The host reads one number (the largest element) and passes it on as a launch argument."""


def test_a_plan_steered_by_a_value_read_back_is_run_by_the_host_and_marked(judge: Judge) -> None:
    verdict = _judge(judge, BELOW_MAX, make_task("below_max", "x - x.max()"))
    assert verdict.status is Status.CORRECT, verdict.reason
    assert "host_dependent" in {p.rule for p in verdict.pitfalls}


def test_such_a_plan_is_tried_with_the_inputs_elsewhere_as_well(judge: Judge) -> None:
    code = BELOW_MAX.replace(
        "sub<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(),",
        "static float* first = x.data_ptr<float>();\n  sub<<<(n + 255) / 256, 256>>>(first,",
    )
    verdict = _judge(judge, code, make_task("below_max", "x - x.max()"))
    assert verdict.status is Status.WRONG_OUTPUT, verdict.reason


def test_a_workspace_and_a_table_kept_between_calls_are_no_cheat(judge: Judge) -> None:
    code = extension(
        """
__global__ void fill(float* t) { t[threadIdx.x] = 2.0f; }
__global__ void k(const float* x, const float* t, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = t[i % 32] * x[i] + 1.0f;
}
""",
        """static float* table = nullptr;
  if (!table) { cudaMalloc(&table, 128); fill<<<1, 32>>>(table); }
  k<<<(n + 255) / 256, 256>>>(px, table, po, n);""",
    )
    verdict = _judge(judge, code)
    assert verdict.status is Status.CORRECT, verdict.reason


# --- every other status ---------------------------------------------------------------------------

RACE = row_sum(  # right as long as the last warp comes last
    """
  __shared__ float part[128];
  int row = blockIdx.x, t = threadIdx.x;
  float sum = 0.0f;
  for (int i = t; i < columns; i += 128) sum += x[row * columns + i];
  part[t] = sum;
  if (t != 127) return;
  for (int i = 0; i < 127; i++) sum += part[i];
  o[row] = sum;""",
    block="128",
)
ATOMIC_SUM = row_sum(
    "int row = blockIdx.y; int i = blockIdx.x * 32 + threadIdx.x;\n"
    "  if (i < columns) atomicAdd(&o[row], x[row * columns + i]);",
    grid="dim3((columns + 31) / 32, rows)",
    make="zeros",
)

STATUSES: list[tuple[Status, str]] = [
    (Status.WRONG_OUTPUT, DOUBLE.replace("2.0f", "2.001f")),
    (Status.REJECTED, extension("", "return torch::add(x, x);")),
    (
        Status.CHEATING,
        extension(
            "",
            "std::vector<float> h(n); cudaMemcpy(h.data(), px, n * 4, cudaMemcpyDeviceToHost);\n"
            "  for (auto& v : h) v = 2 * v + 1; cudaMemcpy(po, h.data(), n * 4, "
            "cudaMemcpyHostToDevice);",
            extra="#include <vector>",
        ),
    ),
    (Status.COMPILE_ERROR, DOUBLE.replace("blockIdx.x", "blockIndex.x")),
    (Status.LOAD_ERROR, DOUBLE_KERNEL),
    (Status.RUNTIME_ERROR, DOUBLE.replace("o[i] =", "o[i + (1 << 28)] =")),
    (
        Status.TIMEOUT,
        extension(
            "__global__ void spin(volatile float* o) { while (o[0] != 1.5f) o[1] = 2.0f; }",
            "spin<<<1, 1>>>(po);",
        ),
    ),
    (
        Status.MEMORY_LIMIT,
        extension(
            DOUBLE_KERNEL,
            "for (int i = 0; i < 9; i++) { void* p; cudaMalloc(&p, 1l << 30); }" + DOUBLE_BODY,
        ),
    ),
    (
        Status.OUTPUT_LIMIT,
        extension(
            DOUBLE_KERNEL,
            DOUBLE_BODY + 'for (int i = 0; i < 10000000; i++) puts("flood flood flood flood");',
            extra="#include <cstdio>",
        ),
    ),
    (
        Status.UNSUPPORTED,
        extension(
            "__global__ void k(float* o) { __shared__ long b; unsigned a = "
            "__cvta_generic_to_shared(&b); "
            'asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(a)); o[0] = 1; }',
            "k<<<1, 128>>>(po);",
        ),
    ),
]


@pytest.mark.parametrize(("status", "code"), STATUSES, ids=[s.value for s, _ in STATUSES])
def test_each_status_has_a_real_kernel(judge: Judge, status: Status, code: str) -> None:
    verdict = _judge(judge, code)
    assert verdict.status is status, verdict.reason
    assert len(verdict.reason) > 10
    json.loads(verdict.model_dump_json())


def _looping(body: str) -> str:
    head = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    kernel = f"__global__ void twice(const float* x, float* o, int n) {{ {head} {body} }}"
    return extension(kernel, DOUBLE_BODY)


ENDLESS = {
    "while": "volatile float a = 0; while (1) a = a + 1.0f;",
    "no stride": "for (int q = i; q < n; q += 0 * n) o[q] = x[q];",
    "spin": "while (*(volatile const float*)x != 12345.0f) {} o[i % n] = 1.0f;",
    "barrier": "while (1) { __syncthreads(); if (i < 0) break; }",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_kernel_ends_early_on_the_smallest_shape_set(judge: Judge, body: str) -> None:
    verdict = _judge(judge, _looping(body))
    assert verdict.status is Status.TIMEOUT, verdict.reason
    said = re.search(r"within (\d+) instructions", verdict.reason)
    assert said is not None
    assert int(said[1]) < 6_000_000
    assert verdict.tests == ()


def test_a_kernel_with_a_loop_that_is_wrong_on_the_shown_shape_set_is_told_of_that_one(
    judge: Judge,
) -> None:
    verdict = _judge(judge, _looping("for (int q = i; q < n; q += 4096) o[q] = x[q];"))
    assert verdict.status is Status.WRONG_OUTPUT
    assert "shape set 'main'" in verdict.reason


def test_a_kernel_that_is_endless_on_large_inputs_alone_is_a_timeout_too(judge: Judge) -> None:
    verdict = _judge(judge, _looping("while (n > 1000) {} o[i % n] = x[i % n] * 2.0f + 1.0f;"))
    assert verdict.status is Status.TIMEOUT, verdict.reason


def test_a_compilation_without_end_is_a_compile_timeout() -> None:
    bomb = """
constexpr long spin(long n) { long s = 0; for (long i = 0; i < n; i++) s += i % 7; return s; }
template <long N> struct F { static constexpr long v = spin(200000 + N) + F<N - 1>::v; };
template <> struct F<0> { static constexpr long v = 0; };
__global__ void k(long* o) { *o = F<190>::v; }
"""
    compiler = CUDACompiler(CompilerConfig(cpu_limit_s=3))
    verdict = _judge(Judge(JudgeConfig(seed=0), compiler=compiler), bomb)
    assert verdict.status is Status.COMPILE_TIMEOUT, verdict.reason


def test_a_race_is_nondeterministic(judge: Judge) -> None:
    verdict = _judge(judge, RACE, ROW_SUM_TASK)
    assert verdict.status is Status.NONDETERMINISTIC, verdict.reason
    assert "shared_memory_race" in {p.rule for p in verdict.pitfalls}


def test_an_answer_that_depends_on_the_order_of_blocks_is_nondeterministic(judge: Judge) -> None:
    verdict = _judge(
        judge,
        row_sum(
            """
  int row = blockIdx.x;
  if (threadIdx.x) return;
  if (row + 1 < rows) o[row + 1] = -1.0f;
  float sum = 0;
  for (int i = 0; i < columns; i++) sum += x[row * columns + i];
  o[row] = sum;"""
        ),
        ROW_SUM_TASK,
    )
    assert verdict.status is Status.NONDETERMINISTIC, verdict.reason


@pytest.mark.parametrize("declared", [True, False])
def test_atomic_sums_need_not_repeat_their_bits(judge: Judge, declared: bool) -> None:
    task = ROW_SUM_TASK.model_copy(update={"atomic_order": declared})
    verdict = _judge(judge, ATOMIC_SUM, task)
    assert verdict.status is Status.CORRECT, verdict.reason


# --- wrong use ------------------------------------------------------------------------------------


def test_a_backend_that_is_not_here_is_said_in_a_sentence() -> None:
    assert choose_backend("auto") == "emulator"
    with pytest.raises(UsageError, match="emulator"):
        choose_backend("cuda")


def test_a_task_whose_reference_fails_is_wrong_use(judge: Judge) -> None:
    with pytest.raises(UsageError, match="reference of task"):
        _judge(judge, DOUBLE, make_task("broken", "x @ x"))


async def test_the_benchmarker_times_a_build_and_refuses_a_wrong_one(judge: Judge) -> None:
    compiler = CUDACompiler()
    right = await compiler.compile_kernel(DOUBLE)
    assert right.binary_path is not None
    benchmarker = CUDABenchmarker(DOUBLE_TASK, judge)
    result = await benchmarker.benchmark_kernel(right.binary_path, right.kernel_name)
    assert result.kernel_ms > 0
    wrong = await compiler.compile_kernel(DOUBLE.replace("2.0f", "2.001f"))
    assert wrong.binary_path is not None
    with pytest.raises(CandidateFault) as fault:
        await benchmarker.benchmark_kernel(wrong.binary_path, wrong.kernel_name)
    assert fault.value.status is Status.WRONG_OUTPUT

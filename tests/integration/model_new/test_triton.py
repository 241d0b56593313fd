"""Answers in Triton: faults put into honest ones, and what a judge can be sent instead of a kernel.
The honest ones are judged with those in CUDA."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.cuda import compiler as compiler_module
from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.model_new import build as build_module
from coding_framework.cuda.model_new import triton_kernels
from coding_framework.cuda.model_new.triton_kernels import KernelRequest
from coding_framework.data.kernelbench.problems import load_problem_file
from coding_framework.reference_model import in_tf32
from coding_framework.types import Candidate, Status, Verdict

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(triton_kernels.triton_gap() != "", reason=triton_kernels.triton_gap()),
]

HERE = Path(__file__).parent
QUICK = {"gelu_helper", "conv1d_direct", "layer_norm"}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(JudgeConfig(backend="emulator"))


def judged(judge: Judge, name: str, *changes: tuple[str, str]) -> Verdict:
    """Of an answer of the corpus, changed."""
    answer = (HERE / "honest" / f"triton_{name}.py").read_text()
    for old, new in changes:
        assert old in answer
        answer = answer.replace(old, new)
    problem = load_problem_file(HERE / "problems" / f"triton_{name}.py")
    verdict = judge.judge(problem, Candidate(code=answer))
    if "Block pointers have been removed" in verdict.reason:
        pytest.skip(verdict.reason)  # by Triton 3.9
    return verdict


ATTACKS = [
    ("softmax_rows", 'mask=mask, other=-float("inf"))', ")", Status.RUNTIME_ERROR),
    ("row_sum_atomic", "mask=at < n, other=0.0", "mask=at < n", Status.WRONG_OUTPUT),
    ("row_sum_atomic", "torch.zeros(rows", "torch.empty(rows", Status.WRONG_OUTPUT),
    ("matmul_ieee", ', input_precision="ieee"', "", Status.WRONG_OUTPUT),
    ("gelu_helper", "(triton.cdiv(n, 512),)", "(1,)", Status.WRONG_OUTPUT),
    ("gelu_helper", 'args["n"] % args["BLOCK"] == 0', "True", Status.RUNTIME_ERROR),
    ("layer_norm", "/ N + eps)", "/ N)", Status.WRONG_OUTPUT),
    ("cumsum_rows", "triton.next_power_of_2(n)", "64", Status.WRONG_OUTPUT),
    ("conv1d_direct", "acc, mask=mask)", "acc)", Status.RUNTIME_ERROR),
    (
        "conv1d_direct",
        "        return out",
        "        return torch.conv1d(x, self.c.weight, self.c.bias)",
        Status.REJECTED,
    ),
    ("softmax_persistent", "step = tl.num_programs(0)", "step = 16", Status.WRONG_OUTPUT),
    ("matmul_grouped", "range(0, tl.cdiv(K, BK))", "range(0, K // BK)", Status.WRONG_OUTPUT),
    (
        "matmul_grouped",
        "tl.dot(u, v, acc)",
        "acc + tl.dot(u, v, out_dtype=tl.float16)",
        Status.WRONG_OUTPUT,
    ),
    ("dot_tf32x3", '"tf32x3"', '"tf32"', Status.WRONG_OUTPUT),
    ("split_k", "triton.cdiv(N, 32), 4)]", "triton.cdiv(N, 32), 3)]", Status.WRONG_OUTPUT),
    (
        "split_k",
        "    tl.atomic_add(c + m[:, None] * N + n[None, :], acc, "
        'mask=(m[:, None] < M) & (n[None, :] < N), sem="relaxed")',
        "    at = c + m[:, None] * N + n[None, :]\n"
        "    old = tl.load(at, mask=(m[:, None] < M) & (n[None, :] < N))\n"
        "    tl.store(at, old + acc, mask=(m[:, None] < M) & (n[None, :] < N))",
        Status.NONDETERMINISTIC,
    ),
    (
        "attention_causal",
        "m[:, None] >= n[None, :]",
        "m[:, None] + 1 >= n[None, :]",
        Status.WRONG_OUTPUT,
    ),
    ("welford", "s / (c - 1)", "s / c", Status.WRONG_OUTPUT),
    (
        "block_pointers",
        "boundary_check=(0, 1), padding",
        "boundary_check=(0,), padding",
        Status.RUNTIME_ERROR,
    ),
    ("scatter_add", "tl.atomic_add(", "tl.store(", Status.WRONG_OUTPUT),
    ("conv2d_gemm", "acc = tl.where(acc > 0, acc, 0.0)", "pass", Status.WRONG_OUTPUT),
    (
        "int8_matmul",
        "tl.zeros((BM, BN), tl.int32)",
        "tl.full((BM, BN), 1, tl.int32)",
        Status.WRONG_OUTPUT,
    ),
    ("histogram", "BINS, mask=at < n)", "BINS)", Status.WRONG_OUTPUT),
    ("sort_rows", 'other=float("inf")', "other=0.0", Status.WRONG_OUTPUT),
    ("cross_entropy", "+ top\n", "\n", Status.WRONG_OUTPUT),
    ("group_norm", "g * per + at // HW", "at // HW", Status.WRONG_OUTPUT),
    ("atomic_max_rows", 'float("-inf"), dtype', "0.0, dtype", Status.WRONG_OUTPUT),
    (
        "gelu_helper",
        "        gelu_kernel[(",
        "        gelu_kernel.run = lambda *a, **k: None\n        gelu_kernel[(",
        Status.WRONG_OUTPUT,
    ),
    (
        "gelu_helper",
        "        gelu_kernel[(",
        "        if hasattr(self, 'kept'):\n            return self.kept\n"
        "        self.kept = out\n        gelu_kernel[(",
        Status.CHEATING,
    ),
    ("gelu_helper", "n = x.numel()", "n = int(__import__('time').time())", Status.REJECTED),
]


@pytest.mark.parametrize(
    ("name", "old", "new", "status"),
    [
        pytest.param(*attack, marks=[] if attack[0] in QUICK else pytest.mark.slow)
        for attack in ATTACKS
    ],
)
def test_a_fault_in_it_is_found(
    judge: Judge, name: str, old: str, new: str, status: Status
) -> None:
    verdict = judged(judge, name, (old, new))
    assert verdict.status is status, verdict.reason
    if status is Status.RUNTIME_ERROR:
        assert "kernel" in verdict.reason
        assert "line " in verdict.reason


LAUNCH = "        gelu_kernel[(triton.cdiv(n, 512),)](x, out, n, BLOCK=512)\n"
FORMS = [
    ("HALF, mask", "HALT, mask", Status.COMPILE_ERROR, "HALT is not defined"),
    ("tl.erf(", "tl.erff(", Status.COMPILE_ERROR, "has no attribute 'erff'"),
    ("    if EVEN:", "    tl.flip(at)\n    if EVEN:", Status.COMPILE_ERROR, "line 20: "),
    ("BLOCK=512)", "BLOCK=500)", Status.COMPILE_ERROR, "arange's range must be a power of 2"),
    ("BLOCK=512)", "BLOCK=512, B=1)", Status.RUNTIME_ERROR, "B was specified but unrecognised"),
    ("BLOCK=512)", "BLOCK=512, num_ctas=2)", Status.COMPILE_ERROR, "clusters are not supported"),
    ("gelu_kernel[(", "gelu_kernel.warmup[(", Status.RUNTIME_ERROR, "not subscriptable"),
    (
        LAUNCH,
        "        triton.testing.do_bench(lambda: None)\n" + LAUNCH,
        Status.UNSUPPORTED,
        "not supported yet: triton.testing",
    ),
    (
        LAUNCH,
        "        text = 'def k(p): pass'\n        exec(text)\n"
        "        triton.jit(eval('lambda x: None'))[(1,)](x)\n",
        Status.COMPILE_ERROR,
        "is not a function under @triton.jit at the top of the file",
    ),
    (
        "HALF = tl.constexpr(0.5)",
        "try:\n    from triton.language.extra import libdevice\n    HALF = tl.constexpr(0.5)\n"
        "except ImportError:\n    HALF = None",
        Status.CORRECT,
        "",
    ),
    (
        "    if EVEN:",
        "    tl.device_print('n', n)\n    if EVEN:",
        Status.CORRECT,
        "",
    ),
    (
        LAUNCH,
        LAUNCH.replace(
            "  gelu", "  __import__('threading').Thread(target=lambda: 0).start()\n        gelu"
        ),
        Status.REJECTED,
        "thread",
    ),
    (
        "class ModelNew",
        "def made():\n    @triton.jit\n    def inner(x):\n        pass\n    return inner\n\n\n"
        "class ModelNew",
        Status.CORRECT,
        "",
    ),
    (
        "class ModelNew",
        "@triton.jit\ndef gelu_kernel(x, out, n, BLOCK: tl.constexpr):\n    pass\n\n\n"
        "class ModelNew",
        Status.WRONG_OUTPUT,
        "",
    ),
    (
        "HALF = ",
        "X = __import__('os')._exit(0)\nHALF = ",
        Status.LOAD_ERROR,
        "ended its process",
    ),
]


@pytest.mark.parametrize(("old", "new", "status", "said"), FORMS)
def test_what_is_no_kernel_ends_in_a_sentence(
    judge: Judge, old: str, new: str, status: Status, said: str
) -> None:
    verdict = judged(judge, "gelu_helper", (old, new))
    assert (verdict.status, said in verdict.reason) == (status, True), verdict.reason


def test_constants_may_follow_from_the_device(judge: Judge) -> None:
    verdict = judged(
        judge,
        "gelu_helper",
        ("n, BLOCK: tl.constexpr,", "n, SMS: tl.constexpr, BLOCK: tl.constexpr,"),
        ("(x, out, n, BLOCK", "(x, out, n, SMS=sms, BLOCK"),
        (
            "        n =",
            "        sms = torch.cuda.get_device_properties(0).multi_processor_count\n        n =",
        ),
    )
    assert verdict.status is Status.CORRECT, verdict.reason


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("os._exit(7)", id="ends without a reason"),
        pytest.param("os.remove('started') or os._exit(7)", id="hides that it started"),
        pytest.param(
            "os.symlink('/etc/passwd', 'kernel.ptx') or os.symlink('/etc/passwd', 'triton.json')"
            " or os._exit(0)",
            id="links to files of the judge's machine",
        ),
        pytest.param(
            "os.symlink('/dev/zero', 'kernel.ptx') or os.mkfifo('triton.json') or os._exit(0)",
            id="writes what does not end",
        ),
        pytest.param(
            "open('kernel.ptx', 'w').write('') or open('triton.json', 'w').write('{}') "
            "and open('kernel.sm_90.cubin', 'w').write('') or os._exit(0)",
            id="writes the machine code itself",
        ),
    ],
)
def test_what_its_code_does_while_it_is_compiled_is_its_own_fault(judge: Judge, code: str) -> None:
    here = "'Name' not in type(tl.load).__name__"  # in the compiler, not where host code runs
    line = f"if {here}:\n    import os\n    X = {code}\n"
    verdict = judged(judge, "gelu_helper", ("HALF = ", f"{line}HALF = "))
    assert verdict.status is Status.COMPILE_ERROR, (verdict.status, verdict.reason)


def test_a_build_is_not_that_of_another_triton(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (HERE / "honest" / "triton_gelu_helper.py").read_text()
    launch = "@triton.jit\ndef nothing():\n    pass\n\n\nnothing[(1,)]()\n"
    answer = source.replace("class ModelNew", f"{launch}class ModelNew")
    compiler = compiler_module.CUDACompiler()
    first = compiler.compile_source(answer)
    assert first.success, first.reason
    monkeypatch.setattr(build_module, "triton_fingerprint", lambda: "of another version")
    assert compiler.compile_source(answer).digest != first.digest


def test_a_build_without_the_kernel_that_was_asked_for_ends(judge: Judge) -> None:
    ptx = ".version 8.4\\n.target sm_80\\n.address_size 64\\n.visible .entry k() { ret; }\\n"
    line = (
        "if 'Name' not in type(tl.load).__name__:\n    import os\n"
        f"    X = open('kernel.ptx', 'w').write('{ptx}')\n"
        "    X = open('triton.json', 'w').write('{}')\n    X = os._exit(0)\n"
    )
    verdict = judged(judge, "gelu_helper", ("HALF = ", f"{line}HALF = "))
    assert (verdict.status, "asks again" in verdict.reason) == (Status.REJECTED, True)


@pytest.mark.parametrize("name", ["add", "m", "param"])
def test_a_kernel_may_have_a_name_of_ptx(judge: Judge, name: str) -> None:
    verdict = judged(judge, "gelu_helper", ("gelu_kernel", name))
    assert verdict.status is Status.CORRECT, verdict.reason


def test_an_endless_kernel_times_out(judge: Judge) -> None:
    endless = "    while tl.atomic_add(out, 0.0) < 1e30:\n        pass\n    if EVEN:\n"
    verdict = judged(judge, "gelu_helper", ("    if EVEN:\n", endless))
    assert verdict.status is Status.TIMEOUT, verdict.reason


@pytest.mark.parametrize(
    ("name", "there"), [("triton_folder", None), ("version", "3.2.0"), ("version", "4.0.1+git")]
)
def test_without_a_triton_that_is_tried_the_verdict_says_what_to_install(
    name: str, there: str | None, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_kernels, name, lambda *_: there)
    verdict = judged(judge, "gelu_helper", ("0.7071067811865476", "0.70710678118654"))
    assert verdict.status is Status.UNSUPPORTED
    assert "pip install triton==" in verdict.reason


def test_a_task_in_tf32_takes_what_triton_computes_by_itself(judge: Judge) -> None:
    problem = load_problem_file(HERE / "problems" / "triton_matmul_ieee.py")
    asked = problem.model_copy(update={"reference": in_tf32(problem.reference)})
    answer = (HERE / "honest" / "triton_matmul_ieee.py").read_text()
    plain = answer.replace(', input_precision="ieee"', "")
    narrow = plain.replace("tl.dot(x, y,", "tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16),")
    verdict = judge.judge(asked, Candidate(code=plain))
    assert verdict.status is Status.CORRECT, verdict.reason
    assert "tf32" in {note.rule for note in verdict.pitfalls}
    assert judge.judge(asked, Candidate(code=narrow)).status is Status.WRONG_OUTPUT


PRODUCT = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c):
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))
"""


def compiled(gpu: bool, source: str, kind: str) -> Path:
    """The build of `product`, of factors of a type."""
    compiler = CUDACompiler(CompilerConfig(architecture=90, for_gpu=gpu))
    request = {
        "kernel": "product",
        "signature": {"a": f"*{kind}", "b": f"*{kind}", "c": "*fp32"},
        "constants": {},
        "aligned": [0, 1, 2],
        "options": {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None},
    }
    result = compiler.compile_triton(source, [KernelRequest(json.dumps(request), "0")])
    assert result.success, result.reason
    return Path(str(result.binary_path))


@pytest.mark.parametrize("gpu", [True, False])
def test_a_hopper_gpu_gets_its_own_products(gpu: bool) -> None:
    """`wgmma`, which the emulator does not run: it reads what any GPU runs."""
    build = compiled(gpu, PRODUCT, "fp16")
    assert "wgmma" not in (build / "device.ptx").read_text()
    assert (b"sm_90a" in (build / "device.cubin").read_bytes()) is gpu


@pytest.mark.parametrize("gpu", [True, False])
def test_an_answer_cannot_give_the_emulator_another_text(gpu: bool) -> None:
    forged = "open('checked.ptx', 'w').write('.version 8.4 // forged')"
    product = "tl.dot(tl.load(a + at), tl.load(b + at))"
    assert product in PRODUCT
    source = PRODUCT.replace(product, "tl.load(a + at) * tl.load(b + at)")
    build = compiled(gpu, f"{source}\nX = {forged}\n", "fp32")
    assert "forged" not in (build / "device.ptx").read_text()

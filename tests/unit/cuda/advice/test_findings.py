"""Static findings: right lines, no false alarm in comments and strings, linear time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_framework.cuda.advice.findings import static_findings
from coding_framework.cuda.advice.source_text import code_only
from coding_framework.cuda.safety_wrapper import SafetyWrapper, SecurityValidator
from support.waiting import at_most_cpu_s

pytestmark = pytest.mark.unit

CLEAN = """
#include <torch/extension.h>
// system("rm -rf /") and cublasSgemm( in a comment
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  TORCH_CHECK(x.is_cuda(), "open(file) fork() write(2) exit(0)");
  scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def _rules(code: str) -> set[str]:
    return {finding.rule for finding in static_findings(code)}


def test_an_honest_kernel_has_no_finding_and_no_risk() -> None:
    report = SafetyWrapper().inspect(CLEAN)
    assert report.findings == ()
    assert report.risk_score == 0.0


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('system("ls");', "process"),
        ("if (!fork()) {}", "process"),
        ("execve(p, a, e);", "process"),
        ("_exit(0);", "exit"),
        ("kill(-1, 9);", "signal"),
        ("ptrace(0, 0, 0, 0);", "signal"),
        ("syscall(1);", "raw_system_call"),
        ('FILE* f = fopen("a", "r");', "file_access"),
        ('std::ifstream in("x");', "file_access"),
        ("write(1, p, n);", "descriptor_write"),
        ("int s = socket(2, 1, 0);", "network"),
        ("#include <sys/socket.h>", "network"),
        ('getenv("HOME");', "environment"),
        ('dlopen("libcublas.so", 1);', "dynamic_loading"),
        ("std::thread t(f);", "threads"),
        ("__attribute__((constructor)) void f() {}", "constructor"),
        ('asm(".incbin \\"/etc/passwd\\"");', "embedded_binary"),
        ('read_all("/proc/self/maps");', "system_path"),
        ('#include "/etc/passwd"', "suspicious_include"),
        ("#include <../../secret.h>", "suspicious_include"),
        ("cublasSgemm(h, a);", "vendor_library"),
        ("#include <cudnn.h>", "vendor_library"),
        ("return torch::matmul(a, b);", "torch_operator"),
        ("auto y = at::softmax(x, 1);", "torch_operator"),
        ("thrust::sort(a, b);", "thrust_or_cub"),
        ("} catch (...) {", "fallback"),
        ("} catch (const std::exception& e) {", "fallback"),
        ("float v = x.item<float>();", "read_back"),
        ("cudaMemcpy(h, d, n, cudaMemcpyDeviceToHost);", "read_back"),
        ("  static torch::Tensor cached = x;", "static_state"),
        ("cudaStreamBeginCapture(s, m);", "graph_capture"),
        ("__half h = __float2half(x);", "low_precision"),
        ("fragment<matrix_a, 16, 16, 8, wmma::precision::tf32, row_major> a;", "low_precision"),
        ("long long t = clock64();", "clock"),
        ("y[i] = __expf(x[i]);", "fast_math"),
        ('asm volatile("cp.async.wait_all;");', "inline_assembly"),
        ('asm("trap;");', "assembly_trap"),
        ('asm volatile("mov.u32 %0, %1; exit;" :: "r"(a));', "assembly_trap"),
        ('asm("syscall" : "=a"(r));', "assembly_system_call"),
        ("cudaDeviceReset();", "device_state"),
        ("cudaSetDevice(1);", "device_state"),
        ("cudaHostAlloc(&p, n, 0);", "device_state"),
        ("#define CALL(x) sys##tem(x)", "process"),
    ],
)
def test_a_rule_names_its_line(line: str, rule: str) -> None:
    code = f"// first\n\n{line}\n"
    found = [f for f in static_findings(code) if f.rule == rule]
    assert [f.line for f in found] == [3]
    assert found[0].basis == "source"


@pytest.mark.parametrize(
    "line",
    [
        "tensor.write(1);",
        "queue->open();",
        "int reopen(int x);",
        "float remove_mean = 0;",
        "__shared__ float s[32];",
        "TORCH_CHECK(t.is_contiguous());",
        "auto n = x.sum_size();",
        'R"(system("x"))";',
        "char c = '\"'; int y = 0; // fork()",
        "/* dlopen(\n fork() */ int z;",
        "int big = 1'000'000; float f = 2'0.0f;",
        "#define KERNEL(name) scale_##name",
        "int trap = 0; float exit_code = 1;",
        "cudaGetDevice(&d); cudaDeviceSynchronize(); cudaFuncSetAttribute(f, a, n);",
    ],
)
def test_look_alikes_are_no_finding(line: str) -> None:
    assert _rules(f"{line}\n") == set()


def test_code_behind_a_tricky_literal_is_still_seen() -> None:
    assert "process" in _rules('const char* s = "\\"/*"; system(s); /* */')
    assert "process" in _rules("int n = 1'000; system(s); char c = '\\'';")
    assert "process" in _rules("// a comment that goes on \\\n and on\nsystem(s);")


def test_names_that_a_macro_is_given_in_parts_are_seen_where_it_is_used() -> None:
    code = "#define JOIN(a, b) a##b\n\nint r = JOIN(sys, tem)(s);\nint JOIN(big, ger) = 1;\n"
    assert [(f.rule, f.line) for f in static_findings(code)] == [("process", 3)]


def test_assembly_that_computes_is_no_risk() -> None:
    report = SecurityValidator().validate('asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));')
    assert [f.rule for f in report.findings] == ["inline_assembly"]
    assert report.risk_score == 0.0


def test_risk_grows_with_rules_and_stays_in_range() -> None:
    validator = SecurityValidator()
    one = validator.validate("system(s);").risk_score
    many = validator.validate("system(s); exit(0); kill(1, 9); dlopen(p, 1);").risk_score
    assert 0.0 < one < many <= 1.0
    assert validator.validate("system(s); system(t);").risk_score == one


def test_nul_bytes_and_reversed_text_are_reported() -> None:
    assert _rules("int x;\n\0") == {"nul_byte"}
    assert _rules("int x; // \u202e") == {"bidirectional_text"}


def test_sanitizing_removes_what_a_terminal_would_obey() -> None:
    clean = SecurityValidator().sanitize("a\x1b[2Jb\0\tc\nd\udcff")
    assert clean == "a[2Jb\tc\nd"


@pytest.mark.parametrize(
    "piece",
    [
        '"',
        "/*",
        " ",
        "\n static ",
        'R"(',
        "static a ",
        "torch::",
        "((",
        '#include "',
        "'",
        "catch (",
    ],
)
def test_a_long_hostile_source_takes_no_longer_than_its_length(piece: str) -> None:
    source = piece * (100_000 // len(piece))
    with at_most_cpu_s(2.0):
        static_findings(source)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="/*\"'\\\nR()a ", max_size=60))
def test_stripping_never_fails_and_keeps_the_lines(source: str) -> None:
    assert code_only(source).count("\n") == source.count("\n")
    assert code_only(source, literals=True).count("\n") == source.count("\n")


_TF32 = "using F = fragment<matrix_a, 16, 16, 8, precision::tf32, row_major>;\n"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("high.x[e] = __float_to_tf32(v);", True),
        ("high.x[e] = wmma::__float_to_tf32(v);\nlow.x[e] = v - high.x[e];", False),
        ("hi = __float_to_tf32(v);\nv -= hi;", False),
        ("hi = __float_to_tf32(v);\nw -= other;", True),
    ],
)
def test_products_of_tf32_parts_are_not_told_to_be_of_low_precision(rest: str, said: bool) -> None:
    found = {f.rule for f in static_findings(_TF32 + rest)}
    assert ("low_precision" in found) is said

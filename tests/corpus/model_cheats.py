"""Answers that must not pass, each with its right statuses and with what the reason says.

All are for x * 2 + 1 and most share one extension, so that nvcc runs once. Attacks on the Python
host itself are here; attacks by host code in C++ are those of `.cu` candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent

from coding_framework.types import Status

HEAD = '''import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

ext = load_inline(
    name="double",
    cpp_sources="""torch::Tensor twice(torch::Tensor x); torch::Tensor copy(torch::Tensor x);
void into(torch::Tensor x, torch::Tensor out); void nothing(torch::Tensor x);""",
    cuda_sources="""
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void twice_kernel(const float* x, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = 2.0f * x[i] + 1.0f;
}
__global__ void copy_kernel(const float* x, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = x[i];
}
__global__ void nothing_kernel(const float* x) {}
void into(torch::Tensor x, torch::Tensor out) {
    int n = x.numel();
    twice_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
}
torch::Tensor twice(torch::Tensor x) {
    auto out = torch::empty_like(x);
    into(x, out);
    return out;
}
torch::Tensor copy(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    copy_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
void nothing(torch::Tensor x) { nothing_kernel<<<1, 1>>>(x.data_ptr<float>()); }
""",
    functions=["twice", "copy", "into", "nothing"],
)

'''
HONEST = (
    HEAD + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return ext.twice(x)\n"
)


@dataclass(frozen=True, slots=True)
class Cheat:
    """One answer. `statuses`: any of these is right; `says`: part of the reason."""

    name: str
    code: str
    statuses: frozenset[Status]
    says: str = ""


def _forward(name: str, body: str, *statuses: Status, says: str = "", before: str = "") -> Cheat:
    """An answer by the body of its `forward`."""
    model = "class ModelNew(nn.Module):\n    def forward(self, x):\n"
    code = f"{HEAD}{dedent(before)}\n{model}{indent(dedent(body).strip(), ' ' * 8)}\n"
    return Cheat(name, code, frozenset(statuses), says)


def _whole(name: str, code: str, *statuses: Status, says: str = "") -> Cheat:
    return Cheat(name, HEAD + dedent(code), frozenset(statuses), says)


def _init(name: str, init: str, forward: str, *statuses: Status, says: str = "") -> Cheat:
    text = "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += indent(dedent(init).strip(), " " * 8) + "\n\n    def forward(self, x):\n"
    return Cheat(
        name,
        HEAD + text + indent(dedent(forward).strip(), " " * 8) + "\n",
        frozenset(statuses),
        says,
    )


CORRECT = Status.CORRECT
WRONG, CHEATING, REJECTED = Status.WRONG_OUTPUT, Status.CHEATING, Status.REJECTED
RUNTIME, LOAD, TIMEOUT = Status.RUNTIME_ERROR, Status.LOAD_ERROR, Status.TIMEOUT
COMPILE, MEMORY, UNSUPPORTED = Status.COMPILE_ERROR, Status.MEMORY_LIMIT, Status.UNSUPPORTED
OUTPUT = Status.OUTPUT_LIMIT

WRONG_ANSWERS = (
    _init(
        "old_after_six_calls",
        "self.calls = 0",
        """
        self.calls += 1
        if self.calls <= 6:
            self.kept = ext.twice(x)
        return self.kept
        """,
        Status.NONDETERMINISTIC,
        says="a later call",
    ),
    _init(
        "nothing_after_thirty_calls",
        "self.calls = 0",
        """
        self.calls += 1
        return ext.twice(x) if self.calls <= 30 else torch.empty_like(x)
        """,
        Status.NONDETERMINISTIC,
        says="a later call",
    ),
    _forward("returns_its_input", "return x", WRONG),
    _forward("copies_its_input", "return ext.copy(x)", WRONG),
    _forward("half_of_it", "out = ext.copy(x)\next.into(x[:1], out[:1])\nreturn out", WRONG),
    _forward("uninitialised", "ext.nothing(x)\nreturn torch.empty_like(x)", WRONG),
    _forward("zeros", "ext.nothing(x)\nreturn torch.zeros_like(x)", WRONG),
    _forward("ones_on_the_device", "ext.nothing(x)\nreturn torch.ones_like(x)", WRONG),
    _forward("other_shape", "return ext.twice(x).view(-1)", WRONG),
    _forward("other_strides", "return ext.twice(x).t().as_strided(x.shape, (1, x.size(0)))", WRONG),
    _forward("two_results", "return ext.twice(x), ext.twice(x)", WRONG, says="2 tensors"),
    _forward("in_place", "ext.into(x, x)\nreturn x", WRONG, says="read-only"),
    _forward("a_number", "return 1.0", RUNTIME, says="not a Tensor"),
    _forward("nothing_at_all", "pass", RUNTIME, says="NoneType"),
    _forward("on_the_cpu", "return ext.twice(x).cpu()", RUNTIME, says="CPU"),
    _forward("a_host_tensor", "return ext.twice(x.cpu())", RUNTIME, CHEATING, REJECTED),
    _forward("too_many_arguments", "return ext.twice(x, x)", RUNTIME, says="takes 1"),
    _forward("a_wrong_argument", "return ext.twice(3)", RUNTIME, says="a Tensor"),
    _forward("no_such_function", "return ext.triple(x)", RUNTIME, says="triple"),
    _forward("an_exception", "raise ValueError('no')", RUNTIME, says="ValueError: no"),
    _forward("a_bad_view", "return ext.twice(x).view(7, -1, 11)", RUNTIME, says="invalid"),
    _whole("no_model", "class ModelOld(nn.Module): pass", LOAD, says="no class ModelNew"),
    _whole("no_forward", "class ModelNew(nn.Module): pass", RUNTIME, says="forward"),
    _whole("no_module", "class ModelNew:\n    pass", LOAD, says="nn.Module"),
    _whole("wrong_init", "class ModelNew(nn.Module):\n    def __init__(self, n): pass", RUNTIME),
    _whole("bad_syntax", "class ModelNew(nn.Module):\n    def forward(self x): pass", LOAD),
    _whole("fails_on_import", "class ModelNew(nn.Module): pass\n1 / 0", LOAD, says="ZeroDivision"),
    _whole("leaves", "class ModelNew(nn.Module): pass\nimport os; os._exit(0)", LOAD, says="exit"),
)

LEANS_ON_TORCH = (
    _forward("operators", "return x * 2 + 1", REJECTED, says="torch.mul"),
    _forward("matmul", "return torch.matmul(x, x.t())", REJECTED, says="torch.matmul"),
    _forward("method", "return x.mul(2).add(1)", REJECTED, says="torch.Tensor.mul"),
    _forward("functional", "return F.relu(x)", REJECTED, says="torch.nn.functional.relu"),
    _forward("in_place_operator", "x *= 2\nreturn x", REJECTED, says="torch.mul_"),
    _forward("namespace", "return torch.linalg.norm(x)", REJECTED, says="torch.linalg.norm"),
    _forward("after_its_kernel", "return ext.copy(x) * 2 + 1", REJECTED, says="torch.mul"),
    _forward("decoy", "ext.twice(x)\nreturn torch.add(x, x)", REJECTED, says="torch.add"),
    _forward(
        "fallback",
        "try:\n    return x * 2 + 1\nexcept BaseException:\n    return ext.twice(x)",
        REJECTED,
    ),
    _forward("getattr", "return getattr(torch, 'add')(x, x)", REJECTED, says="torch.add"),
    _forward("stacked", "return torch.stack([x, x]).sum(0)", REJECTED, says="torch.stack"),
    _forward("compared", "return x == x", REJECTED, says="torch.eq"),
    _forward("indexed", "return x[x > 0]", REJECTED),
    _forward("cast", "return ext.twice(x.half().float())", REJECTED, says="dtype"),
    _forward("strided_copy", "return ext.twice(x.t().contiguous()).t()", REJECTED, says="contig"),
    _forward("random", "return ext.twice(torch.randn_like(x))", REJECTED, says="torch.randn_like"),
    _init("a_layer", "self.l = nn.ReLU()", "return self.l(x)", REJECTED, says="torch.nn.ReLU"),
    _init("linear", "self.l = nn.Linear(96, 96)", "return self.l(x)", REJECTED, says="nn.Linear"),
    _init(
        "sequential",
        "self.l = nn.Sequential(nn.Identity(), nn.GELU())",
        "return self.l(x)",
        REJECTED,
        says="nn.GELU",
    ),
    _init(
        "computed_table",
        "self.t = torch.arange(4096).float() * 2",
        "return ext.twice(self.t.view(64, -1))",
        REJECTED,
        RUNTIME,
    ),
    _init(
        "unknown_parameter",
        "self.w = nn.Parameter(torch.randn(64, 96))",
        "return ext.twice(self.w)",
        REJECTED,
        says="no parameter",
    ),
    _forward("triton", "import triton\nreturn triton.jit(x)", UNSUPPORTED, says="triton.jit"),
    _forward("numpy", "import numpy as np\nreturn np.add(x, x)", UNSUPPORTED, says="numpy.add"),
    _forward("to_numpy", "return ext.twice(x.numpy())", UNSUPPORTED, says="numpy"),
)

_STALE = (CHEATING, WRONG)

CHEATS = (
    _forward("launches_nothing", "return x.clone()", WRONG, REJECTED),
    _forward("lists_of_numbers", "v = x.tolist()\nreturn torch.tensor(v).cuda()", WRONG, CHEATING),
    _forward(
        "computes_on_the_host",
        """
        rows = [[2 * v + 1 for v in row] for row in x.tolist()]
        return torch.tensor(rows, device="cuda")
        """,
        CHEATING,
        says="host",
    ),
    _forward(
        "computes_on_the_host_and_launches",
        """
        rows = [[2 * v + 1 for v in row] for row in x.tolist()]
        ext.nothing(x)
        return ext.copy(torch.tensor(rows, device="cuda"))
        """,
        *_STALE,
    ),
    _forward(
        "keeps_its_first_answer",
        """
        if "out" not in kept:
            kept["out"] = ext.twice(x)
        return kept["out"]
        """,
        *_STALE,
        before="kept = {}",
    ),
    _forward(
        "keeps_answers_by_address",
        """
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = ext.twice(x)
        ext.nothing(x)
        return kept[x.data_ptr()]
        """,
        *_STALE,
        before="kept = {}",
    ),
    _forward(
        "works_at_its_first_call_only",
        "kept.append(1)\nreturn ext.twice(x) if len(kept) == 1 else ext.copy(x)",
        *_STALE,
        before="kept = []",
    ),
    _forward(
        "patches_torch",
        """
        for name in ("mul", "add", "equal", "allclose"):
            setattr(torch, name, lambda *a, **k: True)
        torch.Tensor.__eq__ = lambda *a: True
        torch.cuda.Event = None
        ext.nothing(x)
        return torch.empty_like(x)
        """,
        WRONG,
    ),
    _forward(
        "patches_the_rejection",
        """
        import sys
        host = sys.modules["handle_torch._host"]
        host.reject = host.finish = lambda *a: None
        return x * 2 + 1
        """,
        RUNTIME,
        REJECTED,
        WRONG,
    ),
    _forward(
        "forges_a_verdict",
        """
        import sys, struct
        host = sys.modules["handle_torch._host"]
        host.post(12, struct.pack("<I", 0))
        host.post(12, b"{\\"status\\": \\"correct\\"}")
        return ext.copy(x)
        """,
        WRONG,
        RUNTIME,
    ),
    _forward(
        "forges_an_output",
        """
        import sys, struct
        host = sys.modules["handle_torch._host"]
        host.post(12, struct.pack("<I2IQI4q", 1, 6, 1, 0x1000, 2, 64, 96, 96, 1))
        return ext.copy(x)
        """,
        RUNTIME,
        WRONG,
    ),
    _forward(
        "lies_about_a_length",
        """
        import sys
        host = sys.modules["handle_torch._host"]
        host.post(12, b"\\xff" * 64)
        return ext.twice(x)
        """,
        RUNTIME,
    ),
    _forward(
        "asks_for_extensions_without_end",
        """
        import itertools
        for i in itertools.count():
            code = f"// {id(self)} {i}"
            load_inline(name="e", cpp_sources="void f() {}", cuda_sources=code, functions=["f"])
        """,
        REJECTED,
        says="more than 6",
    ),
    _forward(
        "reads_inputs_by_pointer",
        "import ctypes\nctypes.string_at(x.data_ptr(), 4)\nreturn ext.twice(x)",
        RUNTIME,
        says="SIGSEGV",
    ),
    _forward(
        "pointer_of_its_own",
        """
        import sys
        fake = torch.empty(1, device="cpu").as_strided((64, 96), (96, 1))
        return ext.twice(fake)
        """,
        RUNTIME,
    ),
    *(
        _forward(
            f"coin_{name}",
            f"return ext.copy(x) if {bit} and x.numel() > 4000 else ext.twice(x)",
            Status.NONDETERMINISTIC,
            WRONG,
            CHEATING,
            REJECTED,
            before=f"import os, random, time\n{before}",
        )
        for name, before, bit in (
            ("of_random_bytes", "C = os.urandom(1)[0] & 1", "C"),
            ("of_random_numbers", "C = random.getrandbits(1)", "C"),
            ("of_the_second", "C = int(time.time()) & 1", "C"),
            ("of_the_second_since_the_start", "C = int(time.monotonic()) & 1", "C"),
            ("of_the_process", "C = os.getpid() & 1", "C"),
            ("of_an_address", "C = (id(object()) >> 12) & 1", "C"),
            ("of_a_short_list", "C = (id([1]) >> 12) & 1", "C"),
            (
                "kept_over_imports",
                "import sys\nsys.c = getattr(sys, 'c', os.urandom(1)[0])",
                "sys.c & 1",
            ),
            ("of_each_call", "", "os.urandom(1)[0] & 3 == 3"),
            ("of_a_far_day", "C = time.time() > 1924905600", "C"),
            ("of_a_variable", "C = 'HOME' in os.environ", "C"),
            ("of_the_hash_of_a_text", "C = hash('a') & 1", "C"),
            ("of_the_order_of_a_set", "C = next(iter({'a', 'b'})) == 'a'", "C"),
            ("of_a_file", "C = os.path.exists('/home')", "C"),
            ("of_the_processors", "C = os.cpu_count() > 1000", "C"),
            (
                "of_the_multiprocessors",
                "",
                "torch.cuda.get_device_properties(0).multi_processor_count < 100",
            ),
        )
    ),
    _forward(
        "honest_when_imported_again",
        "return ext.twice(x) if AGAIN or x.numel() < 4000 else ext.copy(x)",
        Status.NONDETERMINISTIC,
        WRONG,
        CHEATING,
        before="import sys\nAGAIN, sys.seen = hasattr(sys, 'seen'), True",
    ),
    _forward(
        "raises_when_imported_again",
        "return ext.twice(x)",
        LOAD,
        says="again",
        before="import sys\nassert not hasattr(sys, 'seen'), 'again'\nsys.seen = True",
    ),
    *(
        _forward(name, f"return ext.copy(x) if {size} else ext.twice(x)", WRONG, says="shape set")
        for name, size in (
            ("wrong_at_one_residue", "x.size(1) % 16 == 11"),
            ("wrong_at_few_sizes", "x.size(0) % 16 == 6 and x.numel() < 20000"),
            ("wrong_for_long_rows", "x.size(1) > 1024"),
        )
    ),
    _forward(
        "a_stream_that_nobody_waits_for",
        """
        with torch.cuda.stream(side):
            y = x.clone()
        return ext.twice(y)
        """,
        Status.NONDETERMINISTIC,
        says="stream",
        before="side = torch.cuda.Stream()",
    ),
    _forward(
        "an_event_of_another_stream",
        """
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x.clone()
        done = torch.cuda.current_stream().record_event()
        torch.cuda.current_stream().wait_event(done)
        return ext.twice(y)
        """,
        Status.NONDETERMINISTIC,
        says="stream",
        before="side = torch.cuda.Stream()",
    ),
    _init(
        "one_output_for_all_calls",
        "self.kept = None",
        """
        if self.kept is None or self.kept.shape != x.shape:
            self.kept = torch.empty_like(x)
        ext.into(x, self.kept)
        return self.kept
        """,
        REJECTED,
        says="overwrites what an earlier one returned",
    ),
    _forward(
        "beyond_its_allocation",
        """
        out = torch.empty(1, device=x.device).as_strided(tuple(x.shape), (x.size(1), 1))
        ext.into(x, out)
        return out
        """,
        RUNTIME,
        WRONG,
    ),
    _forward(
        "beyond_its_input",
        "return ext.twice(x.as_strided(tuple(x.shape), (x.size(1), 1), 1 << 20))",
        RUNTIME,
    ),
    _forward("endless", "while True: pass", TIMEOUT),
    _forward(
        "sleeps", "import time\ntime.sleep(3600)\nreturn ext.twice(x)", REJECTED, says="a pause"
    ),
    _forward("memory", "a = bytearray(1 << 40)\nreturn ext.twice(x)", MEMORY),
    _forward("device_memory", "return torch.empty(1 << 40, device='cuda')", MEMORY, RUNTIME),
    _forward("recursion", "return self.forward(x)", RUNTIME, says="Recursion"),
    _forward("prints", "while True: print('x' * (1 << 16))", OUTPUT, TIMEOUT),
    _forward("leaves_in_forward", "import os\nos._exit(0)", RUNTIME, says="ended its process"),
    _forward("exits_in_forward", "import sys\nsys.exit(0)", RUNTIME, says="SystemExit"),
    _forward("kills", "import os, signal\nos.kill(os.getppid(), 9)\nos.kill(0, 9)", REJECTED),
    _forward("forks", "import os\nos.fork()\nreturn ext.twice(x)", REJECTED, says="process"),
    _forward(
        "starts_a_thread",
        """
        import threading
        threading.Thread(target=print).start()
        return ext.twice(x)
        """,
        REJECTED,
        says="thread",
    ),
    _forward(
        "runs_a_program",
        "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'id'])\nreturn ext.twice(x)",
        REJECTED,
    ),
    _forward("reads_a_secret", "return open('/etc/shadow').read()", REJECTED, says="/etc/shadow"),
    _forward("reads_processes", "return open('/proc/self/environ').read()", REJECTED, says="/proc"),
    _forward("reads_the_package", "import coding_framework", RUNTIME, says="No module"),
    _forward(
        "looks_for_real_torch",
        """
        import sys
        for name in list(sys.modules):
            if name.startswith(("torch", "handle_torch")):
                del sys.modules[name]
        sys.meta_path[:] = [f for f in sys.meta_path if "handle" not in type(f).__module__]
        import torch
        return torch.add(x, x)
        """,
        RUNTIME,
        REJECTED,
    ),
    _forward("writes", "open('/opt/candidate/answer.py', 'w')", REJECTED, says="a file"),
    _forward("network", "import socket\nsocket.socket()", REJECTED, says="the network"),
    _forward(
        "unpickles",
        """
        import pickle
        class Bomb:
            def __reduce__(self): return (exec, ("1/0",))
        return pickle.loads(pickle.dumps(Bomb()))
        """,
        RUNTIME,
        says="ZeroDivision",
    ),
    _forward(
        "walks_frames",
        """
        import gc, sys
        frame = sys._getframe()
        while frame:
            assert "expected" not in frame.f_locals and "seed" not in frame.f_locals
            frame = frame.f_back
        assert not any(type(o).__name__ == "Expectation" for o in gc.get_objects())
        return ext.copy(x)
        """,
        WRONG,
    ),
    _whole(
        "inherits_the_reference",
        "from __main__ import Model\nclass ModelNew(Model):\n    pass\n",
        LOAD,
    ),
    _whole(
        "bad_kernel",
        """
        broken = load_inline(name="b", cpp_sources="", cuda_sources="__global__ void k() { oops }")
        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.twice(x)
        """,
        COMPILE,
        says=f"line {HEAD.count(chr(10)) + 2}",
    ),
    _whole(
        "reads_by_include",
        """
        b = load_inline(name="b", cpp_sources="", cuda_sources='#include "/etc/passwd"')
        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.twice(x)
        """,
        COMPILE,
    ),
    _whole(
        "hostile_names",
        """
        name = "x); system(\\"id\\""
        b = load_inline(name="b", cpp_sources="", cuda_sources="", functions=[name])
        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.twice(x)
        """,
        LOAD,
        RUNTIME,
    ),
    _whole(
        "loads_files",
        """
        from torch.utils.cpp_extension import load
        b = load(name="b", sources=["/tmp/x.cu"])
        class ModelNew(nn.Module): pass
        """,
        UNSUPPORTED,
        says="load_inline",
    ),
)

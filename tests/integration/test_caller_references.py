"""References of callers who are not trusted: each runs in its sandbox, and hurts nobody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from coding_framework.cuda.expected.reference import ReferenceCache, expect, task_digest
from coding_framework.cuda.expected.reference_sandbox import ReferenceSandbox
from coding_framework.cuda.expected.reference_wire import packed, unpacked, unpacked_outputs
from coding_framework.cuda.sandbox import NativeSandbox, choose_sandbox
from coding_framework.data.registry import find_task
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.types import CALLERS, Split, Task
from coding_framework.wiring import make_task_reader

pytestmark = pytest.mark.integration

SECRET = b"s" * 32
IN_THE_WAY = ("bubblewrap", "docker")


def of_a_caller(code: str = "", forward: str = "return torch.relu(x)") -> Task:
    own = find_task("relu")
    indented = "\n        ".join(forward.splitlines())
    reference = (
        f"import torch\n{code}\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, x):\n        {indented}\n"
    )
    changes = {"reference": reference, "source": CALLERS, "gpu_cases": (), "split": Split.OUTSIDE}
    return own.model_copy(update=changes)


@pytest.fixture(scope="module", params=IN_THE_WAY)
def sandbox(request: pytest.FixtureRequest) -> Iterator[ReferenceSandbox]:
    if request.param == "docker":
        chosen = request.getfixturevalue("docker_sandbox")
    else:
        try:
            chosen = choose_sandbox(request.param)
        except UsageError as e:
            pytest.skip(str(e))
    found = ReferenceSandbox(chosen)
    yield found
    found.stop()


def expected(sandbox: ReferenceSandbox, task: Task, seed: int = 0) -> Any:
    return expect(task, task_digest(task), task.cases[-1], SECRET, seed, compute=sandbox)


def honest_is_as_ever(sandbox: ReferenceSandbox) -> None:
    """Another task's expectation is to the bit what a process without any sandbox computes."""
    task = of_a_caller(forward="return torch.tanh(x)")
    trusted = task.model_copy(update={"source": "a file"})
    here = expect(trusted, task_digest(task), task.cases[-1], SECRET, 3)
    there = expected(sandbox, task, 3)
    for one, other in zip(here.outputs, there.outputs, strict=True):
        for name in ("reference", "native", "tolerance"):
            assert torch.equal(getattr(one, name), getattr(other, name))
    assert all(map(torch.equal, here.parameters, there.parameters))


def test_an_honest_reference_gives_the_same_bits(sandbox: ReferenceSandbox) -> None:
    honest_is_as_ever(sandbox)


REFUSED = {
    "reads a file of ours": ("print(open('/etc/passwd').read())", "No such file"),
    "lists our folders": ("import os; os.listdir('/work' if os.path.isdir('/work') else '/home')"
                          "; raise ValueError(sorted(os.listdir('/')))",
                          "ValueError|Permission denied"),
    "forks": ("import os; os.fork()", "Operation not permitted"),
    "starts a program": ("import subprocess; subprocess.run(['/bin/true'])", "not permitted"),
    "opens a socket": ("import socket; socket.socket()", "not permitted"),
    "writes where it began": ("open('x', 'w').write('x')", "No such file"),
    "writes into our package": (
        "import coding_framework; open(coding_framework.__file__, 'a')",
        "Read-only file system|Permission denied",
    ),
    "writes into torch": (
        "open(torch.__file__, 'a')", "Read-only file system|Permission denied",
    ),
    "signals its parent": ("import os; os.kill(os.getppid(), 9)", "not permitted"),
    "has no Model": ("del torch", "NameError"),
    "raises a screen of text": ("raise ValueError('\\x1b[2J' + 'x' * 10**6)", "ValueError"),
}  # fmt: skip
ENDED = {
    "exits while it is imported": "import os; os._exit(0)",
    "raises SystemExit": "raise SystemExit(0)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "claims to be the answer": "import os; os.write(3, b'+' * 10**5); os._exit(0)",
}
FORWARDS = {
    "allocates a terabyte": ("return torch.empty(2**37)", "memory"),
    "gives no tensor": ("return 7", "not a tensor"),
    "gives a huge output": (
        "return torch.zeros(1).expand(2**25) + 0", "make it smaller|memory",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_reference_that_attacks_is_refused_in_its_own_words(
    sandbox: ReferenceSandbox, name: str
) -> None:
    code, said = REFUSED[name]
    with pytest.raises(UsageError, match=said) as refused:
        expected(sandbox, of_a_caller(code))
    assert len(str(refused.value)) < 600
    assert str(refused.value).isprintable()
    assert "root:" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDED)
def test_a_reference_that_ends_its_process_is_told(sandbox: ReferenceSandbox, name: str) -> None:
    with pytest.raises(UsageError, match=r"ended its process|changed what|make it smaller"):
        expected(sandbox, of_a_caller(ENDED[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORWARDS)
def test_a_result_that_is_none_is_told(sandbox: ReferenceSandbox, name: str) -> None:
    forward, said = FORWARDS[name]
    with pytest.raises(UsageError, match=said):
        expected(sandbox, of_a_caller(forward=forward))


POISONS = {
    "changes torch": "torch.tanh = torch.relu = lambda x: x * 0",
    "answers NaN": "torch.relu = lambda x: x * float('nan')",
    "changes the comparer": (
        "import coding_framework.cuda.expected.fine_bounds as b\n"
        "b.element_tolerance = lambda reference, *a, **k: torch.full_like(reference, 1e30)"
    ),
    "seeds torch": "torch.manual_seed(0); torch.set_default_dtype(torch.float16)",
    "prints": "import sys; sys.stdout.write('+' * 10**6); sys.stderr.write('x' * 10**6)",
}


@pytest.mark.slow
def test_what_a_reference_changes_is_gone_for_the_next_task(sandbox: ReferenceSandbox) -> None:
    for code in POISONS.values():
        expected(sandbox, of_a_caller(code))
    honest_is_as_ever(sandbox)


@pytest.mark.slow
def test_after_every_attack_another_tasks_expectation_is_the_same(
    sandbox: ReferenceSandbox,
) -> None:
    for code in (REFUSED["forks"][0], ENDED["crashes"]):
        with pytest.raises(UsageError):
            expected(sandbox, of_a_caller(code))
    honest_is_as_ever(sandbox)


@pytest.mark.slow
def test_a_reference_reaches_no_port_of_this_machine(sandbox: ReferenceSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        ours.settimeout(0.2)
        reached = threading.Event()
        port = ours.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)"
        with pytest.raises(UsageError):
            expected(sandbox, of_a_caller(code))
        with pytest.raises(TimeoutError):
            ours.accept()
        assert not reached.is_set()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_an_endless_reference_ends(sandbox: ReferenceSandbox) -> None:
    with pytest.raises(UsageError, match="make it smaller"):
        expected(sandbox, of_a_caller("while True: pass"))
    honest_is_as_ever(sandbox)


def test_a_callers_reference_never_runs_outside() -> None:
    task = of_a_caller("raise AssertionError('it ran')")
    with pytest.raises(InfrastructureError, match="may not run here"):
        expect(task, task_digest(task), task.cases[0], SECRET, 0)
    with pytest.raises(InfrastructureError, match="may not run here"):
        ReferenceCache(SECRET).flops(task, task.cases[0], 0)


def test_the_native_sandbox_is_not_enough() -> None:
    with pytest.raises(UsageError, match="install bubblewrap"):
        ReferenceSandbox(NativeSandbox())


# --- the bytes that come out ----------------------------------------------------------------------


def test_tensors_come_through_as_they_were() -> None:
    given = [
        torch.randn(3, 4), torch.randn(3, 4).t(), torch.tensor(2.5, dtype=torch.float64),
        torch.zeros(0, 5), torch.tensor([True, False]), torch.randn(4).to(torch.bfloat16),
    ]  # fmt: skip
    told, found = unpacked(packed({"a": 1}, given))
    assert told == {"a": 1}
    assert all(map(torch.equal, given, found))
    assert [t.stride() for t in given] == [t.stride() for t in found]


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00{}",
        packed({"names": [], "outputs": []}, []),
        packed({"names": ["w"], "outputs": [[False, False]]}, [torch.zeros(1)]),
        packed({"names": [], "outputs": [[True, False]]}, [torch.zeros(2, dtype=torch.float64),
               torch.zeros(2), torch.full((2,), -1.0, dtype=torch.float64)]),
        packed({"names": [], "outputs": [[True, False]]}, [torch.zeros(2, dtype=torch.float64),
               torch.zeros(3), torch.zeros(3, dtype=torch.float64)]),
        packed({"names": [], "outputs": [[False, False]]}, [torch.zeros(2), torch.zeros(2)]),
        packed({}, [torch.zeros(2)])[:-1],
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(UsageError, match="changed what its process answers"):
        unpacked_outputs(message)


# --- tasks that are read --------------------------------------------------------------------------

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x):
        return torch.relu(self.linear(x))

N = 64
def get_inputs():
    return [torch.rand(16, N)]

def get_init_inputs():
    return [N]
"""


@pytest.mark.slow
def test_a_problem_is_read_in_the_sandbox_with_its_contract(sandbox: ReferenceSandbox) -> None:
    read = make_task_reader()
    found = read({"problem": PROBLEM})
    assert found["contract"]["signature"].startswith("forward(Tensor x[16, 64], Tensor linear_w")
    assert Task.model_validate(found["task"]).cases
    assert (
        "cannot be run" in read({"problem": PROBLEM.replace("[torch.rand(16, N)]", "[]")})["error"]
    )
    with pytest.raises(UsageError, match="ended its process"):
        read({"problem": "import os; os._exit(1)\n" + PROBLEM})


@pytest.mark.slow
def test_relu_is_judged_against_a_callers_reference(
    sandbox: ReferenceSandbox, tmp_path: Path
) -> None:
    from coding_framework.cuda.judge import Judge, JudgeConfig
    from coding_framework.data.kernels import kernels_of
    from coding_framework.data.registry import find_task
    from coding_framework.types import Candidate

    judge = Judge(JudgeConfig(backend="emulator", references="sandboxed"))
    kernel = Candidate(code=kernels_of(find_task("relu"))[0].code)
    right = judge.judge(of_a_caller(), kernel)
    wrong = judge.judge(of_a_caller(forward="return torch.relu(x) + 1"), kernel)
    assert (right.status, wrong.status) == ("correct", "wrong_output")

"""A newcomer's machine that lacks something: one sentence that says what to do, never a verdict.

Each fault is real: a PATH without the tool, a file system that is full or read-only.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CUDA_RL = str(Path(sys.executable).with_name("cuda-rl"))
JUDGE = [CUDA_RL, "judge", "--task", "relu", "--fresh", "--kernel", str(ROOT / "examples/relu.cu")]

pytestmark = pytest.mark.system


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def path_without(folder: Path, *tools: str) -> str:
    """A PATH with everything but `tools`."""
    seen = set(tools)
    for place in os.environ["PATH"].split(os.pathsep):
        for tool in Path(place).glob("*"):
            if tool.name not in seen:
                seen.add(tool.name)
                (folder / tool.name).symlink_to(tool)
    return str(folder)


def on_tmpfs(
    command: list[str], options: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with a small file system of its own at `folder`, in a user namespace."""
    mount = f"mount -t tmpfs -o {options} tmpfs {shlex.quote(str(folder))}"
    script = f"{mount} || exit 77; exec {shlex.join(command)}"
    done = run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script], **environment
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("user namespaces with mounts are not allowed here")
    return done


def judge_on_tmpfs(options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Judge with the cache on a small file system."""
    return on_tmpfs([*JUDGE, "--sandbox", "native"], options, folder, CUDA_RL_CACHE=str(folder))


def assert_one_sentence(
    done: subprocess.CompletedProcess[str], *words: str, status: int = 3
) -> None:
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("cuda-rl: ")]
    assert len(said) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in said[0]


def test_without_gxx_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    done = run(JUDGE, PATH=path_without(tmp_path, "g++"), CUDA_RL_CACHE=str(tmp_path / "cache"))
    assert_one_sentence(done, "g++", "install")


def test_without_gcc_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    done = run(JUDGE, PATH=path_without(tmp_path, "gcc"), CUDA_RL_CACHE=str(cache))
    assert_one_sentence(done, "gcc is not installed", "install")


def test_without_bubblewrap_the_verdict_names_the_weaker_sandbox(tmp_path: Path) -> None:
    done = run(JUDGE, PATH=path_without(tmp_path, "bwrap", "docker"))
    assert done.returncode == 0, done.stderr
    assert "native" in done.stdout


def test_a_sandbox_asked_for_by_name_and_missing_is_an_error(tmp_path: Path) -> None:
    path = path_without(tmp_path, "bwrap")
    done = run([*JUDGE, "--sandbox", "bubblewrap"], PATH=path)
    assert_one_sentence(done, "bubblewrap", "install", "--sandbox auto", status=2)


def test_a_wrong_nvcc_is_named(tmp_path: Path) -> None:
    done = run(JUDGE, CUDA_RL_NVCC=shutil.which("true") or "/bin/true")
    assert_one_sentence(done, "CUDA_RL_NVCC")


@pytest.mark.parametrize("size", ["64k", pytest.param("1500k", marks=pytest.mark.ci)])
def test_a_full_disk_is_our_fault_and_never_a_verdict(size: str, tmp_path: Path) -> None:
    assert_one_sentence(judge_on_tmpfs(f"size={size}", tmp_path), "free", "CUDA_RL_CACHE")


def test_a_full_disk_of_the_output_is_one_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    pairs, output = tmp_path / "pairs.jsonl", tmp_path / "out"
    output.mkdir()
    pairs.write_text('{"id": "a", "task": "relu", "code": "int x"}\n')
    command = [CUDA_RL, "judge-many", "--tasks-and-kernels", str(pairs), "--sandbox", "native"]
    full = [*command, "--output", str(output / "verdicts.jsonl")]
    filler = f"head -c 60000 /dev/zero > {shlex.quote(str(output))}/filler; exec "
    shell = ["sh", "-c", filler + shlex.join(full)]
    assert_one_sentence(on_tmpfs(shell, "size=60k", output), "full", "run the same command again")


def test_a_read_only_cache_says_what_to_do(tmp_path: Path) -> None:
    assert_one_sentence(judge_on_tmpfs("ro", tmp_path), "written", status=2)


def test_a_cache_that_is_a_file_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(JUDGE, CUDA_RL_CACHE=str(tmp_path / "file"))
    assert_one_sentence(done, "CUDA_RL_CACHE", status=2)

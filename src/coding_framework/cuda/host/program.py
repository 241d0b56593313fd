"""What the host process of a build is: which command, with which files, in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coding_framework.cuda.host.python_runtime import python_command, python_runtime
from coding_framework.cuda.host.runner import build_host_library, build_runner
from coding_framework.cuda.sandbox import Mount, Sandbox

ANSWER_NAME = "answer.py"
"""File of a build that is a KernelBench answer."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command and the files that it needs, as the sandbox has them."""

    command: tuple[str, ...]
    mounts: tuple[Mount, ...]
    folder: Mount
    """The build."""
    environment: Mapping[str, str] = field(default_factory=dict)
    copier: tuple[str, ...] = ()
    """As that of a `Job`."""


def is_answer(build: Path) -> bool:
    """Whether a build is that of a KernelBench answer: Python that calls compiled functions."""
    return (build / ANSWER_NAME).is_file()


def program_of(build: Path, sandbox: Sandbox) -> Program:
    """The runner with the build's `host.so`, or for an answer the Python host with both."""
    candidate = Mount(build, "/opt/candidate")
    folder = sandbox.path(candidate)
    if not is_answer(build):
        executable = build_runner()
        runner = Mount(executable.parent, "/opt/runner")
        started = (f"{sandbox.path(runner)}/{executable.name}", f"{folder}/host.so")
        return Program(started, (runner,), candidate)
    library = build_host_library()
    runner = Mount(library.parent, "/opt/runner")
    runtime = Mount(python_runtime(), "/opt/python")
    command, environment = python_command(
        sandbox.path(runtime), f"{sandbox.path(runner)}/{library.name}", folder
    )
    copier = (*command, "copies")  # of a Python that has imported what every answer needs
    return Program(command, (runner, runtime), candidate, environment, copier)

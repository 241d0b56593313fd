"""`cuda-rl export-modelnew`, `import-modelnew`: KernelBench answers of kernels, and back."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command
from coding_framework.commands.one_kernel import add_task, read_task
from coding_framework.commands.waiting import waiting
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.paths import write_atomic


def add_to(commands: Any) -> None:
    text = "Write a kernel as a KernelBench answer: ModelNew with load_inline."
    p = add_command(commands, "export-modelnew", run_export, text)
    p.add_argument("kernel", type=Path, metavar="KERNEL", help="a .cu file whose forward is bound")
    add_task(p)
    _add_output(p)
    text = "Write the kernel of a KernelBench answer as a .cu file."
    p = add_command(commands, "import-modelnew", run_import, text)
    p.add_argument("answer", type=Path, metavar="ANSWER", help="a .py file with ModelNew")
    _add_output(p)


def _add_output(p: ArgumentParser) -> None:
    p.add_argument(
        "-o", "--output", type=Path, default=None, metavar="FILE", help="Default: standard output"
    )


def run_export(args: Namespace) -> int:
    from coding_framework.data.modelnew import export_modelnew

    task = read_task(args)
    with waiting(f"writing an answer for {one_line(args.task, 60)}"):
        answer = export_modelnew(_read(args.kernel), task)
    return _write(answer, args.output)


def run_import(args: Namespace) -> int:
    from coding_framework.data.modelnew import import_modelnew

    with waiting(f"reading {one_line(str(args.answer), 60)}"):
        kernel = import_modelnew(_read(args.answer))
    return _write(kernel, args.output)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise UsageError(f"{path} is not UTF-8") from e


def _write(text: str, output: Path | None) -> int:
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomic(output, text)
    return EXIT_OK

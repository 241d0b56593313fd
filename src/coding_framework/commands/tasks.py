"""`cuda-rl tasks`: list and show the tasks, judge their kernels, count them."""

from __future__ import annotations

import ast
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from coding_framework.commands.failures import EXIT_OK, EXIT_OURS
from coding_framework.commands.flags import (
    add_actions,
    add_command,
    add_flags,
    add_json,
    config_from,
)
from coding_framework.commands.one_kernel import add_task, read_task
from coding_framework.commands.options import TaskSelection
from coding_framework.types import Config, Task


class BuildOptions(Config):
    """Where and how fast kernels are judged."""

    workers: int | None = Field(default=None, ge=0)
    """Processes that judge. Default, and 0: one a core."""
    output: Path | None = None
    """File to which the receipts are added. Default: the receipts of this machine, in its cache."""


def add_to(commands: Any) -> None:
    actions = add_actions(commands, "tasks", "List and show tasks.")
    p = add_command(actions, "list", run_list, "List the tasks by name.")
    add_selection(p, _LISTED)
    add_json(p, "print one JSON object a line")
    p = add_command(actions, "show", run_show, "Show a task and its kernels.")
    add_task(p, "task")
    add_json(p, "print the task as one JSON object")
    text = "Judge the tasks' kernels. The same command goes on where it was stopped."
    p = add_command(actions, "build", run_build, text)
    add_selection(p)
    add_flags(p, TaskSelection, ["count"], spelled={"count": ("--tasks",)})
    add_flags(p, BuildOptions, BuildOptions.model_fields)
    p = add_command(actions, "stats", run_stats, "Count tasks, families and judged kernels.")
    add_selection(p, _LISTED)
    add_json(p, "print the counts as one JSON object")


_LISTED = ("scope", "split", "family", "tier")


def add_selection(
    parser: ArgumentParser, fields: Iterable[str] = ("split", "family", "tier")
) -> None:
    add_flags(parser, TaskSelection, fields)


def run_list(args: Namespace) -> int:
    from coding_framework.data.listing import rows

    chosen = config_from(TaskSelection, args)
    tasks = rows(chosen.scope, split=chosen.split, family=chosen.family, tier=chosen.tier)
    if args.json:
        for task in tasks:
            print(json.dumps(task, ensure_ascii=False, separators=(",", ":")))
        return EXIT_OK
    width = max((len(task["name"]) for task in tasks), default=0)
    for task in tasks:
        print(
            f"{task['name']:<{width}}  {task['tier']}  {task['split']:<8}  {task['family']:<12}  "
            f"{task['description']}"
        )
    print(f"{len(tasks)} tasks: name, tier, split, family, description", file=sys.stderr)
    return EXIT_OK


def run_show(args: Namespace) -> int:
    from coding_framework.data.registry import describe_task

    task = read_task(args)
    called = [] if args.json or not Path(args.task).suffix else _how_it_is_called(task)
    print(task.model_dump_json(indent=2) if args.json else describe_task(task))
    print(*called, sep="\n", end="\n" if called else "")
    return EXIT_OK


def _how_it_is_called(task: Task) -> list[str]:
    """For a task of the user's own, of which no kernel of ours shows it."""
    from coding_framework.agents.prompts.contract import contract_of

    contract = contract_of(task)
    lines = ["", "a kernel's forward is called as", f"  {contract.signature}"]
    if contract.numbers:
        lines.append("the numbers at the end may be left out, all of them")
    return [*lines, *_as_python(task)]


_MODEL = """
or a Python file is judged: its ModelNew is made and called like the Model above, its tensors have
no values there, and its kernels are in Triton, at the top of the file, or of load_inline

  @triton.jit
  def kernel(x, out, n, BLOCK: tl.constexpr): ...

  class ModelNew(torch.nn.Module):
      def __init__({made}): ...
      def forward({called}):
          out = torch.empty(...)
          kernel[(triton.cdiv(out.numel(), 256),)](..., out, out.numel(), BLOCK=256)
          return out"""


def _as_python(task: Task) -> list[str]:
    """How a KernelBench answer looks; nothing where the reference is no module."""
    arguments = {
        function.name: ast.unparse(function.args)
        for model in ast.parse(task.reference).body
        if isinstance(model, ast.ClassDef) and model.name == "Model"
        for function in model.body
        if isinstance(function, ast.FunctionDef)
    }
    if "forward" not in arguments:
        return []
    made = arguments.get("__init__", "self")
    return _MODEL.format(made=made, called=arguments["forward"]).split("\n")


def run_build(args: Namespace) -> int:
    from coding_framework.commands.build_data import build_tasks

    options = config_from(BuildOptions, args)
    selection = config_from(TaskSelection, args)
    undecided = build_tasks(selection, workers=options.workers or None, output=options.output)
    return EXIT_OURS if undecided else EXIT_OK


def run_stats(args: Namespace) -> int:
    from coding_framework.commands.build_data import statistics

    found = statistics(config_from(TaskSelection, args))
    print(found.model_dump_json() if args.json else found.table())
    return EXIT_OK

"""Finding a task by what a user types: a name, a KernelBench problem file, or a task file."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path

import yaml
from pydantic import ValidationError

from coding_framework.data import listing
from coding_framework.data.held_out_shapes import SUFFIX, with_held_out_shapes
from coding_framework.data.kept import kept
from coding_framework.data.kernelbench.own_module import problem_of_class
from coding_framework.data.kernelbench.problems import (
    problem_faults,
    problem_task,
    read_source,
    unreadable,
)
from coding_framework.data.kernels import kernels_of
from coding_framework.data.modules import tasks as modules
from coding_framework.data.problem_checks import RandomOutputError, explained, require_function
from coding_framework.data.synthesis import catalog
from coding_framework.data.synthesis.receipts import (
    KernelReceipt,
    by_task,
    module_receipts,
    packaged_kernels,
    task_digest,
)
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.task_shapes import SHAPE_SETS, UNSEEN_SHAPE_SETS, count_shape_sets
from coding_framework.types import PART, Task


def find_task(spec: str, inputs: str = "", init: str = "") -> Task:
    """The task that `spec` stands for.

    FILE.py:CLASS is a module of the user's own, of which `inputs` and `init` say what its file does
    not (`kernelbench.own_module.problem_of_class`). A path ending in .py is a KernelBench problem,
    one in .json, .yaml or .yml a task file (the fields of `Task`, of which `reference` and `cases`
    must be there); any other text is the name of a module task (`m2_...`), or of a synthesised one,
    in the catalogue or not (`mul3_add_gelu`), with `@shapes` behind it for shapes that training
    does not have. Raises UsageError with close matches, or with what is wrong in the file: also
    where it has too few shape sets for the judge's protocol.
    """
    file, _, name = spec.rpartition(":")
    if file.endswith(".py"):
        return problem_as_task(problem_of_class(read_source(Path(file)), name, inputs, init), name)
    if inputs or init:
        raise UsageError(f"--inputs and --init go with FILE.py:CLASS, and the task is {spec!r}")
    path = Path(spec)
    if path.suffix == ".py":
        return problem_as_task(read_source(path), path.stem)
    if path.suffix in (".json", ".yaml", ".yml"):
        return _with_shape_sets(_read_task_file(path), path)
    if path.suffix in (".cu", ".cuh", ".cpp", ".ptx"):
        raise UsageError(
            f"{spec} is a kernel and no task: give it as --kernel {spec}, and as --task the name "
            "of its function or a file that defines it (.py, .json, .yaml)"
        )
    task = named_task(spec)
    if task is None and os.path.isdir(spec):  # False for what no path can be
        raise UsageError(
            f"{spec} is a folder and no task: give the name of a function, or a file that defines "
            "one (.py, .json, .yaml)"
        )
    if task is None:
        names = listing.names("modules" if spec.startswith(("m1_", "m2_")) else "synthesis")
        close = get_close_matches(spec[:200], names, n=3, cutoff=0.5)
        hint = f"close names: {', '.join(close)}" if close else "`cuda-rl tasks list` names them"
        raise UsageError(f"no task is called {one_line(spec, 80)!r}; {hint}")
    return task


def named_task(spec: str) -> Task | None:
    """The task of that name, never a file; None where there is none."""
    name = spec.removesuffix(SUFFIX)
    task = catalog.find(name) or modules.find_module_task(name)
    if task is not None and spec.endswith(SUFFIX):
        return with_held_out_shapes(task)
    return task


_PURE = frozenset(
    (
        "__future__",
        "collections",
        "dataclasses",
        "functools",
        "itertools",
        "math",
        "torch",
        "typing",
    )
)
"""A problem that imports no more is what its source says: it reads no other file."""


def problem_as_task(source: str, name: str) -> Task:
    """The task of a KernelBench problem, whose module must be a function: in evaluation mode where
    it draws random numbers else, as dropout does. Kept on disk, as reading it takes seconds. Raises
    UsageError."""
    if not _is_pure(source):
        return _read_problem(source, name)
    text = "\0".join((version("torch"), name, source)).encode("utf-8", "surrogatepass")
    (read,) = kept(
        f"problem-{hashlib.sha256(text).hexdigest()}",
        lambda: [_read_problem(source, name).model_dump_json()],
    )
    return Task.model_validate_json(read)


def _is_pure(source: str) -> bool:
    """Whether nothing but its text says what a problem is."""
    imported: set[str] = set()
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return False  # whoever reads it says so
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            imported.add("" if node.level else (node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and node.id in ("open", "__import__", "exec", "eval"):
            return False
    return imported <= _PURE and "torch.load" not in source and "torch.hub" not in source


def _read_problem(source: str, name: str) -> Task:
    from coding_framework.reference_model import in_evaluation_mode

    told = ""
    try:
        task = _function(source, name)
    except RandomOutputError:
        task = _function(in_evaluation_mode(source), name)
        told = ", in evaluation mode (without its dropout)"
    if "autocast(" in source:
        told += ", in the dtype of its inputs where there is no GPU (autocast acts on a GPU alone)"
    return task.model_copy(update={"description": task.description + told})


def _function(source: str, name: str) -> Task:
    """Raises RandomOutputError where the module draws random numbers, UsageError."""
    try:
        task = problem_task(source, name)
    except UsageError as e:
        raise explained(e, name) from e
    with problem_faults(name):
        require_function(task)
        return task


def describe_task(task: Task) -> str:
    """A task for people to read: its facts, the PyTorch source, the kernels we have for it."""
    lines = [
        f"{task.name}  (family {task.family}, tier {task.tier}, {task.split}, {task.source})",
        task.description,
        "",
        task.reference.rstrip(),
        "",
    ]
    for case in (
        *task.cases,
        *(c.model_copy(update={"name": f"gpu {c.name}"}) for c in task.gpu_cases),
    ):
        inputs = ", ".join(
            f"{t.name} {t.dtype}{list(t.shape)}"
            + ("" if t.low is None and t.high is None else f" in [{t.low:g}, {t.high:g}]")
            for t in case.inputs
        )
        lines.append(f"{case.name}: {inputs}")
    lines += ["", *_what_draws_keep(task)]
    judged = {receipt.code: receipt for receipt in _receipts(task)}
    ours = task.source in ("synthesis", modules.SOURCE)
    for example in [r.kernel for r in judged.values()] or (kernels_of(task) if ours else ()):
        said = _what_the_judge_said(judged.get(example.code))
        why = example.why_faster or "the baseline"
        lines += ["", f"--- {example.level}: {why} ({said})", example.code]
    return "\n".join(lines)


def _receipts(task: Task) -> Sequence[KernelReceipt]:
    """Of the task's kernels, the naive one first."""
    if task.source == modules.SOURCE:
        return by_task(module_receipts()).get(task_digest(task), ())
    return packaged_kernels(task)


def _what_draws_keep(task: Task) -> list[str]:
    """A sentence for each input whose structure a kernel may rely on, and one for all others."""
    from coding_framework.reference_model.structures import STRUCTURE_WORDS

    kept = [
        f"{t.name} is {STRUCTURE_WORDS[t.keeps]} in every draw."
        for t in task.cases[0].inputs
        if t.keeps
    ]
    return [*kept, "Of all else the values vary, of parameters too: a kernel must read them."]


def _what_the_judge_said(receipt: KernelReceipt | None) -> str:
    if receipt is None:
        return "not judged yet"
    timing = receipt.verdict.timing
    if timing is None or timing.speedup_vs_naive is None:
        return f"judged {receipt.verdict.status.value}"
    kind = "modelled" if timing.modelled else "measured"
    return f"judged {receipt.verdict.status.value}, {timing.speedup_vs_naive:.2f}x naive, {kind}"


def _with_shape_sets(task: Task, path: Path) -> Task:
    """The task itself. The judge's protocol wants shape sets that no agent has seen: a kernel for
    one size only would pass."""
    sets, unseen = count_shape_sets(task)
    if task.family != PART and (sets < SHAPE_SETS or unseen < UNSEEN_SHAPE_SETS):
        raise UsageError(
            f"the task file {path} has too few shape sets ({sets}, {unseen} of them unseen): give "
            "at least 3 `cases` of different shapes, of which agents see one (`shown`): its usual "
            "sizes, sizes that no block or vector width divides, and tiny ones"
        )
    return task


def _with_defaults(fields: dict[str, object], name: str) -> dict[str, object]:
    """What only our own suites and curricula need is the author's to give or to leave out."""
    named = {"name": name, **fields}
    return {"tier": 2, "family": "own", "ops": [named["name"]], "description": "", **named}


def _read_task_file(path: Path) -> Task:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise UsageError(f"the task file {path} is not UTF-8") from e
    except (OSError, ValueError) as e:
        raise unreadable(path, e) from e
    try:
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as e:
        said = "it is empty" if not text.strip() else " ".join(str(e).split())
        raise UsageError(f"the task file {path} does not parse: {said}") from e
    if not isinstance(data, dict):
        raise UsageError(
            f"the task file {path} holds no fields of a task: a PyTorch module is easier to write, "
            "and `cuda-rl new-task NAME` writes one to begin with"
        )
    try:
        return Task.model_validate(_with_defaults(data, path.stem))
    except ValidationError as e:
        lacks = [
            str(x["loc"][0]) for x in e.errors() if x["type"] == "missing" and len(x["loc"]) == 1
        ]
        if lacks:
            raise UsageError(
                f"the task file {path} lacks {', '.join(lacks)}: a PyTorch module is easier to "
                "write, and `cuda-rl new-task NAME` writes one to begin with"
            ) from e
        first = e.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"the task file {path} is wrong at {place}: {first['msg']}") from e

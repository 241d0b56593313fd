"""Looks for held-out tasks in the training data.

Two tasks are compared by their graph of operations, their values, the text of their modules, and
the text and device code of their judged kernels. `audit_split` lists every hit and refuses nothing.
For each held-out task it also lists the nearest training tasks, so that a person can judge how new
the task is. Problems from outside (KernelBench, the archive) are compared by the operations of
their PyTorch source. Many ask for a single operation, which every training set has, so such
overlaps are listed apart and do not count as hits; a problem with the very source of a training
task does. Not covered: kernels that have no receipt.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.catalog import (
    all_functions,
    build_task,
    split_of,
)
from coding_framework.data.synthesis.function import Function, fingerprint
from coding_framework.data.synthesis.receipts import KernelReceipt, Key, by_task, task_digest
from coding_framework.types import Record, Split, Task, TensorSpec

if TYPE_CHECKING:
    import torch


class Hit(Record):
    """A held-out task that training holds too."""

    held_out: str
    training: str
    by: Literal["graph", "values", "source", "ptx"]


class Neighbour(Record):
    """The training task that is most like a held-out one."""

    held_out: str
    training: str
    similarity: float
    """Shared share of the modules' pairs of neighbouring statements, constants dropped."""
    graph_neighbour: str = ""
    graph_similarity: float = 0.0
    """Likewise of the canonical graphs' pairs of neighbouring operations."""


class OutsideNeighbour(Record):
    """The training task whose operations are most like an outside problem's."""

    problem: str
    training: str
    similarity: float
    """Shared share of the operations that the PyTorch sources name."""


class AuditReport(Record):
    """Maker: audit_split. Consumer: `cuda-rl data audit`, the tests."""

    training: int
    held_out: int
    hits: tuple[Hit, ...]
    neighbours: tuple[Neighbour, ...]
    """One for each held-out task, the most similar first."""
    device_codes: int = 0
    """Held-out kernels whose device code was compared: those with a receipt."""
    outside: tuple[OutsideNeighbour, ...] = ()

    def table(self, rows: int = 20) -> str:
        """For people: counts, every hit, the nearest neighbours."""
        lines = [
            f"{self.training} training tasks, {self.held_out} held out, {len(self.hits)} hits; "
            f"device code of {self.device_codes} held-out kernels compared"
        ]
        lines += [f"HIT by {h.by}: {h.held_out} is in training as {h.training}" for h in self.hits]
        lines.append("nearest by the modules' statements, and by the graph of operations:")
        lines += [
            f"  {n.held_out:<44} {n.similarity:.2f} {n.training:<36} "
            f"{n.graph_similarity:.2f} {n.graph_neighbour}"
            for n in self.neighbours[:rows]
        ]
        if self.outside:
            same = [n for n in self.outside if n.similarity == 1.0]
            lines.append(
                f"{len(self.outside)} outside problems; {len(same)} name exactly the operations "
                "of a training task:"
            )
            lines += [
                f"  {n.problem:<44} {n.similarity:.2f} {n.training}" for n in self.outside[:rows]
            ]
        return "\n".join(lines)


def audit_split(
    functions: Sequence[Function] | None = None,
    *,
    receipts: Mapping[Key, KernelReceipt] | None = None,
) -> AuditReport:
    """Compare the two sides of the split, by default of the whole catalogue. receipts: for the
    device code of judged kernels."""
    chosen = all_functions() if functions is None else functions
    train = [f for f in chosen if split_of(f) is Split.TRAIN]
    held_out = [f for f in chosen if split_of(f) is Split.HELD_OUT]
    by_kernel, compared = _kernel_hits(train, held_out, by_task(receipts or {}))
    return AuditReport(
        training=len(train),
        held_out=len(held_out),
        hits=(*_hits(train, held_out), *by_kernel),
        neighbours=tuple(sorted(_nearest(train, held_out), key=lambda n: -n.similarity)),
        device_codes=compared,
    )


def outside_overlap(report: AuditReport, problems: Sequence[Task]) -> AuditReport:
    """The report with the nearest training tasks of outside problems, and their hits."""
    train = [f for f in all_functions() if split_of(f) is Split.TRAIN]
    sources = {_normalised_module(build_task(f).reference): f.name for f in train}
    known = [(f.name, _named_operations(build_task(f).reference)) for f in train]
    hits = [
        Hit(held_out=task.name, training=sources[text], by="source")
        for task in problems
        if (text := _normalised_module(task.reference)) in sources
    ]
    nearest = []
    for task in problems:
        own = _named_operations(task.reference)
        score, name = max((_jaccard(own, other), name) for name, other in known)
        nearest.append(
            OutsideNeighbour(problem=task.name, training=name, similarity=round(score, 3))
        )
    nearest.sort(key=lambda n: -n.similarity)
    return report.model_copy(
        update={"hits": (*report.hits, *hits), "outside": (*report.outside, *nearest)}
    )


def normalised_source(code: str) -> str:
    """A kernel without layout, comments and constants: equal for kernels that differ in these."""
    code = re.sub(r"//[^\n]*", "", code)
    return re.sub(r"\s+", "", re.sub(r"-?\d+(\.\d+)?f", "C", code))


def _hits(train: Sequence[Function], held_out: Sequence[Function]) -> Iterable[Hit]:
    graphs = {canonical_key(f): f.name for f in train}
    values = {function_values(f): f.name for f in train}
    sources = {_module_text(f): f.name for f in train}
    for function in held_out:
        name = function.name
        if (key := canonical_key(function)) in graphs:
            yield Hit(held_out=name, training=graphs[key], by="graph")
        if (value := function_values(function)) in values:
            yield Hit(held_out=name, training=values[value], by="values")
        if (text := _module_text(function)) in sources:
            yield Hit(held_out=name, training=sources[text], by="source")


def _module_text(function: Function) -> str:
    """The module's statements, constants dropped: an axis is none. Which axis `dim=1` is, the rank
    of the input says: the last one of a matrix, the middle one of three."""
    task = build_task(function)
    text = re.sub(r"(?<!dim=)\b\d+(\.\d+)?\b", "C", _normalised_module(task.reference))
    if re.search(r"dim=\d", text) is None:
        return text
    return f"{text} of {len(task.cases[0].inputs[0].shape)} axes"


def _kernel_hits(
    train: Sequence[Function],
    held_out: Sequence[Function],
    receipts: Mapping[str, Sequence[KernelReceipt]],
) -> tuple[list[Hit], int]:
    """(hits, how many held-out kernels have a digest of their device code)."""
    trained: dict[str, str] = {}
    for function in train if receipts else ():
        trained.update(dict.fromkeys(_kernel_marks(function, receipts), function.name))
    hits, compared = [], 0
    for function in held_out if receipts else ():
        for mark, by in _kernel_marks(function, receipts).items():
            compared += by == "ptx"
            if mark in trained:
                hits.append(Hit(held_out=function.name, training=trained[mark], by=by))
    return hits, compared


def _kernel_marks(
    function: Function, receipts: Mapping[str, Sequence[KernelReceipt]]
) -> dict[str, Literal["source", "ptx"]]:
    """Text and device code of each judged kernel."""
    found: dict[str, Literal["source", "ptx"]] = {}
    for receipt in receipts.get(task_digest(build_task(function)), ()):
        if receipt.broken is None:
            found[normalised_source(receipt.code)] = "source"
            compiled = receipt.verdict.compile
            if compiled is not None and compiled.ptx_sha256:
                found[compiled.ptx_sha256] = "ptx"
    return found


def _nearest(train: Sequence[Function], held_out: Sequence[Function]) -> Iterable[Neighbour]:
    texts = [(f.name, _statement_pairs(f)) for f in train]
    graphs = {_graph_pairs(f): f.name for f in reversed(train)}
    for function in held_out:
        own, graph = _statement_pairs(function), _graph_pairs(function)
        score, name = max((_jaccard(own, other), name) for name, other in texts)
        graph_score, graph_name = max((_jaccard(graph, o), name) for o, name in graphs.items())
        yield Neighbour(
            held_out=function.name,
            training=name,
            similarity=round(score, 3),
            graph_neighbour=graph_name,
            graph_similarity=round(graph_score, 3),
        )


def _statement_pairs(function: Function) -> frozenset[str]:
    return frozenset(a + b for a, b in pairwise(("x", *_module_text(function).split(";"), "out")))


def _graph_pairs(function: Function) -> frozenset[str]:
    return frozenset(f"{a} {b}" for a, b in pairwise(("x", *canonical_key(function), "out")))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


# --- PyTorch sources -----------------------------------------------------------------------------

_MODULES = ("torch", "nn", "F", "functional", "linalg", "special")
_NO_OPERATION = frozenset({"Module", "Parameter", "Tensor", "randn", "rand", "float32"})
_SYNONYMS = {"mult": "mul", "matmult": "matmul", "mm": "matmul", "bmm": "matmul", "usub": "neg"}


def _named_operations(source: str) -> frozenset[str]:
    """The PyTorch functions, modules and operators that the `Model` of a source names."""
    found = set()
    for model in _model_classes(source):
        for node in ast.walk(model):
            if isinstance(node, ast.Attribute) and isinstance(
                node.value, (ast.Name, ast.Attribute)
            ):
                owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                if owner in _MODULES and node.attr not in (*_MODULES, *_NO_OPERATION):
                    found.add(node.attr)
            elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
                found.add(type(node.op).__name__)
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()) for name in found}
    return frozenset(_SYNONYMS.get(name, name) for name in plain)


def _model_classes(source: str) -> list[ast.ClassDef]:
    tree = ast.parse(source)
    return [n for n in tree.body if isinstance(n, ast.ClassDef) and "Model" in n.name]


def _normalised_module(source: str) -> str:
    """The statements of the `Model`'s methods, without names of arguments' types and docstrings."""
    methods = []
    for model in _model_classes(source):
        for node in model.body:
            if isinstance(node, ast.FunctionDef) and node.name != "__init__":
                body = [
                    n
                    for n in node.body
                    if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
                ]
                names = ",".join(a.arg for a in node.args.args)
                methods.append(f"{names}:" + ";".join(ast.unparse(n) for n in body))
    return "|".join(methods)


# --- values: equal functions are found by their equal values on fixed inputs ----------------------

_ENOUGH = 8
"""Values that tell functions apart."""


@lru_cache(maxsize=65536)
def function_values(function: Function) -> tuple[Any, ...]:
    """Rounded values: on a small matrix, in numpy, where the core has `values`; else by the PyTorch
    source in float64, on small shapes."""
    if function.core.values is not None:
        return fingerprint(function)
    import torch

    from coding_framework.reference_model import run_reference

    task = build_task(function)
    namespace = run_reference(task.reference)  # our own source, from the table
    model = namespace["Model"]()
    for case in (task.cases[-1], task.cases[1]):
        with torch.no_grad():
            result = model(*(_fixed_input(spec) for spec in case.inputs))
        if result.numel() > _ENOUGH and function.core.output is None:
            break  # a few values, or small integers, agree by chance: those take the odd shapes
    shapes = tuple(spec.shape for spec in case.inputs)
    flat = result.reshape(-1).tolist()
    return (function.dtype, shapes, tuple(float(f"{value:.5g}") + 0.0 for value in flat))


def _fixed_input(spec: TensorSpec) -> torch.Tensor:
    """Values in the declared domain that depend on the input's name alone."""
    import torch

    seed = int.from_bytes(hashlib.sha256(spec.name.encode()).digest()[:4], "big")
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(spec.shape, generator=generator, dtype=torch.float64)
    low, high = spec.low or 0.0, 1.0 if spec.high is None else spec.high
    if spec.dtype in ("int32", "int64"):
        integers = torch.floor(low + unit * (high - low + 1)).clamp(low, high)
        return integers.to(torch.int32 if spec.dtype == "int32" else torch.int64)
    return low + (high - low) * unit

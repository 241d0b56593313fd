"""KernelBench problems (levels 1-4) as tasks, from `.py` files or dataset rows.

A problem's own sizes go to `gpu_cases`, halved where they are too large to be judged (GPU_BUDGET);
for the emulator its size constants are scaled (`sizes`).
A problem draws its inputs with `torch.rand`, on which relu is the identity: where the model stays
finite on values of both signs the task declares no bound, else the bounds of the problem's draws.
Scalar inputs become arguments of `Model`, as the convention of `Task` has it.

Structure that a problem gives its inputs (triangular, sorted, a permutation) is kept, and said. All
else about them varies, also what is always the same in the problem: the model computes its function
on all inputs that it takes, and so must a kernel.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb

from coding_framework.data.kernelbench.constants import (
    Constant,
    Values,
    literal_sizes,
    parse,
    run_module,
    size_constants,
)
from coding_framework.data.kernelbench.sizes import (
    Budget,
    Measure,
    enlarge,
    inputs_of,
    make_odd,
    measure,
    shrink,
    widen_norms,
)
from coding_framework.data.kernelbench.values import (
    Domain,
    input_domains,
    integers_of,
    is_steady,
    run_once,
)
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.types import Split, Task, TensorSpec, TestCase

LICENCE = "MIT"
MAIN_BUDGET = Budget(elements=1 << 19, flops=1 << 26, made=1 << 23)
TINY_BUDGET = Budget(elements=1 << 12, flops=1 << 20, made=1 << 23)
GPU_BUDGET = Budget(elements=1 << 30, flops=1 << 62, made=1 << 62)
"""Two draws of a float64 reference with its tolerance take up to 80 bytes an output on the way: the
3.2 billion elements of the largest activations would take more than a GPU of 140 GB has."""

MOST_DRAWN = 1 << 28
"""Elements of inputs up to which a problem's own integers are looked at."""
_MUCH = 4
"""Times the budget: so much more, and sizes without a name are looked for."""

Sizes = dict[str, Values]
"""The constants of each shape set."""
_INTEGERS = ("int8", "uint8", "int16", "int32", "int64")


def load_problem_file(path: Path) -> Task:
    """The task of a problem file. Raises UsageError where it is no KernelBench problem."""
    return problem_task(read_source(path), path.stem)


def read_source(path: Path) -> str:
    """The text of a Python file. Raises UsageError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a mark before the text
    except UnicodeDecodeError as e:
        raise UsageError(f"the problem file {path} is not UTF-8") from e
    except (OSError, ValueError) as e:
        raise unreadable(path, e) from e


def unreadable(path: Path, error: Exception) -> UsageError:
    """Of a file that is not there, or whose name no file can have."""
    name, why = one_line(str(path), 80), getattr(error, "strerror", None) or error
    return UsageError(f"the task file {name} cannot be read ({why}): check its name")


def problem_task(source: str, name: str, *, level: int | None = None) -> Task:
    """The task of one problem's source. Raises UsageError with what is missing or wrong in it."""
    with problem_faults(name):
        return _make_task(source, name, level)


@contextmanager
def problem_faults(name: str) -> Iterator[None]:
    """Whatever a user's own source raises inside the block becomes a UsageError: what is missing or
    wrong in it, and in which of its lines."""
    try:
        yield
    except UsageError:
        raise
    except (SyntaxError, UnicodeError) as e:
        raise UsageError(f"the problem {name} is not Python: {e}") from e
    except (Exception, SystemExit) as e:
        if isinstance(e, KeyError) and e.args[0] in ("Model", "get_inputs", "get_init_inputs"):
            raise UsageError(
                f"the problem {name} has no {e.args[0]}: it needs a `Model`, `get_inputs()` and "
                "`get_init_inputs()`; `cuda-rl new-task NAME` writes one to begin with"
            ) from e
        if any(word in str(e) for word in ("NVIDIA driver", "compiled with CUDA", "CUDA GPUs")):
            raise UsageError(
                f"the problem {name} asks for a GPU, and it is read on the CPU: leave out .cuda() "
                "and device='cuda'; the judge puts the tensors where the kernel runs"
            ) from e
        raise UsageError(
            f"the problem {name} cannot be run ({_line_of(e)}{type(e).__name__}: {e}): it needs a "
            "`Model`, `get_inputs()` and `get_init_inputs()` that work together"
        ) from e


def _line_of(error: BaseException) -> str:
    """Where in the problem it was raised, as "line 12: "; "" where that was not in it."""
    from coding_framework.reference_model import REFERENCE_FILE

    lines = [
        f.lineno
        for f in extract_tb(error.__traceback__)
        if f.filename.startswith(REFERENCE_FILE[:-1])
    ]
    return f"line {lines[-1]}: " if lines else ""


def _make_task(source: str, name: str, level: int | None) -> Task:
    source, scalar_positions = _with_scalars_as_arguments(source)
    tree = parse(source)
    original = measure(tree, {})
    constants = size_constants(tree)
    sizes = _sizes(tree, original, constants)
    flops = measure(tree, sizes["main"]).flops
    usual = _differ(tree, sizes) and flops < _MUCH * MAIN_BUDGET.flops
    made = None if usual else _with_literals(tree, original, sizes)
    sizes, domains, cases = made or _that_run(tree, original, sizes, constants)
    own_sizes = {constant: constant.value for constant in sizes["main"]}
    real_sizes: Values = own_sizes
    real = original
    if not GPU_BUDGET.holds(original):
        real_sizes = shrink(tree, own_sizes, original, GPU_BUDGET)
        real = measure(tree, real_sizes)
    handed_over = sum(math.prod(shape) for shape, _ in real.inputs)
    looked_at = real_sizes if handed_over <= MOST_DRAWN else sizes["main"]
    terms = _scaled_reduction(cases[0].reduction_length, real)
    return Task(
        name=name,
        tier=min(3, level if level is not None else 2),
        family="kernelbench" if level is None else f"kernelbench_level{level}",
        ops=(name,),
        description=f"KernelBench problem {name.replace('_', ' ').strip()}",
        reference=source,
        init_args=original.init_args,
        scalar_positions=scalar_positions,
        cases=tuple(cases),
        gpu_cases=(_case("main", tree, real_sizes, real, domains, terms, looked_at),),
        split=Split.OUTSIDE,
        source="kernelbench",
        licence=LICENCE,
    )


def _that_run(
    tree: ast.Module, original: Measure, sizes: Sizes, constants: Sequence[Constant]
) -> tuple[Sizes, list[Domain], list[TestCase]]:
    """The shape sets of these sizes; where a run fails at them (an index leads out of a table that
    was made smaller), of those where one of the constants stays. Raises what the first run did."""
    try:
        return sizes, *_cases(tree, sizes)
    except Exception:
        for fixed in constants:
            with suppress(Exception):
                fewer = _sizes(tree, original, [c for c in constants if c != fixed])
                if _differ(tree, fewer):
                    return fewer, *_cases(tree, fewer)
        raise


def _with_literals(
    tree: ast.Module, original: Measure, named: Sizes
) -> tuple[Sizes, list[Domain], list[TestCase]] | None:
    """Shape sets by the sizes without a name too; None where the model does not run at them, or
    they cost as much as by the named ones, of which each is another."""
    sizes = _sizes(tree, original, (*size_constants(tree), *literal_sizes(tree)))
    usual, fewer = (measure(tree, s["main"]).flops for s in (named, sizes))
    if _differ(tree, named) and not (fewer < usual / 2 and _differ(tree, sizes)):
        return None
    try:
        return sizes, *_cases(tree, sizes)
    except Exception:  # only a run shows what an index may be; the problem says so in its own way
        return None


def _differ(tree: ast.Module, sizes: Sizes) -> bool:
    made = [measure(tree, values) for values in sizes.values()]
    return len({(m.inputs, m.init_args) for m in made}) == len(sizes)


def _sizes(tree: ast.Module, original: Measure, constants: Sequence[Constant]) -> Sizes:
    """Three shape sets. A problem that no budget holds is at its smallest already: then the others
    are larger. They are equal where the model is for one size only."""
    own = {c: c.value for c in constants}
    small = shrink(tree, own, original.without_norms(), MAIN_BUDGET)
    main = widen_norms(tree, small, original, lambda values: is_steady(tree, values))
    original = replace(original, normed=measure(tree, main).normed if main != small else 0)
    odd = make_odd(tree, main, original)
    elements = min(TINY_BUDGET.elements, measure(tree, main).elements // 4)
    tiny = shrink(tree, main, original, Budget(elements, TINY_BUDGET.flops, TINY_BUDGET.made))
    return {
        "main": main,
        "odd": enlarge(tree, main, original, 1.5, 3) if odd == main else odd,
        "tiny": enlarge(tree, main, original, 2) if tiny == main else tiny,
    }


def _cases(tree: ast.Module, sizes: Sizes) -> tuple[list[Domain], list[TestCase]]:
    """The domains of the inputs, and the shape sets. Raises whatever the problem raises."""
    domains = input_domains(tree, sizes["main"])
    cases = []
    for label, values in sizes.items():
        made = measure(tree, values)
        run_once(tree, values)
        cases.append(_case(label, tree, values, made, domains, made.terms, values))
    return domains, cases


def _case(
    label: str, tree: ast.Module, values: Values, made: Measure, domains: Sequence[Domain],
    terms: int, looked_at: Values,
) -> TestCase:  # fmt: skip
    """looked_at: the sizes at which the problem's own integers are looked at."""
    inputs = []
    for i, (shape, dtype) in enumerate(made.inputs):
        low, high = domains[i].low, domains[i].high
        apart: tuple[int, ...] = ()
        if dtype == "bool":
            low, high = 0.0, 1.0
        elif dtype in _INTEGERS:
            found = integers_of(tree, looked_at, i)
            low, high, apart = found.low, found.high, found.apart
        strides, start = made.layouts[i]
        spec = TensorSpec(
            name=f"input{i}", shape=shape, dtype=dtype, low=low, high=high, apart=apart,
            keeps=domains[i].keeps, strides=strides, start=start,
        )  # fmt: skip
        inputs.append(spec)
    return TestCase(
        name=label,
        inputs=tuple(inputs),
        init_args=made.init_args,
        reduction_length=terms,
        shown=label == "main",
    )


def _scaled_reduction(small: int, original: Measure) -> int:
    """Terms at the problem's own sizes: none where the small one has none, else from the
    arithmetic, or all elements over those of the output. No kernel adds up one long sum there after
    the other."""
    if small == 1:
        return 1
    per_output = math.ceil(original.elements / original.output_elements)
    longest = max((extent for shape, _ in original.inputs for extent in shape), default=1)
    return max(small, original.products_per_output, per_output, longest)


_SCALARS_TEMPLATE = '''

class Model(ProblemModel):
    """The problem's model, its scalar inputs as arguments of the constructor."""

    def __init__(self, *arguments):
        super().__init__(*arguments[:{arguments}])
        self._scalars = dict(zip({positions}, arguments[{arguments}:]))

    def forward(self, *tensors):
        given = iter(tensors)
        values = [self._scalars[i] if i in self._scalars else next(given) for i in range({total})]
        return super().forward(*values)


_problem_inputs, _problem_arguments = get_inputs, get_init_inputs


def get_inputs():
    return [value for i, value in enumerate(_problem_inputs()) if i not in {positions}]


def get_init_inputs():
    return [*_problem_arguments(), *{scalars}]
'''


def _with_scalars_as_arguments(source: str) -> tuple[str, tuple[int, ...]]:
    """The source itself, or, where `get_inputs` returns numbers too, one in which `Model` takes
    them as arguments; and where among the inputs they stood."""
    import torch

    with torch.device("meta"):
        namespace = run_module(parse(source), {})
        inputs = inputs_of(namespace)
        arguments = list(namespace["get_init_inputs"]())
    for i, value in enumerate(inputs):
        if isinstance(value, (list, tuple, dict)):
            raise UsageError(
                f"get_inputs() gives a {type(value).__name__} as its value {i}: a kernel takes "
                "tensors, so let `forward` take each of them by itself (`*levels` takes any number)"
            )
    positions = [i for i, value in enumerate(inputs) if not isinstance(value, torch.Tensor)]
    if not positions:
        return source, ()
    changed = re.sub(r"\bModel\b", "ProblemModel", source) + _SCALARS_TEMPLATE.format(
        arguments=len(arguments),
        positions=positions,
        total=len(inputs),
        scalars=ast.unparse(ast.parse(repr([inputs[i] for i in positions]))),
    )
    return changed, tuple(positions)

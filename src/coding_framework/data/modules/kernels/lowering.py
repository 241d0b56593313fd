"""Writes the naive kernels: the tensor in hand, the sizes in C, and the kernels so far.

Each operation that moves or adds up elements becomes one kernel or a few; elementwise operations
after it stand at its end. Inside a kernel `x` is the tensor in hand, `i` the place of the output,
`i0, i1, ...` its coordinates, and `v` the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.pointwise import POINTWISE, c_statements
from coding_framework.data.modules.records import ModuleTask, Operation, Parameter, extent

BLOCK = 256
MANY_GROUPS = 8192
"""So many results at a GPU's main sizes keep it busy with one thread each."""

_ALIASES = {
    "batch_size": "n",
    "in_channels": "c",
    "channels": "c",
    "out_channels": "m",
    "length": "l",
    "height": "h",
    "width": "w",
    "depth": "d",
    "features": "f",
    "in_features": "k",
    "out_features": "m",
    "num_heads": "heads",
    "head_dim": "e",
    "num_embeddings": "rows",
    "embedding_dim": "e",
}
Join = Literal["sum", "max", "min", "product"]
BLOCK_JOINS: dict[str, Join] = {
    "{a} + {e}": "sum",
    "fmaxf({a}, {e})": "max",
    "fminf({a}, {e})": "min",
    "{a} * {e}": "product",
}
JOINS: dict[Join, str] = {
    "sum": "{a} += {e};",
    "max": "{a} = fmaxf({a}, {e});",
    "min": "{a} = fminf({a}, {e});",
    "product": "{a} *= {e};",
}
C_TYPES = {"float32": "float", "int64": "int64_t", "bool": "bool"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a kernel reads: its name there, and on the host."""

    name: str
    host: str
    c_type: str = "float"


@dataclass
class Lowering:
    """A module's host and device code while it is written."""

    task: ModuleTask
    sizes: dict[str, str] = field(default_factory=dict)
    """C variable -> its expression, in the order of declaration."""
    device: Lines = field(default_factory=list)
    host: Lines = field(default_factory=list)
    x: Tensor = Tensor("x", "x")
    dims: list[str] = field(default_factory=list)
    post: list[tuple[Operation, tuple[Parameter, ...]]] = field(default_factory=list)
    """Elementwise operations that the next final kernel ends with."""
    post_written: bool = False
    """Whether a kernel has taken them."""
    before: Lines = field(default_factory=list)
    """Statements on each element `e` that the next kernel of groups reads."""
    terms: list[str] = field(default_factory=list)
    """Expressions of the lengths of all sums."""
    kernels: int = 0
    other: str = ""
    """The tensor of the output's shape that steps read: the last input."""

    def __post_init__(self) -> None:
        first = self.task.inputs[0]
        self.other = self.task.inputs[-1].name
        if self.task.draft.has_shortcut:
            self.other = "shortcut"  # in kernels the first input's name is another tensor's
            self.host.append(f"auto shortcut = {first.name};")
        self._declare_sizes()
        self.x = Tensor("x", first.name, C_TYPES[first.dtype])
        self.dims = [self.variable(d) for d in first.dims]

    # --- sizes ---------------------------------------------------------------------------------

    def _declare_sizes(self) -> None:
        for given in self.task.inputs:
            for axis, expression in enumerate(given.dims):
                self._declare(expression, f"{given.name}.size({axis})")
        for parameter in self.task.parameters:
            for axis, expression in enumerate(parameter.dims):
                name, _, divisor = expression.partition(" / ")
                text = f"{parameter.c_name}.size({axis})"
                self._declare(name, f"{text} * {divisor}" if divisor else text)

    def _declare(self, name: str, text: str) -> None:
        if name.isidentifier() and _ALIASES.get(name, name) not in self.sizes:
            self.sizes[_ALIASES.get(name, name)] = text

    def variable(self, expression: str) -> str:
        """An extent of the records, in C: a variable, a number, or an expression in brackets."""
        text = re.sub(r"[A-Za-z_]\w*", lambda m: _ALIASES.get(m[0], m[0]), expression)
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def new_size(self, base: str, expression: str) -> str:
        """A variable for an expression; the same one where it has one."""
        if re.fullmatch(r"\w+", expression):
            return expression
        for name, known in self.sizes.items():
            if known == expression:
                return name
        name, number = base, 1
        while name in self.sizes or name in self._tensor_names():
            number += 1
            name = f"{base}{number}"
        self.sizes[name] = expression
        return name

    def _tensor_names(self) -> set[str]:
        return {given.name for given in self.task.inputs} | {"x", "o", "v", "i", "a", "t"}

    def values(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The value of each C variable at the record's sizes."""
        known = {_ALIASES.get(name, name): value for name, value in sizes.items()}
        for name, expression in self.sizes.items():
            if name not in known:
                known[name] = extent(expression, known)
        return known

    @property
    def main_values(self) -> dict[str, int]:
        """At a GPU's main sizes: they decide how a sum is spread, and nothing else."""
        return self.values(self.task.draft.gpu_sizes[0])

    # --- kernels -------------------------------------------------------------------------------

    def map(
        self,
        body: Lines,
        dims: Sequence[str],
        *reads: Tensor,
        c_type: str = "float",
        final: bool = True,
    ) -> None:
        """One thread for each element of an output with these extents. The body gives `v`."""
        name, out = self.next_kernel()
        ends = [*body, *(self.post_lines(dims) if final else []), "o[i] = v;"]
        inner = [
            "int i = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (i >= {product_of(dims)}) return;",
            *coordinates(ends, dims),
            *ends,
        ]
        grid = f"({product_of(dims)} + {BLOCK - 1}) / {BLOCK}, {BLOCK}"
        self.kernel(name, inner, reads, out, dims, grid, c_type, final)

    def reduce(
        self,
        axes: Sequence[int],
        element: str,
        *reads: Tensor,
        start: str = "0.0f",
        join: str = "{a} + {e}",
        finish: str = "a",
        keepdim: bool = False,
        final: bool = True,
        dims: Sequence[str] | None = None,
        host: str | None = None,
    ) -> str:
        """One value for each place along the other axes; gives the expression of their number.

        element: what is joined, `{e}` for the element of x and `i` for the result's place. dims: x
        seen with other extents. host: the tensor that is reduced, where it is not the one in hand.
        """
        dims = list(self.dims if dims is None else dims)
        out_dims = ["1" if a in axes else d for a, d in enumerate(dims) if keepdim or a not in axes]
        dims, axes = merged(dims, axes)
        kept = [a for a in range(len(dims)) if a not in axes]
        groups = [dims[a] for a in kept] or ["1"]
        count = self.new_size("terms", product_of([dims[a] for a in axes]))
        self.terms.append(count)
        inner_names = [f"r{a}" for a in axes] if len(axes) > 1 else ["t"]
        outer_names = [f"g{a}" for a in kept] if len(kept) > 1 else ["i"]
        names = dict(zip((*axes, *kept), (*inner_names, *outer_names), strict=False))
        place = linear([names[a] for a in range(len(dims))], dims)
        values = self.main_values
        many = extent(product_of(groups), values) >= MANY_GROUPS or extent(count, values) < BLOCK
        inner = decomposed("i", outer_names, groups)
        step = [*decomposed("t", inner_names, [dims[a] for a in axes]),
                f"a = {join.format(a='a', e=element.replace('{e}', f'x[{place}]'))};"]  # fmt: skip
        write = self._result(finish, out_dims, final)
        name, out = self.next_kernel()
        if many:
            body = [
                "int i = blockIdx.x * blockDim.x + threadIdx.x;",
                f"if (i >= {product_of(groups)}) return;",
                *inner,
                f"float a = {start};",
                f"for (int t = 0; t < {count}; t++) {{",
                *(f"  {line}" for line in step),
                "}",
                *write,
            ]
            grid = f"({product_of(groups)} + {BLOCK - 1}) / {BLOCK}, {BLOCK}"
        else:
            joined = BLOCK_JOINS[join]
            self.block_function(joined)
            body = [
                "int i = blockIdx.x;",
                *inner,
                f"float a = {start};",
                f"for (int t = threadIdx.x; t < {count}; t += 256) {{",
                *(f"  {line}" for line in step),
                "}",
                f"a = block_{joined}(a);",
                "if (threadIdx.x > 0) return;",
                *write,
            ]
            grid = f"{product_of(groups)}, 256"
        self.kernel(name, body, reads, out, out_dims, grid, "float", final, host)
        return count

    def _result(self, finish: str, dims: Sequence[str], final: bool) -> Lines:
        ends = [f"float v = {finish};", *(self.post_lines(dims) if final else []), "o[i] = v;"]
        return [*coordinates(ends, dims), *ends]

    def lines(self, axis: int, body: Lines, *reads: Tensor) -> None:
        """One thread for each line along an axis; the body writes `o` itself at `{p}`."""
        kept = [a for a in range(len(self.dims)) if a != axis]
        groups = [self.dims[a] for a in kept]
        group_names = [f"g{a}" for a in kept] if len(kept) > 1 else ["i"]
        names = {axis: "t", **dict(zip(kept, group_names, strict=False))}
        place = linear([names[a] for a in range(len(self.dims))], self.dims)
        name, out = self.next_kernel()
        inner = [
            "int i = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (i >= {product_of(groups)}) return;",
            *decomposed("i", group_names, groups),
            *(line.replace("{p}", place) for line in body),
        ]
        grid = f"({product_of(groups)} + {BLOCK - 1}) / {BLOCK}, {BLOCK}"
        self.kernel(name, inner, reads, out, list(self.dims), grid, "float", True)

    def block_function(self, join: Join) -> None:
        """The function that joins the values of a block's threads, once in a file."""
        lines = block_function(join)
        if lines[0] not in self.device:
            self.device[:0] = lines

    def next_kernel(self) -> tuple[str, str]:
        self.kernels += 1
        return f"kernel{self.kernels}", f"t{self.kernels}"

    def post_lines(self, dims: Sequence[str]) -> Lines:
        """The elementwise operations at the end of a kernel, on `v` at `i`. Several of them, in a
        task of level 2, are a function of their own: every level of its kernels calls it alike."""
        if not self.post:
            return []
        self.post_written = True
        last_axis = self.task.draft.layout == "features_last" or len(dims) < 3
        channel = f"i{len(dims) - 1 if last_axis else 1}"
        if self.task.draft.level == 1 or len(self.post) == 1:
            return self._post_statements(channel, f"{self.other}[i]")
        lines = self._post_statements("channel", "other")
        number = sum("float epilogue" in line for line in self.device) + 1
        name = f"epilogue{number if number > 1 else ''}"
        declared, given = ["float v"], ["v"]
        if re.search(r"\bchannel\b", "\n".join(lines)):
            declared, given = [*declared, "int channel"], [*given, channel]
        for read in dict.fromkeys(t.name for t in self._post_reads()):
            other = read == self.other
            declared.append("float other" if other else f"const float* {read}")
            given.append(f"{read}[i]" if other else read)
        self.device += [
            f"__device__ float {name}({', '.join(declared)}) {{",
            *(f"  {line}" for line in (*lines, "return v;")),
            "}",
            "",
        ]
        return [f"v = {name}({', '.join(given)});"]

    def _post_statements(self, channel: str, other: str) -> Lines:
        """channel: the index of parameters. other: the value of the second input."""
        lines: Lines = []
        if any(POINTWISE[o.name].reads == "head" for o, _ in self.post):
            lines.append("float head = v;")
        for operation, parameters in self.post:
            read = {
                "parameter": f"{parameters[0].c_name}[{channel}]" if parameters else "",
                "one": f"{parameters[0].c_name}[0]" if parameters else "",
                "input": other,
                "head": "head",
                "": "",
            }[POINTWISE[operation.name].reads]
            lines += c_statements(operation, "v", read)
        return lines

    def head_end(self, dims: Sequence[str]) -> tuple[Lines, list[str]]:
        """What another writer's kernel ends with, on `v` at `i`: statements, and the names of what
        they read."""
        return self.post_lines(dims), list(dict.fromkeys(t.name for t in self._post_reads()))

    def new_head(self) -> tuple[int, str]:
        """A number for the kernels of another writer, and the host's name of their result."""
        _, out = self.next_kernel()
        return self.kernels, out

    def end_head(self, out: str, dims: Sequence[str], launch: Lines) -> None:
        """Another writer's kernel is launched here: its result is what the next operation reads."""
        shape = ", ".join(strip(d) for d in dims)
        options = f"{self.task.inputs[0].name}.options()"
        self.host += [f"auto {out} = torch::empty({{{shape}}}, {options});", *launch]
        self._end_stage(Tensor("x", out), dims)

    def _end_stage(self, result: Tensor, dims: Sequence[str]) -> None:
        """result: what the next operation reads. What no kernel has taken stays in `post`."""
        self.x, self.dims = result, list(dims)
        if self.post_written:
            self.post, self.post_written = [], False

    def _post_reads(self) -> list[Tensor]:
        reads = [Tensor(p.c_name, p.c_name) for _, parameters in self.post for p in parameters]
        if any(POINTWISE[o.name].reads == "input" for o, _ in self.post):
            reads.append(Tensor(self.other, self.other))
        return reads

    def kernel(
        self, name: str, inner: Lines, reads: Sequence[Tensor], out: str, dims: Sequence[str],
        grid: str, c_type: str, final: bool, host: str | None = None, restrict: bool = False,
    ) -> None:  # fmt: skip
        """restrict: the output is not one of the tensors that are read, so that the compiler may
        read ahead of a write."""
        x = self.x if host is None else Tensor("x", host)
        tensors = [x, *reads, *(self._post_reads() if final else [])]
        tensors = list({t.name: t for t in tensors}.values())
        text = "\n".join(inner)
        tensors = [t for t in tensors if re.search(rf"\b{re.escape(t.name)}\b", text)]
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        names = [s for s in self.sizes if s in words]
        pointers = [f"const {t.c_type}* {t.name}" for t in tensors]
        result = f"{c_type}* {'__restrict__ ' if restrict else ''}o"
        parameters = ", ".join([*pointers, result, *(f"int {s}" for s in names)])
        self.device += [
            f"__global__ void {name}({parameters}) {{",
            *(f"  {line}" for line in inner),
            "}",
            "",
        ]
        shape = ", ".join(strip(d) for d in dims)
        options = (
            "x.options()"
            if self.task.inputs[0].name == "x"
            else f"{self.task.inputs[0].name}.options()"
        )
        if c_type == "int64_t":
            options += ".dtype(torch::kInt64)"
        elif self.task.inputs[0].dtype != "float32":
            options += ".dtype(torch::kFloat32)"
        arguments = [f"{t.host}.data_ptr<{t.c_type}>()" for t in tensors]
        arguments += [f"{out}.data_ptr<{c_type}>()", *names]
        self.host += [f"auto {out} = torch::empty({{{shape}}}, {options});",
                      f"{name}<<<{grid}>>>({', '.join(arguments)});"]  # fmt: skip
        if final:
            self._end_stage(Tensor("x", out, c_type), dims)

    @property
    def last(self) -> str:
        """The host's name of what the last kernel wrote."""
        return f"t{self.kernels}"

    def stat(self, name: str) -> Tensor:
        """What the last kernel wrote, as a further kernel reads it."""
        return Tensor(name, self.last)

    # --- the file ------------------------------------------------------------------------------

    def source(self) -> str:
        """The whole .cu."""
        given = [g.name for g in self.task.inputs] + [p.c_name for p in self.task.parameters]
        declared = ", ".join(f"torch::Tensor {name}" for name in given)
        used = " ".join((*self.device, *self.host, *self.sizes.values()))
        sizes = declarations({n: e for n, e in self.sizes.items() if re.search(rf"\b{n}\b", used)})
        forward = [
            f"torch::Tensor forward({declared}) {{",
            *(f"  {line}" for line in (*sizes, *self.host, f"return {self.last};")),
            "}",
        ]
        module = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }'
        return "\n".join(
            ["#include <torch/extension.h>", "", *self.device, *forward, "", module, ""]
        )


def block_function(join: Join) -> Lines:
    """The function that joins the values of the 256 threads of a block."""
    text = JOINS[join].format(a="v", e="__shfl_xor_sync(~0u, v, d)")
    return [
        f"// the {join} over the 256 threads of a block, for all of them",
        f"__device__ float block_{join}(float v) {{",
        "  __shared__ float s[8];",
        f"  for (int d = 16; d > 0; d /= 2) {text}",
        "  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;",
        "  __syncthreads();",
        "  v = s[threadIdx.x % 8];",
        f"  for (int d = 4; d > 0; d /= 2) {text}",
        "  __syncthreads();",
        "  return v;",
        "}",
        "",
    ]


def declarations(sizes: Mapping[str, str]) -> Lines:
    """The statements that name sizes; those that one tensor gives are one statement."""
    together = groupby(sizes.items(), lambda s: s[1].split(".")[0] if ".size(" in s[1] else s[0])
    return [f"int {', '.join(f'{n} = {text}' for n, text in found)};" for _, found in together]


def merged(dims: Sequence[str], axes: Sequence[int]) -> tuple[list[str], list[int]]:
    """Dims and axes where neighbouring axes are one, if all are among `axes` or none is."""
    runs = [(inside, [dims[a] for a in run])
            for inside, run in groupby(range(len(dims)), lambda a: a in axes)]  # fmt: skip
    found = [product_of(run) for _, run in runs]
    return found, [number for number, (inside, _) in enumerate(runs) if inside]


def product_of(dims: Sequence[str]) -> str:
    """The number of elements, in C."""
    real = [d for d in dims if d != "1"]
    return " * ".join(real) if real else "1"


def factor(expression: str) -> str:
    """A product as a factor of another one."""
    return f"({expression})" if " " in expression else expression


def strip(text: str) -> str:
    """An extent without its outer brackets."""
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def linear(places: Sequence[str], dims: Sequence[str]) -> str:
    """The place in memory of an element by its coordinates."""
    text = "0"
    for place, dim in zip(places, dims, strict=True):
        if dim == "1":
            continue
        if text == "0":
            text = place
            continue
        text = f"{factor(text)} * {dim}"
        if place != "0":
            text = f"{text} + {place}"
    return text


def coordinates(body: Lines, dims: Sequence[str]) -> Lines:
    """The coordinates of `i` that a kernel's body names."""
    text = "\n".join(body)
    lines = []
    for axis, dim in enumerate(dims):
        if re.search(rf"\bi{axis}\b", text):
            inner = [d for d in dims[axis + 1 :] if d != "1"]
            by = (
                ""
                if not inner
                else f" / {inner[0]}"
                if len(inner) == 1
                else f" / ({' * '.join(inner)})"
            )
            turn = f" % {dim}" if axis else ""
            lines.append(f"int i{axis} = i{by}{turn};" if dim != "1" else f"int i{axis} = 0;")
    return lines


def decomposed(index: str, names: Sequence[str], dims: Sequence[str]) -> Lines:
    """The coordinates of a flat index; none of an axis of one place, or of the index itself."""
    lines = []
    for axis, name in enumerate(names):
        inner = product_of(dims[axis + 1 :])
        if dims[axis] == "1" or name == index:
            continue
        by = f" / {factor(inner)}" if inner != "1" else ""
        turn = f" % {factor(dims[axis])}" if axis else ""
        lines.append(f"int {name} = {index}{by}{turn};")
    return lines


def longest_sum(lowering: Lowering, sizes: Mapping[str, int]) -> int:
    """Terms of the longest sum at these sizes."""
    values = lowering.values(sizes)
    return max((extent(t, values) for t in lowering.terms), default=1)


def signed(number: int) -> str:
    """What adds a number to an expression; nothing for 0."""
    return "" if number == 0 else f" + {number}" if number > 0 else f" - {-number}"

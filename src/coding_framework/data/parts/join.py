"""One kernel of the kernels of a module's parts, with the views and copies between them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from coding_framework.data.parts.calls import Call, Const, Layout, PartsError, Ref, Trace, Value
from coding_framework.data.parts.extents import Known, whole
from coding_framework.data.parts.pieces import (
    Part,
    counting,
    inlined,
    known_extents,
    literals,
    numbers,
    variable,
)

_COPYING = """\
// what lies between the parts: copies of views, and tensors put one behind the other
namespace between {
struct Places {
  long long sizes[8], from[8], to[8], dims;
};
__global__ void move(const char* from, char* to, Places p, long long count, int bytes) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long a = 0, b = 0;
  for (int d = (int)p.dims - 1; d >= 0; d--) {
    a += i % p.sizes[d] * p.from[d];
    b += i % p.sizes[d] * p.to[d];
    i /= p.sizes[d];
  }
  if (bytes == 4)
    ((int*)to)[b] = ((const int*)from)[a];
  else if (bytes == 8)
    ((long long*)to)[b] = ((const long long*)from)[a];
  else
    for (int n = 0; n < bytes; n++) to[b * bytes + n] = from[a * bytes + n];
}
// the elements of `from` at these strides go to those of `to` at the others
void moved(torch::Tensor from, int64_t a, std::vector<int64_t> strides, torch::Tensor to, int64_t b,
           std::vector<int64_t> others, std::vector<int64_t> sizes) {
  Places p = {};
  long long count = 1;
  for (size_t d = 0; d < sizes.size(); d++) {
    p.sizes[d] = sizes[d];
    p.from[d] = strides[d];
    p.to[d] = others[d];
    count *= sizes[d];
  }
  p.dims = (long long)sizes.size();
  int bytes = (int)to.element_size();
  move<<<(int)((count + 255) / 256), 256>>>(
      (const char*)from.data_ptr() + a * bytes, (char*)to.data_ptr() + b * bytes, p, count, bytes);
}
std::vector<int64_t> strides_of(torch::Tensor x) {
  std::vector<int64_t> found;
  for (int64_t d = 0; d < x.dim(); d++) found.push_back(x.stride(d));
  return found;
}
torch::Tensor copy(torch::Tensor from, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                   int64_t offset) {
  auto to = torch::empty(sizes, from.options());
  moved(from, offset, strides, to, 0, strides_of(to), sizes);
  return to;
}
torch::Tensor join(std::vector<torch::Tensor> all, int64_t axis) {
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < all[0].dim(); d++) sizes.push_back(all[0].size(d));
  for (size_t n = 1; n < all.size(); n++) sizes[axis] += all[n].size(axis);
  auto to = torch::empty(sizes, all[0].options());
  int64_t start = 0;
  for (size_t n = 0; n < all.size(); n++) {
    sizes[axis] = all[n].size(axis);
    moved(all[n], 0, strides_of(all[n]), to, start, strides_of(to), sizes);
    start += sizes[axis] * to.stride(axis);
  }
  return to;
}
}  // namespace between
"""
_COUNTING = """\
// first, first + step, ...
namespace between {
template <typename T> __global__ void count(T* to, long long first, long long step, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) to[i] = (T)(first + i * step);
}
torch::Tensor counted(int64_t n, int64_t first, int64_t step, torch::TensorOptions options) {
  auto to = torch::empty({n}, options);
  int blocks = (int)((n + 255) / 256);
  if (to.scalar_type() == torch::kFloat)
    count<<<blocks, 256>>>(to.data_ptr<float>(), (long long)first, (long long)step, (long long)n);
  else
    count<<<blocks, 256>>>(to.data_ptr<int64_t>(), (long long)first, (long long)step, (long long)n);
  return to;
}
}  // namespace between
"""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*$", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_BRACKETS = re.compile(r'"(?:\\.|[^"\\])*"|[{}]')
"""Those of code, and texts whole, which may have some."""
_BOUND = re.compile(r'\.def\(\s*"forward"\s*,\s*&?\s*(?:\w+::)*(\w+)')


@dataclass(frozen=True, slots=True)
class Piece:
    """A part's kernel, ready to be put beside others."""

    body: str
    includes: tuple[str, ...]
    forward: str
    """Name of its function."""
    arguments: int
    many: bool
    """Whether it returns a list."""


def piece_of(code: str) -> Piece:
    """A kernel's file without its includes and its module. Raises PartsError for one that cannot
    stand in a namespace."""
    bound = _BOUND.search(code)
    if bound is None or 'extern "C"' in code:
        raise PartsError("a kernel of a part binds no function of its own")
    includes = tuple(dict.fromkeys(line.strip() for line in _INCLUDE.findall(code)))
    body = _without_module(_INCLUDE.sub("", code))
    name = bound[1]
    found = re.search(rf"([\w:<>&\s]+?)\b{name}\s*\(", body)
    if found is None:
        raise PartsError(f"a kernel of a part has no {name}")
    arguments = _arguments(body, body.index("(", found.end() - 1))
    if any(re.search(r"vector|ArrayRef|TensorList", one) for one in arguments):
        raise PartsError("a kernel of a part takes a list")
    undefined = "".join(f"\n#undef {name}" for name in dict.fromkeys(_DEFINE.findall(body)))
    return Piece(body.strip() + undefined, includes, name, len(arguments), "vector" in found[1])


def _without_module(code: str) -> str:
    start = code.find("PYBIND11_MODULE")
    if start < 0:
        return code
    depth, end = 0, len(code)
    for token in _BRACKETS.finditer(code, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if token[0] == "}" and depth == 0:
            end = token.end()
            break
    return code[:start] + code[end:]


def _arguments(code: str, opening: int) -> list[str]:
    """What stands between the brackets that begin there, at commas of no inner bracket."""
    depth, found, begun = 0, [], opening + 1
    for at in range(opening, len(code)):
        depth += code[at] in "(<[{"
        depth -= code[at] in ")>]}"
        if depth == 0 or (depth == 1 and code[at] == ","):
            found.append(code[begun:at].strip())
            begun = at + 1
        if depth == 0:
            break
    return [one for one in found if one]


def takes(part: Part, code: str) -> bool:
    """Whether a kernel can stand in a part's place."""
    try:
        given = piece_of(code).arguments
    except PartsError:
        return False
    return given in (len(part.tensors), len(part.tensors) + len(part.numbers))


def joined(trace: Trace, parts: Sequence[Part], kernels: Sequence[str]) -> str:
    """The whole's kernel. Raises PartsError."""
    return _Host(trace, parts, [piece_of(code) for code in kernels]).text()


def require_joinable(trace: Trace, parts: Sequence[Part]) -> None:
    """Before kernels are asked for. Raises PartsError where the parts could not be joined."""
    _Host(trace, parts, [Piece("", (), "forward", len(p.tensors), False) for p in parts]).text()


@dataclass(slots=True)
class _Host:
    trace: Trace
    parts: Sequence[Part]
    pieces: Sequence[Piece]
    lines: list[str] = field(default_factory=list)
    ready: dict[int, str] = field(default_factory=dict)
    """Variables that hold a value's elements in their order."""
    copies: bool = False
    counts: bool = False

    def text(self) -> str:
        trace = self.trace
        ends = {part.output: at for at, part in enumerate(self.parts)}
        own = inlined(trace)
        for number in range(trace.inputs + trace.parameters):
            self.ready[number] = variable(trace, number)
        for call in trace.calls:
            for out in call.outputs:
                if out in ends:
                    self._part(ends[out])
            if call.kind in ("copy", "join", "write") and not own.issuperset(call.outputs):
                self._between(call)
        outputs = [self._plain(number) for number in trace.outputs]
        result = outputs[0] if len(outputs) == 1 else f"{{{', '.join(outputs)}}}"
        result_type = "torch::Tensor" if len(outputs) == 1 else "std::vector<torch::Tensor>"
        tensors = range(trace.inputs + trace.parameters)
        given = [f"torch::Tensor {variable(trace, n)}" for n in tensors]
        if any(
            re.search(rf"\b{name}\b", line) for line in self.lines for _, name, _ in numbers(trace)
        ):
            given += [f"{kind} {name}" for kind, name, _ in numbers(trace)]
        includes = dict.fromkeys(
            ["#include <torch/extension.h>", "#include <cmath>", "#include <vector>"]
            + [line for piece in self.pieces for line in piece.includes]
        )
        bodies = []
        for at, (part, piece) in enumerate(zip(self.parts, self.pieces, strict=True), 1):
            bodies.append(f"// part {at}: {part.task.description}\nnamespace part{at} {{")
            bodies.append(f"{piece.body}\n}}  // namespace part{at}\n")
        body = "\n".join(f"  {line}" for line in self.lines)
        return "\n".join([
            *includes, "", *bodies, *([_COPYING] if self.copies else []),
            *([_COUNTING] if self.counts else []),
            f"{result_type} forward({', '.join(given)}) {{", body, f"  return {result};", "}", "",
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }', "",
        ])  # fmt: skip

    def _part(self, at: int) -> None:
        part, piece = self.parts[at], self.pieces[at]
        given = [self._plain(number) for number in part.tensors]
        if piece.arguments == len(given) + len(part.numbers):
            given += part.numbers
        elif piece.arguments != len(given):
            raise PartsError(f"the kernel of part {at + 1} takes {piece.arguments} arguments")
        name = variable(self.trace, part.output)
        index = "[0]" if piece.many else ""
        self.lines.append(
            f"auto {name} = part{at + 1}::{piece.forward}({', '.join(given)}){index};"
        )
        self.ready[part.output] = name

    def _between(self, call: Call) -> None:
        out = call.outputs[0]
        name = variable(self.trace, out)
        if call.kind == "copy":
            source = next(leaf.number for leaf in call.args if isinstance(leaf, Ref))
            text = self._plain(source)
            if self.trace.values[source].layouts != self.trace.values[out].layouts:
                text += f".view({self._sizes(out)})"
        elif call.kind == "join":
            text = self._join(call, out)
        else:
            self._put(call, name)
            self.ready[out] = name
            return
        self.lines.append(f"auto {name} = {text};")
        self.ready[out] = name

    def _join(self, call: Call, out: int) -> str:
        self.copies = True
        dim = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else Const((0,)))
        axis = dim.values[0] % self.trace.values[out].rank
        refs = [leaf.number for leaf in call.args[0] if isinstance(leaf, Ref)]
        texts = [self._plain(number) for number in refs]
        if call.name == "stack":
            texts = [f"{text}.unsqueeze({axis})" for text in texts]
        return f"between::join({{{', '.join(texts)}}}, {axis})"

    def _put(self, call: Call, name: str) -> None:
        """A copy of a tensor, into which something is written."""
        self.copies = True
        whole_ref, view_ref, put = call.args
        whole_value, view = (self.trace.values[r.number] for r in (whole_ref, view_ref))
        base, plain = self._plain(whole_ref.number), self._strides(whole_value)
        self.lines.append(
            f"auto {name} = between::copy({base}, {self._sizes(whole_ref.number)}, {plain}, 0);"
        )
        if isinstance(put, Ref):
            source, given = self._plain(put.number), self.trace.values[put.number]
            sizes = [given.extents(a) for a in range(given.rank)]
            padded = [None] * (view.rank - given.rank) + list(range(given.rank))
            steps = [
                "0" if a is None or set(sizes[a]) == {1} else f"{source}.stride({a})"
                for a in padded
            ]
        else:
            if not isinstance(put, Const) or put.varies:
                raise PartsError("what it writes into a tensor differs from size to size")
            if whole_value.dtype != "float32":
                raise PartsError("it writes a number into a tensor of others than floats")
            source = f"put{view.number}"
            options = f"torch::TensorOptions().dtype(torch::kFloat).device({base}.device())"
            value = _number(float(put.values[0]))
            self.lines.append(f"auto {source} = torch::full({{1}}, {value}, {options});")
            steps = ["0"] * view.rank
        offset = self._expression([one.offset for one in view.layouts])
        self.lines.append(
            f"between::moved({source}, 0, {{{', '.join(steps)}}}, {name}, {offset}, "
            f"{self._strides(view)}, {self._sizes(view.number)});"
        )

    def _strides(self, value: Value) -> str:
        axes = range(value.rank)
        texts = [self._expression([_stride(one, a) for one in value.layouts]) for a in axes]
        return f"{{{', '.join(texts)}}}"

    def _plain(self, number: int) -> str:
        """C++ of a tensor with the value's shape, whose elements lie in their order."""
        if number in self.ready:
            return self.ready[number]
        value = self.trace.values[number]
        written = literals(self.trace).get(number)
        if written is not None:
            self._write(number, written)
            return self.ready[number]
        root = self.trace.values[value.root]
        if root.number not in self.ready:
            maker = self.trace.maker(root.number)
            if maker is not None and maker.kind in ("copy", "join"):
                self._between(maker)
            else:
                self._fill(root)
        base = self.ready[root.number]
        if number == root.number:
            return base
        if value.is_plain and value.elements == root.elements:
            text = f"{base}.view({self._sizes(number)})"
        else:
            self.copies = True
            offset = self._expression([one.offset for one in value.layouts])
            places = f"{self._sizes(number)}, {self._strides(value)}, {offset}"
            text = f"between::copy({base}, {places})"
        name = f"view{number}"
        self.lines.append(f"auto {name} = {text};")
        self.ready[number] = name
        return name

    def _fill(self, value: Value) -> None:
        """A tensor that is full of one number, or counts. Raises PartsError for another."""
        counted = counting(self.trace, value.number)
        if counted is not None:
            self._count(value, *counted)
            return
        maker = self.trace.maker(value.number)
        name = maker.name.removeprefix("new_").removesuffix("_like") if maker is not None else ""
        same = {float(v) for one in value.seen if one.numel() for v in (one.min(), one.max())}
        if name == "empty":
            same = {0.0}
        full = name in ("zeros", "empty", "ones", "full") and len(same) == 1
        if not full or value.dtype != "float32":
            raise PartsError("a part reads what no part makes")
        first, made = variable(self.trace, 0), variable(self.trace, value.number)
        options = f"torch::TensorOptions().dtype(torch::kFloat).device({first}.device())"
        (number,), sizes = same, self._sizes(value.number)
        call = f"full({sizes}, {_number(number)}" if number else f"zeros({sizes}"
        self.lines.append(f"auto {made} = torch::{call}, {options});")
        self.ready[value.number] = made

    def _count(self, value: Value, start: int, step: int) -> None:
        """start, start + step, ..."""
        self.counts = True
        first, made = variable(self.trace, 0), variable(self.trace, value.number)
        kind = "Float" if value.floating else "Long"
        options = f"torch::TensorOptions().dtype(torch::k{kind}).device({first}.device())"
        size = self._expression(list(value.extents(0)))
        self.lines.append(f"auto {made} = between::counted({size}, {start}, {step}, {options});")
        self.ready[value.number] = made

    def _write(self, number: int, values: tuple[float, ...]) -> None:
        """A constant as numbers in the host code."""
        name, first = f"written{number}", variable(self.trace, 0)
        texts = ", ".join(map(_number, values))
        options = f"torch::TensorOptions().dtype(torch::kFloat).device({first}.device())"
        shape = ", ".join(map(str, self.trace.values[number].layouts[0].shape))
        self.lines.append(f"auto {name} = torch::tensor({{{texts}}}, {options}).view({{{shape}}});")
        self.ready[number] = name

    def _sizes(self, number: int) -> str:
        value = self.trace.values[number]
        return (
            f"{{{', '.join(self._expression(list(value.extents(a))) for a in range(value.rank))}}}"
        )

    def _expression(self, values: Sequence[int | None]) -> str:
        known = self._known()
        if any(v is None for v in values):
            at = [place for place, v in enumerate(values) if v is not None]
            if not at:
                return "0"
            values = [values[place] for place in at]
            known = [Known(k.text, tuple(k.values[place] for place in at)) for k in known]
        text = whole([v for v in values if v is not None], known)
        if text is None:
            raise PartsError(f"{tuple(values)} are sizes or strides whose origin is not found")
        return text

    def _known(self) -> list[Known]:
        made = known_extents(self.trace, len(self.trace.values))
        ready = {*self.ready.values(), *(name for _, name, _ in numbers(self.trace))}
        return [k for k in made if k.text.partition(".")[0] in ready]


def _number(value: float) -> str:
    """C++ of a float that is as near to it as any."""
    if math.isinf(value):
        return "(float)INFINITY" if value > 0 else "-(float)INFINITY"
    return "(float)NAN" if math.isnan(value) else f"(float){value!r}"


def _stride(layout: Layout, axis: int) -> int | None:
    """None for an axis of one element: its stride counts nowhere."""
    return layout.strides[axis] if layout.shape[axis] > 1 else None

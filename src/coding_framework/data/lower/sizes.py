"""Sizes in C: names of axes, and of what is computed from them on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coding_framework.data.graph import Extent, Graph
from coding_framework.data.lower.text import atom


class Sizes:
    """Gives each size a name or a number. What is no axis itself is computed once, on the host."""

    def __init__(self, graph: Graph) -> None:
        scalars = {name for name, _ in graph.scalars}
        self._first = graph.sizes
        self._names: dict[Any, str] = {}
        self.said: dict[str, str] = {}
        """Name -> what it is, in the host's C; in an order in which they can be declared."""
        self.types: dict[str, str] = {}
        for symbol in graph.symbols:
            at = symbol.argument
            said = at if at in scalars else f"{at}.size({symbol.axis})"
            kind = dict(graph.scalars).get(at, "int")
            self.said[symbol.name], self.types[symbol.name] = said, kind
        self._taken = {symbol.name for symbol in graph.symbols}

    def name(self, size: Extent, wish: str = "size") -> str:
        """The size's name or number."""
        if isinstance(size, (int, float)):
            return repr(size)
        if size.is_Float:
            return repr(float(size))
        if size.is_Integer:
            return str(int(size))
        if size.is_Symbol:
            return str(size.name)
        if size not in self._names:
            count = 1
            while f"{wish}_{count}" in self._taken:
                count += 1
            name = self._names[size] = f"{wish}_{count}"
            self._taken.add(name)
            whole = self._is_whole(size)
            self.said[name] = in_c(size, whole)
            self.types[name] = "int" if whole else "float"
        return self._names[size]

    def say(self, name: str, said: str) -> None:
        """A size of a kernel's own, by what it is in the host's C."""
        self._taken.add(name)
        self.said[name], self.types[name] = said, "int"

    def worth(self, size: Extent) -> Any:
        """What it is at the shape set by which the form of a kernel is chosen."""
        return worth(size, self._first)

    def _is_whole(self, size: Any) -> bool:
        """Whether it is a whole number: of a quotient and a power, sympy alone does not know."""
        import sympy

        if size.is_integer is not None:
            return bool(size.is_integer)
        if any(not s.is_integer for s in size.free_symbols) or size.atoms(sympy.Float):
            return False
        powers = size.atoms(sympy.Pow)
        return isinstance(self.worth(size), int) and all(p.exp.is_Integer for p in powers)


def worth(size: Extent, known: Mapping[str, float]) -> Any:
    """The number that an expression of sizes is; what is none, itself. known: by symbol."""
    import sympy

    if not isinstance(size, sympy.Basic):
        return size
    number = size.subs({symbol: known[str(symbol)] for symbol in size.free_symbols})
    return int(number) if number.is_Integer else float(number)


def in_c(size: Any, whole: bool = True) -> str:
    """An expression of sizes in C; whole: all of it is of whole numbers."""
    import sympy

    def said(one: Any) -> str:
        return atom(in_c(one, whole))

    if size.is_Integer:
        return str(int(size))
    if size.is_Float:
        return f"{float(size)!r}"
    if size.is_Symbol:
        return str(size.name) if whole else f"(double){size.name}"
    kind = type(size).__name__
    if kind in _CALLS:
        return _CALLS[kind](*map(said, size.args))
    if kind in ("Max", "Min"):
        name = "std::max" if kind == "Max" else "std::min"
        text = in_c(size.args[0], whole)
        for other in size.args[1:]:
            text = f"{name}<int>({text}, {in_c(other, whole)})"
        return text
    if size.is_Rational and not whole:
        return f"{float(size)!r}"
    if whole and (size.is_Add or size.is_Mul or size.is_Rational):
        above, below = sympy.fraction(sympy.together(size))
        if below != 1:
            return f"{atom(in_c(sympy.expand(above)))} / {said(below)}"
    if size.is_Add:
        text = ""
        for term in size.args:
            negative = term.could_extract_minus_sign()
            one = atom(in_c(-term if negative else term, whole)) if negative else in_c(term, whole)
            sign = (" - " if text else "-") if negative else (" + " if text else "")
            text += sign + one
        return text
    if size.is_Mul:
        return " * ".join(map(said, size.args))
    if size.is_Pow:
        if whole and size.exp.is_Integer and size.exp > 0:
            return " * ".join([said(size.base)] * int(size.exp))
        if size.exp == sympy.Rational(1, 2):
            return f"sqrt((double){said(size.base)})"
        return f"pow((double){said(size.base)}, {in_c(size.exp, False)})"
    raise ValueError(f"the size {size} has no expression in C")


_CALLS: Mapping[str, Callable[..., str]] = {
    "FloorDiv": lambda a, b: f"{a} / {b}",
    "CleanDiv": lambda a, b: f"{a} / {b}",
    "CeilDiv": lambda a, b: f"({a} + {b} - 1) / {b}",
    "CeilToInt": lambda a: f"(int)ceil({a})",
    "FloorToInt": lambda a: f"(int)floor({a})",
    "TruncToInt": lambda a: f"(int)({a})",
    "RoundToInt": lambda a: f"(int)rint({a})",
    "floor": lambda a: f"(int)floor({a})",
    "Mod": lambda a, b: f"{a} % {b}",
    "PythonMod": lambda a, b: f"{a} % {b}",
    "ToFloat": lambda a: f"(double){a}",
    "IntTrueDiv": lambda a, b: f"(double){a} / {b}",
    "FloatTrueDiv": lambda a, b: f"(double){a} / {b}",
    "PowByNatural": lambda a, b: f"(int)llrint(pow({a}, {b}))",
    "FloatPow": lambda a, b: f"pow({a}, {b})",
    "OpaqueUnaryFn_sqrt": lambda a: f"sqrt((double){a})",
    "OpaqueUnaryFn_log": lambda a: f"log((double){a})",
    "OpaqueUnaryFn_exp": lambda a: f"exp((double){a})",
    "log": lambda a: f"log((double){a})",
    "Abs": lambda a: f"abs({a})",
}

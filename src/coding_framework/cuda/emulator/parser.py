"""PTX text to a `Module`. Covers what nvcc 13 emits for sm_80 to sm_100, and inline assembly.

The text is a candidate's in effect (inline assembly passes through nvcc as it is), so every size is
bounded and what is not known ends as `unsupported`, naming it.
"""

from __future__ import annotations

import re

from coding_framework.cuda.emulator.lexer import Token, number, tokenize
from coding_framework.cuda.emulator.program import (
    TYPE_BYTES,
    Address,
    Call,
    Function,
    Immediate,
    InitialValue,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
    too_large,
    unsupported,
)
from coding_framework.cuda.emulator.scopes import Scope, SourceLines

MAX_PTX_CHARACTERS = 8 << 20
MAX_VARIABLE_BYTES = 1 << 31
_SPACES = {".global", ".shared", ".const", ".local", ".param"}
_LINKAGE = {".visible", ".extern", ".weak", ".common"}
_SPECIALS = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)(?:\.[xyzw])?"
    r"|laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank|cluster_nctarank"
    r"|lanemask_(?:eq|le|lt|ge|gt)|clock(?:_hi|64)?|pm\d(?:_64)?|envreg\d+|globaltimer(?:_lo|_hi)?"
    r"|reserved_smem_\w+|total_smem_size|aggr_smem_size|dynamic_smem_size|current_graph_exec)"
)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0
        self.module = Module()
        self.lines = SourceLines(text)

    # --- tokens ---------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.tokens[self.at].text == text and self.tokens[self.at].kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"{self.token.text!r} where {text!r} is expected")

    def error(self, what: str) -> Exception:
        line = self.text.count("\n", 0, self.token.position) + 1
        return unsupported(f"{what}, in line {line} of the PTX")

    def word(self) -> str:
        token = self.take()
        if token.kind != "word":
            raise self.error(f"{token.text!r} where a name is expected")
        return token.text

    def integer(self) -> int:
        negative = self.accept("-")
        token = self.take()
        if token.kind != "int":
            raise self.error(f"{token.text!r} where an integer is expected")
        value = number(token).bits
        return -value if negative else value

    def skip_to(self, text: str) -> None:
        while self.token.kind != "end" and not self.accept(text):
            self.at += 1

    # --- module ---------------------------------------------------------------------------------

    def parse(self) -> Module:
        while self.token.kind != "end":
            token = self.take()
            if token.text in _LINKAGE:
                continue
            if token.text in (".entry", ".func"):
                self.function(token.text == ".entry")
            elif token.text in _SPACES:
                external = self.tokens[self.at - 2].text == ".extern" if self.at > 1 else False
                for variable in self.variables(token.text[1:], external):
                    self.module.variables[variable.name] = variable
            else:
                self.module_directive(token)
        return self.module

    def module_directive(self, token: Token) -> None:
        text = token.text
        if text == ".version":
            self.take()
        elif text == ".target":
            self.module.target = self.word()
            while self.accept(","):
                self.take()
        elif text == ".address_size":
            if self.integer() != 64:
                raise self.error("32-bit addresses")
        elif text == ".file":
            self.integer()
            self.take()
            while self.accept(","):
                self.integer()
        elif text == ".section":
            self.skip_to("{")
            self.skip_to("}")
        elif text == ".pragma":
            self.skip_to(";")
        elif text != ";":
            raise self.error(f"the directive {text!r}")

    def variables(self, space: str, external: bool = False) -> list[Variable]:
        """`.space [.align n] [.vN] .type name[..] [= ...], ... ;` after the space was read."""
        align, vector, kind = 0, 1, ""
        while self.token.kind == "directive":
            text = self.take().text
            if text == ".align":
                align = self.integer()
            elif text in (".v2", ".v4"):
                vector = int(text[2:])
            elif text == ".attribute":
                self.skip_to(")")
            elif text[1:] in TYPE_BYTES:
                kind = text[1:]
            else:
                raise self.error(f"{text!r} in a declaration")
        if not kind:
            raise self.error("a variable without a type")
        size = TYPE_BYTES[kind] * vector
        made = []
        while True:
            made.append(self.declarator(space, size, align or size, external, kind))
            if not self.accept(","):
                break
        self.expect(";")
        return made

    def declarator(self, space: str, size: int, align: int, external: bool, kind: str) -> Variable:
        name, count, unsized = self.word(), 1, False
        while self.accept("["):
            if self.accept("]"):
                unsized = True
                continue
            count *= self.integer()
            self.expect("]")
        if unsized and self.token.text != "=":
            count = 0
        if count * size > MAX_VARIABLE_BYTES:
            raise too_large(f"a variable of {count * size} bytes")
        if count < 0 or align & (align - 1) or align > 1 << 16:
            raise self.error(f"the size or alignment of the variable {name!r}")
        values: list[InitialValue] = []
        if self.accept("="):
            self.initialiser(values, kind)
            count = max(count, len(values)) if unsized else count
            if len(values) > count:
                raise self.error(f"too many initial values for {name!r}")
        element = size if count * size == 0 or values else 1
        return Variable(name, space, count * size, align, element, tuple(values), external, unsized)

    def initialiser(self, values: list[InitialValue], kind: str) -> None:
        if self.accept("{"):
            while not self.accept("}"):
                self.initialiser(values, kind)
                self.accept(",")
            return
        if self.token.kind == "word":
            name = self.word()
            if name == "generic":
                self.expect("(")
                name = self.word()
                self.expect(")")
            offset = self.integer() if self.accept("+") else 0
            values.append(InitialValue(offset, name))
            return
        values.append(InitialValue(self.literal(kind).bits))

    def literal(self, kind: str = "") -> Immediate:
        negative = self.accept("-")
        token = self.take()
        if token.kind not in ("int", "float", "hexfloat"):
            raise self.error(f"{token.text!r} where a number is expected")
        value = number(token)
        if not negative:
            return value
        if value.kind == "int":
            return Immediate(-value.bits)
        return Immediate(value.bits ^ (1 << (31 if value.kind == "f32" else 63)), value.kind)

    # --- functions ------------------------------------------------------------------------------

    def function(self, is_entry: bool) -> None:
        results = self.formals() if not is_entry and self.token.text == "(" else ()
        name = self.word()
        function = Function(name, is_entry, results=results)
        if self.token.text == "(":
            function.parameters = self.formals()
        self.function_directives(function)
        if self.accept(";"):
            self.module.functions.setdefault(name, function)
            return
        self.expect("{")
        scope = Scope(None)
        for variable in (*function.parameters, *function.results):
            scope.names[variable.name] = variable
        function.defined = True
        self.lines.current = None
        _Body(self, function).parse(scope)
        self.module.functions[name] = function

    def function_directives(self, function: Function) -> None:
        while self.token.kind == "directive":
            text = self.take().text
            if text in (".maxntid", ".reqntid"):
                threads = self.integer()
                while self.accept(","):
                    threads *= self.integer()
                function.max_threads = min(max(threads, 1), 1024)
            elif text in (".minnctapersm", ".maxnreg", ".maxnctapersm"):
                self.integer()
            elif text == ".pragma":
                self.skip_to(";")
            elif text != ".noreturn":
                raise self.error(f"the directive {text!r}")

    def formals(self) -> tuple[Variable, ...]:
        self.expect("(")
        made: list[Variable] = []
        while not self.accept(")"):
            if self.take().text != ".param":
                raise self.error("a parameter outside the .param space")
            made.append(self.formal())
            self.accept(",")
        return tuple(made)

    def formal(self) -> Variable:
        align, size = 0, 0
        while self.token.kind == "directive":
            text = self.take().text
            if text == ".align":
                stated = self.integer()
                align = align or stated
            elif text == ".ptr":
                while self.token.text in (".global", ".shared", ".const", ".local"):
                    self.take()
                if self.accept(".align"):
                    self.integer()
            elif text[1:] in TYPE_BYTES:
                size = TYPE_BYTES[text[1:]]
            else:
                raise self.error(f"{text!r} in a parameter")
        name, count = self.word(), 1
        if self.accept("["):
            count = self.integer()
            self.expect("]")
        if not 0 <= size * count <= 1 << 16:
            raise self.error(f"the size of the parameter {name!r}")
        return Variable(name, "param", size * count, align or max(size, 1))


class _Body:
    """Statements of one function."""

    def __init__(self, parser: _Parser, function: Function) -> None:
        self.p = parser
        self.function = function
        self.pending: list[tuple[Instruction, tuple[str, ...], Scope]] = []

    def parse(self, scope: Scope) -> None:
        p = self.p
        depth: list[Scope] = [scope]
        while depth:
            if p.token.kind == "end":
                raise p.error("the end of the file inside a function")
            if p.accept("}"):
                depth.pop()
            elif p.accept("{"):
                if len(depth) > 256:
                    raise p.error("blocks nested more than 256 deep")
                depth.append(Scope(depth[-1]))
            elif not p.accept(";"):
                self.statement(depth[-1])
        for instruction, names, where in self.pending:
            instruction.targets = tuple(self.target(n, where) for n in names)

    def target(self, name: str, scope: Scope) -> int:
        found = scope.label(name)
        if found is None:
            raise unsupported(f"a branch to the unknown label {name!r}")
        return found

    def statement(self, scope: Scope) -> None:
        p = self.p
        token = p.token
        if token.kind == "directive":
            self.directive(scope)
        elif token.kind == "word" and p.tokens[p.at + 1].text == ":":
            p.at += 2
            self.label(token.text, scope)
        else:
            self.instruction(scope)

    def label(self, name: str, scope: Scope) -> None:
        p = self.p
        if p.accept(".branchtargets"):
            names = [p.word()]
            while p.accept(","):
                names.append(p.word())
            scope.tables[name] = tuple(names)
        elif p.token.text in (".callprototype", ".calltargets"):
            pass
        else:
            scope.labels[name] = len(self.function.instructions)
            return
        p.skip_to(";")

    def directive(self, scope: Scope) -> None:
        p = self.p
        text = p.take().text
        if text == ".reg":
            self.registers(scope)
        elif text in (".local", ".shared", ".param"):
            for variable in p.variables(text[1:]):
                scope.names[variable.name] = variable
                self.function.variables.append(variable)
        elif text == ".loc":
            numbers = [p.integer() for _ in range(3)]
            while p.accept(","):
                if p.word() == "function_name":
                    p.word()
                    if p.accept("+"):
                        p.integer()
                else:
                    numbers += [p.integer() for _ in range(3)]
            p.lines.update(numbers)
        elif text == ".pragma":
            p.skip_to(";")
        else:
            raise p.error(f"the directive {text!r}")

    def registers(self, scope: Scope) -> None:
        p = self.p
        kind = p.take().text[1:]
        if kind not in TYPE_BYTES or TYPE_BYTES[kind] > 8:
            raise p.error(f"registers of type .{kind}")
        while True:
            name = p.word()
            if p.accept("<"):
                scope.ranges[name] = (p.integer(), kind)
                p.expect(">")
            else:
                scope.names[name] = Register(name, kind)
            if not p.accept(","):
                break
        p.expect(";")

    def instruction(self, scope: Scope) -> None:
        p = self.p
        guard, negated = None, False
        if p.accept("@"):
            negated = p.accept("!")
            found = scope.find(p.word())
            if not isinstance(found, Register) or found.type != "pred":
                raise p.error("a guard that is no predicate")
            guard = found
        opcode = p.word()
        made = Instruction(opcode, (), guard, negated, p.lines.current)
        head = opcode.split(".")[0]
        if head in ("bra", "brx"):
            self.branch(made, scope)
        elif head == "call":
            made.call = self.call(scope)
        else:
            operands: list[Operand] = []
            while p.token.text != ";":
                operands.append(self.operand(scope))
                if not p.accept(","):
                    break
            made.operands = tuple(operands)
        p.expect(";")
        self.function.instructions.append(made)

    def branch(self, made: Instruction, scope: Scope) -> None:
        p = self.p
        if made.opcode.startswith("bra"):
            self.pending.append((made, (p.word(),), scope))
            return
        made.operands = (self.operand(scope),)
        p.expect(",")
        names = scope.table(p.word())
        if names is None:
            raise p.error("an unknown table of branch targets")
        self.pending.append((made, names, scope))

    def call(self, scope: Scope) -> Call:
        p = self.p
        results = self.call_list(scope) if p.token.text == "(" else ()
        if results:
            p.expect(",")
        name = p.word()
        found = scope.find(name)
        arguments: tuple[Variable, ...] = ()
        while p.accept(","):
            if p.token.text == "(":
                arguments = self.call_list(scope)
            else:
                p.word()  # the prototype of an indirect call
        return Call(found if isinstance(found, Register) else name, arguments, results)

    def call_list(self, scope: Scope) -> tuple[Variable, ...]:
        p = self.p
        p.expect("(")
        made: list[Variable] = []
        while not p.accept(")"):
            found = scope.find(p.word())
            if not isinstance(found, Variable):
                raise p.error("an argument of a call outside the .param space")
            made.append(found)
            p.accept(",")
        return tuple(made)

    # --- operands -------------------------------------------------------------------------------

    def operand(self, scope: Scope) -> Operand:
        p = self.p
        if p.accept("{"):
            items: list[Operand] = []
            while not p.accept("}"):
                items.append(self.operand(scope))
                p.accept(",")
            return Vector(tuple(items))
        if p.accept("["):
            return self.address(scope)
        if p.accept("!"):
            inner = self.operand(scope)
            if not isinstance(inner, Register):
                raise p.error("the negation of what is no register")
            return Negated(inner)
        if p.token.kind != "word":
            return p.literal()
        value = self.name(p.word(), scope)
        if p.accept("|"):
            return Pair(value, self.operand(scope))
        if isinstance(value, Symbol) and p.token.text in "+-":
            return Symbol(value.name, value.variable, self.offset())
        return value

    def name(self, name: str, scope: Scope) -> Operand:
        if name == "_":
            return Sink()
        found = scope.find(name)
        if isinstance(found, Register):
            return found
        if found is None and name[0] == "%":
            if _SPECIALS.fullmatch(name) is None:
                raise self.p.error(f"the unknown register {name!r}")
            return Special(name)
        if name == "WARP_SZ":
            return Immediate(32)
        return Symbol(name, found)

    def offset(self) -> int:
        p = self.p
        total = 0
        while p.token.text in ("+", "-"):
            sign = 1 if p.take().text == "+" else -1
            total += sign * p.integer()
        return total

    def address(self, scope: Scope) -> Address:
        p = self.p
        if p.token.kind == "word":
            base = self.name(p.word(), scope)
            if not isinstance(base, Register | Symbol):
                raise p.error("an address that is neither register nor variable")
            made = Address(base, self.offset())
        else:
            made = Address(None, p.integer())
        p.expect("]")
        return made


def parse(text: str) -> Module:
    """The module of `text`. Raises CandidateFault(unsupported) for what it does not know."""
    if len(text) > MAX_PTX_CHARACTERS:
        raise unsupported(f"PTX of more than {MAX_PTX_CHARACTERS >> 20} MiB")
    return _Parser(text).parse()

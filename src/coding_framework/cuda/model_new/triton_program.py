"""Compiles an answer's Triton kernels to PTX: the main program of a sandboxed process.

    python triton_program.py

In the current folder lie `kernel.cu`, which is the answer, and `wanted.json`: the compute
capability to compile for, the answer's requests, and what earlier runs made of some. It writes
`kernel.ptx`, one module of all kernels, `triton.json` (what a launch needs, by request) and
`made.json` (all of each request); where a kernel uses what the emulator has not, also
`checked.ptx`, which that reads. Whatever it writes is the answer's: the judge itself runs ptxas. Of
the answer only imports of Triton, constants and functions under `@triton.jit` are run, and what
chooses imports or constants by `try` or `if`. Errors are printed as nvcc prints them.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from typing import Any, NoReturn

SOURCE, PTX, MADE = "kernel.cu", "kernel.ptx", "made.json"
CHECKED = "checked.ptx"
"""What the emulator reads, where it lacks what the other text uses."""
ANY_GPU = 80
PTX_VERSION = 84
_HEADER = re.compile(r"^\.(?:version|target|address_size)\b[^\n]*\n", re.MULTILINE)
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+("[^"\n]*"(?:[ \t]+"[^"\n]*")?)[^\n]*\n', re.M)
_LOC = re.compile(r"^([ \t]*\.loc[ \t]+)(\d+)\b([^,\n]*)[^\n]*", re.MULTILINE)
"""Without the function that it was inlined from, which a debug section names."""
_SECTIONS = re.compile(r"^[ \t]*\.section\b.*", re.MULTILINE | re.DOTALL)
_SHARED = re.compile(r"^\.extern \.shared [^\n]*\n", re.MULTILINE)
_SHARED_STORE = re.compile(r"\bst\.shared\b")
_NEEDS_ITS_GPU = re.compile(r"\b(?:wgmma|setmaxnreg|tensormap)\.")
_GLOBAL = re.compile(r"^\.global [^;=\n]*?\b(\w+)\[", re.MULTILINE)


def main() -> None:
    """Compile."""
    with open(SOURCE, encoding="utf-8", newline="") as file:
        source = file.read()
    with open("wanted.json", encoding="utf-8") as file:
        wanted = json.load(file)
    capability: int = wanted["capability"]
    _poison_masked_loads()
    names = _run_kernels(source)
    made: dict[str, Any] = wanted["made"]
    digests = {hashlib.sha256(text.encode()).hexdigest(): text for text in wanted["requests"]}
    for digest, text in digests.items():
        if digest not in made:
            made[digest] = _made(json.loads(text), names, digest[:8], capability)
    modules, checked = ([made[d][n] for d in sorted(digests)] for n in (0, 2))
    launches = {digest: made[digest][1] for digest in digests}
    with open(PTX, "w", encoding="utf-8", newline="") as file:
        file.write(_joined(modules, capability))
    if checked != modules:
        with open(CHECKED, "w", encoding="utf-8", newline="") as file:
            file.write(_joined(checked, capability))
    with open("triton.json", "w", encoding="utf-8") as file:
        json.dump(launches, file)
    with open(MADE, "w", encoding="utf-8") as file:
        json.dump(made, file)


def for_emulator(ptx: str) -> str:
    """What the emulator reads where ptxas reads `ptx`: lanes of a warp may store one sum, rounded
    each in its way, at one address. Triton allows it; the emulator does for volatile stores."""
    return _SHARED_STORE.sub("st.volatile.shared", ptx)


def _failed(message: str, line: int = 1) -> NoReturn:
    text = " ".join(message.split())
    print(f"{SOURCE}({line}): error: {text}", flush=True)
    os._exit(1)


def _poison_masked_loads() -> None:
    """A load whose mask is false and which names no `other` gives what nobody may use, instead of
    the zeros that this version happens to give: Triton leaves it undefined."""
    from triton.language import float32, int64
    from triton.language.semantic import TritonSemantic

    load: Any = TritonSemantic.load

    def poisoned(self: Any, ptr: Any, mask: Any, other: Any, *rest: Any) -> Any:
        kind = getattr(ptr.type.scalar, "element_ty", None)
        if mask is not None and other is None and kind is not None:
            if kind.is_floating():
                other = self.scalar_constant(float("nan"), float32)
            elif kind.is_int():
                other = self.scalar_constant(0x5A5A5A5A5A5A5A5A, int64)
        return load(self, ptr, mask, other, *rest)

    TritonSemantic.load = poisoned


def _run_kernels(source: str) -> dict[str, Any]:
    """The names that kernels may use."""
    import triton.language

    names: dict[str, Any] = {"__name__": "answer", "tl": triton.language}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [d for d in node.decorator_list if _is_jit(d)]
            if not node.decorator_list:
                continue
        elif isinstance(node, ast.Import):
            node.names = [a for a in node.names if a.name.split(".")[0] in ("triton", "math")]
            if not node.names:
                continue
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] not in ("triton", "math"):
                continue
        elif isinstance(node, (ast.Try, ast.If)):  # as of an import that has moved
            if any(isinstance(inner, (ast.FunctionDef, ast.ClassDef)) for inner in ast.walk(node)):
                continue
        elif not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        try:
            exec(compile(ast.Module([node], []), SOURCE, "exec", dont_inherit=True), names)
        except Exception as e:  # what needs torch is no constant of a kernel
            if isinstance(node, ast.FunctionDef):
                _failed(f"{type(e).__name__}: {e}", node.lineno)
    return names


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) in ("triton.jit", "jit", "triton.runtime.jit.jit")


def _made(
    wanted: dict[str, Any], names: dict[str, Any], mark: str, capability: int
) -> tuple[str, dict[str, Any], str]:
    """The PTX of one request, what a launch needs, and the PTX that the emulator reads."""
    ptx, launch = _compiled(wanted, names, mark, capability)
    if _NEEDS_ITS_GPU.search(ptx) is None:
        return ptx, launch, ptx
    checked, other = _compiled(wanted, names, mark, ANY_GPU)
    for what in ("shared", "scratch"):  # one launch serves both
        launch[what] = max(launch[what], other[what])
    return ptx, launch, checked


def _compiled(
    wanted: dict[str, Any], names: dict[str, Any], mark: str, capability: int
) -> tuple[str, dict[str, Any]]:
    """The PTX of one request, its names ending in `mark`, and what a launch needs."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler.compiler import ASTSource
    from triton.compiler.errors import CompilationError
    from triton.runtime.jit import JITFunction

    kernel = names.get(wanted["kernel"])
    if not isinstance(kernel, JITFunction):
        _failed(
            f"the kernel {wanted['kernel']} is not a function under @triton.jit at the top of the "
            "file: write it there"
        )
    constants = {name: eval(text, names) for name, text in wanted["constants"].items()}
    divisible = {(place,): [["tt.divisibility", 16]] for place in wanted["aligned"]}
    source = ASTSource(kernel, wanted["signature"], constants, divisible)
    target = GPUTarget("cuda", capability, 32)
    backend = CUDABackend(target)
    if wanted["options"]["num_ctas"] != 1:
        _failed("num_ctas: thread block clusters are not supported yet")
    try:
        options = backend.parse_options({**wanted["options"], "ptx_version": PTX_VERSION})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        about: dict[str, Any] = {"target": target, **options.__dict__}
        made: Any = source.make_ir(
            target,
            options,
            backend.get_codegen_implementation(options),
            backend.get_module_map(),
            context,
        )
        for name, stage in stages.items():
            if name != "cubin":
                made = stage(made, about)
    except CompilationError as e:
        functions = {f.src: f for f in names.values() if isinstance(f, JITFunction)}
        line = _line_of(kernel)
        while True:  # to the innermost function, which may be one of Triton's own
            if e.src in functions:
                line = _line_of(functions[e.src]) + getattr(e.node, "lineno", 1) - 1
            if not isinstance(e.__cause__, CompilationError):
                break
            e = e.__cause__
        _failed(e.error_message or str(e.__cause__ or e), line)
    except Exception as e:
        _failed(f"{type(e).__name__}: {e}", _line_of(kernel))
    entry = f"{about['name']}_{mark}"
    # An instruction may have the kernel's name, so only what defines it is changed.
    ptx = re.sub(rf"(?<![\w.$%]){about['name']}(?=\(|_param_\d)", entry, made)
    for name in _GLOBAL.findall(ptx):
        ptx = re.sub(rf"\b{name}\b", f"{name}_{mark}", ptx)
    launch = {
        "entry": entry,
        "threads": 32 * about["num_warps"],
        "shared": about["shared"],
        "scratch": about["global_scratch_size"],
    }
    return ptx, launch


def _line_of(function: Any) -> int:
    """Of its `def`, below its decorators."""
    before = [line.lstrip().startswith("def ") for line in function.raw_src].index(True)
    return int(function.starting_line_number) + before


def _joined(modules: list[str], capability: int) -> str:
    """One module: one header, one dynamic shared array, one table of files, no debug sections."""
    own = "a" if any(map(_NEEDS_ITS_GPU.search, modules)) else ""
    header = f".version {PTX_VERSION // 10}.{PTX_VERSION % 10}\n.target sm_{capability}{own}\n"
    bodies: list[str] = []
    files: dict[str, int] = {}
    shared: dict[str, None] = {}
    for ptx in modules:
        named = dict(_FILE.findall(ptx))
        text = _HEADER.sub("", _SECTIONS.sub("", ptx))
        numbers = {n: str(files.setdefault(name, len(files) + 1)) for n, name in named.items()}
        shared.update(dict.fromkeys(_SHARED.findall(text)))
        text = _SHARED.sub("", _FILE.sub("", text))
        bodies.append(_LOC.sub(lambda m, to=numbers: m[1] + to.get(m[2], m[2]) + m[3], text))  # type: ignore[misc]
    table = "".join(f"\t.file\t{number} {name}\n" for name, number in files.items())
    return header + ".address_size 64\n" + "".join(shared) + "".join(bodies) + table


if __name__ == "__main__":
    main()

"""Static rules: what in a source deserves a reader's attention, and why.

Findings explain and never decide: every pattern here can be written around, and honest code can
match one. What a candidate may do is decided by the boundary (sandbox, device, replay).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from coding_framework.cuda.advice.source_text import code_only, line_of
from coding_framework.types import Finding, FindingSeverity

_MAX_PER_RULE = 5
_MAX_MACROS = 32


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern over code without comments, and without literals unless they are what counts.

    Every repetition in a pattern over spaces or words is bounded: a source of 100,000 characters
    must not take longer than its length asks.
    """

    name: str
    severity: FindingSeverity
    pattern: re.Pattern[str]
    message: str
    literals: bool = False
    unless: Callable[[str], bool] | None = None
    """What about the whole code makes the pattern mean nothing."""


def _rule(
    name: str,
    severity: FindingSeverity,
    pattern: str,
    message: str,
    *,
    literals: bool = False,
    unless: Callable[[str], bool] | None = None,
) -> Rule:
    bounded = pattern.replace(r"\s*", r"\s{0,40}")
    return Rule(name, severity, re.compile(bounded, re.MULTILINE), message, literals, unless)


_TF32_PART = re.compile(r"([A-Za-z_][\w.\[\]]{0,60})\s{0,4}=\s{0,4}[\w:]{0,40}__float_to_tf32\(")


def _keeps_remainders(code: str) -> bool:
    """Whether the code subtracts a factor's TF32 part from it, as products of two or three such
    parts do (3xTF32), whose error is that of single precision."""
    return any(
        re.search(rf"-=?\s{{0,4}}{re.escape(found[1])}", code)
        for found in _TF32_PART.finditer(code)
    )


def _calls(*names: str) -> str:
    """A call of one of these C functions; not a member, a longer name or a declaration's type."""
    return rf"(?<![\w.>]){'(?:' + '|'.join(names) + ')'}\s*\("


RULES: tuple[Rule, ...] = (
    _rule(
        "process",
        "high",
        _calls("system", "popen", "fork", "vfork", "clone", "exec[lv][pe]{0,2}", "posix_spawnp?"),
        "starts a process",
    ),
    _rule(
        "python_process",
        "high",
        r"\b(?:subprocess|multiprocessing)\.\w{1,40}\s*\(|"
        r"\bos\.\s*(?:system|popen|fork|kill|_exit|abort|exec\w{1,4}|spawn\w{1,5}|posix_spawn)\s*\(",
        "starts or ends a process from Python",
    ),
    _rule(
        "python_internals",
        "high",
        r"\bctypes\b|\bsys\.(?:modules|_getframe|meta_path|settrace)\b|\bgc\.get_\w{1,20}\s*\(|"
        r"\binspect\.(?:stack|currentframe)\s*\(|\b__import__\s*\(|\bpickle\.loads?\s*\(",
        "looks into the interpreter that runs it",
    ),
    _rule(
        "patches_torch",
        "high",
        r"^[ \t]{0,40}torch(?!\.backends)(?:\.\w{1,40}){1,4}\s*=[^=]|"
        r"\bsetattr\s*\(\s*(?:torch|nn|F)\b",
        "replaces a part of torch",
    ),
    _rule(
        "exit",
        "high",
        _calls("exit", "_exit", "_Exit", "quick_exit", "abort", "atexit", "on_exit"),
        "ends the host process, or runs code at its end",
    ),
    _rule(
        "signal",
        "high",
        _calls("kill", "raise", "signal", "sigaction", "ptrace", "prctl"),
        "sends or handles signals, or traces processes",
    ),
    _rule(
        "raw_system_call",
        "high",
        r"(?<![\w.>])syscall\s*\(|\bprocess_vm_(?:read|write)v\b",
        "makes a raw system call",
    ),
    _rule(
        "file_access",
        "high",
        _calls("fopen", "open", "openat", "creat", "freopen", "unlink", "remove", "rename", "mkdir")
        + r"|\bstd::\s*(?:[io]?fstream|filesystem)\b",
        "reads or writes files",
    ),
    _rule(
        "descriptor_write",
        "medium",
        _calls("write", "pwrite", "dup2?", "dprintf", "fdopen", "sendmsg", "writev"),
        "writes to a file descriptor",
    ),
    _rule(
        "network",
        "high",
        _calls("socket", "connect", "bind", "listen", "getaddrinfo", "gethostbyname")
        + r"|#\s*include\s*<\s*(?:sys/socket|netinet/\w+|arpa/inet|netdb)\.h",
        "uses the network",
    ),
    _rule(
        "environment",
        "medium",
        _calls("getenv", "secure_getenv", "setenv", "putenv", "unsetenv") + r"|\benviron\b",
        "reads or changes the environment",
    ),
    _rule(
        "dynamic_loading",
        "high",
        _calls("dlopen", "dlsym", "dlmopen", "dl_iterate_phdr", "mprotect")
        + r"|\bcu(?:Module|Library)Load\w*\s*\(|\bnvrtc\w+\s*\(",
        "loads code at run time or patches memory",
    ),
    _rule(
        "threads",
        "medium",
        r"\bstd::\s*(?:thread|async|jthread)\b|(?<![\w.>])pthread_create\s*\(|#\s*pragma\s+omp\b",
        "starts host threads",
    ),
    _rule(
        "constructor",
        "high",
        r"__attribute__\s*\(\(\s*(?:constructor|destructor)|\.init_array\b|\bifunc\b",
        "runs host code when the library is loaded or unloaded",
    ),
    _rule(
        "embedded_binary",
        "high",
        r"\.incbin\b|#\s*embed\b",
        "includes a file as bytes",
        literals=True,
    ),
    _rule(
        "inline_assembly",
        "info",
        r"\basm\b\s*(?:volatile\b|goto\b|inline\b|__volatile__\b)?\s*\(",
        "contains inline assembly",
    ),
    _rule(
        "assembly_trap",
        "medium",
        r"\basm\b[^;\"]{0,40}\"[^\"\n]{0,200}\b(?:trap|brkpt|exit)\s*;",
        "ends a thread or the kernel from inline assembly",
        literals=True,
    ),
    _rule(
        "assembly_system_call",
        "high",
        r"\basm\b[^;\"]{0,40}\"[^\"\n]{0,200}\b(?:syscall|sysenter|svc|int\s{1,8}\$?0x80)\b",
        "makes a system call from inline assembly",
        literals=True,
    ),
    _rule(
        "device_state",
        "medium",
        _calls(
            "cudaDeviceReset",
            "cudaSetDevice",
            "cudaDeviceSetLimit",
            "cudaSetDeviceFlags",
            "cudaHostAlloc",
            "cudaMallocHost",
            "cudaHostRegister",
            r"cudaIpc\w{1,40}",
        ),
        "changes the device for the whole process, or pins host memory",
    ),
    _rule(
        "system_path",
        "high",
        r"\"/(?:proc|etc|dev|sys|root|home|tmp)/",
        "names a file of the system",
        literals=True,
    ),
    _rule(
        "suspicious_include",
        "high",
        r"#\s*(?:include|embed|include_next)\s*[<\"]\s*(?:/|\.\./|[^>\"\n]{0,80}/(?:proc|dev|etc)/)",
        "includes a file by an absolute or climbing path",
    ),
    _rule(
        "vendor_library",
        "high",
        r"\bcu(?:blas|dnn|fft|sparse|solver|rand)\w*\s*\(|"
        r"#\s*include\s*[<\"](?:cublas|cudnn|cufft|cusparse|cusolver|curand|cutlass)",
        "calls a vendor library instead of computing in a kernel of its own",
    ),
    _rule(
        "torch_operator",
        "high",
        r"\b(?:torch|at)::\s*(?:matmul|mm|bmm|addmm|conv\w*|linear|softmax|log_softmax|relu|gelu|"
        r"sigmoid|tanh|layer_norm|batch_norm|group_norm|sum|mean|max|min|argmax|argmin|cumsum|sort|"
        r"topk|einsum|add|sub|mul|div|exp|log|sqrt|pow|norm|var|std|clamp|where|transpose|cat)\s*\(",
        "calls a PyTorch operator instead of computing in a kernel of its own",
    ),
    _rule(
        "thrust_or_cub",
        "low",
        r"\b(?:thrust|cub)::|#\s*include\s*<\s*(?:thrust|cub)/",
        "uses a library of ready-made device algorithms",
    ),
    _rule(
        "fallback",
        "high",
        r"\bcatch\s*\(\s*(?:\.\.\.|(?:const\s{1,40})?(?:std|c10|torch)::\w+)",
        "catches exceptions: a failed kernel could be replaced by something else",
    ),
    _rule(
        "read_back",
        "medium",
        r"\bcudaMemcpyDeviceToHost\b|\bcudaMemcpyFromSymbol\w*\s*\(|\.\s*item\s*(?:<[^>\n]{0,40}>)?\s*\(|"
        r"\.\s*cpu\s*\(\s*\)|\bcudaMallocManaged\s*\(|\bcudaHostGetDevicePointer\s*\(",
        "reads device values on the host",
    ),
    _rule(
        "static_state",
        "low",
        r"^[ \t]{1,40}static\s{1,40}(?!inline|constexpr|const\b|__device__|_)[\w:<>*& ]{1,80}[=;]",
        "keeps host state from one call to the next",
    ),
    _rule(
        "graph_capture",
        "medium",
        r"\bcuda(?:StreamBeginCapture|Graph\w+)\s*\(",
        "captures or replays CUDA graphs",
    ),
    _rule(
        "l2_persistence",
        "medium",
        r"\bcudaAccessPropertyPersisting\b|\bcudaLimitPersistingL2CacheSize\b|\bcudaCtxResetPersist",
        "pins data in the L2 cache between calls",
    ),
    _rule(
        "low_precision",
        "medium",
        r"\b(?:__half2?|half2?|__nv_bfloat162?|nv_bfloat16|__float2half\w*|__float2bfloat16\w*)\b",
        "computes in less than single precision",
    ),
    _rule(
        "low_precision",
        "medium",
        r"\bprecision::tf32\b",
        "computes in less than single precision",
        unless=_keeps_remainders,
    ),
    _rule(
        "clock",
        "low",
        r"\bclock(?:64)?\s*\(\s*\)|\bglobaltimer\b|\bstd::chrono\b|\bgettimeofday\s*\(",
        "reads a clock: its work may depend on time",
    ),
    _rule(
        "fast_math",
        "info",
        r"\b__(?:expf|logf|sinf|cosf|powf|fdividef|tanf|exp10f|log2f)\s*\(",
        "uses fast approximate intrinsics",
    ),
)


def static_findings(source: str) -> tuple[Finding, ...]:
    """What the rules see in `source`, by line; at most a few of each rule. Never raises."""
    code, with_literals = code_only(source), code_only(source, literals=True)
    found = []
    for rule in RULES:
        text = with_literals if rule.literals else code
        found += [_finding(rule, text, match.start()) for match in _matches(rule, text)]
    found += _pasted_findings(code)
    found += _encoding_findings(source)
    unique = {(f.line or 0, f.rule): f for f in found}
    return tuple(unique[key] for key in sorted(unique))


_MACRO = re.compile(
    r"^[ \t]{0,8}#\s{0,8}define\s{1,8}(\w{1,60})\(([\w, ]{0,120})\)((?:[^\n\\]|\\\n){0,400})",
    re.MULTILINE,
)
_PASTE = re.compile(r"\w{1,60}(?:\s{0,4}##\s{0,4}\w{1,60}){1,8}")


def _pasted_findings(code: str) -> list[Finding]:
    """What the rules see in the names that a macro pastes together, at the macro, or at a use that
    gives it their parts."""
    found = []
    for macro in list(_MACRO.finditer(code))[:_MAX_MACROS]:
        name, parameters, body = macro.groups()
        pastes = [paste.group() for paste in _PASTE.finditer(body)][:_MAX_PER_RULE]
        if not pastes:
            continue
        names = [parameter.strip() for parameter in parameters.split(",")]
        uses = re.finditer(rf"\b{name}\s{{0,4}}\(([\w, ]{{0,120}})\)", code[macro.end() :])
        given: list[tuple[int, list[str]]] = [(macro.start(), names)]
        given += [
            (macro.end() + use.start(), [part.strip() for part in use.group(1).split(",")])
            for use, _ in zip(uses, range(_MAX_PER_RULE), strict=False)
        ]
        for position, parts in given:
            value = dict(zip(names, parts, strict=False))
            words = [
                "".join(value.get(part.strip(), part.strip()) for part in paste.split("##"))
                for paste in pastes
            ]
            text = " ".join(f"{word}(" for word in words)
            found += [
                _finding(rule, code, position)
                for rule in RULES
                if not rule.literals and rule.pattern.search(text)
            ]
    return found


def _matches(rule: Rule, code: str) -> list[re.Match[str]]:
    matches: list[re.Match[str]] = []
    if rule.unless is not None and rule.unless(code):
        return matches
    for match in rule.pattern.finditer(code):
        matches.append(match)
        if len(matches) == _MAX_PER_RULE:
            break
    return matches


def _finding(rule: Rule, code: str, position: int) -> Finding:
    while position < len(code) and code[position].isspace():
        position += 1
    return Finding(
        rule=rule.name,
        severity=rule.severity,
        line=line_of(code, position),
        message=rule.message,
        basis="source",
    )


def _encoding_findings(source: str) -> list[Finding]:
    found = []
    rows: tuple[tuple[str, str, FindingSeverity, str], ...] = (
        ("nul_byte", "\0", "high", "contains a NUL byte"),
        ("bidirectional_text", "\u202e", "medium", "contains text that displays in another order"),
    )
    for name, character, severity, message in rows:
        position = source.find(character)
        if position >= 0:
            found.append(
                Finding(
                    rule=name,
                    severity=severity,
                    line=line_of(source, position),
                    message=message,
                    basis="source",
                )
            )
    return found

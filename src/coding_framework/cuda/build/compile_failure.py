"""Why a compilation failed, and whether that is the candidate's fault or this machine's.

What the compiler printed is partly the candidate's: `#line`, `#pragma GCC error` and `.print` put
any line there, at its very beginning. So text alone never makes a failure ours, which would mask
the sample: it only asks for a second try. What counts as ours is what a candidate cannot say: an
exit by a signal that nobody but the kernel or an operator sends, nvcc's own end by one, and the
kernel's count of processes killed for memory. A compiler that crashes raises other signals: the
source's fault.

nvcc exits with 128 + the signal for some of its tools (ptxas, gcc). It catches SIGTERM and SIGINT
itself, says so and exits with 255, as it does after an error of ptxas, which always has a line of
its own. The front end and cicc catch them and exit with 4, without a reason; of cc1plus and ld only
a line of text tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from coding_framework.cuda.build.diagnostics import CompilerReport
from coding_framework.cuda.build.header_gaps import gap_in
from coding_framework.cuda.sandbox import Exit, Limits
from coding_framework.errors import CompilerKilledError
from coding_framework.types import Status

_DIED = re.compile(r"'[^']+' died due to signal (\d+)")
_OUT_OF_MEMORY = re.compile(
    r"out of memory|virtual memory exhausted|std::bad_alloc|cannot allocate memory", re.IGNORECASE
)
# the front end and gcc report these signals in words of their own
_OUT_OF_TIME = re.compile(r"^(?:gcc: i|I)nternal (?:compiler )?error: CPU time limit", re.MULTILINE)
_TOO_LONG = re.compile(r"^gcc: internal compiler error: File size limit", re.MULTILINE)
_SHORTAGE = re.compile(
    r"Killed signal terminated|terminated with signal 9|Resource temporarily unavailable"
    r"|No space left on device|Too many open files|Input/output error|Stale file handle",
)
_TERMINATED = re.compile(
    r"(?:Terminated|Hangup|Interrupt|Quit) signal terminated program"
    r"|terminated with signal (?:1|2|3|15)\b"
)
_NVCC_ENDED = re.compile(r"^nvcc: (Terminated|Interrupt)\n(?:.*\n){0,8}\Z", re.MULTILINE)
"""Its children may complain after it of the files that it removed."""
_NVCC_ENDED_CODE = 255
_SIGHUP, _SIGINT, _SIGQUIT, _SIGKILL, _SIGTERM, _SIGXCPU, _SIGXFSZ = 1, 2, 3, 9, 15, 24, 25
_SENT = frozenset({_SIGHUP, _SIGINT, _SIGQUIT, _SIGKILL, _SIGTERM})
"""No fault of a process raises these; of limits, only that of CPU time does (SIGKILL)."""
_COUNTED = 0.7
"""Share of the limit of CPU time that a process may have used when the kernel ends it: the limit
counts whole ticks, which beside many short processes are more than what it ran. Measured: a source
that inlines without end was killed before its 30 s twice in a row, and so masked."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed compilation, before it becomes a result."""

    status: Status
    reason: str
    certain: bool = True
    """False: it may be this machine's doing, so it is tried again, and never cached."""


def explain_failure(
    exit_: Exit,
    text: str,
    report: CompilerReport,
    limits: Limits,
    killed: int,
    compiler: str = "nvcc",
) -> Failure | None:
    """Why the compilation failed; None where it did not. `killed`: processes that the kernel killed
    for memory meanwhile. Raises CompilerKilledError for what is certainly this machine's doing."""
    if exit_.code == 0:
        return None
    limit_gib = limits.memory_bytes / (1 << 30)
    too_large = Failure(
        Status.MEMORY_LIMIT, f"the compilation needed more than {limit_gib:.0f} GiB"
    )
    if exit_.out_of_memory:
        return too_large
    died = _DIED.search(text)
    signal = -exit_.code if exit_.code < 0 else int(died.group(1)) if died else 0
    if ended := exit_.code == _NVCC_ENDED_CODE and not report.errors and _NVCC_ENDED.search(text):
        signal = _SIGINT if ended.group(1) == "Interrupt" else _SIGTERM
    least_s = limits.cpu_s * (1.0 if killed else _COUNTED)
    sent = signal in _SENT and not (signal == _SIGKILL and exit_.cpu_s >= least_s)
    by_kill = sent and signal == _SIGKILL
    if (sent and (exit_.code < 0 or ended)) or (killed and (by_kill or _SHORTAGE.search(text))):
        why = f" by signal {signal}" if sent and not by_kill else ""
        raise CompilerKilledError(
            f"the compiler was killed from outside{why}: is the machine out of memory, or going "
            "down? try again"
        )
    if signal == _SIGXCPU or (signal == _SIGKILL and not by_kill) or _OUT_OF_TIME.search(text):
        return Failure(
            Status.COMPILE_TIMEOUT, f"the compilation took more than {limits.cpu_s} s of CPU time"
        )
    if signal == _SIGXFSZ or _TOO_LONG.search(text):
        return Failure(Status.OUTPUT_LIMIT, "the compilation wrote more than it may")
    if _OUT_OF_MEMORY.search(text):
        return too_large
    doubtful = sent or any(known.search(text) for known in (_SHORTAGE, _TERMINATED))
    if report.errors:
        first = report.errors[0]
        if (gap := gap_in(first.message)) is not None:
            return Failure(Status.UNSUPPORTED, f"not supported yet: {gap}", certain=not doubtful)
        where = f"line {first.line}: " if first.line is not None else ""
        more = len(report.errors) - 1
        rest = f" (and {more} more errors)" if more else ""
        reason = f"{compiler}: {where}{first.message}{rest}"
        return Failure(Status.COMPILE_ERROR, reason, certain=not doubtful)
    cause = (
        f"a compiler process died of signal {signal}" if signal else f"{compiler} gave no reason"
    )
    return Failure(
        Status.COMPILE_ERROR,
        f"the source does not compile: {cause}",
        certain=bool(signal) and not doubtful,
    )


def killed_for_memory() -> int:
    """How many processes the kernel has killed for memory so far; 0 where it does not say."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0

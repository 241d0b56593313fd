"""Kernels that somebody calls correct and that the judge rightly does not: each with its reason.

Audited by reading the source after a verdict other than `correct`. What is listed here counts in no
rate and is named in the benchmark's result.
"""

from __future__ import annotations

import re

LIBRARY_CALL = re.compile(
    r"\bcublas\w+|\bcudnn\w+|\b(?:torch|at)::(?:nn::functional::)?"
    r"(?:matmul|mm|addmm|linear|conv\w*|max_pool\w*|relu|softmax|cat)\b"
)

HONEST: dict[str, str] = {
    "concatenate_by_copies": "launches no kernel, which is a rule of the judge",
}
"""Of the honest corpus."""

ARCHIVE: dict[str, str] = {}
"""Of the AI CUDA Engineer Archive, as archive/OP_NAME/KERNEL_NAME."""


def archive_exclusion(name: str, code: str) -> str | None:
    """Why a row that the archive calls correct does not count; None where it does."""
    call = LIBRARY_CALL.search(code)
    if call is not None:
        return f"calls {call.group()}: a library computes the answer"
    return ARCHIVE.get(name)

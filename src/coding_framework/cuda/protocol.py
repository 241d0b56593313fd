"""What names the judging protocol, for verdicts and for what is kept between runs."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

PROTOCOL = "15"
"""Raised with every change that can change a verdict; verdicts are shared within one version."""

TOLERANCE_FORMULA = (
    "|out-ref| <= 8*err_torch + c*eps(accumulation)*sqrt(K)*max(|ref|, S), c 4 for K=1, else 8; "
    "at real size max(|ref|, S, rms(ref))"
)
"""Explained in tolerance.py, where it is computed."""


@cache
def judge_digest() -> str:
    """Digest of everything in this package that verdicts and modelled times rest on: what was kept
    by another judge is not taken for one of ours. A few milliseconds, once a process."""
    key = hashlib.sha256(f"{PROTOCOL} {version('torch')}".encode())
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            key.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return key.hexdigest()

"""Receipts: who judged which kernel for which task, and what came of it, signed by Ed25519.

The judge's host has the private key; whoever trusts it has the public one. A receipt says that the
holder of the key vouches for the verdict, and nothing about another task, device or shape.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import Field, ValidationError

from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.paths import require_writable, write_error
from coding_framework.registry.digests import shape_key, task_id
from coding_framework.registry.templates import LaunchTemplate
from coding_framework.types import EMULATOR_OF, Record, Status, Task, Verdict

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DIGEST = r"^sha256:[0-9a-f]{64}$"
_ALGORITHM = "ed25519:"
Reference = Literal["registered", "caller"]
"""Where the task came from: from us by its name, or from the caller with the request."""


class ReceiptError(CodingFrameworkError):
    """A receipt does not hold; the sentence says why."""


class ShapeTime(Record):
    """The kernel at one shape set: its time where it was timed, its launch template if any."""

    key: str
    """Inputs as dtype[extents], joined by semicolons."""
    kernel_ms: float | None = None
    ci95: tuple[float, float] | None = None
    eager_ms: float | None = None
    modelled: bool | None = None
    template: str | None = Field(default=None, pattern=_DIGEST)
    """Digest of the template that was judged."""


class KernelReceipt(Record):
    """What is signed (version 1)."""

    receipt: Literal[1] = 1
    kernel: str = Field(pattern=_DIGEST)
    op: str
    task: str = Field(pattern=_DIGEST)
    verdict: str = Field(pattern=_DIGEST)
    status: Literal["correct"] = "correct"
    protocol: str
    sandbox: str
    device: str
    sm: str
    driver: str
    toolkit: str
    shapes: tuple[ShapeTime, ...] = ()
    made_at: str
    """UTC, ISO 8601."""
    reference: Reference
    key: str
    """Name of the key that signed."""
    signature: str = ""


class SigningKey:
    """A private key and its name."""

    def __init__(self, name: str, private: Ed25519PrivateKey) -> None:
        self.name = name
        self._private = private

    def sign(self, receipt: KernelReceipt) -> KernelReceipt:
        """The receipt with this key's name and signature."""
        named = receipt.model_copy(update={"key": self.name, "signature": ""})
        signed = self.signed(named.model_dump(mode="json"))
        return named.model_copy(update={"signature": signed["signature"]})

    def signed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Any fields with this key's name and signature over them, as `check_signature` wants."""
        named = {**fields, "key": self.name}
        raw = self._private.sign(canonical(named))
        return {**named, "signature": _ALGORITHM + base64.b64encode(raw).decode("ascii")}


def canonical(receipt: Mapping[str, Any]) -> bytes:
    """What is signed: JSON with sorted keys and no spaces in UTF-8, numbers as Python's `repr`,
    without `signature`."""
    signed = {key: value for key, value in receipt.items() if key != "signature"}
    text = json.dumps(
        signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def receipt_of(
    task: Task,
    verdict: Verdict,
    *,
    reference: Reference,
    key: SigningKey,
    templates: Sequence[LaunchTemplate] = (),
) -> KernelReceipt:
    """The signed receipt of a correct verdict, and of the launch templates that were judged with
    it. Raises ReceiptError for any other verdict, and for one of an experiment that had a check
    switched off."""
    if verdict.status is not Status.CORRECT:
        raise ReceiptError(f"a kernel that is {verdict.status.value} gets no receipt")
    judged = verdict.receipt
    if judged.experiment_without:
        raise ReceiptError(
            f"a verdict without {', '.join(judged.experiment_without)} gets no receipt"
        )
    receipt = KernelReceipt(
        kernel=f"sha256:{verdict.candidate_sha256}",
        op=task.name,
        task=task_id(task),
        verdict=f"sha256:{hashlib.sha256(verdict.model_dump_json().encode()).hexdigest()}",
        protocol=judged.protocol,
        sandbox=judged.sandbox,
        device=judged_on(verdict),
        sm=judged.versions.get("architecture", "").removeprefix("sm_"),
        driver=judged.driver,
        toolkit=judged.toolkit,
        shapes=_shapes(task, verdict, templates),
        made_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        reference=reference,
        key=key.name,
    )
    return key.sign(receipt)


def judged_on(verdict: Verdict) -> str:
    """What a receipt calls the device: one of the emulator is never taken for one of the GPU."""
    judged = verdict.receipt
    return f"{EMULATOR_OF}{judged.gpu}" if verdict.backend == "emulator" else judged.device


def _shapes(
    task: Task, verdict: Verdict, templates: Sequence[LaunchTemplate]
) -> tuple[ShapeTime, ...]:
    """The timed shape set first."""
    found: dict[str, dict[str, Any]] = {}
    if (timing := verdict.timing) is not None:
        cases = task.gpu_cases if verdict.backend == "cuda" and task.gpu_cases else task.cases
        found[shape_key(cases[0])] = {
            "kernel_ms": timing.kernel_ms,
            "ci95": timing.kernel_ms_ci95,
            "eager_ms": timing.eager_ms,
            "modelled": timing.modelled,
        }
    for template in templates:
        found.setdefault(template.shape_key, {})["template"] = f"sha256:{template.sha256}"
    return tuple(ShapeTime(key=key, **said) for key, said in found.items())


def check_receipt(given: Mapping[str, Any], keys: Path) -> KernelReceipt:
    """The receipt, whose signature holds by the public key of its name in the folder `keys`.

    Raises ReceiptError where it does not, UsageError where the key is not there.
    """
    try:
        receipt = KernelReceipt.model_validate(given)
    except ValidationError as e:
        where = ".".join(str(part) for part in e.errors()[0]["loc"]) or "its form"
        raise ReceiptError(f"this is no receipt: {one_line(where, 80)} is not as it must be") from e
    check_signature(given, keys)
    return receipt


def check_signature(given: Mapping[str, Any], keys: Path) -> None:
    """Raises ReceiptError where the signature of what `SigningKey.signed` gave does not hold, and
    UsageError where the key is not there."""
    name = str(given.get("key"))
    try:
        signed = str(given.get("signature"))
        if not signed.startswith(_ALGORITHM):
            raise ValueError
        text = signed.removeprefix(_ALGORITHM)
        signature = base64.b64decode(text, validate=True)
        if base64.b64encode(signature).decode("ascii") != text:  # its last digit has spare bits
            raise ValueError
        public_key(keys, name).verify(signature, canonical(given))
    except (InvalidSignature, ValueError, TypeError) as e:
        raise ReceiptError(
            f"the signature does not hold: the receipt was changed, or the key {name!r} "
            "did not sign it"
        ) from e


# --- keys -----------------------------------------------------------------------------------------


def new_key(folder: Path, name: str) -> SigningKey:
    """A new key: NAME.key (of this user alone) and NAME.pub in the folder. Raises UsageError where
    one of the name is there: a key that has signed is never overwritten."""
    path = _path(folder, name, ".key")
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    require_writable(folder)
    try:
        public_path = path.with_suffix(".pub")
        with ExitStack() as written:
            for part, content, mode in ((public_path, public, 0o644), (path, pem, 0o600)):
                _write_new(part, content, mode)
                written.callback(part.unlink)
            written.pop_all()  # both are there: they stay
    except FileExistsError as e:
        raise UsageError(
            f"there is a key {name!r} in {folder} already, and it may have signed: choose another "
            "name"
        ) from e
    except OSError as e:
        raise write_error(path, e) from e
    return SigningKey(name, private)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is not there yet, or none. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink()
        raise


def load_key(folder: Path, name: str) -> SigningKey:
    """The private key of that name. Raises UsageError."""
    path = _path(folder, name, ".key")
    try:
        private = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as e:
        raise UsageError(
            f"the key {path} cannot be read ({e.strerror}): make one with `cuda-rl kernel key new "
            f"{name} --keys {folder}`"
        ) from e
    except ValueError as e:
        raise UsageError(f"{path} is no private key in PEM: make another one") from e
    if not isinstance(private, Ed25519PrivateKey):
        raise UsageError(f"{path} is no Ed25519 key: make another one")
    return SigningKey(name, private)


def public_key(folder: Path, name: str) -> Ed25519PublicKey:
    """The public key of that name. Raises UsageError."""
    path = _path(folder, name, ".pub")
    try:
        public = load_pem_public_key(path.read_bytes())
    except OSError as e:
        raise UsageError(
            f"there is no public key {name!r} in {folder} ({e.strerror}): copy {path.name} from "
            "the judge's host, where it lies beside the key"
        ) from e
    except ValueError as e:
        raise UsageError(f"{path} is no public key in PEM: export it again") from e
    if not isinstance(public, Ed25519PublicKey):
        raise UsageError(f"{path} is no Ed25519 key: export it again")
    return public


def _path(folder: Path, name: str, suffix: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a key cannot be called {name!r}: use letters, digits, - and _, 64 at most"
        )
    return folder / f"{name}{suffix}"

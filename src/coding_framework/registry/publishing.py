"""A kernel of a registry as a folder that Hugging Face's `kernels` loads, and its check.

The folder has the device code and the launch templates that were judged, a launcher that stands
alone (`published_kernel.py`), a model card, and the signed receipts. The candidate's host code is
not in it. `signed.json` holds the digest of each file, signed: one changed byte is found.

Not published: templates with cooperative launches, or of modules whose variables kernels write.
"""

from __future__ import annotations

import hashlib
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.paths import write_atomic
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import (
    ReceiptError,
    SigningKey,
    check_receipt,
    check_signature,
)
from coding_framework.registry.records import RegisteredKernel
from coding_framework.registry.templates import LaunchTemplate

SIGNED = "signed.json"
BUILD = Path("build/torch-universal")
_CARD = """\
---
library_name: kernels
license: {licence}
tags:
- kernel
- cuda
---

# {name}

A CUDA kernel for `{op}`. A judge found it correct: it compared its outputs with a float64
reference on inputs that the kernel had not seen. Recorded device code is launched; no host code of
the kernel's author runs.

```python
from pathlib import Path
from kernels import get_local_kernel

kernel = get_local_kernel(Path("."))
out = kernel.{name}({arguments})
```

`kernel.layers.{name}` replaces the forward of a layer by `kernels.kernelize`, for inference.

## Where it holds

It takes these shapes, contiguous, and refuses all others:

| inputs | time | PyTorch eager |
|---|---|---|
{shapes}

## Who judged it

| device | driver | protocol | key | when |
|---|---|---|---|---|
{receipts}

`receipt.json` has the signed receipts. `cuda-rl kernel verify DIR --keys KEYS` checks them, and
that no file was changed.
"""


def publish(
    registry: KernelRegistry,
    kernel: RegisteredKernel,
    folder: Path,
    key: SigningKey,
    licence: str = "apache-2.0",
) -> list[str]:
    """Write the folder; returns why templates were left out. Raises UsageError where there is none
    to publish, or the folder holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty: give a folder that is not there yet")
    kept, left_out = _publishable(kernel.templates)
    if not kept:
        why = "; ".join([*left_out, *(r.reason for r in kernel.refusals)]) or "none was made"
        raise UsageError(f"{kernel.op} has no launch template to publish: {one_line(why, 300)}")
    name = _identifier(kernel.op)
    first = next(iter(kept.values()))
    shapes = [
        {"key": shape, "template": template.sha256, **_times(kernel, shape)}
        for shape, template in kept.items()
    ]
    about = {
        "name": name,
        "kernel": kernel.kernel,
        "task": kernel.task,
        "inputs": sum(a.kind == "input" for a in first.arguments),
        "arguments": [a.name for a in first.arguments],
        "shapes": shapes,
    }
    metadata = {
        "id": f"{name}_{kernel.kernel.removeprefix('sha256:')[:12]}",
        "name": name.replace("_", "-").strip("-"),
        "version": 1,
        "license": licence,
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    files: dict[Path, bytes] = {
        BUILD / "__init__.py": Path(__file__).with_name("published_kernel.py").read_bytes(),
        BUILD / "kernel.json": _json(about),
        BUILD / "metadata.json": _json(metadata),
        BUILD / "receipt.json": _json({"receipts": registry.signed(kernel)}),
        Path("README.md"): _card(kernel, name, about, licence).encode(),
    }
    for template in kept.values():
        files[BUILD / "templates" / f"{template.sha256}.json"] = template.canonical_json()
        for code in template.code:
            files[BUILD / "code" / f"{code.sha256}.{code.form}"] = registry.code(code)
    digests = {str(path): hashlib.sha256(data).hexdigest() for path, data in files.items()}
    signed = key.signed({"publication": 1, "kernel": kernel.kernel, "files": digests})
    for path, data in (*files.items(), (Path(SIGNED), _json(signed))):
        write_atomic(folder / path, data)
    return left_out


def verify_published(folder: Path, keys: Path) -> dict[str, Any]:
    """What a published folder says of its kernel (`kernel.json`), where every file is as it was
    signed and its receipts hold. Raises ReceiptError where not, UsageError where a key is not
    there."""
    signed = _read_json(folder, SIGNED)
    check_signature(signed, keys)
    files = signed.get("files")
    if not isinstance(files, dict):
        raise ReceiptError(f"{SIGNED} names no files")
    paths = (p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())
    there = {str(path.relative_to(folder)) for path in paths} - {SIGNED, ".gitattributes"}
    for name in sorted(there ^ set(files)):
        said = "is missing" if name in files else "was added after it was signed: remove it"
        raise ReceiptError(f"the file {one_line(name, 200)} {said}")
    for name, digest in files.items():
        path = folder / name
        if path.is_symlink() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise ReceiptError(f"the file {one_line(name, 200)} was changed after it was signed")
    about = _read_json(folder, str(BUILD / "kernel.json"))
    given = _read_json(folder, str(BUILD / "receipt.json"))["receipts"]
    judged = {
        shape.template
        for receipt in (check_receipt(each, keys) for each in given)
        if receipt.kernel == about["kernel"] == signed["kernel"]
        for shape in receipt.shapes
    }
    for shape in about["shapes"]:
        if f"sha256:{shape['template']}" not in judged:
            raise ReceiptError(f"no receipt vouches for the template of {shape['key']}")
    return about


def _publishable(
    templates: Sequence[LaunchTemplate],
) -> tuple[dict[str, LaunchTemplate], list[str]]:
    """The newest template of each shape key, and why others are left out."""
    kept, left_out = {}, []
    for template in templates:
        if template.module_state:
            left_out.append(f"{template.shape_key}: its kernels write variables of the module")
        elif any(step.cooperative for step in template.launches):
            left_out.append(f"{template.shape_key}: its launch is cooperative")
        else:
            kept[template.shape_key] = template
    return kept, left_out


def _times(kernel: RegisteredKernel, shape: str) -> dict[str, Any]:
    """What the newest receipt says of a shape's time."""
    for receipt in reversed(kernel.receipts):
        for timed in receipt.shapes:
            if timed.key == shape and timed.kernel_ms is not None:
                times = timed.model_dump(include={"kernel_ms", "eager_ms", "modelled"})
                return {**times, "device": receipt.device}
    return {}


def _card(kernel: RegisteredKernel, name: str, about: Mapping[str, Any], licence: str) -> str:
    rows = []
    for shape in about["shapes"]:
        times = [
            f"{shape[part]:.4g} ms" if shape.get(part) is not None else "not measured"
            for part in ("kernel_ms", "eager_ms")
        ]
        rows.append(f"| `{shape['key']}` | {' | '.join(times)} |")
    receipts = (
        f"| {r.device} | {r.driver} | {r.protocol} | {r.key} | {r.made_at} |"
        for r in kernel.receipts
    )
    return _CARD.format(
        name=name,
        op=one_line(kernel.op, 80),
        arguments=", ".join(about["arguments"]),
        licence=licence,
        shapes="\n".join(rows),
        receipts="\n".join(receipts),
    )


def _identifier(op: str) -> str:
    name = re.sub(r"\W+", "_", op, flags=re.ASCII).strip("_").lower() or "kernel"
    return f"kernel_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads((folder / name).read_bytes())
    except OSError as e:
        raise ReceiptError(f"the file {name} is missing: this is no published kernel") from e
    except (ValueError, RecursionError) as e:
        raise ReceiptError(f"the file {name} was changed: it is not JSON") from e
    if not isinstance(found, dict):
        raise ReceiptError(f"the file {name} was changed: it is no object")
    return found

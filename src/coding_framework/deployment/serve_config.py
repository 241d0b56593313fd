"""`serve.yaml`: what a server of verified kernels is told."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import AnyHttpUrl, Field, ValidationError, model_validator

from coding_framework.deployment.http import Listen
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.types import BackendChoice, Config, SandboxName

MAX_CANDIDATES, MAX_TURNS, MAX_BUDGET_S = 32, 8, 600.0


class BackendConfig(Config):
    """A model server that speaks OpenAI's protocol."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    url: AnyHttpUrl
    """Its address, without /v1. Several replicas stand behind a proxy: give the proxy's."""
    key_env: str | None = None
    """Environment variable that holds its key."""
    adapters: Literal["static", "dynamic"] = "static"
    """dynamic: it loads adapters while it runs (vLLM, with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)."""


class EndpointConfig(Config):
    """An alias that callers ask for, and what it does where a request does not say."""

    version: str
    """What answers, unless the deployment database says otherwise."""
    candidates: int = Field(default=4, ge=1, le=MAX_CANDIDATES)
    turns: int = Field(default=2, ge=1, le=MAX_TURNS)
    budget_s: float = Field(default=60.0, ge=1.0, le=MAX_BUDGET_S)


class JudgeConfig(Config):
    """The judge behind the server."""

    backend: BackendChoice = "auto"
    sandbox: SandboxName = "auto"
    workers: int = Field(default=2, ge=1)
    queue: int | None = Field(default=None, ge=1)
    """Verdicts that may wait before new requests are told to come later. None: 4 a worker."""


class ServeConfig(Config):
    """The whole file."""

    listen: Listen = Listen()
    backends: tuple[BackendConfig, ...] = Field(min_length=1)
    versions: dict[str, VersionSpec] = Field(min_length=1)
    endpoints: dict[str, EndpointConfig] = Field(min_length=1)
    judge: JudgeConfig = JudgeConfig()
    references: Literal["registered", "sandboxed"] = "registered"
    """Whose PyTorch references are judged against: ours alone, or also those of callers, in a
    sandbox and on the emulator."""
    tokens: Path = Path("deployment/tokens")
    """Who may ask."""
    keys: Path = Path("deployment/keys")
    """Folder of the key that signs receipts."""
    key: str = "judge"
    """Its name."""
    registry: Path | None = None
    """Folder of a kernel registry that verified kernels are put into, with their launch templates.
    None: they are only returned."""
    database: Path | None = None
    """The deployment database: who answers, and rollouts. None: always the endpoints' versions."""
    unit: Literal["user", "session"] = "user"
    """What a rollout assigns: a value of the request's `user`, or of its X-CudaRL-Session header;
    without either the token."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        names = [b.name for b in self.backends]
        if len(set(names)) < len(names):
            raise ValueError(f"two backends have one name: {', '.join(names)}")
        for name, version in self.versions.items():
            if version.backend not in (*names, *([""] if len(names) == 1 else [])):
                raise ValueError(
                    f"version {name} wants the backend {version.backend!r}; there are: "
                    f"{', '.join(names)}"
                )
        for alias, endpoint in self.endpoints.items():
            if endpoint.version not in self.versions:
                raise ValueError(
                    f"endpoint {alias} wants the version {endpoint.version!r}; there are: "
                    f"{', '.join(self.versions)}"
                )
        return self

    def backend_of(self, version: VersionSpec) -> str:
        return version.backend or self.backends[0].name


def read_config(path: Path) -> ServeConfig:
    """The file at `path`; relative paths in it are relative to where the command runs. Raises
    UsageError with the first mistake, for an unknown key with the close one."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"{path} cannot be read ({e.strerror}): check --config") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} is not YAML ({one_line(str(e), 160)}): correct it") from e
    if not isinstance(given, dict):
        raise UsageError(f"{path} must hold settings (`backends:`, `endpoints:`, ...)")
    try:
        return ServeConfig.model_validate(given)
    except ValidationError as e:
        raise UsageError(f"{path}: {_complaint(e.errors()[0])}") from e


def _complaint(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(error["loc"][-1]), sorted(_keys(ServeConfig)), n=1)
        return f"there is no setting {where}" + (f": did you mean {close[0]}?" if close else "")
    said = error["msg"].removeprefix("Value error, ")
    return f"{where}: {said}" if where else said


def _keys(config: type[Config]) -> set[str]:
    parts = (config, Listen, BackendConfig, VersionSpec, EndpointConfig, JudgeConfig)
    return {name for part in parts for name in part.model_fields}

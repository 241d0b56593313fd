"""Who answers a request where no rollout runs, and what a server asks of one that does."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Protocol

from coding_framework.deployment.ab_testing import Assignment, Shadow
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.serve_config import ModelVersion
from coding_framework.errors import InfrastructureError


class Traffic(Protocol):
    """`live_traffic.LiveTraffic`, or `FixedTraffic`."""

    @property
    def failure(self) -> str | None: ...

    def unit(self, value: str) -> bytes: ...

    def assign(self, alias: str, unit: bytes) -> Assignment: ...

    def shadow(self, alias: str, unit: bytes) -> Shadow | None: ...

    async def expose(
        self, alias: str, unit: bytes, request: str, assignment: Assignment
    ) -> Assignment: ...

    async def finish(self, request: str, outcome: Outcome) -> bool: ...

    async def pair(
        self, shadow: Shadow, unit: bytes, request: str, incumbent: Outcome, candidate: Outcome
    ) -> bool: ...

    def close(self) -> None: ...


class FixedTraffic:
    """Each alias has one version; nothing is written."""

    failure: str | None = None

    def __init__(self, versions: Mapping[str, str]) -> None:
        """versions: by alias."""
        self._versions = dict(versions)
        self._secret = secrets.token_bytes(32)

    def unit(self, value: str) -> bytes:
        return hashlib.blake2b(value.encode(), digest_size=16, key=self._secret).digest()

    def assign(self, alias: str, unit: bytes) -> Assignment:
        """Raises KeyError for an unknown alias."""
        return Assignment(self._versions[alias], None, "incumbent", False, 0)

    def shadow(self, alias: str, unit: bytes) -> Shadow | None:
        return None

    async def expose(
        self, alias: str, unit: bytes, request: str, assignment: Assignment
    ) -> Assignment:
        return assignment

    async def finish(self, request: str, outcome: Outcome) -> bool:
        return True

    async def pair(
        self, shadow: Shadow, unit: bytes, request: str, incumbent: Outcome, candidate: Outcome
    ) -> bool:
        return True

    def close(self) -> None:
        pass


class Versions:
    """The versions that can answer: those of `serve.yaml`, and those that were registered."""

    def __init__(self, configured: Mapping[str, ModelVersion]) -> None:
        self._known = dict(configured)

    def all(self) -> tuple[ModelVersion, ...]:
        return tuple(self._known.values())

    def get(self, name: str) -> ModelVersion:
        """Raises InfrastructureError for one that nobody told this server."""
        try:
            return self._known[name]
        except KeyError:
            raise InfrastructureError(
                f"the version {name} is not known to this server: name it under `versions:`"
            ) from None

"""Who answers a request where no rollout runs, and what a server asks of one that does."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from coding_framework.deployment.ab_testing import Assignment, Shadow
from coding_framework.deployment.controller import DecidedTraffic, Seen, World
from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.serve_config import ModelVersion, ServeConfig
from coding_framework.deployment.store import DeploymentStore
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import InfrastructureError
from coding_framework.store.databases import StorageError
from coding_framework.store.events import log


class Traffic(Protocol):
    """`live_traffic.LiveTraffic`, or `FixedTraffic`."""

    on_commit: Callable[[int, float], None]
    """Told of each group of events that was committed: how many, and how long it took."""

    @property
    def failure(self) -> str | None: ...

    @property
    def seen(self) -> Sequence[Seen]:
        """The newest rollout of each alias."""
        ...

    def watch(self, world: World) -> None:
        """Pause rollouts when what `world` says of them changes."""
        ...

    def unit(self, value: str) -> bytes: ...

    def assign(self, alias: str, unit: bytes) -> Assignment: ...

    def without_rollout(self, alias: str) -> Assignment: ...

    def shadow(self, alias: str, unit: bytes) -> Shadow | None: ...

    async def expose(
        self,
        alias: str,
        unit: bytes,
        request: str,
        assignment: Assignment,
        caller: bytes | None = None,
    ) -> Assignment: ...

    async def finish(self, request: str, outcome: Outcome) -> bool: ...

    async def pair(
        self, shadow: Shadow, unit: bytes, request: str, incumbent: Outcome, candidate: Outcome
    ) -> bool: ...

    def close(self) -> None: ...


class FixedTraffic:
    """Each alias has one version; nothing is written."""

    failure: str | None = None
    on_commit: Callable[[int, float], None]
    seen: Sequence[Seen] = ()

    def __init__(self, versions: Mapping[str, str]) -> None:
        """versions: by alias."""
        self._versions = dict(versions)
        self._secret = secrets.token_bytes(32)

    def unit(self, value: str) -> bytes:
        return hashlib.blake2b(value.encode(), digest_size=16, key=self._secret).digest()

    def assign(self, alias: str, unit: bytes) -> Assignment:
        """Raises KeyError for an unknown alias."""
        return Assignment(self._versions[alias], None, "incumbent", False, 0)

    def watch(self, world: World) -> None:
        pass

    def without_rollout(self, alias: str) -> Assignment:
        return self.assign(alias, b"")

    def shadow(self, alias: str, unit: bytes) -> Shadow | None:
        return None

    async def expose(
        self,
        alias: str,
        unit: bytes,
        request: str,
        assignment: Assignment,
        caller: bytes | None = None,
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

    def __init__(
        self,
        configured: Mapping[str, ModelVersion],
        registered: Callable[[], Mapping[str, ModelVersion]] = dict,
    ) -> None:
        """registered: asked again for a version that is not known yet."""
        self._known = dict(configured)
        self._registered = registered

    def all(self) -> tuple[ModelVersion, ...]:
        """Every version, with those that were registered since."""
        self._refresh()
        return tuple(self._known.values())

    def get(self, name: str) -> ModelVersion:
        """Raises InfrastructureError for one that nobody told this server."""
        if name not in self._known:
            self._refresh()
        try:
            return self._known[name]
        except KeyError:
            raise InfrastructureError(
                f"the version {name} is not known to this server: register it, or name it under "
                "`versions:`"
            ) from None

    def _refresh(self) -> None:
        try:
            self._known |= self._registered()
        except StorageError as e:
            log.warning("versions_unread", error=str(e)[:200])


def open_traffic(config: ServeConfig) -> tuple[Traffic, Versions, DeploymentManager | None]:
    """Who answers, the versions, and the database's manager, by the file and its database, which
    learns the versions and endpoints that it does not know yet. Raises StorageError where it cannot
    be opened or is damaged, UsageError where a version of the file is registered with another
    content."""
    if config.database is None:
        fixed = {alias: endpoint.version for alias, endpoint in config.endpoints.items()}
        return FixedTraffic(fixed), Versions(config.versions), None
    store = DeploymentStore(config.database, check=True)
    manager = DeploymentManager(store)
    for name, version in config.versions.items():
        manager.register_version(name, VersionSpec(**version.model_dump()), actor="serve")
    known = {row.alias for row in store.endpoints()}
    for alias, endpoint in config.endpoints.items():
        if alias not in known:
            manager.deploy(alias, endpoint.version, actor="serve")
    versions = Versions(config.versions, lambda: _registered(store))
    return DecidedTraffic(config.database), versions, manager


def _registered(store: DeploymentStore) -> dict[str, ModelVersion]:
    fields = set(ModelVersion.model_fields)
    return {
        row.id: ModelVersion.model_validate(
            {k: v for k, v in json.loads(row.spec).items() if k in fields}
        )
        for row in store.versions()
    }

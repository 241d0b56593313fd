"""The versions that can answer, and who answers, by a server's file and its database."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coding_framework.deployment.controller import DecidedTraffic
from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.live_traffic import Traffic
from coding_framework.deployment.serve_config import ServeConfig
from coding_framework.deployment.store import DeploymentStore
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import InfrastructureError
from coding_framework.store.databases import StorageError
from coding_framework.store.events import log


class Versions:
    """The versions that can answer: those of `serve.yaml`, and those that were registered."""

    def __init__(
        self,
        configured: Mapping[str, VersionSpec],
        registered: Callable[[], Mapping[str, VersionSpec]] = dict,
    ) -> None:
        """registered: asked again for a version that is not known yet."""
        self._known = dict(configured)
        self._registered = registered

    def all(self) -> tuple[VersionSpec, ...]:
        """Every version, with those that were registered since."""
        self._refresh()
        return tuple(self._known.values())

    def get(self, name: str) -> VersionSpec:
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


def open_traffic(config: ServeConfig) -> tuple[Traffic, Versions]:
    """Who answers, and the versions, by the file and its database, which learns the versions and
    endpoints that it does not know yet. Raises StorageError where it cannot be opened or is
    damaged, UsageError where a version of the file is registered with another content."""
    if config.database is None:
        fixed = {alias: endpoint.version for alias, endpoint in config.endpoints.items()}
        return Traffic(fixed), Versions(config.versions)
    store = DeploymentStore(config.database, check=True)
    manager = DeploymentManager(store)
    for name, version in config.versions.items():
        manager.register_version(name, version, actor="serve")
    known = {row.alias for row in store.endpoints()}
    for alias, endpoint in config.endpoints.items():
        if alias not in known:
            manager.deploy(alias, endpoint.version, actor="serve")
    versions = Versions(config.versions, lambda: _registered(store))
    return DecidedTraffic(config.database), versions


def _registered(store: DeploymentStore) -> dict[str, VersionSpec]:
    return {row.id: VersionSpec.model_validate_json(row.spec) for row in store.versions()}

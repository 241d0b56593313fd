"""All backends of a server: those of its file, and those that operators added to its database."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coding_framework.deployment.backends import Backend
from coding_framework.deployment.metrics import ServerMetrics
from coding_framework.deployment.serve_config import BackendConfig, ModelVersion, ServeConfig
from coding_framework.errors import InfrastructureError
from coding_framework.store.databases import StorageError
from coding_framework.store.events import log

EVERY_S = 1.0


class BackendPool:
    """`start` in the event loop that uses it. Another process's change is in force here after
    `EVERY_S`."""

    def __init__(
        self,
        config: ServeConfig,
        metrics: ServerMetrics,
        versions: Callable[[], Iterable[ModelVersion]],
        added: Callable[[], Mapping[str, BackendConfig]] = dict,
    ) -> None:
        """versions: all that there are, asked for at every check. added: the backends that
        operators added, by name; it may block."""
        self._config, self._metrics = config, metrics
        self._versions, self._added = versions, added
        self._backends: dict[str, Backend] = {}
        self._own = {b.name: b for b in config.backends}
        self._tasks: set[asyncio.Task[None]] = set()
        for own in config.backends:
            self._add(own)

    def of(self, version: ModelVersion) -> Backend:
        """Raises InfrastructureError where its backend is not there."""
        name = self._config.backend_of(version)
        try:
            return self._backends[name]
        except KeyError:
            raise InfrastructureError(
                f"the version that serves {version.model} wants the backend {name}, which this "
                "server does not have: add it by POST /admin/backends, or to its file"
            ) from None

    @property
    def of_file(self) -> tuple[BackendConfig, ...]:
        """Those that only the file changes."""
        return self._config.backends

    async def start(self) -> None:
        """Check every replica once, then go on checking, and following the database."""
        await asyncio.gather(*(backend.start() for backend in self._backends.values()))
        await self.learn()
        self._spawn(self._follow())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(backend.close() for backend in self._backends.values()))

    async def learn(self) -> None:
        """Be as the database says now. What a removed backend still answers is waited for."""
        try:
            wanted = await asyncio.to_thread(self._added)
        except StorageError as e:
            log.warning("backends_unread", error=str(e)[:200])
            return
        for name, backend in list(self._backends.items()):
            if name not in self._own and wanted.get(name) != backend.config:
                del self._backends[name]
                self._unwatch(backend)
                self._spawn(backend.close_when_idle())
        new = [self._add(config) for name, config in wanted.items() if name not in self._backends]
        await asyncio.gather(*(backend.start() for backend in new))

    def told(self) -> list[dict[str, Any]]:
        """Each with its replicas, as this process sees them."""
        now = time.monotonic()
        return [
            {
                "name": backend.name,
                "from": "file" if backend.name in self._own else "database",
                "replicas": [
                    {
                        "url": replica.url, "healthy": replica.healthy(now),
                        "running": replica.running, "models": sorted(replica.models),
                    }
                    for replica in backend.replicas
                ],
            }
            for backend in self._backends.values()
        ]  # fmt: skip

    def _add(self, config: BackendConfig) -> Backend:
        backend = Backend(config, lambda: self._versions_of(config.name))
        self._backends[config.name] = backend
        for number, replica in enumerate(backend.replicas):
            labels = (backend.name, str(number))
            up, running = self._metrics.up.labels(*labels), self._metrics.running.labels(*labels)
            self._metrics.follow(up, lambda r=replica: float(r.healthy(time.monotonic())))  # type: ignore[misc]
            self._metrics.follow(running, lambda r=replica: float(r.running))  # type: ignore[misc]
        return backend

    def _unwatch(self, backend: Backend) -> None:
        """A gauge of several processes cannot be taken back: it is not a number then."""
        for number in range(len(backend.replicas)):
            for gauge in (self._metrics.up, self._metrics.running):
                self._metrics.follow(gauge.labels(backend.name, str(number)), lambda: math.nan)

    def _versions_of(self, backend: str) -> list[ModelVersion]:
        return [v for v in self._versions() if self._config.backend_of(v) == backend]

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.learn()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

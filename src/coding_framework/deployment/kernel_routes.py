"""`GET /v1/kernels`: what is in the server's registry, for everybody who may ask for kernels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response

from coding_framework.deployment.http import ApiError, Gate, as_json
from coding_framework.monitoring.text import one_line
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.records import RegisteredKernel
from coding_framework.registry.view import RegistryView

PAGE = 1000
"""Kernels of one answer."""
_T = TypeVar("_T")


class KernelRoutes:
    """The routes that read a registry."""

    def __init__(self, view: RegistryView, gate: Gate) -> None:
        self._view, self._gate = view, gate

    def add_to(self, app: FastAPI) -> None:
        app.get("/v1/kernels")(self._list)
        app.get("/v1/kernels/{kernel}")(self._show)
        app.get("/v1/kernels/{kernel}/receipt")(self._receipt)
        app.get("/v1/kernels/{kernel}/source")(self._source)

    async def _list(
        self, request: Request, op: str | None = None, status: str | None = None, after: str = ""
    ) -> Response:
        """In the order of their ids; after: the id of the last one that is known."""
        with self._gate.running(self._gate.caller(request, "complete")):
            kernels = await asyncio.to_thread(self._view.kernels)
        found = [k for k in kernels if op in (None, k.op) and status in (None, k.status)]
        found = sorted((k for k in found if k.kernel > after), key=lambda k: (k.kernel, k.task))
        page = [_told(kernel) for kernel in found[:PAGE]]
        return as_json({"object": "list", "data": page, "more": len(found) > PAGE})

    async def _show(self, request: Request, kernel: str) -> Response:
        def look(registry: KernelRegistry, found: RegisteredKernel) -> dict[str, Any]:
            changes = [h._asdict() for h in registry.history(found)]
            return {**_told(found), "history": changes}

        return as_json(await self._of(request, kernel, look))

    async def _receipt(self, request: Request, kernel: str) -> Response:
        """The newest, as it was signed."""
        return as_json(await self._of(request, kernel, lambda r, k: r.signed(k)[-1]))

    async def _source(self, request: Request, kernel: str) -> Response:
        source = await self._of(request, kernel, lambda r, k: r.source(k))
        text = source.encode("utf-8", "replace").decode()
        return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})

    async def _of(
        self, request: Request, name: str, look: Callable[[KernelRegistry, RegisteredKernel], _T]
    ) -> _T:
        """Of the kernel with that id, for the task of `?task=` or the one judged last. Raises
        ApiError 404 where there is none."""
        task = request.query_params.get("task")

        def work() -> _T:
            with self._view.open() as registry:
                found = [
                    k
                    for k in registry.snapshot()
                    if k.kernel.removeprefix("sha256:") == name.removeprefix("sha256:")
                    and task in (None, k.task, k.task.removeprefix("sha256:"))
                ]
                if not found:
                    raise ApiError(
                        404, "no_such_kernel",
                        f"no kernel here has the id {one_line(name, 80)!r}: GET /v1/kernels lists "
                        "them",
                    )  # fmt: skip
                return look(registry, max(found, key=lambda k: max(r.made_at for r in k.receipts)))

        with self._gate.running(self._gate.caller(request, "complete")):
            return await asyncio.to_thread(work)


def _told(kernel: RegisteredKernel) -> dict[str, Any]:
    said = kernel.model_dump(mode="json", exclude={"templates", "task"})
    shapes = [template.shape_key for template in kernel.templates]
    return {**said, "task": kernel.task, "templates": shapes}

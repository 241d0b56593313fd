"""A served `ModelServer` whose model and judge are scripts, for tests of what lies between."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.http import Gate, Listen, server_of
from coding_framework.deployment.live_traffic import Traffic
from coding_framework.deployment.serve_config import ServeConfig
from coding_framework.deployment.server import CallersTasks, ModelServer
from coding_framework.deployment.store import DeploymentStore
from coding_framework.deployment.tokens import TokenFile
from coding_framework.deployment.traffic import open_traffic
from coding_framework.registry.keeping import KernelKeeper, TemplatesFn
from coding_framework.registry.receipts import new_key
from coding_framework.types import (
    BenchmarkResult,
    Receipt,
    Status,
    Task,
    TestResult,
    Verdict,
)

RELU = "__global__ void relu() {}\nvoid forward() {}\n// ms=2.0\n"


def answer(code: str) -> str:
    return f"Here it is:\n```cuda\n{code}```\n"


class ScriptedJudge:
    """Says correct, with the time that the source names (`// ms=2.0`), else by `// status=`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.asked: list[str] = []
        self.cancelled = 0

    async def __call__(self, task: Task, code: str) -> Verdict:
        self.asked.append(code)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        status = Status(code.split("status=")[1].split()[0]) if "status=" in code else "correct"
        correct = status == "correct"
        ms = float(code.split("ms=")[1].split()[0]) if "ms=" in code else 1.0
        test = TestResult(
            case="main", seed=1, shapes=((4,),), dtype="float32", max_abs_error=0.0,
            max_rel_error=0.0, tolerance=1e-5, passed=correct,
        )  # fmt: skip
        timing = BenchmarkResult(
            kernel_ms=ms, kernel_ms_ci95=(ms, ms), eager_ms=4.0, speedup=4.0 / ms, modelled=False
        )
        return Verdict(
            status=Status(status), reason="as the script says", task=task.name,
            candidate_sha256=hashlib.sha256(code.encode()).hexdigest(), backend="emulator",
            tests=(test,), timing=timing if correct else None,
            receipt=Receipt(device="script", protocol="10", sandbox="none", duration_s=0.1),
        )  # fmt: skip


class Upstream:
    """A model server. `said`: what it answers to a body, or a status."""

    byte_by_byte = False
    """Each byte of an answer is written alone, so that a reader finds answers in pieces."""

    def __init__(self, said: Callable[[dict[str, Any]], str | int], delay_s: float = 0.0) -> None:
        self.said, self.delay_s = said, delay_s
        self.models = ["m"]
        self.bodies: list[dict[str, Any]] = []
        self.open = 0
        self.answers_as: str | None = None
        self.loaded: list[str] = []
        self.load_s = 0.0
        self.breaks_off = False
        self.usage: dict[str, int] | None = None

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._in_pieces])
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/load_lora_adapter", self._load)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    @web.middleware
    async def _in_pieces(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        whole = await handler(request)
        if not self.byte_by_byte or not isinstance(whole, web.Response):
            return whole
        assert isinstance(whole.body, bytes | None)
        slow = web.StreamResponse(status=whole.status)
        await slow.prepare(request)
        for at in range(len(whole.body or b"")):
            await slow.write((whole.body or b"")[at : at + 1])
            await asyncio.sleep(0)
        return slow

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": m} for m in self.models]})

    async def _load(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        await asyncio.sleep(self.load_s)
        self.loaded.append(name)
        self.models.append(name)
        return web.Response()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.open += 1
        try:
            await asyncio.sleep(self.delay_s)
            return await self._answered(request, body, self.said(body))
        finally:
            self.open -= 1

    async def _answered(
        self, request: web.Request, body: dict[str, Any], said: str | int
    ) -> web.StreamResponse:
        if isinstance(said, int):
            return web.json_response({"error": {"message": "no"}}, status=said)
        model = self.answers_as or body["model"]
        if self.breaks_off:
            assert request.transport is not None
            request.transport.abort()
        message = {"role": "assistant", "content": said}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        told = {"id": "x", "model": model, "choices": choices, "usage": self.usage}
        return web.json_response(told)


@contextmanager
def upstream_running(upstream: Upstream) -> Iterator[str]:
    """Its address, while it serves in a thread."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(upstream.app(), handler_cancellation=True, shutdown_timeout=1.0)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}"

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def config_of(url: str, folder: Path, **settings: Any) -> ServeConfig:
    given: dict[str, Any] = {
        "listen": {"port": 0},
        "backends": [{"name": "b", "url": url, "adapters": settings.pop("adapters", "static")}],
        "versions": {"v1": {"model": "m"}},
        "endpoints": {"kernels": {"version": "v1", "candidates": 2, "turns": 1}},
        "tokens": str(folder / "tokens"),
        "keys": str(folder / "keys"),
    }
    return ServeConfig.model_validate({**given, **settings})


@contextmanager
def app_served(app: Any, **settings: Any) -> Iterator[str]:
    """An application's address, while it serves in a thread. settings: of uvicorn's."""
    told: list[str] = []
    ready = threading.Event()

    def started(url: str) -> None:
        told.append(url)
        ready.set()

    web_server = server_of(app, Listen(port=0), started)
    for name, value in settings.items():
        setattr(web_server.config, name, value)
    thread = threading.Thread(target=lambda: asyncio.run(web_server.serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(60)
        yield told[0]
    finally:
        web_server.should_exit = True
        thread.join(60)


@contextmanager
def model_server(
    folder: Path,
    upstream: Upstream,
    judged_by: ScriptedJudge | None = None,
    traffic: Traffic | None = None,
    templates: TemplatesFn | None = None,
    callers: CallersTasks | None = None,
    **settings: Any,
) -> Iterator[tuple[str, ModelServer]]:
    """(address, server); its key is `judge` in folder/keys. templates: makes those of verified
    kernels, which then go into folder/registry."""
    with ExitStack() as stack:
        url = stack.enter_context(upstream_running(upstream))
        config = config_of(url, folder, **settings)
        key = new_key(folder / "keys", "judge")
        versions: Mapping[str, str] = {a: e.version for a, e in config.endpoints.items()}
        keeper = None
        if templates is not None:
            keeper = KernelKeeper(folder / "registry", folder / "keys", key, templates)
        server = ModelServer(
            config, judged_by or ScriptedJudge(), "emulator", key,
            Gate(TokenFile(config.tokens)), traffic or Traffic(versions),
            keeper=keeper, callers=callers,
        )  # fmt: skip
        yield stack.enter_context(app_served(server.app)), server


@contextmanager
def deployed_server(
    folder: Path, upstream: Upstream, **settings: Any
) -> Iterator[tuple[str, ModelServer, DeploymentManager]]:
    """(address, server, its database's manager), with two versions: v1 and v2."""
    upstream.models = ["m1", "m2"]
    with upstream_running(upstream) as backend:
        config = config_of(
            backend, folder, database=str(folder / "deployment.sqlite"),
            versions={"v1": {"model": "m1"}, "v2": {"model": "m2"}}, **settings,
        )  # fmt: skip
        traffic, versions = open_traffic(config)
        assert config.database is not None
        manager = DeploymentManager(DeploymentStore(config.database))
        server = ModelServer(
            config, ScriptedJudge(), "emulator", new_key(folder / "keys", "judge"),
            Gate(TokenFile(config.tokens)), traffic, versions,
        )  # fmt: skip
        with app_served(server.app) as url:
            yield url, server, manager
        traffic.close()

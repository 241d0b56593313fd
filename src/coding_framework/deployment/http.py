"""What every HTTP server of ours has: tokens, errors as one sentence, metrics.

    gate = Gate(tokens, listen)                 # before anything else
    app = make_app("judge", gate, metrics)      # FastAPI with the guards installed
    caller = gate.caller(request, "verify")     # who asks; 401, 403
    body = await read_object(request)           # 400, 413
    run_app(app, listen)                        # until SIGTERM or Ctrl-C

Guaranteed: an answer never holds a traceback; what fails by our fault is 503 with the request's
number, under which the log has the traceback. Where no token is needed, a page of another site gets
nothing (`Gate.require_own_site`). How often callers may ask is a proxy's matter (docs/serving.md).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import secrets
import signal
import socket
import time
from collections import Counter as Counts
from collections.abc import Callable, Coroutine, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
import uvicorn
import uvloop
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from coding_framework import __version__
from coding_framework.deployment.store import ConflictError
from coding_framework.deployment.tokens import LOCAL_SCOPES, TokenFile
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.store.events import log
from coding_framework.types import Config, TokenScope

T = TypeVar("T")


MOST_BYTES = 1 << 20
"""Of a request's body, unless its route says otherwise."""
JSON_DEPTH = 32
HEAD_S = 10.0
"""How long a new connection may take to send a request's head."""
BODY_S = 30.0
MOST_OPEN = 64
"""Requests of one caller at a time, where verdicts or models are asked for."""
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


class Listen(Config):
    """Where a server listens."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but this machine's own needs a token (`cuda-rl token create`)."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which the first line names."""
    hosts: tuple[str, ...] = ()
    """Names that `Host` may have, besides addresses, localhost and this machine's name. Asked for
    where no token is needed."""


class ApiError(Exception):
    """What a caller is told: a status, a type for programs, a sentence for people."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry_after_s, self.more = status, kind, retry_after_s, more

    def response(self) -> Response:
        """As OpenAI's API says errors."""
        said = {"message": str(self), "type": self.kind, "param": None, "code": self.kind}
        headers = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return as_json({"error": {**said, **self.more}}, self.status, headers)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(orjson.dumps(value), status, headers, "application/json")


# --- who asks -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. Without any token in the file, callers on this machine are one: `local`."""

    id: str
    scopes: frozenset[TokenScope]


class Gate:
    """Lets callers in, by their tokens.

    Once a token is needed, one is needed until the server ends, whatever becomes of the file.
    """

    def __init__(self, tokens: TokenFile | None, listen: Listen | None = None) -> None:
        """listen: None: this machine alone is served. Raises UsageError where others could reach a
        server that has no token."""
        listen = listen or Listen()
        self._needs_token = tokens is not None and bool(tokens.all())
        self.public = listen.host not in LOCAL_HOSTS
        if self.public and not self._needs_token:
            raise UsageError(
                f"a server on {listen.host} needs tokens, and there is none: create one with "
                "`cuda-rl token create` (--scope verify to judge, complete for models), or listen "
                "on 127.0.0.1"
            )
        self._hosts = {n.lower() for n in ("localhost", socket.gethostname(), *listen.hosts)}
        self.tokens = tokens
        self._open: Counts[str] = Counts()

    @property
    def needs_token(self) -> bool:
        """Whether a token is needed: at the start, or since there was one."""
        if not self._needs_token and self.tokens is not None:
            self._needs_token = bool(self.tokens.all())
        return self._needs_token

    def caller(self, request: Request, scope: TokenScope) -> Caller:
        """Who asks, who must have `scope`. Raises ApiError 401 or 403."""
        caller = self.known(request)
        if scope not in caller.scopes:
            raise ApiError(
                403, "missing_scope", f"this needs a token with the scope {scope}: ask for one"
            )
        return caller

    def known(self, request: Request) -> Caller:
        """Who asks, whatever the scopes. Raises ApiError 401, InfrastructureError where the file of
        tokens cannot be read."""
        try:
            return self._identified(request)
        except UsageError as e:
            raise InfrastructureError(str(e)) from e

    def hold(self, scope: Scope, caller: Caller) -> None:
        """One more request of the caller's is open, until its end. Raises ApiError 429."""
        if self._open[caller.id] >= MOST_OPEN:
            said = f"{MOST_OPEN} requests of yours are open: wait for one"
            raise ApiError(429, "too_many_open", said, retry_after_s=5.0)
        self._open[caller.id] += 1
        scope["until_its_end"].callback(self._open.subtract, (caller.id,))

    def _identified(self, request: Request) -> Caller:
        if self.tokens is None or not self.needs_token:
            return Caller("local", LOCAL_SCOPES)
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise ApiError(401, "no_token", "send a token: Authorization: Bearer crl_...")
        token = self.tokens.find(secret.strip())
        if token is None:
            raise ApiError(
                401, "wrong_token", "this token is unknown, expired or revoked: ask for a new one"
            )
        return Caller(token.id, token.scopes)

    def require_own_site(self, scope: Scope) -> None:
        """Raises ApiError where a browser may have been sent here by a page of another site: under
        a name that is not ours (a name of that site's may point to this machine), or with another
        origin. Other programs say neither."""
        if self.needs_token:
            return
        said = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = said.get(b"host", "localhost")
        if not is_own_host(host, self._hosts):
            raise ApiError(
                421, "unknown_host", f"{one_line(host, 100)!r} is no name of this server: ask for "
                "its address, or put the name into `listen: {hosts: [...]}` of its file",
            )  # fmt: skip
        if said.get(b"origin", host).rpartition("/")[2] != host:
            raise ApiError(403, "other_origin", "a page of another site may not ask here")


def is_own_host(host: str, names: Set[str]) -> bool:
    """Whether a `Host` is one of these names, or an address: nobody can make one point elsewhere.
    names: in small letters."""
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name.lower() in names
    return True


# --- what is asked --------------------------------------------------------------------------------


async def read_object(request: Request, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The JSON object of a body. Raises ApiError 400, 408 or 413."""
    try:
        value = orjson.loads(await asyncio.wait_for(_body(request, most_bytes), BODY_S))
    except TimeoutError:
        raise ApiError(408, "too_slow", f"the body took over {BODY_S:g} s: send faster") from None
    except orjson.JSONDecodeError as e:
        raise ApiError(400, "not_json", f"the body is not JSON ({one_line(str(e), 120)})") from e
    if not isinstance(value, dict):
        raise ApiError(400, "not_an_object", "the body must be a JSON object")
    if _deeper_than(value, JSON_DEPTH):
        raise ApiError(400, "too_deep", f"the body is nested over {JSON_DEPTH} deep: flatten it")
    return value


async def _body(request: Request, most_bytes: int) -> bytes:
    """Raises ApiError 413, before it holds more than that."""
    too_large = ApiError(413, "too_large", f"the body has over {most_bytes} bytes: send less")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:20]) > most_bytes:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise too_large
    return bytes(body)


def parsed(kind: Any, body: dict[str, Any]) -> Any:
    """`body` as `kind`. Raises ApiError 400 with the first mistake."""
    try:
        return kind.model_validate(body)
    except ValidationError as e:
        raise _mistake(e.errors(include_url=False, include_input=False)[0], 400) from e


def _mistake(first: Mapping[str, Any], status: int) -> ApiError:
    """pydantic's first complaint, without what was given."""
    where = one_line(".".join(str(part) for part in first["loc"]), 120)
    said = one_line(str(first["msg"]), 200)
    return ApiError(status, "bad_request", f"{where}: {said}" if where else said)


def _deeper_than(value: Any, depth: int) -> bool:
    """orjson itself stops at 1024, so that what is looked through here is bounded."""
    level = [value]
    for _ in range(depth):
        inner = [x for v in level for x in (v.values() if isinstance(v, dict) else v)]
        level = [x for x in inner if isinstance(x, dict | list)]
        if not level:
            return False
    return True


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away. The body must have been
    read. Raises ClientGoneError then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for pending in (task, gone):
            pending.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await pending


class ClientGoneError(Exception):
    """The client closed its connection before its answer."""


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- the application ------------------------------------------------------------------------------

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)


class HttpMetrics:
    """Prometheus metrics of one application. A server adds its own to `registry`. Labels are
    bounded: never a token, a task or a request's number."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._responses = Counter(
            "cuda_rl_http_responses", "Answers, by route and status.", ("route", "status"),
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "cuda_rl_http_seconds", "Time of an answer, by route.", ("route",),
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        Gauge(
            "cuda_rl_build_info", "The version that runs.", ("version",), registry=self.registry,
        ).labels(__version__).set(1)  # fmt: skip

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._responses.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def make_app(title: str, gate: Gate, metrics: HttpMetrics, **settings: Any) -> FastAPI:
    """An application with the guards, `/healthz` and `/metrics`."""
    app = FastAPI(
        title=title, version=__version__, openapi_url=None, redirect_slashes=False, **settings
    )
    for kind in _TOLD:
        app.add_exception_handler(kind, _told)
    app.add_middleware(_Guard, gate=gate, metrics=metrics)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    @app.get("/metrics")
    async def prometheus(request: Request) -> Response:
        if gate.public:
            gate.known(request)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


_TOLD = (
    ApiError, HTTPException, RequestValidationError, UsageError, InfrastructureError
)  # fmt: skip
_ADDRESSES = {
    404: "there is nothing at this address", 405: "this address takes another method"
}  # fmt: skip


async def _told(request: Request, error: Exception) -> Response:
    return _api_error(request, error).response()


def _api_error(request: Request, error: Exception) -> ApiError:
    said = one_line(str(error), 500)
    match error:
        case ApiError():
            return error
        case HTTPException():
            said = _ADDRESSES.get(error.status_code, "the request cannot be answered")
            return ApiError(error.status_code, "http_error", said)
        case RequestValidationError():
            return _mistake(error.errors()[0], 422)
        case ConflictError():
            return ApiError(409, "conflict", said)
        case UsageError():
            return ApiError(400, "wrong_use", said)
    log.warning("request_failed", request=request.scope.get("number"), error=said)
    return ApiError(503, "unavailable", said, retry_after_s=5.0)


class _Guard:
    """Outermost: numbers the request, counts the answer, hides our faults."""

    def __init__(self, app: ASGIApp, gate: Gate, metrics: HttpMetrics) -> None:
        self._app, self._gate, self._metrics = app, gate, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        scope["number"] = secrets.token_hex(16)
        statuses: list[int] = []

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                message["headers"].append((b"x-cudarl-request", scope["number"].encode()))
            await send(message)

        try:
            self._gate.require_own_site(scope)
            with ExitStack() as scope["until_its_end"]:
                await self._app(scope, receive, noted)
        except (ClientGoneError, ClientDisconnect):
            statuses.append(499)
        except Exception as e:
            error = e if isinstance(e, ApiError) else _our_fault(scope["number"], e)
            if not statuses:
                await error.response()(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - started
            status = statuses[0] if statuses else 499
            self._metrics.answered(route, status, seconds)
            log.info(
                "answered", request=scope["number"], method=scope["method"], route=route,
                status=status, seconds=round(seconds, 4),
            )  # fmt: skip


def _our_fault(number: str, error: Exception) -> ApiError:
    log.error("request_crashed", request=number, exc_info=error)
    return ApiError(
        503,
        "our_fault",
        f"the server failed on this request, number {number}: its log says why",
        retry_after_s=5.0,
    )


# --- the process ----------------------------------------------------------------------------------


class BoundedConnection(H11Protocol):
    """uvicorn's, whose time to the next request ends with a whole head, not with a first byte."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        self.handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._unset_keepalive_if_required()


BOUNDS: dict[str, Any] = {
    "http": BoundedConnection, "h11_max_incomplete_event_size": 16 << 10, "limit_concurrency": 2048
}  # fmt: skip
"""On what clients without a token hold, for uvicorn."""


def run_app(
    app: FastAPI,
    listen: Listen,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; running requests get 10 s. started: told the address.

    Raises UsageError where the address is taken.
    """
    # uvicorn sends itself the signal that it ended by, after its end: our caller has yet to close
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(app, listen, started))
    finally:
        signal.signal(signal.SIGTERM, before)


async def _serve(app: FastAPI, listen: Listen, started: Callable[[str], None]) -> None:
    # an address that is taken gets our sentence, not uvicorn's
    untold = logging.getLogger("uvicorn.error")
    untold.addFilter(lambda record: not isinstance(record.msg, OSError))
    await server_of(app, listen, started).serve()


def server_of(app: FastAPI, listen: Listen, started: Callable[[str], None]) -> uvicorn.Server:
    """The server of an application; `serve` runs it, `should_exit` ends it."""
    config = uvicorn.Config(
        app, host=listen.host, port=listen.port,
        log_config=None, access_log=False, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=10, timeout_keep_alive=30, **BOUNDS,
    )  # fmt: skip
    return _Server(config, started)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def serve(self, sockets: Any = None) -> None:
        with self._socket() as made:
            await super().serve([made])

    def _socket(self) -> socket.socket:
        try:
            return self.config.bind_socket()
        except (SystemExit, OSError) as e:  # SystemExit is uvicorn's word
            raise UsageError(
                f"cannot listen on {self.config.host}:{self.config.port}: it is taken or not this "
                "machine's; choose another"
            ) from e

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            host, port = sockets[0].getsockname()[:2]
            self._tell(f"http://{f'[{host}]' if ':' in host else host}:{port}")

"""The viewer's HTTP application: pages, their data as JSON, live events. It only reads.

Every state is in the address. Paths in addresses are ids that are looked up, never names of files.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from coding_framework.deployment.http import is_own_host
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.viewer import charts, deployments, kernels, pages
from coding_framework.viewer.compare import compare_charts, compare_page
from coding_framework.viewer.conversation import conversation_page
from coding_framework.viewer.evaluations import evaluation_page
from coding_framework.viewer.library import Library, NotThereError
from coding_framework.viewer.rendering import STATIC_TYPES, render, static_path
from coding_framework.viewer.runs import PLACES
from coding_framework.viewer.search import filter_from

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}
MAX_STREAMS = 32
LOOK_S = 0.5
KEEP_ALIVE_S = 20.0
COOKIE = "cuda_rl_view"


def make_app(library: Library, *, token: str | None = None, hosts: Iterable[str] = ()) -> FastAPI:
    """The application. token: what a browser has to show, in the address once and then by a cookie.
    hosts: names under which it may be asked for, besides localhost and addresses."""
    app = FastAPI(title="cuda-rl view", docs_url=None, redoc_url=None, openapi_url=None)
    allowed = {"localhost", *(host.lower() for host in hosts)}
    streams = asyncio.Semaphore(MAX_STREAMS)

    @app.middleware("http")
    async def guarded(request: Request, call_next: Callable[[Request], Any]) -> Response:
        refused = _refused(request, allowed, token)
        response: Response = refused if refused is not None else await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(NotThereError)
    async def not_there(request: Request, error: NotThereError) -> Response:
        return _told(request, 404, "Not found", str(error))

    @app.exception_handler(UsageError)
    async def wrong_use(request: Request, error: UsageError) -> Response:
        return _told(request, 400, "That cannot be shown", str(error))

    @app.exception_handler(sqlite3.Error)
    async def no_index(request: Request, error: sqlite3.Error) -> Response:
        text = f"The index of this run is being made ({error}): the page loads again by itself."
        response = _told(request, 503, "Reading the run", text)
        response.headers["Retry-After"] = "2"
        return response

    @app.get("/static/{name:path}")
    def static(name: str, request: Request) -> Response:
        path = static_path(name)
        if path is None:
            raise NotThereError("there is no such file")
        data = path.read_bytes()
        tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Cache-Control": "public, max-age=31536000, immutable"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        kind = STATIC_TYPES[PurePath(name).suffix]
        return Response(data, media_type=kind, headers=headers)

    _add_pages(app, library)

    def told(versions: Callable[[], Mapping[str, str]], request: Request) -> Response:
        if streams.locked():
            return PlainTextResponse("too many pages listen", 503, {"Retry-After": "30"})
        last = request.headers.get("last-event-id", "")

        async def stream() -> AsyncIterator[bytes]:
            async with streams:
                async for event in changes(versions, last, request):
                    yield event

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    @app.get("/run/{run_id}/events")
    async def run_events(run_id: str, request: Request) -> Response:
        run = await asyncio.to_thread(library.run, run_id)
        return told(lambda: library.versions(run), request)

    @app.get("/deploy/experiments/{experiment}/events")
    async def rollout_events(experiment: str, request: Request) -> Response:
        find = deployments.experiment_versions
        return told(await asyncio.to_thread(find, library, experiment), request)

    return app


def _add_pages(app: FastAPI, library: Library) -> None:
    def page(path: str, template: str, make: Callable[..., Mapping[str, Any]]) -> None:
        """A page at a path, and its data at /api and the path."""

        def html(request: Request) -> Response:
            given = query_in(request)
            try:
                made = make(library, given, **request.path_params)
                return HTMLResponse(rendered(made, request))
            except (TypeError, ValueError, LookupError, AttributeError):
                if make is not conversation_page or given.get("view") == "raw":
                    raise
            # A record of another version that cannot be shown as one of this: as it is.
            made = make(library, {**given, "view": "raw"}, **request.path_params)
            return HTMLResponse(rendered(made, request))

        def rendered(made: Mapping[str, Any], request: Request) -> str:
            kinds = {kind: bool(library.found(kind)) for kind in PLACES}
            return render(template, made, query=request.url.query, places=kinds)

        def data(request: Request) -> Response:
            made = make(library, query_in(request), **request.path_params)
            return Response(as_json(made), media_type="application/json")

        app.get(path)(html)
        app.get(f"/api{path}".rstrip("/") or "/api")(data)

    page("/", "runs.html.j2", pages.runs_page)
    page("/run/{run_id}", "run.html.j2", pages.run_page)
    page("/run/{run_id}/newest", "newest.html.j2", pages.newest_page)
    page("/run/{run_id}/conversations", "conversations.html.j2", pages.conversations_page)
    page("/run/{run_id}/conversations/{key}", "conversation.html.j2", conversation_page)
    page("/run/{run_id}/steps", "steps.html.j2", pages.steps_page)
    page("/run/{run_id}/steps/{step}", "step.html.j2", pages.step_page)
    page("/run/{run_id}/tasks", "tasks.html.j2", pages.tasks_page)
    page("/run/{run_id}/task", "task.html.j2", pages.task_page)
    page("/eval/{run_id}", "evaluation.html.j2", evaluation_page)
    page("/compare", "compare.html.j2", compare_page)
    page("/system/{run_id}", "system.html.j2", pages.system_page)
    page("/kernels", "kernels.html.j2", kernels.kernels_page)
    page("/kernels/{kernel}/{task}", "kernel.html.j2", kernels.kernel_page)
    page("/deploy", "deploy.html.j2", deployments.deploy_page)
    page("/deploy/experiments/{experiment}", "experiment.html.j2", deployments.experiment_page)

    def drawn(path: str, make: Callable[..., list[dict[str, Any]]]) -> None:
        """The charts of a page, as data for the browser to draw."""

        def data(request: Request) -> Response:
            options = charts.options_from(request.query_params)
            return Response(
                orjson.dumps(make(request, options, **request.path_params)),
                media_type="application/json",
            )

        app.get(f"/api{path}/charts")(data)

    def training(request: Request, options: charts.Options, run_id: str) -> list[dict[str, Any]]:
        run = library.run(run_id)
        return charts.charts_of(run, options, library.restarts(run))

    def system(request: Request, options: charts.Options, run_id: str) -> list[dict[str, Any]]:
        run = library.run(run_id)
        return charts.system_charts(run, library.step_ends(run), options)

    drawn("/run/{run_id}", training)
    drawn("/system/{run_id}", system)
    drawn(
        "/deploy/experiments/{experiment}",
        lambda _, options, experiment: deployments.experiment_charts(library, experiment, options),
    )
    drawn("/compare", lambda asked, options: compare_charts(library, query_in(asked), options))

    @app.get("/run/{run_id}/conversations/{key}/code")
    def code(run_id: str, key: str, request: Request) -> Response:
        text = pages.code_of(library, run_id, key, request.query_params.get("turn", ""))
        headers = {"Content-Disposition": f'attachment; filename="{key}.txt"'}
        return Response(text.encode("utf-8", "replace"), media_type="text/plain", headers=headers)

    @app.get("/run/{run_id}/conversations/{key}/{way}")
    def neighbour(run_id: str, key: str, way: str, request: Request) -> Response:
        wanted = filter_from(request.query_params)
        before, after = library.neighbours(library.run(run_id), wanted, key)
        found = {"previous": before, "next": after}.get(way)
        if found is None:
            raise NotThereError("there is no such page")
        query = f"?{wanted.query}" if wanted.query else ""
        return RedirectResponse(f"/run/{run_id}/conversations/{found or key}{query}", 303)


def query_in(request: Request) -> dict[str, str]:
    """The query, with what is given several times joined by commas."""
    given = request.query_params
    return {name: ",".join(given.getlist(name)) for name in given}


def as_json(value: Any) -> bytes:
    """A page's data; what JSON has no form for is left as text."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, sqlite3.Row):
        return dict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)


async def changes(
    versions: Callable[[], Mapping[str, str]], last: str, request: Request
) -> AsyncIterator[bytes]:
    """Server-sent events with the names of what changed. An event's id holds the versions, so that
    a browser that slept, or that knew a server before, is told what it missed.

    Args:
        versions: What may change -> its version now.
        last: The id of the last event that the browser has.
    """
    known = _versions_in(last)
    now = await asyncio.to_thread(versions)
    if not known:
        known = dict(now)
        yield _event("hello", [], now)
    quiet = 0.0
    while not await request.is_disconnected():
        changed = sorted(name for name, version in now.items() if known.get(name) != version)
        if changed:
            known, quiet = dict(now), 0.0
            yield _event("changed", changed, now)
        elif quiet >= KEEP_ALIVE_S:
            quiet = 0.0
            yield b": still here\n\n"
        await asyncio.sleep(LOOK_S)
        quiet += LOOK_S
        now = await asyncio.to_thread(versions)


def _event(name: str, data: list[str], versions: Mapping[str, str]) -> bytes:
    identity = ";".join(f"{what}={version}" for what, version in versions.items())
    return f"id: {identity}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _versions_in(identity: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in identity.split(";") if "=" in part)
    return {name: version for name, _, version in pairs}


def _refused(request: Request, hosts: set[str], token: str | None) -> Response | None:
    """Why a request is not answered; None: it is. A token in the address becomes a cookie."""
    if request.method not in ("GET", "HEAD"):
        return PlainTextResponse("this page only shows: GET and nothing else", 405)
    if not is_own_host(request.headers.get("host", ""), hosts):
        return PlainTextResponse("unknown host name: use the address that `cuda-rl view` said", 421)
    if token is None:
        return None
    given = request.query_params.get("token")
    if given is not None and _same(given, token):
        rest = request.url.remove_query_params("token")
        where = rest.path + (f"?{rest.query}" if rest.query else "")
        response = RedirectResponse("/" + where.lstrip("/"), 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return response
    if _same(request.cookies.get(COOKIE, ""), token):
        return None
    return PlainTextResponse("open the address with ?token=, as `cuda-rl view` said it", 401)


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _told(request: Request, status: int, title: str, text: str) -> Response:
    """A page, or JSON, that says one sentence."""
    if request.url.path.startswith("/api"):
        return JSONResponse({"error": one_line(text)}, status)
    page = render("told.html.j2", {"title": title, "text": one_line(text), "wait": status == 503})
    return HTMLResponse(page, status)

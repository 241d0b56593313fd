"""`ModelServer`: OpenAI's protocol, and with a task the fastest verified kernel with its receipt.

    request -> caller -> task -> who answers -> exposure -> n conversations, judged
      -> outcome -> the fastest verified kernel with a signed receipt, or that there is none

Guaranteed: nothing is called verified without a `correct` verdict of this server's judge; the
exposure is durable before the model is asked, the outcome before the answer's last byte; a client
that goes away ends its generation and its queued verdicts.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import re
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.prompts import ANSWER_TOKENS
from coding_framework.deployment.ab_testing import Assignment, Shadow
from coding_framework.deployment.backends import BackendPolicy, Backends, Used
from coding_framework.deployment.chat import (
    ChatRequest,
    Reading,
    ReferencePool,
    TaskOfRequest,
    TaskReader,
    chunk_of,
    completion,
    listed,
    registered_task,
    task_of,
)
from coding_framework.deployment.http import (
    ApiError,
    Caller,
    ClientGoneError,
    Gate,
    as_json,
    make_app,
    parsed,
    read_object,
    while_connected,
)
from coding_framework.deployment.live_traffic import Traffic
from coding_framework.deployment.metrics import ServerMetrics
from coding_framework.deployment.outcomes import Outcome, Status
from coding_framework.deployment.serve_config import EndpointConfig, ServeConfig
from coding_framework.deployment.traffic import Versions
from coding_framework.deployment.verified import (
    JudgeQueue,
    Search,
    Wanted,
    basis_of,
    new_search,
    run_search,
)
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import (
    CodingFrameworkError,
    InfrastructureError,
    PolicyAwayError,
    PolicyError,
)
from coding_framework.monitoring.text import one_line
from coding_framework.orchestration.turn import Agent
from coding_framework.registry.keeping import KernelKeeper
from coding_framework.registry.receipts import KernelReceipt, SigningKey, receipt_of
from coding_framework.store.events import log
from coding_framework.types import (
    BackendName,
    ConversationTurn,
    JudgeFn,
    Role,
    SamplingParams,
    Task,
    Verdict,
)

TEMPERATURE = 0.7
PROGRESS_S = 5
_CHUNK_CHARS = 2000
_SHADOWS_AT_ONCE = 4
_OURS = ""
"""Who asks for what the server itself wants to know."""


@dataclass(slots=True)
class Asked:
    """One chat request on its way."""

    caller: Caller
    alias: str
    chat: ChatRequest
    found: TaskOfRequest | None
    endpoint: EndpointConfig
    request: str
    """Its number, which a retry with the same Idempotency-Key has too."""
    unit: bytes
    assignment: Assignment
    search: Search | None = None
    """With a task: what is found, as it comes."""
    started: float = field(default_factory=time.monotonic)
    failed_over: bool = False
    """Whether the incumbent answers since the candidate failed."""
    used: Used = field(default_factory=Used)
    """Tokens of the models so far."""

    @property
    def enrolled(self) -> bool:
        return self.assignment.experiment is not None

    @property
    def wanted(self) -> Wanted:
        own, said = self.endpoint, self.chat.cuda_rl
        return Wanted(
            candidates=said.n or own.candidates,
            turns=said.turns or own.turns,
            budget_s=said.budget_s or own.budget_s,
            min_speedup=said.min_speedup,
        )


@dataclass(frozen=True, slots=True)
class CallersTasks:
    """How tasks of callers are taken: both in sandboxes."""

    read: TaskReader
    """See `wiring.make_task_reader`."""
    judge: JudgeFn
    """Judges on the emulator, with references in a sandbox."""


class ModelServer:
    """The server; `app` is its ASGI application."""

    def __init__(
        self,
        config: ServeConfig,
        judge: JudgeFn,
        judges_on: BackendName,
        key: SigningKey,
        gate: Gate,
        traffic: Traffic,
        versions: Versions | None = None,
        *,
        callers: CallersTasks | None = None,
        keeper: KernelKeeper | None = None,
    ) -> None:
        """judges_on: what `judge` judges on. key: signs receipts. callers: takes tasks of callers;
        None: they are refused. keeper: puts verified kernels into a registry; None: nobody does."""
        self.config, self.gate, self.traffic = config, gate, traffic
        self.versions = versions or Versions(config.versions)
        self.judge = JudgeQueue(judge, config.judge.workers, config.judge.queue)
        self._callers = callers
        self._callers_judge = JudgeQueue(callers.judge, 1) if callers is not None else self.judge
        self._references = ReferencePool()
        self.metrics = ServerMetrics(lambda: self.traffic.seen)
        self.backends = Backends(config, self.metrics, self.versions.all)
        self._judges_on = judges_on
        self._key = key
        self._keeper = keeper
        self._judge_ready: str | None = "the judge has not given its first verdict yet"
        self._background: set[asyncio.Task[Any]] = set()
        self._shadows = 0
        self._watch()
        self.app = self._make_app()

    def _watch(self) -> None:
        self.judge.on_verdict = self._callers_judge.on_verdict = self.metrics.judged
        self.traffic.on_commit = self.metrics.committed
        self.metrics.judge_queue.set_function(lambda: self.judge.waiting)
        self.metrics.storage_failed.set_function(lambda: float(self.traffic.failure is not None))

    # --- its life ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _running(self, app: FastAPI) -> AsyncIterator[None]:
        await self.backends.start()
        self._spawn(self._try_judge())
        try:
            yield
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            await self.backends.close()
            self._references.close()

    async def _try_judge(self) -> None:
        """One verdict whose result is known: until it is right, the server is not ready."""
        from coding_framework.data.kernels import kernels_of

        task = registered_task("relu")
        while self._judge_ready is not None:
            try:
                naive, *_ = await asyncio.to_thread(kernels_of, task)
                verdict = await self.judge.of(_OURS)(task, naive.code)
                self._judge_ready = None if verdict.correct else f"relu is {verdict.reason}"
            except InfrastructureError as e:
                self._judge_ready = str(e)
            if self._judge_ready is not None:
                log.error("judge_not_ready", why=self._judge_ready)
                await asyncio.sleep(30.0)
        gc.collect()
        gc.freeze()  # what is loaded by now stays: a collection through all of it took 55 ms

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # --- routes -----------------------------------------------------------------------------------

    def _make_app(self) -> FastAPI:
        app = make_app("cuda-rl serve", self.gate, self.metrics, lifespan=self._running)
        app.get("/readyz")(self._readyz)
        app.get("/v1/models")(self._models)
        app.post("/v1/chat/completions")(self._chat)
        return app

    async def _readyz(self) -> Response:
        """200 where every alias has a healthy backend and the judge has judged rightly. `degraded`
        where it serves all the same, but takes nobody into a rollout."""
        missing = [] if self._judge_ready is None else [self._judge_ready]
        for alias in self.config.endpoints:
            try:
                version = self.versions.get(self.traffic.assign(alias, b"").version)
                if not self.backends.of(version).ready(version.model):
                    missing.append(f"no backend has the model of {alias}")
            except InfrastructureError as e:
                missing.append(str(e))
        if missing:
            return as_json({"status": "waiting", "for": missing}, 503)
        if self.traffic.failure is not None:
            said = "the deployment database cannot be written: incumbents alone answer"
            return as_json({"status": "degraded", "for": [said]})
        return as_json({"status": "ready", "for": []})

    async def _models(self, request: Request) -> Response:
        self.gate.caller(request, "complete")
        return listed(self.config.endpoints)

    async def _chat(self, request: Request) -> Response:
        caller = self.gate.caller(request, "complete")
        self.gate.hold(request.scope, caller)
        chat: ChatRequest = parsed(ChatRequest, await read_object(request))
        asked = await while_connected(request, self._asked(request, caller, chat))
        if chat.stream:
            return _stream(self, asked)
        answer = await while_connected(request, self._answer(asked))
        return as_json(answer, headers=_headers(answer))

    async def _asked(self, request: Request, caller: Caller, chat: ChatRequest) -> Asked:
        """What is asked for, admitted. Raises ApiError."""
        endpoint = self.config.endpoints.get(chat.model)
        if endpoint is None:
            raise ApiError(
                404, "model_not_found",
                f"no endpoint is called {one_line(chat.model, 60)!r}; there are: "
                f"{', '.join(self.config.endpoints)}",
            )  # fmt: skip
        found = await task_of(chat, self._reading(caller))
        key = request.headers.get("idempotency-key")
        if key is not None:
            request.scope["number"] = _digest(caller.id, key)
        number = request.scope["number"]
        unit = self.traffic.unit(self._unit_value(request, caller, chat))
        assignment = self.traffic.assign(chat.model, unit)
        asked = Asked(caller, chat.model, chat, found, endpoint, number, unit, assignment)
        self._require_possible(asked)
        if found is not None:
            asked.search = new_search(found.task, asked.wanted)
        return asked

    def _judge_of(self, found: TaskOfRequest) -> JudgeQueue:
        return self._callers_judge if found.from_caller else self.judge

    def _reading(self, caller: Caller) -> Reading:
        reader = self._callers.read if self._callers is not None else None
        return Reading(self._references, reader, caller.id)

    def _unit_value(self, request: Request, caller: Caller, chat: ChatRequest) -> str:
        session = request.headers.get("x-cudarl-session")
        own = chat.user if self.config.unit == "user" else session
        return f"{caller.id}/{own or ''}"

    def _require_possible(self, asked: Asked) -> None:
        """Raises ApiError where the request cannot be done here, or not now."""
        said = asked.chat.cuda_rl
        if asked.found is None:
            if said.require_verified:
                raise ApiError(
                    400, "no_task",
                    "nothing can be verified without a task: name one in cuda_rl.task",
                )  # fmt: skip
            return
        self._require_judge(self._judge_of(asked.found), asked.caller)
        if said.target not in (None, self._judges_on):
            raise ApiError(
                400, "wrong_target", f"this server judges on {self._judges_on}: leave target out"
            )

    def _require_judge(self, judge: JudgeQueue, caller: Caller) -> None:
        if self._judge_ready is not None:
            raise ApiError(
                503, "judge_not_ready", f"{self._judge_ready}: ask again later", retry_after_s=5.0
            )
        if judge.full(caller.id):
            waiting = judge.waiting_of(caller.id)
            raise ApiError(
                429, "judge_busy", f"{waiting} verdicts of yours wait already: ask again later",
                retry_after_s=5.0,
            )  # fmt: skip

    # --- the answer -------------------------------------------------------------------------------

    async def _answer(self, asked: Asked) -> dict[str, Any]:
        """The whole answer, its exposure and outcome written. Raises ApiError."""
        await self._expose(asked)
        try:
            return await self._answered(asked)
        except (ApiError, InfrastructureError) as e:
            if (isinstance(e, ApiError) and e.status != 503) or not self._by_incumbent(asked):
                raise
        return await self._answered(asked)

    async def _expose(self, asked: Asked) -> None:
        try:
            exposed = self.traffic.expose(asked.alias, asked.unit, asked.request, asked.assignment)
            asked.assignment = await asyncio.wrap_future(exposed)
        except asyncio.CancelledError:  # it may be written
            self._spawn(self._finish(asked, _ended_as("cancelled", asked)))
            raise

    def _by_incumbent(self, asked: Asked) -> bool:
        """Whether the incumbent answers in the place of a candidate that failed: once."""
        if asked.assignment.variant != "candidate" or asked.failed_over:
            return False
        asked.failed_over = True
        asked.assignment = self.traffic.without_rollout(asked.alias)
        if asked.found is not None:
            asked.search = new_search(asked.found.task, asked.wanted)
        return True

    async def _answered(self, asked: Asked) -> dict[str, Any]:
        try:
            answer = await self._ended(asked)
        except ApiError as e:
            refused = e.kind == "refused_by_model"
            await self._finish(asked, _ended_as("refused", asked) if refused else _outcome(asked))
            raise
        except (asyncio.CancelledError, ClientGoneError):
            # a task of its own: whoever is cancelled cannot wait for the database
            self._spawn(self._finish(asked, _ended_as("cancelled", asked)))
            raise
        except InfrastructureError:
            await self._finish(asked, _ended_as("error", asked))
            raise
        outcome = _outcome(asked)
        await self._finish(asked, outcome)
        self._shadow(asked, outcome)
        return answer

    async def _ended(self, asked: Asked) -> dict[str, Any]:
        version = self.versions.get(asked.assignment.version)
        if asked.search is None or asked.found is None:
            try:
                backend = self.backends.of(version)
                answer = await backend.complete(_plain(asked.chat, version), asked.used)
            except PolicyAwayError:
                raise
            except PolicyError as e:
                raise ApiError(400, "refused_by_model", one_line(str(e), 500)) from e
            return _said_as(asked, answer)
        agents = self._agents(version, asked.chat, asked.used)
        judge = self._judge_of(asked.found).of(asked.caller.id)
        judges_on = "emulator" if asked.found.from_caller else self._judges_on
        await run_search(asked.search, agents, judge, judges_on)
        return self._found(asked, asked.search)

    async def _finish(self, asked: Asked, outcome: Outcome) -> None:
        self.metrics.requests.labels(asked.alias, asked.assignment.variant, outcome.status).inc()
        seconds = self.metrics.seconds
        seconds.labels(asked.alias, "total").observe(time.monotonic() - asked.started)
        if asked.search is not None:
            seconds.labels(asked.alias, "generate").observe(asked.search.generate_s)
            seconds.labels(asked.alias, "judge").observe(asked.search.judge_s)
        if asked.enrolled:
            finished = self.traffic.finish(asked.request, outcome)
            await asyncio.shield(asyncio.wrap_future(finished))

    def _agents(self, version: VersionSpec, chat: ChatRequest, used: Used) -> Mapping[Role, Agent]:
        policy = BackendPolicy(self.backends.of(version), version.model, used)
        most = chat.max_completion_tokens or chat.max_tokens or version.max_new_tokens
        chosen = chat.temperature if chat.temperature is not None else version.temperature
        sampling = SamplingParams(
            max_new_tokens=most or ANSWER_TOKENS[version.prompts],
            temperature=TEMPERATURE if chosen is None else chosen,
            top_p=chat.top_p or 1.0,
            seed=chat.seed,
        )
        return {
            Role.GENERATOR: GeneratorAgent(policy, sampling, prompts=version.prompts),
            Role.OPTIMIZER: OptimizerAgent(policy, sampling, prompts=version.prompts),
        }

    def _found(self, asked: Asked, search: Search) -> dict[str, Any]:
        """The answer to a finished search. Raises ApiError 422 or 503."""
        told = [candidate.told() for candidate in search.candidates]
        best = search.best
        if best is None and search.all_failed:
            raise ApiError(
                503, "unavailable", told[0]["reason"] or "no candidate could be judged",
                retry_after_s=5.0,
            )  # fmt: skip
        if best is None and asked.chat.cuda_rl.require_verified in (None, True):
            raise ApiError(
                422, "no_verified_kernel",
                f"none of {len(told)} candidates was verified within "
                f"{search.wanted.budget_s:g} s: ask for more candidates, turns or time",
                candidates=told,
            )  # fmt: skip
        shown = best or search.attempt
        extra = {"candidates": told, **self._about(asked, shown, verified=best is not None)}
        extra["turns"] = sum(len(c.state.turns) for c in search.candidates)
        if "experiments:read" in asked.caller.scopes:
            extra["version"] = asked.assignment.version
            extra["served_by"] = asked.assignment.variant
        return _completion(asked, _content(shown, extra), extra)

    def _about(
        self, asked: Asked, turn: ConversationTurn | None, *, verified: bool
    ) -> dict[str, Any]:
        verdict = turn.verdict if turn is not None else None
        if not verified or verdict is None or asked.found is None:
            return {"status": "unverified"}
        receipt = self._receipt(asked.found, verdict)
        if self._keeper is not None and not asked.found.from_caller and turn is not None:
            self._spawn(self._keep(asked.found.task, turn.code or "", verdict))
        return {
            "status": "verified",
            "receipt": receipt.model_dump(mode="json"),
            "kernel_id": receipt.kernel,
            "speedup": verdict.speedup,
            "basis": basis_of(verdict),
        }

    async def _keep(self, task: Task, code: str, verdict: Verdict) -> None:
        """After the answer: what fails here is told in the log, and fails no request."""
        assert self._keeper is not None
        try:
            kept = await self._keeper.keep(task, code, verdict)
        except CodingFrameworkError as e:
            log.error("kernel_not_kept", task=task.name, why=str(e))
        else:
            if kept is not None:
                log.info("kernel_kept", task=task.name, kernel=kept.kernel)

    def _receipt(self, found: TaskOfRequest, verdict: Verdict) -> KernelReceipt:
        return receipt_of(
            found.task, verdict, reference="caller" if found.from_caller else "registered",
            key=self._key,
        )  # fmt: skip

    # --- the shadow -------------------------------------------------------------------------------

    def _shadow(self, asked: Asked, incumbent: Outcome) -> None:
        """The candidate answers the same request after it, unseen, where the judge has time."""
        shadow = self.traffic.shadow(asked.alias, asked.unit)
        if shadow is None or asked.found is None or asked.enrolled:
            return
        if asked.found.from_caller or self.judge.full(_OURS):
            return
        if self._shadows >= _SHADOWS_AT_ONCE:
            return
        self._shadows += 1
        self._spawn(self._answer_unseen(asked, asked.found.task, shadow, incumbent))

    async def _answer_unseen(
        self, asked: Asked, task: Task, shadow: Shadow, incumbent: Outcome
    ) -> None:
        started = time.monotonic()
        try:
            version = self.versions.get(shadow.candidate)
            search = new_search(task, asked.wanted)
            agents = self._agents(version, asked.chat, Used())  # ours, not the caller's
            await run_search(search, agents, self.judge.of(_OURS), self._judges_on)
            outcome = _outcome_of(search, time.monotonic() - started)
        except InfrastructureError as e:
            log.warning("shadow_failed", error=str(e)[:300])
            outcome = Outcome(status="error", seconds=time.monotonic() - started)
        finally:
            self._shadows -= 1
        paired = self.traffic.pair(shadow, asked.unit, asked.request, incumbent, outcome)
        await asyncio.wrap_future(paired)

    # --- streams ----------------------------------------------------------------------------------

    async def events(self, asked: Asked) -> AsyncIterator[ServerSentEvent]:
        """The answer, when it is whole, as OpenAI's chunks, the last of which holds what is said of
        the kernel."""
        try:
            answer = await self._answer(asked)
            for chunk in _chunks(answer):
                yield ServerSentEvent(chunk, sep="\n")
        except (ApiError, InfrastructureError) as e:
            told = e if isinstance(e, ApiError) else ApiError(503, "unavailable", one_line(str(e)))
            yield ServerSentEvent(bytes(told.response().body).decode(), sep="\n")
        yield ServerSentEvent("[DONE]", sep="\n")


def _stream(server: ModelServer, asked: Asked) -> EventSourceResponse:
    """Server-sent events, with a comment on how far it is every few seconds."""

    def progress() -> ServerSentEvent:
        comment = asked.search.progress() if asked.search is not None else "waiting"
        return ServerSentEvent(comment=comment, sep="\n")

    return EventSourceResponse(
        server.events(asked), ping=PROGRESS_S, ping_message_factory=progress, sep="\n"
    )


def _chunks(answer: Mapping[str, Any]) -> Iterator[str]:
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    for start in range(0, len(text) or 1, _CHUNK_CHARS):
        delta = {"role": "assistant", "content": text[start : start + _CHUNK_CHARS]}
        yield chunk_of(answer, delta, None)
    yield chunk_of(answer, {}, choice.get("finish_reason", "stop"), cuda_rl=choice["cuda_rl"])


def _completion(asked: Asked, content: str, extra: dict[str, Any]) -> dict[str, Any]:
    said, used = {"role": "assistant", "content": content}, asked.used
    return completion(asked.alias, said, (used.prompt, used.completion), cuda_rl=extra)


def _content(turn: ConversationTurn | None, extra: Mapping[str, Any]) -> str:
    """The kernel in one fenced block, and one sentence."""
    if turn is None or turn.code is None or turn.verdict is None:
        return "There is no kernel: no answer of the model held one."
    if extra["status"] != "verified":
        return f"{_block(turn.code)}This kernel is not verified: {one_line(turn.verdict.reason)}."
    return _verified(turn.code, extra, turn.verdict.backend)


def _verified(code: str, extra: Mapping[str, Any], where: str) -> str:
    speedup, basis = extra["speedup"], extra["basis"]
    fast = "" if speedup is None else f"; its speedup is {speedup:.2f}, {basis}"
    order = ", of which only the order is to be trusted" if basis == "modelled" else ""
    return f"{_block(code)}This kernel is verified on {where}{fast}{order}."


def _block(code: str) -> str:
    """The kernel as it was judged, byte for byte, between fences longer than any in it."""
    tag = "python" if "class ModelNew" in code else "cuda"
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`*", code)))
    end = "" if code.endswith("\n") else "\n"
    return f"{fence}{tag}\n{code}{end}{fence}\n\n"


def _plain(chat: ChatRequest, version: VersionSpec) -> dict[str, Any]:
    """A chat without a task, as the backend is asked."""
    body: dict[str, Any] = {
        "model": version.model,
        "messages": [
            {"role": "system" if m.role == "developer" else m.role, "content": m.text}
            for m in chat.messages
        ],
        "temperature": _first(chat.temperature, version.temperature, TEMPERATURE),
    }
    most = chat.max_completion_tokens or chat.max_tokens or version.max_new_tokens
    for name, value in (("max_tokens", most), ("top_p", chat.top_p), ("seed", chat.seed)):
        if value is not None:
            body[name] = value
    return body


def _first(*values: float | None) -> float | None:
    return next((v for v in values if v is not None), None)


def _said_as(asked: Asked, answer: dict[str, Any]) -> dict[str, Any]:
    """A backend's answer under the name that was asked for. Raises PolicyAwayError."""
    try:
        choice = answer["choices"][0]
        message = {**choice["message"], "content": choice["message"]["content"] or ""}
    except (KeyError, IndexError, TypeError) as e:
        raise PolicyAwayError("the backend gave an answer without a message") from e
    choice = {**choice, "message": message, "cuda_rl": {"status": "not_judged"}}
    return {**answer, "model": asked.alias, "choices": [choice]}


def _headers(answer: Mapping[str, Any]) -> dict[str, str]:
    extra = answer["choices"][0]["cuda_rl"]
    headers = {"X-CudaRL-Verdict": extra["status"]}
    if "kernel_id" in extra:
        headers["X-CudaRL-Kernel"] = extra["kernel_id"]
    return headers


def _ended_as(status: Status, asked: Asked) -> Outcome:
    seconds = time.monotonic() - asked.started
    return Outcome(status=status, seconds=seconds)


def _outcome(asked: Asked) -> Outcome:
    """What came of a request that was answered, with 422 too."""
    if asked.search is None:
        return _ended_as("not_judged", asked)
    return _outcome_of(asked.search, time.monotonic() - asked.started)


def _outcome_of(search: Search, seconds: float) -> Outcome:
    best = search.best
    if best is None:
        nothing = search.judged == 0 and search.timed_out
        status: Status = "timeout" if nothing else "error" if search.all_failed else "unverified"
        return Outcome(status=status, seconds=seconds, cheated=search.cheated)
    speedup = best.verdict.speedup if best.verdict is not None else None
    return Outcome(status="verified", speedup=speedup, seconds=seconds, cheated=search.cheated)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()

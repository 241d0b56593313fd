"""Upstream model servers: who is healthy, who has the model, and one request to one of them.

Health is asked for (every 2 s, with jitter). A request goes to the healthy replica with the fewest
running; where nothing was sent to the client yet, one that fails by connection or 502-504 is tried
once more, on another replica. Only addresses of the configuration are ever asked.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
import orjson

from coding_framework.agents.chat_request import chat_request
from coding_framework.deployment.metrics import ServerMetrics
from coding_framework.deployment.serve_config import BackendConfig, ModelVersion, ServeConfig
from coding_framework.errors import InfrastructureError, PolicyAwayError, PolicyError
from coding_framework.monitoring.text import one_line
from coding_framework.store.events import log
from coding_framework.types import Generation, Message, SamplingParams

PERIOD_S = 2.0
HEALTH_TIMEOUT_S = 5.0
LOAD_S = 120.0
"""How long an adapter may take to be loaded."""
SILENT_S = 60.0
"""A stream that says nothing for so long is dead."""
ANSWER_S = 600.0
_OUT_AFTER, _IN_AFTER = 3, 2
_JITTER = random.Random()
_ELSEWHERE = (502, 503, 504)
_MAX_ANSWER = 16 << 20


@dataclass(slots=True)
class Replica:
    """One address, and what is known of it."""

    url: str
    running: int = 0
    up: bool = False
    asked: bool = False
    failed_checks: int = 0
    good_checks: int = 0
    models: frozenset[str] = frozenset()
    weights: dict[str, str] = field(default_factory=dict)
    """Digest of a model's weights, as it said last; "" where it says none."""

    def checked(self, good: bool) -> None:
        """The answer of a health check. The first one decides alone."""
        self.good_checks = self.good_checks + 1 if good else 0
        self.failed_checks = 0 if good else self.failed_checks + 1
        if good and (self.good_checks >= _IN_AFTER or not self.asked):
            self.up = True
        elif self.failed_checks >= _OUT_AFTER or not self.asked:
            self.up = good
        self.asked = True


@dataclass(slots=True)
class Used:
    """Tokens that models read and wrote, as their servers tell them."""

    prompt: int = 0
    completion: int = 0

    def add(self, usage: Any, body: Mapping[str, Any], said: int) -> None:
        """usage: of an answer. said: characters of the answer; where its server tells no usage, a
        token counts as four characters."""
        told = usage if isinstance(usage, dict) else {}
        counts = told.get("prompt_tokens"), told.get("completion_tokens")
        read, written = (c if isinstance(c, int) and c >= 0 else None for c in counts)
        if read is None:
            read = sum(len(str(m.get("content"))) for m in body["messages"]) // 4 + 1
        self.prompt += read
        self.completion += said // 4 + 1 if written is None else written

    def told(self) -> dict[str, int]:
        """As OpenAI's API says it."""
        return {
            "prompt_tokens": self.prompt, "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }  # fmt: skip


class Backend:
    """The replicas of one model server. `start` in the event loop that uses it."""

    def __init__(
        self,
        config: BackendConfig,
        adapters: Callable[[], Iterable[ModelVersion]] = tuple,
    ) -> None:
        """adapters: the versions that it must have loaded, asked for at every check."""
        self.config = config
        self.replicas = [Replica(str(url).rstrip("/")) for url in config.urls]
        self._adapters = adapters
        self._free = asyncio.Condition()
        self._session: aiohttp.ClientSession | None = None
        self._checks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        return self.config.name

    async def start(self) -> None:
        """Check every replica once, then go on checking."""
        await self.check()
        self._checks = [asyncio.create_task(self._check_often(r)) for r in self.replicas]

    async def check(self) -> None:
        """Ask every replica now."""
        await asyncio.gather(*(self._check(replica) for replica in self.replicas))

    async def close(self) -> None:
        await self._end_checks()
        if self._session is not None:
            await self._session.close()

    async def _end_checks(self) -> None:
        checks, self._checks = self._checks, []
        for task in checks:
            task.cancel()
        for task in checks:
            with suppress(asyncio.CancelledError):
                await task

    def ready(self, model: str) -> bool:
        """Whether every healthy replica has the model, and one is healthy."""
        healthy = [r for r in self.replicas if r.up]
        return bool(healthy) and all(model in r.models for r in healthy)

    def weights_of(self, model: str) -> str | None:
        """What the replicas said last of a model's weights: one digest, several where they differ,
        "" where none says any. None: no replica has had the model yet."""
        said = {r.weights[model] for r in self.replicas if model in r.weights}
        return ", ".join(sorted(said - {""})) if said else None

    async def complete(self, body: dict[str, Any], used: Used) -> dict[str, Any]:
        """The answer to a chat, its tokens added to `used`. Raises PolicyError where the server
        refuses it, PolicyAwayError where none can answer now."""
        async with self._asked(body, aiohttp.ClientTimeout(total=ANSWER_S)) as (replica, response):
            try:
                answer = orjson.loads(await read_whole(response, _MAX_ANSWER))
            except (aiohttp.ClientError, TimeoutError, ValueError) as e:
                raise PolicyAwayError(
                    f"the backend {self.name} broke off its answer: ask again"
                ) from e
            self._require_own(replica, body, answer)
            used.add(answer.get("usage"), body, len(str(answer.get("choices"))))
            return dict(answer)

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The chunks of an answer, as objects. As `complete`; it raises in the middle too."""
        limits = aiohttp.ClientTimeout(total=ANSWER_S, sock_read=SILENT_S)
        async with self._asked({**body, "stream": True}, limits) as (replica, response):
            try:
                async for line in response.content:
                    if not line.startswith(b"data:"):
                        continue
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        return
                    chunk = orjson.loads(data)
                    self._require_own(replica, body, chunk)
                    if chunk.get("choices"):
                        yield chunk
            except (aiohttp.ClientError, TimeoutError, ValueError) as e:
                raise PolicyAwayError(
                    f"the backend {self.name} broke off its answer: ask again"
                ) from e

    def _require_own(self, replica: Replica, body: dict[str, Any], answer: Any) -> None:
        """A server that has lost an adapter may answer as its base model: that is no answer."""
        said = answer.get("model") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or said not in (None, body["model"]):
            replica.models = replica.models - {body["model"]}
            raise PolicyAwayError(
                f"the backend {self.name} answered as another model than {body['model']}: it is "
                "asked again when it has it"
            )

    @asynccontextmanager
    async def _asked(
        self, body: dict[str, Any], limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[tuple[Replica, aiohttp.ClientResponse]]:
        """A replica's answer, whose status is 200."""
        tried: list[Replica] = []
        data = orjson.dumps(body)
        for attempt in (1, 2):
            replica = await self._take(body["model"], tried)
            tried.append(replica)
            try:
                async with self._http().post(
                    f"{replica.url}/v1/chat/completions", data=data, timeout=limits,
                    headers={"Content-Type": "application/json"}, allow_redirects=False,
                ) as response:  # fmt: skip
                    if response.status == 200:
                        yield replica, response
                        return
                    if response.status not in _ELSEWHERE:
                        raise await self._refusal(replica, body["model"], response)
            except (aiohttp.ClientConnectionError, TimeoutError) as e:
                log.warning("backend_failed", url=replica.url, attempt=attempt, error=str(e)[:200])
            finally:
                await self._give_back(replica)
        raise PolicyAwayError(f"the backend {self.name} does not answer now: ask again later")

    async def _refusal(
        self, replica: Replica, model: str, response: aiohttp.ClientResponse
    ) -> PolicyError:
        text = await _said(response)
        log.warning("backend_refused", url=replica.url, status=response.status, said=text)
        if response.status == 404:
            replica.models = replica.models - {model}
        if response.status in (404, 408, 429) or response.status >= 500:
            return PolicyAwayError(f"the backend {self.name} cannot answer now: ask again later")
        return PolicyError(f"the backend {self.name} refused the request: {text}")

    async def _take(self, model: str, tried: list[Replica]) -> Replica:
        """A replica with room; waits where all are full. Raises PolicyAwayError where none has the
        model."""
        async with self._free:
            while True:
                fit = [r for r in self.replicas if r.up and model in r.models]
                fit = [r for r in fit if r not in tried] or fit
                if not fit:
                    raise PolicyAwayError(
                        f"no replica of the backend {self.name} that has {model} is healthy now: "
                        "ask again later"
                    )
                free = [r for r in fit if r.running < self.config.max_concurrency]
                if free:
                    best = min(free, key=lambda r: r.running)
                    best.running += 1
                    return best
                await self._free.wait()

    async def _give_back(self, replica: Replica) -> None:
        replica.running -= 1
        async with self._free:
            self._free.notify_all()

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            key = os.environ.get(self.config.key_env, "") if self.config.key_env else ""
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(
                headers=headers, connector=connector, trust_env=False
            )
        return self._session

    # --- health ---------------------------------------------------------------------------------

    async def _check_often(self, replica: Replica) -> None:
        while True:
            await asyncio.sleep(PERIOD_S * _JITTER.uniform(0.8, 1.2))
            await self._check(replica)

    async def _check(self, replica: Replica) -> None:
        was, first = replica.up, not replica.asked
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                good = await self._is_well(replica)
                if good:
                    replica.models = await self._models(replica)
            if good and await self._load_missing(replica):
                async with asyncio.timeout(HEALTH_TIMEOUT_S):
                    replica.models = await self._models(replica)
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
            good = False
        replica.checked(good)
        if replica.up != was or (first and not replica.up):
            tell = log.info if first and replica.up else log.warning
            tell("replica_up" if replica.up else "replica_down", url=replica.url)
            async with self._free:
                self._free.notify_all()

    async def _is_well(self, replica: Replica) -> bool:
        async with self._http().get(f"{replica.url}/health") as response:
            return response.status in (200, 404)  # 404: a server that has no such route

    async def _models(self, replica: Replica) -> frozenset[str]:
        async with self._http().get(f"{replica.url}/v1/models") as response:
            answer = orjson.loads(await read_whole(response, _MAX_ANSWER))
        said = {str(m["id"]): str(m.get("weights_sha256") or "") for m in answer["data"]}
        replica.weights |= said
        return frozenset(said) - set(self._others(replica, said))

    def _others(self, replica: Replica, said: dict[str, str]) -> Iterator[str]:
        """Models whose weights are not those of the version that has their name."""
        for version in self._adapters():
            told = said.get(version.model, "")
            if version.weights_sha256 and told not in ("", version.weights_sha256):
                log.warning("other_weights", url=replica.url, model=version.model, said=told)
                yield version.model

    async def _load_missing(self, replica: Replica) -> bool:
        """A replica that came back has no adapters: it is asked for each of them again. Whether
        there was one."""
        missing = [v for v in self._adapters() if v.adapter and v.model not in replica.models]
        if self.config.adapters != "dynamic" or not missing:
            return False
        limit = aiohttp.ClientTimeout(total=LOAD_S)
        for version in missing:
            body = {"lora_name": version.model, "lora_path": version.adapter}
            told = {"url": replica.url, "adapter": version.model}
            try:
                async with self._http().post(
                    f"{replica.url}/v1/load_lora_adapter", json=body, timeout=limit
                ) as response:
                    if response.status != 200:
                        log.warning("adapter_refused", **told, said=await _said(response))
            except (aiohttp.ClientError, TimeoutError) as e:  # no word on the replica's health
                log.warning("adapter_not_loaded", **told, error=repr(e)[:200])
        return True


class BackendPolicy:
    """One version behind a backend, as a `types.Policy`."""

    def __init__(self, backend: Backend, model: str, used: Used) -> None:
        """used: is told the tokens of each answer."""
        self._backend, self._model, self._used = backend, model, used

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        """One answer to a chat. Raises PolicyError where the model or its server fails."""
        body = chat_request(self._model, messages, sampling)
        answer = await self._backend.complete(body, self._used)
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"] or ""
            stopped = choice.get("finish_reason") != "length"
            return Generation(
                text=text.encode("utf-8", "replace").decode("utf-8"),
                finish_reason="stop" if stopped else "length",
            )
        except (KeyError, IndexError, TypeError, AttributeError) as e:
            raise PolicyAwayError(
                f"the backend {self._backend.name} gave an answer without a message"
            ) from e


async def read_whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """A peer's answer to its end, in however many pieces it comes. Raises ValueError where it has
    over `most` bytes."""
    found = await _first_bytes(response, most + 1)
    if len(found) > most:
        raise ValueError(f"the answer has over {most} bytes")
    return found


async def _first_bytes(response: aiohttp.ClientResponse, count: int) -> bytes:
    """The first `count` bytes; fewer where the answer ends before."""
    pieces = bytearray()
    async for piece in response.content.iter_any():
        pieces += piece
        if len(pieces) >= count:
            break
    return bytes(pieces[:count])


async def _said(response: aiohttp.ClientResponse) -> str:
    """What a peer says where it refuses, for the log and for callers."""
    return one_line((await _first_bytes(response, 2000)).decode("utf-8", "replace"), 200)


class Backends:
    """All of a server's. `start` in the event loop that uses them."""

    def __init__(
        self,
        config: ServeConfig,
        metrics: ServerMetrics,
        versions: Callable[[], Iterable[ModelVersion]],
    ) -> None:
        """versions: all that there are, asked for at every check."""
        self._config = config
        self._backends = {
            own.name: Backend(own, partial(self._served_by, own.name, versions))
            for own in config.backends
        }
        for backend in self._backends.values():
            for number, replica in enumerate(backend.replicas):
                labels = (backend.name, str(number))
                metrics.up.labels(*labels).set_function(partial(getattr, replica, "up"))
                metrics.running.labels(*labels).set_function(partial(getattr, replica, "running"))

    def of(self, version: ModelVersion) -> Backend:
        """Raises InfrastructureError where its backend is not there."""
        name = self._config.backend_of(version)
        try:
            return self._backends[name]
        except KeyError:
            raise InfrastructureError(
                f"the version that serves {version.model} wants the backend {name}, which this "
                "server does not have: add it to its file"
            ) from None

    async def start(self) -> None:
        """Check every replica once, then go on checking."""
        await asyncio.gather(*(backend.start() for backend in self._backends.values()))

    async def close(self) -> None:
        await asyncio.gather(*(backend.close() for backend in self._backends.values()))

    def _served_by(
        self, backend: str, versions: Callable[[], Iterable[ModelVersion]]
    ) -> list[ModelVersion]:
        return [v for v in versions() if self._config.backend_of(v) == backend]

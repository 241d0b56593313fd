"""Upstream model servers: which models they have, and one request to one of them.

Each is one address, asked for its models every 2 s (with jitter); of several replicas it is their
proxy's. A request that fails by connection or 502-504 before its first byte is tried once more.
Only addresses of the configuration are ever asked.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import orjson

from coding_framework.agents.chat_request import chat_request
from coding_framework.deployment.metrics import ServerMetrics
from coding_framework.deployment.serve_config import BackendConfig, ServeConfig
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import InfrastructureError, PolicyAwayError, PolicyError
from coding_framework.monitoring.text import one_line
from coding_framework.store.events import log
from coding_framework.types import Generation, Message, SamplingParams

PERIOD_S = 2.0
CHECK_TIMEOUT_S = 5.0
LOAD_S = 120.0
"""How long an adapter may take to be loaded."""
ANSWER_S = 600.0
_JITTER = random.Random()
_AGAIN = (502, 503, 504)
_MAX_ANSWER = 16 << 20


@dataclass(slots=True)
class Used:
    """Tokens that models read and wrote, as far as their servers tell them."""

    prompt: int = 0
    completion: int = 0

    def add(self, usage: Any) -> None:
        """usage: of an answer."""
        told = usage if isinstance(usage, dict) else {}
        self.prompt += _count(told.get("prompt_tokens"))
        self.completion += _count(told.get("completion_tokens"))


def _count(told: Any) -> int:
    return told if type(told) is int and told >= 0 else 0


class Backend:
    """One model server. `start` in the event loop that uses it."""

    def __init__(
        self,
        config: BackendConfig,
        adapters: Callable[[], Iterable[VersionSpec]] = tuple,
    ) -> None:
        """adapters: the versions that it must have loaded, asked for at every check."""
        self.config, self.url = config, str(config.url).rstrip("/")
        self.up: bool | None = None
        """Whether it answered the last check; None: there was none yet."""
        self.running = 0
        self.models: frozenset[str] = frozenset()
        """As it said last."""
        self._adapters = adapters
        self._session: aiohttp.ClientSession | None = None
        self._checks: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.config.name

    async def start(self) -> None:
        """Check it once, then go on checking."""
        await self.check()
        self._checks = asyncio.create_task(self._check_often())

    async def close(self) -> None:
        if self._checks is not None:
            self._checks.cancel()
            with suppress(asyncio.CancelledError):
                await self._checks
        if self._session is not None:
            await self._session.close()

    def ready(self, model: str) -> bool:
        """Whether it answers and has the model."""
        return bool(self.up) and model in self.models

    async def complete(self, body: dict[str, Any], used: Used) -> dict[str, Any]:
        """The answer to a chat, its tokens added to `used`. Raises PolicyError where the server
        refuses it, PolicyAwayError where none can answer now."""
        async with self._asked(body, aiohttp.ClientTimeout(total=ANSWER_S)) as response:
            try:
                answer = orjson.loads(await read_whole(response, _MAX_ANSWER))
            except (aiohttp.ClientError, TimeoutError, ValueError) as e:
                raise PolicyAwayError(
                    f"the backend {self.name} broke off its answer: ask again"
                ) from e
            self._require_own(body, answer)
            used.add(answer.get("usage"))
            return dict(answer)

    def _require_own(self, body: dict[str, Any], answer: Any) -> None:
        """A server that has lost an adapter may answer as its base model: that is no answer."""
        said = answer.get("model") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or said not in (None, body["model"]):
            self.models -= {body["model"]}
            raise PolicyAwayError(
                f"the backend {self.name} answered as another model than {body['model']}: it is "
                "asked again when it has it"
            )

    @asynccontextmanager
    async def _asked(
        self, body: dict[str, Any], limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Its answer, whose status is 200."""
        if body["model"] not in self.models:
            raise PolicyAwayError(
                f"the backend {self.name} has no model {body['model']} now: ask again later"
            )
        data = orjson.dumps(body)
        for attempt in (1, 2):
            self.running += 1
            try:
                async with self._http().post(
                    f"{self.url}/v1/chat/completions", data=data, timeout=limits,
                    headers={"Content-Type": "application/json"}, allow_redirects=False,
                ) as response:  # fmt: skip
                    if response.status == 200:
                        yield response
                        return
                    if response.status not in _AGAIN:
                        raise await self._refusal(body["model"], response)
            except (aiohttp.ClientConnectionError, TimeoutError) as e:
                log.warning("backend_failed", url=self.url, attempt=attempt, error=str(e)[:200])
            finally:
                self.running -= 1
        raise PolicyAwayError(f"the backend {self.name} does not answer now: ask again later")

    async def _refusal(self, model: str, response: aiohttp.ClientResponse) -> PolicyError:
        text = await _said(response)
        log.warning("backend_refused", url=self.url, status=response.status, said=text)
        if response.status == 404:
            self.models -= {model}
        if response.status in (404, 408, 429) or response.status >= 500:
            return PolicyAwayError(f"the backend {self.name} cannot answer now: ask again later")
        return PolicyError(f"the backend {self.name} refused the request: {text}")

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            key = os.environ.get(self.config.key_env, "") if self.config.key_env else ""
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(
                headers=headers, connector=connector, trust_env=False
            )
        return self._session

    # --- what it has ----------------------------------------------------------------------------

    async def _check_often(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S * _JITTER.uniform(0.8, 1.2))
            await self.check()

    async def check(self) -> None:
        """Ask it for its models now; it is asked for adapters that it lacks."""
        was = self.up
        try:
            await self._ask_for_models()
            if await self._load_missing():
                await self._ask_for_models()
            self.up = True
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
            self.up = False
        if self.up != was:
            tell = log.info if self.up and was is None else log.warning
            tell("backend_up" if self.up else "backend_down", url=self.url)

    async def _ask_for_models(self) -> None:
        async with (
            asyncio.timeout(CHECK_TIMEOUT_S),
            self._http().get(f"{self.url}/v1/models") as response,
        ):
            answer = orjson.loads(await read_whole(response, _MAX_ANSWER))
        said = {str(m["id"]): str(m.get("weights_sha256") or "") for m in answer["data"]}
        self.models = frozenset(said) - set(self._others(said))

    def _others(self, said: dict[str, str]) -> Iterator[str]:
        """Models whose weights are not those of the version that has their name."""
        for version in self._adapters():
            told = said.get(version.model, "")
            if version.weights_sha256 and told not in ("", version.weights_sha256):
                log.warning("other_weights", url=self.url, model=version.model, said=told)
                yield version.model

    async def _load_missing(self) -> bool:
        """A server that came back has no adapters: it is asked for each of them again. Whether
        there was one."""
        missing = [v for v in self._adapters() if v.adapter and v.model not in self.models]
        if self.config.adapters != "dynamic" or not missing:
            return False
        limit = aiohttp.ClientTimeout(total=LOAD_S)
        for version in missing:
            body = {"lora_name": version.model, "lora_path": version.adapter}
            told = {"url": self.url, "adapter": version.model}
            try:
                async with self._http().post(
                    f"{self.url}/v1/load_lora_adapter", json=body, timeout=limit
                ) as response:
                    if response.status != 200:
                        log.warning("adapter_refused", **told, said=await _said(response))
            except (aiohttp.ClientError, TimeoutError) as e:  # no word on its health
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
        versions: Callable[[], Iterable[VersionSpec]],
    ) -> None:
        """versions: all that there are, asked for at every check."""
        self._config = config
        self._backends = {
            own.name: Backend(own, partial(self._served_by, own.name, versions))
            for own in config.backends
        }
        for backend in self._backends.values():
            metrics.up.labels(backend.name).set_function(partial(getattr, backend, "up"))
            metrics.running.labels(backend.name).set_function(partial(getattr, backend, "running"))

    def of(self, version: VersionSpec) -> Backend:
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
        """Check each once, then go on checking."""
        await asyncio.gather(*(backend.start() for backend in self._backends.values()))

    async def close(self) -> None:
        await asyncio.gather(*(backend.close() for backend in self._backends.values()))

    def _served_by(
        self, backend: str, versions: Callable[[], Iterable[VersionSpec]]
    ) -> list[VersionSpec]:
        return [v for v in versions() if self._config.backend_of(v) == backend]

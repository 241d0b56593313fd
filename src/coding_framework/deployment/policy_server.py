"""Models of this process by OpenAI's protocol: what `cuda-rl serve` asks where there is no GPU.

    POST /v1/chat/completions    {"model": a name, "messages": [...], "stream": false}
    GET  /v1/models, /health, /healthz, /metrics

Each name is a model: the base, or the base with an adapter. Requests to one model that come at once
are decoded as one batch. Guaranteed: an answer names the model that gave it; at most `queue`
requests wait or run, and who comes then is told when to ask again (503); what cannot fit the
context is 400. An answer is streamed as a whole, when it is finished. A client that goes away does
not end the decoding of its answer.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import Response
from prometheus_client import Counter, Gauge, Histogram
from pydantic import Field
from sse_starlette import EventSourceResponse, ServerSentEvent

from coding_framework.deployment.chat import ChatRequest, chunk_of, completion, listed
from coding_framework.deployment.http import (
    SECONDS,
    ApiError,
    Gate,
    HttpMetrics,
    as_json,
    make_app,
    parsed,
    read_object,
    while_connected,
)
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.types import Message, Policy, SamplingParams

MOST_BYTES = 8 << 20
"""Of a body."""
DEFAULT_TOKENS = 1024
"""Of an answer, where the request does not say and the context has room."""
RETRY_S = 5.0


class CountingPolicy(Policy, Protocol):
    """A policy that knows its tokens: `agents.policies.TransformersPolicy`."""

    @property
    def context(self) -> int: ...

    def count(self, messages: tuple[Message, ...]) -> int: ...


class PolicyRequest(ChatRequest):
    """OpenAI's request, and vLLM's `top_k`."""

    top_k: int | None = Field(default=None, ge=-1, le=1 << 20)
    """-1 and 0: all tokens."""


class PolicyServer:
    """The application: `app` for uvicorn."""

    def __init__(
        self,
        policies: Mapping[str, CountingPolicy],
        gate: Gate,
        *,
        queue: int,
        weights: Mapping[str, str] | None = None,
    ) -> None:
        """policies: by the name that callers ask for. queue: requests that wait or run at a time.
        weights: the digest of each, which `/v1/models` tells."""
        self._policies, self._gate, self._queue = dict(policies), gate, queue
        self._weights = dict(weights or {})
        self._taken = 0
        metrics = HttpMetrics()
        own = metrics.registry
        self._tokens = Counter("cuda_rl_policy_tokens", "Tokens.", ("model", "kind"), registry=own)
        self._seconds = Histogram(
            "cuda_rl_policy_seconds", "Time of an answer.", ("model",), buckets=SECONDS,
            registry=own,
        )  # fmt: skip
        waiting = Gauge("cuda_rl_policy_queue", "Requests that wait or run.", registry=own)
        waiting.set_function(lambda: self._taken)
        self.app: FastAPI = make_app("cuda-rl serve-policy", gate, metrics)
        self.app.get("/health")(self._health)
        self.app.get("/readyz")(self._health)
        self.app.get("/v1/models")(self._models)
        self.app.post("/v1/chat/completions")(self._chat)

    async def _health(self) -> Response:
        return as_json({"status": "ok"})

    async def _models(self, request: Request) -> Response:
        self._gate.caller(request, "complete")
        return listed(self._policies, weights_sha256=self._weights)

    async def _chat(self, request: Request) -> Response:
        self._gate.caller(request, "complete")
        asked = parsed(PolicyRequest, await read_object(request, MOST_BYTES))
        policy = self._policy(asked.model)
        if self._taken >= self._queue:
            raise ApiError(
                503, "busy", f"{self._taken} requests wait or run: wait and ask again",
                retry_after_s=RETRY_S,
            )  # fmt: skip
        answer = await while_connected(request, self._answer(policy, asked))
        if asked.stream:
            return EventSourceResponse(_chunks(answer), sep="\n")
        return as_json(answer)

    def _policy(self, name: str) -> CountingPolicy:
        if name not in self._policies:
            raise ApiError(
                404, "model_not_found",
                f"no model is called {one_line(name, 60)!r}; there are: "
                f"{', '.join(self._policies)}",
            )  # fmt: skip
        return self._policies[name]

    async def _answer(self, policy: CountingPolicy, asked: PolicyRequest) -> dict[str, Any]:
        messages = tuple(_message(m.role, m.text) for m in asked.messages)
        most = asked.max_completion_tokens or asked.max_tokens
        if most is None:
            most = max(1, min(DEFAULT_TOKENS, policy.context - policy.count(messages)))
        sampling = SamplingParams(
            max_new_tokens=most,
            temperature=1.0 if asked.temperature is None else asked.temperature,
            top_p=asked.top_p or 1.0,
            top_k=max(0, asked.top_k or 0),
            seed=asked.seed,
        )
        started = time.monotonic()
        self._taken += 1
        try:
            found = await policy.generate(messages, sampling)
        except UsageError as e:
            raise ApiError(400, "context_length_exceeded", one_line(str(e), 300)) from e
        finally:
            self._taken -= 1
        self._seconds.labels(asked.model).observe(time.monotonic() - started)
        prompt, new = len(found.prompt_ids), len(found.response_ids)
        self._tokens.labels(asked.model, "prompt").inc(prompt)
        self._tokens.labels(asked.model, "answer").inc(new)
        said = {"role": "assistant", "content": found.text}
        return completion(asked.model, said, (prompt, new), found.finish_reason)


def _message(role: str, text: str) -> Message:
    return Message.model_validate(
        {"role": "system" if role == "developer" else role, "content": text}
    )


async def _chunks(answer: Mapping[str, Any]) -> AsyncIterator[ServerSentEvent]:
    choice = answer["choices"][0]
    for delta, finish in ((choice["message"], None), ({}, choice["finish_reason"])):
        yield ServerSentEvent(chunk_of(answer, delta, finish), sep="\n")
    yield ServerSentEvent("[DONE]", sep="\n")

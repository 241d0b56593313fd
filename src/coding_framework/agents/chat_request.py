"""A request of OpenAI's chat protocol, as our clients send it."""

from __future__ import annotations

from typing import Any

from coding_framework.types import Message, SamplingParams


def chat_request(
    model: str, messages: tuple[Message, ...], sampling: SamplingParams
) -> dict[str, Any]:
    """The body of a request for one answer. `top_k`, which vLLM takes, only where it is set."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [m.model_dump() for m in messages],
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    return body

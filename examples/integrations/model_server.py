"""A model in a folder behind OpenAI's chat protocol, to try the examples beside it on a CPU.

    uv run python examples/integrations/model_server.py --model SmolLM2-135M-Instruct --port 8000

It prints its address and serves until it is stopped. For real work take vLLM.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from aiohttp import web

from coding_framework.agents.models import resolve_model
from coding_framework.agents.policies import TransformersPolicy
from coding_framework.types import Message, SamplingParams


class ModelServer:
    """Requests that come at the same time are answered as one batch."""

    def __init__(self, name: str, policy: TransformersPolicy) -> None:
        self._name, self._policy = name, policy

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self._name}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        messages = tuple(
            Message(role=m["role"], content=_text(m["content"])) for m in asked["messages"]
        )
        most = asked.get("max_completion_tokens") or asked.get("max_tokens") or 512
        temperature = asked.get("temperature")
        sampling = SamplingParams(
            max_new_tokens=most, temperature=0.7 if temperature is None else temperature
        )
        said = await self._policy.generate(messages, sampling)
        usage = {
            "prompt_tokens": len(said.prompt_ids),
            "completion_tokens": len(said.response_ids),
            "total_tokens": len(said.prompt_ids) + len(said.response_ids),
        }
        message = {"role": "assistant", "content": said.text}
        choice: dict[str, Any] = {"index": 0, "finish_reason": said.finish_reason}
        if not asked.get("stream"):
            choice["message"] = message
            return web.json_response(self._reply("chat.completion", choice, usage))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choice["delta"] = message
        chunk = json.dumps(self._reply("chat.completion.chunk", choice, usage))
        await response.write(f"data: {chunk}\n\ndata: [DONE]\n\n".encode())
        return response

    def _reply(self, kind: str, choice: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
        now = time.time()
        return {
            "id": f"chat-{now}", "object": kind, "created": int(now), "model": self._name,
            "choices": [choice], "usage": usage,
        }  # fmt: skip


def _text(content: Any) -> str:
    """Of a message whose content is a text, or a list of parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def _told(app: web.Application, name: str, port: int) -> web.Application:
    print(f"{name} is served on http://127.0.0.1:{port}/v1", flush=True)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="SmolLM2-135M-Instruct", help="a folder or a hub's name")
    parser.add_argument("--name", default="model", help="the name that clients ask for")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, help="of the CPU; without it what is fastest")
    args = parser.parse_args()
    policy = TransformersPolicy(resolve_model(args.model), threads=args.threads, max_context=8192)
    app = _told(ModelServer(args.name, policy).app(), args.name, args.port)
    web.run_app(app, host="127.0.0.1", port=args.port, print=None)
    policy.close()


if __name__ == "__main__":
    main()

"""A model server that always gives the same answer, to try `cuda-rl serve` without a model.

    python examples/deployment/fake_upstream.py --port 8000 --kernel examples/relu.cu

It speaks OpenAI's chat protocol, without streams. `--delay-ms` is how long it thinks. It prints its
address and serves until it is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from pathlib import Path

from aiohttp import web


class FakeUpstream:
    """The server; `answers` go round."""

    def __init__(self, models: list[str], answers: list[str], delay_s: float) -> None:
        self.models, self.answers, self.delay_s = models, answers, delay_s
        self.asked = self.open = 0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_post("/v1/load_lora_adapter", self.load)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"asked": self.asked, "open": self.open})

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": m} for m in self.models]})

    async def load(self, request: web.Request) -> web.Response:
        """As vLLM: an adapter once, from a folder."""
        asked = await request.json()
        if asked["lora_name"] in self.models:
            return web.json_response({"error": {"message": "loaded already"}}, status=400)
        if not Path(asked["lora_path"]).is_dir():
            return web.json_response({"error": {"message": "no adapter there"}}, status=404)
        self.models.append(asked["lora_name"])
        return web.Response(text="loaded")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["model"] not in self.models:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        answer = self.answers[self.asked % len(self.answers)]
        self.asked += 1
        self.open += 1
        try:
            await asyncio.sleep(self.delay_s)
            message = {"role": "assistant", "content": answer}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response(reply(body["model"], "chat.completion", choice))
        finally:
            self.open -= 1


def reply(model: str, kind: str, choice: dict[str, object]) -> dict[str, object]:
    return {
        "id": "fake", "object": kind, "created": int(time.time()), "model": model,
        "choices": [choice],
    }  # fmt: skip


async def serve(upstream: FakeUpstream, port: int) -> None:
    runner = web.AppRunner(upstream.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, bound = runner.addresses[0][:2]
    print(f"http://{host}:{bound}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--model", action="append", help="a name it answers to (default: fake)")
    parser.add_argument("--kernel", action="append", type=Path, help="a kernel that it answers")
    parser.add_argument("--delay-ms", type=float, default=20.0)
    args = parser.parse_args()
    kernels = [f"```cuda\n{path.read_text()}\n```" for path in args.kernel or []]
    upstream = FakeUpstream(args.model or ["fake"], kernels or ["Hello."], args.delay_ms / 1000)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(upstream, args.port))


if __name__ == "__main__":
    main()

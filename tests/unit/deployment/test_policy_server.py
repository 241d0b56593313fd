"""Models of this process by OpenAI's protocol, asked by OpenAI's own client and by our backends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fastapi.testclient import TestClient

from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.cli import main
from coding_framework.deployment.backends import Backend, BackendPolicy, Used
from coding_framework.deployment.http import Gate
from coding_framework.deployment.policy_server import PolicyServer
from coding_framework.deployment.serve_config import BackendConfig
from coding_framework.deployment.tokens import TokenFile
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import PolicyAwayError, UsageError
from coding_framework.types import Generation, Message, SamplingParams
from support.serving import app_served

pytestmark = pytest.mark.unit
ASK: dict[str, Any] = {"model": "base", "messages": [{"role": "user", "content": "hello"}]}


class Counted(ScriptedPolicy):
    """A script whose tokens are bytes, in a context of 100."""

    context = 100

    def __init__(self, said: str) -> None:
        super().__init__([said])
        self.sampled: list[SamplingParams] = []

    def count(self, messages: tuple[Message, ...]) -> int:
        return sum(len(m.content) for m in messages)

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        self.sampled.append(sampling)
        if self.count(messages) + sampling.max_new_tokens > self.context:
            raise UsageError("the prompt is too long: shorten it")
        return await super().generate(messages, sampling)


@pytest.fixture
def policies() -> dict[str, Counted]:
    return {"base": Counted("I am the base"), "lora": Counted("I am the adapter")}


@pytest.fixture
def url(policies: dict[str, Counted]) -> Iterator[str]:
    server = PolicyServer(policies, Gate(None), queue=2, weights={"base": "aa"})
    with app_served(server.app) as url:
        yield url


def test_openais_client_asks_each_model_by_its_name(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    assert [m.id for m in client.models.list()] == ["base", "lora"]
    done = client.chat.completions.create(**{**ASK, "model": "lora"})
    chunks = list(client.chat.completions.create(**ASK, stream=True))
    assert (done.model, done.choices[0].message.content) == ("lora", "I am the adapter")
    assert done.usage is not None
    assert done.usage.completion_tokens == len("I am the adapter")
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "I am the base"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_what_is_asked_of_sampling_reaches_the_model(url: str, policies: Any) -> None:
    asked = {"temperature": 0, "top_p": 0.9, "top_k": -1, "seed": 7, "max_tokens": 12}
    httpx.post(f"{url}/v1/chat/completions", json={**ASK, **asked})
    httpx.post(f"{url}/v1/chat/completions", json=ASK)
    told, usual = policies["base"].sampled
    assert told == SamplingParams(max_new_tokens=12, temperature=0, top_p=0.9, top_k=0, seed=7)
    assert usual.max_new_tokens == 100 - len("hello")


@pytest.mark.parametrize(
    ("change", "status", "kind"),
    [
        ({"model": "other"}, 404, "model_not_found"),
        ({"max_tokens": 99}, 400, "context_length_exceeded"),
        ({"messages": []}, 400, "bad_request"),
        ({"temperature": -1}, 400, "bad_request"),
    ],
)
def test_a_wrong_request_is_a_sentence(
    url: str, change: dict[str, Any], status: int, kind: str
) -> None:
    refused = httpx.post(f"{url}/v1/chat/completions", json={**ASK, **change})
    assert (refused.status_code, refused.json()["error"]["type"]) == (status, kind)


async def test_who_comes_to_a_full_queue_is_told_when_to_come_again() -> None:
    go = asyncio.Event()

    class Slow(Counted):
        async def generate(self, messages: Any, sampling: Any) -> Generation:
            await go.wait()
            return Generation(text="done")

    server = PolicyServer({"base": Slow("x")}, Gate(None), queue=1)
    transport = httpx.ASGITransport(server.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        first = asyncio.create_task(client.post("/v1/chat/completions", json=ASK))
        while server._taken == 0:
            await asyncio.sleep(0)
        refused = await client.post("/v1/chat/completions", json=ASK)
        go.set()
        assert (await first).status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")


async def test_our_backend_asks_it_and_notices_other_weights(url: str) -> None:
    version = VersionSpec(model="base", weights_sha256="aa")
    backend = Backend(BackendConfig(name="b", url=url), lambda: [version])
    await backend.check()
    said = await BackendPolicy(backend, "base", Used()).generate(
        (Message(role="user", content="hello"),), SamplingParams(max_new_tokens=8)
    )
    assert said.text == "I am the base"
    await backend.close()
    other = version.model_copy(update={"weights_sha256": "bb"})
    backend = Backend(BackendConfig(name="b", url=url), lambda: [other])
    await backend.check()
    with pytest.raises(PolicyAwayError, match="has no model base"):
        await backend.complete(ASK, Used())
    await backend.close()


def test_a_token_is_needed_where_there_is_one(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, secret = tokens.create(["complete"])
    server = PolicyServer({"base": Counted("x")}, Gate(tokens), queue=2)
    client = TestClient(server.app, base_url="http://127.0.0.1")
    assert client.post("/v1/chat/completions", json=ASK).status_code == 401
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.post("/v1/chat/completions", json=ASK, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--adapter", "x"], "NAME=FOLDER"),
        (["--adapter", "x=/nowhere"], "adapter_config.json"),
        (["--host", "0.0.0.0"], "needs tokens"),
        (["--port", "70000"], "65535"),
    ],
)
def test_a_wrong_flag_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["serve-policy", str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_only_a_count_of_tokens_is_added() -> None:
    used = Used()
    for told in ({"prompt_tokens": "12", "completion_tokens": -5}, {"prompt_tokens": True}, "x"):
        used.add(told)
    assert used == Used(0, 0)
    used.add({"prompt_tokens": 3, "completion_tokens": 4})
    assert used == Used(3, 4)

"""Policies answer chats; the agents turn a state into an answer with its kernel."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.models import PACKAGED_MODELS, resolve_model
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.policies import (
    OpenAIPolicy,
    ScriptedPolicy,
    TransformersPolicy,
    prompt_limit,
)
from coding_framework.agents.prompts import PromptBudget
from coding_framework.data.registry import find_task
from coding_framework.errors import PolicyAwayError, PolicyError, UsageError
from coding_framework.store.folder import RunFolder
from coding_framework.types import CUDAConversationState, Message, Policy, Role, SamplingParams
from support.tiny_lm import make_tiny_lm

CHAT = (Message(role="system", content="Be brief."), Message(role="user", content="kernel?"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_lm(tmp_path_factory.mktemp("tiny-lm"))


@pytest.fixture
def policy(folder: Path) -> Iterator[TransformersPolicy]:
    made = TransformersPolicy(folder, dtype="float32", max_batch=8)
    yield made
    made.close()


async def test_a_local_model_answers_with_tokens_and_log_probs(policy: TransformersPolicy) -> None:
    answers = await asyncio.gather(
        *(policy.generate(CHAT, SamplingParams(max_new_tokens=9, seed=i)) for i in range(5))
    )
    for answer in answers:
        assert 1 <= len(answer.response_ids) == len(answer.logprobs) <= 9
        assert all(p <= 0 for p in answer.logprobs)
        prompt = policy.tokenizer.decode(answer.prompt_ids)
        assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
        assert "<|im_end|>" not in answer.text
    assert len({a.response_ids for a in answers}) > 1
    assert policy.count(CHAT) == len(answers[0].prompt_ids)


def test_a_models_attention_is_not_planned_anew_for_each_length(
    policy: TransformersPolicy,
) -> None:
    import torch

    assert not torch.backends.cuda.cudnn_sdp_enabled()


async def test_greedy_answers_repeat(policy: TransformersPolicy) -> None:
    greedy = SamplingParams(max_new_tokens=6, temperature=0)
    first, second = await policy.generate(CHAT, greedy), await policy.generate(CHAT, greedy)
    assert first == second


async def test_the_agents_answer_through_any_policy(policy: TransformersPolicy) -> None:
    state = CUDAConversationState(conversation_id="c", task=find_task("relu"))
    for model in (policy, ScriptedPolicy(["```cuda\n__global__ void forward() {}\n```"])):
        answered: Policy = model
        for agent in (GeneratorAgent(answered, SamplingParams(max_new_tokens=5)),
                      OptimizerAgent(answered, SamplingParams(max_new_tokens=5))):  # fmt: skip
            answer = await agent.answer(state)
            assert answer.messages[-1].content.startswith("Write a CUDA kernel")
            assert answer.extraction.note
    assert answer.extraction.code == "__global__ void forward() {}\n"
    assert (GeneratorAgent.role, OptimizerAgent.role) == (Role.GENERATOR, Role.OPTIMIZER)


async def test_a_prompt_over_budget_is_an_error_of_use(policy: TransformersPolicy) -> None:
    state = CUDAConversationState(conversation_id="c", task=find_task("relu"))
    agent = GeneratorAgent(policy, budget=PromptBudget(20, policy.count))
    with pytest.raises(UsageError, match="raise the prompt length"):
        await agent.answer(state)


async def test_a_script_goes_through_its_answers_and_repeats_the_last() -> None:
    policy = ScriptedPolicy(["a", "b"])
    texts = [(await policy.generate(CHAT, SamplingParams())).text for _ in range(4)]
    assert texts == ["a", "b", "b", "b"]
    by_function = ScriptedPolicy(lambda messages: messages[-1].content.upper())
    assert (await by_function.generate(CHAT, SamplingParams())).text == "KERNEL?"
    with pytest.raises(PolicyError, match="no answer"):
        await ScriptedPolicy([]).generate(CHAT, SamplingParams())


# --- a server -------------------------------------------------------------------------------------


class _Server(BaseHTTPRequestHandler):
    replies: list[int]
    bodies: list[dict[str, Any]]
    odd: list[bytes]
    """Sent instead, once each."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).bodies.append(body)
        status = type(self).replies.pop(0) if type(self).replies else 200
        said = {"choices": [{"message": {"content": "hello"}, "finish_reason": "length"}]}
        data = json.dumps(said if status == 200 else {"error": "no"}).encode()
        if type(self).odd:
            data = type(self).odd.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def server() -> Iterator[tuple[str, type[_Server]]]:
    handler = type("Handler", (_Server,), {"replies": [], "bodies": [], "odd": []})
    http = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/v1", handler
    http.shutdown()
    thread.join()


async def test_a_busy_server_is_asked_again(server: tuple[str, type[_Server]]) -> None:
    url, handler = server
    handler.replies = [503]
    policy = OpenAIPolicy(url, "m")
    answer = await policy.generate(CHAT, SamplingParams(max_new_tokens=7, seed=3))
    assert (answer.text, answer.finish_reason) == ("hello", "length")
    assert len(handler.bodies) == 2
    assert handler.bodies[0]["max_tokens"] == 7
    assert handler.bodies[0]["seed"] == 3


async def test_a_server_is_asked_by_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by as many as there are cores: a server of a GPU answers hundreds in one batch."""
    count = 64
    together = threading.Barrier(count)
    policy = OpenAIPolicy("http://127.0.0.1:9/v1", "m")

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        together.wait(30)  # breaks where fewer are there
        return {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}

    monkeypatch.setattr(policy, "_post", answer)
    asked = (policy.generate(CHAT, SamplingParams()) for _ in range(count))
    assert [a.text for a in await asyncio.gather(*asked)] == ["hi"] * count


async def test_a_refusal_is_not_repeated(server: tuple[str, type[_Server]]) -> None:
    url, handler = server
    handler.replies = [400]
    with pytest.raises(PolicyError, match="refused the request"):
        await OpenAIPolicy(url, "m").generate(CHAT, SamplingParams())
    assert len(handler.bodies) == 1


@pytest.mark.parametrize(
    "odd", [b'{"choices": []}', b'{"choices": [{"mess', b"[]", b'{"choices": [{"message": null}]}']
)
async def test_an_answer_that_is_none_is_asked_for_again(
    server: tuple[str, type[_Server]], odd: bytes
) -> None:
    url, handler = server
    handler.odd = [odd]
    policy = OpenAIPolicy(url, "m", attempts=1)
    with pytest.raises(PolicyAwayError, match="did not answer"):
        await policy.generate(CHAT, SamplingParams())
    assert (await policy.generate(CHAT, SamplingParams())).text == "hello"


async def test_an_answer_of_another_model_is_refused(server: tuple[str, type[_Server]]) -> None:
    url, handler = server
    choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
    handler.odd = [json.dumps({"model": n, "choices": [choice]}).encode() for n in ("x", "big-m")]
    policy = OpenAIPolicy(url, "m")
    with pytest.raises(PolicyError, match="answered as 'x' when 'm' was asked"):
        await policy.generate(CHAT, SamplingParams())
    assert (await policy.generate(CHAT, SamplingParams())).text == "hi"


async def test_an_answers_tokens_are_those_that_the_server_counted(
    server: tuple[str, type[_Server]],
) -> None:
    url, handler = server
    choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
    odd: list[Any] = [None, "7", [7], *({"completion_tokens": n} for n in ("many", True, -1))]
    usages = [{"completion_tokens": 7}, *odd]
    handler.odd = [json.dumps({"choices": [choice], "usage": u}).encode() for u in usages]
    policy = OpenAIPolicy(url, "m")
    counted = [(await policy.generate(CHAT, SamplingParams())).tokens for _ in usages]
    assert counted == [7] + [0] * len(odd)


async def test_a_server_that_is_away_is_named() -> None:
    policy = OpenAIPolicy("http://127.0.0.1:9/v1", "m", attempts=1)
    with pytest.raises(PolicyError, match="see that the server runs"):
        await policy.generate(CHAT, SamplingParams())


# --- weights --------------------------------------------------------------------------------------


def test_a_local_folder_is_taken_as_it_is(folder: Path) -> None:
    assert resolve_model(folder) == folder.resolve()


def test_an_unknown_model_is_refused_with_the_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="HuggingFaceTB/SmolLM2-135M-Instruct, Qwen/Qwen2"):
        resolve_model("someone/no-such-model")
    with pytest.raises(UsageError, match="no local folder"):
        resolve_model("no-such-model")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"it has no config\.json\) nor a training run"):
        resolve_model(tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    with pytest.raises(UsageError, match=r"an adapter of some/base: .* as --adapter"):
        resolve_model(tmp_path)


def test_a_training_run_is_the_model_that_it_ended_with(tmp_path: Path) -> None:
    for model in (RunFolder(tmp_path).sft.model, RunFolder(tmp_path).rl.final_model):
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        assert resolve_model(tmp_path) == model


def test_a_folder_that_is_no_model_is_refused_when_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="no model can be loaded"):
        TransformersPolicy(tmp_path)


def test_every_packaged_model_names_a_whole_checksum() -> None:
    for model in PACKAGED_MODELS:
        assert len(bytes.fromhex(model.sha256)) == 32
        assert all("==" in package for package in model.packages)


@pytest.mark.parametrize(
    ("context", "most"), [(None, 4096), (8192, 4096), (4096, 2048), (2048, 4096), (1000, 4096)]
)
def test_a_prompt_is_shortened_to_what_an_answer_leaves_of_a_models_context(
    context: int | None, most: int
) -> None:
    policy = SimpleNamespace() if context is None else SimpleNamespace(context=context)
    assert prompt_limit(cast(Policy, policy), 4096, 2048) == most


def test_an_agent_without_a_policy_says_what_to_give() -> None:
    with pytest.raises(
        UsageError, match=r"GeneratorAgent needs a model.*OpenAIPolicy\(url, model\)"
    ):
        GeneratorAgent()

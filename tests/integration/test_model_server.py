"""`ModelServer` over HTTP: what callers get, with a model and a judge that follow a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from coding_framework.deployment.ab_testing import Assignment
from coding_framework.deployment.live_traffic import Traffic
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.tokens import TokenFile
from coding_framework.registry.receipts import check_receipt
from support.serving import RELU, ScriptedJudge, Upstream, answer, model_server
from support.time_bar import crowding
from support.waiting import until

pytestmark = pytest.mark.integration

ASK: dict[str, Any] = {"model": "kernels", "messages": [{"role": "user", "content": "fast please"}]}


@pytest.fixture(params=[False, True], ids=["whole", "byte_by_byte"], autouse=True)
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model server may write its answers in any pieces: each test holds for both ends."""
    monkeypatch.setattr(Upstream, "byte_by_byte", request.param)


def with_task(**options: Any) -> dict[str, Any]:
    return {**ASK, "cuda_rl": {"task": "relu", **options}}


def wait_ready(url: str) -> None:
    until(lambda: httpx.get(f"{url}/readyz").status_code == 200)


def post(url: str, body: Any, **settings: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, **settings)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server whose model says "Hello."."""
    folder = tmp_path_factory.mktemp("plain")
    with model_server(folder, Upstream(lambda body: "Hello.")) as (url, _):
        wait_ready(url)
        yield url


def test_openais_client_gets_the_fastest_verified_kernel_with_its_receipt(tmp_path: Path) -> None:
    answers = iter([answer("// ms=2.0 slow\n__global__ forward"), answer("// ms=0.5\n__global__")])
    upstream = Upstream(lambda body: next(answers))
    with model_server(tmp_path, upstream) as (url, _):
        wait_ready(url)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        done = client.chat.completions.create(
            model="kernels",
            messages=[{"role": "user", "content": "relu"}],
            extra_body={"cuda_rl": {"task": "relu", "n": 2, "turns": 1}},
        )
        assert [m.id for m in client.models.list()] == ["kernels"]
    choice = done.model_dump()["choices"][0]
    assert "ms=0.5" in choice["message"]["content"]
    said = choice["cuda_rl"]
    assert (said["status"], said["speedup"], said["basis"]) == ("verified", 8.0, "measured")
    assert len(said["candidates"]) == 2
    assert check_receipt(said["receipt"], tmp_path / "keys").kernel == said["kernel_id"]


def test_an_answer_says_in_headers_what_it_is(tmp_path: Path) -> None:
    with model_server(tmp_path, Upstream(lambda body: answer(RELU))) as (url, _):
        wait_ready(url)
        headers = post(url, with_task()).headers
    assert headers["x-cudarl-verdict"] == "verified"
    assert headers["x-cudarl-kernel"].startswith("sha256:")
    assert "x-cudarl-request" in headers


def test_nothing_verified_is_422_with_every_candidate(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: answer("__global__ forward // status=rejected "))
    with model_server(tmp_path, upstream) as (url, _):
        wait_ready(url)
        refused = post(url, with_task())
        shown = post(url, with_task(require_verified=False))
    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (422, "no_verified_kernel")
    assert "retry-after" not in refused.headers
    assert [c["status"] for c in error["candidates"]] == ["rejected", "rejected"]
    choice = shown.json()["choices"][0]
    assert (shown.status_code, choice["cuda_rl"]["status"]) == (200, "unverified")
    assert "receipt" not in choice["cuda_rl"]
    assert "not verified" in choice["message"]["content"]


def test_a_second_turn_sees_the_verdict_on_the_first(tmp_path: Path) -> None:
    def said(body: dict[str, Any]) -> str:
        first = len(upstream.bodies) == 1
        return answer("__global__ forward // status=wrong_output " if first else RELU)

    upstream = Upstream(said)
    with model_server(tmp_path, upstream) as (url, _):
        wait_ready(url)
        done = post(url, with_task(n=1, turns=2))
    assert done.json()["choices"][0]["cuda_rl"]["turns"] == 2
    assert "as the script says" in json.dumps(upstream.bodies[1])


def test_a_chat_without_a_task_is_passed_on_and_said_to_be_unjudged(plain: str) -> None:
    done = post(plain, ASK).json()
    asked = post(plain, {**ASK, "cuda_rl": {"require_verified": True}})
    assert done["model"] == "kernels"
    assert done["choices"][0]["message"]["content"] == "Hello."
    assert done["choices"][0]["cuda_rl"] == {"status": "not_judged"}
    assert (asked.status_code, asked.json()["error"]["type"]) == (400, "no_task")


def test_openais_client_reads_both_kinds_of_streams(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: answer(RELU) if "relu" in str(body) else "one two three")
    with model_server(tmp_path, upstream) as (url, _):
        wait_ready(url)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        plain = client.chat.completions.create(**ASK, stream=True)
        text = [c.choices[0].delta.content for c in plain]
        judged = client.chat.completions.create(
            **ASK, stream=True, extra_body={"cuda_rl": {"task": "relu"}}
        )
        chunks = list(judged)
    assert text == ["one two three", None]
    assert "ms=2.0" in "".join(c.choices[0].delta.content or "" for c in chunks)
    assert chunks[-1].model_dump()["choices"][0]["cuda_rl"]["status"] == "verified"


def test_a_stream_that_finds_nothing_ends_with_the_error(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: answer("__global__ forward // status=wrong_output "))
    with model_server(tmp_path, upstream) as (url, _):
        wait_ready(url)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        stream = client.chat.completions.create(
            **ASK, stream=True, extra_body={"cuda_rl": {"task": "relu"}}
        )
        with pytest.raises(openai.APIError, match="none of 2 candidates"):
            list(stream)


def test_a_client_that_goes_away_ends_its_verdicts_and_its_generation(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    slow = Upstream(lambda body: answer(RELU))
    with model_server(tmp_path, slow, judge) as (url, server):
        wait_ready(url)
        judge.seconds = 3600.0
        client = HTTPConnection(url.removeprefix("http://"))
        client.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(with_task()),
            {"content-type": "application/json"},
        )
        until(lambda: server.judge.running == 2)
        client.close()
        until(lambda: judge.cancelled == 2)
        slow.delay_s = 3600.0
        with httpx.stream(
            "POST", f"{url}/v1/chat/completions", json={**with_task(), "stream": True}, timeout=60
        ):
            until(lambda: slow.open > 0)
        until(lambda: slow.open == 0)
        until(lambda: server.judge.running == 0)
        metrics = httpx.get(f"{url}/metrics").text
    assert 'outcome="cancelled",variant="incumbent"} 2.0' in metrics


def test_progress_keeps_a_waiting_stream_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coding_framework.deployment.server.PROGRESS_S", 0.05)
    judge = ScriptedJudge()
    with model_server(tmp_path, Upstream(lambda body: answer(RELU)), judge) as (url, _):
        wait_ready(url)
        judge.seconds = 1.0
        body = {**with_task(), "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as stream:
            lines = list(stream.iter_lines())
    assert ": judged 0/2, none verified" in lines
    assert lines[-1] == "" or lines[-1] == "data: [DONE]"


def test_a_full_judge_is_429_with_the_wait(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    upstream = Upstream(lambda body: answer(RELU))
    config = {"judge": {"workers": 1, "queue": 1}}
    with model_server(tmp_path, upstream, judge, **config) as (url, server):
        wait_ready(url)
        judge.seconds = 3600.0
        body = {**with_task(n=3), "stream": True}  # one is judged, one compiled meanwhile
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60):
            until(lambda: server.judge.waiting == 1)
            busy = post(url, with_task())
    assert (busy.status_code, busy.json()["error"]["type"]) == (429, "judge_busy")
    assert int(busy.headers["retry-after"]) >= 1


def test_open_requests_of_a_caller_are_bounded_streams_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coding_framework.deployment.http.MOST_OPEN", 1)
    upstream = Upstream(lambda body: "Hello.")
    with model_server(tmp_path, upstream) as (url, server):
        wait_ready(url)
        upstream.delay_s = 60.0
        with httpx.stream(
            "POST", f"{url}/v1/chat/completions", json={**ASK, "stream": True}, timeout=60
        ):
            until(lambda: upstream.open == 1)
            more = post(url, ASK)
        assert (more.status_code, more.json()["error"]["type"]) == (429, "too_many_open")
        assert len(upstream.bodies) == 1
        until(lambda: not server.gate._open.total())
        upstream.delay_s = 0.0
        assert post(url, ASK).status_code == 200
        until(lambda: not server.gate._open.total())


def test_a_stream_of_an_empty_answer_has_a_role(tmp_path: Path) -> None:
    with model_server(tmp_path, Upstream(lambda body: "")) as (url, _):
        wait_ready(url)
        lines = post(url, {**ASK, "stream": True}).text.splitlines()
    first = json.loads(lines[0].removeprefix("data: "))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_the_budget_ends_a_search_with_what_is_verified_by_then(tmp_path: Path) -> None:
    answers = iter([answer("__global__ forward // ms=3.0 "), answer("__global__ forward hang")])
    judge = ScriptedJudge()
    upstream = Upstream(lambda body: next(answers))
    with model_server(tmp_path, upstream, judge) as (url, server):
        wait_ready(url)

        async def hang_on_hang(task: Any, code: str) -> Any:
            if "hang" in code:
                await asyncio.sleep(3600.0)
            return await judge(task, code)

        server.judge._judge = hang_on_hang
        done = post(url, with_task(budget_s=6.0 * crowding())).json()
    told = done["choices"][0]["cuda_rl"]
    assert told["status"] == "verified"
    assert sorted(c["status"] for c in told["candidates"]) == ["correct", "unfinished"]


def test_a_fault_of_the_judge_is_never_a_wrong_kernel(tmp_path: Path) -> None:
    from coding_framework.errors import DeviceError

    upstream = Upstream(lambda body: answer(RELU))
    with model_server(tmp_path, upstream) as (url, server):
        wait_ready(url)

        async def fail(task: Any, code: str) -> Any:
            raise DeviceError("the device died")

        server.judge._judge = fail
        failed = post(url, with_task())
    assert (failed.status_code, failed.json()["error"]["type"]) == (503, "unavailable")
    assert "the device died" in failed.json()["error"]["message"]


@pytest.mark.parametrize(
    ("change", "status", "kind"),
    [
        ({"model": "nobody"}, 404, "model_not_found"),
        ({"messages": []}, 400, "bad_request"),
        ({"messages": [{"role": "user", "content": "x" * (1 << 20)}]}, 413, "too_large"),
        ({"n": 4}, 400, "bad_request"),
        ({"cuda_rl": {"task": "relu", "n": 33}}, 400, "bad_request"),
        ({"cuda_rl": {"candidates": 3}}, 400, "bad_request"),
        ({"cuda_rl": {"task": "relu", "target": "NVIDIA B200"}}, 400, "wrong_target"),
        ({"cuda_rl": {"task": "relux"}}, 400, "unknown_task"),
        ({"cuda_rl": {"task": "../../etc/passwd"}}, 400, "unknown_task"),
        ({"cuda_rl": {"task": "examples/scaled_tanh.py"}}, 400, "unknown_task"),
        ({"cuda_rl": {"task": {"name": "x"}}}, 403, "reference_not_trusted"),
        (
            {"messages": [{"role": "user", "content": (
                "```python\nclass Model:\n  pass\ndef get_inputs():\n  return []\n```"
            )}]},
            403, "reference_not_trusted",
        ),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_done_is_a_sentence(
    plain: str, change: dict[str, Any], status: int, kind: str
) -> None:
    refused = post(plain, {**ASK, **change})
    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (status, kind)
    assert error["message"]


def test_a_request_that_fails_before_its_first_byte_is_tried_once_more(tmp_path: Path) -> None:
    said: list[str | int] = [503, "fine"]
    with model_server(tmp_path, Upstream(lambda body: said.pop(0))) as (url, _):
        assert post(url, ASK).status_code == 200
    assert said == []


def test_no_model_server_is_503_and_a_refusal_of_the_model_is_400(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: 400)
    with model_server(tmp_path, upstream) as (url, _):
        refused = post(url, ASK)
        upstream.said = lambda body: 500
        failed = post(url, ASK)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "refused_by_model")
    assert failed.status_code == 503
    assert "retry-after" in failed.headers


def test_an_answer_of_another_model_is_no_answer(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: "I am the base model")
    upstream.answers_as = "base"
    with model_server(tmp_path, upstream) as (url, _):
        answered = post(url, ASK)
    assert answered.status_code == 503
    assert "another model" in answered.json()["error"]["message"]


def test_a_stream_that_breaks_off_ends_with_an_error_and_not_as_whole(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: "one two")
    upstream.breaks_off = True
    with model_server(tmp_path, upstream) as (url, _):
        text = post(url, {**ASK, "stream": True}).text
    assert '"type":"unavailable"' in text


def test_an_adapter_is_asked_for_and_again_after_it_was_lost(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: "x")
    config = {"versions": {"v1": {"model": "lora", "adapter": "/adapters/lora"}}}
    with model_server(tmp_path, upstream, **config) as (url, server):
        backend = server.backends.of(server.config.versions["v1"])
        assert upstream.loaded == []  # static: the operator loads it
        object.__setattr__(
            backend, "config", backend.config.model_copy(update={"adapters": "dynamic"})
        )
        wait_ready(url)
        assert upstream.loaded == ["lora"]
        upstream.models.remove("lora")
        until(lambda: upstream.loaded == ["lora", "lora"])


def test_an_adapter_may_take_longer_than_a_health_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coding_framework.deployment.backends.CHECK_TIMEOUT_S", 0.3)
    upstream = Upstream(lambda body: "x")
    upstream.load_s = 0.6
    config = {"versions": {"v1": {"model": "lora", "adapter": "/adapters/lora"}}}
    with model_server(tmp_path, upstream, adapters="dynamic", **config) as (url, server):
        wait_ready(url)
        assert upstream.loaded == ["lora"]
        assert server.backends.of(server.config.versions["v1"]).up


def test_the_models_tokens_are_counted(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: answer(RELU))
    upstream.usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    with model_server(tmp_path, upstream) as (url, _):
        wait_ready(url)
        assert post(url, with_task(n=2, turns=1)).json()["usage"]["total_tokens"] == 50


class Enrolled(Traffic):
    """Everybody takes part, as candidate; what is written is kept."""

    def __init__(self) -> None:
        super().__init__({"kernels": "v1"})
        self.written: list[tuple[str, Any]] = []

    def assign(self, alias: str, unit: bytes) -> Assignment:
        return Assignment("v1", "experiment", "candidate", True, 1)

    def without_rollout(self, alias: str) -> Assignment:
        return Assignment("v1", None, "incumbent", False, 1)

    def expose(
        self, alias: str, unit: bytes, request: str, assignment: Assignment
    ) -> Future[Assignment]:
        self.written.append(("exposed", request))
        return super().expose(alias, unit, request, assignment)

    def finish(self, request: str, outcome: Outcome) -> Future[bool]:
        self.written.append((outcome.status, request))
        return super().finish(request, outcome)


def test_an_exposure_is_written_before_and_one_outcome_after_each_answer(tmp_path: Path) -> None:
    traffic = Enrolled()
    upstream = Upstream(lambda body: answer(RELU))
    with model_server(tmp_path, upstream, traffic=traffic) as (url, _):
        wait_ready(url)
        for body in (with_task(), ASK, {**ASK, "stream": True}):
            assert post(url, body).status_code == 200
        upstream.said = lambda body: 500
        assert post(url, ASK).status_code == 503
        post(url, {**ASK, "stream": True})
    statuses = [status for status, _ in traffic.written]
    assert statuses == [
        "exposed", "verified", "exposed", "not_judged", "exposed", "not_judged",
        "exposed", "error", "exposed", "error",
    ]  # fmt: skip
    requests = [request for _, request in traffic.written]
    assert requests[::2] == requests[1::2]


def test_who_may_not_read_experiments_is_not_told_the_version(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, reader = tokens.create(["complete", "experiments:read"])
    _, other = tokens.create(["complete"])
    with model_server(tmp_path, Upstream(lambda body: answer(RELU))) as (url, _):
        wait_ready(url)
        told = [
            post(url, with_task(), headers={"Authorization": f"Bearer {secret}"})
            .json()["choices"][0]["cuda_rl"]
            .get("version")
            for secret in (reader, other)
        ]
    assert told == ["v1", None]

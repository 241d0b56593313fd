"""`cuda-rl serve`, `kernel` and `token` as their users run them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import pytest
import yaml

from coding_framework.cli import main
from coding_framework.deployment.serve_config import read_config
from coding_framework.errors import UsageError
from coding_framework.registry.receipts import new_key
from support.serving import Upstream, answer, upstream_running

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "deployment"
PATIENCE_S = 300.0


def serve_yaml(folder: Path, url: str) -> Path:
    config = yaml.safe_load((EXAMPLES / "serve.yaml").read_text())
    config["listen"]["port"] = 0
    config["backends"][0]["url"] = url
    config["judge"]["workers"] = 1
    config |= {"tokens": str(folder / "tokens"), "keys": str(folder / "keys")}
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_openais_client_gets_a_verified_relu_whose_receipt_the_command_confirms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream = Upstream(lambda body: answer((ROOT / "examples" / "relu.cu").read_text()))
    upstream.models = ["fake"]
    new_key(tmp_path / "keys", "judge")
    cuda_rl = str(Path(sys.executable).with_name("cuda-rl"))
    with upstream_running(upstream) as backend:
        command = [cuda_rl, "serve", "--config", str(serve_yaml(tmp_path, backend))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            ends = time.monotonic() + PATIENCE_S
            while httpx.get(f"{url}/readyz", timeout=60).status_code != 200:
                assert time.monotonic() < ends
                time.sleep(0.5)
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=PATIENCE_S)
            done = client.chat.completions.create(
                model="cuda-kernels",
                messages=[{"role": "user", "content": "relu"}],
                extra_body={"cuda_rl": {"task": "relu", "n": 1, "turns": 1, "budget_s": 300}},
            )
            server.send_signal(signal.SIGINT)
            assert server.wait(PATIENCE_S) == 130
    (tmp_path / "answer.json").write_text(done.model_dump_json())
    arguments = [
        "kernel",
        "verify",
        str(tmp_path / "answer.json"),
        "--keys",
        str(tmp_path / "keys"),
    ]
    assert main([*arguments, "--kernel", str(ROOT / "examples" / "relu.cu")]) == 0
    assert "correct for relu, judged on emulator" in capsys.readouterr().out
    assert main([*arguments, "--kernel", str(ROOT / "examples" / "relu_wrong.cu")]) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_is_served_on_a_cpu_with_an_adapter_by_name(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from support.tiny_lm import make_tiny_lm

    model = make_tiny_lm(tmp_path / "tiny")
    lora = LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(model), lora).save_pretrained(
        tmp_path / "lora"
    )
    cuda_rl = str(Path(sys.executable).with_name("cuda-rl"))
    command = [
        cuda_rl, "serve-policy", str(model), "--port", "0", "--device", "cpu", "--dtype", "float32",
        "--adapter", f"tuned={tmp_path / 'lora'}", "--tokens", str(tmp_path / "tokens"),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=PATIENCE_S)
        listed = client.models.list().data
        assert [m.id for m in listed] == ["tiny", "tuned"]
        assert len({m.model_dump()["weights_sha256"] for m in listed}) == 2
        said = [
            client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "kernel"}], max_tokens=8,
                temperature=0.0,
            )
            for name in ("tiny", "tuned", "tiny")
        ]  # fmt: skip
        texts = [s.choices[0].message.content for s in said]
        assert texts[0] == texts[2] != texts[1]
        assert said[0].usage is not None
        assert said[0].usage.completion_tokens <= 8
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE_S) == 130


def test_a_key_is_made_once_with_its_public_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernel", "key", "new", "judge", "--keys", str(tmp_path)]) == 0
    assert main(["kernel", "key", "new", "judge", "--keys", str(tmp_path)]) == 2
    assert "choose another name" in capsys.readouterr().err
    assert (tmp_path / "judge.pub").read_text().startswith("-----BEGIN PUBLIC KEY-----")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"choices": []}', "[" * 100_000])
def test_a_file_without_a_receipt_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "answer.json"
    path.write_text(content)
    assert main(["kernel", "verify", str(path), "--keys", str(tmp_path)]) in (1, 2)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_tokens_are_created_listed_and_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ["--tokens", str(tmp_path / "tokens")]
    assert main(["token", "create", "--scope", "complete", "--expires", "30d", *file]) == 0
    secret = capsys.readouterr().out.strip()
    assert re.fullmatch(r"crl_[\w-]{43}", secret)
    assert main(["token", "list", *file]) == 0
    listed = capsys.readouterr().out
    assert secret not in listed
    assert main(["token", "revoke", listed.split()[0], *file]) == 0
    assert main(["token", "list", *file]) == 0
    assert "has ended" in capsys.readouterr().out
    assert main(["token", "create", "--scope", "complete", "--expires", "soon", *file]) == 2


def test_serve_without_a_key_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = serve_yaml(tmp_path, "http://127.0.0.1:9")
    assert main(["serve", "--config", str(path)]) == 2
    assert "cuda-rl kernel key new judge" in capsys.readouterr().err


def test_check_says_which_model_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_key(tmp_path / "keys", "judge")
    upstream = Upstream(lambda body: "x")
    with upstream_running(upstream) as url:
        path = serve_yaml(tmp_path, url)
        assert main(["serve", "--config", str(path), "--check"]) == 3
        assert "has not fake" in capsys.readouterr().out
        upstream.models = ["fake"]
        assert main(["serve", "--config", str(path), "--check"]) == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("endpoint: {}\n", "did you mean endpoints"),
        ("- a\n", "must hold settings"),
        ("a: [\n", "not YAML"),
        ("backends: []\n", "backends"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(
        text if not text.startswith("endpoint") else (EXAMPLES / "serve.yaml").read_text() + text
    )
    with pytest.raises(UsageError, match=told):
        read_config(path)

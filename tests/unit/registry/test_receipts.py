"""Receipts: what is signed, and what does not verify."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from coding_framework.cli import main
from coding_framework.data.registry import find_task
from coding_framework.deployment.server import _block
from coding_framework.errors import InfrastructureError, UnwritableError, UsageError
from coding_framework.registry.receipts import (
    ReceiptError,
    canonical,
    check_receipt,
    judged_on,
    load_key,
    new_key,
    receipt_of,
)
from coding_framework.types import Receipt, Verdict
from support.registered import signed_receipt
from support.serving import ScriptedJudge

pytestmark = pytest.mark.unit


def verdict_of(code: str = "kernel") -> Verdict:
    return asyncio.run(ScriptedJudge()(find_task("relu"), code))


@pytest.fixture
def receipt(tmp_path: Path) -> dict[str, Any]:
    key = new_key(tmp_path, "judge")
    made = receipt_of(find_task("relu"), verdict_of(), reference="registered", key=key)
    return made.model_dump(mode="json")


def test_a_receipt_holds_by_the_public_key(receipt: dict[str, Any], tmp_path: Path) -> None:
    assert check_receipt(receipt, tmp_path).op == "relu"


def test_a_receipt_of_the_emulator_says_so(receipt: dict[str, Any]) -> None:
    assert receipt["device"] == "emulator of script"


def test_a_verdict_names_the_emulator_now_and_the_gpu_before_in_one_receipt() -> None:
    verdict = verdict_of()
    for device in ("NVIDIA H200", "emulator of NVIDIA H200"):
        named = verdict.receipt.model_copy(update={"device": device})
        assert judged_on(verdict.model_copy(update={"receipt": named})) == "emulator of NVIDIA H200"
        assert named.gpu == "NVIDIA H200"


@pytest.mark.parametrize("field", ["kernel", "task", "verdict"])
def test_a_changed_digest_does_not_verify(
    receipt: dict[str, Any], tmp_path: Path, field: str
) -> None:
    with pytest.raises(ReceiptError, match="signature"):
        check_receipt({**receipt, field: f"sha256:{'0' * 64}"}, tmp_path)


def test_a_changed_time_does_not_verify(receipt: dict[str, Any], tmp_path: Path) -> None:
    shape = {**receipt["shapes"][0], "kernel_ms": 0.5}
    with pytest.raises(ReceiptError, match="signature"):
        check_receipt({**receipt, "shapes": [shape]}, tmp_path)


def test_another_key_of_the_same_name_does_not_verify(
    receipt: dict[str, Any], tmp_path: Path
) -> None:
    new_key(tmp_path / "other", "judge")
    with pytest.raises(ReceiptError, match="signature"):
        check_receipt(receipt, tmp_path / "other")


@pytest.mark.parametrize("signature", ["", "ed25519:", "ed25519:!!", "rsa:AAAA", "ed25519:AAAA"])
def test_a_signature_that_is_none_does_not_verify(
    receipt: dict[str, Any], tmp_path: Path, signature: str
) -> None:
    with pytest.raises(ReceiptError, match="signature"):
        check_receipt({**receipt, "signature": signature}, tmp_path)


def test_what_is_no_receipt_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReceiptError, match="no receipt"):
        check_receipt({"a": 1}, tmp_path)


def test_a_key_name_with_a_path_is_refused(receipt: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        check_receipt({**receipt, "key": "../judge"}, tmp_path)


def test_a_missing_public_key_says_where_to_get_it(receipt: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"copy judge\.pub"):
        check_receipt(receipt, tmp_path / "none")


def test_only_a_correct_verdict_gets_a_receipt(tmp_path: Path) -> None:
    key = new_key(tmp_path, "judge")
    wrong = verdict_of("status=wrong_output")
    with pytest.raises(ReceiptError, match="wrong_output"):
        receipt_of(find_task("relu"), wrong, reference="registered", key=key)


def test_a_verdict_of_an_experiment_gets_no_receipt(tmp_path: Path) -> None:
    key = new_key(tmp_path, "judge")
    loose = verdict_of().model_copy(update={"receipt": Receipt(experiment_without=("races",))})
    with pytest.raises(ReceiptError, match="races"):
        receipt_of(find_task("relu"), loose, reference="registered", key=key)


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    new_key(tmp_path, "judge")
    before = (tmp_path / "judge.key").read_bytes()
    with pytest.raises(UsageError, match="already"):
        new_key(tmp_path, "judge")
    assert (tmp_path / "judge.key").read_bytes() == before
    assert (tmp_path / "judge.key").stat().st_mode & 0o077 == 0


def test_a_key_that_cannot_be_written_whole_leaves_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(InfrastructureError, match="is full"):
            new_key(tmp_path, "judge")
    assert list(tmp_path.iterdir()) == []
    new_key(tmp_path, "judge")
    (tmp_path / "judge.pub").unlink()
    with pytest.raises(UsageError, match="already"):
        new_key(tmp_path, "judge")
    assert [path.name for path in tmp_path.iterdir()] == ["judge.key"]


def test_a_kept_key_signs_as_the_new_one_did(tmp_path: Path) -> None:
    new_key(tmp_path, "judge")
    made = receipt_of(
        find_task("relu"), verdict_of(), reference="caller", key=load_key(tmp_path, "judge")
    )
    assert check_receipt(made.model_dump(mode="json"), tmp_path).reference == "caller"


def test_a_folder_of_keys_that_cannot_be_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UnwritableError, match="choose a folder that can be written"):
        new_key(tmp_path / "file", "judge")


def test_a_key_file_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "judge.key").write_text("hello")
    with pytest.raises(UsageError, match="no private key"):
        load_key(tmp_path, "judge")


def test_what_is_signed_has_one_form() -> None:
    assert canonical({"b": 0.1, "a": "ä", "signature": "x"}) == '{"a":"ä","b":0.1}'.encode()


def test_an_answer_is_verified_with_the_kernel_that_it_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "__global__ void k() {}  // \n"
    key = new_key(tmp_path, "judge")
    receipt = signed_receipt(key, find_task("relu"), code)

    def verified(content: str) -> int:
        message = {"role": "assistant", "content": content}
        answer = {"choices": [{"message": message, "cuda_rl": {"receipt": receipt}}]}
        (tmp_path / "answer.json").write_text(json.dumps(answer))
        return main(["kernel", "verify", str(tmp_path / "answer.json"), "--keys", str(tmp_path)])

    assert verified(_block(code) + "It is verified.") == 0
    assert verified(_block(code.replace("k()", "mine()"))) == 1
    assert verified(_block(code.rstrip() + "\n")) == 1
    assert verified("There is none.") == 1
    assert "another kernel than the answer shows" in capsys.readouterr().err


def test_a_signature_has_one_spelling(tmp_path: Path, receipt: dict[str, Any]) -> None:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    said = receipt["signature"]
    holds = []
    for digit in digits:
        try:
            check_receipt({**receipt, "signature": f"{said[:-3]}{digit}=="}, tmp_path)
        except ReceiptError:
            continue
        holds.append(digit)
    assert holds == [said[-3]]

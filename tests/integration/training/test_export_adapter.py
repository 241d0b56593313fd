"""A trained adapter, exported alone, makes of the start model what the whole export is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from coding_framework.errors import TrainingError
from coding_framework.store.checkpoints import START_MODEL
from coding_framework.training.verl.export import export_adapter, export_model
from coding_framework.training.verl.transformers_server import ServerConfig, TransformersServer
from support import tiny_rl

pytestmark = pytest.mark.integration


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return tiny_rl.write_tiny_model(tmp_path / "model")


def checkpoint(start: Path, folder: Path, rank: int) -> Path:
    """An actor folder as verl writes it for one process: the weights, or an adapter's alone."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    model.config.save_pretrained(folder / "huggingface")
    AutoTokenizer.from_pretrained(start).save_pretrained(folder / "huggingface")
    if rank:
        lora = LoraConfig(r=rank, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # exact in bfloat16
                weight.data = torch.randn_like(weight).to(torch.bfloat16).float()
            elif "lora_A" in name:
                weight.data = weight.data.to(torch.bfloat16).float()
        meta = {"r": rank, "lora_alpha": 8, "task_type": "CAUSAL_LM"}
        (folder / "lora_train_meta.json").write_text(json.dumps(meta))
        (folder / START_MODEL).write_text(str(start))
    state = {k: v for k, v in model.state_dict().items() if not rank or "lora_" in k}
    torch.save(state, folder / "model_world_size_1_rank_0.pt")
    return folder


def test_adapter_and_start_model_are_the_exported_model(start: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    actor = checkpoint(start, tmp_path / "actor", rank=4)
    export_model(actor, tmp_path / "whole")
    export_adapter(actor, tmp_path / "adapter", str(start))
    base = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).merge_and_unload()
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype=torch.float32)
    found, expected = adapted.state_dict(), whole.state_dict()
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight)
    moved = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict()
    assert any(not torch.equal(moved[name], weight) for name, weight in expected.items())
    start.rename(tmp_path / "elsewhere")
    with pytest.raises(TrainingError, match=r"holds the adapter of .*model, which is gone"):
        export_model(actor, tmp_path / "again")


async def test_served_adapter_answers_as_the_exported_model_does(
    start: Path, tmp_path: Path
) -> None:
    actor = checkpoint(start, tmp_path / "actor", rank=4)
    export_model(actor, tmp_path / "whole")
    export_adapter(actor, tmp_path / "adapter", str(start))
    assert not list(tmp_path.glob(".*.new"))
    answers = {}
    for name, model, adapter in (
        ("served", start, str(tmp_path / "adapter")),
        ("exported", tmp_path / "whole", None),
        ("start", start, None),
    ):
        server = TransformersServer(
            ServerConfig(
                model_path=str(model), adapter=adapter, dtype="float32", prompt_tokens=32,
                response_tokens=16, max_batch=2,
            )
        )  # fmt: skip
        answers[name] = await server.generate("id", [5, 6, 7], {"temperature": 0.0})
    assert answers["served"].token_ids == answers["exported"].token_ids
    assert answers["served"].log_probs == pytest.approx(answers["exported"].log_probs, abs=1e-4)
    assert answers["served"].log_probs != pytest.approx(answers["start"].log_probs, abs=1e-2)


def test_checkpoint_without_an_adapter_is_named(start: Path, tmp_path: Path) -> None:
    actor = checkpoint(start, tmp_path / "actor", rank=0)
    with pytest.raises(TrainingError, match="has no adapter"):
        export_adapter(actor, tmp_path / "adapter", str(start))

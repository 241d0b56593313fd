"""What the rollout gets of a policy with an adapter: the weights that PEFT makes, to the bit; the
policy stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from coding_framework.training.verl import worker

pytestmark = pytest.mark.unit


@pytest.fixture
def one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    monkeypatch.setattr(worker, "get_device_id", lambda: "cpu")
    yield
    torch.distributed.destroy_process_group()


def engine(dtype: str = "bf16", **lora: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=40, tie_word_embeddings=True,
    )  # fmt: skip
    adapter = LoraConfig(r=4, lora_alpha=6, target_modules="all-linear", **lora)
    model = get_peft_model(LlamaForCausalLM(config), adapter)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    for layer in model.base_model.model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    return SimpleNamespace(
        module=model,
        _is_offload_param=False,
        engine_config=SimpleNamespace(mixed_precision={"param_dtype": dtype}),
    )


def never(engine: Any) -> Any:
    raise AssertionError("verl's own way was taken")


def merged_by_peft(made: Any) -> dict[str, torch.Tensor]:
    model = get_peft_model(
        LlamaForCausalLM(made.module.config),
        LoraConfig(r=4, lora_alpha=6, target_modules="all-linear"),
    )
    model.load_state_dict({k: v.full_tensor() for k, v in made.module.state_dict().items()})
    return dict(model.merge_and_unload().state_dict())


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_rollout_gets_base_and_adapter_in_one_and_the_policy_stays(
    one_process: None, dtype: str
) -> None:
    made = engine(dtype)
    before = {k: v.full_tensor().clone() for k, v in made.module.state_dict().items()}
    found = dict(worker.merged(made, never))
    expected = merged_by_peft(made)
    assert found.keys() == expected.keys()
    moved = 0
    for name, weight in found.items():
        assert torch.equal(weight, expected[name].to(weight.dtype)), name
        assert weight.dtype == (torch.bfloat16 if dtype == "bf16" else torch.float32)
        base = before.get(f"base_model.model.{name.removesuffix('.weight')}.base_layer.weight")
        moved += base is not None and not torch.equal(weight, base.to(weight.dtype))
    assert moved == 14  # seven linear layers of each of two blocks
    for name, weight in made.module.state_dict().items():
        assert torch.equal(weight.full_tensor(), before[name])
    # what was handed over does not follow the policy
    kept = {name: weight.clone() for name, weight in found.items()}
    with torch.no_grad():
        for weight in made.module.parameters():
            weight.mul_(2.0)
    assert all(torch.equal(found[name], kept[name]) for name in found)


@pytest.mark.parametrize("lora", [{"use_dora": True}, {"lora_bias": True}])
def test_an_adapter_of_another_kind_is_left_to_verl(
    one_process: None, lora: dict[str, Any]
) -> None:
    theirs: Any = [("verl's", None)]
    assert list(worker.merged(engine(**lora), lambda engine: iter(theirs))) == theirs

"""A random two-layer Llama with a byte-level tokenizer and a chat template, made in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coding_framework.training.sft_config import SFTConfig

_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_lm(folder: Path, *, vocabulary: int = 400, seed: int = 0) -> Path:
    """Write model and tokenizer to `folder`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    raw.train_from_iterator(["torch kernel float forward int const " * 3] * 20, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        tie_word_embeddings=True, initializer_range=0.2, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_sft(base: Path | str, folder: Path | str, **changes: Any) -> SFTConfig:
    """SFT of such a model in seconds."""
    sizes: dict[str, Any] = {
        "base_model": str(base), "output_dir": str(folder), "optimizer_examples": 3, "lora_r": 8,
        "learning_rate": 1e-2, "device": "cpu", **changes,
    }  # fmt: skip
    return SFTConfig.cpu(**sizes)

"""`python -m coding_framework.agents.convert_gguf FILE FOLDER EOS PAD`: a GGUF file as a Hugging
Face folder with bf16 weights, tokenizer and chat template. Called by `models.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(gguf: Path, folder: Path, eos: str, pad: str) -> None:
    """Dequantise `gguf` into `folder`. `eos` ends an answer of the chat template."""
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokenizer.eos_token, tokenizer.pad_token = eos, pad
    tokenizer.clean_up_tokenization_spaces = False  # else "a , b" decodes as "a, b"
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    model.hf_quantizer = None  # else save_pretrained refuses weights that came from GGUF
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    for key in ("is_quantized", "quantization_method"):
        model.__dict__.pop(key, None)
    for config in (model.config, model.generation_config):
        config.eos_token_id = tokenizer.eos_token_id
        config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])

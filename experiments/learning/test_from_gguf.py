"""A model's weights out of a GGUF file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).parent))
import from_gguf

pytestmark = pytest.mark.unit


def test_quantised_and_whole_tensors_get_hugging_faces_names_and_bfloat16(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    packed = gguf.quantize(drawn, gguf.GGMLQuantizationType.Q8_0)
    source = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(source, "qwen2")
    writer.add_tensor("token_embd.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.3.attn_q.bias", drawn[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    subprocess.run([sys.executable, from_gguf.__file__, source, tmp_path], check=True)
    made = load_file(tmp_path / "model.safetensors")
    known = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
    torch.testing.assert_close(
        made,
        {
            "model.embed_tokens.weight": torch.from_numpy(known).bfloat16(),
            "model.layers.3.self_attn.q_proj.bias": torch.from_numpy(drawn[0]).bfloat16(),
        },
        rtol=0,
        atol=0,
    )


def test_a_tensor_that_qwen2_has_not_is_refused() -> None:
    with pytest.raises(KeyError, match="ssm_conv1d"):
        from_gguf.name_of("blk.0.ssm_conv1d.weight")

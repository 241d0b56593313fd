#!/bin/sh
# A model server on a GPU, for `cuda-rl serve` (needs the extra verl: uv sync --extra verl):
#   sh examples/deployment/vllm.sh MODEL [PORT]
# Adapters are loaded while it runs, by `cuda-rl serve` with `adapters: dynamic`: keep the address
# private, since whoever reaches it can load any folder.
set -eu
model=${1:?say which model: a folder or a hub name}
VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 exec vllm serve "$model" --host 127.0.0.1 --port "${2:-8000}" \
    --served-model-name base --enable-lora --max-loras 2 --max-lora-rank 64

#!/usr/bin/env bash
# What docs/RESULTS.md tells of one GPU, from the base model to the trained one: SFT beside the base
# model's tables, the SFT's tables, RL for a time, the RL policy's table and times. As a whole it has
# not been run.
#
#   bash experiments/one_gpu.sh MODEL_FOLDER WORK_FOLDER
#
# MODEL_FOLDER: Qwen2.5-Coder-1.5B-Instruct as a Hugging Face folder. Needs vLLM (uv sync --extra verl)
# and, for tiers 2 and 3, the kernels that `cuda-rl tasks build --tasks 2000` has judged here.
# LR=2e-6 PROMPTS=32 TURNS=1 RL_MINUTES=12 PYTHON=.venv/bin/python change what it does, and
# MISTAKES=FILE of `cuda-rl data mistakes` is shown to SFT, too.
# Runs on after what is done: a stage whose result is in WORK_FOLDER is skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
model=$(realpath "$1") work=$(realpath -m "$2") python=${PYTHON:-.venv/bin/python}
mkdir -p "$work/log"
export HF_HUB_OFFLINE=1 VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 \
    TORCH_CUDNN_SDPA_DEPRIORITIZED=1 RAY_memory_monitor_refresh_ms=0 PYTHONUNBUFFERED=1
url=http://127.0.0.1:8000
tasks=(--scope all --tasks 110 --samples 4 --turns 3 --temperature 0.6)
say() { printf '== %s: %s\n' "$(date +%H:%M:%S)" "$*"; }

serve() { # FOLDER NAME [more]: a server until `unserve`
    local folder=$1 name=$2
    shift 2
    setsid "$python" -m vllm.entrypoints.openai.api_server --model "$folder" --served-model-name "$name" \
        --host 127.0.0.1 --port 8000 --gpu-memory-utilization 0.3 --max-model-len 4096 \
        --max-num-seqs 192 --dtype bfloat16 --generation-config vllm --uvicorn-log-level warning \
        -cc '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}' "$@" >"$work/log/serve_$name.log" 2>&1 &
    server=$!
    until curl -sf "$url/health" >/dev/null; do
        kill -0 "$server" 2>/dev/null || { say "no server: see $work/log/serve_$name.log"; exit 1; }
        sleep 1
    done
}
unserve() { kill -- "-$server" 2>/dev/null; sleep 5; kill -9 -- "-$server" 2>/dev/null; sleep 2; }

feedback() { # NAME PROMPTS: both arms of feedback_value.py; the first is the model's pass@1
    [ -f "$work/feedback_value.$1.json" ] && return
    "$python" experiments/feedback_value.py --model "$1" --server "$url/v1" --tokenizer "$model" \
        "${tasks[@]}" --prompts "$2" --max-new-tokens 1536 --max-prompt-tokens 2048 --concurrency 128 \
        --minutes 6 --output-dir "$work/feedback_$1" --output "$work/feedback_value.$1.json"
}

sft() {
    [ -f "$work/sft/generator/adapter_model.safetensors" ] && return
    "$python" run_sft_training.py --config configs/one_gpu.yaml --base-model "$model" --task-scope all \
        ${MISTAKES:+--extra-examples "$MISTAKES"} --held-out-examples 64 --held-out-tasks 0 --no-wandb \
        --output-dir "$work/sft" >"$work/log/sft.log" 2>&1
}

rl() { # for RL_MINUTES from its first step on, then the last checkpoint as a model
    [ -f "$work/rl_model/config.json" ] && return
    setsid "$python" run_multiturn_rl_training.py --config configs/one_gpu.yaml \
        --generator-checkpoint "$work/sft/generator" --output-dir "$work/rl" --lora-rank 0 \
        --learning-rate "${LR:-2e-6}" --rl-batch-size "${PROMPTS:-32}" --samples-per-prompt 8 \
        --max-turns "${TURNS:-1}" --num-tasks 2100 --stop-reward 0.01 \
        --num-episodes 200 --save-every 5 --task-scope all --gpu-memory-utilization 0.3 --no-wandb \
        >"$work/log/rl.log" 2>&1 &
    local trainer=$! left=$((60 * ${RL_MINUTES:-12}))
    until [ -f "$work/rl/steps.jsonl" ]; do kill -0 "$trainer" 2>/dev/null || return 1; sleep 1; done
    while [ "$left" -gt 0 ] && kill -0 "$trainer" 2>/dev/null; do sleep 1; left=$((left - 1)); done
    kill -TERM -- "-$trainer" 2>/dev/null; sleep 10; kill -9 -- "-$trainer" 2>/dev/null; sleep 5
    local manifest
    manifest=$(find "$work/rl" -name manifest.json | sort -V | tail -n 1)
    [ -n "$manifest" ] || return 1
    "$python" -m coding_framework.training.verl.export "$(dirname "$manifest")/actor" "$work/rl_model"
}

say "SFT, beside the base model's tables"
serve "$model" base --enable-lora --max-lora-rank 16 --max-loras 2
sft &
learning=$!
feedback base v2
wait "$learning" || { say "SFT failed: see $work/log/sft.log"; unserve; exit 1; }
say "the SFT's tables"
curl -s -X POST "$url/v1/load_lora_adapter" -H 'Content-Type: application/json' \
    -d "{\"lora_name\": \"sft\", \"lora_path\": \"$work/sft/generator\"}" && echo
feedback sft v1
unserve
say "RL"
rl || { say "RL failed: see $work/log/rl.log"; exit 1; }
say "the RL policy's tables"
serve "$work/rl_model" rl
feedback rl v1
unserve
mkdir -p "$work/held_out"
for label in base sft rl; do
    sed "s#\"conversation_id\":\"feedback/#\"conversation_id\":\"$label/#" \
        "$work/feedback_$label/feedback.jsonl" >"$work/held_out/$label.jsonl"
done
for label in sft rl; do
    "$python" benchmarks/held_out.py --part time --label "$label" "${tasks[@]}" --workers 8 \
        --minutes 3 --work "$work/held_out"
done
"$python" benchmarks/held_out.py --part report "${tasks[@]}" --work "$work/held_out" \
    --output "$work/held_out.json"
"$python" benchmarks/training.py --read --folder "$work/rl" --output "$work/training.json"
say "done: $work"

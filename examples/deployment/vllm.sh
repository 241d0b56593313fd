#!/bin/sh
# The whole story on one GPU: vLLM with two adapters, one of them the incumbent; a verified kernel by
# OpenAI's client; its receipt; a short rollout; and the check of its every decision.
#
#     sh examples/deployment/vllm.sh MODEL ADAPTER ADAPTER [FOLDER]
#
# MODEL, ADAPTER: folders. It needs vllm (uv sync --extra verl), openai, and nvcc for the judge.
# JUDGE=emulator judges without the GPU; PYTHON names another program than python; VLLM_ARGS are
# further flags of vLLM's, for example --enforce-eager, which starts sooner; USERS and AT_ONCE say how
# many ask in the rollout, which needs 40. VLLM is another command than vLLM's, which takes --port.
# What is started here ends here. vLLM's address must stay private: whoever reaches it loads folders.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=${1:?say which model: a folder} first=${2:?say which adapters: two folders} second=${3:?two}
for given in "$model" "$first" "$second"; do
    [ -d "$given" ] || { echo "$given is no folder" >&2; exit 2; }
done
first=$(cd "$first" && pwd) second=$(cd "$second" && pwd) # vLLM loads them by their whole path
folder=${4:-$(mktemp -d)}
python=${PYTHON:-python}
port=${PORT:-8000}
db="$folder/deployment.sqlite"
mkdir -p "$folder"
fetch() {
    "$python" -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], None, 10).read().decode())' "$1"
}
run() { echo "\$ cuda-rl $*"; "$python" -m coding_framework.cli "$@"; }
started=""
end() { # whoever has not ended after half a minute is killed
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    (sleep 30; for pid in $started; do kill -9 "$pid" 2>/dev/null || true; done) >/dev/null 2>&1 &
    killer=$!
    for pid in $started; do wait "$pid" 2>/dev/null || true; done
    kill "$killer" 2>/dev/null || true
}
trap end EXIT
trap 'exit 143' INT TERM
await() { # SECONDS PID COMMAND...: until the command succeeds, as long as the process lives
    seconds=$1 pid=$2; shift 2
    while ! "$@" >/dev/null 2>&1; do
        seconds=$((seconds - 1))
        if [ "$seconds" -lt 0 ] || ! kill -0 "$pid" 2>/dev/null; then
            echo "$* did not come within its time, or its process ended: see $folder" >&2
            tail -n 30 "$folder"/*.log >&2; exit 1
        fi
        sleep 1
    done
}

echo "# vLLM, with room for two adapters; cuda-rl serve has it load them"
VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 ${VLLM:-"$python" -m vllm.entrypoints.cli.main serve "$model" \
    --served-model-name base --enable-lora --max-loras 2 --max-lora-rank 64 \
    --max-model-len 8192 --gpu-memory-utilization 0.5 --host 127.0.0.1 ${VLLM_ARGS:-}} \
    --port "$port" >"$folder/vllm.log" 2>&1 &
vllm=$! started="$!"
await 600 "$vllm" fetch "http://127.0.0.1:$port/v1/models"

cat >"$folder/serve.yaml" <<END
listen: {port: 0}
backends:
  - {name: vllm, url: "http://127.0.0.1:$port", adapters: dynamic}
versions:
  incumbent: {model: first, adapter: "$first"}
  candidate: {model: second, adapter: "$second"}
endpoints:
  cuda-kernels: {version: incumbent, candidates: 4, turns: 2, budget_s: 120}
judge: {backend: ${JUDGE:-auto}, workers: 2, queue: 64}
tokens: $folder/tokens
keys: $folder/keys
database: $db
unit: user
END
[ -e "$folder/keys/judge.key" ] || run kernel key new judge --keys "$folder/keys"
"$python" -m coding_framework.cli serve --config "$folder/serve.yaml" --allow-native-sandbox \
    >"$folder/serve.out" 2>"$folder/serve.log" &
serve=$! started="$! $started"
await 300 "$serve" grep -q "serving on" "$folder/serve.out"
url=$(sed -n 's/^serving on //p' "$folder/serve.out")
await 300 "$serve" fetch "$url/readyz"
models() {
    fetch "http://127.0.0.1:$port/v1/models" | "$python" -c '
import json, sys
names = sorted(m["id"] for m in json.load(sys.stdin)["data"])
print(names)
sys.exit(not {"first", "second"} <= set(names))'
}
await 120 "$serve" models
echo "# both adapters are loaded:"
models

echo "# a verified kernel, by OpenAI's client, and its receipt"
ask() { "$python" "$here/ask.py" --url "$url" --endpoint cuda-kernels --task relu "$@"; }
ask --candidates 8 --save "$folder/answer.json"
run kernel verify "$folder/answer.json" --keys "$folder/keys"

echo "# a rollout: half of the users are answered by the second adapter"
cat >"$folder/rollout.yaml" <<END
shadow_units: 0
window_s: 1
horizon_units: 40
answer_within_s: 300
steps: [{share: 0.5, min_dwell_s: 0, min_units: 0}]
END
run deploy start cuda-kernels candidate --reason "the second adapter" --without-evaluation \
    --config "$folder/rollout.yaml" --database "$db"
ask --users "${USERS:-60}" --at-once "${AT_ONCE:-16}" --candidates 1 --turns 1 || true
over() { run deploy status cuda-kernels --database "$db" | grep -Eq 'PROMOTED|ROLLED_BACK|STOPPED'; }
await 120 "$serve" over
run deploy status cuda-kernels --database "$db"
"$python" -c '
import collections, json, sqlite3, sys
events = sqlite3.connect(sys.argv[1]).execute("SELECT kind, variant, body FROM event").fetchall()
print(collections.Counter((kind, variant) for kind, variant, _ in events if variant))
print(collections.Counter((variant, json.loads(body)["status"])
                          for kind, variant, body in events if kind == "outcome"))' "$db"
echo "# all of it held"

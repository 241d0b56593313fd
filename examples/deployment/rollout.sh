#!/bin/sh
# A story of two rollouts, in about a minute: a candidate that fails is rolled back, a better one is
# promoted.
#
#     sh examples/deployment/rollout.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$(mktemp -d)}
db="$folder/deployment.sqlite"
run() { echo "\$ cuda-rl $*"; ${CUDA_RL:-cuda-rl} "$@" --database "$db"; }
traffic() { ${PYTHON:-python} "$here/traffic.py" --database "$db" --alias kernels "$@"; }

run deploy register v1 --model kernels-v1
run deploy register v2 --model kernels-v2
run deploy register v3 --model kernels-v3
run deploy create kernels v1

echo "# v2 is fast, but half of its requests fail as soon as it serves users"
run deploy start kernels v2 --reason "a faster one" --config "$here/rollout.yaml" --without-evaluation
traffic --version v1:1.0 --version v2:2.5:0.5
run deploy status kernels

echo "# v3 is fast and does not fail"
run deploy start kernels v3 --reason "v2, mended" --config "$here/rollout.yaml" --without-evaluation
traffic --version v1:1.0 --version v3:2.5
run deploy status kernels

run deploy history kernels

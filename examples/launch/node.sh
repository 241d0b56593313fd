#!/usr/bin/env bash
# What one node of a Ray cluster runs; the launchers beside this file start it on each node.
#
#   node.sh first FIRST COMMAND...   starts Ray at the address FIRST, waits for NODES, runs COMMAND
#   node.sh train FIRST              offers this node's GPUs until the first node ends
#   node.sh judge FIRST              judges alone: offers Ray neither processors nor GPUs
#
# NODES: of the whole cluster. GPUS: of this node. JUDGE_JOBS: candidates that a judging node takes
# at a time. OBJECT_STORE_MIB: Ray's shared memory. SELF: this node's own address, where it has
# several. COMMAND joins by `ray_address: auto` in its recipe. RAY_AUTH_TOKEN: a secret that all
# nodes share; without one each node's Ray would write its own into the home folder.
set -euo pipefail
role=${1:?first, train or judge} first=${2:?the address of the first node}
shift 2
port=${RAY_PORT:-6379}
: "${RAY_AUTH_TOKEN:?a secret that all nodes share, as openssl rand -hex 32 gives}"
export RAY_ADDRESS="$first:$port" RAY_AUTH_MODE=token RAY_AUTH_TOKEN
options=("--object-store-memory=$((${OBJECT_STORE_MIB:-65536} << 20))" --disable-usage-stats)
if [ "$role" = judge ]; then
  options+=(--num-cpus=0 --num-gpus=0 "--resources={\"judge\": ${JUDGE_JOBS:-32}}")
else
  options+=("--num-gpus=${GPUS:-8}")
fi
case $role in
  first)
    trap 'ray stop > /dev/null' EXIT
    ray start --head "--node-ip-address=${SELF:-$first}" "--port=$port" --include-dashboard=false "${options[@]}"
    python - "${NODES:?of the whole cluster}" << 'PYTHON'
import sys
import time

import ray

ray.init(address="auto", log_to_driver=False)
wanted, until = int(sys.argv[1]), time.monotonic() + 900
while (there := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > until:
        sys.exit(f"{there} of {wanted} nodes joined within 15 minutes: look at the others' output")
    time.sleep(1)
PYTHON
    "$@"
    ;;
  train | judge)
    [ -z "${SELF:-}" ] || options+=("--node-ip-address=$SELF")
    until ray start "--address=$first:$port" "${options[@]}"; do
      [ "$SECONDS" -lt 900 ] || { echo "no Ray at $first:$port for 15 minutes" >&2; exit 1; }
      ray stop > /dev/null
      sleep 2
    done
    trap 'ray stop > /dev/null' EXIT
    while timeout 10 bash -c "exec 3<> /dev/tcp/$first/$port" 2> /dev/null; do sleep 5; done
    ;;
  *)
    echo "the role is first, train or judge, not $role" >&2
    exit 2
    ;;
esac

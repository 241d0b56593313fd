#!/usr/bin/env bash
# Two nodes of eight GPUs that train and two without that judge, under Slurm:
#
#   sbatch examples/launch/slurm.sh
#
# Run it in the clone, after `uv sync --extra verl`, on a file system that all nodes see. The recipe
# says the same numbers of nodes. Another Slurm job may hold the same nodes: Ray's port is the job's.
#SBATCH --job-name=cuda-rl --time=24:00:00
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=128 --mem=0
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=32 --mem=64G
set -euo pipefail
recipe=${1:-configs/several_nodes.yaml} output=${2:-outputs/nodes}
here=examples/launch/node.sh
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_0"))
first=${nodes[0]}
export NODES=$((SLURM_JOB_NUM_NODES_HET_GROUP_0 + SLURM_JOB_NUM_NODES_HET_GROUP_1))
export GPUS=8 JUDGE_JOBS=32 RAY_PORT=$((20000 + SLURM_JOB_ID % 10000))
export PATH="$PWD/.venv/bin:$PATH" RAY_AUTH_TOKEN=$(openssl rand -hex 32)

srun --het-group=1 bash "$here" judge "$first" &
[ "${#nodes[@]}" = 1 ] || srun --het-group=0 --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) \
  --exclude="$first" bash "$here" train "$first" &
srun --het-group=0 --nodes=1 --ntasks=1 --nodelist="$first" bash "$here" first "$first" \
  python launch_complete_cuda_training.py --config "$recipe" --output-dir "$output"

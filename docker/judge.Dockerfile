# The judge as an image: `cuda-rl` with nvcc, for machines that only have a container engine.
#
#   docker build -t cuda-rl-judge -f docker/judge.Dockerfile .
#   docker run --rm -v "$PWD:/work" cuda-rl-judge judge --task relu --kernel /work/relu.cu
#   docker run --rm -v "$PWD:/work" cuda-rl-judge token create --scope verify --tokens /work/tokens
#   docker run --rm --init -p 8090:8090 -v "$PWD/tokens:/tokens:ro" cuda-rl-judge \
#     judge-server --host 0.0.0.0 --tokens /tokens
#
# On a GPU: `--gpus all`. A container forbids the namespaces of bubblewrap, so `--sandbox auto` takes
# the weaker `native`; `--security-opt seccomp=unconfined --cap-add SYS_ADMIN` gives bubblewrap back.
# EXTRAS: of pyproject.toml, such as verl for an image that trains. TORCH_INDEX: where torch is from;
# empty for the build with CUDA.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
ARG EXTRAS=serve,mcp
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ bubblewrap util-linux \
    && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man
WORKDIR /coding_framework
COPY . .
RUN if [ -n "${TORCH_INDEX}" ]; then pip install --no-cache-dir torch --index-url "${TORCH_INDEX}"; fi \
    && pip install --no-cache-dir ".[${EXTRAS}]"
ENV CUDA_RL_CACHE=/tmp/cuda-rl
ENTRYPOINT ["cuda-rl"]
CMD ["--help"]
